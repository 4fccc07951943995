"""Spans of threads, held to OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

import jsonschema
from genai_schemas import INSTRUCTIONS, MESSAGES
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace import TracerProvider as Provider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

import clew
from clew.adapters.otel import export_thread, traced
from clew.testing.wrappers import Fault, faulty

BEGIN = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)

# Published after the release of opentelemetry-semantic-conventions that is installed.
NEWER = {"gen_ai.conversation.compacted", "gen_ai.usage.cache_write.input_tokens"}
KNOWN = {
    value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")
} | NEWER
OPERATIONS = {value.value for value in gen_ai_attributes.GenAiOperationNameValues}
PROVIDERS = {value.value for value in gen_ai_attributes.GenAiProviderNameValues}
CONTENT = {
    "gen_ai.input.messages": MESSAGES,
    "gen_ai.output.messages": MESSAGES,
    "gen_ai.system_instructions": INSTRUCTIONS,
}
OPT_IN = {*CONTENT, "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}


class Tracing:
    """A provider whose spans stay here."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = Provider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        made = self.exporter.get_finished_spans()
        found = sorted(made, key=lambda span: (span.start_time or 0, span.parent is not None))
        for span in found:
            check(span)
        return found

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


def check(span: ReadableSpan) -> None:
    """What the conventions ask of each span."""
    about = dict(span.attributes or {})
    operation = about["gen_ai.operation.name"]
    assert operation in OPERATIONS
    assert {name for name in about if name.startswith("gen_ai.")} <= KNOWN
    target = {
        "invoke_agent": about.get("gen_ai.agent.name"),
        "chat": about.get("gen_ai.request.model"),
        "execute_tool": about.get("gen_ai.tool.name"),
    }[operation]
    assert span.name == (operation if target is None else f"{operation} {target}")
    assert span.kind is (SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL)
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time >= span.start_time
    assert about["gen_ai.conversation.id"] == about["session.id"]
    if operation == "chat":
        assert about["gen_ai.provider.name"] in PROVIDERS | {"_OTHER"}
    if operation == "execute_tool":
        assert about["gen_ai.tool.call.id"]
    assert (span.status.status_code is StatusCode.ERROR) == ("error.type" in about)
    for name, schema in CONTENT.items():
        if name in about:
            jsonschema.validate(json.loads(about[name]), schema)


@pytest.fixture
def tracing() -> Tracing:
    return Tracing()


def converse(thread: clew.Thread) -> None:
    """Two turns with a tool, thinking, a picture, and what the model's replies cost."""
    clock = iter(range(100))

    def time() -> datetime:
        return BEGIN + timedelta(seconds=next(clock))

    def reply(id: str, stop: str, *blocks: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": "claude-5",
            "stop_reason": stop,
            "content": list(blocks),
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 2,
            },
        }

    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    thread.append_message({"role": "system", "content": "Be kind."}, time=time())
    with_picture = [{"type": "text", "text": "secret?"}, {"type": "image", "source": picture}]
    thread.append_message(
        {"role": "user", "content": with_picture}, format="anthropic", turn="t1", time=time()
    )
    thinking = {"type": "thinking", "thinking": "secret thought", "signature": "x"}
    call = {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"word": "secret"}}
    thread.append_response(reply("r1", "tool_use", thinking, call), turn="t1", time=time())
    thread.append_results({"c1": "a secret answer"}, turn="t1", time=time())
    thread.append_response(
        reply("r2", "end_turn", {"type": "text", "text": "secret!"}), turn="t1", time=time()
    )
    thread.append_message({"role": "user", "content": "Again?"}, turn="t2", time=time())
    thread.append_response(reply("r3", "tool_use", {**call, "id": "c2"}), turn="t2", time=time())
    thread.append_results({"c2": ValueError("secret failure")}, turn="t2", time=time())


def afterwards(store: clew.Store, tracing: Tracing, work: Callable[[clew.Thread], None]) -> None:
    thread = store.create("talk")
    work(thread)
    made = export_thread(thread, tracer_provider=tracing.provider, agent="guide")
    assert made == len(tracing.spans)


def live(store: clew.Store, tracing: Tracing, work: Callable[[clew.Thread], None]) -> None:
    with traced(store, tracer_provider=tracing.provider, agent="guide") as watched:
        work(watched.create("talk"))


