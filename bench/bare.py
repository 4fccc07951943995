"""The bare parts: one table in SQLite, through the same binding, with the same durability.

This is the limit: nothing is checked, hashed, indexed or remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw
import msgspec


class BareTable:
    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "FULL")
        self._db.pragma("cache_size", -16384)  # as large as that of Clew's connections
        self._db.execute("CREATE TABLE rows (no INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def append(self, body: bytes) -> None:
        """One row, one commit, one sync."""
        self._db.execute("BEGIN IMMEDIATE")
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
