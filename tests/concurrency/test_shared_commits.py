"""Processes that wait for each other on SQLite: the one at the front writes for all of them."""

from __future__ import annotations

import errno
import os
import random
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

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
from clew.core import drafts
from clew.core.model import Entry, EntryDraft, Fact, FactDraft, Move, MoveDraft, Tombstone
from clew.engines.sqlite import connections, guests, mailbox, write
from clew.engines.sqlite.writer_queue import CROWD_WRITES, WriterQueue

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a queue on Linux only")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "threads.db"
    with clew.open(path) as store:
        store.create("t")
    return path


def queue_of(store: clew.Store) -> WriterQueue:
    found: WriterQueue = store.engine._connections._queue  # type: ignore[attr-defined]
    return found


class Front:
    """A handle that stands at the front, in the middle of an append of its own, until it `goes`."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.store = clew.open(path, **options)
        self.commits = 0
        self.guests: list[mailbox.Guest] = []
        self._go = threading.Event()
        self._reached = threading.Event()
        self._connections = self.store.engine._connections  # type: ignore[attr-defined]
        writer = self._connections.writer()
        writer.set_commit_hook(self._count)
        self._take, self._connections.guests = self._connections.guests, self._stand

    def _count(self) -> bool:
        self.commits += 1
        return False

    def _stand(self, most: int) -> list[mailbox.Guest]:
        self._reached.set()
        assert self._go.wait(60)
        self._connections.guests = self._take
        queue_of(self.store)._crowd = CROWD_WRITES
        self.guests = self._take(most)
        return self.guests

    def go(self) -> None:
        self._go.set()


@contextmanager
def at_front(path: Path, **options: Any) -> Iterator[Front]:
    """In the block it stands there; behind it, it has written."""
    front = Front(path, **options)
    with front.store as store, in_thread(lambda: store.get("t").append("event", "front")):
        assert front._reached.wait(60)
        try:
            yield front
        finally:
            front.go()


def bodies(path: Path) -> list[object]:
    with clew.open(path) as store:
        assert store.verify() == []
        return [entry.body for entry in store.get("t").path()]


# --- one writes for all -----------------------------------------------------------------------


def test_processes_that_wait_are_written_in_one_commit_the_oldest_first(path: Path) -> None:
    workers = [start("append_when_told", path, f"w{n}", 1) for n in range(4)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    with at_front(path) as front:
        for n, worker in enumerate(workers, 1):
            tell_all([worker])
            until(lambda n=n: waiting(path) == n)
    for n, worker in enumerate(workers):
        id, _ = said(worker)[0].split()
        with clew.open(path) as store:
            entry = store.get("t").get(id)
        assert (entry.seq, entry.body) == (2 + n, {"from": f"w{n}", "n": 0})
    assert front.commits == 1
    assert len(bodies(path)) == 5


def test_what_is_told_of_a_record_is_what_is_stored(path: Path) -> None:
    """All sorts of records, written by another process, as an append of one's own gives them."""
    batch = [
        clew.draft("user_message", {"role": "user", "content": "é"}, id="a", meta={"k": [1]}),
        clew.draft("event", None, id="b", parent=None),
    ]
    results: list[Any] = []
    with clew.open(path) as store:
        thread = store.get("t")
        blob = store.engine.put_blobs([b"bytes"])[0]

        def write() -> None:
            results.append(thread.append(batch))
            results.append(thread.append("event", 1, blobs=[blob], expect="b"))
            results.append(thread.move("a"))
            results.append(thread.set(title="Shared"))

        with at_front(path) as front, in_thread(write):
            until(lambda: waiting(path) == 1)
            front.go()
        assert len(front.guests) == 1
        found = thread.read()
        entries = [record for record in found if isinstance(record, Entry)]
        assert entries[1:] == [*results[0], results[1]]
        assert [one.hash for one in entries[1:]] == [one.hash for one in (*results[0], results[1])]
        assert thread.info.title.text == "Shared"
        assert store.verify() == []


def test_a_move_and_a_fact_are_written_by_others_too(path: Path) -> None:
    with clew.open(path) as store:
        thread = store.get("t")
        first = thread.append("event", 1)
        thread.append("event", 2)
        for work in (lambda: thread.move(first.id), lambda: thread.set(title="Of another")):
            with at_front(path) as front, in_thread(work):
                until(lambda: waiting(path) == 1)
                front.go()
            assert len(front.guests) == 1
        assert thread.leaf == "".join(
            e.id for e in thread.read() if isinstance(e, Entry) and e.body == "front" and e.seq > 4
        )
        assert thread.info.title.text == "Of another"
        assert store.verify() == []


