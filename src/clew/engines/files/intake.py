"""What a thread's file says, as rows of the index: each line is checked where it is taken in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw

from clew.core.codec import to_bytes, to_hash
from clew.core.errors import Corrupt, InvalidInput, NotFound, TooLarge
from clew.core.hashes import thread_hash
from clew.core.lines import Header, Line
from clew.core.model import Fact, Origin
from clew.core.names import check_name
from clew.engines.files.index import SPACE, Extent, Index, Untrue
from clew.engines.files.tail import FoundLine
from clew.engines.shared.tables import rows
from clew.engines.shared.tables.facts import set_damaged_fact, set_fact
from clew.engines.shared.tables.rows import one, value
from clew.engines.shared.thread_list import IN_USE, PURGED

_INSERT = (
    "INSERT INTO records (no, type, id, time_us, hash, parent, kind, body, start, length)"
    " VALUES (?,?,?,?,?,?,?,?,?,?)"
)
_TYPES = {"entry": rows.ENTRY, "move": rows.MOVE, "fact": rows.FACT}

Load = Callable[[str], bytes]  # the bytes of a blob


def apply(
    index: Index,
    header: Header,
    name: str | None,
    found: Sequence[FoundLine],
    extent: Extent,
    load: Load,
) -> None:
    """Take over records that follow those that are known.

    Another process may have done so in the meantime: what lies before the size it has noted is
    left out.
    """
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
            "UPDATE files SET size = ?2, last = ?3, stamp = ?4, damage = NULL"
            " WHERE no = ?1 AND size <= ?2",
            (no, extent.size, extent.last, extent.stamp),
        )


def note_damage(index: Index, name: str, header: Header, reason: str) -> None:
    """Why a file cannot be read to its end: what is known of its thread is still listed."""
    with index.writing() as db:
        no = value(db, "SELECT no FROM files WHERE name = ?", (name,))
        if no is None:
            no = index.number(header.key)
            _add_thread(index, db, no, header, name)
        db.execute("UPDATE files SET damage = ? WHERE no = ?", (reason, no))


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
        " shelf, parent, origin, origin_entry, origin_hash, origin_no, hash, space)"
        " VALUES (?1,?2,?3,?3,?3,0,?4,?5,?6,?7,?8,?4,?5,?9,?10,?11)",
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
            SPACE,
        ),
    )
    db.execute(
        "UPDATE files SET name = ?, size = 0, last = x'', stamp = 0 WHERE no = ?", (name, no)
    )


def _add_records(
    db: apsw.Connection, no: int, thread: str, found: Sequence[FoundLine], load: Load
) -> None:
    try:
        db.executemany(_INSERT, [_row(no, thread, item, load) for item in found])
    except apsw.ConstraintError as error:
        # Or the index has more of the file than it says.
        raise Untrue(f"thread {thread!r}", "the id of a record is there twice") from error
    for item in found:
        line = item.line
        uses = [(blob, 0) for blob in line.uses]
        if line.spilled is not None:
            uses.append((line.spilled, 1))
        for blob, body in uses:
            db.execute(
                "INSERT OR IGNORE INTO uses (blob, record, body) VALUES (?,?,?)",
                (blob, rows.number(no, line.seq), body),
            )


def _row(no: int, thread: str, item: FoundLine, load: Load) -> tuple[object, ...]:
    line = item.line
    parent = line.leaf if line.type == "move" else line.parent
    body = None
    try:
        check_name(line.id, "id")
        if parent is not None:
            check_name(parent, "parent")
        if line.type == "entry":
            check_name(line.kind, "kind")
        if line.type == "fact":
            check_name(line.key, "key")
            body = _value(line, thread, load)
        hash = to_bytes(line.hash)
    except (InvalidInput, TooLarge, ValueError, RecursionError) as error:
        # It matches its checksum, so that this is how it was written, but not by Clew.
        reason = f"it holds what Clew does not write: {error}"
        raise Corrupt(f"thread {thread!r} record {line.seq}", reason) from error
    if line.seq > rows.SEQ_MAX:
        raise Corrupt(f"thread {thread!r} record {line.seq}", "no thread has so many records")
    return (
        rows.number(no, line.seq),
        _TYPES[line.type],
        line.id,
        line.time_us,
        hash,
        parent,
        line.key or line.kind or None,
        body,
        item.start,
        item.length,
    )


def _value(line: Line, thread: str, load: Load) -> bytes | None:
    """The value of a fact: lists show it, so the index has it. None if it is gone."""
    try:
        fact = line.record(thread, None if line.spilled is None else load(line.spilled))
    except (NotFound, Corrupt):
        return None  # its blob is gone: the thread is there all the same, and lists tell
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
            at = rows.number(no, line.seq)
            data = value(db, "SELECT body FROM records WHERE no = ?", (at,))
            if data is None:
                set_damaged_fact(db, no, at, line.key)
                continue
            fact = Fact(header.draft.id, line.seq, line.id, 0, b"", line.key, data)
            set_fact(db, no, at, fact)
            continue
        updated_us = line.time_us
        if line.type == "move":
            leaf = line.leaf
            hash = value(db, "SELECT hash FROM records WHERE no = ?", (locate(leaf),))
            leaf_hash = None if hash is None else to_hash(hash)
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
