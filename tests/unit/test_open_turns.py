"""Unfinished turns of a whole store: what is remembered never tells anything but the truth."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.core.model import Entry
from clew.store import Store

STATUSES = ("started", "save_point", "completed", "failed", "waiting", "of another time")


def by_reading_everything(store: Store) -> dict[str, Entry]:
    found = {info.id: store.get(info.id).unfinished_turn() for info in store.threads(archived=None)}
    return {id: marker for id, marker in found.items() if marker is not None}


def started(store: Store, id: str) -> Entry:
    marker = store.create(id).append("turn_marker", {"status": "started", "owner": id})
    assert isinstance(marker, Entry)
    return marker


def test_turns_without_an_end_are_found_in_all_threads(store: Store) -> None:
    first, second = started(store, "first"), started(store, "second")
    with store.create("whole").turn(owner="me"):
        store.get("whole")
    store.create("empty")
    assert list(store.unfinished_turns().items()) == [("first", first), ("second", second)]
    fork = store.fork("first", id="fork")
    fork.set(archived=True)
    store.delete("second")
    assert store.unfinished_turns() == {"first": first, "fork": first}
    store.get("first").append("turn_marker", {"status": "completed"})
    store.restore("second")
    assert store.unfinished_turns() == {"fork": first, "second": second}
    store.get("first").move(first.id)
    store.purge("fork")
    assert store.unfinished_turns() == {"first": first, "second": second}


def test_a_turn_that_runs_has_no_end_yet(store: Store) -> None:
    with store.create("t").turn(owner="me") as turn:
        turn.append("event", 1)
        marker = store.unfinished_turns()["t"]
        assert marker.body["owner"] == "me"
        assert store.get("t").leases.active() is not None
        turn.save_point({"step": 1})
        assert store.unfinished_turns() == {"t": marker}
    assert store.unfinished_turns() == {}


class Story:
    """A store that is written to at random, on all branches of its threads."""

    def __init__(self, store: Store, choose: Any) -> None:
        self.store = store
        self._choose = choose
        self._made = 0

    def step(self) -> None:
        threads = [info.id for info in self.store.threads(archived=None)]
        actions = [self._create] + [self._mark, self._event, self._go, self._fork] * bool(threads)
        actions += [self._mark] * bool(threads) + [self._end] * (len(threads) > 2)
        self._choose(actions)(self._choose(threads) if threads else "")

    def _create(self, thread: str) -> None:
        self._made += 1
        self.store.create(f"t{self._made}")

    def _mark(self, thread: str) -> None:
        body = self._choose([*({"status": one} for one in STATUSES), None])
        self.store.get(thread).append("turn_marker", body)

    def _event(self, thread: str) -> None:
        handle = self.store.get(thread)
        parents = [entry.id for entry in handle.path()]
        if parents and self._choose([False, True]):
            handle.append("event", 1, parent=self._choose(parents))
        else:
            handle.append("event", 1)
        handle.set(note=1)

    def _go(self, thread: str) -> None:
        handle = self.store.get(thread)
        own = [one.id for one in handle.read() if isinstance(one, Entry)]
        handle.move(self._choose([None, *own]))

    def _fork(self, thread: str) -> None:
        entries = [entry.id for entry in self.store.get(thread).path()]
        self._made += 1
        if entries:
            self.store.fork(thread, at=self._choose(entries), id=f"t{self._made}")

    def _end(self, thread: str) -> None:
        self._choose([self.store.delete, self.store.purge])(thread)
        gone = [info.id for info in self.store.threads(deleted=True, archived=None)]
        if gone and self._choose([False, True]):
            self.store.restore(self._choose(gone))


@given(st.data())
@settings(max_examples=150)
def test_what_is_remembered_is_what_reading_everything_finds(data: st.DataObject) -> None:
    with clew.open("memory:") as store:
        story = Story(store, lambda some: data.draw(st.sampled_from(some)))
        for _ in range(data.draw(st.integers(1, 12))):
            for _ in range(data.draw(st.integers(1, 4))):
                story.step()
            assert store.unfinished_turns() == by_reading_everything(store)


def test_it_is_what_reading_everything_finds_on_every_engine(store: Store) -> None:
    story = Story(store, random.Random(19).choice)
    for _ in range(12):
        for _ in range(5):
            story.step()
        assert store.unfinished_turns() == by_reading_everything(store)


class Reads:
    """How many records and entries are read of a store."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("read", "path"):
            monkeypatch.setattr(store.engine, name, self._counting(getattr(store.engine, name)))

    def _counting(self, read: Any) -> Any:
        def counting(*given: Any, **options: Any) -> Any:
            found = read(*given, **options)
            self.count += len(found)
            return found

        return counting

    def take(self) -> int:
        taken, self.count = self.count, 0
        return taken


def test_asking_again_reads_what_is_new_however_long_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clew.open(tmp_path / "threads.db") as store:
        for number in range(20):
            started(store, f"t{number}")
        store.get("t7").append([clew.draft("event", number) for number in range(500)])
        assert len(store.unfinished_turns()) == 20
        with clew.open(tmp_path / "threads.db") as other:
            reads = Reads(other, monkeypatch)
            assert len(other.unfinished_turns()) == 20
            # The record that shows that it is the same store, and a look at each marker.
            assert reads.take() <= 1 + 20
            other.get("t7").append("event", "one more")
            assert len(other.unfinished_turns()) == 20
            assert reads.take() <= 1 + 20 + 2


def test_another_store_in_the_same_place_is_not_taken_for_the_first(tmp_path: Path) -> None:
    """With a thread of the same id, the same birth and as many records."""
    found = []
    for status in ("started", "completed"):
        with clew.open(tmp_path / "threads.db") as store:
            store.create("t").append("turn_marker", {"status": status})
            found.append(list(store.unfinished_turns()))
        for one in tmp_path.glob("threads.db*"):
            one.unlink()
    assert found == [["t"], []]


def test_a_store_that_was_put_back_to_an_older_backup_is_looked_at_anew(tmp_path: Path) -> None:
    file = tmp_path / "threads.db"
    with clew.open(file) as store:
        started(store, "t")
        assert list(store.unfinished_turns()) == ["t"]
        store.create("the one that tells whether it is the same store").append("event", 1)
    backup = file.read_bytes()
    with clew.open(file) as store:
        end = store.get("t").append("turn_marker", {"status": "completed"}, id="end")
        assert store.unfinished_turns() == {}
    file.write_bytes(backup)
    with clew.open(file) as store:
        thread = store.get("t")
        thread.append("event", "another one of this id", id=end.id)
        thread.append("event", 2)
        assert list(store.unfinished_turns()) == ["t"]


def test_a_damaged_thread_does_not_hide_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with clew.open(tmp_path / "threads.db") as store:
        for id in ("a", "b", "c"):
            started(store, id)
    db = apsw.Connection(str(tmp_path / "threads.db"))
    sql = (
        "UPDATE records SET body_hash = NULL WHERE no >> 32 = (SELECT no FROM threads WHERE id = ?)"
    )
    db.execute(sql, ("b",))
    db.close()
    with clew.open(tmp_path / "threads.db") as store:
        assert list(store.unfinished_turns()) == ["a", "c"]
    assert "'b'" in caplog.text
