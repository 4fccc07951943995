"""Messages of no provider: a role, a text or blocks, calls, results.

    {"role": "user" | "assistant" | "tool" | "system" | "developer",
     "content": a text, a list of blocks, or null,
     "reasoning": a text, "tool_calls": [{"id", "name", "arguments"}],     of an assistant
     "tool_call_id", "name", "is_error"}                                   of a tool

A block is {"type": "text", "text"}, or {"type": "image" | "audio" | "file"} with "mime" and one
of "data" (base64), "url" and "file_id". Fields that are not named here are kept. Reading takes
calls in OpenAI's form too, arguments as JSON text, and texts in place of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    Violation,
)
from clew.messages.shared import openai
from clew.messages.shared.read import (
    Malformed,
    checked,
    elements,
    fields,
    name,
    optional,
    role_of,
    string,
)
from clew.messages.shared.rules import Judge, Pairs
from clew.messages.shared.write import LEFT_OUT, Writing

__all__ = ["NAME", "Writer", "read", "validate"]

NAME = "plain"

Block = dict[str, Any]


# --- reading --------------------------------------------------------------------------------

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "system": "system",
    "developer": "system",
}
_KNOWN = frozenset({"role", "content", "tool_calls", "reasoning"})


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a message."""
    role = role_of(body, _ROLES)
    parts = _read_content(body)
    if role == "tool":
        return [Message(role=role, parts=(_read_result(body, parts),), format=NAME)]
    if role == "assistant":
        parts = _read_assistant(body, parts)
    extra = None
    if not _KNOWN.issuperset(body) or body["role"] == "developer":
        extra = {key: value for key, value in body.items() if key not in _KNOWN}
        if body["role"] == "developer":
            extra["role"] = "developer"
    return [Message(role=role, parts=parts, format=NAME, extra=extra)]


def _read_content(body: Block) -> tuple[Part, ...]:
    content = body.get("content")
    if isinstance(content, str):
        return (Text(content, format=NAME, raw=content),) if content else ()
    return tuple([_read_block(block, i) for i, block in enumerate(elements(body, "content"))])


def _read_assistant(body: Block, content: tuple[Part, ...]) -> tuple[Part, ...]:
    parts: list[Part] = []
    reasoning = optional(body, "reasoning")
    if reasoning:
        parts.append(Thinking(reasoning, format=NAME, raw=reasoning))
    parts += content
    for index, call in enumerate(elements(body, "tool_calls")):
        parts.append(_read_call(call, index))
    return tuple(parts)


def _read_call(block: Any, index: int) -> Part:
    try:
        if not isinstance(block, dict):
            raise Malformed("a call is not an object")
        call = fields(block, "function") if "function" in block else block
        tool = name(call, "name", "" if call is block else "function")
        # Small local models leave the id out; the result can then only name this one.
        id = optional(block, "id")
        made = id or f"call_{tool}_{index}"
        given = call.get("arguments", call.get("args"))
        return ToolCall(made, tool, given, not id, format=NAME, raw=block)
    except Malformed as error:
        raise error.under(f".tool_calls[{index}]") from None


def _read_result(body: Block, content: tuple[Part, ...]) -> Part:
    return ToolResult(
        name(body, "tool_call_id"),
        content,
        optional(body, "name"),
        body.get("is_error") is True,
        format=NAME,
        raw=body,
    )


def _read_block(block: Any, index: int) -> Part:
    if isinstance(block, str):
        return Text(block)
    try:
        if not isinstance(block, dict):
            raise Malformed("a block is neither an object nor a text")
        kind = optional(block, "type")
        if kind == "text" or (kind is None and "text" in block):
            return Text(string(block, "text"), format=NAME, raw=block)
        if kind in ("image", "audio", "file"):
            return _read_media(block, kind)
        if kind == "image_url":
            url = string(fields(block, "image_url"), "url", "image_url")
            return openai.media_at(url, "image", format=NAME, raw=block)
        if kind is None:
            raise Malformed("a block has no type")
        return Other(format=NAME, raw=block)
    except Malformed as error:
        raise error.under(f".content[{index}]") from None


def _read_media(block: Block, kind: Any) -> Part:
    keys = ("mime", "data", "url", "file_id", "name")
    found = {key: optional(block, key) for key in keys}
    if not (found["data"] or found["url"] or found["file_id"]):
        return Other(format=NAME, raw=block)
    return Media(kind=kind, **found, format=NAME, raw=block)


# --- writing --------------------------------------------------------------------------------


