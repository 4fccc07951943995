"""What happens to open stores when the process forks: each is told before it, and after it.

A connection or a lock that is open during a fork belongs to two processes at once, and neither
can use it safely. So an engine closes what it can before the fork, and opens it again on both
sides of it.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    def before_fork(self) -> None: ...
    def after_fork_in_parent(self) -> None: ...
    def after_fork_in_child(self) -> None: ...


class OpenStores:
    """The stores of one engine that are open. `lock` is held through a fork."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # What a child inherited and must never close: the parent still uses it.
        self.abandoned: list[object] = []
        self._stores: weakref.WeakSet[Forkable] = weakref.WeakSet()
        self._forking: list[Forkable] = []
        if hasattr(os, "register_at_fork"):  # one way: Windows has no fork
            os.register_at_fork(
                before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child
            )

    def add(self, store: Forkable) -> None:
        self._stores.add(store)

    def discard(self, store: Forkable) -> bool:
        """Whether it was open."""
        was_open = store in self._stores
        self._stores.discard(store)
        return was_open

    def _before(self) -> None:
        self.lock.acquire()
        # The same stores afterwards, also if one is opened or collected in between.
        self._forking[:] = list(self._stores)
        for store in self._forking:
            store.before_fork()

    def _in_parent(self) -> None:
        for store in self._forking:
            store.after_fork_in_parent()
        self._forking.clear()
        self.lock.release()

    def _in_child(self) -> None:
        for store in self._forking:
            store.after_fork_in_child()
        self._forking.clear()
        self.lock.release()
