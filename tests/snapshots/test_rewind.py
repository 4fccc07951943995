"""Rewinds that would move the conversation without the files, or that could not be undone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from amounts import amount
from hypothesis import given, settings
from snapshots.trees import SPECS, Spec, add, read, whole, write

from clew.core.errors import Conflict, InvalidInput, LeaseHeld, NotFound, Unavailable
from clew.engines.memory import MemoryEngine
from clew.snapshots import intent as intents
from clew.snapshots.dirfd import System
from clew.snapshots.ignore import TEMPORARY, Rules
from clew.snapshots.model import Snapshot
from clew.snapshots.rewind import restore, rewind
from clew.snapshots.undo import recover, undo_rewind
from clew.store import Store
from clew.thread import Thread

A: Spec = {"f": b"old", "gone": b"1", "d/in": b"1", "empty": None}
B: Spec = {"f": b"new", "more/x": ("x", b"2"), "d/in": b"1", "l": ("link", "f")}


class Fast(System):
    """Nobody pulls the plug here."""

    def sync(self, descriptor: int) -> None:
        pass


class Failing(System):
    """Cannot switch a name, from the `after`-th on."""

    def __init__(self, after: int = 0) -> None:
        self._left = after

    def rename(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        if self._left <= 0:
            raise OSError(5, "injected")
        self._left -= 1
        super().rename(name, folder, new_name, new_folder)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", A)


@pytest.fixture
def thread(store: Store, root: Path) -> Thread:
    """Two messages: with the first came A, the work on it made B."""
    made = store.create("t")
    made.append("user_message", "first", id="m1")
    made.snapshots.take(root)
    made.append("assistant_message", "done", id="a1")
    write(root, B)
    made.append("user_message", "second", id="m2")
    made.snapshots.take(root)
    made.append("assistant_message", "done too", id="a2")
    return made


def label(thread: Thread, id: str) -> str | None:
    return thread.snapshots.get(id).label


# --- there and back ---


def test_files_and_leaf_go_back_together_and_forth_again(thread: Thread, root: Path) -> None:
    done = rewind(thread, "m1")
    assert (thread.leaf, done.leaf, done.from_leaf) == (None, None, "a2")
    assert read(root) == whole(A)
    assert done.files is not None
    assert label(thread, done.files.before or "") == "before rewind"
    assert thread.count_user_messages() == 0
    undone = undo_rewind(thread)
    assert (thread.leaf, undone.leaf, undone.what) == ("a2", "a2", "undo")
    assert read(root) == whole(B)
    assert thread.count_user_messages() == 2
    with pytest.raises(InvalidInput, match="no rewind"):
        undo_rewind(thread)


def test_at_a_message_means_that_it_stays(thread: Thread, root: Path) -> None:
    rewind(thread, "m1", at=True)
    assert thread.leaf == "m1"
    assert thread.count_user_messages() == 1
    assert read(root) == whole(A)


def test_before_the_second_message_is_after_the_first(thread: Thread, root: Path) -> None:
    (root / "f").write_bytes(b"third")
    thread.snapshots.take(root)
    rewind(thread, "m2")
    assert thread.leaf == "a1"
    assert read(root) == whole(B)


def test_the_conversation_alone(thread: Thread, root: Path) -> None:
    done = rewind(thread, "m1", files=False)
    assert done.files is None
    assert (thread.leaf, read(root)) == (None, whole(B))
    undo_rewind(thread)
    assert (thread.leaf, read(root)) == ("a2", whole(B))


def test_the_files_alone(thread: Thread, root: Path) -> None:
    rewind(thread, "m1", conversation=False)
    assert (thread.leaf, read(root)) == ("a2", whole(A))
    undo_rewind(thread)
    assert (thread.leaf, read(root)) == ("a2", whole(B))


def test_a_message_may_be_named_by_its_label(thread: Thread) -> None:
    [first, *_] = [entry for entry in thread.path() if entry.kind == "user_message"]
    thread.label(first.id, "begin")
    assert thread.rewind("begin", files=False).moved
    assert thread.leaf == first.parent
    with pytest.raises(NotFound):
        thread.rewind("nobody", files=False)


def test_nothing_at_all_is_not_a_wish(thread: Thread) -> None:
    with pytest.raises(InvalidInput, match="neither"):
        rewind(thread, "m1", conversation=False, files=False)


def test_a_restore_leaves_the_leaf_and_can_be_undone(thread: Thread, root: Path) -> None:
    first = thread.snapshots.list()[-1]
    done = restore(thread, first, root)
    assert (thread.leaf, read(root)) == ("a2", whole(A))
    assert label(thread, done.before or "") == "before restore"
    undo_rewind(thread)
    assert (thread.leaf, read(root)) == ("a2", whole(B))


def test_a_restore_of_one_file_and_its_undo_leave_the_others(thread: Thread, root: Path) -> None:
    restore(thread, thread.snapshots.list()[-1].id, root, ["f"])
    assert read(root) == whole(B | {"f": b"old"})
    (root / "more/x").write_bytes(b"changed since")
    undo_rewind(thread)
    assert read(root) == whole(B | {"more/x": ("x", b"changed since")})


def test_what_was_written_after_a_rewind_stays_as_a_branch(thread: Thread, root: Path) -> None:
    rewind(thread, "m2")
    thread.append("user_message", "another", id="m3")
    undo_rewind(thread)
    assert thread.leaf == "a2"
    ends = [{entry.id for entry in thread.path(leaf)} for leaf in thread.leaves()]
    assert any("m3" in end for end in ends)


def test_going_back_twice_is_not_recorded_twice(thread: Thread, root: Path) -> None:
    rewind(thread, "m1")
    count = len(thread.snapshots.list())
    again = rewind(thread, "m1")
    assert again.files is not None
    assert again.files.plan.is_empty
    assert len(thread.snapshots.list()) == count
    undo_rewind(thread)
    assert (thread.leaf, read(root)) == ("a2", whole(B))


def test_a_dry_run_writes_nothing(thread: Thread, root: Path) -> None:
    seq = thread.info.seq
    looked = rewind(thread, "m1", dry_run=True)
    assert looked.dry_run
    assert (looked.leaf, looked.from_leaf) == (None, "a2")
    assert looked.files is not None
    assert {step.path for step in looked.files.plan.steps} >= {"f", "gone", "more/x", "l"}
    assert (thread.info.seq, thread.leaf, read(root)) == (seq, "a2", whole(B))


def test_a_dry_run_of_an_undo_tells_and_writes_nothing(thread: Thread, root: Path) -> None:
    with pytest.raises(InvalidInput, match="no rewind"):
        undo_rewind(thread, dry_run=True)
    rewind(thread, "m1", system=Fast())
    seq = thread.info.seq
    looked = undo_rewind(thread, dry_run=True)
    assert (looked.what, looked.dry_run, looked.leaf, looked.from_leaf) == (
        "undo",
        True,
        "a2",
        None,
    )
    assert looked.files is not None
    assert (looked.files.dry_run, looked.files.before) == (True, None)
    assert {step.path for step in looked.files.plan.steps} >= {"f", "gone", "more/x", "l"}
    assert (thread.info.seq, thread.leaf, read(root)) == (seq, None, whole(A))
    done = undo_rewind(thread, system=Fast())
    assert done.files is not None
    assert done.files.plan == looked.files.plan


def test_a_dry_run_of_an_undo_names_what_would_stop_it(thread: Thread, root: Path) -> None:
    rewind(thread, "m1", system=Fast())
    (root / "f").write_bytes(b"by hand")
    looked = undo_rewind(thread, dry_run=True)
    assert looked.files is not None
    assert looked.files.plan.foreign == ("f",)


@pytest.mark.parametrize("again", [False, True], ids=["rewind", "its undo"])
def test_a_dry_run_of_an_undo_of_something_interrupted(
    thread: Thread, root: Path, again: bool
) -> None:
    interrupted(thread)
    if again:
        with pytest.raises(Unavailable):
            undo_rewind(thread, system=Failing())
    half, seq = read(root), thread.info.seq
    looked = undo_rewind(thread, dry_run=True)
    assert (looked.what, looked.moved) == ("undo", False)
    assert (read(root), thread.info.seq) == (half, seq)
    done = undo_rewind(thread, system=Fast())
    assert (thread.leaf, read(root)) == ("a2", whole(B))
    assert done.files is not None
    assert looked.files is not None
    assert done.files.plan == looked.files.plan


def test_progress_counts_every_step_once_and_ends_at_all_of_them(
    thread: Thread, root: Path
) -> None:
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    for go in (
        lambda: rewind(thread, "m1", progress=tell, system=Fast()).files,
        lambda: undo_rewind(thread, progress=tell, system=Fast()).files,
        lambda: restore(thread, thread.snapshots.list()[-1], root, progress=tell, system=Fast()),
    ):
        told.clear()
        restored = go()
        assert restored is not None
        total = len(restored.plan.steps)
        assert [all_of_them for _, all_of_them in told] == [total] * len(told)
        assert sorted({done for done, _ in told}) == [done for done, _ in told]
        assert told[-1] == (total, total)


def test_progress_that_raises_while_files_are_written_changes_nothing(
    thread: Thread, root: Path
) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(thread, thread.snapshots.list()[-1], root, ["f"], progress=stop, system=Fast())
    assert (read(root), intents.pending(thread.info)) == (whole(B), None)


@given(SPECS, SPECS)
@settings(max_examples=amount(20, 60))
def test_any_tree_goes_back_to_any_other_and_forth_again(first: Spec, second: Spec) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, thread = write(Path(folder, "tree"), first), Store(MemoryEngine()).create("t")
        thread.append("user_message", "first", id="m")
        thread.snapshots.take(root)
        write(root, second)
        thread.append("assistant_message", "done", id="a")
        thread.snapshots.take(root)
        leaf = thread.leaf
        extra: Spec = {"__pycache__/x": b"ignored", "z-mine": b"untracked"}
        add(root, extra)
        rewind(thread, "m", system=Fast())
        assert read(root) == whole(first | extra)
        undo_rewind(thread, system=Fast())
        assert read(root) == whole(second | extra)
        assert thread.leaf == leaf


# --- which snapshot ---


def test_a_snapshot_from_later_in_the_turn_is_not_how_it_was_before(
    thread: Thread, root: Path
) -> None:
    (root / "f").write_bytes(b"work on m2")
    assert thread.snapshots.take(root).at == "m2"
    rewind(thread, "m2")
    assert (root / "f").read_bytes() == b"new"


def test_the_snapshot_of_a_rewind_is_never_taken_for_the_one_of_the_message(
    thread: Thread, root: Path
) -> None:
    rewind(thread, "m2", at=True)  # what it takes on the way is pinned to m2 as well
    undo_rewind(thread)
    (root / "f").write_bytes(b"third")
    thread.snapshots.take(root, label="work")
    rewind(thread, "m2")
    assert (root / "f").read_bytes() == b"new"


def test_a_message_without_a_snapshot_is_named_with_a_way_out(thread: Thread) -> None:
    thread.append("user_message", "third", id="m3")
    with pytest.raises(NotFound, match=r"'m3' was not found; take one .* files=False"):
        rewind(thread, "m3")
    assert thread.leaf == "m3"


def test_only_a_user_message_is_a_place_to_go_back_to(thread: Thread) -> None:
    with pytest.raises(InvalidInput, match="no user message"):
        rewind(thread, "a1")
    with pytest.raises(NotFound):
        rewind(thread, "nowhere")


def test_two_folders_are_told_apart(thread: Thread, root: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"o": b"1"})
    thread.append("user_message", "third", id="m3")
    thread.snapshots.take(root)
    thread.snapshots.take(other)
    with pytest.raises(InvalidInput, match="several folders"):
        rewind(thread, "m3")
    thread.append("assistant_message", "done")
    (other / "o").write_bytes(b"2")
    thread.snapshots.take(other)
    rewind(thread, "m3", root=other, conversation=False)
    assert (read(other), read(root)) == ({"o": b"1"}, whole(B))


def test_a_fork_with_files_of_its_own_does_not_touch_those_it_came_from(
    thread: Thread, root: Path, tmp_path: Path
) -> None:
    own = write(tmp_path / "own", B)
    fork = thread.fork(at="a2")
    fork.append("user_message", "mine", id="m3")
    fork.snapshots.take(own)
    rewind(fork, "m1")
    assert (read(own), read(root)) == (whole(A), whole(B))


# --- changes of others ---


def test_a_foreign_change_stops_it_before_anything_happens(thread: Thread, root: Path) -> None:
    (root / "f").write_bytes(b"mine")
    seq = thread.info.seq
    with pytest.raises(Conflict, match="outside of what Clew knows") as caught:
        rewind(thread, "m1")
    assert caught.value.files == ("f",)  # type: ignore[attr-defined]
    assert (thread.info.seq, thread.leaf) == (seq, "a2")
    assert (root / "f").read_bytes() == b"mine"


def test_force_goes_on_and_the_undo_brings_the_foreign_change_back(
    thread: Thread, root: Path
) -> None:
    (root / "f").write_bytes(b"mine")
    rewind(thread, "m1", force=True)
    assert read(root) == whole(A)
    undo_rewind(thread)
    assert read(root) == whole(B | {"f": b"mine"})


def test_an_undo_does_not_overwrite_what_came_after_the_rewind(thread: Thread, root: Path) -> None:
    rewind(thread, "m1")
    (root / "f").write_bytes(b"since")
    with pytest.raises(Conflict, match="'f'"):
        undo_rewind(thread)
    assert (thread.leaf, (root / "f").read_bytes()) == (None, b"since")
    undo_rewind(thread, force=True)
    assert (thread.leaf, read(root)) == ("a2", whole(B))


def test_a_file_of_somebody_stays_however_often_one_goes_back(thread: Thread, root: Path) -> None:
    (root / "notes").write_bytes(b"mine")
    for _ in range(3):
        done = rewind(thread, "m1")
        assert done.files is not None
        assert done.files.plan.kept == ("notes",)
        undo_rewind(thread)
    assert (root / "notes").read_bytes() == b"mine"


def test_a_lease_of_somebody_else_stops_it_before_anything_happens(
    thread: Thread, root: Path
) -> None:
    lease = thread.leases.acquire("worker")
    with pytest.raises(LeaseHeld):
        rewind(thread, "m1")
    assert (thread.leaf, read(root)) == ("a2", whole(B))
    rewind(thread, "m1", fence=lease.fence)
    assert (thread.leaf, read(root)) == (None, whole(A))
    undo_rewind(thread, fence=lease.fence)
    assert (thread.leaf, read(root)) == ("a2", whole(B))


class Meanwhile(Fast):
    """Does something once, just before the first name is switched."""

    def __init__(self, what: Callable[[], object]) -> None:
        self._what: Callable[[], object] | None = what

    def rename(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        what, self._what = self._what, None
        if what is not None:
            what()
        super().rename(name, folder, new_name, new_folder)


def test_an_entry_that_comes_meanwhile_wins_and_the_files_go_back(
    thread: Thread, root: Path
) -> None:
    system = Meanwhile(lambda: thread.append("assistant_message", "late", id="a3"))
    with pytest.raises(Conflict):
        rewind(thread, "m1", system=system)
    assert (thread.leaf, read(root)) == ("a3", whole(B))
    assert intents.pending(thread.info) is None


def test_a_lease_that_is_lost_meanwhile_takes_the_files_back(thread: Thread, root: Path) -> None:
    def take_over() -> None:
        thread.leases.release(lease)
        thread.leases.acquire("other")

    lease = thread.leases.acquire("worker")
    with pytest.raises(Exception, match="lease"):
        rewind(thread, "m1", fence=lease.fence, system=Meanwhile(take_over))
    assert (thread.leaf, read(root)) == ("a2", whole(B))
    assert intents.pending(thread.info) is None


# --- interrupted ---


def interrupted(thread: Thread, after: int = 1) -> None:
    with pytest.raises(Unavailable) as caught:
        rewind(thread, "m1", system=Failing(after))
    assert "has not moved" in caught.value.__notes__[0]
    assert thread.leaf == "a2"
    assert intents.pending(thread.info) is not None


def test_the_same_call_again_finishes_it(thread: Thread, root: Path) -> None:
    interrupted(thread)
    done = rewind(thread, "m1")
    assert (thread.leaf, done.from_leaf, read(root)) == (None, "a2", whole(A))
    assert intents.pending(thread.info) is None
    undo_rewind(thread)
    assert (thread.leaf, read(root)) == ("a2", whole(B))


def test_another_call_finishes_it_first(thread: Thread, root: Path) -> None:
    interrupted(thread)
    rewind(thread, "m2")
    assert (thread.leaf, read(root)) == ("a1", whole(B))
    undo_rewind(thread)
    assert (thread.leaf, read(root)) == (None, whole(A))


def test_undo_takes_it_back(thread: Thread, root: Path) -> None:
    interrupted(thread)
    undo_rewind(thread)
    assert (thread.leaf, read(root)) == ("a2", whole(B))
    assert intents.pending(thread.info) is None


def test_an_undo_of_it_that_is_interrupted_is_still_an_undo(thread: Thread, root: Path) -> None:
    interrupted(thread)
    with pytest.raises(Unavailable):
        undo_rewind(thread, system=Failing(1))
    recover(thread)
    assert (thread.leaf, read(root)) == ("a2", whole(B))
    assert intents.pending(thread.info) is None


def test_an_undo_that_cannot_even_begin_forgets_nothing(thread: Thread, root: Path) -> None:
    class Full(System):
        def create(self, name: str, folder: int, mode: int) -> int:
            raise OSError(28, "injected")

    interrupted(thread)
    with pytest.raises(Unavailable, match="nothing was changed"):
        undo_rewind(thread, system=Full())
    assert intents.pending(thread.info) is not None
    recover(thread)
    assert (thread.leaf, read(root)) == ("a2", whole(B))


def test_a_full_disk_changes_nothing_and_leaves_nothing_to_finish(
    thread: Thread, root: Path
) -> None:
    class Full(System):
        def sync(self, descriptor: int) -> None:
            raise OSError(28, "injected")

    with pytest.raises(Unavailable, match="nothing was changed"):
        rewind(thread, "m1", system=Full())
    assert (thread.leaf, read(root)) == ("a2", whole(B))
    assert intents.pending(thread.info) is None
    assert not [name for name in os.listdir(root) if name.startswith(TEMPORARY)]


def test_a_thread_that_has_moved_on_is_not_moved_behind_its_back(
    thread: Thread, root: Path
) -> None:
    interrupted(thread)
    thread.append("user_message", "what happened?", id="m3")
    with pytest.raises(Conflict, match="moved on"):
        recover(thread)
    undo_rewind(thread)
    assert (thread.leaf, read(root)) == ("m3", whole(B))


def test_what_was_changed_since_the_interruption_is_foreign(thread: Thread, root: Path) -> None:
    interrupted(thread)
    (root / "f").write_bytes(b"mine")
    with pytest.raises(Conflict, match="'f'"):
        recover(thread)
    recover(thread, force=True)
    assert (thread.leaf, read(root)) == (None, whole(A))


def test_another_folder_of_the_same_name_is_not_written_to(thread: Thread, root: Path) -> None:
    interrupted(thread)
    root.rename(root.parent / "moved")
    write(root, {})
    with pytest.raises(Conflict, match="another folder now"):
        recover(thread)
    assert read(root) == {}
    recover(thread, root=root.parent / "moved")
    assert read(root.parent / "moved") == whole(A)


def test_an_undo_does_not_write_to_another_folder_of_the_same_name(
    thread: Thread, root: Path
) -> None:
    rewind(thread, "m1")
    root.rename(root.parent / "moved")
    write(root, {})
    with pytest.raises(Conflict, match="another folder now"):
        undo_rewind(thread)
    assert (thread.leaf, read(root)) == (None, {})
    undo_rewind(thread, root=root.parent / "moved")
    assert (thread.leaf, read(root.parent / "moved")) == ("a2", whole(B))


def test_what_an_interrupted_restore_left_is_in_no_snapshot(thread: Thread, root: Path) -> None:
    add(root, {TEMPORARY + "x": b"1", "d/" + TEMPORARY + "y": b"2"})
    taken = thread.snapshots.take(root)
    assert not [path for path, _ in thread.snapshots.files(taken) if TEMPORARY in path]


def test_it_can_be_abandoned(thread: Thread, root: Path) -> None:
    interrupted(thread)
    half = read(root)
    assert recover(thread, abandon=True) is None
    assert (read(root), intents.pending(thread.info)) == (half, None)
    assert recover(thread) is None


def test_the_snapshots_that_it_takes_to_finish_or_undo_are_told(thread: Thread, root: Path) -> None:
    target = thread.snapshots.list()[-1].id
    interrupted(thread)
    needed = intents.needed(thread.info)
    assert target in needed
    assert len(needed) == 2
    recover(thread)
    assert intents.needed(thread.info) == needed


def test_it_survives_the_process(place: object, tmp_path: Path) -> None:
    root = write(tmp_path / "tree", A)
    store = Store(place.open())  # type: ignore[attr-defined]
    thread = store.create("t")
    thread.append("user_message", "x", id="m1")
    thread.snapshots.take(root)
    write(root, B)
    thread.append("assistant_message", "y", id="a2")
    thread.snapshots.take(root)
    thread.move("a2")
    interrupted(thread, after=0)
    again = Store(place.reopen(store.engine)).get("t")  # type: ignore[attr-defined]
    recover(again)
    assert (again.leaf, read(root)) == (None, whole(A))


# --- forks and counts ---


def test_fork_ids_are_free_and_count_on(store: Store) -> None:
    store.create("abc")
    assert store.fork_id("abc") == "abc#fork-1"
    store.fork("abc", id="abc#fork-1")
    assert store.fork_id("abc") == "abc#fork-2"
    store.create("abc#fork-2")
    store.delete("abc#fork-2")
    assert store.fork_id("abc") == "abc#fork-3"
    assert store.fork_id("abc#fork-1") == "abc#fork-1#fork-1"


def test_a_dropped_snapshot_cannot_be_gone_back_to(thread: Thread, root: Path) -> None:
    first: Snapshot = thread.snapshots.list()[-1]
    thread.snapshots.drop(first.id)
    with pytest.raises(NotFound):
        rewind(thread, "m1")
    with pytest.raises(NotFound):
        restore(thread, first, root)


def test_what_the_target_left_out_is_not_deleted(tmp_path: Path) -> None:
    """It was there then; that it fits into a snapshot now is no reason to take it away."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "big").write_bytes(b"x" * 2000)
    thread = Store(MemoryEngine()).create()
    asked = thread.append("user_message", {"role": "user", "content": "go"})
    small = Rules(max_file_bytes=1000)
    assert thread.snapshots.take(root, rules=small).left_out[0].path == "big"
    (root / "big").write_bytes(b"small")
    thread.append("assistant_message", {"role": "assistant", "content": "done"})
    thread.snapshots.take(root)
    rewound = thread.rewind(asked.id)
    assert rewound.files is None or rewound.files.plan.kept == ("big",)
    assert (root / "big").read_bytes() == b"small"


def test_force_takes_away_what_others_added_and_undo_brings_it_back(
    thread: Thread, root: Path
) -> None:
    """Snapshot, work, rewind: the files are those of the snapshot, all of them and no others."""
    wanted = names(root)
    (root / "made").mkdir()
    (root / "made" / "deep").write_text("by another")
    (root / "new").write_text("by another")
    before = names(root)
    plain = thread.rewind("m2", dry_run=True).files
    assert plain is not None
    assert {"made/deep", "new"} <= set(plain.plan.kept)
    thread.rewind("m2", force=True)
    assert names(root) == wanted
    thread.undo_rewind()
    assert names(root) == before
    thread.redo_rewind()
    assert names(root) == wanted
    thread.undo_rewind()
    (root / "newer").write_text("by another, since")
    thread.redo_rewind()
    assert names(root) == {*wanted, "newer"}, "nobody forced that"


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}
