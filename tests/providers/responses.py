"""Replies of the four providers, as their SDKs give them: dicts, and objects that dump to them.

Every function makes one whole reply from what the model said, with the fields that real ones
have: ids, usage, reasons to stop. What a provider signs is stamped (see `refusal`), so that the
strict fakes know it again. `sdk(...)` wraps a dict as the SDKs' objects look from outside: with
attributes and `model_dump`, and no SDK installed.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, field
from typing import Any

from providers.refusal import JSON, stamp


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    id: str
    name: str
    arguments: JSON = field(default_factory=dict)


@dataclass(frozen=True)
class Said:
    """What a model says in one reply. `reply` names it, and is a part of its ids."""

    reply: str
    text: str = ""
    thinking: str | None = None
    calls: tuple[Call, ...] = ()


# --- Anthropic --------------------------------------------------------------------------------


def anthropic_message(said: Said, *, model: str = "claude-opus-4-6") -> JSON:
    """A Message of the Messages API."""
    content: list[JSON] = []
    if said.thinking is not None:
        signature = stamp(said.reply, 0, said.thinking)
        content.append({"type": "thinking", "thinking": said.thinking, "signature": signature})
    if said.text or not said.calls:
        content.append({"type": "text", "text": said.text or "Done."})
    for call in said.calls:
        used = {"id": call.id, "name": call.name, "input": call.arguments}
        content.append({"type": "tool_use", **used})
    return {
        "id": f"msg_{said.reply}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if said.calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 37,
            "cache_creation_input_tokens": 112,
            "cache_read_input_tokens": 2048,
            "output_tokens": 64,
            "service_tier": "standard",
        },
    }


# --- OpenAI -----------------------------------------------------------------------------------


def chat_completion(said: Said, *, model: str = "gpt-5.1") -> JSON:
    """A ChatCompletion. What the model thought stays with the provider, but for its tokens."""
    message: JSON = {
        "role": "assistant",
        "content": said.text or (None if said.calls else "Done."),
        "refusal": None,
        "annotations": [],
    }
    if said.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in said.calls
        ]
    reason = "tool_calls" if said.calls else "stop"
    return {
        "id": f"chatcmpl-{said.reply}",
        "object": "chat.completion",
        "created": 1_763_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": 2197,
            "completion_tokens": 64,
            "total_tokens": 2261,
            "prompt_tokens_details": {"cached_tokens": 2048, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 20, "audio_tokens": 0},
        },
        "service_tier": "default",
        "system_fingerprint": None,
    }


def response(said: Said, *, model: str = "gpt-5.1", encrypted: bool = True) -> JSON:
    """A Response: reasoning, then text, then calls, each an item of its own."""
    output: list[JSON] = []

    def id(prefix: str) -> str:
        needs = "r" if output and output[-1]["type"] == "reasoning" else ""
        return f"{prefix}_fake{said.reply}n{len(output)}{needs}"

    if said.thinking is not None:
        summary = [{"type": "summary_text", "text": said.thinking}]
        item: JSON = {"id": id("rs"), "type": "reasoning", "summary": summary}
        if encrypted:
            item["encrypted_content"] = stamp(said.reply, 0, summary)
        output.append(item)
    if said.text or not said.calls:
        text = {"type": "output_text", "text": said.text or "Done.", "annotations": []}
        message = {"id": id("msg"), "type": "message", "role": "assistant", "status": "completed"}
        output.append({**message, "content": [{**text, "logprobs": []}]})
    for call in said.calls:
        output.append(
            {
                "id": id("fc"),
                "type": "function_call",
                "status": "completed",
                "call_id": call.id,
                "name": call.name,
                "arguments": json.dumps(call.arguments),
            }
        )
    return {
        "id": f"resp_{said.reply}",
        "object": "response",
        "created_at": 1_763_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": not encrypted,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 2197,
            "input_tokens_details": {"cached_tokens": 2048, "cache_write_tokens": 0},
            "output_tokens": 64,
            "output_tokens_details": {"reasoning_tokens": 20},
            "total_tokens": 2261,
        },
    }


# --- Gemini -----------------------------------------------------------------------------------


def gemini_response(said: Said, *, model: str = "gemini-3-pro-preview") -> JSON:
    """A GenerateContentResponse. The first call is signed; without calls, the last text is."""
    parts: list[JSON] = []
    if said.thinking is not None:
        parts.append({"text": said.thinking, "thought": True})
    if said.text or not said.calls:
        text = said.text or "Done."
        signed = {} if said.calls else {"thoughtSignature": stamp(said.reply, len(parts), text)}
        parts.append({"text": text, **signed})
    for number, call in enumerate(said.calls):
        part: JSON = {
            "functionCall": {"id": call.id, "name": call.name, "args": dict(call.arguments)}
        }
        if number == 0:
            signed_call = [call.name, call.arguments]
            part["thoughtSignature"] = stamp(said.reply, len(parts), signed_call)
        parts.append(part)
    return {
        "candidates": [
            {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {
            "promptTokenCount": 2197,
            "cachedContentTokenCount": 2048,
            "candidatesTokenCount": 44,
            "thoughtsTokenCount": 20,
            "totalTokenCount": 2261,
        },
        "modelVersion": model,
        "responseId": said.reply,
    }


# --- objects of the SDKs ----------------------------------------------------------------------


class Dumped:
    """An object that stands for a dict, as the models of the SDKs do.

    Attributes are what the SDKs' are, in the spelling of Python; `model_dump` gives the JSON.
    """

    def __init__(self, body: JSON) -> None:
        self._body = body

    def model_dump(self, **_: Any) -> JSON:
        return copy.deepcopy(self._body)

    def __getattr__(self, name: str) -> Any:
        body = self.__dict__.get("_body", {})
        for key, value in body.items():
            if name in (key, re.sub(r"([A-Z])", lambda found: "_" + found[1].lower(), key)):
                return _wrapped(value, type(self))
        raise AttributeError(name)


class WithToDict(Dumped):
    """Anthropic's and OpenAI's models have this as well."""

    def to_dict(self, **_: Any) -> JSON:
        return self.model_dump()


def sdk(format: str, body: JSON) -> Dumped:
    """A reply as the object that the provider's SDK gives."""
    return Dumped(body) if format == "gemini" else WithToDict(body)


def _wrapped(value: Any, kind: type[Dumped]) -> Any:
    if isinstance(value, dict):
        return kind(value)
    return [_wrapped(item, kind) for item in value] if isinstance(value, list) else value
