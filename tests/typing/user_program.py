"""A program that uses every public name with every argument.

It is here for the type checkers, which read it as they read a user's program, and it runs as well.
A function uses all of its first argument; `test_user_program.py` holds it to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from msgspec import UNSET

import clew
from clew import (
    Conversations,
    Entry,
    Fact,
    Lease,
    Move,
    Page,
    Record,
    Runs,
    Sessions,
    Store,
    Thread,
    ThreadInfo,
    Turn,
)
from clew.context.compaction import Compacted
from clew.context.normalise import OpenCall
from clew.context.request import Context
from clew.core.removal import Purged, Receipt
from clew.exchange import Reply
from clew.facets.conversations import Conversation, ConversationInfo, Failure, Reclaimed
from clew.facets.runs import Checkpoint, CheckpointInfo, Run
from clew.facets.sessions import Event, Session, SessionInfo
from clew.record import record_anthropic, record_gemini, record_openai
from clew.search.searcher import Hit, SearchPage
from clew.snapshots.facet import Snapshots
from clew.snapshots.ignore import Rules
from clew.snapshots.model import FileChange, Restored, Rewound, Snapshot
from clew.store import Blobs
from clew.stream import StreamedReply
from clew.tree import Comparison, Relative
from clew.turn import Leases
from clew.upkeep.cleanup import CleanupReport
from clew.upkeep.copy import CopyReport
from clew.usage import UsageReport, Used, line_of, usage_of

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


def summarize(messages: list[Any]) -> str:
    return f"{len(messages)} messages"


def main(folder: Path) -> None:
    address = folder / "threads.db"
    clew.open(
        address, create=True, namespace="default", busy_seconds=5.0, durability="full"
    ).close()
    clew.open("memory:", namespace="acme").close()
    clew.open(address, readonly=True).close()
    with clew.open(address) as store, clew.open("memory:") as other:
        use_thread(store.create("worked-on"), folder)
        use_leases(store.create("leased").leases, store.now())
        work = folder / "work"
        work.mkdir()
        with store.create().turn(
            owner="me", id="turn-1", ttl_seconds=5.0, wait_seconds=0.1, files=work
        ) as turn:
            use_turn(turn)
        use_blobs(store.blobs)
        use_conversations(store.conversations)
        use_conversation(store.conversations.get("chat-2"))
        use_runs(store.runs)
        with store.runs.resume_or_start("run-2") as run:
            use_run(run)
        use_sessions(store.sessions, str(folder), store.now())
        pictured = store.create("pictured")
        use_snapshots(pictured.snapshots, pictured, folder)
        use_store(store, other)


def use_store(store: Store, other: Store) -> None:
    now = store.now()
    store.create("boss")
    made = store.create(
        "thread-1",
        title="A title",
        tags=["a"],
        workspace="/src",
        parent="boss",
        facts={"answer": 42},
        time=now,
        updated_at=now,
    )
    first = made.append("event", 1)
    assert_type(store.get("thread-1", deleted=False), Thread)
    assert_type(store.find("nobody"), Thread | None)
    assert_type(store.resolve("thread-1", deleted=True).id, str)
    page = store.list(
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
    assert_type(every, Iterator[ThreadInfo])
    assert [info.id for info in every]
    assert_type(store.clone("worked-on", id="cloned", time=store.now()), Thread)
    id = store.fork_id("thread-1")
    store.fork(
        "thread-1", at=first.id, id=id, title="A fork", parent="thread-1", facts={"n": 1}, time=now
    )
    assert_type(
        store.get_or_create(
            "thread-1",
            title="A thread",
            tags=["t"],
            workspace="/w",
            parent=None,
            facts={"n": 1},
            time=now,
            updated_at=now,
        ),
        Thread,
    )
    store.fork("thread-1", before=first.id)
    store.delete(id)
    assert_type(store.restore(id), Thread)
    assert_type(store.tree("thread-1"), list[Relative])
    assert_type(store.unfinished_turns(), dict[str, clew.Entry])
    assert_type(store.compare("thread-1", id), Comparison)
    assert_type(store.compare(made, store.get(id)), Comparison)
    assert_type(store.erase("thread-1", [first.id], reason="a key", shrink=False), Receipt)
    assert_type((store.purge(id)).children, tuple[str, ...])
    assert_type(store.conversations, Conversations)
    assert_type(store.runs, Runs)
    assert_type(store.sessions, Sessions)
    assert store.properties.place
    found = store.search(
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
    assert_type(store.reindex(progress=None), int)
    assert store.stats().threads
    used = store.usage(
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
    assert_type(used.rows[0].used.tokens.input if used.rows else 0, int)
    assert_type(used.total.cost_microdollars, int | None)
    assert_type(usage_of(store, ["thread-1"]), dict[str, Used])
    assert_type(line_of(used.total), str)
    assert store.verify(quick=True, progress=progress) == []
    assert_type(store.copy_to(other, progress=progress), CopyReport)
    assert store.sweep(grace_seconds=60.0)
    assert store.pack(tail=8, idle_seconds=60.0, max_seconds=1.0, shrink=False).complete
    report = store.cleanup(
        older_than=LONG_AGO,
        keep=keep,
        deleted_only=False,
        archived=False,
        limit=1,
        dry_run=True,
        progress=progress,
    )
    assert_type(report, CleanupReport)
    assert_type(store.blobs, Blobs)
    store.close()


def use_blobs(blobs: Blobs) -> None:
    hash = blobs.put(b"bytes")
    assert_type(blobs.get(hash), bytes)
    assert_type(blobs.has(hash), bool)


def use_thread(thread: Thread, folder: Path) -> None:
    now = thread.store.now()
    one = thread.append(
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
    assert_type(thread.append(two, expect=one.id, fence=None), list[Entry])
    said = thread.append_message(
        USER,
        format="plain",
        id="message-1",
        parent=one.id,
        turn=None,
        meta=None,
        blobs=(),
        time=now,
        expect=thread.leaf,
        fence=None,
    )
    assert_type(said, Entry)
    thread.append_message(ANSWER)
    reply = thread.append_response(
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
    with thread.streaming(
        "openai-chat", id="streamed", meta=None, save_seconds=1.0, turn=None, fence=None
    ) as streamed:
        use_stream(streamed)
    assert_type(streamed.result, Reply)
    outputs = {call.id: call.arguments for call in reply.calls}
    given = thread.append_results(
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
    assert_type(thread.append_results([(call, "") for call in reply.calls]), list[Entry])
    assert_type(
        thread.write([clew.draft("event", 4)], expect=thread.leaf, fence=None), list[Record]
    )
    assert_type(thread.move(one.id, id="move-1", expect=thread.leaf, fence=None), Move)
    thread.move(said.id, time=None)
    assert_type(thread.get(one.id), Entry)
    assert_type(thread.path(said.id, after=one.id, limit=5), list[Entry])
    assert_type(thread.entries(), Iterator[Entry])
    assert_type(thread.read(after=0), Iterator[Record])
    assert list(thread.follow(after=0, idle_seconds=0.0))
    assert thread.segments()
    assert_type(thread.leaves(), list[str])
    assert_type(thread.children(None), list[str])
    assert_type(thread.compare(one.id, said.id), Comparison)
    assert_type(thread.compare(one.id, said.id, thread=thread.id), Comparison)
    if one.turn == "never":
        assert_type(thread.adopt("fork", force=True, fence=None), list[Entry])
    assert_type(thread.compare(one.id, said.id, thread=thread), Comparison)
    assert_type(thread.set(title="A title", mine=[1, 2]), list[Fact])
    assert_type(thread.set_facts({"a-key": 1}), list[Fact])
    thread.set_title("Better", status="ready", source="user", error=None)
    thread.viewed(now)
    thread.label(said.id, "the beginning")
    assert_type(thread.erase(said.id, reason="a key", shrink=False), Receipt)
    assert_type(thread.info, ThreadInfo)
    assert_type(thread.facts, dict[str, Any])
    assert_type(thread.labels, dict[str, str])
    context = thread.context(
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
    for _ in range(3):
        thread.append_message(USER)
        thread.append_message(ANSWER)
    compacted = thread.compact(
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
    assert_type(thread.compaction(), Compacted | None)
    usage = thread.usage(
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
    assert_type(thread.uncompact(fence=None), Entry | None)
    with thread.turn(
        owner="me", id="turn-2", ttl_seconds=5.0, wait_seconds=0.0, files=None
    ) as turn:
        assert_type(turn, Turn)
    assert thread.unfinished_turn() is None
    assert thread.count_user_messages() == 4
    assert_type(thread.snapshots, Snapshots)
    assert_type(thread.leases, Leases)
    assert_type(thread.store, Store)
    tree = folder / f"tree of {thread.id}"
    tree.mkdir()
    (tree / "a.txt").write_text("one")
    asked = thread.append_message(USER)
    taken = thread.snapshots.take(tree)
    (tree / "a.txt").write_text("two")
    rewound = thread.rewind(
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
    thread.undo_rewind(dry_run=False, force=True, fence=None, progress=progress, root=tree)
    redone = thread.redo_rewind(dry_run=False, force=True, fence=None, progress=progress, root=tree)
    assert_type(redone, Rewound)
    thread.undo_rewind()
    fork = thread.fork(
        files_to=folder / f"fork of {thread.id}",
        root=tree,
        at=taken.id,
        id="thread-fork",
        title=None,
        parent=None,
        facts=None,
        time=now,
    )
    assert_type(fork, Thread)
    assert_type(thread.fork(before=asked.id).id, str)


def use_leases(leases: Leases, now: datetime) -> None:
    lease = leases.acquire("me", ttl_seconds=5.0, turn="turn-1")
    assert_type(leases.renew(lease, ttl_seconds=5.0), Lease)
    assert_type(leases.active(), Lease | None)
    leases.release(lease)
    assert_type(leases.clear_expired(now), Lease | None)


def use_stream(reply: StreamedReply) -> None:
    assert_type(reply.thread, Thread)
    assert_type(reply.format, str)
    assert_type(reply.id, str)
    assert_type(reply.feed(CHUNK), None)
    assert_type(reply.take(CHUNK), bool)
    assert_type(reply.save(), Entry | None)
    assert_type(reply.text, str)
    try:
        assert_type(reply.result, Reply)
    except RuntimeError:
        pass  # the block is not left yet


def use_turn(turn: Turn) -> None:
    leaf = turn.thread.leaf
    one = turn.append(
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
    assert_type(turn.append([clew.draft("event", 2)], expect=one.id), list[Entry])
    reply = turn.append_response(
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
    with turn.streaming("gemini", id="streamed-2", meta=None, save_seconds=0) as streamed:
        assert_type(streamed, StreamedReply)
    given = turn.append_results(
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
    said = turn.append_message(
        USER,
        format="plain",
        id="message-2",
        parent=one.id,
        turn="turn-1",
        meta=None,
        blobs=(),
        time=turn.thread.store.now(),
        expect=turn.thread.leaf,
    )
    assert_type(turn.move(said.id), Move)
    assert_type(turn.save_point({"step": 1}), Entry)
    context = turn.context(
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
    compacted = turn.compact(
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
    assert_type(turn.uncompact(), Entry | None)
    asked = turn.append_message(USER)
    assert turn.files is not None
    (Path(turn.files) / "a.txt").write_text("first")
    taken = turn.snapshot(turn.files, at=asked.id, label="first", rules=Rules(), progress=progress)
    assert_type(taken, Snapshot)
    turn.append_message(ANSWER)
    (Path(turn.files) / "a.txt").write_text("changed")
    rewound = turn.rewind(
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
    undone = turn.undo_rewind(dry_run=False, force=True, progress=progress, root=turn.files)
    assert_type(undone, Rewound)
    redone = turn.redo_rewind(dry_run=False, force=True, progress=progress, root=turn.files)
    assert_type(redone, Rewound)
    restored = turn.restore(
        taken, turn.files, ["a.txt"], dry_run=True, force=True, progress=progress
    )
    assert_type(restored, Restored)
    assert_type(turn.lease, Lease)
    assert (turn.id, turn.owner) == ("turn-1", "me")
    turn.abort("changed my mind")
    turn.wait_for("an approval")


def use_conversations(conversations: Conversations) -> None:
    quiet = type(conversations)(conversations.store, on_error="log")
    assert (quiet.on_error, conversations.on_error) == ("log", "raise")
    conversations.add_message("chat-1", "user", "Hello")
    conversations.add_full_message("chat-1", ANSWER)
    conversations.set_summary("chat-1", "A greeting.")
    conversations.add_message("chat-1", "user", "Hello", format="plain", id="hello")
    conversations.add_full_message("chat-1", ANSWER, format="plain", id="answer")
    leaf = conversations.set_history("chat-1", (USER,), ids=["u1"], format="plain", expect="answer")
    assert_type(leaf, str | None)
    conversations.truncate_history("chat-1", 1, exact=True)
    assert_type(conversations.compact_storage("chat-1", drop_branches=True), Reclaimed)
    assert_type(
        conversations.fork(
            "chat-1",
            "chat-1b",
            at="u1",
            before=None,
            title="Other",
            parent=None,
            facts={"n": 1},
            time=conversations.store.now(),
        ),
        Conversation,
    )
    assert_type(conversations.thread("chat-1"), Thread)
    assert_type(conversations.of(conversations.thread("chat-1")), Conversation)
    assert_type([info.key for info in conversations.all()], list[str])
    conversations.save("chat-1")
    assert_type(conversations.get_history("chat-1"), list[Any])
    assert_type(conversations.get_summary("chat-1"), str)
    assert_type(conversations.get("chat-1"), Conversation)
    assert_type(conversations.get_or_create("chat-1"), Conversation)
    assert_type(conversations.list(limit=5, cursor=None), Page[ConversationInfo])
    assert_type(conversations.failed, int)
    assert_type(conversations.failures, list[Failure])
    conversations.delete("chat-1")
    conversations = clew.open("memory:").conversations
    conversations.close()


def use_conversation(conversation: Conversation) -> None:
    conversation.add("user", "Hello", format="plain", id="hello-2")
    conversation.add_message(ANSWER, format=None, id="answer-2")
    conversation.set_summary("A greeting.")
    assert_type(conversation.leaf, str | None)
    leaf = conversation.set_history([USER, ANSWER], ids=None, format=None, expect=UNSET)
    assert_type(leaf, str | None)
    fork = conversation.fork(
        None, at=None, before=leaf, title=None, parent=None, facts=None, time=None
    )
    assert_type(fork, Conversation)
    assert_type(conversation.compact_storage(drop_branches=False), Reclaimed)
    conversation.truncate(1, exact=True)
    conversation.save()
    assert_type(conversation.key, str)
    assert_type(conversation.history(), list[Any])
    assert_type(conversation.entries(), list[Entry])
    assert_type(conversation.summary, str)
    assert_type(conversation.thread, Thread)
    conversation.delete()


def use_runs(runs: Runs) -> None:
    saved = runs.save(Checkpoint(run_id="run-1", messages=[USER]), format=None)
    assert_type(saved, Checkpoint)
    revision = runs.history("run-1")[0].revision
    assert_type(runs.load("run-1", revision=revision), Checkpoint)
    assert_type(runs.find("run-1"), Checkpoint | None)
    assert_type(runs.has("run-1"), bool)
    assert_type(runs.list(order="created", limit=5, cursor=None), Page[CheckpointInfo])
    assert_type(list(runs.all()), list[CheckpointInfo])
    assert_type(runs.thread("run-1"), Thread)
    fork = runs.fork("run-1", id="fork", revision=None, at=None, before=None)
    assert_type(runs.save(fork.replace(iteration=1), updated_at=fork.updated_at), Checkpoint)
    runs.delete("fork")
    with runs.resume_or_start(
        "run-1", task_name="report", owner="me", ttl_seconds=5.0, format=None
    ) as run:
        assert_type(run, Run)
    runs.delete("run-1")
    assert_type(runs.store, Store)


def use_run(run: Run) -> None:
    run.messages.append(USER)
    run.iteration += 1
    run.input_tokens = run.output_tokens = 10
    run.task_name, run.system_prompt = "report", "You are brief."
    run.metadata["branch"] = "main"
    saved = run.save(
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


def use_sessions(sessions: Sessions, workspace: str, now: datetime) -> None:
    session = sessions.new("vendor", "endpoint", "model", workspace=workspace, id="session-1")
    assert_type(session, Session)
    stored = sessions.append_message(
        session, USER, usage={"input_tokens": 5}, model="large-2", format=None, fence=None
    )
    assert_type(stored, Entry)
    assert sessions.save(session, format=None, fence=None)
    event = Event("event-1", "ui", "opened", b"null")
    assert_type(sessions.append_event(session, event, fence=None), Entry)
    assert_type(event.raw, bytes)
    assert_type(sessions.append_checkpoint(session, [USER], 3, fence=None), Entry)
    assert sessions.ensure_meta(session)
    sessions.set_title(session, "A greeting", source="provider")
    assert_type(sessions.load("session-1", full=True, events=False), Session)
    page = sessions.list(workspace, limit=5, cursor=None, archived=None)
    assert_type(page, Page[SessionInfo])
    assert_type(sessions.latest(workspace), SessionInfo | None)
    assert_type(sessions.thread("session-1"), Thread)
    calls = sessions.calls("session-1")
    assert_type(calls, Iterator[Entry])
    assert len(list(calls)) == 1
    assert sessions.has_user_interaction(session)
    assert_type(sessions.export_markdown(session), str)
    assert sessions.cleanup_older_than(now - LONG_AGO) == 0
    fork = sessions.fork("session-1", id="fork", at=None, before=None, title="Another way")
    assert_type(fork, Session)
    everything = list(sessions.all(workspace, archived=None))
    assert_type(everything, list[SessionInfo])
    assert (len(everything), everything[0].damaged, everything[0].thread) == (
        2,
        None,
        "session:fork",
    )
    assert_type(sessions.purge("fork"), Purged)
    assert sessions.save(session, updated_at=now)
    sessions.delete("session-1")
    sessions.restore("session-1")
    assert_type(sessions.store, Store)


def use_snapshots(snapshots: Snapshots, thread: Thread, folder: Path) -> None:
    tree = folder / f"tree of {thread.id}"
    tree.mkdir()
    (tree / "a.txt").write_text("one\n")
    asked = thread.append_message(USER)
    first = snapshots.take(
        tree,
        at=asked.id,
        label="first",
        rules=Rules(secrets=True),
        fence=None,
        progress=progress,
    )
    assert_type(first, Snapshot)
    same = snapshots.take_if_changed(
        tree, label="same", rules=Rules(secrets=True), fence=None, progress=progress
    )
    assert_type(same, Snapshot)
    assert_type(snapshots.rules(), Rules)
    assert snapshots.survey(tree, Rules())
    assert_type(snapshots.list(), list[Snapshot])
    assert_type(snapshots.get(first.id), Snapshot)
    assert_type(snapshots.latest(asked.id), Snapshot | None)
    assert [path for path, _ in snapshots.files(first)] == ["a.txt"]
    assert_type(snapshots.read(first, "a.txt"), bytes)
    (tree / "a.txt").write_text("two\n")
    second = snapshots.take(tree)
    assert snapshots.diff(first, second)
    assert snapshots.diff(first, root=tree)
    assert_type(snapshots.changes(first, second, limit=10), list[FileChange])
    assert_type(snapshots.unified(first, second, path="a.txt"), str)
    assert_type(snapshots.unified(first, root=tree), str)
    assert snapshots.history("a.txt", root=tree)
    assert snapshots.blame("a.txt", snapshot=second)[0].version
    assert snapshots.stats().snapshots == 2
    restored = snapshots.restore(
        first, tree, ["a.txt"], dry_run=False, force=True, fence=None, progress=progress
    )
    assert_type(restored, Restored)
    rewound = snapshots.rewind(
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
    snapshots.undo_rewind(dry_run=False, force=True, fence=None, progress=progress, root=tree)
    snapshots.redo_rewind(dry_run=True, force=True, fence=None, progress=progress, root=tree)
    found = snapshots.recover(force=True, root=tree, abandon=False, fence=None, progress=progress)
    assert_type(found, Rewound | None)
    fork = snapshots.fork(
        folder / f"fork of {thread.id}",
        root=tree,
        at=first.id,
        id="snapshots-fork",
        title="T",
        parent=thread.id,
        facts={},
        time=thread.store.now(),
    )
    assert_type(fork, Thread)
    snapshots.fork(folder / f"other fork of {thread.id}", before=asked.id)
    snapshots.pin(first.id, True)
    assert_type(snapshots.limit(keep_last=10, keep_bytes=10**9), list[Snapshot])
    snapshots.drop(second.id)


def use_recorded(client: Path, thread: Thread, turn: Turn) -> None:
    """A client comes back as what it was. The SDKs are not looked into: any type stands for one."""
    assert_type(record_anthropic(client, thread), Path)
    assert_type(record_openai(client, turn), Path)
    assert_type(record_gemini(client, thread), Path)


def mistakes(store: Store, thread: Thread, turn: Turn) -> None:
    """What is no option, or of another type, is told before the program runs."""
    clew.open("memory:", durable=True)  # type: ignore[call-arg]
    clew.open("threads.db", durability="sometimes")  # type: ignore[arg-type]
    store.threads(cursor="abc")  # type: ignore[call-arg]
    thread.fork(att="entry")  # type: ignore[call-arg]
    thread.append("event", 1, fence="7")  # type: ignore[call-overload]
    thread.append_message(USER, reason="none")  # type: ignore[call-arg]
    thread.compact(summarize, why="it is long")  # type: ignore[call-arg]
    thread.rewind("message-1", file=False)  # type: ignore[call-arg]
    turn.append("event", 1, fence=7)  # type: ignore[call-overload]
    turn.rewind("message-1", fence=7)  # type: ignore[call-arg]
