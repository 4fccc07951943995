"""Where records and threads lie, and what a thread's row says: reading and writing share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

import apsw
from msgspec import Meta, Struct, ValidationError, convert

from clew.core.errors import Corrupt, NotFound
from clew.core.facts import TIME_US_MAX, TIME_US_MIN
from clew.core.model import Entry, Fact, Move, Origin, Record, ThreadInfo
from clew.core.names import ID_BYTES_MAX
from clew.core.tombstones import to_stored
from clew.engines.shared.compression import unpack
from clew.engines.shared.tables import packs

ENTRY, MOVE, FACT = 0, 1, 2
SEQ_MAX = 0xFFFF_FFFF
THREAD_NO_MAX = (1 << 31) - 1  # so that the numbers of its records have 63 bits

Number = Annotated[int, Meta(ge=1, le=THREAD_NO_MAX)]
Time = Annotated[int, Meta(ge=TIME_US_MIN, le=TIME_US_MAX)]
Name = Annotated[str, Meta(max_length=ID_BYTES_MAX)]

Range = tuple[int, int]  # the numbers of the first and the last record

COLUMNS = (
    "no, type, id, time_us, hash, parent, kind, turn, format, meta, blobs, body_hash, blob, body"
)
_INSERT = f"INSERT INTO records ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"


def number(thread: int, seq: int) -> int:
    """The number of a record: its thread's, then its seq."""
    return thread << 32 | seq


# --- one record -----------------------------------------------------------------------------


def insert(db: apsw.Connection, no: int, record: Record, blob: int | None) -> None:
    """Write a record; `blob` holds its body when that is large."""
    if isinstance(record, Entry):
        format, meta, body = record.format, record.meta_data, record.data
        if record.tombstone is not None:
            format, meta = record.tombstone.format, to_stored(record.tombstone)
        row: Row = (
            no,
            ENTRY,
            record.id,
            record.time_us,
            record.digest,
            record.parent,
            record.kind,
            record.turn,
            format,
            meta,
            ",".join(record.blobs) if record.blobs else None,
            record.body_digest,
            blob,
            body if blob is None and record.tombstone is None else None,
        )
    elif isinstance(record, Move):
        row = (no, MOVE, record.id, record.time_us, record.digest, record.leaf, *(None,) * 8)
    else:
        assert isinstance(record, Fact)
        row = (
            no,
            FACT,
            record.id,
            record.time_us,
            record.digest,
            None,
            record.key,
            *(None,) * 5,
            blob,
            record.data if blob is None else None,
        )
    db.execute(_INSERT, row)


# --- finding --------------------------------------------------------------------------------


class Lineages:
    """The ranges of entries that forks inherit. They never change, so they are remembered.

    What is remembered is one step each: from a record to where its segment begins, and what that
    hangs on. So a fork of a fork remembers nothing that the first one does already.
    """

    def __init__(self) -> None:
        self._steps: dict[int, tuple[int, int | None]] = {}

    def of(self, db: apsw.Connection, origin: int | None) -> Lineage:
        return () if origin is None else _Walk(self, db, origin)

    def step(self, db: apsw.Connection, no: int) -> tuple[int, int | None]:
        """The first record of the segment that a record is in, and what that hangs on."""
        found = self._steps.get(no)
        if found is None:
            found = _segment_of(db, no)
            if len(self._steps) >= _STEPS_MAX:
                self._steps.clear()
            self._steps[no] = found
        return found


_STEPS_MAX = 100_000


class _Walk:
    """A lineage, range by range, the newest first: as far as it is looked at."""

    def __init__(self, lineages: Lineages, db: apsw.Connection, origin: int) -> None:
        self._lineages = lineages
        self._db = db
        self._origin = origin

    def __iter__(self) -> Iterator[Range]:
        step = self._lineages.step
        return _ranges(self._origin, lambda no: step(self._db, no))


Lineage = Iterable[Range]


def path_ranges(db: apsw.Connection, no: int) -> Iterator[Range]:
    """The path to an entry as ranges of records, the newest first: one lookup a segment."""
    return _ranges(no, lambda at: _segment_of(db, at))


def _ranges(no: int, step: Callable[[int], tuple[int, int | None]]) -> Iterator[Range]:
    at: int | None = no
    passed: set[int] = set()  # damage may lead in a circle
    while at is not None:
        first, above = step(at)
        if first in passed:
            raise Corrupt(f"record no. {first}", "its segment hangs on itself")
        passed.add(first)
        yield first, at
        at = above


