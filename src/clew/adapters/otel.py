"""OpenTelemetry: what happened in a thread as spans, by the conventions for generative AI.

    invoke_agent guide              a turn
      chat claude-…                   a reply of the model, with its tokens
      execute_tool look_up            a call, until its result
      chat claude-…

`export_thread` makes them of a thread that is there, with the times of its entries; `traced` of a
store while it is written to. What was said is not told unless `content` asks for it. The names are
those of https://github.com/open-telemetry/semantic-conventions-genai, which are in development.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from clew.adapters._versions import require

require("opentelemetry-api", extra="opentelemetry", at_least="1.30", below="2")

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from clew import messages
from clew.adapters._stores import check_thread
from clew.context.window import MESSAGE_KINDS
from clew.core.codec import decode, render
from clew.core.errors import InvalidInput
from clew.core.model import Entry, EntryDraft, MoveDraft
from clew.core.wrapper import Call, wrap
from clew.messages.neutral import (
    Media,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from clew.messages.usage import in_note
from clew.store import Store
from clew.thread import Thread

__all__ = ["export_thread", "traced"]

OPEN_MAX = 1000  # threads that are followed at once; the one that was longest silent is ended
UNKNOWN = "_OTHER"
_PROVIDERS = {
    "anthropic": "anthropic",
    "claude-code": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "gcp.gen_ai",
    "adk": "gcp.gen_ai",
    "converse": "aws.bedrock",
}
_ENDS = frozenset({"completed", "waiting", "failed", "aborted"})

_log = logging.getLogger(__name__)

Attributes = dict[str, Any]


class _Options(Struct, frozen=True, kw_only=True):
    tracer: trace.Tracer
    content: bool
    agent: str | None
    provider: str | None


def export_thread(
    thread: Thread,
    *,
    leaf: str | UnsetType | None = UNSET,
    tracer_provider: TracerProvider | None = None,
    content: bool = False,
    agent: str | None = None,
    provider: str | None = None,
) -> int:
    """Make spans of what is on the path of a thread; how many. Each call makes them anew.

    `content` adds what was said and what tools were given and gave. `agent` is the agent's name,
    `provider` that of the model's provider, where a message's format does not tell it.
    """
    options = _options(tracer_provider, content, agent, provider)
    recorder = _Recorder(check_thread(thread).id, options)
    for entry in thread.path(leaf):
        recorder.take(entry)
    recorder.finish()
    return recorder.spans


def traced(
    store: Store,
    *,
    tracer_provider: TracerProvider | None = None,
    content: bool = False,
    agent: str | None = None,
    provider: str | None = None,
) -> Store:
    """A store that makes spans of what is appended to it; the options are those of the export.

    A span is made when the entry that ends it is written: a reply, a result, the end of a turn. A
    turn without markers ends with the next message of the user, or when the store is closed. They
    are children of the span that is current where the turn begins. A failure in making spans is
    logged, and fails no write. To close it is to close the store that was given.
    """
    if not isinstance(store, Store):
        raise InvalidInput("store", f"must be an open store, not {store!r}")
    live = _Live(_options(tracer_provider, content, agent, provider))
    return Store(wrap(store.engine, live.around), clock=store.clock)


def _options(
    given: TracerProvider | None, content: bool, agent: str | None, provider: str | None
) -> _Options:
    tracer = trace.get_tracer("clew.adapters.otel", tracer_provider=given)
    return _Options(tracer=tracer, content=content, agent=agent, provider=provider)


# --- live -----------------------------------------------------------------------------------


class _Live:
    """The recorders of the threads that are written to."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._recorders: OrderedDict[str, _Recorder] = OrderedDict()
        self._mutex = threading.Lock()

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        yield
        if call.operation not in ("append", "close"):
            return
        try:
            with self._mutex:
                if call.operation == "close":
                    self._finish_all()
                elif call.thread is not None:
                    batch = call.options.get("drafts") or call.arguments[1]
                    self._take(call.thread, batch)
        except Exception:
            _log.warning("no spans were made of an append to %r", call.thread, exc_info=True)

    def _take(self, thread: str, batch: Sequence[Any]) -> None:
        recorder = self._recorders.pop(thread, None) or _Recorder(thread, self._options)
        for draft in batch:
            if isinstance(draft, EntryDraft):
                recorder.take(draft)
            elif isinstance(draft, MoveDraft):
                recorder.finish()  # the thread goes on elsewhere
        recorder.flush()
        self._recorders[thread] = recorder  # now the last one: the first was longest silent
        if len(self._recorders) > OPEN_MAX:
            self._recorders.popitem(last=False)[1].finish()

    def _finish_all(self) -> None:
        for recorder in self._recorders.values():
            recorder.finish()
        self._recorders.clear()


# --- spans of a thread's entries, in their order ----------------------------------------------


class _Turn(Struct):
    """A turn whose span is open."""

    span: Span
    id: str | None
    begun_us: int
    last_us: int


