"""Packing in the background: what became cold is compressed while a process runs anyway."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import closing

from clew.address import namespaces, open_engine
from clew.core.errors import ClewError
from clew.upkeep.background import STEP_SECONDS, Background

_log = logging.getLogger("clew")

REST_SECONDS = 3600.0  # after everything that is cold was packed
_BUSY_SECONDS = 60.0


class Packer(Background):
    """Packs a store as `store.pack()` does, a run of entries or a few at a time.

    Each run is compressed without any lock, and put in a transaction of its own; appends wait for
    that one alone. Each step goes on where the one before it stopped. When nothing cold is left it
    rests for an hour, and begins again. A kind of store that packs nothing, or only when it is
    asked to, is left alone.
    """

    name = "clew pack"

    def __init__(
        self,
        address: str | os.PathLike[str] | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        super().__init__(clock=clock, wait=wait)
        self._address = address
        self._stopped: dict[str, str] = {}  # where, in each namespace that is not done yet
        self._done: set[str] = set()  # the other namespaces that this round came by

    def step(self) -> float:
        until = self._clock() + STEP_SECONDS
        try:
            for name in sorted(set(namespaces(self._address)) - self._done):
                opened = open_engine(self._address, create=False, namespace=name)
                with closing(opened) as engine:
                    if not engine.properties.packs_unasked:
                        return REST_SECONDS
                    left = max(0.0, until - self._clock())
                    after = self._stopped.get(name, "")
                    done = engine.pack(max_seconds=left, after=after)
                if not done.complete:
                    self._stopped[name] = done.stopped or ""
                    return 0.0
                self._stopped.pop(name, None)
                self._done.add(name)
        except (ClewError, OSError) as error:
            _log.info("the store is not packed now: %s", error)
            return _BUSY_SECONDS
        self._done.clear()
        return REST_SECONDS
