"""The conversation facet: keys never share anything, nothing added is ever lost."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import AlreadyExists, ClewError, Closed, InvalidInput, LeaseHeld, NotFound, Unavailable
from clew.facets import _base
from clew.facets.conversations import Conversations
from clew.facets.conversations.history import with_calls
from clew.store import Store

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "read", "arguments": "{}"}},
    ],
}


def result(call: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": f"result of {call}"}


def say(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


@pytest.fixture
def conversations(store: Store) -> Conversations:
    return Conversations(store)


def texts(messages: list[Any]) -> list[Any]:
    return [message["content"] for message in messages]


# --- adding and reading ---


def test_messages_come_back_in_order_and_exactly(conversations: Conversations) -> None:
    conversation = conversations.get("telegram:123")
    full = {
        "role": "assistant",
        "content": "Hm.",
        "media": ["blob"],
        "reasoning_content": "…",
        "system_parts": [{"type": "text", "text": "x"}],
        "tool_calls": CALL["tool_calls"],
    }
    conversation.add("user", "Hello")
    conversation.add_message(full)
    conversation.add_message(result("c1"))
    assert conversation.history() == [say("Hello"), full, result("c1")]
    assert list(conversation.history()[1]) == list(full), "in the same order"
    kinds = [entry.kind for entry in conversation.entries()]
    assert kinds == ["user_message", "tool_call", "tool_result"]


def test_an_unknown_conversation_is_empty_and_nothing_is_made_by_looking(
    conversations: Conversations,
) -> None:
    conversation = conversations.get("nobody")
    assert conversation.history() == []
    assert conversation.summary == ""
    conversation.truncate(0)
    conversation.save()
    conversation.delete()
    assert conversations.store.stats().threads == 0
    with pytest.raises(NotFound):
        _ = conversation.thread


def test_a_role_that_nobody_knows_is_kept(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.add("narrator", "Meanwhile")
    conversation.thread.append("custom", {"note": "no message"})
    assert conversation.history() == [say("Meanwhile", "narrator")]


def test_history_is_the_callers_own(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.add("user", "a")
    conversation.history()[0]["content"] = "changed"
    assert texts(conversation.history()) == ["a"]


def test_messages_have_ids_times_and_formats(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.add("user", "a", format="plain")
    conversation.add("user", "b")
    first, second = conversation.entries()
    assert first.id != second.id
    assert first.time < second.time
    assert (first.format, second.format) == ("plain", None)


def test_invalid_unicode_survives(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.add("user", "half \ud83d of an emoji")
    assert texts(conversation.history()) == ["half \ud83d of an emoji"]


def test_a_very_long_message_does_not_poison_the_conversation(
    conversations: Conversations,
) -> None:
    conversation = conversations.get("k")
    conversation.add("user", "x" * 11_000_000)
    conversation.add("user", "after")
    assert [len(text) for text in texts(conversation.history())] == [11_000_000, 5]


# --- keys ---

KEYS = [
    "a:b",
    "a/b",
    "a\\b",
    "a_b",
    "A_B",
    "a_b ",
    " a_b",
    "é",
    "e\u0301",
    ".",
    "..",
    "../evil",
    "/etc/passwd",
    "#",
    "#b3:00",
    "\U0010ffff",
    "nul\0",
    "nul",
    "\ud800",
    "\udc00",
    "\ud83d\ude00",
    "😀",
    "x" * 600,
    "x" * 601,
    "conversation:a:b",
]


def test_keys_that_differ_never_share_anything(conversations: Conversations) -> None:
    for key in KEYS:
        conversations.get(key).add("user", repr(key))
        conversations.get(key).set_summary(f"summary of {key!r}")
    for key in KEYS:
        assert texts(conversations.get(key).history()) == [repr(key)]
    listed = {info.key: info.summary for info in conversations.list(limit=100).items}
    assert listed == {key: f"summary of {key!r}" for key in KEYS}


def test_a_key_cannot_be_made_to_meet_a_hashed_one(conversations: Conversations) -> None:
    conversations.get("x" * 600).add("user", "long")
    hashed = conversations.get("x" * 600).thread.id.removeprefix("conversation:")
    assert hashed.startswith("#b3:")
    assert conversations.get(hashed).history() == []
    conversations.get(hashed).add("user", "other")
    assert texts(conversations.get("x" * 600).history()) == ["long"]


@pytest.mark.parametrize("key", ["", None, 5, b"key"])
def test_what_is_no_key_is_refused(conversations: Conversations, key: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        conversations.get(key)
    assert caught.value.field == "key"


def test_threads_of_other_ids_are_no_conversations(conversations: Conversations) -> None:
    store = conversations.store
    store.create("plain")
    store.create("run:r")
    conversations.get("k").add("user", "a")
    assert [info.key for info in conversations.list().items] == ["k"]


def test_an_id_leads_to_the_same_thread_by_every_way(conversations: Conversations) -> None:
    store = conversations.store
    plain = store.create("conversation:k")
    plain.append_message(say("by hand"))
    conversations.get("k").add("user", "by key")
    assert texts(conversations.get_history("k")) == ["by hand", "by key"]
    assert conversations.thread("k") == conversations.get("k").thread == plain
    assert conversations.of(plain).key == conversations.of("conversation:k").key == "k"
    assert [info.key for info in conversations.list().items] == ["k"]
    for key in KEYS:
        conversations.get_or_create(key)
        assert conversations.of(conversations.thread(key)).key == key
    with pytest.raises(NotFound):
        conversations.of("nobody")


def test_a_thread_of_another_facet_is_not_touched(conversations: Conversations) -> None:
    other = conversations.store.create("conversation:k", facts={"facet": "mine"})
    other.append("user_message", say("mine"))
    conversation = conversations.get("k")
    for call in (conversation.delete, lambda: conversation.set_history([])):
        with pytest.raises(AlreadyExists):
            call()
    assert len(other.path()) == 1
    assert conversations.list().items == []


# --- the list ---


def test_the_list_is_in_pages_and_the_last_written_comes_first(
    conversations: Conversations,
) -> None:
    for key in "abcde":
        conversations.get(key).add("user", key)
    conversations.get("b").add("user", "again")
    first = conversations.list(limit=2)
    second = conversations.list(limit=2, cursor=first.cursor)
    third = conversations.list(limit=2, cursor=second.cursor)
    keys = [info.key for page in (first, second, third) for info in page.items]
    assert keys == ["b", "e", "d", "c", "a"]
    assert third.cursor is None


def test_every_conversation_comes_once_also_while_they_are_written_to(
    conversations: Conversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_base, "PAGE_MAX", 2)
    for key in "abcdefg":
        conversations.get(key).add("user", key)
    found = conversations.all()
    keys = [next(found).key for _ in range(3)]
    conversations.get("a").add("user", "again")
    conversations.get("g").add("user", "again")
    keys += [info.key for info in found]
    assert keys == list("gfedcba")


def test_listing_never_changes_anything(conversations: Conversations) -> None:
    conversations.get("k").add("user", "a")
    before = conversations.store.stats()
    info = conversations.list().items[0]
    assert conversations.store.stats() == before
    assert info.created_at <= info.updated_at


def test_setting_the_summary_counts_as_an_update(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.add("user", "a")
    before = conversations.list().items[0].updated_at
    conversation.set_summary("new")
    assert conversations.list().items[0].updated_at > before


# --- the summary ---


def test_the_summary_is_replaced_and_survives_the_messages(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.set_summary("first")
    assert conversation.summary == "first"
    conversation.set_summary("second")
    conversation.set_history([say("a")])
    conversation.truncate(0)
    assert (conversation.summary, conversation.history()) == ("second", [])
    conversation.set_summary("")
    assert conversation.summary == ""


# --- set_history ---


def test_the_old_history_stays_reachable_when_it_is_replaced(
    conversations: Conversations,
) -> None:
    conversation = conversations.get("k")
    conversation.set_history([say("a"), say("b")])
    old = conversation.thread.leaf
    conversation.set_history([say("c")])
    assert texts(conversation.history()) == ["c"]
    assert [e.body["content"] for e in conversation.thread.path(old)] == ["a", "b"]
    conversation.set_history([])
    assert conversation.history() == []
    conversation.add("user", "d")
    assert texts(conversation.history()) == ["d"]
    assert conversation.thread.path()[0].parent is None


def test_set_history_ends_a_truncation(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.set_history([say(str(n)) for n in range(10)])
    conversation.truncate(2)
    conversation.set_history([say("x"), say("y"), say("z")])
    assert texts(conversation.history()) == ["x", "y", "z"]


def test_a_history_with_one_bad_message_changes_nothing(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.set_history([say("a")])
    for bad in ({"content": "no role"}, {"role": "user", "content": {1, 2}}, {"role": ""}, 5):
        with pytest.raises(ClewError):
            conversation.set_history([say("b"), bad])
    with pytest.raises(InvalidInput) as caught:
        conversation.set_history([say("b"), {"content": "no role"}])
    assert (caught.value.field, caught.value.path) == ("messages", "$[1].role")
    assert texts(conversation.history()) == ["a"]


def test_a_failing_batch_leaves_the_old_history(store: Store) -> None:
    class Failing:
        """The engine on a disk that is full."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store.engine, name)

        def append(self, *args: Any, **options: Any) -> Any:
            raise Unavailable("the disk is full")

    Conversations(store).get("k").set_history([say("a"), say("b")])
    conversation = Conversations(Store(Failing())).get("k")  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        conversation.set_history([say("c")])
    assert texts(conversation.history()) == ["a", "b"]


