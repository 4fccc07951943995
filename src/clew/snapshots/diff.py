"""What differs between two trees: folders with the same manifest are the same, and not entered."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from clew.core.errors import ClewError, Corrupt
from clew.snapshots.manifest import FILE_KINDS, Node, sort_key
from clew.snapshots.model import Change, Difference, FileChange
from clew.snapshots.tree import DEPTH_MAX, Trees

# Which files may be one that was renamed. To compare each with each grows with both sides.
SIMILAR_FILES_MAX = 40  # on each side
SIMILAR_BYTES_MAX = 64 * 1024
SIMILAR_LINES_MAX = 2000
SIMILAR_RATIO = 0.6
# How much is shown as text.
TEXT_BYTES_MAX = 512 * 1024  # of a file
LINES_MAX = 20_000
TOTAL_CHARACTERS_MAX = 4 * 1024 * 1024
_NAMES_CHARACTERS_MAX = 4 * 1024 * 1024  # of files that are only named
_ENTERED_MAX = 5_000  # folders, before it is asked whether the trees come to an end
_LOOKED_AT = 8000  # bytes, to tell text from what is none
_ESCAPES_MAX = 0.2
_NO_NEWLINE = "\n\\ No newline at end of file\n"
_EMPTY: dict[str, Node] = {}

_Pairs = dict[str, Difference]  # the path of what was added → what was removed


def diff_trees(
    trees: Trees,
    old: str | None,
    new: str | None,
    told: Callable[[Difference], Difference] | None = None,
) -> list[Difference]:
    """What became of each path on the way from one tree to another, in the order of paths.

    None stands for an empty tree. Folders are named only where they are empty: otherwise what
    lies in them says it all. A removed and an added file with the same contents, or with much
    of their text in common, are one that was renamed. `told` may put each one right before that.
    """
    found = list(_Comparison(trees, old, new).run())
    if told is not None:
        found = list(map(told, found))
    return sorted(with_renames(trees, found), key=lambda one: sort_key(one.path))


class _Comparison:
    """Two trees, folder by folder: those with the same manifest are not entered."""

    def __init__(self, trees: Trees, old: str | None, new: str | None) -> None:
        self._trees = trees
        self._old = old
        self._new = new
        self._entered = 0

    def run(self) -> Iterator[Difference]:
        return self._folder("", self._old, self._new)

    def _folder(self, path: str, old: str | None, new: str | None) -> Iterator[Difference]:
        """`path` ends with a slash unless it is the top."""
        if old == new:
            return
        if path.count("/") > DEPTH_MAX:
            raise Corrupt(f"manifest {new or old}", f"{path!r:.100} lies too deep")
        self._entered += 1
        if self._entered == _ENTERED_MAX:  # they may come to no end
            self._trees.refuse_endless(self._old)
            self._trees.refuse_endless(self._new)
        before, after = self._index(old), self._index(new)
        for name in before.keys() | after.keys():
            yield from self._name(path + name, before.get(name), after.get(name))

    def _index(self, manifest: str | None) -> dict[str, Node]:
        if manifest is None:
            return _EMPTY
        return {node.name: node for node in self._trees.nodes(manifest)}

    def _name(self, path: str, old: Node | None, new: Node | None) -> Iterator[Difference]:
        change = change_of(self._trees, old, new)
        if change is not None:
            yield difference(change, path, old, new)
        before = old.ref if old is not None and old.is_folder else None
        after = new.ref if new is not None and new.is_folder else None
        if before is not None or after is not None:
            yield from self._folder(path + "/", before, after)


def change_of(trees: Trees, old: Node | None, new: Node | None) -> Change | None:
    """What is to be said of the path itself; None: nothing, or what is in it says it."""
    if old is None or new is None:
        node = old or new
        assert node is not None
        if node.is_folder and trees.nodes(node.ref):
            return None
        return "added" if old is None else "removed"
    if _sort(old) != _sort(new):
        return "type"
    if old.is_folder or (old.kind, old.ref) == (new.kind, new.ref):
        return None
    return "mode" if old.ref == new.ref else "modified"


def _sort(node: Node) -> str:
    """A file that becomes executable stays a file."""
    return "file" if node.is_file else node.kind


def difference(change: Change, path: str, old: Node | None, new: Node | None) -> Difference:
    return Difference(
        change=change,
        path=path,
        old_kind=None if old is None else old.kind,
        new_kind=None if new is None else new.kind,
        old_size=None if old is None else old.size,
        new_size=None if new is None else new.size,
        old_ref=None if old is None else old.ref,
        new_ref=None if new is None else new.ref,
    )


def below(differences: Iterable[Difference], path: str) -> list[Difference]:
    """Those that are about a path, or about something in it; "" is the top."""
    return [
        one
        for one in differences
        for names in [(one.path, one.old_path or one.path)]
        if not path or any(name == path or name.startswith(path + "/") for name in names)
    ]


# --- by contents that others can check ---


def file_changes(
    trees: Trees, differences: Iterable[Difference], limit: int | None = None
) -> list[FileChange]:
    """The same with SHA-256 in place of our own hashes, which only a store can look up."""
    files = (one for one in differences if (one.new_kind or one.old_kind) != "folder")
    return [
        FileChange(
            path=one.path,
            change=one.change,
            before=_sha256(trees, one.old_kind, one.old_ref, one.old_path or one.path),
            after=_sha256(trees, one.new_kind, one.new_ref, one.path),
            old_path=one.old_path,
        )
        for one in islice(files, limit)
    ]


def _sha256(trees: Trees, kind: str | None, ref: str | None, path: str) -> str | None:
    if ref is None or kind == "folder":
        return None
    # A link has the name of its target where a file has the hash of its contents.
    data = os.fsencode(ref) if kind == "link" else trees.data(ref, path)
    return "sha256:" + hashlib.sha256(data).hexdigest()


# --- which removed file is the added one: by the same contents, then by text in common ---


def with_renames(trees: Trees, differences: list[Difference]) -> list[Difference]:
    """The same, with each pair of a removed and an added file told as one renamed file."""
    pairs = _equal(differences)
    gone = {old.path for old in pairs.values()}
    removed = [one for one in _candidates(differences, "removed") if one.path not in gone]
    added = [one for one in _candidates(differences, "added") if one.path not in pairs]
    pairs |= _similar(trees, removed, added)
    gone = {old.path for old in pairs.values()}
    made = []
    for one in differences:
        if one.change == "added" and one.path in pairs:
            made.append(_renamed(pairs[one.path], one))
        elif one.change != "removed" or one.path not in gone:
            made.append(one)
    return made


def _renamed(old: Difference, new: Difference) -> Difference:
    return replace(
        new,
        change="renamed",
        old_path=old.path,
        old_kind=old.old_kind,
        old_size=old.old_size,
        old_ref=old.old_ref,
    )


def _candidates(differences: list[Difference], change: str) -> Iterator[Difference]:
    for one in differences:
        added = change == "added"
        kind, size = (one.new_kind, one.new_size) if added else (one.old_kind, one.old_size)
        if one.change == change and kind in FILE_KINDS and size:
            yield one


def _equal(differences: list[Difference]) -> _Pairs:
    removed: dict[str | None, list[Difference]] = defaultdict(list)
    for one in _candidates(differences, "removed"):
        removed[one.old_ref].append(one)
    pairs: _Pairs = {}
    for one in sorted(_candidates(differences, "added"), key=lambda one: one.path):
        found = removed.get(one.new_ref)
        if found:
            best = min(
                found, key=lambda old: (_base_name(old.path) != _base_name(one.path), old.path)
            )
            found.remove(best)
            pairs[one.path] = best
    return pairs


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def _similar(trees: Trees, removed: list[Difference], added: list[Difference]) -> _Pairs:
    if not removed or not added or max(len(removed), len(added)) > SIMILAR_FILES_MAX:
        return {}
    before = [(one, _lines(trees, one.path, one.old_ref, one.old_size)) for one in removed]
    after = [(one, _lines(trees, one.path, one.new_ref, one.new_size)) for one in added]
    scores = [
        (-score, old.path, new.path, old)
        for old, mine in before
        for new, theirs in after
        if (score := _score(mine, theirs)) >= SIMILAR_RATIO
    ]
    pairs: _Pairs = {}
    taken: set[str] = set()
    for _, path, new_path, old in sorted(scores, key=lambda score: score[:3]):
        if path not in taken and new_path not in pairs:
            pairs[new_path] = old
            taken.add(path)
    return pairs


def _lines(trees: Trees, path: str, ref: str | None, size: int | None) -> list[bytes]:
    """A text's lines; none of what is no text, or too much of it."""
    if ref is None or size is None or size > SIMILAR_BYTES_MAX:
        return []
    try:
        data = trees.data(ref, path)
    except ClewError:
        return []  # this is only a guess; a caller who reads the file is told
    lines = [] if b"\0" in data else data.splitlines()
    return lines if len(lines) <= SIMILAR_LINES_MAX else []


def _score(mine: list[bytes], theirs: list[bytes]) -> float:
    if not mine or not theirs:
        return 0.0
    matcher = SequenceMatcher(None, mine, theirs)
    # The quick ones are upper bounds: most pairs need no more than those.
    for ratio in (matcher.real_quick_ratio, matcher.quick_ratio):
        if ratio() < SIMILAR_RATIO:
            return 0.0
    return matcher.ratio()


# --- differences as text that people read: hunks of lines, for files that have lines ---


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
        if left < -_NAMES_CHARACTERS_MAX:
            made.append("and more files\n")
            break
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
    names = (
        _header_name("a", one.old_path or one.path, one.old_ref),
        _header_name("b", one.path, one.new_ref),
    )
    for line in difflib.unified_diff(old.lines, new.lines, *names):
        yield line if line.endswith("\n") else line + _NO_NEWLINE


def _header_name(side: str, path: str, ref: str | None) -> str:
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
