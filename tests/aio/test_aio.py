"""The asynchronous side: the same under asyncio and trio; cancellation never tears a write."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import clew


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return lambda work: anyio.run(work, backend=request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


def test_a_story_from_open_to_close(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as opened:
            made = await opened.create("t", title="T")
            async with made.turn(owner="me") as taken:
                await taken.append("user_message", {"role": "user", "content": "hi"})
                await taken.append_message({"role": "assistant", "content": "ho"})
                await taken.save_point()
            assert [e.kind for e in await made.path()][1:3] == ["user_message", "assistant_message"]
            assert (await made.info).title.text == "T"
            fork = await made.fork(at=(await made.path())[1].id)
            assert len(await fork.path()) == 2
            assert [i.id for i in (await opened.list()).items] == [fork.id, "t"]
            assert [i.id async for i in opened.threads()] == [fork.id, "t"]
            assert len([r async for r in made.read()]) == 6
            hash = await opened.blobs.put(b"x")
            assert await opened.blobs.get(hash) == b"x"
            await opened.delete("t")
            assert await opened.find("t") is None
            assert await opened.verify() == []

    run(story)


def test_a_store_can_be_opened_for_looking_only(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as opened:
            await (await opened.create("t")).append("note", "hello")
        before = sorted((p.name, p.stat().st_mtime_ns) for p in path.parent.iterdir())
        async with await clew.open_async(path, readonly=True) as looking:
            assert looking.properties.read_only
            assert [e.body for e in await (await looking.get("t")).path()] == ["hello"]
            with pytest.raises(clew.ReadOnly):
                await looking.create()
            with pytest.raises(clew.ReadOnly):
                async with (await looking.get("t")).turn(owner="me"):
                    pytest.fail("it began")
        assert sorted((p.name, p.stat().st_mtime_ns) for p in path.parent.iterdir()) == before

    run(story)


def test_many_tasks_append_at_once(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as opened:
            made = await opened.create()

            async def write(n: int) -> None:
                for i in range(10):
                    await made.append("event", [n, i])

            async with anyio.create_task_group() as group:
                for n in range(10):
                    group.start_soon(write, n)
            assert [e.seq for e in await made.path()] == list(range(1, 101))

    run(story)


def test_follow_yields_and_can_be_cancelled(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as opened:
            made = await opened.create()
            got: list[Any] = []
            started = anyio.Event()

            async def follow() -> None:
                started.set()
                async for record in made.follow(after=0):
                    got.append(record.body)

            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                await started.wait()
                await made.append("event", 1)
                await made.append("event", 2)
                with anyio.fail_after(120):
                    while got != [1, 2]:
                        await anyio.sleep(0.005)
                group.cancel_scope.cancel()
            assert [r.body async for r in made.follow(after=1, idle_seconds=0.05)] == [2]

    run(story)


def test_a_cancelled_append_is_whole_or_absent(run: Callable[..., Any], path: Path) -> None:
    """The write has begun when the task is cancelled: it is finished, then the task ends."""

    async def story() -> None:
        async with await clew.open_async(path) as opened:
            made = await opened.create()
            entered, gate = threading.Event(), threading.Event()
            engine = opened.sync.engine
            append = engine.append

            def slow(*args: Any, **options: Any) -> Any:
                entered.set()
                assert gate.wait(30)
                return append(*args, **options)

            engine.append = slow  # type: ignore[method-assign]
            returned = []

            async def write() -> None:
                returned.append(await made.append([clew.draft("event", n) for n in range(3)]))

            async with anyio.create_task_group() as group:
                group.start_soon(write)
                await anyio.to_thread.run_sync(entered.wait)
                group.cancel_scope.cancel()
                gate.set()
            engine.append = append  # type: ignore[method-assign]
            assert [e.body for e in made.sync.path()] == [0, 1, 2]

    run(story)


def test_a_cancelled_turn_ends_as_aborted(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as opened:
            made = await opened.create()
            with anyio.move_on_after(30) as scope:
                async with made.turn(owner="me"):
                    scope.cancel()
                    await anyio.sleep_forever()
            assert made.sync.path()[-1].body["status"] == "aborted"
            assert await made.leases.active() is None

    run(story)


def test_asyncios_own_cancel_while_entering_a_turn_leaves_no_lease(path: Path) -> None:
    """task.cancel() does not wait for worker threads, so the facade has to."""

    async def story() -> None:
        async with await clew.open_async(path) as opened:
            made = await opened.create()
            entered, gate = threading.Event(), threading.Event()
            engine = opened.sync.engine
            lease = engine.lease

            def slow(*args: Any) -> Any:
                entered.set()
                assert gate.wait(30)
                return lease(*args)

            engine.lease = slow  # type: ignore[method-assign]

            async def work() -> None:
                async with made.turn(owner="me"):
                    raise AssertionError("cancelled before it was entered")

            task = asyncio.create_task(work())
            await asyncio.to_thread(entered.wait)
            task.cancel()
            await asyncio.sleep(0)
            gate.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            engine.lease = lease  # type: ignore[method-assign]
            assert await made.leases.active() is None
            assert [e.body["status"] for e in await made.path()] == ["started", "aborted"]

    asyncio.run(story())


def test_waiting_for_a_lease_can_be_cancelled(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as opened:
            made = await opened.create()
            await made.leases.acquire("other", ttl_seconds=600)
            with anyio.move_on_after(0.1) as scope:
                async with made.turn(owner="me", wait_seconds=600):
                    raise AssertionError("another owner has it")
            assert scope.cancelled_caught
            with pytest.raises(clew.LeaseHeld):
                async with made.turn(owner="me"):
                    pass

    run(story)


def test_errors_come_through(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as opened:
            with pytest.raises(clew.NotFound):
                await opened.get("nobody")
            made = await opened.create()
            with pytest.raises(ValueError, match="mine"):
                async with made.turn(owner="me"):
                    raise ValueError("mine")
            assert made.sync.path()[-1].body["status"] == "failed"

    run(story)


def test_awaitable_properties_are_awaitable(path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as opened:
            made = await opened.create()
            for value in (made.info, made.leaf, made.labels):
                assert isinstance(value, Awaitable)
                await value

    anyio.run(story)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_fork_has_workers_of_its_own(tmp_path: Path) -> None:
    """Those of the parent do not come along, and a hop to one of them would never end."""
    script = (
        "import asyncio, os, sys\n"
        "import clew\n"
        "async def work(name):\n"
        "    async with await clew.open_async(sys.argv[1]) as store:\n"
        "        await store.create(name)\n"
        "asyncio.run(work('parent'))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    asyncio.run(asyncio.wait_for(work('child'), 60))\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    place = str(tmp_path / "store.db")
    subprocess.run([sys.executable, "-c", script, place], check=True, timeout=120)
    with clew.open(place) as store:
        assert {info.id for info in store.list().items} == {"parent", "child"}
