"""One thread's file: how far it is known, how it grows, and how its lines are read.

The file is the truth. In memory there is only where it ends, where the thread stands (`head`)
and the places of records that the index does not have yet. A file that others have changed is
read from where it was known to end.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from msgspec import UnsetType

from clew.core.codec import new_id
from clew.core.errors import ClewError, Corrupt, InvalidInput, NotFound
from clew.core.lines import Header, Source, file_stem, header_line, parse, record_line
from clew.core.model import Draft, Entry, Origin, Record, ThreadDraft
from clew.core.reducer import Find, Head, check_origin, check_recreated, plan
from clew.engines.files import leases
from clew.engines.files.index import INDEX_ERRORS, SPACE, Extent, Where, apply
from clew.engines.files.locks import EXCLUSIVE, SHARED, FileLock
from clew.engines.files.open_store import OpenStore
from clew.engines.files.place import put_file, write_all
from clew.engines.files.tail import Damage, FoundLine, judge, scan
from clew.engines.files.thread_file import ThreadFile
from clew.engines.shared.group_commit import GroupCommit, Ticket
from clew.engines.shared.tables import rows

CHUNK_BYTES = 4 * 1024 * 1024
LAST_BYTES = 32
RECENT_MAX = 5_000  # records that wait for the index, at most

_log = logging.getLogger("clew")


class Journal:
    """The file of one thread, or what is left of a purged one. Methods that say so need `mutex`."""

    def __init__(self, store: OpenStore, id: str, path: str, name: str | None) -> None:
        self.id = id
        self.path = path
        self.mutex = threading.RLock()
        self.commits = GroupCommit(self._transact)
        self._store = store
        self._name = name  # in the index; None for what is left of a purged thread
        self._mark = store.place.mark(id)
        self._bytes = id.encode("utf-8")
        self._lock: FileLock | None = None
        self._file: ThreadFile | None = None
        self._forget()

    def _forget(self) -> None:
        self.no = 0
        self.head = Head(self.id)
        self._looked = -1  # the size of the file when it was last looked at; -1: look again
        self._size = 0  # of what is known and acknowledged
        self._indexed = 0
        self._torn = False  # there is more behind it, which the next writer cuts off
        self._recent: dict[str, tuple[int, int]] = {}  # id → start, length
        self._epoch = self._store.index.epoch

    @property
    def file(self) -> ThreadFile:
        if self._file is None:
            raise NotFound("thread", self.id)
        return self._file

    @property
    def header(self) -> Header:
        return self.file.header

    @property
    def lock(self) -> FileLock:
        if self._lock is None:
            path = self._store.place.lock(self.id)
            self._lock = FileLock(path, readonly=self._store.readonly)
        return self._lock

    def close(self) -> None:
        """Let go of the descriptors; the next use opens them again."""
        self._close_file()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def retire(self) -> None:
        """Close, and leave the index as it should be. Needs the mutex."""
        try:
            self.index_up()
        except (OSError, ClewError, *INDEX_ERRORS):
            pass  # the next reader will do it
        self.close()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._forget()

    def __del__(self) -> None:
        self.close()

    # --- keeping up with the file (all of these need the mutex) ---

    def refresh(self) -> None:
        """Know the file as it is now. NotFound if there is none."""
        if not self._is_current():
            # What is left of a purged thread is only ever replaced, as a whole.
            husk = self._name is None
            with nullcontext() if husk else self.lock.held(SHARED, self._store.busy_seconds):
                self.catch_up()
        self._ensure_source()

    def refresh_index(self, *, afresh: bool = False) -> None:
        """The same, and the index knows it too: for callers that read through it."""
        self._looked = -1 if afresh else self._looked
        self.refresh()
        self.index_up()
        if self._looked < 0:  # the index was made anew
            self.refresh()

    def _is_current(self) -> bool:
        found = self._look()
        return (
            not self._torn
            and found.st_size == self._looked
            and self._file is not None
            and found.st_ino == self._file.inode
            and self._epoch == self._store.index.epoch
        )

    def _look(self) -> os.stat_result:
        try:
            return os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            self._close_file()
            raise NotFound("thread", self.id) from None

    def catch_up(self, *, exclusive: bool = False) -> None:
        """Read what others have written. Needs the lock; `exclusive`, a torn end is cut off.

        In a store that is only looked at it stays, and is left out.
        """
        exclusive = exclusive and not self._store.readonly
        found = self._look()
        if self._file is None or found.st_ino != self._file.inode:
            self._close_file()
            husk, readonly = self._name is None, self._store.readonly
            self._file = ThreadFile(self.path, self.id, husk=husk, readonly=readonly)
        header = self.header
        self._ensure_source()
        try:
            seq = self._find_beginning(found.st_size)
            self._read_on(seq, found.st_size, exclusive=exclusive)
        except Corrupt as error:
            if self._name is not None:  # lists go on telling of it, and what is wrong with it
                self._store.index.note_damage(self._name, header, str(error))
            raise
        self._recent.clear()
        self._epoch = self._store.index.epoch
        self.no = self._store.index.number(header.key)
        self.head = self._store.index.head(self.no)
        self._indexed = self._size
        self._looked = self._size if exclusive else found.st_size

    def _ensure_source(self) -> None:
        if self.header.source is not None:
            self._store.ensure(self.header.source, husk=self.header.purged)

    def _find_beginning(self, size: int) -> int:
        """Where to read on: behind what the index knows, if the file still says the same there.

        The last bytes that were read tell: a file that was put back or edited by hand differs.
        """
        index = self._store.index
        known = index.known(self.header.key)
        if known is not None:
            last = self.file.read(max(0, known.size - len(known.last)), len(known.last))
            if 0 < known.size <= size and last == known.last:
                self._size = known.size
                return known.seq
            self._store.gate.note(self._store.disk)  # until it is read again, a fork is unknown
            index.forget(known.no, file=False)
        self._size = self.file.start
        return 0

    def _read_on(self, seq: int, size: int, *, exclusive: bool) -> None:
        """From where the file is known to its end, piece by piece, into the index."""
        self._torn = False
        chunk = CHUNK_BYTES
        while True:
            data = self.file.read(self._size, min(chunk, size - self._size))
            final = self._size + len(data) >= size
            try:
                found = scan(self._bytes, data, self._size, seq, gaps=self.header.purged)
            except Damage as damage:
                raise self.corrupt(damage) from None
            rest = data[found.end - self._size :]
            moved = found.end > self._size
            seq = found.seq
            self._size = found.end
            self._take_over(found.found)
            if final:
                break
            if not moved:
                chunk = size  # one write is larger than a piece, or something is wrong in it
        if rest:
            self._settle(rest, seq, exclusive=exclusive)

    def _take_over(self, found: list[FoundLine]) -> None:
        last = self.file.read(max(0, self._size - LAST_BYTES), min(LAST_BYTES, self._size))
        look = self.file.look()
        stamp = stamp_of(look) if look.st_size == self._size else 0
        extent = Extent(self._size, last, stamp)
        apply(self._store.index, self.header, self._name, found, extent, self._store.blobs.get)

    def _settle(self, rest: bytes, seq: int, *, exclusive: bool) -> None:
        """A torn end: set it aside, or give it the newline that it lacks."""
        try:
            whole = judge(self._bytes, rest, self._size)
        except Damage as damage:
            raise self.corrupt(damage) from None
        if not exclusive:
            self._torn = True  # the next writer sets it aside
            return
        disk, descriptor = self._store.disk, self.file.descriptor
        with self._store.writing_to(self.path):
            keep = len(rest.rstrip(b"\0")) if whole else 0
            if not whole:
                self._set_aside(rest)
            disk.truncate(descriptor, self._size + keep)
            if whole:
                write_all(disk, descriptor, b"\n")
            disk.sync(descriptor)
        if whole:
            self._read_on(seq, self._size + keep + 1, exclusive=False)

    def _set_aside(self, rest: bytes) -> None:
        name = f"{file_stem(self.id)}-{self._size}-{new_id()}.cut"
        put_file(self._store.disk, self._store.place.recovered, name, rest)
        _log.warning(
            "%s ended in %d bytes of an append that was never acknowledged: see recovered/%s",
            self.path,
            len(rest),
            name,
        )

    def corrupt(self, damage: Damage) -> Corrupt:
        """The error for a damaged line: file, line and record."""
        before = self.file.read(0, damage.start)
        lines = before.count(b"\n")
        place = f"{self.path} line {lines + 1} (about record {lines})"
        return Corrupt(place, f"{damage.reason}; run clew repair to keep the rest")

    def index_up(self) -> None:
        """Bring the index up to what is known, for callers that read through it."""
        if self._indexed == self._size or self._file is None:
            return
        known = self._store.index.known(self.header.key)
        if known is None or known.size > self._size:
            self._looked = -1
            return
        data = self.file.read(known.size, self._size - known.size)
        found = scan(self._bytes, data, known.size, known.seq)
        self._take_over(found.found)
        self._indexed = self._size
        self._recent.clear()

    # --- reading (needs the mutex) ---

    def contents(self) -> bytes:
        """The file as far as it was written, or as far as it is known, if that is less."""
        return self.file.read(0, self._size if self._looked >= 0 else self.file.look().st_size)

    def find(self, id: str) -> Record | None:
        """A record by its id, if it is visible here."""
        recent = self._recent.get(id)
        if recent is not None:
            return self.records([Where(0, *recent)])[0]
        where = self._store.index.find(self.no, id)
        if where is None:
            return None
        return self._store.records([where], self)[0]

    def records(self, places: Sequence[Where]) -> list[Record]:
        """The records at places of this file, in their order, each run of them read at once."""
        found: list[Record] = []
        at = 0
        while at < len(places):
            end = _run_end(places, at)
            begin = places[at].start
            last = places[end - 1]
            data = self.file.read(begin, last.start + last.length - begin)
            for where in places[at:end]:
                start = where.start - begin
                found.append(self._record(data[start : start + where.length], where.start))
            at = end
        return found

    def _record(self, text: bytes, start: int) -> Record:
        try:
            line = parse(self._bytes, text, self.path)
        except Corrupt as error:
            raise self.corrupt(Damage(start, error.fields["reason"])) from error
        large = None
        if line.spilled is not None:
            try:
                large = self._store.blobs.get(line.spilled)
            except NotFound:
                place = f"{self.path} record {line.seq}"
                raise Corrupt(place, f"its body is blob {line.spilled}, which is missing") from None
        return line.record(self.id, large)

    # --- appending ---

    def append(
        self,
        drafts: Sequence[Draft],
        spilled: Mapping[str, str],
        expect: str | UnsetType | None,
        fence: int | None,
    ) -> list[Record]:
        """Writers that come while another one is at work share one write and one sync."""
        return self.commits.run(lambda batch: batch.append(drafts, spilled, expect, fence))

    def _transact(self, batch: list[Ticket[Any]]) -> None:
        """Write a batch, filling in what became of each ticket; failed ones leave no trace."""
        store = self._store
        try:
            store.check()
            with self.mutex:
                lock = self.lock
                lock.take(EXCLUSIVE, store.busy_seconds)
                try:
                    self._write(batch)
                except INDEX_ERRORS:
                    store.index.fall_back()  # it failed before anything was written
                    self._write(batch)
                finally:
                    lock.release()
        except OSError as error:
            _fail(batch, store.explain(self.path, error))
        except ClewError as error:
            _fail(batch, error)
        if store.waiting:
            store.notify()

    def _write(self, batch: list[Ticket[Any]]) -> None:
        if not self._is_current():
            self.catch_up(exclusive=True)
        work = Batch(self.head, self.find, self._store, self.lock.descriptor)
        for ticket in batch:
            ticket.error = None
            try:
                ticket.result = ticket.work(work)
            except ClewError as error:
                ticket.error = error
        if work.new:
            self._append(work)

    def _append(self, work: Batch) -> None:
        pieces = work.lines(self._bytes)
        self._put(b"".join(pieces))
        start = self._size
        for record, piece in zip(work.new, pieces, strict=True):
            self._recent[record.id] = start, len(piece) - 1
            start += len(piece)
        self._size = start
        self._looked = start
        self.head = work.head
        # The index is left behind: the next reader brings it up to date, once for many appends.
        if len(self._recent) > RECENT_MAX:
            try:
                self.index_up()
            except INDEX_ERRORS:
                self._store.index.fall_back()

    def _put(self, data: bytes) -> None:
        """One write, one sync. After an error no later line may follow bytes that may be lost."""
        disk = self._store.disk
        try:
            write_all(disk, self.file.descriptor, data)
            # Readers see the lines from here on, so a list must know of them, before the sync.
            self._store.mark(self._mark)
            disk.sync(self.file.descriptor)
        except BaseException:
            self._looked = -1
            try:
                disk.truncate(self.file.descriptor, self._size)
            except OSError as error:
                disk.give_up(self.path, error)
            raise


# --- what a group of writers adds to a thread ---


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
            for hash in record.blobs if isinstance(record, Entry) else ():
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
    if draft.origin is not None and not os.path.lexists(journal.path):
        # Before the lock of our own file is held: two forks of each other's threads would wait for
        # ever.
        source = _source(store, draft.origin)
    with journal.mutex, journal.lock.held(EXCLUSIVE, store.busy_seconds):
        if os.path.lexists(journal.path):
            journal.catch_up(exclusive=True)
            with store.index.lock:
                info = rows.thread_row(store.index.db, SPACE, draft.id).info(store.index.db)
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


# --- helpers ---


def _fail(batch: list[Ticket[Any]], error: ClewError) -> None:
    """The whole batch failed: those that had failed on their own keep their own error."""
    for ticket in batch:
        if ticket.error is None:
            ticket.error = error


def stamp_of(look: os.stat_result) -> int:
    """How a file looks from outside: if this is the same, it is taken to be the same."""
    return hash((look.st_ino, look.st_size, look.st_mtime_ns))  # of integers: the same everywhere


def _run_end(places: Sequence[Where], at: int) -> int:
    """The end of a run of places that lie close together, so that one read gets them all."""
    end = at + 1
    begin = places[at].start
    while end < len(places):
        before, here = places[end - 1], places[end]
        if here.start - before.start - before.length > 4096 or here.start < before.start:
            break
        if here.start + here.length - begin > CHUNK_BYTES:
            break
        end += 1
    return end
