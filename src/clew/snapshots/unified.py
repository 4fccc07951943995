"""Differences as text that people read: hunks of lines, for files that have lines.

Only a newline ends a line, so a lone carriage return is a character like any other. Bytes that
are not UTF-8 are shown as escapes. What is binary or too large is named, and not shown.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from msgspec import Struct

from clew.snapshots.model import Difference
from clew.snapshots.tree import Trees

TEXT_BYTES_MAX = 512 * 1024  # of a file
LINES_MAX = 20_000
TOTAL_CHARACTERS_MAX = 4 * 1024 * 1024
_LOOKED_AT = 8000  # bytes, to tell text from what is none
_ESCAPES_MAX = 0.2
_NO_NEWLINE = "\n\\ No newline at end of file\n"


class _Side(Struct, frozen=True):
    """One side of a difference: its lines, or why there are none to be shown."""

    lines: list[str]
    problem: str | None = None


def unified(trees: Trees, differences: Iterable[Difference]) -> str:
    """Differences as unified diffs, one after the other."""
    made: list[str] = []
    left = TOTAL_CHARACTERS_MAX
    for one in differences:
        text = "".join(_head(one))
        text += "".join(_hunks(trees, one)) if left > 0 else "the rest is too much to be shown\n"
        made.append(text)
        left -= len(text)
    return "".join(made)


def _head(one: Difference) -> Iterator[str]:
    yield f"diff {_quoted('a', one.old_path or one.path)} {_quoted('b', one.path)}\n"
    if one.change == "added":
        yield f"new {_kind(one.new_kind)}\n"
    elif one.change == "removed":
        yield f"removed {_kind(one.old_kind)}\n"
    elif one.old_kind != one.new_kind and one.new_kind is not None:
        yield f"{_kind(one.old_kind)} becomes {_kind(one.new_kind)}\n"
    if one.change == "renamed":
        yield f"renamed from {one.old_path!r}\n"


def _quoted(side: str, path: str) -> str:
    """A path on one line: names may hold anything."""
    text = f"{side}/{path}"
    return text if text.isprintable() else repr(text)


def _kind(kind: str | None) -> str:
    return "executable file" if kind == "executable" else str(kind)


def _hunks(trees: Trees, one: Difference) -> Iterator[str]:
    if one.old_ref == one.new_ref and one.change in ("mode", "renamed"):
        return
    old = _side(trees, one.old_kind, one.old_ref, one.old_size, one.old_path or one.path)
    new = _side(trees, one.new_kind, one.new_ref, one.new_size, one.path)
    if one.change == "modified" and one.new_ref is None:
        new = _Side([], "cannot be read as a snapshot would")
    problem = old.problem or new.problem
    if problem is not None:
        yield f"{problem}, {_size(one.old_size)} → {_size(one.new_size)}\n"
        return
    names = _name("a", one.old_path or one.path, one.old_ref), _name("b", one.path, one.new_ref)
    for line in difflib.unified_diff(old.lines, new.lines, *names):
        yield line if line.endswith("\n") else line + _NO_NEWLINE


def _name(side: str, path: str, ref: str | None) -> str:
    return "/dev/null" if ref is None else _quoted(side, path)


def _size(size: int | None) -> str:
    return "nothing" if size is None else f"{size:,} bytes"


def _side(trees: Trees, kind: str | None, ref: str | None, size: int | None, path: str) -> _Side:
    if kind == "link":
        return _Side([f"{ref}"])
    if ref is None or kind == "folder":
        return _Side([])
    if size is not None and size > TEXT_BYTES_MAX:
        return _Side([], "too large to be shown")
    data = trees.data(ref, path)
    if is_binary(data[:_LOOKED_AT]):
        return _Side([], "binary")
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    made = [line + "\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    return _Side(made, None if len(made) <= LINES_MAX else "too long to be shown")


def is_binary(data: bytes) -> bool:
    """Whether bytes are no text: a NUL, or much that is not UTF-8 (an old encoding has little)."""
    if b"\0" in data:
        return True
    return data.decode("utf-8", "replace").count("\ufffd") > len(data) * _ESCAPES_MAX
