"""What is shown of a hit: the piece of its text that has most of what was looked for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from clew.core.text_index import Words
from clew.search.documents import Piece

Span = tuple[int, int]

_SPANS_MAX = 200  # of one piece: what comes further behind is not needed to choose a place
_SPACE = re.compile(r"\s+")


def snippet(
    pieces: Sequence[Piece], looked_for: Sequence[Look], context: int
) -> tuple[str, list[Span]]:
    """A part of the text on one line, and the places of the matches in it."""
    best, best_text, best_spans = -1, "", [(0, 0)]
    for _, text in pieces:
        spans, kinds = _matches(text, looked_for)
        if kinds > best:
            best, best_text, best_spans = kinds, text, spans
    if best <= 0:
        best_text = next((text for _, text in pieces if text.strip()), "")
        best_spans = []
    return _window(best_text, best_spans, context)


class Look(Struct, frozen=True):
    """How words are recognised in a text. It is for the eye: what is a match was decided by then.

    `folded` is for the text as `_same_length` makes it, `humps` for words like getUserName in it.
    """

    folded: re.Pattern[str]
    humps: re.Pattern[str] | None = None


def looks(leaves: Sequence[Words]) -> list[Look]:
    return [Look(re.compile(_spelling(leaf)), _humps(leaf)) for leaf in leaves]


def literal(text: str) -> Look:
    """For a text that is looked for as it is."""
    return Look(re.compile(re.escape(_same_length(text))))


def _spelling(leaf: Words) -> str:
    spelled = [re.escape(word) for word in leaf.words]
    begin = "(?<![0-9a-z])" if leaf.words[0][0].isascii() else ""
    whole = "(?![0-9a-z])" if leaf.words[-1][-1].isascii() else ""
    return begin + r"[\W_]{0,8}".join(spelled) + ("[0-9a-z]*" if leaf.prefix else whole)


def _humps(leaf: Words) -> re.Pattern[str] | None:
    if not all(word.isascii() for word in leaf.words):
        return None
    first, *rest = leaf.words
    tail = "".join(word.capitalize() for word in rest)
    forms = {first + tail, first.capitalize() + tail, "".join(leaf.words).upper()}
    spelled = "|".join(map(re.escape, sorted(forms)))
    end = "[0-9a-z]*" if leaf.prefix else "(?![a-z])"
    return re.compile(f"(?:(?<=[0-9a-z])|(?<![0-9A-Za-z]))(?:{spelled}){end}")


def _matches(text: str, looked_for: Sequence[Look]) -> tuple[list[Span], int]:
    folded = _same_length(text)
    spans: list[Span] = []
    kinds = 0
    for look in looked_for:
        own = _spans(look.folded, folded)
        if not own and look.humps is not None:
            own = _spans(look.humps, text)
        kinds += bool(own)
        spans += own
    return sorted(spans), kinds


def _spans(pattern: re.Pattern[str], text: str) -> list[Span]:
    found = (match.span() for match in pattern.finditer(text))
    return [span for span in islice(found, _SPANS_MAX) if span[0] < span[1]]


def _window(text: str, spans: list[Span], context: int) -> tuple[str, list[Span]]:
    """So many characters around the place with most matches, cut at spaces where there are."""
    width = 2 * context
    first = _densest(spans, width)
    start = max(0, first - context // 2)
    if start:
        space = text.find(" ", start, first)
        start = start if space < 0 else space + 1
    end = min(len(text), start + width)
    if end < len(text):
        space = text.rfind(" ", start, end)
        end = end if space <= start else space
    return _flat(text[start:end], start, spans, start > 0, end < len(text))


def _densest(spans: list[Span], width: int) -> int:
    best, place = 0, 0
    for start, _ in spans[:_SPANS_MAX]:
        inside = sum(start <= other < start + width for other, _ in spans[:_SPANS_MAX])
        if inside > best:
            best, place = inside, start
    return place


def _flat(
    text: str, start: int, spans: list[Span], before: bool, after: bool
) -> tuple[str, list[Span]]:
    """One line of it, with … for what was left out, and the places moved accordingly."""
    made, moved = ("…" if before else ""), []
    cuts = [(m.start(), m.end()) for m in _SPACE.finditer(text)]
    offsets = _Offsets(cuts, len(made))
    made += _SPACE.sub(" ", text) + ("…" if after else "")
    last = 0
    for begin, end in spans:
        begin, end = max(begin - start, 0), min(end - start, len(text))
        if begin < end:
            left, right = max(offsets.of(begin), last), offsets.of(end)
            if left < right:
                moved.append((left, right))
                last = right
    return made, moved


class _Offsets:
    """Where a character is when every run of white space is one space."""

    def __init__(self, runs: list[Span], shift: int) -> None:
        self._runs = runs
        self._shift = shift

    def of(self, place: int) -> int:
        lost = 0
        for begin, end in self._runs:
            if begin >= place:
                break
            lost += min(end, place) - begin - 1
        return place - lost + self._shift


def _same_length(text: str) -> str:
    """Without case and accents, each character for itself, so that places stay what they are."""
    return text.lower() if text.isascii() else text.translate(_CHARACTERS)


class _Characters(dict[int, str]):
    def __missing__(self, point: int) -> str:
        folded = unicodedata.normalize("NFKD", chr(point).casefold())
        found = folded[0] if folded and (len(folded) == 1 or _is_accented(folded)) else chr(point)
        self[point] = found
        return found


def _is_accented(folded: str) -> bool:
    return all("\u0300" <= mark <= "\u036f" for mark in folded[1:])


_CHARACTERS = _Characters()
