"""Making threads and forks, with their first facts: one statement, unless one is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clew.codec import decode
from clew.engines._packing import Packed
from clew.engines.postgres import blobs, reading
from clew.engines.postgres.finding import Book
from clew.engines.postgres.journal import columns, listed_value, settle, uses_of
from clew.engines.postgres.rows import Stand, to_bytes, to_hash
from clew.engines.postgres.wire import Wire
from clew.errors import Conflict, NotFound
from clew.hashes import thread_hash
from clew.model import Entry, Fact, Origin, Record, ThreadDraft, ThreadInfo
from clew.state import Head, check_origin, check_recreated, plan


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
    book.heads.note(draft.id, stand)
    return _info(draft, stand.head)


_ARRAYS = (
    *("bigint text bigint bytea text text bytea bytea".split()),
    *("bytea bigint".split()),
    *("bytea bigint text bytea bytea".split()),
)
_CREATE = (
    f"SELECT made, source, at_thread, at_seq, actual FROM clew.create_thread({'%s, ' * 10}"
    + ", ".join(f"%b::{name}[]" for name in _ARRAYS)
    + ")"
)


def _make(wire: Wire, book: Book, draft: ThreadDraft, packed: Mapping[str, Packed]) -> Stand | None:
    """Where the new thread stands; None if there is one of that id."""
    origin = draft.origin or Origin("", None, None)
    head = Head(draft.id, leaf=origin.entry, leaf_hash=origin.hash, updated_us=draft.created_us)
    decided = plan(head, draft.facts, lambda id: None)
    load = list(packed.values())
    if blobs.weigh(load) > blobs.LOAD_BYTES:
        # Too much for one statement: it lies there already when the facts refer to it.
        blobs.put(wire, book, load)
        load = []
    bindings = (
        *_thread(book, draft),
        *(decided.head.seq, decided.head.updated_us),
        *_facts(decided.new, packed),
        *blobs.columns(load),
    )
    row = wire.one(book.sql(_CREATE), bindings)
    assert row is not None
    no, source, thread, seq, actual = row
    if no is None:
        if draft.origin is not None:
            _check_origin(draft.origin, source, actual)
        return None
    place = None if thread is None else (thread, seq)
    return Stand(no, place, place, decided.head)


def _thread(book: Book, draft: ThreadDraft) -> Sequence[Any]:
    made, origin = (draft.id, draft.created_us, draft.parent), draft.origin
    hash = to_bytes(thread_hash(*made, origin, book.namespace))
    if origin is None:
        return (book.space, *made, hash, None, None, None)
    return (book.space, *made, hash, origin.thread, origin.entry, to_bytes(origin.hash))


def _facts(records: Sequence[Record], packed: Mapping[str, Packed]) -> Sequence[Any]:
    """Facts as arrays, one for each column, and the blobs that hold the large ones."""
    rows = []
    for fact in records:
        assert isinstance(fact, Fact)
        blob = packed.get(fact.id)
        body = (fact.data, None) if blob is None else (None, to_bytes(blob.hash))
        start = (fact.seq, fact.id, fact.time_us, to_bytes(fact.hash), fact.key)
        rows.append((*start, listed_value(fact), *body))
    uses = [use for fact in records for use in uses_of(fact, packed)]
    return (*columns(rows, 8), *columns(uses, 2))


def _check_origin(origin: Origin, source: int | None, actual: bytes | None) -> None:
    """Whether the entry that was found is the one that the fork begins at."""
    if source is None:
        raise NotFound("thread", origin.thread)
    if origin.entry is None:
        return
    if actual is None:
        raise NotFound("entry", origin.entry)
    check_origin(origin, Entry(origin.thread, 0, origin.entry, 0, to_hash(actual), None, "", b""))


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


def _existing(wire: Wire, book: Book, draft: ThreadDraft) -> ThreadInfo:
    """The thread if this very draft made it; any other thread of that id is in the way."""
    row, info = reading.thread(wire, book, draft.id)
    count = len(draft.facts)
    first = reading.read(wire, book, draft.id, 0, count) if count else []
    check_recreated(info, first, draft)
    settle(wire, book, row.no)
    return info
