"""Giving back the space of what a conversation does not show any more.

Nothing takes a single entry out of a journal, so what the conversation needs is copied, the thread
is purged, and the copies become the thread of that id. The copies have the ids, bodies and times
of their originals; where an entry before them is gone, their parents and hashes are new.

Until the new thread is whole, a stand-in has all of it. It is written before anything is removed,
so that a process that dies in between leaves something to go on from: `settle`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from msgspec import UNSET, Struct, UnsetType

from clew.context.window import read_window
from clew.core import drafts
from clew.core.codec import digest, new_id
from clew.core.errors import AlreadyExists, ClewError, Conflict, InvalidInput, NotFound
from clew.core.model import (
    Draft,
    Entry,
    EntryDraft,
    FactDraft,
    Lease,
    ThreadDraft,
    ThreadInfo,
    ThreadQuery,
)
from clew.core.tombstones import PREFIX
from clew.facets import _base
from clew.facets._base import COMPACTING, FacetKey
from clew.store import Store
from clew.thread import Thread

OWNER = "compact_storage"
LEASE_SECONDS = 60.0

_READY = "stands_in"  # a fact of a stand-in: the thread that it stands in for is to be purged
_REWINDING = "rewinding"  # a fact of a rewind that was begun
_ABOUT_ENTRIES = ("label.", "snapshot.", PREFIX)  # facts whose keys end in the id of an entry
_UNDO = ("rewound", "unwound")  # what can be undone and redone: they name entries by their places


class Reclaimed(Struct, frozen=True, kw_only=True):
    """What a conversation has let go of.

    `entries` are gone, with `size_bytes` of JSON. `kept` it still has. `shared` entries of the old
    thread stay because the forks in `kept_for` share them. `branches` are the ends of branches that
    stood in the way: then nothing was removed.
    """

    key: str
    entries: int = 0
    size_bytes: int = 0
    kept: int = 0
    shared: int = 0
    kept_for: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()


def compact_storage(store: Store, at: FacetKey, drop_branches: bool) -> Reclaimed:
    """See `Conversation.compact_storage`."""
    thread = Thread(store, at.thread)
    if _base.find_info(store, at) is None and not settle(store, at):
        return Reclaimed(key=at.key)
    lease = thread.leases.acquire(OWNER, ttl_seconds=LEASE_SECONDS)
    try:
        settle(store, at, lease)
        info = thread.info
        found = None if info.deleted_at is not None else _Needs(thread, info)
        branches = () if found is None or drop_branches else found.branches
        if found is None or branches or not found.unneeded:
            thread.leases.release(lease)
            kept = 0 if found is None else len(found.own)
            return Reclaimed(key=at.key, kept=kept, branches=branches)
        stand_in = _write(store, f"{_stand_ins(at)}{new_id()}", info, found)
        _bury(store, thread, info, lease, stand_in.id)
        stand_in.set_facts({_READY: True})
        thread.leases.renew(lease, ttl_seconds=LEASE_SECONDS)
    except BaseException:
        with suppress(ClewError):
            settle(store, at, lease)
        with suppress(ClewError):
            thread.leases.release(lease)
        raise
    purged = store.engine.purge(thread.id)  # and the lease with it
    store.searcher.forget([thread.id])
    settle(store, at)
    return Reclaimed(
        key=at.key,
        entries=len(found.unneeded),
        size_bytes=sum(len(entry.data) for entry in found.unneeded),
        kept=len(found.copies),
        shared=purged.kept,
        kept_for=purged.kept_for,
    )


class _Needs:
    """What of a thread is needed, and why the rest is not."""

    def __init__(self, thread: Thread, info: ThreadInfo) -> None:
        if _REWINDING in info.facts:
            raise InvalidInput(
                "key", "a rewind of it was interrupted; finish it first: thread.snapshots.recover()"
            )
        self.own = [record for record in thread.read() if isinstance(record, Entry)]
        ours = {entry.id for entry in self.own}
        path = [entry for entry in thread.path(info.leaf) if entry.id in ours]
        on_path = {entry.id for entry in path}
        self.branches = tuple(id for id in thread.leaves() if id not in on_path)
        needed = on_path & self._named(thread, info)
        self.first_parent = path[0].parent if path else None
        self.copies = [entry for entry in path if entry.id in needed]
        shared = self._shared(thread)
        self.unneeded = [e for e in self.own if e.id not in needed and e.id not in shared]
        gone = ours - needed
        self.facts = {
            key: data
            for key, data in info.fact_data.items()
            if not (key.startswith(_ABOUT_ENTRIES) and key.partition(".")[2] in gone)
            and key not in _UNDO
        }
        # The leaf is the last that is copied, unless the thread stands where it was forked.
        self.leaf = self.copies[-1].id if self.copies else None if path else info.leaf

    def _named(self, thread: Thread, info: ThreadInfo) -> set[str]:
        """What is shown, what that refers to, and what labels and snapshots name."""
        window = read_window(thread, info.leaf)
        entries = [*window.entries, *window.kept, *window.carried]
        named = {entry.id for entry in entries}
        if window.compaction is not None:
            compaction = window.compaction
            inherits = info.origin is not None and info.origin.entry is not None
            # A cut that keeps nothing and tells nothing has nothing to hide when all is gone.
            if entries or compaction.summary or inherits:
                named.add(compaction.entry.id)
                if compaction.first_kept is None:
                    named.add(compaction.through or "")
        named |= info.labels.keys()
        for snapshot in thread.snapshots.list():
            named |= {snapshot.id, snapshot.at or ""}
        return named

    @staticmethod
    def _shared(thread: Thread) -> set[str]:
        """The entries that forks share."""
        found: set[str] = set()
        for deleted in (False, True):
            for fork in thread.store.threads(origin=thread.id, archived=None, deleted=deleted):
                if fork.origin is not None and fork.origin.entry is not None:
                    with suppress(NotFound):  # a fork of an earlier thread of this id
                        found |= {entry.id for entry in thread.path(fork.origin.entry)}
        return found


# --- one thread becomes another ---------------------------------------------------------------


def _stand_ins(at: FacetKey) -> str:
    """How the ids of a conversation's stand-ins begin. None of them is the thread of a key."""
    return f"{at.facet}~{digest(at.thread.encode('utf-8'))}~"


