"""The rows of a SQLite file, page by page, without asking SQLite.

When the root of a table is destroyed, SQLite reaches none of its rows, although nearly all of them
are there: each leaf page describes itself. This reads those. Whether a row is what was written
is for others to judge, by its hash.

https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from clew.core.errors import Corrupt
from clew.engines.shared.migrations import migrations
from clew.engines.shared.plain_files import extents, written_bytes
from clew.engines.shared.tables import packs
from clew.engines.sqlite.schema import harden

PAGE_BYTES = 4096
_LEAF = 0x0D
_COLUMNS_MAX = 32  # more than any table of ours has
_TIMES = 4  # each page may be the rest of so many rows: removed ones still name theirs
_INLINE_MAX = PAGE_BYTES - 35
_INLINE_MIN = (PAGE_BYTES - 12) * 32 // 255 - 23
_SIZES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}


class Broken(ValueError):
    """A cell that cannot be read."""


class Pages:
    """The pages of a file, one at a time. Nothing is read twice for a size that a row claims.

    A row's size and the page that it goes on in may be anything: in a circle, or the same for a
    thousand rows. So no row has more bytes than the file, no page comes twice in one row, and all
    rows together may read each page a few times.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.written_bytes = written_bytes(descriptor)
        self._left = _TIMES * (self.written_bytes // PAGE_BYTES + 1)

    def rows(self) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The number and the values of every row on every leaf page that is legible."""
        for start in self._starts():
            page = self._read(start)
            head = 100 if start == 0 else 0
            if len(page) < PAGE_BYTES or page[head] != _LEAF:
                continue
            count = int.from_bytes(page[head + 3 : head + 5], "big")
            cells = (head + 8 + 2 * n for n in range(min(count, PAGE_BYTES // 4)))
            # Each place once, however often it is named.
            for at in dict.fromkeys(int.from_bytes(page[c : c + 2], "big") for c in cells):
                try:
                    yield self._cell(page, at)
                except (Broken, IndexError, UnicodeDecodeError):
                    continue

    def _starts(self) -> Iterator[int]:
        last = -1
        for begin, end in list(extents(self._descriptor)):
            for start in range(begin - begin % PAGE_BYTES, end, PAGE_BYTES):
                if start > last:  # one way: here no file has holes smaller than a page
                    yield start
                    last = start

    def _read(self, start: int) -> bytes:
        return os.pread(self._descriptor, PAGE_BYTES, start)

    def _cell(self, page: bytes, at: int) -> tuple[int, tuple[Any, ...]]:
        size, at = _varint(page, at)
        number, at = _varint(page, at)
        if size > self.written_bytes:
            raise Broken("its size")
        return number, _values(self._payload(page, at, size))

    def _payload(self, page: bytes, at: int, size: int) -> bytes:
        """The bytes of a row: what does not fit into its page goes on in others."""
        if size <= _INLINE_MAX:
            return page[at : at + size]
        inline = _INLINE_MIN + (size - _INLINE_MIN) % (PAGE_BYTES - 4)
        inline = inline if inline <= _INLINE_MAX else _INLINE_MIN
        parts = [page[at : at + inline]]
        following = int.from_bytes(page[at + inline : at + inline + 4], "big")
        left = size - inline
        passed: set[int] = set()
        while left > 0:
            if following == 0 or following in passed or self._left == 0:
                raise Broken("its rest is not there, or leads in a circle")
            passed.add(following)
            self._left -= 1
            more = self._read((following - 1) * PAGE_BYTES)
            if len(more) < PAGE_BYTES:
                raise Broken("its rest is not there")
            parts.append(more[4 : 4 + left])
            left -= PAGE_BYTES - 4
            following = int.from_bytes(more[:4], "big")
        return b"".join(parts)


def child_pointers(page: bytes, head: int) -> list[int]:
    """Where the numbers of the pages below stand in an inner page of a table."""
    count = int.from_bytes(page[head + 3 : head + 5], "big")
    cells = (head + 12 + 2 * n for n in range(count))
    return [*(int.from_bytes(page[at : at + 2], "big") for at in cells), head + 8]


def _values(payload: bytes) -> tuple[Any, ...]:
    head, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < head:
        if len(kinds) == _COLUMNS_MAX:
            raise Broken("no table of ours has so many columns")
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        size = _SIZES[kind] if kind in _SIZES else (kind - 12) // 2
        if kind in (10, 11) or at + size > len(payload):
            raise Broken("its values")
        values.append(_value(kind, payload[at : at + size]))
        at += size
    return tuple(values)


def _value(kind: int, raw: bytes) -> Any:
    if kind == 0:
        return None
    if kind in (8, 9):
        return kind - 8
    if kind <= 6:
        return int.from_bytes(raw, "big", signed=True)
    if kind == 7:
        raise Broken("no table of ours has such numbers")
    return raw.decode("utf-8") if kind % 2 else raw


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for n in range(8):
        byte = data[at + n]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + n + 1
    return value << 8 | data[at + 8], at + 9


# --- a second view of a damaged SQLite store: the rows on its pages, in a database of their own ---

_TABLES = ("records", "threads", "blobs", "leases", "namespaces", "packs")


def rescue(damaged: Path, path: Path) -> apsw.Connection | None:
    """The rows of a damaged file in a new database; None if SQLite can read all of it."""
    if _is_sound(damaged):
        return None
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "off")
    db.pragma("synchronous", "off")
    # A row tells its table by how many columns it has. It has those of the format in which it was
    # written: SQLite does not rewrite a table to add a column to it.
    inserts: dict[int, str] = {}
    for migration in migrations("sqlite"):
        db.execute(migration.sql)
        for table in _TABLES:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            if not columns:
                continue  # this format did not have it
            marks = ",".join("?" * len(columns))
            insert = f"INSERT OR IGNORE INTO {table} ({','.join(columns)}) VALUES ({marks})"
            inserts[len(columns)] = insert
    with damaged.open("rb") as file, db:
        for number, values in Pages(file.fileno()).rows():
            if len(values) == 2 and not isinstance(values[1], str):
                continue  # a segment
            if len(values) in inserts and values[0] is None:
                _try(db, inserts[len(values)], (number, *values[1:]))
        _note_ids(db)
    return db


def _note_ids(db: apsw.Connection) -> None:
    """Let the entries of packs be found by their ids: those are rows that no page tells alone."""
    for pack in list(packs.every(db, (apsw.Error,))):
        try:
            run = packs.read(db, pack).rows()
        except (Corrupt, ValueError, TypeError):
            continue
        note = "INSERT OR IGNORE INTO packed_ids (key, no) VALUES (?,?)"
        db.executemany(note, [(packs.key_of(row[2]), row[0]) for row in run])


def _is_sound(path: Path) -> bool:
    db = apsw.Connection(str(path))
    harden(db)
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return bool(db.execute("PRAGMA integrity_check(1)").get == "ok")
    except (apsw.Error, UnicodeDecodeError):
        return False
    finally:
        db.close(True)


def _try(db: apsw.Connection, sql: str, values: tuple[Any, ...]) -> None:
    try:
        db.execute(sql, values)
    except (apsw.Error, OverflowError, UnicodeError):
        pass  # not a row of ours, or damaged
