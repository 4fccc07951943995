"""Namespaces as rows. A handle works in one of them, and has its number in every statement."""

from __future__ import annotations

import apsw
from msgspec import Struct

from clew.core.model import DEFAULT_NAMESPACE
from clew.engines.shared.tables.rows import every, one


class Space(Struct, frozen=True):
    no: int
    name: str


DEFAULT = Space(1, DEFAULT_NAMESPACE)  # made with the tables


def find(db: apsw.Connection, name: str) -> Space | None:
    row = one(db, "SELECT no FROM namespaces WHERE name = ?", (name,))
    return None if row is None else Space(row[0], name)


def make(db: apsw.Connection, name: str) -> Space:
    """The namespace of that name; another process may have made it a moment ago."""
    db.execute("INSERT INTO namespaces (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
    found = find(db, name)
    assert found is not None
    return found


def everyone(db: apsw.Connection) -> list[Space]:
    query = "SELECT no, name FROM namespaces ORDER BY no > 1, name"
    return [Space(*row) for row in every(db, query)]