def test_an_append_that_fails_fails_alone_and_by_its_own_words(path: Path) -> None:
    with ExitStack() as stack:
        one, other = (stack.enter_context(clew.open(path)) for _ in range(2))

        def refused() -> None:
            with pytest.raises(clew.Conflict) as caught:
                one.get("t").append("event", "refused", expect="elsewhere")
            assert caught.value.field == "leaf"

        with at_front(path) as front:
            stack.enter_context(in_thread(refused))
            until(lambda: waiting(path) == 1)
            stack.enter_context(in_thread(lambda: other.get("t").append("event", "written")))
            until(lambda: waiting(path) == 2)
    assert len(front.guests) == 2
    assert bodies(path) == ["front", "written"]


def test_what_another_process_refused_is_not_asked_of_a_third_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All would refuse it, one after the other, as long as there is always one at the front."""
    asked: list[bytes | None] = []
    with clew.open(path) as store:
        own = store.engine._connections  # type: ignore[attr-defined]
        at_front = own.at_front

        def refuse_first(work: Any, ask: Callable[[], bytes | None]) -> bytes | None:
            asked.append(ask())
            return guests.REFUSED if len(asked) == 1 else at_front(work)

        monkeypatch.setattr(own, "at_front", refuse_first)
        with pytest.raises(clew.Conflict):
            store.get("t").append("event", 1, expect="elsewhere")
    assert asked[0]
    assert asked[1:] == [None]


def test_what_no_other_process_can_write_is_written_by_who_waits(path: Path) -> None:
    large = "x" * mailbox.ERRAND_BYTES_MAX
    many = [clew.draft("event", "y" * 4000) for _ in range(6)]
    with clew.open(path) as store:
        thread = store.get("t")
        works: list[Callable[[], object]] = [
            lambda: store.create("new"),
            lambda: thread.leases.acquire("me", ttl_seconds=0.001),
            lambda: thread.append("event", large),
            lambda: thread.append(many),
        ]
        for n, work in enumerate(works):
            with at_front(path) as front, in_thread(work):
                until(lambda: waiting(path) == 1)
                front.go()
            assert front.guests == []
            if n == 1:
                until(lambda: thread.leases.active() is None)
        assert store.get("new")
    assert bodies(path).count("front") == 4
    assert bodies(path)[-6:] == ["y" * 4000] * 6


def test_an_answer_that_is_too_long_to_leave_is_found_in_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "ANSWER_BYTES_MAX", 10)
    with (
        clew.open(path) as store,
        at_front(path) as front,
        in_thread(lambda: store.get("t").append("event", "once")),
    ):
        until(lambda: waiting(path) == 1)
        front.go()
    assert len(front.guests) == 1
    assert bodies(path) == ["front", "once"]


def test_writers_with_their_own_to_do_are_not_passed_over_for_ever(path: Path) -> None:
    """Who needs the front itself gets there among processes that append without a pause."""
    count = amount(1500, 6000)
    workers = [start("append_when_told", path, f"w{n}", count) for n in range(3)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    with clew.open(path) as store:
        tell_all(workers)
        until(lambda: waiting(path) > 0)
        for n in range(5):
            store.create(f"new {n}")
        entries = len(store.get("t").path())
        assert entries < 3 * count, "they were not done yet"
    for worker in workers:
        said(worker)


def test_one_that_was_stopped_while_it_waited_for_the_front_slows_nobody_down(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who write let it go first, but not for ever."""
    stopped = start("create_when_told", path)
    assert stopped.stdout.readline() == "ready\n"
    with clew.open(path) as store:
        thread = store.get("t")
        with another_at_front(path):
            tell_all([stopped])
            until(lambda: waiting(path) == 1)
            stopped.send_signal(signal.SIGSTOP)
            until(lambda: is_stopped(stopped))
        waits: list[float] = []
        wait = mailbox.Mailbox.wait

        def counted(self: mailbox.Mailbox, seconds: float) -> bool:
            waits.append(seconds)
            return wait(self, seconds)

        monkeypatch.setattr(mailbox.Mailbox, "wait", counted)
        for n in range(50):
            thread.append("event", n)
        assert 0 < len(waits) <= mailbox._YIELDS_MAX
        stopped.send_signal(signal.SIGCONT)
        assert said(stopped) == ["made"]
        assert store.get("made")


# --- durability -------------------------------------------------------------------------------


