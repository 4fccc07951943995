"""Cancelled tasks leave no lease and no untrue marker, however often they are cancelled."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
import trio
from amounts import amount
from places import MemoryPlace

import clew
from clew.aio.handles import AsyncStore, AsyncThread

TURNS = amount(50, 250)
AT_ONCE = 25  # tasks
MOMENT_SECONDS = 0.02  # within which a task is cancelled: entering and leaving take about as long


async def work(thread: AsyncThread, files: Path | None = None) -> None:
    async with thread.turn(owner="worker", files=files) as turn:
        await turn.append("event", 1)
        if files is not None:
            (files / thread.id).write_text("a change, so that the end takes a snapshot")


async def cancel_with_asyncio(
    threads: list[AsyncThread], times: int, files: Path | None = None
) -> None:
    loop, dice = asyncio.get_running_loop(), random.Random(times)
    for at in range(0, len(threads), AT_ONCE):
        tasks = [asyncio.create_task(work(thread, files)) for thread in threads[at : at + AT_ONCE]]
        for task in tasks:
            for _ in range(times):
                loop.call_later(dice.random() * MOMENT_SECONDS, task.cancel)
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in done} <= {type(None), asyncio.CancelledError}


async def cancel_with_trio(
    threads: list[AsyncThread], times: int, files: Path | None = None
) -> None:
    dice = random.Random(times)

    async def cancelled(thread: AsyncThread) -> None:
        with trio.move_on_after(dice.random() * MOMENT_SECONDS):
            with trio.move_on_after(dice.random() * MOMENT_SECONDS * times):
                await work(thread, files)

    for at in range(0, len(threads), AT_ONCE):
        async with trio.open_nursery() as nursery:
            for thread in threads[at : at + AT_ONCE]:
                nursery.start_soon(cancelled, thread)


@pytest.mark.parametrize("files", [False, True], ids=["", "files"])
@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_turn_that_was_cancelled_keeps_its_lease(
    place: MemoryPlace, backend: str, times: int, files: bool, tmp_path: Path
) -> None:
    store = clew.Store(place.open())
    folder = tmp_path / "project"
    folder.mkdir()
    cancel: Callable[..., object] = cancel_with_asyncio
    if backend == "trio":
        cancel = cancel_with_trio

    async def main() -> None:
        opened = AsyncStore(store)
        threads = [await opened.create() for _ in range(TURNS)]
        await cancel(threads, times, folder if files else None)  # type: ignore[misc]
        assert [t.id for t in threads if t.sync.leases.active() is not None] == []
        assert [t.id for t in threads if t.sync.unfinished_turn() is not None] == []

    anyio.run(main, backend=backend)
    assert store.renewer._due == {}
    store.close()


def test_ctrl_c_over_many_turns_leaves_no_lease(place: MemoryPlace) -> None:
    """As asyncio.run does it: the main task is cancelled, and then all that are left."""
    store = clew.Store(place.open())
    opened = AsyncStore(store)
    ids: list[str] = []

    async def main() -> None:
        threads = [await opened.create() for _ in range(50)]
        ids.extend(thread.id for thread in threads)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work(thread)) for thread in threads]
            asyncio.get_running_loop().call_later(MOMENT_SECONDS / 2, tasks[0].cancel)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    left = [id for id in ids if store.get(id).leases.active() is not None]
    assert left == []
    store.close()


def test_a_turn_whose_task_is_gone_is_not_renewed(place: MemoryPlace) -> None:
    """Whatever became of the task, its block is never left; the lease ends by its own time."""
    store = clew.Store(place.open())
    thread = store.create()
    thread.turn(owner="gone", ttl_seconds=0.3).__enter__()  # and nothing holds it any more
    gc.collect()
    with thread.turn(owner="next", wait_seconds=60.0):
        pass
    store.close()


def test_a_task_that_is_closed_ends_its_turn_at_once(place: MemoryPlace) -> None:
    """A coroutine that is closed cannot await anything, and its turn has to end all the same."""
    store = clew.Store(place.open())
    thread = AsyncThread(AsyncStore(store), store.create())

    async def main() -> None:
        async with thread.turn(owner="worker"):
            loop.stop()
            await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    loop.run_forever()
    assert thread.sync.leases.active() is not None
    task.get_coro().close()  # type: ignore[union-attr]
    assert thread.sync.leases.active() is None
    assert thread.sync.unfinished_turn() is None
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    store.close()
