"""Leases as columns of a thread's row. `core.lease_rules` has the rules, this module stores."""

from __future__ import annotations

from clew.core.codec import digest_fields
from clew.core.errors import NotFound
from clew.core.lease_rules import LeaseState, step_lease
from clew.core.model import Lease, LeaseRequest
from clew.engines.postgres import rows
from clew.engines.postgres.lookup import Book
from clew.engines.postgres.wire import Wire

_LOOK = f"SELECT no, clew.now_us(), {rows.LEASE} FROM clew.stand(%s, %s, false)"
_SWAP = f"SELECT clew.swap_lease({', '.join(['%s'] * 13)})"


class LeaseStep:
    """One request, which may need several tries: the answer to a try can be lost."""

    def __init__(self, book: Book, thread: str, request: LeaseRequest) -> None:
        self._book = book
        self._thread = thread
        self._request = request
        self._wanted: LeaseState | None = None
        self._answer: Lease | None = None

    def run(self, wire: Wire, again: bool) -> Lease | None:
        while True:
            row = wire.one(self._book.sql(_LOOK), (self._book.space, self._thread))
            if row is None:
                raise NotFound("thread", self._thread)
            now, state = rows.instant(row[1]), rows.to_lease(row[2:])
            over = state.owner is not None and state.live(self._thread, now) is None
            if again and state == self._wanted and not over:
                # An earlier try was done, and only its answer was lost. Written once more, so
                # that this answer is as good as any.
                self._swap(wire, row[0], state, state)
                return self._answer
            after, answer = step_lease(self._thread, state, self._request, now)
            if after == state:
                return answer
            self._wanted, self._answer = after, answer
            if self._swap(wire, row[0], state, after):
                return answer
            wire.check_deadline()

    def _swap(self, wire: Wire, no: int, before: LeaseState, after: LeaseState) -> bool:
        check = lease_check(self._thread, after)
        bindings = (*_columns(after), check, self._book.space, no, *_columns(before))
        return bool(wire.value(self._book.sql(_SWAP), bindings))


def _columns(state: LeaseState) -> tuple[int, str | None, str | None, int, int]:
    return state.fence, state.owner, state.turn, state.created_us, state.until_us


def lease_check(thread: str, state: LeaseState) -> int:
    """What vouches for a lease: it is no record, and has no hash. Part of one will do."""
    if state.fence == 0:
        return 0
    hash = digest_fields("lease", thread, *_columns(state))
    return int.from_bytes(bytes.fromhex(hash[3:19]), "big", signed=True)
