"""Quotas that would take away what somebody still needs, or keep what nobody does."""

from __future__ import annotations

from pathlib import Path

import pytest
from amounts import amount
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshots.trees import Spec, add, stored, write

from clew.core.errors import InvalidInput, NotFound
from clew.engines.memory import MemoryEngine
from clew.snapshots.model import Snapshot
from clew.snapshots.quota import Holding
from clew.snapshots.tree import Trees
from clew.store import Store
from clew.thread import Thread


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", {"same": b"s" * 100})


@pytest.fixture
def thread(store: Store) -> Thread:
    return store.create("t")


def several(thread: Thread, root: Path, count: int = 4) -> list[Snapshot]:
    """Each has 100 bytes that all have, and 10 of its own."""
    taken = []
    for n in range(count):
        thread.append_message({"role": "user", "content": "more"}, id=f"u{n}")
        (root / "changing").write_bytes(b"%d" % n * 10)
        taken.append(thread.snapshots.take(root))
    return taken


def kept(thread: Thread) -> list[str]:
    return [snapshot.id for snapshot in reversed(thread.snapshots.list())]


def test_the_same_bytes_count_once(thread: Thread, root: Path) -> None:
    assert thread.snapshots.stats().snapshots == 0
    several(thread, root)
    stats = thread.snapshots.stats()
    assert (stats.snapshots, stats.files, stats.size_bytes) == (4, 8, 440)
    assert stats.distinct_bytes == 140


def test_the_oldest_go_first(thread: Thread, root: Path) -> None:
    taken = several(thread, root)
    dropped = thread.snapshots.limit(keep_last=2)
    assert [one.id for one in dropped] == [one.id for one in taken[:2]]
    assert kept(thread) == [one.id for one in taken[2:]]
    assert thread.snapshots.limit(keep_last=2) == []
    with pytest.raises(NotFound):
        thread.snapshots.get(taken[0].id)


def test_bytes_are_those_that_are_left(store: Store, thread: Thread, root: Path) -> None:
    taken = several(thread, root)
    assert thread.snapshots.limit(keep_bytes=140) == []
    thread.snapshots.limit(keep_bytes=120)
    assert kept(thread) == [one.id for one in taken[2:]]
    assert thread.snapshots.stats().distinct_bytes == 120
    assert store.sweep(grace_seconds=0).blobs > 0
    for snapshot in thread.snapshots.list():
        assert thread.snapshots.read(snapshot, "same") == b"s" * 100


def test_the_newest_and_the_pinned_stay_whatever_the_quota(thread: Thread, root: Path) -> None:
    taken = several(thread, root)
    thread.snapshots.pin(taken[0].id)
    thread.snapshots.limit(keep_last=0, keep_bytes=0)
    assert kept(thread) == [taken[0].id, taken[3].id]


def test_what_a_fork_can_see_stays(store: Store, thread: Thread, root: Path) -> None:
    taken = several(thread, root)
    fork = thread.fork(before="u2")
    hidden = thread.fork(before="u1")
    store.delete(hidden.id)
    thread.snapshots.limit(keep_last=1)
    assert kept(thread) == [taken[0].id, taken[1].id, taken[3].id]
    assert kept(fork) == [taken[0].id, taken[1].id]
    assert fork.snapshots.limit(keep_last=0) == [], "they are not its own"
    store.purge(fork.id)
    thread.snapshots.limit(keep_last=1)
    assert kept(thread) == [taken[0].id, taken[3].id], "the deleted one can be restored"
    store.purge(hidden.id)
    thread.snapshots.limit(keep_last=1)
    assert kept(thread) == [taken[3].id]


def test_a_rewind_can_be_undone_whatever_the_quota(
    store: Store, thread: Thread, root: Path
) -> None:
    several(thread, root)
    thread.rewind("u1")
    for _ in range(2):
        (root / "changing").write_bytes(b"later")
        thread.snapshots.take(root, label="later")
    thread.snapshots.limit(keep_last=0)
    store.sweep(grace_seconds=0)
    thread.undo_rewind()
    assert (root / "changing").read_bytes() == b"3" * 10


def test_a_quota_must_say_something_that_can_be_meant(thread: Thread) -> None:
    with pytest.raises(InvalidInput):
        thread.snapshots.limit()
    for wrong in (-1, 1.5, "3", True):
        with pytest.raises(InvalidInput):
            thread.snapshots.limit(keep_last=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            thread.snapshots.limit(keep_bytes=wrong)  # type: ignore[arg-type]


def test_a_damaged_snapshot_does_not_keep_the_others(
    store: Store, thread: Thread, root: Path
) -> None:
    taken = several(thread, root, count=2)
    fact = dict(thread.facts[f"snapshot.{taken[0].id}"])
    thread.set_facts({f"snapshot.{taken[0].id}": {**fact, "tree": "b3:" + "0" * 64}})
    assert thread.snapshots.stats().distinct_bytes == 110
    assert [one.id for one in thread.snapshots.limit(keep_last=1)] == [taken[0].id]


_SPECS = st.dictionaries(
    st.sampled_from(["a", "b", "d/a", "d/b", "d/e/f"]),
    st.sampled_from([b"", b"1", b"22", b"333"]),
    max_size=4,
)


@given(st.lists(_SPECS, max_size=5), st.data())
@settings(max_examples=amount(33, 100))
def test_what_is_held_is_the_sum_of_what_is_left(specs: list[Spec], data: st.DataObject) -> None:
    engine = MemoryEngine()
    held, left = Holding(Trees(engine)), []
    for spec in specs:
        held.add(stored(engine, spec))
        left.append(spec)
        if data.draw(st.booleans()):
            gone = left.pop(data.draw(st.integers(0, len(left) - 1)))
            held.remove(stored(engine, gone))
        distinct = {value for spec in left for value in spec.values()}
        assert held.distinct_bytes == sum(map(len, distinct))


def test_a_file_that_is_a_manifest_is_counted_as_a_file(thread: Thread, root: Path) -> None:
    from clew.snapshots.manifest import pack

    add(root, {"odd": pack([])})
    taken = thread.snapshots.take(root)
    assert thread.snapshots.stats().distinct_bytes == taken.size_bytes
