"""Asking SQLite: a row, all rows, or one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

Row = tuple[Any, ...]
Bindings = Sequence[Any] | Mapping[str, Any]


def one(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> Row | None:
    return db.execute(sql, bindings).fetchone()


def every(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> list[Row]:
    return db.execute(sql, bindings).fetchall()


def value(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> Any:
    return db.execute(sql, bindings).get
