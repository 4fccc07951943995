"""One connection: every command on it ends by a deadline, and a doubt about a commit is noted."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.numeric import Int8, Int8BinaryDumper

from clew.engines.postgres.silence import SILENCE_SECONDS, ServerReplaced, is_replaced

V = TypeVar("V")
Row = tuple[Any, ...]

WAKE_SECONDS = 0.05  # how often a wait looks at the deadline

# A commit that a synchronous standby did not confirm comes back as a success with one of these.
_DOUBTS = frozenset(("01000", "57P01"))


class DeadlinePassed(Exception):
    """The server had not answered when the deadline came."""


class Wire(psycopg.Connection[Row]):
    """A connection with a deadline. After `DeadlinePassed` it is of no more use."""

    deadline = math.inf
    doubt = False
    conninfo = ""
    last_failure: BaseException | None = None
    _cursor: psycopg.Cursor[Row] | None = None

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Wire:
        """The pool connects in threads of its own; what went wrong there is noted for others."""
        try:
            wire = super().connect(conninfo, **options)
        except BaseException as error:
            cls.last_failure = error
            raise
        cls.last_failure = None
        wire.conninfo = conninfo
        wire.add_notice_handler(wire._note)
        return wire

    def wait(self, gen: Any, interval: float = WAKE_SECONDS, *more: Any, **named: Any) -> Any:
        return super().wait(_bounded(gen, self), WAKE_SECONDS, *more, **named)

    def _note(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING" and diagnostic.sqlstate in _DOUBTS:
            self.doubt = True

    # --- asking ---

    def one(self, sql: str, bindings: Any = ()) -> Row | None:
        return self._ask(sql, bindings).fetchone()

    def every(self, sql: str, bindings: Any = ()) -> list[Row]:
        return self._ask(sql, bindings).fetchall()

    def value(self, sql: str, bindings: Any = ()) -> Any:
        row = self.one(sql, bindings)
        return None if row is None else row[0]

    def change(self, sql: str, bindings: Any = ()) -> int:
        """Run a statement that gives no rows; how many it changed."""
        return self._ask(sql, bindings).rowcount

    def _ask(self, sql: str, bindings: Any) -> psycopg.Cursor[Row]:
        # One cursor for all: what it gave is always read before the next question.
        if self._cursor is None:
            self._cursor = self.cursor(binary=True)
        return self._cursor.execute(sql, bindings)

    def abandon(self) -> bool:
        """Ask the server to stop, and let go of it; whether it took notice."""
        heard = False
        try:
            # An old client library has no way to ask that does not wait for a silent server.
            if psycopg.capabilities.has_cancel_safe():
                self.cancel_safe(timeout=1.0)
                heard = True
        except (psycopg.Error, OSError):
            pass
        self.close()
        return heard


def _bounded(gen: Any, wire: Wire) -> Generator[Any, Any, Any]:
    """The generator of a command, which gives up when it is woken for nothing too late."""
    look = time.monotonic() + SILENCE_SECONDS
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and (now := time.monotonic()) >= min(look, wire.deadline):
                if now >= wire.deadline:
                    raise DeadlinePassed
                if is_replaced(wire.conninfo, wire.info):
                    raise ServerReplaced("the server fell silent, and another one took its place")
                look = time.monotonic() + SILENCE_SECONDS
            state = gen.send(ready)
    except StopIteration as end:
        return end.value


def array(values: Iterable[Any]) -> list[Any]:
    """Values for one array parameter; psycopg would choose the width of numbers by their size."""
    return [Int8(value) if type(value) is int else value for value in values]


def adapters() -> AdaptersMap:
    """All numbers as 64 bits: a statement is prepared once, however large its numbers grow."""
    made = AdaptersMap(psycopg.adapters)
    made.register_dumper(int, Int8BinaryDumper)
    return made
