"""What a SQLite store tells of itself; see `clew.doctoring`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw

from clew.core.engine import Engine, Progress
from clew.core.errors import NotFound
from clew.core.maintenance import Examined
from clew.core.model import Problem, Stats
from clew.engines.shared.file_system import examine_disk, examine_rights, file_system
from clew.engines.shared.tables import namespaces, read
from clew.engines.shared.tables.rows import patience
from clew.engines.sqlite import place
from clew.engines.sqlite.connections import Connections, translate
from clew.engines.sqlite.engine import SQLiteEngine
from clew.engines.sqlite.schema import recognise

_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def format_of(path: Path) -> int:
    """The format of the store in a file, which is not brought up to date for it."""
    if not path.exists():
        raise NotFound("store", str(path))
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_handler(patience(5.0))
            recognise(db, path, create=False)
            return int(db.pragma("user_version"))
        finally:
            db.close()
    except apsw.Error as error:
        raise translate(error, str(path)) from error


def examine(engine: Engine) -> Examined:
    found = Examined()
    if not isinstance(engine, SQLiteEngine):
        return found
    path = Path(engine.properties.place)
    found.versions = {"SQLite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version()}
    with engine._connections.reader() as db:
        found.format = int(db.pragma("user_version"))
        synchronous = int(db.pragma("synchronous"))
        found.read = {
            "journal_mode": str(db.pragma("journal_mode")),
            "synchronous": _SYNCHRONOUS.get(synchronous, str(synchronous)),
            "namespaces": f"{len(namespaces.everyone(db)):,}",
        }
    _judge_library(found, place.library_version())
    examine_disk(found, str(path.parent), file_system(path.parent))
    examine_rights(found, str(path))
    return found


def _judge_library(found: Examined, version: int) -> None:
    safe = version >= place.SAFE_VERSION
    found.read["several processes"] = "yes" if safe else "no, the library is too old"
    if not safe:
        found.warn(
            "this SQLite can corrupt a store that several processes write, so a process must be "
            "alone with it",
            "install the apsw wheel, which brings 3.51.3 or newer: pip install --upgrade apsw",
        )


# --- a SQLite file with all its namespaces; see `clew.whole` ---


class SQLiteWhole:
    def __init__(self, path: Path) -> None:
        self.place = str(path.absolute())
        self._connections = Connections(
            path.absolute(), synchronous="FULL", busy_seconds=30.0, vfs=None, create=False
        )

    def namespaces(self) -> list[str]:
        with self._connections.reader() as db:
            return [space.name for space in namespaces.everyone(db)]

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        from clew.engines.sqlite import verify

        with self._connections.reader() as db:
            yield from verify.check(db, None, quick=quick, progress=progress)

    def stats(self) -> Stats:
        with self._connections.reader() as db:
            return read.stats(db, None)

    def close(self) -> None:
        self._connections.close()
