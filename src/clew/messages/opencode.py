"""Messages of opencode with their parts, as its `export` writes them.

    {"info": {"id", "role": "user" | "assistant", "time", "modelID", "tokens", …},
     "parts": [{"type": "text" | "reasoning" | "tool" | "file" | "step-start" | …}]}

A reply may have several steps: what the model said, the tools that it called, and their outputs
stand one after the other, so a body is read as several messages. A message with a part of type
"compaction" begins the history anew; the summary follows as a reply.
"""

from __future__ import annotations

from typing import Any

from clew.messages.neutral import (
    About,
    Media,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from clew.messages.shared.media import dump
from clew.messages.shared.read import Malformed, checked, name, string, tokens, tokens_in

__all__ = [
    "NAME",
    "PROVIDER",
    "about",
    "is_message",
    "parts_of",
    "read",
    "read_compaction",
    "read_usage",
]

NAME = "opencode"
PROVIDER = "openai-chat"  # in whose format a request is written

Block = dict[str, Any]


def is_message(body: Any) -> bool:
    info = body.get("info") if isinstance(body, dict) else None
    return isinstance(info, dict) and info.get("role") in ("user", "assistant")


def parts_of(body: Block) -> list[Block]:
    parts = body.get("parts")
    return [one for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a message: for a reply with tools, a message for each step of it."""
    if not is_message(body):
        raise Malformed("is not a message of opencode with its parts")
    info, parts = body["info"], parts_of(body)
    if info["role"] == "user":
        said = [part for block in parts if (part := _said(block)) is not None]
        return [Message(role="user", parts=tuple(said))]
    found: list[Message] = []
    step: list[Part] = []
    results: list[Part] = []
    for block in parts:
        if block.get("type") in ("text", "reasoning", "step-start") and results:
            found += _step(step, results)
            step, results = [], []
        if block.get("type") == "tool":
            call, result = _tool(block)
            step.append(call)
            results += [] if result is None else [result]
        elif (part := _said(block)) is not None:
            step.append(part)
    found += _step(step, results)
    model = info.get("modelID")
    usage = read_usage(info.get("tokens"))
    first = found[0] if found else Message(role="assistant", parts=())
    told = Message(
        role="assistant",
        parts=first.parts,
        usage=usage,
        model=model if isinstance(model, str) else None,
    )
    return [told, *found[1:]]


def _step(step: list[Part], results: list[Part]) -> list[Message]:
    found = [Message(role="assistant", parts=tuple(step))] if step else []
    return [*found, Message(role="tool", parts=tuple(results))] if results else found


def _said(block: Block) -> Part | None:
    match block.get("type"):
        case "text":
            return None if block.get("ignored") is True else Text(string(block, "text"))
        case "reasoning":
            return Thinking(string(block, "text"))
        case "file":
            return _file(block)
        case "compaction":
            return Text("What did we do so far?")  # what opencode asks the model then
    return None


def _file(block: Block) -> Part:
    url, mime = block.get("url"), block.get("mime")
    if isinstance(url, str) and url.startswith("data:") and ";base64," in url:
        data = url.split(";base64,", 1)[1]
        kind: Any = "image" if str(mime).startswith("image/") else "file"
        return Media(kind=kind, mime=mime if isinstance(mime, str) else None, data=data)
    return Text(f"[file {block.get('filename') or url}]")


def _tool(block: Block) -> tuple[ToolCall, ToolResult | None]:
    given = block.get("state")
    state: Block = given if isinstance(given, dict) else {}
    call = ToolCall(name(block, "callID"), name(block, "tool"), state.get("input"))
    status = state.get("status")
    if status not in ("completed", "error"):
        return call, None
    output = state.get("output" if status == "completed" else "error")
    text = output if isinstance(output, str) else dump(output)
    return call, ToolResult(call.id, (Text(text),), call.name, is_error=status == "error")


def about(body: dict[str, Any]) -> About:
    """What a message tells of the reply that it is."""
    info = body.get("info")
    if not isinstance(info, dict) or info.get("role") != "assistant":
        return About()
    return About(
        usage=info.get("tokens"),
        model=info.get("modelID"),
        id=info.get("id"),
        provider=info.get("providerID"),
    )


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a reply."""
    if not isinstance(usage, dict):
        return None
    thought = tokens(usage, "reasoning")
    return Usage(
        input_tokens=tokens(usage, "input"),
        output_tokens=tokens(usage, "output") + thought,
        cache_read_tokens=tokens_in(usage, "cache", "read"),
        cache_write_tokens=tokens_in(usage, "cache", "write"),
        reasoning_tokens=thought,
    )


def read_compaction(body: Any, parent: str | None) -> dict[str, Any]:
    """The message that begins the history anew; what it keeps of the old one, it names."""
    parts = [block for block in parts_of(body) if block.get("type") == "compaction"]
    kept = parts[0].get("tail_start_id") if parts else None
    # The question is sent with the summary that follows it, as opencode does.
    details = {"messages": [{"role": "user", "content": "What did we do so far?"}]}
    return {
        "first_kept_entry_id": kept,
        "compacted_through_entry_id": parent,
        "details": details,
    }
