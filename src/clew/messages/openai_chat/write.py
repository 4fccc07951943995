"""Writing messages of OpenAI's Chat Completions API."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from clew.messages.neutral import Media, Message, Other, Part, Text, ToolCall, ToolResult
from clew.messages.shared import openai
from clew.messages.shared.media import dump
from clew.messages.shared.write import LEFT_OUT, Limits, Writing

Block = dict[str, Any]


class Writer(Writing):
    """Request messages, from messages in normal form."""

    NAME = "openai-chat"
    # The API takes longer ids by now; servers that follow its first limit do not.
    LIMITS = Limits(re.compile(r"[ -~]{1,40}"), re.compile(r"[a-zA-Z0-9_-]{1,64}"), 64)

    def take(self, message: Message) -> int | None:
        place = len(self.messages)
        role, parts = message.role, message.parts
        if role == "tool":
            for part in parts:
                if type(part) is ToolResult:
                    self.messages.append(self._result(part))
                else:
                    self.drop(part)
        elif role == "assistant":
            calls: list[Block] = []
            rest: list[Part] = []
            for part in parts:
                if type(part) is ToolCall:
                    calls.append(self._call(part))
                else:
                    rest.append(part)
            content = self._content(rest, media=False) if rest else None
            if content is not None or calls:
                self._add(message, content, calls)
        else:
            content = self._content(parts, media=role == "user")
            self._add(message, LEFT_OUT if content is None else content)
        return place if len(self.messages) > place else None

    def _add(
        self, message: Message, content: str | list[Block] | None, calls: Sequence[Block] = ()
    ) -> None:
        extra = message.extra
        written: Block = {"role": message.role, "content": content}
        if extra is not None:
            if extra.get("role") == "developer":
                written["role"] = "developer"
            if message.format == self.NAME and _NAME.fullmatch(extra.get("name") or ""):
                written["name"] = extra["name"]
        if calls:
            written["tool_calls"] = calls
        self.messages.append(written)

    def _content(self, parts: Sequence[Part], *, media: bool) -> str | list[Block] | None:
        """One text that was no block of this format is written as a text, not as a list."""
        if len(parts) == 1:
            (only,) = parts
            if type(only) is Text and not self.owns(only):
                return only.text  # as most messages are
        blocks = self._blocks(parts, media=media)
        if len(blocks) != 1 or blocks[0].keys() != _BARE:
            return blocks or None
        own = any(isinstance(part, Text) and self.owns(part) for part in parts)
        return blocks if own else blocks[0]["text"]

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
            url = openai.image_url(part)
            return None if url is None else {"type": "image_url", "image_url": {"url": url}}
        if part.kind == "audio":
            sound = openai.SOUNDS.get(part.mime or "")
            if sound is None or part.data is None:
                return None
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": sound}}
        file = openai.file_fields(part)
        return None if file is None else {"type": "file", "file": file}

    def _call(self, part: ToolCall) -> Block:
        id, name = self.call_id(part.id), self.tool_name(part.name)
        if id != part.id or name != part.name:
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
