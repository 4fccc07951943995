"""What a projection gives: the context with its messages, its report, and where each entry went.

Contexts of one thread have most of their messages in common, so they share them as they were
written. What a caller gets to see is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, to_builtins

from clew.context import collector
from clew.context.normalise import Next, OpenCall, Repair
from clew.core.codec import render_bytes
from clew.core.model import Artifact, cached


class ContextSegment(Struct, frozen=True, kw_only=True):
    """Where an entry went: the index of its message, and what it costs."""

    entry_id: str
    kind: str
    message_index: int | None
    role: str
    tool_call_id: str | None
    tool_name: str | None
    token_estimate: int
    blobs: tuple[str, ...]
    artifacts: tuple[Artifact, ...]
    preview: str


class ContextReport(Struct, frozen=True, kw_only=True, dict=True):
    """What was done on the way from the journal to the messages."""

    repairs: tuple[Repair, ...] = ()
    entries: int = 0
    compaction: str | None = None  # the entry whose summary stands for what came before

    @cached
    def tokens(self) -> int:
        """How many tokens the messages take. Counted when it is first asked for."""
        measure: Callable[[], list[int]] = self.__dict__["measure"]
        return sum(measure())


class Settled:
    """Messages as JSON, as far as that was asked for: how many each piece takes one further."""

    def __init__(self) -> None:
        self.pieces: tuple[tuple[int, bytes], ...] = ()


class Made(Struct, frozen=True):
    """Messages as they were written, not to be changed. The first `count` never change again."""

    messages: list[Any]
    count: int
    settled: Settled

    def json(self) -> bytes:
        # Contexts of one thread share what is settled, whichever is asked first. One that was
        # made before the last piece has fewer messages, and uses those pieces that it has whole.
        pieces = [piece for piece in self.settled.pieces if piece[0] <= self.count]
        end = pieces[-1][0] if pieces else 0
        if end < self.count:
            pieces.append((self.count, render_bytes(self.messages[end : self.count])[1:-1]))
            self.settled.pieces = tuple(pieces)
        parts = [part for _, piece in pieces for part in (piece, b",")]
        rest = render_bytes(self.messages[self.count :])[1:-1]
        # Joined once: these may be many megabytes.
        return b"".join([b"[", *(parts if rest else parts[:-1]), rest, b"]"])


class Context(Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """Messages that the provider accepts. `system` is what it takes beside them.

    `next` says who goes on: the "model", the "tools" that `calls` names, or the "user". All that
    it holds is yours to change: no other context is made of it.
    """

    format: str
    made: Made  # what `messages` and `json` give, as it was written
    next: Next
    calls: tuple[OpenCall, ...] = ()
    system: Any = None
    tools: Any = None
    model: Any = None
    report: ContextReport
    segments: tuple[ContextSegment, ...] = ()

    @cached
    def messages(self) -> list[Any]:
        """The messages. Made when they are first looked at, and the same list from then on."""
        with collector.paused():
            found: list[Any] = to_builtins(self.made.messages)
        return found

    def json(self) -> bytes:
        """The messages as JSON, for a request that is put together from bytes.

        They are as the thread has them: what you changed in `messages` is not in it.
        """
        return self.made.json()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Context):
            return NotImplemented
        fields = [name for name in self.__struct_fields__ if name != "made"]
        return all(getattr(self, name) == getattr(other, name) for name in (*fields, "messages"))

    __hash__ = None  # type: ignore[assignment]
