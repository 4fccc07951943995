"""Group commit: writers that come while another one is at work share the next transaction.

The first writer leads: it takes everybody who waits into one transaction and one sync. When it
is done, it hands the lead to the next who waits, so that nobody works for others for ever. A
lone writer leads at once, and pays two uncontended locks for it.

Where a sync is slow, the leader first gives those of the last batch a moment to come back:
without it two halves of the writers would take turns, each waiting for the other's sync.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from clew.errors import Unavailable

T = TypeVar("T")
BATCH_MAX = 64
SLOW_COMMIT_SECONDS = 0.0005  # below this, waiting for others costs more than it saves
GATHER_SECONDS_MAX = 0.002


class Ticket(Generic[T]):
    """One piece of work and what became of it."""

    __slots__ = ("done", "error", "promoted", "ready", "result", "work")

    def __init__(self, work: Callable[[Any], T]) -> None:
        self.work = work
        self.ready: threading.Lock | None = None
        self.done = False
        self.promoted = False
        self.result: T | None = None
        self.error: BaseException | None = None

    def outcome(self) -> T:
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class GroupCommit:
    """Runs works in shared transactions. `transact` commits a batch and fills in its tickets."""

    def __init__(self, transact: Callable[[list[Ticket[Any]]], None]) -> None:
        self._transact = transact
        self._mutex = threading.Lock()
        self._queue: list[Ticket[Any]] = []
        self._leading = False
        self._writers = 1  # how many were at work around the last commit
        self._patience_seconds = 0.0
        self._arrived = threading.Condition(self._mutex)

    def run(self, work: Callable[[Any], T]) -> T:
        ticket = Ticket(work)
        with self._mutex:
            self._queue.append(ticket)
            lead = not self._leading
            self._leading = True
            if not lead:
                ticket.ready = threading.Lock()
                ticket.ready.acquire()
                self._arrived.notify()
        if not lead:
            self._wait(ticket)
        if not ticket.done:
            self._lead()
        return ticket.outcome()

    def _wait(self, ticket: Ticket[Any]) -> None:
        assert ticket.ready is not None
        try:
            ticket.ready.acquire()
        except BaseException:
            # Interrupted (Ctrl-C) while queued: step back, and pass on the lead if it came.
            with self._mutex:
                if ticket in self._queue:
                    self._queue.remove(ticket)
                if ticket.promoted and not ticket.done:
                    self._promote()
            raise

    def _lead(self) -> None:
        with self._mutex:
            if self._patience_seconds and len(self._queue) < self._writers:
                everybody = lambda: len(self._queue) >= self._writers  # noqa: E731
                self._arrived.wait_for(everybody, self._patience_seconds)
            batch, self._queue = self._queue[:BATCH_MAX], self._queue[BATCH_MAX:]
        began = time.monotonic()
        try:
            self._transact(batch)
        except BaseException as error:
            _fail(batch, error)
        took = time.monotonic() - began
        with self._mutex:
            self._writers = len(batch) + len(self._queue)
            slow = took > SLOW_COMMIT_SECONDS
            self._patience_seconds = min(took / 2, GATHER_SECONDS_MAX) if slow else 0.0
            self._promote()
        for ticket in batch:
            ticket.done = True
            if ticket.ready is not None and ticket.ready.locked():
                ticket.ready.release()

    def _promote(self) -> None:
        if not self._queue:
            self._leading = False
            return
        heir = self._queue[0]
        heir.promoted = True
        assert heir.ready is not None
        heir.ready.release()


def _fail(batch: list[Ticket[Any]], error: BaseException) -> None:
    """The leader was interrupted: it gets its exception, the others learn that it is unknown."""
    batch[0].error = error
    for ticket in batch[1:]:
        ticket.error = Unavailable(
            "the commit was interrupted; whether it happened is unknown: retry with the same ids",
            committed=None,
        )
