"""Facts as rows: the latest value of each key, and the columns that lists filter by."""

from __future__ import annotations

from typing import Any

import apsw

from clew.core.codec import decode
from clew.core.model import Fact
from clew.engines.shared.tables import rows
from clew.engines.shared.thread_list import shelf_of


def set_fact(db: apsw.Connection, no: int, record_no: int, fact: Fact) -> None:
    """Note the latest value of a key, and what lists filter by."""
    value = decode(fact.data)
    if value is None:
        db.execute("DELETE FROM facts WHERE thread = ? AND key = ?", (no, fact.key))
    else:
        db.execute(
            "INSERT INTO facts (thread, key, record) VALUES (?1, ?2, ?3)"
            " ON CONFLICT DO UPDATE SET record = ?3",
            (no, fact.key, record_no),
        )
    _mirror(db, no, fact.key, value)


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
        archived = decode(rows.facts_of(db, no).get("archived", b"false"))
        shelf = shelf_of(archived=bool(archived), deleted=value is not None)
        db.execute("UPDATE threads SET deleted_us = ?, shelf = ? WHERE no = ?", (value, shelf, no))
