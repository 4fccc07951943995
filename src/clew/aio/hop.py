"""Hops from a task to a worker thread and back, under asyncio and trio."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")

_CHUNK = 500


async def hop(call: Callable[..., T], *args: Any, **options: Any) -> T:
    """Run a call in a worker thread, and see it through even if this task is cancelled."""
    errand = _Errand(partial(call, *args, **options))
    try:
        return await anyio.to_thread.run_sync(errand.run)
    except BaseException:
        # asyncio's own cancellation does not wait for the thread, as anyio's does: we do.
        if errand.begun():
            with anyio.CancelScope(shield=True):
                while not errand.done:
                    await anyio.sleep(0.001)
        raise


class _Errand(Generic[T]):
    """A call that either never begins or is seen through."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._begun = False
        self._dropped = False
        self.done = False

    def run(self) -> T:
        with self._lock:
            if self._dropped:
                raise RuntimeError("nobody waits for this call any more")
            self._begun = True
        try:
            return self._call()
        finally:
            self.done = True

    def begun(self) -> bool:
        """Whether it has begun; if it has not, it never will."""
        with self._lock:
            self._dropped = not self._begun
            return self._begun


async def iterate(items: Iterator[T]) -> AsyncIterator[T]:
    """Step through an iterator in chunks. Ours hold no lock or cursor between two items."""
    take: Callable[[], list[T]] = lambda: list(islice(items, _CHUNK))  # noqa: E731
    while chunk := await hop(take):
        for item in chunk:
            yield item
