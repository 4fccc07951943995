"""Writing plain messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.messages._writing import LEFT_OUT, Writing
from clew.messages.neutral import Media, Message, Part, Text, Thinking, ToolCall, ToolResult

Block = dict[str, Any]


class Writer(Writing):
    NAME = "plain"

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
        """One text if there is nothing else; a list if there is, or if there was one."""
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
        return "".join([block["text"] for block in blocks]) if bare and blocks else blocks or None

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
