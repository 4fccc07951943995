"""Events of a streamed reply of OpenAI's Responses API, put together again.

The last event has the whole response. The others are for what there is if it never comes.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from clew.messages.sdk_objects import as_sent
from clew.messages.shared.stream import (
    Streamed,
    after_end,
    as_event,
    field,
    foreign,
    misplaced,
    told_error,
    unfinished,
)

NAME = "openai-responses"

Block = dict[str, Any]

_BEGINNINGS = ("response.created", "response.queued", "response.in_progress")
_LAST = ("response.completed", "response.incomplete", "response.failed")
# Deltas, the list of blocks in the item that each goes on with, and how a block begins.
_TEXTS = {
    "response.output_text.delta": ("content", "content_index", "output_text", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "summary_text", "text"),
}
_ARGUMENTS = {
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}


class _Item(Struct):
    """An item as it began, or as it is if it is done, and the pieces of text that came for it."""

    body: Block
    is_open: bool = True
    texts: dict[tuple[str, int, str, str], list[str]] = {}
    arguments: list[str] = []


class Accumulator:
    """Raw events, or those of the SDK's `responses.stream`."""

    def __init__(self) -> None:
        self.is_done = False
        self.error: str | None = None
        self._response: Block | None = None
        self._items: dict[int, _Item] = {}
        self._number = -1

    def add(self, event: Any) -> None:
        kind = field(event, "type")
        if self.is_done:
            raise after_end(NAME, event)
        if not isinstance(kind, str) or not (kind.startswith("response.") or kind == "error"):
            raise foreign(NAME, event)
        number = field(event, "sequence_number")
        if type(number) is int:
            if number <= self._number:
                raise misplaced(NAME, event)
        else:
            number = self._number
        if kind == "error":
            self.error, self.is_done = told_error(_about_error(event)), True
        elif kind in _BEGINNINGS or kind in _LAST:
            self._add_response(event, kind)
        elif self._response is None:
            raise misplaced(NAME, event)
        elif kind in _TEXTS or kind in _ARGUMENTS:
            self._add_delta(event, kind)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._add_item(event, kind)
        self._number = number

    def _add_response(self, event: Any, kind: str) -> None:
        response = as_sent(field(event, "response"))
        if not isinstance(response, dict) or (self._response is None and kind not in _BEGINNINGS):
            raise misplaced(NAME, event)
        if kind in _LAST:
            self.is_done = True
            if not isinstance(response.get("output"), list):
                response = response | {"output": self._output()[0]}
            if kind == "response.failed":
                self.error = told_error(response.get("error") or "response.failed")
        self._response = response

    def _add_item(self, event: Any, kind: str) -> None:
        index, item = field(event, "output_index"), as_sent({"output": [field(event, "item")]})
        item, is_new = item["output"][0], kind == "response.output_item.added"
        if type(index) is not int or not isinstance(item, dict) or (index in self._items) is is_new:
            raise misplaced(NAME, event)
        self._items[index] = _Item(item, is_new)

    def _add_delta(self, event: Any, kind: str) -> None:
        index, delta = field(event, "output_index"), field(event, "delta")
        item = self._items.get(index) if type(index) is int else None
        if item is None or not item.is_open or not isinstance(delta, str):
            raise misplaced(NAME, event)
        if kind in _ARGUMENTS:
            item.arguments.append(delta)
            return
        where, counter, block, key = _TEXTS[kind]
        number = field(event, counter)
        if type(number) is not int or number < 0:
            raise misplaced(NAME, event)
        item.texts.setdefault((where, number, block, key), []).append(delta)

    def so_far(self) -> Streamed | None:
        if self._response is None:
            return None
        output, cut = self._output()
        response = self._response
        if not self.is_done or self.error is not None:
            response = response | {"output": output}
        return Streamed(
            response=response,
            unfinished=tuple(cut),
            is_whole=self.is_done and self.error is None,
        )

    def _output(self) -> tuple[list[Block], list[Block]]:
        """The items as far as they have come, and the calls that are not whole."""
        found, cut = [], []
        for index in sorted(self._items):
            item = self._items[index]
            if not item.is_open:
                found.append(item.body)
            elif item.body.get("type") in ("message", "reasoning"):
                body = _open_body(item)
                found += [] if body is None else [body]
            elif item.body.get("call_id"):
                told = item.body["call_id"], item.body.get("name")
                cut.append(unfinished(*told, "".join(item.arguments)))
        return found, cut


def _open_body(item: _Item) -> Block | None:
    """A message or reasoning that is not done, with the words that came; None if none did."""
    blocks: dict[str, list[Block]] = {}
    for (where, _, kind, key), pieces in sorted(item.texts.items()):
        block: Block = {"type": kind, key: "".join(pieces)}
        if kind == "output_text":
            block["annotations"] = []
        if block[key]:
            blocks.setdefault(where, []).append(block)
    if not blocks:
        return None
    if item.body["type"] == "message":
        return item.body | blocks | {"status": "incomplete"}
    return item.body | {"summary": []} | blocks


def _about_error(event: Any) -> Any:
    """What an `error` event says; some servers put it into an object of its own."""
    found = as_event(event)
    return found.get("error") or {key: found.get(key) for key in ("code", "message")}