def test_who_does_not_sync_writes_nothing_for_those_who_do(path: Path) -> None:
    with (
        clew.open(path) as full,
        at_front(path, durability="relaxed") as front,
        in_thread(lambda: full.get("t").append("event", "full")),
    ):
        until(lambda: waiting(path) == 1)
        front.go()
    assert front.guests == []
    with (
        clew.open(path, durability="relaxed") as relaxed,
        at_front(path) as front,
        in_thread(lambda: relaxed.get("t").append("event", "relaxed")),
    ):
        until(lambda: waiting(path) == 1)
        front.go()
    assert len(front.guests) == 1
    assert bodies(path) == ["front", "full", "front", "relaxed"]


def test_nothing_is_answered_before_it_is_committed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that is interrupted between its work and its commit has promised nothing."""

    def interrupted(self: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    returned: list[Entry] = []
    with clew.open(path) as store:
        front = Front(path)

        def lead() -> None:
            with pytest.raises(KeyboardInterrupt):
                front.store.get("t").append("event", "interrupted")

        with front.store, in_thread(lead):
            assert front._reached.wait(60)
            with in_thread(lambda: returned.append(store.get("t").append("event", "asked"))):
                until(lambda: waiting(path) == 1)
                monkeypatch.setattr(connections.Connections, "commit", interrupted)
                front.go()
        assert len(front.guests) == 1
        assert store.get("t").path() == returned
    assert bodies(path) == ["asked"]


def test_a_full_disk_of_one_is_no_failure_of_the_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction fails as a whole; those who asked do it again, each for itself."""

    def full(self: object) -> None:
        monkeypatch.undo()
        raise connections.apsw.FullError("database or disk is full")

    with clew.open(path) as store:
        front = Front(path)

        def lead() -> None:
            with pytest.raises(clew.Unavailable, match="the disk"):
                front.store.get("t").append("event", "did not fit")

        with front.store, in_thread(lead):
            assert front._reached.wait(60)
            with in_thread(lambda: store.get("t").append("event", "asked")):
                until(lambda: waiting(path) == 1)
                monkeypatch.setattr(connections.Connections, "commit", full)
                front.go()
        assert front.guests[0].answer == guests.REFUSED
    assert bodies(path) == ["asked"]


