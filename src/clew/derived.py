"""What is made of a store's records and kept: tables in a SQLite file of the user's cache folder.

Everything in them can be read from the store again. Each question opens the file, brings it up to
date, and closes it. A file that is damaged or of another version is thrown away. Where no file can
be written, the tables are in memory, and end with the store.

What is kept so has a table `threads`, which tells how far each thread was read: its id, its birth,
the seq of the last record that is in it, and the hash of that.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import apsw
import msgspec
from msgspec import Struct

from clew.address import cache_folder, make_folders
from clew.core import residue
from clew.core.codec import digest
from clew.core.engine import Engine
from clew.core.errors import Corrupt, NotFound
from clew.core.model import ThreadHead
from clew.core.patience import patiently

if TYPE_CHECKING:
    from clew.store import Store

_BUSY_MS = 5_000
_LOG_BYTES_MAX = 256 * 1024  # of a log that stays: whoever opens the file next reads all of it
_log = logging.getLogger("clew")

T = TypeVar("T")


class Tables(Struct, frozen=True):
    """What the tables are called, and how they are made. Another `schema` is another version."""

    name: str
    schema: str


class Known(Struct, frozen=True):
    """How far a thread was read."""

    birth: str
    seq: int
    hash: str | None


def ask(store: Store, tables: Tables, question: Callable[[apsw.Connection], T]) -> T:
    """Ask tables something; the question brings them up to date first.

    It may be asked twice, if the file turns out to be of no use.
    """
    file = _file_of(store, tables)
    for _ in range(0 if file is None else 2):
        assert file is not None
        try:
            with closing(_open(file, tables)) as db:
                return question(db)
        except _DAMAGED as error:
            _log.warning("the cache of %s at %s is made anew: %s", tables.name, file, error)
            _throw_away(file)
        except (apsw.Error, OSError) as error:
            _log.warning("%s: it is done without the cache at %s: %s", tables.name, file, error)
            break
    with _memory(store, tables) as db:
        return question(db)


def forget(store: Store, tables: Tables, remove: Callable[[apsw.Connection], object]) -> None:
    """Remove something from tables, if there are any, so that nothing of it is in their files."""
    file = _file_of(store, tables)
    if file is not None and file.exists():
        try:
            with closing(_open(file, tables)) as db:
                remove(db)
                # What was removed is still in the log; others may be emptying it, too.
                empty = partial(db.wal_checkpoint, mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                patiently(empty, apsw.BusyError, _BUSY_MS / 1000)
                residue.wipe(str(file))
        except (apsw.Error, OSError, msgspec.MsgspecError):
            _throw_away(file)  # it can be made again, and what was to be removed must not stay
    if tables.name in store.derived:
        with _memory(store, tables) as db:
            remove(db)


def files_of(store: Store) -> list[Path]:
    """The files in which something is kept that was made of a store's records."""
    found = _file_of(store, Tables("*", ""))
    return [] if found is None else sorted(found.parent.parent.glob(f"*/{found.name}*"))


# A value that cannot be one is damage as well, and so is a table that is not there.
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, msgspec.MsgspecError)


