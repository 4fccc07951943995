"""Group commit: writers that come while another one is at work share the next transaction.

The first writer leads: it takes all writers that wait into one transaction and one sync. When it
is done, it hands the lead to the next writer that waits, so that no writer works for others for
ever. A lone writer leads at once, and pays two uncontended locks for it.

Where a sync is slow, the leader first gives the writers of the last batch a moment to come back:
without it two halves of the writers would take turns, each waiting for the other's sync.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from clew.core.errors import Unavailable

T = TypeVar("T")
BATCH_MAX = 64  # so that the first of a batch does not wait for ever for the last
SLOW_COMMIT_SECONDS = 0.0005  # below this, waiting for others costs more than it saves
GATHER_SECONDS_MAX = 0.002


class Ticket(Generic[T]):
    """One piece of work and what became of it."""

    __slots__ = ("error", "result", "work")

    def __init__(self, work: Callable[[Any], T]) -> None:
        self.work = work
        self.result: T | None = None
        self.error: BaseException | None = None

    def outcome(self) -> T:
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class Writer:
    """A thread that waits in the queue, and what it wants to have written: BATCH_MAX at most."""

    __slots__ = ("leads", "ready", "tickets")

    def __init__(self, tickets: list[Ticket[Any]]) -> None:
        self.tickets = tickets
        self.ready: threading.Lock | None = None
        self.leads = False


class GroupCommit:
    """Runs works in shared transactions. `transact` commits a batch and fills in its tickets."""

    def __init__(self, transact: Callable[[list[Ticket[Any]]], None]) -> None:
        self._transact = transact
        self._mutex = threading.Lock()
        self._queue: list[Writer] = []
        self._served: list[Writer] = []  # those whose tickets are being committed
        self._leading = False
        self._writers = 1  # how many were at work around the last commit
        self._patience_seconds = 0.0
        self._arrived = threading.Condition(self._mutex)
        self._gathers = False  # whether a leader waits for others to arrive

    @property
    def idle(self) -> bool:
        """Whether no writer is at work or waits."""
        with self._mutex:
            return not self._leading

    def run(self, work: Callable[[Any], T]) -> T:
        ticket = Ticket(work)
        self._write([ticket])
        return ticket.outcome()

    def run_each(self, works: Sequence[Callable[[Any], T]]) -> list[Ticket[T]]:
        """Several works of one thread, each with an outcome of its own."""
        tickets = [Ticket(work) for work in works]
        for start in range(0, len(tickets), BATCH_MAX):
            self._write(tickets[start : start + BATCH_MAX])
        return tickets

    def _write(self, tickets: list[Ticket[Any]]) -> None:
        writer = Writer(tickets)
        try:
            self._enter(writer)
            if not writer.leads:
                self._wait(writer)
            if writer.leads:
                self._lead(writer)
        except BaseException:
            # Ctrl-C, at any moment: step back, and pass the lead on if it is ours, so that the
            # others do not wait for ever.
            self._step_back(writer)
            raise

    def admit(self, batch: list[Ticket[Any]]) -> None:
        """Take in writers that came while the leader of a batch had to wait for other processes."""
        if self._queue:
            with self._mutex:
                count = self._fitting(BATCH_MAX - len(batch))
                come = self._queue[:count]
                self._served += come
                del self._queue[:count]
            batch += _tickets(come)

    def _fitting(self, room: int) -> int:
        """How many of the next writers have no more tickets than that. Holds the mutex."""
        for count, writer in enumerate(self._queue):
            room -= len(writer.tickets)
            if room < 0:
                return count
        return len(self._queue)

    def _enter(self, writer: Writer) -> None:
        with self._mutex:
            writer.leads = not self._leading
            self._leading = True
            if not writer.leads:
                # A lock of its own to sleep on: a condition would wake all writers for each batch.
                writer.ready = threading.Lock()
                writer.ready.acquire()
            self._queue.append(writer)
            if self._gathers:
                self._arrived.notify()

    def _wait(self, writer: Writer) -> None:
        """Until another writer has committed the tickets, or made this one the leader."""
        assert writer.ready is not None
        writer.ready.acquire()

    def _lead(self, writer: Writer) -> None:
        served: list[Writer] = []
        took = 0.0
        try:
            try:
                if self._patience_seconds:
                    self._gather()
                with self._mutex:
                    count = self._fitting(BATCH_MAX)
                    served, self._queue = self._queue[:count], self._queue[count:]
                    self._served = served
                batch = _tickets(served)
                began = time.monotonic()
                self._transact(batch)
                took = time.monotonic() - began
            except BaseException as error:
                if not served:
                    raise
                _fail(_tickets(served), error)
            with self._mutex:
                self._served = []  # or what was written would live until the next commit
                self._writers = len(served) + len(self._queue)
                slow = took > SLOW_COMMIT_SECONDS
                self._patience_seconds = min(took / 2, GATHER_SECONDS_MAX) if slow else 0.0
                self._hand_on(writer)
        finally:
            try:
                _wake(served)
            except BaseException:
                _wake(served)  # Ctrl-C in the middle of it: those still asleep must wake too
                raise

    def _gather(self) -> None:
        """Worth it: the writers of the last batch are about to come back."""
        with self._mutex:
            self._gathers = True
            try:
                self._arrived.wait_for(
                    lambda: len(self._queue) >= self._writers, self._patience_seconds
                )
            finally:
                self._gathers = False

    def _hand_on(self, writer: Writer) -> None:
        """Give the lead to the next writer that waits. Holds the mutex."""
        # Each time in one step, between whose halves no interrupt comes: of two leaders each
        # would write into the transaction of the other, and for none all would wait.
        if self._queue:
            writer.leads, self._queue[0].leads = False, True
            self._rouse()
        else:
            writer.leads = self._leading = False

    def _rouse(self) -> None:
        """Wake the writer that has the lead, if it sleeps. Holds the mutex."""
        if self._queue and self._queue[0].leads:
            _wake(self._queue[:1])

    def _step_back(self, writer: Writer) -> None:
        with self._mutex:
            if writer in self._queue:
                self._queue.remove(writer)
            if writer.leads:
                self._hand_on(writer)
            self._rouse()  # the interrupt may have come between the two halves of handing on


def _tickets(writers: list[Writer]) -> list[Ticket[Any]]:
    return [ticket for writer in writers for ticket in writer.tickets]


def _wake(writers: list[Writer]) -> None:
    for writer in writers:
        if writer.ready is not None and writer.ready.locked():
            writer.ready.release()


def _fail(batch: list[Ticket[Any]], error: BaseException) -> None:
    """The leader was interrupted: it gets its exception, the others learn that it is unknown."""
    batch[0].error = error
    for ticket in batch[1:]:
        ticket.error = Unavailable(
            "the commit was interrupted; whether it happened is unknown: retry with the same ids",
            committed=None,
        )
