"""Events of ADK, read without ADK: as it stores them, as its servers send them, and damaged."""

from __future__ import annotations

from typing import Any

import pytest

import clew
from clew import messages
from clew.messages.incoming import kind_for
from clew.messages.neutral import Media, Text, Thinking, ToolCall, ToolResult


def event(*parts: Any, author: str = "guide", role: str | None = "model", **more: Any) -> Any:
    content = {"parts": list(parts)} | ({} if role is None else {"role": role})
    return {"id": "e", "author": author, "timestamp": 1.5, "content": content, **more}


def test_a_reply_has_its_parts_its_model_and_its_tokens() -> None:
    body = event(
        {"text": "Hm.", "thought": True},
        {"text": "I look."},
        {"function_call": {"id": "c1", "name": "look_up", "args": {"city": "Rome"}}},
        model_version="gemini-3",
        usage_metadata={
            "prompt_token_count": 10,
            "cached_content_token_count": 4,
            "candidates_token_count": 3,
            "thoughts_token_count": 2,
        },
    )
    (message,) = messages.read("adk", body)
    assert message.role == "assistant"
    assert [type(part) for part in message.parts] == [Thinking, Text, ToolCall]
    assert message.model == "gemini-3"
    assert message.usage is not None
    assert (message.usage.input_tokens, message.usage.cache_read_tokens) == (6, 4)
    assert (message.usage.output_tokens, message.usage.reasoning_tokens) == (5, 2)
    assert kind_for(body, "adk") == "tool_call"


def test_the_names_of_its_servers_are_read_as_well() -> None:
    body = event(
        {"functionCall": {"id": "c1", "name": "look_up", "args": {}}},
        modelVersion="gemini-3",
        usageMetadata={"promptTokenCount": 10, "candidatesTokenCount": 3},
    )
    (message,) = messages.read("adk", body)
    assert isinstance(message.parts[0], ToolCall)
    assert message.model == "gemini-3"
    assert message.usage is not None
    assert message.usage.input_tokens == 10


def test_results_are_a_message_of_the_tool() -> None:
    body = event(
        {"function_response": {"id": "c1", "name": "look_up", "response": {"result": "Italy"}}},
        role="user",
    )
    (message,) = messages.read("adk", body)
    assert message.role == "tool"
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    assert (result.call, result.name) == ("c1", "look_up")
    assert kind_for(body, "adk") == "tool_result"


@pytest.mark.parametrize(("author", "role"), [("user", "user"), ("guide", "assistant")])
def test_without_a_role_the_author_tells(author: str, role: str) -> None:
    (message,) = messages.read("adk", event({"text": "Hello"}, author=author, role=None))
    assert message.role == role


@pytest.mark.parametrize("content", [None, {}, {"parts": None}, {"parts": [], "role": "model"}])
def test_an_event_without_parts_says_nothing(content: Any) -> None:
    body = {"id": "e", "author": "user", "actions": {"state_delta": {"a": 1}}, "content": content}
    assert messages.read("adk", body) == []
    with pytest.raises(clew.InvalidInput):
        kind_for(body, "adk")


def test_data_in_the_alphabet_for_addresses_can_be_sent_to_every_provider() -> None:
    picture = {"inline_data": {"data": "__77", "mime_type": "image/png"}}
    found = messages.read("adk", event({"text": "Look"}, picture, author="user", role="user"))
    assert isinstance(found[0].parts[1], Media)
    for format in ("anthropic", "openai-chat", "openai-responses", "gemini"):
        written = messages.write(format, found)
        assert "//77" in str(written.messages) or format == "gemini"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ("text", "$"),
        ([], "$"),
        ({"content": "text"}, "$.content"),
        ({"content": {"role": "model", "parts": [5]}}, "$.content.parts[0]"),
        ({"content": {"role": "pilot", "parts": [{"text": "x"}]}}, "$.content.role"),
    ],
)
def test_what_is_no_event_is_refused_with_its_place(body: Any, path: str) -> None:
    with pytest.raises(clew.InvalidInput) as caught:
        messages.read("adk", body)
    assert caught.value.path == path
    assert messages.view("adk", body) == []


def test_no_request_is_written_in_it() -> None:
    with pytest.raises(clew.InvalidInput, match="only be read"):
        messages.write("adk", [])
