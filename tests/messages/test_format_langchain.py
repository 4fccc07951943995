"""LangChain's messages: what is read, what is written, what stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from amounts import amount
from hypothesis import given, settings
from hypothesis import strategies as st
from message_strategies import dialogues, pairs, read_all, said, text_of_result

from clew import messages
from clew.core.errors import InvalidInput
from clew.messages import langchain
from clew.messages.neutral import (
    Media,
    Message,
    Other,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)

NAME = "langchain"
Dialogue = list[Message]


def one(body: Any) -> Message:
    (found,) = langchain.read(body)
    return found


# --- reading --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "role"),
    [
        ("human", "user"),
        ("ai", "assistant"),
        ("system", "system"),
        ("AIMessageChunk", "assistant"),
        ("HumanMessageChunk", "user"),
    ],
)
def test_types_are_roles(type: str, role: str) -> None:
    for body in ({"type": type, "content": "x"}, {"type": type, "data": {"content": "x"}}):
        assert (one(body).role, one(body).parts[0].text) == (role, "x")  # type: ignore[attr-defined]


def test_a_chat_message_speaks_by_its_role() -> None:
    assert one({"type": "chat", "role": "assistant", "content": "x"}).role == "assistant"
    assert one({"type": "chat", "role": "critic", "content": "x"}).role == "user"


def test_calls_of_an_ai_message() -> None:
    body = {
        "type": "ai",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},  # as Anthropic has it
        ],
        "tool_calls": [{"id": "1", "name": "f", "args": {"a": 1}, "type": "tool_call"}],
        "invalid_tool_calls": [{"id": "2", "name": "g", "args": "{", "error": "cut"}],
    }
    text, call, cut = one(body).parts
    assert isinstance(text, Text)
    assert isinstance(call, ToolCall)
    assert (call.id, call.name, call.arguments) == ("1", "f", {"a": 1})
    assert isinstance(cut, ToolCall)
    assert (cut.id, cut.unparsed) == ("2", "{")


def test_calls_that_stand_in_the_content_alone() -> None:
    body = {"type": "ai", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}
    (call,) = one(body).parts
    assert isinstance(call, ToolCall)


def test_results() -> None:
    (part,) = one({"type": "tool", "content": "no", "tool_call_id": "1", "status": "error"}).parts
    assert isinstance(part, ToolResult)
    assert (part.call, part.is_error) == ("1", True)
    (part,) = one({"type": "function", "content": "no", "name": "f"}).parts
    assert isinstance(part, ToolResult)
    assert part.name == "f"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "image", "url": "https://x"}, {"kind": "image", "url": "https://x"}),
        (
            {"type": "image", "base64": "AA==", "mime_type": "image/png"},
            {"kind": "image", "data": "AA==", "mime": "image/png"},
        ),
        (
            {"type": "image", "source_type": "base64", "data": "AA==", "mime_type": "image/png"},
            {"kind": "image", "data": "AA=="},
        ),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}},
            {"kind": "image", "mime": "image/png", "data": "A"},
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            {"kind": "image", "data": "AA=="},
        ),
        ({"type": "image_url", "image_url": "https://x"}, {"kind": "image", "url": "https://x"}),
        ({"type": "file", "file_id": "f"}, {"kind": "file", "file_id": "f"}),
        ({"type": "file", "file": {"file_id": "f"}}, {"kind": "file", "file_id": "f"}),
        (
            {"type": "file", "file": {"filename": "a", "file_data": "data:x/y;base64,AA=="}},
            {"kind": "file", "mime": "x/y", "data": "AA==", "name": "a"},
        ),
        (
            {"type": "media", "data": "AA==", "mime_type": "audio/wav"},
            {"kind": "audio", "data": "AA=="},
        ),
    ],
)
def test_media_in_every_spelling(block: Any, expected: dict[str, str]) -> None:
    (part,) = one({"type": "human", "content": [block]}).parts
    assert isinstance(part, Media)
    assert {key: getattr(part, key) for key in expected} == expected


def test_thinking_in_every_spelling() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "reasoning", "reasoning": "hm"},
    ]
    for block in blocks:
        (part,) = one({"type": "ai", "content": [block]}).parts
        assert isinstance(part, Thinking)
        assert part.text == "hm"
    body = {"type": "ai", "content": "so", "additional_kwargs": {"reasoning_content": "hm"}}
    assert isinstance(one(body).parts[0], Thinking)


def test_reasoning_beside_the_content_goes_along_with_what_it_lies_in() -> None:
    body = {"type": "ai", "content": "x", "additional_kwargs": {"reasoning_content": "Hm"}}
    found = one(body)
    assert [type(part) for part in found.parts] == [Thinking, Text]
    written = messages.write(NAME, [found])
    assert written.messages == [body]
    assert written.losses == ()


def test_a_text_among_the_blocks_is_a_text() -> None:
    body = {"type": "human", "content": ["See", {"type": "text", "text": "this"}]}
    assert [part.text for part in one(body).parts if isinstance(part, Text)] == ["See", "this"]
    assert messages.validate(NAME, [body]) == []


def test_a_message_within_its_data_tells_of_its_call() -> None:
    data = {"content": "x", "usage_metadata": {"input_tokens": 3}, "id": "r1"}
    told = messages.teller(NAME)({"type": "ai", "data": data})
    assert (told.usage, told.id) == ({"input_tokens": 3}, "r1")


def test_other_blocks_are_kept() -> None:
    (part,) = one({"type": "ai", "content": [{"type": "server_tool_call", "x": 1}]}).parts
    assert isinstance(part, Other)


def test_usage_counts_the_cache_apart() -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_token_details": {"cache_read": 3, "cache_creation": 2},
        "output_token_details": {"reasoning": 1},
    }
    body = {"type": "ai", "content": "x", "usage_metadata": usage}
    message = one({**body, "response_metadata": {"model_name": "m"}})
    assert message.model == "m"
    assert message.usage == Usage(
        input_tokens=5,
        output_tokens=5,
        cache_read_tokens=3,
        cache_write_tokens=2,
        reasoning_tokens=1,
    )


@pytest.mark.parametrize(
    "body",
    [
        5,
        [],
        {},
        {"type": "remove", "content": "", "id": "1"},
        {"type": 5},
        {"type": [], "content": "x"},
        {"type": "human", "content": 5},
        {"type": "human", "content": [5]},
        {"type": "human", "content": [{"type": "text"}]},
        {"type": "tool", "content": "x", "tool_call_id": ""},
        {"type": "ai", "content": "", "tool_calls": [5]},
        {"type": "ai", "content": "", "tool_calls": 5},
    ],
)
def test_what_is_no_message_is_refused(body: Any) -> None:
    with pytest.raises(InvalidInput):
        langchain.read(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
_FIELDS = st.sampled_from(
    "type content tool_calls invalid_tool_calls tool_call_id name status usage_metadata".split()
)
_BLOCK = st.dictionaries(
    st.sampled_from("type text image_url source url base64 args id name input file".split()),
    json_values | st.sampled_from(["text", "image", "image_url", "tool_use", "file", "thinking"]),
)


@given(
    st.dictionaries(_FIELDS, json_values | st.lists(_BLOCK, max_size=2)),
    st.sampled_from(["human", "ai", "tool", "chat"]) | json_values,
)
@settings(max_examples=amount(100, 300))
def test_damage_is_refused_or_read_and_then_written(fields: Any, type: Any) -> None:
    body = {**fields, "type": type}
    messages.validate(NAME, [body])
    try:
        found = langchain.read(body)
    except InvalidInput:
        return
    for target in (*messages.FORMATS, NAME):
        messages.write(target, found)


# --- writing --------------------------------------------------------------------------------


@given(dialogue=dialogues())
@settings(max_examples=amount(20, 60))
def test_what_is_written_breaks_no_rule_and_is_written_so_again(dialogue: Dialogue) -> None:
    written = messages.write(NAME, dialogue)
    assert messages.validate(NAME, written.messages) == []
    again = messages.write(NAME, read_all(NAME, written.messages))
    assert again.messages == written.messages
    assert again.losses == ()


@given(dialogue=dialogues())
@settings(max_examples=amount(20, 60))
def test_a_thread_goes_on_at_every_provider(dialogue: Dialogue) -> None:
    stored = read_all(NAME, messages.write(NAME, dialogue).messages)
    for format in messages.FORMATS:
        written = messages.write(format, stored)
        assert messages.validate(format, written.messages) == []
        back = messages.write(NAME, read_all(format, written.messages))
        assert messages.validate(NAME, back.messages) == []


@given(dialogue=dialogues())
@settings(max_examples=amount(20, 60))
def test_texts_calls_and_results_come_back(dialogue: Dialogue) -> None:
    back = read_all(NAME, messages.write(NAME, dialogue).messages)
    for role in ("user", "assistant", "system"):
        assert "".join(said(back, role)) == "".join(said(dialogue, role))
    for (_, result), (_, result_back) in zip(pairs(dialogue), pairs(back), strict=True):
        assert text_of_result(result_back) == text_of_result(result)


def test_the_rules() -> None:
    for broken, rule in [
        ([], "empty"),
        ([{"type": "robot", "content": "x"}], "type"),
        ([{"type": "ai", "content": "", "tool_calls": [{"id": "1", "name": "f", "args": {}}]}],
         "unanswered_call"),
        ([{"type": "tool", "content": "x", "tool_call_id": "1"}], "orphan_result"),
        ([{"type": "human", "content": [5]}], "shape"),
    ]:  # fmt: skip
        assert rule in {violation.rule for violation in messages.validate(NAME, broken)}
