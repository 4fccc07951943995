"""What messages say, to be compared: whatever format says it, and however it is spelled.

A cache mark, a text in place of a list of blocks, or thinking that was left out makes no other
message. What counts is who speaks, the words, the calls, the results and the media.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from clew.core.codec import digest
from clew.messages.neutral import Media, Message, Other, Part, Text, Thinking, ToolCall, ToolResult


def spoken(message: Message) -> Iterator[Part]:
    """The parts of a message that count: not its thinking, and no blank text."""
    for part in message.parts:
        if not isinstance(part, Thinking) and not (
            isinstance(part, Text) and not part.text.strip()
        ):
            yield part


def key(role: str, part: Part) -> str:
    """What a part says, as a hash."""
    text = json.dumps([role, _said(part)], sort_keys=True, default=str)
    return digest(text.encode("utf-8", "surrogatepass"))


def _said(part: Part) -> list[Any]:
    match part:
        case Text():
            return ["text", part.text]
        case ToolCall():
            # An id that was made when the call was read depends on what stands beside it.
            id = None if part.made_id else part.id
            return ["call", id, part.name, part.arguments, part.unparsed]
        case ToolResult():
            return ["result", [key("tool", one) for one in part.content]]
        case Media():
            return ["media", part.kind, part.data or part.url or part.file_id]
        case Other():
            return ["other", part.raw]
        case _:
            return ["thinking"]


def describe(role: str, part: Part) -> str:
    """A part for people: who says what."""
    match part:
        case Text():
            return f"{role}: {part.text}"
        case ToolCall():
            given = part.arguments if part.unparsed is None else part.unparsed
            return f"{role}: call of {part.name}({json.dumps(given, default=str)})"
        case ToolResult():
            texts = [one.text for one in part.content if isinstance(one, Text)]
            return f"{role}: result: {' '.join(texts)}"
        case Media():
            return f"{role}: {part.kind}"
        case _:
            return f"{role}: {json.dumps(part.raw, default=str)}"
