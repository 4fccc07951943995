"""Whoever keeps what was made of entries learns that one was erased, wherever it was written."""

from __future__ import annotations

from typing import Any

import pytest

import clew
from clew.context.logs import LOGS_MAX, Log, advance, erasures, where_they_end
from clew.core.model import Record
from clew.store import Store
from clew.thread import Thread


def say(thread: Thread, *ids: str) -> None:
    for id in ids:
        thread.append("user_message", {"role": "user", "content": id}, id=id)


def family(store: Store) -> Thread:
    """A thread of two entries, a fork that went on, and a fork of that which did not."""
    say(store.create("t"), "a", "b")
    say(store.fork("t", at="a", id="f"), "c")
    return store.fork("f", id="g")


def end_of(store: Store, thread: str) -> Log:
    records = store.engine.read(thread)
    return Log(records[-1].seq, records[-1].hash) if records else Log(0, None)


@pytest.fixture
def store() -> Store:
    return clew.open("memory:")


def test_the_logs_of_a_fork_are_its_own_and_those_it_came_from(store: Store) -> None:
    family(store)
    logs = where_they_end(store.engine, "g")
    assert logs == {id: end_of(store, id) for id in ("g", "f", "t")}
    assert [log.seq for log in logs.values()] == [0, 1, 2]
    store.create("empty")
    store.fork("empty", id="e")
    assert where_they_end(store.engine, "e") == {"e": Log(0, None)}, "it shares no entry"


def test_a_thread_that_took_the_id_of_the_one_that_a_fork_came_from_is_not_asked(
    store: Store,
) -> None:
    family(store)
    store.purge("f")
    assert list(where_they_end(store.engine, "g")) == ["g"]
    say(store.create("f"), "other")
    assert list(where_they_end(store.engine, "g")) == ["g"]
    assert erasures(store.engine, store.engine.thread("g")) is None


def test_a_long_line_of_forks_is_followed_so_far_and_no_farther(store: Store) -> None:
    say(store.create("0"), "a")
    for n in range(1, LOGS_MAX + 2):
        store.fork(str(n - 1), id=str(n))
    last = str(LOGS_MAX - 1)
    assert len(where_they_end(store.engine, last)) == LOGS_MAX
    assert len(where_they_end(store.engine, str(LOGS_MAX))) == LOGS_MAX
    assert erasures(store.engine, store.engine.thread(last)) == (0,) * LOGS_MAX
    assert erasures(store.engine, store.engine.thread(str(LOGS_MAX))) is None


def test_each_erasure_is_counted_where_it_is_told(store: Store) -> None:
    family(store)
    store.create("empty")
    assert erasures(store.engine, store.engine.thread("empty")) == (0,)
    assert erasures(store.engine, store.fork("empty", id="e").info) == (0,)
    assert erasures(store.engine, store.engine.thread("g")) == (0, 0, 0)
    store.erase("t", ["a", "b"])
    store.get("t").set(title="erased")
    assert erasures(store.engine, store.engine.thread("g")) == (0, 0, 2)
    store.erase("f", ["c"])
    assert erasures(store.engine, store.engine.thread("g")) == (0, 1, 2)
    assert erasures(store.engine, store.engine.thread("t")) == (2,)


def test_what_only_grew_is_known_to_its_end_and_own_entries_are_not_read_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    family(store)
    fork = store.fork("f", id="h")
    say(fork, "d")
    logs = where_they_end(store.engine, "h")
    say(fork, "e", "i")
    say(store.get("f"), "more")
    read: dict[str, list[Record]] = {}
    reading = store.engine.read

    def noted(thread: str, **given: Any) -> list[Record]:
        found = reading(thread, **given)
        read.setdefault(thread, []).extend(found)
        return found

    monkeypatch.setattr(store.engine, "read", noted)
    assert advance(store.engine, "h", logs, fork.path())
    assert read["h"] == [], "they are in the path"
    assert [record.seq for record in read["f"]] == [1, 2], "the one that it had come to, and on"
    monkeypatch.undo()
    assert logs == {id: end_of(store, id) for id in ("h", "f", "t")}


def test_what_was_written_between_entries_is_read_and_passed_by(store: Store) -> None:
    fork = family(store)
    logs = where_they_end(store.engine, "g")
    for n in range(3):
        say(fork, f"d{n}")
        fork.set(title=f"t{n}")
    store.get("f").set(title="f")
    store.get("t").set(title="t")
    assert advance(store.engine, "g", logs, fork.path())
    assert logs == {id: end_of(store, id) for id in ("g", "f", "t")}
    assert advance(store.engine, "g", logs, fork.path()[-1:])


def test_a_log_that_was_empty_may_begin(store: Store) -> None:
    family(store)
    fork = store.fork("g", id="h")
    logs = where_they_end(store.engine, "h")
    assert logs["g"] == Log(0, None)
    say(store.get("g"), "first")
    assert advance(store.engine, "h", logs, fork.path())
    assert logs["g"] == end_of(store, "g")


@pytest.mark.parametrize("where", ["g", "f", "t"])
@pytest.mark.parametrize("beside", [True, False])
def test_an_erasure_is_noticed_in_each_of_the_logs(store: Store, where: str, beside: bool) -> None:
    fork = family(store)
    say(fork, "d", "e")
    logs = where_they_end(store.engine, "g")
    if beside:
        say(fork, "new")
        store.get(where).set(title="before it")
    store.erase(where, [{"g": "d", "f": "c", "t": "a"}[where]])
    if beside:
        store.get(where).set(title="behind it")
    assert not advance(store.engine, "g", logs, fork.path())


@pytest.mark.parametrize("again", [None, 0, 1, 2, 3])
def test_a_log_that_is_not_there_any_more_says_nothing_whatever_took_its_id(
    store: Store, again: int | None
) -> None:
    """What a purged thread left to its forks can be erased without a word."""
    say(store.create("t"), "a", "b")
    fork = store.fork("t", id="f")
    say(fork, "c")
    logs = where_they_end(store.engine, "f")
    store.purge("t")
    if again is not None:
        say(store.create("t"), *(f"other {n}" for n in range(again)))
    assert not advance(store.engine, "f", logs, fork.path())


def test_a_log_of_one_record_is_told_from_another_one(store: Store) -> None:
    say(store.create("t"), "a")
    fork = store.fork("t", id="f")
    logs = where_they_end(store.engine, "f")
    assert advance(store.engine, "f", logs, fork.path())
    store.purge("t")
    say(store.create("t"), "other")
    assert not advance(store.engine, "f", logs, fork.path())
