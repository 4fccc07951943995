"""Messages of Chat Completions: what is read, what is written, what stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_strategies import objects, texts

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
from clew.messages.openai_chat import read as reader
from clew.messages.openai_chat import rules
from clew.messages.openai_chat.write import Writer

CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}

PDF = "data:application/pdf;base64,aGk="


def write(*messages: Message) -> list[Any]:
    return Writer().write(messages).messages


def test_a_completion_is_read_as_its_first_choice() -> None:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-5",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "logprobs": None,
                "message": {
                    "role": "assistant",
                    "content": "Let me see.",
                    "refusal": None,
                    "annotations": [],
                    "tool_calls": [CALL],
                },
            },
            {"index": 1, "message": {"role": "assistant", "content": "another"}},
        ],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 60},
            "completion_tokens_details": {"reasoning_tokens": 8},
        },
    }
    (message,) = reader.read(body)
    assert message.model == "gpt-5"
    assert message.usage == Usage(
        input_tokens=40, output_tokens=20, cache_read_tokens=60, reasoning_tokens=8
    )
    assert write(message) == [{"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}]


def test_calls_have_parsed_arguments() -> None:
    other = {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}}
    broken = {"id": "call_3", "type": "function", "function": {"name": "h", "arguments": '{"a": '}}
    free = {"id": "call_4", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    body = {"role": "assistant", "content": None, "tool_calls": [CALL, other, broken, free]}
    (message,) = reader.read(body)
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    assert [(call.arguments, call.unparsed) for call in calls] == [
        ({"a": 1}, None),
        ({}, None),
        (None, '{"a": '),
        ({"input": "*** Begin"}, None),
    ]
    assert write(message) == [body], "in its own format text that is not JSON is sent as it was"


def test_arguments_that_were_stored_as_an_object_are_sent_as_text() -> None:
    """Some servers that speak this format give them so; a request has them as text."""
    stored = {**CALL, "function": {**CALL["function"], "arguments": {"a": 1}}}
    (message,) = reader.read({"role": "assistant", "content": None, "tool_calls": [stored]})
    (sent,) = write(message)[0]["tool_calls"]
    assert sent == {**CALL, "function": {**CALL["function"], "arguments": '{"a":1}'}}


def test_a_result_is_a_message() -> None:
    body = {"role": "tool", "tool_call_id": "call_1", "content": "42", "name": "f"}
    (message,) = reader.read(body)
    assert message.role == "tool"
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    assert (result.call, result.name) == ("call_1", "f")
    assert write(message) == [body]


def test_calls_before_tools_had_ids_are_paired_by_name() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    result = {"role": "function", "name": "f", "content": "42"}
    thread = [*reader.read(call), *reader.read(result)]
    written = write(Message(role="user", parts=(Text("go"),)), *thread)
    assert rules.validate(written) == []
    assert written[2] == {"role": "tool", "tool_call_id": "call_f", "content": "42"}


def test_what_other_servers_call_reasoning_is_read_but_not_sent() -> None:
    body = {"role": "assistant", "reasoning_content": "Hm", "content": "So"}
    (message,) = reader.read(body)
    assert isinstance(message.parts[0], Thinking)
    written = Writer().write([message])
    assert written.messages == [{"role": "assistant", "content": "So"}]
    assert [loss.code for loss in written.losses] == ["thinking_dropped"]


def test_a_refusal_is_what_the_assistant_said() -> None:
    body = {"role": "assistant", "content": None, "refusal": "I cannot."}
    (message,) = reader.read(body)
    block = {"type": "refusal", "refusal": "I cannot."}
    assert write(message) == [{"role": "assistant", "content": [block]}]


def test_a_spoken_answer_is_its_transcript() -> None:
    audio = {"id": "audio_1", "data": "aGk=", "transcript": "Hello"}
    (message,) = reader.read({"role": "assistant", "content": None, "audio": audio})
    assert write(message) == [{"role": "assistant", "content": "Hello"}]


def test_content_of_a_user() -> None:
    blocks = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}},
    ]
    (message,) = reader.read({"role": "user", "content": blocks, "name": "ann"})
    assert [
        (part.kind, part.mime, part.data, part.url, part.file_id)
        for part in message.parts
        if isinstance(part, Media)
    ] == [
        ("image", "image/png", "aGk=", None, None),
        ("image", None, None, "https://example.org/a.png", None),
        ("audio", "audio/mpeg", "aGk=", None, None),
        ("file", "application/pdf", "aGk=", None, None),
        ("file", None, None, None, "file-1"),
    ]
    assert isinstance(message.parts[-1], Other)
    assert write(message) == [{"role": "user", "content": blocks, "name": "ann"}]


def test_data_that_is_not_base64_is_read_all_the_same() -> None:
    block = {"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg/%3E"}}
    (message,) = reader.read({"role": "user", "content": [block]})
    (image,) = message.parts
    assert isinstance(image, Media)
    assert (image.mime, image.data) == ("image/svg+xml", "PHN2Zy8+")


def test_system_messages_stay_in_place_and_keep_their_role() -> None:
    thread = [
        *reader.read({"role": "developer", "content": "Rules"}),
        *reader.read({"role": "user", "content": "Hi"}),
        *reader.read({"role": "system", "content": [{"type": "text", "text": "More"}]}),
    ]
    assert write(*thread) == [
        {"role": "developer", "content": "Rules"},
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": [{"type": "text", "text": "More"}]},
    ]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (ToolResult("c"), ""),
        (ToolResult("c", (Text("one"), Text("two"))), "one\ntwo"),
        (ToolResult("c", (Text("no such file"),), is_error=True), "Error: no such file"),
        (ToolResult("c", (Text("ERROR 7"),), is_error=True), "ERROR 7"),
        (ToolResult("c", is_error=True), "Error: [no output]"),
        (
            ToolResult("c", (Text("see"), Media(kind="image", mime="image/png", data="aGk="))),
            "see\n[image left out: image/png]",
        ),
    ],
)
def test_results_are_text(result: ToolResult, content: str) -> None:
    written = write(Message(role="tool", parts=(result,)))
    assert written == [{"role": "tool", "tool_call_id": "c", "content": content}]


def test_an_image_in_a_result_is_left_out_even_if_it_was_stored_so() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    body = {"role": "tool", "tool_call_id": "c", "content": [image]}
    written = Writer().write(reader.read(body))
    assert written.messages[0]["content"] == "[image left out: image/png]"
    assert [loss.code for loss in written.losses] == ["media_dropped"]


def test_ids_that_are_too_long_change_in_call_and_result_alike() -> None:
    long = "toolu_" + "x" * 60
    written = Writer().write(
        [
            Message(role="user", parts=(Text("go"),)),
            Message(role="assistant", parts=(ToolCall(long, "a.b", {}),)),
            Message(role="tool", parts=(ToolResult(long, (Text("ok"),)),)),
        ]
    )
    call = written.messages[1]["tool_calls"][0]
    assert len(call["id"]) <= 40
    assert written.messages[2]["tool_call_id"] == call["id"]
    assert call["function"]["name"] == "a_b"
    assert [loss.code for loss in written.losses] == ["id_changed", "name_changed"]


# --- the round trip -------------------------------------------------------------------------

fields = objects.map(lambda found: {f"x_{key}": value for key, value in found.items()})
TEXT = st.builds(lambda text, more: {"type": "text", "text": text, **more}, texts, fields)
NEW = st.builds(lambda more: {"type": "something_new", **more}, fields)
IMAGE = st.builds(
    lambda more: {"type": "image_url", "image_url": {"url": "https://example.org", **more}}, fields
)
CALLS = st.builds(
    lambda id, arguments, more: {
        "id": id,
        "type": "function",
        "function": {"name": "f", "arguments": arguments, **more},
        **more,
    },
    st.from_regex(r"call_[a-zA-Z0-9]{1,20}", fullmatch=True),
    texts,
    fields,
)


@given(st.lists(TEXT | IMAGE | NEW, min_size=1, max_size=4))
def test_blocks_of_a_user_survive(blocks: list[Any]) -> None:
    body = {"role": "user", "content": blocks}
    assert write(*reader.read(body)) == [body]


@given(st.lists(TEXT, max_size=3), st.lists(CALLS, min_size=1, max_size=3))
def test_calls_survive(blocks: list[Any], calls: list[Any]) -> None:
    body = {"role": "assistant", "content": blocks or None, "tool_calls": calls}
    assert write(*reader.read(body)) == [body]
