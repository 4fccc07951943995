"""One thread's file: how far it is known, how it grows, and how its lines are read.

The file is the truth. In memory there is only where it ends, where the thread stands (`head`)
and the places of records that the index does not have yet. A file that others have changed is
read from where it was known to end.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from clew.core.codec import new_id
from clew.core.errors import ClewError, Corrupt, NotFound
from clew.core.facts import read_fact
from clew.core.lines import Header, Line, parse, take_apart
from clew.core.model import Draft, Entry, Fact, Origin, Record
from clew.core.names import file_stem
from clew.core.reducer import Head
from clew.engines.files.additions import Batch
from clew.engines.files.index import INDEX_ERRORS, Extent, Untrue, Where, run_end
from clew.engines.files.intake import apply, note_damage
from clew.engines.files.locks import EXCLUSIVE, SHARED, FileLock
from clew.engines.files.open_store import OpenStore
from clew.engines.files.pack import awake
from clew.engines.files.place import put_file, write_all
from clew.engines.files.tail import Damage, FoundLine, judge, scan
from clew.engines.files.thread_file import (
    LAST_BYTES,
    LeftBehind,
    ThreadFile,
    look_at,
    open_thread,
    stamp_of,
)
from clew.engines.shared.group_commit import GroupCommit, Ticket
from clew.engines.shared.tables import rows

CHUNK_BYTES = 4 * 1024 * 1024
LAST_LINES_BYTES = 16 * 1024  # read at first, to find where a thread stands
RECENT_MAX = 5_000  # records that wait for the index, at most
_LOST = b""  # in the place of a value: none that was written is empty

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
        self.mark = store.place.mark(id)
        self._bytes = id.encode("utf-8")
        self._lock: FileLock | None = None
        self._file: ThreadFile | None = None
        self._left = store.left_behind.pop(path, None)
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
        self._facts_checked = -1  # the epoch of the index whose facts were compared

    @property
    def file(self) -> ThreadFile:
        if self._file is None:  # no test: who asks for it has just opened it
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
        self.close_file()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def retire(self) -> None:
        """Close, and leave the index as it should be. Needs the mutex."""
        if self._left is not None:
            self._store.left_behind[self.path] = self._left
        try:
            self.index_up()
        except (OSError, ClewError, *INDEX_ERRORS):
            pass  # the next reader will do it
        self.close()

    def close_file(self) -> None:
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
        found = self.look()
        return (
            not self._torn
            and found.st_size == self._looked
            and self._file is not None
            and found.st_ino == self._file.inode
            and self._epoch == self._store.index.epoch
        )

    def look(self) -> os.stat_result:
        try:
            return look_at(self.path)
        except FileNotFoundError:
            self.close_file()
            raise NotFound("thread", self.id) from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no other writer of any process is at work. NotFound if there is no file.

        Two locks are held. The lock file also serves before the thread is there, and when it is
        gone. But it can be removed by others, so that a second writer makes another one; the
        thread's own file cannot, without the thread.
        """
        kind = SHARED if self._store.readonly else EXCLUSIVE
        with self.lock.held(EXCLUSIVE, self._store.busy_seconds):
            while True:
                if self._file is None:
                    self._open_file()
                file = self.file
                file.hold(kind, self._store.busy_seconds)
                if self.look().st_ino == file.inode:
                    break
                self.close_file()  # and its lock with it: another file has that name now
            try:
                yield
            finally:
                if self._file is file:
                    file.let_go()

    def catch_up(self, *, exclusive: bool = False) -> None:
        """Read what others have written. Needs the lock; `exclusive`, a torn end is cut off.

        In a store that is only looked at it stays, and is left out.
        """
        exclusive = exclusive and not self._store.readonly
        found = self.look()
        if self._file is None or found.st_ino != self._file.inode:
            self._open_file()
        header, size = self.header, self.file.size
        self._check_left(size)
        self._ensure_source()
        try:
            seq = self._find_beginning(size)
            self._read_on(seq, size, exclusive=exclusive)
        except Corrupt as error:
            if self._name is not None:  # lists go on telling of it, and what is wrong with it
                note_damage(self._store.index, self._name, header, str(error))
            raise
        self._recent.clear()
        self._epoch = self._store.index.epoch
        self.no = self._store.index.number(header.key)
        self.head = self._store.index.head(self.no)
        self._check_head()
        self._indexed = self._size
        settled = exclusive and not self.file.is_packed
        self._looked = self._size if settled else found.st_size

    def _open_file(self) -> None:
        self.close_file()
        husk, readonly = self._name is None, self._store.readonly
        try:
            self._file = open_thread(self.path, self.id, husk=husk, readonly=readonly)
        except FileNotFoundError:
            raise NotFound("thread", self.id) from None

    def _check_head(self) -> None:
        """Where the thread stands, by the index, must be what the last lines say.

        What is appended next hangs on it: a head that is wrong would damage the file.
        """
        if self.header.purged:
            return
        origin = self.header.draft.origin or Origin("", None, None)
        says = Head(self.id, 0, origin.entry, origin.hash)
        for line in self._last_lines():
            says = replace(says, seq=says.seq or line.seq)
            if line.type == "entry":
                says = replace(says, leaf=line.id, leaf_hash=line.hash)
            elif line.type == "move":
                entry = None if line.leaf is None else self.find(line.leaf)
                hash = entry.hash if isinstance(entry, Entry) else None
                says = replace(says, leaf=line.leaf, leaf_hash=hash)
        head = self.head
        if (head.thread, head.seq, head.leaf, head.leaf_hash) != (
            *(says.thread, says.seq, says.leaf, says.leaf_hash),
        ):
            raise Untrue(self.path, "by the index the thread stands elsewhere")
        if self._facts_checked != self._epoch:
            deleted = self.facts().get("deleted_us")
            try:
                deleted_us = None if deleted is None else read_fact("deleted_us", deleted)
            except Corrupt:  # a damaged fact is not in force, and the thread is listed with it
                deleted_us = None
            if head.deleted_us != deleted_us:
                raise Untrue(self.path, "by the index it is deleted, or not, unlike in the file")
            self._facts_checked = self._epoch

    def _last_lines(self) -> list[Line]:
        """From the last line back to the last one that is no fact."""
        found: list[Line] = []
        start, end = self.file.start, self._size
        chunk = LAST_LINES_BYTES
        while end > start:
            begin = max(start, end - chunk)
            data = self.file.read(begin, end - begin)
            lines = data.split(b"\n")[:-1]
            if begin > start:
                lines = lines[1:]  # the first one may be cut
            if not lines:
                chunk *= 4
                continue
            for text in reversed(lines):
                found.append(take_apart(text, self.path))
                if found[-1].type != "fact":
                    return found
                end -= len(text) + 1
        return found

    def _ensure_source(self) -> None:
        if self.header.source is not None:
            self._store.ensure(self.header.source, husk=self.header.purged)

    def _check_left(self, size: int) -> None:
        """What this handle has acknowledged must still be there: others may cut a file, or put an
        older one in its place. A thread of that id that was made since then is another one, and a
        file in which others have erased something has the record elsewhere.
        """
        left = self._left
        if left is None or left.key != self.header.key or self.header.purged:
            return
        self._left = left.found_in(self.file, size)
        if self._left is None:
            self._left = left
            reason = (
                f"others have cut it or put another in its place: it had {left.size:,} bytes when "
                f"record {left.seq} was acknowledged, has {size:,} now, and not that record; "
                "nothing was written. Put it back, or open the store again to go on with what is "
                "there"
            )
            raise Corrupt(self.path, reason)

    def replaced(self) -> None:
        """Another file has its name now, by our own hand, with other lines. Needs the mutex."""
        self._left = None
        self.close_file()

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
            if known.size > size:
                _log.warning(
                    "%s had %d bytes when it was last read, now %d", self.path, known.size, size
                )
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
        stamp = stamp_of(self._name or "", look) if self.file.size == self._size else 0
        extent = Extent(self._size, last, stamp)
        apply(self._store.index, self.header, self._name, found, extent, self._store.blobs.get)

    def _settle(self, rest: bytes, seq: int, *, exclusive: bool) -> None:
        """A torn end: set it aside, or give it the newline that it lacks."""
        try:
            whole = judge(self._bytes, rest, self._size)
        except Damage as damage:
            raise self.corrupt(damage) from None
        if self.file.is_packed:
            raise self.corrupt(Damage(self._size, "half a write was packed"))
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
            "%s ended in %d bytes of an append that is not whole: see recovered/%s",
            self.path,
            len(rest),
            name,
        )

    def corrupt(self, damage: Damage) -> Corrupt:
        """The error for a damaged line: file, line and record."""
        before = self.file.read(0, damage.start)
        lines = before.count(b"\n")
        place = f"{self.file.path} line {lines + 1} (about record {lines})"
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
        return self.file.read(0, self.extent)

    @property
    def extent(self) -> int:
        """How many bytes of lines those are."""
        return self._size if self._looked >= 0 else self.file.size

    def find(self, id: str) -> Record | None:
        """A record by its id, if it is visible here."""
        recent = self._recent.get(id)
        if recent is not None:
            return self.records([Where(0, *recent)])[0]
        where = self._store.index.find(self.no, id)
        if where is None:
            return None
        if where.id != id:
            raise Untrue(self.path, f"the index has {where.id!r} under {id!r}")
        return self._store.records([where], self)[0]

    def facts(self) -> dict[str, bytes | None]:
        """The thread's facts, as the index has them and the file says them.

        None for one whose blob is missing or damaged: that costs no other, nor any entry.
        """
        said = self._store.index.facts(self.no)
        places = [place for _, no, _ in said for place in self._store.index.places((no, no))]
        found = self.each_record(places, losses=True)
        if [(f.key, f.seq, f.data) for f in found if isinstance(f, Fact)] != [
            (key, no & rows.SEQ_MAX, data or _LOST) for key, no, data in said
        ]:
            raise Untrue(self.path, "the index has other facts than the file")
        return {key: data for key, _, data in sorted(said, key=itemgetter(0))}

    def entry_seq(self, id: str) -> int | None:
        """The seq of an entry by the file alone: a search through all of it."""
        data, mark = self.contents(), b'"id":' + msgspec.json.encode(id)
        at = data.find(mark)
        while at >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            try:
                line = parse(self._bytes, data[begin:end], self.path)
                if line.id == id and line.type == "entry":
                    return line.seq
            except Corrupt:
                pass  # the header, or a damaged line, which is named when it is read itself
            at = data.find(mark, at + 1)
        return None

    def records(self, places: Sequence[Where]) -> list[Record]:
        """The records at places of this file, in their order."""
        return list(self.each_record(places))

    def each_record(self, places: Sequence[Where], *, losses: bool = False) -> Iterator[Record]:
        """The same one by one, for callers that may stop; each run of them is read at once.

        With `losses`, a value whose blob is missing or damaged is empty.
        """
        at = 0
        while at < len(places):
            end = run_end(places, at, CHUNK_BYTES)
            begin = places[at].start
            last = places[end - 1]
            if begin < self.file.start or last.start + last.length > self.file.size:
                raise Untrue(self.path, f"the index says that a record lies at byte {last.start}")
            data = self.file.read(begin, last.start + last.length - begin)
            for where in places[at:end]:
                start = where.start - begin
                yield self._record(data[start : start + where.length], where, losses=losses)
            at = end

    def _record(self, text: bytes, where: Where, *, losses: bool) -> Record:
        try:
            line = parse(self._bytes, text, self.path)
        except Corrupt as error:
            if b"\n" in text or self._around(where) != (b"\n", b"\n"):
                reason = f"the index says that a record lies at byte {where.start}"
                raise Untrue(self.path, reason) from error
            raise self.corrupt(Damage(where.start, error.fields["reason"])) from error
        if not where.agrees(line):
            raise Untrue(self.path, f"the index says other things of record {line.seq}")
        large = None
        if line.spilled is not None:
            try:
                large = self._store.blobs.get(line.spilled)
            except (NotFound, Corrupt) as error:
                if not losses:
                    place = f"{self.path} record {line.seq}"
                    reason = "missing" if isinstance(error, NotFound) else f"damaged: {error}"
                    reason = f"its body is blob {line.spilled}, which is {reason}"
                    raise Corrupt(place, reason) from error
                large = _LOST
        return line.record(self.id, large)

    def _around(self, where: Where) -> tuple[bytes, bytes]:
        return self.file.read(where.start - 1, 1), self.file.read(where.start + where.length, 1)

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
            with awake(store, self):
                store.with_index(lambda: self._write(batch))  # it fails before all is written
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
        last = work.new[-1]
        self._left = LeftBehind(
            self.header.key, start, pieces[-1][-LAST_BYTES:], last.seq, last.hash
        )
        # The index is left behind: the next reader brings it up to date, once for many appends.
        if len(self._recent) > RECENT_MAX:
            try:
                self.index_up()
            except INDEX_ERRORS as error:
                self._store.index.give_way(error)

    def _put(self, data: bytes) -> None:
        """One write, one sync. After an error no later line may follow bytes that may be lost."""
        disk = self._store.disk
        try:
            write_all(disk, self.file.descriptor, data)
            # Readers see the lines from here on, so a list must know of them, before the sync.
            self._store.mark(self.mark)
            disk.sync(self.file.descriptor)
        except BaseException:
            self._looked = -1
            try:
                disk.truncate(self.file.descriptor, self._size)
            except OSError as error:
                disk.give_up(self.path, error)
            raise


# --- helpers ---


def _fail(batch: list[Ticket[Any]], error: ClewError) -> None:
    """The whole batch failed: those that had failed on their own keep their own error."""
    for ticket in batch:
        if ticket.error is None:
            ticket.error = error
