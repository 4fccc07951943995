"""Erasing bodies: the rows stay, with tombstones in them, and the log tells of it.

One transaction, in which no other purge, sweep or erasure of the namespace is at work. What this
can promise is that no statement finds the body any more. The server keeps earlier versions of a row
in its files: `pack.shrink` writes those anew. Its log and its backups are out of our reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from clew.core.errors import ClewError, Corrupt, NotFound
from clew.core.model import Entry, Record
from clew.core.reducer import plan_erasure
from clew.core.removal import Erased
from clew.core.tombstones import to_erased, to_stored, tombstoned
from clew.engines.postgres import rows
from clew.engines.postgres.lookup import Book, Finder
from clew.engines.postgres.rows import Stand
from clew.engines.postgres.wire import Row, Wire
from clew.engines.postgres.write import look, write

_ERASE = "SELECT clew.erase_entry(%s, %s, %s, %s, %b)"
_BLOB, _BODY, _SIZE = 14, 15, 16  # in a row of `clew.found_record`


class Erase:
    """One erasure, which may need several tries: what an earlier one has done is told as it is."""

    def __init__(
        self, book: Book, thread: str, entries: Sequence[str], time_us: int, reason: str | None
    ) -> None:
        self._book = book
        self._thread = thread
        self._ids = list(dict.fromkeys(entries))
        self._time_us = time_us
        self._reason = reason
        self._unread: dict[str, int] = {}  # what was read without its damaged body: how large it is

    def run(self, wire: Wire, again: bool) -> list[Erased]:
        with wire.transaction():
            wire.execute(self._book.sql("SELECT clew.take_turns(%s)"), (self._book.space,))
            done, changed = self._erase(wire)
        if not changed:
            wire.commit_something()  # after what was found: so it is as durable as this
        return done

    def _erase(self, wire: Wire) -> tuple[list[Erased], bool]:
        stand, _ = look(wire, self._book, self._thread, in_line=False)
        finder = Finder(wire, self._book, stand, read=self._read)
        finder.fetch(self._ids)
        found = [self._found(finder, id) for id in self._ids]
        # The threads' rows first, in one order: a writer that holds one may wait for a blob.
        owners = {
            entry.thread: self._owner(wire, no, entry) for no, entry in sorted(found, key=_no)
        }
        done: list[Erased] = []
        new: dict[str, list[Entry]] = {}
        for no, entry in found:
            buried = entry
            if entry.tombstone is None:
                buried = tombstoned(entry, self._time_us, self._unread.get(entry.id))
                self._put(wire, no, buried)
                new.setdefault(entry.thread, []).append(buried)
            recorded = owners[entry.thread] is not None
            done.append(replace(to_erased(buried, recorded=recorded), log_bytes=None))
        for name, buried_ones in new.items():
            owner = owners[name]
            if owner is not None:
                self._tell(wire, owner, buried_ones)
        return done, bool(new)

    def _read(self, row: Row) -> Record:
        """A record; one without its large body if that is damaged, so that it can be erased."""
        try:
            return rows.to_record(row)
        except Corrupt:
            if row[_BLOB] is None:
                raise
            record = rows.to_record((*row[:_BODY], b"", *row[_SIZE:]))
            self._unread[record.id] = row[_SIZE] or 0  # it may be lost altogether
            return record

    def _found(self, finder: Finder, id: str) -> tuple[int, Entry]:
        """An entry, and the number of the thread that it was written in."""
        entry = finder(id)
        place = finder.place(id, ())
        if not isinstance(entry, Entry) or place is None:
            raise NotFound("entry", id)
        return place[0], entry

    def _owner(self, wire: Wire, no: int, entry: Entry) -> Stand | None:
        """Where the thread that it was written in stands, held; None if that was purged."""
        try:
            stand, _ = look(wire, self._book, entry.thread, in_line=True)
        except NotFound:
            return None
        return stand if stand.no == no else None  # or another thread has its id now

    def _put(self, wire: Wire, no: int, entry: Entry) -> None:
        assert entry.tombstone is not None
        stored = to_stored(entry.tombstone)
        place = (self._book.space, no, entry.seq, entry.digest, stored)
        if not wire.value(self._book.sql(_ERASE), place):  # no test: it is held meanwhile
            raise ClewError(f"entry {entry.id!r} changed while it was erased; nothing was erased")

    def _tell(self, wire: Wire, owner: Stand, entries: Sequence[Entry]) -> None:
        decided = plan_erasure(owner.head, entries, self._reason)
        finder = Finder(wire, self._book, owner)
        done = write(wire, self._book, owner, decided, finder, {}, facts_only=True)
        if not done:  # no test: it is held meanwhile
            raise ClewError(f"thread {owner.head.thread!r} moved while it was held")
        self._book.heads.forget(owner.head.thread)


def _no(found: tuple[int, Entry]) -> int:
    return found[0]
