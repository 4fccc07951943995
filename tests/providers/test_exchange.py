"""Whole replies and the outputs of tools: stored in one step, and sent back as they were."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from providers import loops
from providers.loops import APIS, FORMATS, PROVIDERS, REPLIES, FakeProvider
from providers.refusal import JSON
from providers.responses import Call, Said, chat_completion, gemini_response, response, sdk

import clew
from clew import InvalidInput
from clew.store import Store
from clew.thread import Thread

every_format = pytest.mark.parametrize("format", FORMATS)
SAID = Said("one", "I look.", "Hm.", (Call("call_1", "run", {"n": 1}), Call("call_2", "run")))


def check(thread: Thread, format: str) -> None:
    context = thread.context(format)
    APIS[format].check(loops.request(format, context.messages, context.system))


# --- a reply ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", [False, True], ids=["dict", "object"])
@every_format
def test_a_reply_is_stored_whole_and_in_one_step(store: Store, format: str, wrapped: bool) -> None:
    thread = store.create()
    thread.append_message(loops.user(format, "Hi."), format=format)
    body = REPLIES[format](SAID)
    seq = thread.info.seq
    reply = thread.append_response(sdk(format, body) if wrapped else body)
    assert thread.info.seq == seq + 2
    assert reply.message is not None
    assert (reply.message.kind, reply.usage.kind) == ("tool_call", "usage")
    assert reply.usage.parent == reply.message.id
    sent_back = loops.messages_of(format, body)
    for message in sent_back:  # fields of a completion's message that no request needs
        message.pop("refusal", None)
        message.pop("annotations", None)
    assert thread.context().messages[1 : 1 + len(sent_back)] == sent_back
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        (call.id, call.name, call.arguments) for call in SAID.calls
    ]
    assert reply.calls == thread.context().calls
    assert (reply.text, thread.context().next) == ("I look.", "tools")
    assert [repair.code for repair in thread.context().report.repairs] == ["interrupted_call"] * 2


USAGE = {
    "anthropic": ("claude-opus-4-6", "msg_one", "tool_use", 37, 64, 2048, 112, 0),
    "openai-chat": ("gpt-5.1", "chatcmpl-one", "tool_calls", 149, 64, 2048, 0, 20),
    "openai-responses": ("gpt-5.1", "resp_one", "completed", 149, 64, 2048, 0, 20),
    "gemini": ("gemini-3-pro-preview", "one", "STOP", 149, 64, 2048, 0, 20),
}


@every_format
def test_what_a_reply_cost_is_told_alike_for_all(format: str) -> None:
    body = REPLIES[format](SAID)
    note = clew.open("memory:").create().append_response(body).usage.body
    tokens = [f"{name}_tokens" for name in ("input", "output", "cache_read", "cache_write")]
    names = ("model", "response_id", "stop_reason", *tokens, "reasoning_tokens")
    assert tuple(note[name] for name in names) == USAGE[format]
    raw = body.get("usage") or body.get("usageMetadata")
    assert (note["usage"], note["format"]) == (raw, format)


@every_format
def test_nothing_of_a_reply_is_lost(format: str) -> None:
    """Each field of it is in the message or in the usage entry, but for what says nothing."""
    body = REPLIES[format](SAID)
    body["x_new"] = {"deep": [1]}
    reply = clew.open("memory:").create().append_response(body)
    assert reply.message is not None
    stored = json.dumps([reply.message.body, reply.usage.body])
    said_elsewhere = {"object", "type", "role", "index", "tools", "tool_choice"}
    top = {**body, **(body.get("choices") or body.get("candidates") or [{}])[0]}
    for key, value in top.items():
        if key in said_elsewhere | {"choices", "candidates"} or value is None:
            continue
        assert json.dumps(value) in stored or json.dumps(value)[1:-1] in stored, key


@every_format
def test_a_reply_with_an_id_can_be_retried(store: Store, format: str) -> None:
    thread = store.create()
    body = REPLIES[format](SAID)
    first = thread.append_response(body, id="reply-1")
    assert first.message is not None
    assert (first.message.id, first.usage.id) == ("reply-1", "reply-1.usage")
    assert thread.append_response(body, id="reply-1") == first
    assert thread.info.seq == 2


@every_format
def test_a_reply_and_its_results_can_be_retried_in_the_next_turn(store: Store, format: str) -> None:
    """What was stored before a crash is written again by the loop that is resumed."""
    thread = store.create()
    body = REPLIES[format](SAID)
    stored = []
    for owner in ("worker-1", "worker-2"):
        with thread.turn(owner=owner) as turn:
            reply = turn.append_response(body, id="reply")
            results = turn.append_results({"call_1": "one", "call_2": "two"}, id="results")
            stored.append((reply, results))
    assert stored[0] == stored[1]
    assert [entry.kind for entry in thread.path()].count("tool_result") == 2


def test_a_reply_that_says_nothing_leaves_its_usage(store: Store) -> None:
    thread = store.create()
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}
    failed = {**response(SAID), "output": [], "status": "failed", "error": {"code": "x"}}
    cut = gemini_response(SAID)
    del cut["candidates"][0]["content"]["parts"]
    cut["candidates"][0]["finishReason"] = "MALFORMED_FUNCTION_CALL"
    for body, reason in ((blocked, "SAFETY"), (failed, "failed"), (cut, "MALFORMED_FUNCTION_CALL")):
        reply = thread.append_response(body)
        assert (reply.message, reply.calls, reply.text) == (None, (), "")
        assert reply.stop_reason == reply.usage.body["stop_reason"] == reason
    assert thread.context().messages == []


def test_a_reply_that_was_cut_off_says_why(store: Store) -> None:
    body = {**response(SAID), "status": "incomplete"}
    body["incomplete_details"] = {"reason": "max_output_tokens"}
    assert store.create().append_response(body).stop_reason == "max_output_tokens"


MISTAKES: list[tuple[str, Any, str | None, str]] = [
    ("a message", {"role": "assistant", "content": "Hi."}, None, "append_message"),
    ("a text", "Hi.", None, "type str"),
    ("blocks", [{"type": "text", "text": "Hi."}], None, "type list"),
    ("a choice", chat_completion(SAID)["choices"][0], None, "a piece of one"),
    ("an event", {"object": "chat.completion.chunk", "choices": []}, None, "event of a stream"),
    ("another format", chat_completion(SAID), "gemini", "one of openai-chat"),
    ("no choice", {**chat_completion(SAID), "choices": []}, None, "0 choices"),
    ("two", {"choices": chat_completion(SAID)["choices"] * 2}, None, "one that you go on with"),
]


@pytest.mark.parametrize(
    ("body", "format", "hint"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_what_is_no_whole_reply_is_refused_with_a_hint(
    store: Store, body: Any, format: str | None, hint: str
) -> None:
    thread = store.create()
    with pytest.raises(InvalidInput, match=hint):
        thread.append_response(body, format=format)
    assert thread.info.seq == 0


NEAR_MISSES: list[tuple[str, Any, str]] = [
    ("a text", "Hi.", "whose it is"),
    ("a choice", chat_completion(SAID)["choices"][0], r"\.message"),
    ("a candidate", gemini_response(SAID)["candidates"][0], r"\.content"),
    ("parts", gemini_response(SAID)["candidates"][0]["content"]["parts"], '"parts"'),
    ("blocks", [{"type": "text", "text": "Hi."}], "list of blocks"),
    ("a block", {"type": "text", "text": "Hi."}, "is a block"),
    ("messages", [{"role": "user", "content": "Hi."}], "one by one"),
    ("an event", {"object": "chat.completion.chunk", "choices": []}, "stream"),
]


@pytest.mark.parametrize(
    ("body", "hint"), [row[1:] for row in NEAR_MISSES], ids=[row[0] for row in NEAR_MISSES]
)
def test_what_is_nearly_a_message_is_refused_with_a_hint(
    store: Store, body: Any, hint: str
) -> None:
    with pytest.raises(InvalidInput, match=hint):
        store.create().append_message(body)


# --- the outputs of tools -----------------------------------------------------------------------


@every_format
def test_outputs_answer_their_calls(store: Store, format: str) -> None:
    thread = store.create()
    thread.append_message(loops.user(format, "Hi."), format=format)
    reply = thread.append_response(REPLIES[format](SAID))
    seq = thread.info.seq
    entries = thread.append_results({"call_2": "two", "call_1": ValueError("bad")}, id="results")
    assert [entry.id for entry in entries] == ["results.1", "results.2"]
    assert [entry.kind for entry in entries] == ["tool_result"] * 2
    assert thread.info.seq == seq + 2
    check(thread, format)
    context = thread.context()
    assert (context.format, context.next, context.report.repairs) == (format, "model", ())
    sent = json.dumps(context.messages)
    assert sent.index("ValueError: bad") < sent.index("two"), "in the order of the calls"
    thread.append_response(REPLIES[format](Said("two", "Done.")))
    thread.append_message(loops.user(format, "Thanks."), format=format)
    check(thread, format)
    assert thread.append_results({}) == []
    assert reply.calls[0].entry == reply.message.id if reply.message else None


PNG = "iVBORw0KGgo="
OUTPUTS: list[tuple[str, Any, JSON]] = [
    ("a text", "fine", {"content": "fine"}),
    ("nothing", None, {"content": ""}),
    ("JSON", {"n": [1, None]}, {"content": '{"n":[1,null]}'}),
    ("a number", 7, {"content": "7"}),
    ("a list", ["a", "b"], {"content": '["a","b"]'}),
    ("an error", OSError("gone"), {"content": "OSError: gone", "is_error": True}),
    (
        "an error without words",
        KeyboardInterrupt(),
        {"content": "KeyboardInterrupt", "is_error": True},
    ),
    ("blocks", [{"type": "text", "text": "a"}], {"content": [{"type": "text", "text": "a"}]}),
    (
        "a picture of MCP",
        [{"type": "image", "data": PNG, "mimeType": "image/png"}],
        {"content": [{"type": "image", "mime": "image/png", "data": PNG}]},
    ),
    (
        "a picture of Anthropic",
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}],
        {"content": [{"type": "image", "mime": "image/png", "data": PNG}]},
    ),
    (
        "a result of MCP",
        {"content": [{"type": "text", "text": "no"}], "isError": True},
        {"content": [{"type": "text", "text": "no"}], "is_error": True},
    ),
]


@pytest.mark.parametrize(
    ("output", "stored"), [row[1:] for row in OUTPUTS], ids=[row[0] for row in OUTPUTS]
)
@every_format
def test_an_output_may_be_anything(format: str, output: Any, stored: JSON) -> None:
    thread = clew.open("memory:").create()
    thread.append_message(loops.user(format, "Hi."), format=format)
    reply = thread.append_response(REPLIES[format](Said("one", calls=(Call("call_1", "run"),))))
    [entry] = thread.append_results([(reply.calls[0], output)])
    head = {"role": "tool", "tool_call_id": "call_1", "name": "run"}
    assert entry.body == {**head, **stored}
    check(thread, format)


def test_calls_of_gemini_without_ids_get_their_own_outputs(store: Store) -> None:
    thread = store.create()
    thread.append_message(loops.user("gemini", "Hi."))
    body = gemini_response(
        Said("one", calls=(Call("", "run", {"n": 1}), Call("", "run", {"n": 2})))
    )
    for part in body["candidates"][0]["content"]["parts"]:
        del part["functionCall"]["id"]
    one, two = thread.append_response(body).calls
    thread.append_results({two.id: "two"})
    assert thread.context().calls == (one,)
    thread.append_results({one.id: "one"})
    answers = [part["functionResponse"] for part in thread.context().messages[-1]["parts"]]
    assert [answer["response"]["output"] for answer in answers] == ["one", "two"]
    check(thread, "gemini")


def test_an_output_for_a_call_that_is_not_there_is_refused_and_nothing_is_stored(
    store: Store,
) -> None:
    thread = store.create()
    thread.append_response(response(SAID))
    with pytest.raises(InvalidInput, match="call_9"):
        thread.append_results({"call_1": "fine", "call_9": "fine"})
    assert thread.info.seq == 2


# --- the loop of the howto page -----------------------------------------------------------------


class Killed(Exception):
    """The process ended here."""


def go_on(thread: Thread, provider: FakeProvider, appends: int) -> None:
    """Until it is the user's turn; killed after so many appends."""

    def alive() -> None:
        nonlocal appends
        if not appends:
            raise Killed
        appends -= 1

    while (context := thread.context(provider.format)).next != "user":
        alive()
        if context.next == "tools":
            thread.append_results({call.id: f"gave {call.id}" for call in context.calls})
        else:
            asked = loops.request(provider.format, context.messages, context.system)
            thread.append_response(sdk(provider.format, provider.create(asked)))


@every_format
def test_a_loop_that_was_killed_anywhere_goes_on_by_what_the_context_says(format: str) -> None:
    for seed in range(5):
        for appends in range(10):
            thread = clew.open("memory:").create()
            thread.append_message(loops.user(format, "Hi."), format=format)
            provider = PROVIDERS[format](seed)
            with contextlib.suppress(Killed):
                go_on(thread, provider, appends)
            if appends % 2:  # the user does not wait for the tools
                thread.append_message(loops.user(format, "Go on."), format=format)
            go_on(thread, provider, 1000)
            key = {"gemini": "contents", "openai-responses": "input"}.get(format, "messages")
            sent = [json.dumps(request[key]) for request in provider.requests]
            for before, after in itertools.pairwise(sent):
                assert after.startswith(before.rstrip("]}")), (seed, appends)


@every_format
def test_a_loop_over_several_questions_is_never_refused(format: str) -> None:
    thread = clew.open("memory:").create()
    provider = PROVIDERS[format](3)
    for question in range(4):
        thread.append_message(loops.user(format, f"Question {question}."), format=format)
        go_on(thread, provider, 1000)
    assert len(provider.requests) >= 4
