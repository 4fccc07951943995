"""Writing: creating threads and appending records, inside a transaction that is open already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw
from msgspec import UnsetType
from msgspec.structs import astuple

from clew.codec import decode
from clew.engines.sqlite import blobs, leases, rows
from clew.engines.sqlite.blobs import Packed
from clew.engines.sqlite.query import one
from clew.engines.sqlite.rows import Lineages, Place, Range
from clew.errors import InvalidInput, NotFound
from clew.hashes import thread_hash
from clew.leasing import Instant
from clew.model import (
    Draft,
    Entry,
    Fact,
    Origin,
    Record,
    ThreadDraft,
    ThreadInfo,
)
from clew.state import Head, Plan, check_origin, check_recreated, plan

IN_USE, ARCHIVED, DELETED, PURGED = range(4)

_HEAD = (
    "SELECT no, origin_thread, origin_seq, id, seq, leaf, leaf_hash, tail, updated_us, deleted_us"
    " FROM threads WHERE id = ? AND shelf < 3"
)


def append(
    db: apsw.Connection,
    lineages: Lineages,
    thread: str,
    drafts: Sequence[Draft],
    packed: Mapping[str, Packed],
    *,
    expect: str | UnsetType | None,
    fence: int | None,
    now: Instant,
) -> list[Record]:
    """Plan the batch on what is stored now, then write what is new of it."""
    row = one(db, _HEAD, (thread,))
    if row is None:
        raise NotFound("thread", thread)
    no, origin_thread, origin_seq = row[:3]
    head = Head(*row[3:])
    origin = None if origin_thread is None else (origin_thread, origin_seq)
    lineage = lineages.of(db, origin)
    decided = plan(
        head,
        drafts,
        lambda id: rows.find(db, no, thread, lineage, id),
        expect=expect,
        fence=fence,
        lease=leases.load(db, no).live(thread, now),
    )
    if decided.new:
        _write(db, no, lineage, decided, packed, now)
    return decided.records


def _write(
    db: apsw.Connection,
    no: int,
    lineage: tuple[Range, ...],
    decided: Plan,
    packed: Mapping[str, Packed],
    now: Instant,
) -> None:
    uses = _find_blobs(db, decided.new)
    places = {record.id: (no, record.seq) for record in decided.new}
    for record in decided.new:
        if record.id in decided.starts:
            _start_segment(db, no, record.seq, decided.starts[record.id], lineage, places)
        blob = packed.get(record.id)
        rows.insert(db, no, record, None if blob is None else blobs.put(db, blob, now.wall_us))
        if isinstance(record, Fact):
            _set_fact(db, no, record)
        elif isinstance(record, Entry) and record.blobs:
            blobs.use(db, db.last_insert_rowid(), [uses[hash] for hash in record.blobs])
    head = decided.head
    db.execute(
        "UPDATE threads SET seq = ?, leaf = ?, leaf_hash = ?, tail = ?, updated_us = ?"
        " WHERE no = ?",
        (head.seq, head.leaf, head.leaf_hash, head.tail, head.updated_us, no),
    )


def _find_blobs(db: apsw.Connection, records: Sequence[Record]) -> dict[str, int]:
    """The numbers of the blobs that entries refer to; all of them must be there."""
    wanted = [hash for r in records if isinstance(r, Entry) for hash in r.blobs]
    found = blobs.numbers(db, wanted) if wanted else {}
    for hash in wanted:
        if hash not in found:
            raise InvalidInput("blobs", f"blob {hash!r} is not in the store; put it first")
    return found


def _start_segment(
    db: apsw.Connection,
    no: int,
    seq: int,
    parent: str | None,
    lineage: tuple[Range, ...],
    places: Mapping[str, Place],
) -> None:
    place: Place | None = None
    if parent is not None:
        place = places.get(parent) or rows.locate(db, no, lineage, parent)
        assert place is not None, "plan has found the parent"
    db.execute(
        "INSERT INTO segments (thread, first_seq, parent_thread, parent_seq) VALUES (?,?,?,?)",
        (no, seq, *(place or (None, None))),
    )


# --- facts ----------------------------------------------------------------------------------


def _set_fact(db: apsw.Connection, no: int, fact: Fact) -> None:
    value = decode(fact.data)
    if value is None:
        db.execute("DELETE FROM facts WHERE thread = ? AND key = ?", (no, fact.key))
    else:
        db.execute(
            "INSERT INTO facts (thread, key, record) VALUES (?1, ?2, ?3)"
            " ON CONFLICT DO UPDATE SET record = ?3",
            (no, fact.key, db.last_insert_rowid()),
        )
    _mirror(db, no, fact.key, value)


def _mirror(db: apsw.Connection, no: int, key: str, value: Any) -> None:
    """The facts that lists filter by stand in columns as well."""
    if key in ("status", "workspace"):
        db.execute(f"UPDATE threads SET {key} = ? WHERE no = ?", (value, no))
    elif key == "tags":
        db.execute("DELETE FROM tags WHERE thread = ?", (no,))
        for tag in dict.fromkeys(value or ()):
            db.execute("INSERT INTO tags (tag, thread) VALUES (?,?)", (tag, no))
    elif key == "archived":
        shelf = ARCHIVED if value else IN_USE
        db.execute("UPDATE threads SET shelf = ? WHERE no = ? AND shelf < 2", (shelf, no))
    elif key == "deleted_us":
        shelf = DELETED if value is not None else _shelf_by_facts(db, no)
        db.execute("UPDATE threads SET deleted_us = ?, shelf = ? WHERE no = ?", (value, shelf, no))


def _shelf_by_facts(db: apsw.Connection, no: int) -> int:
    archived = rows.facts_of(db, no).get("archived", b"false")
    return ARCHIVED if decode(archived) else IN_USE


# --- threads --------------------------------------------------------------------------------


def create(
    db: apsw.Connection,
    lineages: Lineages,
    draft: ThreadDraft,
    packed: Mapping[str, Packed],
    now: Instant,
) -> ThreadInfo:
    existing = _existing(db, draft)
    if existing is not None:
        return existing
    origin = draft.origin
    place = None if origin is None else _origin_place(db, lineages, origin)
    source, entry, hash = (None, None, None) if origin is None else astuple(origin)
    db.execute(
        "INSERT INTO threads (id, created_us, updated_us, seq, leaf, leaf_hash, shelf, parent,"
        " origin, origin_entry, origin_hash, origin_thread, origin_seq, hash)"
        " VALUES (?,?,?,0,?,?,0,?,?,?,?,?,?,?)",
        (
            draft.id,
            draft.created_us,
            draft.created_us,
            entry,
            hash,
            draft.parent,
            source,
            entry,
            hash,
            *(place or (None, None)),
            thread_hash(draft.id, draft.created_us, draft.parent, origin),
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
        _write(db, no, (), plan(head, draft.facts, lambda id: None), packed, now)
    return rows.thread_row(db, draft.id).info(db)


def _existing(db: apsw.Connection, draft: ThreadDraft) -> ThreadInfo | None:
    """The thread if this very draft made it; any other thread of that id is in the way."""
    try:
        info = rows.thread_row(db, draft.id).info(db)
    except NotFound:
        return None
    check_recreated(info, draft)
    return info


def _origin_place(db: apsw.Connection, lineages: Lineages, origin: Origin) -> Place | None:
    source = rows.thread_row(db, origin.thread)
    if origin.entry is None:
        return None
    entry = rows.find(db, source.no, source.id, lineages.of(db, source.place), origin.entry)
    if not isinstance(entry, Entry):
        raise NotFound("entry", origin.entry)
    check_origin(origin, entry)
    return rows.locate(db, source.no, lineages.of(db, source.place), origin.entry)
