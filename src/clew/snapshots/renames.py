"""Which removed file is the added one: by the same contents, then by text in common.

The second is a guess, and costs time, so only so many files of so many bytes are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher

from msgspec.structs import replace

from clew.errors import ClewError
from clew.snapshots.model import Difference
from clew.snapshots.tree import Trees

SIMILAR_FILES_MAX = 40  # on each side
SIMILAR_BYTES_MAX = 64 * 1024
SIMILAR_LINES_MAX = 2000
SIMILAR_RATIO = 0.6
_FILES = ("file", "executable")


def with_renames(trees: Trees, differences: list[Difference]) -> list[Difference]:
    """The same, with each pair of a removed and an added file told as one renamed file."""
    pairs = _equal(differences)
    pairs |= _similar(trees, *_unpaired(differences, pairs))
    gone = {old.path for old in pairs.values()}
    made = []
    for one in differences:
        if one.change == "added" and one.path in pairs:
            made.append(_renamed(pairs[one.path], one))
        elif one.change != "removed" or one.path not in gone:
            made.append(one)
    return made


_Pairs = dict[str, Difference]  # the path of what was added → what was removed


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
        if one.change == change and kind in _FILES and size:
            yield one


def _equal(differences: list[Difference]) -> _Pairs:
    removed: dict[str | None, list[Difference]] = defaultdict(list)
    for one in _candidates(differences, "removed"):
        removed[one.old_ref].append(one)
    pairs: _Pairs = {}
    for one in sorted(_candidates(differences, "added"), key=lambda one: one.path):
        found = removed.get(one.new_ref)
        if found:
            best = min(found, key=lambda old: (_name(old.path) != _name(one.path), old.path))
            found.remove(best)
            pairs[one.path] = best
    return pairs


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _unpaired(
    differences: list[Difference], pairs: _Pairs
) -> tuple[list[Difference], list[Difference]]:
    gone = {old.path for old in pairs.values()}
    removed = [one for one in _candidates(differences, "removed") if one.path not in gone]
    added = [one for one in _candidates(differences, "added") if one.path not in pairs]
    return removed, added


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
        return []  # this is a guess; whoever reads the file is told
    lines = [] if b"\0" in data else data.splitlines()
    return lines if len(lines) <= SIMILAR_LINES_MAX else []


def _score(mine: list[bytes], theirs: list[bytes]) -> float:
    if not mine or not theirs:
        return 0.0
    matcher = SequenceMatcher(None, mine, theirs)
    for ratio in (matcher.real_quick_ratio, matcher.quick_ratio):
        if ratio() < SIMILAR_RATIO:
            return 0.0
    return matcher.ratio()
