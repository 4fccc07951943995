"""The same as `user_program`, on the asynchronous side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from msgspec import UNSET

import clew
from clew import (
    AsyncConversations,
    AsyncRuns,
    AsyncSessions,
    AsyncStore,
    AsyncThread,
    AsyncTurn,
    Entry,
    Fact,
    Lease,
    Move,
    Page,
    Record,
    ThreadInfo,
)
from clew.aio.facets import AsyncConversation, AsyncRun
from clew.aio.handles import AsyncBlobs
from clew.aio.snapshots import AsyncSnapshots
from clew.aio.turn import AsyncLeases, AsyncStreamedReply
from clew.context.compaction import Compacted
from clew.context.normalise import OpenCall
from clew.context.request import Context
from clew.core.removal import Purged, Receipt
from clew.exchange import Reply
from clew.facets.conversations import ConversationInfo, Failure, Reclaimed
from clew.facets.runs import Checkpoint, CheckpointInfo
from clew.facets.sessions import Event, Session, SessionInfo
from clew.search.searcher import Hit, SearchPage
from clew.snapshots.ignore import Rules
from clew.snapshots.model import FileChange, Restored, Rewound, Snapshot
from clew.tree import Comparison, Relative
from clew.upkeep.cleanup import CleanupReport
from clew.upkeep.copy import CopyReport
from clew.usage import UsageReport

USER = {"role": "user", "content": "Hello"}
ANSWER = {"role": "assistant", "content": "Hello!"}
COMPLETION = {"choices": [{"message": ANSWER}]}
CHUNK = {"id": "c", "choices": [{"index": 0, "delta": {"content": "word"}}]}
LONG_AGO = timedelta(days=365)


def progress(done: int, total: int) -> None:
    """What a bar on a screen would show."""


def keep(info: ThreadInfo) -> bool:
    return info.title is not None


def count(text: str) -> int:
    return len(text)


async def summarize(messages: list[Any]) -> str:
    return f"{len(messages)} messages"


async def main(folder: Path) -> None:
    address = folder / "threads.db"
    await (await clew.open_async(address, create=True, busy_seconds=5.0, durability="full")).close()
    await (await clew.open_async(address, readonly=True)).close()
    async with (
        await clew.open_async(address, namespace="default") as store,
        await clew.open_async("memory:") as other,
    ):
        await use_thread(await store.create("worked-on"), folder)
        await use_leases((await store.create("leased")).leases, store.now())
        work = folder / "work"
        work.mkdir()
        taken = (await store.create()).turn(
            owner="me", id="turn-1", ttl_seconds=5.0, wait_seconds=0.1, files=work
        )
        async with taken as turn:
            await use_turn(turn)
        await use_blobs(store.blobs)
        await use_conversations(store.conversations)
        await use_conversation(store.conversations.get("chat-2"))
        await use_runs(store.runs)
        async with store.runs.resume_or_start("run-2") as run:
            await use_run(run)
        await use_sessions(store.sessions, str(folder), store.now())
        pictured = await store.create("pictured")
        await use_snapshots(pictured.snapshots, pictured, folder)
        await use_store(store, other)


async def use_store(store: AsyncStore, other: AsyncStore) -> None:
    now = store.now()
    await store.create("boss")
    made = await store.create(
        "thread-1",
        title="A title",
        tags=["a"],
        workspace="/src",
        parent="boss",
        facts={"answer": 42},
        time=now,
        updated_at=now,
    )
    first = await made.append("event", 1)
    assert_type(await store.get("thread-1", deleted=False), AsyncThread)
    assert_type(await store.find("nobody"), AsyncThread | None)
    assert_type((await store.resolve("thread-1", deleted=True)).id, str)
    page = await store.list(
        order="updated",
        archived=None,
        deleted=False,
        tag="a",
        workspace="/src",
        status=None,
        parent="boss",
        origin=None,
        roots=False,
        after=now - LONG_AGO,
        before=now + LONG_AGO,
        limit=10,
        cursor=None,
    )
    assert_type(page, Page[ThreadInfo])
    every = store.threads(
        order="created",
        archived=False,
        deleted=False,
        tag=None,
        workspace=None,
        status=None,
        parent=None,
        origin=None,
        roots=False,
        after=now - LONG_AGO,
        before=None,
        limit=2,
    )
    assert_type(every, AsyncIterator[ThreadInfo])
    assert [info.id async for info in every]
    assert_type(await store.clone("worked-on", id="cloned", time=store.now()), AsyncThread)
    id = await store.fork_id("thread-1")
    await store.fork(
        "thread-1", at=first.id, id=id, title="A fork", parent="thread-1", facts={"n": 1}, time=now
    )
    assert_type(
        await store.get_or_create(
            "thread-1",
            title="A thread",
            tags=["t"],
            workspace="/w",
            parent=None,
            facts={"n": 1},
            time=now,
            updated_at=now,
        ),
        AsyncThread,
    )
    await store.fork("thread-1", before=first.id)
    await store.delete(id)
    assert_type(await store.restore(id), AsyncThread)
    assert_type(await store.tree("thread-1"), list[Relative])
    assert_type(await store.unfinished_turns(), dict[str, clew.Entry])
    assert_type(await store.compare("thread-1", id), Comparison)
    assert_type(await store.compare(made, await store.get(id)), Comparison)
    assert_type(await store.erase("thread-1", [first.id], reason="a key", shrink=False), Receipt)
    assert_type((await store.purge(id)).children, tuple[str, ...])
    assert_type(store.conversations, AsyncConversations)
    assert_type(store.runs, AsyncRuns)
    assert_type(store.sessions, AsyncSessions)
    assert store.properties.place
    found = await store.search(
        "login",
        substring=False,
        thread=None,
        agent=None,
        workspace=None,
        model=None,
        tool=None,
        role="user",
        kind=None,
        path=None,
        tag=None,
        since=None,
        until=None,
        deleted=False,
        limit=5,
        cursor=None,
        context=80,
        progress=None,
    )
    assert_type(found, SearchPage)
    assert_type(found.items, list[Hit])
    assert_type(await store.reindex(progress=None), int)
    assert (await store.stats()).threads
    used = await store.usage(
        "thread-1",
        tree=True,
        by="thread",
        since=timedelta(days=1),
        until=now,
        timezone="UTC",
        model=None,
        workspace=None,
        agent=None,
        prices={"m": {"input": 1, "output": 2}},
        progress=progress,
    )
    assert_type(used, UsageReport)
    assert_type(await store.usage(made, since=timedelta(days=1)), UsageReport)
    assert await store.verify(quick=True, progress=progress) == []
    assert_type(await store.copy_to(other, progress=progress), CopyReport)
    assert await store.sweep(grace_seconds=60.0)
    packed = await store.pack(tail=8, idle_seconds=60.0, max_seconds=1.0, shrink=False)
    assert packed.complete
    report = await store.cleanup(
        older_than=LONG_AGO,
        keep=keep,
        deleted_only=False,
        archived=False,
        limit=1,
        dry_run=True,
        progress=progress,
    )
    assert_type(report, CleanupReport)
    assert_type(store.blobs, AsyncBlobs)
    await store.close()


async def use_blobs(blobs: AsyncBlobs) -> None:
    hash = await blobs.put(b"bytes")
    assert_type(await blobs.get(hash), bytes)
    assert_type(await blobs.has(hash), bool)


async def use_thread(thread: AsyncThread, folder: Path) -> None:
    now = thread.store.now()
    one = await thread.append(
        "event",
        {"n": 1},
        id="event-1",
        parent=None,
        turn="turn-0",
        format=None,
        meta={"k": "v"},
        blobs=[],
        time=now,
        expect=None,
        fence=None,
    )
    assert_type(one, Entry)
    two = [clew.draft("event", 2), clew.draft("event", 3)]
    assert_type(await thread.append(two, expect=one.id, fence=None), list[Entry])
    said = await thread.append_message(
        USER,
        format="plain",
        id="message-1",
        parent=one.id,
        turn=None,
        meta=None,
        blobs=(),
        time=now,
        expect=await thread.leaf,
        fence=None,
    )
    assert_type(said, Entry)
    await thread.append_message(ANSWER)
    reply = await thread.append_response(
        COMPLETION,
        format="openai-chat",
        id="thread-reply",
        parent=UNSET,
        turn=None,
        meta=None,
        blobs=(),
        time=now,
        expect=UNSET,
        fence=None,
    )
    assert_type(reply, Reply)
    assert_type(reply.calls, tuple[OpenCall, ...])
    async with thread.streaming(
        "openai-chat", id="streamed", meta=None, save_seconds=1.0, turn=None, fence=None
    ) as streamed:
        await use_stream(streamed)
    assert_type(streamed.result, Reply)
    outputs = {call.id: call.arguments for call in reply.calls}
    given = await thread.append_results(
        outputs,
        id="results",
        parent=UNSET,
        turn="turn-0",
        meta=None,
        blobs=(),
        time=now,
        expect=UNSET,
        fence=None,
    )
    assert_type(given, list[Entry])
    assert_type(await thread.append_results([(call, "") for call in reply.calls]), list[Entry])
    wrote = await thread.write([clew.draft("event", 4)], expect=await thread.leaf, fence=None)
    assert_type(wrote, list[Record])
    assert_type(await thread.move(one.id, id="move-1", expect=await thread.leaf, fence=None), Move)
    await thread.move(said.id, time=None)
    assert_type(await thread.get(one.id), Entry)
    assert_type(await thread.path(said.id, after=one.id, limit=5), list[Entry])
    assert_type(thread.entries(), AsyncIterator[Entry])
    assert_type(thread.read(after=0), AsyncIterator[Record])
    assert [record async for record in thread.follow(after=0, idle_seconds=0.0)]
    assert await thread.segments()
    assert_type(await thread.leaves(), list[str])
    assert_type(await thread.children(None), list[str])
    assert_type(await thread.compare(one.id, said.id), Comparison)
    assert_type(await thread.compare(one.id, said.id, thread=thread.id), Comparison)
    if one.turn == "never":
        assert_type(await thread.adopt("fork", force=True, fence=None), list[Entry])
    assert_type(await thread.compare(one.id, said.id, thread=thread), Comparison)
    assert_type(await thread.set(title="A title", mine=[1, 2]), list[Fact])
    assert_type(await thread.set_facts({"a-key": 1}), list[Fact])
    await thread.set_title("Better", status="ready", source="user", error=None)
    await thread.viewed(now)
    await thread.label(said.id, "the beginning")
    assert_type(await thread.erase(said.id, reason="a key", shrink=False), Receipt)
    assert_type(await thread.info, ThreadInfo)
    assert_type(await thread.facts, dict[str, Any])
    assert_type(await thread.labels, dict[str, str])
    context = await thread.context(
        "openai-chat",
        leaf=said.id,
        purpose="display",
        compacted=True,
        budget_tokens=1000,
        count=count,
        system=True,
        signal_tools=["ping"],
        segments=True,
    )
    assert_type(context, Context)
    assert_type(context.json(), bytes)
    assert await thread.compact(lambda messages: summarize(messages)) is None
    for _ in range(3):
        await thread.append_message(USER)
        await thread.append_message(ANSWER)
    compacted = await thread.compact(
        summarize,
        summary=None,
        through=None,
        keep_turns=1,
        keep_tokens=None,
        keep_user_tokens=10,
        max_tokens=4000,
        format=None,
        fence=None,
        trigger="manual",
        reason="to show it",
        phase="completed",
        usage_before={"tokens": 100},
        usage_after=None,
        details=None,
    )
    assert_type(compacted, Entry | None)
    assert_type(await thread.compaction(), Compacted | None)
    usage = await thread.usage(
        tree=True,
        by="model",
        since=None,
        until=now,
        timezone="UTC",
        model="m",
        workspace=None,
        agent=None,
        prices=None,
        progress=None,
    )
    assert_type(usage, UsageReport)
    assert_type(await thread.uncompact(fence=None), Entry | None)
    async with thread.turn(
        owner="me", id="turn-2", ttl_seconds=5.0, wait_seconds=0.0, files=None
    ) as turn:
        assert_type(turn, AsyncTurn)
    assert await thread.unfinished_turn() is None
    assert await thread.count_user_messages() == 4
    assert_type(thread.snapshots, AsyncSnapshots)
    assert_type(thread.leases, AsyncLeases)
    assert_type(thread.store, AsyncStore)
    tree = folder / f"tree of {thread.id}"
    tree.mkdir()
    (tree / "a.txt").write_text("one")
    asked = await thread.append_message(USER)
    taken = await thread.snapshots.take(tree)
    (tree / "a.txt").write_text("two")
    rewound = await thread.rewind(
        asked.id,
        conversation=True,
        files=True,
        root=tree,
        at=False,
        dry_run=False,
        force=True,
        fence=None,
        progress=progress,
    )
    assert_type(rewound, Rewound)
    await thread.undo_rewind(dry_run=False, force=True, fence=None, progress=progress, root=tree)
    redone = await thread.redo_rewind(
        dry_run=False, force=True, fence=None, progress=progress, root=tree
    )
    assert_type(redone, Rewound)
    await thread.undo_rewind()
    fork = await thread.fork(
        files_to=folder / f"fork of {thread.id}",
        root=tree,
        at=taken.id,
        id="thread-fork",
        title=None,
        parent=None,
        facts=None,
        time=now,
    )
    assert_type(fork, AsyncThread)
    assert_type((await thread.fork(before=asked.id)).id, str)


async def use_leases(leases: AsyncLeases, now: datetime) -> None:
    lease = await leases.acquire("me", ttl_seconds=5.0, turn="turn-1")
    assert_type(await leases.renew(lease, ttl_seconds=5.0), Lease)
    assert_type(await leases.active(), Lease | None)
    await leases.release(lease)
    assert_type(await leases.clear_expired(now), Lease | None)


async def use_stream(reply: AsyncStreamedReply) -> None:
    assert_type(reply.thread, AsyncThread)
    assert_type(reply.format, str)
    assert_type(reply.id, str)
    assert_type(await reply.feed(CHUNK), None)
    assert_type(reply.take(CHUNK), bool)
    assert_type(await reply.save(), Entry | None)
    assert_type(reply.text, str)
    try:
        assert_type(reply.result, Reply)
    except RuntimeError:
        pass  # the block is not left yet


async def use_turn(turn: AsyncTurn) -> None:
    leaf = await turn.thread.leaf
    one = await turn.append(
        "event",
        {"n": 1},
        format=None,
        id="event-2",
        parent=leaf,
        turn="turn-1",
        meta=None,
        blobs=(),
        time=turn.thread.store.now(),
        expect=leaf,
    )
    assert_type(one, Entry)
    assert_type(await turn.append([clew.draft("event", 2)], expect=one.id), list[Entry])
    reply = await turn.append_response(
        COMPLETION,
        format="openai-chat",
        id="turn-reply",
        parent=UNSET,
        turn=None,
        meta=None,
        blobs=(),
        time=turn.thread.store.now(),
        expect=UNSET,
    )
    assert_type(reply, Reply)
    async with turn.streaming("gemini", id="streamed-2", meta=None, save_seconds=0) as streamed:
        assert_type(streamed, AsyncStreamedReply)
    given = await turn.append_results(
        {},
        id="results",
        parent=UNSET,
        turn="turn-1",
        meta=None,
        blobs=(),
        time=turn.thread.store.now(),
        expect=UNSET,
    )
    assert_type(given, list[Entry])
    said = await turn.append_message(
        USER,
        format="plain",
        id="message-2",
        parent=one.id,
        turn="turn-1",
        meta=None,
        blobs=(),
        time=turn.thread.store.now(),
        expect=await turn.thread.leaf,
    )
    assert_type(await turn.move(said.id), Move)
    assert_type(await turn.save_point({"step": 1}), Entry)
    context = await turn.context(
        "plain",
        leaf=said.id,
        purpose="display",
        compacted=True,
        budget_tokens=1000,
        count=count,
        system=True,
        signal_tools=["ping"],
        segments=True,
    )
    assert_type(context, Context)
    compacted = await turn.compact(
        summarize,
        summary=None,
        through=None,
        keep_turns=0,
        keep_tokens=None,
        keep_user_tokens=10,
        max_tokens=4000,
        format=None,
        trigger="manual",
        reason="to show it",
        phase="completed",
        usage_before={"tokens": 100},
        usage_after=None,
        details=None,
    )
    assert_type(compacted, Entry | None)
    assert_type(await turn.uncompact(), Entry | None)
    asked = await turn.append_message(USER)
    assert turn.files is not None
    (Path(turn.files) / "a.txt").write_text("first")
    taken = await turn.snapshot(
        turn.files, at=asked.id, label="first", rules=Rules(), progress=progress
    )
    assert_type(taken, Snapshot)
    await turn.append_message(ANSWER)
    (Path(turn.files) / "a.txt").write_text("changed")
    rewound = await turn.rewind(
        asked.id,
        conversation=True,
        files=True,
        root=turn.files,
        at=True,
        dry_run=False,
        force=True,
        progress=progress,
    )
    assert_type(rewound, Rewound)
    undone = await turn.undo_rewind(dry_run=False, force=True, progress=progress, root=turn.files)
    assert_type(undone, Rewound)
    redone = await turn.redo_rewind(dry_run=False, force=True, progress=progress, root=turn.files)
    assert_type(redone, Rewound)
    restored = await turn.restore(
        taken, turn.files, ["a.txt"], dry_run=True, force=True, progress=progress
    )
    assert_type(restored, Restored)
    assert_type(turn.lease, Lease)
    assert (turn.id, turn.owner) == ("turn-1", "me")
    turn.abort("changed my mind")
    turn.wait_for("an approval")


async def use_conversations(conversations: AsyncConversations) -> None:
    quiet = type(conversations)(conversations.store, on_error="log")
    assert (quiet.on_error, conversations.on_error) == ("log", "raise")
    await conversations.add_message("chat-1", "user", "Hello")
    await conversations.add_full_message("chat-1", ANSWER)
    await conversations.set_summary("chat-1", "A greeting.")
    await conversations.add_message("chat-1", "user", "Hello", format="plain", id="hello")
    await conversations.add_full_message("chat-1", ANSWER, format="plain", id="answer")
    leaf = await conversations.set_history(
        "chat-1", (USER,), ids=["u1"], format="plain", expect="answer"
    )
    assert_type(leaf, str | None)
    await conversations.truncate_history("chat-1", 1, exact=True)
    assert_type(await conversations.compact_storage("chat-1", drop_branches=True), Reclaimed)
    fork = await conversations.fork(
        "chat-1",
        "chat-1b",
        at="u1",
        before=None,
        title="Other",
        parent=None,
        facts={"n": 1},
        time=conversations.store.now(),
    )
    assert_type(fork, AsyncConversation)
    assert_type(await conversations.thread("chat-1"), AsyncThread)
    assert_type(await conversations.of(await conversations.thread("chat-1")), AsyncConversation)
    assert_type([info.key async for info in conversations.all()], list[str])
    await conversations.save("chat-1")
    assert_type(await conversations.get_history("chat-1"), list[Any])
    assert_type(await conversations.get_summary("chat-1"), str)
    assert_type(conversations.get("chat-1"), AsyncConversation)
    assert_type(await conversations.get_or_create("chat-1"), AsyncConversation)
    assert_type(await conversations.list(limit=5, cursor=None), Page[ConversationInfo])
    assert_type(conversations.failed, int)
    assert_type(conversations.failures, list[Failure])
    await conversations.delete("chat-1")
    conversations = (await clew.open_async("memory:")).conversations
    await conversations.close()


async def use_conversation(conversation: AsyncConversation) -> None:
    await conversation.add("user", "Hello", format="plain", id="hello-2")
    await conversation.add_message(ANSWER, format=None, id="answer-2")
    await conversation.set_summary("A greeting.")
    assert_type(await conversation.leaf, str | None)
    leaf = await conversation.set_history([USER, ANSWER], ids=None, format=None, expect=UNSET)
    assert_type(leaf, str | None)
    fork = await conversation.fork(
        None, at=None, before=leaf, title=None, parent=None, facts=None, time=None
    )
    assert_type(fork, AsyncConversation)
    assert_type(await conversation.compact_storage(drop_branches=False), Reclaimed)
    await conversation.truncate(1, exact=True)
    await conversation.save()
    assert_type(conversation.key, str)
    assert_type(await conversation.history(), list[Any])
    assert_type(await conversation.entries(), list[Entry])
    assert_type(await conversation.summary, str)
    assert_type(await conversation.thread, AsyncThread)
    await conversation.delete()


async def use_runs(runs: AsyncRuns) -> None:
    saved = await runs.save(Checkpoint(run_id="run-1", messages=[USER]), format=None)
    assert_type(saved, Checkpoint)
    revision = (await runs.history("run-1"))[0].revision
    assert_type(await runs.load("run-1", revision=revision), Checkpoint)
    assert_type(await runs.find("run-1"), Checkpoint | None)
    assert_type(await runs.has("run-1"), bool)
    assert_type(await runs.list(order="created", limit=5, cursor=None), Page[CheckpointInfo])
    assert_type([info async for info in runs.all()], list[CheckpointInfo])
    assert_type(await runs.thread("run-1"), AsyncThread)
    fork = await runs.fork("run-1", id="fork", revision=None, at=None, before=None)
    assert_type(await runs.save(fork.replace(iteration=1), updated_at=fork.updated_at), Checkpoint)
    await runs.delete("fork")
    async with runs.resume_or_start(
        "run-1", task_name="report", owner="me", ttl_seconds=5.0, format=None
    ) as run:
        assert_type(run, AsyncRun)
    await runs.delete("run-1")
    assert_type(runs.store, AsyncStore)


async def use_run(run: AsyncRun) -> None:
    run.messages.append(USER)
    run.iteration += 1
    run.input_tokens = run.output_tokens = 10
    run.task_name, run.system_prompt = "report", "You are brief."
    run.metadata["branch"] = "main"
    saved = await run.save(
        [USER, ANSWER],
        iteration=2,
        input_tokens=20,
        output_tokens=20,
        system_prompt="You are brief.",
        metadata={},
    )
    assert_type(saved, Checkpoint)
    assert_type(run.lease, Lease)
    assert (run.resumed, run.run_id) == (False, "run-2")
    run.done()


async def use_sessions(sessions: AsyncSessions, workspace: str, now: datetime) -> None:
    session = await sessions.new("vendor", "endpoint", "model", workspace=workspace, id="session-1")
    assert_type(session, Session)
    stored = await sessions.append_message(
        session, USER, usage={"input_tokens": 5}, model="large-2", format=None, fence=None
    )
    assert_type(stored, Entry)
    assert await sessions.save(session, format=None, fence=None)
    event = Event("event-1", "ui", "opened", b"null")
    assert_type(await sessions.append_event(session, event, fence=None), Entry)
    assert_type(event.raw, bytes)
    assert_type(await sessions.append_checkpoint(session, [USER], 3, fence=None), Entry)
    assert await sessions.ensure_meta(session)
    await sessions.set_title(session, "A greeting", source="provider")
    assert_type(await sessions.load("session-1", full=True, events=False), Session)
    page = await sessions.list(workspace, limit=5, cursor=None, archived=None)
    assert_type(page, Page[SessionInfo])
    assert_type(await sessions.latest(workspace), SessionInfo | None)
    assert_type(await sessions.thread("session-1"), AsyncThread)
    calls = sessions.calls("session-1")
    assert_type(calls, AsyncIterator[Entry])
    assert len([call async for call in calls]) == 1
    assert sessions.has_user_interaction(session)
    assert_type(await sessions.export_markdown(session), str)
    assert await sessions.cleanup_older_than(now - LONG_AGO) == 0
    fork = await sessions.fork("session-1", id="fork", at=None, before=None, title="Another way")
    assert_type(fork, Session)
    everything = [info async for info in sessions.all(workspace, archived=None)]
    assert_type(everything, list[SessionInfo])
    assert (len(everything), everything[0].damaged, everything[0].thread) == (
        2,
        None,
        "session:fork",
    )
    assert_type(await sessions.purge("fork"), Purged)
    assert await sessions.save(session, updated_at=now)
    await sessions.delete("session-1")
    await sessions.restore("session-1")
    assert_type(sessions.store, AsyncStore)


async def use_snapshots(snapshots: AsyncSnapshots, thread: AsyncThread, folder: Path) -> None:
    tree = folder / f"tree of {thread.id}"
    tree.mkdir()
    (tree / "a.txt").write_text("one\n")
    asked = await thread.append_message(USER)
    first = await snapshots.take(
        tree,
        at=asked.id,
        label="first",
        rules=Rules(secrets=True),
        fence=None,
        progress=progress,
    )
    assert_type(first, Snapshot)
    same = await snapshots.take_if_changed(
        tree, label="same", rules=Rules(secrets=True), fence=None, progress=progress
    )
    assert_type(same, Snapshot)
    assert_type(await snapshots.rules(), Rules)
    assert await snapshots.survey(tree, Rules())
    assert_type(await snapshots.list(), list[Snapshot])
    assert_type(await snapshots.get(first.id), Snapshot)
    assert_type(await snapshots.latest(asked.id), Snapshot | None)
    assert [path for path, _ in await snapshots.files(first)] == ["a.txt"]
    assert_type(await snapshots.read(first, "a.txt"), bytes)
    (tree / "a.txt").write_text("two\n")
    second = await snapshots.take(tree)
    assert await snapshots.diff(first, second)
    assert await snapshots.diff(first, root=tree)
    assert_type(await snapshots.changes(first, second, limit=10), list[FileChange])
    assert_type(await snapshots.unified(first, second, path="a.txt"), str)
    assert_type(await snapshots.unified(first, root=tree), str)
    assert await snapshots.history("a.txt", root=tree)
    assert (await snapshots.blame("a.txt", snapshot=second))[0].version
    assert (await snapshots.stats()).snapshots == 2
    restored = await snapshots.restore(
        first, tree, ["a.txt"], dry_run=False, force=True, fence=None, progress=progress
    )
    assert_type(restored, Restored)
    rewound = await snapshots.rewind(
        asked.id,
        conversation=False,
        files=True,
        root=tree,
        at=True,
        dry_run=False,
        force=True,
        fence=None,
        progress=progress,
    )
    assert_type(rewound, Rewound)
    await snapshots.undo_rewind(dry_run=False, force=True, fence=None, progress=progress, root=tree)
    await snapshots.redo_rewind(dry_run=True, force=True, fence=None, progress=progress, root=tree)
    found = await snapshots.recover(
        force=True, root=tree, abandon=False, fence=None, progress=progress
    )
    assert_type(found, Rewound | None)
    fork = await snapshots.fork(
        folder / f"fork of {thread.id}",
        root=tree,
        at=first.id,
        id="snapshots-fork",
        title="T",
        parent=thread.id,
        facts={},
        time=thread.store.now(),
    )
    assert_type(fork, AsyncThread)
    await snapshots.fork(folder / f"other fork of {thread.id}", before=asked.id)
    await snapshots.pin(first.id, True)
    assert_type(await snapshots.limit(keep_last=10, keep_bytes=10**9), list[Snapshot])
    await snapshots.drop(second.id)


async def mistakes(store: AsyncStore, thread: AsyncThread, turn: AsyncTurn) -> None:
    """What is no option, or of another type, is told before the program runs."""
    await clew.open_async("memory:", durable=True)  # type: ignore[call-arg]
    await store.create(titel="T")  # type: ignore[call-arg]
    await store.list(tagged="a")  # type: ignore[call-arg]
    await store.cleanup(dry_run=True)  # type: ignore[call-arg]
    await thread.fork(att="entry")  # type: ignore[call-arg]
    await thread.append("event", 1, fence="7")  # type: ignore[call-overload]
    await thread.context("plain", budget=1000)  # type: ignore[call-arg]
    await thread.compact(summarize, why="it is long")  # type: ignore[call-arg]
    await thread.rewind("message-1", file=False)  # type: ignore[call-arg]
    await turn.append("event", 1, fence=7)  # type: ignore[call-overload]
    await turn.rewind("message-1", fence=7)  # type: ignore[call-arg]
