"""Chunks of a streamed reply of Google's generateContent API, put together again.

Each chunk is a response with some parts of the content. Pieces of one text become one part. No
chunk is known to be the last one: a stream ends, and has told why it stopped, or has not.
"""

from __future__ import annotations

from typing import Any

from clew.messages.response import camel
from clew.messages.shared.stream import (
    Streamed,
    after_end,
    as_event,
    foreign,
    misplaced,
    refused,
    told_error,
    unfinished,
)

NAME = "gemini"

Block = dict[str, Any]

_KNOWN = frozenset(
    {"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "error"}
)
_PLAIN = frozenset({"text", "thought"})


class Accumulator:
    """Chunks of `generate_content_stream`, or of the REST API."""

    def __init__(self) -> None:
        self.is_done = False
        self.error: str | None = None
        self._response: Block | None = None
        self._candidate: Block = {}
        self._parts: list[Block] = []
        self._pieces: list[str] = []  # of the last part, if that is a text which may go on

    def add(self, event: Any) -> None:
        chunk = as_event(event)
        if self.is_done:
            raise after_end(NAME, event)
        if not isinstance(chunk, dict) or "type" in chunk or not _KNOWN & camel(chunk).keys():
            raise foreign(NAME, event)
        chunk = camel(chunk)
        if chunk.get("error") is not None:
            self.error, self.is_done = told_error(chunk["error"]), True
            return
        candidates = chunk.pop("candidates", None) or []
        found = [self._checked(event, candidate) for candidate in candidates]
        self._response = (self._response or {}) | chunk
        for candidate, parts in found:
            self._candidate |= candidate
            for part in parts:
                self._add_part(part)

    def _checked(self, event: Any, candidate: Any) -> tuple[Block, list[Block]]:
        """A candidate without its content, and its parts."""
        if not isinstance(candidate, dict):
            raise misplaced(NAME, event)
        if candidate.get("index"):
            raise refused(NAME, event, "is of another candidate: one reply is stored of a")
        about = camel(candidate)
        content = about.pop("content", None) or {}
        parts = (content.get("parts") if isinstance(content, dict) else 0) or []
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            raise misplaced(NAME, event)
        return about, parts

    def _add_part(self, part: Block) -> None:
        last, text = self._parts[-1] if self._parts else {}, part.get("text")
        if (
            self._pieces
            and isinstance(text, str)
            and part.get("thought") == last.get("thought")
            and part.keys() <= _PLAIN
        ):
            self._pieces.append(text)
            return
        self._close_text()
        self._parts.append({**part})
        if isinstance(text, str) and part.keys() <= _PLAIN:
            self._pieces = [text]

    def _close_text(self) -> None:
        if self._pieces:
            self._parts[-1]["text"] = "".join(self._pieces)
            self._pieces = []

    def so_far(self) -> Streamed | None:
        if self._response is None:
            return None
        parts = [*self._parts]
        if self._pieces:
            parts[-1] = parts[-1] | {"text": "".join(self._pieces)}
        whole = [part for part in parts if not _is_cut(part)]
        # The arguments of a function come in pieces if that was asked for.
        cut = [_told(part) for part in parts if _is_cut(part)]
        feedback = self._response.get("promptFeedback")
        is_ended = "finishReason" in self._candidate or feedback is not None
        content = {"role": "model", "parts": whole}
        found = [{**self._candidate, "content": content}] if self._candidate or whole else []
        return Streamed(
            response={**self._response, "candidates": found},
            unfinished=tuple(cut),
            is_whole=is_ended and self.error is None,
        )


def _call(part: Block) -> Block:
    found = part.get("functionCall") or part.get("function_call")
    return camel(found) if isinstance(found, dict) else {}


def _is_cut(part: Block) -> bool:
    return bool({"willContinue", "partialArgs"} & _call(part).keys())


def _told(part: Block) -> Block:
    call = _call(part)
    return unfinished(call.get("id"), call.get("name"), str(call.get("partialArgs") or ""))
