"""Appends of tasks that come at once: one worker takes them, and each keeps what is its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import clew
from clew.aio import appends
from clew.aio import hop as hops
from clew.aio.handles import AsyncStore, AsyncThread
from clew.core.engine import AppendRequest
from clew.core.errors import Closed, Conflict, InvalidInput, NotFound
from clew.core.wrapper import Call, wrap


class HeldWorkers(hops._Workers):
    """Workers that begin when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def take(self, call: Callable[[], None], tell: Callable[[], None]) -> None:
        self.held.append((call, tell))

    def let(self) -> None:
        held, self.held = self.held, []
        for call, tell in held:
            super().take(call, tell)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldWorkers]:
    made = HeldWorkers()
    monkeypatch.setattr(hops, "_pools", [made])
    yield made
    made.finish()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[clew.Store]:
    with clew.open(tmp_path / "threads.db") as made:
        yield made


@pytest.fixture
def commits(store: clew.Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many works each transaction had."""
    sizes: list[int] = []
    group = store.engine._commits  # type: ignore[attr-defined]
    transact = group._transact

    def counted(batch: list[Any]) -> None:
        transact(batch)
        sizes.append(len(batch))

    monkeypatch.setattr(group, "_transact", counted)
    return sizes


def threads(store: clew.Store, count: int) -> list[AsyncThread]:
    opened = AsyncStore(store)
    return [AsyncThread(opened, store.create(f"t{n}")) for n in range(count)]


async def begun(*appends_: Any) -> list[asyncio.Task[Any]]:
    """Tasks that append, as far as they come by themselves."""
    tasks = [asyncio.create_task(one) for one in appends_]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_appends_that_come_at_once_take_one_worker_and_one_commit(
    store: clew.Store, workers: HeldWorkers, commits: list[int]
) -> None:
    made = threads(store, 16)
    commits.clear()

    async def story() -> None:
        tasks = await begun(*(one.append("event", n) for n, one in enumerate(made)))
        assert len(workers.held) == 1
        workers.let()
        found = await asyncio.gather(*tasks)
        assert [(entry.thread, entry.body) for entry in found] == [(f"t{n}", n) for n in range(16)]

    asyncio.run(story())
    assert commits == [16]
    assert [one.sync.path()[-1].body for one in made] == [*range(16)]


def test_more_than_a_commit_may_have_take_another_worker(
    store: clew.Store, workers: HeldWorkers, commits: list[int]
) -> None:
    (made,) = threads(store, 1)
    commits.clear()

    async def story() -> None:
        tasks = await begun(*(made.append("event", n) for n in range(70)))
        while not all(task.done() for task in tasks):
            workers.let()
            await asyncio.sleep(0)

    asyncio.run(story())
    assert sorted(commits) == [6, 64]
    assert sorted(entry.body for entry in made.sync.path()) == [*range(70)]


def test_what_is_refused_takes_nothing_from_the_others(
    store: clew.Store, workers: HeldWorkers
) -> None:
    first, second, gone = threads(store, 3)
    store.purge(gone.id)

    async def story() -> list[Any]:
        tasks = await begun(
            first.append("event", 1),
            first.append("event", 2, expect="elsewhere"),
            gone.append("event", 3),
            second.append("event", object()),
            second.append("event", 4, parent="nowhere"),
            second.append([clew.draft("event", 5), clew.draft("event", 6)]),
        )
        workers.let()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(story())
    kinds = [type(one) for one in found]
    assert kinds == [clew.Entry, Conflict, NotFound, InvalidInput, InvalidInput, list]
    assert [entry.body for entry in first.sync.path()] == [1]
    assert [entry.body for entry in second.sync.path()] == [5, 6]
    assert store.verify() == []


def test_one_that_is_cancelled_before_a_worker_has_it_never_happens(
    store: clew.Store, workers: HeldWorkers
) -> None:
    (made,) = threads(store, 1)

    async def story() -> None:
        stays, goes, other = await begun(*(made.append("event", n) for n in range(3)))
        goes.cancel()
        with pytest.raises(asyncio.CancelledError):
            await goes
        workers.let()
        await asyncio.gather(stays, other)

    asyncio.run(story())
    assert [entry.body for entry in made.sync.path()] == [0, 2]


def test_one_that_is_cancelled_while_it_is_written_is_seen_through(
    store: clew.Store, workers: HeldWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made,) = threads(store, 1)
    engine: Any = store.engine
    entered, gate = threading.Event(), threading.Event()

    def slow(requests: list[AppendRequest]) -> Any:
        entered.set()
        assert gate.wait(30)
        return type(engine).append_each(engine, requests)

    monkeypatch.setattr(engine, "append_each", slow)

    async def story() -> None:
        stays, goes = await begun(made.append("event", 0), made.append("event", 1))
        workers.let()
        await asyncio.to_thread(entered.wait)
        goes.cancel()
        done, _ = await asyncio.wait([goes], timeout=0.01)
        assert not done, "its write is still on the way to the disk"
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await goes
        assert [entry.body for entry in made.sync.path()] == [0, 1]
        assert (await stays).body == 0

    asyncio.run(story())


def test_a_large_body_keeps_no_other_append_waiting(
    store: clew.Store, workers: HeldWorkers, commits: list[int]
) -> None:
    """To compress it takes long, so it goes its own way."""
    made = threads(store, 3)
    commits.clear()

    async def story() -> None:
        bodies = [0, "x" * 100_000, 2]
        tasks = await begun(
            *(one.append("event", body) for one, body in zip(made, bodies, strict=True))
        )
        workers.let()
        await asyncio.gather(tasks[0], tasks[2])
        assert commits == [2]
        assert not tasks[1].done()
        workers.let()
        assert (await tasks[1]).body == bodies[1]

    asyncio.run(story())


def test_an_engine_that_fails_tells_all_who_asked(store: clew.Store, workers: HeldWorkers) -> None:
    made = threads(store, 3)

    async def story() -> list[Any]:
        tasks = await begun(*(one.append("event", 1) for one in made))
        store.close()
        workers.let()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(one) for one in asyncio.run(story())] == [Closed] * 3


def test_a_wrapper_sees_every_append_by_itself(store: clew.Store) -> None:
    seen: list[Call] = []

    @contextmanager
    def around(call: Call) -> Iterator[None]:
        seen.append(call)
        yield

    (made,) = threads(store, 1)
    wrapped = AsyncStore(clew.Store(wrap(store.engine, around)))

    async def story() -> None:
        thread = await wrapped.get(made.id)
        await asyncio.gather(*(thread.append("event", n) for n in range(4)))

    asyncio.run(story())
    assert [call.thread for call in seen if call.operation == "append"] == [made.id] * 4


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tasks_that_append_again_and_again(store: clew.Store, backend: str) -> None:
    made = threads(store, 8)

    async def write(thread: AsyncThread) -> None:
        for n in range(20):
            entries = await thread.write([clew.draft("event", n)], expect=await thread.leaf)
            assert entries[0].seq == n + 1

    async def story() -> None:
        async with anyio.create_task_group() as group:
            for one in made:
                group.start_soon(write, one)

    anyio.run(story, backend=backend)
    for one in made:
        assert [entry.body for entry in one.sync.path()] == [*range(20)]
    assert store.verify() == []


def test_tasks_of_several_loops_share_a_commit(
    store: clew.Store, workers: HeldWorkers, commits: list[int]
) -> None:
    made = threads(store, 4)
    commits.clear()
    waiting = threading.Barrier(3)

    async def story(pair: list[AsyncThread]) -> None:
        tasks = await begun(*(one.append("event", 1) for one in pair))
        waiting.wait(60)
        waiting.wait(60)
        await asyncio.gather(*tasks)

    pairs = [made[:2], made[2:]]
    loops = [threading.Thread(target=asyncio.run, args=(story(pair),)) for pair in pairs]
    for loop in loops:
        loop.start()
    waiting.wait(60)
    workers.let()
    waiting.wait(60)
    for loop in loops:
        loop.join(60)
    assert [len(one.sync.path()) for one in made] == [1] * 4
    assert sum(commits) == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_does_not_wait_for_a_worker_that_was_on_its_way(
    store: clew.Store, workers: HeldWorkers
) -> None:
    (made,) = threads(store, 1)

    def in_child() -> None:
        hops._pools[:] = [hops._Workers()]
        asyncio.run(asyncio.wait_for(made.append("event", "of the child"), 60))

    loop = asyncio.new_event_loop()
    (task,) = loop.run_until_complete(begun(made.append("event", "of the parent")))
    child = os.fork()
    if child == 0:
        try:
            in_child()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    workers.let()
    loop.run_until_complete(task)
    loop.close()
    assert [entry.body for entry in made.sync.path()] == ["of the child", "of the parent"]


def test_each_request_gets_what_append_would_give(store: clew.Store) -> None:
    engine: Any = store.engine
    for id in ("a", "b"):
        store.create(id)
    requests = [
        AppendRequest("a", [clew.draft("event", 1)]),
        AppendRequest("nowhere", [clew.draft("event", 2)]),
        AppendRequest("b", [clew.draft("event", "x" * 50_000), clew.draft("event", 4)]),
        AppendRequest("a", [clew.draft("event", 5)], expect=None),
    ]
    found = engine.append_each(requests)
    assert [type(one) for one in found] == [list, NotFound, list, Conflict]
    assert [entry.body for entry in found[2]] == ["x" * 50_000, 4]
    assert [entry.body for entry in store.get("a").path()] == [1]
    assert engine.append_each([]) == []
    assert appends._queues.get(engine) is None, "nobody has waited here"
