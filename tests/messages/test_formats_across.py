"""A dialogue of any origin, written to any format: valid, complete, stable."""

from __future__ import annotations

from typing import Any

import pytest
from amounts import amount
from hypothesis import given, settings
from message_strategies import (
    IN_PLACE,
    PROVIDERS,
    REQUESTS,
    boundaries,
    dialogues,
    pairs,
    read_all,
    said,
    text_of_result,
)
from msgspec.structs import replace

from clew import messages
from clew.messages.neutral import Media, Message, Other, Text, ToolCall, ToolResult, Written

FORMATS = pytest.mark.parametrize("format", REQUESTS)
Dialogue = list[Message]
EXAMPLES = amount(25, 200)  # of dialogues, each written to every format


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES)
def test_what_is_written_breaks_no_rule(dialogue: Dialogue) -> None:
    for format in REQUESTS:
        written = messages.write(format, dialogue)
        assert messages.validate(format, written.messages) == []


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES)
def test_a_thread_goes_on_at_another_provider(dialogue: Dialogue) -> None:
    for first in REQUESTS:
        stored = read_all(first, messages.write(first, dialogue).messages)
        for format in REQUESTS:
            written = messages.write(format, stored)
            assert messages.validate(format, written.messages) == [], (first, format)


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES)
def test_what_was_written_once_is_written_so_again(dialogue: Dialogue) -> None:
    for format in REQUESTS:
        written = messages.write(format, dialogue)
        again = messages.write(format, read_all(format, written.messages))
        assert again.messages == written.messages
        assert again.losses == ()


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES)
def test_texts_come_back_by_role(dialogue: Dialogue) -> None:
    for format in REQUESTS:
        back = read_all(format, messages.write(format, dialogue).messages)
        for role in ("user", "assistant"):
            assert "".join(said(back, role)) == "".join(said(dialogue, role)), format
        if format in IN_PLACE:
            assert said(back, "system") == said(dialogue, "system")


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES)
def test_calls_and_results_come_back_as_pairs(dialogue: Dialogue) -> None:
    for format in REQUESTS:
        back = pairs(read_all(format, messages.write(format, dialogue).messages))
        for (call, result), (call_back, result_back) in zip(pairs(dialogue), back, strict=True):
            assert call_back.arguments == _expected_arguments(call), format
            assert text_of_result(result_back) == text_of_result(result), format
            if not format.startswith("openai"):
                assert result_back.is_error == result.is_error


def _expected_arguments(call: ToolCall) -> Any:
    if call.unparsed is not None:
        return {"_unparsed": call.unparsed}
    if call.arguments is None or isinstance(call.arguments, dict):
        return call.arguments or {}
    return {"_unparsed": '[1,"two"]'}


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES)
def test_changed_ids_and_names_are_reported(dialogue: Dialogue) -> None:
    before = [call for call, _ in pairs(dialogue)]
    for format in REQUESTS:
        written = messages.write(format, dialogue)
        after = [call for call, _ in pairs(read_all(format, written.messages))]
        both = list(zip(before, after, strict=True))
        codes = [loss.code for loss in written.losses]
        assert codes.count("id_changed") == sum(a.id != b.id for a, b in both)
        assert codes.count("name_changed") == sum(a.name != b.name for a, b in both)


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES)
def test_places_say_where_a_message_went(dialogue: Dialogue) -> None:
    for format in REQUESTS:
        written = messages.write(format, dialogue)
        for message, place in zip(dialogue, written.places, strict=True):
            if message.role == "system":
                assert (place is None) == (format not in IN_PLACE)
            elif message.role in ("user", "tool"):
                assert place is not None
        found = [place for place in written.places if place is not None]
        assert found == sorted(found)
        assert found[-1] < len(written.messages)
        assert all(0 <= loss.index < len(dialogue) for loss in written.losses)


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES)
def test_going_on_changes_nothing_before(dialogue: Dialogue) -> None:
    """Prompt caches hit: what was written stays, the last message may only grow."""
    for format in REQUESTS:
        whole = messages.write(format, dialogue)
        for end in boundaries(dialogue):
            part = messages.write(format, dialogue[:end])
            last = len(part.messages) - 1
            assert whole.places[:end] == part.places
            assert whole.losses[: len(part.losses)] == part.losses
            _assert_system_grown(part, whole)
            if last >= 0:
                assert whole.messages[:last] == part.messages[:last]
                _assert_grown(part.messages[last], whole.messages[last])


def _assert_grown(before: Any, after: Any) -> None:
    for key in ("content", "parts"):
        if isinstance(before.get(key), list):
            assert after[key][: len(before[key])] == before[key]
            before, after = {**before, key: None}, {**after, key: None}
    assert before == after