@contextmanager
def step(db: apsw.Connection) -> Iterator[None]:
    """All of it or nothing, with no other process in between."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(apsw.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def leave_log(db: apsw.Connection) -> None:
    """Let what was added stay in a short log when the file is closed, for a later question to sync.

    Moving it into the file and making a new log takes a sync or three, which is most of what a
    question costs that finds little new. After rows were removed this is not for use: they would
    still be in the file.
    """
    with suppress(OSError):
        if os.stat(db.filename_wal).st_size <= _LOG_BYTES_MAX:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


# --- what has changed ---


class Changes(Struct, frozen=True):
    """What differs between a store and its tables: threads that are gone, and that are behind."""

    known: dict[str, Known]
    gone: list[str]
    behind: list[ThreadHead]


def changes(db: apsw.Connection, engine: Engine) -> Changes:
    # In this order: a thread that is known, and has no head then, is gone.
    sql = "SELECT id, birth, seq, hash FROM threads"
    known = {id: Known(*rest) for id, *rest in db.execute(sql)}
    heads = {head.thread: head for head in engine.heads()}
    if not _is_same_store(db, engine, heads):
        return Changes({}, list(known), list(heads.values()))
    # A thread of the same name that began another time is another one: what is known goes first,
    # or it would stay where the new one cannot be read.
    gone = [id for id, one in known.items() if id not in heads or heads[id].birth != one.birth]
    for id in gone:
        del known[id]
    return Changes(known, gone, [one for one in heads.values() if _is_behind(one, known)])


def _is_same_store(db: apsw.Connection, engine: Engine, heads: dict[str, ThreadHead]) -> bool:
    """Whether the store is the one that was read: another one may have been put in its place.

    That could have the same threads, as far as their heads tell. So a record of one is looked at.
    """
    sql = "SELECT id, birth, seq, hash FROM threads WHERE seq > 0 ORDER BY no DESC LIMIT 1"
    id, birth, seq, hash = db.execute(sql).get or ("", "", 0, "")
    head = heads.get(id)
    if head is None or head.birth != birth or head.seq < seq:
        return True  # that is looked at thread by thread
    try:
        return [record.hash for record in engine.read(id, after=seq - 1, limit=1)] == [hash]
    except (NotFound, Corrupt):
        return True


def _is_behind(head: ThreadHead, known: dict[str, Known]) -> bool:
    own = known.get(head.thread)
    return own is None or (own.birth, own.seq) != (head.birth, head.seq)


# --- the file ---


def _file_of(store: Store, tables: Tables) -> Path | None:
    """Not beside the store: what comes with a store may come from a stranger.

    A store that only this process sees ends with it, so a file would be of no use there.
    """
    properties = store.properties
    folder = cache_folder() if properties.processes else None
    key = "\0".join([properties.namespace, properties.place])
    name = digest(os.fsencode(key))[3:35] + ".db"
    return None if folder is None else folder / tables.name / name


def _open(file: Path, tables: Tables) -> apsw.Connection:
    make_folders(file.parent)
    with suppress(FileExistsError):  # for its owner alone, whatever rights new files have
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    db = apsw.Connection(str(file))
    try:
        db.set_busy_timeout(_BUSY_MS)
        for option, switch in _CLOSED:
            db.config(option, switch)
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "normal")
        db.pragma("secure_delete", 1)
        db.pragma("temp_store", 2)  # in memory: nothing of a store lies in a temporary file
        db.pragma("cache_size", -16_384)  # KiB: one step of many rows is written once
        _make(db, tables)
        return db
    except BaseException:
        db.close()
        raise


# What a file of tables alone does not need, and what could be in one that was not made here.
_CLOSED = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
)


def _make(db: apsw.Connection, tables: Tables) -> None:
    version = crc32(tables.schema.encode()) & 0x7FFF_FFFF  # not counted up by hand
    if db.pragma("user_version") == version:
        return
    with step(db):
        found = db.pragma("user_version")
        if found == version:
            return  # another process was first
        if found or db.pragma("schema_version"):
            raise apsw.CorruptError("it is of another version")
        db.execute(tables.schema)
        db.pragma("user_version", version)


@contextmanager
def _memory(store: Store, tables: Tables) -> Iterator[apsw.Connection]:
    """Tables that end with the store."""
    with _MUTEX:
        kept = store.derived.get(tables.name)
        if kept is None:
            kept = store.derived[tables.name] = (apsw.Connection(":memory:"), threading.Lock())
            _make(kept[0], tables)
    db, lock = kept
    with lock:
        yield db


_MUTEX = threading.Lock()


def _throw_away(file: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        with suppress(OSError):
            os.unlink(f"{file}{ending}")
