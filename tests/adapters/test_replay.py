"""Recorded runs, replayed by the real SDKs without a network, and what is told of a difference."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="the SDK of Anthropic is not installed")
pytest.importorskip("openai", reason="the SDK of OpenAI is not installed")
pytest.importorskip("google.genai", reason="the SDK of Google is not installed")

from event_streams import STREAMS
from fake_provider import FakeProvider

import clew
from clew.record import record_anthropic, record_gemini, record_openai
from clew.testing import RecordedFailure, ReplayMismatch, replay

pytest_plugins = ["clew.testing.fixtures"]
pytestmark = pytest.mark.anyio

PROMPT = "Read both files."
OUTPUTS = {"t1": "milk", "t2": "eggs"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def thread(store: clew.Store) -> clew.Thread:
    return store.create("t")


# --- an agent for each API: asks, runs the tools that are called, asks again, plain or streamed ---


class Agent:
    """Two requests. `prompt` and `run` can be changed, to see that it is noticed."""

    def __init__(self, client: Any, run: Callable[[str, str, Any], Any]) -> None:
        self.client, self.run = client, run
        self.prompt = PROMPT
        self.reverse = False

    def ordered(self, results: list[Any]) -> list[Any]:
        return results[::-1] if self.reverse else results


class AnthropicAgent(Agent):
    about: dict[str, Any] = {"model": "claude", "max_tokens": 9}  # noqa: RUF012

    def go(self, streamed: bool) -> str:
        said: list[Any] = [{"role": "user", "content": self.prompt}]
        reply = self.ask(said, streamed)
        said.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        results = [
            {
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": self.run(call.id, call.name, call.input),
            }
            for call in calls
        ]
        said.append({"role": "user", "content": self.ordered(results)})
        return str(self.ask(said, streamed).content[0].text)

    def ask(self, said: list[Any], streamed: bool) -> Any:
        if not streamed:
            return self.client.messages.create(messages=said, **self.about)
        with self.client.messages.stream(messages=said, **self.about) as stream:
            return stream.get_final_message()


class ChatAgent(Agent):
    def go(self, streamed: bool) -> str:
        said: list[Any] = [{"role": "user", "content": self.prompt}]
        message = self.ask(said, streamed)
        said.append(message)
        results = [
            {
                "role": "tool",
                "tool_call_id": call.id,
                "content": self.run(
                    call.id, call.function.name, json.loads(call.function.arguments)
                ),
            }
            for call in message.tool_calls
        ]
        said += self.ordered(results)
        return str(self.ask(said, streamed).content)

    def ask(self, said: list[Any], streamed: bool) -> Any:
        completions = self.client.chat.completions
        if not streamed:
            return completions.create(model="gpt", messages=said).choices[0].message
        with completions.stream(model="gpt", messages=said) as stream:
            return stream.get_final_completion().choices[0].message


class ResponsesAgent(Agent):
    def go(self, streamed: bool) -> str:
        said: list[Any] = [{"role": "user", "content": self.prompt}]
        reply = self.ask(said, streamed)
        results = [
            {
                "type": "function_call_output",
                "call_id": item.call_id,
                "output": self.run(item.call_id, item.name, json.loads(item.arguments)),
            }
            for item in reply.output
            if item.type == "function_call"
        ]
        said += [*reply.output, *self.ordered(results)]
        return str(self.ask(said, streamed).output_text)

    def ask(self, said: list[Any], streamed: bool) -> Any:
        if not streamed:
            return self.client.responses.create(model="gpt", input=said)
        with self.client.responses.stream(model="gpt", input=said) as stream:
            return stream.get_final_response()


class GeminiAgent(Agent):
    def go(self, streamed: bool) -> str:
        from google.genai import types

        said: list[Any] = [types.UserContent(self.prompt)]
        parts = self.ask(said, streamed)
        said.append(types.ModelContent(parts))
        names = [part.function_call for part in parts if part.function_call]
        results = [
            types.Part.from_function_response(
                name=call.name, response={"result": self.run(f"t{n}", call.name, dict(call.args))}
            )
            for n, call in enumerate(names, 1)
        ]
        said.append(types.UserContent(self.ordered(results)))
        return "".join(part.text or "" for part in self.ask(said, streamed))

    def ask(self, said: list[Any], streamed: bool) -> list[Any]:
        models, about = self.client.models, {"model": "gemini", "contents": said}
        if not streamed:
            return list(models.generate_content(**about).candidates[0].content.parts)
        return [
            part
            for chunk in models.generate_content_stream(**about)
            for part in chunk.candidates[0].content.parts or ()
        ]


AGENTS: dict[str, tuple[type[Any], Callable[..., Any], str]] = {
    "anthropic": (AnthropicAgent, record_anthropic, "anthropic"),
    "openai-chat": (ChatAgent, record_openai, "openai"),
    "openai-responses": (ResponsesAgent, record_openai, "openai"),
    "gemini": (GeminiAgent, record_gemini, "gemini"),
}
each_api = pytest.mark.parametrize("format", AGENTS)


def recorded(thread: clew.Thread, format: str) -> clew.Thread:
    """A run with tools, recorded with the SDK over a provider that streams."""
    kind, record, client = AGENTS[format]
    provider = FakeProvider(STREAMS[format]["thinking"], STREAMS[format]["text"])
    agent = kind(record(getattr(provider, client)(), thread), lambda id, name, _: OUTPUTS[id])
    assert agent.go(streamed=True) == "The notes say: buy milk."
    return thread


def replayed(run: Any, format: str) -> Any:
    """The same agent, on what was recorded."""
    kind, _, client = AGENTS[format]
    tools = run.tools
    return kind(getattr(run, client)(), lambda id, name, arguments: tools[name](**arguments))


@each_api
@pytest.mark.parametrize("streamed", [False, True])
def test_a_recorded_run_replays_without_a_network(
    thread: clew.Thread, format: str, streamed: bool
) -> None:
    run = replay(recorded(thread, format))
    assert run.left == 2
    assert replayed(run, format).go(streamed) == "The notes say: buy milk."
    run.check_done()


@each_api
def test_results_of_parallel_calls_may_come_in_any_order(thread: clew.Thread, format: str) -> None:
    run = replay(recorded(thread, format))
    agent = replayed(run, format)
    agent.reverse = True
    agent.go(False)
    run.check_done()


@each_api
@pytest.mark.parametrize("streamed", [False, True])
def test_a_changed_prompt_is_named(thread: clew.Thread, format: str, streamed: bool) -> None:
    agent = replayed(replay(recorded(thread, format)), format)
    agent.prompt = "Read one file."
    with pytest.raises(ReplayMismatch) as caught:
        agent.go(streamed)
    assert caught.value.request == 1
    assert (caught.value.expected, caught.value.actual) == (
        f"user: {PROMPT}",
        "user: Read one file.",
    )


@each_api
def test_a_changed_result_is_named(thread: clew.Thread, format: str) -> None:
    agent = replayed(replay(recorded(thread, format)), format)
    agent.run = lambda id, name, arguments: "bread"
    with pytest.raises(ReplayMismatch) as caught:
        agent.go(False)
    assert caught.value.request == 2
    assert caught.value.actual is not None
    assert "result: bread" in caught.value.actual
    assert caught.value.expected is not None
    assert "result: " in caught.value.expected


@each_api
async def test_asynchronous_clients_replay_as_well(thread: clew.Thread, format: str) -> None:
    run = replay(recorded(thread, format))
    user = {"role": "user", "content": PROMPT}
    if format == "anthropic":
        client = run.anthropic(aio=True)
        got = await client.messages.create(model="c", max_tokens=9, messages=[user])
        assert got.stop_reason == "tool_use"
    elif format == "openai-chat":
        stream = await run.openai(aio=True).chat.completions.create(
            model="gpt", messages=[user], stream=True
        )
        assert [chunk async for chunk in stream][-2].choices[0].finish_reason == "tool_calls"
    elif format == "openai-responses":
        got = await run.openai(aio=True).responses.create(model="gpt", input=PROMPT)
        assert got.output[1].content[0].text == "Let me read them."
    else:
        got = await run.gemini().aio.models.generate_content(model="g", contents=PROMPT)
        assert got.text == "Let me read them."
    with pytest.raises(ReplayMismatch, match="1 replies were not asked for"):
        run.check_done()


@each_api
def test_one_request_more_is_named(thread: clew.Thread, format: str) -> None:
    run = replay(recorded(thread, format))
    agent = replayed(run, format)
    agent.go(False)
    with pytest.raises(ReplayMismatch, match="one more than were recorded"):
        agent.go(False)


def test_a_request_to_another_api_is_named(thread: clew.Thread) -> None:
    run = replay(recorded(thread, "anthropic"))
    with pytest.raises(ReplayMismatch, match=r"expected: anthropic\n .*openai-chat"):
        run.openai().chat.completions.create(
            model="gpt", messages=[{"role": "user", "content": "?"}]
        )


def test_a_changed_system_message_is_named(thread: clew.Thread) -> None:
    client = record_openai(FakeProvider(STREAMS["openai-chat"]["text"]).openai(), thread)
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    for _ in client.chat.completions.create(model="gpt", messages=said, stream=True):
        pass
    said[0]["content"] = "Be long."
    with pytest.raises(ReplayMismatch, match=r"Be brief\.\n.*Be long\."):
        replay(thread).openai().chat.completions.create(model="gpt", messages=said)


def test_a_loop_on_the_thread_itself_can_be_replayed(store: clew.Store) -> None:
    """What was stored by `append_response` and `append_results`, and is asked for by contexts."""

    def go(thread: clew.Thread, client: Any, tools: dict[str, Any]) -> None:
        thread.append_message({"role": "user", "content": PROMPT})
        while (context := thread.context("anthropic")).next != "user":
            if context.next == "model":
                thread.append_response(
                    client.messages.create(model="c", max_tokens=9, messages=context.messages)
                )
            for call in context.calls:
                try:
                    output = tools[call.name](**call.arguments)
                except Exception as error:
                    output = error
                thread.append_results({call.id: output})

    outputs: Any = itertools.cycle([{"lines": ["milk"]}, KeyError("eggs")])

    def read(**arguments: Any) -> Any:
        found = next(outputs)
        if isinstance(found, Exception):
            raise found
        return found

    provider = FakeProvider({**whole("anthropic", "thinking")}, {**whole("anthropic", "text")})
    first = store.create("first")
    go(first, provider.anthropic(), {"read": read})
    run = replay(first)
    second = store.create("second")
    go(second, run.anthropic(), run.tools)
    run.check_done()
    assert [e.body for e in first.path() if e.kind != "usage"] == [
        e.body for e in second.path() if e.kind != "usage"
    ]


def whole(format: str, name: str) -> dict[str, Any]:
    from clew import messages

    gathered = messages.accumulator(format)
    for event in STREAMS[format][name]:
        gathered.add(event)
    found = gathered.so_far()
    assert found is not None
    return found.response


def test_tools_give_what_was_recorded_and_refuse_other_calls(thread: clew.Thread) -> None:
    call = {"type": "tool_use", "id": "a", "name": "look", "input": {"at": 1}}
    thread.append_message({"role": "user", "content": "?"})
    content = [call, {**call, "id": "b"}, {**call, "id": "c", "input": {"at": 2}}]
    thread.append_message({"role": "assistant", "content": content}, format="anthropic")
    thread.append_results({"b": '{"n": 2}', "a": '{"n": 1}', "c": ValueError("no")})
    run = replay(thread, decode=json.loads)
    with pytest.raises(RecordedFailure, match="no") as failed:
        run.tool("look")(at=2)
    assert type(failed.value).__name__ == "ValueError"
    assert [run.tool("look")(at=1) for _ in range(2)] == [{"n": 1}, {"n": 2}]
    with pytest.raises(ReplayMismatch, match=r"tool 'look'"):
        run.tool("look")(at=1)
    with pytest.raises(ReplayMismatch, match=r"expected: nothing\n .*other\(\{\}\)"):
        run.tool("other")()


def test_what_cannot_be_replayed_is_refused(store: clew.Store) -> None:
    thread = store.create()
    thread.append_message({"role": "user", "content": "?"})
    with pytest.raises(clew.InvalidInput, match="has no reply"):
        replay(thread)
    plain = thread.append_message({"role": "assistant", "content": "."}, format="plain")
    with pytest.raises(clew.InvalidInput, match="a reply in 'plain'"):
        replay(thread)
    thread.move(plain.parent)
    damaged = thread.append("assistant_message", {"role": "assistant", "content": 7})
    with pytest.raises(clew.InvalidInput, match=f"entry '{damaged.id}' cannot be read"):
        replay(thread)


def test_the_fixture_opens_a_store_and_checks_the_end(
    clew_replay: Callable[..., Any], tmp_path: Any
) -> None:
    path = str(tmp_path / "runs.db")
    with clew.open(path) as store:
        recorded(store.create("login"), "anthropic")
    agent = replayed(clew_replay(path, "login"), "anthropic")
    assert agent.go(True) == "The notes say: buy milk."
