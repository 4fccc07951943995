"""Work behind the pages that reads a whole store: done once, and the pages say how far it is.

The counts of usage and the index of words are built the first time that they are needed. A page
must not wait for that, and ten pages must not do it ten times. Later they only read on, which
pages wait for. A proof that the store is whole runs in the same way, whenever it is asked for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from msgspec import Struct

from clew.core.engine import Progress
from clew.core.errors import ClewError, Closed
from clew.core.model import Problem
from clew.store import Store

WAIT_SECONDS = 0.25  # a page waits so long, for most stores need no more


class Build:
    """One such thing. `done` of `total` tell how far it is."""

    def __init__(self, what: Callable[[Progress], object]) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._runner: threading.Thread | None = None
        self._is_closed = False
        self._error: Exception | None = None
        self.is_ready = False
        self.done = self.total = 0

    def ready(self, wait_seconds: float | None = None) -> bool:
        """Whether it is there; begins to build it if no thread did, and waits for a moment.

        Raises what the last attempt has failed with, once: the next caller tries again.
        """
        if self.is_ready:
            return True
        with self._lock:
            error, self._error = self._error, None
            if error is not None:
                raise error
            if self._runner is None:
                self._runner = threading.Thread(target=self._run, name="clew-build", daemon=True)
                self._runner.start()
            runner = self._runner
        runner.join(WAIT_SECONDS if wait_seconds is None else wait_seconds)
        with self._lock:
            error, self._error = self._error, None
        if error is not None:
            raise error
        return self.is_ready

    def close(self) -> None:
        """Stop building: the store is about to be closed."""
        self._is_closed = True
        runner = self._runner
        if runner is not None:
            runner.join()

    def _run(self) -> None:
        try:
            self._what(self._told)
            self.is_ready = True
        except Exception as error:
            if not isinstance(error, ClewError):
                logging.getLogger("clew").exception("the viewer could not build what it needs")
            self._error = error
        finally:
            with self._lock:
                self._runner = None

    def _told(self, done: int, total: int) -> None:
        if self._is_closed:
            raise Closed("the viewer ends")
        self.done, self.total = done, total


class Proof(Struct):
    """A verify that runs, or has run. There is one for a server: it reads the whole store."""

    done: int = 0
    total: int = 0
    quick: bool = False
    running: bool = False
    problems: list[Problem] | None = None
    failed: str = ""

    @property
    def share(self) -> int:
        return min(100, int(100 * self.done / self.total)) if self.total else 0

    def begin(self, store: Store, *, quick: bool) -> None:
        """Unless it runs already."""
        if self.running:
            return
        self.running, self.quick, self.problems, self.failed = True, quick, None, ""
        self.done = self.total = 0
        threading.Thread(target=self._run, args=(store,), daemon=True).start()

    def _run(self, store: Store) -> None:
        try:
            self.problems = store.verify(quick=self.quick, progress=self._told)
        except ClewError as error:
            self.failed = str(error)
        finally:
            self.running = False

    def _told(self, done: int, total: int) -> None:
        self.done, self.total = done, total
