"""Looks after a store of files as a whole: `FilesMaintenance`, and what `clew doctor` reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from clew.core.engine import Engine
from clew.core.errors import (
    Corrupt,
    InvalidInput,
    NotFound,
    ReadOnly,
    Unavailable,
    Unsupported,
)
from clew.core.lines import MARKER
from clew.core.maintenance import Examined, Grant, Migration
from clew.core.parts import loading
from clew.engines.files import place
from clew.engines.files.engine import FilesEngine
from clew.engines.files.place import Place, read_marker
from clew.engines.shared.file_system import examine_disk, examine_rights, file_system
from clew.engines.shared.namespaces import OneByOne
from clew.engines.shared.swap import refuse_half_done, workshop

if TYPE_CHECKING:
    from clew.engines.files.repair.workshop import FilesWorkshop


class FilesMaintenance(OneByOne):
    """See `clew.core.maintenance.Maintenance`. Its place is the path of the folder."""

    repairs = True

    def __init__(self, place: str | Path) -> None:
        self._path = Path(place).absolute()
        self.place = str(self._path)

    def _names(self) -> Iterable[str]:
        return place.namespaces(self._path)

    def _open(self, namespace: str) -> Engine:
        refuse_half_done(self._path)
        try:
            return FilesEngine(self._path, create=False, namespace=namespace)
        except ReadOnly:  # what is asked here only reads
            return FilesEngine(self._path, namespace=namespace, readonly=True)
        except Unsupported as error:
            # The room for threads says that this is a store, whatever its marker says now.
            if not (self._path / "threads").is_dir():
                raise
            raise Corrupt(self.place, str(error)) from error

    @staticmethod
    def examine(engine: Engine) -> Examined:
        if not isinstance(engine, FilesEngine):
            raise Unsupported(f"{type(engine).__name__} is not the files engine")
        return examine(engine)

    def migrate(
        self, *, dry_run: bool = False, rls: bool = False, grants: Sequence[Grant] = ()
    ) -> Migration:
        if rls or grants:
            raise InvalidInput("rls", "a store of files has no roles, and so no row-level security")
        refuse_half_done(self._path)
        # A store says the version that it needs: there is nothing to be brought up to date.
        found = format_of(self._path)
        state = Migration(place=self.place, found=found, known=found)
        if not dry_run:
            FilesEngine(self._path, create=False).close()  # opening it migrates it
        return state

    def repair(self) -> AbstractContextManager[FilesWorkshop]:
        with loading("clew.engines.files.repair"):
            from clew.engines.files.repair.workshop import FilesWorkshop

        return workshop(self._path, FilesWorkshop)


def format_of(path: Path) -> int:
    """The format of the store in a folder."""
    try:
        return read_marker(path / MARKER).version
    except FileNotFoundError:
        raise NotFound("store", str(path)) from None
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}"
        raise Unavailable(text, retryable=False) from error


def examine(engine: FilesEngine) -> Examined:
    found = Examined(kind="a folder of files")
    engine.stats()  # brings the index up to date, so that its size below is the one it will have
    root = Path(engine.properties.place)
    found.format = format_of(root)
    found.versions = {"SQLite (of the index)": apsw.sqlite_lib_version()}
    found.read["syncs"] = "each append" if engine.properties.durability == "full" else "none"
    found.read["namespaces"] = f"{len(place.namespaces(root)):,}"
    _examine_index(found, engine)
    _examine_recovered(found, engine._place)
    examine_disk(found, str(root), file_system(root))
    examine_rights(found, str(root))
    return found


def _examine_index(found: Examined, engine: FilesEngine) -> None:
    if engine._store.index.is_shared:
        size = os.stat(engine._place.index).st_size
        found.read["index"] = f"up to date, {-(-size // 1024):,} KB"
        return
    found.read["index"] = "in memory only"
    if engine.properties.read_only:
        return
    found.warn(
        f"the index {engine._place.index} cannot be used, so that every process that opens the "
        "store has to read all threads",
        "see that its folder can be written; the index may be deleted, it is made again",
    )


def _examine_recovered(found: Examined, place: Place) -> None:
    """Torn ends that were cut off: nothing acknowledged, but their owner may want to know."""
    cut = len(os.listdir(place.recovered)) if os.path.isdir(place.recovered) else 0
    found.read["ends cut off"] = f"{cut:,}"
    if cut:
        found.warn(
            f"{cut:,} torn ends of threads were cut off after a crash, and kept",
            f"look at {place.recovered}, and remove them when they are of no use",
        )
