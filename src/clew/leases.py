"""Leases by hand: the right to write a thread, without a turn around it."""

from __future__ import annotations

from datetime import datetime

from clew.checks import check_name, seconds
from clew.engine import Engine
from clew.model import (
    Acquire,
    ClearExpired,
    Inspect,
    Lease,
    Release,
    Renew,
    to_us,
)


class Leases:
    """The lease of one thread. While it is live, appending needs its `fence`."""

    def __init__(self, engine: Engine, thread: str) -> None:
        self._engine = engine
        self._thread = thread

    def acquire(self, owner: str, *, ttl_seconds: float = 30.0, turn: str | None = None) -> Lease:
        """Take the lease, or LeaseHeld with owner and until. Also for the same owner: renew it."""
        if turn is not None:
            check_name(turn, "turn")
        request = Acquire(check_name(owner, "owner"), seconds(ttl_seconds, "ttl_seconds"), turn)
        lease = self._engine.lease(self._thread, request)
        assert lease is not None
        return lease

    def renew(self, lease: Lease, *, ttl_seconds: float = 30.0) -> Lease:
        """Hold it longer, counted from now. LeaseLost if it is over or somebody else's."""
        renewed = self._engine.lease(
            self._thread, Renew(lease.fence, seconds(ttl_seconds, "ttl_seconds"))
        )
        assert renewed is not None
        return renewed

    def release(self, lease: Lease) -> None:
        """Give it back. Releasing one that is lost does nothing."""
        self._engine.lease(self._thread, Release(lease.fence))

    def active(self) -> Lease | None:
        """The live lease, whoever holds it."""
        return self._engine.lease(self._thread, Inspect())

    def clear_expired(self, cutoff: datetime | None = None) -> Lease | None:
        """Remove a lease that expired or, with a cutoff, one acquired before that; what it was.

        Its holder can write no more: the next lease has another fence.
        """
        cutoff_us = None if cutoff is None else to_us(cutoff, "cutoff")
        return self._engine.lease(self._thread, ClearExpired(cutoff_us))
