"""What can be read of a damaged SQLite store, row by row.

Works on a copy. Rows are looked up by their numbers, so that a page that cannot be read costs
only the rows in it; ids of lost rows come from the index, which lies elsewhere in the file.
Nothing derived is believed: segments, facts and sums are made anew from the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

import apsw

from clew.engines.sqlite import blobs, rows
from clew.engines.sqlite.errors import UNREADABLE
from clew.engines.sqlite.journal import PURGED
from clew.engines.sqlite.query import Row, one
from clew.engines.sqlite.remains import RemainingThread, Remains
from clew.errors import Corrupt, NotFound
from clew.hashes import thread_hash
from clew.model import Record
from clew.salvage import SalvagedThread, Sort

T = TypeVar("T")

_THREADS_MAX = 1 << 24  # a thread's number that is greater is damaged itself
_SLACK = 10_000  # a seq in a thread's row that is further out than this is damaged itself
_THREAD = (
    "no, id, created_us, parent, origin, origin_entry, origin_hash, origin_no, hash, shelf, leaf,"
    " seq"
)


class SQLiteSalvage:
    def __init__(self, db: apsw.Connection, rescued: apsw.Connection | None = None) -> None:
        self._db = db
        self._rescued = rescued  # rows that SQLite does not find in the damaged file any more
        self.notes: list[str] = []
        self.unverified: set[tuple[str, str]] = set()
        self._ids = self._indexed("SELECT no, id FROM records INDEXED BY records_by_id")
        self._tops = self._find_tops()
        self._blobs: dict[str, int] | None = None
        self._threads = self._find_threads()

    def _find_tops(self) -> dict[int, int]:
        """The last seq of each thread, by the index and by the table, as far as it is likely."""
        seen: dict[int, list[int]] = {}
        for no in self._ids:
            seen.setdefault(no >> 32, []).append(no & rows.SEQ_MAX)
        found = [self._legible("SELECT no FROM records ORDER BY no")]
        if self._rescued is not None:
            found.append(self._rescued.execute("SELECT no FROM records"))
        for (no,) in chain(*found):
            seen.setdefault(no >> 32, []).append(no & rows.SEQ_MAX)
        tops: dict[int, int] = {}
        for thread, seqs in seen.items():
            likely = [seq for seq in seqs if 0 < seq <= 2 * len(seqs) + _SLACK]
            if 0 < thread < _THREADS_MAX and likely:
                tops[thread] = max(likely)
        return tops

    @property
    def is_empty(self) -> bool:
        return not self._threads

    def threads(self) -> list[SalvagedThread]:
        return list(self._threads.values())

    def close(self) -> None:
        self._db.close(True)
        if self._rescued is not None:
            self._rescued.close(True)

    # --- reading what can be read ---

    def _indexed(self, sql: str) -> dict[int, Any]:
        """An index as a map, as far as it is legible from either end."""
        found: dict[int, Any] = dict(self._legible(sql))
        found.update(self._legible(f"{sql} ORDER BY id DESC"))
        return found

    def _legible(self, sql: str) -> Iterator[Row]:
        try:
            yield from self._db.execute(sql)
        except UNREADABLE:
            return

    def rows(self, no: int, last: int) -> Iterator[tuple[int, Row | Exception | None]]:
        """Every seq of a thread up to the last: its row, why there is none, or None."""
        for seq, row in self._rows(no, last):
            if not isinstance(row, tuple) and self._rescued is not None:
                row = one_of(self._rescued, no, seq) or row
            yield seq, row

    def _rows(self, no: int, last: int) -> Iterator[tuple[int, Row | Exception | None]]:
        seq = 1
        while seq <= last:
            try:
                for row in rows.raw(self._db, (rows.number(no, seq), rows.number(no, last))):
                    if row[0] >> 32 != no:
                        continue  # its page is where another one should be
                    found = row[0] & rows.SEQ_MAX
                    yield from ((gap, None) for gap in range(seq, found))
                    if found >= seq:
                        yield found, row
                        seq = found + 1
                yield from ((gap, None) for gap in range(seq, last + 1))
                return
            except UNREADABLE:
                yield seq, self._one(lambda: one_of(self._db, no, seq))  # noqa: B023
                seq += 1

    def _one(self, read: Callable[[], T]) -> T | Exception:
        try:
            return read()
        except UNREADABLE as error:
            return error

    # --- threads ---

    def _find_threads(self) -> dict[int, SalvagedThread]:
        listed = self._listed()
        last = max([*self._tops, *listed, self._sequence()], default=0)
        found: dict[int, Remains] = {}
        for no in range(1, last + 1):
            row = self._one(lambda: self._thread_row(self._db, no))  # noqa: B023
            if not isinstance(row, Remains) and self._rescued is not None:
                row = self._thread_row(self._rescued, no) or row
            if isinstance(row, Remains):
                found[no] = row
            elif no in listed or no in self._tops or isinstance(row, Exception):
                found[no] = self._guess(no, listed.get(no))
        for row in list(found.values()):
            source = None if row.origin_no is None else row.origin_no >> 32
            if source is None or source <= 0 or row.origin is None:
                continue
            if source not in found:
                found[source] = self._guess(source, None, row.origin)
            elif found[source].invented:
                found[source].id, found[source].invented = row.origin, False
        taken: set[str] = set()
        for row in found.values():
            self._settle(row, found)
            if row.shelf != PURGED and row.id in taken:
                row.id = f"{row.id} (no. {row.no})"
                self.notes.append(f"two threads had one id; one of them is now {row.id!r}")
            if row.shelf != PURGED:
                taken.add(row.id)
        return {
            no: RemainingThread(self, row, self._last(row)) for no, row in sorted(found.items())
        }

    def _listed(self) -> dict[int, Row]:
        sql = "SELECT no, shelf, created_us, id FROM threads INDEXED BY threads_by_created"
        return {
            row[0]: row
            for row in self._legible(sql)
            if _all_are(int, row[:3]) and _all_are(str, row[3:]) and 0 < row[0] < _THREADS_MAX
        }

    def _sequence(self) -> int:
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'threads'"
        found = self._one(lambda: one(self._db, query))
        if self._rescued is not None and not isinstance(found, tuple):
            found = one(self._rescued, query)
        number = found[0] if isinstance(found, tuple) else 0
        return number if isinstance(number, int) and 0 < number < _THREADS_MAX else 0

    def _thread_row(self, db: apsw.Connection, no: int) -> Remains | None:
        row = one(db, f"SELECT {_THREAD} FROM threads WHERE no = ?", (no,))
        if row is None:
            return None
        texts = (row[1], *(row[n] or "" for n in (3, 4, 5, 6, 8, 10)))
        numbers = (row[2], row[7] or 0, row[9], row[11])
        if not row[1] or not (_all_are(str, texts) and _all_are(int, numbers)):
            raise TypeError("its row has values of the wrong type")
        return Remains(*row)

    def _guess(self, no: int, listed: Row | None, name: str | None = None) -> Remains:
        """A thread whose row is gone: the index knows some of it, its records the rest."""
        if listed is not None and isinstance(listed[3], str):
            row = Remains(no, listed[3], int(listed[2]), shelf=int(listed[1]))
        elif name is not None:
            row = Remains(no, name, 0, shelf=PURGED)
        else:
            row = Remains(no, f"lost-thread-{no}", self._first_time(no), invented=True)
        self._find_origin(row)
        return row

    def _first_time(self, no: int) -> int:
        for _, row in self.rows(no, min(self._tops.get(no, 0), 100)):
            if isinstance(row, tuple) and isinstance(row[2], int):
                return row[2]
        return 0

    def _find_origin(self, row: Remains) -> None:
        """A fork shows by its first entry, whose parent is in another thread."""
        for _, found in self.rows(row.no, min(self._tops.get(row.no, 0), 100)):
            if not isinstance(found, tuple) or found[12] != rows.ENTRY:
                continue
            query = "SELECT no FROM records WHERE id = ? AND type = 0 AND no >> 32 < ?"
            place = self._one(lambda: one(self._db, query, (found[4], row.no)))  # noqa: B023
            if isinstance(place, tuple):
                row.origin_no = place[0]
            return

    def _settle(self, row: Remains, known: dict[int, Remains]) -> None:
        """If a row does not match its hash, what else points to what it said is tried."""
        if row.hash is None:
            self._follow(row, known)
            self.notes.append(f"the row of thread no. {row.no} is lost; it is kept as {row.id!r}")
            return
        names = [row.id, *(other.origin for other in known.values() if _points_to(other, row.no))]
        before = row.origin, row.origin_entry, row.origin_hash
        for name in dict.fromkeys(name for name in names if name):
            row.origin, row.origin_entry, row.origin_hash = before
            for _ in range(2):
                if thread_hash(name, row.created_us, row.parent, row.begins_at) == row.hash:
                    row.id = name
                    return
                self._follow(row, known)
        row.origin, row.origin_entry, row.origin_hash = before
        if row.origin_no is not None:
            self._follow(row, known)
        self.notes.append(f"the row of thread {row.id!r} does not match its hash; kept as it is")

    def _follow(self, row: Remains, known: dict[int, Remains]) -> None:
        """The origin as the number of its record tells it."""
        if row.origin_no is None:
            return
        source = known.get(row.origin_no >> 32)
        found = self._one(lambda: one_of(self._db, row.origin_no or 0))
        if source is not None:
            row.origin = source.id
        if isinstance(found, tuple) and isinstance(found[1], str):
            row.origin_entry, row.origin_hash = found[1], found[3]

    def _last(self, row: Remains) -> int:
        top = self._tops.get(row.no, 0)
        sane = isinstance(row.seq, int) and row.seq <= top + _SLACK and row.shelf != PURGED
        return max(top, row.seq) if sane else top

    # --- records ---

    def id_of(self, no: int) -> str | None:
        found = self._ids.get(no)
        return found if isinstance(found, str) and found else None

    def sort_of(self, no: int) -> Sort:
        for sort, sql in (
            ("entry", "SELECT 1 FROM segments WHERE first = ?"),
            ("entry", "SELECT 1 FROM threads WHERE origin_no = ?"),
            ("fact", "SELECT 1 FROM facts WHERE record = ?"),
        ):
            if isinstance(self._one(lambda: one(self._db, sql, (no,))), tuple):  # noqa: B023
                return sort  # type: ignore[return-value]
        return "record"

    def record(self, name: str, row: Row) -> Record:
        try:
            record = rows.to_record(self._db, name, row)
        except UNREADABLE:
            if self._rescued is None:
                raise
            record = rows.to_record(self._rescued, name, row)
        if not isinstance(record.id, str) or not isinstance(record.hash, str):
            raise TypeError("its row has values of the wrong type")
        return record

    def hashes_elsewhere(self, id: str) -> tuple[str, ...]:
        """The hashes of entries with this id, in any thread."""
        query = "SELECT hash FROM records WHERE id = ? AND type = 0"
        found = self._one(lambda: self._db.execute(query, (id,)).fetchall())
        hashes = [str(row[0]) for row in found] if isinstance(found, list) else []
        if self._rescued is not None:
            hashes += [hash for (hash,) in self._rescued.execute(query, (id,))]
        return tuple(hashes)

    # --- blobs ---

    def blob(self, hash: str) -> bytes:
        try:
            return blobs.get(self._db, hash)
        except UNREADABLE:
            if self._rescued is not None and blobs.numbers(self._rescued, [hash]):
                return blobs.get(self._rescued, hash)
            no = self._blob_numbers().get(hash)
        if no is None:
            raise NotFound("blob", hash)
        try:
            return blobs.fetch(self._db, no)
        except UNREADABLE as error:
            raise Corrupt(f"blob {hash}", str(error)) from error

    def loose_blobs(self) -> Iterator[str]:
        bodies = set(self._indexed("SELECT blob, no FROM records WHERE blob IS NOT NULL"))
        found = dict(self._blob_numbers())
        if self._rescued is not None:
            query = "SELECT blob FROM records WHERE blob IS NOT NULL"
            bodies |= {blob for (blob,) in self._rescued.execute(query)}
            for hash, no in self._rescued.execute("SELECT hash, no FROM blobs"):
                found[str(hash)] = int(no or 0)
        yield from (hash for hash, no in found.items() if no not in bodies)

    def _blob_numbers(self) -> dict[str, int]:
        if self._blobs is None:
            self._blobs = {}
            for sql in (
                "SELECT no, hash FROM blobs ORDER BY no",
                "SELECT no, hash FROM blobs ORDER BY no DESC",
                "SELECT no, hash FROM blobs INDEXED BY blobs_by_hash",
            ):
                self._blobs.update({hash: no for no, hash in self._legible(sql)})
        return self._blobs


def one_of(db: apsw.Connection, thread: int, seq: int | None = None) -> Row | None:
    """A record's row by its number, or by its thread's and its seq."""
    no = thread if seq is None else rows.number(thread, seq)
    return next(iter(rows.raw(db, (no, no))), None)


def _all_are(kind: type, values: Iterable[Any]) -> bool:
    return all(isinstance(value, kind) for value in values)


def _points_to(row: Remains, no: int) -> bool:
    return row.origin_no is not None and row.origin_no >> 32 == no
