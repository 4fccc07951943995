"""A text index in a SQLite file of its own, by FTS5: beside a store, or in memory.

The words of documents are in a contentless table: postings only, no text. It cannot tell which
words a document had, so what is removed leaves its words in the file until the postings are
written anew; `remove` does that at once, because nothing of a purged thread may stay.

It is a cache. What is not exactly as it was made here is dropped and made again.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from clew.core import residue
from clew.core.engine import Engine
from clew.core.errors import Closed, Corrupt, Unavailable
from clew.core.patience import patience, patiently
from clew.core.text_index import (
    COUNT_MAX,
    Addition,
    Filter,
    Known,
    Matches,
    Query,
    TextIndex,
    Words,
)
from clew.engines.shared import postings
from clew.engines.shared.process_fork import OpenStores

T = TypeVar("T")

APPLICATION_ID = 0x434C4553  # "CLES"
BUSY_SECONDS = 5.0
RANKED_MAX = 20_000  # of more matches, those that were read last are ranked
_WEIGHTS = "3.0, 2.0, 1.5, 1.0"  # of the columns, to choose candidates by

_SCHEMA = """
CREATE TABLE threads (
  no    INTEGER PRIMARY KEY,
  id    TEXT    NOT NULL UNIQUE,
  birth TEXT    NOT NULL,
  seq   INTEGER NOT NULL,                   -- how far it was read,
  hash  TEXT    NOT NULL                    --   and the hash of the record there
) STRICT;
CREATE TABLE marks (
  key    TEXT    NOT NULL,
  value  TEXT    NOT NULL,
  thread INTEGER NOT NULL,
  PRIMARY KEY (key, value, thread)
) STRICT, WITHOUT ROWID;
CREATE INDEX marks_by_thread ON marks (thread);
CREATE TABLE documents (
  no      INTEGER PRIMARY KEY AUTOINCREMENT, -- never given again: postings of removed ones may stay
  thread  INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  time_us INTEGER NOT NULL,
  size    INTEGER NOT NULL,
  title   INTEGER NOT NULL
) STRICT;
CREATE INDEX documents_by_thread ON documents (thread, seq);
CREATE VIRTUAL TABLE words USING fts5 (
  c0, c1, c2, c3, content='', contentless_delete=1, tokenize='ascii'
);
"""
_DEFINITIONS = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"

# A file that came from elsewhere must not be able to do anything.
_CLOSED = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
)
# The index is as it was left, and cannot be used or written just now.
_PASSING = (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError, apsw.NoMemError)
# There is no file to be had there.
_REFUSED = (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, OSError)
# What else reading a damaged one may raise: rows of it can hold anything.
_DAMAGE = (apsw.Error, ValueError, TypeError, LookupError, AttributeError, OverflowError)

_log = logging.getLogger("clew")
_open_indexes = OpenStores()


def open_full_text(
    engine: Engine | None, place: str | None, version: int, *, readonly: bool, existing: bool
) -> TextIndex | None:
    """See `clew.core.text_index.open_text_index`; `place` is the file, None for memory."""
    if place is None:
        return None if readonly or existing else FullText(None, version)
    if readonly:
        return _view(place, version)
    if existing and not os.path.lexists(place):
        return None
    try:
        return FullText(place, version)
    except _PASSING as error:
        raise Unavailable(f"the search index cannot be opened now: {error}") from error
    except _REFUSED as error:
        if existing:
            text = f"{place} may hold words of what was removed, and cannot be opened: {error}"
            raise Unavailable(text, retryable=False) from error
        _log.warning("%s cannot be written (%s): the index is kept in memory", place, error)
        return FullText(None, version)


def _view(place: str, version: int) -> TextIndex | None:
    """An index that may not be written. None: it is not there, or cannot be told by itself."""
    try:
        found = os.stat(place, follow_symlinks=False)
        logged = os.path.lexists(f"{place}-wal") and os.stat(f"{place}-wal").st_size > 0
        if not stat.S_ISREG(found.st_mode) or logged:
            return None
        return FullText(place, version, readonly=True)
    except (*_DAMAGE, OSError, Corrupt):
        return None


class FullText:
    """A text index in one file, or in memory. One connection, used by one thread at a time."""

    def __init__(self, place: str | None, version: int, *, readonly: bool = False) -> None:
        self.rebuilt: str | None = None
        self._place = place
        self.fleeting = place is None
        self._readonly = readonly
        self._version = version & 0x7FFF_FFFF
        self._lock = threading.RLock()
        self._closed = False
        self._db: apsw.Connection | None = None
        self._identity: tuple[int, ...] | None = None
        self._known: tuple[Any, dict[str, Known]] | None = None
        with _open_indexes.lock:
            self._db = self._open()
        _open_indexes.add(self)

    # --- the file ---

    def _open(self) -> apsw.Connection:
        if self._readonly:
            return self._open_view()
        with _alone(self._place):  # of two that begin at once, one would remove the other's
            try:
                return self._attempt()
            except (*_DAMAGE, Corrupt) as error:
                if self._place is None or isinstance(error, (*_REFUSED, *_PASSING)):
                    raise
                self._remove(str(error))
            return self._attempt()

    def _attempt(self) -> apsw.Connection:
        if self._place is not None:
            _prepare(self._place)
        db = self._connect()
        try:
            _make(db, self._version)
            self._identity = _identity(self._place)
            return db
        except BaseException:
            db.close(True)
            raise

    def _connect(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        db = apsw.Connection(self._place or ":memory:", flags=flags)
        try:
            self._settle(db)
            if db.pragma("page_count") == 0:
                # Without a rollback journal: one that a killed process has left could not be told
                # from one that others have put there.
                db.pragma("auto_vacuum", 2)  # incremental: `settle` gives room back
                db.pragma("journal_mode", "memory")
            logs = self._place is None or db.pragma("journal_mode", "wal") == "wal"
            if not logs:  # no test: SQLite does without a log only where no memory can be shared
                raise Corrupt(str(self._place), "it cannot have a write-ahead log")
            # What a loss of power takes from a cache is read again. What was purged goes.
            db.pragma("synchronous", "normal")
            db.pragma("secure_delete", 1)
            return db
        except BaseException:
            db.close(True)
            raise

    def _open_view(self) -> apsw.Connection:
        assert self._place is not None
        self._identity = _identity(self._place)
        uri = f"{Path(self._place).absolute().as_uri()}?immutable=1"
        db = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            self._settle(db)
            _refuse_other(db, self._version)
            return db
        except BaseException:
            db.close(True)
            raise

    def _settle(self, db: apsw.Connection) -> None:
        for option, switch in _CLOSED:
            db.config(option, switch)
        db.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        db.set_busy_handler(patience(BUSY_SECONDS))
        db.pragma("cell_size_check", 1)
        db.pragma("temp_store", 2)
        db.pragma("cache_size", -16_384)
        db.register_fts5_function("clew_counts", postings.counts)

    def _remove(self, reason: str) -> None:
        """Drop the file; the log first, so that it never lies beside another file."""
        assert self._place is not None
        self.rebuilt = f"the search index was made anew: {reason}"
        _log.warning("%s: %s", self._place, self.rebuilt)
        for ending in ("-journal", "-wal", "-shm", ""):
            _unlink(self._place + ending)

    @contextmanager
    def _using(self) -> Iterator[apsw.Connection]:
        """The connection to the file that has its name now. Damage drops it."""
        with self._lock:
            if self._closed:
                raise Closed("the search index was closed")
            try:
                yield self._current()
                if self._readonly and _identity(self._place) != self._identity:
                    raise Corrupt(str(self._place), "it was written while it was read")
            except _PASSING as error:
                raise Unavailable(f"the search index cannot be used now: {error}") from error
            except (*_DAMAGE, OSError) as error:
                self._drop(error)
                raise Corrupt(str(self._place), f"the search index: {error}") from error

    def _current(self) -> apsw.Connection:
        if self._db is not None and not self._readonly and self._place is not None:
            try:
                same = _identity(self._place) == self._identity
            except OSError:
                same = False
            if not same:  # another process has made it anew
                self._let_go()
        if self._db is None:
            self._db = self._open()
        return self._db

    def _drop(self, error: Exception) -> None:
        self._let_go()
        if self._place is None:
            self.rebuilt = f"the search index in memory was made anew: {error}"
        elif not self._readonly:
            with suppress(OSError), _alone(self._place):
                self._remove(str(error))

    def _let_go(self) -> None:
        db, self._db, self._known = self._db, None, None
        if db is not None:
            with suppress(apsw.Error):
                db.close(True)

    # --- what was read ---

    def known(self) -> Mapping[str, Known]:
        with self._using() as db:
            stamp = (id(db), db.pragma("data_version"), db.total_changes())
            if self._known is None or self._known[0] != stamp:
                rows = db.execute("SELECT id, birth, seq, hash FROM threads")
                self._known = (stamp, {id: Known(*rest) for id, *rest in rows})
            return self._known[1]

    def add(self, additions: Sequence[Addition]) -> None:
        with self._using() as db, _writing(db):
            for addition in additions:
                postings.add(db, addition)

    def remove(self, threads: Collection[str]) -> None:
        with self._using() as db:
            with _writing(db):
                sql = "SELECT no FROM threads WHERE id IN (SELECT value FROM json_each(?))"
                found = [no for (no,) in db.execute(sql, (json.dumps(list(threads)),))]
                if not found:
                    return
                for no in found:
                    postings.remove_thread(db, no)
                # The postings of removed documents go when all are written anew.
                db.execute("INSERT INTO words (words) VALUES ('optimize')")
            if self._place is not None:
                empty = partial(db.wal_checkpoint, mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                patiently(empty, apsw.BusyError, BUSY_SECONDS)
                residue.wipe(db.filename)

    def settle(self) -> None:
        with self._using() as db:
            with _writing(db):
                db.execute("INSERT INTO words (words) VALUES ('optimize')")
            db.execute("PRAGMA incremental_vacuum").fetchall()
            if self._place is not None:
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    # --- looking ---

    def search(
        self, query: Query, filter: Filter, *, limit: int, skip: int = 0, newest: bool = False
    ) -> Matches:
        with self._using() as db, _reading(db):
            text, positive = postings.expression(query)
            where, bindings = postings.where(db, filter)
            source = "words" if not where else "words JOIN documents d ON d.no = words.rowid"
            rest = f"FROM {source} WHERE words MATCH ?{where}"
            total = int(db.execute(f"SELECT count(*) {rest}", (text, *bindings)).get)
            if newest:
                rows = db.execute(
                    "SELECT t.id, d.seq, d.time_us, d.size, d.title, NULL"
                    " FROM words JOIN documents d ON d.no = words.rowid"
                    " JOIN threads t ON t.no = d.thread"
                    f" WHERE words MATCH ?{where} ORDER BY d.time_us DESC, t.id, d.seq DESC"
                    " LIMIT ? OFFSET ?",
                    (text, *bindings, limit, skip),
                )
                return Matches(total, [postings.candidate(row, ()) for row in rows])
            chosen, numbers = "", []
            if skip or total > limit:
                if total > RANKED_MAX:
                    newest_first = f"SELECT words.rowid {rest} ORDER BY words.rowid DESC LIMIT 1"
                    given = (text, *bindings, max(RANKED_MAX, skip + limit))
                    oldest = db.execute(f"{newest_first} OFFSET ?", given).get
                    rest, bindings = f"{rest} AND words.rowid > ?", [*bindings, oldest or 0]
                best = db.execute(
                    f"SELECT words.rowid {rest} ORDER BY bm25(words, {_WEIGHTS}), words.rowid DESC"
                    " LIMIT ? OFFSET ?",
                    (text, *bindings, limit, skip),
                )
                # One by one, unless words must be gathered by their beginning each time.
                plus = "+" if '" *' in text else ""
                chosen = f" AND {plus}words.rowid IN (SELECT value FROM json_each(?))"
                numbers = [json.dumps([no for (no,) in best])]
            rows = db.execute(
                "SELECT t.id, d.seq, d.time_us, d.size, d.title, clew_counts(words)"
                " FROM words JOIN documents d ON d.no = words.rowid"
                " JOIN threads t ON t.no = d.thread"
                f" WHERE words MATCH ?{'' if chosen else where}{chosen}",
                (text, *(numbers or bindings)),
            )
            return Matches(total, [postings.candidate(row, positive) for row in rows])

    def counts(self, words: Sequence[Words]) -> list[int]:
        sql = f"SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT {COUNT_MAX})"
        with self._using() as db:
            return [int(db.execute(sql, (postings.expression(leaf)[0],)).get) for leaf in words]

    def words_with(self, part: str, limit: int) -> list[str] | None:
        sql = "SELECT term FROM temp.vocabulary WHERE instr(term, ?) > 0 LIMIT ?"
        with self._using() as db:
            db.execute(
                "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary"
                " USING fts5vocab('main', 'words', 'row')"
            )
            found = [term for (term,) in db.execute(sql, (part, limit + 1))]
            return None if len(found) > limit else found

    def size_bytes(self) -> int:
        with self._using() as db:
            return int(db.pragma("page_count") * db.pragma("page_size"))

    # --- ending ---

    def clear(self) -> None:
        with self._lock:
            self._let_go()
            if self._place is not None and not self._readonly:
                with _alone(self._place):
                    self._remove("it was asked for")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            _open_indexes.discard(self)
            self._let_go()

    def before_fork(self) -> None:
        """SQLite's locks do not survive a fork, so the file is closed; memory is just copied."""
        self._lock.acquire()
        if self._place is not None:
            self._let_go()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()


