"""How many tokens something takes: an estimate that needs no model, or a counter of yours.

The heuristic: a token for every 3.5 ASCII characters and for every other character, 4 for a
message, 8 for a call or a result beside its text, 1,500 for an image. It is meant to be a little
too high for English and code, so that a budget holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from clew.codec import encode
from clew.messages.neutral import Media, Message, Other, Part, Text, Thinking, ToolCall, ToolResult

ASCII_PER_TOKEN = 3.5
PER_MESSAGE, PER_CALL, PER_MEDIA = 4, 8, 1500

Count = Callable[[str], int]


def estimate(text: str) -> int:
    """The tokens of a text, by the heuristic."""
    plain = len(text) if text.isascii() else sum(character < "\x80" for character in text)
    return math.ceil(plain / ASCII_PER_TOKEN) + len(text) - plain


def count_message(message: Message, count: Count = estimate) -> int:
    return PER_MESSAGE + sum(count_part(part, count) for part in message.parts)


def count_part(part: Part, count: Count) -> int:
    match part:
        case Text(text=text) | Thinking(text=text):
            return count(text)
        case ToolCall(name=name, arguments=arguments, unparsed=unparsed):
            shown = unparsed if unparsed is not None else encode(arguments).decode("utf-8")
            return PER_CALL + count(name) + count(shown)
        case ToolResult(content=content):
            return PER_CALL + sum(count_part(inner, count) for inner in content)
        case Media():
            return PER_MEDIA
        case Other(raw=raw):
            return count(encode(raw).decode("utf-8"))
        case _:
            return 0
