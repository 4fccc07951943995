"""Looks after a SQLite store as a whole: `SQLiteMaintenance`, and what `clew doctor` reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from clew.core.engine import Engine, Progress
from clew.core.errors import Corrupt, InvalidInput, NotFound, ReadOnly, Unsupported
from clew.core.maintenance import Examined, Grant, Migration
from clew.core.model import DEFAULT_NAMESPACE, Problem, Stats
from clew.core.parts import loading
from clew.core.patience import patience
from clew.engines.shared.file_system import examine_disk, examine_rights, file_system
from clew.engines.shared.migrations import migrations
from clew.engines.shared.swap import refuse_half_done, workshop
from clew.engines.shared.tables import namespaces, read
from clew.engines.sqlite import place
from clew.engines.sqlite.connections import Connections
from clew.engines.sqlite.engine import SQLiteEngine
from clew.engines.sqlite.errors import translate
from clew.engines.sqlite.schema import harden, recognise
from clew.engines.sqlite.view import ReadOnlyConnections, ViewConnection, look

if TYPE_CHECKING:
    from clew.engines.sqlite.repair.workshop import SQLiteWorkshop

_BUSY_SECONDS = 30.0
_LOOK_SECONDS = 5.0
_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class SQLiteMaintenance:
    """See `clew.core.maintenance.Maintenance`. Its place is the path of the file."""

    repairs = True

    def __init__(self, place: str | Path) -> None:
        self._path = Path(place).absolute()
        self.place = str(self._path)
        self._connections: Connections | None = None

    def namespaces(self) -> list[str]:
        with self._opened().reader() as db:
            return [space.name for space in namespaces.everyone(db)]

    def check(
        self,
        *,
        namespace: str | None = None,
        quick: bool = False,
        progress: Progress | None = None,
    ) -> Iterator[Problem]:
        with loading("clew.engines.sqlite.verify"):
            from clew.engines.sqlite import verify

        with self._opened().reader() as db:
            yield from verify.check(db, _space(db, namespace), quick=quick, progress=progress)

    def stats(self, *, namespace: str | None = None) -> Stats:
        with self._opened().reader() as db:
            space = _space(db, namespace)
            return read.stats(db, None if space is None else space.no)

    @staticmethod
    def examine(engine: Engine) -> Examined:
        if not isinstance(engine, SQLiteEngine):
            raise Unsupported(f"{type(engine).__name__} is not the SQLite engine")
        return examine(engine)

    def migrate(
        self, *, dry_run: bool = False, rls: bool = False, grants: Sequence[Grant] = ()
    ) -> Migration:
        if rls or grants:
            raise InvalidInput("rls", "a SQLite file has no roles, and so no row-level security")
        refuse_half_done(self._path)
        state = Migration(
            place=self.place, found=format_of(self._path), known=len(migrations("sqlite"))
        )
        if not dry_run:
            SQLiteEngine(self._path, create=False).close()  # opening it migrates it
        return state

    def repair(self) -> AbstractContextManager[SQLiteWorkshop]:
        with loading("clew.engines.sqlite.repair"):
            from clew.engines.sqlite.repair.workshop import SQLiteWorkshop

        return workshop(self._path, SQLiteWorkshop)

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()
            self._connections = None

    def _opened(self) -> Connections:
        if self._connections is None:
            refuse_half_done(self._path)
            try:
                self._connections = Connections(
                    self._path,
                    synchronous="FULL",
                    busy_seconds=_BUSY_SECONDS,
                    vfs=None,
                    create=False,
                    any_schema=True,
                )
            except ReadOnly:  # what is asked here only reads
                self._connections = ReadOnlyConnections(
                    self._path, busy_seconds=_BUSY_SECONDS, any_schema=True
                )
            except Unsupported as error:
                if self._is_ours_no_more():
                    raise Corrupt(self.place, str(error)) from error
                raise
        return self._connections

    def _is_ours_no_more(self) -> bool:
        """Whether it is a store that is damaged beyond recognition, and not a foreign file.

        The lock beside it tells: Clew makes one when it opens a store, and never removes it.
        """
        if not place.lock_of(self._path).exists():
            return False
        try:
            format_of(self._path)
        except Unsupported:
            return True
        return False  # the place is what is not supported, or the library; the file is fine


def _space(db: apsw.Connection, namespace: str | None) -> namespaces.Space | None:
    if namespace is None:
        return None
    if namespace == DEFAULT_NAMESPACE:
        return namespaces.DEFAULT
    found = namespaces.find(db, namespace)
    if found is None:
        raise NotFound("namespace", namespace)
    return found


def format_of(path: Path) -> int:
    """The format of the store in a file. Reading it does not bring the file up to date."""
    if not path.exists():
        raise NotFound("store", str(path))
    place.inspect(path, create=False)
    try:
        try:
            place.refuse_unwritable(path)
            db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        except ReadOnly:
            view = look(path, _LOOK_SECONDS)
            db = ViewConnection(path, view, busy_seconds=_LOOK_SECONDS)
        try:
            db.set_busy_handler(patience(_LOOK_SECONDS))
            harden(db)
            recognise(db, path, create=False)
            return int(db.pragma("user_version"))
        finally:
            db.close()
    except apsw.Error as error:
        raise translate(error, str(path)) from error


def examine(engine: SQLiteEngine) -> Examined:
    found = Examined(kind="a SQLite file")
    path = Path(engine.properties.place)
    found.versions = {"SQLite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version()}
    with engine._connections.reader() as db:
        found.format = int(db.pragma("user_version"))
        if isinstance(db, ViewConnection):  # what it is set to says nothing about writers
            found.read["log"] = "there is one, and it is read" if db.view.logged else "none"
        else:
            synchronous = int(db.pragma("synchronous"))
            found.read["journal_mode"] = str(db.pragma("journal_mode"))
            found.read["synchronous"] = _SYNCHRONOUS.get(synchronous, str(synchronous))
        found.read["namespaces"] = f"{len(namespaces.everyone(db)):,}"
    judge_library(found, place.library_version())
    examine_disk(found, str(path.parent), file_system(path.parent))
    examine_rights(found, str(path))
    return found


def judge_library(found: Examined, version: int) -> None:
    safe = version >= place.SAFE_VERSION
    found.read["several processes"] = "yes" if safe else "no, the library is too old"
    if not safe:
        found.warn(
            "this SQLite can corrupt a store that several processes write, so a process must be "
            "alone with it",
            "install the apsw wheel, which brings 3.53.3 or newer: pip install --upgrade apsw",
        )
