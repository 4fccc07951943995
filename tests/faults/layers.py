"""What can be put between an engine and the system: a fault at the N-th call, or a recording.

SQLite's file layer (`vfs.py`) and that of the files engine (`disks.py`) tell a layer of every
call that changes something. The layer lets it happen, or not, or half.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

WRITE, SYNC, SYNC_FOLDER = "write", "sync", "sync folder"
UNCHECKED_SYNC = "sync folder, unchecked"  # SQLite's own, whose failure it ignores


@dataclass(frozen=True)
class Call:
    """One call that changes something. `offset` None: at the end of the file."""

    name: str
    path: str
    data: bytes = b""
    offset: int | None = None
    size: int = 0
    target: str = ""

    @property
    def syncs(self) -> bool:
        return self.name in (SYNC, SYNC_FOLDER)


class Layer:
    """Lets everything happen."""

    def around(self, call: Call, whole: Callable[[], T], half: Callable[[], T] | None = None) -> T:
        """Do a call; `half` does the first half of a write."""
        return whole()


# --- faults ---------------------------------------------------------------------------------

EIO = "EIO"
EIO_ON = "EIO from here on"
ENOSPC = "ENOSPC"
ENOSPC_ON = "ENOSPC from here on"
SHORT = "short write, then ENOSPC"
LESS = "short write"  # legal: the caller goes on with the rest
TORN = "torn write, then death"
KILL_BEFORE = "SIGKILL before"
KILL_AFTER = "SIGKILL after"

ERRORS = (EIO, EIO_ON, ENOSPC, ENOSPC_ON, SHORT, LESS)
DEATHS = (TORN, KILL_BEFORE, KILL_AFTER)
OF_WRITES = (SHORT, LESS, TORN)


class Injector(Layer):
    """Counts the calls while it is armed, and does something bad at one of them."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.hit: Call | None = None
        self._armed = False
        self._fault: str | None = None
        self._at = -1

    def arm(self, fault: str | None = None, at: int = -1) -> None:
        self._armed, self._fault, self._at = True, fault, at

    def disarm(self) -> None:
        self._armed = False

    def around(self, call: Call, whole: Callable[[], T], half: Callable[[], T] | None = None) -> T:
        if not self._armed:
            return whole()
        index = len(self.calls)
        self.calls.append(call)
        if self._fault is None or index < self._at:
            return whole()
        if index == self._at:
            self.hit = call
            return self._strike(call, whole, half)
        return self._after(call, whole)

    def _strike(self, call: Call, whole: Callable[[], T], half: Callable[[], T] | None) -> T:
        if self._fault == KILL_AFTER:
            whole()
        try:
            if self._fault in OF_WRITES:
                assert half is not None
                return half()
        finally:
            if self._fault in DEATHS:
                die()
        raise OSError(errno.EIO if self._fault in (EIO, EIO_ON) else errno.ENOSPC, "injected")

    def _after(self, call: Call, whole: Callable[[], T]) -> T:
        """A fault that goes on: a dead disk fails every call, a full one only those that grow."""
        if self._fault == EIO_ON:
            raise OSError(errno.EIO, "injected")
        if self._fault in (ENOSPC_ON, SHORT) and call.name in (WRITE, "create", "make folder"):
            raise OSError(errno.ENOSPC, "injected")
        return whole()


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("alive")


def in_child(work: Callable[[Callable[[bytes], Any]], None]) -> bytes:
    """Run something in a child that may be killed; what it told before, and its end."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(told)
            work(lambda data: os.write(tell, data))
        except BaseException as error:
            os.write(tell, f"<{type(error).__name__}: {error}>".encode())
        finally:
            os._exit(0)
    os.close(tell)
    heard = b""
    while part := os.read(told, 4096):
        heard += part
    os.close(told)
    _, status = os.waitpid(child, 0)
    return heard + (b"" if os.WIFEXITED(status) else b"+")
