"""Parts in a place that their kind is not for, and bodies that are nearly right: told, not lost."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from clew import messages
from clew.messages.neutral import Media, Message, Other, Part, Text, Thinking, ToolCall, ToolResult
from clew.messages.shared.media import decoded_text, dump, is_unicode, with_unicode

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini", "plain")
FRAMEWORKS = ("agent-framework", "converse", "langchain", "llama-index", "pydantic-ai")
# These have no place for an image in what the host says.
NO_IMAGES = ("anthropic", "openai-chat", "openai-responses", "gemini", "converse", "pydantic-ai")
OTHER = Other(format="elsewhere", raw={"type": "widget"})
IMAGE = Media(kind="image", mime="image/png", data="aGk=")
CALL = ToolCall(id="c", name="run", given={})


@pytest.mark.parametrize(
    ("given", "arguments", "unparsed"),
    [
        (None, {}, None),
        ({"a": 1}, {"a": 1}, None),
        ('{"a": 1}', {"a": 1}, None),
        ("null", None, None),
        ('"text"', "text", None),
        ("", {}, None),
        (" \n", {}, None),
        ('{"a": ', None, '{"a": '),
        ('"\\ud800"', None, '"\\ud800"'),
        ("[" * 100_000, None, "[" * 100_000),
        ([1], [1], None),
    ],
)
def test_the_arguments_of_a_call_are_parsed_when_they_are_looked_at(
    given: Any, arguments: Any, unparsed: str | None
) -> None:
    call = ToolCall("c", "run", given)
    assert (call.arguments, call.unparsed) == call.parse() == (arguments, unparsed)


def test_calls_are_equal_however_their_arguments_were_spelled() -> None:
    one = ToolCall("c", "run", '{"a":1}')
    assert one == ToolCall("c", "run", '{ "a": 1 }') == ToolCall("c", "run", {"a": 1})
    for other in (
        ToolCall("c", "run", '{"a":2}'),
        ToolCall("d", "run", '{"a":1}'),
        ToolCall("c", "ran", '{"a":1}'),
        ToolCall("c", "run", '{"a":1}', made_id=True),
        ToolCall("c", "run", '{"a":1}', raw={}),
        ToolCall("c", "run", '{"a":1}', format="plain"),
        ToolCall("c", "run", '{"a":1'),
        Text(text="c"),
    ):
        assert one != other


@pytest.mark.parametrize("given", ["null", "", None, {}])
def test_a_call_without_arguments_is_one_with_an_empty_object(given: Any) -> None:
    """A model that calls a tool without any may spell that so, and no provider takes null back."""
    said = Message(role="assistant", parts=(ToolCall("c", "run", given),))
    written = messages.write("anthropic", [said])
    (message,) = written.messages
    assert message["content"] == [{"type": "tool_use", "id": "c", "name": "run", "input": {}}]
    assert written.losses == ()


def test_arguments_that_are_a_text_are_not_read_as_json() -> None:
    """No provider writes them so, but damage and other programs may."""
    call = {"functionCall": {"id": "c", "name": "run", "args": '{"a": 1}'}}
    (gemini,) = messages.read("gemini", {"role": "model", "parts": [call]})
    item = {"type": "local_shell_call", "call_id": "c", "action": "[1]"}
    (shell,) = messages.read("openai-responses", item)
    for message, arguments in ((gemini, '{"a": 1}'), (shell, "[1]")):
        (part,) = message.parts
        assert isinstance(part, ToolCall)
        assert part.parse() == (arguments, None)


def codes(format: str, *given: Message) -> list[tuple[str, str]]:
    return [(loss.code, loss.message) for loss in messages.write(format, given).losses]


@pytest.mark.parametrize("format", FORMATS + FRAMEWORKS)
def test_a_block_of_another_format_is_left_out_of_any_message_and_told(format: str) -> None:
    block = ("block_dropped", "a widget block was left out")
    said = Text(text="said")
    result = ToolResult(call="c", content=(said, OTHER))
    calling = Message(role="assistant", parts=(CALL,))
    asking = Message(role="user", parts=(said,))
    for given in (
        [Message(role="system", parts=(said, OTHER)), asking],
        [Message(role="user", parts=(said, OTHER))],
        [asking, Message(role="assistant", parts=(said, OTHER))],
        [asking, calling, Message(role="tool", parts=(result,))],
        [asking, calling, Message(role="tool", parts=(ToolResult(call="c"), OTHER))],
    ):
        assert block in codes(format, *given), given
        assert "widget" not in dump(messages.write(format, given).messages)


@pytest.mark.parametrize("format", NO_IMAGES)
def test_an_image_that_the_host_shows_becomes_a_text_and_is_told(format: str) -> None:
    given = [Message(role="system", parts=(IMAGE,)), Message(role="user", parts=(Text(text="q"),))]
    written = messages.write(format, given)
    assert "aGk=" not in dump([written.system, *written.messages])
    assert "image" in dump([written.system, *written.messages])
    assert len(written.losses) == 1


@pytest.mark.parametrize("format", FORMATS + FRAMEWORKS)
@pytest.mark.parametrize(
    "part",
    [
        Text(text="half \ud800"),
        CALL,
        ToolCall(id="c", name="run", given={"a\ud800": ["\udfff", 5, None]}),
        ToolResult(call="c", content=(Text(text="half \ud800"),)),
    ],
)
def test_half_a_character_is_mended_wherever_it_is_written(format: str, part: Part) -> None:
    role: Any = {Text: "user", ToolCall: "assistant", ToolResult: "tool"}[type(part)]
    before = [Message(role="assistant", parts=(CALL,))] if role == "tool" else []
    written = messages.write(format, [*before, Message(role=role, parts=(part,))])
    assert is_unicode(written.messages)
    repaired = [loss.code for loss in written.losses]
    assert ("text_changed" in repaired) == (part is not CALL), repaired


def test_what_json_cannot_carry_is_shown_as_text_and_never_an_error() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert dump({"a": "\ud800"}) == r'{"a":"\ud800"}'
    assert dump({"a": object}) == '{"a":"<class \'object\'>"}'
    assert dump(circle) == "[[...]]"
    assert is_unicode(circle)
    assert is_unicode({"a": object()})
    assert not is_unicode({"\udfff": 1})
    assert with_unicode({"a\ud800": ["\udfff", 5, None]}) == {"a�": ["�", 5, None]}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Media(kind="file", mime="text/plain", data="aGk="), "hi"),
        (Media(kind="file", mime="text/plain", data="/w=="), None),
        (Media(kind="file", mime="text/plain", data="no base 64"), None),
        (Media(kind="file", mime="text/plain", url="https://x"), None),
        (Media(kind="file", data="aGk="), None),
    ],
)
def test_a_file_of_text_is_read_if_it_is_one(given: Media, text: str | None) -> None:
    assert decoded_text(given) == text


def test_a_file_that_anthropic_holds_is_read_and_sent_as_it_came() -> None:
    source = {"type": "file", "file_id": "file_1"}
    body = {"role": "user", "content": [{"type": "document", "source": source}]}
    (found,) = messages.view("anthropic", body)
    (part,) = found.parts
    assert isinstance(part, Media)
    assert part.file_id == "file_1"
    assert messages.write("anthropic", [found]).messages == [body]
    assert messages.validate("anthropic", [body]) == []
    for wrong in ({"type": "file"}, {"type": "file", "file_id": 5}, {"type": "url"}):
        broken = {"role": "user", "content": [{"type": "document", "source": wrong}]}
        assert messages.validate("anthropic", [broken]) != [], wrong


@pytest.mark.parametrize("source", [{"type": "content", "content": []}, {"type": "later"}])
def test_a_document_of_a_sort_that_is_not_known_is_kept(source: dict[str, Any]) -> None:
    body = {"role": "user", "content": [{"type": "document", "source": source}]}
    (found,) = messages.view("anthropic", body)
    assert [type(part) for part in found.parts] == [Other]
    assert messages.write("anthropic", [found]).messages == [body]


def test_the_rules_of_anthropic_know_documents_of_text_and_of_blocks() -> None:
    text = {"type": "text", "media_type": "text/plain", "data": "said"}
    for source in (text, {"type": "content", "content": [{"type": "text", "text": "said"}]}):
        body = {"role": "user", "content": [{"type": "document", "source": source}]}
        assert messages.validate("anthropic", [body]) == [], source
    body = {"role": "user", "content": [{"type": "document", "source": {**text, "data": 5}}]}
    assert [found.rule for found in messages.validate("anthropic", [body])] == ["shape"]


def test_a_reading_of_the_sdk_in_a_text_is_not_sent_back() -> None:
    block = {"type": "text", "text": "said", "parsed_output": {"a": 1}}
    found = messages.view("anthropic", {"role": "assistant", "content": [block]})
    (_, written) = messages.write("anthropic", [_asked(), *found]).messages
    assert written["content"] == [{"type": "text", "text": "said"}]


def test_thinking_of_another_format_is_not_sent_as_words() -> None:
    thinking = Thinking(text="hm", format="gemini", raw={"text": "hm", "thought": True})
    said = Message(role="assistant", parts=(thinking, Text(text="said")))
    written = messages.write("anthropic", [_asked(), said])
    assert [loss.code for loss in written.losses] == ["thinking_dropped"]
    assert "hm" not in dump(written.messages)


def test_a_refusal_is_what_the_model_said() -> None:
    block = {"type": "refusal", "refusal": "I may not."}
    (found,) = messages.view("openai-chat", {"role": "assistant", "content": [block]})
    (part,) = found.parts
    assert isinstance(part, Text)
    assert part.text == "I may not."


@pytest.mark.parametrize(
    "body",
    [
        {"candidates": [{"content": "no object"}]},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": 5}]}}]},
        {"candidates": []},
    ],
)
def test_a_malformed_answer_of_gemini_is_refused_with_its_place(body: dict[str, Any]) -> None:
    assert messages.view("gemini", body) == []


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("leaf", [{"type": "tool_result", "tool_use_id": 5}, {"type": 5}, 7])
def test_results_in_results_are_read_once_however_deep_they_are(format: str, leaf: Any) -> None:
    """A leaf that cannot be read must not have each level tried again: that is 2 ** depth."""
    before, after = (_calls_to_show(format, leaf, depth) for depth in (40, 80))
    assert after < 3 * before


def _calls_to_show(format: str, leaf: Any, depth: int) -> int:
    """How many calls it takes to read, check and write results nested so deep."""
    value = leaf
    for n in range(depth):
        value = {"type": "tool_result", "tool_use_id": f"a{n}", "content": [value]}
    body: Any = {
        "anthropic": {"role": "user", "content": [value]},
        "openai-chat": {"role": "tool", "tool_call_id": "a", "content": [value]},
        "openai-responses": {"type": "function_call_output", "call_id": "a", "output": [value]},
        "gemini": {
            "role": "user",
            "parts": [{"functionResponse": {"id": "a", "name": "n", "response": {"r": value}}}],
        },
        "plain": {"role": "tool", "tool_call_id": "a", "content": [value]},
    }[format]
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"
        if calls > 100_000:
            raise RuntimeError("more calls than any such body is worth")

    sys.setprofile(count)
    try:
        found = messages.view(format, body)
        for other in FORMATS:
            messages.write(other, found)
        messages.validate(format, [body])
        messages.view(None, body)
    finally:
        sys.setprofile(None)
    return calls


def _asked() -> Message:
    return Message(role="user", parts=(Text(text="q"),))
