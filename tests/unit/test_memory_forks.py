"""Forks in memory share what they inherit; what a purge kept for them goes with the last one."""

from __future__ import annotations

import tracemalloc

import pytest

import clew


def cost_of_forks(length: int) -> int:
    """The bytes that a hundred forks of a thread take."""
    with clew.open("memory:") as store:
        thread = store.create("t")
        thread.append([clew.draft("event", n) for n in range(length)])
        tracemalloc.start()
        try:
            for n in range(100):
                thread.fork(id=f"f{n}").append("event", n)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()


def test_a_fork_costs_the_same_whatever_the_length_of_its_path() -> None:
    assert cost_of_forks(4_000) < 1.5 * cost_of_forks(100)


def test_a_fork_of_a_fork_sees_what_both_inherit_and_nothing_that_came_later() -> None:
    with clew.open("memory:") as store:
        thread = store.create("t")
        first, second = thread.append("event", 1), thread.append("event", 2)
        fork = store.fork("t", at=first.id, id="f")
        own = fork.append("event", 3)
        deep = fork.fork(id="g")
        thread.append("event", 4)
        fork.append("event", 5)
        assert [entry.body for entry in deep.path()] == [1, 3]
        assert [entry.body for entry in store.fork("g", at=first.id, id="h").path()] == [1]
        with pytest.raises(clew.NotFound):
            deep.path(second.id)
        assert [entry.body for entry in deep.path(after=first.id)] == [3]
        deep.move(first.id)
        deep.append("event", 6)
        assert [entry.body for entry in deep.path()] == [1, 6]
        assert [entry.body for entry in deep.path(own.id)] == [1, 3]


def test_what_was_kept_for_one_fork_goes_with_it() -> None:
    with clew.open("memory:") as store:
        thread = store.create("t")
        blobs = [store.blobs.put(bytes([n])) for n in range(3)]
        entries = [thread.append("event", n, blobs=[blobs[n]]) for n in range(3)]
        store.fork("t", at=entries[0].id, id="short")
        store.fork("t", at=entries[1].id, id="long")
        purged = store.purge("t")
        assert (purged.kept, purged.kept_for) == (2, ("long", "short"))

        def left() -> set[str]:
            store.sweep(grace_seconds=0)
            return {hash for hash in blobs if store.blobs.has(hash)}

        assert left() == set(blobs[:2])
        store.purge("long")
        assert left() == set(blobs[:1])
        assert [entry.body for entry in store.get("short").path()] == [0]
        store.purge("short")
        assert left() == set()
