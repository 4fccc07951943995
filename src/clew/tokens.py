"""How many tokens something takes: an estimate that needs no model, or a counter of yours.

The heuristic: a token for every 3.5 ASCII characters and for every other character, 4 for a
message, 8 for a call or a result beside its text, 1,500 for an image. It is meant to be a little
too high for English and code, so that a budget holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from clew.codec import render
from clew.messages.neutral import Media, Message, Other, Part, Text, Thinking, ToolCall, ToolResult

ASCII_PER_TOKEN = 3.5
PER_MESSAGE, PER_CALL, PER_MEDIA = 4, 8, 1500

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
    shown = part.unparsed
    if shown is None:
        shown = render(part.arguments)
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