class Writer(Writing):
    """Plain messages, from messages in normal form. The content of texts alone is one text."""

    NAME = NAME

    def take(self, message: Message) -> int | None:
        place = len(self.messages)
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self.messages.append(self._result(part))
                else:
                    self.drop(part)
        else:
            written = self._message(message)
            if written is not None:
                self.messages.append(written)
        return place if len(self.messages) > place else None

    def _message(self, message: Message) -> Block | None:
        thoughts = [part for part in message.parts if isinstance(part, Thinking)]
        calls = [self._call(part) for part in message.parts if isinstance(part, ToolCall)]
        content = self._content(message.parts)
        if content is None and message.role != "assistant":
            content = LEFT_OUT
        # Fields of another format would be read as something else, or not at all.
        extra = (message.extra or {}) if message.format == self.NAME else {}
        role = "developer" if (message.extra or {}).get("role") == "developer" else message.role
        written = {**extra, "role": role, "content": content}
        if thoughts:
            reasoning = self._reasoning(thoughts)
            if reasoning:
                written["reasoning"] = reasoning
        if calls:
            written["tool_calls"] = calls
        return written if content is not None or calls or "reasoning" in written else None

    def _content(self, parts: Sequence[Part]) -> str | list[Any] | None:
        """One text if there is nothing else; a list if there is, or if there was one.

        Several texts are several blocks: joined, the words at their ends would be one.
        """
        blocks: list[Any] = []
        bare = True
        for part in parts:
            if isinstance(part, Text):
                bare = bare and not self.owns(part)
                blocks.append(part.raw if self.owns(part) else {"type": "text", "text": part.text})
            elif isinstance(part, Media):
                bare = False
                blocks.append(part.raw if self.owns(part) else _media_block(part))
            elif self.owns(part) and not isinstance(part, (Thinking, ToolCall, ToolResult)):
                bare = False
                blocks.append(part.raw)
            elif not isinstance(part, (Thinking, ToolCall)):
                self.drop(part)
        if bare and len(blocks) == 1:
            return str(blocks[0]["text"])
        return blocks or None

    def _reasoning(self, thoughts: Sequence[Thinking]) -> str:
        for part in thoughts:
            if not part.text:
                self.drop(part)
            elif part.signature:
                self.lose("signature_dropped", "the signature of thinking was left out")
        return "\n\n".join([part.text for part in thoughts if part.text])

    def _call(self, part: ToolCall) -> Block:
        if not self.owns(part):
            return {"id": part.id, "name": part.name, "arguments": self.arguments(part)}
        raw: Block = part.raw
        return raw if raw.get("id") == part.id else {**raw, "id": part.id}

    def _result(self, part: ToolResult) -> Block:
        if self.owns(part):
            raw: Block = part.raw
            return raw if raw["tool_call_id"] == part.call else {**raw, "tool_call_id": part.call}
        written: Block = {"role": "tool", "tool_call_id": part.call}
        if part.name:
            written["name"] = part.name
        written["content"] = self._content(part.content) or ""
        return {**written, "is_error": True} if part.is_error else written


def _media_block(part: Media) -> Block:
    named = {
        "mime": part.mime,
        "data": part.data,
        "url": part.url,
        "file_id": part.file_id,
        "name": part.name,
    }
    return {"type": part.kind, **{key: value for key, value in named.items() if value is not None}}


# --- rules: what the providers' formats have in common ---------------------------------------


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that plain messages break."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        self._pairs = Pairs(self)
        for message in self.each(messages):
            role = message.get("role")
            if not self.known(role, _ROLES, "role", "role"):
                continue
            if role == "tool":
                self._pairs.result(message.get("tool_call_id"))
            else:
                self._pairs.close()
            self._content(message)
            if message.get("tool_calls") is not None:
                self.holds(role == "assistant", "block_place", f"calls stand in a {role} message")
                for call in self.objects(message["tool_calls"], "tool_calls"):
                    self._call(call)
        self._pairs.close()
        return self.found

    def _content(self, message: Block) -> None:
        content = message.get("content")
        if content is None:
            said = bool(message.get("tool_calls") or message.get("reasoning"))
            self.holds(said, "no_content", "a message says nothing")
        elif not isinstance(content, str):
            for block in self.objects(content, "content"):
                if self.text(block, "type") == "text":
                    self.text(block, "text")

    def _call(self, call: Block) -> None:
        self._pairs.call(call.get("id"))
        tool = self.object(call.get("function", call), "function")
        named = isinstance(tool.get("name"), str) and bool(tool["name"])
        self.holds(named, "tool_name", "a call names no tool")
