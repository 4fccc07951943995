"""The tables of a store at one moment, as streams in the order of the threads.

`Moment` asks questions that are all answered from one snapshot. `Tables` are the streams, each
read a page at a time. One pass over all of them side by side verifies a store: memory holds a page
of each, and rows of threads that are not there come to light on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain
from typing import Any, NamedTuple

import psycopg
from psycopg.adapt import Loader
from psycopg.pq import Format

from clew.core.errors import Corrupt, Unavailable
from clew.core.model import Record
from clew.core.tombstones import from_stored
from clew.engines.postgres import rows
from clew.engines.postgres.lookup import Book
from clew.engines.postgres.pool import Connections
from clew.engines.postgres.rows import ENTRY, FACT, MOVE, to_bytes, to_hash
from clew.engines.postgres.wire import DeadlinePassed, Row, Wire, array, text_of, translate
from clew.engines.shared.audit import Link
from clew.engines.shared.compression import unpack

PAGE_ROWS = 1000
PAGE_BYTES = 4 * 1024 * 1024
LEAST = -(2**63)


# --- one moment ---

# Pages are read in the order of an index; a plan that sorts would read everything for each.
_BEGIN = """
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL jit = off;
SAVEPOINT readable
"""
# What a damaged row, page, index or catalogue makes of a statement. Any other error is trouble
# with the server, and no problem of the store.
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
    """Asks questions that all are answered from the same moment; each has its own deadline.

    A question that fails on damage must not end the transaction, or the moment would be lost with
    it: every question begins at the same savepoint.
    """

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
        except Corrupt:
            # It was no UTF-8. Asked again, with text taken as it is: one bad value must not hide a
            # page of rows.
            cursor = self._wire.cursor(binary=True)
            cursor.adapters.register_loader("text", _AnyText)
            return cursor.execute(sql, bindings).fetchall()

    def _guarded(self, work: Callable[[], Any]) -> Any:
        self._connections.check()
        self._wire.deadline = self._connections.deadline()
        try:
            return work()
        except DeadlinePassed:
            raise Unavailable(f"{self.place}: the server did not answer in time") from None
        except psycopg.Error as error:
            if not self._recovers(error):
                raise translate(error, self.place, writes=False) from error
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


# --- streams ---


class Tables:
    """What belongs to threads, each in the order of the threads."""

    def __init__(self, moment: Moment, quick: bool) -> None:
        self.records = Records(moment, quick)
        places = "parent_thread, parent_seq"
        self.segments = Stream(moment, "segments", {"first": -(2**31)}, places)
        self.facts = Stream(moment, "facts", {"key": ""}, "seq")
        self.tags = Stream(moment, "tags", {"tag": ""})
        uses = {"seq": -(2**31), "blob": b""}
        self.uses = Stream(moment, "blob_uses", uses, function="scan_uses")

    def __iter__(self) -> Iterator[Stream]:
        return iter((self.records, self.segments, self.facts, self.tags, self.uses))


class Stream:
    """The rows of a table in the order of their threads, and of `keys` within a thread.

    `keys` come with what is before their first value. A row begins with its thread and its keys.
    Where the server cannot read a page, the stream goes on thread by thread.
    """

    def __init__(
        self,
        moment: Moment,
        table: str,
        keys: dict[str, Any],
        columns: str = "",
        function: str | None = None,
    ) -> None:
        self.moment = moment
        self.table = table
        self.strays = 0  # rows of threads that are not there
        wanted = ", ".join(("thread", *keys)) + (columns and f", {columns}")
        marks = ", ".join(["%s"] * (4 + len(keys)))
        self._sql = f"SELECT {wanted} FROM clew.{function or f'scan_{table}'}({marks})"
        self._first = tuple(keys.values())
        self._after: Row = (LEAST, *self._first)
        self._size = PAGE_ROWS
        self._page: list[Row] = []
        self._next = 0
        self._ended = False
        self._careful = False  # a page could not be read: from now on thread by thread

    def of(self, thread: int) -> Iterator[list[Row]]:
        """The rows of a thread, all of which must be taken, some at a time.

        Corrupt: the rest cannot be read.
        """
        while (row := self._peek()) is not None and row[0] <= thread:
            rows: list[Row] = []
            while self._next < len(self._page) and (row := self._page[self._next])[0] <= thread:
                self._next += 1
                if row[0] == thread:
                    rows.append(row)
                else:
                    self.strays += 1
            yield rows
        if self._careful:
            yield from self._only(thread)

    def pass_over(self, thread: int) -> None:
        """Leave out what is left of a thread that could not be read."""
        while not self._careful and (row := self._peek()) is not None and row[0] <= thread:
            self._next += 1

    def end(self) -> int:
        """How many rows belong to no thread, after the last thread."""
        while self._peek() is not None:
            self._next += 1
            self.strays += 1
        return self.strays

    def _peek(self) -> Row | None:
        if self._next == len(self._page):
            try:
                self._page, self._next = [] if self._ended else self._load(), 0
            except Corrupt:
                self._page, self._next = [], 0
                self._ended = self._careful = True
        return self._page[self._next] if self._page else None

    def _load(self) -> list[Row]:
        """The next page; a smaller one where rows are large."""
        page = self._fetch(False, *self._after, self._size)
        self._ended = len(page) < self._size
        self._size = self._fit(page)
        last = max((row[: 1 + len(self._first)] for row in page), default=self._after)
        if page and (last <= self._after or not all(map(can_be_asked_for, last))):
            raise Corrupt(self.moment.place, f"the rows of {self.table} are not in order")
        self._after = last
        return self.prepare(page)

    def _fetch(self, alone: bool, *after: Any) -> list[Row]:
        """Some rows after a place, of that thread alone or of all."""
        return self.moment.every(self._sql, self.moment.book.space, alone, *after)

    def _fit(self, page: list[Row]) -> int:
        if self.bytes_of(page) > PAGE_BYTES:
            return max(1, len(page) // 2)
        return min(PAGE_ROWS, self._size * 2)

    def _only(self, thread: int) -> Iterator[list[Row]]:
        """The rows of one thread, asked for alone, and one by one where that is needed."""
        after = self._after[1:] if self._after[0] == thread else self._first
        while True:
            size = self._size
            try:
                page = self._fetch(True, thread, *after, size)
            except Corrupt as error:
                self._size = max(1, size // 10)
                if size > 1:
                    continue
                page = self.unreadable(error, (thread, *after))
            else:
                self._size = self._fit(page)
            yield self.prepare(page)
            if len(page) < size or not all(map(can_be_asked_for, page[-1][: 1 + len(after)])):
                return
            after = page[-1][1 : 1 + len(after)]

    # --- what a table may do its own way ---

    def prepare(self, page: list[Row]) -> list[Row]:
        return page

    def unreadable(self, error: Corrupt, after: Row) -> list[Row]:
        """What to go on with after a row that cannot be read."""
        raise error

    def bytes_of(self, page: list[Row]) -> int:
        return 0


class Beside:
    """Rows of a thread by seq, taken along as its records go by."""

    def __init__(self, pages: Iterator[list[Row]]) -> None:
        self._rows = chain.from_iterable(pages)
        self._next = next(self._rows, None)
        self.left_over = 0  # rows that go with no record

    def at(self, seq: int) -> list[Row]:
        found: list[Row] = []
        while self._next is not None and self._next[1] <= seq:
            if self._next[1] == seq:
                found.append(self._next)
            else:
                self.left_over += 1
            self._next = next(self._rows, None)
        return found

    def end(self) -> int:
        while self._next is not None:
            self.left_over += 1
            self._next = next(self._rows, None)
        return self.left_over


# --- records ---


class RecordRow(NamedTuple):
    """A record as it is stored; a body in a blob is not read here."""

    thread: int
    seq: int
    type: int
    id: str
    time_us: int
    hash: bytes
    parent: str | None
    kind: str | None
    turn: str | None
    format: str | None
    meta: bytes | None
    blobs: str | None
    body_hash: bytes | None
    blob: bytes | None
    body: bytes | None

    @property
    def is_erased(self) -> bool:
        """Whether there is a tombstone. Only then may an entry's body be missing."""
        if self.type != ENTRY or self.blob is not None or self.body is not None:
            return False
        try:
            from_stored(self.meta, self.format, "")
        except Corrupt:
            return False
        return True

    @property
    def named(self) -> list[str]:
        if self.blobs is None or self.type != ENTRY or self.is_erased:
            return []
        return self.blobs.split(",")

    @property
    def uses(self) -> set[bytes | None]:
        """The blobs that must be kept for it."""
        if self.blob is None and self.blobs is None:
            return set()
        own: set[bytes | None] = set() if self.blob is None else {self.blob}
        return own | {to_bytes(hash) for hash in self.named}

    @property
    def is_odd(self) -> bool:
        """Whether columns are filled that should not be, or empty ones that should be filled."""
        texts = (self.id, self.parent, self.kind, self.turn, self.format, self.blobs)
        bodies = (self.body is not None) + (self.blob is not None)
        extra: tuple[Any, ...] = (self.turn, self.format, self.meta, self.blobs)
        if "" in texts:
            return True
        if self.type == ENTRY:  # its body may be missing, but not the hash of it
            return bodies == 2 or (self.body_hash is None) == (self.blob is None)
        extra = (*extra, self.body_hash)
        if self.type == FACT:
            return bodies != 1 or (self.parent, *extra) != (None,) * 6
        return self.type != MOVE or bodies != 0 or (self.kind, *extra) != (None,) * 6

    def to_record(self, thread: str) -> Record:
        body = b"" if self.body is None and not self.is_erased else self.body
        return rows.to_record((self.thread, thread, *self[1:-1], body))


