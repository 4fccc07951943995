"""A store that is only looked at: how its file is opened so that nothing of it is touched.

SQLite reads a WAL database together with its log (-wal), by an index in memory that all processes
share (-shm). To open one read-only is not enough to leave it alone: where these files are not
there, SQLite makes them, and where it may not, it gives up. So there are two ways to read:

- There is a log. What was committed last may be in it alone, so only SQLite can tell what the
  store says. It is opened read-only, the shared index too; without a live writer, who keeps that
  index true, SQLite makes one of its own in memory. Without -shm it cannot, and we say so.
- There is none. All is in the file, which is opened as one that never changes (`immutable`): no
  locks, no log, no index. But it may change, as soon as a writer comes and has copied its log into
  the file. So how the file looks is compared before and after each read. What was read while it
  changed may be half of two states, and is not given out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
from msgspec import Struct

from clew.core.errors import ClewError, ReadOnly, Unavailable, Unsupported
from clew.core.patience import patience
from clew.engines.shared.file_system import refuse_network
from clew.engines.shared.migrations import migrations
from clew.engines.sqlite import place
from clew.engines.sqlite.connections import CACHE_KIB, SIDES, Connections, StoreConnection
from clew.engines.sqlite.errors import translate
from clew.engines.sqlite.schema import harden, is_older, recognise, refuse_foreign

_LOG_HEADER_BYTES = 32  # a log that is no longer holds nothing
_LEAVING_SECONDS = 1.0  # that a writer may need from the removal of -shm to that of -wal
_PRAGMAS = {"temp_store": 2, "cache_size": -CACHE_KIB}


class View(Struct, frozen=True):
    """How the file of a store lies there: which one it is, and which log is beside it.

    `log` are the log and its index, if there is a log. `looks` are size and time of the file, as
    far as they matter: with a log they do not.
    """

    main: place.Id
    log: tuple[place.Id | None, ...]
    looks: tuple[int, int] | None

    @property
    def logged(self) -> bool:
        return bool(self.log)


def look(path: Path, patience_seconds: float) -> View:
    """How the store can be read now. Unavailable: it cannot, without writing; and what to do."""
    began = time.monotonic()
    path = Path(os.path.realpath(path))  # SQLite puts a log beside the file that a link leads to
    while True:
        found = os.stat(path)
        waited = time.monotonic() - began
        if _size(path, "-wal") > _LOG_HEADER_BYTES:
            log = tuple(place.which(f"{path}{end}") for end in ("-wal", "-shm"))
            if None not in log:
                return View((found.st_dev, found.st_ino), log, None)
            # The last writer that leaves takes -shm away first, and then -wal.
            if waited >= min(patience_seconds, _LEAVING_SECONDS):
                raise Unavailable(
                    f"{path} cannot be read without writing: what was written last is in "
                    f"{path.name}-wal, and {path.name}-shm, which leads to it, is not there; "
                    f"{_elsewhere(path, '-wal')}",
                    retryable=False,
                )
        # A file that was written this very moment could be written again and look the same.
        elif place.is_settled(found.st_mtime_ns):
            looks = (found.st_size, found.st_mtime_ns)
            return View((found.st_dev, found.st_ino), (), looks)
        elif waited >= patience_seconds:
            raise _changing(path)
        time.sleep(0.005)


class ViewConnection(StoreConnection):
    """A connection that can read, and can do nothing else; with the view that it was opened for.

    `beside_writer`: this process has the store open for writing too, and so its index in memory.
    """

    def __init__(
        self, path: Path, view: View, *, busy_seconds: float, vfs: str | None = None
    ) -> None:
        with SIDES.lock:
            self.view = view
            self.beside_writer = SIDES.is_written(os.path.realpath(path))
            index = f"readonly_shm={int(not self.beside_writer)}"
            uri = f"{path.as_uri()}?{index if view.logged else 'immutable=1'}"
            super().__init__(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)
            self.set_busy_handler(patience(busy_seconds))
            harden(self)
            self.pragma("schema_version")  # the index is opened when something is read first


class ReadOnlyConnections(Connections):
    """Connections of a store that is open for looking only."""

    readonly = True

    def __init__(
        self, path: Path, *, busy_seconds: float, vfs: str | None = None, any_schema: bool = False
    ) -> None:
        super().__init__(
            path,
            synchronous="",
            busy_seconds=busy_seconds,
            vfs=vfs,
            create=False,
            any_schema=any_schema,
        )

    def writer(self) -> StoreConnection:
        raise ReadOnly(str(self.path), operation="a write")

    @contextmanager
    def reader(self) -> Iterator[apsw.Connection]:
        """The same. Unavailable, at its end: the file has changed while it was read."""
        view: View | None = None
        try:
            with super().reader() as db:
                assert isinstance(db, ViewConnection)
                view = db.view
                yield db
        except Exception as error:
            if view is not None and self._has_changed(view):  # and so it may be the reason
                raise _changing(self.path) from error
            raise
        if self._has_changed(view):
            raise _changing(self.path)

    def _take(self, read: object) -> StoreConnection:
        while True:
            view = self._look()
            db = super()._take(read)
            assert isinstance(db, ViewConnection)
            if (db.view, db.beside_writer) == (view, SIDES.is_written(self.real_path)):
                return db
            db.close()  # it is from before a writer came, or has gone

    def _open(self) -> StoreConnection:
        failed: View | None = None
        while True:
            view = self._look()
            try:
                return self._open_as(view)
            except apsw.CantOpenError as error:
                if view == failed:
                    raise self._explain(error) from error
                failed = view  # a writer may have taken its log away since we looked
            except apsw.Error as error:
                raise self._explain(error) from error

    def _open_as(self, view: View) -> StoreConnection:
        with SIDES.lock:
            db = ViewConnection(self.path, view, busy_seconds=self.busy_seconds, vfs=self.vfs)
            self.holds_index |= view.logged and not db.beside_writer
        for name, value in _PRAGMAS.items():
            db.pragma(name, value)
        return db

    def _begin(self, create: bool) -> place.HostLock:
        """Recognise the store. One of an older format would have to be written first."""
        place.inspect(self.path, create=False)
        refuse_network(self.path.parent)
        db = self._open()
        try:
            assert isinstance(db, ViewConnection)
            self.main = db.view.main
            recognise(db, self.path, create=False)
            if not self._any_schema:
                refuse_foreign(db, self.path)
            if is_older(db, self.path):
                raise Unsupported(
                    f"{self.path} has format {db.pragma('user_version')}, and this Clew needs "
                    f"{len(migrations('sqlite'))}; run clew migrate where it may be written"
                )
            return self._lock(db)
        except apsw.Error as error:  # no test: a disk that fails after it was opened
            raise self._explain(error) from error
        finally:
            db.close()

    def _look(self) -> View:
        try:
            if self.main is not None and place.which(str(self.path)) != self.main:
                raise self._gone(str(self.path))
            return look(self.path, self.busy_seconds)
        except OSError as error:
            text = f"{self.path} cannot be read: {error.strerror}"
            raise Unavailable(text, retryable=False) from error

    def _has_changed(self, view: View | None) -> bool:
        if view is None or view.logged:
            return False  # SQLite's own locks see to it that a read is of one moment
        try:
            found = os.stat(self.path)
        except OSError:
            return True
        main, looks = (found.st_dev, found.st_ino), (found.st_size, found.st_mtime_ns)
        return (main, looks) != (view.main, view.looks)

    def _explain(self, error: apsw.Error) -> ClewError:
        if isinstance(error, apsw.CantOpenError | apsw.PermissionsError):
            text = f"{self.path} cannot be read; it and all files beside it (-wal, -shm) must be"
            return Unavailable(f"{text} readable: {error}", retryable=False)
        return translate(error, str(self.path))


def _size(path: Path, ending: str) -> int:
    try:
        return os.stat(f"{path}{ending}").st_size
    except FileNotFoundError:
        return 0


def _elsewhere(path: Path, ending: str) -> str:
    return (
        f"open it once where it may be written, or copy {path.name} and {path.name}{ending} to a "
        "folder of your own, and look there"
    )


def _changing(path: Path) -> Unavailable:
    return Unavailable(f"{path} was written while it was read; read it again")
