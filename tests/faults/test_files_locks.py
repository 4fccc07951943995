"""Locks that others remove under an open store: writers still take turns, and nothing is lost."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path

import pytest

import clew
from clew import LeaseHeld, Unavailable
from clew.core.lines import record_line
from clew.core.model import Acquire
from clew.engines.files import locks
from clew.engines.files.disk import Disk
from clew.upkeep.repair import repair


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def opened(root: Path, **options: object) -> clew.Store:
    return clew.open(f"files:{root}", **options)


class Meddling(Disk):
    """Does something else just before a write to the thread's file."""

    meddle = staticmethod(lambda: None)

    def write(self, descriptor: int, data: bytes) -> int:
        meddle, self.meddle = self.meddle, lambda: None
        meddle()
        return super().write(descriptor, data)


def test_a_second_writer_waits_though_the_locks_are_gone(root: Path) -> None:
    disk = Meddling()
    refused = []
    with opened(root, disk=disk) as store:
        thread = store.create("t")
        thread.append("event", 0)

        def meddle() -> None:
            shutil.rmtree(root / "locks")
            with opened(root, busy_seconds=0.05) as other:
                with pytest.raises(Unavailable) as caught:
                    other.get("t").append("event", "at the same time")
                refused.append(caught.value)

        disk.meddle = meddle
        thread.append("event", 1)
        assert refused
        assert refused[0].retryable
        assert refused[0].committed is False
        with opened(root) as other:
            other.get("t").append("event", 2)
        thread.append("event", 3)
        assert [entry.body for entry in thread.path()] == [0, 1, 2, 3]
        assert store.verify() == []


def test_an_open_writer_uses_the_lock_that_others_see(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(root, busy_seconds=0.05) as store:
        thread = store.create("t")
        thread.append("event", 0)
        shutil.rmtree(root / "locks")
        with opened(root) as other:
            other.engine.lease("t", Acquire("other", 60.0))
            with caplog.at_level(logging.WARNING, "clew"), pytest.raises(LeaseHeld):
                store.engine.lease("t", Acquire("first", 60.0))
            with pytest.raises(LeaseHeld):
                thread.append("event", 1)
    assert "was removed" in caplog.text


def test_removed_locks_are_made_again_in_a_namespace_too(root: Path) -> None:
    with opened(root, namespace="n") as store:
        store.create("t").append("event", 0)
        shutil.rmtree(root / "namespaces" / "n" / "locks")
        shutil.rmtree(root / "locks")
        store.create("u").append("event", 0)
        store.get("t").append("event", 1)
        store.blobs.put(b"x")
        store.purge("u")
        assert store.verify() == []


def test_repair_is_not_alone_while_a_store_is_open_whose_locks_were_removed(root: Path) -> None:
    with opened(root) as store:
        store.create("t").append("event", 0)
        shutil.rmtree(root / "locks")
        with pytest.raises(Unavailable, match="in use"):
            repair(f"files:{root}", reindex=True)
    assert repair(f"files:{root}", reindex=True).whole


def test_repair_keeps_both_versions_of_a_doubled_seq_as_branches(root: Path) -> None:
    with opened(root) as store:
        thread = store.create("t")
        first = thread.append("event", "first")
        file = root / "threads" / "t.jsonl"
        before = file.read_bytes()
        mine = thread.append("event", "mine", id="mine")
    line = file.read_bytes()[len(before) :]
    # As a second writer would have put it that did not see ours.
    file.write_bytes(before)
    with opened(root) as store:
        yours = store.get("t").append("event", "yours", id="yours")
    file.write_bytes(before + line + record_line(b"t", yours))
    with opened(root) as store:
        assert store.verify() != []
    report = repair(f"files:{root}")
    assert report.lost == ()
    assert report.placeholders == 0
    assert any("two different records" in note for note in report.notes)
    with opened(root) as store:
        thread = store.get("t")
        assert set(thread.leaves()) == {mine.id, yours.id}
        assert [e.id for e in thread.path(mine.id)] == [first.id, mine.id]
        assert [e.id for e in thread.path(yours.id)] == [first.id, yours.id]
        assert store.verify() == []


# --- the gate ---


def wait_until_wanted(path: str, by: threading.Thread) -> None:
    seen = locks.FileLock(f"{path}-wanted")
    while by.is_alive() and seen.try_take(locks.SHARED):
        seen.release()
    seen.close()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_who_wants_to_remove_something_comes_before_readers_that_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """Of readers that come before others have left there may always be one inside."""
    monkeypatch.setattr(locks, "GIVE_WAY_SECONDS", 60)
    path = str(tmp_path / "gate")
    gate = locks.Gate(path, 60)
    other = locks.Gate(path, 60) if elsewhere else gate
    order: list[str] = []

    def shut() -> None:
        with gate.shut():
            order.append("shut")

    def read() -> None:
        with other.open():
            order.append("read")

    threads = [threading.Thread(target=work) for work in (shut, read)]
    with other.open():
        threads[0].start()
        wait_until_wanted(path, threads[0])
        threads[1].start()
        with other.open():  # who is inside goes on
            order.append("within")
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert order == ["within", "shut", "read"]


def test_who_wants_to_remove_something_stops_no_reader_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "GIVE_WAY_SECONDS", 0.01)
    path = str(tmp_path / "gate")
    gate, other = locks.Gate(path, 60), locks.Gate(path, 0.2)
    refused: list[Unavailable] = []

    def shut() -> None:
        with pytest.raises(Unavailable, match="nothing was written") as raised, other.shut():
            pass
        refused.append(raised.value)

    with gate.open():
        thread = threading.Thread(target=shut)
        thread.start()
        wait_until_wanted(path, thread)
        with locks.Gate(path, 60).open():
            pass
        thread.join(60)
    assert [one.retryable for one in refused] == [True]
    with other.shut():
        pass


def test_threads_that_read_for_too_long_are_told_to_who_waits_for_them(tmp_path: Path) -> None:
    gate = locks.Gate(str(tmp_path / "gate"), 0.05)
    inside, done = threading.Event(), threading.Event()

    def read() -> None:
        with gate.open():
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=read)
    thread.start()
    assert inside.wait(60)
    with pytest.raises(Unavailable, match="others have read in this store for over"), gate.shut():
        pass
    done.set()
    thread.join(60)
    with gate.shut():
        pass