def test_a_retry_that_is_answered_by_what_is_stored_is_synced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who stored it may do so without a sync, and nothing else would bring it to the disk."""
    synced: list[int] = []
    with clew.open(path, durability="relaxed") as relaxed, clew.open(path) as store:
        relaxed.get("t").append("event", 1, id="e1")
        monkeypatch.setattr(connections, "sync", synced.append)
        relaxed.get("t").append("event", 1, id="e1")
        assert synced == []
        assert store.get("t").append("event", 1, id="e1").seq == 1
        assert len(synced) == 1

        def fail(*arguments: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(connections.os, "open", fail)
            with pytest.raises(clew.Unavailable, match="cannot be synced") as caught:
                store.get("t").append("event", 1, id="e1")
        assert (caught.value.committed, caught.value.retryable) == (None, True)
        monkeypatch.setattr(connections, "sync", fail)
        with pytest.raises(clew.Unavailable, match="what is on disk is unknown") as caught:
            store.get("t").append("event", 1, id="e1")
        assert (caught.value.committed, caught.value.retryable) == (None, False)
        # The system tells of a failed sync once: the next one would only seem to have worked.
        monkeypatch.undo()
        with pytest.raises(clew.Closed, match="what is on disk is unknown"):
            store.get("t").append("event", 1, id="e1")


# --- who dies, who is stopped, who gives up ---------------------------------------------------


def leader(path: Path, moment: str, signal_name: str) -> subprocess.Popen[str]:
    process = start("write_for_others", path, moment, signal_name)
    assert process.stdout.readline() == "at front\n"
    return process


@pytest.mark.parametrize("moment", ["before", "taken", "committed"])
def test_a_leader_that_is_killed_neither_loses_nor_doubles_what_it_was_asked_for(
    path: Path, moment: str
) -> None:
    killed = leader(path, moment, "SIGKILL")
    returned: list[Entry] = []
    with clew.open(path) as store:
        with in_thread(lambda: returned.append(store.get("t").append("event", "asked"))):
            until(lambda: waiting(path) == 1)
            tell_all([killed])
            killed.communicate(timeout=60)
            assert killed.returncode == -signal.SIGKILL
        assert store.get("t").path()[-1] == returned[0]
    own = ["its own"] if moment == "committed" else []
    assert bodies(path) == ["opens the queue", *own, "asked"]


def is_stopped(process: subprocess.Popen[str]) -> bool:
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def test_what_a_stopped_leader_has_taken_is_an_unknown_outcome(path: Path) -> None:
    stopped = leader(path, "taken", "SIGSTOP")
    with clew.open(path, busy_seconds=1) as store:

        def give_up() -> None:
            with pytest.raises(clew.Unavailable, match="whether it does is unknown") as caught:
                store.get("t").append("event", "asked", id="e1")
            assert caught.value.committed is None
            assert caught.value.retryable

        with in_thread(give_up):
            until(lambda: waiting(path) == 1)
            tell_all([stopped])
            until(lambda: is_stopped(stopped))
        os.kill(stopped.pid, signal.SIGCONT)
        assert said(stopped) == ["took 1", "written"]
        assert store.get("t").append("event", "asked", id="e1").seq == 3
    assert bodies(path) == ["opens the queue", "its own", "asked"]


def test_what_was_given_up_before_it_was_taken_is_never_written(path: Path) -> None:
    stopped = leader(path, "before", "SIGSTOP")
    with clew.open(path, busy_seconds=1) as store:

        def give_up() -> None:
            with pytest.raises(clew.Unavailable, match="nothing was written") as caught:
                store.get("t").append("event", "given up")
            assert not caught.value.committed

        with in_thread(give_up):
            until(lambda: waiting(path) == 1)
            tell_all([stopped])
            until(lambda: is_stopped(stopped))
        os.kill(stopped.pid, signal.SIGCONT)
        assert said(stopped) == ["took 0", "written"]
    assert bodies(path) == ["opens the queue", "its own"]


def test_what_was_done_before_the_mailbox_was_wiped_is_not_said_to_be_undone(path: Path) -> None:
    """The answer is gone with the rest, and with it what would have told of it."""
    for is_answered in (True, False):
        one, front = opened(path), opened(path)
        one.ask(b"errand")
        if is_answered:
            serve(front, b"answer")
        front.wipe()
        assert one.answer() is None
        assert not one.withdraw()
        one.ask(None)
        front.wipe()
        assert one.withdraw(), "nobody else could do it"
        one.ask(b"another")
        assert one.withdraw()
        one.close()
        front.close()


def test_what_was_written_and_whose_answer_was_wiped_is_an_unknown_outcome(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes to the front by itself then would look into the store, and cannot."""
    other = connections.apsw.Connection(str(path))

    def wiped(self: mailbox.Mailbox, guests: list[mailbox.Guest]) -> None:
        monkeypatch.undo()
        self.wipe()
        other.execute("BEGIN IMMEDIATE")

    def ask() -> None:
        with pytest.raises(clew.Unavailable, match="whether it does is unknown") as caught:
            store.get("t").append("event", "asked", id="e1")
        assert caught.value.committed is None

    with clew.open(path, busy_seconds=1) as store, at_front(path) as front:
        monkeypatch.setattr(mailbox.Mailbox, "reply", wiped)
        with in_thread(ask):
            until(lambda: waiting(path) == 1)
            front.go()
    other.close()
    assert bodies(path) == ["front", "asked"]


def test_an_append_that_ctrl_c_ended_is_not_written_by_others(path: Path) -> None:
    with at_front(path) as front:
        worker = start("interrupt_in_queue", path)
        assert worker.stdout.readline() == "ready\n"
        until(lambda: waiting(path) == 1)
        worker.send_signal(signal.SIGINT)
        assert worker.stdout.readline() == "interrupted\n"
    assert said(worker) == ["written"]
    assert bodies(path) == ["front", "after"]
    assert all(b"interrupted" not in guest.errand for guest in front.guests)


def test_a_process_that_died_while_it_waited_is_written_by_nobody(path: Path) -> None:
    """Its errand still stands there, for whoever comes to the front first, perhaps weeks later."""
    killed = start("append_when_told", path, "killed", 1)
    assert killed.stdout.readline() == "ready\n"
    with another_at_front(path):
        tell_all([killed])
        until(lambda: waiting(path) == 1)
        killed.kill()
        killed.communicate()
    assert waiting(path) == 1
    with at_front(path) as front:
        pass
    assert front.guests == []
    assert waiting(path) == 0, "it was crossed out"
    assert bodies(path) == ["front"]