class _Reply(Struct):
    """A reply whose span is still to be made: what it cost may be told by the next entry."""

    entry: Entry | EntryDraft
    message: Message
    begun_us: int
    inputs: list[Message]


class _Recorder:
    """Takes the entries of one thread, and makes spans of them."""

    def __init__(self, thread: str, options: _Options) -> None:
        self.spans = 0
        self._thread = thread
        self._options = options
        self._turn: _Turn | None = None
        self._reply: _Reply | None = None
        self._calls: dict[str, tuple[ToolCall, str, int]] = {}  # with its entry and its time
        self._inputs: list[Message] = []  # what the model has not answered yet
        self._instructions: list[Message] = []
        self._model: str | None = None
        self._compacted = False
        self._seen: set[str] = set()  # of this turn: an append that is tried again is not news

    def take(self, entry: Entry | EntryDraft) -> None:
        if entry.id in self._seen:
            return
        body = decode(entry.data)
        if entry.kind == "usage":
            self.flush(body if isinstance(body, dict) else {})
            return
        self.flush()
        if entry.kind == "turn_marker":
            self._mark(entry, body)
        elif entry.kind == "compaction":
            self._compacted = True
        elif entry.kind == "model_change":
            model = body.get("model") if isinstance(body, dict) else None
            self._model = model if isinstance(model, str) else self._model
        elif entry.kind == "run_failure":
            self._fail("run_failure")
        elif entry.kind in MESSAGE_KINDS:
            self._say(entry, messages.view(entry.format, body))

    def _mark(self, entry: Entry | EntryDraft, body: Any) -> None:
        status = body.get("status") if isinstance(body, dict) else None
        if status == "started":
            self._begin(entry)
        elif status in _ENDS and self._turn is not None:
            self._turn.last_us = max(self._turn.last_us, entry.time_us)
            if status in ("failed", "aborted"):
                self._fail(str(status))
            self.finish()

    def _say(self, entry: Entry | EntryDraft, found: list[Message]) -> None:
        if entry.kind == "system_message":
            self._instructions += found  # these stand before turns, and begin none
            return
        turn = self._turn
        is_next = turn is not None and entry.turn is not None and entry.turn != turn.id
        is_asked = turn is not None and turn.id is None and entry.kind == "user_message"
        if turn is None or is_next or is_asked:
            turn = self._begin(entry)
        self._seen.add(entry.id)
        for message in found:
            if message.role == "assistant":
                self._answer(entry, message, turn)
            else:
                self._inputs.append(message)
                for part in message.parts:
                    if isinstance(part, ToolResult):
                        self._result(part, entry)
        turn.last_us = max(turn.last_us, entry.time_us)

    def _answer(self, entry: Entry | EntryDraft, message: Message, turn: _Turn) -> None:
        self.flush()  # an entry may hold several replies
        self._reply = _Reply(entry, message, turn.last_us, self._inputs)
        self._inputs = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                self._calls[part.id] = (part, entry.id, entry.time_us)

    # --- making spans ---

    def _begin(self, entry: Entry | EntryDraft) -> _Turn:
        self.finish()
        name = self._options.agent
        provider = self._options.provider or _PROVIDERS.get(entry.format or "")
        about = self._about("invoke_agent", entry.id)
        if provider is not None:
            about["gen_ai.provider.name"] = provider
        span = self._options.tracer.start_span(
            "invoke_agent" if name is None else f"invoke_agent {name}",
            kind=SpanKind.INTERNAL,
            attributes=about,
            start_time=entry.time_us * 1000,
        )
        self._turn = _Turn(span, entry.turn, entry.time_us, entry.time_us)
        return self._turn

    def flush(self, usage: dict[str, Any] | None = None) -> None:
        """Make the span of the last reply. `usage` is the body of the entry that tells its cost."""
        reply, self._reply = self._reply, None
        if reply is None:
            return
        note = usage or {}
        model = _text(note.get("model")) or reply.message.model
        asked = self._model or model
        about = self._about("chat", reply.entry.id)
        about["gen_ai.provider.name"] = self._provider(reply.entry)
        if asked is not None:
            about["gen_ai.request.model"] = asked
        if model is not None:
            about["gen_ai.response.model"] = model
        if response := _text(note.get("response_id")):
            about["gen_ai.response.id"] = response
        if reason := _text(note.get("stop_reason")):
            about["gen_ai.response.finish_reasons"] = [reason]
        if self._compacted:
            about["gen_ai.conversation.compacted"] = True
        about |= _tokens(in_note(reply.entry.format, note).usage or reply.message.usage)
        if self._options.content:
            about["gen_ai.input.messages"] = render([_message(one) for one in reply.inputs])
            about["gen_ai.output.messages"] = render([_message(reply.message)])
            if self._instructions:
                told = [part for one in self._instructions for part in _message(one)["parts"]]
                about["gen_ai.system_instructions"] = render(told)
        name = "chat" if asked is None else f"chat {asked}"
        self._span(name, SpanKind.CLIENT, about, reply.begun_us, reply.entry.time_us)

    def _result(self, result: ToolResult, entry: Entry | EntryDraft) -> None:
        call, _, begun_us = self._calls.pop(result.call, (None, entry.id, entry.time_us))
        name = result.name if call is None else call.name
        about = self._tool(name, result.call, call, entry.id)
        if self._options.content:
            about["gen_ai.tool.call.result"] = render(_output(result))
        error = "tool_error" if result.is_error else None
        self._span(
            f"execute_tool {name or UNKNOWN}",
            SpanKind.INTERNAL,
            about,
            begun_us,
            entry.time_us,
            error,
        )

    def _tool(self, name: str | None, id: str, call: ToolCall | None, entry: str) -> Attributes:
        about = self._about("execute_tool", entry)
        about |= {
            "gen_ai.tool.name": name or UNKNOWN,
            "gen_ai.tool.call.id": id,
            "gen_ai.tool.type": "function",
        }
        if self._options.content and call is not None:
            given = call.arguments if call.unparsed is None else call.unparsed
            about["gen_ai.tool.call.arguments"] = render(given)
        return about

    def finish(self) -> None:
        """End the turn that is open. Calls that got no result end with it."""
        self.flush()
        turn = self._turn
        if turn is None:
            return
        for id, (call, entry, begun_us) in self._calls.items():
            about = self._tool(call.name, id, call, entry)
            name = f"execute_tool {call.name}"
            self._span(name, SpanKind.INTERNAL, about, begun_us, turn.last_us, "no_result")
        self._turn = None
        self._calls.clear()
        self._seen.clear()
        turn.span.end(end_time=max(turn.begun_us, turn.last_us) * 1000)
        self.spans += 1

    def _fail(self, error: str) -> None:
        if self._turn is not None:
            self._turn.span.set_attribute("error.type", error)
            self._turn.span.set_status(Status(StatusCode.ERROR))

    def _span(
        self,
        name: str,
        kind: SpanKind,
        about: Attributes,
        begun_us: int,
        ended_us: int,
        error: str | None = None,
    ) -> None:
        context = None if self._turn is None else trace.set_span_in_context(self._turn.span)
        span = self._options.tracer.start_span(
            name, context=context, kind=kind, attributes=about, start_time=begun_us * 1000
        )
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        # Times are the callers' own, and may go back.
        span.end(end_time=max(begun_us, ended_us) * 1000)
        self.spans += 1

    def _about(self, operation: str, entry: str) -> Attributes:
        about = {
            "gen_ai.operation.name": operation,
            "gen_ai.conversation.id": self._thread,
            "session.id": self._thread,  # the name that Langfuse and Phoenix group by
            "clew.entry.id": entry,
        }
        if self._options.agent is not None:
            about["gen_ai.agent.name"] = self._options.agent
        return about

    def _provider(self, entry: Entry | EntryDraft) -> str:
        told = self._options.provider or _PROVIDERS.get(entry.format or "")
        if told is None and entry.meta_data is not None:
            told = _text(decode(entry.meta_data).get("provider"))
        return told or UNKNOWN


