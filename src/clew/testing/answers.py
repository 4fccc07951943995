"""The responses of a recorded thread, as the providers' APIs would send them again.

`whole` is the other direction of `clew.messages.response`: a message and what its usage entry tells
become a response. `events` takes a response apart into the events of a stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Block = dict[str, Any]

_PIECE = 24  # characters of a text in one event


def whole(format: str, message: Any, note: Block) -> Block:
    """A response, from the body of a message (None: nothing was said) and of its usage."""
    found: Block = _WHOLE[format](message, note, note.get("details") or {})
    return found


def events(format: str, response: Block) -> list[Any]:
    """The events that a response is streamed in."""
    found: list[Any] = _EVENTS[format](response)
    return found


def sse(events: list[Any]) -> bytes:
    """Events as they go over the wire."""
    lines = []
    for event in events:
        if isinstance(event, str):
            lines.append(f"data: {event}\n\n")
        else:
            name = f"event: {event['type']}\n" if "type" in event else ""
            lines.append(f"{name}data: {json.dumps(event)}\n\n")
    return "".join(lines).encode()


# --- Anthropic ---


def _anthropic(message: Any, note: Block, details: Block) -> Block:
    content = message["content"] if message else []
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return {
        "id": note.get("response_id") or "msg_replayed",
        "type": "message",
        "role": "assistant",
        "model": note.get("model") or "replayed",
        "content": content,
        "stop_reason": note.get("stop_reason") or _reason(content),
        "stop_sequence": None,
        "usage": note.get("usage") or {"input_tokens": 0, "output_tokens": 0},
        **details,
    }


def _reason(content: list[Block]) -> str:
    return "tool_use" if any(one.get("type") == "tool_use" for one in content) else "end_turn"


def _anthropic_events(response: Block) -> list[Any]:
    start = {**response, "content": [], "stop_reason": None, "stop_sequence": None}
    found: list[Any] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(response["content"]):
        begun, deltas = _anthropic_block(block)
        found.append({"type": "content_block_start", "index": index, "content_block": begun})
        for delta in deltas:
            found.append({"type": "content_block_delta", "index": index, "delta": delta})
        found.append({"type": "content_block_stop", "index": index})
    stop = {key: response[key] for key in ("stop_reason", "stop_sequence")}
    found.append({"type": "message_delta", "delta": stop, "usage": response["usage"]})
    return [*found, {"type": "message_stop"}]


def _anthropic_block(block: Block) -> tuple[Block, list[Block]]:
    match block.get("type"):
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
            return {**block, "text": ""}, deltas
        case "thinking":
            texts = _pieces(block["thinking"])
            thoughts: list[Block] = [{"type": "thinking_delta", "thinking": one} for one in texts]
            thoughts.append({"type": "signature_delta", "signature": block.get("signature", "")})
            return {**block, "thinking": "", "signature": ""}, thoughts
        case "tool_use" | "server_tool_use":
            texts = _pieces(json.dumps(block["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in texts]
            return {**block, "input": {}}, deltas
    return block, []


# --- Chat Completions ---


def _chat(message: Any, note: Block, details: Block) -> Block:
    said = {"role": "assistant", "content": None, **(message or {})}
    reason = note.get("stop_reason") or ("tool_calls" if said.get("tool_calls") else "stop")
    response = {
        "id": note.get("response_id") or "chatcmpl-replayed",
        "object": "chat.completion",
        "created": 0,
        "model": note.get("model") or "replayed",
        **details,
        "choices": [{"index": 0, "message": said, "finish_reason": reason}],
    }
    return response | ({"usage": note["usage"]} if note.get("usage") else {})


def _chat_events(response: Block) -> list[Any]:
    choice = response["choices"][0]
    message = {**choice["message"]}
    calls = message.pop("tool_calls", None) or []
    deltas: list[Block] = [{"role": message.pop("role"), "content": ""}]
    for key, value in message.items():
        if isinstance(value, str):
            deltas += [{key: piece} for piece in _pieces(value)]
        elif value is not None:
            deltas.append({key: value})
    for index, call in enumerate(calls):
        kind = call.get("type", "function")
        key = "arguments" if kind == "function" else "input"
        begun = {**call, "index": index, kind: {**call[kind], key: ""}}
        deltas.append({"tool_calls": [begun]})
        for piece in _pieces(call[kind].get(key) or ""):
            deltas.append({"tool_calls": [{"index": index, kind: {key: piece}}]})
    about = {key: value for key, value in response.items() if key not in ("choices", "usage")}
    about["object"] = "chat.completion.chunk"
    choices: list[Block] = [{"index": 0, "delta": one, "finish_reason": None} for one in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]})
    chunks: list[Any] = [{**about, "choices": [one]} for one in choices]
    if "usage" in response:
        chunks.append({**about, "choices": [], "usage": response["usage"]})
    return [*chunks, "[DONE]"]


# --- Responses ---


def _responses(message: Any, note: Block, details: Block) -> Block:
    output = [] if message is None else message if isinstance(message, list) else [message]
    reason = note.get("stop_reason") or "completed"
    return {
        "id": note.get("response_id") or "resp_replayed",
        "object": "response",
        "created_at": 0,
        "model": note.get("model") or "replayed",
        "status": reason if reason in ("completed", "failed") else "incomplete",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": note.get("usage"),
        **details,
        "output": output,
    }


def _responses_events(response: Block) -> list[Any]:
    begun = {**response, "output": [], "status": "in_progress", "usage": None}
    found: list[Any] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(response["output"]):
        at = {"item_id": item.get("id", ""), "output_index": index}
        is_message = item.get("type") == "message" and isinstance(item.get("content"), list)
        first = {**item, "content": []} if is_message else item
        if item.get("type") == "function_call":
            first = {**item, "arguments": ""}
        found.append({"type": "response.output_item.added", "output_index": index, "item": first})
        if is_message:
            for place, block in enumerate(item["content"]):
                found += _responses_block({**at, "content_index": place}, block)
        elif item.get("type") == "function_call":
            kind = "response.function_call_arguments"
            for piece in _pieces(item["arguments"]):
                found.append({"type": f"{kind}.delta", **at, "delta": piece})
            found.append({"type": f"{kind}.done", **at, "arguments": item["arguments"]})
        found.append({"type": "response.output_item.done", "output_index": index, "item": item})
    found.append({"type": f"response.{response['status']}", "response": response})
    return [{**event, "sequence_number": number} for number, event in enumerate(found)]


def _responses_block(at: Block, block: Block) -> list[Any]:
    is_text = block.get("type") == "output_text"
    key, kind = ("text", "response.output_text") if is_text else ("refusal", "response.refusal")
    more: Block = {"logprobs": []} if is_text else {}
    empty = {**block, key: ""}
    return [
        {"type": "response.content_part.added", **at, "part": empty},
        *[{"type": f"{kind}.delta", **at, "delta": one, **more} for one in _pieces(block[key])],
        {"type": f"{kind}.done", **at, key: block[key], **more},
        {"type": "response.content_part.done", **at, "part": block},
    ]


# --- Gemini ---


def _gemini(message: Any, note: Block, details: Block) -> Block:
    response: Block = {
        "modelVersion": note.get("model") or "replayed",
        "responseId": note.get("response_id") or "replayed",
        **details,
    }
    if note.get("usage"):
        response["usageMetadata"] = note["usage"]
    if message is not None or "promptFeedback" not in response:
        reason = note.get("stop_reason") or "STOP"
        content = message or {"role": "model", "parts": []}
        response["candidates"] = [{"content": content, "finishReason": reason, "index": 0}]
    return response


def _gemini_events(response: Block) -> list[Any]:
    if "candidates" not in response:
        return [response]
    candidate = response["candidates"][0]
    about = {key: response[key] for key in ("modelVersion", "responseId")}
    chunks: list[Any] = []
    for part in candidate["content"].get("parts") or ():
        is_plain = "text" in part and part.keys() <= {"text", "thought"}
        pieces = [{**part, "text": one} for one in _pieces(part["text"])] if is_plain else [part]
        for piece in pieces:
            content = {"role": "model", "parts": [piece]}
            chunks.append({**about, "candidates": [{"content": content, "index": 0}]})
    last = {**candidate, "content": {"role": "model", "parts": []}}
    return [*chunks, {**response, "candidates": [last]}]


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


_WHOLE: dict[str, Callable[[Any, Block, Block], Block]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
_EVENTS: dict[str, Callable[[Block], list[Any]]] = {
    "anthropic": _anthropic_events,
    "openai-chat": _chat_events,
    "openai-responses": _responses_events,
    "gemini": _gemini_events,
}
