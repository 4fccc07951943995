"""Clients that record: the real SDKs over a fake provider, and what stands in the thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="the SDK of Anthropic is not installed")
pytest.importorskip("openai", reason="the SDK of OpenAI is not installed")
pytest.importorskip("google.genai", reason="the SDK of Google is not installed")

import pydantic
from fake_provider import FakeProvider

import clew
from clew.record import record_anthropic, record_gemini, record_openai

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def thread(store: clew.Store) -> clew.Thread:
    return store.create("t")


def kinds(thread: clew.Thread) -> list[str]:
    return [entry.kind for entry in thread.path()]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# --- each API: a loop with a tool, plain and streamed ---

A_USE = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}}


def a_reply(*content: Any, stop: str = "end_turn") -> dict[str, Any]:
    blocks = [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def a_stream(reply: dict[str, Any]) -> list[dict[str, Any]]:
    import json

    usage = {"input_tokens": 10, "output_tokens": 1}
    start = {**reply, "content": [], "stop_reason": None, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(reply["content"]):
        if block["type"] == "text":
            empty = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": half} for half in _halves(block["text"])]
        else:
            empty = {**block, "input": {}}
            halves = _halves(json.dumps(block["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}})
    return [*events, {"type": "message_stop"}]


def _halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


A_LOOP = [a_reply("Let me see.", A_USE, stop="tool_use"), a_reply("It is 3.")]
ABOUT: dict[str, Any] = {"model": "claude", "max_tokens": 100}
LOOP_KINDS = [
    "user_message",
    "tool_call",
    "usage",
    "tool_result",
    "assistant_message",
    "usage",
]


def a_result(use: Any) -> dict[str, Any]:
    return user([{"type": "tool_result", "tool_use_id": use.id, "content": "3"}])  # type: ignore[arg-type]


def check_anthropic(thread: clew.Thread) -> None:
    assert kinds(thread) == LOOP_KINDS
    bodies = [entry.body for entry in thread.path()]
    assert bodies[0] == user("1 + 2?")
    assert bodies[1]["content"] == [{"type": "text", "text": "Let me see."}, A_USE]
    assert bodies[3]["content"][0]["tool_use_id"] == "t1"
    assert (bodies[5]["input_tokens"], bodies[5]["output_tokens"]) == (10, 5)
    assert {entry.format for entry in thread.path()} == {"anthropic"}
    chat = thread.context("openai-chat").messages
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "assistant"]


def test_a_loop_with_anthropic(thread: clew.Thread) -> None:
    client = record_anthropic(FakeProvider(*A_LOOP).anthropic(), thread)
    messages = [user("1 + 2?")]
    while True:
        reply = client.messages.create(messages=messages, **ABOUT)
        messages.append({"role": "assistant", "content": reply.content})
        if reply.stop_reason != "tool_use":
            break
        messages.append(a_result(reply.content[-1]))
    check_anthropic(thread)


def test_a_streamed_loop_with_anthropic(thread: clew.Thread) -> None:
    client = record_anthropic(FakeProvider(*map(a_stream, A_LOOP)).anthropic(), thread)
    messages = [user("1 + 2?")]
    with client.messages.stream(messages=messages, **ABOUT) as stream:
        assert "".join(stream.text_stream) == "Let me see."
    reply = stream.get_final_message()
    messages += [{"role": "assistant", "content": reply.content}, a_result(reply.content[-1])]
    for _ in client.messages.create(messages=messages, stream=True, **ABOUT):
        pass
    check_anthropic(thread)


async def test_a_loop_with_anthropic_in_tasks(thread: clew.Thread) -> None:
    provider = FakeProvider(A_LOOP[0], a_stream(A_LOOP[1]))
    client = record_anthropic(provider.anthropic(aio=True), thread)
    messages = [user("1 + 2?")]
    reply = await client.messages.create(messages=messages, **ABOUT)
    messages += [{"role": "assistant", "content": reply.content}, a_result(reply.content[-1])]
    async with client.messages.stream(messages=messages, **ABOUT) as stream:
        assert await stream.get_final_text() == "It is 3."
    check_anthropic(thread)


C_CALL = {
    "id": "t1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a":1,"b":2}'},
}


def c_reply(text: str | None, *calls: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text} | ({"tool_calls": [*calls]} if calls else {})
    reason = "tool_calls" if calls else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def c_stream(reply: dict[str, Any]) -> list[Any]:
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt"}
    message, reason = reply["choices"][0]["message"], reply["choices"][0]["finish_reason"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": half} for half in _halves(message["content"] or "")]
    for index, call in enumerate(message.get("tool_calls") or ()):
        first, second = _halves(call["function"]["arguments"])
        opening = {**call, "index": index, "function": {"name": "add", "arguments": first}}
        deltas.append({"tool_calls": [opening]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": second}}]})
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    chunks: list[Any] = [{**about, "choices": [choice]} for choice in choices]
    return [*chunks, {**about, "choices": [], "usage": reply["usage"]}, "[DONE]"]


C_LOOP = [c_reply(None, C_CALL), c_reply("It is 3.")]
C_RESULT = {"role": "tool", "tool_call_id": "t1", "content": "3"}
SYSTEM = {"role": "system", "content": "You add."}


def check_chat(thread: clew.Thread) -> None:
    assert kinds(thread) == ["system_message", *LOOP_KINDS]
    bodies = [entry.body for entry in thread.path()]
    assert bodies[2]["tool_calls"] == [C_CALL]
    assert (bodies[6]["input_tokens"], bodies[6]["output_tokens"]) == (10, 5)
    assert len(thread.context("anthropic").messages) == 5


def test_a_loop_with_chat_completions(thread: clew.Thread) -> None:
    client = record_openai(FakeProvider(*C_LOOP).openai(), thread)
    messages: list[Any] = [SYSTEM, user("1 + 2?")]
    reply = client.chat.completions.create(model="gpt", messages=messages)
    messages += [reply.choices[0].message, C_RESULT]
    client.chat.completions.create(model="gpt", messages=messages)
    check_chat(thread)


def test_a_streamed_loop_with_chat_completions(thread: clew.Thread) -> None:
    client = record_openai(FakeProvider(*map(c_stream, C_LOOP)).openai(), thread)
    messages: list[Any] = [SYSTEM, user("1 + 2?")]
    for _ in client.chat.completions.create(model="gpt", messages=messages, stream=True):
        pass
    messages += [{"role": "assistant", "tool_calls": [C_CALL]}, C_RESULT]
    with client.chat.completions.stream(model="gpt", messages=messages) as stream:
        assert stream.get_final_completion().choices[0].message.content == "It is 3."
    check_chat(thread)


async def test_a_loop_with_chat_completions_in_tasks(thread: clew.Thread) -> None:
    client = record_openai(FakeProvider(C_LOOP[0], c_stream(C_LOOP[1])).openai(aio=True), thread)
    messages: list[Any] = [SYSTEM, user("1 + 2?")]
    reply = await client.chat.completions.create(model="gpt", messages=messages)
    messages += [reply.choices[0].message, C_RESULT]
    async for _ in await client.chat.completions.create(
        model="gpt", messages=messages, stream=True
    ):
        pass
    check_chat(thread)


R_CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "t1",
    "name": "add",
    "arguments": '{"a":1,"b":2}',
    "status": "completed",
}
R_RESULT = {"type": "function_call_output", "call_id": "t1", "output": "3"}


def r_reply(id: str, *output: Any) -> dict[str, Any]:
    items = [
        {
            "type": "message",
            "id": f"msg_{id}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": item, "annotations": []}],
        }
        if isinstance(item, str)
        else item
        for item in output
    ]
    return {
        "id": id,
        "object": "response",
        "created_at": 1,
        "model": "gpt",
        "status": "completed",
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "output_tokens": 5,
            "total_tokens": 15,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def r_stream(reply: dict[str, Any]) -> list[Any]:
    empty = {**reply, "output": [], "status": "in_progress", "usage": None}
    events: list[Any] = [{"type": "response.created", "response": empty}]
    for index, item in enumerate(reply["output"]):
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": reply})
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]


R_LOOP = [r_reply("resp_1", R_CALL), r_reply("resp_2", "It is 3.")]


def check_responses(thread: clew.Thread) -> None:
    assert kinds(thread) == LOOP_KINDS
    bodies = [entry.body for entry in thread.path()]
    assert bodies[1] == [R_CALL]
    assert (bodies[5]["input_tokens"], bodies[5]["cache_read_tokens"]) == (6, 4)


def test_a_loop_with_responses(thread: clew.Thread) -> None:
    client = record_openai(FakeProvider(*R_LOOP).openai(), thread)
    items: list[Any] = [user("1 + 2?")]
    reply = client.responses.create(model="gpt", input=items)
    items += [*reply.output, R_RESULT]
    client.responses.create(model="gpt", input=items)
    check_responses(thread)


def test_a_streamed_loop_with_responses(thread: clew.Thread) -> None:
    client = record_openai(FakeProvider(*map(r_stream, R_LOOP)).openai(), thread)
    for _ in client.responses.create(model="gpt", input="1 + 2?", stream=True):
        pass
    items: list[Any] = [user("1 + 2?"), R_CALL, R_RESULT]
    with client.responses.stream(model="gpt", input=items) as stream:
        assert stream.get_final_response().output_text == "It is 3."
    check_responses(thread)


async def test_a_loop_with_responses_that_the_provider_keeps(thread: clew.Thread) -> None:
    client = record_openai(FakeProvider(R_LOOP[0], r_stream(R_LOOP[1])).openai(aio=True), thread)
    reply = await client.responses.create(model="gpt", input="1 + 2?")
    async for _ in await client.responses.create(
        model="gpt", input=[R_RESULT], previous_response_id=reply.id, stream=True
    ):
        pass
    check_responses(thread)
    with pytest.raises(clew.Conflict, match="response 'resp_9', which is not in thread 't'"):
        await client.responses.create(model="gpt", input="?", previous_response_id="resp_9")


G_CALL = {"functionCall": {"name": "add", "args": {"a": 1, "b": 2}}}


def g_reply(*parts: Any) -> dict[str, Any]:
    found = [{"text": part} if isinstance(part, str) else part for part in parts]
    return {
        "candidates": [
            {"content": {"role": "model", "parts": found}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5},
        "modelVersion": "gemini",
        "responseId": "r1",
    }


def g_stream(reply: dict[str, Any]) -> list[Any]:
    chunks = []
    for part in reply["candidates"][0]["content"]["parts"]:
        pieces = [{"text": half} for half in _halves(part["text"])] if "text" in part else [part]
        chunks += [{"candidates": [{"content": {"role": "model", "parts": [p]}}]} for p in pieces]
    last = {**reply, "candidates": [{**reply["candidates"][0], "content": {"role": "model"}}]}
    return [*chunks, last]


G_LOOP = [g_reply(G_CALL), g_reply("It is 3.")]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def check_gemini(thread: clew.Thread) -> None:
    assert kinds(thread) == LOOP_KINDS
    bodies = [entry.body for entry in thread.path()]
    assert bodies[1]["parts"][0]["functionCall"]["args"] == {"a": 1, "b": 2}
    assert bodies[4] == {"role": "model", "parts": [{"text": "It is 3."}]}
    assert (bodies[5]["input_tokens"], bodies[5]["output_tokens"]) == (10, 5)
    assert [m["role"] for m in thread.context("openai-chat").messages][:3] == [
        "user",
        "assistant",
        "tool",
    ]


def test_functions_that_the_sdk_of_gemini_calls_itself_are_recorded(thread: clew.Thread) -> None:
    client = record_gemini(FakeProvider(*G_LOOP).gemini(), thread)
    reply = client.models.generate_content(
        model="gemini", contents="1 + 2?", config={"tools": [add]}
    )
    assert reply.text == "It is 3."
    check_gemini(thread)


def test_a_streamed_loop_with_gemini(thread: clew.Thread) -> None:
    from google.genai import types

    client = record_gemini(FakeProvider(*map(g_stream, G_LOOP)).gemini(), thread)
    contents: list[Any] = [types.UserContent("1 + 2?")]
    parts = [
        chunk.candidates[0].content.parts[0]
        for chunk in client.models.generate_content_stream(model="gemini", contents=contents)
        if chunk.candidates[0].content.parts
    ]
    contents.append(types.ModelContent(parts))
    contents.append(
        types.UserContent([types.Part.from_function_response(name="add", response={"result": 3})])
    )
    for _ in client.models.generate_content_stream(model="gemini", contents=contents):
        pass
    check_gemini(thread)


async def test_a_chat_with_gemini_in_tasks(thread: clew.Thread, anyio_backend_name: str) -> None:
    if anyio_backend_name == "trio":
        pytest.skip("the SDK runs on asyncio alone")
    client = record_gemini(
        FakeProvider(g_reply("Hello."), g_stream(g_reply("Bye."))).gemini(), thread
    )
    chat = client.aio.chats.create(model="gemini")
    await chat.send_message("Hi")
    async for _ in await chat.send_message_stream("So long"):
        pass
    assert kinds(thread) == ["user_message", "assistant_message", "usage"] * 2
    assert [e.body["parts"][0]["text"] for e in thread.path() if e.kind != "usage"] == [
        "Hi",
        "Hello.",
        "So long",
        "Bye.",
    ]


# --- what is new ---


def ask(client: Any, *messages: Any) -> Any:
    return client.messages.create(messages=messages, **ABOUT)


def say(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def texts(thread: clew.Thread) -> list[str]:
    found = []
    for entry in thread.path():
        if entry.kind in ("user_message", "assistant_message"):
            content = entry.body["content"]
            found.append(content if isinstance(content, str) else content[0]["text"])
    return found


def test_messages_are_compared_by_what_they_say(thread: clew.Thread) -> None:
    client = record_anthropic(
        FakeProvider(*[a_reply(str(n)) for n in range(3)]).anthropic(), thread
    )
    ask(client, user("a"))
    cached = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]
    thinking = [
        {"type": "thinking", "thinking": "…", "signature": "s"},
        {"type": "text", "text": "0"},
    ]
    ask(client, user(cached), {"role": "assistant", "content": thinking}, user("b"))  # type: ignore[arg-type]
    assert texts(thread) == ["a", "0", "b", "1"]


def test_a_new_process_goes_on_from_the_context_or_from_its_own_list(thread: clew.Thread) -> None:
    provider = FakeProvider(*[a_reply(str(n)) for n in range(4)])
    ask(record_anthropic(provider.anthropic(), thread), user("a"))
    messages = thread.context("anthropic").messages
    assert messages[-1]["content"][0]["text"] == "[continue]"
    ask(record_anthropic(provider.anthropic(), thread), *messages, user("b"))
    own = [user("a"), say("0"), user("b"), say("1"), user("c")]
    ask(record_anthropic(provider.anthropic(), thread), *own)
    assert texts(thread) == ["a", "0", "b", "1", "c", "2"]
    thread.compact(summary="They counted.", keep_turns=1)
    later = thread.context("anthropic").messages
    ask(record_anthropic(provider.anthropic(), thread), *later, user("d"))
    assert texts(thread)[-2:] == ["d", "3"]
    assert len(thread.leaves()) == 1


def test_a_request_without_the_oldest_messages_goes_on(thread: clew.Thread) -> None:
    client = record_anthropic(
        FakeProvider(*[a_reply(str(n)) for n in range(3)]).anthropic(), thread
    )
    ask(client, user("a"))
    ask(client, user("a"), say("0"), user("b"))
    ask(client, user("b"), say("1"), user("c"))
    assert texts(thread) == ["a", "0", "b", "1", "c", "2"]


def test_another_question_in_the_place_of_one_is_a_branch(thread: clew.Thread) -> None:
    client = record_anthropic(
        FakeProvider(*[a_reply(str(n)) for n in range(3)]).anthropic(), thread
    )
    ask(client, user("a"))
    ask(client, user("a"), say("0"), user("b"))
    ask(client, user("a"), say("0"), user("other"))
    assert texts(thread) == ["a", "0", "other", "2"]
    assert len(thread.leaves()) == 2


def test_the_same_request_again_gives_a_second_reply_beside_the_first(thread: clew.Thread) -> None:
    client = record_anthropic(
        FakeProvider(*[a_reply(str(n)) for n in range(3)]).anthropic(), thread
    )
    ask(client, user("a"))
    ask(client, user("a"))
    assert texts(thread) == ["a", "1"]
    ask(client, user("a"), say("1"), user("b"))
    assert texts(thread) == ["a", "1", "b", "2"]
    assert len(thread.leaves()) == 2


def test_a_request_that_shares_nothing_is_refused_before_it_is_sent(thread: clew.Thread) -> None:
    provider = FakeProvider(a_reply("0"), a_reply("a title"))
    plain = provider.anthropic()
    client = record_anthropic(plain, thread)
    ask(client, user("a"))
    before = thread.info.seq
    with pytest.raises(clew.Conflict, match="shares no message with thread 't'"):
        ask(client, user("Give this talk a title"))
    assert (len(provider.requests), thread.info.seq) == (1, before)
    ask(plain, user("Give this talk a title"))
    assert thread.info.seq == before


def test_a_request_that_fails_keeps_the_question_and_the_next_attempt_adds_the_reply(
    thread: clew.Thread,
) -> None:
    import anthropic

    client = record_anthropic(FakeProvider(400, a_reply("0")).anthropic(), thread)
    with pytest.raises(anthropic.BadRequestError):
        ask(client, user("a"))
    assert texts(thread) == ["a"]
    ask(client, user("a"))
    assert texts(thread) == ["a", "0"]


def test_a_stream_that_was_broken_off_is_no_reply(thread: clew.Thread) -> None:
    provider = FakeProvider(a_stream(a_reply("never whole")), a_reply("0"))
    client = record_anthropic(provider.anthropic(), thread)
    with client.messages.stream(messages=[user("a")], **ABOUT) as stream:
        next(iter(stream.text_stream))
    assert kinds(thread) == ["user_message"]
    ask(client, user("a"))
    assert texts(thread) == ["a", "0"]


def test_a_system_message_that_changes_is_stored_when_it_does(thread: clew.Thread) -> None:
    client = record_openai(FakeProvider(*[c_reply(str(n)) for n in range(3)]).openai(), thread)
    messages: list[Any] = [{"role": "system", "content": "It is Monday."}, user("a")]
    for text in ("It is Monday.", "It is Tuesday.", "It is Tuesday."):
        messages[0] = {"role": "system", "content": text}
        reply = client.chat.completions.create(model="gpt", messages=messages)
        messages += [reply.choices[0].message, user("more")]
    stored = [entry.body["content"] for entry in thread.path() if entry.kind == "system_message"]
    assert stored == ["It is Monday.", "It is Tuesday."]
    assert len(thread.leaves()) == 1


def test_what_another_program_wrote_meanwhile_is_kept(thread: clew.Thread) -> None:
    client = record_anthropic(FakeProvider(a_reply("0"), a_reply("1")).anthropic(), thread)
    ask(client, user("a"))
    thread.append_message(user("from elsewhere"))
    ask(client, user("a"), say("0"), user("from elsewhere"), user("b"))
    assert texts(thread) == ["a", "0", "from elsewhere", "b", "1"]


def test_under_the_lease_of_a_turn(thread: clew.Thread) -> None:
    provider = FakeProvider(a_reply("0"), a_reply("1"))
    with thread.turn(owner="me") as turn:
        ask(record_anthropic(provider.anthropic(), turn), user("a"))
        with pytest.raises((clew.LeaseHeld, clew.LeaseLost)):
            ask(record_anthropic(provider.anthropic(), thread), user("a"), say("0"), user("b"))
    assert len(provider.requests) == 1
    markers = [entry.kind for entry in thread.path() if entry.kind == "turn_marker"]
    assert len(markers) == 2


async def test_threads_of_the_asynchronous_side(address: str) -> None:
    async with await clew.open_async(address) as store:
        thread = await store.create("t")
        client = record_anthropic(FakeProvider(a_reply("0")).anthropic(aio=True), thread)
        await client.messages.create(messages=[user("a")], **ABOUT)
        assert texts(thread.sync) == ["a", "0"]


# --- what the SDKs add, and what cannot be recorded ---


class Sum(pydantic.BaseModel):
    value: int


def test_what_parse_reads_out_of_a_reply_is_not_stored(store: clew.Store) -> None:
    text = '{"value": 3}'
    one = record_openai(FakeProvider(c_reply(text)).openai(), store.create("chat"))
    reply = one.chat.completions.parse(model="gpt", messages=[user("?")], response_format=Sum)
    assert reply.choices[0].message.parsed == Sum(value=3)
    two = record_openai(FakeProvider(r_reply("r", text)).openai(), store.create("responses"))
    assert two.responses.parse(model="gpt", input="?", text_format=Sum).output_parsed == Sum(
        value=3
    )
    three = record_anthropic(FakeProvider(a_reply(text)).anthropic(), store.create("messages"))
    found = three.messages.parse(messages=[user("?")], output_format=Sum, **ABOUT)
    assert found.parsed_output == Sum(value=3)
    for id in ("chat", "responses", "messages"):
        data = b"".join(entry.data for entry in store.get(id).path())
        assert b"value" in data
        assert b"parsed" not in data


@pytest.mark.parametrize("count", [2, 5])
def test_several_replies_at_once_are_refused_before_the_request(
    thread: clew.Thread, count: int
) -> None:
    provider = FakeProvider()
    with pytest.raises(clew.InvalidInput, match="only one can be recorded"):
        record_openai(provider.openai(), thread).chat.completions.create(
            model="gpt", messages=[user("a")], n=count
        )
    with pytest.raises(clew.InvalidInput, match="only one can be recorded"):
        record_gemini(provider.gemini(), thread).models.generate_content(
            model="g", contents="a", config={"candidate_count": count}
        )
    with pytest.raises(clew.InvalidInput, match="comes later"):
        record_openai(provider.openai(), thread).responses.create(
            model="gpt", input="a", background=True
        )
    with pytest.raises(clew.InvalidInput, match="raw responses"):
        record_anthropic(provider.anthropic(), thread).messages.with_raw_response.create(
            messages=[user("a")], **ABOUT
        )
    assert (provider.requests, thread.path()) == ([], [])


def test_other_calls_go_through_unrecorded(thread: clew.Thread) -> None:
    client = record_anthropic(FakeProvider({"input_tokens": 7}).anthropic(), thread)
    counted = client.messages.count_tokens(model="claude", messages=[user("a")])
    assert counted.input_tokens == 7
    assert thread.path() == []


def test_a_client_with_other_options_is_recorded_as_well(thread: clew.Thread) -> None:
    client = record_anthropic(FakeProvider(a_reply("0"), a_reply("1")).anthropic(), thread)
    ask(client.with_options(timeout=5), user("a"))
    again = client.with_options(timeout=5).copy(max_retries=7)
    assert (again.timeout, again.max_retries) == (5, 7)
    ask(again, user("a"), say("0"), user("b"))
    assert texts(thread) == ["a", "0", "b", "1"]


def test_tools_that_the_sdk_of_anthropic_runs_itself_are_recorded(thread: clew.Thread) -> None:
    import anthropic

    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    client = record_anthropic(FakeProvider(*A_LOOP).anthropic(), thread)
    runner = client.beta.messages.tool_runner(tools=[add], messages=[user("1 + 2?")], **ABOUT)
    runner.until_done()
    check_anthropic(thread)


def test_messages_may_come_from_an_iterator(thread: clew.Thread) -> None:
    provider = FakeProvider(a_reply("0"))
    client = record_anthropic(provider.anthropic(), thread)
    client.messages.create(messages=iter([user("a")]), **ABOUT)
    assert provider.requests[0]["messages"] == [user("a")]
    assert texts(thread) == ["a", "0"]


@pytest.mark.parametrize("record", [record_anthropic, record_openai, record_gemini])
def test_mistakes_of_the_call(record: Callable[..., Any], thread: clew.Thread) -> None:
    with pytest.raises(clew.InvalidInput, match="must be a client"):
        record(object(), thread)
    makers = {record_anthropic: "anthropic", record_openai: "openai", record_gemini: "gemini"}
    with pytest.raises(clew.InvalidInput, match="must be a thread or a turn"):
        record(getattr(FakeProvider(), makers[record])(), "t")
