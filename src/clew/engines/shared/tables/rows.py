"""Rows to records and back, and how to find one: the parts that reading and writing share."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import NoneType
from typing import Annotated, Any

import apsw
from msgspec import Meta, Struct, ValidationError, convert

from clew.core.errors import Corrupt, NotFound
from clew.core.facts import TIME_US_MAX, TIME_US_MIN
from clew.core.model import Entry, Fact, Move, Origin, Record, ThreadInfo
from clew.core.names import ID_BYTES_MAX
from clew.engines.shared.compression import unpack

ENTRY, MOVE, FACT = 0, 1, 2
SEQ_MAX = 0xFFFF_FFFF
THREAD_NO_MAX = (1 << 31) - 1  # so that the numbers of its records have 63 bits

Range = tuple[int, int]  # the numbers of the first and the last record

_COLUMNS = (
    "no, type, id, time_us, hash, parent, kind, turn, format, meta, blobs, body_hash, blob, body"
)
# Whether a body is there can be told without reading it.
_HEADS = _COLUMNS.removesuffix("body") + "iif(type = 0, iif(body IS NULL, NULL, x''), body)"
_INSERT = f"INSERT INTO records ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_FIND = f"SELECT {_COLUMNS} FROM records WHERE id = ? AND no >> 32 = ?"
# The rows of a range, as `to_record` takes them; the second one has entries without their bodies.
IN_RANGE = f"SELECT {_COLUMNS} FROM records WHERE no BETWEEN ? AND ?"
HEADS_IN_RANGE = f"SELECT {_HEADS} FROM records WHERE no BETWEEN ? AND ?"


def number(thread: int, seq: int) -> int:
    """The number of a record: its thread's, then its seq."""
    return thread << 32 | seq


# --- one record -----------------------------------------------------------------------------


_TEXT, _BYTES, _NUMBER = (str, NoneType), (bytes, NoneType), (int, NoneType)
_TYPES = (
    *((int,), (int,), (str,), (int,), (bytes,), _TEXT, _TEXT, _TEXT, _TEXT, _BYTES),
    *(_TEXT, _BYTES, _NUMBER, _BYTES),
)
# Combinations of types that were found right: looking one up is all that a record costs.
_right: set[tuple[type, ...]] = set()


def _check_types(thread: str, row: Row) -> None:
    """A file that others made may hold anything in any column, whatever its schema says."""
    types = tuple(map(type, row))
    if types not in _right:
        for value, allowed in zip(row, _TYPES, strict=True):
            if type(value) not in allowed:
                what = f"record no. {row[0]!r} of {thread!r}"
                raise Corrupt(what, f"it has a {type(value).__name__} where none can be")
        _right.add(types)
    if not TIME_US_MIN <= row[3] <= TIME_US_MAX:
        raise Corrupt(f"record no. {row[0]} of {thread!r}", f"its time is {row[3]} µs")


def to_record(db: apsw.Connection, thread: str, row: Row) -> Record:
    _check_types(thread, row)
    no, type, id, time_us, hash, parent, kind, turn, format, meta, uses, own, blob, body = row
    seq, hash = no & SEQ_MAX, "b3:" + hash.hex()  # written out: it is done for every record read
    if type == MOVE:
        return Move(thread, seq, id, time_us, hash, parent)
    if body is None:
        if blob is None:
            raise Corrupt(f"record {seq} of {thread!r}", "its body is missing")
        body = fetch_blob(db, blob)
    if kind is None or (type != FACT and own is None):
        raise Corrupt(f"record {seq} of {thread!r}", "its kind or its hash is missing")
    if type == FACT:
        return Fact(thread, seq, id, time_us, hash, kind, body)
    own = "b3:" + own.hex()
    names = () if uses is None else tuple(uses.split(","))
    return Entry(thread, seq, id, time_us, hash, parent, kind, body, own, turn, format, meta, names)


def insert(db: apsw.Connection, no: int, record: Record, blob: int | None) -> None:
    """Write a record; `blob` holds its body when that is large."""
    # Written out as in `to_record`: these hashes are our own, and it is done for every record.
    start = (record.id, record.time_us, bytes.fromhex(record.hash[3:]))
    if isinstance(record, Entry):
        body = record.data if blob is None else None
        uses = ",".join(record.blobs) or None
        row: Row = (
            *(no, ENTRY, *start),
            *(record.parent, record.kind, record.turn, record.format, record.meta_data, uses),
            *(bytes.fromhex(record.body_hash[3:]), blob, body),
        )
    elif isinstance(record, Move):
        row = (no, MOVE, *start, record.leaf, *(None,) * 8)
    else:
        assert isinstance(record, Fact)
        body = record.data if blob is None else None
        row = (no, FACT, *start, None, record.key, *(None,) * 5, blob, body)
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
    return row[0], row[1]


