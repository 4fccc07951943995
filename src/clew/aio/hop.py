"""The hop from a task to a worker thread and back, under asyncio and trio."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, Generic, ParamSpec, TypeVar

import anyio
import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")

_CHUNK = 500  # items of an iterator a hop


async def hop(call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Run a call in a worker thread, and see it through even if this task is cancelled."""
    errand = _Errand(partial(call, *args, **options))
    try:
        return await anyio.to_thread.run_sync(errand.run)
    except BaseException:
        # asyncio's own cancellation does not wait for the thread as anyio's does, so this does:
        # otherwise the task would go on while its write is still on the way to the disk.
        if errand.begun():
            with anyio.CancelScope(shield=True):
                while not errand.done:
                    await anyio.sleep(0.001)
        raise


async def enter(block: AbstractContextManager[Any]) -> None:
    """Enter a `with` block that lives in the worker threads: a turn, a run."""
    entered = threading.Event()

    def call() -> None:
        block.__enter__()
        entered.set()

    try:
        await hop(call)
    except BaseException as error:
        # A cancelled hop is seen through, so the lease may be taken while the task's own block
        # never begins: nothing else would give it back.
        if entered.is_set():
            await leave(block, error)
        raise


async def leave(block: AbstractContextManager[Any], error: BaseException | None) -> None:
    """Leave it again, also from a task that is cancelled: its end has to be written."""
    with anyio.CancelScope(shield=True):
        trace = None if error is None else error.__traceback__
        await hop(block.__exit__, None if error is None else type(error), error, trace)


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
                raise RuntimeError("the task that made this call was cancelled before it began")
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
    """Step through an iterator in chunks: a hop for each item would cost more than the item.

    It must hold no lock or cursor between two items, because the task may never come back.
    """
    take: Callable[[], list[T]] = lambda: list(islice(items, _CHUNK))  # noqa: E731
    while chunk := await hop(take):
        for item in chunk:
            yield item
