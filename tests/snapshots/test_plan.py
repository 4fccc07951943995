"""Plans that would lose somebody's work, or forget a file, or touch what is not Clew's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from snapshots.trees import Spec, add, look, snapshot_of, stored, write

from clew.core.engine import Engine
from clew.core.errors import InvalidInput, NotFound
from clew.engines.memory import MemoryEngine
from clew.snapshots.manifest import Node, pack
from clew.snapshots.model import LeftOut, Plan
from clew.snapshots.plan import work
from clew.snapshots.tree import Trees


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    opened = MemoryEngine()
    yield opened
    opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tree"


def planned(
    engine: Engine,
    root: Path,
    target: Spec,
    *known: Spec,
    paths: list[str] | None = None,
    noted: tuple[Spec, ...] = (),
) -> Plan:
    trees = [stored(engine, spec) for spec in known]
    aside = [stored(engine, spec) for spec in noted]
    goal = snapshot_of(stored(engine, target))
    return work(Trees(engine), goal, look(root), trees, paths, noted=aside).plan


def acts(found: Plan) -> list[tuple[str, str]]:
    return [(step.act, step.path) for step in found.steps]


A: Spec = {"same": b"1", "changed": b"old", "gone": b"x", "d/in": b"2", "empty": None}
B: Spec = {"same": b"1", "changed": b"new", "more": b"y", "d/in": b"2", "d/new": b"3"}


def test_each_kind_of_step_is_told_apart(engine: MemoryEngine, root: Path) -> None:
    write(root, B | {"mode": b"m"})
    found = planned(engine, root, A | {"mode": ("x", b"m")}, B | {"mode": b"m"})
    assert acts(found) == [
        ("overwrite", "changed"),
        ("delete", "d/new"),
        ("create", "empty"),
        ("create", "gone"),
        ("mode", "mode"),
        ("delete", "more"),
    ]
    assert (found.unchanged, found.foreign, found.kept, found.blocked) == (2, (), (), ())


def test_the_same_tree_is_an_empty_plan_and_counts_every_file(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, A)
    found = planned(engine, root, A, A)
    assert found.is_empty
    assert found.unchanged == 4


def test_equal_folders_are_not_read(engine: MemoryEngine, root: Path) -> None:
    write(root, {"big/a": b"1", "big/b/c": b"2", "x": b"new"})
    target = stored(engine, {"big/a": b"1", "big/b/c": b"2", "x": b"old"})
    asked: list[str] = []

    class Watching(Trees):
        def nodes(self, manifest: str) -> list[Node]:
            asked.append(manifest)
            return super().nodes(manifest)

    work(Watching(engine), snapshot_of(target), look(root), [target])
    assert set(asked) == {target}


def test_a_change_that_no_snapshot_has_is_foreign(engine: MemoryEngine, root: Path) -> None:
    write(root, {"f": b"mine"})
    assert planned(engine, root, {"f": b"1"}, {"f": b"2"}).foreign == ("f",)


def test_any_known_version_of_the_path_is_not_foreign(engine: MemoryEngine, root: Path) -> None:
    write(root, {"f": b"2"})
    assert planned(engine, root, {"f": b"1"}, {"f": b"3"}, {"f": b"2"}).foreign == ()


def test_the_content_of_another_path_does_not_make_a_change_known(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"f": b"2"})
    assert planned(engine, root, {"f": b"1"}, {"g": b"2"}).foreign == ("f",)


def test_a_file_that_somebody_deleted_is_simply_created_again(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {})
    found = planned(engine, root, {"f": b"1"}, {"f": b"2"})
    assert acts(found) == [("create", "f")]
    assert found.foreign == ()


def test_a_file_that_was_never_in_a_snapshot_stays(engine: MemoryEngine, root: Path) -> None:
    write(root, {"f": b"1", "mine": b"!", "own/x": b"!", "own/empty": None})
    found = planned(engine, root, {"f": b"1"}, {"f": b"2"})
    assert found.is_empty
    assert found.kept == ("mine", "own/empty", "own/x")


@pytest.mark.parametrize(
    ("left_out", "count", "kept"),
    [
        ((LeftOut("d", "unreadable"),), 1, ("d/a", "d/sub/b")),
        ((LeftOut(".", "unreadable"),), 1, ("d/a", "d/sub/b", "f")),
        ((LeftOut("f", "too_large"),), 1, ("f",)),
        ((LeftOut("elsewhere", "too_large"),), 2000, ("d/a", "d/sub/b", "f")),
    ],
    ids=["a folder", "the top", "a file", "more than are named"],
)
def test_what_the_target_could_not_take_is_not_deleted(
    engine: MemoryEngine, root: Path, left_out: tuple[LeftOut, ...], count: int, kept: list[str]
) -> None:
    everything: Spec = {"d/a": b"1", "d/sub/b": b"2", "f": b"3"}
    write(root, everything)
    goal = replace(snapshot_of(stored(engine, {})), left_out=left_out, left_out_count=count)
    found = work(Trees(engine), goal, look(root), [stored(engine, everything)]).plan
    assert found.kept == kept
    assert not {path for _, path in acts(found)} & {*kept}


def test_a_new_file_in_the_place_of_another_one_is_foreign(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"f": b"mine"})
    assert planned(engine, root, {"f": b"1"}).foreign == ("f",)


def test_a_deleted_file_with_changes_of_its_own_is_foreign(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"f": b"mine"})
    found = planned(engine, root, {}, {"f": b"1"})
    assert (acts(found), found.foreign) == ([("delete", "f")], ("f",))


def test_a_change_of_mode_by_somebody_is_foreign(engine: MemoryEngine, root: Path) -> None:
    write(root, {"f": ("x", b"1")})
    assert planned(engine, root, {"f": b"1"}).foreign == ("f",)


def test_what_was_only_stored_on_the_way_is_safe_but_not_to_be_deleted(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"f": b"mine", "own": b"!"})
    found = planned(engine, root, {"f": b"1"}, noted=({"f": b"mine", "own": b"!"},))
    assert acts(found) == [("overwrite", "f")]
    assert (found.foreign, found.kept) == ((), ("own",))


def test_a_folder_that_no_snapshot_had_is_not_removed(engine: MemoryEngine, root: Path) -> None:
    write(root, {"known": None, "own": None})
    found = planned(engine, root, {}, {"known": None})
    assert acts(found) == [("delete", "known")]
    assert found.kept == ("own",)


def test_a_folder_with_something_of_somebody_in_it_is_not_removed(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"d/a": b"1", "d/mine": b"!"})
    found = planned(engine, root, {}, {"d/a": b"1"})
    assert acts(found) == [("delete", "d/a")]
    assert found.kept == ("d/mine",)


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ({"p": b"1"}, {"p/q": b"2"}, [("delete", "p"), ("create", "p"), ("create", "p/q")]),
        ({"p": b"1"}, {"p": ("link", "q")}, [("overwrite", "p")]),
        ({"p": ("link", "q")}, {"p": b"1"}, [("overwrite", "p")]),
        ({"p": ("link", "q")}, {"p": None}, [("delete", "p"), ("create", "p")]),
        ({"p/q": b"1"}, {"p": b"2"}, [("delete", "p"), ("create", "p"), ("delete", "p/q")]),
        (
            {"p/q": b"1"},
            {"p": ("link", "q")},
            [("delete", "p"), ("create", "p"), ("delete", "p/q")],
        ),
    ],
)
def test_a_name_that_becomes_something_else(
    engine: MemoryEngine, root: Path, here: Spec, there: Spec, expected: list[tuple[str, str]]
) -> None:
    write(root, here)
    found = planned(engine, root, there, here)
    assert acts(found) == expected
    assert found.foreign == found.blocked == ()


def test_a_new_file_in_a_folder_that_is_in_the_way_is_named(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"p/q": b"1", "p/deep/mine": b"!"})
    assert planned(engine, root, {"p": b"2"}, {"p/q": b"1"}).foreign == ("p/deep/mine",)


def test_what_cannot_be_snapshotted_in_a_folder_that_is_in_the_way_blocks(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"p/q": b"1", "p/e\u0301": b"1"})
    add(root, {"p/\u00e9": b"collides"})
    assert len(planned(engine, root, {"p": b"2"}, {"p/q": b"1"}).blocked) == 1


def test_room_is_made_bottom_up_and_filled_top_down_with_links_last(
    engine: MemoryEngine, root: Path
) -> None:
    here: Spec = {"old/deep/f": b"1", "swap/x": b"1"}
    there: Spec = {"new/deep/f": b"2", "new/a": ("link", "f"), "swap": b"2"}
    write(root, here)
    goal = snapshot_of(stored(engine, there))
    found = work(Trees(engine), goal, look(root), [stored(engine, here)])
    assert [(a.act, a.path) for a in found.actions] == [
        ("delete", "old/deep/f"),
        ("delete", "swap/x"),
        ("delete", "old/deep"),
        ("delete", "old"),
        ("delete", "swap"),
        ("create", "new"),
        ("create", "new/deep"),
        ("create", "new/deep/f"),
        ("create", "swap"),
        ("create", "new/a"),
    ]


# --- some paths only ---


def test_only_the_paths_that_were_asked_for_are_planned(engine: MemoryEngine, root: Path) -> None:
    write(root, {"a": b"2", "b": b"2", "d/x": b"2", "d/y": b"2"})
    target: Spec = {"a": b"1", "b": b"1", "d/x": b"1", "d/y": b"1", "new/in/f": b"1", "new/g": b"1"}
    known: Spec = {"a": b"2", "b": b"2", "d/x": b"2", "d/y": b"2"}
    found = planned(engine, root, target, known, paths=["a", "d/x", "new/in/"])
    assert acts(found) == [
        ("overwrite", "a"),
        ("overwrite", "d/x"),
        ("create", "new"),
        ("create", "new/in"),
        ("create", "new/in/f"),
    ]


def test_a_path_that_the_snapshot_does_not_have_is_deleted(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"d/a": b"1", "d/b": b"1"})
    found = planned(engine, root, {}, {"d/a": b"1", "d/b": b"1"}, paths=["d/a"])
    assert acts(found) == [("delete", "d/a")]


def test_paths_inside_of_each_other_are_all_found(engine: MemoryEngine, root: Path) -> None:
    write(root, {"d/a": b"1"})
    found = planned(engine, root, {"d/a": b"1"}, paths=["d", "d/a"])
    assert (found.steps, found.unchanged) == ((), 1)


def test_a_path_that_is_nowhere_is_an_error(engine: MemoryEngine, root: Path) -> None:
    write(root, {"a": b"1"})
    with pytest.raises(NotFound, match="typo"):
        planned(engine, root, {"a": b"2"}, paths=["a", "typo"])


@pytest.mark.parametrize("path", ["/etc", "../x", "a/../b", "a//b", "./a", ".git/config", "a\0b"])
def test_a_path_that_leads_elsewhere_is_refused(
    engine: MemoryEngine, root: Path, path: str
) -> None:
    write(root, {"a": b"1"})
    with pytest.raises(InvalidInput, match="inside of the root"):
        planned(engine, root, {"a": b"2"}, paths=[path])


def test_a_single_text_is_not_taken_for_a_list_of_paths(engine: MemoryEngine, root: Path) -> None:
    write(root, {"a": b"1"})
    with pytest.raises(InvalidInput, match="list of paths"):
        work(Trees(engine), snapshot_of(stored(engine, {})), look(root), [], "a")


def test_a_file_in_the_place_of_a_folder_that_is_not_needed_is_left_alone(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"d": b"file"})
    with pytest.raises(NotFound):
        planned(engine, root, {"d/x": b"1"}, {"d": b"file"}, paths=["d/y"])


# --- damage ---


def test_a_damaged_old_snapshot_does_not_keep_anybody_from_going_back(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"f": b"mine"})
    (broken,) = engine.put_blobs([b"not a manifest"])
    goal = snapshot_of(stored(engine, {"f": b"1"}))
    assert work(Trees(engine), goal, look(root), [broken, "b3:gone"]).plan.foreign == ("f",)


def test_a_manifest_that_holds_itself_many_times_over_ends(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {})
    (ref,) = engine.put_blobs([pack([])])
    for _ in range(300):
        (ref,) = engine.put_blobs([pack([Node("d", "folder", ref)])])
    from clew.core.errors import Corrupt

    with pytest.raises(Corrupt, match="too deep"):
        work(Trees(engine), snapshot_of(ref), look(root), [])
