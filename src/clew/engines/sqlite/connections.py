"""The connections of one store in one process: one that writes, several that read.

They are closed before the process forks and opened again on both sides: SQLite's locks and its
own bookkeeping of them do not survive a fork while a connection is open.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw

from clew.core import residue
from clew.core.errors import Closed, Corrupt, Unavailable, Unsupported
from clew.core.patience import patience
from clew.engines.shared.file_system import sync_folder
from clew.engines.shared.process_fork import OpenStores
from clew.engines.shared.tables.rows import garbled
from clew.engines.sqlite import place
from clew.engines.sqlite.errors import let_go, translate
from clew.engines.sqlite.mailbox import Guest
from clew.engines.sqlite.schema import harden, is_older, migrate, recognise, refuse_foreign
from clew.engines.sqlite.writer_queue import WriterQueue

READERS_IDLE_MAX = 8
FORK_WAIT_SECONDS = 5.0
CHECKPOINT_PAGES = 1000
_DRAIN_SECONDS = 0.02  # for which writers wait at most until the log can be emptied
HAND_OVER_SECONDS = 0.2

CACHE_KIB = 8192  # of pages, a connection

_PRAGMAS = {
    "fullfsync": 1,  # macOS: its fsync alone does not reach the disk
    "checkpoint_fullfsync": 1,
    "secure_delete": 1,  # what is purged is overwritten
    "temp_store": 2,  # in memory: nothing of a store lies in a temporary file
    "cache_size": -CACHE_KIB,
    "wal_autocheckpoint": 0,  # the engine decides when
}

_log = logging.getLogger("clew")

# Its lock is held while a store is opened, too: a fork in the middle of that would leave a
# connection open on both sides.
_open_stores = OpenStores()


def nothing() -> None:
    """What is asked of other processes by those that have nothing to ask of them."""


class Sides:
    """The stores of this process that are open for writing, and those that are only looked at.

    SQLite has one index of a log in memory for each file and process. If it was opened read-only,
    by a connection that must not touch it, no other connection of the process can write.
    """

    def __init__(self) -> None:
        self._renew_lock()
        self._writers: weakref.WeakSet[Connections] = weakref.WeakSet()
        self._viewers: weakref.WeakSet[Connections] = weakref.WeakSet()
        if hasattr(os, "register_at_fork"):  # one way: Windows has no fork
            # A thread that held it stayed with the parent, and would never give it back.
            os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self.lock = threading.RLock()  # held while a connection that looks is opened

    def enter(self, store: Connections) -> None:
        """Unavailable: a read that must end first, before this process can write, does not."""
        with self.lock:
            (self._viewers if store.readonly else self._writers).add(store)
            viewers = [] if store.readonly else [v for v in self._viewers if v.holds_index]
        for viewer in viewers:
            if viewer.real_path == store.real_path and not viewer.let_go():
                self.leave(store)
                raise Unavailable(
                    f"{store.path} is being read by this process, which has it open read-only too; "
                    "open it again when that read has ended"
                )

    def leave(self, store: Connections) -> None:
        with self.lock:
            self._viewers.discard(store)
            self._writers.discard(store)

    def is_written(self, real_path: str) -> bool:
        """Whether this process has the store open for writing."""
        with self.lock:
            return any(store.real_path == real_path for store in self._writers)


SIDES = Sides()


class StoreConnection(apsw.Connection):
    """A connection that knows which files it has open: the store's, its log and the log's index.

    SQLite keeps all three open for as long as the connection is, and nothing of its own removes or
    replaces them meanwhile.
    """

    names: place.Names | None = None  # None: who made it looks by itself


class Connections:
    """Hands out connections. `before_fork` and `after_fork` keep the process forkable."""

    readonly = False
    holds_index = False  # of the log, in memory and read-only; see `Sides`

    def __init__(
        self,
        path: Path,
        *,
        synchronous: str,
        busy_seconds: float,
        vfs: str | None,
        create: bool,
        any_schema: bool = False,
    ) -> None:
        self.path = path
        self.real_path = os.path.realpath(path)
        self._synchronous = synchronous
        self.busy_seconds = busy_seconds
        self.vfs = vfs
        self._any_schema = any_schema  # for those who look for damage
        self.poison: str | None = None
        self.main: place.Id | None = None  # the store's file, from when it was opened on
        self.log = Log()
        self._closed = False
        self._reset()
        with _open_stores.lock:
            SIDES.enter(self)
            try:
                self._host_lock = self._begin(create)
            except BaseException:
                SIDES.leave(self)
                raise
        _open_stores.add(self)

    def _reset(self) -> None:
        self.pid = os.getpid()
        self.write_lock = threading.Lock()
        self._returned = threading.Condition()
        self._queue = WriterQueue(
            self.real_path, self.busy_seconds, synced=self._synchronous == "FULL"
        )
        self._writer: StoreConnection | None = None
        # Of the writer, for what each transaction says: a cursor for every statement costs time.
        self._cursor: apsw.Cursor | None = None
        self._idle: list[StoreConnection] = []
        self._busy: set[object] = set()  # reads

    # --- handing out ---

    def check(self) -> None:
        if self.poison is not None:
            raise Closed(self.poison)
        if self._closed:
            raise Closed(f"{self.path} was closed")
        if self.pid != os.getpid():
            raise Closed(
                f"{self.path} was opened by process {self.pid}, which forked; open it again here"
            )

    @property
    def usable(self) -> bool:
        return self.poison is None and not self._closed and self.pid == os.getpid()

    def confirm(self, db: StoreConnection) -> None:
        """Unavailable, and for good: what the connection has open is not the store any more.

        A file that was deleted, or that another one has taken the place of, takes writes as before,
        and nobody will ever find them. This is asked inside of every transaction.
        """
        name = None if db.names is None else db.names.gone()
        if name is not None:
            raise self._gone(name)

    def _gone(self, name: str) -> Unavailable:
        what = "deleted or moved" if place.which(name) is None else "replaced by another file"
        self.poison = (
            f"{name} was {what} while {self.path} was open, so that whatever this handle wrote "
            "would be lost, and what it reads is not what is there; nothing was written: open the "
            "store again, and if something is missing there, bring the former files back first"
        )
        return Unavailable(self.poison, retryable=False)

    def poisoned_by(self, error: apsw.Error | OSError) -> None:
        """After a failed write or sync it is unknown what is on disk, and a later sync may lie."""
        self.poison = (
            f"writing to {self.path} failed ({error}), so what is on disk is unknown; this handle "
            "gives no more answers: open the store again, run clew verify, and retry with the same "
            "ids"
        )

    def writer(self) -> StoreConnection:
        """The writing connection, if the store is still open; the caller holds `write_lock`."""
        if self.poison is not None or self._closed:
            self.check()
        if self._writer is None:
            db = self._open()
            try:
                # SQLite syncs the name of a new log as well, but goes on if that fails.
                sync_folder(Path(self.real_path).parent)
            except Unavailable as error:
                self.poison = f"{error}; open the store again"
                db.close()
                raise
            db.set_busy_handler(self._queue.ask_again)
            self._queue.store = self.main
            db.set_wal_hook(self.log.grown)
            self._writer, self._cursor = db, db.cursor()
        return self._writer

    def at_front(
        self,
        work: Callable[[StoreConnection], None],
        ask: Callable[[], bytes | None] = nothing,
    ) -> bytes | None:
        """Write something, when those at the front have written; the caller holds `write_lock`.

        Or let another process write it, see `WriterQueue.run`.
        """
        db = self.writer()
        # Processes write for each other where each has the same layer of files below it.
        answer = self._queue.run(lambda: work(db), nothing if self.vfs else ask)
        if answer is None and self.log.is_long:
            self._shorten_log(db)
        return answer

    def _shorten_log(self, db: StoreConnection) -> None:
        """Copy the log into the file, so that it can start anew."""
        with self._queue.one_at_a_time() as is_mine:
            if not is_mine:
                return
            if self._queue.is_crowded:
                self.copy_log(db, apsw.SQLITE_CHECKPOINT_PASSIVE)  # most of it, as others write
            # What came meanwhile at the front: while others write, it is never copied to its end.
            self._queue.run(lambda: self.copy_log(db, apsw.SQLITE_CHECKPOINT_PASSIVE, to_end=True))

    @property
    def is_in_doubt(self) -> bool:
        """Whether another process may still write what it was asked to."""
        return self._queue.is_in_doubt

    def guests(self, most: int) -> list[Guest]:
        """What other processes ask for; within the transaction at the front."""
        return [] if self.vfs else self._queue.guests(most)

    def begin(self) -> None:
        """A transaction of the writer, which holds SQLite's lock from the beginning."""
        assert self._cursor is not None
        self._cursor.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        assert self._cursor is not None
        began = time.monotonic()
        self._cursor.execute("COMMIT")
        self._queue.commit_seconds = time.monotonic() - began

    def sync_log(self) -> None:
        """What can be read now is on disk when this returns. Unavailable: it is not known."""
        try:
            log = os.open(f"{self.real_path}-wal", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return  # all is in the file, which was synced before the log was taken away
        except OSError as error:
            raise Unavailable(
                f"{self.real_path}-wal cannot be synced ({error}): what is asked for is stored, and"
                " may not be on disk yet; retry with the same ids",
                committed=None,
            ) from error
        try:
            sync(log)
        except OSError as error:
            self.poisoned_by(error)
            raise Unavailable(str(self.poison), retryable=False, committed=None) from error
        finally:
            os.close(log)

    @contextmanager
    def reader(self) -> Iterator[apsw.Connection]:
        """A connection inside a read transaction: all statements see one moment."""
        self.check()
        read = object()
        free: StoreConnection | None = None
        try:
            db = self._take(read)
            try:
                self.confirm(db)
                db.execute("BEGIN")
                yield db
            except apsw.Error as error:
                raise translate(error, str(self.path)) from error
            except UnicodeDecodeError as error:  # no test: those who read text say so themselves
                raise garbled(db, error) from error
            except Corrupt as error:
                let_go(error)
                raise
            finally:
                if _ended(db):
                    free = db
        finally:
            try:
                self._give_back(read, free)
            except BaseException:  # Ctrl-C in the middle of it: no fork is to wait for this read
                self._give_back(read, None)
                raise

    def _take(self, read: object) -> StoreConnection:
        with self._returned:
            self._busy.add(read)
            if self._idle:
                return self._idle.pop()
        return self._open()

    def _give_back(self, read: object, db: StoreConnection | None) -> None:
        with self._returned:
            self._busy.discard(read)
            if db is not None and len(self._idle) < READERS_IDLE_MAX and not self._closed:
                self._idle.append(db)
                db = None
            if not self._busy:
                self._returned.notify_all()
        if db is not None:
            db.close()

    def copy_log(self, db: StoreConnection, mode: int, *, to_end: bool = False) -> bool:
        """Bring the log back into the file; only at the front all of it. False: it was in use.

        Whatever becomes of it: what was committed before is safe in the log.
        """
        try:
            self.confirm(db)
            pages, copied = db.wal_checkpoint(mode=mode)
            if to_end:
                self.log.copied(pages, copied)
            return True
        except (apsw.BusyError, apsw.LockedError):
            pass  # readers are in the way, or another process is at it: the next one will do it
        except Unavailable:  # no test: another process comes into the midst of it
            pass  # the store was replaced under us, which the next call will say
        except apsw.Error as error:
            self.poisoned_by(error)  # only this handle does not know the file's state
        return False

    def empty_log(self, *, wipe: bool, pages: Sequence[int] = ()) -> bool:
        """Try to, at the front; the caller holds `write_lock`. False: others read it, or write.

        SQLite keeps its lock while it waits for those who read, and so all writers wait with it.
        `wipe`: with what stands in the queue. `pages`: with copies that rows have left in them.
        """
        is_done = False

        def empty(db: StoreConnection) -> None:
            nonlocal is_done
            if wipe:
                self._queue.wipe()
            db.set_busy_handler(patience(min(_DRAIN_SECONDS, self.busy_seconds)))
            try:
                is_done = self.copy_log(db, apsw.SQLITE_CHECKPOINT_TRUNCATE, to_end=True)
                if is_done and pages:
                    is_done = residue.wipe(self.real_path, vfs=self.vfs, pages=pages)
                    self.copy_log(db, apsw.SQLITE_CHECKPOINT_TRUNCATE, to_end=True)
            except apsw.Error as error:
                is_done = False  # what was removed is removed all the same
                _log.warning("%s: pages could not be wiped: %s", self.path, error)
                if isinstance(error, apsw.IOError | apsw.FullError):  # perhaps of a sync
                    self.poisoned_by(error)
            finally:
                db.set_busy_handler(self._queue.ask_again)

        self.at_front(empty)
        return is_done

    # --- opening ---

    def _open(self) -> StoreConnection:
        main = place.which(str(self.path))
        if self.main not in (None, main):
            raise self._gone(str(self.path))
        self.main = main
        try:
            db = StoreConnection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=self.vfs)
            db.set_busy_handler(patience(self.busy_seconds))
            harden(db)
            for name, value in _PRAGMAS.items():
                db.pragma(name, value)
            db.pragma("synchronous", self._synchronous)
            db.pragma("schema_version")  # the log is opened when something is read first
        except apsw.Error as error:
            raise translate(error, str(self.path)) from error
        beside = (self.real_path + end for end in ("-wal", "-shm"))
        found = ((name, place.which(name)) for name in beside)
        db.names = place.Names(self.path, ((str(self.path), main), *found))
        return db

    def _begin(self, create: bool) -> place.HostLock:
        """Recognise or make the store, and bring its schema up to date."""
        place.prepare(self.path, create=create)
        db = self._open()
        lock: place.HostLock | None = None
        try:
            recognise(db, self.path, create=create)  # before anything is put beside the file
            if not self._any_schema:
                refuse_foreign(db, self.path)
            lock = self._lock(db)
            self._use_wal(db)
            self._migrate(db, lock)
            sync_folder(self.path.parent)
            return lock
        except BaseException as error:
            if lock is not None:
                lock.close()
            if isinstance(error, apsw.Error):
                raise translate(error, str(self.path)) from error
            raise
        finally:
            db.close()

    def _use_wal(self, db: apsw.Connection) -> None:
        if db.pragma("page_count") == 0:
            # The first page of a new file is written without a rollback journal: one that a killed
            # process left could not be told from one that others have put there.
            db.pragma("journal_mode", "memory")
        # Going over to WAL does not call the busy handler when two processes do it at once.
        deadline = time.monotonic() + self.busy_seconds
        while True:
            try:
                mode = db.pragma("journal_mode", "wal")
                break
            except apsw.BusyError:  # no test: another process makes the log at this moment
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.001)
        if mode != "wal":  # no test: where no memory can be shared
            raise Unsupported(f"{self.path} cannot use a write-ahead log (SQLite chose {mode})")

    def _lock(self, db: apsw.Connection) -> place.HostLock:
        """Our lock on the host. A process that migrates the store holds it alone, so we wait."""
        began = time.monotonic()
        while True:
            try:
                return place.HostLock(self.path, readonly=self.readonly)
            except Unsupported:
                patient = self.busy_seconds if is_older(db, self.path) else HAND_OVER_SECONDS
                if time.monotonic() - began >= patient:
                    raise
                time.sleep(0.005)

    def _migrate(self, db: apsw.Connection, lock: place.HostLock) -> None:
        """Make the tables, or bring those of an older store up to date, alone with it.

        A Clew that has it open would go on with statements that know nothing of what the newer
        format says.
        """
        if not is_older(db, self.path):
            migrate(db, self.path)
            return
        done = lambda: not is_older(db, self.path) or lock.try_alone()  # noqa: E731
        if not _wait_for(done, self.busy_seconds):
            raise Unavailable(
                f"{self.path} has an older format and is in use; close every program that has it "
                "open, so that it can be brought up to date"
            )
        migrate(db, self.path)
        # After a migration there is an instant in which others may come to be alone with it.
        if not _wait_for(lock.try_usual, self.busy_seconds):  # no test: see above
            raise Unavailable(f"{self.path} is in use by a program that must be alone with it")

    # --- ending ---

    def close(self) -> None:
        with self.write_lock:
            if self._closed:
                return
            self._closed = True
            _open_stores.discard(self)
            self._quiesce(FORK_WAIT_SECONDS)
            SIDES.leave(self)
            self._host_lock.close()

    def let_go(self) -> bool:
        """Close every connection; the next use opens others. False: one is still at work."""
        with self.write_lock:
            quiet = self._quiesce(FORK_WAIT_SECONDS)
        self.holds_index = self.holds_index and not quiet
        return quiet

    def _quiesce(self, wait_seconds: float) -> bool:
        """Close every connection that is idle; true when that was all. Holds the write lock."""
        with self._returned:
            quiet = self._returned.wait_for(lambda: not self._busy, wait_seconds)
            idle, self._idle = self._idle, []
        for db in (*idle, self._writer):
            if db is None:
                continue
            if self.poison is not None and not _has_lost_its_log(db):
                # The log stays as it is: the next handle recovers from it what was committed.
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            db.close()
        self._writer = self._cursor = None
        self._queue.close()
        return quiet

    def before_fork(self) -> None:
        self.write_lock.acquire()
        # Re-entrant, and held through the fork: no reader may take a connection meanwhile.
        self._returned.acquire()
        self._survives = self._quiesce(FORK_WAIT_SECONDS) and self._host_lock.shared

    def after_fork_in_parent(self) -> None:
        self._returned.release()
        self.write_lock.release()

    def after_fork_in_child(self) -> None:
        if self._survives and self.poison is None:
            self._reset()
        else:
            # What was still open belongs to the parent: never touch it, never let it be closed.
            _open_stores.abandoned.append((self._writer, self._cursor, self._idle))


