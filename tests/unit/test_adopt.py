"""Adopting a fork: nothing is lost, nothing comes twice, and a move takes it back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.core.errors import Conflict, InvalidInput, LeaseHeld, NotFound
from clew.store import Store
from clew.thread import Thread


def bodies(thread: Thread) -> list[Any]:
    return [entry.body for entry in thread.path()]


def grown(store: Store, *names: str, id: str = "thread") -> Thread:
    thread = store.create(id)
    for name in names:
        thread.append("event", name, id=name)
    return thread


def test_what_a_fork_added_comes_to_the_thread_once(store: Store) -> None:
    thread = grown(store, "a", "b")
    fork = store.fork("thread", at="a", id="fork")
    thread.move("a")
    for name in ("x", "y"):
        fork.append("event", name, id=name, meta={"mine": 1}, turn="t", format="f")
    fork.label("y", "best")
    done = thread.adopt("fork")
    assert [entry.id for entry in done] == ["x", "y"]
    assert thread.path() == [fork.path()[0], *done]
    assert [entry.time for entry in done] == [entry.time for entry in fork.path()[1:]]
    origin = {"thread": "fork", "entry": "y", "hash": fork.path()[2].hash}
    assert done[1].meta == {"mine": 1, "adopted": origin}
    assert (done[1].turn, done[1].format, thread.labels) == ("t", "f", {"y": "best"})
    assert thread.adopt(fork) == []
    fork.append("event", "z")
    assert [entry.body for entry in thread.adopt(fork)] == ["z"]
    assert bodies(thread) == ["a", "x", "y", "z"]
    thread.move("b")
    assert bodies(thread) == ["a", "b"], "a move takes it back"
    assert store.verify() == []


def test_a_thread_that_has_moved_on_is_not_turned_around_unless_told(store: Store) -> None:
    thread = grown(store, "a", "b")
    fork = store.fork("thread", at="a", id="fork")
    fork.append("event", "mine", id="b")  # an id that the thread has for another entry
    before = thread.info
    with pytest.raises(Conflict) as caught:
        thread.adopt(fork)
    assert (caught.value.expected, caught.value.actual, caught.value.field) == ("a", "b", "leaf")
    assert thread.info == before
    [done] = thread.adopt(fork, force=True)
    assert done.id != "b"
    assert done.meta["adopted"] == {"thread": "fork", "entry": "b", "hash": fork.path()[1].hash}
    assert bodies(thread) == ["a", "mine"]
    assert set(thread.leaves()) == {"b", done.id}
    assert store.verify() == []


def test_a_thread_that_is_no_fork_of_this_one_is_refused(store: Store) -> None:
    thread = grown(store, "a")
    stranger = grown(store, "a", id="stranger")
    fork = store.fork("thread", id="fork")
    for giver, taker in ((stranger, thread), (thread, fork), (thread, thread)):
        before = taker.info
        with pytest.raises(InvalidInput, match="is no fork of"):
            taker.adopt(giver)
        assert taker.info == before
    with pytest.raises(NotFound):
        thread.adopt("nobody")


@pytest.mark.parametrize("given", [None, 5, ""])
def test_what_is_neither_a_thread_nor_its_id_is_refused(store: Store, given: Any) -> None:
    thread = grown(store, "a")
    with pytest.raises(InvalidInput, match="id: must be a non-empty string"):
        thread.adopt(given)
    with pytest.raises(InvalidInput, match="id: must be a non-empty string"):
        store.compare(thread, given)
    if given is not None:
        with pytest.raises(InvalidInput, match="id: must be a non-empty string"):
            thread.compare("a", "a", thread=given)


def test_a_fork_of_a_fork_and_one_from_before_the_root_can_be_adopted(store: Store) -> None:
    thread = grown(store, "a")
    fork = store.fork("thread", id="fork")
    fork.append("event", "b")
    nested = store.fork("fork", id="nested")
    nested.append("event", "c")
    store.delete("fork")
    thread.adopt(nested)
    assert bodies(thread) == ["a", "b", "c"]
    anew = store.fork("thread", before="a", id="anew")
    anew.append("event", "other")
    thread.adopt(anew, force=True)
    assert bodies(thread) == ["other"]
    assert store.fork("thread", id="idle").info.origin is not None
    assert thread.adopt("idle") == []
    assert store.verify() == []


def test_a_thread_that_another_owner_writes_is_left_alone(store: Store) -> None:
    thread = grown(store, "a")
    fork = store.fork("thread", id="fork")
    fork.append("event", "b")
    lease = thread.leases.acquire(owner="other", ttl_seconds=60)
    with pytest.raises(LeaseHeld):
        thread.adopt(fork)
    assert [entry.body for entry in thread.adopt(fork, fence=lease.fence)] == ["b"]


@given(
    trunk=st.integers(0, 5),
    at=st.integers(0, 5),
    ours=st.integers(0, 3),
    rounds=st.lists(st.integers(0, 3), max_size=4),
)
def test_whatever_was_adopted_is_the_path_of_the_fork(
    trunk: int, at: int, ours: int, rounds: list[int]
) -> None:
    with clew.open("memory:") as store:
        thread = grown(store, *(f"t{n}" for n in range(trunk)))
        place = f"t{min(at, trunk - 1)}" if trunk else None
        fork = store.fork("thread", at=place)
        for n in range(ours):
            thread.append("event", f"o{n}")
        before = [entry.id for entry in thread.entries()]
        for count in rounds:
            fork.append([clew.draft("event", n) for n in range(count)])
            thread.adopt(fork, force=True)
        if any(rounds):
            assert bodies(thread) == bodies(fork)
        assert before == [entry.id for entry in thread.entries()][: len(before)]
        assert store.verify() == []


def test_every_relative_of_a_thread_is_told_once(store: Store) -> None:
    grown(store, "a", id="root")
    store.fork("root", id="fork")
    store.create("helper", parent="root")
    store.fork("root", id="both", parent="root")
    store.fork("fork", id="nested")
    store.get("nested").set(archived=True)
    store.fork("root", id="gone")
    store.delete("gone")
    found = [(one.info.id, one.relation, one.of, one.depth) for one in store.tree("root")]
    assert found == [
        ("root", "root", None, 0),
        ("fork", "fork", "root", 1),
        ("nested", "fork", "fork", 2),
        ("helper", "sub-agent", "root", 1),
        ("both", "sub-agent", "root", 1),
    ]
    assert [info.id for info in store.threads(roots=True)] == ["root"]
    with pytest.raises(NotFound):
        store.tree("nobody")
