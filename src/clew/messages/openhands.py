"""Events of OpenHands' agent SDK that the model sees.

{"kind": "SystemPromptEvent", "system_prompt": {"text"}}
{"kind": "MessageEvent", "source", "llm_message": {"role", "content": [{"type": "text", …}]}}
{"kind": "ActionEvent", "thought", "tool_call": {"id", "name", "arguments"}, "llm_response_id"}
{"kind": "ObservationEvent" | "AgentErrorEvent" | …, "tool_call_id", "observation": {"content"}}
"""

from __future__ import annotations

from typing import Any

from clew.messages.neutral import Media, Message, Part, Text, Thinking, ToolCall, ToolResult
from clew.messages.shared.media import dump
from clew.messages.shared.read import Malformed, checked, name, text

NAME = "openhands"
PROVIDER = "openai-chat"  # in whose format a request is written

Event = dict[str, Any]
_ROLES: dict[str, Any] = {"user": "user", "assistant": "assistant", "system": "system"}


def is_message(event: Any) -> bool:
    """Whether an event is a part of the conversation with the model."""
    kind = event.get("kind") if isinstance(event, dict) else None
    if kind == "MessageEvent":
        return isinstance(event.get("llm_message"), dict)
    if kind in ("SystemPromptEvent", "ActionEvent"):
        return True
    return (
        isinstance(kind, str)
        and kind.endswith("Event")
        and isinstance(event.get("tool_call_id"), str)
    )


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of an event."""
    if not is_message(body):
        raise Malformed("is not an event of OpenHands that the model sees")
    match body["kind"]:
        case "SystemPromptEvent":
            return [Message(role="system", parts=tuple(_parts([body.get("system_prompt")])))]
        case "MessageEvent":
            message = body["llm_message"]
            role = _ROLES.get(text(message.get("role")) or "", "user")
            return [Message(role=role, parts=tuple(_parts(message.get("content"))))]
        case "ActionEvent":
            return [_action(body)]
    return [Message(role="tool", parts=(_result(body),))]


def _action(event: Event) -> Message:
    parts: list[Part] = []
    reasoning = event.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        parts.append(Thinking(reasoning))
    parts += _parts(event.get("thought"))
    call = event.get("tool_call")
    call = call if isinstance(call, dict) else {}
    inner = call.get("function")
    function: Event = inner if isinstance(inner, dict) else call
    given = function.get("arguments", event.get("action"))
    tool = function.get("name") or event.get("tool_name")
    parts.append(ToolCall(name(event, "tool_call_id"), str(tool), given))
    return Message(role="assistant", parts=tuple(parts))


def _result(event: Event) -> ToolResult:
    observation = event.get("observation")
    if isinstance(observation, dict):
        content, failed = observation.get("content"), observation.get("is_error") is True
        parts = _parts(content if content is not None else observation.get("output"))
        parts = parts or [Text(dump(observation))]
    else:
        said = event.get("error") or event.get("rejection_reason") or ""
        parts, failed = [Text(said if isinstance(said, str) else dump(said))], True
    tool = event.get("tool_name")
    return ToolResult(
        call=name(event, "tool_call_id"),
        content=tuple(parts),
        name=tool if isinstance(tool, str) else None,
        is_error=failed,
    )


def _parts(content: Any) -> list[Part]:
    found: list[Part] = []
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            found.append(Text(block))
        elif isinstance(block, dict) and isinstance(block.get("text"), str):
            found.append(Text(block["text"]))
        elif isinstance(block, dict) and isinstance(block.get("image_urls"), list):
            urls = [url for url in block["image_urls"] if isinstance(url, str)]
            found += [Media(kind="image", url=url) for url in urls]
    return found


def read_compaction(body: Any, parent: str | None) -> dict[str, Any]:
    """A condensation: a summary in place of the events that it names."""
    return {"summary": body.get("summary"), "compacted_through_entry_id": parent}
