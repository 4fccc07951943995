"""Where a store of files is repaired: alone with it, on a copy, in a folder beside it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from clew.core.errors import Corrupt, FormatTooNew, NotFound, Unsupported
from clew.core.lines import MARKER, UNREADABLE
from clew.core.maintenance import Budget, Salvage
from clew.engines.files import place
from clew.engines.files.doctor import FilesMaintenance
from clew.engines.files.engine import FilesEngine
from clew.engines.files.locks import FileLock
from clew.engines.files.place import ROOMS, VERSION, Place, alone, release
from clew.engines.files.repair.salvage import FilesSalvage
from clew.engines.shared import swap
from clew.engines.shared.plain_files import (
    copy_file,
    copy_tree,
    refuse_hollow,
    remove_tree,
    remove_tree_quietly,
)

_DEPTH_MAX = 4  # namespaces/NAME/blobs/XX


class FilesWorkshop:
    """See `clew.core.maintenance.Workshop`."""

    def __init__(self, path: Path) -> None:
        self._path = path = path.absolute()
        self.place = str(path)
        self._swap = swap.Swap(path)
        self.finished = self._swap.finish()
        if not path.is_dir():
            raise NotFound("store", str(path))
        if not (path / "threads").is_dir() and not (path / MARKER).exists():
            raise Unsupported(f"{path} is not a Clew store of files; left as it is")
        self._locks: list[FileLock] = []
        try:
            # The store's own lock first: while it is held, no process can open any namespace.
            self._hold(path)
            self._spaces = place.namespaces(path)  # no process can make another one now
            for folder in list(self._spaces.values())[1:]:
                self._hold(folder)
            self._swap.begin()
            self._copy = self._swap.folder / "damaged"
            self._new = self._swap.folder / "repaired"
            copied = copy_tree(str(path), str(self._copy), depth=_DEPTH_MAX, left_out=_foreign)
            self._budget = Budget(copied)
        except BaseException:
            self.close()
            raise

    def _hold(self, folder: Path) -> None:
        place.check_rooms(folder)
        (folder / "locks").mkdir(mode=0o700, exist_ok=True)
        self._locks += alone([Place(folder)])

    def open_copy(self) -> FilesMaintenance:
        return FilesMaintenance(self._copy)

    def salvage(self) -> list[Salvage]:
        found: list[Salvage] = []
        for name, folder in self._spaces.items():
            where = folder.relative_to(self._path)
            _refuse_newer(self._copy / where / MARKER)
            found.append(FilesSalvage(self._copy / where, name, str(where), self._budget))
        if not any(part.threads() for part in found) and any(self._copy.rglob("threads/*")):
            raise Unsupported(f"there is nothing in {self._path} that Clew wrote; left as it is")
        strangers = sorted(set(os.listdir(self._path)) - _OURS)
        if strangers:
            notes = found[0].notes
            notes.append(f"not Clew's, and still with the original: {', '.join(strangers)}")
        return found

    def create(self, namespace: str) -> FilesEngine:
        return FilesEngine(self._new, namespace=namespace)

    def open_new(self) -> FilesMaintenance:
        return FilesMaintenance(self._new)

    def finish(self, ids: dict[tuple[str, str], str]) -> None:
        """Leases are no records, but their fences must go on growing; cut tails are kept."""
        # A lease lies in the thread's lock file, which is named by the id and not by the key.
        for (namespace, _), id in ids.items():
            name = f"locks/{place.anonymous(id)}"
            old, new = self._homes(namespace)
            _carry(old / name, new / name)
        for namespace in self._spaces:
            old, new = self._homes(namespace)
            for file in (old / "recovered").glob("*"):
                _carry(file, new / "recovered" / file.name)

    def _homes(self, namespace: str) -> tuple[Path, Path]:
        """The folder of a namespace in the copy, and in the new store."""
        where = self._spaces[namespace].relative_to(self._path)
        return self._copy / where, place.home(self._new, namespace)

    def reindex(self) -> bool:
        """The index is a cache: without it, the next process that opens the store makes it anew."""
        for folder in self._spaces.values():
            remove = remove_tree if folder == self._path else remove_tree_quietly
            if os.path.lexists(folder / "index"):
                remove(str(folder / "index"))
        return True

    def swap(self) -> str:
        return self._swap.run(self._new)

    def keep(self) -> str:
        return self._swap.keep()

    def close(self) -> None:
        self._swap.close()
        release(self._locks)


_OURS = {".gitignore", MARKER, place.NAMESPACES, *(room for room in ROOMS if "/" not in room)}


def _foreign(folder: str, found: list[str]) -> set[str]:
    """What is not copied, being none of Clew's."""
    return set(found) - _OURS if MARKER in found or "threads" in found else set()


def _carry(old: Path, new: Path) -> None:
    """Take a file over as it is, unless it is none, or mostly holes: then it was not Clew's."""
    if not old.is_file() or old.is_symlink():
        return
    with old.open("rb") as file, suppress(Corrupt):
        refuse_hollow(file.fileno(), str(old))
        copy_file(str(old), str(new))


def _refuse_newer(marker: Path) -> None:
    try:
        with marker.open("rb") as file:
            data = file.read(place.MARKER_BYTES_MAX)
        version = msgspec.json.decode(data, type=dict).get("version")
    except (OSError, *UNREADABLE):
        return  # damaged itself
    if isinstance(version, int) and version > VERSION:
        raise FormatTooNew(str(marker.parent), found=version, known=VERSION)
