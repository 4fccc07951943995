"""Files as others may leave them: what counts is what was written, and no depth is too deep."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hostile.traps import TERABYTE, deepen, sparse

import clew
from clew.core.errors import Corrupt
from clew.core.maintenance import Budget
from clew.engines.shared import plain_files
from clew.engines.shared.plain_files import (
    copy_file,
    copy_tree,
    extents,
    refuse_hollow,
    remove_tree,
    written_bytes,
)
from clew.upkeep.repair import repair


def opened(path: Path, work: Callable[[int], Any]) -> Any:
    with path.open("rb") as file:
        return work(file.fileno())


def test_only_what_was_written_counts(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"begin" * 1000)
    sparse(file, 1 << 30)
    with file.open("r+b") as writer:
        writer.seek(1 << 29)
        writer.write(b"middle")
    assert 5006 <= opened(file, written_bytes) < 1 << 20
    assert all(begin < end for begin, end in opened(file, lambda fd: list(extents(fd))))
    with pytest.raises(Corrupt, match="were ever written"):
        opened(file, lambda fd: refuse_hollow(fd, "file"))


def test_where_holes_cannot_be_told_a_file_is_all_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")

    def refuse(descriptor: int, offset: int, whence: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "lseek", refuse)
    assert opened(file, written_bytes) == 5


def test_a_large_file_that_was_written_is_not_hollow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_files, "HOLES_BYTES_MAX", 4096)
    file = tmp_path / "file"
    file.write_bytes(b"x" * 40_960)
    opened(file, lambda descriptor: plain_files.refuse_hollow(descriptor, "it"))
    file.unlink()
    sparse(file, 40_960)
    with pytest.raises(Corrupt, match="were ever written"):
        opened(file, lambda descriptor: plain_files.refuse_hollow(descriptor, "it"))


def test_a_small_hole_is_nobodys_fault(tmp_path: Path) -> None:
    file = tmp_path / "file"
    sparse(file, 1 << 20)
    opened(file, lambda fd: refuse_hollow(fd, "file"))


def test_a_copy_has_the_same_bytes_and_the_same_holes(tmp_path: Path) -> None:
    file, copy = tmp_path / "file", tmp_path / "copy"
    file.write_bytes(os.urandom(100_000))
    sparse(file, 1 << 24)
    with file.open("r+b") as writer:
        writer.seek(1 << 23)
        writer.write(b"more")
    copied = copy_file(str(file), str(copy))
    assert copy.read_bytes() == file.read_bytes()
    assert copied == opened(copy, written_bytes)
    sparse(file, TERABYTE)
    assert copy_file(str(file), str(copy)) == copied


@pytest.mark.parametrize("what", ["pipe", "link", "folder"])
def test_only_a_file_is_copied(what: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    {"pipe": os.mkfifo, "link": lambda p: p.symlink_to("/dev/zero"), "folder": Path.mkdir}[what](
        path
    )
    with pytest.raises(OSError):  # noqa: PT011
        copy_file(str(path), str(tmp_path / "copy"))


def test_a_tree_is_copied_as_deep_as_was_said(tmp_path: Path) -> None:
    top = tmp_path / "top"
    deepen(top / "a")
    (top / "a" / "file").write_bytes(b"12345")
    os.mkfifo(top / "pipe")
    copied = copy_tree(str(top), str(tmp_path / "copy"), depth=2, left_out=lambda *_: set())
    assert copied == 5
    found = {str(p.relative_to(tmp_path / "copy")) for p in (tmp_path / "copy").rglob("*")}
    assert found == {"a", "a/file", "a/deep"}
    remove_tree(str(top))  # which pytest could not


def test_no_depth_and_no_link_stops_a_removal(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"kept")
    top = tmp_path / "top"
    deepen(top / "a", 3000)
    (top / "a" / "link").symlink_to(tmp_path)
    (top / "file").write_bytes(b"x")
    remove_tree(str(top))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_budget_is_what_a_store_may_have_had() -> None:
    budget = Budget(128_000)
    assert budget.take(20_000)
    assert budget.take(1000)
    assert not budget.take(1)
    assert not Budget(0).take(-1)
    assert not Budget(0).take(1 << 40)


# --- an honest store is not the square of its threads ---


def calls(work: Callable[[], object]) -> int:
    """How many calls a piece of work makes, steps of generators among them."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("engine", ["sqlite", "files"])
def test_a_repair_does_not_compare_every_thread_with_every_other(
    engine: str, tmp_path: Path
) -> None:
    spent = []
    for count in (40, 160):
        root = tmp_path / f"store{count}"
        with clew.open(f"{engine}:{root}", durability="relaxed") as store:
            first = store.create("first")
            first.append("event", 1)
            for n in range(count):
                first.fork(id=f"f{n}").append("event", n)
        damage(engine, root)
        spent.append(calls(lambda: repair(f"{engine}:{root}")))  # noqa: B023
    assert spent[1] < 6 * spent[0]  # four times the threads


def damage(engine: str, root: Path) -> None:
    if engine == "files":
        file = root / "threads" / "f0.jsonl"
        file.write_bytes(file.read_bytes()[:-20] + b"x" * 19 + b"\n")
        return
    db = apsw.Connection(str(root))
    db.execute("UPDATE records SET body = x'00' WHERE id = (SELECT leaf FROM threads LIMIT 1)")
    db.close()
