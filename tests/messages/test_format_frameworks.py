"""What frameworks store is read for what it says; what is malformed is refused, with its place."""

from __future__ import annotations

from typing import Any

import pytest

from clew import messages
from clew.core.errors import InvalidInput
from clew.messages.incoming import kind_for
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

FORMATS = ("agent-framework", "converse", "llama-index", "pydantic-ai")


def parts(format: str, body: Any) -> list[tuple[str, list[type]]]:
    return [
        (message.role, [type(part) for part in message.parts])
        for message in messages.read(format, body)
    ]


def test_a_request_of_pydantic_ai_is_a_message_for_each_who_speaks() -> None:
    body = {
        "kind": "request",
        "parts": [
            {"part_kind": "system-prompt", "content": "be brief"},
            {"part_kind": "user-prompt", "content": ["look", {"kind": "binary", "data": "aGk="}]},
            {
                "part_kind": "tool-return",
                "tool_name": "f",
                "tool_call_id": "c",
                "content": {"a": 1},
            },
            {"part_kind": "retry-prompt", "tool_name": "g", "tool_call_id": "d", "content": "no"},
            {"part_kind": "retry-prompt", "content": [{"type": "missing"}]},
            {"part_kind": "instruction-delta", "what": "else"},
        ],
        "instructions": "today is Monday",
    }
    assert parts("pydantic-ai", body) == [
        ("tool", [ToolResult, ToolResult]),
        ("system", [Text]),
        ("user", [Text, Media, Text, Other]),
    ]
    tool = messages.read("pydantic-ai", body)[0]
    assert [part.is_error for part in tool.parts if isinstance(part, ToolResult)] == [False, True]
    assert kind_for(body, "pydantic-ai") == "user_message"
    (written,) = messages.write("pydantic-ai", messages.read("pydantic-ai", body)).messages
    assert written["instructions"] == "today is Monday"
    assert sorted(map(str, written["parts"])) == sorted(map(str, body["parts"]))


def test_a_reply_of_pydantic_ai_tells_its_model_and_tokens() -> None:
    body = {
        "kind": "response",
        "model_name": "m-1",
        "parts": [
            {"part_kind": "thinking", "content": "hm", "signature": "s"},
            {"part_kind": "text", "content": "ok"},
            {"part_kind": "tool-call", "tool_name": "f", "tool_call_id": "c", "args": '{"a": 1}'},
            {"part_kind": "builtin-tool-call", "tool_name": "search", "tool_call_id": "b"},
        ],
        "usage": {"input_tokens": 10, "cache_read_tokens": 4, "output_tokens": 3},
    }
    (message,) = messages.read("pydantic-ai", body)
    assert [type(part) for part in message.parts] == [Thinking, Text, ToolCall, Other]
    assert message.usage == Usage(input_tokens=6, cache_read_tokens=4, output_tokens=3)
    assert message.model == "m-1"
    assert kind_for(body, "pydantic-ai") == "tool_call"
    assert messages.write("pydantic-ai", [message]).messages == [body]


def test_requests_of_pydantic_ai_that_were_two_stay_two() -> None:
    one = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": ["a", "b"]}]}
    found = [*messages.read("pydantic-ai", one), *messages.read("pydantic-ai", one)]
    assert messages.write("pydantic-ai", found).messages == [one, one]