# --- files ---


def _make_folder(folder: str) -> None:
    """A private one. A link or a file in its place is nothing of ours, and goes."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            os.unlink(folder)
            os.mkdir(folder, 0o700)


def _prepare(place: str) -> None:
    """A private file, and nothing beside it that SQLite would follow or obey."""
    if os.path.lexists(f"{place}-journal"):
        raise Corrupt(place, "there is a rollback journal beside it, which Clew never makes")
    for ending in ("-wal", "-shm", ""):
        try:
            found = os.lstat(place + ending)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise Corrupt(place, f"{place}{ending} is a link, a folder or a pipe")
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(FileExistsError):
        os.close(os.open(place, flags, 0o600))


@contextmanager
def _alone(place: str | None) -> Iterator[None]:
    """Be the only one that makes or removes a file, where the system has such a lock."""
    if place is None:
        yield
        return
    _make_folder(os.path.dirname(place))
    try:
        import fcntl
    except ImportError:  # no test: Windows, which has no such lock
        yield
        return
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(f"{place}-lock", flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        if not os.path.isdir(path):
            raise
        os.rename(path, f"{path}.aside-{os.getpid()}")  # a folder that is not ours: it is kept


def _identity(place: str | None) -> tuple[int, ...]:
    if place is None:
        return ()
    look = os.stat(place, follow_symlinks=False)
    return look.st_dev, look.st_ino


_TABLES = "SELECT count(*) FROM sqlite_schema"


def _make(db: apsw.Connection, version: int) -> None:
    """Make the tables, or find that they are there and are ours."""
    if not db.execute(_TABLES).get:
        with _writing(db):
            if not db.execute(_TABLES).get:  # one way: the lock of _alone lets no other make it
                db.execute(_SCHEMA)
                db.pragma("application_id", APPLICATION_ID)
                db.pragma("user_version", version)
    _refuse_other(db, version)


def _refuse_other(db: apsw.Connection, version: int) -> None:
    if db.pragma("application_id") != APPLICATION_ID:
        raise Corrupt("the index", "it is not one of Clew's")
    if db.pragma("user_version") != version:
        raise Corrupt("the index", "another version of Clew has made it")
    if list(db.execute(_DEFINITIONS)) != _definitions():
        raise Corrupt("the index", "its tables are not defined as Clew does")


@lru_cache
def _definitions() -> list[tuple[Any, ...]]:
    model = apsw.Connection(":memory:")
    model.execute(_SCHEMA)
    return list(model.execute(_DEFINITIONS))


@contextmanager
def _writing(db: apsw.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(apsw.Error):
            if db.in_transaction:  # one way: SQLite ends one by itself on a full disk
                db.execute("ROLLBACK")
        raise


@contextmanager
def _reading(db: apsw.Connection) -> Iterator[None]:
    """All statements see one moment."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        with suppress(apsw.Error):
            if db.in_transaction:  # one way: SQLite itself ends it only on errors of the disk
                db.execute("ROLLBACK")
