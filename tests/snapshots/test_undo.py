"""Undos that do not go back as far as they should, or that cannot be redone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from clew.core.engine import Engine
from clew.core.errors import Conflict, InvalidInput, NotFound, Unavailable
from clew.snapshots import intent as intents
from clew.snapshots.dirfd import System
from clew.snapshots.undo import redo_rewind, undo_rewind
from clew.store import Store
from clew.thread import Thread


class Failing(System):
    """Cannot switch a name."""

    def rename(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        raise OSError(5, "injected")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def thread(store: Store, root: Path) -> Thread:
    """Four messages, each with the version of the file that was there when it came."""
    made = store.create("t")
    for n in (1, 2, 3, 4):
        (root / "f").write_text(f"v{n}")
        made.append("user_message", "do", id=f"m{n}")
        made.snapshots.take(root)
        made.append("assistant_message", "done", id=f"a{n}")
    return made


def state(thread: Thread, root: Path) -> tuple[str | None, str]:
    return thread.leaf, (root / "f").read_text()


def test_two_undos_take_two_rewinds_back(thread: Thread, root: Path) -> None:
    thread.rewind("m3")
    thread.rewind("m2")
    assert state(thread, root) == ("a1", "v2")
    thread.undo_rewind()
    assert state(thread, root) == ("a2", "v3")
    thread.undo_rewind()
    assert state(thread, root) == ("a4", "v4")
    with pytest.raises(InvalidInput, match="no rewind"):
        thread.undo_rewind()


def test_what_was_undone_is_done_again_in_the_same_order(thread: Thread, root: Path) -> None:
    thread.rewind("m3")
    thread.rewind("m2")
    thread.rewind("m1")
    states = [state(thread, root)]
    for _ in range(3):
        thread.undo_rewind()
        states.append(state(thread, root))
    assert states == [(None, "v1"), ("a1", "v2"), ("a2", "v3"), ("a4", "v4")]
    for expected in reversed(states[:-1]):
        assert thread.redo_rewind().what == "redo"
        assert state(thread, root) == expected
    with pytest.raises(InvalidInput, match="no undo"):
        thread.redo_rewind()
    for expected in states[1:]:
        thread.undo_rewind()
        assert state(thread, root) == expected


def test_undo_and_redo_go_back_and_forth_as_often_as_one_likes(thread: Thread, root: Path) -> None:
    thread.rewind("m3")
    thread.rewind("m2", files=False)
    for _ in range(3):
        thread.undo_rewind()
        assert state(thread, root) == ("a2", "v3")
        thread.undo_rewind()
        assert state(thread, root) == ("a4", "v4")
        thread.redo_rewind()
        assert state(thread, root) == ("a2", "v3")
        thread.redo_rewind()
        assert state(thread, root) == ("a1", "v3")


def test_an_undo_that_finds_all_done_already_still_lets_the_next_one_go_further(
    thread: Thread, root: Path
) -> None:
    thread.rewind("m3", files=False)
    thread.rewind("m2", files=False)
    thread.move("a2")
    thread.undo_rewind()
    thread.undo_rewind()
    assert thread.leaf == "a4"


@pytest.mark.parametrize("what", ["rewind", "restore", "append"])
def test_something_new_after_an_undo_ends_what_could_be_redone(
    thread: Thread, root: Path, what: str
) -> None:
    thread.rewind("m3")
    thread.undo_rewind()
    if what == "rewind":
        thread.rewind("m4")
    elif what == "restore":
        thread.snapshots.restore("m2")
    else:
        thread.append("user_message", "on", id="m5")
    before = (*state(thread, root), thread.info.seq)
    with pytest.raises(InvalidInput, match="redo: "):
        thread.redo_rewind()
    with pytest.raises(InvalidInput, match="redo: "):
        thread.redo_rewind(dry_run=True)
    assert (*state(thread, root), thread.info.seq) == before


def test_markers_and_the_snapshot_that_a_conflict_asks_for_do_not_end_it(
    thread: Thread, root: Path
) -> None:
    thread.rewind("m3")
    with thread.turn(owner="me") as turn:
        turn.undo_rewind()
    (root / "f").write_text("by hand")
    with pytest.raises(Conflict, match="take a snapshot"):
        thread.redo_rewind()
    thread.snapshots.take(root)
    looked = thread.redo_rewind(dry_run=True)
    done = thread.redo_rewind()
    assert (looked.what, looked.leaf) == ("redo", done.leaf)
    assert thread.get(done.leaf or "").parent == "a2", "the undo was called behind a marker"
    assert (root / "f").read_text() == "v3"
    thread.undo_rewind()
    assert (root / "f").read_text() == "by hand"


def test_a_restore_is_undone_and_redone_like_a_rewind(thread: Thread, root: Path) -> None:
    thread.snapshots.restore("m1")
    thread.snapshots.restore("m2", paths=["f"])
    thread.undo_rewind()
    assert state(thread, root) == ("a4", "v1")
    thread.undo_rewind()
    assert state(thread, root) == ("a4", "v4")
    thread.redo_rewind()
    thread.redo_rewind()
    assert state(thread, root) == ("a4", "v2")


def test_a_redo_that_was_interrupted_is_finished_or_taken_back(thread: Thread, root: Path) -> None:
    thread.rewind("m3")
    for end in (lambda: thread.redo_rewind(), lambda: thread.snapshots.recover()):
        thread.undo_rewind()
        with pytest.raises(Unavailable):
            redo_rewind(thread, system=Failing())
        assert thread.redo_rewind(dry_run=True).leaf == "a2"
        end()
        assert state(thread, root) == ("a2", "v3")
        assert intents.pending(thread.info) is None
    thread.undo_rewind()
    with pytest.raises(Unavailable):
        redo_rewind(thread, system=Failing())
    thread.undo_rewind()
    assert state(thread, root) == ("a4", "v4")
    thread.redo_rewind()
    assert state(thread, root) == ("a2", "v3")


def test_an_undo_that_was_interrupted_is_finished_once(thread: Thread, root: Path) -> None:
    thread.rewind("m3")
    thread.rewind("m2")
    with pytest.raises(Unavailable):
        undo_rewind(thread, system=Failing())
    with pytest.raises(Conflict, match="undo was interrupted"):
        thread.redo_rewind()
    thread.undo_rewind()
    assert state(thread, root) == ("a2", "v3")
    thread.undo_rewind()
    assert state(thread, root) == ("a4", "v4")


def test_an_undo_in_a_folder_that_was_moved_finds_it_by_its_root(
    thread: Thread, root: Path
) -> None:
    thread.rewind("m3")
    thread.rewind("m2")
    moved = root.rename(root.parent / "moved")
    with pytest.raises(InvalidInput):
        thread.undo_rewind()
    thread.undo_rewind(root=moved)
    thread.undo_rewind(root=moved)
    assert state(thread, moved) == ("a4", "v4")
    thread.redo_rewind()
    assert state(thread, moved) == ("a2", "v3")


def test_a_quota_spares_what_the_next_undo_and_the_next_redo_need(
    thread: Thread, root: Path
) -> None:
    thread.rewind("m3")
    thread.rewind("m2")
    thread.undo_rewind()
    thread.snapshots.limit(keep_last=0)
    thread.redo_rewind()
    assert state(thread, root) == ("a1", "v2")
    thread.undo_rewind()
    thread.undo_rewind()
    assert state(thread, root) == ("a4", "v4")


def test_an_undo_whose_files_were_dropped_says_so_and_changes_nothing(
    thread: Thread, root: Path
) -> None:
    done = thread.rewind("m3")
    assert done.files is not None
    thread.snapshots.drop(done.files.before or "")
    with pytest.raises(NotFound, match="snapshot"):
        thread.undo_rewind()
    assert state(thread, root) == ("a2", "v3")


class Counting:
    """An engine that counts the records that are read."""

    def __init__(self, engine: Engine) -> None:
        self.wrapped = engine
        self.records = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.wrapped, name)
        if name not in ("read", "path"):
            return call

        def counted(*arguments: Any, **options: Any) -> Any:
            found = call(*arguments, **options)
            self.records += len(found)
            return found

        return counted


def test_an_undo_does_not_read_the_history(store: Store, tmp_path: Path) -> None:
    def cost(length: int) -> int:
        engine = Counting(store.engine)
        thread = Store(cast(Engine, engine)).create(f"long-{length}")
        for n in range(length):
            thread.append("user_message", "x", id=f"m{n}")
        thread.rewind(f"m{length - 1}", files=False)
        for n in range(length):
            thread.append("user_message", "x", id=f"n{n}")
        thread.rewind(f"n{length - 1}", files=False)
        engine.records = 0
        thread.undo_rewind()
        thread.undo_rewind()
        thread.redo_rewind()
        thread.redo_rewind()
        return engine.records

    assert cost(400) == cost(100)
