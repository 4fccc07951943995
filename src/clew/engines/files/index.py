"""The index: a SQLite file with the tables of a SQLite store, but places instead of bodies.

It is a cache. Every row was read from a journal; a record found here is read from its file and
checked before it is given out. When the file is missing, damaged or cannot be written, an empty
one in memory takes its place and is filled again by whatever is asked for.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import apsw
from msgspec import Struct, UnsetType

from clew.core.codec import to_bytes, to_hash
from clew.core.errors import Corrupt, NotFound
from clew.core.hashes import thread_hash
from clew.core.lines import Header, Line
from clew.core.model import Fact, Origin
from clew.core.reducer import Head
from clew.engines.files.tail import FoundLine
from clew.engines.shared.migrations import schema
from clew.engines.shared.tables import namespaces, read, rows
from clew.engines.shared.tables.facts import set_damaged_fact, set_fact
from clew.engines.shared.tables.rows import every, one, patience, value
from clew.engines.shared.thread_list import IN_USE, PURGED

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
# What a damaged index may raise. It is a cache: the caller does without it then.
INDEX_ERRORS = (apsw.Error, UnicodeDecodeError)

_WHERE = "SELECT no, start, length FROM records"
_INSERT = (
    "INSERT INTO records (no, type, id, time_us, hash, parent, kind, body, start, length)"
    " VALUES (?,?,?,?,?,?,?,?,?,?)"
)
_TYPES = {"entry": rows.ENTRY, "move": rows.MOVE, "fact": rows.FACT}

Load = Callable[[str], bytes]  # the bytes of a blob


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
    """Where a record lies."""

    no: int
    start: int
    length: int


class Index:
    """One connection, used by one thread at a time."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lock = threading.RLock()
        self.lineages = rows.Lineages()
        self.epoch = 0  # grows when the index was lost: nothing is known of any file then
        self.closings = 0  # grows when it was closed: what is opened next may be another one
        self._db: apsw.Connection | None = None
        self._depth = 0

    @property
    def db(self) -> apsw.Connection:
        if self._db is None:
            self._db = self._open()
        return self._db

    def _open(self) -> apsw.Connection:
        wanted = schema("sqlite") + _MORE
        # Not counted up by hand: any change of the schema makes another version of the index.
        version = zlib.crc32(wanted.encode()) & 0x7FFF_FFFF
        if os.path.islink(self.file):
            self.remove()  # never write where it leads
        for attempt in range(2):
            db = apsw.Connection(self.file)
            try:
                db.set_busy_handler(patience(BUSY_SECONDS))
                db.pragma("journal_mode", "wal")
                # What a loss of power takes from a cache is read from the files again. But what
                # was purged must not be left in it.
                db.pragma("synchronous", "normal")
                db.pragma("secure_delete", 1)
                _make(db, wanted, version)
                return db
            except apsw.Error:
                db.close()
                if attempt or not self.is_shared:
                    raise
                self.remove()  # from another version, or not a database: it is only a cache
        raise AssertionError

    @property
    def is_shared(self) -> bool:
        """Whether other processes see it, and what they note in it."""
        return self.file != ":memory:"

    def remove(self) -> None:
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
            try:
                self.close()
            except apsw.Error:
                self._db = None
            self.file = ":memory:"
            self.epoch += 1
            self.lineages = rows.Lineages()
            self._depth = 0

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
        with self.lock:
            # Nearly always it is there, and then no other process has to be waited for.
            found = value(self.db, "SELECT no FROM files WHERE key = ?", (key,))
            if found is not None:
                return int(found)
            with self.writing() as db:
                db.execute("INSERT OR IGNORE INTO files (key) VALUES (?)", (key,))
                return int(value(db, "SELECT no FROM files WHERE key = ?", (key,)))

    def known(self, key: str) -> Indexed | None:
        with self.lock:
            row = one(
                self.db,
                "SELECT f.no, f.size, f.last, t.seq FROM files f JOIN threads t ON t.no = f.no"
                " WHERE f.key = ?",
                (key,),
            )
            return None if row is None else Indexed(*row)

    def key(self, no: int) -> str:
        with self.lock:
            return str(value(self.db, "SELECT key FROM files WHERE no = ?", (no,)))

    def is_live(self, key: str) -> bool:
        """Whether the file is a thread's own, and not what a purge left of it."""
        with self.lock:
            return value(self.db, "SELECT name FROM files WHERE key = ?", (key,)) is not None

    def stamps(self) -> dict[str, int]:
        """Every thread's file by its name, and how it looked when it was indexed."""
        with self.lock:
            return dict(every(self.db, "SELECT name, stamp FROM files WHERE name IS NOT NULL"))

    def stamp(self, name: str) -> int | None:
        """The same of one file."""
        with self.lock:
            found: int | None = value(self.db, "SELECT stamp FROM files WHERE name = ?", (name,))
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

    def note_damage(self, name: str, header: Header, reason: str) -> None:
        """Why a file cannot be read to its end: what is known of its thread is still listed."""
        with self.writing() as db:
            no = value(db, "SELECT no FROM files WHERE name = ?", (name,))
            if no is None:
                no = self.number(header.key)
                _add_thread(self, db, no, header, name)
            db.execute("UPDATE files SET damage = ? WHERE no = ?", (reason, no))

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
        with self.lock:
            no = value(self.db, "SELECT no FROM files WHERE name = ?", (name,))
            if no is not None:
                self.forget(no, file=False)

    # --- looking up ---

    def head(self, no: int) -> Head:
        with self.lock:
            row = one(
                self.db,
                "SELECT id, seq, leaf, leaf_hash, tail, updated_us, deleted_us FROM threads"
                " WHERE no = ?",
                (no,),
            )
            if row is None:
                raise Corrupt("index", f"thread no. {no} is not there")
            return Head(*row)

    def has(self, no: int) -> bool:
        """Whether a record is indexed."""
        with self.lock:
            return value(self.db, "SELECT 1 FROM records WHERE no = ?", (no,)) is not None

    def find(self, no: int, id: str) -> Where | None:
        """A record by its id, among those of a thread and of the path that it inherits."""
        with self.lock:
            db = self.db
            row = one(db, f"{_WHERE} WHERE id = ? AND no >> 32 = ?", (id, no))
            if row is None:
                place = self.locate(no, id)
                row = None if place is None else one(db, f"{_WHERE} WHERE no = ?", (place,))
            return None if row is None else Where(*row)

    def locate(self, no: int, id: str) -> int | None:
        """The number of an entry that is visible in a thread."""
        with self.lock:
            db = self.db
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
        with self.lock:
            query = f"{_WHERE} WHERE no BETWEEN ? AND ? ORDER BY no LIMIT ?"
            return [Where(*row) for row in every(self.db, query, (*span, limit))]

    def path(
        self, thread: str, leaf: str | UnsetType | None, after: str | None, limit: int | None
    ) -> list[Where]:
        """Where the entries of a path lie, oldest first."""
        newest: list[Where] = []
        query = f"{_WHERE} WHERE no BETWEEN ? AND ? AND type = 0 ORDER BY no DESC LIMIT ?"
        with self.lock:
            for span in read.path_spans(self.db, self.lineages, SPACE, thread, leaf, after):
                left = -1 if limit is None else limit - len(newest)
                if left == 0:
                    break
                newest += [Where(*row) for row in every(self.db, query, (*span, left))]
        return newest[::-1]


