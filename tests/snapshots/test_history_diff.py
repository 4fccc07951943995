"""Looks at snapshots that would tell something else than what happened to the files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from amounts import amount
from hypothesis import given, settings
from snapshots.trees import SPECS, Spec, add, stored, whole, write

from clew.core.errors import Conflict, Corrupt, InvalidInput, NotFound
from clew.engines.memory import MemoryEngine
from clew.snapshots import diff
from clew.snapshots import tree as tree_
from clew.snapshots.diff import below, diff_trees
from clew.snapshots.ignore import Rules
from clew.snapshots.manifest import Node, pack
from clew.snapshots.model import Difference
from clew.snapshots.tree import Trees
from clew.store import Store
from clew.thread import Thread

TEXT = b"".join(b"line %d\n" % n for n in range(40))
SIMILAR = TEXT.replace(b"line 7\n", b"another line\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tree"


@pytest.fixture
def thread(store: Store) -> Thread:
    return store.create("t")


def changes(old: Spec, new: Spec) -> list[Difference]:
    engine = MemoryEngine()
    return diff_trees(Trees(engine), stored(engine, old), stored(engine, new))


def told(differences: list[Difference]) -> dict[str, str]:
    return {one.path: one.change for one in differences}


def text(old: Spec, new: Spec) -> str:
    engine = MemoryEngine()
    trees = Trees(engine)
    return diff.unified(trees, diff_trees(trees, stored(engine, old), stored(engine, new)))


# --- differences ---


@given(SPECS, SPECS)
@settings(max_examples=amount(50, 150))
def test_differences_say_what_it_takes_to_get_from_one_tree_to_the_other(
    old: Spec, new: Spec
) -> None:
    made = dict(old)
    for one in sorted(changes(old, new), key=lambda one: one.change != "removed"):
        gone = one.old_path if one.change == "renamed" else one.path
        if gone is not None and one.change != "added":
            made.pop(gone, None)
    for one in changes(old, new):
        if one.change != "removed":
            made[one.path] = new[one.path]
    leaves = {path: value for path, value in made.items() if value is not None}
    assert leaves == {path: value for path, value in new.items() if value is not None}
    assert changes(new, new) == []


@given(SPECS, SPECS)
@settings(max_examples=amount(20, 60))
def test_a_working_tree_differs_just_as_its_snapshot_does(old: Spec, new: Spec) -> None:
    with tempfile.TemporaryDirectory() as folder, Store(MemoryEngine()) as store:
        root, thread = Path(folder, "tree"), store.create("t")
        first = thread.snapshots.take(write(root, old))
        write(root, new)
        found, shown = thread.snapshots.diff(first), thread.snapshots.unified(first)
        second = thread.snapshots.take(root)
        assert found == thread.snapshots.diff(first, second)
        assert shown == thread.snapshots.unified(first, second)


CHANGES: dict[str, tuple[Spec, Spec, dict[str, str]]] = {
    "nothing": ({"a": b"1"}, {"a": b"1"}, {}),
    "added": ({}, {"a": b"1", "d/b": b"2"}, {"a": "added", "d/b": "added"}),
    "removed": ({"a": b"1", "d/b": b"2"}, {}, {"a": "removed", "d/b": "removed"}),
    "modified": ({"d/a": b"1"}, {"d/a": b"2"}, {"d/a": "modified"}),
    "mode alone": ({"a": b"1"}, {"a": ("x", b"1")}, {"a": "mode"}),
    "mode and contents": ({"a": b"1"}, {"a": ("x", b"2")}, {"a": "modified"}),
    "another target": ({"a": ("link", "x")}, {"a": ("link", "y")}, {"a": "modified"}),
    "file to link": ({"a": b"1"}, {"a": ("link", "x")}, {"a": "type"}),
    "file to folder": ({"a": b"1"}, {"a/b": b"2"}, {"a": "type", "a/b": "added"}),
    "folder to file": ({"a/b": b"2"}, {"a": b"1"}, {"a": "type", "a/b": "removed"}),
    "an empty folder": ({}, {"d": None}, {"d": "added"}),
    "a folder that was emptied": ({"d/a": b"1"}, {"d": None}, {"d/a": "removed"}),
    "an empty folder that went": ({"d/e": None}, {"d": None}, {"d/e": "removed"}),
}


@pytest.mark.parametrize("case", CHANGES)
def test_each_kind_of_change_is_told_as_what_it_is(case: str) -> None:
    old, new, expected = CHANGES[case]
    assert told(changes(old, new)) == expected


def test_folders_that_are_the_same_are_not_read() -> None:
    engine = MemoryEngine()
    old = stored(engine, {"same/deep/a": b"1", "b": b"1"})
    new = stored(engine, {"same/deep/a": b"1", "b": b"2"})
    trees = Trees(engine)
    assert told(diff_trees(trees, old, new)) == {"b": "modified"}
    assert set(trees._folders) == {old, new}


def test_a_tree_that_is_deeper_than_any_is_refused() -> None:
    engine = MemoryEngine()
    (inner,) = engine.put_blobs([pack([])])
    for _ in range(300):
        (inner,) = engine.put_blobs([pack([Node("d", "folder", inner)])])
    (other,) = engine.put_blobs([pack([])])
    with pytest.raises(Corrupt, match="too deep"):
        diff_trees(Trees(engine), other, inner)


# --- renames ---


def test_a_file_that_went_elsewhere_is_not_told_as_two() -> None:
    (one,) = changes({"a.txt": b"same"}, {"d/b.txt": b"same"})
    assert (one.change, one.old_path, one.path) == ("renamed", "a.txt", "d/b.txt")
    assert (one.old_ref, one.old_size) == (one.new_ref, one.new_size)


def test_of_equal_files_the_one_of_the_same_name_is_the_one_that_went() -> None:
    found = changes({"a": b"x", "b": b"x"}, {"d/b": b"x", "d/c": b"x"})
    assert {one.path: one.old_path for one in found} == {"d/b": "b", "d/c": "a"}


def test_a_copy_is_not_a_rename() -> None:
    assert told(changes({"a": b"x"}, {"a": b"x", "b": b"x"})) == {"b": "added"}


def test_empty_files_are_not_taken_for_each_other() -> None:
    assert told(changes({"a": b""}, {"b": b""})) == {"a": "removed", "b": "added"}


def test_a_file_that_was_changed_on_its_way_is_found_by_its_text() -> None:
    (one,) = changes({"a": TEXT}, {"b": SIMILAR})
    assert (one.change, one.old_path) == ("renamed", "a")
    assert told(changes({"a": TEXT}, {"b": b"nothing like it\n" * 9})) == {
        "a": "removed",
        "b": "added",
    }


def test_the_most_similar_one_wins() -> None:
    half = b"".join(TEXT.splitlines(keepends=True)[:28])
    found = changes({"half": half, "most": SIMILAR}, {"new": TEXT})
    assert {(one.change, one.path, one.old_path) for one in found} == {
        ("renamed", "new", "most"),
        ("removed", "half", None),
    }


def test_guessing_has_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "SIMILAR_FILES_MAX", 2)
    old: Spec = {f"a{n}": TEXT + b"%d" % n for n in range(3)}
    new: Spec = {f"b{n}": SIMILAR + b"%d" % n for n in range(3)}
    assert "renamed" not in told(changes(old, new)).values()
    monkeypatch.setattr(diff, "SIMILAR_FILES_MAX", 3)
    assert set(told(changes(old, new)).values()) == {"renamed"}
    monkeypatch.setattr(diff, "SIMILAR_BYTES_MAX", 10)
    assert "renamed" not in told(changes(old, new)).values()


def test_binaries_are_renamed_only_if_they_are_the_same() -> None:
    data = b"\0" * 50 + TEXT
    assert told(changes({"a": data}, {"b": data + b"x"})) == {"a": "removed", "b": "added"}
    assert told(changes({"a": data}, {"b": data})) == {"b": "renamed"}


def test_what_lies_below_a_path_and_what_only_looks_so() -> None:
    found = changes({"d/a": b"moved"}, {"d/b": b"2", "dd": b"3", "e": b"moved"})
    assert {one.path for one in below(found, "d")} == {"d/b", "e"}
    assert below(found, "") == found


# --- text ---


def test_a_text_diff_reads_as_one() -> None:
    assert text({"a": b"one\ntwo\n"}, {"a": b"one\n2\n"}) == (
        "diff a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    )


def test_a_missing_newline_at_the_end_is_said_and_runs_into_nothing() -> None:
    shown = text({"a": b"one"}, {"a": b"one\ntwo"})
    assert shown.endswith(
        "-one\n\\ No newline at end of file\n+one\n+two\n\\ No newline at end of file\n"
    )


def test_a_lone_carriage_return_does_not_end_a_line() -> None:
    shown = text({"a": b"one\rtwo\n"}, {"a": b"one\rtwo\r\n"})
    assert "-one\rtwo\n+one\rtwo\r\n" in shown
    assert "@@ -1 +1 @@" in shown


def test_other_line_ends_of_unicode_do_not_end_a_line() -> None:
    old, new = "a\u2028b\x0bc\x85d\n".encode(), "a\u2028b\x0bc\x85e\n".encode()
    assert "@@ -1 +1 @@" in text({"a": old}, {"a": new})


def test_bytes_that_are_not_utf8_are_shown_as_what_they_are() -> None:
    shown = text({"a": b"caf\xe9 au lait\n"}, {"a": b"caf\xe8 au lait\n"})
    assert "-caf\\xe9 au lait\n+caf\\xe8 au lait\n" in shown


@pytest.mark.parametrize("data", [b"\0", b"text\0text", bytes(range(128, 256))])
def test_binary_files_are_named_and_not_shown(data: bytes) -> None:
    shown = text({"a": data}, {"a": data + b"!"})
    assert shown == f"diff a/a b/a\nbinary, {len(data):,} bytes → {len(data) + 1:,} bytes\n"


def test_what_is_too_much_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "TEXT_BYTES_MAX", 10)
    assert "too large to be shown" in text({}, {"a": b"x" * 11})
    monkeypatch.undo()
    monkeypatch.setattr(diff, "LINES_MAX", 10)
    assert "too long to be shown" in text({}, {"a": b"\n" * 11})
    monkeypatch.undo()
    monkeypatch.setattr(diff, "TOTAL_CHARACTERS_MAX", 10)
    shown = text({}, {"a": b"first\n", "b": b"second\n"})
    assert "+first" in shown
    assert "+second" not in shown
    assert "diff a/b b/b\nnew file\nthe rest is too much to be shown\n" in shown


def test_links_modes_folders_and_renames_are_told_in_words() -> None:
    assert "new link\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n" in text({}, {"a": ("link", "x")})
    shown = text({"a": b"1"}, {"a": ("x", b"1")})
    assert shown == "diff a/a b/a\nfile becomes executable file\n"
    assert text({}, {"d": None}) == "diff a/d b/d\nnew folder\n"
    assert text({"a": b"1"}, {"b": b"1"}) == "diff a/a b/b\nrenamed from 'a'\n"
    assert "file becomes link" in text({"a": b"1\n"}, {"a": ("link", "x")})


def test_a_name_cannot_pretend_to_be_a_line_of_the_diff() -> None:
    shown = text({}, {"a\n+++ b/evil": b"x\n"})
    assert shown.count("\n+++ ") == 1
    assert "'b/a\\n+++ b/evil'" in shown


# --- the working tree ---


def test_a_file_that_is_there_but_too_large_was_not_removed(thread: Thread, root: Path) -> None:
    rules = Rules(max_file_bytes=10)
    first = thread.snapshots.take(write(root, {"a": b"small", "b": b"gone"}), rules=rules)
    (root / "a").write_bytes(b"x" * 100)
    (root / "b").unlink()
    found = {one.path: one for one in thread.snapshots.diff(first)}
    assert (found["a"].change, found["a"].new_size, found["a"].new_ref) == ("modified", 100, None)
    assert found["b"].change == "removed"
    assert "cannot be read as a snapshot would, 5 bytes → 100 bytes" in thread.snapshots.unified(
        first
    )


def test_a_folder_that_cannot_be_entered_was_not_removed(
    thread: Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = thread.snapshots.take(write(root, {"d/a": b"1", "b": b"2"}))
    real = os.open

    def opened(path: Any, flags: int, *args: int, dir_fd: int | None = None) -> int:
        if path == "d":
            raise PermissionError(13, "not yours")
        return real(path, flags, *args, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", opened)
    assert told(thread.snapshots.diff(first)) == {"d/a": "modified"}


def test_a_file_that_changes_while_it_is_compared_is_not_told_as_something_else(
    thread: Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = thread.snapshots.take(write(root, {"a": b"one\n"}))
    (root / "a").write_bytes(b"two\n")
    (root / "secret").write_bytes(b"not yours")
    real = tree_._read

    def swap(top: str, path: str) -> bytes | None:
        (root / "a").unlink()
        (root / "a").symlink_to("secret")
        return real(top, path)

    monkeypatch.setattr(tree_, "_read", swap)
    with pytest.raises(Conflict, match="was changed"):
        thread.snapshots.unified(first)


def test_a_tree_that_was_moved_is_compared_where_it_is(thread: Thread, root: Path) -> None:
    first = thread.snapshots.take(write(root, {"a": b"1"}))
    moved = root.rename(root.with_name("moved"))
    (moved / "a").write_bytes(b"2")
    assert told(thread.snapshots.diff(first, root=moved)) == {"a": "modified"}
    with pytest.raises(InvalidInput, match="is not a folder"):
        thread.snapshots.diff(first)
    with pytest.raises(InvalidInput, match="not both"):
        thread.snapshots.diff(first, first, root=moved)


# --- files ---


def test_files_are_those_that_were_there(thread: Thread, root: Path) -> None:
    spec: Spec = {"d/a": b"12", "b": ("x", b"3"), "c": ("link", "b"), "e": None}
    taken = thread.snapshots.take(write(root, spec))
    found = thread.snapshots.files(taken)
    assert [(path, node.kind, node.size) for path, node in found] == [
        ("b", "executable", 1),
        ("c", "link", 0),
        ("d/a", "file", 2),
    ]
    assert len(found) == taken.files
    assert thread.snapshots.read(taken.id, "d/a") == b"12"


@pytest.mark.parametrize("path", ["/etc/passwd", "../a", "d/../../a", "a\0b", "", ".", "d//a", "/"])
def test_a_path_that_leads_out_of_the_tree_is_refused(
    path: str, thread: Thread, root: Path
) -> None:
    taken = thread.snapshots.take(write(root, {"d/a": b"1"}))
    for call in (
        lambda: thread.snapshots.read(taken, path),
        lambda: thread.snapshots.history(path),
        lambda: thread.snapshots.unified(taken, taken, path=path),
    ):
        with pytest.raises(InvalidInput):
            call()


def test_what_is_no_file_is_told_from_what_is_not_there(thread: Thread, root: Path) -> None:
    taken = thread.snapshots.take(write(root, {"d/a": b"1", "l": ("link", "/etc/passwd")}))
    for path in ("d", "d/", "l"):
        with pytest.raises(InvalidInput, match="not a file"):
            thread.snapshots.read(taken, path)
    for path in ("x", "d/x", "d/a/x", "l/x"):
        with pytest.raises(NotFound):
            thread.snapshots.read(taken, path)
    with pytest.raises(NotFound):
        thread.snapshots.read("nobody", "d/a")


def test_contents_that_are_gone_or_of_another_size_are_damage(store: Store) -> None:
    engine, thread = store.engine, store.create("t")
    (there,) = engine.put_blobs([b"four"])
    nodes = [Node("gone", "file", "b3:" + "0" * 64, 4), Node("long", "file", there, 9)]
    (tree,) = engine.put_blobs([pack(nodes)])
    fields = {"tree": tree, "at": None, "root": "/", "files": 2, "size_bytes": 13, "new_bytes": 0}
    entry = thread.append(
        "snapshot", {**fields, "left_out_count": 0, "label": None, "left_out": []}
    )
    fact = {**fields, "left_out_count": 0, "label": None, "time_us": 0, "pinned": False}
    thread.set_facts({f"snapshot.{entry.id}": fact})
    for path in ("gone", "long"):
        with pytest.raises(Corrupt):
            thread.snapshots.read(entry.id, path)


# --- the history of one file ---


def call(path: str, tool: str = "edit") -> dict[str, Any]:
    asked = {"type": "tool_use", "id": path, "name": tool, "input": {"path": path}}
    return {"role": "assistant", "content": [asked]}


def user(thread: Thread, id: str) -> None:
    thread.append_message({"role": "user", "content": id}, id=id)


def test_each_version_names_the_call_that_made_it(thread: Thread, root: Path) -> None:
    user(thread, "u1")
    thread.snapshots.take(write(root, {"a.txt": b"1", "b.txt": b"1"}))
    thread.append_message(call(f"{root}/a.txt"), id="edit-a")
    thread.append_message(call("b.txt"), id="edit-b")
    add(root, {"a.txt": b"2", "b.txt": b"2"})
    user(thread, "u2")
    thread.snapshots.take(root)
    thread.append_message(call("make", tool="bash"), id="shell")
    thread.append_message({"role": "assistant", "content": "done"}, id="said")
    (root / "a.txt").unlink()
    user(thread, "u3")
    thread.snapshots.take(root)
    found = thread.snapshots.history("a.txt")
    assert [(one.entry, one.message, one.size) for one in found] == [
        (None, None, 1),
        ("edit-a", "u1", 1),
        ("shell", "u2", 0),
    ]
    assert (found[-1].ref, found[-1].kind) == (None, "none")
    assert [one.entry for one in thread.snapshots.history("b.txt")] == [None, "edit-b"]
    assert thread.snapshots.history("never") == []


def test_without_any_call_it_is_the_answer_and_without_one_the_message(
    thread: Thread, root: Path
) -> None:
    user(thread, "u1")
    thread.snapshots.take(write(root, {"a": b"1"}))
    thread.append_message({"role": "assistant", "content": "done"}, id="said")
    (root / "a").write_bytes(b"2")
    user(thread, "u2")
    thread.snapshots.take(root)
    (root / "a").write_bytes(b"3")
    user(thread, "u3")
    thread.snapshots.take(root)
    assert [one.entry for one in thread.snapshots.history("a")] == [None, "said", "u3"]


def test_what_a_rewind_brought_back_was_not_made_anew(thread: Thread, root: Path) -> None:
    user(thread, "u1")
    thread.snapshots.take(write(root, {"a": b"1"}))
    thread.append_message(call("a"), id="edit")
    (root / "a").write_bytes(b"2")
    user(thread, "u2")
    thread.snapshots.take(root)
    thread.rewind("u2", files=False)
    thread.rewind("u1", conversation=False)
    user(thread, "u3")
    thread.snapshots.take(root)
    found = thread.snapshots.history("a")
    assert [(one.entry, one.size and one.ref) for one in found] == [
        (None, found[0].ref),
        ("edit", found[1].ref),
        (None, found[0].ref),
    ]


def test_versions_do_not_mix_the_files_of_two_folders(
    thread: Thread, root: Path, tmp_path: Path
) -> None:
    thread.snapshots.take(write(root, {"a": b"1"}))
    other = write(tmp_path / "other", {"a": b"2"})
    thread.snapshots.take(other)
    assert [one.size for one in thread.snapshots.history("a")] == [1]
    first, second = thread.snapshots.history("a", root=root), thread.snapshots.history("a")
    assert first[0].ref != second[0].ref


def test_a_fork_tells_the_history_that_it_shares(thread: Thread, root: Path) -> None:
    user(thread, "u1")
    thread.snapshots.take(write(root, {"a": b"1"}))
    fork = thread.fork()
    fork.append_message(call("a"), id="edit")
    (root / "a").write_bytes(b"2")
    fork.snapshots.take(root)
    assert [one.entry for one in fork.snapshots.history("a")] == [None, "edit"]
    assert [one.entry for one in thread.snapshots.history("a")] == [None]


def test_the_words_of_other_providers_are_understood(thread: Thread, root: Path) -> None:
    thread.snapshots.take(write(root, {"a b.txt": b"1"}))
    asked = {
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": '{"p": "a b.txt"}'},
    }
    thread.append_message(
        {"role": "assistant", "content": None, "tool_calls": [asked]}, id="openai"
    )
    thread.append_message(call("other"), id="later")
    (root / "a b.txt").write_bytes(b"2")
    thread.snapshots.take(root)
    assert thread.snapshots.history("a b.txt")[-1].entry == "openai"


@given(SPECS)
@settings(max_examples=30)
def test_every_file_of_any_tree_can_be_read_by_its_path(spec: Spec) -> None:
    with tempfile.TemporaryDirectory() as folder, Store(MemoryEngine()) as store:
        thread = store.create("t")
        taken = thread.snapshots.take(write(Path(folder, "tree"), spec))
        for path, value in whole(spec).items():
            if value is not None and (isinstance(value, bytes) or value[0] == "x"):
                data = value if isinstance(value, bytes) else value[1]
                assert thread.snapshots.read(taken, path) == data
