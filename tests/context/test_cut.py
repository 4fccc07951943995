"""Where a compaction cuts: to the token, between exchanges, and what it keeps word for word."""

from __future__ import annotations

from typing import Any

import pytest
from context import dialogues as say

import clew
from clew import InvalidInput
from clew.context.bodies import read_compaction, read_edit
from clew.context.cut import CompactionPlan, plan
from clew.context.window import read_window
from clew.core.model import Entry
from clew.thread import Thread

WORDS = 96  # characters of a request: with 4 for the message, a hundred tokens


def count(text: str) -> int:
    return len(text)


def thread_of(*requests: str) -> Thread:
    """Turns of a request of a hundred tokens (r0, r1, …) and an answer of ten (a0, a1, …)."""
    thread = clew.open("memory:").create()
    for n, request in enumerate(requests):
        thread.append_message({"role": "user", "content": request.ljust(WORDS, ".")}, id=f"r{n}")
        thread.append_message({"role": "assistant", "content": "answer"}, id=f"a{n}")
    return thread


def planned(thread: Thread, **options: Any) -> CompactionPlan:
    found = plan(read_window(thread), count=count, **options)
    assert found is not None
    return found


def call(thread: Thread, id: str) -> None:
    body = say.calls("openai-chat", (id, "run", {}))
    thread.append("tool_call", body, format="openai-chat", id=f"call {id}")


def result(thread: Thread, id: str) -> None:
    body = say.result("openai-chat", id, "output")
    thread.append("tool_result", body, format="openai-chat", id=f"result {id}")


def test_as_many_turns_are_kept_as_fit_to_the_token() -> None:
    thread = thread_of("one", "two", "three")
    assert planned(thread, keep_tokens=220).first_kept == "r1"
    assert planned(thread, keep_tokens=219).first_kept == "r2"
    assert plan(read_window(thread), keep_tokens=330, count=count) is None
    assert planned(thread, keep_tokens=329).first_kept == "r1"


def test_two_turns_are_kept_unless_it_is_said_how_many() -> None:
    thread = thread_of("one", "two", "three")
    assert planned(thread).first_kept == "r1"
    assert planned(thread).compacted_through == "a0"
    assert planned(thread, keep_turns=1).first_kept == "r2"
    nothing = planned(thread, keep_turns=0)
    assert (nothing.first_kept, nothing.compacted_through) == (None, "a2")
    for turns in (3, 4):
        assert plan(read_window(thread), keep_turns=turns, count=count) is None


def test_requests_are_kept_word_for_word_as_far_as_they_fit_to_the_token() -> None:
    thread = thread_of("one", "two", "three", "four")
    assert planned(thread, keep_turns=1, keep_user_tokens=200).kept_users == ("r1", "r2")
    assert planned(thread, keep_turns=1, keep_user_tokens=199).kept_users == ("r2",)
    assert planned(thread, keep_turns=1, keep_user_tokens=99).kept_users == ()
    assert planned(thread, keep_turns=1, keep_user_tokens=300).kept_users == ("r0", "r1", "r2")


def test_a_turn_that_is_cut_in_two_keeps_its_request_whatever_its_size() -> None:
    thread = thread_of("one")
    thread.append_message({"role": "user", "content": "long".ljust(WORDS, ".")}, id="long")
    for n in range(3):
        call(thread, f"c{n}")
        result(thread, f"c{n}")
    found = planned(thread, keep_tokens=40, keep_user_tokens=0)
    assert found.first_kept == "call c2"
    assert found.kept_users == ("long",), "and only that one"


def test_a_cut_waits_until_every_call_has_its_result() -> None:
    thread = thread_of()
    thread.append_message({"role": "user", "content": "go".ljust(WORDS, ".")}, id="go")
    for id in ("a", "b"):
        call(thread, id)
    for id in ("b", "a"):
        result(thread, id)
    call(thread, "c")
    result(thread, "c")
    assert planned(thread, keep_tokens=90).first_kept == "call c", "a and b are open until then"
    assert planned(thread, keep_tokens=1).first_kept == "call c", "over the bound, but whole"


def test_a_cut_is_not_made_before_a_reply_that_holds_the_result_of_an_earlier_call() -> None:
    """As a provider's own tools write it: the result stands in the assistant's next message."""
    thread = clew.open("memory:").create()
    thread.append_message({"role": "user", "content": "r".ljust(WORDS, ".")}, id="r0")
    used = {"type": "tool_use", "id": "a", "name": "run", "input": {"text": "x" * 200}}
    answered = {"type": "tool_result", "tool_use_id": "a", "content": "x" * WORDS}
    for id, block in (("asks", used), ("answers", answered)):
        body = {"role": "assistant", "content": [block]}
        thread.append("assistant_message", body, format="anthropic", id=id)
    thread.append_message({"role": "assistant", "content": "said"}, id="says")
    assert planned(thread, keep_tokens=150).first_kept == "says"


