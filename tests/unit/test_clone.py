"""A clone can go back to everything that the thread can go back to."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew import AlreadyExists, NotFound
from clew.core.model import Entry, Fact, Move
from clew.store import Store
from clew.thread import Thread


@pytest.fixture
def thread(store: Store, tmp_path: Path) -> Thread:
    """Two branches, of which one was left; a snapshot pinned to the message it stands on."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "f").write_text("v1")
    thread = store.create("t", title="Work")
    thread.append("user_message", "one", id="m1")
    thread.snapshots.take(root, label="first")
    (root / "f").write_text("v2")
    thread.append("assistant_message", "yes", id="a1")
    thread.append("user_message", "two", id="m2")
    thread.snapshots.take(root)
    thread.rewind("m2", files=False)
    thread.append("user_message", "three", id="m3")
    thread.snapshots.take(root, at="m3")
    thread.label("m1", "begin")
    return thread


def content(thread: Thread) -> list[object]:
    found: list[object] = []
    for record in thread.read():
        if isinstance(record, Entry):
            found.append((record.seq, record.id, record.hash, record.parent))
        elif isinstance(record, Move):
            found.append((record.seq, record.id, record.leaf))
        elif isinstance(record, Fact):
            found.append((record.seq, record.id, record.key, record.value))
    return found


def test_a_clone_has_everything_and_lives_its_own_life(store: Store, thread: Thread) -> None:
    clone = store.clone("t", id="c")
    assert content(clone) == content(thread)
    assert (clone.leaf, clone.labels, clone.info.title) == (
        thread.leaf,
        thread.labels,
        thread.info.title,
    )
    assert [s.id for s in clone.snapshots.list()] == [s.id for s in thread.snapshots.list()]
    clone.append("assistant_message", "here only")
    assert len(list(thread.entries())) + 1 == len(list(clone.entries()))
    assert store.verify() == []


def test_a_clone_goes_back_to_a_branch_that_was_left(
    store: Store, thread: Thread, tmp_path: Path
) -> None:
    clone = store.clone("t")
    clone.undo_rewind()
    assert "m2" in [entry.id for entry in clone.path()]
    clone.rewind("m1", root=tmp_path / "project")
    assert (tmp_path / "project" / "f").read_text() == "v1"


def test_a_clone_outlives_its_thread(store: Store, thread: Thread) -> None:
    clone = store.clone("t", id="c")
    before = content(clone)
    store.purge("t")
    assert content(clone) == before
    assert store.verify() == []


def test_a_clone_of_a_fork_shares_what_the_fork_shares(store: Store, thread: Thread) -> None:
    fork = thread.fork(at="a1", id="f")
    fork.append("user_message", "four")
    clone = store.clone("f", id="c")
    assert [entry.id for entry in clone.path()] == [entry.id for entry in fork.path()]
    assert clone.info.origin == fork.info.origin


def test_nothing_is_overwritten(store: Store, thread: Thread) -> None:
    store.create("c").append("event", 1)
    with pytest.raises(AlreadyExists):
        store.clone("t", id="c")
    with pytest.raises(NotFound):
        store.clone("nobody")
    assert [entry.body for entry in store.get("c").path()] == [1]
    assert [info.id for info in store.threads(archived=None)].count("c") == 1


def test_an_empty_thread_can_be_cloned(store: Store) -> None:
    store.create("empty")
    assert store.clone("empty").path() == []
