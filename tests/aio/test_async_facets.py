"""The facets and the snapshots on the asynchronous side: blocks end well, also when cancelled."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
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


def test_a_conversation_leads_to_its_thread(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as store:
            talk = store.conversations.get("chat-1")
            await talk.add("user", "Hello")
            await talk.set_summary("A greeting.")
            assert await talk.summary == "A greeting."
            thread = await talk.thread
            assert thread.store is store
            assert await thread.count_user_messages() == 1
            assert store.sync.conversations.get("chat-1").history() == await talk.history()

    run(story)


def test_conversations_fork_close_and_are_gone_through(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        store = await clew.open_async(path)
        talks = store.conversations
        talk = await talks.get_or_create("k")
        leaf = await talk.set_history([{"role": "user", "content": "a"}], ids=["u1"], expect=None)
        assert leaf == await talk.leaf == "u1"
        fork = await talk.fork()
        await fork.add("user", "b")
        assert (fork.key, len(await fork.history())) == ("k#fork-1", 2)
        assert (await talks.of(await fork.thread)).key == "k#fork-1"
        assert [info.key async for info in talks.all()] == ["k#fork-1", "k"]
        await fork.truncate(1)
        assert (await fork.compact_storage()).entries == 0, "what it hides is its origin's"
        await talks.close()
        with pytest.raises(clew.Closed):
            await store.stats()

    run(story)


def test_a_loop_that_may_not_stop_counts_what_failed(path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as store:
            quiet = clew.AsyncConversations(store, on_error="log")
            await quiet.get("chat-1").add("user", 7)
            assert (quiet.failed, quiet.failures[0].operation) == (1, "add_message")
            assert await quiet.get_history("chat-1") == []
            with pytest.raises(clew.InvalidInput):
                await store.conversations.get("chat-1").add("user", 7)

    anyio.run(story)


def test_a_run_is_resumed_and_done(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as store:
            with pytest.raises(TimeoutError):
                async with store.runs.resume_or_start("nightly", task_name="report") as run:
                    run.messages.append({"role": "user", "content": "Begin."})
                    run.iteration += 1
                    await run.save()
                    with pytest.raises(clew.LeaseHeld):
                        await store.runs.delete("nightly")
                    raise TimeoutError
            async with store.runs.resume_or_start("nightly") as run:
                assert (run.resumed, run.iteration, run.task_name) == (True, 1, "report")
                run.messages = [*run.messages, {"role": "assistant", "content": "Done."}]
                assert len((await run.save()).messages) == 2
                run.done()
            assert not await store.runs.has("nightly")

    run(story)


def test_a_cancelled_run_keeps_its_checkpoint_and_no_lease(
    run: Callable[..., Any], path: Path
) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as store:
            with anyio.move_on_after(30) as scope:
                async with store.runs.resume_or_start("nightly") as run:
                    await run.save(iteration=1)
                    run.done()
                    scope.cancel()
                    await anyio.sleep_forever()
            assert (await store.runs.load("nightly")).iteration == 1
            assert await (await store.get("run:nightly")).leases.active() is None

    run(story)


def test_asyncios_own_cancel_while_entering_a_run_leaves_no_lease(path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as store:
            engine = store.sync.engine
            lease = engine.lease
            entered, gate = threading.Event(), threading.Event()

            def slow(*args: Any) -> Any:
                entered.set()
                assert gate.wait(30)
                return lease(*args)

            async def work() -> None:
                async with store.runs.resume_or_start("nightly"):
                    raise AssertionError("cancelled before it was entered")

            engine.lease = slow  # type: ignore[method-assign]
            task = asyncio.create_task(work())
            await asyncio.to_thread(entered.wait)
            task.cancel()
            await asyncio.sleep(0)
            gate.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            engine.lease = lease  # type: ignore[method-assign]
            thread = await store.get("run:nightly", deleted=True)
            assert await thread.leases.active() is None

    asyncio.run(story())


def test_a_session_is_a_document_on_both_sides(run: Callable[..., Any], path: Path) -> None:
    async def story() -> None:
        async with await clew.open_async(path) as store:
            session = await store.sessions.new("anthropic", workspace="/src/shop")
            assert not await store.sessions.save(session)
            usage = {"input_tokens": 3}
            assert await store.sessions.append_message(
                session, {"role": "user", "content": "Hello"}, usage=usage
            )
            assert [
                call.body["input_tokens"] async for call in store.sessions.calls(session.id)
            ] == [3]
            assert (await store.sessions.thread(session.id)).store is store
            assert store.sync.sessions.load(session.id).messages == session.messages
            with pytest.raises(clew.NotFound):
                async for _ in store.sessions.calls("nobody"):
                    raise AssertionError("there is no such session")

    run(story)


def test_files_go_back_and_forth(run: Callable[..., Any], tmp_path: Path) -> None:
    async def story() -> None:
        tree = tmp_path / "tree"
        tree.mkdir()
        (tree / "a.txt").write_text("one")
        async with await clew.open_async(tmp_path / "threads.db") as store:
            thread = await store.create()
            asked = await thread.append_message({"role": "user", "content": "Change it"})
            first = await thread.snapshots.take(tree)
            await thread.append_message({"role": "assistant", "content": "I change it."})
            (tree / "a.txt").write_text("two")
            await thread.snapshots.take(tree)
            done: list[tuple[int, int]] = []
            await thread.rewind(asked.id, progress=lambda *counts: done.append(counts))
            assert ((tree / "a.txt").read_text(), done[-1]) == ("one", (1, 1))
            await thread.undo_rewind()
            assert (tree / "a.txt").read_text() == "two"
            fork = await thread.fork(at=first.id, files_to=tmp_path / "fork")
            assert (tmp_path / "fork" / "a.txt").read_text() == "one"
            assert fork.store is store

    run(story)


def test_the_handles_load_no_facet_before_it_is_asked_for() -> None:
    script = (
        "import sys, clew\n"
        "clew.open_async\n"
        "parts = ('clew.facets', 'clew.snapshots', 'clew.upkeep', 'clew.aio.facets')\n"
        "print([name for name in parts if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
