"""Fitting a dialogue into a budget of tokens, visibly and without breaking it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from clew.context.normalise import Block, Repair
from clew.context.tokens import Count, count_message, middle_out
from clew.messages.neutral import Part, Text, Thinking, ToolResult

SHORTEST_CHARACTERS = 200  # a text is not cut below this


def fit(
    blocks: Sequence[Block], budget_tokens: int, count: Count, *, pinned: int = 0
) -> tuple[list[Block], list[Repair]]:
    """The newest whole turns that fit, and what was left out or cut for it.

    System messages and the first `pinned` blocks (a summary) stay. The last turn, with the last
    user request, always stays: if it alone is too large, its long texts are cut in the middle,
    then its oldest exchanges are left out.
    """
    turns = split_turns(blocks, pinned)
    fixed = turns.pop(0)
    left = budget_tokens - _size(fixed, count)
    kept: list[list[Block]] = []  # the newest first
    while turns and left >= (size := _size(turns[-1], count)):
        left -= size
        kept.append(turns.pop())
    repairs: list[Repair] = []
    if turns and not kept:
        last, repairs = _squeeze(turns.pop(), max(left, 0), count)
        kept.append(last)
    # What the host told the model stays in force, wherever it was said.
    systems = [block for turn in turns for block in turn if block.message.role == "system"]
    for turn in turns:
        first = next((entry for block in turn for entry in block.entries if entry), None)
        repairs.append(Repair("over_budget", "a turn was left out to fit the budget", first))
    return [*fixed, *systems, *(block for turn in reversed(kept) for block in turn)], repairs


def lean(blocks: Sequence[Block], result_characters: int) -> list[Block]:
    """What a model needs to sum up: no thinking, and long tool results cut."""
    found = []
    for block in blocks:
        parts = tuple(
            cut_part(part, result_characters) if isinstance(part, ToolResult) else part
            for part in block.message.parts
            if not isinstance(part, Thinking)
        )
        if parts:
            found.append(Block(replace(block.message, parts=parts), block.entries))
    return found


def split_turns(blocks: Sequence[Block], pinned: int = 0) -> list[list[Block]]:
    """First what always stays (the pinned blocks, system messages at the start), then the turns.

    A turn begins with a user message that follows the assistant's work, and goes on to the next.
    What was made for the provider's sake, and comes from no entry, begins none.
    """
    turns: list[list[Block]] = [list(blocks[:pinned])]
    worked = False  # whether the assistant has done something in the last of them
    for block in blocks[pinned:]:
        role = block.message.role
        asks = role == "user" and bool(block.entries)
        if (len(turns) == 1 and role != "system") or (asks and worked):
            turns.append([])
            worked = False
        turns[-1].append(block)
        worked = worked or role in ("assistant", "tool")
    return turns


def _size(blocks: Sequence[Block], count: Count) -> int:
    return sum(count_message(block.message, count) for block in blocks)


# --- one turn that is too large -------------------------------------------------------------


def _squeeze(turn: list[Block], budget: int, count: Count) -> tuple[list[Block], list[Repair]]:
    repairs: list[Repair] = []
    # Texts before exchanges: the beginning and the end of a long output say most of it, while an
    # exchange that is left out is gone. Halving the limit cuts the longest texts first.
    longest = max((len(t) for block in turn for t in texts(block.message.parts)), default=0)
    limit = max(longest, SHORTEST_CHARACTERS)
    sizes = [count_message(block.message, count) for block in turn]
    cut: set[int] = set()
    while sum(sizes) > budget and limit > SHORTEST_CHARACTERS:
        limit = max(limit // 2, SHORTEST_CHARACTERS)
        for index, block in enumerate(turn):
            shorter = _cut(block, limit)
            if shorter is not block:
                turn[index], sizes[index] = shorter, count_message(shorter.message, count)
                cut.add(index)
    for index in sorted(cut):
        first = next(iter(turn[index].entries), None)
        repairs.append(Repair("truncated", "long text was cut to fit the budget", first))
    total, dropped = sum(sizes), set[int]()
    for exchange in _exchanges(turn)[:-1]:  # the last one stays
        if total <= budget:
            break
        for index in exchange:
            total -= sizes[index]
            dropped.add(index)
            first = next(iter(turn[index].entries), None)
            repairs.append(Repair("over_budget", "an exchange was left out to fit", first))
    return [block for index, block in enumerate(turn) if index not in dropped], repairs


def _exchanges(turn: Sequence[Block]) -> list[list[int]]:
    """The places of each assistant message, with those of the results of its calls."""
    found: list[list[int]] = []
    for index, block in enumerate(turn):
        if block.message.role == "assistant":
            found.append([index])
        elif block.message.role == "tool":
            found[-1].append(index)  # it follows its calls at once
    return found


def texts(parts: Sequence[Part]) -> list[str]:
    found: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            found.append(part.text)
        elif isinstance(part, ToolResult):
            found += texts(part.content)
    return found


def _cut(block: Block, limit: int) -> Block:
    parts = tuple(cut_part(part, limit) for part in block.message.parts)
    if all(a is b for a, b in zip(parts, block.message.parts, strict=True)):
        return block
    return Block(replace(block.message, parts=parts), block.entries)


def cut_part(part: Part, limit: int) -> Part:
    if isinstance(part, Text) and len(part.text) > limit:
        return Text(text=middle_out(part.text, limit))
    if isinstance(part, ToolResult):
        content = tuple(cut_part(inner, limit) for inner in part.content)
        if any(a is not b for a, b in zip(content, part.content, strict=True)):
            # Without its block, or a writer of the same format would send the long text again.
            return replace(part, content=content, raw=None, format=None)
    return part
