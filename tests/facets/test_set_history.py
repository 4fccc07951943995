"""Replacing a history: only what is new is stored, and nothing goes out of sight unnoticed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from clew import Conflict, InvalidInput, LeaseHeld
from clew.core.engine import Engine
from clew.facets.conversations import Conversation, Conversations
from clew.store import Store


@pytest.fixture
def conversation(store: Store) -> Conversation:
    return Conversations(store).get("k")


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(texts: str) -> list[Any]:
    return [say(text) for text in texts]


def shown(conversation: Conversation) -> str:
    return "".join(message["content"] for message in conversation.history())


def stored(conversation: Conversation) -> list[str]:
    """Every message that the thread has, on whatever branch."""
    found = [e.body for e in conversation.thread.entries() if e.kind == "user_message"]
    return sorted(body["content"] for body in found)


class Intruding:
    """An engine before whose next append another writer is let in."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.intrude: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def append(self, *args: Any, **options: Any) -> Any:
        while self.intrude:
            self.intrude.pop()()
        return self._engine.append(*args, **options)


def test_a_growing_history_is_stored_once(store: Store, conversation: Conversation) -> None:
    messages: list[Any] = []
    for n in range(200):
        messages.append(say(f"{n} " + "x" * 1000))
        conversation.set_history(messages)
    assert conversation.history() == messages
    stats = store.stats()
    assert (stats.entries, len(conversation.thread.leaves())) == (200, 1)
    seq = conversation.thread.info.seq
    conversation.set_history(messages)
    assert conversation.thread.info.seq == seq, "the same history again writes nothing"


def test_what_differs_becomes_a_branch_and_the_beginning_is_shared(
    conversation: Conversation,
) -> None:
    conversation.set_history(says("abcd"))
    conversation.set_history(says("abx"))
    assert (shown(conversation), stored(conversation)) == ("abx", list("abcdx"))
    conversation.set_history(says("ab"))
    assert (shown(conversation), stored(conversation)) == ("ab", list("abcdx"))
    conversation.set_history([])
    assert (shown(conversation), conversation.leaf) == ("", None)


@pytest.mark.parametrize("given", ["cdef", "cd", "cdxy", "cx", "c", "xy", "", "abcd", "cdf"])
def test_a_truncated_history_is_replaced_by_exactly_what_is_given(
    conversation: Conversation, given: str
) -> None:
    conversation.set_history(says("abcd"))
    conversation.truncate(2)
    conversation.add("user", "e")
    entries = conversation.thread.info.seq
    conversation.set_history(says(given))
    assert shown(conversation) == given
    conversation.add("user", "z")
    assert shown(conversation) == f"{given}z"
    common = next((n for n, (a, b) in enumerate(zip("cde", given, strict=False)) if a != b), 3)
    new = len(given) - min(common, len(given))
    # Beside what is new: a move, perhaps a cut, and the z.
    assert conversation.thread.info.seq - entries <= new + 3


@pytest.mark.parametrize("given", ["abcde", "abcd", "abc", "ab", "abcdx", "ax", "x"])
def test_a_compaction_that_was_undone_stays_undone(conversation: Conversation, given: str) -> None:
    conversation.set_history(says("abc"))
    conversation.truncate(1)
    conversation.add("user", "d")
    conversation.add("user", "e")
    conversation.thread.uncompact()
    assert shown(conversation) == "abcde"
    conversation.set_history(says(given))
    assert shown(conversation) == given


def test_the_summary_of_a_compaction_is_kept_with_the_messages_behind_it(
    conversation: Conversation,
) -> None:
    for n in range(3):
        conversation.add("user", f"question {n}")
        conversation.add("assistant", f"answer {n}")
    conversation.thread.compact(lambda messages: "the story so far", keep_turns=1)
    messages = conversation.history()
    conversation.set_history([*messages[:-1], {"role": "assistant", "content": "other"}])
    assert conversation.history()[-1]["content"] == "other"
    assert "the story so far" in str(conversation.thread.context().messages[0])


def test_any_iterable_is_a_history(conversation: Conversation) -> None:
    conversation.set_history(say(text) for text in "ab")
    conversation.set_history(tuple(says("abc")), ids=iter([None, None, "c"]))
    assert shown(conversation) == "abc"
    for bad in ("abc", say("a"), None, 5, b"x"):
        with pytest.raises(InvalidInput) as caught:
            conversation.set_history(bad)  # type: ignore[arg-type]
        assert caught.value.field == "messages"
    assert shown(conversation) == "abc"


def test_what_python_calls_equal_is_not_taken_for_the_same(conversation: Conversation) -> None:
    conversation.set_history([{**say("a"), "n": 1}])
    conversation.set_history([{**say("a"), "n": True}])
    assert conversation.history()[0]["n"] is True
    conversation.set_history([{"n": True, "content": "a", "role": "user"}], format="plain")
    assert conversation.entries()[0].format == "plain"


# --- beside other writers ---


def test_a_message_that_came_in_between_is_a_conflict_for_who_says_what_it_knows(
    conversation: Conversation,
) -> None:
    leaf = conversation.set_history(says("ab"), expect=None)
    assert leaf == conversation.leaf
    conversation.add("user", "X")
    with pytest.raises(Conflict) as caught:
        conversation.set_history(says("abc"), expect=leaf)
    assert caught.value.field == "leaf"
    assert (caught.value.expected, caught.value.actual) == (leaf, conversation.leaf)
    assert shown(conversation) == "abX"
    conversation.set_history(says("abXc"), expect=conversation.leaf)
    assert shown(conversation) == "abXc"
    conversation.delete()
    with pytest.raises(Conflict):
        conversation.set_history(says("a"), expect=leaf)
    conversation.set_history(says("a"), expect=None)
    assert shown(conversation) == "a"
    with pytest.raises(Conflict):
        conversation._owner.get("new").set_history(says("a"), expect=leaf)


