"""What a store of files tells of itself; see `clew.doctoring`."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from clew.core.engine import Engine
from clew.core.errors import NotFound, Unavailable
from clew.core.maintenance import Examined
from clew.engines.files import place
from clew.engines.files.engine import FilesEngine
from clew.engines.files.place import MARKER, Place, namespaces, read_marker
from clew.engines.shared.file_system import examine_disk, examine_rights, file_system
from clew.engines.shared.namespaces import OneByOne


def format_of(path: Path) -> int:
    """The format of the store in a folder."""
    try:
        return read_marker(path / MARKER).version
    except FileNotFoundError:
        raise NotFound("store", str(path)) from None
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}"
        raise Unavailable(text, retryable=False) from error


def examine(engine: Engine) -> Examined:
    found = Examined()
    if not isinstance(engine, FilesEngine):
        return found
    engine.stats()  # so that the index is as it will be
    root = Path(engine.properties.place)
    found.format = format_of(root)
    found.versions = {"SQLite (of the index)": apsw.sqlite_lib_version()}
    found.read["syncs"] = "each append" if engine._durability == "full" else "none"
    found.read["namespaces"] = f"{len(namespaces(root)):,}"
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
    found.warn(
        f"the index {engine._place.index} cannot be used, so that every process that opens the "
        "store has to read all threads",
        "see that its folder can be written; the index may be deleted, it is made again",
    )


def _examine_recovered(found: Examined, place: Place) -> None:
    """Torn ends that were cut off: nothing that was acknowledged, but somebody may want to know."""
    cut = len(os.listdir(place.recovered)) if os.path.isdir(place.recovered) else 0
    found.read["ends cut off"] = f"{cut:,}"
    if cut:
        found.warn(
            f"{cut:,} torn ends of threads were cut off after a crash, and kept",
            f"look at {place.recovered}, and remove them when nobody needs them",
        )


# --- a folder of files with all its namespaces; see `clew.whole` ---


class FilesWhole(OneByOne):
    def __init__(self, path: Path) -> None:
        super().__init__(
            str(path.absolute()),
            lambda: place.namespaces(path.absolute()),
            lambda name: FilesEngine(path, create=False, namespace=name),
        )
