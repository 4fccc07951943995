"""Gemini's contents: what is read, what is written, what stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_strategies import objects, texts

from clew.messages.gemini import read as reader
from clew.messages.gemini import rules
from clew.messages.gemini.write import Writer
from clew.messages.neutral import (
    Media,
    Message,
    Other,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    results_of,
)

GO = Message(role="user", parts=(Text("go"),))


def write(*messages: Message) -> list[Any]:
    return Writer().write(messages).messages


def test_a_response_is_read_as_its_first_candidate() -> None:
    parts = [
        {"text": "Hm", "thought": True},
        {"text": "Let me see."},
        {"functionCall": {"id": "f1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "Cg=="},
        {"functionCall": {"name": "now"}},
        {"text": "", "thoughtSignature": "Cw=="},
    ]
    body = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 100,
            "cachedContentTokenCount": 60,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 5,
        },
        "modelVersion": "gemini-3-pro",
    }
    (message,) = reader.read(body)
    thought, text, call, unnamed, signature = message.parts
    assert isinstance(thought, Thinking)
    assert thought.text == "Hm"
    assert isinstance(text, Text)
    assert isinstance(call, ToolCall)
    assert (call.id, call.arguments) == ("f1", {"a": 1})
    assert isinstance(unnamed, ToolCall)
    assert (unnamed.id, unnamed.arguments) == ("call_now_0", {})
    assert isinstance(signature, Thinking)
    assert signature.signature == "Cw=="
    assert (message.role, message.model) == ("assistant", "gemini-3-pro")
    assert message.usage == Usage(
        input_tokens=40, output_tokens=25, cache_read_tokens=60, reasoning_tokens=5
    )
    assert write(message) == [{"role": "model", "parts": parts}]


def test_a_blocked_response_has_no_parts() -> None:
    (message,) = reader.read({"candidates": [{"finishReason": "SAFETY"}]})
    assert (message.role, message.parts) == ("assistant", ())


def test_calls_without_ids_pair_by_name_and_order() -> None:
    calls = [{"functionCall": {"name": n, "args": {}}} for n in ("f", "g", "f")]
    results = [
        {"functionResponse": {"name": n, "response": {"output": t}}}
        for n, t in (("f", "1"), ("f", "2"), ("g", "3"))
    ]
    (asked,) = reader.read({"role": "model", "parts": calls})
    (answered,) = reader.read({"role": "user", "parts": results})
    assert [part.id for part in asked.parts] == ["call_f_0", "call_g_0", "call_f_1"]  # type: ignore[attr-defined]
    assert [part.call for part in results_of(answered)] == ["call_f_0", "call_f_1", "call_g_0"]
    assert write(GO, asked, answered)[1:] == [
        {"role": "model", "parts": calls},
        {"role": "user", "parts": results},
    ]


@pytest.mark.parametrize(
    ("response", "text", "failed"),
    [
        ({"output": "42"}, "42", False),
        ({"result": "42"}, "42", False),
        ({"error": "no"}, "no", True),
        ({"output": "42", "error": None}, '{"output":"42","error":null}', False),
        ({"temperature": 7}, '{"temperature":7}', False),
        ({"result": [1]}, "[1]", False),
        ({}, "", False),
        (None, "", False),
    ],
)
def test_what_a_function_answers(response: Any, text: str, failed: bool) -> None:
    part = {"functionResponse": {"id": "1", "name": "f", "response": response}}
    (message,) = reader.read({"role": "function", "parts": [part]})
    (result,) = results_of(message)
    assert "".join([inner.text for inner in result.content]) == text  # type: ignore[attr-defined]
    assert result.is_error is failed


def test_names_of_the_protocol_are_read_too() -> None:
    call = {"function_call": {"name": "f", "args": {}}, "thought_signature": "Cg=="}
    image = {"inline_data": {"mime_type": "image/png", "data": "aGk="}}
    (asked,) = reader.read({"role": "model", "parts": [call, image]})
    assert [type(part) for part in asked.parts] == [ToolCall, Media]
    result = {"function_response": {"name": "f", "response": {"output": "x"}}}
    (answered,) = reader.read({"role": "user", "parts": [result]})
    written = write(GO, asked, answered)
    assert written[1:] == [
        {"role": "model", "parts": [call, image]},
        {"role": "user", "parts": [result]},
    ]
    assert rules.validate(written) == []


def test_media() -> None:
    parts = [
        {"inlineData": {"mimeType": "image/png", "data": "aGk=", "displayName": "a.png"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "aGk="}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a.pdf"}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/a.mp4"}},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
    ]
    (message,) = reader.read({"role": "user", "parts": parts})
    image, sound, document, video, code = message.parts
    assert isinstance(image, Media)
    assert (image.kind, image.name) == ("image", "a.png")
    assert isinstance(sound, Media)
    assert sound.kind == "audio"
    assert isinstance(document, Media)
    assert document.url == "https://example.org/a.pdf"
    assert isinstance(video, Media)
    assert (video.url, video.file_id) == (None, "gs://bucket/a.mp4"), "nobody else can open it"
    assert isinstance(code, Other)
    assert write(message) == [{"role": "user", "parts": parts}]


def test_results_are_a_content_of_their_own() -> None:
    written = Writer().write(
        [
            Message(role="system", parts=(Text("Rules"),)),
            GO,
            Message(role="assistant", parts=(ToolCall("a", "f", {}), ToolCall("b", "f", {}))),
            Message(role="tool", parts=(ToolResult("a", (Text("1"),)), ToolResult("b"))),
            Message(role="user", parts=(Text("Well?"),)),
            Message(role="user", parts=(Text("Hurry."),)),
            Message(role="system", parts=(Text("More rules"),)),
        ]
    )
    assert written.system == {"parts": [{"text": "Rules"}, {"text": "More rules"}]}
    assert written.places == [None, 0, 1, 2, 3, 3, None]
    assert written.messages[2:] == [
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "a", "name": "f", "response": {"output": "1"}}},
                {"functionResponse": {"id": "b", "name": "f", "response": {"output": ""}}},
            ],
        },
        {"role": "user", "parts": [{"text": "Well?"}, {"text": "Hurry."}]},
    ]


def test_calls_of_another_model_say_that_they_have_no_signature() -> None:
    calls = (Thinking("Hm", "sig", format="anthropic"), ToolCall("a", "f", {}), ToolCall("b", "f"))
    written = Writer().write([GO, Message(role="assistant", parts=calls)])
    first, second = written.messages[1]["parts"]
    assert first["thoughtSignature"] == "skip_thought_signature_validator"
    assert "thoughtSignature" not in second
    assert [loss.code for loss in written.losses] == ["thinking_dropped"]


def test_results_hold_media_that_the_api_takes_there() -> None:
    content = (
        Text("see"),
        Media(kind="image", mime="image/png", data="_-8"),
        Media(kind="image", mime="image/gif", data="aGk="),
        Media(kind="image", url="https://example.org/a.png"),
    )
    failed = ToolResult("a", content, is_error=True)
    written = Writer().write(
        [
            GO,
            Message(role="assistant", parts=(ToolCall("a", "f", {}),)),
            Message(role="tool", parts=(failed,)),
        ]
    )
    response = written.messages[2]["parts"][0]["functionResponse"]
    left_out = "[image left out: image/gif]\n[image left out: unknown type]"
    assert response["response"] == {"error": f"see\n{left_out}"}
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "/+8="}}]
    assert [loss.code for loss in written.losses] == ["media_dropped"] * 2


def test_a_result_takes_the_name_and_the_id_of_its_call() -> None:
    stored = {"functionResponse": {"name": "other", "response": {"output": "1"}}}
    (answered,) = reader.read({"role": "user", "parts": [stored]})
    result = results_of(answered)[0]
    call = ToolCall(result.call, "f", {})
    written = write(GO, Message(role="assistant", parts=(call,)), answered)
    assert rules.validate(written) == []
    assert written[2]["parts"][0]["functionResponse"]["name"] == "f"


def test_arguments_and_responses_are_objects_whatever_was_stored() -> None:
    (asked,) = reader.read(
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": [1]}}]}
    )
    (answered,) = reader.read(
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": "42"}}]}
    )
    written = write(GO, asked, answered)
    assert rules.validate(written) == []
    assert written[1]["parts"][0]["functionCall"]["args"] == {"_unparsed": "[1]"}
    assert written[2]["parts"][0]["functionResponse"]["response"] == {"output": "42"}


# --- the round trip -------------------------------------------------------------------------

fields = objects.map(lambda found: {f"x_{key}": value for key, value in found.items()})


def part(**known: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda known, more: {**known, **more}, st.fixed_dictionaries(known), fields)


TEXT = part(text=texts)
THOUGHT = part(text=texts, thought=st.just(True), thoughtSignature=texts)
CALL = part(functionCall=part(name=st.just("f"), args=objects), thoughtSignature=texts)
NEW = part(somethingNew=objects)
IMAGE = part(inlineData=part(mimeType=st.just("image/png"), data=st.just("aGk=")))


@given(st.lists(st.one_of(TEXT, THOUGHT, CALL, NEW, IMAGE), min_size=1, max_size=5))
def test_parts_of_a_model_survive(parts: list[Any]) -> None:
    body = {"role": "model", "parts": parts}
    assert write(*reader.read(body)) == [body]


@given(st.lists(st.one_of(TEXT, NEW, IMAGE), min_size=1, max_size=5))
def test_parts_of_a_user_survive(parts: list[Any]) -> None:
    body = {"role": "user", "parts": parts}
    assert write(*reader.read(body)) == [body]


@given(st.lists(part(name=st.just("f"), response=objects), min_size=1, max_size=3))
def test_results_survive(responses: list[Any]) -> None:
    asked = {"role": "model", "parts": [{"functionCall": {"name": "f"}} for _ in responses]}
    body = {"role": "user", "parts": [{"functionResponse": found} for found in responses]}
    assert write(GO, *reader.read(asked), *reader.read(body))[1:] == [asked, body]
