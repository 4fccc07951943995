"""The queue of processes that write one SQLite file: it orders them, and never stops them."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from amounts import amount
from queues import (
    another_at_front,
    append_in_queue,
    in_thread,
    said,
    start,
    tell_all,
    until,
    waiting,
)

import clew
from clew.core.model import Entry
from clew.engines.shared import group_commit
from clew.engines.sqlite import connections, mailbox, writer_queue

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a queue on Linux only")


def place_of(store: clew.Store) -> writer_queue.WriterQueue:
    found: writer_queue.WriterQueue = store.engine._connections._queue  # type: ignore[attr-defined]
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "threads.db"
    with clew.open(path) as store:
        store.create("t")
    return path


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each work that had to wait in the queue, how many times it looked around."""
    found: list[int] = []
    ask, wait = mailbox.Mailbox.ask, mailbox.Mailbox.wait

    def count(self: mailbox.Mailbox, seconds: float) -> bool:
        found[-1] += 1
        return wait(self, seconds)

    monkeypatch.setattr(
        mailbox.Mailbox, "ask", lambda *arguments: (found.append(0), ask(*arguments))
    )
    monkeypatch.setattr(mailbox.Mailbox, "wait", count)
    return found


# --- who writes with whom --------------------------------------------------------------------


def test_writers_that_come_while_their_process_waits_are_written_with_it(path: Path) -> None:
    with clew.open(path) as store:
        thread = store.get("t")
        thread.append("event", "before")
        commits: list[None] = []
        writer = store.engine._connections.writer()  # type: ignore[attr-defined]
        writer.set_commit_hook(lambda: bool(commits.append(None)))
        with another_at_front(path):
            writers = [threading.Thread(target=thread.append, args=("event", n)) for n in range(8)]
            writers[0].start()
            until(lambda: waiting(path) == 1)
            for other in writers[1:]:
                other.start()
            until(lambda: len(store.engine._commits._queue) == 7)  # type: ignore[attr-defined]
        for each in writers:
            each.join(60)
        assert sorted(e.body for e in thread.path()[1:]) == list(range(8))
        assert len(commits) == 1
        assert store.verify() == []


def test_no_more_writers_are_taken_in_than_a_commit_may_have() -> None:
    commits = group_commit.GroupCommit(lambda batch: None)
    tickets = [group_commit.Ticket(lambda db: None) for _ in range(100)]
    writers = [group_commit.Writer([ticket]) for ticket in tickets]
    batch, commits._queue = tickets[:1], writers[1:]
    commits.admit(batch)
    assert batch == tickets[: group_commit.BATCH_MAX]
    assert commits._queue == writers[group_commit.BATCH_MAX :]