@pytest.mark.parametrize("expecting", [False, True])
def test_a_message_that_comes_in_the_very_moment_is_not_lost(store: Store, expecting: bool) -> None:
    engine = Intruding(store.engine)
    conversation = Conversations(Store(engine, clock=store.clock)).get("k")  # type: ignore[arg-type]
    other = Conversations(store).get("k")
    conversation.set_history(says("ab"))
    engine.intrude.append(lambda: other.add("user", "X"))
    if expecting:
        with pytest.raises(Conflict):
            conversation.set_history(says("abc"), expect=conversation.leaf)
        assert shown(conversation) == "abX"
    else:
        conversation.set_history(says("abc"))
        assert shown(conversation) == "abc", "it stands for what was there at that moment"
    assert "X" in stored(conversation)


def test_adding_beside_replacing_loses_no_message(store: Store, conversation: Conversation) -> None:
    conversation.set_history(says("ab"))
    conflicts: list[int] = []

    def add(name: str) -> None:
        for n in range(10):
            conversation.add("user", f"{name}{n}")

    def replace() -> None:
        for n in range(10):
            leaf = conversation.leaf
            history = conversation.history()
            try:
                conversation.set_history([*history, say(f"set{n}")], expect=leaf)
            except Conflict:
                conflicts.append(n)

    workers = [threading.Thread(target=add, args=(name,)) for name in "xy"]
    workers.append(threading.Thread(target=replace))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expected = [f"{name}{n}" for name in "xy" for n in range(10)]
    expected += [f"set{n}" for n in range(10) if n not in conflicts]
    texts = [message["content"] for message in conversation.history()]
    assert sorted(texts[2:]) == sorted(expected), "all of them in sight"
    assert len(conversation.thread.leaves()) == 1


def test_a_conversation_at_work_keeps_its_history(conversation: Conversation) -> None:
    conversation.set_history(says("ab"))
    with conversation.thread.turn(owner="me"), pytest.raises(LeaseHeld):
        conversation.set_history(says("c"))
    assert shown(conversation) == "ab"


# --- the caller's own ids ---


def test_messages_may_have_ids_of_the_callers_own(conversation: Conversation) -> None:
    conversation.set_history(says("ab"), ids=["u1", None])
    conversation.set_history(says("abc"), ids=["u1", None, "u2"])
    assert [e.id for e in conversation.entries()][::2] == ["u1", "u2"]
    thread = conversation.thread
    thread.label("u1", "here")
    thread.rewind("u2", files=False)
    assert shown(conversation) == "ab"
    assert thread.labels == {"u1": "here"}
    conversation.set_history(says("ab"), ids=["other", None])
    assert conversation.entries()[0].id == "other", "another id is another message"


def test_going_back_to_a_history_by_its_ids_stores_nothing_again(
    store: Store, conversation: Conversation
) -> None:
    ids = ["u1", "u2", "u3"]
    conversation.set_history(says("abc"), ids=ids)
    conversation.thread.append("usage", {"tokens": 1})
    conversation.set_history(says("abcd"), ids=[*ids, "u4"])
    conversation.set_history(says("x"), ids=["u5"])
    entries = store.stats().entries
    conversation.set_history(says("abcd"), ids=[*ids, "u4"])
    assert (shown(conversation), store.stats().entries) == ("abcd", entries)
    conversation.set_history(says("x"), ids=["u5"])
    conversation.set_history(says("abe"), ids=["u1", "u2", "u6"])
    assert (shown(conversation), store.stats().entries) == ("abe", entries + 1)
    conversation.delete()
    conversation.set_history(says("abc"), ids=ids)
    assert (shown(conversation), store.stats().entries) == ("abc", entries + 1)


def test_a_retry_with_ids_succeeds_though_the_leaf_has_moved(conversation: Conversation) -> None:
    leaf = conversation.leaf
    for _ in range(2):
        after = conversation.set_history(says("ab"), ids=["u1", "u2"], expect=leaf)
    assert after == "u2"


def test_an_id_that_is_taken_is_refused_and_nothing_changes(conversation: Conversation) -> None:
    conversation.set_history(says("abc"), ids=["u1", "u2", "u3"])
    for texts, ids in (
        ("x", ["u1"]),
        ("ba", ["u2", "u1"]),
        ("xb", [None, "u2"]),
        ("abx", ["u1", "u2", "u3"]),
        ("xc", ["u9", "u3"]),
    ):
        with pytest.raises(Conflict) as caught:
            conversation.set_history(says(texts), ids=ids)
        assert caught.value.field != "leaf"
        assert (shown(conversation), stored(conversation)) == ("abc", list("abc"))


@pytest.mark.parametrize(
    "ids", [["u1"], ["u1", "u2", "u3"], ["u1", "u1"], "u1", ["", "u2"], [1, 2]]
)
def test_ids_that_do_not_fit_are_refused(conversation: Conversation, ids: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        conversation.set_history(says("ab"), ids=ids)
    assert caught.value.field == "ids"
    assert conversation.history() == []
