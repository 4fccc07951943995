"""The strict fakes refuse what the providers refuse, each for its own rule, and nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from providers import anthropic_api, gemini_api, loops, openai_chat_api, openai_responses_api
from providers.loops import APIS, FORMATS, PROVIDERS, FakeProvider, calls_of, messages_of, request
from providers.refusal import JSON, Refused, stamp
from providers.responses import Call, Said, anthropic_message, gemini_response, response, sdk

PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQK"

# --- Anthropic --------------------------------------------------------------------------------


def said(*blocks: Any) -> JSON:
    return {"role": "assistant", "content": list(blocks)}


def asked(*blocks: Any) -> JSON:
    return {"role": "user", "content": list(blocks)}


def text(words: Any, **more: Any) -> JSON:
    return {"type": "text", "text": words, **more}


def use(id: str, name: str = "run", **more: Any) -> JSON:
    return {"type": "tool_use", "id": id, "name": name, "input": {}, **more}


def gave(id: str, content: Any = "fine", **more: Any) -> JSON:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def thought(words: Any = "Hm.", signature: Any = "c2ln", **more: Any) -> JSON:
    return {"type": "thinking", "thinking": words, "signature": signature, **more}


def image(media_type: str = "image/png", data: str = PNG) -> JSON:
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image", "source": source}


def document(**source: Any) -> JSON:
    return {"type": "document", "source": source}


MARK = {"cache_control": {"type": "ephemeral"}}
HI = asked(text("Hi."))
SIGNED = stamp("one", 0, "Hm.")

ANTHROPIC_GOOD: dict[str, Any] = {
    "a string for one text": [{"role": "user", "content": "Hi."}],
    "neighbours of one role": [HI, HI, said(text("Yes?")), said(text("Well?")), HI],
    "a loop with parallel calls": [
        HI,
        said(text("I look."), use("a"), use("b", "read-file")),
        asked(gave("b"), gave("a", [text("x"), image()], is_error=True)),
        said(use("c")),
        asked(gave("c", ""), text("And hurry.")),
        said(text("Done.")),
        HI,
    ],
    "thinking before calls": [HI, said(thought(), use("a")), asked(gave("a"))],
    "thinking between steps": [
        HI,
        said(thought("Hm.", SIGNED), use("a")),
        asked(gave("a")),
        said(thought("Now?", stamp("two", 0, "Now?")), use("b")),
        asked(gave("b")),
    ],
    "redacted thinking": [
        HI,
        said({"type": "redacted_thinking", "data": "eA=="}, thought(), text("Yes.")),
        HI,
    ],
    "thinking without its words": [HI, said(thought(""), text("Yes.")), HI],
    "pictures and documents": [
        asked(
            image(),
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
            document(type="base64", media_type="application/pdf", data=PDF),
            document(type="text", media_type="text/plain", data="words"),
            text("What is it?"),
        )
    ],
    "a tool of the server": [
        HI,
        said(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            text("Found."),
        ),
        HI,
    ],
    "four marks": [asked(*[text("x", **MARK)] * 4)],
    "a result without content": [
        HI,
        said(use("a")),
        asked({"type": "tool_result", "tool_use_id": "a"}),
    ],
}

ANTHROPIC_BAD: list[tuple[str, Any]] = [
    ("too_short", []),
    ("shape", ["Hi."]),
    ("shape", [{"role": "user", "content": 5}]),
    ("shape", [{"role": "user", "content": [text(None)]}]),
    ("json", [asked(text("half \ud83d"))]),
    ("unknown_field", [{**HI, "id": "msg_1"}]),
    ("unknown_field", [HI, said({**text("x"), "parsed_output": None}), HI]),
    ("unknown_field", [HI, said(thought(**MARK), text("x")), HI]),
    ("role", [{"role": "system", "content": "Be brief."}, HI]),
    ("role", [HI, {"role": "tool", "content": "x"}]),
    ("first_is_user", [said(text("Hello.")), HI]),
    ("ends_with_user", [HI, said(text("Yes"))]),
    ("ends_with_user", [HI, {"role": "assistant", "content": ""}]),
    ("too_short", [asked()]),
    ("too_short", [HI, said(), HI]),
    ("empty_text", [{"role": "user", "content": ""}]),
    ("empty_text", [asked(text(" \n"))]),
    ("empty_text", [HI, said(use("a")), asked(gave("a", [text("")]))]),
    ("block_type", [asked({"type": "video"})]),
    ("block_of_role", [HI, said(image()), HI]),
    ("block_of_role", [HI, said(gave("a")), HI]),
    ("block_of_role", [asked(use("a"))]),
    ("block_of_role", [asked(thought(), text("x"))]),
    ("block_in_result", [HI, said(use("a")), asked(gave("a", [use("b")]))]),
    ("tool_id", [HI, said(use("a b")), asked(gave("a b"))]),
    ("tool_id", [HI, said(use("")), asked(gave(""))]),
    ("tool_name", [HI, said(use("a", "a.b")), asked(gave("a"))]),
    ("tool_name", [HI, said(use("a", "n" * 129)), asked(gave("a"))]),
    ("shape", [HI, said(use("a", input="{}")), asked(gave("a"))]),
    ("call_without_result", [HI, said(use("a"))]),
    ("call_without_result", [HI, said(use("a")), HI]),
    ("call_without_result", [HI, said(use("a")), said(text("x")), asked(gave("a"))]),
    ("call_without_result", [HI, said(use("a"), use("b")), asked(gave("a"))]),
    ("call_without_result", [HI, said(use("a"), use("b")), asked(gave("a")), asked(gave("b"))]),
    ("result_without_call", [asked(gave("a"))]),
    ("result_without_call", [HI, said(use("a")), asked(gave("a"), gave("b"))]),
    (
        "result_without_call",
        [HI, said(use("a")), asked(gave("a")), said(text("x")), asked(gave("a"))],
    ),
    (
        "result_without_call",
        [HI, said({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}), HI],
    ),
    ("result_twice", [HI, said(use("a")), asked(gave("a"), gave("a"))]),
    ("results_first", [HI, said(use("a")), asked(text("Here:"), gave("a"))]),
    ("unique_ids", [HI, said(use("a"), use("a")), asked(gave("a"))]),
    ("unique_ids", [HI, said(use("a")), asked(gave("a")), said(use("a")), asked(gave("a"))]),
    ("empty_error", [HI, said(use("a")), asked(gave("a", "", is_error=True))]),
    ("too_short", [HI, said(thought(signature=""), text("x")), HI]),
    ("shape", [HI, said({"type": "thinking", "thinking": "x"}, text("x")), HI]),
    ("thinking_last", [HI, said(thought()), HI]),
    ("thinking_last", [HI, said(text("x"), thought()), HI]),
    ("thinking_first", [HI, said(use("a"), thought(), text("x")), asked(gave("a"))]),
    ("thinking_modified", [HI, said(thought("Hm!", SIGNED), text("x")), HI]),
    (
        "thinking_modified",
        [HI, said(thought("Hm.", SIGNED), thought("Oh.", stamp("two", 0, "Oh.")), text("x")), HI],
    ),
    (
        "thinking_modified",
        [HI, said(thought("Oh.", stamp("one", 1, "Oh.")), thought("Hm.", SIGNED), text("x")), HI],
    ),
    (
        "thinking_modified",
        [
            HI,
            said(thought("Hm.", SIGNED), text("x")),
            said(thought("Oh.", stamp("two", 0, "Oh.")), text("y")),
            HI,
        ],
    ),
    ("media_type", [asked(image("image/tiff"))]),
    ("base64", [asked(image(data="data:image/png;base64,AAAA"))]),
    ("too_large", [asked(image(data="A" * (8 * 1024 * 1024)))]),
    ("source", [asked({"type": "image", "source": {"type": "text", "data": "x"}})]),
    ("media_type", [asked(document(type="base64", media_type="text/csv", data=PDF))]),
    ("url", [asked({"type": "image", "source": {"type": "url", "url": "ftp://x"}})]),
    ("cache_marks", [asked(*[text("x", **MARK)] * 5)]),
    ("cache_control", [asked(text("x", cache_control={"type": "forever"}))]),
]


@pytest.mark.parametrize("messages", ANTHROPIC_GOOD.values(), ids=ANTHROPIC_GOOD)
def test_anthropic_takes(messages: list[Any]) -> None:
    anthropic_api.check({"messages": messages})


@pytest.mark.parametrize(("rule", "messages"), ANTHROPIC_BAD, ids=[n for n, _ in ANTHROPIC_BAD])
def test_anthropic_refuses(rule: str, messages: list[Any]) -> None:
    with pytest.raises(Refused) as found:
        anthropic_api.check({"messages": messages})
    assert found.value.rule == rule, found.value


def test_older_models_of_anthropic_continue_the_text_of_the_assistant() -> None:
    older = anthropic_api.Model(prefill=True)
    anthropic_api.check({"messages": [HI, said(text("The answer is ("))]}, older)
    anthropic_api.check({"messages": [HI, {"role": "assistant", "content": ""}]}, older)
    with pytest.raises(Refused, match="trailing_space"):
        anthropic_api.check({"messages": [HI, said(text("The answer is "))]}, older)
    with pytest.raises(Refused, match="prefill_with_thinking"):
        anthropic_api.check({"messages": [HI, said(text("x"))], "thinking": THINKING}, older)


THINKING = {"type": "enabled", "budget_tokens": 1024}


def test_with_thinking_on_a_loop_begins_with_thinking() -> None:
    begun = [HI, said(thought(), use("a")), asked(gave("a")), said(use("b")), asked(gave("b"))]
    anthropic_api.check({"messages": begun, "thinking": THINKING})
    bare = [HI, said(text("I look."), use("a")), asked(gave("a"))]
    anthropic_api.check({"messages": bare, "thinking": {"type": "adaptive"}})
    anthropic_api.check({"messages": [*bare, said(text("Done.")), HI], "thinking": THINKING})
    with pytest.raises(Refused, match="begins_with_thinking") as found:
        anthropic_api.check({"messages": bare, "thinking": THINKING})
    assert found.value.path == "messages.1.content.0"


def test_newer_models_of_anthropic_take_system_messages_after_the_user() -> None:
    newer = anthropic_api.Model(system_role=True)
    system = {"role": "system", "content": "Be brief."}
    anthropic_api.check({"messages": [HI, system, said(text("Yes?")), HI]}, newer)
    with pytest.raises(Refused, match="system_place"):
        anthropic_api.check({"messages": [HI, said(text("Yes?")), system, HI]}, newer)


def test_the_system_prompt_of_anthropic_is_text() -> None:
    anthropic_api.check({"messages": [HI], "system": [text("Be brief.", **MARK)]})
    with pytest.raises(Refused, match="block_of_role"):
        anthropic_api.check({"messages": [HI], "system": [image()]})
    with pytest.raises(Refused, match="empty_text"):
        anthropic_api.check({"messages": [HI], "system": [text("")]})
    with pytest.raises(Refused, match="cache_marks"):
        marked = [text("x", **MARK)] * 3
        anthropic_api.check({"messages": [asked(*marked)], "system": marked})


# --- OpenAI, Chat Completions -----------------------------------------------------------------


def chat(role: str, content: Any = "Hi.", **more: Any) -> JSON:
    return {"role": role, "content": content, **more}


def called(*ids: str, name: str = "run", content: Any = None, **more: Any) -> JSON:
    made = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}} for id in ids
    ]
    return chat("assistant", content, tool_calls=made, **more)


def told(id: str, content: Any = "fine", **more: Any) -> JSON:
    return chat("tool", content, tool_call_id=id, **more)


def picture(url: str = f"data:image/png;base64,{PNG}") -> JSON:
    return {"type": "image_url", "image_url": {"url": url}}


CHAT_GOOD: dict[str, Any] = {
    "a conversation": [chat("system"), chat("developer"), chat("user", name="ann"), chat("user")],
    "an end of the assistant": [chat("user"), chat("assistant")],
    "parallel calls": [
        chat("user"),
        called("a", "b"),
        told("b", [text("x")]),
        told("a", ""),
        called("c", content="I look."),
        told("c"),
        chat("assistant", ""),
    ],
    "an id again in a later message": [
        chat("user"),
        called("a"),
        told("a"),
        called("a"),
        told("a"),
    ],
    "a custom tool": [
        chat("user"),
        chat(
            "assistant",
            None,
            tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "sql", "input": "x"}}],
        ),
        told("a"),
    ],
    "pictures, sounds and files": [
        chat(
            "user",
            [
                text("What is it?"),
                picture(),
                picture("https://example.org/a.png"),
                {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
                {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
                {"type": "file", "file": {"file_id": "file-1"}},
            ],
        )
    ],
    "a refusal": [
        chat("user"),
        chat("assistant", None, refusal="No."),
        chat("assistant", [{"type": "refusal", "refusal": "No."}]),
    ],
    "a reply as it came": [
        chat("user"),
        chat("assistant", "Yes.", refusal=None, annotations=[], audio=None, function_call=None),
    ],
}

CHAT_BAD: list[tuple[str, Any]] = [
    ("too_short", []),
    ("role", [chat("model")]),
    ("role", [chat("function", name="run")]),
    ("unknown_field", [chat("user", id="x")]),
    ("unknown_field", [chat("user"), called("a"), told("a", name="run")]),
    ("unknown_field", [chat("user"), chat("assistant", "x", reasoning_content="Hm.")]),
    ("null_content", [chat("user", None)]),
    ("null_content", [chat("user"), chat("assistant", None)]),
    ("null_content", [chat("user"), called("a"), told("a", None)]),
    ("too_short", [chat("user", [])]),
    ("shape", [chat("user", {"text": "x"})]),
    ("part_of_role", [chat("system", [picture()])]),
    ("part_of_role", [chat("user"), chat("assistant", [picture()])]),
    ("part_of_role", [chat("user"), called("a"), told("a", [picture()])]),
    ("part_of_role", [chat("user", [{"type": "input_text", "text": "x"}])]),
    ("name", [chat("user", name="a b")]),
    ("refusal", [chat("assistant", [text("x"), {"type": "refusal", "refusal": "No."}])]),
    ("image_url", [chat("user", [picture("data:image/tiff;base64,AAAA")])]),
    ("audio_format", [chat("user", [{"type": "input_audio", "input_audio": {"format": "ogg"}}])]),
    ("file", [chat("user", [{"type": "file", "file": {"filename": "x"}}])]),
    ("too_short", [chat("user"), chat("assistant", "x", tool_calls=[])]),
    ("too_long", [chat("user"), called(*[f"c{n}" for n in range(129)])]),
    ("too_long", [chat("user"), called("x" * 41), told("x" * 41)]),
    ("too_short", [chat("user"), called(""), told("")]),
    ("tool_name", [chat("user"), called("a", name="a.b"), told("a")]),
    ("tool_name", [chat("user"), called("a", name="n" * 65), told("a")]),
    ("call_type", [chat("user"), chat("assistant", None, tool_calls=[{"id": "a"}])]),
    ("function_call", [chat("assistant", None, function_call={"name": "run", "arguments": "{}"})]),
    ("call_without_result", [chat("user"), called("a")]),
    ("call_without_result", [chat("user"), called("a", "b"), told("a")]),
    ("call_without_result", [chat("user"), called("a", "b"), told("a"), chat("user"), told("b")]),
    ("call_without_result", [chat("user"), called("a"), called("b"), told("a"), told("b")]),
    ("result_without_call", [chat("user"), told("a")]),
    ("result_without_call", [chat("user"), called("a"), told("b")]),
    ("result_without_call", [chat("user"), called("a"), told("a"), chat("user"), told("a")]),
    ("result_twice", [chat("user"), called("a"), told("a"), told("a")]),
    ("unique_ids", [chat("user"), called("a", "a"), told("a")]),
]


@pytest.mark.parametrize("messages", CHAT_GOOD.values(), ids=CHAT_GOOD)
def test_openai_chat_takes(messages: list[Any]) -> None:
    openai_chat_api.check({"messages": messages})


@pytest.mark.parametrize(("rule", "messages"), CHAT_BAD, ids=[name for name, _ in CHAT_BAD])
def test_openai_chat_refuses(rule: str, messages: list[Any]) -> None:
    with pytest.raises(Refused) as found:
        openai_chat_api.check({"messages": messages})
    assert found.value.rule == rule, found.value


def test_functions_are_for_those_who_ask_for_them() -> None:
    old = openai_chat_api.Model(functions=True)
    call = {"name": "run", "arguments": "{}"}
    messages = [
        chat("user"),
        chat("assistant", None, function_call=call),
        chat("function", name="run"),
    ]
    openai_chat_api.check({"messages": messages}, old)


# --- OpenAI, Responses ------------------------------------------------------------------------


def item(role: str, *parts: Any, **more: Any) -> JSON:
    return {"type": "message", "role": role, "content": list(parts), **more}


def given(words: str = "Hi.") -> JSON:
    return {"type": "input_text", "text": words}


def out(words: str = "Yes.") -> JSON:
    return {"type": "output_text", "text": words, "annotations": []}


def function(call_id: str, /, **more: Any) -> JSON:
    return {"type": "function_call", "call_id": call_id, "name": "run", "arguments": "{}", **more}


def output(call_id: str, given: Any = "fine", **more: Any) -> JSON:
    return {"type": "function_call_output", "call_id": call_id, "output": given, **more}


def reasoning(id: str | None = "rs_1", **more: Any) -> JSON:
    found = {"type": "reasoning", "summary": [], "encrypted_content": "eA==", **more}
    return found if id is None else {"id": id, **found}


HELLO = item("user", given())
SHOT = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"}
CLICK = {"type": "click", "x": 1, "y": 2, "button": "left"}
EXEC = {"type": "exec", "command": ["ls"], "env": {}}

RESPONSES_GOOD: dict[str, Any] = {
    "short messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes"}],
    "reasoning, calls and a message": [
        item("developer", given("Be brief.")),
        HELLO,
        reasoning(),
        function("a", id="fc_1", status="completed"),
        function("b"),
        output("b"),
        output("a", [given("x"), {"type": "input_image", "image_url": "https://x.org/a.png"}]),
        reasoning(None),
        item("assistant", out(), id="msg_1", status="completed"),
        HELLO,
    ],
    "reasoning twice in a row": [HELLO, reasoning(), reasoning("rs_2"), item("assistant", out())],
    "outputs that come later": [HELLO, function("a"), item("assistant", out()), output("a")],
    "a custom tool": [
        HELLO,
        {"type": "custom_tool_call", "call_id": "a", "name": "sql", "input": "x", "id": "ctc_1"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "fine"},
    ],
    "a computer": [
        HELLO,
        {"type": "computer_call", "id": "cu_1", "call_id": "a", "action": CLICK},
        {"type": "computer_call_output", "call_id": "a", "output": SHOT},
    ],
    "a local shell": [
        HELLO,
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "a", "action": EXEC},
        {"type": "local_shell_call_output", "id": "a", "output": "fine"},
        {"type": "local_shell_call", "id": "lsh_2", "call_id": "b", "action": EXEC},
        {"type": "function_call_output", "call_id": "b", "output": "fine"},
    ],
    "a search of the server": [HELLO, {"type": "web_search_call", "id": "ws_1"}, HELLO],
    "files": [item("user", {"type": "input_file", "file_data": PDF, "filename": "a.pdf"})],
}

RESPONSES_BAD: list[tuple[str, Any]] = [
    ("too_short", []),
    ("item_type", [{"type": "tool_result"}]),
    ("item_type", [{"content": "x"}]),
    ("role", [item("tool", given())]),
    ("unknown_field", [HELLO, function("a", parsed_arguments={}), output("a")]),
    ("unknown_field", [{**HELLO, "name": "ann"}]),
    ("part_of_role", [item("user", out())]),
    ("part_of_role", [item("assistant", given())]),
    ("part_of_role", [item("user", text("x"))]),
    ("too_short", [item("user")]),
    ("image_url", [item("user", {"type": "input_image", "image_url": "data:image/tiff;base64,A"})]),
    ("file", [item("user", {"type": "input_file", "filename": "x"})]),
    ("item_id", [item("assistant", out(), id="rs_1")]),
    ("item_id", [HELLO, reasoning("msg_1"), item("assistant", out())]),
    ("item_id", [HELLO, function("a", id="call_1"), output("a")]),
    ("item_id", [item("assistant", out(), id="msg_1_")]),
    ("item_id", [item("assistant", out(), id="")]),
    ("too_long", [item("assistant", out(), id="msg_" + "1" * 61)]),
    ("unique_items", [item("assistant", out(), id="msg_1"), item("assistant", out(), id="msg_1")]),
    ("status", [item("assistant", out(), status=None)]),
    ("too_long", [HELLO, function("x" * 65), output("x" * 65)]),
    ("tool_name", [HELLO, function("a", name="a.b"), output("a")]),
    ("shape", [HELLO, function("a", arguments={}), output("a")]),
    ("shape", [HELLO, function("a"), output("a", {"x": 1})]),
    ("too_short", [HELLO, function("a"), output("a", [])]),
    ("part_of_output", [HELLO, function("a"), output("a", [out()])]),
    ("call_without_result", [HELLO, function("a")]),
    ("call_without_result", [HELLO, function("a"), HELLO]),
    ("result_without_call", [HELLO, output("a")]),
    ("result_without_call", [HELLO, output("a"), function("a")]),
    (
        "result_without_call",
        [HELLO, function("a"), {"type": "custom_tool_call_output", "call_id": "a", "output": "x"}],
    ),
    ("result_twice", [HELLO, function("a"), output("a"), output("a")]),
    ("unique_calls", [HELLO, function("a"), output("a"), function("a"), output("a")]),
    ("screenshot", [{"type": "computer_call_output", "call_id": "a", "output": {"type": "x"}}]),
    ("computer_call", [HELLO, {"type": "computer_call", "id": "cu_1", "call_id": "a"}]),
    ("local_shell", [HELLO, {"type": "local_shell_call", "call_id": "a", "action": {"type": "x"}}]),
    ("reasoning_alone", [HELLO, reasoning()]),
    ("reasoning_alone", [HELLO, reasoning(), HELLO]),
    ("reasoning_alone", [HELLO, function("a"), reasoning(), output("a")]),
    ("shape", [HELLO, {"type": "reasoning", "id": "rs_1"}, item("assistant", out())]),
    ("shape", [HELLO, reasoning(content=None), item("assistant", out())]),
    ("not_stored", [HELLO, reasoning(encrypted_content=None), item("assistant", out())]),
    ("not_stored", [{"type": "item_reference", "id": "msg_1"}]),
    (
        "plain_reasoning",
        [HELLO, reasoning(content=[{"type": "reasoning_text", "text": "x"}]), item("assistant")],
    ),
    (
        "reasoning_modified",
        [HELLO, reasoning(encrypted_content=stamp("one", 0, ["x"])), item("assistant", out())],
    ),
    ("reasoning_missing", [HELLO, item("assistant", out(), id="msg_fakeonen1r")]),
    (
        "reasoning_alone",
        [HELLO, reasoning("rs_fakeonen0"), item("assistant", out(), id="msg_faketwon0")],
    ),
]


@pytest.mark.parametrize("items", RESPONSES_GOOD.values(), ids=RESPONSES_GOOD)
def test_openai_responses_takes(items: list[Any]) -> None:
    openai_responses_api.check({"input": items, "store": False})


@pytest.mark.parametrize(("rule", "items"), RESPONSES_BAD, ids=[name for name, _ in RESPONSES_BAD])
def test_openai_responses_refuses(rule: str, items: list[Any]) -> None:
    with pytest.raises(Refused) as found:
        openai_responses_api.check({"input": items, "store": False})
    assert found.value.rule == rule, found.value


def test_what_is_stored_needs_no_encrypted_content() -> None:
    items = [HELLO, reasoning(encrypted_content=None), item("assistant", out())]
    openai_responses_api.check({"input": items})
    openai_responses_api.check({"input": [{"type": "item_reference", "id": "msg_1"}]})
    openai_responses_api.check({"input": "Hi."})
    with pytest.raises(Refused, match="reasoning_unknown"):
        unnamed = reasoning(None, encrypted_content=None)
        openai_responses_api.check({"input": [HELLO, unnamed, item("assistant", out())]})


# --- Gemini -----------------------------------------------------------------------------------


def content(role: str, *parts: Any) -> JSON:
    return {"role": role, "parts": list(parts)}


def words(said: str = "Hi.", **more: Any) -> JSON:
    return {"text": said, **more}


def call(id: str | None = "a", *, signed: Any = True, name: str = "run", **more: Any) -> JSON:
    wanted = {"name": name, "args": {}, **more} | ({} if id is None else {"id": id})
    signature = {"thoughtSignature": "c2ln" if signed is True else signed} if signed else {}
    return {"functionCall": wanted, **signature}


def answer(id: str | None = "a", *, name: str = "run", response: Any = None) -> JSON:
    found: JSON = {"name": name, "response": {"output": "fine"} if response is None else response}
    return {"functionResponse": found if id is None else {"id": id, **found}}


def inline(mime: str = "image/png", data: str = PNG) -> JSON:
    return {"inlineData": {"mimeType": mime, "data": data}}


ASK = content("user", words())
RUN = [["run", {}], stamp("one", 0, ["run", {}])]

GEMINI_GOOD: dict[str, Any] = {
    "one content without a role": [{"parts": [words()]}],
    "a conversation": [ASK, content("model", words("Yes?")), ASK],
    "neighbours of the user": [ASK, ASK],
    "parallel calls, signed once": [
        ASK,
        content("model", words("I look."), call("a"), call("b", signed=False)),
        content("user", answer("b"), answer("a")),
        content("model", call("c")),
        content("user", answer("c")),
    ],
    "earlier turns unsigned": [
        ASK,
        content("model", call("a", signed=False)),
        content("user", answer("a")),
        content("model", words("Done.")),
        ASK,
        content("model", call("b")),
        content("user", answer("b")),
    ],
    "calls of another provider": [
        ASK,
        content("model", call("a", signed=gemini_api.SKIP[0])),
        content("user", answer("a")),
    ],
    "calls without ids": [ASK, content("model", call(None)), content("user", answer(None))],
    "words with the answers": [
        ASK,
        content("model", call("a", signed=False)),
        content("user", answer("a"), words("And hurry.")),
    ],
    "thoughts": [
        ASK,
        content("model", words("Hm.", thought=True), words("Yes.", thoughtSignature="c2ln")),
        content("model", words("", thoughtSignature="c2ln")),
        ASK,
    ],
    "pictures, files and texts": [
        content(
            "user",
            inline(),
            inline("application/pdf", PDF),
            inline("text/csv"),
            {"fileData": {"fileUri": "https://example.org/a.mp4", "mimeType": "video/mp4"}},
        )
    ],
    "names as Python spells them": [
        ASK,
        content(
            "model", {"function_call": {"name": "run", "args": {}}, "thought_signature": "c2ln"}
        ),
        content("user", {"function_response": {"name": "run", "response": {}}}),
    ],
    "a picture in an answer": [
        ASK,
        content("model", call()),
        content(
            "user",
            {
                "functionResponse": {
                    "id": "a",
                    "name": "run",
                    "response": {"output": ""},
                    "parts": [inline()],
                }
            },
        ),
    ],
}

GEMINI_BAD: list[tuple[str, Any]] = [
    ("too_short", []),
    ("too_short", [content("user")]),
    ("unknown_field", [{**ASK, "id": "x"}]),
    ("unknown_field", [content("user", words(type="text"))]),
    ("role", [content("assistant", words())]),
    ("role", [content("function", answer())]),
    ("role", [ASK, {"parts": [words()]}]),
    ("one_of_data", [content("user", {})]),
    ("one_of_data", [content("user", words(""))]),
    ("one_of_data", [content("user", {**words(), **inline()})]),
    ("part_of_role", [ASK, content("model", answer())]),
    ("part_of_role", [content("user", call())]),
    ("mime_type", [content("user", inline("image/gif"))]),
    ("mime_type", [content("user", inline("application/octet-stream"))]),
    ("base64", [content("user", inline(data="data:image/png;base64,AAAA"))]),
    ("shape", [content("user", {"fileData": {}})]),
    ("first_is_user", [content("model", words()), ASK]),
    ("ends_with_user", [ASK, content("model", words())]),
    ("ends_with_user", [ASK, content("model", call())]),
    ("function_name", [ASK, content("model", call(name="")), content("user", answer(name=""))]),
    ("function_name", [ASK, content("model", call(name="odd name")), content("user", answer())]),
    ("function_name", [ASK, content("model", call(name="7zip")), content("user", answer())]),
    ("shape", [ASK, content("model", call(args="{}")), content("user", answer())]),
    ("shape", [ASK, content("model", call()), content("user", answer(response="fine"))]),
    ("call_after_user", [ASK, content("model", words()), content("model", call()), ASK]),
    ("result_without_call", [content("user", answer())]),
    ("result_without_call", [ASK, content("model", words()), content("user", answer())]),
    ("as_many_results", [ASK, content("model", call()), ASK]),
    ("as_many_results", [ASK, content("model", call("a"), call("b")), content("user", answer())]),
    (
        "as_many_results",
        [ASK, content("model", call()), content("user", answer("a"), answer("a"))],
    ),
    (
        "as_many_results",
        [
            ASK,
            content("model", call("a"), call("b")),
            content("user", answer("a")),
            content("user", answer("b")),
        ],
    ),
    (
        "unique_ids",
        [ASK, content("model", call("a"), call("a")), content("user", answer("a"), answer("a"))],
    ),
    ("result_ids", [ASK, content("model", call("a")), content("user", answer("b"))]),
    ("result_ids", [ASK, content("model", call("a")), content("user", answer(None))]),
    ("result_names", [ASK, content("model", call("a")), content("user", answer("a", name="go"))]),
    ("part_of_response", [ASK, content("model", call()), content("user", answer())]),
    ("unsigned_call", [ASK, content("model", call(signed=False)), content("user", answer())]),
    (
        "unsigned_call",
        [ASK, content("model", call("a", signed=False), call("b")), content("user", answer())],
    ),
    (
        "unsigned_call",
        [
            ASK,
            content("model", call("a")),
            content("user", answer("a")),
            content("model", call("b", signed=False)),
            content("user", answer("b")),
        ],
    ),
    ("base64", [ASK, content("model", call(signed="not base64!")), content("user", answer())]),
    (
        "signature_moved",
        [ASK, content("model", call(name="go", signed=RUN[1])), content("user", answer(name="go"))],
    ),
    (
        "signature_moved",
        [
            ASK,
            content("model", call("a", signed=RUN[1]), call("b", signed=stamp("two", 0, RUN[0]))),
            content("user", answer("a"), answer("b")),
        ],
    ),
]


def _complete(contents: list[Any], rule: str) -> list[Any]:
    """The rows that would not fit on a line."""
    contents = copy.deepcopy(contents)
    if rule == "part_of_response":
        contents[-1]["parts"][0]["functionResponse"]["parts"] = [words()]
    if rule == "unsigned_call" and len(contents[1]["parts"]) == 2:
        contents[-1]["parts"].append(answer("b"))
    return contents


@pytest.mark.parametrize("contents", GEMINI_GOOD.values(), ids=GEMINI_GOOD)
def test_gemini_takes(contents: list[Any]) -> None:
    gemini_api.check({"contents": contents})


@pytest.mark.parametrize(("rule", "contents"), GEMINI_BAD, ids=[name for name, _ in GEMINI_BAD])
def test_gemini_refuses(rule: str, contents: list[Any]) -> None:
    with pytest.raises(Refused) as found:
        gemini_api.check({"contents": _complete(contents, rule)})
    assert found.value.rule == rule, found.value


def test_older_models_of_gemini_take_unsigned_calls_and_a_last_turn_of_the_model() -> None:
    older = gemini_api.Model(signatures=False, prefill=True, function_role=True)
    unsigned = content("model", call(signed=False))
    gemini_api.check({"contents": [ASK, unsigned, content("user", answer())]}, older)
    gemini_api.check({"contents": [ASK, unsigned, content("function", answer())]}, older)
    gemini_api.check({"contents": [ASK, content("model", words())]}, older)
    with pytest.raises(Refused, match="as_many_results"):
        gemini_api.check({"contents": [ASK, unsigned]}, older)


def test_the_system_instruction_of_gemini_is_text() -> None:
    gemini_api.check({"contents": [ASK], "systemInstruction": {"parts": [words("Be brief.")]}})
    for parts in ([], [inline()], [words("")]):
        with pytest.raises(Refused):
            gemini_api.check({"contents": [ASK], "systemInstruction": {"parts": parts}})


# --- models that follow a script ----------------------------------------------------------------


def drive(provider: FakeProvider, messages: list[Any], *, turns: int = 3) -> list[Any]:
    """An agent's loop without a store: the right one, that keeps everything as it came."""
    format = provider.format
    for turn in range(turns):
        messages.append(loops.user(format, f"Question {turn}."))
        while True:
            reply = provider.create(request(format, messages))
            messages += messages_of(format, reply)
            calls = calls_of(format, reply)
            if not calls:
                break
            messages += loops.results(format, [(call, f"gave {call.id}") for call in calls])
    return messages


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("format", FORMATS)
def test_a_loop_that_keeps_everything_is_never_refused(format: str, seed: int) -> None:
    provider = PROVIDERS[format](seed)
    messages = drive(provider, [])
    assert len(provider.requests) >= 3
    assert json.dumps(messages) == json.dumps(drive(PROVIDERS[format](seed), []))


