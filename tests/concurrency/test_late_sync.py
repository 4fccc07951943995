"""Where processes queue to write, the log is synced after the commit, and before any answer."""

from __future__ import annotations

import errno
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
    in_queue,
    in_thread,
    start,
    tell_all,
    until,
    waiting,
)

import clew
from clew.engines.sqlite import late_sync, writer_queue
from clew.engines.sqlite.connections import Connections

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a queue on Linux only")

FULL, NORMAL = 2, 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "threads.db"
    with clew.open(path) as store:
        store.create("t")
    return path


class Syncs:
    """The syncs of the log that Clew makes itself: counted, and each of them `meanwhile`."""

    def __init__(self) -> None:
        self.count = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self, descriptor: int) -> None:
        self.count += 1
        self.meanwhile()
        os.fdatasync(descriptor)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    found = Syncs()
    monkeypatch.setattr(late_sync, "sync", found)
    return found


def connections_of(store: clew.Store) -> Connections:
    found: Connections = store.engine._connections  # type: ignore[attr-defined]
    return found


def bodies(path: Path) -> list[object]:
    with clew.open(path) as store:
        return [entry.body for entry in store.get("t").path()]


def seen_by_sqlite(path: Path) -> int:
    """How many entries another program finds, whether they are on disk or not."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(db.execute("SELECT count(*) FROM records WHERE type = 0").fetchall()[0][0])
    finally:
        db.close()


def fail(*arguments: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


# --- who writes -------------------------------------------------------------------------------


def test_an_append_is_acknowledged_when_it_is_synced_and_not_before(
    path: Path, syncs: Syncs
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    returned: list[None] = []

    def stand_still() -> None:
        reached.set()
        assert go_on.wait(60)

    syncs.meanwhile = stand_still
    with clew.open(path) as store:
        thread = store.get("t")

        def append() -> None:
            append_in_queue(thread, path, "one")
            returned.append(None)

        with in_thread(append):
            assert reached.wait(60)
            assert seen_by_sqlite(path) == 1, "it is committed,"
            assert returned == [], "but nobody is told so"
            go_on.set()
        assert returned == [None]
        assert syncs.count == 1


def test_others_write_while_one_syncs(path: Path, syncs: Syncs) -> None:
    """The front is left before the sync: that is what it is good for."""
    with clew.open(path) as store, clew.open(path) as other:

        def meanwhile() -> None:
            syncs.meanwhile = lambda: None
            other.get("t").append("event", "meanwhile")

        syncs.meanwhile = meanwhile
        append_in_queue(store.get("t"), path, "first")
        assert bodies(path) == ["first", "meanwhile"]


def test_a_lone_writer_leaves_the_sync_to_sqlite(path: Path, syncs: Syncs) -> None:
    with clew.open(path) as store:
        for n in range(5):
            store.get("t").append("event", n)
        assert connections_of(store).writer().pragma("synchronous") == FULL
    assert syncs.count == 0


def test_when_the_crowd_is_gone_sqlite_syncs_again(path: Path, syncs: Syncs) -> None:
    with clew.open(path) as store:
        thread = store.get("t")
        append_in_queue(thread, path, "waits")
        assert connections_of(store).writer().pragma("synchronous") == NORMAL
        for n in range(writer_queue.CROWD_WRITES):
            assert syncs.count == n + 1
            thread.append("event", n)
        assert connections_of(store).writer().pragma("synchronous") == FULL
        counted = syncs.count
        thread.append("event", "alone")
        assert syncs.count == counted


def test_a_store_that_may_lose_its_newest_commits_is_not_synced(path: Path, syncs: Syncs) -> None:
    with clew.open(path, durability="relaxed") as store:
        append_in_queue(store.get("t"), path, "waits")
        entry = store.get("t").append("event", "again", id="e1")
        assert store.get("t").append("event", "again", id="e1") == entry
    assert syncs.count == 0


def test_a_failed_sync_is_an_unknown_outcome_and_the_end_of_the_handle(
    path: Path, syncs: Syncs
) -> None:
    with clew.open(path) as store, clew.open(path) as other:
        thread = store.get("t")

        def append() -> None:
            with pytest.raises(clew.Unavailable, match="what is on disk is unknown") as caught:
                thread.append("event", 1, id="e1")
            assert caught.value.committed is None
            assert not caught.value.retryable

        syncs.meanwhile = fail
        in_queue(path, append)
        syncs.meanwhile = lambda: None
        with pytest.raises(clew.Closed, match="what is on disk is unknown"):
            thread.append("event", 2)
        assert other.get("t").append("event", 3).seq == 2, "others go on"
        assert not connections_of(other)._late.is_awaited, "and wait for nothing"
    assert bodies(path) == [1, 3]


def test_a_transaction_that_fails_is_announced_no_longer(path: Path, syncs: Syncs) -> None:
    with clew.open(path) as store, clew.open(path) as other:

        def append() -> None:
            with pytest.raises(clew.Conflict):
                store.get("t").append("event", 1, expect="elsewhere")

        in_queue(path, append)
        assert not connections_of(other)._late.is_awaited
        assert not connections_of(store)._late.is_awaited


# --- who reads --------------------------------------------------------------------------------


@pytest.mark.parametrize("readonly", [False, True])
def test_what_is_not_on_disk_is_synced_by_who_reads_it(
    path: Path, syncs: Syncs, readonly: bool
) -> None:
    found: list[list[object]] = []
    with clew.open(path) as store:

        def meanwhile() -> None:
            """The writer has committed, and not synced yet."""
            syncs.meanwhile = lambda: None
            found.append([entry.body for entry in reader.get("t").path()])

        with clew.open(path, readonly=readonly) as reader:
            assert reader.get("t").path() == []
            assert syncs.count == 0, "nobody writes"
            syncs.meanwhile = meanwhile
            in_queue(path, lambda: store.get("t").append("event", "new"))
            assert found == [["new"]]
            assert syncs.count > 1, "the reader has synced too"
            counted = syncs.count
            assert len(reader.get("t").path()) == 1
            assert syncs.count == counted, "it is on disk by now"


def test_a_reader_who_may_not_write_any_of_the_files_syncs_too(
    path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_to_read(name: object, flags: int, *arguments: int, **options: int) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_file(name, flags, *arguments, **options)  # type: ignore[arg-type]

    open_file = os.open
    with clew.open(path) as store:
        store.get("t").append("event", "old")

        def meanwhile() -> None:
            syncs.meanwhile = lambda: None
            with monkeypatch.context() as patch:
                patch.setattr(os, "open", only_to_read)
                with clew.open(path, readonly=True) as reader:
                    assert len(reader.get("t").path()) == 2
            assert syncs.count > 1

        syncs.meanwhile = meanwhile
        append_in_queue(store.get("t"), path, "new")


def test_a_read_by_the_handle_that_writes_waits_for_its_sync(path: Path, syncs: Syncs) -> None:
    found: list[list[object]] = []
    with clew.open(path) as store:
        thread = store.get("t")
        reader = threading.Thread(
            target=lambda: found.append([entry.body for entry in thread.path()])
        )

        def meanwhile() -> None:
            syncs.meanwhile = lambda: None
            reader.start()
            until(lambda: connections_of(store)._busy == 1)
            assert found == []

        syncs.meanwhile = meanwhile
        append_in_queue(thread, path, "new")
        reader.join(60)
        assert found == [["new"]]


def test_what_cannot_be_synced_is_not_given_out(path: Path, syncs: Syncs) -> None:
    with clew.open(path) as store, clew.open(path) as reader:
        assert reader.get("t").path() == []

        def meanwhile() -> None:
            syncs.meanwhile = fail
            with pytest.raises(clew.Unavailable, match="what is on disk is unknown"):
                reader.get("t").path()
            syncs.meanwhile = lambda: None

        syncs.meanwhile = meanwhile
        in_queue(path, lambda: store.get("t").append("event", "new"))
        assert syncs.count == 2


def test_too_many_open_files_do_not_end_the_handle_of_a_reader(
    path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clew.open(path) as store, clew.open(path) as reader:
        assert reader.get("t").path() == []

        def meanwhile() -> None:
            syncs.meanwhile = lambda: None
            with monkeypatch.context() as patch:
                patch.setattr(os, "open", too_many)
                with pytest.raises(
                    clew.Unavailable, match=r"cannot be opened.*Too many open files"
                ):
                    reader.get("t").path()

        syncs.meanwhile = meanwhile
        in_queue(path, lambda: store.get("t").append("event", "new"))
        assert [entry.body for entry in reader.get("t").path()] == ["new"]


def too_many(*arguments: object, **options: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


# --- who dies ---------------------------------------------------------------------------------


def test_a_retry_after_a_death_before_the_sync_is_synced(path: Path, syncs: Syncs) -> None:
    """What the dead one has committed answers it, and nothing else would bring it to the disk."""
    killed = start("die_before_sync", path)
    with another_at_front(path):
        assert killed.stdout.readline() == "ready\n"
        tell_all([killed])
        until(lambda: waiting(path) == 1)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with clew.open(path) as store:
        assert not connections_of(store)._late.is_awaited, "the kernel has taken the lock back"
        assert syncs.count == 0
        assert store.get("t").append("event", "last words", id="e1").seq == 1
        assert syncs.count == 1
        syncs.meanwhile = fail
        with pytest.raises(clew.Unavailable) as caught:
            store.get("t").append("event", "last words", id="e1")
        assert caught.value.committed is None


def test_what_crowded_writers_acknowledged_is_there_when_they_are_killed(path: Path) -> None:
    count = amount(60, 600)
    workers = [start("append_when_told", path, f"w{n}", count) for n in range(4)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    tell_all(workers)
    said: list[str] = []
    for worker in workers:
        said += [worker.stdout.readline() for _ in range(count // 2)]
    for worker in workers:
        worker.kill()
    for worker in workers:
        said += worker.communicate(timeout=60)[0].splitlines(keepends=True)
    with clew.open(path) as store:
        found = {f"{entry.id} {entry.seq}\n" for entry in store.get("t").path()}
        assert {line for line in said if line != "done\n"} <= found
        assert store.verify() == []


def test_a_store_that_is_left_keeps_no_file_open(path: Path) -> None:
    store: clew.Store | None = clew.open(path)
    append_in_queue(store.get("t"), path, "waits")
    assert store.get("t").path()
    store.close()
    del store
    open_files = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
    assert not [name for name in open_files if name.startswith(str(path))]
