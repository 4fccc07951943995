"""Restores of some paths that would touch, judge or forget anything but these paths."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from amounts import amount
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshots.test_restore_faults import Faulty, FaultyOn, eio
from snapshots.trees import SPECS, Spec, add, look, read, snapshot_of, stored, whole, write

from clew.core.errors import ClewError, Conflict, NotFound
from clew.engines.memory import MemoryEngine
from clew.snapshots import intent as intents
from clew.snapshots import take
from clew.snapshots.dirfd import System
from clew.snapshots.ignore import TEMPORARY, Rules
from clew.snapshots.plan import Selection, work
from clew.snapshots.rewind import restore
from clew.snapshots.scan_paths import Base, scan_paths
from clew.snapshots.survey import CachedTree, signature
from clew.snapshots.take import Taking
from clew.snapshots.tree import Trees
from clew.snapshots.undo import recover, undo_rewind
from clew.store import Store
from clew.thread import Thread

A: Spec = {"f": b"old", "g": b"old", "d/in": b"old", "d/e/deep": b"old", "gone": b"1"}
B: Spec = {"f": b"new", "g": b"new", "d/in": b"new", "d/e/deep": b"new", "more/x": b"2"}
WITHOUT_MORE: Spec = {n: v for n, v in B.items() if n != "more/x"} | {"more": None}


class Fast(System):
    """Nobody pulls the plug here."""

    def sync(self, descriptor: int) -> None:
        pass


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store(MemoryEngine())
    yield opened
    opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tree"


def begun(store: Store, root: Path, before: Spec = A, after: Spec = B) -> tuple[Thread, str]:
    """A thread that went from one tree to another, and the snapshot of the first."""
    thread = store.create()
    thread.append("user_message", "x", id="m")
    write(root, before)
    first = thread.snapshots.take(root)
    write(root, after)
    thread.snapshots.take(root)
    return thread, first.id


# --- nothing but these paths ---


def test_what_was_not_asked_for_is_neither_touched_nor_judged(store: Store, root: Path) -> None:
    thread, first = begun(store, root)
    (root / "g").write_bytes(b"by hand")
    add(root, {"d/mine": b"never in a snapshot"})
    (root / "more/x").unlink()
    # Not when they were read: this test does that itself.
    before = {name: signature((root / name).stat()) for name in ("g", "d/e/deep", "d/mine")}
    plan = restore(thread, first, root, ["f", "d/in"], system=Fast()).plan
    assert [(step.act, step.path) for step in plan.steps] == [
        ("overwrite", "d/in"),
        ("overwrite", "f"),
    ]
    assert (plan.foreign, plan.kept, plan.blocked, plan.unchanged) == ((), (), (), 0)
    assert read(root) == whole(
        {
            "f": b"old",
            "g": b"by hand",
            "d/in": b"old",
            "d/e/deep": b"new",
            "d/mine": b"never in a snapshot",
            "more": None,
        }
    )
    assert {name: signature((root / name).stat()) for name in before} == before


def test_only_what_leads_to_the_paths_is_looked_at_and_loaded(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide: Spec = {f"wide/{n}/f": b"%d" % n for n in range(30)}
    thread, first = begun(store, root, A | wide, B | wide)
    listed: list[str] = []
    asked: list[str] = []
    real_list, real_load = os.listdir, Trees._load
    monkeypatch.setattr(os, "listdir", lambda at: listed.append(_name(at)) or real_list(at))  # type: ignore[func-returns-value]
    monkeypatch.setattr(Trees, "_load", lambda *a: asked.append(a[1]) or real_load(*a))  # type: ignore[func-returns-value]
    again = Store(store.engine).get(thread.id)  # a handle that remembers nothing
    restore(again, first, root, ["d/e/deep"], system=Fast())
    assert set(listed) == {"tree", "d", "e"}
    assert len(asked) == 6, "the manifests of three folders, before and after"


def _name(descriptor: int) -> str:
    return os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))


def test_a_neighbour_that_is_no_file_does_not_stop_it(store: Store, root: Path) -> None:
    thread, first = begun(store, root)
    os.mkfifo(root / "pipe")
    (root / "g").unlink()
    os.mkfifo(root / "g")
    restore(thread, first, root, ["f"], system=Fast())
    assert (root / "f").read_bytes() == b"old"


def test_a_link_on_the_way_is_not_followed(store: Store, root: Path, tmp_path: Path) -> None:
    thread, first = begun(store, root)
    outside = write(tmp_path / "outside", {"in": b"not yours"})
    write(root / "d", {})
    (root / "d").rmdir()
    (root / "d").symlink_to(outside)
    with pytest.raises(Conflict) as caught:
        restore(thread, first, root, ["d/in"])
    assert caught.value.files == ("d",)  # type: ignore[attr-defined]
    restore(thread, first, root, ["d/in"], force=True, system=Fast())
    assert (read(root / "d"), read(outside)) == ({"in": b"old"}, {"in": b"not yours"})
    undo_rewind(thread, system=Fast())
    assert os.readlink(root / "d") == str(outside)


# --- which paths ---


def test_a_folder_means_all_that_is_in_it(store: Store, root: Path) -> None:
    thread, first = begun(store, root, A | {"d/empty": None}, B | {"d/new": b"3"})
    add(root, {"d/mine": b"!"})
    plan = restore(thread, first, root, ["d/"], system=Fast()).plan
    assert [(step.act, step.path) for step in plan.steps] == [
        ("overwrite", "d/e/deep"),
        ("create", "d/empty"),
        ("overwrite", "d/in"),
        ("delete", "d/new"),
    ]
    assert plan.kept == ("d/mine",)
    (root / "f").write_bytes(b"by hand")
    undo_rewind(thread, system=Fast())
    assert read(root) == whole(B | {"d/new": b"3", "d/mine": b"!", "f": b"by hand"})


def test_a_path_that_the_snapshot_does_not_have_goes_only_if_a_snapshot_had_it(
    store: Store, root: Path
) -> None:
    thread, first = begun(store, root)
    add(root, {"mine": b"!"})
    plan = restore(thread, first, root, ["more/x", "mine"], system=Fast()).plan
    assert [(step.act, step.path) for step in plan.steps] == [("delete", "more/x")]
    assert plan.kept == ("mine",)
    assert read(root) == whole(WITHOUT_MORE | {"mine": b"!"})


def test_a_path_that_is_nowhere_is_an_error_and_changes_nothing(store: Store, root: Path) -> None:
    thread, first = begun(store, root)
    seq = thread.info.seq
    with pytest.raises(NotFound, match="typo"):
        restore(thread, first, root, ["f", "d/typo"])
    assert (thread.info.seq, read(root)) == (seq, whole(B))


def test_the_top_among_the_paths_means_everything(store: Store, root: Path) -> None:
    thread, first = begun(store, root)
    restore(thread, first, root, ["f", "."], system=Fast())
    assert read(root) == whole(A)


def test_no_path_at_all_changes_nothing(store: Store, root: Path) -> None:
    thread, first = begun(store, root)
    seq = thread.info.seq
    assert restore(thread, first, root, []).plan.is_empty
    assert (thread.info.seq, read(root)) == (seq, whole(B))


def test_an_ignored_file_is_left_alone_by_the_rules_of_the_folders_above_it(
    store: Store, root: Path
) -> None:
    thread, first = begun(store, root, {"d/e/log": b"old"}, {"d/.gitignore": b"log\n"})
    add(root, {"d/e/log": b"mine"})
    with pytest.raises(Conflict, match="in the way"):
        restore(thread, first, root, ["d/e/log"], force=True)
    assert (root / "d/e/log").read_bytes() == b"mine"


def test_a_name_that_is_one_with_its_neighbour_on_some_disks_is_refused(
    store: Store, root: Path
) -> None:
    """Just as in a restore of everything: only the first of the two is Clew's to change."""
    thread, first = begun(store, root, {"foo": b"1"}, {"foo": b"2"})
    (root / "Foo").write_bytes(b"mine")
    with pytest.raises(Conflict, match="in the way"):
        restore(thread, first, root, ["foo"], force=True)
    assert read(root) == {"foo": b"2", "Foo": b"mine"}


