"""What coding agents keep: read for what it says; of what is damaged no reader falls over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from clew import messages
from clew.core.errors import InvalidInput
from clew.messages import claude_code
from clew.messages.edits import LINES_MAX, edit_lines
from clew.messages.neutral import Media, Message, Other, Part, Text, Thinking, ToolCall, ToolResult
from clew.messages.usage import in_message


def only(format: str, body: Any) -> Message:
    (found,) = messages.read(format, body)
    return found


def texts(parts: Any) -> list[str]:
    return [part.text for part in parts if isinstance(part, Text)]


# --- each by its own words ---


def test_what_codex_hears_from_another_agent_is_the_users() -> None:
    said = {"type": "agent_message", "author": "helper", "content": [{"text": "done"}, 7]}
    found = only("codex", {"type": "response_item", "payload": said})
    assert (found.role, texts(found.parts)) == ("user", ["[message of helper]\ndone"])


@pytest.mark.parametrize("record", [7, {"type": "response_item", "payload": "x"}, {"type": "new"}])
def test_a_record_of_codex_without_an_item_is_no_message(record: Any) -> None:
    with pytest.raises(InvalidInput, match="holds an item"):
        messages.read("codex", record)


@pytest.mark.parametrize(("id", "kept"), [("ws_1", True), ("a b", False), (7, False)])
def test_an_id_of_codex_that_no_request_takes_is_left_out(id: Any, kept: bool) -> None:
    item = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    found = only("codex", {"type": "response_item", "payload": {**item, "id": id}})
    written = messages.write("openai-responses", [found]).messages
    assert written == [{**item, "id": id} if kept else item]


def test_an_image_of_gemini_in_every_spelling_of_its_content() -> None:
    part = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    for content in (part, [part], [part, "see"]):
        found = only("gemini-cli", {"type": "user", "content": content})
        assert isinstance(found.parts[0], Media)
    with pytest.raises(InvalidInput) as caught:
        messages.read("gemini-cli", {"type": "user", "content": 7})
    assert caught.value.path == "$.content"


def test_the_place_of_what_is_wrong_in_a_record_of_gemini_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        messages.read("gemini-cli", {"type": "user", "content": [{"text": 5}]})
    assert caught.value.path is not None
    assert caught.value.path.startswith("$.content.parts[0]")
    assert [type(p) for p in only("gemini-cli", {"type": "gemini", "content": "x"}).parts] == [Text]


def test_a_history_that_gemini_compressed_stands_for_all_before_it() -> None:
    translate = messages.translator("gemini-cli", "read_compaction")
    assert translate is not None
    kept = [{"role": "user", "parts": [{"text": "x"}]}]
    told = translate({"systemPayload": {"compressedHistory": kept}}, "p")
    assert told["details"] == {"messages": kept, "format": "gemini"}
    said, note = {"type": "user", "content": "x"}, {"type": "info", "content": "y"}
    told = translate({"$set": {"messages": [said, note, 7]}}, "p")
    assert told["details"] == {"messages": [said], "format": "gemini-cli"}
    assert told["compacted_through_entry_id"] == "p"
    assert translate({"$set": 7}, None)["details"]["messages"] == []


def test_a_call_of_copilot_and_what_it_gave() -> None:
    request = {"toolCallId": "c", "name": "f", "arguments": '{"a": 1}'}
    data = {"content": "So", "reasoningText": "hm", "toolRequests": [request, "odd"]}
    found = only("copilot", {"type": "assistant.message", "data": data})
    assert [type(part) for part in found.parts] == [Thinking, Text, ToolCall]
    event = {"type": "tool.execution_complete", "data": {"success": False, "result": {}}}
    with pytest.raises(InvalidInput) as caught:
        messages.read("copilot", event)
    assert caught.value.path == "$.data.toolCallId"


def test_copilot_is_told_what_was_made_of_a_message_of_the_user() -> None:
    data = {"content": "fix it", "transformedContent": "fix it, at noon"}
    for changed, said in (({}, "fix it, at noon"), ({"transformedContent": ""}, "fix it")):
        found = only("copilot", {"type": "user.message", "data": {**data, **changed}})
        assert (found.role, texts(found.parts)) == ("user", [said])
    found = only("copilot", {"type": "system.message", "data": {"content": "Be brief."}})
    assert (found.role, texts(found.parts)) == ("system", ["Be brief."])
    for kind in ("user.message", "system.message"):
        with pytest.raises(InvalidInput) as caught:
            messages.read("copilot", {"type": kind, "data": {"content": 7}})
        assert caught.value.path == "$.data.content"


def test_a_message_of_cline_has_texts_files_and_blocks_that_came_later() -> None:
    blocks = [{"type": "file", "path": "a.py", "content": "x = 1"}, {"type": "later", "n": 1}]
    found = only("cline", {"role": "user", "content": blocks})
    assert texts(found.parts) == ["[a.py]\nx = 1"]
    assert [type(part) for part in found.parts] == [Text, Other]
    with pytest.raises(InvalidInput) as caught:
        messages.read("cline", {"role": "user", "content": ["odd"]})
    assert caught.value.path == "$.content[0]"


@pytest.mark.parametrize(
    ("event", "role", "parts"),
    [
        ({"kind": "SystemPromptEvent", "system_prompt": "Be brief."}, "system", [Text]),
        (
            {
                "kind": "MessageEvent",
                "llm_message": {"content": ["see", {"image_urls": ["https://x/a.png", 7]}, 7]},
            },
            "user",
            [Text, Media],
        ),
        ({"kind": "ActionEvent", "tool_call_id": "c", "tool_name": "f"}, "assistant", [ToolCall]),
        ({"kind": "AgentErrorEvent", "tool_call_id": "c", "error": "Boom"}, "tool", [ToolResult]),
    ],
)
def test_the_events_of_openhands_by_their_kind(event: Any, role: str, parts: list[type]) -> None:
    found = only("openhands", event)
    assert (found.role, [type(part) for part in found.parts]) == (role, parts)


def test_what_openhands_thought_before_a_call_is_read_with_it() -> None:
    event = {"kind": "ActionEvent", "tool_call_id": "c", "tool_name": "f"}
    thought = {"reasoning_content": "Hm", "thought": [{"text": "So"}]}
    found = only("openhands", {**event, **thought})
    assert [type(part) for part in found.parts] == [Thinking, Text, ToolCall]
    assert found.parts[0] == Thinking("Hm")


@pytest.mark.parametrize("kind", [None, 5, "ConversationStateUpdateEvent", "Condensation"])
def test_an_event_of_openhands_that_the_model_does_not_see_is_no_message(kind: Any) -> None:
    with pytest.raises(InvalidInput, match="model sees"):
        messages.read("openhands", {"kind": kind})


def test_a_failure_in_openhands_says_so() -> None:
    event = {"kind": "UserRejectObservationEvent", "tool_call_id": "c"}
    (part,) = only("openhands", {**event, "rejection_reason": {"why": "no"}}).parts
    assert part == ToolResult("c", (Text('{"why":"no"}'),), is_error=True)
    translate = messages.translator("openhands", "read_compaction")
    assert translate is not None
    told = translate({"kind": "Condensation", "summary": "so far"}, "p")
    assert told == {"summary": "so far", "compacted_through_entry_id": "p"}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "file", "url": "data:image/png;base64,aGk=", "mime": "image/png"},
            Media(kind="image", mime="image/png", data="aGk="),
        ),
        ({"type": "file", "url": "file:///a/b.py", "filename": "b.py"}, Text("[file b.py]")),
        ({"type": "text", "text": "no", "ignored": True}, None),
        ({"type": "later"}, None),
    ],
)
def test_a_part_of_what_the_user_gave_opencode(block: Any, part: Part | None) -> None:
    found = only("opencode", {"info": {"role": "user"}, "parts": [block]})
    assert list(found.parts) == ([] if part is None else [part])


def test_a_call_of_opencode_that_is_still_running_has_no_result() -> None:
    tool = {"type": "tool", "callID": "c", "tool": "f", "state": {"status": "running", "input": {}}}
    body = {"info": {"role": "assistant"}, "parts": [tool, {"type": "later"}]}
    assert [type(part) for part in only("opencode", body).parts] == [ToolCall]
    assert in_message("opencode", {"info": {"role": "user"}, "parts": []}) is None


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"role": "branchSummary", "summary": "left"}, "<summary>\nleft\n</summary>"),
        ({"role": "bashExecution", "command": "ls"}, "Ran `ls`\n```\n(no output)\n```"),
        (
            {"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 2},
            "Ran `ls`\n```\na\n```\n(exit code 2)",
        ),
        (
            {"role": "bashExecution", "command": "ls", "output": "a", "cancelled": True},
            "Ran `ls`\n```\na\n```\n(cancelled)",
        ),
    ],
)
def test_what_pi_tells_the_model_in_the_users_name(message: Any, said: str) -> None:
    found = only("pi", {"type": "message", "message": message})
    assert (found.role, texts(found.parts)) == ("user", [said])


def test_blocks_of_pi_that_others_know_by_another_name() -> None:
    thought = {"type": "thinking", "thinking": "", "thinkingSignature": "s", "redacted": True}
    message = {"role": "assistant", "api": "anthropic-messages", "content": [thought]}
    (part,) = only("pi", {"type": "message", "message": message}).parts
    assert isinstance(part, Thinking)
    assert part.raw == {"type": "redacted_thinking", "data": "s"}
    later = {"role": "user", "content": [{"type": "later"}]}
    (part,) = only("pi", {"type": "message", "message": later}).parts
    assert isinstance(part, Other)
    with pytest.raises(InvalidInput) as caught:
        messages.read("pi", {"type": "message", "message": {"role": "user", "content": 7}})
    assert caught.value.path == "$.message.content"
    assert (
        in_message("pi", {"type": "message", "message": {"role": "user", "content": "x"}}) is None
    )


def test_the_time_and_the_title_of_a_record_of_claude_code() -> None:
    noon = datetime(2025, 1, 1, 12, tzinfo=UTC)
    assert claude_code.time_of({"timestamp": "2025-01-01T12:00:00Z"}) == noon
    for odd in ({}, {"timestamp": 7}, {"timestamp": "noon"}, {"timestamp": "2025-01-01T12:00:00"}):
        assert claude_code.time_of(odd) is None, odd
    assert claude_code.time_of({"timestamp": "0001-01-01T00:00:00+00:00"}) is None
    assert claude_code.title_of({"aiTitle": "A", "customTitle": ""}) == ("A", "model")
    assert claude_code.title_of({"aiTitle": 7}) is None


def test_references_to_tools_become_words_and_other_blocks_stay() -> None:
    inner = [{"type": "tool_reference", "tool_name": "f"}, {"type": "text", "text": "x"}]
    result = {"type": "tool_result", "tool_use_id": "c", "content": inner}
    body = {"type": "user", "message": {"role": "user", "content": [result]}, "uuid": "u"}
    (part,) = only("claude-code", body).parts
    assert isinstance(part, ToolResult)
    assert texts(part.content) == ["[the tool f can be called now]", "x"]


def test_an_edit_of_many_lines_is_shown_without_comparing_them() -> None:
    old, new = "a\n" * LINES_MAX, "b\n"
    lines = edit_lines({"old_string": old, "new_string": new})
    assert lines == ["-a"] * LINES_MAX + ["+b"]


# --- damage ---

SOUND: dict[str, list[Any]] = {
    "aider": [{"role": "user", "text": "x"}],
    "claude-code": [
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text"}]}},
    ],
    "cline": [
        {"role": "user", "content": [{"type": "file", "path": "a", "content": "x"}]},
        {"role": "assistant", "content": [{"type": "text"}], "metrics": {"inputTokens": 1}},
    ],
    "codex": [
        {
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": [{"image_url": "data:x"}]},
        },
        {"type": "response_item", "payload": {"type": "agent_message", "content": [{"text": "x"}]}},
    ],
    "copilot": [
        {
            "type": "assistant.message",
            "data": {"toolRequests": [{"toolCallId": "c", "name": "f", "arguments": "{}"}]},
        },
        {
            "type": "tool.execution_complete",
            "data": {"toolCallId": "c", "result": {"content": "x"}},
        },
    ],
    "gemini-cli": [
        {
            "type": "gemini",
            "content": [{"text": "x"}],
            "thoughts": [{"subject": "a"}],
            "toolCalls": [
                {
                    "id": "c",
                    "name": "f",
                    "args": {},
                    "result": [{"functionResponse": {"response": {"output": "x"}}}],
                }
            ],
            "tokens": {"input": 1},
        },
        {"type": "assistant", "message": {"role": "model", "parts": [{"functionCall": {}}]}},
    ],
    "llama-index": [
        {
            "role": "assistant",
            "blocks": [{"block_type": "image", "url": "x"}],
            "additional_kwargs": {"tool_calls": [{"id": "c", "function": {"name": "f"}}]},
        }
    ],
    "opencode": [
        {
            "info": {"role": "assistant", "tokens": {"cache": {"read": 1}}},
            "parts": [{"type": "tool", "callID": "c", "tool": "f", "state": {"input": {}}}],
        }
    ],
    "openhands": [
        {
            "kind": "ActionEvent",
            "thought": [{"text": "x"}],
            "tool_call": {"function": {"name": "f"}},
            "tool_call_id": "c",
        },
        {"kind": "MessageEvent", "llm_message": {"role": "user", "content": [{"text": "x"}]}},
        {"kind": "ObservationEvent", "tool_call_id": "c", "observation": {"content": [{}]}},
    ],
    "pi": [
        {
            "type": "message",
            "message": {
                "role": "assistant",
                "content": [{"type": "toolCall", "id": "c", "name": "f", "arguments": {}}],
                "usage": {"input": 1},
            },
        },
    ],
}
ODD = (None, 5, True, "", "x", [], {}, [5], [[]], {"text": 5})


def broken(value: Any) -> Iterator[Any]:
    """The same with another value in one place, for every place and every odd value."""
    yield from ODD
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: other} for other in broken(inner))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from ([*value[:index], other, *value[index + 1 :]] for other in broken(inner))


@pytest.mark.parametrize("format", SOUND)
def test_a_damaged_record_is_refused_or_read_and_then_written(format: str) -> None:
    """A session file may come from anywhere: one odd value in it must not end the import."""
    refused = 0
    for sound in SOUND[format]:
        for body in broken(sound):
            try:
                found = messages.read(format, body)
            except InvalidInput:
                refused += 1
                continue
            for target in messages.FORMATS:
                messages.write(target, found)
            in_message(format, body)
    assert refused
