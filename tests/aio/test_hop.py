"""The hop under asyncio: how many threads it takes, and how often it wakes the loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from clew.aio import hop as hops
from clew.aio.hop import hop


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> hops._Workers:
    """Threads that no other test has given anything to do."""
    made = hops._Workers()
    monkeypatch.setattr(hops, "_pools", [made])
    return made


class CountingLoop(asyncio.SelectorEventLoop):
    """A loop that counts how often another thread wakes it."""

    wakings = 0

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, **more: Any) -> Any:
        self.wakings += 1
        return super().call_soon_threadsafe(callback, *args, **more)


def test_calls_one_after_another_stay_in_one_thread(workers: hops._Workers) -> None:
    """Two threads that take turns cost a third more: each is asleep when its turn comes."""

    async def story() -> set[int]:
        return {await hop(threading.get_ident) for _ in range(300)}

    assert len(asyncio.run(story())) == 1
    workers.finish()


def test_calls_that_end_together_wake_the_loop_once(workers: hops._Workers) -> None:
    count = 8
    go, gone = threading.Event(), threading.Barrier(count + 1)

    def call(number: int) -> int:
        go.wait()
        gone.wait()
        return number

    async def story() -> None:
        tasks = [asyncio.create_task(hop(call, number)) for number in range(count)]
        while workers._unfinished < count:
            await asyncio.sleep(0)
        before = loop.wakings
        go.set()
        gone.wait()  # the loop stands still meanwhile, as it does while it is busy
        end = time.monotonic() + 60
        while len(hops._boxes[loop]._finished) < count and time.monotonic() < end:
            time.sleep(0.001)
        assert loop.wakings - before == 1
        assert await asyncio.gather(*tasks) == [*range(count)]

    loop = CountingLoop()
    loop.run_until_complete(story())
    loop.close()
    workers.finish()


def test_ctrl_c_between_two_that_end_together_loses_none(workers: hops._Workers) -> None:
    """A program may run its loop again after it, to clean up."""

    class Interrupted(asyncio.Future[None]):
        def done(self) -> bool:
            raise KeyboardInterrupt

    async def story() -> None:
        box = hops.Box()
        first, second = Interrupted(loop=loop), loop.create_future()
        box.put(first)
        box.put(second)
        await second

    loop = asyncio.new_event_loop()
    task = loop.create_task(story())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    loop.run_until_complete(asyncio.wait_for(task, 10))
    loop.close()
    workers.finish()


def test_a_loop_that_is_closed_before_it_is_woken_goes_away() -> None:
    loop = asyncio.new_event_loop()
    box = hops._boxes.setdefault(loop, hops.Box())
    done = loop.create_future()
    box.put(done)
    loop.close()
    box.put(done)  # one that ended later still
    known = weakref.ref(loop)
    del loop, done, box
    gc.collect()
    assert known() is None
