"""Facts as rows: the latest value of each key, and the columns that lists filter by."""

from __future__ import annotations

from typing import Any

import apsw

from clew.core.errors import Corrupt
from clew.core.facts import read_fact
from clew.core.model import Fact
from clew.engines.shared.tables import rows
from clew.engines.shared.thread_list import shelf_of


def set_fact(db: apsw.Connection, no: int, record_no: int, fact: Fact) -> None:
    """Note the latest value of a key, and what lists filter by."""
    try:
        value = read_fact(fact.key, fact.data)
    except Corrupt:
        set_damaged_fact(db, no, record_no, fact.key)
        return
    if value is None:
        db.execute("DELETE FROM facts WHERE thread = ? AND key = ?", (no, fact.key))
    else:
        _note(db, no, record_no, fact.key)
    _mirror(db, no, fact.key, value)


def set_damaged_fact(db: apsw.Connection, no: int, record_no: int, key: str) -> None:
    """The latest value of a key cannot be read: lists tell of it, and do not filter by it."""
    _note(db, no, record_no, key)
    _mirror(db, no, key, None)


def _note(db: apsw.Connection, no: int, record_no: int, key: str) -> None:
    db.execute(
        "INSERT INTO facts (thread, key, record) VALUES (?1, ?2, ?3)"
        " ON CONFLICT DO UPDATE SET record = ?3",
        (no, key, record_no),
    )


def _mirror(db: apsw.Connection, no: int, key: str, value: Any) -> None:
    """The facts that lists filter by stand in columns as well."""
    if key in ("status", "workspace"):
        db.execute(f"UPDATE threads SET {key} = ? WHERE no = ?", (value, no))
    elif key == "tags":
        db.execute("DELETE FROM tags WHERE thread = ?", (no,))
        query = (
            "INSERT INTO tags (space, tag, thread) SELECT space, ?, no FROM threads WHERE no = ?"
        )
        db.executemany(query, [(tag, no) for tag in dict.fromkeys(value or ())])
    elif key == "archived":
        # A deleted thread stays on its shelf; when it is restored, this fact says where it goes.
        shelf = shelf_of(archived=bool(value), deleted=False)
        db.execute("UPDATE threads SET shelf = ? WHERE no = ? AND shelf < 2", (shelf, no))
    elif key == "deleted_us":
        shelf = shelf_of(archived=_is_archived(db, no), deleted=value is not None)
        db.execute("UPDATE threads SET deleted_us = ?, shelf = ? WHERE no = ?", (value, shelf, no))


def _is_archived(db: apsw.Connection, no: int) -> bool:
    sql = (
        "SELECT r.body FROM facts f JOIN records r ON r.no = f.record"
        " WHERE f.thread = ? AND f.key = 'archived'"
    )
    # Damaged or not: a thread with it can still be deleted and restored.
    return bool(rows.value(db, sql, (no,)) == b"true")
