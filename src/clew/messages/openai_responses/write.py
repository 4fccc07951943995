"""Writing items of OpenAI's Responses API."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from clew.messages.neutral import (
    Loss,
    Media,
    Message,
    Other,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from clew.messages.openai_responses.read import NAME, read_block
from clew.messages.shared import openai
from clew.messages.shared.media import dump
from clew.messages.shared.write import LEFT_OUT, Limits, Writing, error_text, says_error

Block = dict[str, Any]

# What the id of an item must look like, where there is one.
_ITEM_IDS = {
    "reasoning": re.compile(r"rs[a-zA-Z0-9_-]{1,62}"),
    "function_call": re.compile(r"fc[a-zA-Z0-9_-]{1,62}"),
    "message": re.compile(r"msg[a-zA-Z0-9_-]{1,61}"),
}
# Fields of items in responses, and of SDKs' readings of them, that no request takes.
_RESPONSE_ONLY = frozenset({"parsed_arguments", "created_by"})
_NOT_NULL = frozenset({"status", "content"})
# The items that answer a call.
_OUTPUTS = {
    "function_call": ("function_call_output",),
    "custom_tool_call": ("custom_tool_call_output",),
    "local_shell_call": ("local_shell_call_output", "function_call_output"),
    "shell_call": ("shell_call_output",),
    "computer_call": ("computer_call_output",),
    "apply_patch_call": ("apply_patch_call_output",),
    "tool_search_call": ("tool_search_output",),
}
# Items that need no id, so that one which was stored twice can go out twice.
_WITHOUT_ID = frozenset({"message", *_OUTPUTS})
# The type of a text, and types that it has elsewhere: for the user's side, for the assistant.
_TEXTS = (("input_text", ("output_text", "text")), ("output_text", ("input_text", "text")))
_FREE = ("function_call", "custom_tool_call")  # any text and media answer them


class _Call(Struct, frozen=True):
    """A call that was written: where, as what, and from what."""

    place: int
    kind: str
    part: ToolCall
    index: int


class Writer(Writing):
    """Request items, from messages in normal form."""

    NAME = NAME
    LIMITS = Limits(re.compile(r"[ -~]{1,64}"), re.compile(r"[a-zA-Z0-9_-]{1,128}"), 128)

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[str, _Call] = {}  # by the id that was written
        self._ids: set[str] = set()  # of the items that were written

    def take(self, message: Message) -> int | None:
        place = len(self.messages)
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self.messages.append(self._result(part))
                else:
                    self.drop(part)
        else:
            self._items(message)
            # The API refuses reasoning that is not followed by what it led to.
            while len(self.messages) > place and self.messages[-1].get("type") == "reasoning":
                self.messages.pop()
                self.lose("thinking_dropped", "thinking must not be the end of a message")
            if message.role != "assistant" and len(self.messages) == place:
                self.messages.append(_message_item(message, [_said(LEFT_OUT, message)]))
        return place if len(self.messages) > place else None

    def _items(self, message: Message) -> None:
        """Parts as items; neighbours that were no items of their own share a message item."""
        made: list[Block] = []
        parts = message.parts
        index = 0
        while index < len(parts):
            part = parts[index]
            index += 1
            if not self._is_item(part, message):
                if isinstance(part, Text):
                    made.append(_said(part.text, message))
                elif isinstance(part, Media):
                    block = _media_block(part) if message.role == "user" else None
                    made.append(block or _said(self.replace_media(part), message))
                else:
                    self.drop(part)
                continue
            if made:
                self.messages.append(_message_item(message, made))
                made = []
            if isinstance(part, ToolCall):
                self._call(part)
            elif part.raw.get("type") in (None, "message"):
                # Parts that were read from one item go back into it together.
                start = index - 1
                while index < len(parts) and parts[index].raw is part.raw:
                    if not self._is_item(parts[index], message):
                        break
                    index += 1
                self._add(_with_parts(part.raw, parts[start:index]))
            else:
                self._add(part.raw)
        if made:
            self.messages.append(_message_item(message, made))

    def _add(self, item: Block) -> None:
        """Write an item as it was read. An id may come once; what is known by its id alone goes."""
        item = _sendable(item)
        id = item.get("id")
        if not isinstance(id, str):
            self.messages.append(item)
            return
        if id in self._ids:
            if item.get("type", "message") not in _WITHOUT_ID:
                self.lose("block_dropped", f"the item {id} was written before")
                return
            self.lose("id_changed", f"the item {id} was written before, and goes without its id")
            item = {key: value for key, value in item.items() if key != "id"}
        self._ids.add(id)
        self.messages.append(item)

    def _is_item(self, part: Part, message: Message) -> bool:
        """Whether a part is written as the item that it was read from, or as one of its own."""
        if isinstance(part, ToolCall):
            return True
        if not self.owns(part):
            return False
        if isinstance(part, Thinking):
            return _is_known_reasoning(part.raw)
        if isinstance(part, Media):
            return message.role != "assistant"
        return isinstance(part, (Text, Other))

    # --- calls and results ------------------------------------------------------------------

    def _call(self, part: ToolCall) -> None:
        id, name = self.call_id(part.id), self.tool_name(part.name)
        self.note_changes(part, id, name)
        if self.owns(part):
            item = self._own_call(part, id, name)
        else:
            item = _function_call(id, name, self.arguments(part))
        self._calls[id] = _Call(len(self.messages), item["type"], part, self.index)
        self._add(item)

    def _own_call(self, part: ToolCall, id: str, name: str) -> Block:
        item: Block = _sendable(part.raw)
        changed: Block = {} if item["call_id"] == id else {"call_id": id}
        if item["type"] in _FREE and item["name"] != name:
            changed["name"] = name
        if item["type"] == "function_call" and not isinstance(item.get("arguments"), str):
            changed["arguments"] = dump(self.arguments(part))
        return {**item, **changed} if changed else item

    def _result(self, part: ToolResult) -> Block:
        id = self.call_id(part.call)
        call = self._calls.get(id)
        kind = "function_call" if call is None else call.kind
        raw = part.raw
        if self.owns(part) and raw["type"] in _OUTPUTS[kind] and _is_output(raw):
            key = "call_id" if "call_id" in raw else "id"
            return _sendable(raw if raw[key] == id else {**raw, key: id})
        if call is not None and kind not in _FREE:
            self._make_free(call, id)
            kind = "function_call"
        return {"type": _OUTPUTS[kind][0], "call_id": id, "output": self._output(part)}

    def _make_free(self, call: _Call, id: str) -> None:
        """A built-in tool wants an answer of its own kind, such as a screenshot. Where there is
        none, because the call was interrupted, both are written as those of a function."""
        text = f"a {call.kind} without its own answer became a function call"
        self.losses.append(Loss("block_changed", text, call.index))
        arguments = self.arguments(call.part)
        self.messages[call.place] = _function_call(id, self.tool_name(call.part.name), arguments)

    def _output(self, part: ToolResult) -> str | list[Block]:
        if len(part.content) == 1 and isinstance(part.content[0], Text):
            text = part.content[0].text
            return error_text(text) if part.is_error else text
        blocks = []
        for inner in part.content:
            if isinstance(inner, Text):
                blocks.append(_input_text(inner.text))
            elif isinstance(inner, Media):
                block = _media_block(inner)
                blocks.append(block or _input_text(self.replace_media(inner)))
            else:
                self.drop(inner)
        if part.is_error and not (blocks and says_error(blocks[0].get("text") or "")):
            blocks.insert(0, _input_text("Error:" if blocks else error_text("")))
        return blocks or ""


# --- items ----------------------------------------------------------------------------------


def _message_item(message: Message, blocks: list[Block]) -> Block:
    developer = message.role == "system" and (message.extra or {}).get("role") == "developer"
    role = "developer" if developer else message.role
    return {"type": "message", "role": role, "content": blocks}


def _said(text: str, message: Message) -> Block:
    kind = "output_text" if message.role == "assistant" else "input_text"
    return {"type": kind, "text": text}


def _input_text(text: str) -> Block:
    return {"type": "input_text", "text": text}


def _media_block(part: Media) -> Block | None:
    """An image or a file, or None for what the API does not take."""
    if part.kind == "image":
        url = openai.image_url(part)
        if url is not None:
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        id = openai.file_id(part)
        return None if id is None else {"type": "input_image", "file_id": id, "detail": "auto"}
    if part.kind == "audio":
        return None
    file = openai.file_fields(part)
    if file is None and part.url is not None:
        file = {"file_url": part.url}
    return None if file is None else {"type": "input_file", **file}


def _function_call(id: str, name: str, arguments: Block) -> Block:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": dump(arguments)}


def _is_known_reasoning(item: Block) -> bool:
    """Whether the server can tell what was thought: it is sent along, or known by its id."""
    known = _ITEM_IDS["reasoning"].fullmatch(str(item.get("id"))) is not None
    return isinstance(item.get("summary"), list) and (known or bool(item.get("encrypted_content")))


def _is_output(item: Block) -> bool:
    """Whether a result has the form that a request takes."""
    if item["type"] in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        return isinstance(output, str) or (isinstance(output, list) and bool(output))
    return True


def _with_parts(item: Block, parts: Sequence[Part]) -> Block:
    """A message item with those of its blocks that the parts were read from."""
    content = kept = item["content"]
    if isinstance(content, str):
        return item
    if len(content) != len(parts):
        wanted = list(parts)
        kept = []
        for block in content:
            if wanted and read_block(block, item) == wanted[0]:
                kept.append(block)
                del wanted[0]
    right, wrong = _TEXTS[item["role"] == "assistant"]
    if any(block["type"] in wrong for block in kept):
        kept = [{**block, "type": right} if block["type"] in wrong else block for block in kept]
    return item if kept is content else {**item, "content": kept}


def _sendable(item: Block) -> Block:
    """The item without what no request takes."""
    kind = item.get("type", "message")
    unwanted = [key for key, value in item.items() if _is_unwanted(kind, key, value)]
    return {key: item[key] for key in item if key not in unwanted} if unwanted else item


def _is_unwanted(kind: str, key: str, value: Any) -> bool:
    if key == "id":
        pattern = _ITEM_IDS.get(kind)
        return pattern is not None and not (isinstance(value, str) and pattern.fullmatch(value))
    return key in _RESPONSE_ONLY or (value is None and key in _NOT_NULL)
