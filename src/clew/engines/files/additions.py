"""What writers add: the lines of a group of appends, and the whole file of a new thread."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import UnsetType

from clew.core.codec import new_id
from clew.core.errors import InvalidInput, NotFound
from clew.core.lines import Header, Source, header_line, record_line
from clew.core.model import Draft, Entry, Origin, Record, ThreadDraft
from clew.core.reducer import Find, Head, check_origin, check_recreated, plan
from clew.core.tombstones import used_blobs
from clew.engines.files import leases
from clew.engines.files.index import SPACE
from clew.engines.files.locks import EXCLUSIVE
from clew.engines.files.open_store import OpenStore
from clew.engines.files.place import is_there, put_file
from clew.engines.shared.tables import rows


class Batch:
    """The appends of a group: planned one after the other, written at once.

    `head` moves with each of them; one that is refused leaves it as it was.
    """

    def __init__(self, head: Head, find: Find, store: OpenStore, lock: int) -> None:
        self.head = head
        self.new: list[Record] = []
        self._find = find
        self._store = store
        self._ids: dict[str, Record] = {}
        self._spilled: dict[str, str] = {}
        self._lease = leases.live(lock, head.thread, store.clock)

    def append(
        self,
        drafts: Sequence[Draft],
        spilled: Mapping[str, str],
        expect: str | UnsetType | None,
        fence: int | None,
    ) -> list[Record]:
        decided = plan(
            *(self.head, drafts, self.find),
            expect=expect,
            fence=fence,
            lease=self._lease,
            hashes=spilled,
        )
        for record in decided.new:
            for hash in used_blobs(record):
                if self._store.blobs.find(hash) is None:
                    raise InvalidInput("blobs", f"blob {hash!r} is not in the store; put it first")
        self.head = decided.head
        self.new += decided.new
        self._ids.update((record.id, record) for record in decided.new)
        self._spilled.update(spilled)
        return decided.records

    def find(self, id: str) -> Record | None:
        return self._ids.get(id) or self._find(id)

    def lines(self, thread: bytes) -> list[bytes]:
        of = len(self.new)
        return [
            record_line(thread, record, blob=self._spilled.get(record.id), left=of - n, of=of)
            for n, record in enumerate(self.new, start=1)
        ]


# --- making a thread ---


def create_thread(store: OpenStore, draft: ThreadDraft, spilled: Mapping[str, str]) -> None:
    """A file appears whole under its name, or not at all. One that is there must be the same."""
    journal = store.journal(draft.id)
    source = None
    if draft.origin is not None and not is_there(journal.path):
        # Before the lock of our own file is held: two forks of each other's threads would wait for
        # ever.
        source = _source(store, draft.origin)
    with journal.mutex, journal.lock.held(EXCLUSIVE, store.busy_seconds):
        if is_there(journal.path):
            journal.catch_up()
            with store.index.asked() as db:
                info = rows.thread_row(db, SPACE, draft.id).info(db)
            span = rows.everything_of(journal.no)
            first = journal.records(store.index.places(span, limit=len(draft.facts)))
            check_recreated(info, first, draft)
            return
        if os.fstat(journal.lock.descriptor).st_size:
            store.disk.truncate(journal.lock.descriptor, 0)  # the lease of a purged thread
        data = _contents(draft, source, spilled)
        put_file(store.disk, store.place.threads, os.path.basename(journal.path), data)
        store.mark(store.place.mark(draft.id))


def _source(store: OpenStore, origin: Origin) -> Source | None:
    """Where the entry lies that a fork begins at: in its origin, or in what that inherited."""
    journal = store.journal(origin.thread)
    with journal.mutex:
        journal.refresh_index()
        if origin.entry is None:
            return None
        where = store.index.find(journal.no, origin.entry)
        entry = None if where is None else store.records([where], journal)[0]
    if where is None or not isinstance(entry, Entry):
        raise NotFound("entry", origin.entry)
    check_origin(origin, entry.hash)
    return Source(entry.thread, store.index.key(where.no >> 32), entry.seq)


def _contents(draft: ThreadDraft, source: Source | None, spilled: Mapping[str, str]) -> bytes:
    origin = draft.origin or Origin("", None, None)
    head = Head(draft.id, leaf=origin.entry, leaf_hash=origin.hash, updated_us=draft.created_us)
    facts = plan(head, draft.facts, lambda id: None, hashes=spilled).new
    thread = draft.id.encode("utf-8")
    of = len(facts)
    lines = [
        record_line(thread, fact, blob=spilled.get(fact.id), left=of - n, of=of)
        for n, fact in enumerate(facts, start=1)
    ]
    return b"".join([header_line(Header(new_id(), draft, source)), *lines])
