"""The hop from a task to a worker thread and back, under asyncio and trio."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, ref

import anyio
import anyio.lowlevel
import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")

# How an errand gets to a worker under asyncio: it runs in the context, and when it has ended, the
# future is put into the box.
Way: TypeAlias = "Callable[[Errand[Any], contextvars.Context, Box, asyncio.Future[None]], None]"

_CHUNK = 500  # items of an iterator a hop
_WORKERS_MAX = 40  # of a process


async def hop(call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Run a call in a worker thread. Cancelled before it begins, it never does; after, it ends."""
    return await go(Errand(partial(call, *args, **options)), _alone)


async def go(errand: Errand[T], way: Way) -> T:
    """Have an errand done in a worker thread, under asyncio in a way of its own. As for `hop`."""
    try:
        await _in_worker(errand, way)
    except anyio.get_cancelled_exc_class():
        # asyncio's own cancellation does not wait for the thread as anyio's does, so this does:
        # otherwise the task would go on while its write is still on the way to the disk.
        if errand.drop():
            await _finished(errand)
        raise
    return errand.result()


async def _in_worker(errand: Errand[Any], way: Way) -> None:
    """Have an errand done; nothing of it, if the task is cancelled already."""
    task = _asyncio_task()
    if task is None:
        await anyio.to_thread.run_sync(errand.run)
        return
    # anyio's way, with a task and a loop for each worker, costs three times as much under asyncio
    # where many calls are on their way at once. An executor's costs a third more, for its futures.
    if task.cancelling():
        await asyncio.sleep(0)
    await anyio.lowlevel.checkpoint_if_cancelled()
    loop = asyncio.get_running_loop()
    done, context = loop.create_future(), contextvars.copy_context()
    box = _boxes.get(loop)
    if box is None:
        box = _boxes[loop] = Box()
    way(errand, context, box, done)
    await done


def _alone(
    errand: Errand[Any], context: contextvars.Context, box: Box, done: asyncio.Future[None]
) -> None:
    workers().take(partial(context.run, errand.run), partial(box.put, done))


class Box:
    """The calls of one event loop that workers have finished. It is woken once for all in here.

    Each waking is a system call, at which a worker gives the interpreter away; where many calls
    end at once, as those that shared a commit do, that costs more than the rest of the hop.
    """

    def __init__(self) -> None:
        # Weakly, as a future knows its loop, and a loop that was closed should go away.
        self._finished: deque[ref[asyncio.Future[None]]] = deque()
        self._is_woken = False

    def put(self, *ended: asyncio.Future[None]) -> None:
        """Calls have ended: let their tasks go on. From a worker thread."""
        self._finished.extend(map(ref, ended))
        # The loop takes the mark away before it looks into the box, so what is in here when the
        # mark is seen will be found. Two who do not see it wake the loop twice, which harms nobody.
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed: no task waits any more
                ended[0].get_loop().call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._is_woken = False
        try:
            while self._finished:
                done = self._finished.popleft()()
                if done is not None and not done.done():  # its task may have been cancelled
                    done.set_result(None)
        finally:
            if self._finished:  # Ctrl-C came in between; the loop may be run again
                asyncio.get_running_loop().call_soon(self._settle)


_boxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Box] = WeakKeyDictionary()


def _asyncio_task() -> asyncio.Task[Any] | None:
    """The task that this runs in; None under trio, also where trio is a guest of asyncio's loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class _Workers:
    """Threads that take calls in the order in which they come; as many as there are calls."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], None], Callable[[], None]] | None] = (
            SimpleQueue()
        )
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0

    def take(self, call: Callable[[], None], tell: Callable[[], None]) -> None:
        """Have a call run, and then told that it has. They must not raise."""
        with self._lock:
            if len(self._threads) <= self._unfinished < _WORKERS_MAX:
                # A daemon, or the interpreter would wait for it before it asks it to end.
                name = f"clew_{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._unfinished += 1
        self._calls.put((call, tell))

    def _work(self) -> None:
        while (taken := self._calls.get()) is not None:
            call, tell = taken
            call()
            with self._lock:
                self._unfinished -= 1
            # At the very end. The loop is awake from here on, and needs the interpreter: were the
            # call unfinished still, the next one would start or wake another thread, and two that
            # take turns are slower than one.
            tell()
            del taken, call, tell  # or what they hold would live until the next one

    def finish(self) -> None:
        """Let all calls end, and then the threads."""
        with self._lock:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._calls.put(None)
        for thread in threads:
            thread.join()