def test_a_name_that_has_changed_its_case_is_not_stored_twice(store: Store, root: Path) -> None:
    thread, first = begun(store, root, {"foo": b"1"}, {"Foo": b"2"})
    (root / "Foo").rename(root / "foo")
    done = restore(thread, first, root, ["foo"], force=True, system=Fast())
    before = thread.snapshots.files(done.before or "")
    assert [path for path, _ in before] == ["foo"]


# --- undo ---


def test_an_undo_brings_back_what_had_to_make_room_and_removes_what_had_to_be_made(
    store: Store, root: Path
) -> None:
    thread, first = begun(store, root, {"a/b": b"1", "n/m/f": b"1"}, {"a": b"file"})
    restore(thread, first, root, ["a/b", "n/m/f"], system=Fast())
    assert read(root) == whole({"a/b": b"1", "n/m/f": b"1"})
    undo_rewind(thread, system=Fast())
    assert read(root) == {"a": b"file"}


def test_an_undo_leaves_a_folder_that_others_have_come_to_use(store: Store, root: Path) -> None:
    thread, first = begun(store, root, {"n/f": b"1"}, {"k": b"1"})
    restore(thread, first, root, ["n/f"], system=Fast())
    add(root, {"n/other": b"2"})
    thread.snapshots.take(root)
    undo_rewind(thread, system=Fast())
    assert read(root) == whole({"k": b"1", "n/other": b"2"})