def test_a_message_of_converse_is_read_by_the_names_of_its_blocks() -> None:
    picture = {"__bytes_encoded__": True, "data": "aGk="}
    reply = {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            {"text": "ok"},
            {"toolUse": {"toolUseId": "c", "name": "f", "input": {"a": 1}}},
        ],
        "metadata": {"usage": {"inputTokens": 7, "outputTokens": 3}},
    }
    answer = {
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": "c", "status": "error", "content": [{"json": {"a": 1}}]}},
            {"image": {"format": "png", "source": {"bytes": picture}}},
            {"document": {"format": "pdf", "name": "a", "source": {"bytes": "aGk="}}},
            {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://a/b"}}}},
            {"cachePoint": {"type": "default"}},
        ],
    }
    (message,) = messages.read("converse", reply)
    assert [type(part) for part in message.parts] == [Thinking, Text, ToolCall]
    assert message.usage == Usage(input_tokens=7, output_tokens=3)
    assert parts("converse", answer) == [
        ("tool", [ToolResult]),
        ("user", [Media, Media, Other, Other]),
    ]
    found = messages.read("converse", answer)
    assert found[0].parts == (
        ToolResult(
            "c", (Text('{"a":1}'),), is_error=True, format="converse", raw=answer["content"][0]
        ),
    )
    assert [part.mime for part in found[1].parts if isinstance(part, Media)] == [
        *("image/png", "application/pdf")
    ]
    told = Message(role="user", parts=(Text("go"),))
    written = messages.write("converse", [told, message, *found]).messages
    assert messages.validate("converse", written) == []
    assert written[1] == {"role": "assistant", "content": reply["content"]}
    assert written[2] == answer


def test_a_message_of_agent_framework_keeps_what_it_has_beside_its_contents() -> None:
    body = {
        "type": "message",
        "role": "assistant",
        "contents": [
            {"type": "text_reasoning", "text": "hm", "protected_data": "s"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "h", "name": "g", "hosted": True},
            {"type": "usage", "usage_details": {"input_token_count": 7, "output_token_count": 3}},
        ],
        "author_name": "ada",
        "additional_properties": {"n": 1},
    }
    (message,) = messages.read("agent-framework", body)
    assert [type(part) for part in message.parts] == [Thinking, ToolCall, Other, Other]
    assert message.usage == Usage(input_tokens=7, output_tokens=3)
    assert messages.write("agent-framework", [message]).messages == [body]
    result = {"type": "function_result", "call_id": "c", "exception": "Boom", "result": ""}
    (answer,) = messages.read("agent-framework", {"role": "tool", "contents": [result]})
    assert answer.parts == (
        ToolResult("c", (Text("Boom"),), is_error=True, format="agent-framework", raw=result),
    )


def test_a_message_of_llama_index_has_its_calls_in_blocks_or_as_they_were_before() -> None:
    call = {"block_type": "tool_call", "tool_call_id": "c", "tool_name": "f", "tool_kwargs": {}}
    older = {"id": "d", "type": "function", "function": {"name": "g", "arguments": '{"a": 1}'}}
    same = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {
        "role": "assistant",
        "blocks": [{"block_type": "thinking", "content": "hm"}, call],
        "additional_kwargs": {"tool_calls": [same, older], "refusal": None},
    }
    (message,) = messages.read("llama-index", body)
    assert [part.id for part in message.parts if isinstance(part, ToolCall)] == ["c", "d"]
    (written,) = messages.write("llama-index", [message]).messages
    assert [block.get("tool_call_id") for block in written["blocks"]] == [None, "c", "d"]
    assert written["additional_kwargs"] == {"refusal": None}
    unnamed = {"role": "tool", "blocks": [{"block_type": "text", "text": "42"}]}
    assert parts("llama-index", unnamed) == [("user", [Text])]
    path = {"role": "user", "blocks": [{"block_type": "image", "path": "/etc/passwd"}]}
    assert parts("llama-index", path) == [("user", [Other])]


def test_what_pydantic_ai_keeps_of_speech_and_files_is_read_and_sent_as_it_came() -> None:
    files = [
        {"kind": "image-url", "url": "https://x/a.png"},
        {"kind": "video-url", "url": "https://x/a.mp4", "media_type": "video/mp4"},
        {"kind": "uploaded-file", "file_id": "file_1", "media_type": "image/png"},
        {"kind": "structured-content", "content": "{}"},
        {"kind": "later", "what": 1},
    ]
    asked = {
        "kind": "request",
        "parts": [
            {"part_kind": "user-prompt", "content": files},
            {"part_kind": "speech", "transcript": "hello"},
        ],
    }
    said = {"kind": "response", "parts": [{"part_kind": "speech", "transcript": "hi"}]}
    (request,), (response,) = (
        messages.read("pydantic-ai", asked),
        messages.read("pydantic-ai", said),
    )
    kinds = [type(part) for part in request.parts]
    assert kinds == [Media, Media, Media, Text, Other, Text]
    told = [part.text for part in (*request.parts, *response.parts) if isinstance(part, Text)]
    assert told == ["{}", "hello", "hi"]
    assert messages.write("pydantic-ai", [request, response]).messages == [asked, said]


