"""The bare parts, as durable: a table in SQLite through the same binding, and a file.

This is the limit: nothing is checked, hashed, indexed or remembered.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from clew.core.codec import new_id
from clew.engines.files.disk import Disk
from clew.engines.sqlite.connections import CACHE_KIB


class BareTable:
    def __init__(self, path: Path, vfs: str | None = None) -> None:
        self._db = apsw.Connection(str(path), vfs=vfs)
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "FULL")
        self._db.pragma("cache_size", -CACHE_KIB)  # as large as that of Clew's connections
        self._db.execute("CREATE TABLE rows (no INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def append(self, body: bytes) -> None:
        """One row, one commit, one sync."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO rows (body) VALUES (?)", (body,))
        self._db.execute("COMMIT")

    def append_together(self, bodies: Iterable[bytes]) -> None:
        """A row each, in one commit."""
        self._db.execute("BEGIN IMMEDIATE")
        for body in bodies:
            self._db.execute("INSERT INTO rows (body) VALUES (?)", (body,))
        self._db.execute("COMMIT")

    def append_all(self, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            self.append(body)

    def fill(self, bodies: Iterable[bytes]) -> None:
        with self._db:
            self._db.executemany("INSERT INTO rows (body) VALUES (?)", ((body,) for body in bodies))

    def load(self) -> list[Any]:
        rows = self._db.execute("SELECT body FROM rows ORDER BY no")
        return [msgspec.json.decode(body) for (body,) in rows]

    def close(self) -> None:
        self._db.close()


class BareTableWithIds(BareTable):
    """The same, and each row can be found by an id: a second page for each commit.

    What has to be found again by a name that others gave it cannot do with less.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._db.execute("CREATE TABLE named (no INTEGER PRIMARY KEY, id TEXT UNIQUE, body BLOB)")

    def append(self, body: bytes) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO named (id, body) VALUES (?, ?)", (new_id(), body))
        self._db.execute("COMMIT")


class BareFile:
    """Lines in a file: one write and one sync for each, by the calls that the engine uses."""

    def __init__(self, path: Path, lines: Sequence[bytes]) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._supply = itertools.cycle(lines)
        self._sync = Disk().sync

    def append(self) -> None:
        os.write(self._descriptor, next(self._supply))
        self._sync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