def test_an_undo_does_not_push_others_out_of_the_place_of_a_file(store: Store, root: Path) -> None:
    thread, first = begun(store, root, {"a/b": b"1"}, {"a": b"file"})
    restore(thread, first, root, ["a/b"], system=Fast())
    add(root, {"a/other": b"2"})
    thread.snapshots.take(root)
    with pytest.raises(Conflict, match="in the way"):
        undo_rewind(thread)
    assert read(root) == whole({"a/b": b"1", "a/other": b"2"})


def test_a_file_that_is_gone_again_is_undone_already(store: Store, root: Path) -> None:
    thread, first = begun(store, root)
    restore(thread, first, root, ["gone"], system=Fast())
    (root / "gone").unlink()
    undo_rewind(thread, system=Fast())
    assert read(root) == whole(B)


def test_an_undo_takes_back_what_went_into_another_folder(
    store: Store, root: Path, tmp_path: Path
) -> None:
    thread, first = begun(store, root)
    other = write(tmp_path / "other", {"f": b"mine", "own": b"!"})
    restore(thread, first, other, ["f", "d"], force=True, system=Fast())
    assert read(other) == whole({"f": b"old", "own": b"!", "d/in": b"old", "d/e/deep": b"old"})
    undo_rewind(thread, system=Fast())
    assert read(other) == {"f": b"mine", "own": b"!"}


# --- what others did ---


def test_a_foreign_change_of_a_path_stops_it_and_is_named(store: Store, root: Path) -> None:
    thread, first = begun(store, root)
    (root / "f").write_bytes(b"by hand")
    seq = thread.info.seq
    with pytest.raises(Conflict, match="outside of what Clew knows") as caught:
        restore(thread, first, root, ["f", "g"])
    assert caught.value.files == ("f",)  # type: ignore[attr-defined]
    assert (thread.info.seq, read(root)) == (seq, whole(B | {"f": b"by hand"}))
    restore(thread, first, root, ["f", "g"], force=True, system=Fast())
    assert read(root) == whole(B | {"f": b"old", "g": b"old"})
    undo_rewind(thread, system=Fast())
    assert read(root) == whole(B | {"f": b"by hand"})


def test_the_snapshot_on_the_way_has_the_paths_as_they_were_and_the_rest_as_it_was_known(
    store: Store, root: Path
) -> None:
    thread, first = begun(store, root)
    (root / "f").write_bytes(b"by hand")
    (root / "g").write_bytes(b"by hand, and not asked for")
    done = restore(thread, first, root, ["f", "gone"], force=True, system=Fast())
    before = thread.snapshots.get(done.before or "")
    assert (before.paths, before.at) == (("f", "gone"), "m")
    held = {path: thread.snapshots.read(before, path) for path, _ in thread.snapshots.files(before)}
    assert held == {n: v for n, v in B.items() if v is not None} | {"f": b"by hand"}
    assert (before.files, before.size_bytes) == (len(held), sum(map(len, held.values())))


def test_a_partial_snapshot_does_not_speak_for_what_it_has_not_seen(
    store: Store, root: Path
) -> None:
    thread, first = begun(store, root)
    done = restore(thread, first, root, ["f"], system=Fast())
    write(root, {"f": b"old", "g": b"later"})
    thread.snapshots.take(root)
    restore(thread, done.before or "", root, system=Fast())
    assert read(root) == {"f": b"new", "g": b"later"}


