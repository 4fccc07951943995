"""Messages of Anthropic's Messages API.

System messages become `Written.system`: a text, or text blocks. Content is written as a list of
blocks. Results come first in the user message that follows their calls; neighbours of one role
become one message.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from clew.messages.neutral import (
    About,
    Media,
    Message,
    Other,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from clew.messages.shared.read import (
    Count,
    Malformed,
    checked,
    each,
    elements,
    fields,
    name,
    optional,
    role_of,
    split_results,
    string,
    text,
    tokens,
    tokens_in,
)

NAME = "anthropic"

Block = dict[str, Any]


# --- reading --------------------------------------------------------------------------------

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a message; a response is read as its assistant message.

    A user message that holds results is read as a tool message and, if it holds anything else,
    a user message.
    """
    role = role_of(body, _ROLES)
    content = body.get("content")
    parts: tuple[Part, ...]
    if isinstance(content, str):
        parts = (Text(content, format=NAME, raw=content),)
    elif isinstance(content, list):
        parts = each(content, _read_block)
    else:
        raise Malformed("content is neither a text nor a list of blocks", ".content")
    if role == "user":
        return split_results(Message(role=role, parts=parts, format=NAME))
    said = about(body)
    return [
        Message(
            role=role,
            parts=parts,
            format=NAME,
            usage=read_usage(said.usage),
            model=text(said.model),
        )
    ]


def about(body: Block) -> About:
    """What a message tells of its call; only one that is a whole response does."""
    return About(usage=body.get("usage"), model=body.get("model"), id=body.get("id"))


def _read_block(block: Block) -> Part:
    match block.get("type"):
        case "text":
            return Text(string(block, "text"), format=NAME, raw=block)
        case "thinking":
            # An interrupted stream leaves the signature empty.
            signature = optional(block, "signature") or None
            return Thinking(string(block, "thinking"), signature, format=NAME, raw=block)
        case "redacted_thinking":
            return Thinking("", string(block, "data"), format=NAME, raw=block)
        case "tool_use":
            # A stream that was put together by hand may have left the input as its JSON text.
            id, tool = name(block, "id"), name(block, "name")
            return ToolCall(id, tool, block.get("input"), format=NAME, raw=block)
        case "tool_result":
            return _read_result(block)
        case "image":
            return _read_source(block, "image")
        case "document":
            source = fields(block, "source")
            if source.get("type") == "text":
                # Every other format can carry the text, and few can carry such a file.
                return Text(string(source, "data", "source"), format=NAME, raw=block)
            return _read_source(block, "file")
    string(block, "type")
    return Other(format=NAME, raw=block)


def _read_result(block: Block) -> Part:
    content = block.get("content")
    parts: tuple[Part, ...]
    if isinstance(content, str):
        parts = (Text(content),) if content else ()
    else:
        parts = each(elements(block, "content"), _read_block)
    return ToolResult(
        call=name(block, "tool_use_id"),
        content=parts,
        is_error=block.get("is_error") is True,
        format=NAME,
        raw=block,
    )


def _read_source(block: Block, kind: Any) -> Part:
    source = fields(block, "source")
    found: dict[str, str | None] = {"mime": optional(source, "media_type", "source")}
    match source.get("type"):
        case "base64":
            found["data"] = string(source, "data", "source")
        case "url":
            found["url"] = string(source, "url", "source")
        case "file":
            found["file_id"] = string(source, "file_id", "source")
        case _:
            return Other(format=NAME, raw=block)
    title = block.get("title")
    found["name"] = title if isinstance(title, str) else None
    return Media(kind=kind, **found, format=NAME, raw=block)


class _Written(Struct, gc=False, forbid_unknown_fields=True):
    ephemeral_5m_input_tokens: Count | None = None
    ephemeral_1h_input_tokens: Count | None = None


class _Made(Struct, gc=False, forbid_unknown_fields=True):
    thinking_tokens: Count | None = None


class _Counts(Struct, gc=False, forbid_unknown_fields=True):
    input_tokens: Count
    output_tokens: Count
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: _Written | None = None
    output_tokens_details: _Made | None = None
    service_tier: Any = None
    server_tool_use: Any = None
    inference_geo: Any = None
    iterations: Any = None
    speed: Any = None


class Usual(Struct, gc=False):
    """What nearly every response tells of its call; see `clew.messages.usage.in_data`."""

    usage: _Counts
    id: str | None = None
    model: str | None = None

    def tokens(self) -> Usage:
        usage = self.usage
        made, written = usage.output_tokens_details, usage.cache_creation
        return Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_input_tokens or 0,
            cache_write_tokens=usage.cache_creation_input_tokens or 0,
            reasoning_tokens=0 if made is None else made.thinking_tokens or 0,
            cache_write_1h_tokens=0 if written is None else written.ephemeral_1h_input_tokens or 0,
        )


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response."""
    if not isinstance(usage, dict):
        return None
    return Usage(
        input_tokens=tokens(usage, "input_tokens"),
        output_tokens=tokens(usage, "output_tokens"),
        cache_read_tokens=tokens(usage, "cache_read_input_tokens"),
        cache_write_tokens=tokens(usage, "cache_creation_input_tokens"),
        reasoning_tokens=tokens_in(usage, "output_tokens_details", "thinking_tokens"),
        cache_write_1h_tokens=tokens_in(usage, "cache_creation", "ephemeral_1h_input_tokens"),
    )
