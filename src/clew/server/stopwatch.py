"""How long things took that the viewer did: each operation of the store, and each page."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from msgspec import Struct

from clew.core.wrapper import Call

KEPT = 10
_WAITS = frozenset({"wait"})  # to last long is what it is for


class Lap(Struct, frozen=True, order=True):
    """Something that was done once."""

    seconds: float
    name: str
    thread: str
    time: datetime


class Laps(Struct):
    """Everything of one name."""

    name: str
    times: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    @property
    def mean(self) -> float:
        return self.seconds / self.times if self.times else 0.0


class Stopwatch:
    """Sums by name, and the longest of all, since it was made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._laps: dict[str, Laps] = {}
        self._longest: list[Lap] = []  # the longest first
        self.began = datetime.now(UTC)

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        """For `clew.core.wrapper.wrap`: an engine whose operations are timed."""
        with self.measure(call.operation, call.thread or ""):
            yield

    @contextmanager
    def measure(self, name: str, thread: str = "") -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            if name not in _WAITS:
                self.note(name, thread, time.perf_counter() - began)

    def note(self, name: str, thread: str, seconds: float) -> None:
        with self._lock:
            laps = self._laps.setdefault(name, Laps(name))
            laps.times += 1
            laps.seconds += seconds
            laps.longest = max(laps.longest, seconds)
            if len(self._longest) < KEPT or seconds > self._longest[-1].seconds:
                self._longest.append(Lap(seconds, name, thread, datetime.now(UTC)))
                self._longest.sort(reverse=True)
                del self._longest[KEPT:]

    def longest(self) -> list[Lap]:
        with self._lock:
            return list(self._longest)

    def sums(self) -> list[Laps]:
        """By name, what took the most time in all first."""
        with self._lock:
            found = [
                Laps(one.name, one.times, one.seconds, one.longest) for one in self._laps.values()
            ]
        return sorted(found, key=lambda one: -one.seconds)
