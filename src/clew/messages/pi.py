"""Records of pi: the lines of its session files.

    {"type": "message", "id", "parentId", "timestamp", "message": {"role": "user" | "assistant" |
     "toolResult" | "system" | "bashExecution" | "custom" | …, "content": …}}
    {"type": "custom_message", …, "content": …}

are what the model sees. A command that the user ran by hand, and what an extension said, are told
in the user's name, as pi does. Other types are about the conversation.
"""

from __future__ import annotations

from typing import Any

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
from clew.messages.shared.read import Malformed, checked, each, name, optional, string, text, tokens

__all__ = [
    "NAME",
    "PROVIDER",
    "about",
    "is_message",
    "read",
    "read_compaction",
    "read_edit",
    "read_usage",
]

NAME = "pi"
PROVIDER = "anthropic"  # in whose format a request is written, unless the caller chooses

Record = dict[str, Any]

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "toolResult": "tool",
    "system": "system",
    "bashExecution": "user",
    "custom": "user",
    "hookMessage": "user",
    "branchSummary": "user",
    "compactionSummary": "user",
}


def is_message(record: Any) -> bool:
    """Whether a record is a part of the conversation with the model."""
    if not isinstance(record, dict):
        return False
    message = record.get("message")
    if record.get("type") == "message" and isinstance(message, dict):
        return text(message.get("role")) in _ROLES and message.get("excludeFromContext") is not True
    return record.get("type") == "custom_message"


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of the message that a record holds."""
    if not is_message(body):
        raise Malformed("is not a record of pi that holds a message")
    message = body if body["type"] == "custom_message" else body["message"]
    try:
        return [_read(message, "custom" if message is body else message["role"])]
    except Malformed as error:
        raise error if message is body else error.under(".message") from None


def _read(message: Record, role: str) -> Message:
    if role == "bashExecution":
        return _told(_command(message))
    if role in ("branchSummary", "compactionSummary"):
        return _told(f"<summary>\n{string(message, 'summary')}\n</summary>")
    parts = _parts(message.get("content"), message.get("api"))
    if role == "toolResult":
        result = ToolResult(
            call=name(message, "toolCallId"),
            content=parts,
            name=optional(message, "toolName"),
            is_error=message.get("isError") is True,
        )
        return Message(role="tool", parts=(result,))
    if role == "system" and not parts:
        sections = message.get("sections")
        texts = sections.values() if isinstance(sections, dict) else ()
        parts = tuple([Text(text) for text in texts if isinstance(text, str) and text])
    model = message.get("model")
    return Message(
        role=_ROLES[role],
        parts=parts,
        usage=read_usage(message.get("usage")),
        model=model if isinstance(model, str) else None,
    )


def _told(text: str) -> Message:
    return Message(role="user", parts=(Text(text),))


def _command(message: Record) -> str:
    """A command that the user ran, as the model is told of it."""
    output = optional(message, "output") or "(no output)"
    told = f"Ran `{string(message, 'command')}`\n```\n{output}\n```"
    code = message.get("exitCode")
    if message.get("cancelled") is True:
        told += "\n(cancelled)"
    elif type(code) is int and code != 0:
        told += f"\n(exit code {code})"
    return told


def _parts(content: Any, api: Any) -> tuple[Part, ...]:
    if content is None:
        return ()  # as files of old have it
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list):
        raise Malformed("content is neither a text nor a list of blocks", ".content")
    return each(content, lambda block: _read_block(block, api))


def _read_block(block: Record, api: Any) -> Part:
    match block.get("type"):
        case "text":
            return Text(string(block, "text"))
        case "thinking":
            return _read_thinking(block, api)
        case "toolCall":
            return ToolCall(name(block, "id"), name(block, "name"), block.get("arguments"))
        case "image":
            mime = optional(block, "mimeType")
            return Media(kind="image", mime=mime, data=string(block, "data"))
    string(block, "type")
    return Other(format=NAME, raw=block)


def _read_thinking(block: Record, api: Any) -> Part:
    """Reasoning. Its signature means something to the provider that made it, by its own name."""
    text, signature = string(block, "thinking"), optional(block, "thinkingSignature") or None
    if api != "anthropic-messages" or signature is None:
        return Thinking(text)
    if block.get("redacted") is True:
        raw = {"type": "redacted_thinking", "data": signature}
        return Thinking("", signature, format="anthropic", raw=raw)
    raw = {"type": "thinking", "thinking": text, "signature": signature}
    return Thinking(text, signature, format="anthropic", raw=raw)


def about(body: Record) -> About:
    """What a record tells of the reply in it."""
    message = body.get("message", body)
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return About()
    return About(
        usage=message.get("usage"),
        model=message.get("model"),
        id=message.get("responseId"),
        provider=message.get("provider"),
    )


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response."""
    if not isinstance(usage, dict):
        return None
    return Usage(
        input_tokens=tokens(usage, "input"),
        output_tokens=tokens(usage, "output"),
        cache_read_tokens=tokens(usage, "cacheRead"),
        cache_write_tokens=tokens(usage, "cacheWrite"),
        reasoning_tokens=tokens(usage, "reasoning"),
    )


def read_compaction(body: Any, parent: str | None) -> dict[str, Any]:
    """A compaction in our words. One that names itself keeps nothing."""
    first = body.get("firstKeptEntryId")
    kept = first if first is not None and first != body.get("id") else None
    return {
        "summary": body.get("summary"),
        "first_kept_entry_id": kept,
        "compacted_through_entry_id": parent,
    }


def read_edit(body: Any, parent: str | None) -> dict[str, Any]:
    """A change of what the model sees of an entry: nothing of it, or other content."""
    target, new = body.get("targetId"), body.get("replacement")
    if not isinstance(new, dict):
        return {"edit": "remove", "target": target}
    return {"edit": "replace", "target": target, "content": new.get("content")}
