"""The index: a SQLite file with the tables of a SQLite store, but places instead of bodies.

It is a cache. Every row was read from a journal; a record found here is read from its file, and
what the index says of it is compared with its line. An index that says something else is dropped
(`Untrue`), and an empty one takes its place that is filled again by whatever is asked for. Where
it cannot be written, that one is in memory.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from operator import itemgetter

import apsw
from msgspec import Struct, UnsetType

from clew.core.errors import Corrupt, Unavailable
from clew.core.lines import Line
from clew.core.patience import patience
from clew.core.reducer import Head
from clew.engines.files.locks import EXCLUSIVE, try_flock, wait_for
from clew.engines.shared.migrations import schema
from clew.engines.shared.tables import namespaces, read, rows
from clew.engines.shared.tables.rows import every, one, value
from clew.engines.shared.thread_list import PURGED

_MORE = """
ALTER TABLE records ADD COLUMN start INTEGER;
ALTER TABLE records ADD COLUMN length INTEGER;
-- A thread's file: how far it is known, and how it looked then.
CREATE TABLE files (
  no    INTEGER PRIMARY KEY AUTOINCREMENT,
  key   TEXT    NOT NULL UNIQUE,
  name  TEXT,                               -- in threads/, NULL for one in purged/
  size  INTEGER NOT NULL DEFAULT 0,
  last  BLOB    NOT NULL DEFAULT x'',       -- the last bytes that were read
  stamp INTEGER NOT NULL DEFAULT 0,
  damage TEXT                               -- why it cannot be read to its end
) STRICT;
CREATE UNIQUE INDEX files_by_name ON files (name) WHERE name IS NOT NULL;
CREATE INDEX files_damaged ON files (no) WHERE damage IS NOT NULL;
-- The blobs that records refer to, or that hold their bodies.
CREATE TABLE uses (
  blob   TEXT    NOT NULL,
  record INTEGER NOT NULL,
  body   INTEGER NOT NULL,                  -- 1: it holds the record's body
  PRIMARY KEY (blob, record, body)
) STRICT, WITHOUT ROWID;
CREATE INDEX uses_by_record ON uses (record);
"""
BUSY_SECONDS = 10.0
SPACE = namespaces.DEFAULT.no  # a namespace is a folder of its own, with an index of its own

_log = logging.getLogger("clew")


class Untrue(Exception):
    """The index says something else than the files. `place` is where it was seen."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason


# What a damaged index may raise: rows of it can hold anything, in any column. It is a cache: the
# caller does without it then. ClewErrors are none of these.
INDEX_ERRORS = (
    *(apsw.Error, Untrue, ValueError, TypeError, LookupError, AttributeError),
    *(OverflowError, AssertionError),
)
# The index is as it was left, and cannot be used now.
_PASSING = (
    *(apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.CantOpenError),
    *(apsw.ReadOnlyError, apsw.IOError, apsw.PermissionsError, apsw.NoMemError),
)

_WHERE = "SELECT no, start, length, id, parent FROM records"
# Nothing foreign is run, whatever the schema says of an index that a stranger made.
_CLOSED = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
)


class Indexed(Struct, frozen=True):
    """How far a file is indexed."""

    no: int
    size: int
    last: bytes
    seq: int


class Extent(Struct, frozen=True):
    """How far a file was read: its size, its last bytes, and how it looked."""

    size: int
    last: bytes
    stamp: int


class Where(Struct, frozen=True):
    """Where a record lies, and what its line must say; a number of 0 says nothing of that."""

    no: int
    start: int
    length: int
    id: str = ""
    parent: str | None = None  # of an entry; of a move, the leaf

    def agrees(self, line: Line) -> bool:
        """Whether the line that was found there is the one that the index speaks of."""
        if self.no == 0:
            return True
        found = line.seq, line.id, line.leaf if line.type == "move" else line.parent
        return found == (self.no & rows.SEQ_MAX, self.id, self.parent)


