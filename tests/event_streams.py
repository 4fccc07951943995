"""Streamed replies of the four APIs, event by event, in the shapes that their documents show."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]

ARGUMENTS = json.dumps({"path": "notes.txt", "lines": [1, 2]})


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


# --- Anthropic ---


def a_start() -> Event:
    usage = {"input_tokens": 25, "cache_read_input_tokens": 7, "output_tokens": 1}
    return {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "claude",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        },
    }


def a_block(index: int, block: Event, *deltas: Event) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *[{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas],
        {"type": "content_block_stop", "index": index},
    ]


def a_text(index: int, text: str) -> list[Event]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces(text)]
    return a_block(index, {"type": "text", "text": ""}, *deltas)


def a_thinking(index: int, text: str) -> list[Event]:
    deltas: list[Event] = [{"type": "thinking_delta", "thinking": p} for p in pieces(text)]
    deltas.append({"type": "signature_delta", "signature": "c2lnbmVk"})
    return a_block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas)


def a_use(index: int, id: str, arguments: str = ARGUMENTS) -> list[Event]:
    block = {"type": "tool_use", "id": id, "name": "read", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": p} for p in ["", *pieces(arguments)]]
    return a_block(index, block, *deltas)


def a_end(reason: str = "end_turn") -> list[Event]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    usage = {"output_tokens": 42}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


ANTHROPIC: dict[str, list[Event]] = {
    "text": [a_start(), {"type": "ping"}, *a_text(0, "The notes say: buy milk."), *a_end()],
    "thinking": [
        a_start(),
        *a_thinking(0, "I should read both of the files."),
        *a_text(1, "Let me read them."),
        *a_use(2, "t1"),
        *a_use(3, "t2", "{}"),
        *a_end("tool_use"),
    ],
    "refusal": [a_start(), *a_text(0, "I cannot help"), *a_end("refusal")],
    "limit": [
        a_start(),
        *a_text(0, "Let me"),
        *a_use(1, "t1", ARGUMENTS[:9]),
        *a_end("max_tokens"),
    ],
    "error": [
        a_start(),
        *a_text(0, "The notes say")[:-1],
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ],
}


# --- Chat Completions ---


def c_chunk(delta: Event | None, reason: str | None = None, **more: Any) -> Event:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt"}
    return {**about, "choices": choices, **more}


def c_text(key: str, text: str) -> list[Event]:
    return [c_chunk({key: piece}) for piece in pieces(text)]


def c_call(index: int, id: str) -> list[Event]:
    first = {"index": index, "id": id, "type": "function", "function": {"name": "read"}}
    first["function"]["arguments"] = ""  # type: ignore[index]
    rest = [{"index": index, "function": {"arguments": piece}} for piece in pieces(ARGUMENTS)]
    return [c_chunk({"tool_calls": [call]}) for call in [first, *rest]]


C_USAGE = {"prompt_tokens": 25, "completion_tokens": 42, "total_tokens": 67}
C_START = c_chunk({"role": "assistant", "content": ""})

CHAT: dict[str, list[Event]] = {
    "text": [
        C_START,
        *c_text("content", "The notes say: buy milk."),
        c_chunk({}, "stop"),
        c_chunk(None, usage=C_USAGE),
    ],
    "thinking": [
        C_START,
        *c_text("reasoning_content", "I should read both."),
        *c_call(0, "t1"),
        *c_call(1, "t2"),
        c_chunk({}, "tool_calls"),
        c_chunk(None, usage=C_USAGE),
    ],
    "refusal": [
        c_chunk({"role": "assistant", "content": None, "refusal": ""}),
        *c_text("refusal", "I cannot help with that."),
        c_chunk({}, "stop"),
    ],
    "limit": [C_START, *c_call(0, "t1"), *c_call(1, "t2")[:-2], c_chunk({}, "length")],
    "error": [
        C_START,
        *c_text("content", "The notes"),
        {"error": {"message": "server had an error"}},
    ],
}


# --- Responses ---


def r_response(status: str, *output: Any, **more: Any) -> Event:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt",
        "status": status,
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
        **more,
    }


def r_message(index: int, text: str, kind: str = "output_text") -> tuple[Event, list[Event]]:
    key = "text" if kind == "output_text" else "refusal"
    item: Event = {"type": "message", "id": f"msg_{index}", "role": "assistant", "content": []}
    block: Event = {"type": kind, key: ""} | ({"annotations": []} if key == "text" else {})
    whole = {**item, "status": "completed", "content": [{**block, key: text}]}
    at = {"item_id": item["id"], "output_index": index, "content_index": 0}
    delta = f"response.{kind if key == 'text' else 'refusal'}.delta"
    more: Event = {"logprobs": []} if key == "text" else {}
    return whole, [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "status": "in_progress"},
        },
        {"type": "response.content_part.added", **at, "part": block},
        *[{"type": delta, **at, "delta": piece, **more} for piece in pieces(text)],
        {"type": delta.replace("delta", "done"), **at, key: text, **more},
        {"type": "response.content_part.done", **at, "part": {**block, key: text}},
        {"type": "response.output_item.done", "output_index": index, "item": whole},
    ]


def r_reasoning(index: int, text: str) -> tuple[Event, list[Event]]:
    item: Event = {"type": "reasoning", "id": f"rs_{index}", "summary": []}
    whole = {
        **item,
        "summary": [{"type": "summary_text", "text": text}],
        "encrypted_content": "c2VjcmV0",
    }
    at = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    part = {"type": "summary_text", "text": ""}
    return whole, [
        {"type": "response.output_item.added", "output_index": index, "item": item},
        {"type": "response.reasoning_summary_part.added", **at, "part": part},
        *[
            {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
            for piece in pieces(text)
        ],
        {"type": "response.reasoning_summary_text.done", **at, "text": text},
        {"type": "response.output_item.done", "output_index": index, "item": whole},
    ]


def r_call(index: int, id: str) -> tuple[Event, list[Event]]:
    item: Event = {"type": "function_call", "id": f"fc_{index}", "call_id": id, "name": "read"}
    whole = {**item, "arguments": ARGUMENTS, "status": "completed"}
    at = {"item_id": item["id"], "output_index": index}
    return whole, [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "arguments": "", "status": "in_progress"},
        },
        *[
            {"type": "response.function_call_arguments.delta", **at, "delta": piece}
            for piece in pieces(ARGUMENTS)
        ],
        {"type": "response.function_call_arguments.done", **at, "arguments": ARGUMENTS},
        {"type": "response.output_item.done", "output_index": index, "item": whole},
    ]


R_USAGE = {
    "input_tokens": 25,
    "output_tokens": 42,
    "total_tokens": 67,
    "input_tokens_details": {"cached_tokens": 7},
    "output_tokens_details": {"reasoning_tokens": 5},
}


def r_stream(*parts: tuple[Event, list[Event]], end: str = "completed", **more: Any) -> list[Event]:
    begin = r_response("in_progress")
    events: list[Event] = [
        {"type": "response.created", "response": begin},
        {"type": "response.in_progress", "response": begin},
        *[event for _, events in parts for event in events],
    ]
    if end == "error":
        events.append({"type": "error", "code": "server_error", "message": "no", "param": None})
    elif end != "cut":
        whole = r_response(end, *[item for item, _ in parts], **{"usage": R_USAGE, **more})
        events.append({"type": f"response.{end}", "response": whole})
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]


RESPONSES: dict[str, list[Event]] = {
    "text": r_stream(r_message(0, "The notes say: buy milk.")),
    "thinking": r_stream(
        r_reasoning(0, "I should read both of the files."),
        r_message(1, "Let me read them."),
        r_call(2, "t1"),
        r_call(3, "t2"),
    ),
    "refusal": r_stream(r_message(0, "I cannot help with that.", "refusal")),
    "limit": r_stream(
        r_message(0, "The notes say"),
        end="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
    "error": r_stream(r_message(0, "The notes say"), end="error"),
}


# --- Gemini ---


def g_chunk(*parts: Event, reason: str | None = None, **more: Any) -> Event:
    candidate: Event = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    candidate |= {} if reason is None else {"finishReason": reason}
    about = {"modelVersion": "gemini", "responseId": "r1"}
    return {"candidates": [candidate], **about, **more}


def g_text(text: str, **more: Any) -> list[Event]:
    return [g_chunk({"text": piece, **more}) for piece in pieces(text)]


def g_call(**more: Any) -> Event:
    return {"functionCall": {"name": "read", "args": json.loads(ARGUMENTS)}, **more}


G_USAGE = {"promptTokenCount": 25, "candidatesTokenCount": 42, "totalTokenCount": 67}

GEMINI: dict[str, list[Event]] = {
    "text": [
        *g_text("The notes say: buy milk."),
        g_chunk({"text": ""}, reason="STOP", usageMetadata=G_USAGE),
    ],
    "thinking": [
        *g_text("I should read both.", thought=True),
        *g_text("Let me read them."),
        g_chunk(g_call(thoughtSignature="c2lnbmVk"), g_call()),
        g_chunk(reason="STOP", usageMetadata=G_USAGE),
    ],
    "refusal": [
        {
            "promptFeedback": {"blockReason": "SAFETY"},
            "usageMetadata": {"promptTokenCount": 25, "totalTokenCount": 25},
            "modelVersion": "gemini",
        }
    ],
    "limit": [*g_text("The notes say"), g_chunk({"text": " bu"}, reason="MAX_TOKENS")],
    "error": [*g_text("The notes"), {"error": {"code": 503, "message": "overloaded"}}],
}

STREAMS: dict[str, dict[str, list[Event]]] = {
    "anthropic": ANTHROPIC,
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "gemini": GEMINI,
}
ALL = [(format, name) for format, found in STREAMS.items() for name in found]
