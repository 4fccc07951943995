"""The sync of the log after the commit, where several processes write.

As a rule SQLite syncs the log within the commit. Where writers wait in the queue, each would wait
for the syncs of all who came before it. So there the commit only writes, the writer leaves the
front, and syncs the log before it acknowledges anything. A sync takes along what others have
written before it, so those of several processes run at once.

What was committed can be read in between, and is not on disk yet. So a writer holds a lock from
before its commit until its sync has ended: shared, on the second byte of the file of the host's
lock. A reader who finds it held syncs the log too, before it gives out what it has read. Nobody
waits for that lock, and the kernel takes it from a process that dies.
"""

from __future__ import annotations

import os
import struct
import sys
import threading

from clew.core.errors import Unavailable
from clew.engines.sqlite import place

if sys.platform == "linux":  # one way: others sync in the commit
    import fcntl

    def _request(kind: int) -> bytes:
        return struct.pack("hhqqi", kind, os.SEEK_SET, 1, 1, 0)  # C's struct flock

    _HOLD, _GIVE_BACK = _request(fcntl.F_RDLCK), _request(fcntl.F_UNLCK)
    _ASK = _request(fcntl.F_WRLCK)  # the lock of any other open file is in its way
    _FREE = struct.pack("h", fcntl.F_UNLCK)


class LateSync:
    """The log of one handle. One thread at a time writes; any number may read."""

    def __init__(self, store: str, lock: str) -> None:
        self._store, self._lock = store, lock
        self._log_name = f"{store}-wal"
        self._mutex = threading.Lock()  # held while files are opened, closed or synced
        self._log: tuple[int, place.Id] | None = None
        # The lock is one of an open file, so who asks for it needs another one than who holds it.
        self._holder = self._asker = -1
        self._is_open = False
        self._is_held = False

    def announce(self) -> bool:
        """From now on others sync what they read. False: the commit has to sync for itself."""
        if not self._is_open:
            self._open()
        try:
            with self._mutex:
                if self._holder < 0 or self._find_log() is None:
                    return False
            fcntl.fcntl(self._holder, fcntl.F_OFD_SETLK, _HOLD)
        except OSError:  # no test: a file system without such locks
            return False
        self._is_held = True
        return True

    def end(self) -> None:
        """What was announced is synced, or will not be acknowledged."""
        if self._is_held:
            self._is_held = False
            fcntl.fcntl(self._holder, fcntl.F_OFD_SETLK, _GIVE_BACK)

    @property
    def is_awaited(self) -> bool:
        """Whether what can be read may not be on disk yet."""
        if not self._is_open:
            self._open()
        if self._asker < 0:
            return False
        try:
            answer: bytes = fcntl.fcntl(self._asker, fcntl.F_OFD_GETLK, _ASK)
        except OSError:  # no test: a file system without such locks
            return False
        return not answer.startswith(_FREE)

    def sync(self) -> None:
        """All that is in the log now is on disk when this returns. OSError: it may not be, and
        nothing tells what is. Unavailable: the log cannot be opened; it is as it was."""
        with self._mutex:
            try:
                log = self._find_log()
            except OSError as error:
                text = f"{self._log_name} cannot be opened, to sync it: {error.strerror}"
                raise Unavailable(text, committed=None) from error
            # Without a log all is in the file, which was synced before the log was taken away.
            if log is not None:
                sync(log)

    def close(self) -> None:
        """The next use opens the files again."""
        with self._mutex:
            self._is_open = self._is_held = False
            self._forget_log()
            for descriptor in (self._holder, self._asker):
                if descriptor >= 0:
                    os.close(descriptor)
            self._holder = self._asker = -1

    def __del__(self) -> None:
        self.close()

    def _open(self) -> None:
        with self._mutex:
            if self._is_open:  # no test: another thread has opened them meanwhile
                return
            self._is_open = True
            if sys.platform == "linux":  # one way: as above
                self._holder = place.open_lock(self._lock, self._store, os.O_RDONLY)
                self._asker = place.open_lock(self._lock, self._store, os.O_RDONLY)

    def _find_log(self) -> int | None:
        """The log that there is now. It stays open from the first time on: a file that is opened
        when a write to it has failed may not be told so."""
        found = place.which(self._log_name)
        if self._log is None or self._log[1] != found:
            self._forget_log()
            if found is None:
                return None
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self._log = os.open(self._log_name, flags), found
        return self._log[0]

    def _forget_log(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            os.close(log[0])


# A name of its own, so that a test can let it fail.
sync = getattr(os, "fdatasync", os.fsync)
