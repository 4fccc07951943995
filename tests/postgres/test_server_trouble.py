"""A server that restarts, loses its backends or has no connection free costs time, not entries."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from crews import Crew, Open
from psycopg import errors as states
from servers.cluster import Cluster
from servers.processes import wait_until

import clew
from clew.engines.postgres import blobs, lookup
from clew.engines.postgres import wire as wire_
from clew.engines.postgres import write as write_
from clew.engines.postgres.leases import lease_check
from clew.engines.postgres.rows import to_lease


@pytest.fixture(scope="module")
def fragile() -> Iterator[Cluster]:
    """A server that may be broken, and that stands again after each test."""
    with Cluster(name="fragile") as cluster:
        yield cluster


@pytest.fixture
def address(fragile: Cluster) -> str:
    return fragile.start().dsn(fragile.create_database())


def together(*jobs: Callable[[], object]) -> None:
    """Run jobs in threads; the first error is raised here."""
    errors: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)


# --- the server goes and comes ---------------------------------------------------------------


def test_restarts_in_the_middle_of_appends_lose_and_double_nothing(
    fragile: Cluster, address: str, opened: Open
) -> None:
    store = opened(address, busy_seconds=60)
    names = ["t", "u"]
    for name in names:
        store.create(name)
    with Crew(address, names, count=60) as crew:
        for _ in range(3):
            crew.add_process()
        crew.begin()
        for _ in range(3):
            crew.add_thread(store)
        crew.wait_for(10)
        fragile.restart("fast")
        crew.wait_for(40)
        fragile.restart("immediate")
        crew.wait_for(40)
        fragile.kill()
        fragile.start()
        crew.wait_for(40)
        fragile.kill_backends(hard=True)  # one dead backend makes the server drop all and recover
        crew.finish()
    crew.check(store)


def test_a_frozen_server_holds_things_up_and_nothing_else(
    fragile: Cluster, address: str, opened: Open
) -> None:
    store = opened(address, busy_seconds=60)
    store.create("t")
    with Crew(address, ["t"], count=30) as crew:
        for _ in range(3):
            crew.add_thread(store)
        crew.wait_for(10)
        fragile.freeze()
        before = len(crew.told)
        impatient = None
        try:
            with pytest.raises(clew.Unavailable) as caught:
                impatient = clew.open(f"{address}?connect_timeout=2", busy_seconds=1)
            assert caught.value.committed is False
            assert len(crew.told) <= before + 3, "those whose answers were on their way"
        finally:
            fragile.thaw()
            if impatient is not None:
                impatient.close()
        crew.finish()
    crew.check(store)


def test_a_server_that_stays_away_is_an_error_that_says_so(
    fragile: Cluster, address: str, opened: Open
) -> None:
    store = opened(address, busy_seconds=1)
    store.create("t")
    fragile.stop()
    draft = clew.draft("event", 1)
    for call in (lambda: store.get("t"), lambda: store.engine.append("t", [draft])):
        with pytest.raises(clew.Unavailable, match="no answer within 1 s") as caught:
            call()
        assert caught.value.retryable
    fragile.start()
    assert store.engine.append("t", [draft])[0].seq == 1, "the same handle goes on"


def test_a_check_of_a_server_that_is_away_says_so(
    fragile: Cluster, address: str, opened: Open
) -> None:
    store = opened(address, busy_seconds=1)
    fragile.stop()
    with pytest.raises(clew.Unavailable, match="cannot be reached"):
        store.verify()
    fragile.start()
    assert store.verify() == []


def test_a_writer_whom_others_always_outrun_gives_up_in_time(
    postgres_cluster: Cluster, database: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(postgres_cluster.dsn(database), busy_seconds=2)
    store.create("t")
    monkeypatch.setattr(write_.Append, "_write", lambda *_: False)
    with pytest.raises(clew.Unavailable, match="2 s") as caught:
        store.get("t").append("event", 1)
    assert caught.value.retryable
    monkeypatch.undo()
    assert store.get("t").append("event", 1).seq == 1


# --- backends --------------------------------------------------------------------------------


def test_backends_that_are_ended_all_the_time_cost_nothing_but_time(
    postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    store = opened(postgres_cluster.dsn(database), busy_seconds=60)
    store.create("t")
    with Crew(postgres_cluster.dsn(database), ["t"], count=40) as crew:
        crew.add_process()
        crew.begin()
        for _ in range(4):
            crew.add_thread(store)
        ended = 0
        while not crew.done:
            ended += postgres_cluster.kill_backends(database=database)
            crew.wait_for(8)
        crew.finish()
    assert ended > 10
    crew.check(store)


# --- the pool --------------------------------------------------------------------------------


@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("threads", [1, 16])
def test_more_writers_than_connections_are_all_served(
    connections: int, threads: int, postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    store = opened(postgres_cluster.dsn(database), connections=connections)
    handles = [store.create(f"t{n}") for n in range(threads)]

    def write(n: int) -> None:
        for m in range(5):
            handles[n % threads].append("event", [n, m])

    together(*(lambda n=n: write(n) for n in range(16)))
    assert sum(len(handle.path()) for handle in handles) == 80
    used = postgres_cluster.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = %s", database
    )
    assert used[0][0] <= connections


def test_who_gets_no_connection_in_time_is_told_why(
    postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    store = opened(postgres_cluster.dsn(database), connections=1, busy_seconds=1)
    store.create("t")
    taken, done = threading.Event(), threading.Event()
    draft = clew.draft("event", 1)

    def hold(*_: object) -> None:
        taken.set()
        assert done.wait(60)

    def ask() -> None:
        assert taken.wait(60)
        try:
            with pytest.raises(clew.Unavailable, match="all 1 connections") as caught:
                store.engine.append("t", [draft])
            assert (caught.value.committed, caught.value.retryable) == (False, True)
        finally:
            done.set()

    together(lambda: store.engine._connections.run(hold), ask)
    assert store.get("t").path() == []
    assert store.engine.append("t", [draft])[0].seq == 1


def test_a_sweep_that_asks_the_store_does_not_wait_for_itself(
    postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    """Which blobs snapshots need is read from the store, in the middle of the sweep."""
    store = opened(postgres_cluster.dsn(database), connections=1, busy_seconds=5)
    store.create("t")
    store.blobs.put(b"unused")
    assert store.sweep(grace_seconds=0).blobs == 1


# --- others in the way ------------------------------------------------------------------------


@pytest.fixture
def other(postgres_cluster: Cluster, database: str) -> Iterator[psycopg.Connection]:
    """Somebody with a transaction of their own."""
    with psycopg.connect(postgres_cluster.dsn(database)) as connection:
        yield connection


def waiting(cluster: Cluster, database: str) -> int:
    """How many wait for a lock of somebody else."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
    return int(cluster.sql(query, database)[0][0])


