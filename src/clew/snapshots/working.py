"""A working tree as if it were stored, so that it can be compared with one that is."""

from __future__ import annotations

import os
import stat

from clew.codec import digest
from clew.engine import Engine
from clew.errors import Conflict
from clew.snapshots.contents import open_below
from clew.snapshots.manifest import Node
from clew.snapshots.model import Difference, LeftOut
from clew.snapshots.tree import Trees
from clew.snapshots.walk import FILE, Survey, open_root


class WorkingTrees(Trees):
    """The trees of a store, and the one that a survey saw; its files are read from the disk."""

    def __init__(self, engine: Engine, survey: Survey) -> None:
        super().__init__(engine)
        self._root = survey.root
        self._left_out = {item.path: item for item in survey.left_out}
        self._folders: dict[str, list[Node]] = {}
        self._paths: dict[str, str] = {}  # contents → where they are
        for folder in survey.all_folders():
            self._folders[folder.manifest] = folder.nodes
            files = (file for file in folder.files if file.kind != "link")
            self._paths |= {file.ref: folder.path + file.name for file in files}

    def nodes(self, manifest: str) -> list[Node]:
        found = self._folders.get(manifest)
        return super().nodes(manifest) if found is None else found

    def data(self, ref: str, name: str) -> bytes:
        path = self._paths.get(ref)
        if path is None or self._engine.has_blobs([ref]):
            return super().data(ref, name)
        data = _read(self._root, path)
        if data is None or digest(data) != ref:
            text = f"{path!r} was changed while it was compared; compare it again"
            raise Conflict(text, expected=ref, actual=path)
        return data

    def told(self, one: Difference) -> Difference:
        """A file that is there, but that no snapshot can take, is not one that was removed."""
        item = self._left_out_at(one.path) if one.change == "removed" else None
        if item is None:
            return one
        return Difference(
            change="modified",
            path=one.path,
            old_kind=one.old_kind,
            old_size=one.old_size,
            old_ref=one.old_ref,
            new_size=item.size,
        )

    def _left_out_at(self, path: str) -> LeftOut | None:
        """Of the path itself, or of a folder above it that cannot be entered."""
        while path:
            if path in self._left_out:
                return self._left_out[path]
            path = path.rpartition("/")[0]
        return None


def _read(root: str, path: str) -> bytes | None:
    """A file of the tree, through no link; None if it cannot be read."""
    above, _, name = path.rpartition("/")
    try:
        top = open_root(root)
        try:
            folder = open_below(top, above)
        finally:
            os.close(top)
        try:
            descriptor = os.open(name, FILE, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(descriptor, "rb") as file:
            look = os.fstat(descriptor)
            return file.read(look.st_size) if stat.S_ISREG(look.st_mode) else None
    except OSError:
        return None
