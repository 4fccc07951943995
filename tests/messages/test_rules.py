"""The judges: each rule is broken once, alone, and found; what keeps the rules passes."""

from __future__ import annotations

from typing import Any

import pytest

from clew import messages

Case = tuple[str, list[Any]]


def user(*blocks: Any) -> Any:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> Any:
    return {"role": "assistant", "content": list(blocks)}


def text(said: str = "Hi", **more: Any) -> Any:
    return {"type": "text", "text": said, **more}


# --- Anthropic ------------------------------------------------------------------------------

HI = {"role": "user", "content": "Hi"}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "s"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
SERVED = {"type": "server_tool_use", "id": "s", "name": "w"}
MARK = {"type": "ephemeral"}


def image(**source: Any) -> Any:
    return {"type": "image", "source": source}


ANTHROPIC: list[Case] = [
    ("empty", []),
    ("unicode", [{"role": "user", "content": "a\ud800"}]),
    ("shape", [HI, "text"]),
    ("shape", [{"role": "user"}]),
    ("shape", [user({"text": "no type"})]),
    ("shape", [user({"type": "text"})]),
    ("shape", [user({"type": "image"})]),
    ("shape", [user(image(type="telepathy"))]),
    ("role", [HI, {"role": "tool", "content": "x"}]),
    ("first_user", [assistant(text()), HI]),
    ("alternation", [HI, HI]),
    ("alternation", [HI, assistant(text()), assistant(text()), HI]),
    ("empty_content", [user()]),
    ("empty_text", [{"role": "user", "content": " "}]),
    ("empty_text", [user(text("\n"))]),
    ("empty_text", [HI, assistant(USE), user({**RESULT, "content": [text("")]})]),
    ("block_place", [user(THOUGHT, text())]),
    ("block_place", [HI, assistant(IMAGE, text()), HI]),
    ("block_place", [HI, assistant(USE), user({**RESULT, "content": [THOUGHT]})]),
    ("block_place", [HI, {"role": "system", "content": [IMAGE]}]),
    ("call_id", [HI, assistant({**USE, "id": "a b"}), user({**RESULT, "tool_use_id": "a b"})]),
    ("tool_name", [HI, assistant({**USE, "name": "a.b"}), user(RESULT)]),
    ("tool_name", [HI, assistant({**USE, "name": "n" * 129}), user(RESULT)]),
    ("arguments", [HI, assistant({**USE, "input": "{}"}), user(RESULT)]),
    ("duplicate_id", [HI, assistant(USE), user(RESULT), assistant(USE), user(RESULT)]),
    ("unanswered_call", [HI, assistant(USE), HI]),
    ("unanswered_call", [HI, assistant(USE)]),
    ("unanswered_call", [HI, assistant(USE, {**USE, "id": "t2"}), user(RESULT)]),
    ("orphan_result", [user(RESULT)]),
    ("orphan_result", [HI, assistant(USE), user(RESULT), assistant(text()), user(RESULT)]),
    ("duplicate_result", [HI, assistant(USE), user(RESULT, RESULT)]),
    ("results_first", [HI, assistant(USE), user(text(), RESULT)]),
    ("error_content", [HI, assistant(USE), user({**RESULT, "is_error": True, "content": ""})]),
    ("thinking_signature", [HI, assistant({**THOUGHT, "signature": ""}, text()), HI]),
    ("thinking_signature", [HI, assistant({"type": "redacted_thinking"}, text()), HI]),
    ("thinking_last", [HI, assistant(text(), THOUGHT), HI]),
    ("last_user", [HI, assistant(text("So"))]),
    ("last_user", [HI, {"role": "assistant", "content": "So\n"}]),
    ("cache_marks", [user(*[text(cache_control=MARK)] * 5)]),
    ("media_type", [user(image(type="base64", media_type="image/tiff", data="aGk="))]),
]
ANTHROPIC_GOOD: list[list[Any]] = [
    [HI],
    [HI, {"role": "assistant", "content": "Hello"}, HI],
    [user(text(), IMAGE, image(type="url", url="https://example.org"))],
    [HI, assistant(THOUGHT, text(), USE), user(RESULT, text())],
    [HI, assistant(USE, {**USE, "id": "t2"}), user({**RESULT, "tool_use_id": "t2"}, RESULT)],
    [HI, assistant(USE), user({"type": "tool_result", "tool_use_id": "t1"})],
    [HI, assistant(USE), user({**RESULT, "content": [text(), IMAGE], "is_error": True})],
    [HI, assistant(THOUGHT, USE), user(RESULT), assistant(THOUGHT, text("Done.")), HI],
    [HI, assistant(SERVED, {"type": "new"}, text()), HI],
    [HI, assistant(text(), SERVED)],
    [user(*[text(cache_control=MARK)] * 4)],
    [HI, assistant(text("So ")), HI],
]