class Log:
    """The write-ahead log: how long it is, and when it is time to copy it into the file."""

    def __init__(self) -> None:
        self._pages = 0
        self._limit = CHECKPOINT_PAGES

    def grown(self, db: apsw.Connection, name: str, pages: int) -> int:
        """SQLite's hook after each commit. It holds no reference to the connection's owner."""
        self._pages = pages
        return apsw.SQLITE_OK

    def copied(self, pages: int, copied: int) -> None:
        # While a reader keeps the log from starting anew, trying at every commit would be waste.
        self._limit = CHECKPOINT_PAGES + (0 if copied >= pages else pages)
        self._pages = 0

    @property
    def is_long(self) -> bool:
        return self._pages >= self._limit


def _has_lost_its_log(db: StoreConnection) -> bool:
    """Whether the log's name is gone, and nothing else: then this process has the last of it.

    Closing brings it into the file, unless another process has the store open.
    """
    if db.names is None:
        return False
    main, log, index = db.names.files
    stay = all(place.which(name) == known for name, known in (main, index))
    return stay and log[1] is not None and place.which(log[0]) is None


def _wait_for(done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


def _ended(db: apsw.Connection) -> bool:
    """End a read; a connection that cannot even do that is given up."""
    try:
        if db.in_transaction:
            db.execute("ROLLBACK")
        return True
    except apsw.Error:  # no test: nothing that is known keeps a read from ending
        db.close(True)
        return False


# A name of its own, so that a test can let it fail.
sync = getattr(os, "fdatasync", os.fsync)
