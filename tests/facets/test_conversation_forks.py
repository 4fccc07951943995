"""A fork of a conversation is one, whichever way it was made."""

from __future__ import annotations

from typing import Any

import pytest

from clew import AlreadyExists, InvalidInput, NotFound
from clew.facets.conversations import Conversation, Conversations
from clew.store import Store


@pytest.fixture
def conversations(store: Store) -> Conversations:
    return Conversations(store)


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def texts(conversation: Conversation) -> list[str]:
    return [message["content"] for message in conversation.history()]


def test_a_fork_is_a_conversation_of_its_own(conversations: Conversations) -> None:
    talk = conversations.get("k")
    talk.set_history([say("a"), say("b"), say("c")], ids=["a", "b", "c"])
    talk.set_summary("so far")
    fork = conversations.fork("k", "other", at="b", title="Another way", parent=talk.thread.id)
    fork.add("user", "x")
    talk.add("user", "d")
    assert (texts(fork), fork.summary) == (["a", "b", "x"], "so far")
    assert (texts(talk), talk.summary) == (["a", "b", "c", "d"], "so far")
    assert texts(talk.fork("before", before="b")) == ["a"]
    assert {info.key for info in conversations.list().items} == {"k", "other", "before"}
    info = fork.thread.info
    assert (info.title.text, info.parent, info.origin.thread) == (
        "Another way",
        talk.thread.id,
        talk.thread.id,
    )
    assert conversations.of(fork.thread).key == "other"


def test_a_fork_without_a_key_gets_one_that_is_its_own(conversations: Conversations) -> None:
    talk = conversations.get("k")
    talk.add("user", "a")
    assert [talk.fork().key for _ in range(2)] == ["k#fork-1", "k#fork-2"]
    conversations.store.purge(conversations.thread("k#fork-2").id)
    assert conversations.fork("k").key == "k#fork-3"
    talk.delete()
    talk.add("user", "anew")
    assert talk.fork().key == "k#fork-4"
    strange = conversations.get("#\ud800")
    strange.add("user", "s")
    assert texts(conversations.get(strange.fork().key)) == ["s"]


def test_a_fork_neither_overwrites_nor_begins_from_nothing(conversations: Conversations) -> None:
    conversations.get("k").add("user", "a")
    conversations.get("taken").add("user", "mine")
    conversations.get("deleted").add("user", "old")
    conversations.get("deleted").delete()
    for key in ("taken", "deleted", "k"):
        with pytest.raises(AlreadyExists):
            conversations.fork("k", key)
    with pytest.raises(NotFound):
        conversations.fork("nobody", "new")
    with pytest.raises(NotFound):
        conversations.fork("deleted", "new")
    with pytest.raises(InvalidInput):
        conversations.fork("k", "")
    assert texts(conversations.get("taken")) == ["mine"]


def test_a_fork_by_the_store_is_read_by_the_facet(conversations: Conversations) -> None:
    store = conversations.store
    conversations.get("k").add("user", "a")
    store.fork("conversation:k", id="conversation:k2")
    named = conversations.get("k2")
    assert (texts(named), named.summary) == (["a"], "")
    named.add("user", "b")
    named.truncate(1)
    named.set_summary("s")
    assert texts(named) == ["b"]
    assert {info.key for info in conversations.list().items} == {"k", "k2"}
    assert [info.key for info in conversations.all()] == ["k2", "k"]

    free = conversations.get("k").thread.fork(id="free")
    talk = conversations.of(free)
    talk.add("user", "c")
    talk.set_history([say("a"), say("d")])
    assert (texts(talk), talk.key, talk.thread) == (["a", "d"], "free", free)
    assert texts(conversations.get("k")) == ["a"]
    assert len(list(conversations.all())) == 2
    with pytest.raises(NotFound):
        _ = conversations.get("free").thread


def test_a_thread_that_is_no_keys_is_not_made_again_when_it_is_gone(
    conversations: Conversations,
) -> None:
    store = conversations.store
    talk = conversations.of(store.create("plain"))
    talk.add("user", "a")
    talk.delete()
    for call in (
        lambda: talk.add("user", "b"),
        talk.history,
        lambda: talk.set_history([]),
        lambda: conversations.of("plain"),
    ):
        with pytest.raises(NotFound):
            call()
    store.purge("plain")
    with pytest.raises(NotFound):
        talk.add("user", "b")
    assert store.stats().threads == 0


def test_a_loop_that_may_not_stop_gets_a_conversation_all_the_same(store: Store) -> None:
    conversations = Conversations(store, on_error="log")
    conversations.get("k").add("user", "a")
    fork = conversations.fork("nobody")
    assert (fork.history(), fork.key.startswith("nobody#fork-")) == ([], True)
    assert conversations.of("nobody").history() == []
    assert conversations.get_or_create("").key == ""
    assert conversations.failed == 4
