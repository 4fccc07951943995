"""A SQLite file with all its namespaces; see `clew.whole`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clew.engine import Progress
from clew.engines.sqlite import reading, spaces
from clew.engines.sqlite.connections import Connections
from clew.model import Problem, Stats


class SQLiteWhole:
    def __init__(self, path: Path) -> None:
        self.place = str(path.absolute())
        self._connections = Connections(
            path.absolute(), synchronous="FULL", busy_seconds=30.0, vfs=None, create=False
        )

    def namespaces(self) -> list[str]:
        with self._connections.reader() as db:
            return [space.name for space in spaces.everyone(db)]

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        from clew.engines.sqlite import check

        with self._connections.reader() as db:
            yield from check.check(db, None, quick=quick, progress=progress)

    def stats(self) -> Stats:
        with self._connections.reader() as db:
            return reading.stats(db, None)

    def close(self) -> None:
        self._connections.close()
