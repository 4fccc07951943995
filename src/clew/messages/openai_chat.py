"""Messages of OpenAI's Chat Completions API, and of the many servers that speak it.

System messages stay in their place. A result is a message of its own, and its content is text:
a format without a mark for errors gets "Error: " at the beginning of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from clew.messages import _openai
from clew.messages._json import dump, parse_arguments
from clew.messages._reading import (
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
from clew.messages._rules_openai_chat import validate
from clew.messages._writing import LEFT_OUT, Limits, Writing
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
    Written,
)

__all__ = ["NAME", "read", "validate", "write"]

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
    usage = _openai.read_usage(body.get("usage"), "prompt_tokens", "completion_tokens")
    try:
        message = fields(choices[0], "message")
        return [_read_message(message, usage, model if isinstance(model, str) else None)]
    except Malformed as error:
        raise error.under(".choices[0].message") from None


def _read_message(body: Any, usage: Usage | None = None, model: str | None = None) -> Message:
    given = role_of(body, _ROLES)
    role = _ROLES[given]
    parts = _read_content(body)
    if role == "assistant":
        parts = _read_assistant(body, parts)
    elif role == "tool":
        parts = (_read_result(body, parts),)
    extra = {key: body[key] for key in ("name",) if isinstance(body.get(key), str)}
    if given == "developer":
        extra["role"] = given
    return Message(
        role=role, parts=parts, format=NAME, extra=extra or None, usage=usage, model=model
    )


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
        arguments = {"input": string(custom, "input")}
        return ToolCall(id, name(custom, "name"), arguments, format=NAME, raw=block)
    function = fields(block, "function")
    arguments, unparsed = parse_arguments(function.get("arguments"))
    return ToolCall(id, name(function, "name"), arguments, unparsed, format=NAME, raw=block)


def _read_function_call(function: Block) -> Part:
    """The form before tool calls had ids: paired with its result by name."""
    tool = name(function, "name")
    arguments, unparsed = parse_arguments(function.get("arguments"))
    return ToolCall(f"call_{tool}", tool, arguments, unparsed)


def _read_result(body: Block, content: tuple[Part, ...]) -> Part:
    tool = optional(body, "name")
    if body["role"] == "function":
        return ToolResult(f"call_{name(body, 'name')}", content, tool)
    return ToolResult(name(body, "tool_call_id"), content, tool, format=NAME, raw=body)


def _read_block(block: Block) -> Part:
    return _READERS.get(string(block, "type"), _read_other)(block)


def _read_text(block: Block) -> Part:
    return Text(string(block, "text"), format=NAME, raw=block)


def _read_refusal(block: Block) -> Part:
    return Text(string(block, "refusal"), format=NAME, raw=block)


def _read_image(block: Block) -> Part:
    url = string(fields(block, "image_url"), "url")
    return _openai.media_at(url, "image", format=NAME, raw=block)


def _read_audio(block: Block) -> Part:
    audio = fields(block, "input_audio")
    mime = {"wav": "audio/wav", "mp3": "audio/mpeg"}.get(optional(audio, "format") or "")
    return Media(kind="audio", mime=mime, data=string(audio, "data"), format=NAME, raw=block)


def _read_file(block: Block) -> Part:
    file = fields(block, "file")
    filename, data = optional(file, "filename"), optional(file, "file_data")
    if data is None:
        id = string(file, "file_id")
        return Media(kind="file", file_id=id, name=filename, format=NAME, raw=block)
    return _openai.media_at(data, "file", name=filename, format=NAME, raw=block)


def _read_other(block: Block) -> Part:
    return Other(format=NAME, raw=block)


_READERS: dict[str, Callable[[Block], Part]] = {
    "text": _read_text,
    "refusal": _read_refusal,
    "image_url": _read_image,
    "input_audio": _read_audio,
    "file": _read_file,
}


# --- writing --------------------------------------------------------------------------------


def write(messages: Sequence[Message]) -> Written:
    """Request messages, from messages in normal form."""
    return _Writer().write(messages)


class _Writer(Writing):
    NAME = NAME
    LIMITS = Limits(re.compile(r"[ -~]{1,40}"), re.compile(r"[a-zA-Z0-9_-]{1,64}"), 64)

    def take(self, message: Message) -> int | None:
        place = len(self.messages)
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self.messages.append(self._result(part))
                else:
                    self.drop(part)
        elif message.role == "assistant":
            self._assistant(message)
        else:
            blocks = self._blocks(message.parts, media=message.role == "user")
            self._add(message, blocks or [_text(LEFT_OUT)])
        return place if len(self.messages) > place else None

    def _add(self, message: Message, blocks: list[Block], calls: Sequence[Block] = ()) -> None:
        extra = message.extra or {}
        role = "developer" if extra.get("role") == "developer" else message.role
        written: Block = {"role": role, "content": self._content(message, blocks)}
        if message.format == NAME and _NAME.fullmatch(extra.get("name") or ""):
            written["name"] = extra["name"]
        if calls:
            written["tool_calls"] = calls
        self.messages.append(written)

    def _content(self, message: Message, blocks: list[Block]) -> str | list[Block] | None:
        """One text that was no block of this format is written as a text, not as a list."""
        if len(blocks) != 1 or blocks[0].keys() != _BARE:
            return blocks or None
        own = any(isinstance(part, Text) and self.owns(part) for part in message.parts)
        return blocks if own else blocks[0]["text"]

    def _assistant(self, message: Message) -> None:
        calls = [self._call(part) for part in message.parts if isinstance(part, ToolCall)]
        rest = [part for part in message.parts if not isinstance(part, ToolCall)]
        blocks = self._blocks(rest, media=False)
        if blocks or calls:
            self._add(message, blocks, calls)

    def _blocks(self, parts: Sequence[Part], *, media: bool) -> list[Block]:
        blocks: list[Block] = []
        for part in parts:
            if isinstance(part, Text):
                blocks.append(part.raw if self.owns(part) else _text(part.text))
            elif isinstance(part, Media):
                block = self._media(part) if media else None
                blocks.append(block or _text(self.replace_media(part)))
            elif isinstance(part, Other) and self.owns(part):
                blocks.append(part.raw)
            else:
                self.drop(part)
        return blocks

    def _media(self, part: Media) -> Block | None:
        if self.owns(part):
            return part.raw  # type: ignore[no-any-return]
        if part.kind == "image":
            url = _openai.image_url(part)
            return None if url is None else {"type": "image_url", "image_url": {"url": url}}
        if part.kind == "audio":
            sound = _openai.SOUNDS.get(part.mime or "")
            if sound is None or part.data is None:
                return None
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": sound}}
        file = _openai.file_fields(part)
        return None if file is None else {"type": "file", "file": file}

    def _call(self, part: ToolCall) -> Block:
        id, name = self.call_id(part.id), self.tool_name(part.name)
        self.note_changes(part, id, name)
        if not self.owns(part):
            function = {"name": name, "arguments": dump(self.arguments(part))}
            return {"id": id, "type": "function", "function": function}
        raw: Block = part.raw
        kind = "custom" if raw.get("type") == "custom" else "function"
        tool: Block = raw[kind]
        if kind == "function" and not isinstance(tool.get("arguments"), str):
            tool = {**tool, "arguments": dump(self.arguments(part))}
        if tool["name"] != name:
            tool = {**tool, "name": name}
        same = raw["id"] == id and raw.get("type") == kind and raw[kind] is tool
        return raw if same else {**raw, "id": id, "type": kind, kind: tool}

    def _result(self, part: ToolResult) -> Block:
        id = self.call_id(part.call)
        raw = part.raw
        if self.owns(part) and _is_text(raw.get("content")):
            return raw if raw["tool_call_id"] == id else {**raw, "tool_call_id": id}
        return {"role": "tool", "tool_call_id": id, "content": self.result_text(part)}


_NAME = re.compile(r"[^\s<|\\/>]{1,64}")
_BARE = {"type", "text"}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _is_text(content: Any) -> bool:
    if isinstance(content, list):
        return bool(content) and all(block.get("type") == "text" for block in content)
    return isinstance(content, str)