_FIELDS = RecordRow._fields[2:]
_COLUMNS = ", ".join(_FIELDS)
# The quick form reads no body, only whether there is one.
_HEADS = _COLUMNS.removesuffix("body") + (
    "CASE WHEN type = 0 AND body IS NOT NULL THEN ''::bytea ELSE body END"
)


class Records(Stream):
    """The records, page by page, with what they refer to: entries and blobs."""

    def __init__(self, moment: Moment, quick: bool) -> None:
        columns = _HEADS if quick else _COLUMNS
        super().__init__(moment, "records", {"seq": -(2**31)}, columns)
        self.links: dict[tuple[int, str], Link] = {}
        self.there: set[bytes] = set()
        self._tail: tuple[int, str | None] = (0, None)

    def prepare(self, page: list[Row]) -> list[Row]:
        found = [RecordRow._make(row) if len(row) > 2 else row for row in page]
        whole = [row for row in found if isinstance(row, RecordRow)]
        self.links = self._find(self._mentioned(whole))
        hashes = {hash for row in whole for hash in row.uses}
        space = self.moment.book.space
        sql = "SELECT * FROM clew.has_blobs(%s, %s::bytea[])"
        there = self.moment.every(sql, space, list(hashes)) if hashes else []
        self.there = {bytes(hash) for (hash,) in there}
        return found

    def _mentioned(self, page: Iterable[RecordRow]) -> list[tuple[int, str]]:
        """The entries that must be looked up: not those that come right before their child."""
        wanted: dict[tuple[int, str], None] = {}
        for row in page:
            tail = self._tail[1] if self._tail[0] == row.thread else None
            if row.type != FACT and row.parent is not None and row.parent != tail:
                wanted[row.thread, row.parent] = None
            if row.type == ENTRY:
                self._tail = row.thread, row.id
        return [(thread, id) for thread, id in wanted if can_be_asked_for(id)]

    def _find(self, wanted: list[tuple[int, str]]) -> dict[tuple[int, str], Link]:
        found: dict[tuple[int, str], Link] = {}
        for function in ("entries_of", "entries_inherited"):
            left = [key for key in wanted if key not in found]
            if not left:
                break
            threads, ids = array(thread for thread, _ in left), [id for _, id in left]
            sql = f"SELECT * FROM clew.{function}(%s, %s::bigint[], %s::text[])"
            for n, thread, seq, hash in self.moment.every(
                sql, self.moment.book.space, threads, ids
            ):
                found[left[n - 1]] = Link((thread, seq), to_hash(hash))
        return found

    def unreadable(self, error: Corrupt, after: Row) -> list[Row]:
        """Of a record that cannot be read the place is enough to name it, and to go on."""
        sql = "SELECT thread, seq FROM clew.scan_place(%s, %s, %s)"
        return self.moment.every(sql, self.moment.book.space, *after)

    def bytes_of(self, page: list[Row]) -> int:
        return sum(len(value) for row in page for value in row[10:] if value is not None)

    def body(self, hash: bytes) -> bytes:
        """A body that is in a blob."""
        sql = "SELECT * FROM clew.get_blob(%s, %s)"
        row = self.moment.every(sql, self.moment.book.space, hash)
        if not row:
            raise Corrupt(f"blob {to_hash(hash)}", "it is missing")
        return unpack(to_hash(hash), *row[0])


def can_be_asked_for(value: Any) -> bool:
    """Whether it is a value that the server takes; damage may have made no text of a text."""
    try:
        return not isinstance(value, str) or b"\0" not in value.encode("utf-8")
    except UnicodeEncodeError:
        return False
