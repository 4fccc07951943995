"""How large text is, and how to cut it: tokens, by an estimate or a counter of yours; characters.

The heuristic: a token for every 3.5 ASCII characters and for every other character, 4 for a
message, 8 for a call or a result beside its text, 1,500 for an image. It is meant to be a little
too high for English and code, so that a budget holds. Text is cut between what a reader sees as
characters: half a flag, or a letter without its accent, is another text.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from clew.core.codec import render
from clew.messages.neutral import Media, Message, Other, Part, Text, Thinking, ToolCall, ToolResult

ASCII_PER_TOKEN = 3.5
PER_MESSAGE, PER_CALL, PER_MEDIA = 4, 8, 1500
KEEP_USER_TOKENS = 2000  # of the user's own words that a compaction keeps, unless told otherwise

Count = Callable[[str], int]


def estimate(text: str) -> int:
    """The tokens of a text, by the heuristic."""
    if text.isascii():
        return math.ceil(len(text) / ASCII_PER_TOKEN)
    plain = len(text.encode("ascii", "ignore"))
    return math.ceil(plain / ASCII_PER_TOKEN) + len(text) - plain


def count_message(message: Message, count: Count = estimate) -> int:
    total = PER_MESSAGE
    for part in message.parts:
        total += _COUNTERS[type(part)](part, count)
    return total


def _count_text(part: Any, count: Count) -> int:
    return count(part.text)


def _count_call(part: ToolCall, count: Count) -> int:
    arguments, shown = part.parse()
    if shown is None:
        shown = render(arguments)
    return PER_CALL + count(part.name) + count(shown)


def _count_result(part: ToolResult, count: Count) -> int:
    return PER_CALL + sum([_COUNTERS[type(inner)](inner, count) for inner in part.content])


def _count_other(part: Other, count: Count) -> int:
    return count(render(part.raw))


_COUNTERS: dict[type[Part], Callable[[Any, Count], int]] = {
    Text: _count_text,
    Thinking: _count_text,
    ToolCall: _count_call,
    ToolResult: _count_result,
    Media: lambda part, count: PER_MEDIA,
    Other: _count_other,
}


# --- cutting text between characters --------------------------------------------------------

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
    head = text[: limit * 2 // 3]
    # Without its last character, half of which may lie behind the cut.
    head = head[: len(head) - sum(map(len, list(characters(head[-32:]))[-1:]))]
    tail = text[len(text) - limit // 3 :]
    # A mark at the beginning belongs to a letter that was cut off.
    while tail and unicodedata.category(tail[0]) in ("Mn", "Me", "Mc", "Cf"):
        tail = tail[1:]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left_out:,} characters left out …]\n{tail}"


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
