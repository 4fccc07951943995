"""Asking SQLite: a row, all rows, or one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from clew.errors import Corrupt

Row = tuple[Any, ...]
Bindings = Sequence[Any] | Mapping[str, Any]


def one(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> Row | None:
    try:
        return db.execute(sql, bindings).fetchone()
    except UnicodeDecodeError as error:
        raise garbled(db, error) from error


def every(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> list[Row]:
    try:
        return db.execute(sql, bindings).fetchall()
    except UnicodeDecodeError as error:
        raise garbled(db, error) from error


def each(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> Iterator[Row]:
    """Row after row, for those who may stop early or keep little."""
    try:
        yield from db.execute(sql, bindings)
    except UnicodeDecodeError as error:
        raise garbled(db, error) from error


def value(db: apsw.Connection, sql: str, bindings: Bindings = ()) -> Any:
    try:
        return db.execute(sql, bindings).get
    except UnicodeDecodeError as error:
        raise garbled(db, error) from error


def garbled(db: apsw.Connection, error: UnicodeDecodeError) -> Corrupt:
    """SQLite hands out damaged text as it is; what cannot be decoded was not written by us."""
    return Corrupt(db.filename, f"text is not UTF-8: {error}; run clew verify")
