"""Whoever waits for a thread is told by the server, and learns of it too where that fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from crews import WORKERS, Open
from servers.bouncer import MISSING, Bouncer, find_pgbouncer
from servers.cluster import Cluster
from servers.processes import wait_until

import clew
from clew.engines.postgres import listen

NEVER_SECONDS = 3600.0
LISTENERS = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND query LIKE 'LISTEN%%'"


@pytest.fixture
def no_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by themselves: either they are told, or they wait too long for any test."""
    monkeypatch.setattr(listen, "LOOK_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(listen, "POLL_SECONDS", NEVER_SECONDS)


class Waiting:
    """Somebody who waits for a record in a thread of their own."""

    def __init__(self, store: clew.Store, thread: str, after: int = 0) -> None:
        self.answers: list[Any] = []
        self._thread = threading.Thread(target=self._wait, args=(store, thread, after))
        self._thread.start()

    def _wait(self, store: clew.Store, thread: str, after: int) -> None:
        try:
            self.answers.append(store.engine.wait(thread, after=after, timeout_seconds=120))
        except clew.ClewError as error:
            self.answers.append(type(error))

    def answer(self) -> Any:
        self._thread.join(60)
        assert self.answers, "it still waits"
        return self.answers[0]


@pytest.fixture
def watched(postgres_cluster: Cluster, database: str) -> Callable[[str], None]:
    """Returns when somebody has asked to be told of a thread."""
    query = "SELECT 1 FROM clew.threads WHERE id = %s AND watched_us > clew.now_us()"

    def until(thread: str) -> None:
        wait_until(
            lambda: bool(postgres_cluster.sql(query, thread, database=database)), "it is watched"
        )

    return until


@pytest.mark.usefixtures("no_looking")
def test_a_waiter_is_told_by_the_server(
    beside: clew.Store, opened: Open, postgres_cluster: Cluster, database: str, watched: Any
) -> None:
    other = opened(postgres_cluster.dsn(database))
    for name in "tu":
        other.create(name)
    waiters = [Waiting(beside, name) for name in "ttu"]
    for name in "tu":
        watched(name)
        other.get(name).append("event", 1)
    assert [waiter.answer() for waiter in waiters] == [True] * 3


@pytest.mark.usefixtures("no_looking")
def test_a_follower_is_told_of_what_another_process_writes(
    beside: clew.Store, postgres_cluster: Cluster, database: str, watched: Any
) -> None:
    thread = beside.create("t")
    seen: list[Any] = []
    feed = thread.follow(after=0)
    follower = threading.Thread(target=lambda: seen.extend(next(feed) for _ in range(30)))
    follower.start()
    watched("t")
    writer = subprocess.run(
        [sys.executable, WORKERS, "append", postgres_cluster.dsn(database), "w", "t", "30"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    follower.join(60)
    told = [line.split()[1] for line in writer.stdout.splitlines()[1:]]
    assert [record.id for record in seen] == told


@pytest.mark.usefixtures("no_looking")
def test_every_sort_of_append_is_told(beside: clew.Store, watched: Any) -> None:
    thread = beside.create("t")
    appends: list[Callable[[], object]] = [
        lambda: thread.append("event", 1),
        lambda: thread.append("event", {"text": "large " * 5000}),
        lambda: thread.append([clew.draft("event", n) for n in range(3)]),
        lambda: thread.move(None),
        lambda: thread.set(title="x"),
    ]
    for append in appends:
        waiter = Waiting(beside, "t", after=thread.info.seq)
        watched("t")
        append()
        assert waiter.answer() is True


@pytest.mark.usefixtures("no_looking")
def test_what_others_are_told_is_not_taken_for_a_pooler(
    beside: clew.Store, postgres_cluster: Cluster, database: str, watched: Any
) -> None:
    """Whether listening works is tried out while the channel is busy."""
    beside.create("t")
    done = threading.Event()

    def chatter() -> None:
        with psycopg.connect(postgres_cluster.dsn(database), autocommit=True) as connection:
            while not done.is_set():
                connection.execute("SELECT pg_notify('clew.appended', 'probe of somebody else')")

    other = threading.Thread(target=chatter)
    other.start()
    try:
        waiter = Waiting(beside, "t")
        watched("t")
        beside.get("t").append("event", 1)
        assert waiter.answer() is True
    finally:
        done.set()
        other.join(60)


def test_where_nobody_waits_nobody_is_told(
    beside: clew.Store, postgres_cluster: Cluster, database: str, watched: Any
) -> None:
    """Telling makes commits wait for each other, so it is not done for nothing."""
    for name in "tu":
        beside.create(name)
    with psycopg.connect(postgres_cluster.dsn(database), autocommit=True) as ear:
        waiter = Waiting(beside, "t")
        watched("t")
        ear.execute('LISTEN "clew.appended"')
        beside.get("u").append("event", 1)
        beside.get("t").append("event", 1)
        ear.execute("SELECT pg_notify('clew.appended', 'the end')")
        heard = [notice.payload for notice in ear.notifies(timeout=60, stop_after=2)]
        assert waiter.answer() is True
    (row,) = postgres_cluster.sql(
        "SELECT space, no FROM clew.threads WHERE id = 't'", database=database
    )
    assert heard == [f"{row[0]} {row[1]} 1", "the end"]


# --- where telling fails ----------------------------------------------------------------------


def test_a_listener_that_is_ended_leaves_nobody_waiting(
    beside: clew.Store,
    postgres_cluster: Cluster,
    database: str,
    watched: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beside.create("t")
    waiter = Waiting(beside, "t")
    watched("t")
    for (pid,) in postgres_cluster.sql(LISTENERS, database):
        postgres_cluster.sql("SELECT pg_terminate_backend(%s)", pid)
    wait_until(lambda: not postgres_cluster.sql(LISTENERS, database), "nobody listens")
    beside.get("t").append("event", 1)
    assert waiter.answer() is True


def test_a_listener_that_was_ended_comes_back(
    beside: clew.Store,
    postgres_cluster: Cluster,
    database: str,
    watched: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listen, "RETRY_SECONDS", 0.01)
    beside.create("t")
    assert not beside.engine.wait("t", after=0, timeout_seconds=0.01)  # it listens from now on
    listener = beside.engine._listener
    assert listener.works
    ((pid,),) = postgres_cluster.sql(LISTENERS, database)
    postgres_cluster.sql("SELECT pg_terminate_backend(%s)", pid)
    wait_until(
        lambda: postgres_cluster.sql(LISTENERS, database) not in ([], [(pid,)]) and listener.works,
        "it listens again",
    )
    monkeypatch.setattr(listen, "LOOK_SECONDS", NEVER_SECONDS)
    waiter = Waiting(beside, "t")
    watched("t")
    beside.get("t").append("event", 1)
    assert waiter.answer() is True


@pytest.mark.usefixtures("no_looking")
def test_closing_ends_the_waiting(beside: clew.Store, watched: Any) -> None:
    beside.create("t")
    waiter = Waiting(beside, "t")
    watched("t")
    beside.close()
    assert waiter.answer() is clew.Closed


@pytest.mark.usefixtures("no_looking")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_listens_for_itself(
    beside: clew.Store, postgres_cluster: Cluster, database: str
) -> None:
    thread = beside.create("t")
    assert not beside.engine.wait("t", after=0, timeout_seconds=0.01)
    child = os.fork()
    if child == 0:
        woken = False
        try:
            woken = beside.engine.wait("t", after=0, timeout_seconds=60)
        finally:
            os._exit(0 if woken else 1)
    wait_until(lambda: len(postgres_cluster.sql(LISTENERS, database)) == 2, "both listen")
    thread.append("event", 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- behind a pooler --------------------------------------------------------------------------


@pytest.fixture
def bouncer(postgres_cluster: Cluster) -> Iterator[Bouncer]:
    if find_pgbouncer() is None:
        pytest.skip(MISSING)
    with Bouncer(postgres_cluster) as made:
        yield made


def test_behind_a_pooler_those_who_wait_look_for_themselves(
    bouncer: Bouncer, database: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A LISTEN succeeds there, and nothing ever comes: that is found out, and not guessed."""
    monkeypatch.setattr(listen, "PROBE_SECONDS", 0.2)
    store = opened(bouncer.dsn(database))
    thread = store.create("t")
    waiter = Waiting(store, "t")
    wait_until(lambda: store.engine._listener._works is False, "it knows that nothing comes")
    thread.append("event", 1)
    assert waiter.answer() is True
    assert [record.seq for record in thread.follow(after=0, idle_seconds=0.01)] == [1]
