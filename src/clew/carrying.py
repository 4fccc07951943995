"""Records on their way from one engine to another: checked, as drafts, in batches, with blobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from clew.engine import Engine
from clew.errors import Corrupt, NotFound
from clew.hashes import entry_hash, fact_hash, move_hash
from clew.model import (
    PAGE_MAX,
    Draft,
    Entry,
    EntryDraft,
    Fact,
    FactDraft,
    Move,
    MoveDraft,
    Record,
    ThreadInfo,
    ThreadQuery,
)

BATCH_RECORDS = 500
BATCH_BYTES = 4 * 1024 * 1024


def everything(engine: Engine) -> Iterator[ThreadInfo]:
    """Every thread of an engine, archived and deleted ones as well."""
    for deleted in (False, True):
        cursor = None
        while True:
            page = engine.threads(
                ThreadQuery(archived=None, deleted=deleted, limit=PAGE_MAX, cursor=cursor)
            )
            yield from page.items
            if page.cursor is None:
                break
            last = page.items[-1]
            cursor = last.created_us, last.id


def find_thread(engine: Engine, id: str) -> ThreadInfo | None:
    try:
        return engine.thread(id)
    except NotFound:
        return None


def find_entry(engine: Engine, thread: str, id: str) -> Entry | None:
    """An entry that is visible in a thread; None if it, or the thread, is not there."""
    try:
        return engine.path(thread, id, limit=1)[0]
    except NotFound:
        return None


def holds(engine: Engine, thread: str, id: str, hash: str | None) -> bool:
    """Whether this very entry is visible in a thread."""
    entry = find_entry(engine, thread, id)
    return entry is not None and entry.hash == hash


def to_draft(record: Record) -> Draft:
    """What a record was written from. An entry names its parent, wherever the leaf is."""
    if isinstance(record, Entry):
        return EntryDraft(
            id=record.id,
            kind=record.kind,
            data=record.data,
            time_us=record.time_us,
            parent=record.parent,
            turn=record.turn,
            format=record.format,
            meta_data=record.meta_data,
            blobs=record.blobs,
        )
    if isinstance(record, Move):
        return MoveDraft(id=record.id, leaf=record.leaf, time_us=record.time_us)
    assert isinstance(record, Fact)
    return FactDraft(id=record.id, key=record.key, data=record.data, time_us=record.time_us)


def size_of(record: Record) -> int:
    return 200 if isinstance(record, Move) else 200 + len(getattr(record, "data", b""))


def batches(engine: Engine, thread: str, after: int, until: int) -> Iterator[list[Record]]:
    """The records after one seq up to another, some at a time: fewer where they are large."""
    count = BATCH_RECORDS
    while after < until:
        found = engine.read(thread, after=after, limit=min(count, until - after))
        if not found:
            return
        size = sum(map(size_of, found))
        if size > BATCH_BYTES:
            count = max(1, count // 2)
        elif size < BATCH_BYTES // 4:
            count = min(BATCH_RECORDS, count * 2)
        after = found[-1].seq
        yield found


class Carried(Struct):
    """What has been written so far."""

    records: int = 0
    blobs: int = 0
    blob_bytes: int = 0


class Carrier:
    """Takes the records of one thread over, and lets nothing through that does not match its hash.

    The source is checked before anything is written: damage must not come out at the other
    side with a fresh hash that vouches for it.
    """

    def __init__(self, source: Engine, target: Engine, thread: str, carried: Carried) -> None:
        self._source = source
        self._target = target
        self._thread = thread
        self._carried = carried
        self._hashes: dict[str, str] = {}

    def check(self, records: Sequence[Record]) -> None:
        for record in records:
            if self._hash_of(record) != record.hash:
                place = f"thread {record.thread!r}, record {record.seq}"
                raise Corrupt(place, "it does not match its hash; run clew verify on the source")
            self._hashes[record.id] = record.hash

    def _hash_of(self, record: Record) -> str:
        if isinstance(record, Entry):
            return entry_hash(record, record.parent, self._parent_hash(record))
        if isinstance(record, Move):
            return move_hash(record.thread, record.seq, record)
        assert isinstance(record, Fact)
        return fact_hash(record.thread, record.seq, record)

    def _parent_hash(self, entry: Entry) -> str | None:
        if entry.parent is None:
            return None
        known = self._hashes.get(entry.parent)
        if known is None:
            parent = find_entry(self._source, self._thread, entry.parent)
            known = "" if parent is None else parent.hash
        return known

    def bring_blobs(self, records: Sequence[Record]) -> None:
        """Put the blobs that entries name, those that are missing, a few at a time."""
        entries = [record for record in records if isinstance(record, Entry)]
        named = dict.fromkeys(hash for entry in entries for hash in entry.blobs)
        for entry in entries:
            if entry.kind == "snapshot":
                named.update(dict.fromkeys(self._files_of(entry)))
        there = self._target.has_blobs(named)
        waiting: list[bytes] = []
        for hash in named:
            if hash not in there:
                waiting.append(self._source.get_blob(hash))
                if sum(map(len, waiting)) > BATCH_BYTES:
                    self._put(waiting)
        self._put(waiting)

    def _files_of(self, snapshot: Entry) -> list[str]:
        """The blobs of the tree that a snapshot holds; none if it was dropped and swept."""
        from clew.snapshots.tree import Trees

        body = snapshot.body
        tree = body.get("tree") if isinstance(body, dict) else None
        return Trees(self._source).blobs(tree) if isinstance(tree, str) else []

    def _put(self, waiting: list[bytes]) -> None:
        if waiting:
            self._target.put_blobs(waiting)
            self._carried.blobs += len(waiting)
            self._carried.blob_bytes += sum(map(len, waiting))
            waiting.clear()