def test_what_crowded_writers_acknowledged_is_there_when_they_are_killed(path: Path) -> None:
    count = amount(60, 600)
    workers = [start("append_when_told", path, f"w{n}", count) for n in range(4)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    tell_all(workers)
    told: list[str] = []
    for worker in workers:
        told += [worker.stdout.readline() for _ in range(count // 2)]
    for worker in workers:
        worker.kill()
    for worker in workers:
        told += worker.communicate(timeout=60)[0].splitlines(keepends=True)
    with clew.open(path) as store:
        found = {f"{entry.id} {entry.seq}\n" for entry in store.get("t").path()}
        assert {line for line in told if line != "done\n"} <= found
        assert store.verify() == []


# --- the mailbox itself -----------------------------------------------------------------------


def test_whatever_stands_in_the_mailbox_writers_go_on_and_nothing_of_it_is_written(
    path: Path,
) -> None:
    """By chance, and such that every slot seems to wait; also while two handles use it."""
    chance = random.Random(7)
    lock = Path(f"{path}-lock")
    with clew.open(path) as one, clew.open(path) as other:
        append_in_queue(one.get("t"), path, "one")
        append_in_queue(other.get("t"), path, "other")
        for n in range(amount(30, 1000)):
            size = chance.choice([0, 5, 4097, 5000, 9000, 64 * 32768])
            noise = bytearray(chance.randbytes(size))
            if n % 2:
                noise[4096:5120] = struct.pack("<128Q", *range(1, 129))[: max(0, size - 4096)]
            with ExitStack() as after, another_at_front(path):
                lock.write_bytes(noise)
                after.enter_context(in_thread(lambda n=n: one.get("t").append("event", n)))
            other.get("t").append("event", n)
        assert one.verify() == []
    assert len(bodies(path)) == 2 + 2 * amount(30, 1000)


def refuse(*arguments: object) -> list[Any]:
    raise AssertionError("an errand is bytes, and does not bring its own code")


def append_of(*drafts: Any, space: int = 1, thread: str = "t") -> guests.Append:
    return guests.Append(refuse, space, thread, drafts, None, None)


def errand_of(space: int, thread: str, *drafts: Any) -> bytes:
    return guests.to_errand([append_of(*drafts, space=space, thread=thread)])


@pytest.mark.parametrize(
    "errand",
    [
        b"",
        b"\x90",
        b"\xc1",
        b"\x91" * 5000,
        guests.to_errand([guests.Append(refuse, 1, "t", [], None, None)]),
        guests.to_errand(
            [guests.Append(refuse, 1, "not there", [clew.draft("event")], None, None)]
        ),
        guests.to_errand([guests.Append(refuse, 99, "t", [clew.draft("event")], None, None)]),
    ],
    ids=["empty", "none", "no code", "deep", "no drafts", "no thread", "no namespace"],
)
def test_an_errand_that_makes_no_sense_is_refused(path: Path, errand: bytes) -> None:
    with clew.open(path) as store:
        engine: Any = store.engine
        store.get("t").append("event", "before")
        db = engine._connections.writer()
        db.execute("BEGIN IMMEDIATE")
        answer = engine._run_guest(db, errand)
        db.execute("COMMIT")
        assert guests.from_answer(answer, [[]]) == [None]
    assert bodies(path) == ["before"]


def test_an_answer_that_makes_no_sense_is_a_refusal() -> None:
    for answer in (b"", b"\xc1", b"\x90", b"\x91\x91\x80", b"\x91" * 5000):
        assert guests.from_answer(answer, [[clew.draft("event")]]) == [None]


def test_an_answer_to_other_drafts_is_a_refusal() -> None:
    """A fact where an entry was asked for, or one record too few."""
    draft, fact = clew.draft("event"), drafts.facts({"status": "done"}, 1)[0]
    record = Entry("t", 1, "e", 1, b"", None, "event", draft.data, b"")
    answer = guests.to_answer([append_of(draft)], [[record]])
    assert guests.from_answer(answer, [[draft]]) == [[record]]
    for asked in ([fact], [draft, draft], []):
        assert guests.from_answer(answer, [asked]) == [None]


def test_an_answer_does_not_repeat_what_was_said(path: Path) -> None:
    """One that comes late may come behind an erasure, which has wiped the mailbox before."""
    said = "the launch code is 0000"
    found: list[Any] = []
    with clew.open(path) as store:
        thread = store.get("t")

        def write() -> None:
            found.append(thread.append("event", said, meta={"note": said}))
            found.append(thread.set_facts({"note": said}))

        for _ in range(2):
            found.clear()
            with at_front(path) as front, in_thread(write):
                until(lambda: waiting(path) == 1)
                front.go()
            answers = [guest.answer for guest in front.guests]
            assert answers != []
            assert all(answer and said.encode() not in answer for answer in answers)
        assert (found[0].body, found[0].meta) == (said, {"note": said})
        assert found[0] == thread.get(found[0].id)
        assert store.get("t").info.facts["note"] == said


def test_a_retry_that_says_less_than_what_is_stored_gets_what_is_stored(path: Path) -> None:
    """It is refused as an errand, because its answer would have to say the rest."""
    found: list[Entry] = []
    with clew.open(path) as store:
        stored = store.get("t").append("event", "asked", id="e1", meta={"cost": 1})
        with (
            at_front(path) as front,
            in_thread(lambda: found.append(store.get("t").append("event", "asked", id="e1"))),
        ):
            until(lambda: waiting(path) == 1)
            front.go()
        assert len(front.guests) == 1
        assert found == [stored]
        assert found[0].meta == {"cost": 1}


def test_what_is_removed_does_not_live_on_in_the_mailbox(path: Path) -> None:
    secret = "the launch code is 0000"
    lock = Path(f"{path}-lock")
    with clew.open(path) as store:
        for remove in (
            lambda entry: store.get("t").erase(entry.id),
            lambda entry: store.purge("t"),
        ):
            entries: list[Entry] = []

            def write(found: list[Entry] = entries) -> None:
                found.append(store.get("t").append("event", secret))

            with at_front(path) as front, in_thread(write):
                until(lambda: waiting(path) == 1)
                front.go()
            assert secret.encode() in lock.read_bytes()
            remove(entries[0])
            assert secret.encode() not in lock.read_bytes()


def test_who_comes_by_a_link_stands_in_the_same_queue(path: Path) -> None:
    """What is erased would live on in a mailbox that only they knew of."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    entries: list[Entry] = []
    with clew.open(path) as store, clew.open(link) as linked:
        with (
            at_front(path) as front,
            in_thread(lambda: entries.append(linked.get("t").append("event", "secret"))),
        ):
            until(lambda: waiting(path) == 1)
            front.go()
        assert len(front.guests) == 1
        store.get("t").erase(entries[0].id)
    assert not Path(f"{link}-lock").exists()
    assert b"secret" not in Path(f"{path}-lock").read_bytes()


def test_when_all_slots_are_taken_the_others_wait_unseen(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "SLOTS", 0)
    unseen = opened(path)
    unseen.ask(b"errand")
    unseen.remind()
    assert unseen.answer() is None
    assert unseen.withdraw()
    unseen.close()
    with clew.open(path) as store:
        asked = threading.Event()
        ask = mailbox.Mailbox.ask
        monkeypatch.setattr(
            mailbox.Mailbox, "ask", lambda *arguments: (ask(*arguments), asked.set())
        )
        with ExitStack() as after, another_at_front(path):
            after.enter_context(in_thread(lambda: store.get("t").append("event", 1)))
            assert asked.wait(60)
            assert waiting(path) == 0
    assert bodies(path) == [1]


def test_without_sockets_who_waits_looks_by_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(mailbox.socket, "socket", refuse)
    with (
        clew.open(path) as store,
        at_front(path) as front,
        in_thread(lambda: store.get("t").append("event", 1)),
    ):
        until(lambda: waiting(path) == 1)
        front.go()
    assert len(front.guests) == 1
    assert bodies(path) == ["front", 1]


def test_on_a_full_disk_nobody_asks_and_everybody_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    asked = threading.Event()
    with clew.open(path) as store:
        append_in_queue(store.get("t"), path, "before")

        def append() -> None:
            with monkeypatch.context() as patch:
                patch.setattr(mailbox.os, "pwrite", full)
                asked.set()
                store.get("t").append("event", "written all the same")

        with ExitStack() as after, another_at_front(path):
            after.enter_context(in_thread(append))
            assert asked.wait(60)
    assert bodies(path) == ["before", "written all the same"]


def test_where_a_commit_is_slow_the_last_ones_are_waited_for_a_moment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, front = (opened(path) for _ in range(3))
    for each in (one, other):
        each.ask(b"errand")
    assert front.come_to_front()
    taken = front.take(64)
    assert len(taken) == 2
    for guest in taken:
        guest.answer = b"answer"
    front.reply(taken)
    front.leave(taken)
    assert (one.answer(), other.answer()) == (b"answer", b"answer")

    came_back: list[None] = []

    def come_back(seconds: float) -> None:
        (one if not came_back else other).ask(b"the next")
        came_back.append(None)

    monkeypatch.setattr(mailbox.time, "sleep", come_back)
    monkeypatch.setattr(mailbox, "GATHER_SECONDS_MAX", 60.0)
    assert front.come_to_front()
    front.gather(100.0)
    assert len(came_back) == 2
    assert len(front.take(64)) == 2
    for each in (one, other, front):
        each.close()


def test_who_waited_before_the_host_was_started_anew_is_not_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock begins anew with the host, and the file stays."""
    one, front = opened(path), opened(path)
    with monkeypatch.context() as patch:
        patch.setattr(mailbox.time, "monotonic_ns", lambda: 1 << 62)
        one.ask(b"errand")
    assert serve(front, b"answer") == [b"errand"]
    naps: list[float] = []
    monkeypatch.setattr(mailbox.time, "sleep", naps.append)
    assert front.come_to_front()
    front.gather(0.0001)
    assert naps == []
    one.close()
    front.close()


def opened(path: Path) -> mailbox.Mailbox:
    found = os.stat(path)
    descriptor = os.open(f"{path}-lock", os.O_RDWR)
    return mailbox.Mailbox(descriptor, (found.st_dev, found.st_ino), synced=True)


def serve(front: mailbox.Mailbox, answer: bytes) -> list[bytes]:
    """Stand at the front once, and give every errand the same answer."""
    assert front.come_to_front()
    found = front.take(64)
    for guest in found:
        guest.answer = answer
    front.reply(found)
    front.was_here()
    front.leave(found)
    return [guest.errand for guest in found]


def test_errands_of_one_version_say_the_same() -> None:
    """A process drops what it does not know: with a new field comes a new version."""
    said = [
        " ".join((one.__name__, *one.__struct_fields__))
        for one in (
            *(guests._Errand, guests._Draft, EntryDraft, MoveDraft, FactDraft),
            *(guests._Record, Entry, Move, Fact, Tombstone),
        )
    ]
    assert (mailbox._VERSION, said) == (
        2,
        [
            "_Errand space thread drafts expect fence",
            "_Draft entry move fact",
            "EntryDraft id kind data time_us parent turn format meta_data blobs implied_turn whole"
            " fresh tombstone known_hash",
            "MoveDraft id leaf time_us",
            "FactDraft id key data time_us",
            "_Record entry move fact",
            "Entry thread seq id time_us digest parent kind data noted_digest turn format meta_data"
            " blobs tombstone",
            "Move thread seq id time_us digest leaf",
            "Fact thread seq id time_us digest key data",
            "Tombstone time_us size_bytes meta_hash format stand_in",
        ],
    )


def test_long_errands_and_answers_arrive_whole(path: Path) -> None:
    one, front = opened(path), opened(path)
    errand, answer = b"e" * mailbox.ERRAND_BYTES_MAX, b"a" * mailbox.ANSWER_BYTES_MAX
    one.ask(errand)
    assert serve(front, answer) == [errand]
    assert one.wait(60)
    assert one.answer() == answer
    assert serve(front, answer) == [], "it is answered once"
    one.ask(b"the next")
    assert one.answer() is None, "the answer to the last one is not that to the next"
    one.close()
    front.close()


@pytest.mark.parametrize("part", ["stamp", "store", "version", "length", "bytes", "cut"])
def test_an_errand_that_is_not_whole_or_of_another_store_is_not_taken(
    path: Path, part: str
) -> None:
    one, front = opened(path), opened(path)
    one.ask(b"errand")
    room = 8192
    with open(f"{path}-lock", "r+b") as file:
        match part:
            case "stamp":
                file.seek(room)
                file.write(b"\1")
            case "store":  # the file was moved away, and another one has its name
                file.seek(room + 16)
                file.write(struct.pack("<Q", 1))
            case "version":
                file.seek(room + 24)
                file.write(b"\1")
            case "length":
                file.seek(room + 26)
                file.write(struct.pack("<I", 1 << 31))
            case "bytes":
                file.seek(room + 42)
                file.write(b"other")
            case "cut":
                file.truncate(room + 20)
    assert serve(front, b"answer") == []
    assert one.answer() is None
    assert one.withdraw() == (part != "stamp"), "who changed that may have wiped an answer"
    one.close()
    front.close()


def test_a_slot_that_a_stopped_one_still_has_taken_is_given_to_nobody(path: Path) -> None:
    one, front, other = opened(path), opened(path), opened(path)
    one.ask(b"errand")
    assert front.come_to_front()
    assert len(front.take(64)) == 1
    assert not one.withdraw(), "it may still be written"
    one.close()
    other.ask(b"another")
    assert other._slot == 1
    front.leave([])
    other.close()
    front.close()


@pytest.mark.parametrize("call", ["pread", "pwrite", "ftruncate", "fcntl"])
def test_whatever_the_mailbox_fails_at_is_as_if_nobody_waited(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    one, front = opened(path), opened(path)
    one.ask(b"errand")
    assert front.come_to_front()
    taken = front.take(64)
    for guest in taken:
        guest.answer = b"answer"
    monkeypatch.setattr(mailbox.fcntl if call == "fcntl" else mailbox.os, call, fail)
    front.reply(taken)
    front.was_here()
    front.wipe()
    front.leave(taken)
    front.take(64)
    front.gather(0.0001)
    one.remind()
    one.withdraw()
    one.ask(b"errand")
    one.answer()
    monkeypatch.undo()
    front.leave([])
    one.ask(b"errand")
    assert serve(front, b"answer") == [b"errand"]
    assert one.answer() == b"answer"
    one.close()
    front.close()


def test_an_errand_at_which_sqlite_fails_is_refused_alone(path: Path) -> None:
    with clew.open(path) as store, clew.open(path) as other, at_front(path) as front:
        engine: Any = front.store.engine
        append = engine._append

        def fail(db: connections.apsw.Connection, asked: guests.Append) -> object:
            if asked.drafts[0].data == b'"fails"':
                db.execute("INSERT INTO nowhere VALUES (1)")
            return append(db, asked)

        engine._append = fail
        with in_thread(lambda: store.get("t").append("event", "fails")):
            until(lambda: waiting(path) == 1)
            with in_thread(lambda: other.get("t").append("event", "fits")):
                until(lambda: waiting(path) == 2)
                front.go()
    refused = guests.to_answer([append_of()], [None])
    assert [guest.answer == refused for guest in front.guests] == [True, False]
    assert bodies(path) == ["front", "fits", "fails"]


def test_an_errand_that_failed_changes_nothing_of_what_is_remembered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one at the front writes the same thread next, and must know where it stands."""
    front = Front(path)
    stand, calls = write._stand, [0]

    def fail(*arguments: Any) -> None:
        calls[0] += 1
        if calls[0] > 1:  # all but that of the one at the front
            raise connections.apsw.CorruptError("database disk image is malformed")
        stand(*arguments)

    def ask() -> None:
        with pytest.raises(clew.Corrupt):
            store.get("t").append("event", "asked")

    with front.store as leading, clew.open(path) as store:
        with in_thread(lambda: leading.get("t").set(title="fact")), monkeypatch.context() as patch:
            assert front._reached.wait(60)
            patch.setattr(write, "_stand", fail)
            with in_thread(ask):
                until(lambda: waiting(path) == 1)
                front.go()
        assert len(front.guests) == 1
        leading.get("t").append("event", "after")
    assert bodies(path) == ["after"]


def test_an_errand_that_ends_the_transaction_ends_it_for_all_who_were_in_it(path: Path) -> None:
    """At some errors SQLite takes everything back by itself: nothing was written for anyone."""
    with clew.open(path) as store:
        front = Front(path)
        engine: Any = front.store.engine
        append = engine._append

        def fail(db: connections.apsw.Connection, asked: guests.Append) -> object:
            if asked.drafts[0].data == b'"ends it"':
                db.execute("ROLLBACK")
                raise connections.apsw.FullError("database or disk is full")
            return append(db, asked)

        engine._append = fail

        def lead() -> None:
            with pytest.raises(clew.Unavailable, match="the disk"):
                front.store.get("t").append("event", "front")

        with front.store, in_thread(lead):
            assert front._reached.wait(60)
            with in_thread(lambda: store.get("t").append("event", "ends it")):
                until(lambda: waiting(path) == 1)
                front.go()
        assert [guest.answer for guest in front.guests] == [guests.REFUSED]
    assert bodies(path) == ["ends it"]


def test_only_one_process_copies_a_long_log(path: Path) -> None:
    other = opened(path)
    with clew.open(path) as store:
        thread = store.get("t")
        thread.append("event", "opens the log")
        log = store.engine._connections.log  # type: ignore[attr-defined]
        log._limit = 1
        assert other.begin_work()
        thread.append("event", "while another is at it")
        assert log.is_long
        other.end_work()
        thread.append("event", "when it is done")
        assert not log.is_long
    other.close()
