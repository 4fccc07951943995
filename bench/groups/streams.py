"""streams: feeding a reply event by event, against the accumulation of the providers' SDKs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import clew
from bench.figures import Figure, milliseconds, ratio
from bench.timing import in_rounds, take_turns
from bench.workshop import Workshop

_ROUNDS = 7
_MANY_TURNS = 9  # of what takes a few milliseconds: a busy disk must not reach a round's median
_EVENTS = 10_000
_BAR = 1.3


def measure(workshop: Workshop) -> Iterable[Figure]:
    store = workshop.open()
    for format, events, accumulate, turns in (
        ("anthropic", _anthropic(), _sdk_anthropic, _MANY_TURNS),
        ("openai-chat", _chat(), _sdk_chat, 1),
        ("openai-responses", _responses(), _sdk_responses, 1),
    ):
        yield from _compared(store, format, events, accumulate, turns)
    yield from _writes(store)


def _compared(
    store: clew.Store,
    format: str,
    events: list[Any],
    accumulate: Callable[[list[Any]], None],
    turns: int,
) -> Iterable[Figure]:
    """All of it: what is gathered, what is saved meanwhile, and the reply that is stored."""

    def ours() -> None:
        with store.create().streaming(format) as reply:
            for event in events:
                reply.feed(event)

    mine, theirs = in_rounds(_ROUNDS, lambda: take_turns(turns, ours, lambda: accumulate(events)))
    name = f"streams: feeding {_EVENTS:,} events of {format}"
    yield ratio(f"{name} / the SDK's own accumulation", mine, theirs, at_most=_BAR)
    yield milliseconds(name, mine)


def _writes(store: clew.Store) -> Iterable[Figure]:
    """A reply of two seconds, by a clock of its own."""
    now = [0]
    clocked = clew.Store(store.engine, clock=lambda: now[0])
    thread = clocked.create()
    before = thread.info.seq
    with thread.streaming("openai-chat") as reply:
        for _ in range(200):
            now[0] += 10_000
            reply.feed({"id": "c", "choices": [{"index": 0, "delta": {"content": "word "}}]})
    entries = [one for one in thread.read(after=before) if isinstance(one, clew.Entry)]
    saved = [one for one in entries if one.kind != "usage"]  # which is in the write of the last
    yield Figure("streams: durable writes for a reply of two seconds", len(saved), "writes", 3)


# --- events, as the SDKs give them -----------------------------------------------------------


def _anthropic() -> list[Any]:
    from anthropic.types import RawMessageStreamEvent
    from pydantic import TypeAdapter

    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    text = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "word "}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    given: list[Any] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": text},
        *[{"type": "content_block_delta", "index": 0, "delta": delta}] * (_EVENTS - 5),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    adapter: Any = TypeAdapter(RawMessageStreamEvent)
    return [adapter.validate_python(event) for event in given]


def _sdk_anthropic(events: list[Any]) -> None:
    from anthropic.lib.streaming._messages import accumulate_event

    snapshot, buffers = None, dict[int, bytes]()
    for event in events:
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    assert snapshot is not None
    json.dumps(snapshot.to_dict())


def _chat() -> list[Any]:
    from openai.types.chat import ChatCompletionChunk

    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt"}
    deltas: list[Any] = [{"role": "assistant", "content": "word "}] * (_EVENTS - 1)
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return [ChatCompletionChunk.model_validate({**about, "choices": [one]}) for one in choices]


def _sdk_chat(events: list[Any]) -> None:
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state: Any = ChatCompletionStreamState()
    for event in events:
        state.handle_chunk(event)
    json.dumps(state.get_final_completion().to_dict())


def _responses() -> list[Any]:
    from openai.types.responses import ResponseStreamEvent
    from pydantic import TypeAdapter

    base: dict[str, Any] = {"id": "r", "object": "response", "created_at": 1, "model": "gpt"}
    base |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "output": []}
    item: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    at = {"item_id": "m", "output_index": 0, "content_index": 0}
    whole = {**part, "text": "word " * (_EVENTS - 6)}
    done = {**item, "status": "completed", "content": [whole]}
    delta = {"type": "response.output_text.delta", **at, "delta": "word ", "logprobs": []}
    given: list[Any] = [
        {"type": "response.created", "response": {**base, "status": "in_progress"}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress"},
        },
        {"type": "response.content_part.added", **at, "part": part},
        *[delta] * (_EVENTS - 6),
        {"type": "response.content_part.done", **at, "part": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {
            "type": "response.completed",
            "response": {**base, "status": "completed", "output": [done]},
        },
    ]
    adapter: Any = TypeAdapter(ResponseStreamEvent)
    return [adapter.validate_python({**e, "sequence_number": n}) for n, e in enumerate(given)]


def _sdk_responses(events: list[Any]) -> None:
    from openai import NOT_GIVEN
    from openai.lib.streaming.responses._responses import ResponseStreamState

    state: Any = ResponseStreamState(input_tools=NOT_GIVEN, text_format=NOT_GIVEN)
    for event in events:
        state.handle_event(event)
    json.dumps(state._completed_response.to_dict())
