"""Waiting for others that are in the way: in short random naps, up to a limit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def patience(seconds: float) -> Callable[[int], bool]:
    """A busy handler for SQLite.

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


def patiently(work: Callable[[], T], busy: type[Exception], seconds: float) -> T:
    """Do what others may be in the way of; the error that says so, if they are for too long.

    For what asks no busy handler: of two processes that empty the log of a SQLite file, one fails
    at once.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except busy:
            if time.monotonic() >= deadline:
                raise
            _nap()


def _nap() -> None:
    time.sleep(random.uniform(0.0001, 0.002))
