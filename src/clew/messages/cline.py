"""Messages of Cline and Roo Code: those of Anthropic's API, with notes beside the content.

    {"role", "content": a text or blocks, "ts", "modelInfo", "metrics", …}

A block of type "file" holds a file that the user has named, and is read as its text.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from clew.core.errors import InvalidInput
from clew.messages.anthropic import read as anthropic
from clew.messages.neutral import About, Message, Usage
from clew.messages.shared.read import Malformed, checked, tokens

NAME = "cline"
PROVIDER = "anthropic"  # in whose format a request is written

# The fields of blocks that a request may hold.
_FIELDS = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
    "tool_use": ("type", "id", "name", "input"),
    "tool_result": ("type", "tool_use_id", "content", "is_error"),
    "image": ("type", "source"),
}


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a message."""
    if not isinstance(body, dict) or body.get("role") not in ("user", "assistant"):
        raise Malformed("is not a message of Cline")
    content = body.get("content")
    blocks = [_plain(block) for block in content] if isinstance(content, list) else content
    message = {"role": body["role"], "content": blocks}
    try:
        found = anthropic.read(message)
    except InvalidInput as error:
        raise Malformed(error.fields["reason"], (error.path or "$")[1:]) from None
    usage = read_usage(about(body).usage)
    return found if usage is None else [replace(found[0], usage=usage), *found[1:]]


def about(body: dict[str, Any]) -> About:
    """What a message tells of the reply that it is."""
    return About(usage=body.get("metrics")) if body.get("role") == "assistant" else About()


def _plain(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    if block.get("type") == "file":
        return {"type": "text", "text": f"[{block.get('path')}]\n{block.get('content')}"}
    known = _FIELDS.get(str(block.get("type")))
    if known is None:
        return block
    return {key: block[key] for key in known if key in block}


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a reply."""
    if not isinstance(usage, dict):
        return None
    return Usage(
        input_tokens=tokens(usage, "inputTokens"),
        output_tokens=tokens(usage, "outputTokens"),
        cache_read_tokens=tokens(usage, "cacheReadTokens"),
        cache_write_tokens=tokens(usage, "cacheWriteTokens"),
    )
