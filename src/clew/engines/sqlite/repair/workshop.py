"""Where a SQLite store is repaired: alone with it, on a copy, in a folder beside it."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
from msgspec.structs import astuple

from clew.core.errors import FormatTooNew, NotFound, Unavailable, Unsupported
from clew.core.lease_rules import LeaseState
from clew.core.maintenance import Budget, Salvage
from clew.engines.shared import clock, swap
from clew.engines.shared.migrations import migrations
from clew.engines.shared.plain_files import copy_file, remove_tree_quietly
from clew.engines.shared.tables.rows import Row
from clew.engines.sqlite import leases, place
from clew.engines.sqlite.doctor import SQLiteMaintenance
from clew.engines.sqlite.engine import SQLiteEngine
from clew.engines.sqlite.errors import UNREADABLE, translate
from clew.engines.sqlite.repair.pages import PAGE_BYTES, child_pointers, rescue
from clew.engines.sqlite.repair.salvage import SQLiteSalvage
from clew.engines.sqlite.schema import APPLICATION_ID, harden

_LEASE = f"thread, {leases.NAMES}, hash"


class SQLiteWorkshop:
    """See `clew.core.maintenance.Workshop`."""

    def __init__(self, path: Path) -> None:
        self._path = path = path.absolute()
        self.place = str(path)
        self._swap = swap.Swap(path, companions=("-wal", "-shm", "-journal"))
        if not path.is_file() and not swap.note_of(path).exists():
            raise NotFound("store", str(path))
        place.refuse_other_log(path)
        # A lock that is there says that this is a store of ours: then it may stay.
        self._lock_path = place.lock_of(path)
        self._swapped = self._lock_path.exists()
        self._lock = _alone(path, self._lock_path)
        self._found: SQLiteSalvage | None = None
        try:
            self.finished = self._swap.finish()
            self._swap.begin()
            self._copy = self._swap.folder / "damaged.db"
            self._new = self._swap.folder / "repaired.db"
            # The log belongs to the store: what was acknowledged last may be nowhere else.
            copied = 0
            for end in ("", "-wal"):
                real = os.path.realpath(path) + end  # the store itself may be reached by a link
                if os.path.lexists(real):
                    copied += copy_file(real, str(self._copy) + end)
            self._budget = Budget(copied)
        except BaseException:
            self.close()
            raise

    def open_copy(self) -> SQLiteMaintenance:
        return SQLiteMaintenance(self._copy)

    def salvage(self) -> list[Salvage]:
        _fit(self._copy)
        db = _open(self._copy)
        ours = _has_tables(db) and _is_ours(db)
        if not _has_tables(db):
            _refuse_foreign(db, self._path)
            db.close()
            _transplant(self._copy, self._swap.folder / "empty.db")
            db = _open(self._copy)
        _refuse_newer(db, self._path)
        _add_newer_tables(db)
        rescued = rescue(self._copy, self._swap.folder / "rescued.db")
        self._found = SQLiteSalvage(db, self._budget, rescued)
        if self._found.is_empty and not ours:
            raise Unsupported(f"there is nothing in {self._path} that Clew wrote; left as it is")
        return list(self._found.namespaces())

    def create(self, namespace: str) -> SQLiteEngine:
        return SQLiteEngine(self._new, namespace=namespace)

    def open_new(self) -> SQLiteMaintenance:
        return SQLiteMaintenance(self._new)

    def finish(self, ids: dict[tuple[str, str], str]) -> None:
        """Leases are no records, but their fences must go on growing."""
        threads = {key: (namespace, id) for (namespace, key), id in ids.items()}
        new = apsw.Connection(str(self._new))
        try:
            for row in self._leases():
                _insert_lease(new, *threads.get(str(row[0]), ("", "")), row)
            # Closing checkpoints too, but does not say so when it could not: what is still in the
            # log would not come along.
            if new.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall() != [(0, 0, 0)]:
                raise Unavailable(f"the log of {self._new} cannot be emptied")
        except apsw.Error as error:
            raise translate(error, str(self._new)) from error
        finally:
            new.close(True)

    def _leases(self) -> list[Row]:
        db = _open(self._copy)
        found: list[Row] = []
        try:
            found.extend(db.execute(f"SELECT {_LEASE} FROM leases"))
        except UNREADABLE:
            pass  # its holder is gone: no other process has the store open
        finally:
            db.close(True)
        return found

    def reindex(self) -> bool:
        return False  # it lies among the records, in one file

    def swap(self) -> str:
        wal = self._new.with_name(self._new.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            raise Unavailable(f"the log of {self._new} was not emptied; nothing was changed")
        self._swapped = True
        kept = self._swap.run(self._new)
        # The index of words was made of the other file; the next search makes it anew.
        remove_tree_quietly(f"{os.path.realpath(self._path)}-search")
        return kept

    def keep(self) -> str:
        return self._swap.keep()

    def close(self) -> None:
        if self._found is not None:
            self._found.close()
        self._swap.close()
        if not self._swapped:  # nothing of ours stays beside what may be a foreign file
            self._lock_path.unlink()
        os.close(self._lock)


def _insert_lease(db: apsw.Connection, namespace: str, thread: str, row: Row) -> None:
    state = LeaseState(*row[1:-1])
    if leases.lease_hash(thread, state) != row[-1]:
        # Damaged: it is over, and no fence that was ever given may be given again.
        state = LeaseState(fence=clock.now().wall_us)
    try:
        db.execute(
            f"INSERT OR IGNORE INTO leases ({_LEASE})"
            " SELECT t.no, ?,?,?,?,?,?,?,? FROM threads t JOIN namespaces n ON n.no = t.space"
            " WHERE n.name = ? AND t.id = ? AND t.shelf < 3",
            (*astuple(state), leases.lease_hash(thread, state), namespace, thread),
        )
    except apsw.ConstraintError:  # no test: forged, its hash fits and its values do not
        pass


def _alone(path: Path, lock: Path) -> int:
    """The store's lock for one alone; the lock file stays, so that it goes on to be the same."""
    import fcntl

    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise Unavailable(
            f"{path} is in use; close every program that has it open, then repair it"
        ) from None
    return descriptor


