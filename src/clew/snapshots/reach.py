"""Reaching into a working tree: by descriptors of its folders, name by name, through no link.

A folder that somebody swaps for a link is noticed at the next step that goes through it, so
nothing outside of the tree is read or written, whatever happens in it meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from msgspec import Struct

from clew.codec import digest
from clew.errors import Conflict, InvalidInput, Unavailable
from clew.snapshots.cache import Signature, signature
from clew.snapshots.manifest import Node
from clew.snapshots.system import REAL, System

_NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)
# Where a folder cannot be locked (some network file systems) we do without.
_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_CHUNK_BYTES = 1024 * 1024


class Found(Struct, frozen=True):
    """What is there under a name: a kind of node, or "special" for devices, pipes and the like."""

    kind: str
    look: os.stat_result

    @property
    def signature(self) -> Signature:
        return signature(self.look)


class Root:
    """A working tree while it is changed: one restore at a time, in any process."""

    def __init__(self, path: str, system: System = REAL, *, lock: bool = True) -> None:
        self.path = path
        self.system = system
        self._locks = lock
        self._top = -1

    def __enter__(self) -> Self:
        try:
            self._top = self.system.open_root(self.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            text = f"{self.path} is not a folder: {error.strerror}"
            raise InvalidInput("root", text) from None
        try:
            if self._locks:
                self._lock()
        except BaseException:
            os.close(self._top)
            raise
        return self

    def _lock(self) -> None:
        try:
            fcntl.flock(self._top, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"another restore is at work in {self.path}; nothing was written"
            raise Unavailable(text) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._top)

    @property
    def identity(self) -> list[int]:
        """Which folder this is, whatever its name."""
        look = self.system.stat_open(self._top)
        return [look.st_dev, look.st_ino]

    # --- folders ---

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """The descriptor of a folder of the tree; "" is the top."""
        descriptor = self._top
        try:
            for name in path.split("/") if path else ():
                below = self._enter(name, descriptor, path)
                if descriptor != self._top:
                    os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            if descriptor != self._top:
                os.close(descriptor)

    def _enter(self, name: str, folder: int, path: str) -> int:
        try:
            return self.system.open_folder(name, folder)
        except OSError as error:
            if error.errno not in _NOT_A_FOLDER:
                raise
            text = f"{path} does not lead through folders only: {name!r} is something else"
            raise Conflict(text, expected="folder", actual=name, files=(path,)) from None

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The folder that a path lies in, and its name there."""
        above, _, name = path.rpartition("/")
        with self.folder(above) as descriptor:
            yield descriptor, name

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder to be entered, and no link on the way to it."""
        try:
            with self.folder(path):
                return True
        except (Conflict, FileNotFoundError):
            return False

    # --- names ---

    def find(self, folder: int, name: str) -> Found | None:
        """What is under a name; None if nothing is."""
        try:
            look = self.system.stat(name, folder)
        except FileNotFoundError:
            return None
        return Found(_kind(look.st_mode), look)

    def is_same(self, folder: int, name: str, node: Node) -> Found | None:
        """What is under a name, if it is just what the node says; None if it is not."""
        found = self.find(folder, name)
        if found is None or found.kind != node.kind:
            return None
        if found.kind == "folder":
            return found
        if found.kind == "link":
            same = self.system.read_link(name, folder) == node.ref
        else:
            same = found.look.st_size == node.size and self._has(folder, name, found, node)
        return found if same else None

    def _has(self, folder: int, name: str, found: Found, node: Node) -> bool:
        descriptor = self.system.open_file(name, folder)
        try:
            look = self.system.stat_open(descriptor)
            if not stat.S_ISREG(look.st_mode) or look.st_ino != found.look.st_ino:
                return False
            return digest(self._bytes(descriptor, node.size)) == node.ref
        finally:
            os.close(descriptor)

    def _bytes(self, descriptor: int, size: int) -> bytes:
        """A file's bytes, at most one more than it should have."""
        parts: list[bytes] = []
        left = size + 1
        while left > 0:
            part = self.system.read(descriptor, min(left, _CHUNK_BYTES))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "executable" if mode & stat.S_IXUSR else "file"
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else "special"
