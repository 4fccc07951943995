"""All of a store as it was at one moment, read a page at a time.

Verification is one long transaction that only reads, on a connection beside the pool, so that
nobody waits for it. What the server cannot read is an error of that one question; the next one is
asked in the same transaction all the same. While it lasts the server cannot clean up behind
those who write.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
from psycopg.adapt import Loader
from psycopg.pq import Format

from clew.engines.postgres.connections import Connections
from clew.engines.postgres.errors import text_of, translate
from clew.engines.postgres.finding import Book
from clew.engines.postgres.wire import DeadlinePassed, Row, Wire
from clew.errors import Corrupt, Unavailable

# Pages are read in the order of an index; a plan that sorts would read everything for each.
_BEGIN = """
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL jit = off;
SAVEPOINT readable
"""
# What a damaged row, page, index or catalogue makes of a statement; the rest are troubles.
_DAMAGE = ("XX", "22", "54", "42")
_NO_RIGHT = "42501"


@contextmanager
def moment(connections: Connections, book: Book) -> Iterator[Moment]:
    with closing(connections.apart()) as wire:
        made = Moment(connections, book, wire)
        made.begin()
        try:
            yield made
        finally:
            made.end()


class Moment:
    """Asks questions that all are answered from the same moment; each has its own deadline."""

    def __init__(self, connections: Connections, book: Book, wire: Wire) -> None:
        self.book = book
        self.place = connections.place
        self._connections = connections
        self._wire = wire

    def begin(self) -> None:
        self._guarded(lambda: self._wire.execute(_BEGIN))

    def end(self) -> None:
        with suppress(psycopg.Error, DeadlinePassed):
            self._wire.execute("ROLLBACK")

    def every(self, sql: str, *bindings: Any) -> list[Row]:
        """The rows. Corrupt: the server cannot read them."""
        found: list[Row] = self._guarded(lambda: self._ask(self.book.sql(sql), bindings))
        return found

    def value(self, sql: str, *bindings: Any) -> Any:
        found = self.every(sql, *bindings)
        return found[0][0] if found else None

    def _ask(self, sql: str, bindings: tuple[Any, ...]) -> list[Row]:
        try:
            return self._wire.every(sql, bindings)
        except UnicodeDecodeError:
            cursor = self._wire.cursor(binary=True)
            cursor.adapters.register_loader("text", _AnyText)
            return cursor.execute(sql, bindings).fetchall()

    def _guarded(self, work: Any) -> Any:
        self._connections.check()
        self._wire.deadline = self._connections.deadline()
        try:
            return work()
        except DeadlinePassed:
            raise Unavailable(f"{self.place}: the server did not answer in time") from None
        except psycopg.Error as error:
            if not self._recovers(error):
                raise translate(error, self.place) from error
            raise Corrupt(self.place, f"PostgreSQL says: {text_of(error)}") from error

    def _recovers(self, error: psycopg.Error) -> bool:
        """Whether it was damage, after which other questions can still be asked."""
        state = error.sqlstate or ""
        if not state.startswith(_DAMAGE) or state == _NO_RIGHT:
            return False
        try:
            self._wire.execute("ROLLBACK TO SAVEPOINT readable")
        except (psycopg.Error, DeadlinePassed):
            return False
        return True


class _AnyText(Loader):
    """Text as it is, also where it is no UTF-8 any more: such a value matches no hash."""

    format = Format.BINARY

    def load(self, data: Any) -> str:
        return bytes(data).decode("utf-8", "surrogateescape")
