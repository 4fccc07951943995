"""Chunks of a streamed reply of OpenAI's Chat Completions, put together again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clew.messages.shared.stream import (
    Streamed,
    after_end,
    as_event,
    field,
    foreign,
    misplaced,
    parsed,
    refused,
    told_error,
    unfinished,
)

NAME = "openai-chat"

Block = dict[str, Any]


class Accumulator:
    """Chunks, or the events of the SDK's `chat.completions.stream`, which has chunks among them.

    The tokens come in the last chunk, behind the end of the message, if they were asked for.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.error: str | None = None
        self._about: Block = {}  # what stands beside the choices; SDK objects as they came
        self._pieces: dict[str, list[str]] = {}
        self._others: Block = {}
        self._calls: dict[int, Block] = {}
        self._finish_reason: str | None = None

    def add(self, event: Any) -> None:
        chunk = event
        kind = field(event, "type")
        if kind == "chunk":
            chunk = field(event, "chunk")
        elif isinstance(kind, str) and kind.partition(".")[0] in _HELPERS:
            return
        error = field(chunk, "error")
        if self.is_done:
            raise after_end(NAME, event)
        if error is not None:
            self.error, self.is_done = told_error(error), True
            return
        choices = field(chunk, "choices")
        if kind not in (None, "chunk") or not isinstance(choices, list):
            raise foreign(NAME, event)
        for choice in choices:
            self._check(event, choice)
        for key, value in _items(chunk):
            if value is not None and key not in ("choices", "object"):
                self._about[key] = value
        for choice in choices:
            self._take(choice)

    def _check(self, event: Any, choice: Any) -> None:
        """Refuse before anything is taken."""
        delta = field(choice, "delta")
        if field(choice, "index") not in (0, None):
            raise refused(NAME, event, "is of another choice: one reply is stored of a stream of")
        if delta is None and field(choice, "finish_reason") is None:
            raise misplaced(NAME, event)
        if self._finish_reason is not None and any(v for k, v in _items(delta) if k != "role"):
            raise after_end(NAME, event)
        for call in field(delta, "tool_calls") or ():
            index = field(call, "index")
            if type(index) is not int or not 0 <= index <= len(self._calls):
                raise misplaced(NAME, event)

    def _take(self, choice: Any) -> None:
        for key, value in _items(field(choice, "delta")):
            if value is None:
                continue
            if key == "tool_calls":
                for call in value:
                    self._add_call(as_event(call))
            elif isinstance(value, str) and key != "role":
                self._pieces.setdefault(key, []).append(value)
            else:
                self._others[key] = as_event(value)
        self._finish_reason = field(choice, "finish_reason") or self._finish_reason

    def _add_call(self, given: Block) -> None:
        call = self._calls.setdefault(given["index"], {"type": "function"})
        call |= {key: given[key] for key in ("id", "type") if given.get(key)}
        for kind in ("function", "custom"):
            for key, value in (given.get(kind) or {}).items():
                known = call.setdefault(kind, {})
                known[key] = known.get(key, "") + (value or "")

    def so_far(self) -> Streamed | None:
        if not self._about and not self._others and not self._pieces:
            return None
        message: Block = {"role": "assistant", "content": None}
        message |= self._others | {key: "".join(texts) for key, texts in self._pieces.items()}
        calls, cut = self._split_calls()
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
        about = {key: as_event(value) for key, value in self._about.items()}
        return Streamed(
            response={**about, "object": "chat.completion", "choices": [choice]},
            unfinished=tuple(cut),
            is_whole=self._finish_reason is not None and self.error is None,
        )

    def _split_calls(self) -> tuple[list[Block], list[Block]]:
        """The calls that are whole, and those that are not.

        No chunk says that a call is whole: the next one does, or the end of the message. A reply
        that was cut off, by its limit of tokens for one, may end inside the arguments.
        """
        whole, cut = [], []
        for index in sorted(self._calls):
            call = {**self._calls[index]}
            about = call.get("function") or call.get("custom") or {}
            text = str(about.get("arguments", about.get("input", "")))
            is_whole = index < len(self._calls) - 1 or self._finish_reason in _ENDS
            if not is_whole and self._finish_reason is not None:
                is_whole = "function" in call and parsed(text or "{}") is not None
            if is_whole and call.get("id") and about.get("name"):
                whole.append(call)
            else:
                cut.append(unfinished(call.get("id"), about.get("name"), text))
        return whole, cut


_ENDS = frozenset({"stop", "tool_calls", "function_call"})
_HELPERS = frozenset({"content", "refusal", "tool_calls", "logprobs"})


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    """The fields of a piece of a chunk, those too that the SDK does not know.

    It is asked for every token, and to dump an object of the SDK would take ten times as long.
    """
    if value is None:
        return ()
    if isinstance(value, dict):
        return value.items()
    extra = getattr(value, "model_extra", None)
    return (*vars(value).items(), *extra.items()) if extra else vars(value).items()