def test_the_log_stays_short_while_several_processes_write(path: Path) -> None:
    workers = [start("append_when_told", path, f"w{n}", amount(600, 3000)) for n in range(4)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    with clew.open(path) as store:
        assert store.get("t").path() == []  # from now on it is not the last that closes the file
        tell_all(workers)
        for worker in workers:
            said(worker)
        pages = (Path(f"{path}-wal").stat().st_size - 32) / (24 + 4096)
        assert len(store.get("t").path()) == 4 * amount(600, 3000)
    assert pages >= connections.CHECKPOINT_PAGES, "it was long enough to be copied"
    assert pages < 1.5 * connections.CHECKPOINT_PAGES


# --- the one at the front does not leave -----------------------------------------------------


def test_a_stopped_process_holds_nobody_up_for_long(path: Path, waits: list[int]) -> None:
    stopped = start("stop_at_front", path)
    until(
        lambda: Path(f"/proc/{stopped.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    )
    with clew.open(path, busy_seconds=2) as store:
        thread = store.get("t")
        for n in range(20):
            thread.append("event", n)
        assert waits[0] > 10, "it waits long once,"
        assert max(waits[1:]) <= 3, "and not again while the queue is stuck"
        os.kill(stopped.pid, signal.SIGCONT)
        assert stopped.stdout.readline() == "went on\n"
        said(stopped)
        append_in_queue(thread, path, "in the queue again")
        assert not place_of(store)._is_stuck
        assert [e.body for e in thread.path()] == ["before", *range(20), "in the queue again"]


def test_a_killed_process_is_taken_out_of_the_queue(path: Path) -> None:
    killed = start("stop_at_front", path)
    until(lambda: Path(f"/proc/{killed.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    with clew.open(path, busy_seconds=100_000) as store:
        thread = store.get("t")
        with in_thread(lambda: thread.append("event", "heir")):
            until(lambda: waiting(path) == 1)
            killed.kill()
        assert [e.body for e in thread.path()] == ["before", "heir"]
    killed.communicate()


def test_another_program_that_writes_is_waited_for_as_long_as_was_said(path: Path) -> None:
    other = start("write_with_sqlite", path)
    assert other.stdout.readline() == "holds it\n"
    with clew.open(path, busy_seconds=0.2) as store:
        thread = store.get("t")
        with pytest.raises(clew.Unavailable, match="written by another process") as caught:
            thread.append("event", "refused")
        assert caught.value.retryable
        said(other)
        thread.append("event", "written")
        assert [e.body for e in thread.path()] == ["written"]


def test_the_time_in_the_queue_is_no_longer_there_for_sqlite(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[float] = []
    patience = writer_queue.patience
    with clew.open(path, busy_seconds=0.4) as store, another_at_front(path):
        monkeypatch.setattr(writer_queue, "patience", lambda s: (allowed.append(s), patience(s))[1])
        other = start("write_with_sqlite", path)
        assert other.stdout.readline() == "holds it\n"
        with pytest.raises(clew.Unavailable):
            store.get("t").append("event", "waits in the queue, and then for SQLite")
        with pytest.raises(clew.Unavailable):
            store.get("t").append("event", "the queue does not move: only for SQLite")
        said(other)
        assert len(allowed) == 2
        assert allowed[0] <= 0.3, "a quarter is for the queue"
        assert 0.3 < allowed[1] < 0.4


def test_a_caller_without_patience_does_not_wait(path: Path, waits: list[int]) -> None:
    with clew.open(path, busy_seconds=0) as store, another_at_front(path):
        store.get("t").append("event", "written")
    assert waits == []


def test_ctrl_c_ends_the_wait_and_leaves_the_store_usable(path: Path) -> None:
    with another_at_front(path):
        worker = start("interrupt_in_queue", path)
        assert worker.stdout.readline() == "ready\n"
        until(lambda: waiting(path) == 1)
        worker.send_signal(signal.SIGINT)
        assert said(worker) == ["interrupted", "written"]
    with clew.open(path) as store:
        assert [e.body for e in store.get("t").path()] == ["after"]
        assert store.verify() == []


INTERRUPTED: dict[str, tuple[type, str, bool]] = {  # and whether it has done its work by then
    "as its transaction has begun": (connections.Connections, "begin", True),
    "as it came to the front": (mailbox.Mailbox, "come_to_front", True),
    "as it answers": (mailbox.Mailbox, "reply", False),
    "as it leaves": (mailbox.Mailbox, "leave", False),
    "as it begins to copy the log": (mailbox.Mailbox, "begin_work", True),
    "as it ends to copy the log": (mailbox.Mailbox, "end_work", False),
}


@pytest.mark.parametrize("moment", INTERRUPTED)
def test_ctrl_c_leaves_nothing_that_others_wait_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The program may go on for days and never write again."""
    owner, name, works = INTERRUPTED[moment]
    call = getattr(owner, name)

    def interrupted(*arguments: object) -> None:
        monkeypatch.undo()
        if works:
            call(*arguments)
        raise KeyboardInterrupt

    with clew.open(path) as store, clew.open(path, busy_seconds=0.2) as other:
        thread = store.get("t")
        append_in_queue(thread, path, "before")
        store.engine._connections.log._limit = 1  # type: ignore[attr-defined]
        monkeypatch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.append("event", "interrupted")
        other.get("t").append("event", "of another")
        probe = mailbox.Mailbox(os.open(f"{path}-lock", os.O_RDWR), (0, 0), synced=True)
        assert probe.come_to_front()
        assert probe.begin_work()
        probe.close()
        thread.append("event", "after")
        assert [e.body for e in thread.path() if e.body != "interrupted"] == [
            *("before", "of another", "after")
        ]
        assert store.verify() == []


# --- there is no queue, or not the same one for all -------------------------------------------


def replaced_by_link(lock: Path) -> None:
    lock.symlink_to(lock.with_name("elsewhere"))
    lock.with_name("elsewhere").touch()


REPLACED: dict[str, Callable[[Path], object]] = {
    "deleted": lambda lock: None,
    "another file": lambda lock: lock.touch(0o600),
    "a link": replaced_by_link,
    "a dangling link": lambda lock: lock.symlink_to("nowhere"),
    "a pipe": lambda lock: os.mkfifo(lock),
    "a folder": lambda lock: lock.mkdir(),
}


def test_a_lock_that_is_replaced_under_writers_neither_stops_nor_breaks_them(path: Path) -> None:
    count = amount(20, 300)
    workers = [start("append_when_told", path, f"w{n}", count) for n in range(3)]
    lock = Path(f"{path}-lock")
    acknowledged: list[str] = []
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for kind, replace in REPLACED.items():
        lock.rename(lock.with_name(f"before {kind}"))
        replace(lock)
        tell_all(workers)
        for worker in workers:
            acknowledged.extend(iter(worker.stdout.readline, "done\n"))
        if kind == "deleted":
            lock.touch(0o600)
    for worker in workers:
        said(worker)
    lock.rmdir()
    with clew.open(path) as store:
        entries = [e for e in store.get("t").read() if isinstance(e, Entry)]
        assert [e.seq for e in entries] == list(range(1, len(REPLACED) * 3 * count + 1))
        assert {f"{e.id} {e.seq}\n" for e in entries} == set(acknowledged)
        assert store.verify() == []


@pytest.mark.parametrize("kind", REPLACED)
def test_a_lock_that_was_replaced_is_taken_only_if_it_is_a_file(path: Path, kind: str) -> None:
    with clew.open(path) as store:
        thread = store.get("t")
        thread.append("event", "before")
        lock = Path(f"{path}-lock")
        lock.rename(path.with_name("former"))  # so that its number is not given to the next file
        REPLACED[kind](lock)
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with in_thread(
            lambda: thread.append("event", "sees that others write while it is at the front")
        ):
            until(lambda: kind in ("deleted", "a dangling link") or place_of(store)._moved)
            other.execute("ROLLBACK")
        other.close()
        thread.append("event", "after")
        queue = place_of(store)
        if kind == "another file":
            assert queue._identity == (lock.stat().st_dev, lock.stat().st_ino)
        has_queue = queue._mailbox is not None
        assert has_queue == (kind in ("another file", "deleted", "a dangling link"))
        assert len(thread.path()) == 3


def test_a_lock_of_another_user_is_done_without(
    path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[int]
) -> None:
    owner = path.stat().st_uid
    stat = os.fstat
    with clew.open(path) as store, another_at_front(path):
        strange = os.stat_result((*stat(0)[:4], owner + 1, *stat(0)[5:]))
        monkeypatch.setattr(writer_queue.os, "fstat", lambda descriptor: strange)
        store.get("t").append("event", "written")
        monkeypatch.undo()
    assert waits == []


@pytest.mark.parametrize("without", ["such locks", "Linux"])
def test_a_system_without_what_the_queue_needs_writes_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    def unknown(*arguments: object) -> None:
        raise OSError(22, "Invalid argument")

    with clew.open(path) as store, another_at_front(path):
        thread = store.get("t")
        with monkeypatch.context() as patch:
            if without == "Linux":
                patch.setattr(writer_queue.sys, "platform", "darwin")
            else:
                patch.setattr(mailbox.fcntl, "fcntl", unknown)
            for n in range(3):
                thread.append("event", n)
        assert [e.body for e in thread.path()] == [0, 1, 2]


# --- what it leaves behind -------------------------------------------------------------------


def test_a_process_that_forks_has_a_queue_on_both_sides(path: Path) -> None:
    with clew.open(path) as store:
        thread = store.get("t")
        append_in_queue(thread, path, "waits")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                append_in_queue(store.get("t"), path, "waits")
                os.write(write, b"ok")
            except BaseException as error:
                os.write(write, repr(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 1000) == b"ok"
        append_in_queue(thread, path, "waits")
        os.close(read)
        os.close(write)
        assert [e.body for e in thread.path()] == ["waits"] * 3


def test_a_lone_writer_leaves_nothing_in_the_lock_and_never_waits(
    path: Path, waits: list[int]
) -> None:
    with clew.open(path) as store:
        for n in range(10):
            store.get("t").append("event", n)
    assert waits == []
    assert Path(f"{path}-lock").stat().st_size == 0


@pytest.mark.parametrize("how", ["closed", "forgotten"])
def test_a_store_that_is_left_leaves_no_file_and_no_socket_open(path: Path, how: str) -> None:
    def open_files() -> list[str]:
        names = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
        return [name for name in names if name.startswith(str(path)) or "socket:" in name]

    before = open_files()
    store: clew.Store | None = clew.open(path)
    append_in_queue(store.get("t"), path, "waits")
    assert len(open_files()) > len(before)
    if how == "closed":
        store.close()
    del store
    until(lambda: gc.collect() < 0 or sorted(open_files()) == sorted(before), 10)
