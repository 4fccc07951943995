"""Appends of tasks that come at once: one worker thread takes all of them to the engine together.

The writers of a group commit sleep in a thread each until their transaction is on disk. To wake as
many threads as there are tasks, twice for each append, costs more than the appends themselves.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from msgspec import UNSET, UnsetType

from clew.aio.hop import Box, Errand, go, hop, workers
from clew.core.drafts import check_fence, check_place
from clew.core.engine import AppendRequest, AppendsEach, Engine
from clew.core.model import Draft, MoveDraft, Record
from clew.thread import Thread

_TOGETHER_MAX = 64  # so that the first one does not wait for ever for the last
_SMALL_BYTES = 8 * 1024  # what is larger is compressed, which no other append should wait for


async def append(
    thread: Thread,
    drafts: Callable[[], Sequence[Draft]],
    expect: str | UnsetType | None = UNSET,
    fence: int | None = None,
) -> list[Any]:
    """Append what `drafts` makes, in a worker thread: a record for each. As for `hop`.

    `drafts` must not read or write anything: the appends of other tasks wait until it is done.
    """
    engine = thread.store.engine

    def request() -> AppendRequest:
        place = check_place(expect, "expect")
        return AppendRequest(thread.id, drafts(), place, check_fence(fence))

    if not hasattr(engine, "append_each"):
        return await hop(lambda: _append(engine, request()))
    queue = _queues.get(engine)
    if queue is None:
        queue = _queues[engine] = _Queue()
    return await go(_Append(engine, request), queue.take)


def _append(engine: Engine, request: AppendRequest) -> list[Record]:
    thread, drafts, expect, fence = request
    return engine.append(thread, drafts, expect=expect, fence=fence)


class _Append(Errand[list[Record]]):
    """An append on its way."""

    def __init__(self, engine: Engine, request: Callable[[], AppendRequest]) -> None:
        super().__init__(lambda: _append(engine, request()))
        self.engine = engine
        self._request = request

    def prepare(self) -> AppendRequest | None:
        """What to ask the engine for; None if it was dropped, or came to an end here."""
        if not self.begin():
            return None
        try:
            return self._request()
        except BaseException as error:
            self.end(None, error)
            return None

    def write(self, request: AppendRequest) -> None:
        """By itself, and not together with others."""
        try:
            self.end(_append(self.engine, request), None)
        except BaseException as error:
            self.end(None, error)


_Waiting: TypeAlias = tuple[_Append, contextvars.Context, Box, "asyncio.Future[None]"]


class _Queue:
    """The appends that wait for a worker to take them to one engine."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._is_called = False  # whether a worker is on its way

    def take(
        self, append: Any, context: contextvars.Context, box: Box, done: asyncio.Future[None]
    ) -> None:
        self._waiting.append((append, context, box, done))
        if not self._is_called:
            self._call()

    def _call(self) -> None:
        self._is_called = True
        workers().take(self._write, _nothing)

    def _write(self) -> None:
        """Write what waits. For what comes later another worker is called."""
        # The mark is taken away before the look, so what is in here when it is seen will be found.
        self._is_called = False
        taken: list[_Waiting] = []
        while self._waiting and len(taken) < _TOGETHER_MAX:
            try:
                taken.append(self._waiting.popleft())
            except IndexError:
                break  # another worker was faster
        if self._waiting:
            self._call()
        ended: dict[Box, list[asyncio.Future[None]]] = {}
        together: list[tuple[_Append, AppendRequest]] = []
        for append, context, box, done in taken:
            request = context.run(append.prepare)
            if request is not None and _size_bytes(request) > _SMALL_BYTES:
                call = partial(context.run, append.write, request)
                workers().take(call, partial(box.put, done))
                continue
            if request is not None:
                together.append((append, request))
            ended.setdefault(box, []).append(done)
        _write_together(together)
        for box, all_done in ended.items():
            box.put(*all_done)


def _write_together(together: Sequence[tuple[_Append, AppendRequest]]) -> None:
    if len(together) < 2:
        for append, request in together:
            append.write(request)
        return
    engine = cast("AppendsEach", together[0][0].engine)
    try:
        outcomes = engine.append_each([request for _, request in together])
    except BaseException as error:
        for append, _ in together:
            append.end(None, error)
        return
    for (append, _), outcome in zip(together, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            append.end(None, outcome)
        else:
            append.end(outcome, None)


def _size_bytes(request: AppendRequest) -> int:
    return sum(0 if isinstance(one, MoveDraft) else len(one.data) for one in request.drafts)


def _nothing() -> None:
    """Whoever called the worker waits for nothing; those whose appends it has are told."""


_queues: WeakKeyDictionary[Engine, _Queue] = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):  # one way: Windows has no fork
    # What waits there waits for a worker and a loop of the parent.
    os.register_at_fork(after_in_child=_queues.clear)