def test_two_messages_of_a_user_in_a_row_are_one_turn() -> None:
    thread = thread_of("one", "two")
    thread.append_message({"role": "user", "content": "more".ljust(WORDS, ".")}, id="m1")
    thread.append("event", {"any": 1})
    thread.append_message({"role": "user", "content": "still".ljust(WORDS, ".")}, id="m2")
    thread.append_message({"role": "assistant", "content": "answer"})
    assert planned(thread, keep_turns=1).first_kept == "m1"


def test_a_cut_of_ones_own_may_not_part_a_call_from_its_result() -> None:
    thread = thread_of("one")
    call(thread, "c")
    result(thread, "c")
    call(thread, "open")
    with pytest.raises(InvalidInput, match="parts call 'c'"):
        planned(thread, through="call c")
    assert planned(thread, through="result c").first_kept == "call open"
    found = planned(thread, through="call open")
    assert found.first_kept is None, "a call that has no result yet is parted from nothing"
    with pytest.raises(InvalidInput, match="not among"):
        planned(thread, through="unknown")


def test_what_is_in_force_is_carried_and_only_the_last_of_each() -> None:
    thread = clew.open("memory:").create()
    thread.append_message({"role": "system", "content": "be kind"}, id="s1")
    thread.append_message({"role": "system", "content": "be brief"}, id="s2")
    for n in range(2):
        thread.append("active_tools_change", {"tools": [n]}, id=f"t{n}")
        thread.append("model_change", {"model": str(n)}, id=f"m{n}")
    for n in range(3):
        thread.append_message({"role": "user", "content": f"r{n}"}, id=f"r{n}")
        thread.append_message({"role": "assistant", "content": "yes"})
    thread.append("context_edit", {"edit": "remove", "target": "s2"})
    assert planned(thread, keep_turns=1).carried == ("s1", "t1", "m1")


@pytest.mark.parametrize("options", [{"keep_turns": -1}, {"keep_tokens": -1}, {"max_tokens": 255}])
def test_an_amount_that_is_none_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        planned(thread_of("one", "two", "three"), **options)


# --- bodies that others wrote ---


def entry_with(body: Any, kind: str = "compaction", **fields: Any) -> Entry:
    thread = clew.open("memory:").create()
    thread.append("event", 1, id="before")
    return thread.append(kind, body, **fields)


GOOD = {
    "compaction_id": "c",
    "generation": 3,
    "first_kept_entry_id": "f",
    "compacted_through_entry_id": "t",
    "kept_user_entry_ids": ["u1", "u2"],
    "carried_entry_ids": ["s"],
    "summary": "S",
    "details": {"messages": [1], "format": "plain"},
}


def test_each_field_of_a_compaction_is_read() -> None:
    read = read_compaction(entry_with(GOOD))
    assert (read.compaction_id, read.generation, read.summary) == ("c", 3, "S")
    assert (read.first_kept, read.through) == ("f", "t")
    assert (read.kept_users, read.carried) == (("u1", "u2"), ("s",))
    assert (read.messages, read.format) == ([1], "plain")


@pytest.mark.parametrize("wrong", [None, 0, -1, True, 2.5, "", [], {}, [""], [1], {"a": 1}])
def test_a_field_of_another_shape_says_nothing_and_the_others_still_count(wrong: Any) -> None:
    empty = read_compaction(entry_with({}))
    for key in GOOD:
        read = read_compaction(entry_with({**GOOD, key: wrong}))
        rest = read_compaction(entry_with({k: v for k, v in GOOD.items() if k != key}))
        for field in read.__struct_fields__:
            if field != "entry":
                assert getattr(read, field) == getattr(rest, field), (key, field)
    assert (empty.generation, empty.summary, empty.messages) == (1, "", None)
    assert (empty.first_kept, empty.through, empty.format) == (None, None, None)
    assert (empty.kept_users, empty.carried) == ((), ())
    mixed = read_compaction(entry_with({**GOOD, "kept_user_entry_ids": ["u", wrong, "v"]}))
    assert mixed.kept_users == ("u", "v")


def test_each_field_of_an_edit_is_read_and_one_of_another_shape_says_nothing() -> None:
    body = {"edit": "replace", "target": "t", "compaction_id": "c", "message": {"m": 1}}
    read = read_edit(entry_with({**body, "format": "plain", "content": "x"}, "context_edit"))
    assert (read.edit, read.target, read.compaction_id) == ("replace", "t", "c")
    assert (read.message, read.format, read.content) == ({"m": 1}, "plain", "x")
    odd = read_edit(entry_with({**body, "target": 5, "edit": ""}, "context_edit"))
    assert (odd.target, odd.edit, odd.compaction_id) == (None, None, "c")
    assert read_edit(entry_with("no object", "context_edit")).edit is None


