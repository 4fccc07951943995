"""Titles made of the first words of a session."""

from __future__ import annotations

import unicodedata
from itertools import takewhile

from clew.text import characters

TITLE_CHARACTERS = 60


def title_from(text: str, limit: int = TITLE_CHARACTERS) -> str:
    """The beginning of a text as one line: whole words where it can, whole characters always."""
    flat = " ".join(_clean(text[: limit * 20]).split())
    if len(flat) <= limit and len(text) <= limit * 20:
        return flat
    kept = _beginning(flat, limit - 1)
    words, space, _ = kept.rpartition(" ")
    if space and flat[len(kept) : len(kept) + 1] not in ("", " ") and len(words) * 2 >= limit:
        kept = words
    return kept.rstrip() + "…"


def _beginning(text: str, limit: int) -> str:
    """As many whole characters as fit."""
    ends: list[int] = []
    for character in characters(text[: limit * 2]):
        ends.append((ends[-1] if ends else 0) + len(character))
    fitting = list(takewhile(lambda end: end <= limit, ends))
    return text[: fitting[-1]] if fitting else ""


def _clean(text: str) -> str:
    return "".join(
        point
        for point in valid_text(text)
        if point.isspace() or unicodedata.category(point) != "Cc"
    )


def valid_text(text: str) -> str:
    """Text that every encoding takes: halves of characters are joined, or marked as such."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