# --- truncate ---


@pytest.mark.parametrize(("keep", "left"), [(4, "6789"), (0, ""), (10, None), (99, None)])
def test_truncating_keeps_the_last(
    conversations: Conversations, keep: int, left: str | None
) -> None:
    conversation = conversations.get("k")
    conversation.set_history([say(str(n)) for n in range(10)])
    before = conversation.thread.info.seq
    conversation.truncate(keep)
    if left is None:
        assert conversation.thread.info.seq == before, "nothing was written"
        left = "0123456789"
    assert texts(conversation.history()) == list(left)
    conversation.add("user", "new")
    assert texts(conversation.history()) == [*left, "new"]


def test_truncated_messages_stay_stored(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.set_history([say(str(n)) for n in range(10)])
    conversation.truncate(2)
    conversation.save()
    path = conversation.thread.path()
    assert [e.body["content"] for e in path if e.kind == "user_message"] == list("0123456789")
    conversation.thread.uncompact()
    assert len(conversation.history()) == 10


def test_truncating_again_counts_from_what_is_left(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.set_history([say(str(n)) for n in range(10)])
    for keep, left in ((5, "56789"), (7, "56789"), (2, "89"), (0, ""), (3, "")):
        conversation.truncate(keep)
        assert texts(conversation.history()) == list(left)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_truncating_never_parts_a_result_from_its_call(
    conversations: Conversations, keep: int
) -> None:
    conversation = conversations.get("k")
    history = [say("go"), CALL, result("c1"), result("c2")]
    conversation.set_history(history)
    conversation.truncate(keep)
    assert conversation.history() == history[1:]


def test_anthropic_results_are_not_parted_from_their_calls_either(
    conversations: Conversations,
) -> None:
    conversation = conversations.get("k")
    use = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    history = [
        say("go"),
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [answer]},
    ]
    conversation.set_history(history, format="anthropic")
    conversation.truncate(1)
    assert conversation.history() == history[1:]


def test_an_exact_truncation_cuts_where_it_was_told(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.set_history([say("go"), CALL, result("c1"), result("c2")])
    conversation.truncate(1, exact=True)
    assert conversation.history() == [result("c2")]


def test_an_id_that_was_used_twice_keeps_no_more_than_its_last_call(
    conversations: Conversations,
) -> None:
    conversation = conversations.get("k")
    turn = [say("go"), CALL, result("c1"), result("c2")]
    conversation.set_history([*turn, *turn])
    conversation.truncate(1)
    assert conversation.history() == turn[1:]


def test_the_cost_of_truncating_grows_with_the_messages_and_no_faster(
    conversations: Conversations,
) -> None:
    def step(n: int) -> dict[str, Any]:
        """A message that answers the call before it and makes the next one."""
        blocks: list[Any] = [{"type": "tool_use", "id": f"c{n}", "name": "go", "input": {}}]
        blocks += [{"type": "tool_result", "tool_use_id": f"c{n - 1}", "content": "x"}] if n else []
        return {"role": "assistant", "content": blocks}

    def seconds(count: int) -> float:
        conversation = conversations.get(f"of {count}")
        conversation.set_history([step(n) for n in range(count)], format="anthropic")
        entries = conversation.entries()
        found = []
        for _ in range(3):
            begin = time.process_time()
            assert with_calls(entries, count - 1) == 0
            found.append(time.process_time() - begin)
        return min(found)

    assert seconds(4000) < 24 * seconds(500), "8 times as many: 8, not 64 times"
    conversations.truncate_history("of 500", 1)
    assert len(conversations.get_history("of 500")) == 500


@pytest.mark.parametrize("keep", [-1, 1.5, "2", None, True])
def test_a_bad_keep_last_is_refused(conversations: Conversations, keep: Any) -> None:
    conversation = conversations.get("k")
    conversation.set_history([say("a"), say("b"), say("c")])
    with pytest.raises(InvalidInput) as caught:
        conversation.truncate(keep)
    assert caught.value.field == "keep_last"
    assert len(conversation.history()) == 3


def test_truncating_keeps_the_summary_of_a_compaction(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.set_history([say(str(n)) for n in range(6)])
    for n in range(3):
        conversation.add("assistant", f"answer {n}")
        conversation.add("user", f"question {n}")
    conversation.thread.compact(lambda messages: "the story so far", keep_turns=2)
    conversation.truncate(2)
    told = str(conversation.thread.context().messages[0])
    assert "the story so far" in told
    conversation.truncate(0)
    assert conversation.thread.context().messages == []


def test_history_reads_the_window_only(store: Store) -> None:
    read: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(store.engine, name)

        def path(self, *args: Any, **options: Any) -> Any:
            found = store.engine.path(*args, **options)
            read.append(len(found))
            return found

    def cost(length: int) -> int:
        conversation = Conversations(store).get(f"of {length}")
        conversation.set_history([say(str(n)) for n in range(length)])
        conversation.truncate(5)
        for n in range(300):
            conversation.add("user", str(n))
        read.clear()
        counted = Conversations(Store(Counting())).get(f"of {length}")  # type: ignore[arg-type]
        assert len(counted.history()) == 305
        return sum(read)

    assert cost(3000) <= cost(1000) + 300


# --- bad input ---


@pytest.mark.parametrize(
    "message",
    [
        {"content": "no role"},
        {"role": None, "content": "x"},
        {"role": "", "content": "x"},
        {"role": 5, "content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": {"text": "x"}},
        {"role": "user", "content": [5]},
        {"role": "user", "content": float("nan")},
        {"role": "user", "content": "x", "time": object()},
        "text",
        None,
        ["role", "user"],
    ],
)
def test_a_bad_message_is_refused_and_nothing_is_written(
    conversations: Conversations, message: Any
) -> None:
    with pytest.raises(InvalidInput):
        conversations.get("k").add_message(message)
    assert conversations.store.stats().records == 0


def test_blocks_that_their_format_does_not_know_as_such_are_refused(
    conversations: Conversations,
) -> None:
    bad = {"role": "user", "content": [{"type": "text", "text": 5}]}
    with pytest.raises(InvalidInput):
        conversations.get("k").add_message(bad, format="anthropic")
    with pytest.raises(InvalidInput):
        conversations.get("k").add("user", "x", format="a format of tomorrow")
    assert conversations.get("k").history() == []


def test_a_summary_that_is_no_text_is_refused(conversations: Conversations) -> None:
    with pytest.raises(InvalidInput):
        conversations.get("k").set_summary(None)  # type: ignore[arg-type]


# --- the loop that must not stop ---


def test_a_failed_write_is_logged_counted_and_readable(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    conversations = Conversations(store, on_error="log")
    with caplog.at_level(logging.WARNING, "clew.conversation"):
        conversations.add_message("k", "", "no role")
        conversations.truncate_history("k", -1)
        conversations.add_message("", "user", "no key")
        conversations.add_message("k", "user", "fine")
    assert conversations.failed == 3
    assert [(f.key, f.operation) for f in conversations.failures] == [
        ("k", "add_message"),
        ("k", "truncate"),
        ("", "add_message"),
    ]
    assert all(isinstance(failure.error, InvalidInput) for failure in conversations.failures)
    assert len(caplog.records) == 3
    assert "no role" in caplog.text
    assert texts(conversations.get_history("k")) == ["fine"]


def test_no_call_raises_when_the_storage_is_gone(store: Store) -> None:
    conversations = Conversations(store, on_error="log")
    conversations.add_message("k", "user", "a")
    store.engine.close()
    conversations.add_message("k", "user", "b")
    conversations.add_full_message("k", say("b"))
    conversations.set_summary("k", "s")
    conversations.set_history("k", [])
    conversations.truncate_history("k", 0)
    conversations.delete("k")
    assert conversations.get_history("k") == []
    assert conversations.get_summary("k") == ""
    assert conversations.list().items == []
    assert conversations.failed == 9
    assert {failure.error.code for failure in conversations.failures} == {"closed"}


def test_the_failures_that_are_kept_are_bounded(store: Store) -> None:
    conversations = Conversations(store, on_error="log")
    for _ in range(150):
        conversations.add_message("k", "", "x")
    assert (conversations.failed, len(conversations.failures)) == (150, 100)


def test_errors_raise_unless_told_otherwise(store: Store) -> None:
    with pytest.raises(InvalidInput):
        Conversations(store, on_error="ignore")  # type: ignore[arg-type]
    conversations = Conversations(store)
    with pytest.raises(InvalidInput):
        conversations.add_message("k", "", "x")
    assert conversations.failed == 0


# --- the flat interface ---


def test_everything_can_be_done_by_key(store: Store) -> None:
    conversations = Conversations(store)
    conversations.add_message("k", "user", "a")
    conversations.add_full_message("k", CALL)
    conversations.set_summary("k", "s")
    conversations.save("k")
    assert conversations.get_history("k") == [say("a"), CALL]
    assert conversations.get_summary("k") == "s"
    conversations.set_history("k", [say("b"), say("c")])
    conversations.truncate_history("k", 1)
    assert texts(conversations.get_or_create("k").history()) == ["c"]
    conversations.set_history("k", [say("go"), CALL, result("c1"), result("c2")])
    conversations.truncate_history("k", 1)
    assert conversations.get_history("k") == [CALL, result("c1"), result("c2")]
    conversations.truncate_history("k", 1, exact=True)
    assert conversations.get_history("k") == [result("c2")]
    conversations.add_message("k", "user", "d", format="plain", id="own")
    conversations.add_message("k", "user", "d", format="plain", id="own")
    conversations.add_full_message("k", say("e"), id="own too")
    assert [entry.id for entry in conversations.get("k").entries()][1:] == ["own", "own too"]


def test_closing_lets_go_of_the_store(store: Store) -> None:
    conversations = Conversations(store)
    conversations.add_message("k", "user", "a")
    conversations.close()
    conversations.close()
    with pytest.raises(Closed):
        conversations.get_history("k")
    with pytest.raises(Closed):
        store.stats()


# --- deleting ---


def test_a_deleted_conversation_begins_anew(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.add("user", "old")
    conversation.set_summary("old")
    old = conversation.thread.leaf
    conversation.delete()
    conversation.delete()
    assert (conversation.history(), conversation.summary) == ([], "")
    assert conversations.list().items == []
    conversation.add("user", "new")
    assert (texts(conversation.history()), conversation.summary) == (["new"], "")
    assert [info.key for info in conversations.list().items] == ["k"]
    assert conversation.thread.path(old)[0].body["content"] == "old"


def test_writing_a_deleted_conversation_from_many_threads_loses_nothing(
    conversations: Conversations,
) -> None:
    conversations.get("k").add("user", "old")
    conversations.get("k").delete()
    run_all([lambda n=n: conversations.get("k").add("user", str(n)) for n in range(8)])
    assert sorted(texts(conversations.get("k").history())) == list("01234567")


def test_a_conversation_at_work_is_not_deleted(conversations: Conversations) -> None:
    conversation = conversations.get("k")
    conversation.add("user", "a")
    with conversation.thread.turn(owner="me"):
        with pytest.raises(LeaseHeld):
            conversation.delete()
        with pytest.raises(LeaseHeld):
            conversation.add("user", "b")
    assert texts(conversation.history()) == ["a"]


# --- many at once ---


def run_all(calls: list[Any]) -> None:
    errors: list[BaseException] = []

    def guarded(call: Any) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []


def test_the_first_writes_of_many_threads_all_arrive(conversations: Conversations) -> None:
    def work(n: int) -> None:
        for i in range(20):
            conversations.get("k").add("user", f"{n}.{i}")

    run_all([lambda n=n: work(n) for n in range(8)])
    history = texts(conversations.get("k").history())
    assert len(history) == len(set(history)) == 160
    for n in range(8):
        assert [t for t in history if t.startswith(f"{n}.")] == [f"{n}.{i}" for i in range(20)]


def test_messages_added_while_the_history_is_truncated_are_not_lost(
    conversations: Conversations,
) -> None:
    conversation = conversations.get("k")
    conversation.set_history([say(f"old {n}") for n in range(20)])

    def summarise() -> None:
        for _ in range(5):
            conversation.set_summary("so far")
            conversation.truncate(4)

    def add(n: int) -> None:
        for i in range(5):
            conversation.add("user", f"{n}.{i}")

    run_all([summarise, *[lambda n=n: add(n) for n in range(4)]])
    everything = [e.body["content"] for e in conversation.thread.path() if e.kind != "compaction"]
    assert len(everything) == 40
    assert texts(conversation.history()) == everything[-len(conversation.history()) :]
    assert len(conversation.history()) >= 4


# --- over instances ---


def test_conversations_persist(tmp_path: Path) -> None:
    for n in range(3):
        with clew.open(tmp_path / "threads.db") as store:
            conversation = Conversations(store).get("telegram:123")
            conversation.add("user", str(n))
            conversation.truncate(2)
            conversation.set_summary(f"until {n}")
    with clew.open(tmp_path / "threads.db") as store:
        conversation = Conversations(store).get("telegram:123")
        assert texts(conversation.history()) == ["1", "2"]
        assert conversation.summary == "until 2"
        assert [info.key for info in Conversations(store).list().items] == ["telegram:123"]
        assert store.verify() == []


def test_two_handles_on_one_file_lose_nothing(tmp_path: Path) -> None:
    with clew.open(tmp_path / "t.db") as one, clew.open(tmp_path / "t.db") as two:
        stores = [one, two]

        def work(n: int) -> None:
            for i in range(20):
                Conversations(stores[n % 2]).get("k").add("user", f"{n}.{i}")

        run_all([lambda n=n: work(n) for n in range(4)])
        assert len(Conversations(one).get("k").history()) == 80
