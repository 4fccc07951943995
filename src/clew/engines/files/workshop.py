"""Where a store of files is repaired: alone with it, on a copy, in a folder beside it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import msgspec

from clew.engines import _swap
from clew.engines.files import names
from clew.engines.files.engine import FilesEngine
from clew.engines.files.place import MARKER, ROOMS, VERSION, Place, alone
from clew.engines.files.salvage import FilesSalvage
from clew.errors import FormatTooNew, NotFound, Unsupported


class FilesWorkshop:
    """See `clew.salvage.Workshop`."""

    def __init__(self, path: Path, stamp: str) -> None:
        self._path = path = path.absolute()
        self.place = str(path)
        self._swap = _swap.Swap(path, stamp)
        self.finished = self._swap.finish()
        if not path.is_dir():
            raise NotFound("store", str(path))
        if not (path / "threads").is_dir() and not (path / MARKER).exists():
            raise Unsupported(f"{path} is not a Clew store of files; left as it is")
        (path / "locks").mkdir(mode=0o700, exist_ok=True)
        self._lock = alone(Place(path))
        try:
            self._swap.begin()
            self._copy = self._swap.folder / "damaged"
            self._new = self._swap.folder / "repaired"
            shutil.copytree(path, self._copy, symlinks=True, ignore=_foreign)
        except BaseException:
            self.close()
            raise

    def open_copy(self) -> FilesEngine:
        return FilesEngine(self._copy, create=False)

    def salvage(self) -> FilesSalvage:
        _refuse_newer(self._copy / MARKER)
        found = FilesSalvage(self._copy)
        if found.is_empty and any((self._copy / "threads").glob("*")):
            raise Unsupported(f"there is nothing in {self._path} that Clew wrote; left as it is")
        strangers = sorted(set(os.listdir(self._path)) - _OURS)
        if strangers:
            found.notes.append(f"not Clew's, and still with the original: {', '.join(strangers)}")
        return found

    def create(self) -> FilesEngine:
        return FilesEngine(self._new)

    def finish(self, ids: dict[str, str]) -> None:
        """Leases are no records, but their fences must go on growing; cut tails are kept."""
        for id in ids.values():
            name = names.anonymous(id)
            if (self._copy / "locks" / name).is_file():
                shutil.copyfile(self._copy / "locks" / name, self._new / "locks" / name)
        for file in (self._copy / "recovered").glob("*"):
            if file.is_file() and not file.is_symlink():
                shutil.copyfile(file, self._new / "recovered" / file.name)

    def reindex(self) -> bool:
        """The index is a cache: without it, the next one who opens the store makes it anew."""
        shutil.rmtree(self._path / "index")
        return True

    def swap(self) -> str:
        return self._swap.run(self._new)

    def keep(self) -> str:
        return self._swap.keep()

    def close(self) -> None:
        self._swap.close()
        self._lock.close()


_OURS = {".gitignore", MARKER, *(room for room in ROOMS if "/" not in room)}


def _foreign(folder: Any, found: list[str]) -> set[str]:
    """What is not copied: neither files nor folders, and what is not Clew's."""
    top = Path(folder)
    skipped = {name for name in found if not _is_plain(top / name)}
    if MARKER in found or "threads" in found:
        skipped |= set(found) - _OURS
    return skipped


def _is_plain(path: Path) -> bool:
    mode = os.lstat(path).st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _refuse_newer(marker: Path) -> None:
    try:
        version = msgspec.json.decode(marker.read_bytes(), type=dict).get("version")
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return  # damaged itself
    if isinstance(version, int) and version > VERSION:
        raise FormatTooNew(str(marker.parent), found=version, known=VERSION)
