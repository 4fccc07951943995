"""Rows to records and back, and how to find one: the parts that reading and writing share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw
from msgspec import Struct

from clew.engines.sqlite import blobs
from clew.engines.sqlite.query import Row, every, one
from clew.errors import Corrupt, NotFound
from clew.model import Entry, Fact, Move, Origin, Record, ThreadInfo

ENTRY, MOVE, FACT = 0, 1, 2

Range = tuple[int, int, int]  # (thread, first seq, last seq)
Place = tuple[int, int]  # (thread, seq)

_COLUMNS = "seq, id, time_us, hash, parent, kind, body, turn, format, meta, blobs, blob, type"


# --- one record -----------------------------------------------------------------------------


def to_record(db: apsw.Connection, thread: str, row: tuple[Any, ...]) -> Record:
    seq, id, time_us, hash, parent, kind, body, turn, format, meta, uses, blob, type = row
    if type == MOVE:
        return Move(thread, seq, id, time_us, hash, parent)
    if body is None:
        body = blobs.fetch(db, blob)
    if type == FACT:
        return Fact(thread, seq, id, time_us, hash, kind, body)
    names = () if uses is None else tuple(uses.split(","))
    return Entry(thread, seq, id, time_us, hash, parent, kind, body, turn, format, meta, names)


def insert(db: apsw.Connection, thread: int, record: Record, blob: int | None) -> None:
    """Write a record; `blob` holds its body when that is large."""
    parent = kind = turn = format = meta = uses = body = None
    if isinstance(record, Entry):
        type, parent, kind, body = ENTRY, record.parent, record.kind, record.data
        turn, format, meta = record.turn, record.format, record.meta_data
        uses = ",".join(record.blobs) or None
    elif isinstance(record, Move):
        type, parent = MOVE, record.leaf
    else:
        assert isinstance(record, Fact)
        type, kind, body = FACT, record.key, record.data
    if blob is not None:
        body = None
    db.execute(
        f"INSERT INTO records (thread, {_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            thread,
            record.seq,
            record.id,
            record.time_us,
            record.hash,
            parent,
            kind,
            body,
            turn,
            format,
            meta,
            uses,
            blob,
            type,
        ),
    )


# --- finding --------------------------------------------------------------------------------


class Lineages:
    """The ranges of entries that forks inherit. They never change, so they are remembered."""

    def __init__(self) -> None:
        self._known: dict[Place, tuple[Range, ...]] = {}

    def of(self, db: apsw.Connection, origin: Place | None) -> tuple[Range, ...]:
        if origin is None:
            return ()
        found = self._known.get(origin)
        if found is None:
            found = tuple(path_ranges(db, origin))
            if len(self._known) > 1000:
                self._known.clear()
            self._known[origin] = found
        return found

    def clear(self) -> None:
        self._known.clear()


def path_ranges(db: apsw.Connection, place: Place) -> Iterator[Range]:
    """The path to an entry as ranges of records, the newest first: one lookup a segment."""
    thread, seq = place
    while True:
        row = one(
            db,
            "SELECT first_seq, parent_thread, parent_seq FROM segments"
            " WHERE thread = ? AND first_seq <= ? ORDER BY first_seq DESC LIMIT 1",
            (thread, seq),
        )
        if row is None:
            raise Corrupt(f"thread no. {thread}", f"record {seq} is in no segment")
        first_seq, parent_thread, parent_seq = row
        yield thread, first_seq, seq
        if parent_thread is None:
            return
        thread, seq = parent_thread, parent_seq


def locate(db: apsw.Connection, thread: int, lineage: tuple[Range, ...], id: str) -> Place | None:
    """Where an entry lies that is visible in a thread: its own, or on the path it inherits."""
    row = one(db, "SELECT seq FROM records WHERE id = ? AND thread = ? AND type = 0", (id, thread))
    if row is not None:
        return thread, row[0]
    return _locate_inherited(db, lineage, id)


def _locate_inherited(db: apsw.Connection, lineage: tuple[Range, ...], id: str) -> Place | None:
    for thread in dict.fromkeys(thread for thread, _, _ in lineage):
        row = one(
            db, "SELECT seq FROM records WHERE id = ? AND thread = ? AND type = 0", (id, thread)
        )
        if row is not None and any(
            where == thread and first <= row[0] <= last for where, first, last in lineage
        ):
            return thread, row[0]
    return None


def find(
    db: apsw.Connection, thread: int, name: str, lineage: tuple[Range, ...], id: str
) -> Record | None:
    """The record with an id among those visible in a thread."""
    row = one(db, f"SELECT {_COLUMNS} FROM records WHERE id = ? AND thread = ?", (id, thread))
    if row is not None:
        return to_record(db, name, row)
    place = _locate_inherited(db, lineage, id) if lineage else None
    if place is None:
        return None
    record: Record = next(scan(db, (place[0], place[1], place[1]), entries_only=True))
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
    name = name_of(db, span[0])
    only = "AND type = 0" if entries_only else ""
    direction = "DESC" if newest_first else "ASC"
    found = raw(db, span, f"{only} ORDER BY seq {direction} LIMIT ?", limit)
    return (to_record(db, name, row) for row in found)


def raw(
    db: apsw.Connection, span: Range, rest: str = "ORDER BY seq", *bindings: Any
) -> Iterator[Row]:
    """The rows of a range, as `to_record` takes them."""
    return db.execute(
        f"SELECT {_COLUMNS} FROM records WHERE thread = ? AND seq BETWEEN ? AND ? {rest}",
        (*span, *bindings),
    )


def name_of(db: apsw.Connection, thread: int) -> str:
    row = one(db, "SELECT id FROM threads WHERE no = ?", (thread,))
    if row is None:
        raise Corrupt(f"thread no. {thread}", "its row is missing")
    return str(row[0])


# --- threads --------------------------------------------------------------------------------

THREAD = (
    "no, id, created_us, updated_us, seq, leaf, parent, origin, origin_entry, origin_hash,"
    " origin_thread, origin_seq"
)


class ThreadRow(Struct, frozen=True):
    """A thread's row. `origin_thread` and `origin_seq` say where its shared path ends."""

    no: int
    id: str
    created_us: int
    updated_us: int
    seq: int
    leaf: str | None
    parent: str | None
    origin: str | None
    origin_entry: str | None
    origin_hash: str | None
    origin_thread: int | None
    origin_seq: int | None

    @property
    def place(self) -> Place | None:
        if self.origin_thread is None or self.origin_seq is None:
            return None
        return self.origin_thread, self.origin_seq

    def info(self, db: apsw.Connection) -> ThreadInfo:
        origin = None
        if self.origin is not None:
            origin = Origin(self.origin, self.origin_entry, self.origin_hash)
        facts = facts_of(db, self.no)
        return ThreadInfo(
            self.id,
            self.created_us,
            self.updated_us,
            self.seq,
            self.leaf,
            self.parent,
            origin,
            facts,
        )


def thread_row(db: apsw.Connection, id: str) -> ThreadRow:
    row = one(db, f"SELECT {THREAD} FROM threads WHERE id = ? AND shelf < 3", (id,))
    if row is None:
        raise NotFound("thread", id)
    return ThreadRow(*row)


def facts_of(db: apsw.Connection, thread: int) -> dict[str, bytes]:
    rows = every(
        db,
        "SELECT f.key, r.body, r.blob FROM facts f JOIN records r ON r.no = f.record"
        " WHERE f.thread = ? ORDER BY f.key",
        (thread,),
    )
    return {key: body if body is not None else blobs.fetch(db, blob) for key, body, blob in rows}