def before_each_record(cluster: Cluster, database: str, work: str) -> None:
    """A trigger that does this in the middle of every append."""
    cluster.sql(
        f"CREATE FUNCTION work() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {work};"
        " RETURN NEW; END $$",
        database=database,
    )
    cluster.sql(
        "CREATE TRIGGER work BEFORE INSERT ON clew.records FOR EACH ROW EXECUTE FUNCTION work()",
        database=database,
    )


def test_a_deadlock_is_tried_again(
    postgres_cluster: Cluster, database: str, opened: Open, other: psycopg.Connection
) -> None:
    """They hold a lock and want the thread's row; we hold the row and want the lock."""
    address = postgres_cluster.dsn(database, options="-cdeadlock_timeout=10ms")
    thread = opened(address, busy_seconds=60).create("t")
    locks = "PERFORM pg_advisory_xact_lock(1); PERFORM pg_advisory_xact_lock(2)"
    before_each_record(postgres_cluster, database, locks)
    other.execute("SET deadlock_timeout = '1h'")  # so that it is us who are sent away
    other.execute("SELECT pg_advisory_xact_lock(2)")

    def gate() -> None:
        with psycopg.connect(postgres_cluster.dsn(database)) as keeper:
            keeper.execute("SELECT pg_advisory_xact_lock(1)")
            held.set()
            wait_until(lambda: waiting(postgres_cluster, database) == 2, "both have come")

    def append() -> None:
        assert held.wait(60)
        thread.append("event", 1)

    def meet() -> None:
        assert held.wait(60)
        wait_until(lambda: waiting(postgres_cluster, database) == 1, "the append holds the row")
        other.execute("UPDATE clew.threads SET watched_us = watched_us")
        other.rollback()

    held = threading.Event()
    together(gate, append, meet)
    assert [entry.body for entry in thread.path()] == [1]
    assert "deadlock detected" in postgres_cluster.said()


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03"])
def test_a_failure_that_says_try_again_is_tried_again(
    code: str, postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    store = opened(postgres_cluster.dsn(database))
    thread = store.create("t")
    postgres_cluster.sql("CREATE SEQUENCE fails", database=database)
    fail = f"RAISE 'not now' USING ERRCODE = '{code}'"
    before_each_record(postgres_cluster, database, f"IF nextval('fails') <= 3 THEN {fail}; END IF")
    thread.append("event", 1)
    thread.set(title="x")
    assert postgres_cluster.sql("SELECT last_value FROM fails", database=database) == [(5,)]
    assert [record.seq for record in thread.read()] == [1, 2]


def test_a_failure_that_always_says_try_again_ends_at_the_deadline(
    postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    store = opened(postgres_cluster.dsn(database), busy_seconds=0.5)
    thread = store.create("t")
    before_each_record(postgres_cluster, database, "RAISE 'not now' USING ERRCODE = '40001'")
    with pytest.raises(clew.Unavailable, match="not now") as caught:
        thread.append("event", 1)
    assert (caught.value.committed, caught.value.retryable) == (False, True)
    assert thread.path() == []


def test_writers_of_one_thread_wait_for_each_other_no_longer_than_they_may(
    postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    store = opened(postgres_cluster.dsn(database), busy_seconds=0.2)
    thread = store.create("t")
    with (
        store.engine._book.heads.write_lock("t"),  # type: ignore[attr-defined]
        pytest.raises(clew.Unavailable, match="other writers of 't'") as caught,
    ):
        thread.append("event", 1)
    assert (caught.value.committed, caught.value.retryable) == (False, True)
    assert thread.append("event", 2).seq == 1


def test_a_lock_that_is_never_let_go_ends_at_the_deadline(
    postgres_cluster: Cluster, database: str, opened: Open, other: psycopg.Connection
) -> None:
    store = opened(postgres_cluster.dsn(database), busy_seconds=1)
    thread = store.create("t")
    other.execute("SELECT 1 FROM clew.threads FOR UPDATE")
    with pytest.raises(clew.Unavailable, match="no answer within 1 s"):
        thread.append("event", 1)
    wait_until(lambda: not waiting(postgres_cluster, database), "the append was called off")
    other.rollback()
    assert thread.path() == []
    assert thread.append("event", 2).seq == 1


def test_a_full_server_is_waited_for(opened: Open) -> None:
    """Others have taken all connections; whoever waits gets one as soon as there is one."""
    settings = {"max_connections": "8", "superuser_reserved_connections": "1"}
    with Cluster(name="small", settings=settings) as small:
        small.sql("CREATE ROLE ordinary LOGIN")
        name = small.create_database()
        small.sql(f"GRANT CREATE ON DATABASE {name} TO ordinary")
        address = small.dsn(name, user="ordinary")
        store = opened(address, busy_seconds=60)
        store.create("t")
        small.kill_backends()
        taken = []
        while len(taken) < 20:
            try:
                taken.append(psycopg.connect(address))
            except psycopg.OperationalError:
                break
        said = len(small.said().encode())

        def let_go() -> None:
            wait_until(lambda: "FATAL" in small.said(said), "somebody was sent away")
            for connection in taken:
                connection.close()

        together(lambda: store.get("t").append("event", 1), let_go)
        assert [entry.body for entry in store.get("t").path()] == [1]


def test_a_store_closes_while_others_wait(
    postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    """Nobody is left waiting for ever, and nobody sees anything but our own errors."""
    store = opened(postgres_cluster.dsn(database), connections=1)
    store.create("t")
    started = threading.Barrier(5)

    def write() -> None:
        started.wait(60)
        with pytest.raises(clew.Closed):
            while True:
                store.get("t").append("event", 1)

    def close() -> None:
        started.wait(60)
        store.close()

    together(close, *[write] * 4)


def test_a_pool_that_another_thread_has_just_closed_is_a_closed_store(
    postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    store = opened(postgres_cluster.dsn(database))
    store.engine._connections._pool.close()  # type: ignore[attr-defined]
    with pytest.raises(clew.Closed):
        store.create("t")


def test_where_many_threads_are_written_no_more_than_some_are_remembered(
    postgres_cluster: Cluster, database: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "REMEMBERED_MAX", 2)
    store = opened(postgres_cluster.dsn(database))
    threads = [store.create(f"t{n}") for n in range(4)]
    for n in range(2):
        for thread in threads:
            thread.append("event", n)
    heads = store.engine._book.heads  # type: ignore[attr-defined]
    assert [heads.guess(thread.id) is None for thread in threads] == [True, True, False, False]
    assert [[e.body for e in thread.path()] for thread in threads] == [[0, 1]] * 4


def test_a_batch_that_is_too_long_for_one_statement_puts_its_blobs_first(
    postgres_cluster: Cluster, database: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(postgres_cluster.dsn(database))
    thread = store.create("t")
    monkeypatch.setattr(blobs, "LOAD_BYTES", 50_000)
    bodies = [random.Random(n).randbytes(30_000).hex() for n in range(3)]
    statements: list[int] = []
    put = blobs.columns
    monkeypatch.setattr(
        blobs, "columns", lambda packed: statements.append(len(packed)) or put(packed)
    )
    thread.append([clew.draft("event", body) for body in bodies])
    assert statements == [1, 1, 1, 0], "one each, and the append refers to them"
    assert [entry.body for entry in thread.path()] == bodies
    assert store.verify() == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (states.ReadOnlySqlTransaction("read-only transaction"), clew.Unavailable),
        (states.DiskFull("No space left on device"), clew.Unavailable),
        (states.ProgramLimitExceeded("index row size exceeds 8191 bytes"), clew.Unavailable),
        (states.ProgramLimitExceeded("total size of jsonb array exceeds"), clew.TooLarge),
        (states.DataCorrupted("invalid page"), clew.Corrupt),
        (states.IndexCorrupted("index is corrupted"), clew.Corrupt),
        (states.UntranslatableCharacter("\\u0000"), clew.InvalidInput),
    ],
)
def test_what_a_server_says_of_itself_is_an_error_of_ours(
    error: psycopg.Error, kind: type[clew.ClewError]
) -> None:
    assert type(wire_.translate(error, "the store")) is kind


def test_nothing_but_the_servers_errors_is_worth_another_try() -> None:
    assert not wire_.is_transient(ValueError("no error of a server"))
    assert wire_.is_transient(states.SerializationFailure("could not serialize"))


def test_a_lease_that_was_never_had_needs_nothing_to_vouch_for_it() -> None:
    assert lease_check("t", to_lease((0, None, None, 0, 0))) == 0


# --- statements that the server has forgotten ---


def test_a_transaction_that_was_rolled_back_keeps_nobody_from_appending(
    database: str, postgres_cluster: Cluster, opened: Open
) -> None:
    """Where psycopg has prepared anything, it lets the server forget all statements after that."""
    store = opened(postgres_cluster.dsn(database), connections=1)
    thread = store.create("t")
    for time_us in range(3):
        for n in range(10):
            thread.append("event", n)
            assert thread.info.seq == time_us * 10 + n + 1
        with pytest.raises(clew.NotFound):
            store.engine.erase("t", ["nothing"], time_us=time_us)
    assert store.verify() == []


def test_a_statement_that_is_forgotten_in_a_transaction_is_sent_again_in_another_one(
    database: str, postgres_cluster: Cluster, opened: Open
) -> None:
    store = opened(postgres_cluster.dsn(database), connections=1)
    store.create("t").append("event", 1)
    connections = store.engine._connections
    connections.run(lambda wire, again: wire.execute("DEALLOCATE ALL"))
    real, tries = write_.look, []

    def look(wire: Any, *more: Any) -> Any:
        tries.append(wire.info.transaction_status.name)
        return real(wire, *more)

    draft = clew.draft("event", 2, id="mine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_, "MISSES_MAX", 0)
        patch.setattr(write_, "look", look)
        other = opened(postgres_cluster.dsn(database), connections=1)
        other.engine._connections.run(lambda wire, again: wire.execute("DEALLOCATE ALL"))
        other.engine.append("t", [draft])
    assert "INTRANS" in tries
    assert [entry.body for entry in store.get("t").path()] == [1, 2]
