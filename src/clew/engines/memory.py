"""The memory engine: the reducer behind a lock. Nothing outlives the process."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import UNSET, UnsetType

from clew.core.codec import digest, new_id
from clew.core.engine import (
    PACK_IDLE_SECONDS,
    PACK_TAIL,
    Keep,
    PackResult,
    PathSize,
    Progress,
    check_limit,
    fill_page,
)
from clew.core.errors import Closed, InvalidInput, NotFound
from clew.core.lease_rules import Instant, LeaseState, step_lease
from clew.core.model import (
    DEFAULT_NAMESPACE,
    Draft,
    Entry,
    Lease,
    LeaseRequest,
    Page,
    Problem,
    Properties,
    Record,
    Segment,
    Stats,
    ThreadDraft,
    ThreadHead,
    ThreadInfo,
    ThreadQuery,
)
from clew.core.names import check_namespace
from clew.core.reducer import (
    Span,
    ThreadState,
    check_origin,
    check_recreated,
    plan,
    plan_erasure,
)
from clew.core.removal import Erased, Purged, Swept
from clew.core.tombstones import to_erased, tombstoned, used_blobs
from clew.engines.shared.clock import now
from clew.engines.shared.thread_list import page_of

_open_stores: weakref.WeakSet[MemoryEngine] = weakref.WeakSet()


class MemoryEngine:
    """A store for tests and throw-away runs, and the model that other engines are held to.

    Nothing is shared between two of them, so a namespace is but a name here.
    """

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        clock: Callable[[], Instant] = now,
    ) -> None:
        self._namespace = check_namespace(namespace)
        self._clock = clock
        self._changed = threading.Condition()
        self._threads: dict[str, ThreadState] = {}
        self._births: dict[str, str] = {}
        self._leases: dict[str, LeaseState] = {}
        self._blobs: dict[str, tuple[bytes, int]] = {}
        self._closed = False
        _open_stores.add(self)

    @property
    def properties(self) -> Properties:
        return Properties(
            engine="memory",
            place="memory:",
            durability="none",
            acknowledged="in this process's memory only",
            processes=False,
            version="1",
            namespace=self._namespace,
        )

    # --- threads ---

    def create(self, draft: ThreadDraft) -> ThreadInfo:
        with self._changed:
            self._check_open()
            existing = self._threads.get(draft.id)
            if existing is not None:
                first = existing.records[: len(draft.facts)]
                check_recreated(existing.info(), first, draft)
                return existing.info()
            state = ThreadState(draft, self._inherited(draft))
            for record in plan(state.head, draft.facts, state.find).new:
                state.apply(record)
            self._threads[draft.id] = state
            self._births[draft.id] = new_id()
            return state.info()

    def _inherited(self, draft: ThreadDraft) -> Span | None:
        if draft.origin is None:
            return None
        source = self._state(draft.origin.thread)
        if draft.origin.entry is None:
            return None
        check_origin(draft.origin, source.entry(draft.origin.entry).hash)
        return source.span_to(draft.origin.entry)

    def thread(self, id: str) -> ThreadInfo:
        with self._changed:
            return self._state(id).info()

    def threads(self, query: ThreadQuery) -> Page[ThreadInfo]:
        with self._changed:
            self._check_open()
            check_limit(query.limit)
            infos = [state.info() for state in self._threads.values()]
        found = sorted(
            (info for info in infos if _matches(info, query)), key=lambda info: _key(info, query)
        )
        if query.cursor is not None:
            start = (-query.cursor[0], query.cursor[1])
            found = [info for info in found if _key(info, query) > start]
        return page_of(query, found, lambda info: info)

    def heads(self) -> list[ThreadHead]:
        with self._changed:
            self._check_open()
            return [
                ThreadHead(id, self._births[id], state.head.seq)
                for id, state in self._threads.items()
            ]

    def purge(self, thread: str) -> Purged:
        with self._changed:
            state = self._state(thread)
            del self._threads[thread]
            self._leases.pop(thread, None)
            self._changed.notify_all()  # those who wait for its next record wait in vain
            records = len(state.records)
            kept, forks = self._needed(state)
            # Those it inherited from may have been purged too, and kept something for it alone.
            for owner in {span.owner for span in state.lineage()}:
                if self._threads.get(owner.draft.id) is not owner:
                    owner.keep_only(self._needed(owner)[0])
            state.keep_only(kept)
            return Purged(
                thread=thread,
                records=records - len(kept),
                kept=len(kept),
                kept_for=tuple(sorted(forks)),
            )

    def _needed(self, owner: ThreadState) -> tuple[set[str], list[str]]:
        """The entries of a thread that its forks share, and those forks."""
        longest: dict[int, Span] = {}  # many forks share the same beginning
        forks: list[str] = []
        for id, fork in self._threads.items():
            spans = [span for span in fork.lineage() if span.owner is owner]
            forks += [id] if spans else []
            for span in spans:
                known = longest.setdefault(span.first.seq, span)
                if span.last.seq > known.last.seq:
                    longest[span.first.seq] = span
        return {entry.id for span in longest.values() for entry in span.entries()}, forks

    def erase(
        self, thread: str, entries: Sequence[str], *, time_us: int, reason: str | None = None
    ) -> list[Erased]:
        with self._changed:
            state = self._state(thread)
            found = {id: state.entry(id) for id in entries}
            done: list[Erased] = []
            for id, old in found.items():
                owner = state.writer_of(id)
                lives = self._threads.get(owner.draft.id) is owner
                new = old if old.tombstone is not None else tombstoned(old, time_us)
                done.append(to_erased(new, recorded=lives))
                if new is old:
                    continue
                owner.put_erased(new)
                if lives:
                    for record in plan_erasure(owner.head, [new], reason).new:
                        owner.apply(record)
            self._changed.notify_all()
            return done

    # --- the journal ---

    def append(
        self,
        thread: str,
        drafts: Sequence[Draft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Record]:
        with self._changed:
            state = self._state(thread)
            lease = self._leases.get(thread, LeaseState()).live(thread, self._clock())
            decided = plan(state.head, drafts, state.find, expect=expect, fence=fence, lease=lease)
            for record in decided.new:
                for hash in used_blobs(record):
                    if hash not in self._blobs:
                        reason = f"blob {hash!r} is not in the store; put it first"
                        raise InvalidInput("blobs", reason)
            for record in decided.new:
                state.apply(record)
            self._changed.notify_all()
            return decided.records

    def read(self, thread: str, *, after: int = 0, limit: int = 1000) -> list[Record]:
        with self._changed:
            return fill_page(self._state(thread).records[max(after, 0) :][: check_limit(limit)])

    def path(
        self,
        thread: str,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        with self._changed:
            state = self._state(thread)
            limit = None if limit is None else check_limit(limit)
            end = state.head.leaf if leaf is UNSET else leaf
            for given in (end, after):
                if given is not None:
                    state.entry(given)
            return PathSize(thread).count(state.path(end, after=after, limit=limit))

    def segments(self, thread: str) -> list[Segment]:
        with self._changed:
            return self._state(thread).segments()

    def wait(self, thread: str, *, after: int, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while self._state(thread).head.seq <= after:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return self._state(thread).head.seq > after
            return True

    # --- leases and blobs ---

    def lease(self, thread: str, request: LeaseRequest) -> Lease | None:
        with self._changed:
            self._state(thread)
            state = self._leases.get(thread, LeaseState())
            after, answer = step_lease(thread, state, request, self._clock())
            self._leases[thread] = after
            return answer

    def put_blobs(self, blobs: Sequence[bytes]) -> list[str]:
        with self._changed:
            self._check_open()
            now_us = self._clock().wall_us
            hashes = [digest(data) for data in blobs]
            for hash, data in zip(hashes, blobs, strict=True):
                self._blobs[hash] = (bytes(data), now_us)
            return hashes

    def get_blob(self, hash: str) -> bytes:
        with self._changed:
            self._check_open()
            if hash not in self._blobs:
                raise NotFound("blob", hash)
            return self._blobs[hash][0]

    def has_blobs(self, hashes: Iterable[str]) -> set[str]:
        with self._changed:
            self._check_open()
            return {hash for hash in hashes if hash in self._blobs}

    def renew_blobs(self, hashes: Iterable[str]) -> set[str]:
        with self._changed:
            self._check_open()
            found = {hash for hash in hashes if hash in self._blobs}
            now_us = self._clock().wall_us
            for hash in found:
                self._blobs[hash] = (self._blobs[hash][0], now_us)
            return found

    def sweep(self, *, grace_seconds: float, keep: Keep | None = None) -> Swept:
        before_us = self._clock().wall_us - round(grace_seconds * 1e6)
        unused = self._unused(before_us)
        wanted = keep(set(unused)) if keep is not None and unused else set()
        with self._changed:
            gone = unused & self._unused(before_us) - wanted
            size = sum(len(self._blobs.pop(hash)[0]) for hash in gone)
            return Swept(blobs=len(gone), size_bytes=size)

    def _unused(self, before_us: int) -> set[str]:
        """The blobs that no entry names, and that were put before a time."""
        with self._changed:
            self._check_open()
            states = self._threads.values()
            owners = {*states, *(span.owner for one in states for span in one.lineage())}
            used = {
                hash
                for owner in owners
                for record in owner.own.values()
                for hash in used_blobs(record)
            }
            old = {hash for hash, (_, put_us) in self._blobs.items() if put_us <= before_us}
            return old - used

    # --- looking after ---

    def pack(
        self,
        *,
        tail: int = PACK_TAIL,
        idle_seconds: float = PACK_IDLE_SECONDS,
        max_seconds: float | None = None,
        shrink: bool = False,
        after: str | None = None,
    ) -> PackResult:
        with self._changed:
            self._check_open()
        return PackResult()

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        with self._changed:
            self._check_open()
            total = sum(len(state.records) for state in self._threads.values())
        if progress is not None:
            progress(total, total)
        return iter(())

    def stats(self) -> Stats:
        with self._changed:
            self._check_open()
            infos = [state.info() for state in self._threads.values()]
            records = [r for state in self._threads.values() for r in state.records]
            entries = [r for r in records if isinstance(r, Entry)]
            blob_bytes = sum(len(data) for data, _ in self._blobs.values())
            deleted = sum(info.deleted_at is not None for info in infos)
            return Stats(
                threads=len(infos) - deleted,
                deleted=deleted,
                entries=len(entries),
                records=len(records),
                blobs=len(self._blobs),
                blob_bytes=blob_bytes,
                stored_bytes=blob_bytes + sum(len(entry.data) for entry in entries),
            )

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the memory store was closed")

    def _state(self, thread: str) -> ThreadState:
        self._check_open()
        state = self._threads.get(thread)
        if state is None:
            raise NotFound("thread", thread)
        return state


def _key(info: ThreadInfo, query: ThreadQuery) -> tuple[int, str]:
    return (-(info.created_us if query.order == "created" else info.updated_us), info.id)


def _matches(info: ThreadInfo, query: ThreadQuery) -> bool:
    time_us = -_key(info, query)[0]
    deleted = info.deleted_at is not None
    return (
        deleted == query.deleted
        and (deleted or query.archived is None or info.archived == query.archived)
        and query.tag in (None, *info.tags)
        and query.workspace in (None, info.workspace)
        and query.status in (None, info.status)
        and query.parent in (None, info.parent)
        and query.origin in (None, info.origin and info.origin.thread)
        and not (query.roots and (info.parent or info.origin))
        and info.id.startswith(query.prefix or "")
        and (query.after_us is None or time_us > query.after_us)
        and (query.before_us is None or time_us < query.before_us)
    )


def _after_fork_in_child() -> None:
    # The child has a copy of its own. A lock that another thread of the parent held at the fork is
    # never released here, so each store gets a new one.
    for engine in list(_open_stores):
        engine._changed = threading.Condition()


if hasattr(os, "register_at_fork"):  # one way: Windows has no fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
