"""The waist on files: writes go through the thread's journal, reads through the index to it."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import UNSET, UnsetType

from clew.core.drafts import check_namespace
from clew.core.engine import Keep, Progress, check_limit
from clew.core.errors import Corrupt, InvalidInput
from clew.core.lease_rules import Instant, step_lease
from clew.core.lines import VERSION
from clew.core.model import (
    DEFAULT_NAMESPACE,
    Draft,
    Entry,
    EntryDraft,
    Inspect,
    Lease,
    LeaseRequest,
    MoveDraft,
    Page,
    Problem,
    Properties,
    Purged,
    Record,
    Segment,
    Stats,
    Swept,
    ThreadDraft,
    ThreadInfo,
    ThreadQuery,
)
from clew.engines.files import leases, place, purge, survey
from clew.engines.files.blobs import SPILL_BYTES
from clew.engines.files.disk import Disk, GuardedDisk
from clew.engines.files.handle import Shared
from clew.engines.files.index import SPACE
from clew.engines.files.journal import Batch, Journal, create_thread
from clew.engines.files.locks import EXCLUSIVE, SHARED
from clew.engines.files.place import in_use, release
from clew.engines.shared.clock import now
from clew.engines.shared.compression import Packed, pack
from clew.engines.shared.tables import read, rows

_ACKNOWLEDGED = {
    "full": "on this disk: survives the death of the process and loss of power",
    "relaxed": "handed to the system: survives the death of the process, not loss of power",
}
T = TypeVar("T")

POLL_SECONDS = 0.02
FORK_WAIT_SECONDS = 5.0


class FilesEngine:
    """A store in one folder."""

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Literal["full", "relaxed"] = "full",
        busy_seconds: float = 30.0,
        create: bool = True,
        namespace: str = DEFAULT_NAMESPACE,
        disk: Disk | None = None,
        clock: Callable[[], Instant] = now,
    ) -> None:
        if durability not in _ACKNOWLEDGED:
            raise InvalidInput("durability", f"must be 'full' or 'relaxed', not {durability!r}")
        self._namespace = check_namespace(namespace)
        self._durability: Literal["full", "relaxed"] = durability
        self._busy_seconds = busy_seconds
        self._clock = clock
        self._disk = GuardedDisk(disk or Disk(), durable=durability == "full")
        self._places = place.enter(Path(path).absolute(), namespace, self._disk, create=create)
        self._place = self._places[0]
        self._real_root = os.path.realpath(self._places[-1].root)
        self._start()
        _open_stores.add(self)

    def _start(self) -> None:
        self._survives = True
        self._in_use = in_use(reversed(self._places))
        self._shared = Shared(
            self._place, self._disk, busy_seconds=self._busy_seconds, clock=self._clock
        )
        self._survey = survey.Survey(self._shared)

    @property
    def properties(self) -> Properties:
        return Properties(
            engine="files",
            place=self._places[-1].root,
            durability=self._durability,
            acknowledged=_ACKNOWLEDGED[self._durability],
            processes=True,
            version=str(VERSION),
            namespace=self._namespace,
            maintenance="clew.engines.files.doctor:FilesMaintenance",
            own_files=(self._real_root,),
            cache_folder=f"{self._real_root}/index/snapshots",
        )

    # --- writing ---

    def create(self, draft: ThreadDraft) -> ThreadInfo:
        shared = self._enter()
        large = _pack(draft.facts)
        with shared.gate.open(), shared.writing_to(self._place.thread(draft.id)):
            shared.gate.note(shared.disk)
            shared.blobs.put_all(list(large.values()), shared.clock().wall_us)
            shared.blobs.settle()
            spilled = {id: blob.hash for id, blob in large.items()}
            shared.with_index(lambda: create_thread(shared, draft, spilled))
        return self.thread(draft.id)

    def append(
        self,
        thread: str,
        drafts: Sequence[Draft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Record]:
        shared = self._enter()
        large = _pack(drafts)
        if shared.blobs.owed:
            with shared.writing_to(self._place.blobs):
                shared.blobs.settle()
        if not large and not any(isinstance(d, EntryDraft) and d.blobs for d in drafts):
            return self._append(thread, drafts, {}, expect, fence)
        with shared.gate.open():
            with shared.writing_to(self._place.blobs):
                shared.gate.note(shared.disk)
                shared.blobs.put_all(list(large.values()), shared.clock().wall_us)
            spilled = {id: blob.hash for id, blob in large.items()}
            return self._append(thread, drafts, spilled, expect, fence)

    def _append(
        self,
        thread: str,
        drafts: Sequence[Draft],
        spilled: Mapping[str, str],
        expect: str | UnsetType | None,
        fence: int | None,
    ) -> list[Record]:
        def work(batch: Batch) -> list[Record]:
            return batch.append(drafts, spilled, expect, fence)

        return self._shared.journal(thread).commits.run(work)

    def lease(self, thread: str, request: LeaseRequest) -> Lease | None:
        shared = self._enter()
        journal = shared.journal(thread)
        kind = SHARED if isinstance(request, Inspect) else EXCLUSIVE
        with journal.mutex, shared.writing_to(journal.path):
            shared.with_index(journal.refresh)
            with journal.lock.held(kind, self._busy_seconds):
                descriptor = journal.lock.descriptor
                slots = leases.read(descriptor, shared.clock())
                after, answer = step_lease(thread, slots.state, request, shared.clock())
                if after != slots.state:
                    leases.write(shared.disk, descriptor, slots, after)
                    shared.disk.sync(descriptor)
                    if slots.generation < 0:  # its first lease: the file's name must last too
                        shared.disk.sync_folder(self._place.locks)
                return answer

    def put_blobs(self, blobs: Sequence[bytes]) -> list[str]:
        shared = self._enter()
        packed = [pack(data) for data in blobs]
        with shared.gate.open(), shared.writing_to(self._place.blobs):
            shared.blobs.put_all(packed, shared.clock().wall_us)
        return [blob.hash for blob in packed]

    def purge(self, thread: str) -> Purged:
        shared = self._enter()
        with shared.gate.shut(), shared.writing_to(self._place.thread(thread)):
            return shared.with_index(lambda: purge.purge(shared, self._survey, thread))

    def sweep(self, *, grace_seconds: float, keep: Keep | None = None) -> Swept:
        shared = self._enter()
        before_us = shared.clock().wall_us - round(grace_seconds * 1e6)
        with shared.gate.shut(), shared.writing_to(self._place.blobs):
            return shared.with_index(lambda: purge.sweep(shared, self._survey, before_us, keep))

    # --- reading ---

    def thread(self, id: str) -> ThreadInfo:
        def work(journal: Journal) -> ThreadInfo:
            with self._shared.index.lock:
                db = self._shared.index.db
                return rows.thread_row(db, SPACE, id).info(db)

        return self._read(id, work)

    def threads(self, query: ThreadQuery) -> Page[ThreadInfo]:
        check_limit(query.limit)
        shared = self._enter()

        def work() -> Page[ThreadInfo]:
            self._survey.refresh()
            with shared.index.lock:
                return read.threads(shared.index.db, SPACE, query)

        with shared.writing_to(self._place.threads):
            return shared.with_index(work)

    def read(self, thread: str, *, after: int = 0, limit: int = 1000) -> list[Record]:
        limit = check_limit(limit)

        def work(journal: Journal) -> list[Record]:
            if after >= journal.head.seq:
                return []
            span = rows.everything_of(journal.no, max(after, 0))
            return journal.records(self._shared.index.places(span, limit=limit))

        return self._read(thread, work)

    def path(
        self,
        thread: str,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        limit = None if limit is None else check_limit(limit)
        shared = self._enter()

        def work(journal: Journal) -> list[Entry]:
            places = shared.index.path(thread, leaf, after, limit)
            return shared.records(places, journal)  # type: ignore[return-value]

        def again(journal: Journal) -> list[Entry]:
            if journal.header.source is not None:
                shared.ensure(journal.header.source, deep=True)
            return work(journal)

        with shared.gate.open():  # what a fork shares must not go away while it is read
            try:
                return self._read(thread, work)
            except Corrupt:
                return self._read(thread, again)

    def segments(self, thread: str) -> list[Segment]:
        def work(journal: Journal) -> list[Segment]:
            with self._shared.index.lock:
                return read.segments(self._shared.index.db, SPACE, thread)

        return self._read(thread, work)

    def _read(self, thread: str, work: Callable[[Journal], T]) -> T:
        """Read a thread that the index knows as it is now, and that stays so meanwhile."""
        shared = self._enter()
        journal = shared.journal(thread)

        def refreshed() -> T:
            journal.refresh_index()
            return work(journal)

        with journal.mutex, shared.writing_to(journal.path):
            return shared.with_index(refreshed)

    def wait(self, thread: str, *, after: int, timeout_seconds: float) -> bool:
        """Woken by writers of this handle; the file's size is looked at in between."""
        shared = self._enter()
        deadline = time.monotonic() + timeout_seconds
        with shared.changed:
            shared.waiting += 1
        try:
            while not self._has(thread, after):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                with shared.changed:
                    shared.changed.wait(min(left, POLL_SECONDS))
            return True
        finally:
            with shared.changed:
                shared.waiting -= 1

    def _has(self, thread: str, after: int) -> bool:
        shared = self._enter()
        journal = shared.journal(thread)
        with journal.mutex, shared.writing_to(journal.path):
            shared.with_index(journal.refresh)
            return journal.head.seq > after

    def get_blob(self, hash: str) -> bytes:
        return self._enter().blobs.get(hash)

    def has_blobs(self, hashes: Iterable[str]) -> set[str]:
        return self._enter().blobs.has(hashes)

    # --- looking after ---

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        from clew.engines.files import verify  # loaded when it is asked for: most never do

        shared = self._enter()
        return verify.check(shared, self._survey, quick=quick, progress=progress)

    def stats(self) -> Stats:
        shared = self._enter()
        with shared.writing_to(self._place.root):
            return shared.with_index(lambda: survey.stats(shared, self._survey))

    def close(self) -> None:
        if self in _open_stores:
            _open_stores.discard(self)
            if self._shared.pid == os.getpid():
                self._shared.close()
                release(self._in_use)
            self._shared.closed = True

    # --- forks of the process ---

    def _enter(self) -> Shared:
        self._shared.check()
        return self._shared

    def before_fork(self) -> None:
        """The index must be closed while the process forks; its lock is held until it has."""
        self._survives = self._shared.index.lock.acquire(timeout=FORK_WAIT_SECONDS)
        if self._survives:
            self._shared.index.close()

    def after_fork_in_parent(self) -> None:
        if self._survives:
            self._shared.index.lock.release()

    def after_fork_in_child(self) -> None:
        if not self._survives or self._disk.poison is not None:
            _abandoned.append(self._shared)  # it is the parent's: never touch it, never close it
            return
        # flock is shared with the parent through these descriptors: let go of our copies.
        self._shared.abandon()
        release(self._in_use)
        try:
            self._start()
        except Exception as error:
            self._shared.closed = True
            _abandoned.append(error)


def _pack(drafts: Sequence[Draft]) -> dict[str, Packed]:
    return {
        draft.id: pack(draft.data)
        for draft in drafts
        if not isinstance(draft, MoveDraft) and len(draft.data) > SPILL_BYTES
    }


_open_stores: weakref.WeakSet[FilesEngine] = weakref.WeakSet()
_abandoned: list[object] = []
_forking: list[FilesEngine] = []
_fork_lock = threading.Lock()


def _before_fork() -> None:
    _fork_lock.acquire()
    _forking[:] = list(_open_stores)
    for engine in _forking:
        engine.before_fork()


def _after_fork_in_parent() -> None:
    for engine in _forking:
        engine.after_fork_in_parent()
    _forking.clear()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    for engine in _forking:
        engine.after_fork_in_child()
    _forking.clear()
    _fork_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