@pytest.mark.parametrize("way", [afterwards, live])
def test_turns_replies_and_calls_are_spans(
    way: Callable[..., None], store: clew.Store, tracing: Tracing
) -> None:
    way(store, tracing, converse)
    assert [name for name in tracing.names if not name.startswith("chat")] == [
        "invoke_agent guide",
        "execute_tool look_up",
        "invoke_agent guide",
        "execute_tool look_up",
    ]
    turns, chats, tools = (
        [span for span in tracing.spans if span.name.startswith(operation)]
        for operation in ("invoke_agent", "chat", "execute_tool")
    )
    assert [chat.parent.span_id for chat in chats] == [
        *(turns[0].context.span_id, turns[0].context.span_id, turns[1].context.span_id)
    ]
    first = chats[0]
    assert first.name == "chat claude-5"
    about = dict(first.attributes)
    assert about["gen_ai.provider.name"] == "anthropic"
    assert about["gen_ai.conversation.id"] == "talk"
    assert about["gen_ai.response.id"] == "r1"
    assert about["gen_ai.response.finish_reasons"] == ("tool_use",)
    assert about["gen_ai.usage.input_tokens"] == 15
    assert about["gen_ai.usage.output_tokens"] == 5
    assert about["gen_ai.usage.cache_read.input_tokens"] == 3
    assert about["gen_ai.usage.cache_write.input_tokens"] == 2
    assert (first.end_time - first.start_time) / 1e9 == 1, "from what was asked to the reply"
    assert [(tool.end_time - tool.start_time) / 1e9 for tool in tools] == [1, 1]
    assert [tool.attributes.get("error.type") for tool in tools] == [None, "tool_error"]
    assert tools[0].attributes["gen_ai.tool.call.id"] == "c1"


@pytest.mark.parametrize("way", [afterwards, live])
def test_nothing_that_was_said_is_told_unless_it_is_asked_for(
    way: Callable[..., None], store: clew.Store, tracing: Tracing
) -> None:
    way(store, tracing, converse)
    for span in tracing.spans:
        assert not OPT_IN & set(span.attributes)
        assert "secret" not in span.to_json()


@pytest.mark.parametrize("way", ["afterwards", "live"])
def test_what_was_said_has_the_shape_of_the_conventions(
    way: str, store: clew.Store, tracing: Tracing
) -> None:
    options: dict[str, Any] = {"tracer_provider": tracing.provider, "content": True}
    if way == "live":
        with traced(store, **options) as watched:
            converse(watched.create("talk"))
    else:
        converse(store.create("talk"))
        export_thread(store.get("talk"), **options)
    chats = [dict(span.attributes) for span in tracing.spans if span.name.startswith("chat")]
    asked, said = (json.loads(chats[0][f"gen_ai.{name}.messages"]) for name in ("input", "output"))
    assert [part["type"] for part in asked[0]["parts"]] == ["text", "blob"]
    assert [part["type"] for part in said[0]["parts"]] == ["reasoning", "tool_call"]
    assert json.loads(chats[0]["gen_ai.system_instructions"]) == [
        {"type": "text", "content": "Be kind."}
    ]
    answered = json.loads(chats[1]["gen_ai.input.messages"])
    assert answered[0]["parts"] == [
        {"type": "tool_call_response", "id": "c1", "response": "a secret answer"}
    ], "what is new to the model, not the whole history each time"
    tool = next(span for span in tracing.spans if span.name.startswith("execute_tool"))
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"word": "secret"}
    assert json.loads(tool.attributes["gen_ai.tool.call.result"]) == "a secret answer"


@pytest.mark.parametrize("way", [afterwards, live])
def test_a_turn_ends_as_its_marker_says(
    way: Callable[..., None], store: clew.Store, tracing: Tracing
) -> None:
    def work(thread: clew.Thread) -> None:
        with thread.turn(owner="me") as turn:
            turn.append_message({"role": "user", "content": "Hello"})
            turn.append_message({"role": "assistant", "content": "Hi"})
        with pytest.raises(TimeoutError), thread.turn(owner="me") as turn:
            turn.append_message({"role": "user", "content": "And now?"})
            call = {"id": "c", "name": "wait", "arguments": {}}
            turn.append_message({"role": "assistant", "content": None, "tool_calls": [call]})
            raise TimeoutError

    way(store, tracing, work)
    turns = [span for span in tracing.spans if span.name == "invoke_agent guide"]
    assert [turn.attributes.get("error.type") for turn in turns] == [None, "failed"]
    (call,) = [span for span in tracing.spans if span.name == "execute_tool wait"]
    assert call.attributes["error.type"] == "no_result"
    assert call.parent.span_id == turns[1].context.span_id


def test_spans_are_there_as_soon_as_a_turn_has_ended(store: clew.Store, tracing: Tracing) -> None:
    watched = traced(store, tracer_provider=tracing.provider)
    thread = watched.create("talk")
    with thread.turn(owner="me") as turn:
        turn.append_message({"role": "user", "content": "Hello"})
        assert tracing.names == []
        turn.append_message({"role": "assistant", "content": "Hi"})
        assert tracing.names == ["chat"]
    assert tracing.names == ["invoke_agent", "chat"]
    thread.append_message({"role": "user", "content": "Again"})
    watched.close()
    assert tracing.names == ["invoke_agent", "chat", "invoke_agent"]


