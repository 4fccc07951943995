"""The queue in which the processes that write one store wait.

SQLite has a lock for writers, but no queue before it: a process that finds it taken sleeps, looks
again, and gets it if it looks at the right moment. With many processes most looks are in vain,
and some wait very long. So each process first takes a lock that the kernel keeps a queue for, and
then, at the front, finds SQLite's lock free.

The queue is a courtesy: SQLite's lock is the one that counts, for us and for every other program.
A process that does not reach the front in time, because the one that is there was stopped for one,
goes to SQLite all the same, and so does one that cannot queue at all. The kernel takes a process
that dies out of the queue.

The lock is one of an open file, on the first byte of the file of the host's lock. Only on Linux is
it apart from `flock`, which the host's lock is; elsewhere there is no queue.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from clew.engines.shared.tables.rows import patience
from clew.engines.sqlite import place

CROWD_WRITES = 64  # so long after somebody had to wait, others are expected to wait again
_SHARE = 0.25  # of a writer's patience; the rest is left for SQLite's lock
_TAKEN = (errno.EAGAIN, errno.EACCES)

if sys.platform == "linux":  # one way: others have no queue
    import fcntl

    def _request(kind: int) -> bytes:
        return struct.pack("hhqqi", kind, os.SEEK_SET, 0, 1, 0)  # C's struct flock

    _ENTER, _LEAVE = _request(fcntl.F_WRLCK), _request(fcntl.F_UNLCK)


class WriterQueue:
    """The place of one handle in the queue. It serves one thread at a time.

    Nothing but a signal ends the wait for such a lock, and a library has no signals of its own. So
    a thread of the queue waits, when there is something to wait for. At the front it does the work
    itself: to wake the caller first would let the whole queue wait for that.
    """

    def __init__(self, store: str, patience_seconds: float) -> None:
        self._store = store
        self._path = f"{store}-lock"
        self._seconds = patience_seconds
        self._patience = patience(patience_seconds)
        self._waiting_since: float | None = None
        self._was_interrupted = False
        self._lock: _Lock | None = None  # opened when it is needed first
        self._moved = False  # the name of the lock leads to another file by now
        self._left: _Task | None = None  # what was done before it came to the front
        self._crowd = 0

    @property
    def is_crowded(self) -> bool:
        """Whether this process had to wait for others not long ago."""
        return self._crowd > 0

    def run(self, work: Callable[[], None], afterwards: Callable[[], None]) -> None:
        """Do `work` at the front of the queue, or elsewhere if it does not get there in time.

        What is left to be done `afterwards` is done when others may come to the front.
        """
        self._crowd = max(0, self._crowd - 1)
        lock = self._lock
        if lock is None or self._moved:
            lock = self._open()
        if self._left is not None and self._left.is_over:
            self._left = None
        if lock.descriptor < 0 or self._left is not None:  # no queue, or one that does not move
            work()
            afterwards()
            return
        try:
            fcntl.fcntl(lock.descriptor, fcntl.F_OFD_SETLK, _ENTER)
        except OSError as error:
            if error.errno in _TAKEN and self._seconds > 0:
                self._crowd = CROWD_WRITES
                self._wait(lock, work, afterwards)
            else:
                work()  # a file system without such locks, or a caller without patience
                afterwards()
            return
        try:
            work()
        finally:
            _leave(lock.descriptor)
        afterwards()

    def _wait(self, lock: _Lock, work: Callable[[], None], afterwards: Callable[[], None]) -> None:
        task = _Task(work, afterwards)
        self._waiting_since = time.monotonic()
        try:
            try:
                if lock.hand_over(task):
                    task.done.acquire(timeout=min(self._seconds * _SHARE, threading.TIMEOUT_MAX))
            except BaseException:  # Ctrl-C
                self._was_interrupted = True
                self._withdraw(task)
                raise
            if self._withdraw(task):
                work()
                afterwards()
            elif task.error is not None:
                raise task.error
        finally:
            self._waiting_since = None
            self._was_interrupted = False

    def _withdraw(self, task: _Task) -> bool:
        """Whether it had not begun, and now never will. Otherwise it is over."""
        if task.claim.acquire(blocking=False):
            task.work = task.afterwards = None
            self._left = task
            return True
        interruption: BaseException | None = None
        while not task.is_over:
            # The thread uses the caller's connection: the caller may not go on before it has ended.
            try:
                task.done.acquire()
            except BaseException as error:
                interruption, self._was_interrupted = error, True
        if interruption is not None:
            raise interruption
        return False

    def ask_again(self, tries: int) -> bool:
        """The busy handler of the connection that writes: whether to ask SQLite once more."""
        if tries == 0:
            # The time in the queue counts: a writer waits no longer than it was told to.
            since = self._waiting_since
            waited = 0.0 if since is None else time.monotonic() - since
            self._patience = patience(self._seconds - waited)
            # That others write while we are at the front may mean that theirs is another queue.
            found, known = place.which(self._path), self._lock and self._lock.identity
            self._moved = found is not None and found != known
        return not self._was_interrupted and self._patience(tries)

    def _open(self) -> _Lock:
        self.close()
        self._lock = _Lock(self._path, self._store)
        return self._lock

    def close(self) -> None:
        """Leave the queue; the next work enters it again."""
        if self._lock is not None:
            self._lock.close(wait=self._left is None or self._left.is_over)
        self._lock = self._left = None
        self._moved = False


class _Task:
    """Work that is done once: by the thread of the queue, or by the one that waits for it."""

    def __init__(self, work: Callable[[], None], afterwards: Callable[[], None]) -> None:
        self.work: Callable[[], None] | None = work
        self.afterwards: Callable[[], None] | None = afterwards
        self.claim = threading.Lock()
        self.done = threading.Lock()
        self.done.acquire()
        self.is_over = False
        self.error: BaseException | None = None

    def do(self, leave: Callable[[], None]) -> None:
        """All of it, if it is still wanted; `leave` the front in any case."""
        afterwards: Callable[[], None] | None = None
        try:
            if self.claim.acquire(blocking=False):
                work, self.work = self.work, None
                assert work is not None
                work()
                afterwards = self.afterwards
        except BaseException as error:
            self.error = error
        leave()
        try:
            if afterwards is not None:
                afterwards()
        except BaseException as error:
            self.error = error
        self.afterwards = None


class _Lock:
    """The lock's file, opened, and the thread that waits for it, from the first wait on."""

    def __init__(self, path: str, store: str) -> None:
        self.descriptor = -1
        self.identity: place.Id | None = place.which(path)
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if sys.platform != "linux":
            return
        self.descriptor = place.open_lock(path, store, os.O_RDWR)
        if self.descriptor >= 0:
            found = os.fstat(self.descriptor)
            self.identity = found.st_dev, found.st_ino

    def hand_over(self, task: _Task) -> bool:
        """Let the thread queue, and do the task at the front. False: there is no thread."""
        if self._thread is None:
            # It does not know this object, which can go while the thread waits for a task.
            arguments = (self.descriptor, self._tasks)
            thread = threading.Thread(
                target=_attend, args=arguments, name="clew-queue", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter is about to end
                task.is_over = True
                return False
            self._thread = thread
        self._tasks.put(task)
        return True

    def close(self, *, wait: bool = False) -> None:
        """With `wait` the thread has ended when this returns; it must not be in the queue."""
        descriptor, self.descriptor = self.descriptor, -1
        if self._thread is not None:
            self._tasks.put(None)  # it closes the file
            if wait:
                self._thread.join()
        elif descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def _attend(descriptor: int, tasks: SimpleQueue[_Task | None]) -> None:
    """What the thread of a queue does: wait for the front, work, and again."""
    while (task := tasks.get()) is not None:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _ENTER)
        except OSError:  # no test: the system has no more of them
            pass  # no more locks: SQLite's counts anyway
        task.do(lambda: _leave(descriptor))
        task.is_over = True
        task.done.release()
        del task  # its error may know the store, which may be closed by being forgotten
    os.close(descriptor)


def _leave(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LEAVE)
    except OSError:  # no test: as above
        pass  # it was never had