def test_a_file_that_a_tool_of_pydantic_ai_gave_is_a_file() -> None:
    file = {"kind": "binary", "data": "aGk=", "media_type": "image/png"}
    for content in (file, [file]):
        result = {"part_kind": "tool-return", "tool_name": "f", "tool_call_id": "c"}
        body = {"kind": "request", "parts": [{**result, "content": content}]}
        (found,) = messages.read("pydantic-ai", body)
        (part,) = found.parts
        assert isinstance(part, ToolResult)
        assert part.content == (Media(kind="image", mime="image/png", data="aGk="),)


def test_a_request_of_pydantic_ai_without_parts_is_a_message_of_the_user() -> None:
    (found,) = messages.read("pydantic-ai", {"kind": "request", "parts": []})
    assert (found.role, found.parts) == ("user", ())


def test_the_model_of_another_provider_is_named_in_a_reply_of_pydantic_ai() -> None:
    said = Message(role="assistant", parts=(Text("ok"),), model="m-2")
    (written,) = messages.write("pydantic-ai", [said]).messages
    assert written["model_name"] == "m-2"


def test_a_retry_of_pydantic_ai_answers_a_call() -> None:
    call = {"part_kind": "tool-call", "tool_name": "f", "tool_call_id": "c", "args": {}}
    retry = {"part_kind": "retry-prompt", "tool_name": "f", "tool_call_id": "c", "content": "no"}
    asked = {"kind": "response", "parts": [call]}
    assert messages.validate("pydantic-ai", [asked, {"kind": "request", "parts": [retry]}]) == []


def test_thoughts_that_converse_hides_go_back_as_they_came() -> None:
    hidden = {"__bytes_encoded__": True, "data": "aGlkZGVu"}
    thoughts = {"reasoningContent": {"redactedContent": hidden}}
    body = {"role": "assistant", "content": [thoughts, {"text": "ok"}]}
    (found,) = messages.read("converse", body)
    assert isinstance(found.parts[0], Thinking)
    asked = Message(role="user", parts=(Text("go"),))
    written = messages.write("converse", [asked, found])
    assert written.messages[1] == body
    assert written.losses == ()
    odd = {"role": "assistant", "content": [{"reasoningContent": {"later": 1}}, {"text": "ok"}]}
    assert parts("converse", odd) == [("assistant", [Other, Text])]


def test_thoughts_at_the_end_are_not_sent_to_converse() -> None:
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    asked = Message(role="user", parts=(Text("go"),))
    body = {"role": "assistant", "content": [{"text": "ok"}, thought]}
    written = messages.write("converse", [asked, *messages.read("converse", body)])
    assert written.messages[1]["content"] == [{"text": "ok"}]
    assert [loss.code for loss in written.losses] == ["thinking_dropped"]


def test_the_rules_of_converse_want_the_last_word_to_be_the_users() -> None:
    asked = {"role": "user", "content": [{"text": "go"}]}
    said = {"role": "assistant", "content": [{"text": "ok"}]}
    (found,) = messages.validate("converse", [asked, said])
    assert (found.rule, found.index) == ("last_user", 1)


def test_a_result_within_a_result_is_left_out_where_results_are_messages() -> None:
    inner = {"toolResult": {"toolUseId": "d", "content": [{"text": "in"}]}}
    outer = {"toolResult": {"toolUseId": "c", "content": [{"text": "out"}, inner]}}
    (found,) = messages.read("converse", {"role": "user", "content": [outer]})
    written = messages.write("llama-index", [found])
    assert written.messages[0]["blocks"] == [{"block_type": "text", "text": "out"}]
    assert [loss.code for loss in written.losses] == ["block_dropped"]