def test_the_record_of_an_agent_is_read_in_our_words_and_its_meta_says_the_rest() -> None:
    body = {"summary": "S", "firstKeptEntryId": "k"}
    read = read_compaction(entry_with(body, format="pi"))
    assert (read.summary, read.first_kept, read.through) == ("S", "k", "before")
    told = {"told": {"first_kept_entry_id": "other"}}
    assert read_compaction(entry_with(body, format="pi", meta=told)).first_kept == "other"
    assert read_compaction(entry_with(GOOD, format="plain")).first_kept == "f", "no such reader"


# --- what counts, and what does not ---


def test_what_is_no_message_takes_no_tokens_and_begins_no_turn() -> None:
    thread = thread_of("one")
    thread.append("event", {"any": "x" * 500}, id="event")
    thread.append_message({"role": "user", "content": "two".ljust(WORDS, ".")}, id="two")
    thread.append("usage", {"input_tokens": 5})
    thread.append_message({"role": "assistant", "content": "answer"})
    assert planned(thread, keep_tokens=110).first_kept == "two"
    assert planned(thread, keep_turns=1).first_kept == "two"
    assert plan(read_window(thread), keep_tokens=220, count=count) is None


def test_what_cannot_be_read_is_a_request_if_its_kind_is() -> None:
    thread = thread_of("one")
    thread.append("user_message", 5, format="anthropic", id="odd")
    thread.append_message({"role": "assistant", "content": "what?"})
    assert planned(thread, keep_turns=1).first_kept == "odd"
    assert planned(thread, keep_tokens=9).first_kept == "odd", "and takes no tokens"
    thread.append("assistant_message", 5, format="anthropic")
    assert planned(thread, keep_turns=1).first_kept == "odd"


def test_the_users_message_of_nothing_but_results_is_no_request() -> None:
    thread = thread_of("one")
    thread.append_message({"role": "user", "content": "two".ljust(WORDS, ".")}, id="two")
    thread.append("tool_call", say.calls("anthropic", ("c", "run", {})), format="anthropic")
    answer = say.result("anthropic", "c", "fine")
    thread.append("tool_result", answer, format="anthropic", id="result")
    thread.append("assistant_message", say.assistant("anthropic", "so"), format="anthropic")
    assert planned(thread, keep_turns=1).first_kept == "two"
    assert planned(thread, keep_turns=1).kept_users == ("r0",)
    answer["content"].append({"type": "text", "text": "and now something else"})
    thread.append("tool_result", answer, format="anthropic", id="both")
    assert planned(thread, keep_turns=1).first_kept == "both"
    thread.append("assistant_message", say.assistant("anthropic", "so"), format="anthropic")
    thread.append("user_message", {"role": "user", "content": []}, format="anthropic")
    assert planned(thread, keep_turns=1).first_kept == "both", "nor is one of nothing at all"


def test_a_last_turn_that_is_one_long_request_is_kept_whole() -> None:
    thread = thread_of("one", "two")
    thread.append_message({"role": "user", "content": "x" * 1000}, id="long")
    assert planned(thread, keep_tokens=50).first_kept == "long"


def test_an_exchange_that_fits_to_the_token_is_kept() -> None:
    thread = thread_of("one")
    for n in range(3):
        thread.append_message({"role": "assistant", "content": f"part {n}"}, id=f"p{n}")
    assert planned(thread, keep_tokens=20).first_kept == "p1"
    assert planned(thread, keep_tokens=19).first_kept == "p2"


def test_without_any_request_a_cut_is_made_between_exchanges() -> None:
    thread = clew.open("memory:").create()
    for n in range(3):
        thread.append_message({"role": "assistant", "content": f"part {n}"}, id=f"p{n}")
    assert planned(thread, keep_tokens=20).first_kept == "p1"
    assert plan(read_window(thread), keep_tokens=30, count=count) is None, "all of it fits"


def test_no_older_request_is_kept_behind_one_that_does_not_fit() -> None:
    thread = clew.open("memory:").create()
    for n, words in enumerate(("short", "x" * 500, "short", "last")):
        thread.append_message({"role": "user", "content": words}, id=f"r{n}")
        thread.append_message({"role": "assistant", "content": "answer"})
    assert planned(thread, keep_turns=1, keep_user_tokens=100).kept_users == ("r2",)


@pytest.mark.parametrize("keep", [{"keep_turns": 2}, {"keep_tokens": 220}, {"keep_tokens": 9999}])
@pytest.mark.parametrize("first", ["system", "assistant"])
def test_a_thread_that_is_kept_whole_is_not_compacted_for_what_stands_before_its_first_request(
    first: str, keep: dict[str, int]
) -> None:
    """A summary costs money, and a system message stays in force anyway."""
    thread = clew.open("memory:").create()
    thread.append_message({"role": first, "content": "hello"}, id="first")
    for n in range(2):
        thread.append_message({"role": "user", "content": "x" * WORDS}, id=f"r{n}")
        thread.append_message({"role": "assistant", "content": "answer"})
    found = plan(read_window(thread), count=count, **keep)
    if first == "assistant" and keep == {"keep_tokens": 220}:
        assert found is not None, "together they do not fit"
    else:
        assert found is None
