"""Sizes by the estimate, as the docs state it, and cuts that part no character."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from clew.context.tokens import characters, count_message, estimate, middle_out, shorten
from clew.messages.neutral import Media, Message, Other, Part, Text, Thinking, ToolCall, ToolResult

FLAG, FAMILY, ACCENT, THUMB = "🇩🇪", "👩‍👩‍👧", "e\u0301", "👍🏽"
SYLLABLE = "\u1112\u1161\u11ab"
WHOLE = [FLAG, FAMILY, ACCENT, THUMB, SYLLABLE, "a", "ß", "漢", "क\u093e", "x\u20dd", "b\u200c"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("a" * 7, 2), ("a" * 8, 3), ("é", 1), ("漢字", 2), ("漢" + "a" * 7, 3)],
)
def test_a_token_is_three_and_a_half_ascii_characters_or_one_other(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


def size(*parts: Part) -> int:
    return count_message(Message(role="user", parts=parts), len)


def test_every_sort_of_part_counts() -> None:
    assert size() == 4
    assert size(Text(text="abc"), Thinking(text="de")) == 4 + 3 + 2
    assert size(ToolCall(id="c", name="run", given={"a": 1})) == 4 + 8 + 3 + len('{"a":1}')
    assert size(ToolCall(id="c", name="run", given="{")) == 4 + 8 + 3 + 1
    inner = (Text(text="abc"), Text(text="d"))
    assert size(ToolResult(call="c", content=inner)) == 4 + 8 + 4
    assert size(Media(kind="image", mime="image/png")) == 4 + 1500
    assert size(Other(raw={"a": "b"})) == 4 + len('{"a":"b"}')


@given(st.lists(st.sampled_from(WHOLE)))
def test_what_a_reader_sees_as_one_character_is_one(parts: list[str]) -> None:
    assert list(characters("".join(parts))) == parts


def test_flags_side_by_side_are_two() -> None:
    assert list(characters("🇩🇪🇫🇷🇮")) == ["🇩🇪", "🇫🇷", "🇮"]
    assert list(characters("a🇩🇪")) == ["a", "🇩🇪"]


@given(st.lists(st.sampled_from([*WHOLE, " ", "\n"]), max_size=60), st.integers(2, 40))
def test_a_short_form_is_one_line_of_whole_characters(parts: list[str], limit: int) -> None:
    text = "".join(parts)
    flat = " ".join(text.split())
    short = shorten(text, limit)
    assert len(short) <= limit
    assert "\n" not in short
    if short.endswith("…"):
        kept = list(characters(short[:-1]))
        assert kept == list(characters(flat))[: len(kept)]
    else:
        assert short == flat


def test_what_fits_is_not_shortened_and_what_does_not_is_filled() -> None:
    assert shorten("abcde", 5) == "abcde"
    assert shorten("abcdef", 5) == "abcd…"
    assert shorten("a    b" + " " * 30 + "c", 5) == "a b…", "more may stand behind the blanks"
    assert shorten("ab   cdef", 4) == "ab…"
    assert shorten("a" * 20, 5) == "aaaa…"
    assert shorten("a" + " " * 18 + "b", 5) == "a b"


def test_words_behind_many_blanks_are_not_left_out_without_a_word() -> None:
    assert shorten("a" + " " * 38 + "b", 10) == "a b"
    assert shorten("a" + " " * 40 + "b", 10) == "a…"


def test_a_mark_without_its_letter_is_left_out_and_nothing_behind_it() -> None:
    text = "x" * 900 + "\u0301" + "y" * 99
    assert middle_out(text, 300).endswith("]\n" + "y" * 99)
    assert middle_out(text, 300).count("y") == 99


def test_the_middle_is_left_out_and_it_is_said_how_much() -> None:
    text = "".join(chr(ord("a") + n % 26) for n in range(3000))
    assert middle_out(text, 3000) == text
    cut = middle_out(text, 300)
    head, told, tail = cut.split("\n")
    assert (len(head), len(tail)) == (199, 100)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert told == f"[… {3000 - 299:,} characters left out …]"


@given(st.lists(st.sampled_from(WHOLE), min_size=50, max_size=120), st.integers(20, 49))
def test_no_character_is_parted_by_leaving_out_the_middle(parts: list[str], limit: int) -> None:
    text = "".join(parts)
    head, told, tail = middle_out(text, limit).split("\n")
    whole = list(characters(text))
    begun = list(characters(head))
    assert begun == whole[: len(begun)], "the beginning ends with a whole character"
    assert len(head) + len(tail) <= limit
    assert text.endswith(tail)
    left_out = int(told.split()[1].replace(",", ""))
    assert len(head) + len(tail) + left_out == len(text)
    assert not tail or tail[0] not in "\u0301\u093e\u20dd\u200d\u200c"
