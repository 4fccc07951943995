"""Whether a file is a store, of which format, and how an older one is brought up to date."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import apsw

from clew.core.errors import Corrupt, FormatTooNew, NotFound, Unsupported
from clew.engines.shared.migrations import Migration, migrations

APPLICATION_ID = 0x434C4557  # "CLEW": how a store is told from any other SQLite file


def recognise(db: apsw.Connection, path: Path, *, create: bool) -> None:
    """Leave alone any database that holds something and is not a store."""
    # Tables first, then the mark: a process that makes the store right now commits both at once, so
    # that the mark is there for every table of its own that was seen.
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


def harden(db: apsw.Connection) -> None:
    """Take from a connection what a store never needs, and a file made by others could use."""
    for setting, value in (
        (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
        (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
    ):
        db.config(setting, value)
    db.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    db.pragma("cell_size_check", 1)


Definition = tuple[str, str, str]  # type, name, and the table that it belongs to


def differences(db: apsw.Connection) -> tuple[list[Definition], list[Definition]]:
    """What a store defines that Clew never did, and what is missing or has another text.

    The text is data too: a changed name makes rows unreadable, and a view, a trigger or an index
    by somebody else would be run with our statements.
    """
    with db:  # one moment: another process may bring the store up to date right now
        wanted = _definitions(tuple(migrations("sqlite")[: int(db.pragma("user_version"))]))
        found = {row[:3]: row[3] for row in db.execute(_SCHEMA)}
    foreign = [key for key in sorted(found) if key not in wanted and key not in _STATISTICS]
    changed = [key for key in sorted(wanted) if found.get(key, "") != wanted[key]]
    return foreign, changed


_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
_STATISTICS = {("table", name, name) for name in ("sqlite_stat1", "sqlite_stat4")}  # by ANALYZE


@lru_cache
def _definitions(known: tuple[Migration, ...]) -> dict[Definition, str | None]:
    """What a store has in which these migrations were run."""
    model = apsw.Connection(":memory:")
    try:
        for migration in known:
            model.execute(migration.sql)
        return {row[:3]: row[3] for row in model.execute(_SCHEMA)}
    finally:
        model.close()


def refuse_foreign(db: apsw.Connection, path: Path) -> None:
    """Leave alone a store that defines something that Clew did not, or not so."""
    if db.pragma("application_id") != APPLICATION_ID:
        return  # it is empty, and about to be made
    try:
        foreign, changed = differences(db)
    except UnicodeDecodeError as error:
        raise Corrupt(str(path), f"its schema is not UTF-8: {error}; run clew repair") from error
    if foreign:
        names = ", ".join(f"the {kind} {name}" for kind, name, _ in foreign)
        raise Unsupported(
            f"{path} has something in it that Clew did not make: {names}; none of it was run. "
            "Do not use a store from others that has this; clew repair makes one without it"
        )
    if changed:
        names = ", ".join(f"the {kind} {name}" for kind, name, _ in changed)
        raise Corrupt(str(path), f"not defined as Clew does: {names}; run clew repair")


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
