"""Removing a thread for good, but for the entries that forks share with it.

What forks need stays under the thread's row, which no reader finds any more. It goes with the last
fork that needs it. One function on the server does all of it, and holds off every other purge and
sweep, and every writer that begins to use a blob. It runs in a transaction of its own, so that its
answer is here before it is committed: if the commit's answer is lost, the next try still knows
what was removed.
"""

from __future__ import annotations

from clew.core.errors import NotFound
from clew.core.removal import Purged
from clew.engines.postgres.lookup import Book
from clew.engines.postgres.wire import Wire


class Purge:
    """One purge, which may need several tries."""

    def __init__(self, book: Book, thread: str) -> None:
        self._book = book
        self._thread = thread
        self._no: int | None = None
        self._purged: Purged | None = None

    def run(self, wire: Wire, again: bool) -> Purged:
        with wire.transaction():
            purged = self._purge(wire)
        if purged is not None:
            return purged
        if not again or self._purged is None:
            raise NotFound("thread", self._thread)
        # An earlier try was done, and only its answer was lost. Something is committed after it,
        # so that this answer is as good as any.
        wire.commit_something()
        return self._purged

    def _purge(self, wire: Wire) -> Purged | None:
        """None if there is no such thread, or another one, made since an earlier try."""
        row = wire.one(self._book.sql(_PURGE), (self._book.space, self._thread, self._no))
        assert row is not None
        no, removed, kept, forks = row
        if no is None:
            return None
        self._no = no
        self._purged = Purged(
            thread=self._thread,
            records=removed,
            kept=kept,
            kept_for=tuple(sorted(forks)),
            log_bytes=None,
        )
        return self._purged


_PURGE = "SELECT no, removed, kept, forks FROM clew.purge(%s, %s, %s)"
