"""A new copy of a stored tree, in a folder where nothing is yet."""

from __future__ import annotations

import os
from contextlib import suppress

from clew.core.errors import ClewError, InvalidInput
from clew.snapshots.apply import new_mode, translated
from clew.snapshots.dirfd import REAL, Root, System
from clew.snapshots.manifest import Node
from clew.snapshots.tree import Trees


def materialize(trees: Trees, tree: str, folder: str, system: System = REAL) -> int:
    """Write a whole tree into a new or empty folder; how many files it has.

    If it fails, what was written is taken away again. It is a copy that can be made anew, so it
    is not made durable file by file.
    """
    made = not os.path.lexists(folder)
    with translated(folder):
        os.makedirs(folder, exist_ok=True)
    with translated(folder), Root(os.path.realpath(folder), system) as root:
        with root.folder("") as top:
            if system.names(top):
                raise InvalidInput("folder", f"{folder} is not empty")
        copy = _Copy(root, trees)
        try:
            return copy.write(tree)
        except BaseException:
            copy.remove()
            if made:
                with suppress(OSError):
                    os.rmdir(folder)
            raise


class _Copy:
    """Remembers what it has made, so that a copy that failed can be taken away again."""

    def __init__(self, root: Root, trees: Trees) -> None:
        self._root = root
        self._system = root.system
        self._trees = trees
        self._made: list[tuple[str, bool]] = []

    def write(self, tree: str) -> int:
        links: list[tuple[str, Node]] = []
        files = 0
        # Bounded: manifests may name each other so that a small store is an endless tree.
        for path, node in self._trees.walk(tree):
            if node.kind == "link":
                links.append((path, node))
                continue
            with self._root.parent(path) as (folder, name):
                self._made.append((path, node.is_folder))
                if node.is_folder:
                    self._system.make_folder(name, folder)
                else:
                    data = self._trees.read(node)
                    os.close(self._root.write_file(folder, name, data, new_mode(node)))
            files += node.is_file
        # Links come last, so that none is there while something else is written.
        for path, node in links:
            with self._root.parent(path) as (folder, name):
                self._made.append((path, False))
                self._system.make_link(node.ref, name, folder)
        return files + len(links)

    def remove(self) -> None:
        for path, is_folder in reversed(self._made):
            try:
                with self._root.parent(path) as (folder, name):
                    if is_folder:
                        self._system.remove_folder(name, folder)
                    else:
                        self._system.unlink(name, folder)
            except (OSError, ClewError):
                pass  # it was never there, or is not ours any more
