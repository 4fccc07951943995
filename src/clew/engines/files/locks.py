"""Locks among processes: flock on files that are never removed.

flock belongs to the open file, not to the process: two handles of one process exclude each other
as well, and closing some other descriptor of the file does not drop the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from clew.core.errors import ReadOnly, Unavailable, Unsupported
from clew.engines.files.disk import Disk
from clew.engines.shared.file_system import UNWRITABLE

SHARED = fcntl.LOCK_SH
EXCLUSIVE = fcntl.LOCK_EX
_FIRST_NAP_SECONDS = 0.00005
_NAP_SECONDS_MAX = 0.002
_TOKEN_BYTES = 16


def is_ours(mutex: threading.RLock) -> bool:
    """Whether this very thread holds a mutex; a condition without its lock refuses to notify."""
    try:
        threading.Condition(mutex).notify(0)
    except RuntimeError:
        return False
    return True


class FileLock:
    """One lock file, opened. It serves one thread at a time: callers have a mutex of their own.

    In a store that is only looked at, `readonly`, a lock is always a shared one, and its file is
    never made. As long as there is none, or it may not be opened, nothing is locked: then a write
    that is under way may be seen in part, as after a crash, and its lines are left out.
    """

    def __init__(self, path: str, *, readonly: bool = False) -> None:
        self.path = path
        self.descriptor = -1
        self._readonly = readonly
        self._open()

    def _open(self) -> None:
        path, flags = self.path, os.O_RDONLY if self._readonly else os.O_CREAT | os.O_RDWR
        try:
            flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self.descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            if self._readonly and error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
                return
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise Unsupported(f"{path} must be a file, and no link, folder or pipe") from error
            if error.errno in UNWRITABLE:
                raise ReadOnly(path, reason=os.strerror(error.errno)) from error
            text = f"{path} cannot be opened: {error.strerror}"
            raise Unavailable(text, retryable=False) from error

    def try_take(self, kind: int) -> bool:
        if self._readonly:
            kind = SHARED
            if self.descriptor < 0:
                self._open()  # a writer may have made it meanwhile
            if self.descriptor < 0:
                return True
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def take(self, kind: int, seconds: float) -> None:
        """Wait for the lock, but not for ever: the process that has it may have been stopped."""
        if self.try_take(kind):  # as nearly always: then not even the clock is read
            return
        deadline = time.monotonic() + seconds
        nap = _FIRST_NAP_SECONDS
        while not self.try_take(kind):
            if time.monotonic() > deadline:
                text = f"another process holds {self.path} for over {seconds:g} seconds; "
                raise Unavailable(text + "nothing was written")
            # Not the same nap for every process that waits, or they would meet again.
            time.sleep(nap * random.uniform(0.5, 1.5))
            nap = min(nap * 2, _NAP_SECONDS_MAX)

    def release(self) -> None:
        if self.descriptor >= 0:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    @contextmanager
    def held(self, kind: int, seconds: float) -> Iterator[None]:
        self.take(kind, seconds)
        try:
            yield
        finally:
            self.release()


class Gate:
    """Shared by callers that add references (forks, blobs), shut by those that remove things.

    The threads of a process share one descriptor, so they are counted here: the first takes the
    lock, the last gives it back. Its file holds a token that says whether any were added.
    """

    def __init__(self, path: str, seconds: float, *, readonly: bool = False) -> None:
        self._lock = FileLock(path, readonly=readonly)
        self._readonly = readonly
        self._seconds = seconds
        self._mutex = threading.Condition()
        self._inside = 0
        self._closed_by: int | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Inside, nothing that is there will be removed."""
        me = threading.get_ident()
        with self._mutex:
            # The one that has shut it may pass: a purge reads what it is about to remove.
            self._mutex.wait_for(lambda: self._closed_by in (None, me))
            if not self._inside and self._closed_by is None:
                self._lock.take(SHARED, self._seconds)
            self._inside += 1
        try:
            yield
        finally:
            with self._mutex:
                self._inside -= 1
                if not self._inside and self._closed_by is None:
                    self._lock.release()
                self._mutex.notify_all()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Alone: no thread of any process is inside."""
        with self._mutex:
            self._mutex.wait_for(lambda: not self._inside and self._closed_by is None)
            self._lock.take(EXCLUSIVE, self._seconds)
            self._closed_by = threading.get_ident()
        try:
            yield
        finally:
            with self._mutex:
                self._closed_by = None
                self._lock.release()
                self._mutex.notify_all()

    def note(self, disk: Disk) -> bytes:
        """Leave a new token, before a reference is added: also one by a killed writer shows then.

        Handles remember it no longer than they live, so it need not survive a loss of power. One
        that only looks has found out something, but added nothing.
        """
        if self._readonly:
            return b""
        token = os.urandom(_TOKEN_BYTES)
        written = 0
        while written < _TOKEN_BYTES:
            written += disk.write_at(self._lock.descriptor, token[written:], written)
        return token

    def noted(self) -> bytes:
        held = self._lock.descriptor >= 0
        return os.pread(self._lock.descriptor, _TOKEN_BYTES, 0) if held else b""

    def close(self) -> None:
        self._lock.close()