def _open(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    harden(db)
    db.set_busy_timeout(0)
    return db


def _fit(path: Path) -> None:
    """Let the header of a copy that was cut off say how many pages there really are.

    SQLite reads nothing at all of a file that is shorter than its header says.
    """
    size = path.stat().st_size // PAGE_BYTES
    with path.open("r+b") as file:
        if int.from_bytes(file.read(32)[28:], "big") > size:
            file.seek(28)
            file.write(size.to_bytes(4, "big"))


def _has_tables(db: apsw.Connection) -> bool:
    try:
        found = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
        db.execute("SELECT count(*) FROM (SELECT 1 FROM records LIMIT 0)").fetchall()
    except UNREADABLE:
        return False
    return {"threads", "records", "segments", "facts", "tags", "leases", "blobs"} <= found


def _add_newer_tables(db: apsw.Connection) -> None:
    """Give a store of format 1 the tables of packs, empty and beside it: readers ask for them."""
    if not any(name == "packs" for (name,) in db.execute("SELECT name FROM sqlite_schema")):
        db.execute(migrations("sqlite")[1].sql.replace("CREATE TABLE", "CREATE TEMP TABLE"))


def _is_ours(db: apsw.Connection) -> bool:
    return bool(db.pragma("application_id") == APPLICATION_ID)


def _refuse_foreign(db: apsw.Connection, path: Path) -> None:
    """A database in good order that has none of our tables belongs to another program."""
    try:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema")]
    except UNREADABLE:
        return
    if names and not _is_ours(db):
        raise Unsupported(f"{path} is a SQLite database, but not a Clew store; left as it is")


def _refuse_newer(db: apsw.Connection, path: Path) -> None:
    """A newer format is none of our business, unless the number alone is damaged."""
    known = migrations("sqlite")
    found = db.pragma("user_version")
    if found > len(known) and not _has_our_schema(db):
        raise FormatTooNew(str(path), found=found, known=len(known))


def _has_our_schema(db: apsw.Connection) -> bool:
    """Of this format, or of one before it."""
    query = "SELECT name, sql FROM sqlite_schema ORDER BY name"
    found = db.execute(query).fetchall()
    fresh = apsw.Connection(":memory:")
    for migration in migrations("sqlite"):
        fresh.execute(migration.sql)
        if found == fresh.execute(query).fetchall():
            return True
    return False


def _transplant(path: Path, scratch: Path) -> None:
    """Give a copy whose schema is damaged the one of an empty store.

    Tables are made once, in one order, when a store is new, so they lie on the same pages in every
    store; indexes that a migration made anew may not, and are then of no use. The schema itself
    goes behind everything else. Unused pages are not listed any more: no matter to a reader.
    """
    SQLiteEngine(scratch).close()
    fresh = scratch.read_bytes()
    first = bytearray(fresh[:PAGE_BYTES])
    size = max(path.stat().st_size, len(fresh)) // PAGE_BYTES
    leaves: list[bytes] = []
    for at in child_pointers(fresh[:PAGE_BYTES], 100):
        child = int.from_bytes(first[at : at + 4], "big")
        leaves.append(fresh[(child - 1) * PAGE_BYTES : child * PAGE_BYTES])
        first[at : at + 4] = (size + len(leaves)).to_bytes(4, "big")
    first[28:32] = (size + len(leaves)).to_bytes(4, "big")
    first[32:40] = bytes(8)  # no free pages
    first[92:96] = first[24:28]  # the size above is valid for this change counter
    with path.open("r+b") as file:
        file.truncate(size * PAGE_BYTES)
        file.write(first)
        file.seek(0, os.SEEK_END)
        file.write(b"".join(leaves))
    wal = path.with_name(path.name + "-wal")
    if wal.exists():
        wal.unlink()  # it may hold the damaged pages again