def locate(db: apsw.Connection, thread: int, lineage: Lineage, id: str) -> int | None:
    """The number of an entry that is visible in a thread: its own, or on the path it inherits."""
    row = one(db, _LOCATE, (id, thread))
    return locate_inherited(db, lineage, id) if row is None else int(row[0])


_LOCATE = "SELECT no FROM records WHERE id = ? AND no >> 32 = ? AND type = 0"


def locate_inherited(db: apsw.Connection, lineage: Lineage, id: str) -> int | None:
    """Thread by thread, as far as most forks reach; what lies further up, by the id alone."""
    ranges = iter(lineage)
    near = list(islice(ranges, _NEAR))
    for thread in dict.fromkeys(first >> 32 for first, _ in near):
        row = one(db, _LOCATE, (id, thread))
        if row is not None and any(first <= row[0] <= last for first, last in near):
            return int(row[0])
    if len(near) < _NEAR:
        return None
    places = {no >> 32: no for (no,) in each(db, _LOCATE_ALL, (id,))}
    for first, last in ranges if places else ():
        no = places.get(first >> 32)
        if no is not None and first <= no <= last:
            return int(no)
    return None


_NEAR = 64  # ranges
_LOCATE_ALL = "SELECT no FROM records WHERE id = ? AND type = 0"


def find(db: apsw.Connection, thread: int, name: str, lineage: Lineage, id: str) -> Record | None:
    """The record with an id among those visible in a thread."""
    row = one(db, _FIND, (id, thread))
    if row is not None:
        return to_record(db, name, row)
    no = locate_inherited(db, lineage, id) if lineage else None
    if no is None:
        return None
    record: Record = next(scan(db, (no, no), entries_only=True))
    return record


def scan(
    db: apsw.Connection,
    span: Range,
    *,
    entries_only: bool,
    limit: int = -1,
    newest_first: bool = False,
) -> Iterator[Any]:
    """The records of a range, in order."""
    name = name_of(db, span[0] >> 32)
    only = "AND type = 0" if entries_only else ""
    direction = "DESC" if newest_first else "ASC"
    # Row by row: thousands of tuples at once would set off Python's garbage collector.
    found = raw(db, span, f"{only} ORDER BY no {direction} LIMIT ?", limit)
    return (to_record(db, name, row) for row in found)


def raw(
    db: apsw.Connection, span: Range, rest: str = "ORDER BY no", *bindings: Any
) -> Iterator[Row]:
    """The rows of a range, as `to_record` takes them."""
    return each(db, f"{IN_RANGE} {rest}", (*span, *bindings))


def everything_of(thread: int, after: int = 0) -> Range:
    """The range of a thread's records with a greater seq."""
    return number(thread, after) + 1, number(thread, SEQ_MAX)


def name_of(db: apsw.Connection, thread: int) -> str:
    row = one(db, "SELECT id FROM threads WHERE no = ?", (thread,))
    if row is None:
        raise Corrupt(f"thread no. {thread}", "its row is missing")
    return str(row[0])


# --- threads --------------------------------------------------------------------------------

THREAD = (
    "no, id, created_us, updated_us, seq, leaf, parent, origin, origin_entry, origin_hash,"
    " origin_no"
)


Number = Annotated[int, Meta(ge=1, le=THREAD_NO_MAX)]
Time = Annotated[int, Meta(ge=TIME_US_MIN, le=TIME_US_MAX)]
Name = Annotated[str, Meta(max_length=ID_BYTES_MAX)]


Facts = tuple[dict[str, bytes], dict[str, str]]  # those that can be read; the others, and why not


class ThreadRow(Struct, frozen=True, array_like=True):
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
    try:
        return convert(row, ThreadRow)
    except ValidationError as error:
        raise Corrupt(f"thread {row[1]!r}", f"its row cannot be read: {error}") from error


def thread_row(db: apsw.Connection, space: int, id: str) -> ThreadRow:
    query = f"SELECT {THREAD} FROM threads WHERE space = ? AND id = ? AND shelf < 3"
    row = one(db, query, (space, id))
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
    where = "WHERE f.thread IN (SELECT value FROM json_each(?)) ORDER BY f.thread, f.key"
    try:
        found = every(db, f"{_FACTS} {where}", (f"[{','.join(map(str, threads))}]",))
    except Corrupt:  # one by one: what is damaged must hide no other thread
        return {thread: facts_of(db, thread) for thread in threads}
    for thread, key, body, blob in found:
        _add_fact(db, made[thread], key, body, blob)
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


def patience(seconds: float) -> Callable[[int], bool]:
    """A busy handler: wait for other processes in short random naps, up to a limit.

    SQLite's own backs off to 100 ms, which starves the process that has waited longest.
    """
    deadline = 0.0

    def wait(tries: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        if tries == 0:
            deadline = now + seconds
        if now >= deadline:
            return False
        time.sleep(random.uniform(0.0001, 0.002))
        return True

    return wait