# --- Chat Completions -----------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CUSTOM = {"id": "c1", "type": "custom", "custom": {"name": "f", "input": "x"}}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org"}}


def calling(*calls: Any, **more: Any) -> Any:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def function(**fields: Any) -> Any:
    return {**CALL, "function": {"name": "f", "arguments": "{}", **fields}}


CHAT: list[Case] = [
    ("empty", []),
    ("unicode", [{"role": "user", "content": "a\ud800"}]),
    ("shape", ["text"]),
    ("shape", [{"role": "user", "content": 7}]),
    ("shape", [user({"text": "no type"})]),
    ("shape", [user({"type": "file", "file": {}})]),
    ("shape", [HI, calling({**CALL, "type": "telepathy"}), ANSWER]),
    ("role", [{"role": "model", "content": "x"}]),
    ("no_content", [{"role": "user", "content": None}]),
    ("no_content", [HI, {"role": "assistant"}]),
    ("empty_content", [user()]),
    ("empty_content", [HI, {"role": "assistant", "content": "x", "tool_calls": []}]),
    ("block_place", [{"role": "system", "content": [PICTURE]}]),
    ("block_place", [HI, assistant(PICTURE)]),
    ("block_place", [HI, calling(CALL), {**ANSWER, "content": [PICTURE]}]),
    ("block_place", [{"role": "user", "content": "x", "tool_calls": [CALL]}, ANSWER]),
    ("speaker", [{"role": "user", "content": "x", "name": "two words"}]),
    ("call_id", [HI, calling({**CALL, "id": "c" * 41}), {**ANSWER, "tool_call_id": "c" * 41}]),
    ("tool_name", [HI, calling(function(name="a.b")), ANSWER]),
    ("tool_name", [HI, calling(function(name="n" * 65)), ANSWER]),
    ("arguments", [HI, calling(function(arguments={})), ANSWER]),
    ("duplicate_id", [HI, calling(CALL), ANSWER, calling(CALL), ANSWER]),
    ("unanswered_call", [HI, calling(CALL), HI]),
    ("unanswered_call", [HI, calling(CALL)]),
    ("orphan_result", [HI, ANSWER]),
    ("orphan_result", [HI, calling(CALL), ANSWER, HI, ANSWER]),
    ("duplicate_result", [HI, calling(CALL), ANSWER, ANSWER]),
    ("media_type", [user({**PICTURE, "image_url": {"url": "data:image/tiff;base64,aGk="}})]),
    ("media_type", [user({"type": "input_audio", "input_audio": {"data": "x", "format": "ogg"}})]),
]
CHAT_GOOD: list[list[Any]] = [
    [{"role": "system", "content": "x"}, HI, {"role": "developer", "content": [text()]}],
    [HI, HI, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
    [HI, calling(CALL, {**CUSTOM, "id": "c2"}), {**ANSWER, "tool_call_id": "c2"}, ANSWER],
    [HI, calling(CALL, content="x"), {**ANSWER, "content": [text()]}],
    [user(text(), PICTURE, {"type": "video_url", "video_url": {}}, text(""))],
    [HI, assistant({"type": "refusal", "refusal": "no"})],
    [HI, {"role": "assistant", "content": None, "refusal": "no"}],
]

# --- Responses ------------------------------------------------------------------------------

ASKED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hi"}],
}
THINK = {"type": "reasoning", "id": "rs_1", "summary": []}
DO = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
DONE = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
PATCH = {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"}
PATCHED = {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}


def asked(*blocks: Any) -> Any:
    return {"type": "message", "role": "user", "content": list(blocks)}


RESPONSES: list[Case] = [
    ("empty", []),
    ("unicode", [{"role": "user", "content": "a\ud800"}]),
    ("shape", ["text"]),
    ("shape", [{"id": "x"}]),
    ("shape", [{"role": "user", "content": None}]),
    ("shape", [asked({"type": "input_image"})]),
    ("shape", [asked({"type": "input_file"})]),
    ("shape", [ASKED, {**THINK, "summary": None}, SAID]),
    ("shape", [ASKED, {**THINK, "content": None}, SAID]),
    ("role", [{"type": "message", "role": "tool", "content": "x"}]),
    ("empty_content", [asked()]),
    ("block_place", [asked({"type": "output_text", "text": "x"})]),
    ("block_place", [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]),
    ("block_place", [ASKED, DO, {**DONE, "output": [{"type": "output_text", "text": "x"}]}]),
    ("item_id", [ASKED, {**DO, "id": "call_1"}, DONE]),
    ("item_id", [ASKED, {**SAID, "id": "rs_1"}]),
    ("item_id", [ASKED, {**SAID, "id": "msg 1"}]),
    ("call_id", [ASKED, {**DO, "call_id": "c" * 65}, {**DONE, "call_id": "c" * 65}]),
    ("tool_name", [ASKED, {**DO, "name": "a.b"}, DONE]),
    ("arguments", [ASKED, {**DO, "arguments": {}}, DONE]),
    ("arguments", [ASKED, {**PATCH, "input": None}, PATCHED]),
    ("duplicate_id", [ASKED, DO, DONE, DO, DONE]),
    ("unanswered_call", [ASKED, DO, ASKED]),
    ("orphan_result", [ASKED, DONE]),
    ("duplicate_result", [ASKED, DO, DONE, DONE]),
    ("reasoning_last", [ASKED, THINK]),
    ("reasoning_last", [ASKED, THINK, ASKED]),
    ("reasoning_last", [ASKED, DO, THINK, DONE]),
    ("reasoning_unknown", [ASKED, {"type": "reasoning", "summary": []}, SAID]),
    ("media_type", [asked({"type": "input_image", "image_url": "data:image/tiff;base64,aGk="})]),
]
RESPONSES_GOOD: list[list[Any]] = [
    [{"role": "developer", "content": "x"}, ASKED, SAID],
    [ASKED, THINK, THINK, SAID, DO, {**DO, "call_id": "c2"}, DONE, {**DONE, "call_id": "c2"}],
    [ASKED, DO, ASKED, DONE],
    [ASKED, THINK, {"type": "web_search_call", "id": "ws_1"}, THINK, PATCH, PATCHED],
    [ASKED, DO, {**DONE, "output": [{"type": "input_image", "file_id": "file-1"}]}],
    [asked({"type": "input_file", "file_url": "https://example.org"}, {"type": "input_new"})],
    [ASKED, {"type": "something_new"}],
]

# --- Gemini ---------------------------------------------------------------------------------

ASK = {"role": "user", "parts": [{"text": "Hi"}]}
TELL = {"role": "model", "parts": [{"text": "Hi"}]}
F_CALL = {"functionCall": {"name": "f", "args": {}}}
F_DONE = {"functionResponse": {"name": "f", "response": {}}}


def content(role: str, *parts: Any) -> Any:
    return {"role": role, "parts": list(parts)}


def called(**fields: Any) -> Any:
    return content("model", {"functionCall": {"name": "f", "args": {}, **fields}})


def responded(**fields: Any) -> Any:
    return content("user", {"functionResponse": {"name": "f", "response": {}, **fields}})


GEMINI: list[Case] = [
    ("empty", []),
    ("unicode", [content("user", {"text": "a\ud800"})]),
    ("shape", ["text"]),
    ("shape", [{"role": "user"}]),
    ("shape", [content("user", {"text": 7})]),
    ("shape", [content("user", {"inlineData": "aGk="})]),
    ("shape", [content("user", {"fileData": {"mimeType": "image/png"}})]),
    ("role", [ASK, content("assistant", {"text": "x"})]),
    ("first_user", [TELL, ASK]),
    ("alternation", [ASK, ASK]),
    ("alternation", [ASK, TELL, TELL, ASK]),
    ("empty_content", [content("user")]),
    ("one_field", [content("user", {"text": "x", "inlineData": {"mimeType": "a", "data": "b"}})]),
    ("empty_text", [content("user", {"text": ""})]),
    ("block_place", [content("user", F_CALL)]),
    ("block_place", [ASK, content("model", F_DONE), ASK]),
    ("tool_name", [ASK, called(name="7zip"), responded(name="7zip")]),
    ("arguments", [ASK, called(args=[1]), content("user", F_DONE)]),
    ("response", [ASK, called(), responded(response="x")]),
    ("unanswered_call", [ASK, called(), ASK]),
    ("unanswered_call", [ASK, called()]),
    ("unanswered_call", [ASK, content("model", F_CALL, F_CALL), content("user", F_DONE)]),
    ("orphan_result", [ASK, TELL, content("user", F_DONE)]),
    ("duplicate_result", [ASK, called(), content("user", F_DONE, F_DONE)]),
    ("result_name", [ASK, called(), responded(name="g")]),
    ("result_name", [ASK, called(id="1"), responded(id="2")]),
    ("media_type", [content("user", {"inlineData": {"data": "aGk="}})]),
    ("last_user", [ASK, TELL]),
]
THOUGHT_PART = {"text": "x", "thought": True}
GEMINI_GOOD: list[list[Any]] = [
    [ASK, TELL, ASK],
    [ASK, called(), content("user", F_DONE), ASK, TELL, ASK],
    [ASK, content("model", {"text": "x"}, F_CALL, F_CALL), content("user", F_DONE, F_DONE)],
    [ASK, called(id="1"), responded(id="1"), called(id="2"), responded(id="2")],
    [ASK, content("model", {"text": "", "thoughtSignature": "x"}, THOUGHT_PART), ASK],
    [content("user", {"inline_data": {"mime_type": "image/png", "data": "aGk="}}, {"new": 1})],
    [content("user", {"fileData": {"fileUri": "gs://a"}}, {"text": " "})],
    [ASK, content("model", {"executableCode": {"code": "1"}}, {"text": "So"}), ASK],
]

# --- plain ----------------------------------------------------------------------------------

PLAIN_CALL = {"id": "c1", "name": "f", "arguments": {}}
PLAIN: list[Case] = [
    ("empty", []),
    ("unicode", [{"role": "user", "content": "a\ud800"}]),
    ("shape", ["text"]),
    ("shape", [{"role": "user", "content": 7}]),
    ("shape", [{"role": "user", "content": [{"type": "text"}]}]),
    ("role", [{"role": "model", "content": "x"}]),
    ("no_content", [{"role": "user", "content": None}]),
    ("empty_content", [user()]),
    ("block_place", [{"role": "user", "content": "x", "tool_calls": [PLAIN_CALL]}, ANSWER]),
    ("tool_name", [calling({"id": "c1"}), ANSWER]),
    ("duplicate_id", [calling(PLAIN_CALL), ANSWER, calling(PLAIN_CALL), ANSWER]),
    ("unanswered_call", [calling(PLAIN_CALL), HI]),
    ("orphan_result", [ANSWER]),
    ("duplicate_result", [calling(PLAIN_CALL), ANSWER, ANSWER]),
]
PLAIN_GOOD: list[list[Any]] = [
    [{"role": "assistant", "content": "x"}, HI, HI, {"role": "developer", "content": "x"}],
    [calling(PLAIN_CALL, CALL | {"id": "c2"}), ANSWER, ANSWER | {"tool_call_id": "c2"}],
    [{"role": "assistant", "content": None, "reasoning": "Hm"}],
]

BROKEN = {
    "anthropic": ANTHROPIC,
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "gemini": GEMINI,
    "plain": PLAIN,
}
GOOD = {
    "anthropic": ANTHROPIC_GOOD,
    "openai-chat": CHAT_GOOD,
    "openai-responses": RESPONSES_GOOD,
    "gemini": GEMINI_GOOD,
    "plain": PLAIN_GOOD,
}


@pytest.mark.parametrize(
    ("format", "rule", "given"),
    [(format, rule, given) for format, cases in BROKEN.items() for rule, given in cases],
)
def test_a_broken_rule_is_found_and_no_other(format: str, rule: str, given: list[Any]) -> None:
    found = messages.validate(format, given)
    assert {violation.rule for violation in found} == {rule}, found


@pytest.mark.parametrize(
    ("format", "given"), [(format, given) for format, cases in GOOD.items() for given in cases]
)
def test_what_keeps_the_rules_passes(format: str, given: list[Any]) -> None:
    assert messages.validate(format, given) == []


@pytest.mark.parametrize("format", messages.FORMATS)
def test_a_violation_names_its_message(format: str) -> None:
    nameless = {"role": "nobody", "content": "x", "parts": [{"text": "x"}]}
    good = messages.write(format, messages.read("plain", HI)).messages
    found = messages.validate(format, [*good, nameless])
    assert [(violation.rule, violation.index) for violation in found] == [("role", 1)]
    assert "nobody" in found[0].message


def test_a_call_without_a_result_is_reported_where_it_stands() -> None:
    found = messages.validate("anthropic", [HI, assistant(USE), HI])
    assert [(violation.rule, violation.index) for violation in found] == [("unanswered_call", 1)]
