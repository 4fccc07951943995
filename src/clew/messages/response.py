"""A whole response of a provider's API, taken apart: what the model said, and what is known of it.

What it said is a message that can be sent back as it is. All the rest (its id, the model, why it
stopped, the usage, what else the provider tells) goes into the body of a usage entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from clew import messages
from clew.core.errors import InvalidInput
from clew.messages.neutral import Message
from clew.messages.sdk_objects import as_body

Block = dict[str, Any]


class Response(Struct, frozen=True, kw_only=True):
    """`message` is what was said, in `format`, and None if nothing was; `said` its neutral view."""

    format: str
    message: Any
    said: tuple[Message, ...]
    stop_reason: str | None
    note: Block


class _Pieces(Struct, kw_only=True):
    """What a provider's response consists of; `details` is what no other field has."""

    message: Any
    id: Any
    model: Any
    stop_reason: Any
    usage: Any
    details: Block


def read_response(response: Any, format: str | None = None) -> Response:
    """A response of one of the four APIs: an object of its SDK, or the JSON of it.

    InvalidInput if it is something else, with a hint at what it looks like.
    """
    body = as_body(response)
    found = _format_of(body)
    if found is None or (format is not None and messages.check_format(format) != found):
        wanted = "a provider" if format is None else format
        raise InvalidInput("response", f"is not a whole response of {wanted}: {_hint(body, found)}")
    pieces = _SPLITTERS[found](body)
    said = tuple(messages.read(found, pieces.message)) if pieces.message else ()
    if not any(message.parts for message in said):
        pieces.message, said = None, ()
    stop_reason = pieces.stop_reason if isinstance(pieces.stop_reason, str) else None
    note: Block = {
        "format": found,
        "model": pieces.model,
        "response_id": pieces.id,
        "stop_reason": stop_reason,
    }
    usage = messages.read_usage(found, pieces.usage)
    if usage is not None:
        note |= {**asdict(usage), "usage": pieces.usage}
    if pieces.details:
        note["details"] = pieces.details
    return Response(
        format=found, message=pieces.message, said=said, stop_reason=stop_reason, note=note
    )


# --- which response it is -------------------------------------------------------------------


def _format_of(body: Any) -> str | None:
    if not isinstance(body, dict):
        return None
    if isinstance(body.get("choices"), list) and body.get("object") != "chat.completion.chunk":
        return "openai-chat"
    if isinstance(body.get("output"), list) and "type" not in body:
        return "openai-responses"
    if {"candidates", "promptFeedback", "prompt_feedback"} & body.keys():
        return "gemini"
    is_whole = "stop_reason" in body or body.get("type") == "message"
    if body.get("role") == "assistant" and is_whole and isinstance(body.get("content"), list):
        return "anthropic"
    return None


def _hint(body: Any, found: str | None) -> str:
    if found is not None:
        return f"it is one of {found}"
    if not isinstance(body, dict):
        return f"it is of type {type(body).__name__}"
    if body.get("object") == "chat.completion.chunk" or str(body.get("type")) in _EVENTS:
        return "it is one event of a stream"
    if isinstance(body.get("role"), str):
        return "it is a message, which append_message takes"
    return "it is a piece of one, or of another API"


_EVENTS = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "message_delta"}
)


# --- what it consists of --------------------------------------------------------------------


def _split_anthropic(body: Block) -> _Pieces:
    return _Pieces(
        message={"role": "assistant", "content": body["content"]},
        id=body.get("id"),
        model=body.get("model"),
        stop_reason=body.get("stop_reason"),
        usage=body.get("usage"),
        details=_rest(body, "type", "role", "content", "id", "model", "stop_reason", "usage"),
    )


def _split_chat(body: Block) -> _Pieces:
    choice = _only(body, "choices")
    return _Pieces(
        message=choice.get("message"),
        id=body.get("id"),
        model=body.get("model"),
        stop_reason=choice.get("finish_reason"),
        usage=body.get("usage"),
        details=_rest(body, "object", "choices", "id", "model", "usage")
        | _rest(choice, "index", "message", "finish_reason"),
    )


def _split_responses(body: Block) -> _Pieces:
    incomplete = body.get("incomplete_details")
    reason = incomplete.get("reason") if isinstance(incomplete, dict) else None
    # What a response repeats of its request would be stored with every reply: the tools, for one.
    repeated = ("instructions", "tools", "text", "tool_choice", "prompt")
    return _Pieces(
        message=body["output"],
        id=body.get("id"),
        model=body.get("model"),
        stop_reason=reason or body.get("status"),
        usage=body.get("usage"),
        details=_rest(body, "object", "output", "id", "model", "status", "usage", *repeated),
    )


def _split_gemini(body: Block) -> _Pieces:
    body = camel(body)
    choice = camel(_only(body, "candidates")) if body.get("candidates") else {}
    content = choice.get("content")
    feedback = body.get("promptFeedback")
    blocked = camel(feedback).get("blockReason") if isinstance(feedback, dict) else None
    # Beside the response, the SDK tells what it did for it, with all the messages before.
    by_sdk = ("sdkHttpResponse", "automaticFunctionCallingHistory", "parsed")
    known = ("candidates", "responseId", "modelVersion", "usageMetadata")
    return _Pieces(
        message={"role": "model", **content} if isinstance(content, dict) else None,
        id=body.get("responseId"),
        model=body.get("modelVersion"),
        stop_reason=choice.get("finishReason", blocked),
        usage=body.get("usageMetadata"),
        details=_rest(body, *known, *by_sdk) | _rest(choice, "content", "index", "finishReason"),
    )


_SPLITTERS: dict[str, Callable[[Block], _Pieces]] = {
    "anthropic": _split_anthropic,
    "openai-chat": _split_chat,
    "openai-responses": _split_responses,
    "gemini": _split_gemini,
}


def _only(body: Block, key: str) -> Block:
    """The one element of a list. Which of several the conversation goes on with, only its owner
    knows."""
    found = body[key]
    if len(found) != 1 or not isinstance(found[0], dict):
        reason = f"has {len(found)} {key}; append the message of the one that you go on with"
        raise InvalidInput("response", reason, path=f"$.{key}")
    return found[0]


def _rest(body: Block, *known: str) -> Block:
    return {key: value for key, value in body.items() if key not in known and value is not None}


def camel(body: Block) -> Block:
    """The names of JSON for those of the protocol."""
    return {_INNER.sub(lambda found: found[1].upper(), key): value for key, value in body.items()}


_INNER = re.compile("_([a-z])")
