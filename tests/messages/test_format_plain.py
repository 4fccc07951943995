"""Plain messages: what is read, what is written, what stays as it was."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from message_strategies import objects, texts

from clew.messages import plain
from clew.messages.neutral import Media, Message, Other, Text, Thinking, ToolCall, ToolResult


def write(*messages: Message) -> list[Any]:
    return plain.Writer().write(messages).messages


def test_a_message_of_a_role_and_a_text() -> None:
    for role in ("user", "assistant", "system", "developer"):
        body = {"role": role, "content": "Hello"}
        (message,) = plain.read(body)
        assert message.role == ("system" if role == "developer" else role)
        assert message.parts[0].text == "Hello"  # type: ignore[attr-defined]
        assert write(message) == [body]


def test_calls_and_results() -> None:
    asked = {
        "role": "assistant",
        "content": None,
        "reasoning": "Hm",
        "tool_calls": [{"id": "1", "name": "f", "arguments": {"a": 1}}],
    }
    answered = {
        "role": "tool",
        "tool_call_id": "1",
        "name": "f",
        "content": "no",
        "is_error": True,
        "took_ms": 7,
    }
    (call,), (result,) = plain.read(asked), plain.read(answered)
    assert isinstance(call.parts[0], Thinking)
    assert call.parts[1] == ToolCall(
        "1", "f", {"a": 1}, format="plain", raw=asked["tool_calls"][0]  # type: ignore[index]
    )  # fmt: skip
    (part,) = result.parts
    assert isinstance(part, ToolResult)
    assert (part.call, part.name, part.is_error) == ("1", "f", True)
    assert write(call, result) == [asked, answered]


def test_calls_in_other_forms() -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"name": "g", "args": {"b": 2}},
        {"id": "3", "name": "h", "arguments": "{"},
        {"id": "4", "name": "i"},
    ]
    (message,) = plain.read({"role": "assistant", "tool_calls": calls})
    found = [part for part in message.parts if isinstance(part, ToolCall)]
    assert [(part.id, part.name, part.arguments, part.unparsed) for part in found] == [
        ("1", "f", {"a": 1}, None),
        ("call_g_1", "g", {"b": 2}, None),
        ("3", "h", None, "{"),
        ("4", "i", {}, None),
    ]


def test_blocks() -> None:
    blocks = [
        {"type": "text", "text": "See"},
        {"text": "also"},
        {"type": "image", "mime": "image/png", "data": "aGk="},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "audio", "url": "https://example.org/a.wav"},
        {"type": "chart", "points": [1, 2]},
        {"type": "image", "nothing": "here"},
    ]
    (message,) = plain.read({"role": "user", "content": blocks})
    kinds = [type(part) for part in message.parts]
    assert kinds == [Text, Text, Media, Media, Media, Other, Other]
    assert write(message) == [{"role": "user", "content": blocks}]


def test_texts_in_place_of_blocks() -> None:
    (message,) = plain.read({"role": "user", "content": ["a", "b"]})
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert write(message) == [{"role": "user", "content": blocks}]


def test_the_content_of_one_text_is_a_text() -> None:
    message = Message(role="assistant", parts=(Text("ab"), ToolCall("1", "f", {})))
    assert write(message) == [
        {
            "role": "assistant",
            "content": "ab",
            "tool_calls": [{"id": "1", "name": "f", "arguments": {}}],
        }
    ]


def test_thinking_of_any_provider_is_kept_as_text() -> None:
    message = Message(
        role="assistant",
        parts=(
            Thinking("one", "sig", format="anthropic", raw={}),
            Thinking("", "data", format="anthropic", raw={}),
            Thinking("two"),
        ),
    )
    written = plain.Writer().write([message])
    assert written.messages == [{"role": "assistant", "content": None, "reasoning": "one\n\ntwo"}]
    assert [loss.code for loss in written.losses] == ["signature_dropped", "thinking_dropped"]


def test_thoughts_that_are_hidden_leave_no_empty_reasoning() -> None:
    hidden = Thinking("", "c2VjcmV0", format="anthropic", raw={"type": "redacted_thinking"})
    written = plain.Writer().write([Message(role="assistant", parts=(hidden, Text("So.")))])
    assert written.messages == [{"role": "assistant", "content": "So."}]
    assert [loss.code for loss in written.losses] == ["thinking_dropped"]


def test_media_of_any_provider_is_kept() -> None:
    image = Media(kind="image", mime="image/png", data="aGk=", format="gemini", raw={})
    written = plain.Writer().write([Message(role="user", parts=(Text("See"), image))])
    assert written.losses == ()
    assert written.messages[0]["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image", "mime": "image/png", "data": "aGk="},
    ]


def test_a_user_message_of_nothing_that_is_known_still_stands() -> None:
    other = Other(format="gemini", raw={"executableCode": {}})
    written = plain.Writer().write([Message(role="user", parts=(other,))])
    assert written.messages == [{"role": "user", "content": "[content left out]"}]
    assert [loss.code for loss in written.losses] == ["block_dropped"]


# --- the round trip -------------------------------------------------------------------------

fields = objects.map(lambda found: {f"x_{key}": value for key, value in found.items()})
BLOCKS = st.builds(lambda text, more: {"type": "text", "text": text, **more}, texts, fields) | (
    st.builds(lambda more: {"type": "something_new", **more}, fields)
)
CONTENT = texts | st.lists(BLOCKS, min_size=1, max_size=3)
CALLS = st.lists(
    st.builds(
        lambda arguments, more: {"id": "1", "name": "f", "arguments": arguments, **more},
        objects,
        fields,
    ),
    min_size=1,
    max_size=2,
)


@given(st.sampled_from(["user", "system", "developer"]), CONTENT, fields)
def test_messages_survive_with_all_their_fields(role: str, content: Any, more: Any) -> None:
    body = {"role": role, "content": content, **more}
    assert write(*plain.read(body)) == [body]


@given(CONTENT | st.none(), texts, CALLS, fields)
def test_calls_survive(content: Any, reasoning: str, calls: Any, more: Any) -> None:
    body = {
        "role": "assistant",
        "content": content,
        "reasoning": reasoning,
        "tool_calls": calls,
        **more,
    }
    assert write(*plain.read(body)) == [body]


@given(CONTENT | st.just(""), fields)
def test_results_survive(content: Any, more: Any) -> None:
    body = {"role": "tool", "tool_call_id": "1", "content": content, **more}
    assert write(*plain.read(body)) == [body]
