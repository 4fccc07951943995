"""What is to be summed up, in pieces of a size that a model can take. Pure.

A piece is a dialogue of its own: no call is parted from its result, and the user speaks first. What
is too large for a piece alone is cut in its middle: the texts, the results, and the texts in the
arguments of calls, the longest first, none of them below 200 characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from clew.context import budget
from clew.context.normalise import Block
from clew.context.tokens import Count, count_message, middle_out
from clew.messages.neutral import Message, Part, Text, ToolCall
from clew.messages.shared.media import as_given

GOES_ON = "[the conversation goes on]"
TOKENS_MIN = 256  # less leaves no room for what a piece has to say beside its texts

_OPENING = Message(role="user", parts=(Text(text=GOES_ON),))


def split(blocks: Sequence[Block], max_tokens: int, count: Count) -> list[list[Block]]:
    """The blocks in pieces that take no more tokens than that each, as far as they can be cut."""
    room = max_tokens - count_message(_OPENING, count)
    pieces: list[list[Block]] = []
    left = 0
    for unit in _units(blocks):
        unit = _fitted(unit, room, count)
        size = _size(unit, count)
        if not pieces or size > left:
            pieces.append([])
            left = room
            if unit[0].message.role not in ("user", "system"):
                pieces[-1].append(Block(_OPENING, ()))
        pieces[-1] += unit
        left -= size
    return pieces


def join(texts: Sequence[str], max_tokens: int, count: Count) -> list[Message]:
    """Summaries, to be summed up themselves: several in each message, so that they become fewer."""
    total = len(texts)
    found: list[Message] = []
    left = 0
    for number, text in enumerate(texts, 1):
        told = f'<summary part="{number}" of="{total}">\n{{}}\n</summary>'
        shown = told.format(_within(text, max_tokens // 2 - count(told) - 8, count))
        size = count(shown) + 1
        # Two at least, whatever their size, or they would never become one.
        if not found or (size > left and len(found[-1].parts) > 1):
            found.append(Message(role="user", parts=(Text(text=shown),)))
            left = max_tokens - 8 - size
        else:
            joined = (*found[-1].parts, Text(text=shown))
            found[-1] = replace(found[-1], parts=joined)
            left -= size
    return found


def _units(blocks: Sequence[Block]) -> list[list[Block]]:
    """What must stay together: an assistant message with the results of its calls."""
    found: list[list[Block]] = []
    for block in blocks:
        if block.message.role == "tool" and found:
            found[-1].append(block)
        else:
            found.append([block])
    return found


def _size(unit: Sequence[Block], count: Count) -> int:
    return sum(count_message(block.message, count) for block in unit)


def _fitted(unit: list[Block], room: int, count: Count) -> list[Block]:
    longest = max((_longest(part) for block in unit for part in block.message.parts), default=0)
    limit = longest
    while _size(unit, count) > room and limit > budget.SHORTEST_CHARACTERS:
        limit = max(limit // 2, budget.SHORTEST_CHARACTERS)
        unit = [_cut(block, limit) for block in unit]
    return unit


def _cut(block: Block, limit: int) -> Block:
    parts = tuple([_cut_part(part, limit) for part in block.message.parts])
    return Block(replace(block.message, parts=parts), block.entries)


def _cut_part(part: Part, limit: int) -> Part:
    if not isinstance(part, ToolCall):
        return budget.cut_part(part, limit)
    if _longest(part) <= limit:
        return part
    arguments, text = part.parse()
    given = as_given(_cut_value(arguments, limit)) if text is None else middle_out(text, limit)
    return replace(part, given=given, raw=None, format=None)


def _cut_value(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return middle_out(value, limit)
    if isinstance(value, list):
        return [_cut_value(one, limit) for one in value]
    if isinstance(value, dict):
        return {key: _cut_value(one, limit) for key, one in value.items()}
    return value


def _longest(value: Any) -> int:
    """The characters of the longest text in a part, or in the arguments of a call."""
    if isinstance(value, ToolCall):
        arguments, text = value.parse()
        return max(len(text or ""), _longest(arguments))
    if isinstance(value, Part):
        return max(map(len, budget.texts((value,))), default=0)
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        value = list(value.values())
    return max(map(_longest, value), default=0) if isinstance(value, list) else 0


def _within(text: str, tokens: int, count: Count) -> str:
    limit = len(text)
    while count(text) > tokens and limit > budget.SHORTEST_CHARACTERS:
        limit = max(limit * 3 // 4, budget.SHORTEST_CHARACTERS)
        text = middle_out(text, limit)
    return text
