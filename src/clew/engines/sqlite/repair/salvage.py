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

from clew.core.codec import to_hash
from clew.core.errors import Corrupt, NotFound
from clew.core.hashes import thread_hash
from clew.core.maintenance import Budget, Sort
from clew.core.model import Record
from clew.engines.shared.tables import packs, record_rows, rows
from clew.engines.shared.tables.rows import Row, every, fetch_blob, one
from clew.engines.shared.thread_list import PURGED
from clew.engines.sqlite import blobs
from clew.engines.sqlite.errors import UNREADABLE
from clew.engines.sqlite.repair.remains import (
    UNKNOWN,
    Names,
    NamespaceSalvage,
    RemainingThread,
    Remains,
)

T = TypeVar("T")

_THREADS_MAX = 1 << 24  # a thread's number that is greater is damaged itself
_SLACK = 10_000  # a seq in a thread's row that is further out than this is damaged itself
_GUESSES_MAX = 100_000  # ids and namespaces that are tried, for rows that do not match their hash
_NAMES_INDEX = "sqlite_autoindex_namespaces_1"
_THREAD = (
    "no, id, created_us, parent, origin, origin_entry, origin_hash, origin_no, hash, shelf, leaf,"
    " seq, space"
)


class SQLiteSalvage:
    """All namespaces of a damaged file; `namespaces` gives the reader of each of them."""

    def __init__(
        self, db: apsw.Connection, budget: Budget, rescued: apsw.Connection | None = None
    ) -> None:
        self._db = db
        self.budget = budget
        self._rescued = rescued  # rows that SQLite does not find in the damaged file any more
        self.notes: list[str] = []
        self.unverified: set[tuple[int, str, str]] = set()
        self._names = self._find_names()
        self._ids = self._indexed("SELECT no, id FROM records INDEXED BY records_by_id")
        self._tops = self._find_tops()
        self._blobs: dict[str, dict[int, int]] | None = None
        self._guesses = 0
        self._threads = self._find_threads()

    def _find_tops(self) -> dict[int, int]:
        """The last seq of each thread, by the index and by the table, as far as it is likely.

        A damaged number may be of any size. Taken for a seq, it would be reported as millions of
        lost records, so it must not be far beyond how many there are, in this thread and in all.
        """
        seen: dict[int, list[int]] = {}
        for no in self._ids:
            seen.setdefault(no >> 32, []).append(no & rows.SEQ_MAX)
        found = [self._legible("SELECT no FROM records ORDER BY no")]
        if self._rescued is not None:
            found.append(self._rescued.execute("SELECT no FROM records"))
        found += [self._packed(db) for db in (self._db, self._rescued) if db is not None]
        for (no,) in chain(*found):
            seen.setdefault(no >> 32, []).append(no & rows.SEQ_MAX)
        tops: dict[int, int] = {}
        for thread, seqs in seen.items():
            count = len(set(seqs))
            likely = [seq for seq in seqs if 0 < seq <= 2 * count + min(_SLACK, self.budget.left)]
            if 0 < thread < _THREADS_MAX and likely:
                top = max(likely)
                # What is there has its room in the store; what is missing comes on top.
                fits = self.budget.take(max(0, top - count))
                tops[thread] = top if fits else min(top, count)
        return tops

    def _packed(self, db: apsw.Connection) -> Iterator[tuple[int]]:
        """The numbers of the entries in packs; of a pack that cannot be read, those of its ends."""
        for pack in packs.every(db, UNREADABLE):
            try:
                yield from ((no,) for no in packs.read(db, pack).numbers)
            except UNREADABLE:
                yield from ((pack.first,), (pack.last,))

    def _find_names(self) -> Names:
        table = self._legible("SELECT no, name FROM namespaces")
        index = self._legible(f"SELECT no, name FROM namespaces INDEXED BY {_NAMES_INDEX}")
        if self._rescued is None:
            return Names(table, index)
        return Names(self._rescued.execute("SELECT no, name FROM namespaces"), chain(table, index))

    @property
    def is_empty(self) -> bool:
        return not self._threads

    def namespaces(self) -> Iterator[NamespaceSalvage]:
        """Each of them apart. The first one tells what had to be guessed."""
        found: dict[int, list[RemainingThread]] = {no: [] for no in self._names.known}
        for thread in self._threads.values():
            found.setdefault(thread.space, []).append(thread)
        for n, (no, own) in enumerate(found.items()):
            yield NamespaceSalvage(self, no, self._names.of(no), own, [] if n else self.notes)

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
        db = self._rescued
        for seq, row in self._rows(no, last):
            if not isinstance(row, tuple) and db is not None:
                found = self._one(lambda: one_of(db, no, seq))  # noqa: B023
                row = found if isinstance(found, tuple) else row
            yield seq, row

    def _rows(self, no: int, last: int) -> Iterator[tuple[int, Row | Exception | None]]:
        seq = 1
        while seq <= last:
            try:
                for row in record_rows.raw(self._db, (rows.number(no, seq), rows.number(no, last))):
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

    def _find_threads(self) -> dict[int, RemainingThread]:
        listed = self._listed()
        found: dict[int, Remains] = {}
        db = self._rescued
        for no in self._numbers(listed):
            row = self._one(lambda: self._thread_row(self._db, no))  # noqa: B023
            if not isinstance(row, Remains) and db is not None:
                rescued = self._one(lambda: self._thread_row(db, no))  # noqa: B023
                row = rescued if isinstance(rescued, Remains) else row
            if isinstance(row, Remains):
                found[no] = row
            elif no in listed or no in self._tops or isinstance(row, Exception):
                found[no] = self._guess(no, listed.get(no), found)
        for row in list(found.values()):
            source = None if row.origin_no is None else row.origin_no >> 32
            if source is None or source <= 0 or row.origin is None:
                continue
            if source not in found:
                found[source] = self._guess(source, None, found, row)
            elif found[source].invented:
                found[source].id, found[source].invented = row.origin, False
                found[source].space = found[source].space or row.space
        called: dict[int, dict[str, None]] = {}  # what forks call the thread that they began in
        for row in found.values():
            if row.origin_no is not None and row.origin:
                called.setdefault(row.origin_no >> 32, {})[row.origin] = None
        # Whose hash proves its id keeps it: its moves and facts are good under no other one.
        right = [row for row in found.values() if row.hash and self._matches(row, row.id)]
        proved = {row.no for row in right}
        taken = {(row.space, row.id) for row in right if row.shelf != PURGED}
        for row in found.values():
            if row.no in proved:
                continue
            self._settle(row, found, list(called.get(row.no, ())))
            if row.shelf != PURGED and (row.space, row.id) in taken:
                row.id = f"{row.id} (no. {row.no})"
                self.notes.append(f"two threads had one id; one of them is now {row.id!r}")
            if row.shelf != PURGED:
                taken.add((row.space, row.id))
        return {
            no: RemainingThread(self, row, self._last(row)) for no, row in sorted(found.items())
        }

    def _numbers(self, listed: Iterable[int]) -> list[int]:
        """The numbers of threads that are, or may be, there.

        A scan of the table ends at the first page that is damaged. From there on one number after
        the other is tried, until the scan goes on; but not millions of them, which a damaged
        number may promise.
        """
        found = {*self._tops, *listed}
        if self._rescued is not None:
            found |= {no for (no,) in self._rescued.execute("SELECT no FROM threads")}
        last = max([*found, self._sequence()], default=0)
        at, tries = 0, _SLACK + self.budget.left
        while at < last and tries:
            try:
                for (no,) in self._db.execute("SELECT no FROM threads WHERE no > ?", (at,)):
                    found.add(no)
                    at = max(at, no)
                break
            except UNREADABLE:
                at, tries = at + 1, tries - 1
                found.add(at)
        return sorted(no for no in found if 0 < no < _THREADS_MAX)

    def _listed(self) -> dict[int, Row]:
        sql = "SELECT no, shelf, created_us, space, id FROM threads INDEXED BY threads_by_created"
        return {
            row[0]: row
            for row in self._legible(sql)
            if _all_are(int, row[:4]) and _all_are(str, row[4:]) and 0 < row[0] < _THREADS_MAX
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
        numbers = (row[2], row[7] or 0, row[9], row[11], row[12])
        if not row[1] or not (_all_are(str, texts) and _all_are(int, numbers)):
            raise TypeError("its row has values of the wrong type")
        return Remains(*row)

    def _guess(
        self, no: int, listed: Row | None, known: dict[int, Remains], fork: Remains | None = None
    ) -> Remains:
        """A thread whose row is gone: the index knows some of it, its records the rest."""
        if listed is not None:
            row = Remains(no, listed[4], listed[2], shelf=listed[1], space=listed[3])
        elif fork is not None and fork.origin is not None:
            row = Remains(no, fork.origin, 0, shelf=PURGED, space=fork.space)
        else:
            row = Remains(no, f"lost-thread-{no}", self._first_time(no), invented=True)
        row.space = row.space or self._names.only or UNKNOWN
        self._find_origin(row, known)
        return row

    def _first_time(self, no: int) -> int:
        for _, row in self.rows(no, min(self._tops.get(no, 0), 100)):
            if isinstance(row, tuple) and isinstance(row[3], int):
                return row[3]
        return 0

    def _find_origin(self, row: Remains, known: dict[int, Remains]) -> None:
        """A fork shows by its first entry, whose parent is in another thread."""
        for _, found in self.rows(row.no, min(self._tops.get(row.no, 0), 100)):
            if not isinstance(found, tuple) or found[1] != rows.ENTRY:
                continue
            query = "SELECT no FROM records WHERE id = ? AND type = 0 AND no >> 32 < ? ORDER BY no"
            places = self._one(lambda: every(self._db, query, (found[5], row.no)))  # noqa: B023
            packed = self._one(lambda: list(packs.rows_of(self._db, found[5] or "")))  # noqa: B023
            if isinstance(places, list):
                more = packed if isinstance(packed, list) else []
                near = [place for (place,) in places] + [other[0] for other in more]
                self._choose_origin(row, known, sorted(no for no in near if no >> 32 < row.no))
            return

    def _choose_origin(self, row: Remains, known: dict[int, Remains], places: list[int]) -> None:
        """A copy of it in another namespace is not the one; nor is any, if it cannot be told."""
        sources = {place: known[place >> 32].space for place in places if place >> 32 in known}
        if row.space == UNKNOWN and len(set(sources.values())) == 1:
            row.space = next(iter(sources.values()))
        fitting = [place for place in places if sources.get(place, row.space) == row.space]
        row.origin_no = fitting[0] if fitting else None

    def _settle(self, row: Remains, known: dict[int, Remains], called: list[str]) -> None:
        """If a row does not match its hash, what else points to what it said is tried."""
        if row.hash is None:
            self._follow(row, known)
            self.notes.append(f"the row of thread no. {row.no} is lost; it is kept as {row.id!r}")
            return
        before = row.origin, row.origin_entry, row.origin_hash
        for name in dict.fromkeys([row.id, *called]):
            row.origin, row.origin_entry, row.origin_hash = before
            for _ in range(2):
                if self._matches(row, name):
                    row.id = name
                    return
                self._follow(row, known)
        row.origin, row.origin_entry, row.origin_hash = before
        if row.origin_no is not None:
            self._follow(row, known)
        self.notes.append(f"the row of thread {row.id!r} does not match its hash; kept as it is")

    def _matches(self, row: Remains, name: str) -> bool:
        """Whether its hash is right for this id, in whatever namespace: then it is in that one."""
        for n, (space, namespace) in enumerate(self._names.candidates(row.space)):
            self._guesses += n > 0
            if self._guesses > _GUESSES_MAX:
                return False
            made = thread_hash(name, row.created_us, row.parent, row.begins_at, namespace)
            if made == row.hash:
                row.space = space
                self._names.prove(space, namespace)
                return True
        return False

    def _follow(self, row: Remains, known: dict[int, Remains]) -> None:
        """The origin as the number of its record tells it."""
        if row.origin_no is None:
            return
        source = known.get(row.origin_no >> 32)
        found = self._one(lambda: one_of(self._db, row.origin_no or 0))
        if source is not None:
            row.origin = source.id
        if isinstance(found, tuple) and isinstance(found[2], str) and isinstance(found[4], bytes):
            row.origin_entry, row.origin_hash = found[2], to_hash(found[4])

    def _last(self, row: Remains) -> int:
        top = self._tops.get(row.no, 0)
        sane = isinstance(row.seq, int) and row.seq <= top + _SLACK and row.shelf != PURGED
        if not sane or row.seq <= top or not self.budget.take(row.seq - top):
            return top
        return row.seq

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
            return record_rows.to_record(self._db, name, row)
        except UNREADABLE:
            if self._rescued is None:
                raise
            return record_rows.to_record(self._rescued, name, row)

    def hashes_elsewhere(self, id: str) -> tuple[str, ...]:
        """The hashes of entries with this id, in any thread."""
        query = "SELECT hash FROM records WHERE id = ? AND type = 0"
        found = self._one(lambda: self._db.execute(query, (id,)).fetchall())
        hashes = [hash for (hash,) in found] if isinstance(found, list) else []
        if self._rescued is not None:
            hashes += [hash for (hash,) in self._rescued.execute(query, (id,))]
        for db in (self._db, self._rescued):
            packed = [] if db is None else self._one(lambda: list(packs.rows_of(db, id)))  # noqa: B023
            hashes += [row[4] for row in packed] if isinstance(packed, list) else []
        return tuple(to_hash(hash) for hash in hashes if isinstance(hash, bytes))

    # --- blobs ---

    def blob(self, space: int, hash: str) -> bytes:
        """Its own copy or, if that is lost, what another namespace has under the same hash."""
        try:
            return blobs.get(self._db, space, hash)
        except UNREADABLE:
            found = self._numbers_of(space, hash)
        problem: Exception = NotFound("blob", hash)
        for db, no in found:
            try:
                return fetch_blob(db, no)
            except UNREADABLE as error:
                problem = Corrupt(f"blob {hash}", str(error))
        raise problem

    def _numbers_of(self, space: int, hash: str) -> list[tuple[apsw.Connection, int]]:
        """Where it may be: of its own namespace first, and first among what was rescued."""
        found: list[tuple[bool, apsw.Connection, int]] = []
        if self._rescued is not None:
            query = "SELECT space, no FROM blobs WHERE hash = ?"
            for own, no in self._rescued.execute(query, (hash,)):
                found.append((own != space, self._rescued, int(no or 0)))
        for own, no in self._blob_numbers().get(hash, {}).items():
            found.append((own != space, self._db, no))
        return [(db, no) for _, db, no in sorted(found, key=lambda item: item[0])]

    def loose_blobs(self, space: int) -> Iterator[str]:
        bodies = set(self._indexed("SELECT blob, no FROM records WHERE blob IS NOT NULL"))
        found = {hash: nos.get(space) for hash, nos in self._blob_numbers().items()}
        if self._rescued is not None:
            query = "SELECT blob FROM records WHERE blob IS NOT NULL"
            bodies |= {blob for (blob,) in self._rescued.execute(query)}
            query = "SELECT hash, no FROM blobs WHERE space = ?"
            found |= {
                str(hash): int(no or 0) for hash, no in self._rescued.execute(query, (space,))
            }
        yield from (hash for hash, no in found.items() if no is not None and no not in bodies)

    def _blob_numbers(self) -> dict[str, dict[int, int]]:
        """By hash, and by namespace."""
        if self._blobs is None:
            self._blobs = {}
            select = "SELECT hash, space, no FROM blobs"
            for rest in ("ORDER BY no", "ORDER BY no DESC", "INDEXED BY blobs_by_hash"):
                for hash, space, no in self._legible(f"{select} {rest}"):
                    self._blobs.setdefault(hash, {})[space] = no
        return self._blobs


def one_of(db: apsw.Connection, thread: int, seq: int | None = None) -> Row | None:
    """A record's row by its number, or by its thread's and its seq."""
    no = thread if seq is None else rows.number(thread, seq)
    beside = one(db, record_rows.IN_RANGE, (no, no))
    if beside is not None:  # whatever became of the pack in whose range it is
        return beside
    return next(iter(record_rows.raw(db, (no, no))), None)


def _all_are(kind: type, values: Iterable[Any]) -> bool:
    return all(isinstance(value, kind) for value in values)
