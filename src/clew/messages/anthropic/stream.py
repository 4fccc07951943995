"""Events of a streamed reply of Anthropic's Messages API, put together again."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from clew.messages.shared.stream import (
    Streamed,
    after_end,
    as_event,
    field,
    foreign,
    misplaced,
    parsed,
    told_error,
    unfinished,
)

NAME = "anthropic"

Block = dict[str, Any]

# Which field of a block each sort of delta goes on with.
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


class _Open(Struct):
    """A block as it began, and the pieces of text that came for it."""

    block: Block
    pieces: dict[str, list[str]]
    is_open: bool = True

    def text(self, key: str) -> str:
        return "".join(self.pieces.get(key, ()))


class Accumulator:
    """Raw events, or those of the SDK's `messages.stream`, which tells some things twice."""

    def __init__(self) -> None:
        self.is_done = False
        self.error: str | None = None
        self._message: Block | None = None
        self._blocks: list[_Open] = []

    def add(self, event: Any) -> None:
        kind = field(event, "type")
        if self.is_done:
            raise after_end(NAME, event)
        if kind == "content_block_delta":
            self._add_delta(event)
        elif kind == "error":
            self.error, self.is_done = told_error(field(event, "error")), True
        elif kind == "message_start":
            self._begin(event)
        elif kind == "ping" or not _is_known(kind):
            # New sorts of events may come at any time, and helpers of the SDK bring their own.
            if not isinstance(kind, str) or "." in kind or kind == "chunk":
                raise foreign(NAME, event)
        elif self._message is None:
            raise misplaced(NAME, event)
        elif kind == "content_block_start":
            self._begin_block(event)
        elif kind == "content_block_stop":
            self._open_block(event).is_open = False
        elif kind == "message_delta":
            self._end(event)
        else:
            self.is_done = True

    def _begin(self, event: Any) -> None:
        message = as_event(field(event, "message"))
        if self._message is not None or not isinstance(message, dict):
            raise misplaced(NAME, event)
        self._message = {"role": "assistant", "type": "message", **message, "content": []}

    def _begin_block(self, event: Any) -> None:
        block = as_event(field(event, "content_block"))
        in_order = field(event, "index") == len(self._blocks)
        if not in_order or not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise misplaced(NAME, event)
        self._blocks.append(_Open(block, {}))

    def _open_block(self, event: Any) -> _Open:
        index = field(event, "index")
        if type(index) is int and 0 <= index < len(self._blocks) and self._blocks[index].is_open:
            return self._blocks[index]
        raise misplaced(NAME, event)

    def _add_delta(self, event: Any) -> None:
        block, delta = self._open_block(event), field(event, "delta")
        kind = field(delta, "type")
        key = _TEXTS.get(kind) if isinstance(kind, str) else None
        if key is not None:
            text = field(delta, key)
            if not isinstance(text, str):
                raise misplaced(NAME, event)
            block.pieces.setdefault(key, []).append(text)
        elif kind == "signature_delta":
            block.block = block.block | {"signature": field(delta, "signature")}
        elif kind == "citations_delta":
            known = block.block.get("citations") or []
            citation = as_event(field(delta, "citation"))
            block.block = block.block | {"citations": [*known, citation]}

    def _end(self, event: Any) -> None:
        """Why it stopped, and what it cost: totals, which stand for those told before."""
        assert self._message is not None
        delta, usage = as_event(field(event, "delta")), as_event(field(event, "usage"))
        self._message |= {k: v for k, v in (delta or {}).items() if v is not None}
        told = {k: v for k, v in (usage or {}).items() if v is not None}
        self._message["usage"] = {**(self._message.get("usage") or {}), **told}

    def so_far(self) -> Streamed | None:
        if self._message is None:
            return None
        content, cut = [], []
        for one in self._blocks:
            block = self._block(one)
            if block is not None:
                content.append(block)
            elif one.block["type"] in _CALLS:
                told = one.block.get("id"), one.block.get("name")
                cut.append(unfinished(*told, one.text("partial_json")))
        return Streamed(
            response={**self._message, "content": content},
            unfinished=tuple(cut),
            is_whole=self.is_done and self.error is None,
        )

    def _block(self, one: _Open) -> Block | None:
        """A block as far as it has come; None for a call that is not whole, and for an empty one.

        A reply that reached its limit of tokens may end inside the arguments of a call.
        """
        found = {**one.block}
        for key in ("text", "thinking"):
            if key in one.pieces:
                found[key] = found.get(key, "") + one.text(key)
        if found["type"] in _CALLS:
            text = one.text("partial_json")
            arguments = parsed(text) if text else found.get("input")
            if one.is_open or arguments is None:
                return None
            return found | {"input": arguments}
        if one.is_open and not (found.get("text") or found.get("thinking")):
            return None
        return found


def _is_known(kind: Any) -> bool:
    return kind in (
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    )
