"""Messages as LlamaIndex stores them: the JSON of a `ChatMessage`.

    {"role": "user" | "assistant" | "tool" | "system" …, "blocks": [block, …],
     "additional_kwargs": {"tool_call_id", "name"} of a tool, {"tool_calls"} of an older assistant}

A block is named by its block_type. A tool message without the id of a call is the user's.
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
from clew.messages.shared.media import standard_base64
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
from clew.messages.shared.rules import Judge, Pairs
from clew.messages.shared.write import LEFT_OUT, Writing

__all__ = ["NAME", "Writer", "read", "validate"]

NAME = "llama-index"

Block = dict[str, Any]

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}
# A block of media: its kind, and the keys of its data and of its type.
_MEDIA: dict[str, tuple[Any, str, str]] = {
    "image": ("image", "image", "image_mimetype"),
    "audio": ("audio", "audio", "format"),
    "video": ("file", "video", "video_mimetype"),
    "document": ("file", "data", "document_mimetype"),
}


# --- reading --------------------------------------------------------------------------------


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a message."""
    role = role_of(body, _ROLES)
    blocks = body.get("blocks")
    if not isinstance(blocks, list):
        raise Malformed("blocks is not a list", ".blocks")
    parts = each(blocks, _read_block, ".blocks")
    more = body.get("additional_kwargs")
    more = more if isinstance(more, dict) else {}
    extra = {key: value for key, value in body.items() if key != "blocks"}
    if role == "tool":
        id = more.get("tool_call_id")
        if not isinstance(id, str) or not id:
            return [Message(role="user", parts=parts, format=NAME)]
        tool, failed = more.get("name"), more.get("is_error") is True
        tool = tool if isinstance(tool, str) else None
        parts = (ToolResult(id, parts, tool, failed, format=NAME, raw=body),)
    elif role == "assistant":
        known = {part.id for part in parts if isinstance(part, ToolCall)}
        older = [
            _read_older_call(call, index) for index, call in enumerate(elements(more, "tool_calls"))
        ]
        parts += tuple([call for call in older if call.id not in known])
        if older:
            extra["additional_kwargs"] = {k: v for k, v in more.items() if k != "tool_calls"}
    return [Message(role=role, parts=parts, format=NAME, extra=extra)]


def _read_block(block: Block) -> Part:
    kind = string(block, "block_type")
    if kind == "text":
        return Text(string(block, "text"), format=NAME, raw=block)
    if kind == "thinking":
        told = block.get("additional_information")
        signature = told.get("signature") if isinstance(told, dict) else None
        signature = signature if isinstance(signature, str) else None
        return Thinking(optional(block, "content") or "", signature, format=NAME, raw=block)
    if kind == "tool_call":
        tool = name(block, "tool_name")
        id = optional(block, "tool_call_id")
        made = id or f"call_{tool}"
        given = block.get("tool_kwargs")
        return ToolCall(made, tool, given, not id, format=NAME, raw=block)
    if kind in _MEDIA:
        return _read_media(block, *_MEDIA[kind])
    return Other(format=NAME, raw=block)


def _read_media(block: Block, kind: Any, data_key: str, mime_key: str) -> Part:
    mime = optional(block, mime_key)
    if kind == "audio" and mime is not None and "/" not in mime:
        mime = f"audio/{mime}"
    data, url = block.get(data_key), block.get("url")
    if isinstance(data, str):
        where = {"data": data}
    elif isinstance(url, str):
        where = {"url": url}
    else:
        return Other(format=NAME, raw=block)  # a path on a disk means nothing to others
    title = optional(block, "title")
    return Media(kind=kind, mime=mime, **where, name=title, format=NAME, raw=block)


