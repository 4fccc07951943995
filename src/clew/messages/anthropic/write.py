"""Writing messages of Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from clew.messages.neutral import (
    Media,
    Message,
    Other,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from clew.messages.shared import media
from clew.messages.shared.write import LEFT_OUT, NO_OUTPUT, Limits, Writing

CACHE_MARKS_MAX = 4

Block = dict[str, Any]


class _Mark(Struct, frozen=True, gc=False):
    """The neutral message that a mark came with, and the way to the block that carries it."""

    index: int
    place: tuple[Any, ...]


class Writer(Writing):
    """Request messages, from messages in normal form."""

    NAME = "anthropic"
    LIMITS = Limits(re.compile(r"[a-zA-Z0-9_-]+"), re.compile(r"[a-zA-Z0-9_-]{1,128}"), 128)

    def __init__(self) -> None:
        super().__init__()
        self._system: list[Block] = []
        # Where blocks carry a mark for the cache.
        self._system_marks: list[_Mark] = []
        self._marks: list[_Mark] = []

    def take(self, message: Message) -> int | None:
        if message.role == "system":
            for block in self._texts(message):
                if block.get("cache_control"):
                    self._system_marks.append(_Mark(self.index, (len(self._system),)))
                self._system.append(block)
            return None
        if message.role == "assistant":
            role, blocks = "assistant", self._assistant(message)
            if not blocks:
                return None
        else:
            role, blocks = "user", self._user(message) or [_text(LEFT_OUT)]
        # Always a list, also of one text: as a string it would change when more is said.
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
        place = len(self.messages) - 1
        content: list[Block] = self.messages[place]["content"]
        for block in blocks:
            for inner in _marked(block):
                self._marks.append(_Mark(self.index, (place, "content", len(content), *inner)))
            content.append(block)
        return place

    def finish(self) -> None:
        only = self._system[0] if len(self._system) == 1 else {}
        is_bare = only.keys() == {"type", "text"}
        system_marks = len(self._system_marks)
        marks = self._system_marks + self._marks
        for number, mark in enumerate(marks[:-CACHE_MARKS_MAX]):
            # A request may carry so many marks; a thread whose every message was sent with one
            # has more. The last ones reach the longest prefix.
            self.index = mark.index
            self.lose("cache_control_dropped", "a mark for the cache was over the limit")
            if number < system_marks:
                self._system = _without_mark(self._system, mark.place)
            else:
                place, *inner = mark.place
                self.messages[place] = _without_mark(self.messages[place], inner)
        if self._system:
            self.system = only["text"] if is_bare else self._system

    # --- by role ----------------------------------------------------------------------------

    def _texts(self, message: Message) -> list[Block]:
        """System messages are text only."""
        blocks = []
        for part in message.parts:
            if isinstance(part, Text):
                blocks.append(self._only_text(part))
            elif isinstance(part, Media):
                blocks.append(_text(self.replace_media(part)))
            else:
                self.drop(part)
        return blocks

    def _assistant(self, message: Message) -> list[Block]:
        blocks: list[Block] = []
        for part in message.parts:
            if type(part) is Text:
                blocks.append(self._only_text(part))
            elif type(part) is ToolCall:
                blocks.append(self._call(part))
            elif isinstance(part, Media):
                blocks.append(_text(self.replace_media(part)))
            elif self.owns(part) and (
                isinstance(part, Other) or (isinstance(part, Thinking) and part.signature)
            ):
                blocks.append(part.raw)
            else:
                self.drop(part)
        # The API wants to see what thinking led to; where a crash cut that off, it is refused.
        while blocks and blocks[-1].get("type") in ("thinking", "redacted_thinking"):
            blocks.pop()
            self.lose("thinking_dropped", "thinking must not be the end of a message")
        return blocks

    def _user(self, message: Message) -> list[Block]:
        blocks = []
        for part in message.parts:
            if type(part) is Text:
                blocks.append(self._text(part))
            elif type(part) is ToolResult:
                blocks.append(self._result(part))
            elif isinstance(part, Media):
                blocks.append(self._media(part))
            elif isinstance(part, Other) and self.owns(part):
                blocks.append(part.raw)
            else:
                self.drop(part)
        return blocks

    # --- by part ----------------------------------------------------------------------------

    def _text(self, part: Text) -> Block:
        if not self.owns(part):
            return _text(part.text)
        raw: Block = part.raw
        if "parsed_output" in raw:  # an SDK's reading of the text, which no request takes
            return {key: value for key, value in raw.items() if key != "parsed_output"}
        return raw

    def _only_text(self, part: Text) -> Block:
        """Where a document cannot stand, its text can."""
        block = self._text(part)
        return block if block["type"] == "text" else _text(part.text)

    def _call(self, part: ToolCall) -> Block:
        id, name, arguments = self.call_id(part.id), self.tool_name(part.name), self.arguments(part)
        self.note_changes(part, id, name)
        if not self.owns(part):
            return {"type": "tool_use", "id": id, "name": name, "input": arguments}
        raw: Block = part.raw
        if raw["id"] == id and raw["name"] == name and raw.get("input") is arguments:
            return raw
        return {**raw, "id": id, "name": name, "input": arguments}

    def _result(self, part: ToolResult) -> Block:
        id = self.call_id(part.call)
        if self.owns(part):
            raw: Block = part.raw
            block = raw if raw["tool_use_id"] == id else {**raw, "tool_use_id": id}
        else:
            block = {"type": "tool_result", "tool_use_id": id}
            if part.content:
                block["content"] = self._content(part)
            if part.is_error:
                block["is_error"] = True
        return self._checked_result(block)

    def _content(self, part: ToolResult) -> str | list[Block]:
        only = part.content[0] if len(part.content) == 1 else None
        if isinstance(only, Text) and not self.owns(only):
            return only.text
        blocks = []
        for inner in part.content:
            if isinstance(inner, Text):
                blocks.append(self._text(inner))
            elif isinstance(inner, Media):
                blocks.append(self._media(inner))
            else:
                self.drop(inner)
        return blocks

    def _checked_result(self, block: Block) -> Block:
        """No empty text in a result, and an error says something."""
        content = block.get("content")
        if isinstance(content, list):
            kept = [b for b in content if b.get("type") != "text" or b["text"].strip()]
            if len(kept) < len(content):
                content = kept
                block = {**block, "content": content}
        silent = not content or (isinstance(content, str) and content.isspace())
        return {**block, "content": NO_OUTPUT} if silent and block.get("is_error") else block

    def _media(self, part: Media) -> Block:
        block = part.raw if self.owns(part) else _media_block(part)
        return _text(self.replace_media(part)) if block is None else block


def _marked(block: Block) -> Iterator[tuple[Any, ...]]:
    """Where a block carries a mark: in a result, and at itself."""
    content = block.get("content")
    if block.get("type") == "tool_result" and isinstance(content, list):
        for place, inner in enumerate(content):
            if isinstance(inner, dict) and inner.get("cache_control"):
                yield ("content", place)
    if block.get("cache_control"):
        yield ()


def _without_mark(value: Any, place: Sequence[Any]) -> Any:
    """The value with another block at a place: the block that is there may be shared."""
    if not place:
        return {k: v for k, v in value.items() if k != "cache_control"}
    other = value.copy()
    other[place[0]] = _without_mark(value[place[0]], place[1:])
    return other


def _media_block(part: Media) -> Block | None:
    """An image or a document, or None for what the API does not take."""
    if part.kind == "image":
        source = _source(part) if part.data is None or part.mime in media.IMAGES else None
        return None if source is None else {"type": "image", "source": source}
    text = media.decoded_text(part)
    if text is not None and text.strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        source = _source(part) if part.mime == media.PDF else None
    if source is None:
        return None
    return {"type": "document", "source": source} | ({"title": part.name} if part.name else {})


def _source(part: Media) -> Block | None:
    if part.data is not None:
        data = media.standard_base64(part.data)
        return {"type": "base64", "media_type": part.mime, "data": data}
    return None if part.url is None else {"type": "url", "url": part.url}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