def _write(store: Store, id: str, info: ThreadInfo, found: _Needs) -> Thread:
    """The stand-in: a thread with all that is needed."""
    now_us = store.clock()
    facts = tuple(
        FactDraft(id=new_id(), key=key, data=data, time_us=now_us)
        for key, data in found.facts.items()
    )
    store.engine.create(
        ThreadDraft(
            id=id,
            created_us=info.created_us,
            parent=info.parent,
            origin=info.origin,
            facts=facts,
        )
    )
    stand_in = Thread(store, id)
    batch: list[Draft] = [_copy(entry, found.first_parent) for entry in found.copies[:1]]
    batch += [_copy(entry) for entry in found.copies[1:]]
    # A move to where it stands, for the time of the last update.
    stand_in.write([*batch, drafts.move(found.leaf, info.updated_us)])
    return stand_in


def _copy(
    entry: Entry, parent: str | UnsetType | None = UNSET, *, id: str | None = None
) -> EntryDraft:
    return EntryDraft(
        id=id or entry.id,
        kind=entry.kind,
        data=entry.data,
        time_us=entry.time_us,
        parent=parent,
        turn=entry.turn,
        format=entry.format,
        meta_data=entry.meta_data,
        blobs=entry.blobs,
        tombstone=entry.tombstone,
        known_hash=None if entry.tombstone is None else entry.body_hash,
    )


def _bury(store: Store, thread: Thread, info: ThreadInfo, lease: Lease, stand_in: str) -> None:
    """Let nothing more be acknowledged. Facts need no lease: if one came in between, Conflict."""
    now_us = store.clock()
    buried = drafts.facts({COMPACTING: stand_in, "deleted_us": now_us}, now_us)
    thread.write(buried, expect=info.leaf, fence=lease.fence)
    seq = info.seq + len(buried)
    if (now := thread.info).seq != seq:
        raise Conflict(
            f"thread {thread.id!r} was written to while its storage was compacted; nothing was"
            " removed. Try again",
            field="seq",
            expected=seq,
            actual=now.seq,
        )


def is_unsettled(info: ThreadInfo | None) -> bool:
    """Whether a thread is missing, or was made and not filled yet."""
    return info is None or (info.deleted_at is None and COMPACTING in info.facts)


def settle(store: Store, at: FacetKey, lease: Lease | None = None) -> bool:
    """Go on from every stand-in that is there, or do without it; whether there was one.

    Under the lease if there is a thread: another process may be at work on it.
    """
    thread = Thread(store, at.thread)
    fence = None if lease is None else lease.fence
    found = store.engine.threads(ThreadQuery(prefix=_stand_ins(at), archived=None)).items
    for stand_in in found:
        info = _base.find_info(store, at)
        with suppress(NotFound):  # another process has just settled it
            if info is not None and info.deleted_at and COMPACTING in info.facts:
                # The old thread is still whole: as if nothing had been begun.
                thread.write(_base.revival(info, store.clock()), expect=info.leaf, fence=fence)
            elif _READY in stand_in.facts and (info is None or info.deleted_at is None):
                _base.retried(partial(_refill, store, at, stand_in, fence))
            store.engine.purge(stand_in.id)
    return bool(found)


def _refill(store: Store, at: FacetKey, stand_in: ThreadInfo, fence: int | None) -> None:
    """Make the thread of a conversation of its stand-in; nothing happens if that was done."""
    source, thread = Thread(store, stand_in.id), Thread(store, at.thread)
    entries = [record for record in source.read() if isinstance(record, Entry)]
    info = _base.find_info(store, at)
    facts = [
        FactDraft(id=new_id(), key=key, data=data, time_us=stand_in.created_us)
        for key, data in sorted(stand_in.fact_data.items())
        if key != _READY
    ]
    if info is None:
        # It says that it is not whole before it has its entries.
        unfilled = drafts.facts({COMPACTING: stand_in.id}, stand_in.created_us)
        draft = ThreadDraft(
            id=at.thread,
            created_us=stand_in.created_us,
            parent=stand_in.parent,
            origin=stand_in.origin,
            facts=(*facts, *unfilled),
        )
        with suppress(AlreadyExists):
            store.engine.create(draft)
        info = thread.info
    mine = [record for record in thread.read() if isinstance(record, Entry)]
    if entries and entries[-1].id in {entry.id for entry in mine}:
        return
    # A thread that was made by hand while there was none of this id: its messages come after those
    # that were before them. The ones that it began with stay as a branch.
    base = None if stand_in.origin is None else stand_in.origin.entry
    batch: list[Draft] = [fact for fact in facts if fact.key not in info.fact_data]
    batch += drafts.facts({COMPACTING: None}, store.clock())
    if entries:
        batch += [] if info.leaf == base else [drafts.move(base, store.clock())]
        batch += [_copy(entry, entry.parent) for entry in entries[:1]]
        batch += [_copy(entry) for entry in entries[1:]]
        batch += [_copy(entry, id=new_id()) for entry in mine]
    if not mine:
        batch.append(drafts.move(stand_in.leaf, stand_in.updated_us))
    thread.write(batch, expect=info.leaf, fence=fence)
