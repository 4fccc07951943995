"""Locks among processes: flock on files that Clew never removes.

flock belongs to the open file, not to the process: two handles of one process exclude each other
as well, and closing some other descriptor of the file does not drop the lock. Others may remove
a lock file all the same (`git clean` does, for one), and a lock on a removed file excludes nobody
who comes later. So each lock is looked for under its name once it is held.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from clew.core.errors import ReadOnly, Unavailable, Unsupported
from clew.engines.files.disk import EXHAUSTED, NOT_A_FILE, Disk, refuse_special
from clew.engines.shared.file_system import UNWRITABLE

SHARED = fcntl.LOCK_SH
EXCLUSIVE = fcntl.LOCK_EX
_FIRST_NAP_SECONDS = 0.00005
_NAP_SECONDS_MAX = 0.002
_TOKEN_BYTES = 16
GIVE_WAY_SECONDS = 0.5

_log = logging.getLogger("clew")


def is_ours(mutex: threading.RLock) -> bool:
    """Whether this very thread holds a mutex; a condition without its lock refuses to notify."""
    try:
        threading.Condition(mutex).notify(0)
    except RuntimeError:
        return False
    return True


def try_flock(descriptor: int, kind: int, path: str) -> bool:
    """Whether the lock of an open file was got; Unavailable if the system has none to give."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        text = f"{path} cannot be locked: {error.strerror}; nothing was written"
        raise Unavailable(text, retryable=error.errno in (errno.ENOLCK, errno.EINTR)) from error
    return True


def wait_for(try_take: Callable[[], bool], path: str, seconds: float) -> None:
    """Wait for a lock, but not for ever: the process that has it may have been stopped."""
    if try_take():  # as nearly always: then not even the clock is read
        return
    deadline = time.monotonic() + seconds
    nap = _FIRST_NAP_SECONDS
    while not try_take():
        if time.monotonic() > deadline:
            text = f"another process holds {path} for over {seconds:g} seconds; "
            raise Unavailable(text + "nothing was written")
        # Not the same nap for every process that waits, or they would meet again.
        time.sleep(nap * random.uniform(0.5, 1.5))
        nap = min(nap * 2, _NAP_SECONDS_MAX)


class FileLock:
    """One lock file, opened. It serves one thread at a time: callers have a mutex of their own.

    In a store that is only looked at, `readonly`, a lock is always a shared one, and its file is
    never made. As long as there is none, or it may not be opened, nothing is locked: then a write
    that is under way may be seen in part, as after a crash, and its lines are left out.
    Without `make` the file is one that has another purpose, and has to be there.
    """

    def __init__(self, path: str, *, readonly: bool = False, make: bool = True) -> None:
        self.path = path
        self.descriptor = -1
        self._readonly = readonly
        self._make = make and not readonly
        self._identity = 0, 0
        self._open()

    def _open(self) -> None:
        path, flags = self.path, os.O_CREAT | os.O_RDWR if self._make else os.O_RDONLY
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        refuse_special(path)
        try:
            try:
                self.descriptor = os.open(path, flags, 0o600)
            except FileNotFoundError:
                if not self._make:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(os.path.dirname(path), 0o700)  # removed while the store was open
                self.descriptor = os.open(path, flags, 0o600)
            look = os.fstat(self.descriptor)
        except OSError as error:
            if self._readonly and error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
                return
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise Unsupported(f"{path} {NOT_A_FILE}") from error
            if error.errno in UNWRITABLE:
                raise ReadOnly(path, reason=os.strerror(error.errno)) from error
            text = f"{path} cannot be opened: {error.strerror}"
            raise Unavailable(text, retryable=error.errno in EXHAUSTED) from error
        self._identity = look.st_dev, look.st_ino

    @property
    def is_there(self) -> bool:
        """Whether others who open the lock by its name get this very file."""
        try:
            look = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return (look.st_dev, look.st_ino) == self._identity

    def try_take(self, kind: int) -> bool:
        if self._readonly:
            kind = SHARED
            if self.descriptor < 0:
                self._open()  # a writer may have made it meanwhile
        while self.descriptor >= 0:
            if not try_flock(self.descriptor, kind, self.path):
                return False
            if self.is_there:
                return True
            _log.warning("%s was removed or replaced: it is made anew, its leases end", self.path)
            self.close()
            self._open()
        return True

    def take(self, kind: int, seconds: float) -> None:
        wait_for(lambda: self.try_take(kind), self.path, seconds)

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

    Who wants to shut it says so by another lock, and who comes then lets it go first. Otherwise
    readers that come before others have left would keep it open for ever. They wait a short while
    only, so that the one who wants it can stop no others.
    """

    def __init__(self, path: str, seconds: float, *, readonly: bool = False) -> None:
        self._lock = FileLock(path, readonly=readonly)
        self._wanted = FileLock(f"{path}-wanted", readonly=readonly)  # by us
        self._others = FileLock(f"{path}-wanted", readonly=readonly)  # to see whether it is wanted
        self._readonly = readonly
        self._seconds = seconds
        self._mutex = threading.Condition()
        self._shutting = threading.Lock()
        self._looking = threading.Lock()
        self._own = threading.local()  # how often a thread is inside
        self._inside = 0
        self._closed_by: int | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Inside, nothing that is there will be removed."""
        me = threading.get_ident()
        own = getattr(self._own, "inside", 0)
        if not own and self._closed_by != me:  # else others wait for us
            self._give_way()
        with self._mutex:
            # The one that has shut it may pass: a purge reads what it is about to remove.
            self._mutex.wait_for(lambda: self._closed_by in (None, me))
            if not self._inside and self._closed_by is None:
                self._lock.take(SHARED, self._seconds)
            self._inside += 1
        self._own.inside = own + 1
        try:
            yield
        finally:
            self._own.inside = own
            with self._mutex:
                self._inside -= 1
                if not self._inside and self._closed_by is None:
                    self._lock.release()
                self._mutex.notify_all()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Alone: no thread of any process is inside."""
        with self._shutting:
            self._wanted.take(EXCLUSIVE, self._seconds)
            try:
                self._shut()
            finally:
                self._wanted.release()
            try:
                yield
            finally:
                with self._mutex:
                    self._closed_by = None
                    self._lock.release()
                    self._mutex.notify_all()

    def _shut(self) -> None:
        with self._mutex:
            if not self._mutex.wait_for(lambda: not self._inside, self._seconds):
                text = f"others have read in this store for over {self._seconds:g} seconds; "
                raise Unavailable(text + "nothing was written")
            self._lock.take(EXCLUSIVE, self._seconds)
            self._closed_by = threading.get_ident()

    def _give_way(self) -> None:
        """Wait while others want to shut it, but not for long."""
        deadline = 0.0
        while not self._is_free():
            deadline = deadline or time.monotonic() + GIVE_WAY_SECONDS
            if time.monotonic() > deadline:
                return
            time.sleep(_NAP_SECONDS_MAX)

    def _is_free(self) -> bool:
        with self._looking:
            if not self._others.try_take(SHARED):
                return False
            self._others.release()
            return True

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
        for lock in (self._lock, self._wanted, self._others):
            lock.close()