def test_live_spans_belong_to_the_span_in_which_the_turn_began(
    store: clew.Store, tracing: Tracing
) -> None:
    with traced(store, tracer_provider=tracing.provider) as watched:
        thread = watched.create("talk")
        tracer = tracing.provider.get_tracer("app")
        with tracer.start_as_current_span("request") as request:
            thread.append_message({"role": "user", "content": "Hello"})
    (made,) = [
        span for span in tracing.exporter.get_finished_spans() if span.name == "invoke_agent"
    ]
    assert made.parent is not None
    assert made.parent.span_id == request.get_span_context().span_id


def test_an_append_that_is_tried_again_makes_no_span_twice(
    store: clew.Store, tracing: Tracing
) -> None:
    with traced(store, tracer_provider=tracing.provider) as watched:
        thread = watched.create("talk")
        for _ in range(2):
            thread.append_message({"role": "user", "content": "Hello"}, id="a")
            thread.append_message({"role": "assistant", "content": "Hi"}, id="b")
    assert tracing.names == ["invoke_agent", "chat"]


def test_a_write_that_failed_makes_no_span(store: clew.Store, tracing: Tracing) -> None:
    broken = clew.Store(faulty(store.engine, [Fault("append", clew.Unavailable("full"))]))
    with traced(broken, tracer_provider=tracing.provider) as watched:
        thread = watched.create("talk")
        with pytest.raises(clew.Unavailable):
            thread.append_message({"role": "user", "content": "Hello"})
    assert tracing.names == []


def test_a_provider_that_fails_fails_no_write(
    store: clew.Store, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Provider):
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            return object()

    watched = traced(store, tracer_provider=Broken())
    thread = watched.create("talk")
    thread.append_message({"role": "user", "content": "Hello"})
    assert len(thread.path()) == 1
    assert "no spans" in caplog.text


def test_replies_after_a_compaction_say_so(store: clew.Store, tracing: Tracing) -> None:
    thread = store.create("talk")
    for n in range(6):
        thread.append_message({"role": "user", "content": f"{n}"})
        thread.append_message({"role": "assistant", "content": f"{n}"})
    thread.compact(summary="It was counted.", keep_turns=1)
    thread.append_message({"role": "user", "content": "and"})
    thread.append_message({"role": "assistant", "content": "so on"})
    export_thread(thread, tracer_provider=tracing.provider, provider="mistral_ai")
    chats = [span.attributes for span in tracing.spans if span.name == "chat"]
    flag = "gen_ai.conversation.compacted"
    assert [chat.get(flag) for chat in chats] == [None] * 6 + [True]
    assert {chat["gen_ai.provider.name"] for chat in chats} == {"mistral_ai"}


def test_what_cannot_be_read_is_passed_over(store: clew.Store, tracing: Tracing) -> None:
    thread = store.create("talk")
    thread.append("user_message", ["no", "message"])
    thread.append("usage", "text")
    thread.append("turn_marker", 5)
    thread.append("assistant_message", {"role": "assistant", "content": "Hi"})
    thread.append("tool_result", {"role": "tool", "tool_call_id": "nowhere", "content": "x"})
    export_thread(thread, tracer_provider=tracing.provider, content=True)
    assert tracing.names == ["invoke_agent", "chat", "execute_tool _OTHER"]


def test_the_events_of_adk_are_turns_by_their_invocation(tmp_path: Path, tracing: Tracing) -> None:
    with clew.open(tmp_path / "store.db") as store:
        thread = store.create("talk")
        for number, run in enumerate(["e-1", "e-1", "e-2", "e-2"]):
            author = "guide" if number % 2 else "user"
            role = "model" if number % 2 else "user"
            body = {
                "author": author,
                "content": {"role": role, "parts": [{"text": "word"}]},
                "model_version": "gemini-3",
                "usage_metadata": {"prompt_token_count": 7, "candidates_token_count": 2},
            }
            kind = "assistant_message" if number % 2 else "user_message"
            thread.append(kind, body, format="adk", turn=run)
        export_thread(thread, tracer_provider=tracing.provider)
    assert sorted(tracing.names) == ["chat gemini-3"] * 2 + ["invoke_agent"] * 2
    chat = next(span for span in tracing.spans if span.name == "chat gemini-3")
    assert chat.attributes["gen_ai.usage.input_tokens"] == 7
    assert chat.attributes["gen_ai.provider.name"] == "gcp.gen_ai"
