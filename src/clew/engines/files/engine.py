"""The waist on files: writes go through the thread's journal, reads through the index to it."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from clew.core.engine import (
    PACK_IDLE_SECONDS,
    PACK_TAIL,
    Keep,
    PackResult,
    Progress,
    check_limit,
    fill_page,
)
from clew.core.errors import Corrupt, NotFound, ReadOnly, Unavailable
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
    Record,
    Segment,
    Stats,
    ThreadDraft,
    ThreadHead,
    ThreadInfo,
    ThreadQuery,
)
from clew.core.names import check_namespace
from clew.core.removal import Erased, Purged, Swept
from clew.engines.files import changes, erase, leases, pack, place, purge, verify
from clew.engines.files.additions import create_thread
from clew.engines.files.blobs import SPILL_BYTES
from clew.engines.files.disk import Disk, GuardedDisk, ReadOnlyDisk
from clew.engines.files.index import SPACE, Untrue
from clew.engines.files.journal import Journal
from clew.engines.files.locks import EXCLUSIVE, SHARED
from clew.engines.files.open_store import OpenStore
from clew.engines.files.place import in_use, release
from clew.engines.shared.clock import now
from clew.engines.shared.compression import pack as pack_blob
from clew.engines.shared.compression import pack_large
from clew.engines.shared.durability import ACKNOWLEDGED, LocalDurability, check_durability
from clew.engines.shared.process_fork import OpenStores
from clew.engines.shared.tables import read, rows

T = TypeVar("T")

POLL_SECONDS = 0.02
FORK_WAIT_SECONDS = 5.0
_LOST = "the blob that holds its value is missing or damaged"

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
            packs=True,
            text_index_place=f"{self._place.root}/index/search/words.db",
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
            with store.writing_to(self._place.blobs, ahead=True):
                store.blobs.settle()
        # Only an append that refers to blobs has to keep a sweep away; the rest pass the gate by.
        if not large and not any(isinstance(d, EntryDraft) and d.blobs for d in drafts):
            return store.journal(thread).append(drafts, {}, expect, fence)
        with store.gate.open():
            with store.writing_to(self._place.blobs, ahead=True):
                store.gate.note(store.disk)
                now_us = store.clock().wall_us
                store.blobs.put_all(list(large.values()), now_us)
                # A sweep that is under way has looked before this: what is young it leaves.
                named = (draft.blobs for draft in drafts if isinstance(draft, EntryDraft))
                store.blobs.renew({hash for hashes in named for hash in hashes}, now_us)
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
                    if not journal.lock.is_there:  # no test: removed while it is held
                        text = f"{journal.lock.path} was removed meanwhile, and the lease with it"
                        raise Unavailable(text)
                return answer

    def put_blobs(self, blobs: Sequence[bytes]) -> list[str]:
        store = self._enter()
        packed = [pack_blob(data) for data in blobs]
        with store.gate.open(), store.writing_to(self._place.blobs):
            store.blobs.put_all(packed, store.clock().wall_us)
        return [blob.hash for blob in packed]

    def renew_blobs(self, hashes: Iterable[str]) -> set[str]:
        store = self._enter()
        with store.gate.open(), store.writing_to(self._place.blobs):
            return store.blobs.renew(hashes, store.clock().wall_us)

    def purge(self, thread: str) -> Purged:
        store = self._enter()
        with store.gate.shut(), store.writing_to(self._place.thread(thread)):
            return purge.purge(store, self._changes, thread)

    def erase(
        self, thread: str, entries: Sequence[str], *, time_us: int, reason: str | None = None
    ) -> list[Erased]:
        store = self._enter()
        with store.gate.shut(), store.writing_to(self._place.thread(thread)):
            return erase.erase(store, self._changes, thread, entries, time_us, reason)

    def sweep(self, *, grace_seconds: float, keep: Keep | None = None) -> Swept:
        store = self._enter()
        # Alone for a moment: the writers that are at work end, so that the index will know what
        # they refer to. Those that come later make what they refer to young.
        with store.gate.shut():
            before_us = store.clock().wall_us - round(grace_seconds * 1e6)
        with store.writing_to(self._place.blobs):
            unused = store.with_index(lambda: purge.unused(store, self._changes, before_us))
            # Asked with the gate open: that takes as long as there are snapshots.
            wanted = keep({stored.hash for stored in unused}) if keep and unused else set()
            doomed = deque(stored for stored in unused if stored.hash not in wanted)
            count = size_bytes = 0
            while doomed:
                with store.gate.shut():
                    swept = purge.remove(store, doomed, before_us)
                # A lock that is taken again at once would hardly ever be another one's.
                time.sleep(purge.SWEEP_SECONDS)
                count, size_bytes = count + swept.blobs, size_bytes + swept.size_bytes
            purge.remove_leftovers(store, before_us)
            if store.pace.is_due:
                purge.wipe(store, always=True)
            return Swept(blobs=count, size_bytes=size_bytes)

    # --- reading ---

    def thread(self, id: str) -> ThreadInfo:
        def work(journal: Journal) -> ThreadInfo:
            draft, head = journal.header.draft, journal.head
            facts = journal.facts()
            return ThreadInfo(
                *(id, draft.created_us, head.updated_us, head.seq, head.leaf),
                *(draft.parent, draft.origin),
                {key: data for key, data in facts.items() if data is not None},
                {key: _LOST for key, data in facts.items() if data is None},
            )

        return self._read(id, work)

    def threads(self, query: ThreadQuery) -> Page[ThreadInfo]:
        check_limit(query.limit)
        store = self._enter()

        def work() -> Page[ThreadInfo]:
            self._changes.refresh()
            with store.index.asked() as db:
                page = read.threads(db, SPACE, query)
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
            first = max(after, 0) + 1
            span = rows.everything_of(journal.no, first - 1)
            places = self._store.index.places(span, limit=limit)
            found = fill_page(journal.each_record(places))
            wanted = range(first, min(first + limit, journal.head.seq + 1))
            seqs = [record.seq for record in found]
            if len(places) != len(wanted) or seqs != list(wanted[: len(seqs)]):
                raise Untrue(journal.path, "the index lacks a record")
            return found

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
            end = journal.head.leaf if leaf is UNSET else leaf
            try:
                places = store.index.path(thread, end, after, limit)
            except NotFound:
                store.check_absent([id for id in (end, after) if id is not None], journal)
                raise
            path: list[Entry] = store.records(places, journal)  # type: ignore[assignment]
            if not is_path(path, after, end, limit):
                raise Untrue(journal.path, "the index leads along another path than the file")
            return path

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
            with self._store.index.asked() as db:
                return read.segments(db, SPACE, thread)

        return self._read(thread, work)

    def _read(self, thread: str, work: Callable[[Journal], T]) -> T:
        """Read a thread that the index knows as it is now, and that stays so meanwhile."""
        store = self._enter()
        journal = store.journal(thread)

        again = False

        def refreshed() -> T:
            nonlocal again
            journal.refresh_index(afresh=again)
            again = True
            try:
                return work(journal)
            except NotFound as error:
                if error.what == "thread" and place.is_there(journal.path):
                    raise Untrue(journal.path, "the index lacks the thread") from error
                raise

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

    def pack(
        self,
        *,
        tail: int = PACK_TAIL,
        idle_seconds: float = PACK_IDLE_SECONDS,
        max_seconds: float | None = None,
        shrink: bool = False,
        after: str | None = None,
    ) -> PackResult:
        """Thread after thread: one rests as a whole or not at all, so that `tail` says nothing."""
        store = self._enter()
        if self.properties.read_only:
            raise ReadOnly(self.properties.place, operation="pack")
        with store.writing_to(self._place.threads):
            return pack.pack(
                store,
                self._changes,
                idle_seconds=idle_seconds,
                max_seconds=max_seconds,
                after=after,
            )

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        store = self._enter()
        return verify.check(store, self._changes, quick=quick, progress=progress)

    def heads(self) -> list[ThreadHead]:
        store = self._enter()
        with store.writing_to(self._place.root):
            return store.with_index(lambda: changes.heads(store, self._changes))

    def stats(self) -> Stats:
        store = self._enter()
        with store.writing_to(self._place.root):
            return store.with_index(lambda: changes.stats(store, self._changes))

    def close(self) -> None:
        if _open_stores.discard(self):
            if self._store.pid == os.getpid():  # one way: a child has opened it anew
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


def is_path(path: Sequence[Entry], after: str | None, end: str | None, limit: int | None) -> bool:
    """Whether entries hang on each other, from behind `after` or a root, to `end`.

    With as many as the limit, the path may begin anywhere.
    """
    if not path:
        return end == after or limit == 0
    if path[0].parent != after and len(path) != limit:
        return False
    return path[-1].id == end and all(b.parent == a.id for a, b in pairwise(path))