def test_left_out_names_are_those_that_were_seen_and_those_that_were_known(
    store: Store, root: Path
) -> None:
    thread = store.create()
    rules = Rules(max_file_bytes=10)
    write(root, {"a": b"x" * 11, "b": b"x" * 11, "f": b"1"})
    first = thread.snapshots.take(root, rules=rules)
    write(root, {"a": b"small", "b": b"x" * 12, "f": b"2"})
    done = restore(thread, first.id, root, ["f", "a"], force=True, system=Fast())
    before = thread.snapshots.get(done.before or "")
    assert [(item.path, item.size) for item in before.left_out] == [("b", 11)]
    assert done.plan.kept == ("a",), "the snapshot had left it out"


# --- against the whole ---


@given(SPECS, SPECS, st.data())
@settings(max_examples=amount(50, 150))
def test_a_part_is_seen_and_planned_as_in_a_look_at_everything(
    there: Spec, here: Spec, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, engine = write(Path(folder, "tree"), here), MemoryEngine()
        names = sorted(whole(there) | whole(here))
        paths = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
        known = [stored(engine, {name: value for name, value in here.items() if name < "c"})]
        goal = snapshot_of(stored(engine, there), root)
        full = work(Trees(engine), goal, look(root), known, paths)
        top, chosen = os.path.realpath(root), Selection(paths)
        seen = scan_paths(top, Rules(), chosen, Base(Trees(engine)), CachedTree)
        assert work(Trees(engine), goal, seen, known, paths) == full


@given(SPECS, SPECS, st.data())
@settings(max_examples=amount(50, 150))
def test_a_part_is_stored_as_in_a_snapshot_of_everything_if_only_it_has_changed(
    first: Spec, second: Spec, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, thread = write(Path(folder, "tree"), first), Store(MemoryEngine()).create()
        thread.snapshots.take(root)
        names = sorted(whole(first) | whole(second))
        paths = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
        write(root, _changed(whole(first), whole(second), paths))
        part = Taking(thread, root, label="part").take(Selection(paths))
        full = thread.snapshots.take(root)
        assert (part.tree, part.files, part.size_bytes) == (full.tree, full.files, full.size_bytes)
        assert Trees(thread.store.engine).blobs(part.tree), "all of it is stored"


def _changed(first: Spec, second: Spec, paths: list[str]) -> Spec:
    """The first tree, but the second one's at these paths and at what is above them."""
    chosen = Selection(paths)
    below = {n: v for n, v in second.items() if chosen.holds(n) or chosen.leads_to(n)}
    kept = {n: v for n, v in first.items() if not chosen.holds(n) and not chosen.leads_to(n)}
    above = {n for n in first if chosen.leads_to(n) and not chosen.holds(n)}
    solid = {n for n in below if below[n] is not None}
    kept = {n: v for n, v in kept.items() if not _parents(n) & (solid | (above - below.keys()))}
    return below | kept


def _parents(name: str) -> set[str]:
    return {str(up) for up in Path(name).parents}


# --- what it counts on ---


def test_without_an_earlier_snapshot_of_the_folder_all_of_it_is_kept(
    store: Store, root: Path, tmp_path: Path
) -> None:
    thread, first = begun(store, root)
    other = write(tmp_path / "other", {"f": b"mine", "own": b"!"})
    done = restore(thread, first, other, ["f"], force=True, system=Fast())
    before = thread.snapshots.get(done.before or "")
    assert (before.paths, before.files) == (None, 2)


def test_a_damaged_earlier_snapshot_does_not_stop_it(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, first = begun(store, root)
    newest = thread.snapshots.list()[0]
    real = store.engine.get_blob
    monkeypatch.setattr(
        store.engine, "get_blob", lambda hash: b"" if hash == newest.tree else real(hash)
    )
    again = Store(store.engine).get(thread.id)
    done = restore(again, first, root, ["f"], force=True, system=Fast())
    assert (root / "f").read_bytes() == b"old"
    assert again.snapshots.get(done.before or "").paths is None


def test_what_it_counted_on_and_a_sweep_took_meanwhile_is_stored_again(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, first = begun(store, root)
    newest = thread.snapshots.list()[0].id
    real = take.scan_paths

    def swept(*arguments: object, **options: object) -> object:
        found = real(*arguments, **options)  # type: ignore[arg-type]
        thread.snapshots.drop(newest)
        store.sweep(grace_seconds=0)
        return found

    monkeypatch.setattr(take, "scan_paths", swept)
    done = restore(thread, first, root, ["f"], force=True, system=Fast())
    before = thread.snapshots.get(done.before or "")
    assert before.paths is None
    assert Trees(store.engine).blobs(before.tree), "all of it is stored"
    undo_rewind(thread, system=Fast())
    assert read(root) == whole(B)


def test_what_a_forced_recovery_overwrites_is_kept_though_a_sweep_comes_in_between(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second try appends a move of its own: that of the first one is written already."""
    thread, first = begun(store, root)

    class Failing(System):
        def rename(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
            eio()

    with pytest.raises(ClewError):
        restore(thread, first, root, ["f"], system=Failing())
    (root / "f").write_bytes(b"by hand")
    newest, leaf = thread.snapshots.list()[0].id, thread.leaf
    real = take.Taking.append

    def swept(*arguments: Any, **options: Any) -> bool:
        if newest in [snapshot.id for snapshot in thread.snapshots.list()]:
            thread.snapshots.drop(newest)
            store.sweep(grace_seconds=0)
        return real(*arguments, **options)

    monkeypatch.setattr(take.Taking, "append", swept)
    recover(thread, force=True, system=Fast())
    kept = thread.snapshots.list()[0]
    assert (kept.label, thread.leaf) == ("before restore", leaf)
    assert thread.snapshots.read(kept, "f") == b"by hand"
    assert (root / "f").read_bytes() == b"old"


# --- interruptions ---

# Every kind of step, a folder that has to be made, and a file that has to make room for one.
BEFORE: Spec = A | {"swap/in": b"1", "made/for/it": b"1", "mode": ("x", b"1")}
AFTER: Spec = B | {"swap": b"file", "mode": b"1"}
PATHS = ["f", "gone", "more", "d/e", "swap/in", "made/for/it", "mode"]
DONE: Spec = {
    **{name: BEFORE[name] for name in ("f", "gone", "swap/in", "made/for/it", "mode")},
    "g": b"by hand",
    "d/in": b"new",
    "d/e/deep": b"old",
}
NOT_DONE = AFTER | {"g": b"by hand"}


@pytest.mark.parametrize("back", [False, True], ids=["finish", "undo"])
@pytest.mark.parametrize("kind", [Faulty, FaultyOn], ids=["EIO once", "ENOSPC from there on"])
def test_an_error_at_any_call_leaves_something_that_can_be_finished_or_undone(
    root: Path, kind: type[Faulty], back: bool
) -> None:
    thread, first = begun(Store(MemoryEngine()), root, BEFORE, AFTER)
    counted = Faulty()
    restore(thread, first, root, PATHS, system=counted)
    for at in range(len(counted.calls)):
        thread, first = begun(Store(MemoryEngine()), root, BEFORE, AFTER)
        (root / "g").write_bytes(b"by hand")
        try:
            restore(thread, first, root, PATHS, system=kind(at, eio))
        except ClewError:
            _go_on(thread, root, back=back)
        else:
            assert read(root) == whole(DONE)
        assert intents.pending(thread.info) is None
        assert not [n for _, _, names in os.walk(root) for n in names if n.startswith(TEMPORARY)]


def _go_on(thread: Thread, root: Path, *, back: bool) -> None:
    if intents.pending(thread.info) is None:
        assert read(root) == whole(NOT_DONE)
    elif back:
        undo_rewind(thread, system=Fast())
        assert read(root) == whole(NOT_DONE)
    else:
        recover(thread, system=Fast())
        assert read(root) == whole(DONE)
        undo_rewind(thread, system=Fast())
        assert read(root) == whole(NOT_DONE)


def test_a_removal_that_was_interrupted_when_all_was_done_is_finished(
    store: Store, root: Path
) -> None:
    class Unsynced(System):
        def sync(self, descriptor: int) -> None:
            eio()

    thread, first = begun(store, root)
    with pytest.raises(ClewError):
        restore(thread, first, root, ["more/x"], system=Unsynced())
    assert intents.pending(thread.info) is not None
    recover(thread, system=Fast())
    assert read(root) == whole(WITHOUT_MORE)
    undo_rewind(thread, system=Fast())
    assert read(root) == whole(B)


def test_only_folders_on_the_way_are_searched_for_what_was_left_behind(
    store: Store, root: Path
) -> None:
    thread, first = begun(store, root)

    class Failing(System):
        def rename(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
            eio()

    class Listing(Fast):
        listed: ClassVar[list[str]] = []

        def names(self, folder: int) -> list[str]:
            self.listed.append(_name(folder))
            return super().names(folder)

    with pytest.raises(ClewError):
        restore(thread, first, root, ["d/in"], system=Failing())
    recover(thread, system=Listing())
    assert set(Listing.listed) == {"tree", "d"}
    assert (root / "d/in").read_bytes() == b"old"
