"""What is given to be stored: objects of SDKs, messages without a format, malformed ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from amounts import amount
from hypothesis import given, settings
from hypothesis import strategies as st
from message_strategies import json_values

from clew import messages
from clew.core.errors import InvalidInput
from clew.messages.neutral import Message
from clew.messages.sdk_objects import as_sent

# --- formats --------------------------------------------------------------------------------


def test_an_unknown_format_is_refused_with_the_names_that_there_are() -> None:
    for call in (
        lambda: messages.read("cohere", {}),
        lambda: messages.write("cohere", []),
        lambda: messages.validate("cohere", []),
        lambda: messages.check_format("cohere"),
    ):
        with pytest.raises(InvalidInput, match="anthropic, openai-chat") as caught:
            call()
        assert caught.value.field == "format"


def test_formats_are_loaded_when_they_are_asked_for() -> None:
    script = (
        "import sys, clew.messages as m\n"
        "m.read('plain', {'role': 'user', 'content': 'x'})\n"
        "names = [f'clew.messages.{n}' for n in ('anthropic', 'gemini', 'openai_chat')]\n"
        "print([name for name in names if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_format_has_its_name() -> None:
    for name in messages.FORMATS:
        assert name == messages._part(name, "read").NAME


# --- bodies of each format, used below ------------------------------------------------------

TEXT_IN = {"type": "input_text", "text": "x"}
BLOB = {"inlineData": {"mimeType": "a/b", "data": "x"}}
F_RESULT = {"functionResponse": {"name": "f", "response": {"output": "x"}}}
CHAT_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BODIES: dict[str, list[Any]] = {
    "anthropic": [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x"}]},
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "a/b", "data": "x"}},
                {"type": "document", "source": {"type": "text", "data": "x"}},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "text", "text": "x"},
                {"type": "thinking", "thinking": "x", "signature": "y"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
            ],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens_details": {"thinking_tokens": 1}},
        },
        {"type": "message", "role": "assistant", "content": []},
    ],
    "openai-chat": [
        {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "function", "name": "f", "content": "x"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "x"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
                {"type": "file", "file": {"file_id": "x"}},
            ],
        },
        {
            "choices": [{"message": {"role": "assistant", "content": "x"}}],
            "usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}},
        },
    ],
    "openai-responses": [
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": [TEXT_IN]},
        {"type": "custom_tool_call", "call_id": "1", "name": "f", "input": "x"},
        {"type": "computer_call", "call_id": "1", "action": {"type": "wait"}},
        {"type": "computer_call_output", "call_id": "1", "output": {"image_url": "https://x"}},
        {"type": "shell_call_output", "call_id": "1", "output": [{"stdout": "x"}]},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]},
        {"type": "message", "role": "user", "content": "x"},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "x"},
                {"type": "input_image", "image_url": "https://x"},
                {"type": "input_file", "filename": "a", "file_data": "data:a/b;base64,x"},
            ],
        },
        [{"role": "user", "content": "x"}, {"type": "reasoning", "summary": []}],
        {"object": "response", "output": [{"type": "reasoning", "summary": []}], "usage": {}},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "x"}, BLOB]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]},
        {"role": "user", "parts": [F_RESULT]},
        {"role": "model", "parts": [{"text": "x", "thought": True, "thoughtSignature": "x"}]},
        {"role": "user", "parts": [{"fileData": {"fileUri": "gs://x"}}]},
        {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "x"}]}}],
            "usageMetadata": {"promptTokenCount": 1},
        },
    ],
    "plain": [
        {"role": "user", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "name": "f"}]},
        {"role": "tool", "tool_call_id": "1", "content": "x", "is_error": True},
        {"role": "developer", "content": "x", "reasoning": "y"},
        {"role": "user", "content": [{"type": "image", "mime": "image/png", "data": "x"}]},
    ],
}
CASES = [(format, body) for format, bodies in BODIES.items() for body in bodies]


@pytest.mark.parametrize(("format", "body"), CASES)
def test_a_format_is_known_by_its_shape(format: str, body: Any) -> None:
    assert messages.detect(body) == format
    assert messages.read(format, body)


@given(json_values)
def test_whatever_has_no_shape_is_plain(value: Any) -> None:
    assert messages.detect(value) == "plain"


# --- malformed bodies -----------------------------------------------------------------------


def said(block: Any) -> Any:
    return {"role": "user", "content": [block]}


MALFORMED: list[tuple[str, Any, str]] = [
    ("anthropic", {"content": "x"}, "$.role"),
    ("anthropic", {"role": "tool", "content": "x"}, "$.role"),
    ("anthropic", {"role": "user"}, "$.content"),
    ("anthropic", {"role": "user", "content": ["x"]}, "$.content[0]"),
    ("anthropic", {"role": "user", "content": [{"type": "text", "text": 1}]}, "$.content[0].text"),
    ("anthropic", {"role": "user", "content": [{"type": ["text"]}]}, "$.content[0].type"),
    ("anthropic", said({"type": "tool_use", "id": "", "name": "f"}), "$.content[0].id"),
    ("anthropic", said({"type": "image", "source": {"type": "url"}}), "$.content[0].source.url"),
    (
        "anthropic",
        said({"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text"}]}),
        "$.content[0].content[0].text",
    ),
    ("openai-chat", {"role": "user", "content": {"type": "text"}}, "$.content"),
    ("openai-chat", {"role": "tool", "content": "x"}, "$.tool_call_id"),
    ("openai-chat", {"role": "assistant", "tool_calls": [{"id": "1"}]}, "$.tool_calls[0].function"),
    ("openai-chat", {"choices": []}, "$.choices"),
    ("openai-chat", {"choices": [{"message": {"role": "nobody"}}]}, "$.choices[0].message.role"),
    ("openai-responses", "x", "$"),
    ("openai-responses", {"type": 7}, "$.type"),
    ("openai-responses", {"type": "function_call", "name": "f"}, "$.call_id"),
    ("openai-responses", [{"type": "reasoning"}, 7], "$[1]"),
    ("openai-responses", {"output": [{"type": "function_call"}]}, "$.output[0].call_id"),
    ("gemini", {"parts": []}, "$.role"),
    ("gemini", {"role": "user", "parts": "x"}, "$.parts"),
    ("gemini", {"role": "user", "parts": [{}]}, "$.parts[0]"),
    ("gemini", {"role": "user", "parts": [["text"]]}, "$.parts[0]"),
    ("gemini", {"role": "model", "parts": [{"functionCall": {}}]}, "$.parts[0].functionCall.name"),
    ("gemini", {"candidates": []}, "$.candidates"),
    ("plain", {"content": "x"}, "$.role"),
    ("plain", ["x"], "$"),
    ("plain", {"role": "user", "content": [7]}, "$.content[0]"),
    ("plain", {"role": "tool", "content": "x"}, "$.tool_call_id"),
    ("plain", {"role": "assistant", "tool_calls": [{"id": "1"}]}, "$.tool_calls[0].name"),
]


@pytest.mark.parametrize(("format", "body", "path"), MALFORMED)
def test_a_malformed_message_is_refused_with_its_place(format: str, body: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        messages.read(format, body)
    assert (caught.value.field, caught.value.path) == ("message", path)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*path, index))


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {k: _with(v, path[1:], new) if k == path[0] else v for k, v in value.items()}
    return [_with(v, path[1:], new) if i == path[0] else v for i, v in enumerate(value)]


@st.composite
def damaged(draw: Any) -> tuple[str, Any]:
    """A body with a value somewhere inside replaced by any other."""
    format, body = draw(st.sampled_from(CASES))
    for _ in range(draw(st.integers(1, 2))):
        body = _with(body, draw(st.sampled_from(list(_places(body)))), draw(json_values))
    return format, body


@given(damaged() | st.tuples(st.sampled_from(messages.FORMATS), json_values))
@settings(max_examples=amount(133, 400))
def test_damage_is_refused_or_read_and_then_written(given: tuple[str, Any]) -> None:
    format, body = given
    try:
        found = messages.read(format, body)
    except InvalidInput:
        return
    assert all(isinstance(message, Message) for message in found)
    for target in messages.FORMATS:
        messages.write(target, found)


@given(st.lists(damaged().map(lambda found: found[1]) | json_values, max_size=3))
def test_a_judge_copes_with_anything(given: list[Any]) -> None:
    for format in messages.FORMATS:
        messages.validate(format, given)


# --- objects of SDKs ------------------------------------------------------------------------


class Model:
    """Stands in for a pydantic model: fields, some of them set, some with an alias."""

    def __init__(self, unset: dict[str, Any] | None = None, **fields: Any) -> None:
        self.fields = fields
        self.unset = unset or {}

    def model_dump(
        self, *, mode: str, by_alias: bool, exclude_unset: bool = False, exclude_none: bool = False
    ) -> dict[str, Any]:
        assert mode == "json"
        assert by_alias
        fields = self.fields if exclude_unset else self.unset | self.fields
        return {
            key: value
            for key, value in _dump(fields).items()
            if not (exclude_none and value is None)
        }


class SDKModel(Model):
    """Stands in for a model of the SDKs of Anthropic and OpenAI."""

    def to_dict(self) -> dict[str, Any]:
        raise AssertionError("model_dump says better what is wanted")


def _dump(value: Any) -> Any:
    if isinstance(value, Model):
        return _dump(value.fields)
    if isinstance(value, dict):
        return {key: _dump(inner) for key, inner in value.items()}
    return [_dump(inner) for inner in value] if isinstance(value, list) else value


def test_a_response_object_becomes_what_came_over_the_wire() -> None:
    block = SDKModel(type="text", text="Hi", citations=None)
    response = SDKModel(
        {"container": None}, id="msg_1", type="message", role="assistant", content=[block]
    )
    body = messages.as_body(response)
    assert body == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi", "citations": None}],
    }
    assert messages.detect(body) == "anthropic"


def test_objects_inside_of_a_message_are_converted_too() -> None:
    block = SDKModel(type="tool_use", id="t", name="f", input={})
    assert messages.as_body({"role": "assistant", "content": [block]}) == {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
    }
    assert messages.as_body([block, {"type": "reasoning"}])[0]["name"] == "f"
    assert messages.as_body((1, "a")) == [1, "a"]


def test_what_the_sdk_has_parsed_is_not_part_of_what_was_sent() -> None:
    call = {"function": {"name": "f", "arguments": "{}", "parsed_arguments": {}}, "id": "c"}
    block = {"type": "text", "text": "{}", "parsed_output": {"a": 1}}
    said = {"role": "assistant", "content": [block], "tool_calls": [call], "parsed": {"a": 1}}
    chat = as_sent(Model(choices=[{"message": Model(**said)}]))
    assert "parsed" not in str(chat)
    assert chat["choices"][0]["message"]["tool_calls"] == [
        {"function": {"name": "f", "arguments": "{}"}, "id": "c"}
    ]
    item = Model(type="message", content=[block])
    assert as_sent(Model(output=[item]))["output"][0]["content"] == [{"type": "text", "text": "{}"}]
    own = {"choices": [{"message": {"parsed": "mine"}}]}
    assert as_sent(own) is own, "what no SDK has read stays as it is"


def test_a_mapping_that_is_no_dict_becomes_one() -> None:
    body = messages.as_body({"role": "user", "content": MappingProxyType({"a": (1, 2)})})
    assert body == {"role": "user", "content": {"a": [1, 2]}}


def test_a_model_of_somebody_else_keeps_its_defaults() -> None:
    model = Model({"role": "user", "name": None}, content="Hi")
    assert messages.as_body(model) == {"role": "user", "content": "Hi"}


def test_an_object_with_nothing_but_to_dict() -> None:
    made = SimpleNamespace(to_dict=lambda: {"role": "user", "content": "Hi"})
    assert messages.as_body(made) == {"role": "user", "content": "Hi"}


def test_json_passes_through_as_it_is() -> None:
    for _, body in CASES:
        assert messages.as_body(body) is body


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", Model, SimpleNamespace(to_dict=str)])
def test_what_is_no_message_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="message"):
        messages.as_body(value)
    with pytest.raises(InvalidInput, match="message"):
        messages.as_body({"role": "user", "content": [value]})
