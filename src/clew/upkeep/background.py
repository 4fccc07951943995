"""Upkeep in the background of a process that runs anyway, at a hundredth of a core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

SHARE = 0.01  # of a core
STEP_SECONDS = 0.2
_END_SECONDS = 5.0


class Background:
    """Works in a thread of its own, while the process does something else.

    It works for a fifth of a second at a time and then rests for a hundred times as long as that
    took, so that it takes a hundredth of a core at most. The end of the process may cut a step
    short: what a step changes is whole at every moment.
    """

    name = "clew"

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._clock = clock
        self._stop = threading.Event()
        self._wait = wait or self._stop.wait
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_END_SECONDS)

    def run(self) -> None:
        """Until it is told to stop."""
        rest = self.first_rest()
        while not self._wait(rest):
            begun = self._clock()
            least = self.step()
            rest = max((self._clock() - begun) / SHARE, least)

    def first_rest(self) -> float:
        """How many seconds until there is something to do."""
        return 0.0

    def step(self) -> float:
        """Work for STEP_SECONDS; how many seconds it has to rest at least."""
        raise NotImplementedError