# --- what a file says, as rows ---


def apply(
    index: Index,
    header: Header,
    name: str | None,
    found: Sequence[FoundLine],
    extent: Extent,
    load: Load,
) -> None:
    """Take over records that follow those that are known.

    Another process may have done so in the meantime: what lies before the size it has noted is
    left out.
    """
    with index.writing() as db:
        no = index.number(header.key)
        if value(db, "SELECT 1 FROM threads WHERE no = ?", (no,)) is None:
            _add_thread(index, db, no, header, name)
        size = value(db, "SELECT size FROM files WHERE no = ?", (no,))
        fresh = [item for item in found if item.start >= size]
        if fresh:
            _add_records(db, no, header.draft.id, fresh, load)
            _sum_up(index, db, no, header, [item.line for item in fresh])
        db.execute(
            "UPDATE files SET size = ?2, last = ?3, stamp = ?4, damage = NULL"
            " WHERE no = ?1 AND size <= ?2",
            (no, extent.size, extent.last, extent.stamp),
        )


def _add_thread(
    index: Index, db: apsw.Connection, no: int, header: Header, name: str | None
) -> None:
    draft, source = header.draft, header.source
    origin = draft.origin or Origin("", None, None)
    if name is not None:
        index.forget_name(name)  # an earlier thread of that id, which others have purged
    place = None if source is None else rows.number(index.number(source.key), source.seq)
    db.execute(
        "INSERT INTO threads (no, id, created_us, updated_us, listed_us, seq, leaf, leaf_hash,"
        " shelf, parent, origin, origin_entry, origin_hash, origin_no, hash, space)"
        " VALUES (?1,?2,?3,?3,?3,0,?4,?5,?6,?7,?8,?4,?5,?9,?10,?11)",
        (
            no,
            draft.id,
            draft.created_us,
            origin.entry,
            origin.hash,
            PURGED if header.purged else IN_USE,
            draft.parent,
            origin.thread or None,
            place,
            thread_hash(draft.id, draft.created_us, draft.parent, draft.origin),
            SPACE,
        ),
    )
    db.execute(
        "UPDATE files SET name = ?, size = 0, last = x'', stamp = 0 WHERE no = ?", (name, no)
    )


