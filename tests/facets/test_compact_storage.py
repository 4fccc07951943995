"""Space is given back, and nothing that anything refers to goes with it."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import AlreadyExists, Conflict, InvalidInput, LeaseHeld, NotFound, Unavailable
from clew.core.engine import Engine
from clew.facets.conversations import Conversation, Conversations
from clew.store import Store

STEPS = 10  # the writes that it takes


@pytest.fixture
def talk(store: Store) -> Conversation:
    """Ten messages, of which two are shown."""
    talk = Conversations(store).get("k")
    talk.set_history([say(str(n)) for n in range(10)], ids=[f"m{n}" for n in range(10)])
    talk.set_summary("so far")
    talk.truncate(2)
    return talk


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def texts(conversation: Conversation) -> list[str]:
    return [message["content"] for message in conversation.history()]


def stored(store: Store) -> list[str]:
    """Every message in every thread."""
    found: set[str] = set()
    for info in store.threads(archived=None):
        entries = clew.Thread(store, info.id).entries()
        found |= {e.body["content"] for e in entries if e.kind == "user_message"}
    return sorted(found)


def whole(store: Store, threads: int = 1) -> None:
    """No stand-in and no lease is left, and all of it can be verified."""
    assert list(store.verify()) == []
    assert (store.stats().threads, store.stats().deleted) == (threads, 0)


def test_what_was_truncated_is_gone_and_the_rest_is_as_it_was(talk: Conversation) -> None:
    store = talk._store
    before, entries = talk._owner.list().items, talk.entries()
    report = talk.compact_storage()
    assert (report.key, report.entries, report.kept, report.branches) == ("k", 8, 3, ())
    assert report.size_bytes == 8 * len('{"role":"user","content":"0"}')
    assert (texts(talk), talk.summary, stored(store)) == (["8", "9"], "so far", ["8", "9"])
    kept = [(e.id, e.time, e.kind, e.data) for e in talk.entries()]
    assert kept == [(e.id, e.time, e.kind, e.data) for e in entries]
    assert talk._owner.list().items == before, "the same times too"
    whole(store)
    talk.add("user", "new")
    assert texts(talk) == ["8", "9", "new"]
    assert talk.compact_storage().entries == 0
    talk.truncate(1)
    assert talk.compact_storage().entries == 3, "8, 9 and the compaction before"
    assert (texts(talk), stored(store)) == (["new"], ["new"])
    talk.truncate(0)
    talk.compact_storage()
    assert (talk.history(), store.stats().entries) == ([], 0)
    talk.add("user", "anew")
    assert texts(talk) == ["anew"]
    whole(store)


def test_nothing_happens_where_there_is_nothing_to_reclaim(store: Store) -> None:
    conversations = Conversations(store)
    assert conversations.compact_storage("nobody").entries == 0
    assert store.stats().records == 0
    conversations.get("k").set_history([say("a"), say("b")])
    before = store.stats()
    assert conversations.compact_storage("k").entries == 0
    assert store.stats() == before
    conversations.delete("k")
    assert conversations.compact_storage("k").entries == 0
    with pytest.raises(InvalidInput):
        conversations.of(store.create("plain")).compact_storage()


def test_a_branch_keeps_what_it_stands_on_unless_it_is_dropped(talk: Conversation) -> None:
    talk.set_history([say("8"), say("x")])
    report = talk.compact_storage()
    assert (report.entries, len(report.branches)) == (0, 1)
    assert talk.thread.path(report.branches[0])[0].body == say("0")
    report = talk.compact_storage(drop_branches=True)
    assert (texts(talk), stored(talk._store)) == (["8", "x"], ["8", "x"])
    assert talk._store.stats().entries == report.kept == 3
    whole(talk._store)


def test_a_fork_keeps_what_it_shares(talk: Conversation) -> None:
    store = talk._store
    fork = talk.thread.fork(at="m4", id="fork")
    report = talk.compact_storage()
    assert (report.entries, report.shared, report.kept_for) == (3, 5, ("fork",))
    assert [e.body["content"] for e in fork.path()] == list("01234")
    assert texts(talk) == ["8", "9"]
    whole(store, 2)
    store.fork(talk.thread.id, id="later")
    talk.truncate(1)
    assert talk.compact_storage().entries == 0, "the fork at the leaf shares all of it"
    store.purge("later")
    assert talk.compact_storage().entries > 0
    whole(store, 2)


def test_a_fork_of_a_conversation_gives_back_its_own_part(talk: Conversation) -> None:
    fork = talk.fork("fork")
    for n in range(5):
        fork.add("user", f"own {n}")
    fork.truncate(1)
    origin = fork.thread.info.origin
    assert fork.compact_storage().entries == 4
    assert texts(fork) == ["own 4"]
    assert fork.thread.info.origin == origin
    assert texts(talk) == ["8", "9"]
    fork.thread.uncompact()
    assert texts(fork)[-3:] == ["8", "9", "own 4"]
    whole(talk._store, 2)


def test_labels_and_snapshots_keep_their_messages(talk: Conversation, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "file").write_text("as it was")
    thread = talk.thread
    talk.set_history([say(str(n)) for n in (8, 9, "q")], ids=["m8", "m9", "q"])
    taken = thread.snapshots.take(root, at="q")
    talk.add("user", "r")
    thread.label("m3", "here")
    talk.truncate(1)
    talk.compact_storage()
    assert (texts(talk), stored(talk._store)) == (["r"], ["3", "q", "r"])
    assert thread.labels == {"m3": "here"}
    assert [one.id for one in thread.snapshots.list()] == [taken.id]
    talk._store.sweep(grace_seconds=0)
    (root / "file").write_text("changed")
    thread.rewind("q", force=True)
    assert (root / "file").read_text() == "as it was"
    whole(talk._store)


def test_a_summary_of_a_compaction_stays(store: Store) -> None:
    talk = Conversations(store).get("k")
    for n in range(6):
        talk.add("user", f"question {n}")
        talk.add("assistant", f"answer {n}")
    talk.thread.compact(lambda messages: "the story so far", keep_turns=1)
    before = talk.thread.context("openai-chat").messages
    assert talk.compact_storage().entries > 0
    assert talk.thread.context("openai-chat").messages == before
    whole(store)


def test_a_conversation_at_work_is_left_alone(talk: Conversation) -> None:
    with talk.thread.turn(owner="me"), pytest.raises(LeaseHeld):
        talk.compact_storage()
    assert texts(talk) == ["8", "9"]


# --- when something comes in between ---


class Stopped(Exception):
    pass


class Stopping:
    """An engine whose process dies before a certain write, and whose others come in before it."""

    def __init__(self, engine: Engine, at: int, meanwhile: Any = None) -> None:
        self._engine = engine
        self._left = itertools.count(at, -1)
        self._meanwhile = meanwhile
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._engine, name)
        if name not in ("append", "create", "purge", "lease"):
            return call

        def counted(*args: Any, **options: Any) -> Any:
            if self.dead or next(self._left) == 0:
                if self._meanwhile is None:
                    self.dead = True
                    raise Stopped
                self._meanwhile()
            return call(*args, **options)

        return counted


def expire(store: Store, thread: str) -> None:
    """Take the lease of a dead process away, as its time does."""
    try:
        handle = store.get(thread, deleted=True)
        if (lease := handle.leases.active()) is not None:
            handle.leases.release(lease)
    except NotFound:
        pass


@pytest.mark.parametrize("at", range(STEPS + 1))
def test_a_process_that_dies_in_it_leaves_the_conversation_or_enough_to_go_on(
    talk: Conversation, at: int
) -> None:
    store = talk._store
    dying = Stopping(store.engine, at)
    victim = Conversations(Store(dying, clock=store.clock)).get("k")  # type: ignore[arg-type]
    done = False
    try:
        victim.compact_storage()
        done = True
    except Stopped:
        pass
    assert texts(talk) == ["8", "9"], "also while the lease of the dead one lasts"
    expire(store, "conversation:k")
    talk.add("user", "new")
    assert (texts(talk), talk.summary) == (["8", "9", "new"], "so far")
    talk.compact_storage()
    assert (texts(talk), stored(store)) == (["8", "9", "new"], ["8", "9", "new"])
    whole(store)
    assert done == (at >= STEPS), "every step was stopped at"


def test_a_thread_that_is_made_by_hand_in_between_is_not_lost(talk: Conversation) -> None:
    store = talk._store
    made: list[str] = []

    def make() -> None:
        with suppress(AlreadyExists):
            store.create("conversation:k").append_message(say("by hand"))
            made.append("by hand")

    for at in range(STEPS):
        talk.add("user", str(at))
        talk.truncate(2)
        engine = Stopping(store.engine, at, make)
        other = Conversations(Store(engine, clock=store.clock)).get("k")  # type: ignore[arg-type]
        before = texts(talk)
        other.compact_storage(drop_branches=True)
        if made:
            break
    assert made == ["by hand"]
    assert texts(talk) == [*before, "by hand"]


@pytest.mark.parametrize("at", range(STEPS + 1))
def test_a_message_that_comes_at_any_moment_is_not_lost(talk: Conversation, at: int) -> None:
    store = talk._store
    added: list[str] = []

    def add() -> None:
        try:
            talk.add("user", "in between")
            added.append("in between")
        except LeaseHeld:
            pass

    engine = Stopping(store.engine, at, add)
    other = Conversations(Store(engine, clock=store.clock)).get("k")  # type: ignore[arg-type]
    with suppress(Conflict):  # it may be told to try again
        other.compact_storage()
    assert texts(talk) == ["8", "9", *added]
    assert talk.summary == "so far"


@pytest.mark.parametrize("at", range(STEPS + 1))
def test_a_summary_that_is_set_at_any_moment_is_not_lost(talk: Conversation, at: int) -> None:
    store = talk._store
    told: list[str] = ["so far"]

    def tell() -> None:
        try:
            talk.set_summary("in between")
            told.append("in between")
        except LeaseHeld:
            pass

    engine = Stopping(store.engine, at, tell)
    other = Conversations(Store(engine, clock=store.clock)).get("k")  # type: ignore[arg-type]
    with suppress(Conflict):
        other.compact_storage()
    assert (texts(talk), talk.summary) == (["8", "9"], told[-1])
    talk.compact_storage()
    assert (stored(store), talk.summary) == (["8", "9"], told[-1])
    whole(store)


@pytest.mark.parametrize("at", range(STEPS + 1))
def test_a_conversation_that_is_deleted_at_any_moment_stays_deleted(
    talk: Conversation, at: int
) -> None:
    store = talk._store
    deleted: list[bool] = []

    def delete() -> None:
        with suppress(LeaseHeld):
            talk.delete()
            deleted.append(True)

    engine = Stopping(store.engine, at, delete)
    other = Conversations(Store(engine, clock=store.clock)).get("k")  # type: ignore[arg-type]
    with suppress(Conflict):
        other.compact_storage()
    assert texts(talk) == ([] if deleted else ["8", "9"])
    if deleted:
        store.restore("conversation:k")
        assert texts(talk) == ["8", "9"]


def test_a_failure_leaves_everything_as_it_was(talk: Conversation) -> None:
    store = talk._store

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(store.engine, name)

        def create(self, *args: Any) -> Any:
            raise Unavailable("the disk is full")

    talk_there = Conversations(Store(Failing())).get("k")  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        talk_there.compact_storage()
    assert texts(talk) == ["8", "9"]
    talk.add("user", "goes on")
    whole(store)
