"""Messages of OpenAI's Chat Completions API, and of the many servers that speak it.

System messages stay in their place. A result is a message of its own, and its content is text:
a format without a mark for errors gets "Error: " at the beginning of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    Usage,
)
from clew.messages.shared import openai
from clew.messages.shared.media import parse_arguments
from clew.messages.shared.read import (
    Malformed,
    checked,
    each,
    elements,
    fields,
    name,
    optional,
    role_of,
    string,
)

NAME = "openai-chat"

Block = dict[str, Any]


# --- reading --------------------------------------------------------------------------------

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "system": "system",
    "developer": "system",
    "function": "tool",
}


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a message; a completion is read as the message of its first choice."""
    if isinstance(body, dict) and "choices" in body and "role" not in body:
        return _read_completion(body)
    return [_read_message(body)]


def _read_completion(body: Block) -> list[Message]:
    choices = elements(body, "choices")
    if not choices or not isinstance(choices[0], dict):
        raise Malformed("a completion without a choice", ".choices")
    model = body.get("model")
    usage = openai.read_usage(body.get("usage"), "prompt_tokens", "completion_tokens")
    try:
        message = fields(choices[0], "message")
        return [_read_message(message, usage, model if isinstance(model, str) else None)]
    except Malformed as error:
        raise error.under(".choices[0].message") from None


def _read_message(body: Any, usage: Usage | None = None, model: str | None = None) -> Message:
    role = role_of(body, _ROLES)
    parts = _read_content(body)
    if role == "assistant":
        parts = _read_assistant(body, parts)
    elif role == "tool":
        parts = (_read_result(body, parts),)
    extra = _read_extra(body) if "name" in body or body["role"] == "developer" else None
    return Message(role=role, parts=parts, format=NAME, extra=extra, usage=usage, model=model)


def _read_extra(body: Block) -> Block | None:
    extra = {"role": "developer"} if body["role"] == "developer" else {}
    if isinstance(body.get("name"), str) and role_of(body, _ROLES) != "tool":
        extra["name"] = body["name"]
    return extra or None


def _read_content(body: Block) -> tuple[Part, ...]:
    content = body.get("content")
    if isinstance(content, str):
        return (Text(content, format=NAME, raw=content),) if content else ()
    return each(elements(body, "content"), _read_block)


def _read_assistant(body: Block, content: tuple[Part, ...]) -> tuple[Part, ...]:
    """Beside the content: reasoning as several servers give it, a refusal, sound, calls."""
    parts: list[Part] = []
    reasoning = body.get("reasoning_content") or body.get("reasoning")
    if isinstance(reasoning, str):
        parts.append(Thinking(reasoning, format=NAME, raw=reasoning))
    parts += content
    refusal = optional(body, "refusal")
    if refusal:
        block = {"type": "refusal", "refusal": refusal}
        parts.append(Text(refusal, format=NAME, raw=block))
    audio = body.get("audio")
    if not content and isinstance(audio, dict) and isinstance(audio.get("transcript"), str):
        parts.append(Text(audio["transcript"]))
    parts += each(elements(body, "tool_calls"), _read_call, ".tool_calls")
    if body.get("function_call") is not None:
        parts.append(_read_function_call(fields(body, "function_call")))
    return tuple(parts)


def _read_call(block: Block) -> Part:
    id = name(block, "id")
    if block.get("type") == "custom":
        custom = fields(block, "custom")
        arguments = {"input": string(custom, "input", "custom")}
        return ToolCall(id, name(custom, "name", "custom"), arguments, format=NAME, raw=block)
    function = fields(block, "function")
    arguments, unparsed = parse_arguments(function.get("arguments"))
    return ToolCall(
        id, name(function, "name", "function"), arguments, unparsed, format=NAME, raw=block
    )


def _read_function_call(function: Block) -> Part:
    """The form before tool calls had ids: paired with its result by name."""
    tool = name(function, "name", "function_call")
    arguments, unparsed = parse_arguments(function.get("arguments"))
    return ToolCall(f"call_{tool}", tool, arguments, unparsed)


def _read_result(body: Block, content: tuple[Part, ...]) -> Part:
    tool = optional(body, "name")
    if body["role"] == "function":
        return ToolResult(f"call_{name(body, 'name')}", content, tool)
    return ToolResult(name(body, "tool_call_id"), content, tool, format=NAME, raw=body)


def _read_block(block: Block) -> Part:
    kind = block.get("type")
    return _READERS.get(kind if isinstance(kind, str) else "", _read_other)(block)


def _read_text(block: Block) -> Part:
    return Text(string(block, "text"), format=NAME, raw=block)


def _read_refusal(block: Block) -> Part:
    return Text(string(block, "refusal"), format=NAME, raw=block)


def _read_image(block: Block) -> Part:
    url = string(fields(block, "image_url"), "url", "image_url")
    return openai.media_at(url, "image", format=NAME, raw=block)


def _read_audio(block: Block) -> Part:
    audio = fields(block, "input_audio")
    mime = {"wav": "audio/wav", "mp3": "audio/mpeg"}.get(
        optional(audio, "format", "input_audio") or ""
    )
    return Media(
        kind="audio", mime=mime, data=string(audio, "data", "input_audio"), format=NAME, raw=block
    )


def _read_file(block: Block) -> Part:
    file = fields(block, "file")
    filename, data = optional(file, "filename", "file"), optional(file, "file_data", "file")
    if data is None:
        id = string(file, "file_id", "file")
        return Media(kind="file", file_id=id, name=filename, format=NAME, raw=block)
    return openai.media_at(data, "file", name=filename, format=NAME, raw=block)


def _read_other(block: Block) -> Part:
    string(block, "type")
    return Other(format=NAME, raw=block)


_READERS: dict[str, Callable[[Block], Part]] = {
    "text": _read_text,
    "refusal": _read_refusal,
    "image_url": _read_image,
    "input_audio": _read_audio,
    "file": _read_file,
}
