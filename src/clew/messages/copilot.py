"""Events of the Copilot CLI: the lines of its `events.jsonl`.

    {"type": "user.message", "data": {"content", "transformedContent"}, "id", "parentId", …}
    {"type": "assistant.message", "data": {"content", "reasoningText", "toolRequests": [
        {"toolCallId", "name", "arguments"}]}}
    {"type": "tool.execution_complete", "data": {"toolCallId", "success", "result": {"content"}}}
    {"type": "system.message", "data": {"content"}}

are what the model sees; the others tell of hooks, permissions and the session.
"""

from __future__ import annotations

from typing import Any

from clew.messages.neutral import About, Message, Part, Text, Thinking, ToolCall, ToolResult, Usage
from clew.messages.shared.media import dump
from clew.messages.shared.read import Malformed, checked, elements, name, string, text, tokens

__all__ = ["NAME", "PROVIDER", "about", "is_message", "read", "read_usage"]

NAME = "copilot"
PROVIDER = "openai-chat"  # in whose format a request is written

_TYPES = frozenset("user.message assistant.message tool.execution_complete system.message".split())


def is_message(record: Any) -> bool:
    """Whether an event is a part of the conversation with the model."""
    is_event = isinstance(record, dict) and isinstance(record.get("data"), dict)
    return is_event and text(record.get("type")) in _TYPES


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of the message that an event tells of."""
    if not is_message(body):
        raise Malformed("is not an event of the Copilot CLI that holds a message")
    data = body["data"]
    try:
        match body["type"]:
            case "user.message":
                sent = data.get("transformedContent")
                said = sent if isinstance(sent, str) and sent else string(data, "content")
                return [Message(role="user", parts=(Text(said),))]
            case "system.message":
                return [Message(role="system", parts=(Text(string(data, "content")),))]
            case "tool.execution_complete":
                return [Message(role="tool", parts=(_result(data),))]
        return [_reply(data)]
    except Malformed as error:
        raise error.under(".data") from None


def _reply(data: dict[str, Any]) -> Message:
    parts: list[Part] = []
    thought, said, model = data.get("reasoningText"), data.get("content"), data.get("model")
    if isinstance(thought, str) and thought:
        parts.append(Thinking(thought))
    if isinstance(said, str) and said:
        parts.append(Text(said))
    for request in elements(data, "toolRequests"):
        if isinstance(request, dict):
            id, tool = name(request, "toolCallId"), name(request, "name")
            parts.append(ToolCall(id, tool, request.get("arguments")))
    return Message(
        role="assistant",
        parts=tuple(parts),
        usage=read_usage(data),
        model=model if isinstance(model, str) else None,
    )


def _result(data: dict[str, Any]) -> ToolResult:
    result = data.get("result", data.get("error"))
    content = result.get("content", result.get("message")) if isinstance(result, dict) else result
    said = content if isinstance(content, str) else dump(result)
    failed = data.get("success") is False
    return ToolResult(name(data, "toolCallId"), (Text(said),), is_error=failed)


def about(body: dict[str, Any]) -> About:
    """What an event tells of the reply in it."""
    data = body.get("data")
    if body.get("type") != "assistant.message" or not isinstance(data, dict):
        return About()
    counts = {key: data[key] for key in ("inputTokens", "outputTokens") if key in data}
    return About(usage=counts or None, model=data.get("model"), id=data.get("messageId"))


def read_usage(usage: Any) -> Usage | None:
    """The tokens that an event tells of: those that the model made."""
    if not isinstance(usage, dict) or "outputTokens" not in usage:
        return None
    return Usage(
        input_tokens=tokens(usage, "inputTokens"), output_tokens=tokens(usage, "outputTokens")
    )
