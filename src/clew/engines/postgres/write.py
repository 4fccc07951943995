"""Writing: an append is planned here, on a head that was read or guessed, and is one statement.

The statement moves the head from the seq that the plan was made on, checks the lease on the
server's clock, and inserts. If the thread stands elsewhere by now, nothing happens, and the plan
is made anew on what is there. So the rules are those of `core.reducer`, and no transaction is left
open between a question and an answer, except for a writer whom others have outrun too often.
Threads and forks are made at the end of this file, with their first facts, in one statement too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import psycopg
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from psycopg import errors as states

from clew.core.codec import decode
from clew.core.errors import ClewError, Conflict, InvalidInput, NotFound
from clew.core.hashes import thread_hash
from clew.core.model import (
    Draft,
    Entry,
    EntryDraft,
    Fact,
    FactDraft,
    Move,
    MoveDraft,
    Origin,
    Record,
    ThreadDraft,
    ThreadInfo,
)
from clew.core.reducer import Head, Plan, check_origin, check_recreated, plan
from clew.core.tombstones import PREFIX, to_stored, used_blobs
from clew.engines.postgres import blobs, read, rows
from clew.engines.postgres.lookup import Book, Finder
from clew.engines.postgres.rows import Stand, to_bytes, to_hash
from clew.engines.postgres.wire import BLOB_MISSING, TRUE, Wire, array
from clew.engines.shared.compression import Packed

MISSES_MAX = 3  # after so many it waits in line for the thread's row, as it may never win a race

# Facts that lists filter by: the server gets their values, of others only that they are set.
LISTED_FACTS = frozenset(("archived", "deleted_us", "status", "tags", "workspace"))


class _BlobMissing(Exception):
    """A record names a blob that is not there. Which one is asked when the transaction is over."""

    def __init__(self, records: Sequence[Record]) -> None:
        super().__init__()
        self.records = records


class Append:
    """One append, which may need several tries."""

    def __init__(
        self,
        book: Book,
        thread: str,
        drafts: Sequence[Draft],
        packed: Mapping[str, Packed],
        expect: str | UnsetType | None,
        fence: int | None,
    ) -> None:
        self.book = book
        self.thread = thread
        self.drafts = drafts
        self.packed = packed
        self.expect = expect
        self.fence = fence
        self.hashes = {id: blob.hash for id, blob in packed.items()}

    def run(self, wire: Wire, again: bool) -> list[Record]:
        try:
            return self._run(wire, again)
        except _BlobMissing as missing:
            raise self._missing_blob(wire, missing.records) from None

    def _run(self, wire: Wire, again: bool) -> list[Record]:
        if self.packed and blobs.weigh(self.packed.values()) > blobs.LOAD_BYTES:
            # Too much for one statement: it lies there already when the append refers to it.
            blobs.put(wire, self.book, list(self.packed.values()))
        if again:
            # An earlier try may have been done: ids that were minted for this call can be there.
            # It may also still be at it, so that only the thread's row tells when it is over.
            self.drafts = [_not_fresh(draft) for draft in self.drafts]
        else:
            records = self._on_guess(wire)
            if records is not None:
                return records
        misses = 0
        while True:
            records = self._on_sight(wire, in_line=again or misses >= MISSES_MAX)
            if records is not None:
                return records
            misses += 1
            wire.check_deadline()

    def _on_guess(self, wire: Wire) -> list[Record] | None:
        """The append on the head as it was last seen; None if that will not do."""
        stand = self.book.heads.guess(self.thread)
        if stand is None or (stand.origin is not None and not _all_fresh(self.drafts)):
            return None  # ids on the path that a fork inherits are not in its own index
        finder = Finder(wire, self.book, stand, unheard={draft.id for draft in self.drafts})
        try:
            decided = plan(
                *(stand.head, self.drafts, finder), expect=self.expect, hashes=self.hashes
            )
        except ClewError:
            return None
        return decided.records if self._write(wire, stand, finder, decided) else None

    def _on_sight(self, wire: Wire, in_line: bool) -> list[Record] | None:
        """The append on the head as it is; None if another writer was faster."""
        with wire.transaction() if in_line else nullcontext():
            stand, lease = look(wire, self.book, self.thread, in_line)
            finder = Finder(wire, self.book, stand)
            finder.fetch(_mentioned(self.drafts))
            decided = plan(
                *(stand.head, self.drafts, finder),
                expect=self.expect,
                fence=self.fence,
                lease=lease,
                hashes=self.hashes,
            )
            if not decided.new:
                settle(wire, self.book, stand.no)
                return decided.records
            return decided.records if self._write(wire, stand, finder, decided) else None

    def _write(self, wire: Wire, stand: Stand, finder: Finder, decided: Plan) -> bool:
        """Send what is new; false if the head is not the one that the plan was made on."""
        if not decided.new:
            return False  # stored, as far as a guess can tell: look
        try:
            if self._is_one_more(decided):
                written = self._write_one(wire, stand, decided.new[0])
            else:
                written = self._write_all(wire, stand, finder, decided)
        except states.UniqueViolation:
            # An id is stored already, whatever the caller said: look what it holds, and plan anew.
            self.drafts = [_not_fresh(draft) for draft in self.drafts]
            return False
        except psycopg.DatabaseError as error:
            if error.sqlstate == BLOB_MISSING:
                raise _BlobMissing(decided.new) from None
            raise
        if written:
            leaf = finder.place(decided.head.leaf, decided.new)
            last = decided.new[-1] if isinstance(decided.new[-1], Entry) else None
            self.book.heads.note(
                self.thread, Stand(stand.no, stand.origin, leaf, decided.head, last)
            )
        else:
            self.book.heads.forget(self.thread)
        return written

    def _is_one_more(self, decided: Plan) -> bool:
        """An entry that follows the last one, with nothing beside it."""
        record = decided.new[0]
        return (
            len(decided.new) == 1
            and isinstance(record, Entry)
            and not decided.starts
            and not record.blobs
            and record.tombstone is None
            and record.id not in self.packed
        )

    def _write_one(self, wire: Wire, stand: Stand, entry: Any) -> bool:
        values = (
            *(self.book.space, stand.no, stand.head.thread, stand.head.seq),
            *(_own_bytes(stand.head.leaf_hash), self.fence),
            *(entry.id, entry.time_us, entry.digest, entry.parent, entry.kind),
            *(entry.turn, entry.format, entry.meta_data, entry.body_digest, entry.data),
        )
        return wire.call(self.book.sql(APPEND_ENTRY), values) == TRUE

    def _write_all(self, wire: Wire, stand: Stand, finder: Finder, decided: Plan) -> bool:
        return write(
            wire,
            self.book,
            stand,
            decided,
            finder,
            self.packed,
            fence=self.fence,
            facts_only=all(isinstance(draft, FactDraft) for draft in self.drafts),
        )

    def _missing_blob(self, wire: Wire, records: Iterable[Record]) -> InvalidInput:
        named = [hash for record in records for hash in used_blobs(record)]
        there = blobs.has(wire, self.book, named)
        hash = next((hash for hash in named if hash not in there), "?")
        return InvalidInput("blobs", f"blob {hash!r} is not in the store; put it first")


def settle(wire: Wire, book: Book, no: int) -> None:
    """Commit something after what was found, so that it is as durable as a commit can be.

    What is visible may still lack the standby's word, if the commit that wrote it was cut off.
    """
    wire.execute(book.sql("SELECT clew.settle(%s, %s)"), (book.space, no))


def _own_bytes(hash: str | None) -> bytes | None:
    """The bytes of a hash that we made, which need not be checked as those of callers."""
    return None if hash is None else bytes.fromhex(hash[3:])


APPEND_ENTRY = f"SELECT clew.append_entry({', '.join(f'${n}' for n in range(1, 17))})"


def write(
    wire: Wire,
    book: Book,
    stand: Stand,
    decided: Plan,
    finder: Finder,
    packed: Mapping[str, Packed],
    *,
    fence: int | None = None,
    facts_only: bool = False,
) -> bool:
    """Any batch, as arrays: one for each column of what is to be inserted."""
    before, head = stand.head, decided.head
    leaf = finder.place(head.leaf, decided.new) or (None, None)
    starts = [
        (finder.place(id, decided.new), finder.place(parent, decided.new) or (None, None))
        for id, parent in decided.starts.items()
    ]
    facts = [record for record in decided.new if isinstance(record, Fact)]
    put = [packed[record.id] for record in decided.new if record.id in packed]
    if blobs.weigh(put) > blobs.LOAD_BYTES:
        put = []
    uses = [use for record in decided.new for use in uses_of(record, packed)]
    bindings = (
        *(book.space, stand.no, before.thread, before.seq, to_bytes(before.leaf_hash)),
        *(before.tail, fence, facts_only),
        *(head.seq, head.leaf, to_bytes(head.leaf_hash), *leaf, head.tail, head.updated_us),
        *columns([_record_row(record, packed) for record in decided.new], 14),
        *columns([(first[1], *parent) for first, parent in starts if first is not None], 3),
        *columns([(fact.key, fact.seq, listed_value(fact)) for fact in facts], 3),
        *columns(uses, 2),
        *blobs.columns(put),
    )
    return bool(wire.value(book.sql(_APPEND), bindings))


_ARRAYS = (
    *("bigint bigint text bigint bytea text text text text bytea text bytea bytea bytea".split()),
    *("bigint bigint bigint".split()),
    *("text bigint text".split()),
    *("bytea bigint".split()),
    *("bytea bigint text bytea bytea".split()),
)
_APPEND = (
    f"SELECT clew.append({', '.join(['%s'] * 15)}, "
    + ", ".join(f"%b::{name}[]" for name in _ARRAYS)  # as text, bytes would be twice as long
    + ")"
)


def columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    return [array(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def _record_row(record: Record, packed: Mapping[str, Packed]) -> tuple[Any, ...]:
    start = (record.id, record.time_us, record.digest)
    blob = packed.get(record.id)
    held = None if blob is None else to_bytes(blob.hash)
    if isinstance(record, Entry):
        middle = (record.parent, record.kind, record.turn, record.format, record.meta_data)
        if record.tombstone is not None:
            tombstone = record.tombstone
            middle = (*middle[:3], tombstone.format, to_stored(tombstone))
        names = ",".join(record.blobs) or None
        own = (record.body_digest, None, record.data if record.tombstone is None else None)
        body = own if blob is None else (None, held, None)  # the same hash
        return (record.seq, rows.ENTRY, *start, *middle, names, *body)
    if isinstance(record, Move):
        return (record.seq, rows.MOVE, *start, record.leaf, *(None,) * 8)
    assert isinstance(record, Fact)
    value = record.data if blob is None else None
    return (record.seq, rows.FACT, *start, None, record.key, *(None,) * 5, held, value)


def uses_of(record: Record, packed: Mapping[str, Packed]) -> list[tuple[bytes | None, int]]:
    hashes = list(used_blobs(record))
    if record.id in packed:
        hashes.append(packed[record.id].hash)
    return [(to_bytes(hash), record.seq) for hash in hashes]


def listed_value(fact: Fact) -> str | None:
    """The value as JSON if lists filter by it; of any other only whether it is there."""
    if decode(fact.data) is None:
        return None
    return fact.data.decode("utf-8") if fact.key in LISTED_FACTS else "true"


def _mentioned(drafts: Sequence[Draft]) -> list[str]:
    """The ids that a plan will ask for."""
    ids = [d.id for d in drafts if not (isinstance(d, EntryDraft) and d.fresh)]
    for draft in drafts:
        if isinstance(draft, EntryDraft) and draft.parent is not UNSET and draft.parent is not None:
            ids.append(draft.parent)
        elif isinstance(draft, MoveDraft) and draft.leaf is not None:
            ids.append(draft.leaf)
        elif isinstance(draft, FactDraft) and draft.key.startswith(PREFIX):
            ids.append(draft.key.removeprefix(PREFIX))
    return ids


def _all_fresh(drafts: Sequence[Draft]) -> bool:
    return all(isinstance(draft, EntryDraft) and draft.fresh for draft in drafts)


def _not_fresh(draft: Draft) -> Draft:
    return replace(draft, fresh=False) if isinstance(draft, EntryDraft) and draft.fresh else draft


# --- the head -------------------------------------------------------------------------------

_LOOK = f"SELECT {rows.STAND}, {rows.LEASE}, clew.now_us() FROM clew.stand(%s, %s, %s)"
_COLUMNS = rows.STAND.count(",") + 1


def look(wire: Wire, book: Book, thread: str, in_line: bool) -> tuple[Stand, Any]:
    """The head as it is, and the live lease; `in_line` keeps others from moving it."""
    row = wire.one(book.sql(_LOOK), (book.space, thread, in_line))
    if row is None:
        raise NotFound("thread", thread)
    stand = rows.to_stand(row[:_COLUMNS])
    lease = rows.to_lease(row[_COLUMNS:-1]).live(thread, rows.instant(row[-1]))
    return stand, lease


# --- threads and forks ---


def create(wire: Wire, book: Book, draft: ThreadDraft, packed: Mapping[str, Packed]) -> ThreadInfo:
    try:
        stand = _make(wire, book, draft, packed)
    except (Conflict, InvalidInput, NotFound) as error:
        # What is there goes before what is missing or wrong: the source may be gone since it was
        # forked.
        try:
            return _existing(wire, book, draft)
        except NotFound:
            raise error from None
    if stand is None:
        return _existing(wire, book, draft)
    book.heads.note(draft.id, stand)
    return _info(draft, stand.head)


_CREATE_ARRAYS = (
    *("bigint text bigint bytea text text bytea bytea".split()),
    *("bytea bigint".split()),
    *("bytea bigint text bytea bytea".split()),
)
_CREATE = (
    f"SELECT made, source, at_thread, at_seq, actual FROM clew.create_thread({'%s, ' * 10}"
    + ", ".join(f"%b::{name}[]" for name in _CREATE_ARRAYS)
    + ")"
)


def _make(wire: Wire, book: Book, draft: ThreadDraft, packed: Mapping[str, Packed]) -> Stand | None:
    """Where the new thread stands; None if there is one of that id."""
    origin = draft.origin or Origin("", None, None)
    head = Head(draft.id, leaf=origin.entry, leaf_hash=origin.hash, updated_us=draft.created_us)
    hashes = {id: blob.hash for id, blob in packed.items()}
    decided = plan(head, draft.facts, lambda id: None, hashes=hashes)
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
        body = (None, fact.data) if blob is None else (to_bytes(blob.hash), None)
        start = (fact.seq, fact.id, fact.time_us, fact.digest, fact.key)
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
    check_origin(origin, to_hash(actual))


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
    row, info = read.thread(wire, book, draft.id)
    count = len(draft.facts)
    first = read.read(wire, book, draft.id, 0, count) if count else []
    check_recreated(info, first, draft)
    settle(wire, book, row.no)
    return info
