"""Messages of OpenAI's Chat Completions API, and of the many servers that speak it.

System messages stay in their place. A result is a message of its own, and its content is text:
a format without a mark for errors gets "Error: " at the beginning of theirs.
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
from clew.messages.shared import openai
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
    string,
    text,
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
    said = about(body)
    try:
        message = fields(choices[0], "message")
        return [_read_message(message, read_usage(said.usage), text(said.model))]
    except Malformed as error:
        raise error.under(".choices[0].message") from None


def about(body: Block) -> About:
    """What a completion tells of its call."""
    return About(usage=body.get("usage"), model=body.get("model"), id=body.get("id"))


class _Counts(Struct, gc=False, forbid_unknown_fields=True):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count | None = None
    prompt_tokens_details: openai.CountsIn | None = None
    completion_tokens_details: openai.CountsOut | None = None


class Usual(Struct, gc=False):
    """What nearly every completion tells of its call; see `clew.messages.usage.in_data`."""

    usage: _Counts
    id: str | None = None
    model: str | None = None

    def tokens(self) -> Usage:
        usage = self.usage
        return openai.usual_usage(
            usage.prompt_tokens,
            usage.prompt_tokens_details,
            usage.completion_tokens,
            usage.completion_tokens_details,
        )


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a completion."""
    return openai.read_usage(usage, "prompt_tokens", "completion_tokens")


def _read_message(body: Any, usage: Usage | None = None, model: str | None = None) -> Message:
    role = role_of(body, _ROLES)
    content = body.get("content")
    parts: tuple[Part, ...] = ()
    if not isinstance(content, str):
        parts = each(elements(body, "content"), _read_block)
    elif content:
        parts = (Text(content, format=NAME, raw=content),)
    if role == "tool":
        return Message(
            role=role, parts=(_read_result(body, parts),), format=NAME, usage=usage, model=model
        )
    if role == "assistant":
        parts = _read_assistant(body, parts)
    extra: Block | None = {"role": "developer"} if body["role"] == "developer" else None
    # Of a speaker. In a result it names the tool, and is read as such.
    if isinstance(body.get("name"), str):
        extra = {**(extra or {}), "name": body["name"]}
    return Message(role=role, parts=parts, format=NAME, extra=extra, usage=usage, model=model)


def _read_assistant(body: Block, content: tuple[Part, ...]) -> tuple[Part, ...]:
    """Beside the content: reasoning as several servers give it, a refusal, sound, calls."""
    if _SELDOM.isdisjoint(body):
        calls = elements(body, "tool_calls")
        return content + each(calls, _read_call, ".tool_calls") if calls else content
    parts: list[Part] = []
    # No field of the API: servers of open models add it, and do not agree on its name.
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
        # The form before tool calls had ids: paired with its result by name.
        function = fields(body, "function_call")
        tool = name(function, "name", "function_call")
        given = function.get("arguments")
        parts.append(ToolCall(f"call_{tool}", tool, given, made_id=True))
    return tuple(parts)


_SELDOM = frozenset({"reasoning_content", "reasoning", "refusal", "audio", "function_call"})


def _read_call(block: Block) -> Part:
    id = name(block, "id")
    if block.get("type") == "custom":
        custom = fields(block, "custom")
        arguments = {"input": string(custom, "input", "custom")}
        return ToolCall(id, name(custom, "name", "custom"), arguments, format=NAME, raw=block)
    function = fields(block, "function")
    return ToolCall(
        id, name(function, "name", "function"), function.get("arguments"), format=NAME, raw=block
    )


def _read_result(body: Block, content: tuple[Part, ...]) -> Part:
    tool = optional(body, "name")
    if body["role"] == "function":
        return ToolResult(f"call_{name(body, 'name')}", content, tool)
    return ToolResult(name(body, "tool_call_id"), content, tool, format=NAME, raw=body)


def _read_block(block: Block) -> Part:
    match block.get("type"):
        case "text":
            return Text(string(block, "text"), format=NAME, raw=block)
        case "refusal":
            return Text(string(block, "refusal"), format=NAME, raw=block)
        case "image_url":
            url = string(fields(block, "image_url"), "url", "image_url")
            return openai.media_at(url, "image", format=NAME, raw=block)
        case "input_audio":
            audio = fields(block, "input_audio")
            mime = _MIMES.get(optional(audio, "format", "input_audio") or "")
            data = string(audio, "data", "input_audio")
            return Media(kind="audio", mime=mime, data=data, format=NAME, raw=block)
        case "file":
            file = fields(block, "file")
            filename, data_url = (optional(file, key, "file") for key in ("filename", "file_data"))
            if data_url is not None:
                return openai.media_at(data_url, "file", name=filename, format=NAME, raw=block)
            id = string(file, "file_id", "file")
            return Media(kind="file", file_id=id, name=filename, format=NAME, raw=block)
    string(block, "type")
    return Other(format=NAME, raw=block)


_MIMES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