def _segment_of(db: apsw.Connection, no: int) -> tuple[int, int | None]:
    row = one(
        db,
        "SELECT first, parent FROM segments WHERE first BETWEEN ? AND ?"
        " ORDER BY first DESC LIMIT 1",
        (number(no >> 32, 0), no),
    )
    if row is None:
        raise Corrupt(f"record no. {no}", "it is in no segment")
    first, above = row
    # SQLite reads what a file says, whatever the table's types: a store may have been prepared.
    if not isinstance(first, int) or not isinstance(above, int | None):
        raise Corrupt(f"record no. {no}", "its segment hangs on no number")
    return first, above


def locate(db: apsw.Connection, thread: int, lineage: Lineage, id: str) -> int | None:
    """The number of an entry that is visible in a thread: its own, or on the path it inherits."""
    no = _locate_own(db, thread, id)
    return locate_inherited(db, lineage, id) if no is None else no


def _locate_own(db: apsw.Connection, thread: int, id: str) -> int | None:
    row = one(db, _LOCATE, (id, thread))
    if row is None:
        row = next(packs.rows_of(db, id, thread), None)
    return None if row is None else int(row[0])


_LOCATE = "SELECT no FROM records WHERE id = ? AND no >> 32 = ? AND type = 0"


def locate_inherited(db: apsw.Connection, lineage: Lineage, id: str) -> int | None:
    """Thread by thread, as far as most forks reach; what lies further up, by the id alone."""
    ranges = iter(lineage)
    near = list(islice(ranges, _NEAR))
    for thread in dict.fromkeys(first >> 32 for first, _ in near):
        no = _locate_own(db, thread, id)
        if no is not None and any(first <= no <= last for first, last in near):
            return no
    if len(near) < _NEAR:
        return None
    places = {no >> 32: no for (no,) in each(db, _LOCATE_ALL, (id,))}
    places |= {row[0] >> 32: row[0] for row in packs.rows_of(db, id)}
    for first, last in ranges if places else ():
        place = places.get(first >> 32)
        if place is not None and first <= place <= last:
            return int(place)
    return None


_NEAR = 64  # ranges
_LOCATE_ALL = "SELECT no FROM records WHERE id = ? AND type = 0"


def everything_of(thread: int, after: int = 0) -> Range:
    """The range of a thread's records with a greater seq."""
    return number(thread, after) + 1, number(thread, SEQ_MAX)


def name_of(db: apsw.Connection, thread: int) -> str:
    row = one(db, "SELECT id FROM threads WHERE no = ?", (thread,))
    if row is None:
        raise Corrupt(f"thread no. {thread}", "its row is missing")
    return str(row[0])


# --- threads --------------------------------------------------------------------------------

# Where a thread stands, its row says, and behind that its last record: see `to_thread`. A row that
# is in the list by update says all of it, so that a list of many threads looks into no records.
THREADS = (
    "threads t LEFT JOIN records h ON t.listed_us IS NULL AND h.no ="
    f" (SELECT max(no) FROM records WHERE no BETWEEN (t.no << 32 | t.seq) + 1"
    f" AND t.no << 32 | {SEQ_MAX})"
)
THREAD = (
    "t.no, t.id, t.created_us, t.updated_us, t.seq, t.leaf, t.parent, t.origin, t.origin_entry,"
    " t.origin_hash, t.origin_no, h.no, h.type, h.id, h.time_us"
)
SEQ = f"ifnull(h.no & {SEQ_MAX}, t.seq)"
UPDATED_US = "ifnull(h.time_us, t.updated_us)"


Facts = tuple[dict[str, bytes], dict[str, str]]  # those that can be read; the others, and why not


class ThreadRow(Struct, frozen=True, array_like=True, gc=False):
    """A thread's row. `origin_no` is the last record of the path that it shares."""

    no: Number
    id: Name
    created_us: Time
    updated_us: Time
    seq: Annotated[int, Meta(ge=0, le=SEQ_MAX)]
    leaf: Name | None
    parent: Name | None
    origin: Name | None
    origin_entry: Name | None
    origin_hash: Name | None
    origin_no: int | None

    def info(self, db: apsw.Connection, known: Facts | None = None) -> ThreadInfo:
        """What it says of its thread; `known` are its facts, if they were read already."""
        origin = None
        if self.origin is not None:
            origin = Origin(self.origin, self.origin_entry, self.origin_hash)
        facts, lost = facts_of(db, self.no) if known is None else known
        return ThreadInfo(
            self.id,
            self.created_us,
            self.updated_us,
            self.seq,
            self.leaf,
            self.parent,
            origin,
            facts,
            lost,
        )