_pools: list[_Workers] = []  # one, from the first hop on
if hasattr(os, "register_at_fork"):
    # Its threads stay with the parent.
    os.register_at_fork(after_in_child=_pools.clear)


def workers() -> _Workers:
    if not _pools:
        _pools.append(_Workers())
    return _pools[0]


@atexit.register
def _finish() -> None:
    """What was begun is ended before the interpreter is: a write may be on the way to the disk."""
    while _pools:
        _pools.pop().finish()


async def see_through(call: Callable[[], T]) -> T:
    """Run a call in a worker thread to its end, however often this task is cancelled meanwhile.

    It begins also in a task that is cancelled already. The cancellation is raised when it is over.
    """
    errand = Errand(call)
    cancelled = await _finished(errand)
    if cancelled is not None:
        raise cancelled
    return errand.result()


async def _finished(errand: Errand[Any]) -> BaseException | None:
    """Begin an errand, if need be, and wait for its end; the cancellation that came meanwhile.

    A shield holds off anyio's and trio's cancellation. asyncio's `Task.cancel` goes through it,
    once for each call, so the wait begins again after each of them.
    """
    cancelled: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not errand.done:
            try:
                if errand.is_begun:
                    await anyio.sleep(0.001)
                else:
                    await anyio.to_thread.run_sync(errand.run)
            except anyio.get_cancelled_exc_class() as error:
                cancelled = cancelled or error
    return cancelled


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
    kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
    if kind is GeneratorExit:
        # The task is thrown away, perhaps with its loop: it cannot wait for a worker any more.
        block.__exit__(kind, error, trace)
    else:
        await see_through(partial(block.__exit__, kind, error, trace))


class Errand(Generic[T]):
    """A call that runs once at the most, in whichever thread takes it first, and keeps its result.

    A cancelled task cannot tell whether a worker has taken the call, so it may hand it over twice.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._dropped = False
        self._outcome: tuple[T | None, BaseException | None] = (None, None)
        self.is_begun = False
        self.done = False

    def run(self) -> None:
        if self.begin():
            try:
                self.end(self._call(), None)
            except BaseException as error:
                self.end(None, error)

    def begin(self) -> bool:
        """Take it; false if it was taken, or dropped, already."""
        with self._lock:
            if self.is_begun or self._dropped:
                return False
            self.is_begun = True
            return True

    def end(self, value: T | None, error: BaseException | None) -> None:
        self._outcome = (value, error)
        self.done = True

    def drop(self) -> bool:
        """Keep it from beginning; true if it has begun already."""
        with self._lock:
            self._dropped = not self.is_begun
            return self.is_begun

    def result(self) -> T:
        """What the call gave, or raised. For one caller: it is let go of here."""
        (value, error), self._outcome = self._outcome, (None, None)
        if error is not None:
            try:
                raise error
            finally:
                del error  # or it and its traceback, which knows this frame, would hold each other
        return value  # type: ignore[return-value]


async def iterate(items: Iterator[T]) -> AsyncIterator[T]:
    """Step through an iterator in chunks: a hop for each item would cost more than the item.

    It must hold no lock or cursor between two items, because the task may never come back.
    """
    take: Callable[[], list[T]] = lambda: list(islice(items, _CHUNK))  # noqa: E731
    while chunk := await hop(take):
        for item in chunk:
            yield item
