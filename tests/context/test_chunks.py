"""Pieces to be summed up: each fits, none is smaller than it must be, and what fits is not cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from clew.context.chunks import GOES_ON, join, split
from clew.context.normalise import Block
from clew.context.tokens import count_message
from clew.messages.neutral import Message, Other, Part, Text, ToolCall, ToolResult


def count(text: str) -> int:
    return len(text)


def block(role: Any, *parts: Part, entry: str = "e") -> Block:
    return Block(Message(role=role, parts=parts), (entry,))


def said(role: Any, size: int) -> Block:
    """A message of so many tokens."""
    return block(role, Text(text="x" * (size - 4)))


def exchange(arguments: Any, output: str, **call: Any) -> list[Block]:
    return [
        block("assistant", ToolCall(id="c", name="run", given=arguments, **call)),
        block("tool", ToolResult(call="c", content=(Text(text=output),))),
    ]


OPENING = count_message(Message(role="user", parts=(Text(text=GOES_ON),)), count)
ROOM = 1000 - OPENING  # of a piece of 1,000 tokens, for which an opening may be needed


def sizes(pieces: list[list[Block]]) -> list[int]:
    return [sum(count_message(one.message, count) for one in piece) for piece in pieces]


def test_a_piece_is_filled_to_its_last_token() -> None:
    given = [said("user", 500), said("assistant", ROOM - 500)]
    assert split(given, 1000, count) == [given]
    over = [said("user", 500), said("assistant", ROOM - 499)]
    first, second = split(over, 1000, count)
    assert first == over[:1]
    assert second[1:] == over[1:]
    assert second[0].message.parts == (Text(text=GOES_ON),)
    assert second[0].entries == (), "it was said by no entry"


def test_only_a_piece_that_would_begin_with_the_assistant_is_opened() -> None:
    given = [said(role, 600) for role in ("user", "user", "system", "assistant")]
    pieces = split(given, 1000, count)
    assert [piece[-1] for piece in pieces] == given
    assert [len(piece) for piece in pieces] == [1, 1, 1, 2]
    assert split([], 1000, count) == []


def test_a_call_and_its_result_are_in_one_piece() -> None:
    work = exchange({"n": 1}, "y" * 300)
    first, second = split([said("user", 700), *work, said("user", 100)], 1000, count)
    assert first == [said("user", 700)]
    assert second[1:3] == work
    orphan = block("tool", ToolResult(call="c", content=(Text(text="z"),)))
    assert split([orphan], 1000, count)[0][-1] == orphan


def test_what_fits_is_not_cut() -> None:
    whole = [said("user", ROOM)]
    assert split(whole, 1000, count) == [whole]
    [[cut]] = split([said("user", ROOM + 1)], 1000, count)
    [text] = cut.message.parts
    assert isinstance(text, Text)
    assert "characters left out" in text.text
    assert 400 < len(text.text) <= ROOM - 4, "halved once, and no further than it must be"
    assert cut.entries == ("e",)


def test_nothing_is_cut_below_what_can_still_be_understood() -> None:
    parts = [Text(text="x" * 200) for _ in range(20)]
    [[kept]] = split([block("user", *parts)], 1000, count)
    assert kept.message.parts == tuple(parts), "over the bound, and still whole"
    [[cut]] = split([block("user", *(Text(text="x" * 201) for _ in range(20)))], 1000, count)
    for part in cut.message.parts:
        assert isinstance(part, Text)
        assert part.text.count("x") == 132 + 66, "200 characters, without that at the cut"


def test_only_long_texts_in_the_arguments_of_a_call_are_cut() -> None:
    arguments = {"path": "a.py", "edits": [{"new": "n" * 5000, "line": 3}, "o" * 4000], "all": True}
    call, _ = split(exchange(arguments, "done"), 1000, count)[0][1:]
    [part] = call.message.parts
    assert isinstance(part, ToolCall)
    assert part.arguments["path"] == "a.py"
    assert part.arguments["all"] is True
    first, second = part.arguments["edits"]
    assert first["line"] == 3
    assert first["new"].startswith("nnn")
    assert first["new"].endswith("nnn")
    assert "left out" in first["new"]
    assert "left out" in second
    assert (part.id, part.name) == ("c", "run")


def test_a_call_that_is_cut_is_not_written_from_its_old_block() -> None:
    raw = {"type": "tool_use", "input": {"text": "n" * 5000}}
    for work in (
        exchange({"text": "n" * 5000}, "done", raw=raw, format="anthropic"),
        exchange("n" * 5000, "done", raw=raw, format="anthropic"),
    ):
        call, _ = split(work, 1000, count)[0][1:]
        [part] = call.message.parts
        assert isinstance(part, ToolCall)
        assert (part.raw, part.format) == (None, None)
        assert "left out" in (part.unparsed or part.arguments["text"])
        assert (part.unparsed is None) == (part.arguments is not None)


def test_a_short_call_beside_a_long_result_stays_as_it_was() -> None:
    raw = {"type": "tool_use"}
    given = exchange({"n": 1}, "y" * 5000, raw=raw, format="anthropic")
    call, result = split(given, 1000, count)[0][1:]
    assert call.message == given[0].message
    assert result.message != given[1].message


def test_a_call_whose_texts_are_just_as_long_as_the_limit_stays_as_it_was() -> None:
    raw = {"type": "tool_use"}
    given = exchange({"text": "n" * 1000}, "y" * 2000, raw=raw, format="anthropic")
    call, result = split(given, 2500, count)[0][1:]
    assert call.message == given[0].message
    assert result.message != given[1].message


def test_what_has_no_text_to_cut_stays() -> None:
    odd = block("user", Other(raw={"x": "y" * 5000}), entry="o")
    assert split([odd], 1000, count) == [[odd]]


texts = st.lists(st.integers(0, 3000).map(lambda n: "s" * n), min_size=1, max_size=12)


@given(texts, st.integers(256, 2000))
def test_summaries_become_fewer_messages_with_each_summary_in_its_place(
    summaries: list[str], max_tokens: int
) -> None:
    found = join(summaries, max_tokens, count)
    parts = [part for message in found for part in message.parts]
    assert [message.role for message in found] == ["user"] * len(found)
    assert len(parts) == len(summaries)
    for number, (part, summary) in enumerate(zip(parts, summaries, strict=True), 1):
        assert isinstance(part, Text)
        head = f'<summary part="{number}" of="{len(summaries)}">\n'
        assert part.text.startswith(head)
        assert part.text.endswith("\n</summary>")
        inside = part.text.removeprefix(head).removesuffix("\n</summary>")
        assert inside == summary or "left out" in inside
    assert len(found) <= (len(summaries) + 1) // 2, "or they would never become one"


@given(texts, st.integers(600, 2000))
def test_joined_summaries_fit_and_what_fits_is_joined(
    summaries: list[str], max_tokens: int
) -> None:
    """From 600 on, since two that are cut as far as they are ever cut take more than less."""
    found = join(summaries, max_tokens, count)
    for message in found:
        assert count_message(message, count) <= max_tokens
    for message, following in pairwise(found):
        joined = Message(role="user", parts=(*message.parts, following.parts[0]))
        assert count_message(joined, count) > max_tokens - 8 - len(joined.parts)


def test_a_message_of_summaries_is_filled_to_its_last_token() -> None:
    told = len('<summary part="1" of="3">\n\n</summary>')
    exact = 8 + 3 * (100 + told + 1)
    assert [len(message.parts) for message in join(["s" * 100] * 3, exact, count)] == [3]
    assert [len(message.parts) for message in join(["s" * 100] * 3, exact - 1, count)] == [2, 1]


def test_a_summary_is_cut_only_if_two_would_not_fit() -> None:
    told = len('<summary part="1" of="2">\n{}\n</summary>')
    room = 500 - told - 8
    whole = join(["s" * room] * 2, 1000, count)
    assert "left out" not in str(whole)
    cut = join(["s" * (room + 1)] * 2, 1000, count)
    assert str(cut).count("left out") == 2
    for part in cut[0].parts:
        assert isinstance(part, Text)
        assert part.text.count("s") > room * 0.7, "no more than it must be"