@pytest.mark.parametrize("format", FORMATS)
def test_a_loop_that_loses_a_result_is_refused(format: str) -> None:
    provider = PROVIDERS[format](1)
    call = Call("call_1", "run", {"n": 1})
    reply = loops.REPLIES[format](Said("one", calls=(call,)))
    messages = [loops.user(format, "Hi."), *messages_of(format, reply)]
    with pytest.raises(Refused):
        provider.create(request(format, [*messages, loops.user(format, "Well?")]))
    assert provider.requests == []
    provider.create(request(format, [*messages, *loops.results(format, [(call, "fine")])]))


@pytest.mark.parametrize("format", FORMATS)
def test_replies_come_as_objects_of_an_sdk_too(format: str) -> None:
    reply = loops.REPLIES[format](Said("one", "I look.", "Hm.", (Call("call_1", "run"),)))
    found = sdk(format, reply)
    assert found.model_dump(mode="json") == reply
    assert hasattr(found, "to_dict") is (format != "gemini")
    if format == "gemini":
        part = found.candidates[0].content.parts[-1]
        assert part.function_call.name == "run"
        assert part.thought_signature
        assert found.usage_metadata.prompt_token_count
    elif format == "openai-chat":
        assert found.choices[0].message.tool_calls[0].function.name == "run"
    elif format == "openai-responses":
        assert [item.type for item in found.output] == ["reasoning", "message", "function_call"]
    else:
        assert [block.type for block in found.content] == ["thinking", "text", "tool_use"]
    with pytest.raises(AttributeError):
        found.nothing_like_it  # noqa: B018


def test_what_was_signed_is_known_again() -> None:
    """Changed by a word, or moved to another reply: what two merged replies look like."""
    one, two = Said("one", "A.", "Hm."), Said("two", "B.", "Oh.")
    merged = anthropic_message(one)["content"] + anthropic_message(two)["content"]
    with pytest.raises(Refused, match="thinking_modified"):
        anthropic_api.check({"messages": [HI, {"role": "assistant", "content": merged}, HI]})
    parts = [
        part
        for found in (one, two)
        for part in gemini_response(found)["candidates"][0]["content"]["parts"]
    ]
    with pytest.raises(Refused, match="signature_moved"):
        gemini_api.check({"contents": [ASK, content("model", *parts), ASK]})
    items = response(one)["output"]
    items[0]["summary"][0]["text"] = "Hm!"
    with pytest.raises(Refused, match="reasoning_modified"):
        openai_responses_api.check({"input": [HELLO, *items], "store": False})
    assert set(APIS) == set(FORMATS)
