"""What is stored of a stream is what the SDK's own accumulation gives, event by event or whole."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("anthropic", reason="the SDK of Anthropic is not installed")
pytest.importorskip("openai", reason="the SDK of OpenAI is not installed")
pytest.importorskip("google.genai", reason="the SDK of Google is not installed")

from event_streams import ANTHROPIC, CHAT, GEMINI, RESPONSES, STREAMS, Event
from fake_provider import FakeProvider

import clew
from clew import messages
from clew.messages.response import read_response
from clew.messages.sdk_objects import as_sent

WHOLE = ("text", "thinking", "refusal")
USER = {"role": "user", "content": "What is in notes.txt?"}

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def thread(store: clew.Store) -> clew.Thread:
    thread = store.create("t")
    thread.append_message(USER)
    return thread


def raw(format: str, events: list[Event], *, aio: bool = False) -> Any:
    """The SDK's stream of raw events."""
    provider = FakeProvider(events)
    if format == "anthropic":
        return provider.anthropic(aio=aio).messages.create(
            model="claude", max_tokens=9, messages=[USER], stream=True
        )
    if format == "openai-chat":
        client = provider.openai(aio=aio)
        return client.chat.completions.create(model="gpt", messages=[USER], stream=True)
    if format == "openai-responses":
        return provider.openai(aio=aio).responses.create(model="gpt", input="?", stream=True)
    client = provider.gemini()
    models = client.aio.models if aio else client.models
    return models.generate_content_stream(model="gemini", contents="?")


def without_nothing(value: Any) -> Any:
    """JSON without what is null, and the numbers of places: the SDKs differ in telling those."""
    if isinstance(value, dict):
        return {k: without_nothing(v) for k, v in value.items() if v is not None and k != "index"}
    return [without_nothing(one) for one in value] if isinstance(value, list) else value


def sdk_message(format: str, name: str) -> Any:
    """The message that the SDK's own helper puts together."""
    provider = FakeProvider(STREAMS[format][name])
    if format == "anthropic":
        client = provider.anthropic()
        with client.messages.stream(model="claude", max_tokens=9, messages=[USER]) as stream:
            return {"role": "assistant", "content": as_sent(stream.get_final_message())["content"]}
    if format == "openai-chat":
        with provider.openai().chat.completions.stream(model="gpt", messages=[USER]) as chat:
            return as_sent(chat.get_final_completion())["choices"][0]["message"]
    with provider.openai().responses.stream(model="gpt", input="?") as responses:
        return as_sent(responses.get_final_response())["output"]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses"])
def test_the_message_is_the_one_that_the_sdk_puts_together(
    thread: clew.Thread, format: str, name: str
) -> None:
    with thread.streaming(format, save_seconds=0) as reply:
        for event in raw(format, STREAMS[format][name]):
            reply.feed(event)
    assert reply.result.message is not None
    stored = without_nothing(reply.result.message.body)
    assert stored == without_nothing(sdk_message(format, name))


@pytest.mark.parametrize("name", ["text", "thinking"])
def test_the_message_has_what_a_chat_of_gemini_remembers(thread: clew.Thread, name: str) -> None:
    with thread.streaming("gemini") as reply:
        for chunk in raw("gemini", GEMINI[name]):
            reply.feed(chunk)
    chat = FakeProvider(GEMINI[name]).gemini().chats.create(model="gemini")
    for _ in chat.send_message_stream("?"):
        pass
    remembered = [messages.as_body(content) for content in chat.get_history()[1:]]
    parts = [part for content in remembered for part in content.get("parts") or ()]
    assert reply.result.message is not None
    stored = reply.result.message.body["parts"]
    for thought in (None, True):
        texts = [
            "".join(p["text"] for p in which if "text" in p and p.get("thought") == thought)
            for which in (stored, parts)
        ]
        assert texts[0] == texts[1]
    calls = [[p for p in which if "functionCall" in p] for which in (stored, parts)]
    assert calls[0] == calls[1]


@pytest.mark.parametrize("format", STREAMS)
@pytest.mark.parametrize("name", WHOLE)
def test_objects_of_an_sdk_and_json_are_stored_alike(
    thread: clew.Thread, format: str, name: str
) -> None:
    found = []
    given = [event for event in STREAMS[format][name] if event.get("type") != "ping"]
    for events in (list(raw(format, given)), given):
        for cut in range(1, len(events) + 1):
            gathered = messages.accumulator(format)
            for event in events[:cut]:
                gathered.add(event)
            streamed = gathered.so_far()
            assert streamed is not None
            said = read_response(streamed.response, format)
            found.append((without_nothing(said.message), streamed.unfinished, streamed.is_whole))
    assert found[: len(found) // 2] == found[len(found) // 2 :]


def test_events_of_the_helpers_can_be_fed_as_well(thread: clew.Thread) -> None:
    """They bring raw events and events of their own, which tell the same once more."""
    about: Any = {"model": "claude", "max_tokens": 9, "messages": [USER]}
    with (
        FakeProvider(ANTHROPIC["thinking"]).anthropic().messages.stream(**about) as stream,
        thread.streaming("anthropic") as reply,
    ):
        for event in stream:
            reply.feed(event)
    assert reply.result.message is not None
    assert without_nothing(reply.result.message.body) == sdk_message("anthropic", "thinking")
    openai = FakeProvider(CHAT["thinking"], RESPONSES["thinking"]).openai()
    with (
        openai.chat.completions.stream(model="gpt", messages=[USER]) as chat,
        thread.streaming("openai-chat") as reply,
    ):
        for event in chat:
            reply.feed(event)
    assert len(reply.result.calls) == 2
    with (
        openai.responses.stream(model="gpt", input="?") as responses,
        thread.streaming("openai-responses") as reply,
    ):
        for event in responses:
            reply.feed(event)
    assert reply.result.message is not None
    assert reply.result.message.body == RESPONSES["thinking"][-1]["response"]["output"]


@pytest.mark.parametrize("format", STREAMS)
async def test_streams_of_asynchronous_clients(store: clew.Store, format: str) -> None:
    async with await clew.open_async("memory:") as other:
        thread = await other.create("t")
        await thread.append_message(USER)
        async with thread.turn(owner="w") as turn, turn.streaming(format, save_seconds=0) as reply:
            async for event in await raw(format, STREAMS[format]["text"], aio=True):
                await reply.feed(event)
            assert reply.text == "The notes say: buy milk."
        assert reply.result.text == "The notes say: buy milk."
        assert [entry.kind for entry in await thread.path()][2:4] == ["assistant_message", "usage"]


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses"])
def test_an_error_that_the_sdk_raises_leaves_what_there_was(
    thread: clew.Thread, format: str
) -> None:
    reply = thread.streaming(format)
    with pytest.raises(Exception, match=r"(?i)overloaded|error|no"), reply:
        for event in raw(format, STREAMS[format]["error"]):
            reply.feed(event)
        raise AssertionError("no error was raised")
    assert reply.result.is_partial
    assert reply.result.text.startswith("The notes")
    assert thread.context(format).next == "model"
