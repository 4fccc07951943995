"""A store survives os.fork on both sides, or refuses in the child; it is never shared."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from places import ADDRESSES

import clew
from clew.engines.files import engine
from clew.engines.sqlite import connections

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def in_child(work: Callable[[], object]) -> str:
    """Run something in a forked child; 'ok', or the error's name."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            os.write(write, b"ok")
        except BaseException as error:
            os.write(write, type(error).__name__.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    answer = os.read(read, 1000).decode()
    os.close(read)
    return answer


@pytest.fixture(params=ADDRESSES)
def store(request: pytest.FixtureRequest) -> clew.Store:
    return clew.open(ADDRESSES[request.param](request))


def test_parent_and_child_both_go_on_writing(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append("event", "before")
    assert in_child(lambda: [thread.append("event", ["child", n]) for n in range(20)]) == "ok"
    thread.append("event", "after")
    assert [e.seq for e in thread.path()] == list(range(1, 23))
    assert in_child(store.close) == "ok", "closing there leaves it open here"
    thread.append("event", "still open")
    assert store.verify() == []
    store.close()


def test_a_fork_in_the_middle_of_other_threads_work_is_safe(store: clew.Store) -> None:
    thread = store.create("t")
    done = threading.Event()
    written: list[str] = []

    def write() -> None:
        while not done.is_set():
            written.append(thread.append("event", "parent").id)
            thread.path(limit=3)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    answers = [in_child(lambda: thread.append("event", "child")) for _ in range(20)]
    done.set()
    for writer in writers:
        writer.join(60)
    assert answers == ["ok"] * 20
    path = thread.path()
    assert [e.id for e in path if e.body == "parent"] != []
    assert {e.id for e in path if e.body == "parent"} == set(written)
    assert len([e for e in path if e.body == "child"]) == 20
    assert store.verify() == []
    store.close()


def test_threads_that_start_at_once_in_a_child_all_write(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append("event", "before")

    def work() -> None:
        gate = threading.Barrier(8)
        written: list[str] = []

        def write() -> None:
            gate.wait(60)
            written.extend(thread.append("event", n).id for n in range(3))

        writers = [threading.Thread(target=write) for _ in range(8)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(60)
        assert len(written) == 24

    assert [in_child(work) for _ in range(5)] == ["ok"] * 5
    assert len(thread.path()) == 121
    store.close()


def test_a_child_that_does_not_find_the_store_is_refused_and_the_parent_goes_on(
    tmp_path: Path,
) -> None:
    """Its folder is away for that moment."""
    with clew.open(f"files:{tmp_path / 'store'}") as store:
        thread = store.create("t")
        thread.append("event", 1)
        (tmp_path / "store").rename(tmp_path / "away")
        assert in_child(lambda: thread.append("event", 2)) == "Closed"
        assert not (tmp_path / "store").exists()
        (tmp_path / "away").rename(tmp_path / "store")
        thread.append("event", 3)
        assert [entry.body for entry in thread.path()] == [1, 3]


def test_turns_work_in_a_child(store: clew.Store) -> None:
    thread = store.create("t")
    with thread.turn(owner="parent"):
        pass

    def work() -> None:
        with thread.turn(owner="child", ttl_seconds=5) as turn:
            turn.append("event", 1)

    assert in_child(work) == "ok"
    assert thread.unfinished_turn() is None
    store.close()


@pytest.mark.parametrize("store", ["sqlite", "files"], indirect=True)  # others need no notice
def test_a_child_that_was_forked_behind_pythons_back_is_refused(
    store: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = store.create("t")
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as if fork() had been called from C
    for call in (lambda: thread.append("event", 1), thread.path, store.create):
        with pytest.raises(clew.Closed, match="forked"):
            call()


def test_a_store_that_is_being_read_while_it_forks_refuses_in_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = clew.open(tmp_path / "threads.db")
    thread = store.create("t")
    monkeypatch.setattr(connections, "FORK_WAIT_SECONDS", 0.01)
    with store.engine._connections.reader():
        assert in_child(lambda: thread.append("event", 1)) == "Closed"
    thread.append("event", 2)
    store.close()


def test_files_whose_index_is_in_use_while_they_fork_refuse_in_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = clew.open(f"files:{tmp_path}/threads")
    thread = store.create("t")
    monkeypatch.setattr(engine, "FORK_WAIT_SECONDS", 0.01)
    taken, done = threading.Event(), threading.Event()

    def use() -> None:
        with store.engine._store.index.lock:
            taken.set()
            done.wait(60)

    user = threading.Thread(target=use)
    user.start()
    assert taken.wait(60)
    assert in_child(lambda: thread.append("event", 1)) == "Closed"
    done.set()
    user.join()
    thread.append("event", 2)
    store.close()


def test_a_memory_store_is_copied() -> None:
    memory = clew.open("memory:")
    thread = memory.create("t")
    assert in_child(lambda: thread.append("event", "only there")) == "ok"
    assert thread.path() == []


def test_a_child_can_look_at_a_store_although_its_parent_was_opening_one(tmp_path: Path) -> None:
    """The thread that held the lock is not in the child, and cannot give it back there."""
    clew.open(tmp_path / "s.db").close()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with connections.SIDES.lock:
            held.set()
            done.wait()

    def look() -> None:
        signal.alarm(30)  # or it would wait for ever
        clew.open(tmp_path / "s.db", readonly=True).close()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        assert in_child(look) == "ok"
    finally:
        done.set()
        holder.join()


@pytest.mark.parametrize(("step", "is_done"), [("_take", True), ("_give_back", False)])
def test_a_read_that_ctrl_c_ended_is_waited_for_by_no_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, is_done: bool
) -> None:
    call = getattr(connections.Connections, step)

    def interrupted(*arguments: object) -> None:
        monkeypatch.undo()
        if is_done:
            call(*arguments)
        raise KeyboardInterrupt

    with clew.open(tmp_path / "threads.db") as store:
        thread = store.create()
        monkeypatch.setattr(connections.Connections, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.path()
        own = store.engine._connections
        with own.write_lock:
            assert own._quiesce(0), "nobody reads any more"
        assert thread.path() == []