def _assert_system_grown(part: Written, whole: Written) -> None:
    def blocks(system: Any) -> list[Any]:
        if isinstance(system, dict):
            return list(system["parts"])
        return [{"type": "text", "text": system}] if isinstance(system, str) else system or []

    assert blocks(whole.system)[: len(blocks(part.system))] == blocks(part.system)


@pytest.mark.parametrize("format", PROVIDERS)
def test_lone_surrogates_are_replaced_and_reported(format: str) -> None:
    """Tools print them; a request with one is refused as invalid JSON, for good."""
    broken = "a\udc80b"
    dialogue = [
        Message(role="user", parts=(Text(broken),)),
        Message(role="assistant", parts=(ToolCall("c", "read", {"path": broken}),)),
        Message(role="tool", parts=(ToolResult("c", (Text(broken),)),)),
        Message(role="user", parts=(Text("héllo 🧵"),)),
    ]
    assert messages.validate("plain", [{"role": "user", "content": broken}]) != []
    written = messages.write(format, dialogue)
    assert messages.validate(format, written.messages) == []
    assert [loss.index for loss in written.losses if loss.code == "text_changed"] == [0, 1, 2]
    assert "a\ufffdb" in str(written.messages)
    assert "héllo 🧵" in str(written.messages)


@FORMATS
def test_assistant_messages_that_only_a_system_message_parts_are_valid(format: str) -> None:
    dialogue = [
        Message(role="user", parts=(Text("one"),)),
        Message(role="assistant", parts=(Text("two"),)),
        Message(role="system", parts=(Text("be brief"),)),
        Message(role="assistant", parts=(Text("three"),)),
        Message(role="user", parts=(Text("four"),)),
    ]
    written = messages.write(format, dialogue)
    assert messages.validate(format, written.messages) == []


@FORMATS
def test_a_user_message_of_nothing_that_is_known_still_stands(format: str) -> None:
    """Without it two assistant messages would meet, or the first message would be one."""
    said = Message(role="user", parts=(Other(format="elsewhere", raw={"type": "chart"}),))
    answer = Message(role="assistant", parts=(Text("Hm"),))
    written = messages.write(format, [said, answer, said, answer, said])
    assert messages.validate(format, written.messages) == []
    assert written.places == [0, 1, 2, 3, 4]
    assert [loss.code for loss in written.losses] == ["block_dropped"] * 3


@pytest.mark.parametrize("format", PROVIDERS)
def test_media_in_a_system_message_is_named(format: str) -> None:
    image = Media(kind="image", mime="image/png", data="aGk=")
    rules = Message(role="system", parts=(Text("Rules"), image))
    written = messages.write(format, [rules, Message(role="user", parts=(Text("Hi"),))])
    assert messages.validate(format, written.messages) == []
    assert "[image left out: image/png]" in str([written.system, written.messages])
    assert [loss.code for loss in written.losses] == ["media_dropped"]


@FORMATS
def test_no_messages_are_no_messages(format: str) -> None:
    assert messages.write(format, []) == Written([], [])


@FORMATS
def test_a_renamed_call_keeps_its_block(format: str) -> None:
    """Whoever makes an id unique changes the part; the writer brings the block along."""
    dialogue = [
        Message(role="user", parts=(Text("go"),)),
        Message(role="assistant", parts=(ToolCall("c1", "read", {"a": 1}),)),
        Message(role="tool", parts=(ToolResult("c1", (Text("done"),)),)),
    ]
    stored = read_all(format, messages.write(format, dialogue).messages)
    renamed = [
        replace(message, parts=tuple(_renamed(part) for part in message.parts))
        for message in stored
    ]
    written = messages.write(format, renamed).messages
    assert messages.validate(format, written) == []
    assert "c1-2" in str(written)
    assert "'c1'" not in str(written)


@pytest.mark.parametrize("format", PROVIDERS)
def test_a_tool_whose_name_the_provider_does_not_take_is_renamed_in_its_own_block(
    format: str,
) -> None:
    dialogue = [
        Message(role="user", parts=(Text("go"),)),
        Message(role="assistant", parts=(ToolCall("c1", "read", {"a": 1}),)),
        Message(role="tool", parts=(ToolResult("c1", (Text("done"),)),)),
    ]
    asked, called, answered = read_all(format, messages.write(format, dialogue).messages)
    (call,) = called.parts
    assert isinstance(call, ToolCall)
    named = replace(called, parts=(replace(call, name="read file/2"),))
    written = messages.write(format, [asked, named, answered])
    assert messages.validate(format, written.messages) == []
    assert "read_file_2" in str(written.messages)
    assert "'read'" not in str(written.messages)
    assert "name_changed" in [loss.code for loss in written.losses]


def _renamed(part: Any) -> Any:
    if isinstance(part, ToolCall):
        return replace(part, id="c1-2")
    return replace(part, call="c1-2") if isinstance(part, ToolResult) else part
