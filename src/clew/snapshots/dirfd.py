"""Reaching into a working tree: by descriptors of its folders, name by name, through no link.

A folder that another process swaps for a link is noticed at the next step that goes through it,
so nothing outside of the tree is read or written, whatever happens in it meanwhile.
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

from clew.core.codec import digest
from clew.core.errors import Conflict, InvalidInput, Unavailable
from clew.snapshots.manifest import Node
from clew.snapshots.scan import FILE, FOLDER
from clew.snapshots.survey import signature

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)
# Where a folder cannot be locked (some network file systems) we do without.
_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_CHUNK_BYTES = 1024 * 1024


class System:
    """The system calls of a restore, in one place, so that a test can make each one fail."""

    # --- looking ---

    def open_root(self, path: str) -> int:
        """The top: the one name that the caller vouches for, links in it included."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def open_folder(self, name: str, folder: int) -> int:
        return os.open(name, FOLDER, dir_fd=folder)

    def open_file(self, name: str, folder: int) -> int:
        """For reading; never through a link, and never waiting for a pipe."""
        return os.open(name, FILE, dir_fd=folder)

    def stat(self, name: str, folder: int) -> os.stat_result:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def stat_open(self, descriptor: int) -> os.stat_result:
        return os.fstat(descriptor)

    def names(self, folder: int) -> list[str]:
        return os.listdir(folder)

    def read(self, descriptor: int, size: int) -> bytes:
        return os.read(descriptor, size)

    def read_link(self, name: str, folder: int) -> str:
        return os.readlink(name, dir_fd=folder)

    # --- changing ---

    def create(self, name: str, folder: int, mode: int) -> int:
        """A new file; the system takes the umask off its mode."""
        return os.open(name, _CREATE, mode, dir_fd=folder)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Perhaps less than all of it."""
        return os.write(descriptor, data)

    def give(self, descriptor: int, owner: int, group: int) -> None:
        os.fchown(descriptor, owner, group)

    def set_mode(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)

    def begin_sync(self, descriptor: int) -> None:
        """The disk may begin with what will be synced soon, and go on while we do."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)

    def unlink(self, name: str, folder: int) -> None:
        os.unlink(name, dir_fd=folder)

    def make_folder(self, name: str, folder: int) -> None:
        os.mkdir(name, 0o755, dir_fd=folder)

    def remove_folder(self, name: str, folder: int) -> None:
        os.rmdir(name, dir_fd=folder)

    def make_link(self, target: str, name: str, folder: int) -> None:
        os.symlink(target, name, dir_fd=folder)


REAL = System()


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
        """Of the folder itself: a lock file would be one more file in the tree."""
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
                try:
                    below = self.system.open_folder(name, descriptor)
                except OSError as error:
                    if error.errno not in _NOT_A_FOLDER:
                        raise
                    text = f"{path} does not lead through folders only: {name!r} is something else"
                    raise Conflict(
                        text, field="files", expected="folder", actual=name, files=(path,)
                    ) from None
                if descriptor != self._top:
                    os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            if descriptor != self._top:
                os.close(descriptor)

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

    def find(self, folder: int, name: str) -> os.stat_result | None:
        """What is under a name; None if nothing is."""
        try:
            return self.system.stat(name, folder)
        except FileNotFoundError:
            return None

    def find_same(self, folder: int, name: str, node: Node) -> os.stat_result | None:
        """What is under a name, if it is just what the node says; None if it is not."""
        look = self.find(folder, name)
        if look is None or _kind(look.st_mode) != node.kind:
            return None
        if node.kind == "folder":
            return look
        if node.kind == "link":
            same = self.system.read_link(name, folder) == node.ref
        else:
            same = look.st_size == node.size and self._has(folder, name, look, node)
        return look if same else None

    def _has(self, folder: int, name: str, look: os.stat_result, node: Node) -> bool:
        """Whether a file has the contents of a node."""
        descriptor = self.system.open_file(name, folder)
        try:
            # By the descriptor again: the name may have become another file since.
            mine = self.system.stat_open(descriptor)
            if not stat.S_ISREG(mine.st_mode) or mine.st_ino != look.st_ino:
                return False
            parts: list[bytes] = []
            left = node.size + 1  # one byte more shows a file that grows
            while left > 0:
                part = self.system.read(descriptor, min(left, _CHUNK_BYTES))
                if not part:
                    break
                parts.append(part)
                left -= len(part)
            return digest(b"".join(parts)) == node.ref
        finally:
            os.close(descriptor)

    def is_as_seen(self, folder: int, name: str, seen: os.stat_result | None) -> bool:
        """Whether under a name is just what was seen there before; None: nothing was."""
        now = self.find(folder, name)
        if now is None or seen is None:
            return now is seen
        return signature(now) == signature(seen)

    def write_file(
        self, folder: int, name: str, data: bytes, mode: int, like: os.stat_result | None = None
    ) -> int:
        """A new file with these bytes: its descriptor. It is not synced yet.

        With `like` it has that file's owner, and just this mode; else the umask is taken off.
        """
        # Until it has its owner, no other user may open it.
        descriptor = self.system.create(name, folder, mode if like is None else 0o600)
        try:
            left = memoryview(data)
            while left:
                left = left[self.system.write(descriptor, left) :]
            if like is not None:
                mine = self.system.stat_open(descriptor)
                if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
                    try:
                        self.system.give(descriptor, like.st_uid, like.st_gid)
                    except PermissionError:
                        pass  # then it is ours, like any file that we make
                self.system.set_mode(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "executable" if mode & stat.S_IXUSR else "file"
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else "special"
