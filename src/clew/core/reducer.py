"""The reducer: the rules of the journal as pure functions, without I/O.

`plan` decides what a batch of drafts becomes; every engine calls it inside its transaction, so
that the rules exist once. `ThreadState` applies records; it is the memory engine, and what the
other engines are compared with.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from blake3 import blake3
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from clew.core.codec import decode, digest, to_hash
from clew.core.errors import (
    AlreadyExists,
    ClewError,
    Conflict,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    NotFound,
)
from clew.core.facts import check_fact
from clew.core.hashes import entry_digest, fact_hash, move_hash
from clew.core.model import (
    Draft,
    Entry,
    EntryDraft,
    Fact,
    FactDraft,
    Lease,
    Move,
    MoveDraft,
    Origin,
    Record,
    Segment,
    ThreadDraft,
    ThreadInfo,
    to_time,
)
from clew.core.tombstones import PREFIX, announcement

Find = Callable[[str], Record | None]
NO_HASHES: Mapping[str, str] = MappingProxyType({})


class Head(Struct, frozen=True):
    """What the next append must know about a thread: where it stands."""

    thread: str
    seq: int = 0
    leaf: str | None = None
    leaf_hash: str | None = None
    tail: str | None = None  # the last entry written here; its child continues the segment
    updated_us: int = 0
    deleted_us: int | None = None


# --- appending ------------------------------------------------------------------------------


def plan(
    head: Head,
    drafts: Sequence[Draft],
    find: Find,
    *,
    expect: str | UnsetType | None = UNSET,
    fence: int | None = None,
    lease: Lease | None = None,
    hashes: Mapping[str, str] = NO_HASHES,
) -> Plan:
    """Decide a batch as a whole, or raise and change nothing.

    `find` looks up a record by id among those visible in the thread; `lease` is the live one;
    `hashes` are those of bodies that the engine has hashed already, by the ids of their drafts.
    What is stored already is answered before any other check, so that a retry after an unknown
    outcome succeeds even if the thread has moved on.
    """
    stored: dict[str, Record] = {}
    for draft in drafts:
        # An id that was minted for this call cannot be stored yet, and a look costs an index.
        if isinstance(draft, EntryDraft) and draft.fresh:
            continue
        record = find(draft.id)
        if record is not None:
            stored[draft.id] = record
    # All stored: the answer is known, and neither the lease nor the leaf can change it.
    if len(stored) < len(drafts):
        _check_lease(head.thread, drafts, fence, lease)
        if expect is not UNSET and expect != head.leaf:
            raise Conflict(
                f"thread {head.thread!r} stands on {head.leaf!r}, not on {expect!r};"
                " nothing was written. Read what came in between, then decide",
                field="leaf",
                expected=expect,
                actual=head.leaf,
            )
    planned = Plan(head, find, stored, hashes, (head.leaf, head.leaf_hash))
    for draft in drafts:
        planned.take(draft)
    return planned


def _check_lease(
    thread: str, drafts: Sequence[Draft], fence: int | None, lease: Lease | None
) -> None:
    """Entries and moves need the lease while there is one; facts may be set without it."""
    if fence is not None:
        if lease is None or lease.fence != fence:
            current = None if lease is None else lease.fence
            raise LeaseLost(thread, fence=fence, current=current)
    elif lease is not None and not all(isinstance(draft, FactDraft) for draft in drafts):
        raise LeaseHeld(thread, owner=lease.owner, until=lease.until)


class Plan(Struct):
    """What a batch becomes: a record per draft, those of them that are new, the head after."""

    head: Head
    find: Find
    known: dict[str, Record]  # by id: what is stored already, and what was taken
    hashes: Mapping[str, str]
    # Where the next entry without a parent hangs, and its hash: on the entry before it.
    at: tuple[str | None, str | None]
    records: list[Record] = []
    new: list[Record] = []
    starts: dict[str, str | None] = {}  # new entries that open a segment → the entry they hang on

    def take(self, draft: Draft) -> None:
        """Go on by one draft."""
        known = self.known.get(draft.id)
        if known is not None:
            _check_same(draft, known)
            if isinstance(known, Entry):
                self.at = (known.id, known.hash)
            self.records.append(known)
            return
        if self.head.deleted_us is not None:
            self._check_alive(draft)
        if isinstance(draft, EntryDraft):
            record: Record = self._take_entry(draft)
        elif isinstance(draft, MoveDraft):
            record = self._take_move(draft)
        else:
            record = self._take_fact(draft)
        self._add(record)

    def announce(self, draft: FactDraft) -> None:
        """A fact that nothing stands in the way of."""
        self._add(self._take_fact(draft))

    def _add(self, record: Record) -> None:
        self.known[record.id] = record
        self.records.append(record)
        self.new.append(record)

    def _check_alive(self, draft: Draft) -> None:
        """To a deleted thread nothing is written but the fact that takes the tombstone away."""
        deleted_us = self.head.deleted_us
        restoring = isinstance(draft, FactDraft) and draft.key == "deleted_us"
        if deleted_us is not None and not restoring:
            raise NotFound("thread", self.head.thread, deleted_at=to_time(deleted_us))

    def _take_entry(self, draft: EntryDraft) -> Entry:
        head = self.head
        parent, parent_hash = self.at
        if draft.parent is not UNSET:
            parent, parent_hash = draft.parent, self._hash_of(draft.parent, "parent")
        seq = head.seq + 1
        known = self.hashes.get(draft.id) or draft.known_hash
        body = blake3(draft.data).digest() if known is None else bytes.fromhex(known[3:])
        own = entry_digest(draft, parent, parent_hash, to_hash(body))
        entry = Entry(
            head.thread,
            seq,
            draft.id,
            draft.time_us,
            own,
            parent,
            draft.kind,
            draft.data,
            body,
            draft.turn,
            draft.format,
            draft.meta_data,
            draft.blobs,
            draft.tombstone,
        )
        hash = to_hash(own)
        # A path is read as ranges of consecutive entries, so every break in them is noted.
        if parent is None or parent != head.tail:
            self.starts[entry.id] = parent
        self.at = (entry.id, hash)
        self.head = Head(head.thread, seq, entry.id, hash, entry.id, draft.time_us, head.deleted_us)
        return entry

    def _take_move(self, draft: MoveDraft) -> Move:
        seq = self.head.seq + 1
        hash = self._hash_of(draft.leaf, "leaf")
        self.at = (draft.leaf, hash)
        self.head = replace(
            self.head, seq=seq, leaf=draft.leaf, leaf_hash=hash, updated_us=draft.time_us
        )
        own = bytes.fromhex(move_hash(self.head.thread, seq, draft)[3:])
        return Move(self.head.thread, seq, draft.id, draft.time_us, own, draft.leaf)

    def _take_fact(self, draft: FactDraft) -> Fact:
        value = decode(draft.data)
        check_fact(draft.key, value)
        if draft.key.startswith(PREFIX):
            self._check_erased(draft.key.removeprefix(PREFIX))
        seq = self.head.seq + 1
        deleted_us = value if draft.key == "deleted_us" else self.head.deleted_us
        self.head = replace(self.head, seq=seq, deleted_us=deleted_us)
        hash = fact_hash(self.head.thread, seq, draft, self.hashes.get(draft.id))
        own = bytes.fromhex(hash[3:])
        return Fact(self.head.thread, seq, draft.id, draft.time_us, own, draft.key, draft.data)

    def _check_erased(self, id: str) -> None:
        """That an entry was erased is said by the engine that does it, and by copies of its word.

        Of an entry that is not here anything may be said.
        """
        entry = self.known.get(id) or self.find(id)
        if isinstance(entry, Entry) and entry.tombstone is None:
            reason = f"{PREFIX}{id} says that {id!r} was erased, and it was not; call erase"
            raise InvalidInput("facts", reason)

    def _hash_of(self, id: str | None, field: str) -> str | None:
        if id is None:
            return None
        record = self.known.get(id) or self.find(id)
        if not isinstance(record, Entry):
            if field == "leaf":  # a place to stand on is looked for, as by any other method
                raise NotFound("entry", id)
            raise InvalidInput(field, f"thread {self.head.thread!r} has no entry {id!r}")
        return record.hash


def _check_same(draft: Draft, record: Record) -> None:
    """The same id may be written twice only with the same content. Times do not count."""
    field = "type"
    if isinstance(draft, EntryDraft) and isinstance(record, Entry):
        field = _differing(draft, record)
    elif isinstance(draft, MoveDraft) and isinstance(record, Move):
        field = "" if draft.leaf == record.leaf else "leaf"
    elif isinstance(draft, FactDraft) and isinstance(record, Fact):
        field = "" if draft.data == record.data else "value"
        if draft.key != record.key:
            field = "key"
    if field:
        what = f"its {field} differs"
        if field == "type":
            what = f"there it is of the type {type(record).__name__}"
        raise Conflict(
            f"id {draft.id!r} is stored already with other content: {what}; nothing was written. "
            "Look at what is stored, or write under another id",
            field=field,
            expected=draft,
            actual=record,
        )


def _differing(draft: EntryDraft, entry: Entry) -> str:
    """The field in which a draft says something else than the entry that is stored; "" for none.

    What the caller did not say is not content: after a crash the same step is written again, in
    another turn. A `whole` draft says everything, so that a copy notices whatever differs.
    """
    said_turn = None if draft.implied_turn else draft.turn
    every = draft.whole
    if draft.kind != entry.kind:
        return "kind"
    if draft.tombstone is None and entry.tombstone is None:
        said = draft.data, draft.format, None if draft.meta_data == b"{}" else draft.meta_data
        stored = entry.data, entry.format, entry.meta_data
    else:  # what was erased is known by its hashes
        said, stored = _by_hash(draft, draft.content_hash), _by_hash(entry, entry.body_hash)
    if said[0] != stored[0]:
        return "body"
    if draft.parent not in (UNSET, entry.parent):
        return "parent"
    if (every or said_turn is not None) and said_turn != entry.turn:
        return "turn"
    if (every or said[1] is not None) and said[1] != stored[1]:
        return "format"
    if (every or said[2] is not None) and said[2] != stored[2]:
        return "meta"
    if (every or draft.blobs) and draft.blobs != entry.blobs:
        return "blobs"
    return ""


def _by_hash(one: EntryDraft | Entry, body_hash: str) -> tuple[Any, str | None, Any]:
    """Body, format and meta of an entry, as far as they can be told when it is erased."""
    if one.tombstone is not None:
        return body_hash, one.tombstone.format, one.tombstone.meta_hash
    bare = one.meta_data is None or one.meta_data == b"{}"
    return body_hash, one.format, None if bare else digest(one.meta_data or b"")


def plan_erasure(head: Head, entries: Iterable[Entry], reason: str | None) -> Plan:
    """What a thread's log gets when entries that were written in it are erased: a fact for each.

    It is neither for a lease nor for a tombstone of the whole thread to prevent that.
    """
    find = {entry.id: entry for entry in entries}.get
    planned = Plan(head, find, {}, NO_HASHES, (head.leaf, head.leaf_hash))
    for entry in entries:
        planned.announce(announcement(entry, reason))
    return planned


def check_origin(origin: Origin, hash: str) -> None:
    """A fork names the hash of the entry that it begins at; the stored entry must have it."""
    if origin.hash != hash:
        raise Conflict(
            f"entry {origin.entry!r} has another hash than the fork expects",
            field="hash",
            expected=origin.hash,
            actual=hash,
        )


def check_recreated(info: ThreadInfo, first: Sequence[Record], draft: ThreadDraft) -> None:
    """Creating again what was created so is fine; any other thread is in the way.

    `first` are the thread's first records, as many as the draft has facts.
    """
    same = (info.created_us, info.parent, info.origin) == (
        draft.created_us,
        draft.parent,
        draft.origin,
    )
    said = [(fact.key, fact.data) for fact in first if isinstance(fact, Fact)]
    same = same and said == [(fact.key, fact.data) for fact in draft.facts]
    if not same or info.deleted_at is not None:
        raise AlreadyExists("thread", draft.id, deleted_at=info.deleted_at)


# --- one thread -----------------------------------------------------------------------------


class Span:
    """A part of a path that one thread wrote in one go, and the part that it hangs on.

    Forks share what they inherit by sharing these, so that a fork costs the same whatever the
    length of its path. A span that was given away never grows; a thread's own last one does. It
    names its entries by their ids, so that one that is erased is so in every path.
    """

    __slots__ = ("above", "first_id", "last_id", "owner")

    def __init__(self, owner: ThreadState, first: Entry, last: Entry, above: Span | None) -> None:
        self.owner = owner
        self.first_id = first.id
        self.last_id = last.id
        self.above = above

    @property
    def first(self) -> Entry:
        return self.owner.entry(self.first_id)

    @property
    def last(self) -> Entry:
        return self.owner.entry(self.last_id)

    def spans(self) -> Iterator[Span]:
        at: Span | None = self
        while at is not None:
            yield at
            at = at.above

    def entries(self) -> Iterator[Entry]:
        """Those of this span alone, the newest first."""
        entry = self.last
        while entry.id != self.first_id:
            yield entry
            entry = self.owner.entry(str(entry.parent))
        yield entry

    def cut(self, id: str) -> Span | None:
        """The path to one of its entries; None if no entry of the path has that id."""
        for span in self.spans():
            entry = span.owner.own.get(id)
            if isinstance(entry, Entry) and span.first.seq <= entry.seq <= span.last.seq:
                whole = id == span.last_id
                return span if whole else Span(span.owner, span.first, entry, span.above)
        return None


class ThreadState:
    """One thread as the sum of its records. `inherited` is the path that a fork shares."""

    def __init__(self, draft: ThreadDraft, inherited: Span | None = None) -> None:
        self.draft = draft
        self.inherited = inherited
        self.records: list[Record] = []
        self.facts: dict[str, Fact] = {}
        self.own: dict[str, Record] = {}
        self._segments: list[Span] = []
        origin = draft.origin or Origin("", None, None)
        self.head = Head(
            draft.id, leaf=origin.entry, leaf_hash=origin.hash, updated_us=draft.created_us
        )

    def find(self, id: str) -> Record | None:
        found = self.own.get(id)
        if found is None and self.inherited is not None:
            span = self.inherited.cut(id)
            return None if span is None else span.last
        return found

    def lineage(self) -> Iterator[Span]:
        """What a fork inherits, the newest span first."""
        return iter(()) if self.inherited is None else self.inherited.spans()

    def entry(self, id: str) -> Entry:
        record = self.find(id)
        if not isinstance(record, Entry):
            raise NotFound("entry", id)
        return record

    def apply(self, record: Record) -> None:
        """Take over one record that `plan` made. Records come in the order of their seq."""
        if record.seq != self.head.seq + 1:
            raise ClewError(f"record {record.seq} does not follow {self.head.seq}")
        self.records.append(record)
        self.own[record.id] = record
        if isinstance(record, Entry):
            self._apply_entry(record)
        elif isinstance(record, Move):
            hash = None if record.leaf is None else self.entry(record.leaf).hash
            self.head = replace(
                self.head,
                seq=record.seq,
                leaf=record.leaf,
                leaf_hash=hash,
                updated_us=record.time_us,
            )
        elif isinstance(record, Fact):  # one way: there is no other record
            self._apply_fact(record)

    def _apply_entry(self, entry: Entry) -> None:
        if entry.parent is not None and entry.parent == self.head.tail:
            self._segments[-1].last_id = entry.id
        else:
            above = None if entry.parent is None else self.span_to(entry.parent)
            self._segments.append(Span(self, entry, entry, above))
        self.head = replace(
            self.head,
            seq=entry.seq,
            leaf=entry.id,
            leaf_hash=entry.hash,
            tail=entry.id,
            updated_us=entry.time_us,
        )

    def _apply_fact(self, fact: Fact) -> None:
        value = fact.value
        if value is None:
            self.facts.pop(fact.key, None)
        else:
            self.facts[fact.key] = fact
        deleted_us = value if fact.key == "deleted_us" else self.head.deleted_us
        self.head = replace(self.head, seq=fact.seq, deleted_us=deleted_us)

    def writer_of(self, id: str) -> ThreadState:
        """The thread that an entry on its paths was written in: this one, or one further up."""
        if id in self.own or self.inherited is None:
            return self
        span = self.inherited.cut(id)
        return self if span is None else span.owner

    def put_erased(self, entry: Entry) -> None:
        """Put an entry of its own that was erased in the place of what it was."""
        self.own[entry.id] = entry
        if self.records:  # there are none left of a thread that was purged
            self.records[entry.seq - 1] = entry

    def path(
        self, leaf: str | None, *, after: str | None = None, limit: int | None = None
    ) -> list[Entry]:
        """The entries to `leaf`, oldest first: those after `after`, at most the last `limit`."""
        found: list[Entry] = []
        whole = None if leaf is None or leaf == after else self.span_to(leaf)
        for span in () if whole is None else whole.spans():
            for entry in span.entries():
                found.append(entry)
                if after is not None and entry.parent == after:
                    return found[:limit][::-1]
        if after is not None and leaf != after:
            raise NotFound("entry", after)
        return found[:limit][::-1]

    def span_to(self, id: str) -> Span:
        """The path to an entry, for a fork to share."""
        entry = self.own.get(id)
        if isinstance(entry, Entry):
            at = bisect_right(self._segments, entry.seq, key=lambda span: span.first.seq) - 1
            span = self._segments[at]
            return Span(self, span.first, entry, span.above)
        found = None if self.inherited is None else self.inherited.cut(id)
        if found is None:
            raise NotFound("entry", id)
        return found

    def keep_only(self, ids: Collection[str]) -> None:
        """After a purge: of all that this thread was, its forks still need these entries."""
        self.own = {id: self.own[id] for id in ids}
        self.records, self.facts, self._segments, self.inherited = [], {}, [], None

    def segments(self) -> list[Segment]:
        return [
            Segment(s.first.parent, s.first.id, s.last.id, s.first.seq, s.last.seq)
            for s in self._segments
        ]

    def info(self) -> ThreadInfo:
        draft, head = self.draft, self.head
        facts = {key: fact.data for key, fact in self.facts.items()}
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
