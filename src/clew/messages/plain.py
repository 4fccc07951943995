"""Messages of no provider: a role, a text or blocks, calls, results.

    {"role": "user" | "assistant" | "tool" | "system" | "developer",
     "content": a text, a list of blocks, or null,
     "reasoning": a text, "tool_calls": [{"id", "name", "arguments"}],     of an assistant
     "tool_call_id", "name", "is_error"}                                   of a tool

A block is {"type": "text", "text"}, or {"type": "image" | "audio" | "file"} with "mime" and one
of "data" (base64), "url" and "file_id". Fields that are not named here are kept. Reading takes
calls in OpenAI's form too, arguments as JSON text, and texts in place of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.messages import _openai
from clew.messages._json import parse_arguments
from clew.messages._reading import (
    Malformed,
    checked,
    elements,
    fields,
    name,
    optional,
    role_of,
    string,
)
from clew.messages._rules_plain import validate
from clew.messages._writer_plain import Writer
from clew.messages.neutral import (
    Media,
    Message,
    Other,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Written,
)

__all__ = ["NAME", "read", "validate", "write"]

NAME = "plain"

Block = dict[str, Any]


def write(messages: Sequence[Message], *, unicode: bool = False) -> Written:
    """Plain messages, from messages in normal form. The content of texts alone is one text."""
    return Writer().write(messages, unicode=unicode)


# --- reading --------------------------------------------------------------------------------

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "system": "system",
    "developer": "system",
}
_KNOWN = frozenset({"role", "content", "tool_calls", "reasoning"})


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a message."""
    role = role_of(body, _ROLES)
    parts = _read_content(body)
    if role == "tool":
        return [Message(role=role, parts=(_read_result(body, parts),), format=NAME)]
    if role == "assistant":
        parts = _read_assistant(body, parts)
    extra = None
    if not _KNOWN.issuperset(body) or body["role"] == "developer":
        extra = {key: value for key, value in body.items() if key not in _KNOWN}
        if body["role"] == "developer":
            extra["role"] = "developer"
    return [Message(role=role, parts=parts, format=NAME, extra=extra)]


def _read_content(body: Block) -> tuple[Part, ...]:
    content = body.get("content")
    if isinstance(content, str):
        return (Text(content, format=NAME, raw=content),) if content else ()
    return tuple([_read_block(block, i) for i, block in enumerate(elements(body, "content"))])


def _read_assistant(body: Block, content: tuple[Part, ...]) -> tuple[Part, ...]:
    parts: list[Part] = []
    reasoning = optional(body, "reasoning")
    if reasoning:
        parts.append(Thinking(reasoning, format=NAME, raw=reasoning))
    parts += content
    for index, call in enumerate(elements(body, "tool_calls")):
        parts.append(_read_call(call, index))
    return tuple(parts)


def _read_call(block: Any, index: int) -> Part:
    try:
        if not isinstance(block, dict):
            raise Malformed("a call is not an object")
        call = fields(block, "function") if "function" in block else block
        arguments, unparsed = parse_arguments(call.get("arguments", call.get("args")))
        tool = name(call, "name", "" if call is block else "function")
        id = optional(block, "id") or f"call_{tool}_{index}"
        return ToolCall(id, tool, arguments, unparsed, format=NAME, raw=block)
    except Malformed as error:
        raise error.under(f".tool_calls[{index}]") from None


def _read_result(body: Block, content: tuple[Part, ...]) -> Part:
    return ToolResult(
        name(body, "tool_call_id"),
        content,
        optional(body, "name"),
        body.get("is_error") is True,
        format=NAME,
        raw=body,
    )


def _read_block(block: Any, index: int) -> Part:
    if isinstance(block, str):
        return Text(block)
    try:
        if not isinstance(block, dict):
            raise Malformed("a block is neither an object nor a text")
        kind = optional(block, "type")
        if kind == "text" or (kind is None and "text" in block):
            return Text(string(block, "text"), format=NAME, raw=block)
        if kind in ("image", "audio", "file"):
            return _read_media(block, kind)
        if kind == "image_url":
            url = string(fields(block, "image_url"), "url", "image_url")
            return _openai.media_at(url, "image", format=NAME, raw=block)
        if kind is None:
            raise Malformed("a block has no type")
        return Other(format=NAME, raw=block)
    except Malformed as error:
        raise error.under(f".content[{index}]") from None


def _read_media(block: Block, kind: Any) -> Part:
    keys = ("mime", "data", "url", "file_id", "name")
    found = {key: optional(block, key) for key in keys}
    if not (found["data"] or found["url"] or found["file_id"]):
        return Other(format=NAME, raw=block)
    return Media(kind=kind, **found, format=NAME, raw=block)
