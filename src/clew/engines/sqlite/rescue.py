"""A second view of a damaged SQLite store: the rows on its pages, in a database of their own.

Only made when SQLite itself finds the file damaged. Tables are told apart by their number of
columns; the first one is empty in a row, because it is the row's number.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import apsw

from clew.engines._migrate import migrations
from clew.engines.sqlite import pages

# By how many columns a row has. Rows that were written before a column was added lack it.
_TABLES = {
    13: "records",
    19: "threads",
    20: "threads",
    7: "blobs",
    8: "blobs",
    9: "leases",
    2: "namespaces",
}


def rescue(damaged: Path, path: Path) -> apsw.Connection | None:
    """The rows of a damaged file in a new database; None if SQLite can read all of it."""
    if _is_sound(damaged):
        return None
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "off")
    db.pragma("synchronous", "off")
    for migration in migrations("sqlite"):
        db.execute(migration.sql)
    inserts = {count: _insert(db, table, count) for count, table in _TABLES.items()}
    with damaged.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data, db:
        for number, values in pages.rows(data):
            if len(values) == 2 and not isinstance(values[1], str):
                continue  # a segment
            if len(values) in inserts and values[0] is None:
                _try(db, inserts[len(values)], (number, *values[1:]))
    return db


def _is_sound(path: Path) -> bool:
    db = apsw.Connection(str(path))
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return bool(db.execute("PRAGMA integrity_check(1)").get == "ok")
    except (apsw.Error, UnicodeDecodeError):
        return False
    finally:
        db.close(True)


def _insert(db: apsw.Connection, table: str, count: int) -> str:
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")][:count]
    marks = ",".join("?" * count)
    return f"INSERT OR IGNORE INTO {table} ({','.join(columns)}) VALUES ({marks})"


def _try(db: apsw.Connection, sql: str, values: tuple[Any, ...]) -> None:
    try:
        db.execute(sql, values)
    except (apsw.Error, OverflowError, UnicodeError):
        pass  # not a row of ours, or damaged