def test_a_file_that_the_service_of_agent_framework_holds_is_a_file() -> None:
    block = {"type": "hosted_file", "file_id": "file_1", "media_type": "image/png"}
    (found,) = messages.read("agent-framework", {"role": "user", "contents": [block]})
    (part,) = found.parts
    assert isinstance(part, Media)
    assert (part.kind, part.file_id) == ("image", "file_1")


@pytest.mark.parametrize(("result", "text"), [("42", "42"), ({"a": 1}, '{"a":1}')])
def test_a_result_of_agent_framework_without_items_is_what_it_says(result: Any, text: str) -> None:
    block = {"type": "function_result", "call_id": "c", "result": result}
    (found,) = messages.read("agent-framework", {"role": "tool", "contents": [block]})
    (part,) = found.parts
    assert isinstance(part, ToolResult)
    assert part.content == (Text(text),)


def test_a_block_that_llama_index_has_later_is_kept() -> None:
    body = {"role": "user", "blocks": [{"block_type": "cite", "x": 1}], "additional_kwargs": {}}
    assert parts("llama-index", body) == [("user", [Other])]
    assert messages.write("llama-index", messages.read("llama-index", body)).messages == [body]


@pytest.mark.parametrize("call", [7, {"id": "c"}, {"id": "c", "function": {"name": ""}}])
def test_an_older_call_of_llama_index_that_is_malformed_is_refused_with_its_place(
    call: Any,
) -> None:
    good = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    more = {"tool_calls": [good, call]}
    with pytest.raises(InvalidInput) as caught:
        messages.read("llama-index", {"role": "assistant", "blocks": [], "additional_kwargs": more})
    path = caught.value.path
    assert path is not None
    assert path.startswith("$.additional_kwargs.tool_calls[1]")


@pytest.mark.parametrize("format", FORMATS)
def test_a_speaker_that_a_framework_does_not_know_breaks_a_rule(format: str) -> None:
    odd = {"role": "nobody", "kind": "nothing"}
    asked = messages.write(format, [Message(role="user", parts=(Text("go"),))]).messages
    found = messages.validate(format, [*asked, odd])
    assert [(one.rule, one.index) for one in found] == [("role", 1)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "body",
    [
        None,
        7,
        "text",
        [],
        {},
        {"role": "user"},
        {"role": "nobody", "content": [], "contents": [], "blocks": []},
        {"kind": "request", "parts": [7]},
        {"kind": "request", "parts": [{}]},
        {"kind": "request", "parts": [{"part_kind": "tool-return"}]},
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": [7]}]},
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": 7}]},
        {"kind": "later", "parts": []},
        {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_call_id": ""}]},
        {"role": "user", "content": [7], "contents": [7], "blocks": [7]},
        {"role": "user", "content": [{}], "contents": [{}], "blocks": [{}]},
        {"role": "user", "content": [{"toolResult": {"content": [7]}}]},
        {"role": "assistant", "content": [{"toolUse": {"name": "f"}}]},
        {"role": "tool", "contents": [{"type": "function_result"}]},
        {"role": "assistant", "blocks": [{"block_type": "tool_call"}]},
    ],
)
def test_what_is_malformed_is_refused(format: str, body: Any) -> None:
    with pytest.raises(InvalidInput):
        messages.read(format, body)
    assert messages.view(format, body) == []


@pytest.mark.parametrize("format", FORMATS)
def test_the_rules_find_what_is_not_paired(format: str) -> None:
    dialogue = [
        Message(role="user", parts=(Text("go"),)),
        Message(role="assistant", parts=(ToolCall("c", "f", {}),)),
        Message(role="tool", parts=(ToolResult("c", (Text("done"),), "f"),)),
    ]
    written = messages.write(format, dialogue).messages
    assert messages.validate(format, written) == []
    rules = [found.rule for found in messages.validate(format, written[:2])]
    assert rules == ["unanswered_call"]
    rules = [found.rule for found in messages.validate(format, [written[0], written[2]])]
    assert "orphan_result" in rules
    assert messages.validate(format, [7])[0].rule == "shape"
    assert messages.validate(format, [])[0].rule == "empty"
