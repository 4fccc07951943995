"""Who brought each line of a file: from a snapshot back, one version after the other.

A line that the version before has as well is older; what is matched with nothing was brought by
the version itself. This ends when every line is known, or when enough was read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from clew.core.errors import InvalidInput, TooLarge
from clew.snapshots import catalogue
from clew.snapshots.diff import LINES_MAX, TEXT_BYTES_MAX, is_binary
from clew.snapshots.history import check_path, content, made_between, read, version_of
from clew.snapshots.manifest import Node
from clew.snapshots.model import BlamedLine, Snapshot, Version

if TYPE_CHECKING:
    from clew.thread import Thread

VERSIONS_MAX = 400
READ_BYTES_MAX = 32 * 1024 * 1024
_EFFORT = 2_000_000  # pairs of lines, none of which says by itself where it belongs
_GAP_MAX = 40_000  # such pairs in one place
_DEPTH_MAX = 24

Lines = list[bytes]
_State = tuple[Snapshot, Node | None]  # a snapshot, and what it has under the path


def blame(thread: Thread, path: str, snapshot: Snapshot) -> list[BlamedLine]:
    """See `Snapshots.blame`."""
    path = check_path(path)
    lines = _checked(read(thread.snapshots.trees, snapshot, path), path)
    owners = _Walk(thread, path, snapshot).owners(lines)
    return [
        BlamedLine(text=line.decode("utf-8", "backslashreplace"), version=owner)
        for line, owner in zip(lines, owners, strict=True)
    ]


def _checked(data: bytes, path: str) -> Lines:
    if len(data) > TEXT_BYTES_MAX:
        raise TooLarge(f"file {path!r}", size=len(data), limit=TEXT_BYTES_MAX)
    if is_binary(data):
        raise InvalidInput("path", f"{path!r} is binary: it has no lines")
    lines = _split(data)
    if len(lines) > LINES_MAX:
        raise TooLarge(f"lines of {path!r}", size=len(lines), limit=LINES_MAX)
    return lines


def _split(data: bytes) -> Lines:
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


class _Walk:
    """From a snapshot back, over what its path has of the same folder."""

    def __init__(self, thread: Thread, path: str, snapshot: Snapshot) -> None:
        self._thread = thread
        self._path = path
        self._trees = thread.snapshots.trees
        self._states = self._back(snapshot)
        self._next: _State | None = None
        self._matcher = Matcher()

    def _back(self, snapshot: Snapshot) -> Iterator[_State]:
        engine, id = self._thread.store.engine, self._thread.id
        seen = False
        for one in self._thread.snapshots.list():
            seen = seen or one.id == snapshot.id
            if (
                seen
                and one.root == snapshot.root
                and catalogue.is_on_path(engine, id, snapshot.id, one.id)
            ):
                yield one, self._trees.find(one.tree, self._path)

    def owners(self, lines: Lines) -> list[Version | None]:
        owners: list[Version | None] = [None] * len(lines)
        open = {n: n for n in range(len(lines))}  # whose version is not known, and where it is now
        was_read = 0
        for _ in range(VERSIONS_MAX):
            now, before = self._step()
            older = [] if before is None else self._lines(before[1])
            was_read += sum(map(len, older))
            pairs = self._matcher.pairs(older, lines)
            if any(place not in pairs for place in open.values()):
                brought = self._version(now, before)
                for n, place in open.items():
                    if place not in pairs:
                        owners[n] = brought
            open = {n: pairs[place] for n, place in open.items() if place in pairs}
            if not open or was_read > READ_BYTES_MAX:
                break
            lines = older
        return owners

    def _step(self) -> tuple[_State, _State | None]:
        """The snapshot that a version came with, and the one before it."""
        now = self._next or next(self._states)
        for before in self._states:
            if content(before[1]) != content(now[1]):
                self._next = before
                return now, before
            now = before
        return now, None

    def _lines(self, node: Node | None) -> Lines:
        """Of an older version; what has no lines, or too many of them, has none in common."""
        if node is None or not node.is_file or node.size > TEXT_BYTES_MAX:
            return []
        data = self._trees.read(node)
        lines = [] if is_binary(data) else _split(data)
        return lines if len(lines) <= LINES_MAX else []

    def _version(self, now: _State, before: _State | None) -> Version:
        entry, message = None, None
        if before is not None:
            entry, message = made_between(self._thread, self._path, before[0], now[0])
        return version_of(*now, entry, message)


# --- which line is which ----------------------------------------------------------------------


class Matcher:
    """Finds the lines that two versions share, in time that hardly depends on what they say.

    A line that each side has once is matched, if that keeps the order; then what lies between
    two such lines is looked at in the same way. Where all lines come several times, a slower
    search is made, as long as its effort is bounded.
    """

    def __init__(self) -> None:
        self._effort = _EFFORT

    def pairs(self, old: Lines, new: Lines) -> dict[int, int]:
        """The places of lines in `new`, each with its place in `old`."""
        found: dict[int, int] = {}
        todo = [(0, len(old), 0, len(new), 0)]
        while todo:
            a, a_end, b, b_end, depth = todo.pop()
            while a < a_end and b < b_end and old[a] == new[b]:
                found[b] = a
                a, b = a + 1, b + 1
            while a < a_end and b < b_end and old[a_end - 1] == new[b_end - 1]:
                a_end, b_end = a_end - 1, b_end - 1
                found[b_end] = a_end
            if a == a_end or b == b_end:
                continue
            anchors = _anchors(old, new, (a, a_end, b, b_end)) if depth < _DEPTH_MAX else []
            if not anchors:
                found |= self._searched(old[a:a_end], new[b:b_end], a, b)
            # The anchors themselves are the first lines of what follows them.
            for at, place in [*anchors, (a_end, b_end)] if anchors else []:
                todo.append((a, at, b, place, depth + 1))
                a, b = at, place
        return found

    def _searched(self, old: Lines, new: Lines, a: int, b: int) -> dict[int, int]:
        effort = len(old) * len(new)
        if effort > _GAP_MAX or effort > self._effort:
            return {}
        self._effort -= effort
        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        return {b + block.b + n: a + block.a + n for block in blocks for n in range(block.size)}


def _anchors(old: Lines, new: Lines, part: tuple[int, int, int, int]) -> list[tuple[int, int]]:
    """Lines that each side has once, the most of them that stand in the same order."""
    a, a_end, b, b_end = part
    ours, theirs = _once(old, a, a_end), _once(new, b, b_end)
    common = [(ours[line], place) for line, place in theirs.items() if line in ours]
    # The longest run that rises in both: for each length the smallest end, and what came before.
    ends: list[int] = []
    last: list[int] = []
    above: list[int] = []
    for n, (at, _) in enumerate(common):
        length = bisect_left(ends, at)
        ends[length : length + 1] = [at]
        last[length : length + 1] = [n]
        above.append(last[length - 1] if length else -1)
    found: list[tuple[int, int]] = []
    n = last[-1] if last else -1
    while n >= 0:
        found.append(common[n])
        n = above[n]
    return found[::-1]


def _once(lines: Lines, begin: int, end: int) -> dict[bytes, int]:
    counts = Counter(lines[begin:end])
    return {line: n for n, line in enumerate(lines[begin:end], begin) if counts[line] == 1}
