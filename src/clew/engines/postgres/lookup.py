"""What a writer looks up before it plans: where a thread stands, and records by their ids.

`Heads` remembers where threads stood when this process saw them last. An append is planned on the
remembered head and sent at once; the server refuses it when the thread has moved on, and then the
head is read anew. So a guess costs nothing but itself, and what is remembered need never be right.
`Finder` asks the server for records that are visible in a thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from clew.core.model import Record
from clew.engines.postgres import rows
from clew.engines.postgres.address import Sql
from clew.engines.postgres.rows import Position, Stand
from clew.engines.postgres.wire import Row, Wire

REMEMBERED_MAX = 4096
_STRIPES = 1024


class Heads:
    """The heads of threads, as this process saw them last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Stand] = OrderedDict()
        # A fixed number of locks, not one for each thread: two threads that share one only wait
        # for each other now and then, and no lock has to be removed when a thread is forgotten.
        self._write_locks = [threading.Lock() for _ in range(_STRIPES)]

    def write_lock(self, thread: str) -> threading.Lock:
        """Held through an append: writers of one process must not spoil each other's guess."""
        return self._write_locks[hash(thread) % _STRIPES]

    def guess(self, thread: str) -> Stand | None:
        return self._known.get(thread)

    def note(self, thread: str, stand: Stand) -> None:
        with self._lock:
            self._known[thread] = stand
            self._known.move_to_end(thread)
            if len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)

    def forget(self, thread: str) -> None:
        with self._lock:
            self._known.pop(thread, None)


class Book:
    """What every statement of a handle needs: the schema's SQL, the namespace, the heads."""

    def __init__(self, sql: Sql, space: int, namespace: str, heads: Heads) -> None:
        self.sql = sql
        self.space = space
        self.namespace = namespace
        self.heads = heads


class Finder:
    """Looks up records that are visible in a thread, and remembers where they are.

    `read` makes a record of a row, for who wants it though it is damaged.
    """

    def __init__(
        self,
        wire: Wire,
        book: Book,
        stand: Stand,
        unheard: set[str] | None = None,
        *,
        read: Callable[[Row], Record] = rows.to_record,
    ) -> None:
        self._wire = wire
        self._read = read
        self._book = book
        self._stand = stand
        self._known: dict[str, Record | None] = dict.fromkeys(unheard or ())
        self._places: dict[str, Position] = {}
        if stand.last is not None and stand.leaf is not None:
            self._known[stand.last.id] = stand.last
            self._places[stand.last.id] = stand.leaf

    def __call__(self, id: str) -> Record | None:
        if id not in self._known:
            self.fetch([id])
        return self._known[id]

    def fetch(self, ids: Iterable[str]) -> None:
        """Look up several at once."""
        wanted = [id for id in ids if id not in self._known]
        if not wanted:
            return
        self._known.update(dict.fromkeys(wanted))
        stand = self._stand
        origin = stand.origin or (None, None)
        found = self._wire.every(
            self._book.sql("SELECT * FROM clew.find(%s, %s::text[], %s, %s, %s)"),
            (self._book.space, wanted, stand.no, *origin),
        )
        for row in found:
            record = self._read(row)
            self._known[record.id] = record
            self._places[record.id] = (row[0], row[2])

    def place(self, id: str | None, new: Sequence[Record]) -> Position | None:
        """Where an entry is, or will be."""
        if id is None:
            return None
        for record in new:
            if record.id == id:
                return self._stand.no, record.seq
        if id in self._places:
            return self._places[id]
        # A plan knows every other entry from `__call__`, which noted its place. The leaf alone it
        # knows without asking, by the head.
        return self._stand.leaf
