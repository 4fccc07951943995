"""Whether a file is a store, of which format, and how an older one is brought up to date."""

from __future__ import annotations

from pathlib import Path

import apsw

from clew.core.errors import FormatTooNew, NotFound, Unsupported
from clew.engines.shared.migrations import migrations

APPLICATION_ID = 0x434C4557  # "CLEW": how a store is told from any other SQLite file


def recognise(db: apsw.Connection, path: Path, *, create: bool) -> None:
    """Leave alone any database that holds something and is not a store."""
    # Tables first: a process that makes the store at this moment commits them with the mark, so
    # tables without it are never those of a store in the making.
    tables = db.execute("SELECT count(*) FROM sqlite_schema").get
    if db.pragma("application_id") == APPLICATION_ID:
        _version(db, path, len(migrations("sqlite")))
        return
    if tables:
        raise Unsupported(
            f"{path} is a SQLite database, but not a Clew store; it was left as it is"
        )
    if not create:
        raise NotFound("store", str(path))


def is_older(db: apsw.Connection, path: Path) -> bool:
    """Whether it is a store of an older format; one that has nothing in it yet is not."""
    known = len(migrations("sqlite"))
    return 0 < _version(db, path, known) < known


def migrate(db: apsw.Connection, path: Path) -> None:
    """Apply the migrations that are missing, all in one transaction."""
    known = migrations("sqlite")
    if _version(db, path, len(known)) == len(known):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        found = _version(db, path, len(known))  # another process may have been faster
        for migration in known[found:]:
            db.execute(migration.sql)
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", len(known))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _version(db: apsw.Connection, path: Path, known: int) -> int:
    found = int(db.pragma("user_version"))
    if found > known:
        raise FormatTooNew(str(path), found=found, known=known)
    return found
