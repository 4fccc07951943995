"""A working tree as it was found, and what is remembered of it until the next look."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from operator import attrgetter

from msgspec import Struct

from clew.snapshots.manifest import Kind, Node
from clew.snapshots.model import LeftOut

VERSION = 1
Signature = tuple[int, int, int, int, int]  # size, mtime, ctime, inode, mode

# What changes with a file: where it is the same, so are the bytes, once it has settled. Without a
# frame of Python, for it is asked of every file of a tree, each time.
signature: Callable[[os.stat_result], Signature] = attrgetter(
    "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_mode"
)


class SeenFile(Struct, frozen=True, array_like=True, gc=False):
    """A file or link, read or recognised. A tree has many: they are kept small."""

    name: str
    kind: Kind
    ref: str
    size: int
    signature: Signature | None  # None: it was too fresh to be trusted


class Folder(Struct):
    """A folder as it is found. `manifest` is known at once if nothing in it changed."""

    path: str  # "" for the top, else with a slash at its end
    signature: Signature
    rules: str
    files: list[SeenFile]
    folders: list[Folder]
    pending: list[tuple[str, Signature]]  # files that are still to be read
    left_out: list[LeftOut]
    ignores: list[str]
    manifest: str = ""
    size: int = 0
    data: bytes = b""  # of the manifest, if it is a new one

    @property
    def name(self) -> str:
        return self.path[:-1].rpartition("/")[2]

    @property
    def nodes(self) -> list[Node]:
        """What was found in it, as it would be stored."""
        folders = [Node(sub.name, "folder", sub.manifest, sub.size) for sub in self.folders]
        return folders + [Node(file.name, file.kind, file.ref, file.size) for file in self.files]


class Survey(Struct):
    """A working tree, looked at as a whole."""

    root: str
    top: Folder
    began_ns: int
    files: int = 0
    read: int = 0  # files that had to be read
    unseen: list[LeftOut] = []  # left out before, in places that were not looked at now

    @property
    def tree(self) -> str:
        return self.top.manifest

    @property
    def size(self) -> int:
        return self.top.size

    def all_folders(self) -> Iterator[Folder]:
        """Every folder, those above before those below."""
        todo = [self.top]
        while todo:
            folder = todo.pop()
            yield folder
            todo += reversed(folder.folders)

    def new_folders(self) -> list[Folder]:
        """Those whose manifest the last snapshot did not have."""
        return [folder for folder in self.all_folders() if folder.data]

    @property
    def nodes(self) -> dict[str, Node]:
        """Every path with its node."""
        return {
            folder.path + node.name: node for folder in self.all_folders() for node in folder.nodes
        }

    @property
    def left_out(self) -> list[LeftOut]:
        found = [item for folder in self.all_folders() for item in folder.left_out]
        return found + self.unseen


class CachedFolder(Struct, frozen=True, array_like=True):
    """A folder as it was: `rules` held in it, `manifest` is what was stored of it."""

    signature: Signature | None
    rules: str
    manifest: str
    size: int
    files: list[SeenFile]
    folders: list[str]
    left_out: list[tuple[str, str, int]]
    ignores: list[str]  # the ignore files in it, by name


class CachedTree(Struct):
    """What is remembered of one tree. `base` is the snapshot that stored it: thread and id."""

    version: int = VERSION
    root: str = ""
    base: tuple[str, str] | None = None
    folders: dict[str, CachedFolder] = {}