def run_end(places: Sequence[Where], at: int, bytes_max: int) -> int:
    """The end of a run of places that lie close together, so that one read gets them all."""
    end = at + 1
    begin = places[at].start
    while end < len(places):
        before, here = places[end - 1], places[end]
        if here.start - before.start - before.length > 4096 or here.start < before.start:
            break
        if here.start + here.length - begin > bytes_max:
            break
        end += 1
    return end


class Index:
    """One connection, used by one thread at a time."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._given_up: str | None = None  # the file, once it is done without
        self.lock = threading.RLock()
        self.lineages = rows.Lineages()
        self.epoch = 0  # grows when the index was lost: nothing is known of any file then
        self.closings = 0  # grows when it was closed: what is opened next may be another one
        self._db: apsw.Connection | None = None
        self._depth = 0
        self._identity: tuple[int, int] | None = None

    @property
    def db(self) -> apsw.Connection:
        if self._db is None:
            self._db = self._open()
        return self._db

    def _open(self) -> apsw.Connection:
        with self._alone():
            return self._open_alone()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from making and removing the index meanwhile.

        One that is being made has a rollback journal for a moment, as one from elsewhere may have,
        and to remove one takes several steps. The lock is on the folder: it needs no other file.
        """
        if not self.is_shared:
            yield
            return
        folder = os.path.dirname(self.file)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise apsw.CantOpenError(f"{folder}: {error.strerror}") from error
        try:
            wait_for(lambda: try_flock(descriptor, EXCLUSIVE, folder), folder, BUSY_SECONDS)
            yield
        except Unavailable as error:  # no test: held for longer than a writer waits
            raise apsw.CantOpenError(str(error)) from error
        finally:
            os.close(descriptor)

    def _open_alone(self) -> apsw.Connection:
        wanted = schema("sqlite") + _MORE
        # Not counted up by hand: any change of the schema makes another version of the index.
        version = zlib.crc32(wanted.encode()) & 0x7FFF_FFFF
        for attempt in range(2):  # one way: the second returns or raises
            if self.is_shared:
                if not self._is_plain():
                    self._remove()
                self._make_private()
            db = apsw.Connection(self.file)
            try:
                for option, switch in _CLOSED:
                    db.config(option, switch)
                db.set_busy_handler(patience(BUSY_SECONDS))
                db.pragma("journal_mode", "wal")
                # What a loss of power takes from a cache is read from the files again. But what
                # was purged must not be left in it.
                db.pragma("synchronous", "normal")
                db.pragma("secure_delete", 1)
                _make(db, wanted, version)
                self._identity = self._look()
                return db
            except (apsw.Error, Corrupt):
                db.close()
                if attempt or not self.is_shared:
                    raise
                self._remove()  # from another version, or not a database: it is only a cache
        raise AssertionError  # no test: see above

    def _make_private(self) -> None:
        """A new file for its owner alone, whatever the umask; the log gets the rights of it."""
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        try:
            # Only ever a fresh file: to close a descriptor of one that this process has open would
            # drop the locks that SQLite holds on it.
            os.close(os.open(self.file, flags, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise apsw.CantOpenError(f"{self.file}: {error.strerror}") from error

    def _is_plain(self) -> bool:
        """Whether all of it is files, and none a rollback journal.

        A link would be written to wherever it leads. An index of ours has no rollback journal, and
        one that comes from elsewhere may name other files, for SQLite to delete.
        """
        if os.path.lexists(f"{self.file}-journal"):
            return False
        for ending in ("", "-wal", "-shm"):
            try:
                if not stat.S_ISREG(os.lstat(self.file + ending).st_mode):
                    return False
            except FileNotFoundError:
                pass
        return True

    def _look(self) -> tuple[int, int] | None:
        if not self.is_shared:
            return None
        try:
            look = os.stat(self.file, follow_symlinks=False)
        except OSError as error:
            raise apsw.CantOpenError(f"{self.file}: {error.strerror}") from error
        return look.st_dev, look.st_ino

    def keep_up(self) -> None:
        """Use the index that others see, if one of them has made another one meanwhile."""
        with self.lock:
            try:
                same = self._db is None or self._look() == self._identity
            except apsw.Error:
                same = False
            if not same:
                self._let_go()

    @property
    def is_shared(self) -> bool:
        """Whether other processes see it, and what they note in it."""
        return self.file != ":memory:"

    def _remove(self) -> None:
        for ending in ("", "-wal", "-shm", "-journal"):
            try:
                os.unlink(self.file + ending)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise apsw.CantOpenError(f"{self.file}{ending} is in the way") from error

    def close(self) -> None:
        if self._db is not None:
            self.closings += 1
            self._db.close()
            self._db = None

    def fall_back(self) -> None:
        """Go on without the file."""
        with self.lock:
            self._let_go()
            self._give_up()

    def _give_up(self) -> None:
        if self.is_shared:
            self._given_up, self.file = self.file, ":memory:"

    def come_back(self) -> None:
        """Use a file again that was given up, as an empty one: it is not to remember any more.

        What is about to be removed would go on to be in it, and others would miss it in the files.
        """
        with self.lock:
            if self._given_up is not None:
                self._let_go()
                self.file, self._given_up = self._given_up, None
                try:
                    with self._alone():
                        self._remove()
                except apsw.Error:
                    self._give_up()

    def drop(self, reason: object) -> None:
        """Go on with an empty one. Other processes keep theirs until they look for it again."""
        with self.lock:
            _log.warning("the index %s is made anew, it cannot be right: %s", self.file, reason)
            self._let_go()
            try:
                with self._alone():
                    if self.is_shared:
                        self._remove()
            except apsw.Error:  # no test: the disk fails as it is made anew
                self._give_up()

    def give_way(self, error: BaseException, *, keep: bool = True) -> None:
        """After an error: go on without the file if it cannot be used, or with another one.

        Without `keep` it must not stay as it is: it would remember what is about to be removed.
        """
        if (keep and isinstance(error, _PASSING)) or not self.is_shared:
            self.fall_back()
        else:
            self.drop(error)

    def _let_go(self) -> None:
        try:
            self.close()
        except apsw.Error:  # no test: closing fails on a failing disk alone
            self._db = None
        self.epoch += 1
        self.lineages = rows.Lineages()
        self._depth = 0

    def flaw(self) -> str | None:
        """What SQLite itself finds wrong with it: rows that one of its trees has and another not.

        It does not see all: a value that stands in one place only may be changed.
        """
        with self.lock:
            found = value(self.db, "PRAGMA integrity_check(1)")
            return None if found == "ok" else str(found)

    @contextmanager
    def asked(self) -> Iterator[apsw.Connection]:
        """For questions. Where its tables contradict each other, no file is to blame."""
        with self.lock:
            try:
                yield self.db
            except Corrupt as error:
                raise Untrue(self.file, str(error)) from error

    @contextmanager
    def moment(self) -> Iterator[apsw.Connection]:
        """For questions whose answers belong together: all of them see one moment."""
        with self.asked() as db:
            db.execute("BEGIN")
            try:
                yield db
            finally:
                if db.in_transaction:  # no test: after an error SQLite may have ended it
                    db.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A transaction; one inside another one is a part of it."""
        with self.lock:
            db = self.db
            if self._depth == 0:
                db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield db
            except BaseException:
                self._depth -= 1
                if self._depth == 0 and db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                db.execute("COMMIT")

    # --- files ---

    def number(self, key: str) -> int:
        """A file's number: the same as long as the file, or what is left of it, is there."""
        with self.asked() as db:
            # Nearly always it is there, and then no other process has to be waited for.
            found = value(db, "SELECT no FROM files WHERE key = ?", (key,))
            if found is not None:
                return int(found)
            with self.writing():
                db.execute("INSERT OR IGNORE INTO files (key) VALUES (?)", (key,))
                return int(value(db, "SELECT no FROM files WHERE key = ?", (key,)))

    def known(self, key: str) -> Indexed | None:
        with self.asked() as db:
            row = one(
                db,
                "SELECT f.no, f.size, f.last, t.seq FROM files f JOIN threads t ON t.no = f.no"
                " WHERE f.key = ?",
                (key,),
            )
            return None if row is None else Indexed(*row)

    def key(self, no: int) -> str:
        with self.asked() as db:
            return str(value(db, "SELECT key FROM files WHERE no = ?", (no,)))

    def is_live(self, key: str) -> bool:
        """Whether the file is a thread's own, and not what a purge left of it."""
        with self.asked() as db:
            return value(db, "SELECT name FROM files WHERE key = ?", (key,)) is not None

    def stamps(self) -> dict[str, int]:
        """Every thread's file by its name, and how it looked when it was indexed."""
        with self.asked() as db:
            return dict(every(db, "SELECT name, stamp FROM files WHERE name IS NOT NULL"))

    def stamp_sum(self) -> tuple[int, int]:
        """How many files of threads are known, and the sum of how they looked."""
        # In halves: SQLite has no integers for the sum of many of 64 bits.
        halves = "sum(stamp >> 32), sum(stamp & 0xFFFFFFFF)"
        with self.asked() as db:
            row = one(db, f"SELECT count(*), {halves} FROM files WHERE name IS NOT NULL")
        count, high, low = row or (0, 0, 0)
        return count, ((high or 0) << 32) + (low or 0)

    def stamp(self, name: str) -> int | None:
        """The same of one file."""
        with self.asked() as db:
            found: int | None = value(db, "SELECT stamp FROM files WHERE name = ?", (name,))
            return found

    def forget(self, no: int, *, file: bool = True) -> None:
        """Remove all that is known of a thread; without `file` its number stays."""
        span = rows.number(no, 0), rows.number(no, rows.SEQ_MAX)
        with self.writing() as db:
            db.execute("DELETE FROM uses WHERE record BETWEEN ? AND ?", span)
            db.execute("DELETE FROM records WHERE no BETWEEN ? AND ?", span)
            db.execute("DELETE FROM segments WHERE first BETWEEN ? AND ?", span)
            for table in ("facts", "tags"):
                db.execute(f"DELETE FROM {table} WHERE thread = ?", (no,))
            db.execute("DELETE FROM threads WHERE no = ?", (no,))
            if file:
                db.execute("DELETE FROM files WHERE no = ?", (no,))
            else:
                db.execute("UPDATE files SET name = NULL, size = 0, stamp = 0 WHERE no = ?", (no,))
            # Remembered paths may run through what was forgotten.
            self.lineages = rows.Lineages()

    def damage(self) -> dict[str, str]:
        """The threads whose files cannot be read to their end, by id, and why."""
        with self.lock:
            sql = (
                "SELECT t.id, f.damage FROM files f JOIN threads t ON t.no = f.no"
                " WHERE f.damage IS NOT NULL"
            )
            return dict(every(self.db, sql))

    def forget_name(self, name: str) -> None:
        """The file of that name is not there any more; forks may still need what is left of it."""
        with self.asked() as db:
            no = value(db, "SELECT no FROM files WHERE name = ?", (name,))
            if no is not None:
                self.forget(no, file=False)

    # --- looking up ---

    def head(self, no: int) -> Head:
        with self.asked() as db:
            row = one(
                db,
                "SELECT id, seq, leaf, leaf_hash, tail, updated_us, deleted_us FROM threads"
                " WHERE no = ?",
                (no,),
            )
            if row is None:  # no test: another process drops it between two looks
                raise Untrue(self.file, f"thread no. {no} is not there")
            return Head(*row)

    def facts(self, no: int) -> list[tuple[str, int, bytes]]:
        """A thread's facts: the key, the record and the value of each."""
        with self.asked() as db:
            query = (
                "SELECT f.key, f.record, r.body FROM facts f LEFT JOIN records r ON r.no = f.record"
                " WHERE f.thread = ?"
            )
            # Not sorted by SQLite: that writes large values to a file of its own, at each look.
            return sorted(every(db, query, (no,)), key=itemgetter(1))

    def has_entry(self, no: int, id: str) -> bool:
        """Whether an entry of that id is indexed as one of the thread's own."""
        with self.asked() as db:
            return rows.locate(db, no, (), id) is not None

    def has_in(self, key: str, seq: int) -> bool:
        """Whether an entry is indexed. No fork begins at anything else, whatever its file says."""
        with self.asked() as db:
            query = (
                "SELECT 1 FROM files f JOIN records r ON r.no = f.no << 32 | ?"
                " WHERE f.key = ? AND r.type = 0"
            )
            return value(db, query, (seq, key)) is not None

    def find(self, no: int, id: str) -> Where | None:
        """A record by its id, among those of a thread and of the path that it inherits."""
        with self.asked() as db:
            row = one(db, f"{_WHERE} WHERE id = ? AND no >> 32 = ?", (id, no))
            if row is None:
                place = self.locate(no, id)
                row = None if place is None else one(db, f"{_WHERE} WHERE no = ?", (place,))
            return None if row is None else Where(*row)

    def locate(self, no: int, id: str) -> int | None:
        """The number of an entry that is visible in a thread."""
        with self.asked() as db:
            row = one(db, "SELECT shelf, origin_no FROM threads WHERE no = ?", (no,))
            shelf, origin_no = row or (None, None)
            if shelf == PURGED:
                return self._locate_parent(no, id)
            return rows.locate(db, no, self.lineages.of(db, origin_no), id)

    def _locate_parent(self, no: int, id: str) -> int | None:
        """The number of an entry that an entry hangs on, of what is left of a purged thread.

        The path that the thread inherited may be there in parts only. But ids are unique among
        what a thread can see, and it saw a part of what its origin could see, and so on: the
        nearest of that id is the one.
        """
        at: int | None = no
        passed: set[int] = set()  # damage may lead in a circle
        while at is not None and at not in passed:
            passed.add(at)
            place = rows.locate(self.db, at, (), id)
            if place is not None:
                return place
            origin_no = value(self.db, "SELECT origin_no FROM threads WHERE no = ?", (at,))
            at = None if origin_no is None else origin_no >> 32
        return None

    def places(self, span: rows.Range, *, limit: int = -1) -> list[Where]:
        """Where the records of a range lie, in order."""
        with self.asked() as db:
            query = f"{_WHERE} WHERE no BETWEEN ? AND ? ORDER BY no LIMIT ?"
            return [Where(*row) for row in every(db, query, (*span, limit))]

    def path(
        self, thread: str, leaf: str | UnsetType | None, after: str | None, limit: int | None
    ) -> list[Where]:
        """Where the entries of a path lie, oldest first."""
        newest: list[Where] = []
        query = f"{_WHERE} WHERE no BETWEEN ? AND ? AND type = 0 ORDER BY no DESC LIMIT ?"
        with self.asked() as db:
            for span in read.path_spans(db, self.lineages, SPACE, thread, leaf, after):
                left = -1 if limit is None else limit - len(newest)
                if left == 0:
                    break
                newest += [Where(*row) for row in every(db, query, (*span, left))]
        return newest[::-1]


def _make(db: apsw.Connection, wanted: str, version: int) -> None:
    if db.pragma("user_version") == version:
        if _schema(db) != _wanted_schema(wanted):
            raise apsw.SchemaChangeError("an index with tables that are not Clew's")
        return
    db.execute("BEGIN IMMEDIATE")
    found = db.pragma("user_version")
    if found not in (0, version):
        db.execute("ROLLBACK")
        raise apsw.SchemaChangeError("an index of another version")
    if found == 0:  # one way: unless another process has just made it
        db.execute(wanted)
        db.pragma("user_version", version)
    db.execute("COMMIT")


def _schema(db: apsw.Connection) -> list[rows.Row]:
    # SQLite makes statistics for itself when it is asked to.
    query = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'"
    return sorted(every(db, query), key=repr)


@lru_cache(1)
def _wanted_schema(wanted: str) -> list[rows.Row]:
    db = apsw.Connection(":memory:")
    try:
        db.execute(wanted)
        return _schema(db)
    finally:
        db.close()