def _read_older_call(call: Any, index: int) -> ToolCall:
    """A call as integrations kept it before there were blocks for it: in OpenAI's form."""
    try:
        if not isinstance(call, dict):
            raise Malformed("a call is not an object")
        made = fields(call, "function")
        return ToolCall(name(call, "id"), name(made, "name", "function"), made.get("arguments"))
    except Malformed as error:
        raise error.under(f".additional_kwargs.tool_calls[{index}]") from None


# --- writing --------------------------------------------------------------------------------


class Writer(Writing):
    """A chat history, from messages in normal form. Each result is a message."""

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
            self._message(message)
        return place if len(self.messages) > place else None

    def _message(self, message: Message) -> None:
        blocks = self._blocks(message.parts)
        if not blocks:
            if message.role == "assistant":
                return
            blocks = [{"block_type": "text", "text": LEFT_OUT}]
        extra = (message.extra or {}) if message.format == self.NAME else {}
        role = extra.get("role", message.role)
        made = {"role": role, "additional_kwargs": extra.get("additional_kwargs", {})}
        self.messages.append({**extra, **made, "blocks": blocks})

    def _blocks(self, parts: Sequence[Part]) -> list[Block]:
        blocks: list[Block] = []
        for part in parts:
            own: Block | None = part.raw if self.owns(part) else None
            if isinstance(part, ToolCall):
                blocks.append(self._call(part, own))
            elif isinstance(part, ToolResult):
                self.drop(part)
            elif own is not None:
                blocks.append(own)
            elif isinstance(part, Text):
                blocks.append({"block_type": "text", "text": part.text})
            elif isinstance(part, Media):
                blocks.append(self._media(part))
            else:
                self.drop(part)
        return blocks

    def _call(self, part: ToolCall, own: Block | None) -> Block:
        if own is not None:
            same = own.get("tool_call_id") == part.id or part.made_id
            return own if same else {**own, "tool_call_id": part.id}
        return {
            "block_type": "tool_call",
            "tool_call_id": part.id,
            "tool_name": part.name,
            "tool_kwargs": self.arguments(part),
        }

    def _result(self, part: ToolResult) -> Block:
        more: Block = {"tool_call_id": part.call}
        if self.owns(part):
            raw: Block = part.raw
            known = raw["additional_kwargs"]
            same = known["tool_call_id"] == part.call
            return raw if same else {**raw, "additional_kwargs": {**known, **more}}
        if part.name:
            more["name"] = part.name
        if part.is_error:
            more["is_error"] = True
        return {"role": "tool", "additional_kwargs": more, "blocks": self._blocks(part.content)}

    def _media(self, part: Media) -> Block:
        kind = {"image": "image", "audio": "audio"}.get(part.kind, "document")
        _, data_key, mime_key = _MEDIA[kind]
        mime = (part.mime or "").removeprefix("audio/") if kind == "audio" else part.mime
        block: Block = {"block_type": kind} | ({mime_key: mime} if mime else {})
        if part.name and kind == "document":
            block["title"] = part.name
        if part.data is not None:
            return {**block, data_key: standard_base64(part.data)}
        if part.url is not None:
            return {**block, "url": part.url}
        return {"block_type": "text", "text": self.replace_media(part)}


# --- rules ----------------------------------------------------------------------------------


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that a chat history breaks: of shape, and that calls and results pair up."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        pairs = Pairs(self)
        for message in self.each(messages):
            role = message.get("role")
            if not self.known(role, _ROLES, "role", "role"):
                continue
            more = self.object(message.get("additional_kwargs", {}), "additional_kwargs")
            if _ROLES[str(role)] == "tool":
                pairs.result(more.get("tool_call_id"))
                continue
            pairs.close()
            for block in self.objects(message.get("blocks"), "blocks"):
                if self.text(block, "block_type") == "tool_call":
                    fits = _ROLES[str(role)] == "assistant"
                    self.holds(fits, "block_place", f"a call stands in a {role} message")
                    pairs.call(block.get("tool_call_id"))
                elif block.get("block_type") == "text":
                    self.text(block, "text")
        pairs.close()
        return self.found
