"""Taking over into the index what a file says: its header, and records that are not known yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw
from msgspec import Struct

from clew.engines.files.index import Index
from clew.engines.files.lines import Header, Line
from clew.engines.files.tail import Found
from clew.engines.sqlite import rows
from clew.engines.sqlite.journal import IN_USE, PURGED, set_fact
from clew.engines.sqlite.query import one, value
from clew.errors import Corrupt
from clew.hashes import thread_hash
from clew.model import Fact, Origin

_INSERT = (
    "INSERT INTO records (no, type, id, time_us, hash, parent, kind, body, start, length)"
    " VALUES (?,?,?,?,?,?,?,?,?,?)"
)
_TYPES = {"entry": rows.ENTRY, "move": rows.MOVE, "fact": rows.FACT}

Load = Callable[[str], bytes]


class Extent(Struct, frozen=True):
    """How far a file was read: its size, its last bytes, and how it looked."""

    size: int
    last: bytes
    stamp: int


def apply(
    index: Index,
    header: Header,
    name: str | None,
    found: Sequence[Found],
    extent: Extent,
    load: Load,
) -> None:
    """Take over records that follow those that are known; others may have done so before."""
    with index.writing() as db:
        no = index.number(header.key)
        if value(db, "SELECT 1 FROM threads WHERE no = ?", (no,)) is None:
            _add_thread(index, db, no, header, name)
        size = value(db, "SELECT size FROM files WHERE no = ?", (no,))
        fresh = [item for item in found if item.start >= size]
        if fresh:
            _add_records(db, no, header.draft.id, fresh, load)
            _sum_up(index, db, no, header, [item.line for item in fresh])
        db.execute(
            "UPDATE files SET size = ?2, last = ?3, stamp = ?4 WHERE no = ?1 AND size <= ?2",
            (no, extent.size, extent.last, extent.stamp),
        )


def _add_thread(
    index: Index, db: apsw.Connection, no: int, header: Header, name: str | None
) -> None:
    draft, source = header.draft, header.source
    origin = draft.origin or Origin("", None, None)
    if name is not None:
        index.forget_name(name)  # an earlier thread of that id, which others have purged
    place = None if source is None else rows.number(index.number(source.key), source.seq)
    db.execute(
        "INSERT INTO threads (no, id, created_us, updated_us, listed_us, seq, leaf, leaf_hash,"
        " shelf, parent, origin, origin_entry, origin_hash, origin_no, hash)"
        " VALUES (?1,?2,?3,?3,?3,0,?4,?5,?6,?7,?8,?4,?5,?9,?10)",
        (
            no,
            draft.id,
            draft.created_us,
            origin.entry,
            origin.hash,
            PURGED if header.purged else IN_USE,
            draft.parent,
            origin.thread or None,
            place,
            thread_hash(draft.id, draft.created_us, draft.parent, draft.origin),
        ),
    )
    db.execute(
        "UPDATE files SET name = ?, size = 0, last = x'', stamp = 0 WHERE no = ?", (name, no)
    )


def _add_records(
    db: apsw.Connection, no: int, thread: str, found: Sequence[Found], load: Load
) -> None:
    try:
        db.executemany(_INSERT, [_row(no, thread, item, load) for item in found])
    except apsw.ConstraintError as error:
        raise Corrupt(f"thread {thread!r}", "the id of a record is there twice") from error
    for item in found:
        line = item.line
        uses = [(blob, 0) for blob in line.blobs]
        if line.spilled is not None:
            uses.append((line.spilled, 1))
        for blob, body in uses:
            db.execute(
                "INSERT OR IGNORE INTO uses (blob, record, body) VALUES (?,?,?)",
                (blob, rows.number(no, line.seq), body),
            )


def _row(no: int, thread: str, item: Found, load: Load) -> tuple[object, ...]:
    line = item.line
    parent = line.leaf if line.type == "move" else line.parent
    body = _value(line, thread, load) if line.type == "fact" else None
    return (
        rows.number(no, line.seq),
        _TYPES[line.type],
        line.id,
        line.time_us,
        line.hash,
        parent,
        line.key or line.kind or None,
        body,
        item.start,
        item.length,
    )


def _value(line: Line, thread: str, load: Load) -> bytes:
    """A fact's value: lists show it, so the index has it."""
    fact = line.record(thread, None if line.spilled is None else load(line.spilled))
    assert isinstance(fact, Fact)
    return fact.data


def _sum_up(
    index: Index, db: apsw.Connection, no: int, header: Header, lines: Sequence[Line]
) -> None:
    """What the records add up to: segments, facts, and where the thread stands."""
    row = one(db, "SELECT leaf, leaf_hash, tail, updated_us FROM threads WHERE no = ?", (no,))
    leaf, leaf_hash, tail, updated_us = row or (None, None, None, 0)

    def locate(id: str | None) -> int | None:
        return None if id is None else index.locate(no, id)

    for line in lines:
        if line.type == "fact":
            _set_fact(db, no, header.draft.id, line)
            continue
        updated_us = line.time_us
        if line.type == "move":
            leaf = line.leaf
            leaf_hash = value(db, "SELECT hash FROM records WHERE no = ?", (locate(leaf),))
            continue
        if line.parent is None or line.parent != tail:
            db.execute(
                "INSERT INTO segments (first, parent) VALUES (?,?)",
                (rows.number(no, line.seq), locate(line.parent)),
            )
        leaf, leaf_hash, tail = line.id, line.hash, line.id
    if header.purged:
        leaf = leaf_hash = None
    db.execute(
        "UPDATE threads SET seq = ?, leaf = ?, leaf_hash = ?, tail = ?, updated_us = ?5,"
        " listed_us = ?5 WHERE no = ?6",
        (lines[-1].seq, leaf, leaf_hash, tail, updated_us, no),
    )


def _set_fact(db: apsw.Connection, no: int, thread: str, line: Line) -> None:
    place = rows.number(no, line.seq)
    data = value(db, "SELECT body FROM records WHERE no = ?", (place,))
    set_fact(db, no, place, Fact(thread, line.seq, line.id, 0, line.hash, line.key, data))
