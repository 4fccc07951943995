"""An open store of files: what all of its threads share, and whether it may go on."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import apsw
from msgspec import Struct

from clew.core import residue
from clew.core.engine import PathSize
from clew.core.errors import ClewError, Closed, Corrupt, NotFound, Unavailable
from clew.core.lease_rules import Instant
from clew.core.lines import Source
from clew.core.model import Record
from clew.engines.files.blobs import Blobs
from clew.engines.files.disk import EXHAUSTED, GuardedDisk, NotSynced
from clew.engines.files.index import INDEX_ERRORS, Index, Untrue, Where
from clew.engines.files.locks import Gate, is_ours
from clew.engines.files.place import Place, stem_of
from clew.engines.files.thread_file import LeftBehind, look_at, read_header
from clew.engines.shared.tables.rows import one

if TYPE_CHECKING:
    from clew.engines.files.journal import Journal

OPEN_MAX = 128  # files that are kept open, each with its lock
BROKEN_MAX = 100_000  # threads that are remembered as unreadable
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

T = TypeVar("T")


Looks = tuple[tuple[int, int, int] | None, ...]


class Broken(Struct, frozen=True):
    """Why forks cannot be read, the file that is to blame, and how things looked then."""

    reason: str
    path: str
    looks: Looks


class OpenStore:
    """A store's place, disk, index and blobs, and the journals of its threads that are open."""

    def __init__(
        self,
        place: Place,
        disk: GuardedDisk,
        *,
        busy_seconds: float,
        clock: Callable[[], Instant],
        index: Index | None = None,
        readonly: bool = False,
    ) -> None:
        self.place = place
        self.disk = disk
        self.busy_seconds = busy_seconds
        self.clock = clock
        self.readonly = readonly
        # One that is only looked at has an index of its own, in memory.
        self.index = index or Index(":memory:" if readonly else place.index)
        self.blobs = Blobs(place, disk)
        self.gate = Gate(f"{place.locks}/gate", busy_seconds, readonly=readonly)
        self.changed = threading.Condition()
        self.waiting = 0
        self.pace = residue.Pace()  # of wiping the index
        self.closed = False
        self.pid = os.getpid()
        self.left_behind: dict[str, LeftBehind] = {}  # of files that are not open any more
        self._mutex = threading.Lock()
        self._journals: OrderedDict[str, Journal] = OrderedDict()
        self._broken: dict[str, str] | None = None  # keys of files, and what is wrong with them
        self._remembered: dict[str, Broken] = {}  # the same, for as long as no file changes

    # --- whether this handle may go on ---

    def check(self) -> None:
        if self.disk.poison is not None:
            raise Closed(self.disk.poison)
        if self.closed:
            raise Closed(f"{self.place.root} was closed")
        if self.pid != os.getpid():
            text = f"{self.place.root} was opened by process {self.pid}, which forked; "
            raise Closed(text + "open it again here")

    @contextmanager
    def writing_to(self, path: str, *, ahead: bool = False) -> Iterator[None]:
        """The system's errors as ours: what was left behind, and what to do.

        With `ahead` the record itself comes later, so that nothing of it can be there.
        """
        try:
            yield
        except OSError as error:
            raise self.explain(path, error, ahead=ahead) from error

    def explain(self, path: str, error: OSError, *, ahead: bool = False) -> Unavailable:
        if self.disk.poison is not None:
            return _because(error, self.disk.poison, retryable=False, committed=None)
        if error.errno in _FULL:
            return _because(error, f"the disk of {path} is full; nothing was written")
        if isinstance(error, NotSynced) and not ahead:
            text = (
                f"{path}: {error.strerror}; it may have been written: repeat it with the same ids"
            )
            return _because(error, text, committed=None)
        text = f"{path}: {error.strerror or error}; nothing was written"
        return _because(error, text, retryable=error.errno in EXHAUSTED)

    def twin(self, index: Index) -> OpenStore:
        """The same store with another index."""
        return OpenStore(
            self.place,
            self.disk,
            busy_seconds=self.busy_seconds,
            clock=self.clock,
            index=index,
            readonly=self.readonly,
        )

    # --- telling others ---

    def mark(self, path: str) -> None:
        """Note that a thread has changed, for the next list; after the write, so none is missed."""
        if not os.path.lexists(path):
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC  # never through a link
            try:
                os.close(os.open(path, flags, 0o600))
            except OSError:
                pass  # a list may show the thread as it was, until it is next looked at

    def notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    # --- threads ---

    def journal(self, id: str) -> Journal:
        return self._get(self.place.thread(id), id, husk=False)

    def husk(self, source: Source) -> Journal:
        return self._get(self.place.husk(source.key), source.thread, husk=True)

    def _get(self, path: str, id: str, *, husk: bool) -> Journal:
        from clew.engines.files.journal import Journal

        with self._mutex:
            found = self._journals.get(path)
            if found is None:
                name = None if husk else stem_of(path)
                found = self._journals[path] = Journal(self, id, path, name)
            self._journals.move_to_end(path)
            idle = self._evict()
        # Outside of the mutex: to retire a journal writes to the index, and takes its time.
        for journal in idle:
            try:
                journal.retire()
            finally:
                journal.mutex.release()
        return found

    def _evict(self) -> list[Journal]:
        """The files that were not used for longest, unless a caller is at work on them."""
        idle: list[Journal] = []
        for path in list(self._journals)[: max(0, len(self._journals) - OPEN_MAX)]:
            journal = self._journals[path]
            # This very thread may be at work on it, and would get its mutex, which is re-entrant.
            busy = is_ours(journal.mutex) or not journal.commits.idle
            if not busy and journal.mutex.acquire(blocking=False):
                idle.append(self._journals.pop(path))
        return idle

    def journals(self) -> list[Journal]:
        with self._mutex:
            return list(self._journals.values())

    def ensure(self, source: Source, *, husk: bool = False, deep: bool = False) -> None:
        """Make sure that the index has the record that a fork begins at, and its own path.

        Of what is left of a purged fork (`husk`) no path may run through that record; then it
        may be gone, but not the file.
        """
        if not deep and self._has(source):
            return
        line = self._line(source, deep=deep)
        self._refresh(line)
        if not husk and not self._has(source):
            self._refresh(line, afresh=True)  # the index may have been made anew behind our back
        if not husk and not self._has(source):
            text = f"record {source.seq}, which a fork begins at, is not there"
            if b'\n{"seq":%d,"type":"entry",' % source.seq in line[0][1].contents():
                raise Untrue(self.index.file, text)  # but in the file it is
            raise Corrupt(f"thread {source.thread!r}", text)

    def _has(self, source: Source) -> bool:
        return self.index.has_in(source.key, source.seq)

    def _line(self, source: Source, *, deep: bool) -> list[tuple[str, Journal]]:
        """The file that a fork begins in, the one that this begins in, and so on, by their keys.

        Unless `deep`, only as far as the index does not have what they begin at.
        """
        line: dict[str, Journal] = {}
        at: Source | None = source
        while at is not None:
            reason = "by its forks it was forked from itself" if at.key in line else None
            if self._broken is not None:
                reason = self._broken.get(at.key, reason)
            path = line[at.key].path if at.key in line else ""
            known = self._remembered.get(at.key) if reason is None else None
            if known is not None and known.looks == self._looks(known.path):
                reason, path = known.reason, known.path
            if reason is not None:
                self._note_broken(line, reason, path)
                raise Corrupt(f"thread {at.thread!r}", reason)
            line[at.key] = self.owner(at)
            try:
                at = read_header(line[at.key].path).source
            except FileNotFoundError:
                break
            if at is not None and not deep and self._has(at):
                break
        return list(line.items())

    def _refresh(self, line: Sequence[tuple[str, Journal]], *, afresh: bool = False) -> None:
        """The oldest first, so that none of them needs to call for the next."""
        for n, (_, owner) in reversed(list(enumerate(line))):
            try:
                with owner.mutex:
                    owner.refresh_index(afresh=afresh)
            except NotFound:
                reason = "a fork begins in it, but its file is not there"
                self._note_broken([key for key, _ in line[: n + 1]], reason, owner.path)
                raise Corrupt(f"thread {owner.id!r}", reason) from None
            except Corrupt as error:
                reason = error.fields["reason"]
                self._note_broken([key for key, _ in line[: n + 1]], reason, owner.path)
                raise

    @contextmanager
    def looking_at_all(self, broken: dict[str, str] | None = None) -> Iterator[None]:
        """Inside, a file that cannot be read is tried once, and not for each of its forks.

        Forks of forks may be as many as there are threads. `broken` is what is known already.
        """
        self._broken = {} if broken is None else broken
        try:
            yield
        finally:
            self._broken = None

    def _note_broken(self, keys: Collection[str], reason: str, path: str) -> None:
        """Forks cannot be read because of one file: they need not be followed up to it each time.

        A line of forks may be as long as there are threads, and a list asks for each of them.
        """
        if self._broken is not None:
            self._broken |= dict.fromkeys(keys, reason)
        if len(self._remembered) + len(keys) > BROKEN_MAX:
            self._remembered.clear()
        if path:
            known = Broken(reason, path, self._looks(path))
            self._remembered |= dict.fromkeys(keys, known)

    def _looks(self, path: str) -> Looks:
        """What differs once a file was mended, or another was put anywhere in the line above it."""
        found: list[tuple[int, int, int] | None] = []
        for place in (path, self.place.threads, self.place.purged):
            try:
                look = look_at(place)
                found.append((look.st_ino, look.st_size, look.st_mtime_ns))
            except OSError:
                found.append(None)
        return tuple(found)

    def owner(self, source: Source) -> Journal:
        """The file that holds a record: the thread's own, or what a purge left of it."""
        # Only a look at the header: to refresh the thread could lead back here.
        try:
            live = read_header(self.place.thread(source.thread)).key == source.key
        except (FileNotFoundError, ClewError):
            live = False
        return self.journal(source.thread) if live else self.husk(source)

    def records(self, places: Sequence[Where], own: Journal) -> list[Record]:
        """The entries at places of several files, in their order: a path."""
        found: list[Record] = []
        size = PathSize(own.id)
        at = 0
        while at < len(places):
            thread = places[at].no >> 32
            end = at
            while end < len(places) and places[end].no >> 32 == thread:
                end += 1
            journal = own if thread == own.no else self.by_number(thread)
            with journal.mutex:
                if journal is not own:
                    journal.refresh()
                found += size.count(journal.each_record(places[at:end]))
            at = end
        return found

    def check_absent(self, ids: Sequence[str], own: Journal) -> None:
        """Untrue if a file that a thread's path runs through has an entry that the index lacks."""
        source = own.header.source
        above = () if source is None else self._line(source, deep=True)
        for journal in (own, *(journal for _, journal in above)):
            with journal.mutex:
                journal.refresh()
                for id in ids:
                    if self.index.has_entry(journal.no, id) or journal.entry_seq(id) is None:
                        continue
                    raise Untrue(journal.path, f"the index lacks entry {id!r}")

    def by_number(self, no: int) -> Journal:
        """The file that the index has under a number."""
        with self.index.asked() as db:
            row = one(
                db,
                "SELECT t.id, f.key, f.name FROM files f JOIN threads t ON t.no = f.no"
                " WHERE f.no = ?",
                (no,),
            )
        if row is None:
            raise Untrue(self.index.file, f"thread no. {no} is not there")
        id, key, name = row
        return self.husk(Source(id, key, 0)) if name is None else self.journal(id)

    # --- an index that fails is done without ---

    def with_index(self, work: Callable[[], T], *, keep: bool = True) -> T:
        """Do something; if the index is why it fails, do it again with an empty one.

        If an index that was read from the files just now says the same, the files say it. Without
        `keep`, something is about to be removed that no index may remember.
        """
        if not keep:
            self.index.come_back()
        try:
            try:
                return work()
            except Untrue:
                # Between two looks another process may have replaced a file, or may be reading one
                # into the index anew: then the index is right as soon as it is looked at again.
                return work()
        except INDEX_ERRORS as error:
            self.index.give_way(error, keep=keep)
        try:
            return work()
        except apsw.Error:
            self.index.fall_back()
            return work()
        except Untrue as error:
            raise Corrupt(error.place, error.reason) from error

    # --- ending ---

    def close(self) -> None:
        self.closed = True
        for journal in self.journals():
            with journal.mutex:
                journal.retire()
        if self.pace.is_due:
            with suppress(apsw.Error):
                self.wipe_index(always=True)
        self.index.close()
        self.gate.close()

    def wipe_index(self, *, always: bool = False) -> None:
        """Let nothing of what was removed be in its pages; `always`, or once in a while."""
        path = self.index.db.filename
        if path:
            self.pace.wipe(lambda: residue.wipe(path), always=always)

    def abandon(self) -> None:
        """In a forked child: close what was inherited, and touch nothing else."""
        for journal in list(self._journals.values()):
            journal.close()
        self.gate.close()


def _because(error: OSError, text: str, **fields: Any) -> Unavailable:
    failure = Unavailable(text, **fields)
    failure.__cause__ = error
    return failure
