"""Waiting for other processes that have the same SQLite file: in short naps, up to a limit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import apsw


def patience(seconds: float) -> Callable[[int], bool]:
    """A busy handler: wait in short random naps, up to a limit.

    SQLite's own backs off to 100 ms, which starves the process that has waited longest.
    """
    deadline = 0.0

    def wait(tries: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        if tries == 0:
            deadline = now + seconds
        if now >= deadline:
            return False
        _nap()
        return True

    return wait


def empty_log(db: apsw.Connection, seconds: float) -> None:
    """Leave nothing in the write-ahead log of a file. BusyError: others read it for too long.

    That another process is at the same at this moment SQLite says at once, without asking any busy
    handler; so we ask again ourselves.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                raise
            _nap()


def _nap() -> None:
    time.sleep(random.uniform(0.0001, 0.002))
