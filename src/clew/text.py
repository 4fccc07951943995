"""Cutting text without cutting a character."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_JOINER = "\u200d"
_ELLIPSIS = "…"


def shorten(text: str, limit: int) -> str:
    """The text on one line, at most so many code points: whole characters, then … for the rest."""
    flat = " ".join(text[: limit * 4].split())
    if len(flat) <= limit and len(text) <= limit * 4:
        return flat
    kept = ""
    for character in characters(flat):
        if len(kept) + len(character) > limit - 1:
            break
        kept += character
    return kept.rstrip() + _ELLIPSIS


def middle_out(text: str, limit: int) -> str:
    """The beginning and the end of a long text, with a line between that says what is missing."""
    if len(text) <= limit:
        return text
    head = _whole(text[: limit * 2 // 3])
    tail = text[len(text) - limit // 3 :]
    while tail and unicodedata.category(tail[0]) in ("Mn", "Me", "Mc", "Cf"):
        tail = tail[1:]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left_out:,} characters left out …]\n{tail}"


def _whole(text: str) -> str:
    """The text without a last character that may have been cut."""
    last = list(characters(text[-32:]))[-1:]
    return text[: len(text) - sum(map(len, last))]


def characters(text: str) -> Iterator[str]:
    """What a reader sees as one character: a base with its marks, joined emoji, a flag."""
    whole = ""
    for point in text:
        if whole and not _belongs(whole, point):
            yield whole
            whole = ""
        whole += point
    if whole:
        yield whole


def _belongs(whole: str, point: str) -> bool:
    if point.isascii():
        return False
    return (
        whole[-1] == _JOINER
        or point in (_JOINER, "\u200c")
        or unicodedata.category(point) in ("Mn", "Me", "Mc")
        or "\u1160" <= point <= "\u11ff"  # the parts of a Korean syllable
        or "\U0001f3fb" <= point <= "\U0001f3ff"  # skin tones
        or (is_flag_half(point) and len(whole) == 1 and is_flag_half(whole))
    )


def is_flag_half(point: str) -> bool:
    return "\U0001f1e6" <= point <= "\U0001f1ff"
