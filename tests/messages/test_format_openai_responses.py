"""Items of the Responses API: what is read, what is written, what stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_strategies import objects, texts
from msgspec.structs import replace

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
from clew.messages.openai_responses import read as reader
from clew.messages.openai_responses import rules
from clew.messages.openai_responses.write import Writer

REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [
        {"type": "summary_text", "text": "First."},
        {"type": "summary_text", "text": "Then."},
    ],
    "encrypted_content": "gAAAA",
}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "Looking.", "annotations": [], "logprobs": []}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "find",
    "arguments": '{"path": "/"}',
    "status": "completed",
}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "found"}
USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}

PDF = "data:application/pdf;base64,aGk="


def read(*items: Any) -> list[Message]:
    return reader.read(list(items))


def write(*messages: Message) -> list[Any]:
    return Writer().write(messages).messages


def test_a_response_is_read_as_one_message() -> None:
    body = {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-5",
        "output": [REASONING, SAID, CALL],
        "usage": {
            "input_tokens": 50,
            "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 5},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 4},
        },
    }
    (message,) = reader.read(body)
    thought, text, call = message.parts
    assert isinstance(thought, Thinking)
    assert (thought.text, thought.signature) == ("First.\n\nThen.", "gAAAA")
    assert isinstance(text, Text)
    assert text.text == "Looking."
    assert isinstance(call, ToolCall)
    assert (call.id, call.name, call.arguments) == ("call_1", "find", {"path": "/"})
    assert (message.role, message.model) == ("assistant", "gpt-5")
    assert message.usage == Usage(
        input_tokens=15,
        output_tokens=9,
        cache_read_tokens=30,
        cache_write_tokens=5,
        reasoning_tokens=4,
    )
    assert write(message) == [REASONING, SAID, CALL]


def test_items_become_messages_by_role() -> None:
    second = {**CALL, "id": "fc_2", "call_id": "call_2"}
    items = [USER, USER, REASONING, SAID, CALL, second, OUTPUT, {**OUTPUT, "call_id": "call_2"}]
    items.append({**SAID, "id": "msg_2"})
    found = read(*items)
    assert [message.role for message in found] == ["user", "user", "assistant", "tool", "assistant"]
    assert write(*found) == items


def test_an_item_that_was_stored_twice_goes_out_once_under_its_id() -> None:
    written = Writer().write(read(REASONING, SAID, USER, REASONING, SAID))
    without = {key: value for key, value in SAID.items() if key != "id"}
    assert written.messages == [REASONING, SAID, USER, without]
    assert [loss.code for loss in written.losses] == ["block_dropped", "id_changed"]


def test_one_item_alone_is_a_message() -> None:
    (message,) = reader.read(OUTPUT)
    assert message.role == "tool"
    (easy,) = reader.read({"role": "developer", "content": "Rules"})
    assert (easy.role, easy.extra) == ("system", {"role": "developer"})
    assert write(easy) == [{"role": "developer", "content": "Rules"}]


def test_a_message_of_several_blocks_is_written_as_the_item_it_was() -> None:
    item = {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "See"},
            {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "low"},
            {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
            {"type": "input_file", "file_url": "https://example.org/a.pdf"},
            {"type": "input_file", "file_id": "file-1"},
            {"type": "input_new", "x": 1},
        ],
    }
    (message,) = reader.read(item)
    kinds = [type(part) for part in message.parts]
    assert kinds == [Text, Media, Media, Media, Media, Other]
    assert write(message) == [item]


def test_a_message_that_lost_a_part_keeps_the_blocks_of_the_others() -> None:
    blocks = [
        {"type": "input_text", "text": " ", "x": 1},
        {"type": "input_text", "text": "See", "x": 2},
        {"type": "input_image", "image_url": "https://example.org/a.png", "x": 3},
    ]
    (message,) = reader.read({"role": "user", "content": blocks})
    rest = replace(message, parts=message.parts[1:])
    assert write(rest) == [{"role": "user", "content": blocks[1:]}]
    cut = replace(message, parts=(Text("S…"), message.parts[2]))
    assert write(cut) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "S…"}]},
        {"role": "user", "content": blocks[2:]},
    ]


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    (message,) = read(SAID, REASONING, {**REASONING, "id": "rs_2"})
    written = Writer().write([message])
    assert written.messages == [SAID]
    assert [loss.code for loss in written.losses] == ["thinking_dropped"] * 2


def test_reasoning_that_the_server_cannot_know_is_left_out() -> None:
    unknown = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}
    (message,) = read(unknown, SAID)
    written = Writer().write([message])
    assert written.messages == [SAID]
    assert [loss.code for loss in written.losses] == ["thinking_dropped"]


def test_fields_that_no_request_takes_are_left_out() -> None:
    odd = {**CALL, "id": "my-own-id", "parsed_arguments": {"path": "/"}}
    thought = {**REASONING, "status": None, "content": None}
    (message,) = read(thought, {**SAID, "id": "chatcmpl-1"}, odd)
    said = {key: value for key, value in SAID.items() if key != "id"}
    call = {key: value for key, value in CALL.items() if key != "id"}
    assert write(message) == [REASONING, said, call]


def test_results_with_media() -> None:
    blocks = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
    ]
    item = {**OUTPUT, "output": blocks}
    (message,) = reader.read(item)
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    assert [type(part) for part in result.content] == [Text, Media]
    assert write(message) == [item]
    made = replace(result, format=None, raw=None, is_error=True)
    assert write(replace(message, parts=(made,)))[0]["output"] == [
        {"type": "input_text", "text": "Error:"},
        *blocks,
    ]


def test_a_result_as_early_clients_wrote_it() -> None:
    item = {**OUTPUT, "output": {"content": "no such file", "success": False}}
    (message,) = reader.read(item)
    assert message.parts[0].is_error  # type: ignore[attr-defined]
    assert write(message) == [{**OUTPUT, "output": "Error: no such file"}]


SPECIAL: list[tuple[Any, Any, str, str]] = [
    (
        {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "Done"},
        "apply_patch",
        "Done",
    ),
    (
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "status": "completed",
         "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "c", "output": '{"stdout": "a"}'},
        "local_shell",
        '{"stdout": "a"}',
    ),
    (
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "status": "completed",
         "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "function_call_output", "call_id": "c", "output": "a"},
        "local_shell",
        "a",
    ),
    (
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c", "output": [
            {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
            {"stdout": "b", "stderr": "c", "outcome": {"type": "exit", "exit_code": 1}},
        ]},
        "shell",
        "a\nb\nc",
    ),
    (
        {"type": "apply_patch_call", "call_id": "c", "status": "completed",
         "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"},
        "apply_patch",
        "no",
    ),
    (
        {"type": "computer_call", "id": "cu_1", "call_id": "c", "status": "completed",
         "pending_safety_checks": [], "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "c",
         "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,aGk="}},
        "computer",
        "",
    ),
    (
        {"type": "computer_call", "id": "cu_1", "call_id": "c", "status": "completed",
         "pending_safety_checks": [], "actions": [{"type": "screenshot"}]},
        {"type": "computer_call_output", "call_id": "c",
         "output": {"type": "computer_screenshot", "file_id": "file_1"}},
        "computer",
        "",
    ),
    (
        {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"q": 1}},
        {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": []},
        "tool_search",
        "[]",
    ),
]  # fmt: skip


def test_the_actions_of_a_computer_are_the_arguments_of_its_call() -> None:
    actions = [{"type": "screenshot"}, {"type": "wait"}]
    item = {"type": "computer_call", "call_id": "c", "actions": actions}
    ((call,),) = (message.parts for message in reader.read(item))
    assert isinstance(call, ToolCall)
    assert call.arguments == {"actions": actions}


def test_a_piece_of_a_shells_output_that_is_none_is_passed_by() -> None:
    chunks = ["odd", {"stdout": "a", "stderr": None}]
    ((result,),) = (
        message.parts
        for message in reader.read({"type": "shell_call_output", "call_id": "c", "output": chunks})
    )
    assert isinstance(result, ToolResult)
    assert result.content == (Text("a"),)


def test_items_alone_tell_nothing_of_a_call() -> None:
    told = reader.about(SAID)
    assert (told.usage, told.model, told.id) == (None, None, None)


@pytest.mark.parametrize(("call", "output", "tool", "text"), SPECIAL)
def test_built_in_tools_that_the_client_answers(
    call: Any, output: Any, tool: str, text: str
) -> None:
    asked, answered = read(call, output)
    (part,) = asked.parts
    assert isinstance(part, ToolCall)
    assert (part.id, part.name) == ("c", tool)
    assert isinstance(part.arguments, dict)
    (result,) = answered.parts
    assert isinstance(result, ToolResult)
    assert result.call == "c"
    assert "".join([inner.text for inner in result.content if isinstance(inner, Text)]) == text
    assert result.is_error == (output.get("status") == "failed")
    assert write(asked, answered) == [call, output]
    assert rules.validate([USER, call, output]) == []


@pytest.mark.parametrize(("call", "output", "tool", "text"), SPECIAL)
def test_built_in_tools_that_were_interrupted(call: Any, output: Any, tool: str, text: str) -> None:
    """Nobody makes up a screenshot: the call and its result become those of a function."""
    (asked,) = read(call)
    stopped = ToolResult("c", (Text("[interrupted]"),), tool, is_error=True)
    written = Writer().write([asked, Message(role="tool", parts=(stopped,))])
    assert rules.validate(written.messages) == []
    if call["type"] == "custom_tool_call":
        assert written.messages[0] == call
        assert written.messages[1]["type"] == "custom_tool_call_output"
    else:
        assert [item["type"] for item in written.messages] == [
            "function_call",
            "function_call_output",
        ]
        assert [loss.code for loss in written.losses] == ["block_changed"]
        assert written.messages[0]["name"] == tool
    assert written.messages[1]["output"] == "Error: [interrupted]"


def test_items_that_only_the_server_knows_are_kept_in_their_place() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
    code = {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "x"}
    served = {"type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {}}
    found = {"type": "tool_search_output", "execution": "server", "call_id": None, "tools": []}
    new = {"type": "something_new", "x": [1]}
    items = [REASONING, search, code, served, found, new, SAID]
    (message,) = read(*items)
    assert write(message) == items


def test_items_that_the_model_did_not_make_are_not_the_assistants() -> None:
    approval = {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True}
    found = read(SAID, approval, {"type": "configuration_update", "reasoning": {"effort": "low"}})
    assert [message.role for message in found] == ["assistant", "user", "system"]


def test_texts_and_calls_keep_their_order() -> None:
    message = Message(
        role="assistant",
        parts=(Text("a"), Text("b"), ToolCall("1", "f", {}), Text("c")),
    )
    assert write(message) == [
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "a"},
                {"type": "output_text", "text": "b"},
            ],
        },
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "c"}],
        },
    ]


def test_files_known_to_the_provider_are_known_in_both_formats() -> None:
    file = Media(kind="file", file_id="file-1", format="openai-chat", raw={})
    image = Media(kind="image", file_id="file-2", format="openai-responses")
    written = write(Message(role="user", parts=(file, image)))
    assert written[0]["content"] == [
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_image", "file_id": "file-2", "detail": "auto"},
    ]


def test_an_image_of_the_assistant_is_named_even_if_it_was_stored_so() -> None:
    blocks = [
        {"type": "output_text", "text": "See"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
    ]
    (message,) = reader.read({"type": "message", "role": "assistant", "content": blocks})
    written = Writer().write([message])
    assert rules.validate(written.messages) == []
    assert [loss.code for loss in written.losses] == ["media_dropped"]


def test_texts_have_the_type_that_their_role_wants() -> None:
    said = {"role": "assistant", "content": [{"type": "input_text", "text": "Hi", "x": 1}]}
    asked = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    assert write(*reader.read([asked, said])) == [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hi", "x": 1}]},
    ]


# --- the round trip -------------------------------------------------------------------------

fields = objects.map(lambda found: {f"x_{key}": value for key, value in found.items()})


def item(kind: str, **known: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda known, more: {"type": kind, **known, **more}, st.fixed_dictionaries(known), fields
    )


SAYING = item(
    "message",
    role=st.just("assistant"),
    content=st.lists(item("output_text", text=texts), min_size=1, max_size=3),
)
THINKING = item("reasoning", summary=st.just([]), encrypted_content=texts)
SERVED = item("web_search_call", id=st.just("ws_1"))
ASKING = item(
    "message",
    role=st.just("user"),
    content=st.lists(item("input_text", text=texts) | item("input_new"), min_size=1, max_size=3),
)


@given(ASKING, st.lists(st.one_of(SAYING, THINKING, SERVED), max_size=4), SAYING, objects)
def test_items_survive(asked: Any, made: list[Any], last: Any, more: Any) -> None:
    call, output = {**CALL, "x": more}, {**OUTPUT, "x": more}
    made = [{**one, "id": f"ws_{n}"} if "id" in one else one for n, one in enumerate(made)]
    items = [asked, *made, last, call, output, last]
    assert write(*read(*items)) == items
