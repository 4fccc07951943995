"""Who brought each line of a file: not another branch, not another folder, not a guess."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshots.trees import write

from clew.core.errors import InvalidInput, NotFound, TooLarge
from clew.snapshots import blame as blame_module
from clew.snapshots.blame import Matcher
from clew.snapshots.model import Snapshot
from clew.store import Store
from clew.thread import Thread


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tree"


@pytest.fixture
def thread(store: Store) -> Thread:
    return store.create("t")


def edit(thread: Thread, root: Path, id: str, text: str) -> Snapshot:
    """An agent writes the file, and a snapshot is taken."""
    asked = {"type": "tool_use", "id": id, "name": "edit", "input": {"path": "a"}}
    thread.append_message({"role": "assistant", "content": [asked]}, id=id)
    return thread.snapshots.take(write(root, {"a": text.encode()}))


def said(thread: Thread, snapshot: Snapshot | None = None) -> list[tuple[str, str | None]]:
    found = thread.snapshots.blame("a", snapshot)
    return [(line.text, line.version and line.version.entry) for line in found]


def test_each_line_names_the_entry_that_brought_it(thread: Thread, root: Path) -> None:
    thread.append_message({"role": "user", "content": "Go"}, id="u")
    first = thread.snapshots.take(write(root, {"a": b"one\ntwo\nthree\n"}))
    second = edit(thread, root, "e1", "one\nTWO\nthree\n")
    edit(thread, root, "e2", "zero\none\nTWO\nthree")
    assert said(thread) == [("zero", "e2"), ("one", None), ("TWO", "e1"), ("three", None)]
    assert said(thread, second) == [("one", None), ("TWO", "e1"), ("three", None)]
    assert said(thread, first) == [("one", None), ("two", None), ("three", None)]
    versions = [line.version for line in thread.snapshots.blame("a")]
    assert [(one.snapshot, one.message) for one in versions if one][1:3] == [
        (first.id, None),
        (second.id, "u"),
    ]


def test_a_file_that_was_gone_for_a_while_is_all_new(thread: Thread, root: Path) -> None:
    thread.snapshots.take(write(root, {"a": b"one\n"}))
    thread.snapshots.take(write(root, {"b": b"one\n"}))
    edit(thread, root, "e", "one\ntwo\n")
    assert said(thread) == [("one", "e"), ("two", "e")]


def test_what_was_binary_or_too_large_before_has_no_lines_to_share(
    thread: Thread, root: Path
) -> None:
    thread.snapshots.take(write(root, {"a": b"one\n\0"}))
    edit(thread, root, "e1", "one\n")
    edit(thread, root, "e2", "one\n" + "x" * blame_module.TEXT_BYTES_MAX)
    edit(thread, root, "e3", "one\ntwo\n")
    assert said(thread) == [("one", "e3"), ("two", "e3")]


def test_another_branch_has_no_part_in_it(thread: Thread, root: Path) -> None:
    edit(thread, root, "e1", "one\n")
    fork = thread.fork()
    middle = thread.leaf
    edit(thread, root, "e2", "one\ntwo\n")
    thread.move(middle)
    edit(thread, root, "e3", "one\ntwo\nthree\n")
    assert said(thread) == [("one", None), ("two", "e3"), ("three", "e3")]
    edit(fork, root, "e4", "one\nfour\n")
    assert said(fork) == [("one", None), ("four", "e4")]


def test_another_folder_has_no_part_in_it(thread: Thread, root: Path, tmp_path: Path) -> None:
    edit(thread, root, "e1", "one\n")
    thread.snapshots.take(write(tmp_path / "other", {"a": b"two\n"}))
    edit(thread, root, "e2", "one\ntwo\n")
    assert said(thread) == [("one", None), ("two", "e2")]


def test_what_has_no_lines_is_refused(thread: Thread, root: Path) -> None:
    with pytest.raises(NotFound):
        thread.snapshots.blame("a")
    large = b"x\n" * (blame_module.TEXT_BYTES_MAX // 2 + 1)
    many = b"\n" * (blame_module.LINES_MAX + 1)
    files: Any = {
        "binary": b"\0",
        "large": large,
        "many": many,
        "link": ("link", "x"),
        "empty": b"",
    }
    thread.snapshots.take(write(root, files))
    for path, error in {
        "binary": InvalidInput,
        "link": InvalidInput,
        "large": TooLarge,
        "many": TooLarge,
        "gone": NotFound,
        "../a": InvalidInput,
    }.items():
        with pytest.raises(error):
            thread.snapshots.blame(path)
    assert thread.snapshots.blame("empty") == []


def test_a_long_history_is_read_as_far_as_is_sensible(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blame_module, "VERSIONS_MAX", 3)
    thread = store.create()
    lines: list[str] = []
    for n in range(6):
        lines.append(f"line {n}\n")
        edit(thread, root, f"e{n}", "".join(lines))
    assert [entry for _, entry in said(thread)] == [None, None, None, "e3", "e4", "e5"]
    assert [line.version is None for line in thread.snapshots.blame("a")][:4] == [
        *(True, True, True),
        False,
    ]
    monkeypatch.setattr(blame_module, "READ_BYTES_MAX", 1)
    assert [entry for _, entry in said(thread)][-2:] == [None, "e5"]


@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=6), max_size=6))
def test_lines_that_are_told_apart_are_always_attributed_right(
    edits: list[list[tuple[bool, int]]],
) -> None:
    """A line says which version wrote it: then what is matched must be the line itself."""
    versions: list[list[bytes]] = [[b"0.%d" % n for n in range(8)]]
    for number, changes in enumerate(edits, 1):
        lines = list(versions[-1])
        for n, (adds, place) in enumerate(changes):
            if adds:
                lines.insert(place % (len(lines) + 1), b"%d.%d" % (number, n))
            elif lines:
                del lines[place % len(lines)]
        versions.append(lines)
    for older, newer in pairwise(versions):
        pairs = Matcher().pairs(older, newer)
        assert {newer[n] for n in pairs} == set(older) & set(newer)


@given(
    st.lists(st.sampled_from(b"abcd"), max_size=60), st.lists(st.sampled_from(b"abcd"), max_size=60)
)
def test_what_is_matched_is_equal_and_in_order(old: list[int], new: list[int]) -> None:
    ours, theirs = [bytes([one]) for one in old], [bytes([one]) for one in new]
    pairs = sorted(Matcher().pairs(ours, theirs).items())
    assert all(ours[at] == theirs[place] for place, at in pairs)
    assert [at for _, at in pairs] == sorted({at for _, at in pairs})


def test_lines_that_all_look_alike_do_not_take_for_ever() -> None:
    old = [b"a", b"b", b"", b"}"] * 4000
    new = [b"b", b"a", b"}", b""] * 4000
    matcher = Matcher()
    assert matcher.pairs([b"1", *old, b"2"], [b"1", *new, b"2"])[0] == 0
    assert matcher._effort > 0
