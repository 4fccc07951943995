"""Every system call that changes something, in one place, so that a test can make each one fail.

Nothing here retries, catches or decides: callers loop on short writes and clean up after errors.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from functools import partial
from typing import Any, NoReturn

from clew.core.errors import ReadOnly, Unsupported

# The process or the machine has too much open: that says nothing of the store, and passes.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
NOT_A_FILE = "must be a file, and no link, folder, pipe or device"
_FULL_SYNC = 51  # macOS: F_FULLFSYNC; its fsync alone does not reach the disk


class NotSynced(OSError):
    """A folder could not even be opened for its sync: its names are there, but may not last."""


def is_exhausted(error: BaseException) -> bool:
    """Whether an error, or what it comes from, tells of the process and not of the store."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in EXHAUSTED


def refuse_special(path: str) -> None:
    """Unsupported if anything but a file has that name: some devices act when they are opened."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # there is nothing, or the opening tells why not
    if not stat.S_ISREG(mode):
        raise Unsupported(f"{path} {NOT_A_FILE}")


def is_folder(path: str) -> bool:
    """Whether it is a folder itself, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


class Disk:
    """The real one."""

    def open(self, path: str, flags: int) -> int:
        """Open a file for its owner alone; never through a symbolic link, never for a child."""
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)

    def write(self, descriptor: int, data: bytes) -> int:
        """Write at the end of a file opened with O_APPEND; perhaps less than all of it."""
        return os.write(descriptor, data)

    def write_at(self, descriptor: int, data: bytes, offset: int) -> int:
        return os.pwrite(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        """Make what was written to a file durable, with its size."""
        _sync(descriptor)

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        os.mkdir(path, 0o700)


class ReadOnlyDisk(Disk):
    """Refuses every change: for a store that is only looked at."""

    def __init__(self, place: str) -> None:
        for name in ("open", "write", "write_at", "truncate", "rename", "unlink", "make_folder"):
            setattr(self, name, partial(self._refuse, name.replace("_", " ")))
        self._place = place

    def _refuse(self, operation: str, *arguments: Any) -> NoReturn:
        raise ReadOnly(self._place, operation=operation)


class GuardedDisk(Disk):
    """Remembers a failed sync: after it the disk's state is unknown, and a later one may lie.

    With `durable` false nothing is synced, but what is `always`: where a file takes the place of
    another one, all that was durable in that one would be at stake.
    """

    def __init__(self, disk: Disk, *, durable: bool) -> None:
        self._disk = disk
        self._durable = durable
        self.poison: str | None = None
        # Passed on as they are, without a call in between: appends are made of these.
        for name in ("open", "write", "write_at", "truncate", "rename", "unlink", "make_folder"):
            setattr(self, name, getattr(disk, name))

    def sync(self, descriptor: int, *, always: bool = False) -> None:
        if self._durable or always:
            try:
                self._disk.sync(descriptor)
            except OSError as error:
                self.give_up("a file of the store", error)
                raise

    def sync_folder(self, path: str, *, always: bool = False) -> None:
        if self._durable or always:
            try:
                self._disk.sync_folder(path)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    raise NotSynced(error.errno, error.strerror) from error
                self.give_up(path, error)
                raise

    def give_up(self, place: str, error: OSError) -> None:
        self.poison = (
            f"writing to {place} failed ({error.strerror}), so what is on disk is unknown; this "
            "handle gives no more answers: open the store again, run clew verify, and retry with "
            "the same ids"
        )


def _full_sync(descriptor: int) -> None:  # no test: macOS alone needs it
    import fcntl

    fcntl.fcntl(descriptor, _FULL_SYNC)


# Linux: fdatasync leaves out the times of the file, but never the size that a reader needs.
_sync = _full_sync if sys.platform == "darwin" else getattr(os, "fdatasync", os.fsync)
