"""Anthropic's messages: what is read, what is written, what stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_strategies import objects, texts

from clew.core.errors import InvalidInput
from clew.messages.anthropic import read as reader
from clew.messages.anthropic import rules
from clew.messages.anthropic.write import Writer
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

PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
RESPONSE = {
    "id": "msg_01",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [
        {"type": "thinking", "thinking": "Where is it?", "signature": "EqoB"},
        {"type": "redacted_thinking", "data": "x7F"},
        {"type": "text", "text": "I will look.", "citations": None},
        {"type": "tool_use", "id": "toolu_01", "name": "find", "input": {"path": "/src"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 7,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 12},
    },
}


def write(*messages: Message) -> list[Any]:
    return Writer().write(messages).messages


def test_a_response_is_read_as_the_assistants_message() -> None:
    (message,) = reader.read(RESPONSE)
    assert message.role == "assistant"
    assert message.model == "claude-sonnet-4-5"
    assert message.usage == Usage(
        input_tokens=7,
        output_tokens=30,
        cache_read_tokens=100,
        cache_write_tokens=20,
        reasoning_tokens=12,
    )
    thought, redacted, text, call = message.parts
    assert isinstance(thought, Thinking)
    assert (thought.text, thought.signature) == ("Where is it?", "EqoB")
    assert isinstance(redacted, Thinking)
    assert (redacted.text, redacted.signature) == ("", "x7F")
    assert isinstance(text, Text)
    assert text.text == "I will look."
    assert isinstance(call, ToolCall)
    assert (call.id, call.name, call.arguments) == ("toolu_01", "find", {"path": "/src"})


def test_a_response_is_sent_again_without_what_only_a_response_has() -> None:
    assert write(*reader.read(RESPONSE)) == [{"role": "assistant", "content": RESPONSE["content"]}]


def test_results_are_read_apart_from_what_the_user_says() -> None:
    image = {"type": "image", "source": PNG}
    body = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "found", "is_error": False},
            {"type": "tool_result", "tool_use_id": "t2", "content": [image], "is_error": True},
            {"type": "tool_result", "tool_use_id": "t3"},
            {"type": "text", "text": "Go on."},
        ],
    }
    results, said = reader.read(body)
    assert (results.role, said.role) == ("tool", "user")
    found, failed, silent = results.parts
    assert isinstance(found, ToolResult)
    assert (found.call, found.content, found.is_error) == ("t1", (Text("found"),), False)
    assert isinstance(failed, ToolResult)
    assert isinstance(failed.content[0], Media)
    assert failed.is_error
    assert isinstance(silent, ToolResult)
    assert silent.content == ()
    assert write(results, said) == [body]


def test_media_is_read_with_its_type_and_place() -> None:
    sources = [
        {"type": "image", "source": PNG},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {
            "type": "document",
            "title": "Report",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
        },
    ]
    (message,) = reader.read({"role": "user", "content": sources})
    inline, linked, known, document = message.parts
    assert isinstance(inline, Media)
    assert (inline.kind, inline.mime, inline.data) == ("image", "image/png", "aGk=")
    assert isinstance(linked, Media)
    assert linked.url == "https://example.org/a.png"
    assert isinstance(known, Media)
    assert known.file_id == "file_1"
    assert isinstance(document, Media)
    assert (document.kind, document.name) == ("file", "Report")
    assert write(message) == [{"role": "user", "content": sources}]


def test_a_document_of_text_is_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "line one"}
    block = {"type": "document", "source": source, "title": "notes"}
    (message,) = reader.read({"role": "user", "content": [block]})
    assert message.parts == (Text("line one", format="anthropic", raw=block),)
    assert write(message) == [{"role": "user", "content": [block]}]


def test_a_string_is_written_as_the_block_that_it_stands_for() -> None:
    """So that what was sent stays, byte for byte, when the user says more."""
    (message,) = reader.read({"role": "user", "content": "Hello"})
    once, twice = write(message), write(message, message)
    assert once == [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    assert twice[0]["content"] == once[0]["content"] * 2


def test_blocks_of_the_servers_tools_are_kept_but_not_understood() -> None:
    blocks = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "x", "server_name": "y", "input": {}},
        {"type": "never_heard_of", "value": {"deep": [1]}},
        {"type": "text", "text": "Done."},
    ]
    (message,) = reader.read({"role": "assistant", "content": blocks})
    assert [type(part) for part in message.parts] == [Other, Other, Other, Other, Text]
    assert write(message) == [{"role": "assistant", "content": blocks}]


def test_system_messages_go_beside_the_messages() -> None:
    marked = {"type": "text", "text": "Rules.", "cache_control": {"type": "ephemeral"}}
    (rules,) = reader.read({"role": "system", "content": [marked]})
    written = Writer().write([rules, Message(role="user", parts=(Text("Hi"),))])
    assert written.system == [marked]
    assert written.places == [None, 0]
    alone = Writer().write([Message(role="system", parts=(Text("Be brief."),))])
    assert alone.system == "Be brief."


def test_results_and_what_the_user_says_next_become_one_message() -> None:
    written = Writer().write(
        [
            Message(role="user", parts=(Text("Find it."),)),
            Message(role="assistant", parts=(ToolCall("a", "find", {}), ToolCall("b", "find", {}))),
            Message(role="tool", parts=(ToolResult("a", (Text("1"),)), ToolResult("b"))),
            Message(role="user", parts=(Text("Well?"),)),
            Message(role="user", parts=(Text("Hurry."),)),
        ]
    )
    assert written.places == [0, 1, 2, 2, 2]
    assert written.messages[2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b"},
            {"type": "text", "text": "Well?"},
            {"type": "text", "text": "Hurry."},
        ],
    }


def test_thinking_without_a_signature_or_of_others_is_left_out() -> None:
    (stopped,) = reader.read(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": ""},
                {"type": "text", "text": "So"},
            ],
        }
    )
    written = Writer().write([stopped])
    assert written.messages == [{"role": "assistant", "content": [{"type": "text", "text": "So"}]}]
    assert [loss.code for loss in written.losses] == ["thinking_dropped"]
    foreign = Message(role="assistant", parts=(Thinking("Hm", "sig", format="gemini"), Text("So")))
    assert [loss.code for loss in Writer().write([foreign]).losses] == ["thinking_dropped"]


def test_thinking_at_the_end_is_left_out() -> None:
    thought = {"type": "thinking", "thinking": "Hm", "signature": "s"}
    text = {"type": "text", "text": "So"}
    (message,) = reader.read({"role": "assistant", "content": [thought, text, thought]})
    written = Writer().write([message])
    assert written.messages[0]["content"] == [thought, text]
    assert [loss.code for loss in written.losses] == ["thinking_dropped"]


def test_an_assistant_message_of_nothing_but_thinking_is_left_out() -> None:
    thought = {"type": "thinking", "thinking": "Hm", "signature": "s"}
    (message,) = reader.read({"role": "assistant", "content": [thought]})
    said = Message(role="user", parts=(Text("Hi"),))
    written = Writer().write([said, message, said])
    assert written.places == [0, None, 0]
    assert [m["role"] for m in written.messages] == ["user"]


def test_arguments_that_are_cut_off_are_kept_as_text() -> None:
    """A stream that was interrupted leaves the input as the text that came."""
    body = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "f", "input": '{"path": "/s'}],
    }
    (message,) = reader.read(body)
    (call,) = message.parts
    assert isinstance(call, ToolCall)
    assert (call.arguments, call.unparsed) == (None, '{"path": "/s')
    written = Writer().write([message])
    assert written.messages[0]["content"][0]["input"] == {"_unparsed": '{"path": "/s'}
    assert [loss.code for loss in written.losses] == ["arguments_unparsed"]


def test_an_error_always_says_something() -> None:
    (results,) = reader.read(
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "u",
                    "content": [{"type": "text", "text": " "}],
                    "is_error": True,
                },
                {"type": "tool_result", "tool_use_id": "v", "content": [], "is_error": False},
            ],
        }
    )
    contents = [block["content"] for block in write(results)[0]["content"]]
    assert contents == ["[no output]", "[no output]", []]


def test_only_as_many_marks_for_the_cache_as_a_request_may_carry() -> None:
    mark = {"type": "ephemeral"}
    thread = []
    for number in range(6):
        block = {"type": "text", "text": str(number), "cache_control": mark}
        thread += reader.read({"role": "user", "content": [block]})
        thread += reader.read({"role": "assistant", "content": "ok"})
    thread.pop()
    written = Writer().write(thread)
    assert rules.validate(written.messages) == []
    marked = [
        block["text"]
        for message in written.messages
        for block in message["content"]
        if isinstance(block, dict) and "cache_control" in block
    ]
    assert marked == ["2", "3", "4", "5"]
    assert [loss.index for loss in written.losses] == [0, 2]
    assert thread[0].parts[0].raw["cache_control"] == mark, "what was read is not changed"


def test_marks_of_the_host_are_the_first_to_go() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    block = {"type": "text", "text": "Be brief.", **mark}
    host = Message(role="system", parts=(Text("Be brief.", format="anthropic", raw=block),))
    said = [{"type": "text", "text": str(number), **mark} for number in range(4)]
    written = Writer().write([host, *reader.read({"role": "user", "content": said})])
    assert written.system == [{"type": "text", "text": "Be brief."}]
    assert written.messages[0]["content"] == said
    assert [loss.code for loss in written.losses] == ["cache_control_dropped"]


def test_marks_inside_of_results_count() -> None:
    mark = {"type": "ephemeral"}
    inner = [{"type": "text", "text": str(n), "cache_control": mark} for n in range(6)]
    body = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": inner}],
    }
    (result,) = reader.read(body)
    call = Message(role="assistant", parts=(ToolCall("t", "f", {}),))
    said = Message(role="user", parts=(Text("go"),))
    written = Writer().write([said, call, result])
    assert rules.validate(written.messages) == []
    assert all("cache_control" in block for block in inner)


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (Media(kind="image", mime="image/png", data="aGk="), {"type": "image", "source": PNG}),
        (
            Media(kind="image", mime="image/png", data="_-8"),
            {"type": "image", "source": {**PNG, "data": "/+8="}},
        ),
        (
            Media(kind="image", url="https://example.org/a.png"),
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        ),
        (
            Media(kind="file", mime="application/pdf", data="aGk=", name="a.pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
                "title": "a.pdf",
            },
        ),
        (
            Media(kind="file", mime="text/markdown", data="aGk="),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "hi"},
            },
        ),
        (
            Media(kind="image", mime="image/tiff", data="aGk="),
            {"type": "text", "text": "[image left out: image/tiff]"},
        ),
        (
            Media(kind="audio", mime="audio/wav", data="aGk="),
            {"type": "text", "text": "[audio left out: audio/wav]"},
        ),
        (
            Media(kind="file", file_id="file-1", name="a.doc"),
            {"type": "text", "text": "[file left out: a.doc]"},
        ),
    ],
)
def test_media_of_others_is_converted_or_named(part: Media, block: Any) -> None:
    assert write(Message(role="user", parts=(part,))) == [{"role": "user", "content": [block]}]
    in_result = Message(role="tool", parts=(ToolResult("t", (part,)),))
    assert write(in_result)[0]["content"][0]["content"] == [block]


def test_an_assistant_cannot_show_images() -> None:
    shown = Message(role="assistant", parts=(Media(kind="image", mime="image/png", data="aGk="),))
    written = Writer().write([shown])
    text = {"type": "text", "text": "[image left out: image/png]"}
    assert written.messages == [{"role": "assistant", "content": [text]}]
    assert [loss.code for loss in written.losses] == ["media_dropped"]


# --- the round trip -------------------------------------------------------------------------

fields = objects.map(lambda found: {f"x_{key}": value for key, value in found.items()})


def block(kind: str, **known: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda known, more: {"type": kind, **known, **more}, st.fixed_dictionaries(known), fields
    )


IDS = st.from_regex(r"toolu_[a-zA-Z0-9]{4}", fullmatch=True)
TEXT = block("text", text=texts)
IMAGE = block("image", source=st.just(PNG))
UNKNOWN = block("something_new", value=objects)
THOUGHT = block("thinking", thinking=texts, signature=texts)
CALL = block("tool_use", id=IDS, name=st.just("f"), input=objects)
INNER = texts | st.lists(TEXT | IMAGE, min_size=1, max_size=3)
RESULT = block("tool_result", tool_use_id=IDS, content=INNER)


@given(st.lists(st.one_of(TEXT, UNKNOWN, THOUGHT, CALL), max_size=4), TEXT | CALL)
def test_blocks_of_an_assistant_survive(blocks: list[Any], last: Any) -> None:
    body = {"role": "assistant", "content": [*blocks, last]}
    assert write(*reader.read(body)) == [body]


@given(
    st.lists(RESULT, max_size=3), st.lists(st.one_of(TEXT, IMAGE, UNKNOWN), min_size=1, max_size=3)
)
def test_blocks_of_a_user_survive(results: list[Any], others: list[Any]) -> None:
    body = {"role": "user", "content": results + others}
    assert write(*reader.read(body)) == [body]


def test_a_fault_deep_inside_of_results_is_found_without_reading_twice_at_each_level() -> None:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": 5}
    for _ in range(60):  # twice at each level would not end
        block = {"type": "tool_result", "tool_use_id": "a", "content": [block]}
    with pytest.raises(InvalidInput) as caught:
        reader.read({"role": "user", "content": [block]})
    assert caught.value.fields["path"] == "$" + ".content[0]" * 61 + ".tool_use_id"
