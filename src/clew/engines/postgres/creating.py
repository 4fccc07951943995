"""Making threads and forks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import psycopg

from clew.codec import decode
from clew.engines._packing import Packed
from clew.engines.postgres import reading, rows
from clew.engines.postgres.errors import SOURCE_GONE
from clew.engines.postgres.finding import Book, Finder
from clew.engines.postgres.journal import settle, write
from clew.engines.postgres.rows import Place, Stand, to_bytes
from clew.engines.postgres.wire import Wire
from clew.errors import Conflict, NotFound
from clew.hashes import thread_hash
from clew.model import Entry, Origin, ThreadDraft, ThreadInfo
from clew.state import Head, check_origin, check_recreated, plan

_CREATE = f"SELECT clew.create_thread({', '.join(['%s'] * 11)})"


def create(wire: Wire, book: Book, draft: ThreadDraft, packed: Mapping[str, Packed]) -> ThreadInfo:
    try:
        stand = _make(wire, book, draft, packed)
    except (Conflict, NotFound) as error:
        # What is there goes before what is missing: the source may be gone since it was forked.
        try:
            return _existing(wire, book, draft)
        except NotFound:
            raise error from None
    if stand is None:
        return _existing(wire, book, draft)
    info = reading.thread(wire, book, draft.id)[1]
    if not draft.facts:
        book.heads.note(draft.id, stand)
    return info


def _make(wire: Wire, book: Book, draft: ThreadDraft, packed: Mapping[str, Packed]) -> Stand | None:
    """Where the new thread stands, before its first facts; None if there is one of that id."""
    origin = draft.origin
    source, place = (None, None) if origin is None else _origin_place(wire, book, origin)
    with wire.transaction() if draft.facts else nullcontext():
        no = _insert(wire, book, draft, source, place)
        if no is None:
            return None
        stand = Stand(no, place, place, _head(draft))
        if draft.facts:
            _write_facts(wire, book, draft, stand, packed)
    return stand


def _head(draft: ThreadDraft) -> Head:
    origin = draft.origin or Origin("", None, None)
    return Head(draft.id, leaf=origin.entry, leaf_hash=origin.hash, updated_us=draft.created_us)


def _info(draft: ThreadDraft, head: Head) -> ThreadInfo:
    """What `thread` would say of a thread that was just made."""
    said = {fact.key: fact.data for fact in draft.facts}
    facts = {key: said[key] for key in sorted(said) if decode(said[key]) is not None}
    return ThreadInfo(
        draft.id,
        draft.created_us,
        head.updated_us,
        head.seq,
        head.leaf,
        draft.parent,
        draft.origin,
        facts,
    )


def _insert(
    wire: Wire, book: Book, draft: ThreadDraft, source: int | None, place: Place | None
) -> int | None:
    """The number of the new thread; None if there is one of that id."""
    origin = draft.origin or Origin(None, None, None)  # type: ignore[arg-type]
    made = (draft.id, draft.created_us, draft.parent, draft.origin)
    hash = thread_hash(*made, book.namespace)
    bindings = (
        *(book.space, draft.id, draft.created_us, draft.parent, to_bytes(hash)),
        *(origin.thread, origin.entry, to_bytes(origin.hash)),
        *(source, *(place or (None, None))),
    )
    try:
        no: int | None = wire.value(book.sql(_CREATE), bindings)
        return no
    except psycopg.DatabaseError as error:
        if error.sqlstate == SOURCE_GONE:
            raise NotFound("thread", origin.thread) from None
        raise


def _write_facts(
    wire: Wire, book: Book, draft: ThreadDraft, stand: Stand, packed: Mapping[str, Packed]
) -> Head:
    finder = Finder(wire, book, stand, unheard={fact.id for fact in draft.facts})
    decided = plan(stand.head, draft.facts, finder)
    write(wire, book, stand, decided, finder, packed, facts_only=True)
    return decided.head


def _existing(wire: Wire, book: Book, draft: ThreadDraft) -> ThreadInfo:
    """The thread if this very draft made it; any other thread of that id is in the way."""
    row, info = reading.thread(wire, book, draft.id)
    count = len(draft.facts)
    first = reading.read(wire, book, draft.id, 0, count) if count else []
    check_recreated(info, first, draft)
    settle(wire, book, row.no)
    return info


_ENTRY_AT = f"""
SELECT {rows.RECORD.format(name="t.id")}
  FROM clew.records r
  JOIN clew.threads t ON t.space = r.space AND t.no = r.thread
  {rows.WITH_BODY}
 WHERE r.space = %s AND r.thread = %s AND r.seq = %s
"""


def _origin_place(wire: Wire, book: Book, origin: Origin) -> tuple[int, Place | None]:
    """The number of the thread that is forked, and where the last shared entry is."""
    source = reading.thread_row(wire, book, origin.thread)
    if origin.entry is None:
        return source.no, None
    place = reading.locate(wire, book, source, origin.entry)
    row = wire.one(book.sql(_ENTRY_AT), (book.space, *place))
    if row is None:
        raise NotFound("entry", origin.entry)
    entry = rows.to_record(row)
    assert isinstance(entry, Entry)
    check_origin(origin, entry)
    return source.no, place
