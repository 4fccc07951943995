"""Writing: creating threads and appending records, inside a transaction that is open already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import apsw
from msgspec import UnsetType
from msgspec.structs import astuple

from clew.core.errors import Corrupt, InvalidInput, NotFound
from clew.core.hashes import thread_hash
from clew.core.lease_rules import Instant, LeaseState
from clew.core.model import Draft, Entry, Fact, Origin, Record, ThreadDraft, ThreadInfo
from clew.core.reducer import Head, Plan, check_origin, check_recreated, plan
from clew.engines.shared.compression import Packed
from clew.engines.shared.tables import rows
from clew.engines.shared.tables.facts import set_fact
from clew.engines.shared.tables.namespaces import Space
from clew.engines.shared.tables.rows import Lineage, Lineages, one
from clew.engines.sqlite import blobs, leases

# The plus keeps SQLite from preparing the join anew for every id that is bound.
_HEAD = (
    "SELECT t.no, t.origin_no, t.listed_us, t.id, t.seq, t.leaf, t.leaf_hash, t.tail, t.updated_us,"
    f" t.deleted_us, {leases.COLUMNS}"
    " FROM threads t LEFT JOIN leases l ON l.thread = t.no"
    " WHERE t.space = +? AND t.id = +? AND t.shelf < 3"
)


def append(
    db: apsw.Connection,
    lineages: Lineages,
    space: int,
    thread: str,
    drafts: Sequence[Draft],
    packed: Mapping[str, Packed],
    *,
    expect: str | UnsetType | None,
    fence: int | None,
    clock: Callable[[], Instant],
) -> list[Record]:
    """Plan the batch on what is stored now, then write what is new of it."""
    row = one(db, _HEAD, (space, thread))
    if row is None:
        raise NotFound("thread", thread)
    if not 0 < row[0] <= rows.THREAD_NO_MAX:
        raise Corrupt(f"thread {thread!r}", f"its number is {row[0]}; run clew verify")
    no, lineage = row[0], lineages.of(db, row[1])
    decided = plan(
        Head(*row[3:10]),
        drafts,
        partial(rows.find, db, no, thread, lineage),
        expect=expect,
        fence=fence,
        lease=None if row[10] is None else LeaseState(*row[10:]).live(thread, clock()),
        hashes={id: blob.hash for id, blob in packed.items()},
    )
    if decided.new:
        if row[2] is not None and decided.head.updated_us != row[2]:
            # Once, until the list is asked for: keeping an index of what changes with every
            # append would cost every append.
            db.execute("UPDATE threads SET listed_us = NULL WHERE no = ?", (no,))
        _write(db, space, no, lineage, decided, packed, clock)
    return decided.records


def _write(
    db: apsw.Connection,
    space: int,
    no: int,
    lineage: Lineage,
    decided: Plan,
    packed: Mapping[str, Packed],
    clock: Callable[[], Instant],
) -> None:
    uses = _find_blobs(db, space, decided.new)
    for record in decided.new:
        record_no = no << 32 | record.seq  # as `rows.number` says
        blob = packed.get(record.id)
        body = None if blob is None else blobs.put(db, space, blob, clock().wall_us)
        rows.insert(db, record_no, record, body)
        if isinstance(record, Fact):
            set_fact(db, no, record_no, record)
        elif isinstance(record, Entry) and record.blobs:
            blobs.use(db, record_no, [uses[hash] for hash in record.blobs])
    for id, parent in decided.starts.items():
        _start_segment(db, no, lineage, id, parent)
    head = decided.head
    db.execute(
        "UPDATE threads SET seq = ?, leaf = ?, leaf_hash = ?, tail = ?, updated_us = ?"
        " WHERE no = ?",
        (head.seq, head.leaf, head.leaf_hash, head.tail, head.updated_us, no),
    )


def _find_blobs(db: apsw.Connection, space: int, records: Sequence[Record]) -> dict[str, int]:
    """The numbers of the blobs that entries refer to; all of them must be there."""
    wanted = [hash for r in records if isinstance(r, Entry) for hash in r.blobs]
    found = blobs.numbers(db, space, wanted) if wanted else {}
    for hash in wanted:
        if hash not in found:
            raise InvalidInput("blobs", f"blob {hash!r} is not in the store; put it first")
    return found


def _start_segment(
    db: apsw.Connection, no: int, lineage: Lineage, first: str, parent: str | None
) -> None:
    db.execute(
        "INSERT INTO segments (first, parent) VALUES (?,?)",
        (
            rows.locate(db, no, (), first),
            None if parent is None else rows.locate(db, no, lineage, parent),
        ),
    )


# --- threads --------------------------------------------------------------------------------


def create(
    db: apsw.Connection,
    lineages: Lineages,
    space: Space,
    draft: ThreadDraft,
    packed: Mapping[str, Packed],
    clock: Callable[[], Instant],
) -> ThreadInfo:
    existing = _existing(db, space.no, draft)
    if existing is not None:
        return existing
    origin = draft.origin
    place = None if origin is None else _origin_place(db, lineages, space.no, origin)
    source, entry, hash = (None, None, None) if origin is None else astuple(origin)
    db.execute(
        "INSERT INTO threads (id, created_us, updated_us, listed_us, seq, leaf, leaf_hash, shelf,"
        " parent, origin, origin_entry, origin_hash, origin_no, hash, space)"
        " VALUES (?1,?2,?2,?2,0,?3,?4,0,?5,?6,?3,?4,?7,?8,?9)",
        (
            draft.id,
            draft.created_us,
            entry,
            hash,
            draft.parent,
            source,
            place,
            thread_hash(draft.id, draft.created_us, draft.parent, origin, space.name),
            space.no,
        ),
    )
    if draft.facts:
        no = db.last_insert_rowid()
        head = Head(
            draft.id,
            leaf=entry,
            leaf_hash=hash,
            updated_us=draft.created_us,
        )
        hashes = {id: blob.hash for id, blob in packed.items()}
        decided = plan(head, draft.facts, lambda id: None, hashes=hashes)
        _write(db, space.no, no, (), decided, packed, clock)
    return rows.thread_row(db, space.no, draft.id).info(db)


def relist(db: apsw.Connection, space: int) -> None:
    """Bring the threads that have changed back into the index of what changed when."""
    query = "UPDATE threads SET listed_us = updated_us WHERE space = ? AND listed_us IS NULL"
    db.execute(query, (space,))


def _existing(db: apsw.Connection, space: int, draft: ThreadDraft) -> ThreadInfo | None:
    """The thread if this very draft made it; any other thread of that id is in the way."""
    try:
        row = rows.thread_row(db, space, draft.id)
    except NotFound:
        return None
    info, count = row.info(db), len(draft.facts)
    span = rows.everything_of(row.no)
    check_recreated(info, list(rows.scan(db, span, entries_only=False, limit=count)), draft)
    return info


def _origin_place(
    db: apsw.Connection, lineages: Lineages, space: int, origin: Origin
) -> int | None:
    source = rows.thread_row(db, space, origin.thread)
    if origin.entry is None:
        return None
    entry = rows.find(db, source.no, source.id, lineages.of(db, source.origin_no), origin.entry)
    if not isinstance(entry, Entry):
        raise NotFound("entry", origin.entry)
    check_origin(origin, entry.hash)
    return rows.locate(db, source.no, lineages.of(db, source.origin_no), origin.entry)