def to_thread(row: Row) -> ThreadRow:
    """A thread as the columns of `THREAD` tell it.

    An append of entries leaves the row as it is: every record behind the row's seq is an entry, and
    the thread stands on the last of them.
    """
    no, type, leaf, updated_us = row[-4:]
    try:
        found = convert(row[:-4], ThreadRow)
        if no is None:
            return found
        if type != ENTRY:
            raise Corrupt(f"thread {row[1]!r}", BEHIND)
        known = (found.no, found.id, found.created_us, updated_us, no & SEQ_MAX, leaf, *row[6:-4])
        return convert(known, ThreadRow)
    except ValidationError as error:
        raise Corrupt(f"thread {row[1]!r}", f"its row cannot be read: {error}") from error


BEHIND = "its row does not know of its last move or fact; run clew verify"


# The plus keeps SQLite from preparing the join anew for every id that is bound.
_BY_ID = f"SELECT {THREAD} FROM {THREADS} WHERE t.space = +? AND t.id = +? AND t.shelf < 3"


def thread_row(db: apsw.Connection, space: int, id: str) -> ThreadRow:
    row = one(db, _BY_ID, (space, id))
    if row is None:
        raise NotFound("thread", id)
    return to_thread(row)


def facts_of(db: apsw.Connection, thread: int) -> Facts:
    """The latest values, and of those that are not there any more why: they hide no other one."""
    made: Facts = {}, {}
    try:
        found = every(db, f"{_FACTS} WHERE f.thread = ? ORDER BY f.key", (thread,))
    except Corrupt as error:
        return {}, {"": error.fields["reason"]}
    for _, key, body, blob in found:
        _add_fact(db, made, key, body, blob)
    return made


def facts_of_all(db: apsw.Connection, threads: Sequence[int]) -> dict[int, Facts]:
    """The same for a page of threads, by one statement."""
    made: dict[int, Facts] = {thread: ({}, {}) for thread in threads}
    wanted = f"[{','.join(map(str, threads))}]"
    where = "WHERE f.thread IN (SELECT value FROM json_each(?)) ORDER BY f.thread, f.key"
    try:
        # Row by row: thousands of tuples at once would set off Python's garbage collector.
        for thread, key, body, blob in each(db, f"{_FACTS} {where}", (wanted,)):
            _add_fact(db, made[thread], key, body, blob)
    except Corrupt:  # one by one: what is damaged must hide no other thread
        return {thread: facts_of(db, thread) for thread in threads}
    return made


def _add_fact(db: apsw.Connection, made: Facts, key: Any, body: Any, blob: Any) -> None:
    facts, lost = made
    try:
        value = body if body is not None else fetch_blob(db, blob)
    except Corrupt as error:
        lost[key] = str(error)
        return
    if isinstance(key, str) and isinstance(value, bytes):
        facts[key] = value
    else:
        lost[str(key)] = "it is not a key and JSON"


_FACTS = (
    "SELECT f.thread, f.key, r.body, r.blob FROM facts f LEFT JOIN records r ON r.no = f.record"
)


# --- asking SQLite: a row, all rows, or one value ---

Row = tuple[Any, ...]
Bindings = Sequence[Any] | Mapping[str, Any]


def one(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> Row | None:
    try:
        return db.execute(sql, bindings).fetchone()
    except UnicodeDecodeError as error:
        raise garbled(db, error) from error


def every(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> list[Row]:
    try:
        return db.execute(sql, bindings).fetchall()
    except UnicodeDecodeError as error:
        raise garbled(db, error) from error


def each(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> Iterator[Row]:
    """Row after row, for callers that may stop early or keep little."""
    try:
        yield from db.execute(sql, bindings)
    except UnicodeDecodeError as error:
        raise garbled(db, error) from error


def value(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> Any:
    try:
        return db.execute(sql, bindings).get
    except UnicodeDecodeError as error:
        raise garbled(db, error) from error


def garbled(db: apsw.Connection, error: UnicodeDecodeError) -> Corrupt:
    """SQLite hands out damaged text as it is; what cannot be decoded was not written by us."""
    return Corrupt(db.filename, f"text is not UTF-8: {error}; run clew verify")


def fetch_blob(db: apsw.Connection, no: int | None) -> bytes:
    row = one(db, "SELECT hash, size, codec, data FROM blobs WHERE no = ?", (no,))
    if row is None:
        place = "its body" if no is None else f"blob no. {no}"
        raise Corrupt(place, "it is missing")
    return unpack(*row)