# --- what the conventions call it -------------------------------------------------------------


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _tokens(usage: Usage | None) -> Attributes:
    if usage is None:
        return {}
    # There, the tokens of the input are all of them, and what the cache gave is a part.
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens + cached,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def _message(message: Message) -> dict[str, Any]:
    """A message in the form of gen_ai.input.messages and gen_ai.output.messages."""
    return {"role": message.role, "parts": [_part(part) for part in message.parts]}


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "content": part.text}
    if isinstance(part, Thinking):
        return {"type": "reasoning", "content": part.text}
    if isinstance(part, ToolCall):
        given = part.arguments if part.unparsed is None else part.unparsed
        return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": given}
    if isinstance(part, ToolResult):
        return {"type": "tool_call_response", "id": part.call, "response": _output(part)}
    if isinstance(part, Media):
        return _media(part)
    kind = part.raw.get("type") if isinstance(part.raw, dict) else None
    return {"type": _text(kind) or "unknown"}


def _output(result: ToolResult) -> Any:
    """What a tool gave: its text or, with media, its parts."""
    if all(isinstance(part, Text) for part in result.content):
        return "".join([part.text for part in result.content if isinstance(part, Text)])
    return [_part(part) for part in result.content]


def _media(part: Media) -> dict[str, Any]:
    modality: str = "document" if part.kind == "file" else part.kind
    if part.mime is not None and part.mime.startswith("video/"):
        modality = "video"
    about: dict[str, Any] = {"modality": modality}
    if part.mime is not None:
        about["mime_type"] = part.mime
    if part.data is not None:
        return {"type": "blob", **about, "content": part.data}
    if part.file_id is not None:
        return {"type": "file", **about, "file_id": part.file_id}
    return {"type": "uri", **about, "uri": part.url or ""}
