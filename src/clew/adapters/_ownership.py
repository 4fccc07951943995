"""Ownership: the lease that an adapter holds on the threads it writes, for who asks for it.

Frameworks know no leases. With `ownership="lease"` an adapter takes the lease of a thread with
its first write and keeps it until it is closed. Another process is refused meanwhile
(LeaseHeld); if this one stops for longer than the lease lasts and another takes over, this one's
next write is refused (LeaseLost), whatever it believes.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Literal, TypeAlias

from clew.core.codec import new_id
from clew.core.errors import InvalidInput
from clew.core.model import Lease
from clew.store import Store

Ownership: TypeAlias = Literal["lease"] | None


class Owner:
    """The leases of one adapter object, by thread. Without ownership it has none."""

    def __init__(self, store: Store, ownership: Ownership, *, ttl_seconds: float = 30.0) -> None:
        if ownership not in (None, "lease"):
            raise InvalidInput("ownership", f"must be 'lease' or None, not {ownership!r}")
        self._store = store
        self.is_asked = ownership is not None
        self._ttl_seconds = ttl_seconds
        self._name = f"{socket.gethostname()}:{os.getpid()}:{new_id()[-8:]}"
        self._leases: dict[str, Lease] = {}
        self._mutex = threading.Lock()

    def fence(self, thread: str) -> int | None:
        """What goes with a write of a thread. Takes its lease, if that is still to be done.

        A lease that was lost stays lost: its fence is refused until `release` gives it up.
        """
        if not self.is_asked:
            return None
        with self._mutex:
            lease = self._leases.get(thread)
            if lease is None:
                leases = self._store.get(thread).leases
                lease = leases.acquire(self._name, ttl_seconds=self._ttl_seconds)
                self._leases[thread] = lease
                self._store.renewer.add(lease, self._ttl_seconds, self)
            return lease.fence

    def forget(self, thread: str) -> None:
        """Hold the lease of a thread no more that is gone; another may have its name by now."""
        with self._mutex:
            lease = self._leases.pop(thread, None)
            if lease is not None:
                self._store.renewer.remove(lease)

    def release(self, thread: str | None = None) -> None:
        """Give the lease of a thread back, or all of them."""
        with self._mutex:
            given = [thread] if thread is not None else list(self._leases)
            for name in given:
                lease = self._leases.pop(name, None)
                if lease is not None:
                    self._store.renewer.remove(lease)
                    found = self._store.find(name)
                    if found is not None:
                        found.leases.release(lease)
