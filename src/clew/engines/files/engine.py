"""The waist on files: writes go through the thread's journal, reads through the index to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from clew.core.engine import Keep, Progress, check_limit
from clew.core.errors import Corrupt, Unavailable
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
from clew.core.names import check_namespace
from clew.engines.files import changes, leases, place, purge
from clew.engines.files.blobs import SPILL_BYTES
from clew.engines.files.disk import Disk, GuardedDisk, ReadOnlyDisk
from clew.engines.files.index import SPACE
from clew.engines.files.journal import Journal, create_thread
from clew.engines.files.locks import EXCLUSIVE, SHARED
from clew.engines.files.open_store import OpenStore
from clew.engines.files.place import in_use, release
from clew.engines.shared.clock import now
from clew.engines.shared.compression import pack, pack_large
from clew.engines.shared.durability import ACKNOWLEDGED, LocalDurability, check_durability
from clew.engines.shared.process_fork import OpenStores
from clew.engines.shared.tables import read, rows

T = TypeVar("T")

POLL_SECONDS = 0.02
FORK_WAIT_SECONDS = 5.0

_open_stores = OpenStores()


class FilesEngine:
    """A store in one folder."""

    def __init__(
        self,
        path: str | Path,
        *,
        durability: LocalDurability = "full",
        busy_seconds: float = 30.0,
        create: bool = True,
        namespace: str = DEFAULT_NAMESPACE,
        readonly: bool = False,
        disk: Disk | None = None,
        clock: Callable[[], Instant] = now,
    ) -> None:
        self._namespace = check_namespace(namespace)
        self._durability = check_durability(durability)
        self._busy_seconds = busy_seconds
        self._clock = clock
        self._readonly = readonly
        if readonly:
            disk, create = ReadOnlyDisk(str(Path(path).absolute())), False
        self._disk = GuardedDisk(disk or Disk(), durable=durability == "full")
        self._places = place.enter(
            Path(path).absolute(), namespace, self._disk, create=create, readonly=readonly
        )
        self._place = self._places[0]
        self._real_root = os.path.realpath(self._places[-1].root)
        self._start()
        _open_stores.add(self)

    def _start(self) -> None:
        self._survives = True
        self._in_use = in_use(reversed(self._places), readonly=self._readonly)
        self._store = OpenStore(
            self._place,
            self._disk,
            busy_seconds=self._busy_seconds,
            clock=self._clock,
            readonly=self._readonly,
        )
        self._changes = changes.Changes(self._store)

    @property
    def properties(self) -> Properties:
        return Properties(
            engine="files",
            place=self._places[-1].root,
            durability=self._durability,
            acknowledged=ACKNOWLEDGED[self._durability],
            processes=True,
            version=str(VERSION),
            namespace=self._namespace,
            read_only=self._readonly,
            maintenance="clew.engines.files.doctor:FilesMaintenance",
            own_files=(self._real_root,),
            cache_folder=f"{self._real_root}/index/snapshots",
        )

    # --- writing ---

    def create(self, draft: ThreadDraft) -> ThreadInfo:
        store = self._enter()
        large = pack_large(draft.facts, SPILL_BYTES)
        with store.gate.open(), store.writing_to(self._place.thread(draft.id)):
            # First of all: if this process dies on the way, a later purge still looks for forks.
            store.gate.note(store.disk)
            store.blobs.put_all(list(large.values()), store.clock().wall_us)
            store.blobs.settle()
            spilled = {id: blob.hash for id, blob in large.items()}
            store.with_index(lambda: create_thread(store, draft, spilled))
        return self.thread(draft.id)

    def append(
        self,
        thread: str,
        drafts: Sequence[Draft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Record]:
        store = self._enter()
        large = pack_large(drafts, SPILL_BYTES)
        # The caller was told of blobs whose names may not be on disk yet. An append that relies on
        # them must not be acknowledged before they are.
        if store.blobs.owed:
            with store.writing_to(self._place.blobs):
                store.blobs.settle()
        # Only an append that refers to blobs has to keep a sweep away; the rest pass the gate by.
        if not large and not any(isinstance(d, EntryDraft) and d.blobs for d in drafts):
            return store.journal(thread).append(drafts, {}, expect, fence)
        with store.gate.open():
            with store.writing_to(self._place.blobs):
                store.gate.note(store.disk)
                store.blobs.put_all(list(large.values()), store.clock().wall_us)
            spilled = {id: blob.hash for id, blob in large.items()}
            return store.journal(thread).append(drafts, spilled, expect, fence)

    def lease(self, thread: str, request: LeaseRequest) -> Lease | None:
        store = self._enter()
        journal = store.journal(thread)
        kind = SHARED if isinstance(request, Inspect) else EXCLUSIVE
        with journal.mutex, store.writing_to(journal.path):
            store.with_index(journal.refresh)
            with journal.lock.held(kind, self._busy_seconds):
                descriptor = journal.lock.descriptor
                if descriptor < 0 and os.path.lexists(journal.lock.path):
                    text = f"{journal.lock.path}, which tells of leases, may not be read"
                    raise Unavailable(text, retryable=False)
                slots = leases.read(descriptor, store.clock())
                after, answer = step_lease(thread, slots.state, request, store.clock())
                if after != slots.state:
                    leases.write(store.disk, descriptor, slots, after)
                    store.disk.sync(descriptor)
                    if slots.generation < 0:  # its first lease: the file's name must last too
                        store.disk.sync_folder(self._place.locks)
                return answer

    def put_blobs(self, blobs: Sequence[bytes]) -> list[str]:
        store = self._enter()
        packed = [pack(data) for data in blobs]
        with store.gate.open(), store.writing_to(self._place.blobs):
            store.blobs.put_all(packed, store.clock().wall_us)
        return [blob.hash for blob in packed]

    def purge(self, thread: str) -> Purged:
        store = self._enter()
        with store.gate.shut(), store.writing_to(self._place.thread(thread)):
            return store.with_index(lambda: purge.purge(store, self._changes, thread))

    def sweep(self, *, grace_seconds: float, keep: Keep | None = None) -> Swept:
        store = self._enter()
        before_us = store.clock().wall_us - round(grace_seconds * 1e6)
        with store.gate.shut(), store.writing_to(self._place.blobs):
            return store.with_index(lambda: purge.sweep(store, self._changes, before_us, keep))

    # --- reading ---

    def thread(self, id: str) -> ThreadInfo:
        def work(journal: Journal) -> ThreadInfo:
            with self._store.index.lock:
                db = self._store.index.db
                return rows.thread_row(db, SPACE, id).info(db)

        return self._read(id, work)

    def threads(self, query: ThreadQuery) -> Page[ThreadInfo]:
        check_limit(query.limit)
        store = self._enter()

        def work() -> Page[ThreadInfo]:
            self._changes.refresh()
            with store.index.lock:
                page = read.threads(store.index.db, SPACE, query)
                damage = store.index.damage()
            if not damage:
                return page
            items = [replace(info, unreadable=damage.get(info.id)) for info in page.items]
            return Page(items, page.cursor)

        with store.writing_to(self._place.threads):
            return store.with_index(work)

    def read(self, thread: str, *, after: int = 0, limit: int = 1000) -> list[Record]:
        limit = check_limit(limit)

        def work(journal: Journal) -> list[Record]:
            if after >= journal.head.seq:
                return []
            span = rows.everything_of(journal.no, max(after, 0))
            return journal.records(self._store.index.places(span, limit=limit))

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
        store = self._enter()

        def work(journal: Journal) -> list[Entry]:
            places = store.index.path(thread, leaf, after, limit)
            return store.records(places, journal)  # type: ignore[return-value]

        # The index may have been made anew meanwhile, without what this fork inherits.
        def again(journal: Journal) -> list[Entry]:
            if journal.header.source is not None:
                store.ensure(journal.header.source, deep=True)
            return work(journal)

        with store.gate.open():  # what a fork shares must not go away while it is read
            try:
                return self._read(thread, work)
            except Corrupt:
                return self._read(thread, again)

    def segments(self, thread: str) -> list[Segment]:
        def work(journal: Journal) -> list[Segment]:
            with self._store.index.lock:
                return read.segments(self._store.index.db, SPACE, thread)

        return self._read(thread, work)

    def _read(self, thread: str, work: Callable[[Journal], T]) -> T:
        """Read a thread that the index knows as it is now, and that stays so meanwhile."""
        store = self._enter()
        journal = store.journal(thread)

        def refreshed() -> T:
            journal.refresh_index()
            return work(journal)

        with journal.mutex, store.writing_to(journal.path):
            return store.with_index(refreshed)

    def wait(self, thread: str, *, after: int, timeout_seconds: float) -> bool:
        """Woken by writers of this handle; the file's size is looked at in between."""
        store = self._enter()
        deadline = time.monotonic() + timeout_seconds
        with store.changed:
            store.waiting += 1
        try:
            while True:
                journal = self._enter().journal(thread)
                with journal.mutex, store.writing_to(journal.path):
                    store.with_index(journal.refresh)
                    if journal.head.seq > after:
                        return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                with store.changed:
                    store.changed.wait(min(left, POLL_SECONDS))
        finally:
            with store.changed:
                store.waiting -= 1

    def get_blob(self, hash: str) -> bytes:
        return self._enter().blobs.get(hash)

    def has_blobs(self, hashes: Iterable[str]) -> set[str]:
        return self._enter().blobs.has(hashes)

    # --- looking after ---

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        from clew.engines.files import verify  # loaded when it is asked for: most never do

        store = self._enter()
        return verify.check(store, self._changes, quick=quick, progress=progress)

    def stats(self) -> Stats:
        store = self._enter()
        with store.writing_to(self._place.root):
            return store.with_index(lambda: changes.stats(store, self._changes))

    def close(self) -> None:
        if _open_stores.discard(self):
            if self._store.pid == os.getpid():
                self._store.close()
                release(self._in_use)
            self._store.closed = True

    # --- forks of the process ---

    def _enter(self) -> OpenStore:
        self._store.check()
        return self._store

    def before_fork(self) -> None:
        """The index must be closed while the process forks; its lock is held until it has."""
        self._survives = self._store.index.lock.acquire(timeout=FORK_WAIT_SECONDS)
        if self._survives:
            self._store.index.close()

    def after_fork_in_parent(self) -> None:
        if self._survives:
            self._store.index.lock.release()

    def after_fork_in_child(self) -> None:
        if not self._survives or self._disk.poison is not None:
            _open_stores.abandoned.append(self._store)
            return
        # flock is shared with the parent through these descriptors: let go of our copies.
        self._store.abandon()
        release(self._in_use)
        try:
            self._start()
        except Exception as error:
            self._store.closed = True
            _open_stores.abandoned.append(error)
