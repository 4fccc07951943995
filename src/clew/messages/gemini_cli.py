"""Records of the Gemini CLI: messages of its chats, and of Qwen Code, which grew out of it.

    {"id", "timestamp", "type": "user" | "gemini", "content": a text or parts, "thoughts",
     "toolCalls": [{"id", "name", "args", "result", "status"}], "tokens", "model"}
    {"uuid", "parentUuid", "type": "user" | "assistant" | "tool_result",
     "message": a content of the Gemini API}

A record of the Gemini CLI holds the calls of a reply together with their results. Other types are
what the user was told. A line that gives a message anew, by its id, is an edit of it.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from clew.core.errors import InvalidInput
from clew.messages.gemini import read as gemini
from clew.messages.neutral import About, Message, Part, Text, Thinking, ToolCall, ToolResult, Usage
from clew.messages.shared.media import dump
from clew.messages.shared.read import Malformed, checked, elements, name, string, tokens

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

NAME = "gemini-cli"
PROVIDER = "gemini"  # in whose format a request is written

Record = dict[str, Any]


def is_message(record: Any) -> bool:
    """Whether a record is a part of the conversation with the model."""
    if not isinstance(record, dict):
        return False
    if isinstance(record.get("message"), dict):
        parts = record["message"].get("parts")
        return record.get("type") in ("user", "assistant", "tool_result") and bool(parts)
    return record.get("type") in ("user", "gemini") and "content" in record


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a record: a message, and the results of the calls in it."""
    if not is_message(body):
        raise Malformed("is not a record of the Gemini CLI that holds a message")
    if isinstance(body.get("message"), dict):
        # Made by other models: Gemini would miss its signatures in calls that look like its own.
        return [_foreign(message) for message in _content(body["message"], ".message")]
    found = _content({"role": "user", "parts": _parts(body["content"])}, ".content")
    if body["type"] == "user":
        return found
    said = [part for message in found for part in message.parts]
    calls = [call for call in elements(body, "toolCalls") if isinstance(call, dict)]
    made = [_call(call) for call in calls]
    model = body.get("model")
    reply = Message(
        role="assistant",
        parts=(*_thoughts(body.get("thoughts")), *said, *made),
        usage=read_usage(body.get("tokens")),
        model=model if isinstance(model, str) else None,
    )
    results = [_result(call) for call in calls if "result" in call]
    return [reply, Message(role="tool", parts=tuple(results))] if results else [reply]


def _content(content: Record, within: str) -> list[Message]:
    try:
        return gemini.read(content)
    except InvalidInput as error:
        raise Malformed(error.fields["reason"], within + (error.path or "$")[1:]) from None


def _foreign(message: Message) -> Message:
    parts = [
        replace(part, format=None, raw=None) if isinstance(part, ToolCall) else part
        for part in message.parts
    ]
    return replace(message, parts=tuple(parts))


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"text": content}] if content else []
    if isinstance(content, dict):
        return [content]
    if isinstance(content, list):
        return [{"text": part} if isinstance(part, str) else part for part in content]
    raise Malformed("content is neither a text nor parts", ".content")


def _thoughts(thoughts: Any) -> list[Part]:
    found: list[Part] = []
    for thought in thoughts if isinstance(thoughts, list) else ():
        if isinstance(thought, dict):
            texts = [thought.get(key) for key in ("subject", "description")]
            found.append(Thinking("\n".join([t for t in texts if isinstance(t, str)])))
    return found


def _call(call: Record) -> ToolCall:
    return ToolCall(name(call, "id"), string(call, "name"), call.get("args"))


def _result(call: Record) -> ToolResult:
    """What a call gave: the output in its response, or what the response is."""
    texts = []
    result = call.get("result")
    for part in result if isinstance(result, list) else [result]:
        response = part.get("functionResponse") if isinstance(part, dict) else None
        given = response.get("response") if isinstance(response, dict) else part
        output = given.get("output") if isinstance(given, dict) else given
        texts.append(output if isinstance(output, str) else dump(given))
    return ToolResult(
        call=name(call, "id"),
        content=(Text("\n".join(texts)),),
        name=string(call, "name"),
        is_error=call.get("status") == "error",
    )


def about(body: dict[str, Any]) -> About:
    """What a record tells of the reply in it."""
    return About(usage=body.get("tokens"), model=body.get("model"), id=body.get("id"))


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response; what came from the cache is told within the input."""
    if not isinstance(usage, dict):
        return None
    cached, thought = tokens(usage, "cached"), tokens(usage, "thoughts")
    return Usage(
        input_tokens=max(0, tokens(usage, "input") - cached),
        output_tokens=tokens(usage, "output") + thought,
        cache_read_tokens=cached,
        reasoning_tokens=thought,
    )


def read_compaction(body: Any, parent: str | None) -> dict[str, Any]:
    """Messages that are set in place of all that was before."""
    payload = body.get("systemPayload")
    if isinstance(payload, dict) and isinstance(payload.get("compressedHistory"), list):
        details = {"messages": payload["compressedHistory"], "format": gemini.NAME}
        return {"compacted_through_entry_id": parent, "details": details}
    given = body.get("$set")
    messages = given.get("messages") if isinstance(given, dict) else None
    kept = [one for one in messages if is_message(one)] if isinstance(messages, list) else []
    return {
        "compacted_through_entry_id": parent,
        "details": {"messages": kept, "format": NAME},
    }


def read_edit(body: Any, parent: str | None) -> dict[str, Any]:
    """A message that is given anew."""
    return {"edit": "replace", "target": body.get("id"), "message": body, "format": NAME}
