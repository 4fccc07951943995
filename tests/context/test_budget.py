"""What a budget keeps, cuts and leaves out, and that it says so of nothing else.

Tokens are counted as characters here, with what every message and call costs besides.
"""

from __future__ import annotations

from clew.context.budget import SHORTEST_CHARACTERS, fit, lean, split_turns
from clew.context.normalise import Block
from clew.context.tokens import PER_MESSAGE, count_message
from clew.messages.neutral import Message, Part, Text, Thinking, ToolCall, ToolResult


def said(role: str, text: str, entry: str | None = "") -> Block:
    entries = [] if entry is None else [entry or text]
    return Block(Message(role=role, parts=(Text(text=text),)), entries)  # type: ignore[arg-type]


def call(name: str) -> Block:
    part = ToolCall(id=name, name="tool", given={})
    return Block(Message(role="assistant", parts=(part,)), [f"call {name}"])


def result(name: str, text: str) -> Block:
    part = ToolResult(call=name, content=(Text(text=text),))
    return Block(Message(role="tool", parts=(part,)), [f"result {name}"])


def names(blocks: list[Block]) -> list[str | None]:
    return [entry for block in blocks for entry in block.entries]


def size(*blocks: Block) -> int:
    return sum(count_message(block.message, len) for block in blocks)


def told(repairs: object) -> list[tuple[str, str | None]]:
    return [(one.code, one.entry) for one in repairs]  # type: ignore[attr-defined]


OLD = [said("user", "old"), said("assistant", "older answer")]
NEW = [said("user", "new"), said("assistant", "newer answer")]


def test_a_turn_that_fits_exactly_is_kept_and_one_token_less_leaves_it_out() -> None:
    whole = size(*OLD, *NEW)
    kept, repairs = fit([*OLD, *NEW], whole, len)
    assert (names(kept), told(repairs)) == (names([*OLD, *NEW]), [])
    kept, repairs = fit([*OLD, *NEW], whole - 1, len)
    assert (names(kept), told(repairs)) == (names(NEW), [("over_budget", "old")])


def test_no_older_turn_is_kept_behind_one_that_is_left_out() -> None:
    small = [said("user", "s"), said("assistant", "t")]
    large = [said("user", "L" * 500), said("assistant", "answer")]
    kept, repairs = fit([*small, *large, *NEW], size(*small, *NEW), len)
    assert names(kept) == names(NEW)
    assert told(repairs) == [("over_budget", "s"), ("over_budget", "L" * 500)]


def test_what_the_host_said_stays_wherever_it_was_said_and_so_does_what_is_pinned() -> None:
    first, later = said("system", "first"), said("system", "later")
    summary = said("user", "summary")
    blocks = [summary, first, OLD[0], later, OLD[1], *NEW]
    kept, _ = fit(blocks, size(summary, first, *NEW), len, pinned=1)
    assert names(kept) == ["summary", "first", "later", *names(NEW)]


def test_a_turn_begins_with_a_request_that_follows_work_and_with_no_other() -> None:
    made = said("user", "made for the provider", None)
    blocks = [
        *(said("system", "rules"), said("user", "one"), said("user", "and"), call("a")),
        *(result("a", "r"), made, said("assistant", "x"), said("user", "two")),
    ]
    turns = split_turns(blocks)
    assert [names(turn) for turn in turns] == [
        ["rules"],
        ["one", "and", "call a", "result a", "x"],
        ["two"],
    ]
    after_results = [said("user", "one"), call("a"), result("a", "r"), said("user", "two")]
    assert [len(turn) for turn in split_turns(after_results)] == [0, 3, 1]
    assert [len(turn) for turn in split_turns(after_results, 1)] == [1, 2, 1]


def test_the_longest_texts_are_cut_first_and_only_they_are_told_of() -> None:
    long, short = "l" * 4000, "s" * 300
    quoting = said("user", "it said [… 5 characters left out …]")
    turn = [quoting, call("a"), result("a", long), call("b"), result("b", short)]
    budget = size(*turn) - 1500
    kept, repairs = fit(list(turn), budget, len)
    assert names(kept) == names(turn)
    assert told(repairs) == [("truncated", "result a")]
    assert kept[4] is turn[4]
    assert size(*kept) <= budget


def test_what_fits_is_not_cut_and_nothing_is_cut_below_the_shortest() -> None:
    turn = [said("user", "u" * SHORTEST_CHARACTERS), said("assistant", "a" * 1000)]
    kept, repairs = fit(list(turn), size(*turn), len)
    assert (kept, repairs) == (turn, [])
    kept, repairs = fit(list(turn), 1, len)
    assert told(repairs) == [("truncated", "a" * 1000)]
    assert kept[0] is turn[0]
    (part,) = kept[1].message.parts
    assert isinstance(part, Text)
    head, mark, tail = part.text.split("\n")
    assert "characters left out" in mark
    assert SHORTEST_CHARACTERS - 2 <= len(head) + len(tail) <= SHORTEST_CHARACTERS


def test_a_text_is_halved_until_it_fits_and_not_once_more() -> None:
    turn = [said("user", "u"), said("assistant", "z" * 4000)]
    once, _ = fit(list(turn), size(*turn) - 1, len)
    (part,) = once[1].message.parts
    assert isinstance(part, Text)
    assert 1995 <= part.text.count("z") <= 2000
    assert fit(list(turn), size(*once), len)[0] == once, "it fits to the token"
    twice, _ = fit(list(turn), size(*once) - 1, len)
    assert size(*twice) < size(*once)


def test_the_oldest_exchanges_go_until_the_rest_fits_and_the_last_one_stays() -> None:
    turn = [said("user", "do")]
    for name in "abcd":
        turn += [call(name), result(name, name * 150)]
    rest = [turn[0], *turn[3:]]
    kept, repairs = fit(list(turn), size(*rest), len)
    assert names(kept) == names(rest)
    assert told(repairs) == [("over_budget", "call a"), ("over_budget", "result a")]
    kept, repairs = fit(list(turn), size(*rest) - 1, len)
    assert names(kept) == names([turn[0], *turn[5:]])
    kept, repairs = fit(list(turn), 1, len)
    assert names(kept) == ["do", "call d", "result d"]
    assert len(repairs) == 6


def test_to_sum_up_no_thinking_is_needed_and_results_only_in_part() -> None:
    thinking: Part = Thinking(text="hm")
    only = Block(Message(role="assistant", parts=(thinking,)), ["t"])
    both = Block(Message(role="assistant", parts=(thinking, Text(text="x" * 900))), ["b"])
    long, short = result("l", "r" * 900), result("s", "short")
    found = lean([only, both, long, short], 300)
    assert names(found) == ["b", "result l", "result s"]
    assert found[0].message.parts == (Text(text="x" * 900),)
    assert size(found[1]) < 400 + PER_MESSAGE * 10
    assert found[2].message == short.message


def test_a_cut_result_is_not_sent_again_in_the_form_that_it_came_in() -> None:
    raw = {"type": "tool_result", "content": "r" * 900}
    part = ToolResult(call="a", content=(Text(text="r" * 900),), raw=raw, format="anthropic")
    (found,) = lean([Block(Message(role="tool", parts=(part,)), ["a"])], 300)
    (cut,) = found.message.parts
    assert (cut.raw, cut.format) == (None, None)
    (kept,) = lean([Block(Message(role="tool", parts=(part,)), ["a"])], 900)
    assert kept.message.parts == (part,)