def _add_records(
    db: apsw.Connection, no: int, thread: str, found: Sequence[FoundLine], load: Load
) -> None:
    try:
        db.executemany(_INSERT, [_row(no, thread, item, load) for item in found])
    except apsw.ConstraintError as error:
        raise Corrupt(f"thread {thread!r}", "the id of a record is there twice") from error
    for item in found:
        line = item.line
        uses = [(blob, 0) for blob in line.blobs]
        if line.spilled is not None:
            uses.append((line.spilled, 1))
        for blob, body in uses:
            db.execute(
                "INSERT OR IGNORE INTO uses (blob, record, body) VALUES (?,?,?)",
                (blob, rows.number(no, line.seq), body),
            )


def _row(no: int, thread: str, item: FoundLine, load: Load) -> tuple[object, ...]:
    line = item.line
    parent = line.leaf if line.type == "move" else line.parent
    body = None
    if line.type == "fact":  # lists show its value, so the index has it
        try:
            fact = line.record(thread, None if line.spilled is None else load(line.spilled))
            assert isinstance(fact, Fact)
            body = fact.data
        except (NotFound, Corrupt):
            pass  # its blob is gone: the thread is there all the same, and lists tell
    return (
        rows.number(no, line.seq),
        _TYPES[line.type],
        line.id,
        line.time_us,
        to_bytes(line.hash),
        parent,
        line.key or line.kind or None,
        body,
        item.start,
        item.length,
    )


def _sum_up(
    index: Index, db: apsw.Connection, no: int, header: Header, lines: Sequence[Line]
) -> None:
    """What the records add up to: segments, facts, and where the thread stands."""
    row = one(db, "SELECT leaf, leaf_hash, tail, updated_us FROM threads WHERE no = ?", (no,))
    leaf, leaf_hash, tail, updated_us = row or (None, None, None, 0)

    def locate(id: str | None) -> int | None:
        return None if id is None else index.locate(no, id)

    for line in lines:
        if line.type == "fact":
            at = rows.number(no, line.seq)
            data = value(db, "SELECT body FROM records WHERE no = ?", (at,))
            if data is None:
                set_damaged_fact(db, no, at, line.key)
                continue
            fact = Fact(header.draft.id, line.seq, line.id, 0, line.hash, line.key, data)
            set_fact(db, no, at, fact)
            continue
        updated_us = line.time_us
        if line.type == "move":
            leaf = line.leaf
            hash = value(db, "SELECT hash FROM records WHERE no = ?", (locate(leaf),))
            leaf_hash = None if hash is None else to_hash(hash)
            continue
        if line.parent is None or line.parent != tail:
            db.execute(
                "INSERT INTO segments (first, parent) VALUES (?,?)",
                (rows.number(no, line.seq), locate(line.parent)),
            )
        leaf, leaf_hash, tail = line.id, line.hash, line.id
    if header.purged:
        leaf = leaf_hash = None
    db.execute(
        "UPDATE threads SET seq = ?, leaf = ?, leaf_hash = ?, tail = ?, updated_us = ?5,"
        " listed_us = ?5 WHERE no = ?6",
        (lines[-1].seq, leaf, leaf_hash, tail, updated_us, no),
    )


def _make(db: apsw.Connection, wanted: str, version: int) -> None:
    if db.pragma("user_version") == version:
        return
    db.execute("BEGIN IMMEDIATE")
    found = db.pragma("user_version")
    if found not in (0, version):
        db.execute("ROLLBACK")
        raise apsw.SchemaChangeError("an index of another version")
    if found == 0:
        db.execute(wanted)
        db.pragma("user_version", version)
    db.execute("COMMIT")
