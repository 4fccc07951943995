"""What was paid once is counted once: through forks, clones, streams, repeats and sub-agents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from amounts import amount
from hypothesis import given, settings
from hypothesis import strategies as st
from replies_support import PRICES, anthropic, claude_code

import clew
from clew.store import Store
from clew.usage.model import Tokens
from clew.usage.report import usage_of

ONE = Tokens(input=100, output=10)


def times(count: int) -> Tokens:
    return Tokens(input=100 * count, output=10 * count)


def test_a_session_forked_ten_times_costs_what_was_paid(store: Store) -> None:
    thread = store.create("t")
    for number in range(5):
        thread.append_message({"role": "user", "content": "Go on."}, format="anthropic")
        thread.append_response(anthropic(f"msg_{number}"))
    for number in range(10):
        fork = thread.fork()
        fork.append_response(anthropic(f"msg_fork_{number}"))
        fork.fork()
    report = store.usage(by="thread", prices=PRICES)
    assert report.total.replies == 15
    assert report.total.tokens == times(15)
    assert report.total.cost_microdollars == 15 * 120
    by_thread = {row.key: row.used.replies for row in report.rows}
    assert by_thread.pop("t") == 5
    assert list(by_thread.values()) == [1] * 10


def test_a_reply_that_only_calls_a_tool_is_a_reply(store: Store) -> None:
    thread = store.create("t")
    call = {"type": "tool_use", "id": "c1", "name": "ls", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "README.md"}
    thread.append_message({**anthropic("msg_1"), "content": [call]}, format="anthropic")
    thread.append_message({"role": "user", "content": [result]}, format="anthropic")
    thread.append_response({**anthropic("msg_2"), "content": [{**call, "id": "c2"}]})
    thread.append_message({**anthropic(), "content": [{**call, "id": "c3"}]}, format="anthropic")
    assert store.usage().total.tokens == times(3)


def test_a_clone_costs_nothing_until_it_goes_on(store: Store) -> None:
    thread = store.create("t")
    thread.append_response(anthropic("msg_1"))
    thread.append_message(anthropic(), format="anthropic")  # without an id of the provider
    store.usage()
    clone = store.clone("t", id="clone")
    assert store.usage().total.tokens == times(2)
    clone.append_message(anthropic(), format="anthropic")
    rows = {row.key: row.used.replies for row in store.usage(by="thread").rows}
    assert rows == {"t": 2, "clone": 1}


def test_when_the_original_is_purged_its_copy_tells_what_was_paid(store: Store) -> None:
    store.create("t").append_response(anthropic("msg_1"))
    store.clone("t", id="clone")
    store.usage()
    store.purge("t")
    assert {row.key: row.used.tokens for row in store.usage(by="thread").rows} == {"clone": ONE}


def test_a_purged_thread_drops_out_and_a_deleted_one_does_not(store: Store) -> None:
    store.create("a").append_response(anthropic("msg_1"))
    store.create("b").append_response(anthropic("msg_2"))
    assert store.usage().total.replies == 2
    store.delete("a")
    assert store.usage().total.replies == 2
    store.purge("a")
    assert store.usage().total.replies == 1


def test_a_thread_that_was_purged_and_made_again_is_read_anew(store: Store) -> None:
    store.create("t").append_message(anthropic(input_tokens=7), format="anthropic")
    assert store.usage().total.tokens.input == 7
    store.purge("t")
    store.create("t").append_message(anthropic(input_tokens=9), format="anthropic")
    assert store.usage().total.tokens.input == 9


@pytest.mark.parametrize("between", [0, 1, 2])
def test_of_the_records_of_a_stream_the_last_one_counts(store: Store, between: int) -> None:
    """Also when the tables were brought up to date between two of them."""
    thread = store.create("t")
    for number, tokens in enumerate([1, 5, 30]):
        record = claude_code("msg_1", f"u{number}", tokens)
        thread.append("assistant_message", record, format="claude-code")
        if number <= between:
            store.usage()
    used = store.usage().total
    assert (used.replies, used.tokens.output) == (1, 30)


def test_a_stream_that_goes_on_in_the_next_quarter_is_counted_there_alone(store: Store) -> None:
    thread = store.create("t")
    first = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
    for number in range(2):
        record = claude_code("msg_1", f"u{number}", 10 + number)
        time = first + timedelta(minutes=2 * number)
        thread.append("assistant_message", record, format="claude-code", time=time)
        rows = {row.key: row.used.tokens.output for row in store.usage(timezone="UTC").rows}
        assert rows == {("2026-03-01", "2026-03-02")[number]: 10 + number}


@pytest.mark.parametrize("asked_between", [False, True])
def test_a_usage_entry_that_repeats_its_message_is_no_second_reply(
    store: Store, asked_between: bool
) -> None:
    thread = store.create("t")
    thread.append_message(anthropic("msg_1"), format="anthropic")
    if asked_between:
        store.usage()
    thread.append("usage", {"input_tokens": 100, "output_tokens": 10, "model": "m"})
    thread.append_message({"role": "user", "content": "And?"}, format="anthropic")
    thread.append("usage", {"input_tokens": 1, "output_tokens": 1, "model": "m"})
    used = store.usage().total
    assert (used.replies, used.tokens.input) == (2, 101)


def test_a_session_that_tells_the_usage_beside_its_message_counts_it_once(store: Store) -> None:
    session = store.sessions.new(model="m")
    store.sessions.append_message(session, {"role": "user", "content": "Hello"})
    store.sessions.append_message(
        session, anthropic("msg_1"), usage={"input_tokens": 100, "output_tokens": 10}
    )
    assert store.usage().total.tokens == ONE


def test_a_reply_that_two_writers_wrote_down_is_one(store: Store) -> None:
    """A recorder below and an adapter above, each with its own format."""
    store.create("recorded").append_response(anthropic("msg_1"))
    body = {
        "kind": "response",
        "parts": [{"part_kind": "text", "content": "Yes."}],
        "model_name": "m",
        "provider_response_id": "msg_1",
        "usage": {"input_tokens": 100, "output_tokens": 10},
    }
    store.create("adapted").append("assistant_message", body, format="pydantic-ai")
    assert store.usage().total.tokens == ONE


def test_ids_that_a_server_draws_from_a_thousand_are_no_ids(store: Store) -> None:
    thread = store.create("t")
    for _ in range(2):
        body = {
            "id": "chatcmpl-123",
            "object": "chat.completion",
            "model": "m",
            "choices": [{"message": {"role": "assistant", "content": "Yes."}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10},
        }
        thread.append_response(body)
    assert store.usage().total.replies == 2


def test_a_turn_that_is_told_again_replaces_what_was_told(store: Store) -> None:
    thread = store.create("t")
    for tokens in (5, 7):
        note = {"input_tokens": tokens, "output_tokens": 0, "turn_entry": "u1"}
        thread.append("usage", note)
        store.usage()
    used = store.usage().total
    assert (used.replies, used.tokens.input) == (1, 7)


def test_a_copy_of_a_store_costs_what_the_store_costs(store: Store, tmp_path: Path) -> None:
    store.create("t").append_response(anthropic("msg_1"))
    with clew.open(tmp_path / "copy.db") as other:
        store.copy_to(other)
        store.copy_to(other)
        assert other.usage().total == store.usage().total


def test_left_branches_and_compactions_were_paid_as_well(store: Store) -> None:
    thread = store.create("t")
    first = thread.append_message({"role": "user", "content": "One"}, format="anthropic")
    thread.append_response(anthropic("msg_1"))
    thread.move(first.id)
    thread.append_response(anthropic("msg_2"))
    thread.append_message({"role": "user", "content": "Two"}, format="anthropic")
    thread.append_response(anthropic("msg_3"))
    thread.compact(summary="One and two.", keep_turns=1)
    assert thread.usage().total.replies == 3


# --- trees ---


def test_sub_agents_and_forks_are_their_own_and_their_parents(store: Store) -> None:
    root = store.create("root")
    root.append_response(anthropic("msg_1"))
    child = store.create("child", parent="root")
    child.append_response(anthropic("msg_2"))
    store.create("grandchild", parent="child").append_response(anthropic("msg_3"))
    store.fork("root", id="fork").append_response(anthropic("msg_4"))
    store.create("other").append_response(anthropic("msg_5"))
    assert root.usage().total.replies == 1
    report = store.usage("root", tree=True, by="thread")
    found = {row.key: (row.used.replies, row.tree.replies) for row in report.rows if row.tree}
    assert found == {"root": (1, 4), "child": (1, 2), "grandchild": (1, 1), "fork": (1, 1)}
    assert report.total.replies == 4
    assert child.usage(tree=True).total.replies == 2
    assert store.usage(tree=True).total.replies == 5


def test_a_parent_without_replies_of_its_own_has_those_below(store: Store) -> None:
    store.create("root")
    store.create("child", parent="root").append_response(anthropic("msg_1"))
    rows = store.usage(tree=True, by="thread").rows
    assert {row.key: row.tree.replies for row in rows if row.tree} == {"root": 1, "child": 1}


def test_a_page_of_threads_is_told_by_itself(store: Store) -> None:
    store.create("a").append_response(anthropic("msg_1"))
    store.create("b").append_response(anthropic("msg_2"))
    store.create("c")
    found = usage_of(store, ["a", "c", "no such"])
    assert {id: used.replies for id, used in found.items()} == {"a": 1, "c": 0, "no such": 0}


def test_what_is_adopted_from_a_fork_was_paid_once(store: Store) -> None:
    thread = store.create("t")
    thread.append_message({"role": "user", "content": "Go on."}, format="anthropic")
    fork = store.fork(store.fork("t", id="fork").id, id="fork of the fork")
    fork.append_message(anthropic(), format="anthropic")  # without an id of the provider
    fork.append_response(anthropic())
    fork.append_response(anthropic("msg_1"))
    assert store.usage().total.tokens == times(3)
    store.get("fork").adopt(fork)
    thread.adopt("fork")
    assert store.usage().total.tokens == times(3)


# --- against a ledger ---

step = st.tuples(
    st.sampled_from(
        "reply note stream fork clone child move adopt compact purge ask".split(),
    ),
    st.integers(0, 5),
    st.integers(1, 1000),
)


@given(st.lists(step, max_size=30))
@settings(max_examples=amount(20, 60))
def test_the_sum_is_that_of_a_ledger_kept_beside(steps: list[tuple[str, int, int]]) -> None:
    """Whatever is done to threads: what the providers were paid is what is told."""
    with clew.open("memory:") as store:
        ledger: dict[str, int] = {}  # id of a reply → tokens
        told_by: dict[str, set[str]] = {}  # and the threads that have a record of it
        own: dict[str, set[str]] = {"t0": set()}
        store.create("t0")

        def write(thread: str, key: str, tokens: int, body: dict[str, Any], format: str) -> None:
            store.get(thread).append("assistant_message", body, format=format)
            ledger[key] = tokens
            told_by.setdefault(key, set()).add(thread)
            own[thread].add(key)

        for number, (what, which, tokens) in enumerate(steps):
            thread = sorted(own)[which % len(own)]
            key, made = f"msg_{number}", f"t{number + 1}"
            origin = store.get(thread).info.origin
            above = None if origin is None else origin.thread
            if what == "reply":
                write(thread, key, tokens, anthropic(key, input_tokens=tokens), "anthropic")
            elif what == "stream":
                for so_far in (1, tokens):
                    body = {"type": "assistant", "uuid": f"{key}.{so_far}"}
                    body["message"] = anthropic(key, input_tokens=so_far)  # type: ignore[assignment]
                    write(thread, key, so_far, body, "claude-code")
            elif what == "note":
                store.get(thread).append_response(anthropic(key, input_tokens=tokens))
                ledger[key] = tokens
                told_by[key] = {thread}
                own[thread].add(key)
            elif what == "fork":
                store.fork(thread, id=made)
                own[made] = set()
            elif what == "child":
                store.create(made, parent=thread)
                own[made] = set()
            elif what == "clone" and (above is None or above in own):
                store.clone(thread, id=made)
                own[made] = set(own[thread])
                for copied in own[made]:
                    told_by[copied].add(made)
            elif what == "move":
                store.get(thread).move(None)
            elif what == "compact":
                store.get(thread).compact(lambda given: "It was said.", keep_turns=0)
            elif what == "adopt" and above in own:
                for entry in store.get(above).adopt(thread, force=True):
                    for copied in {one for one in ledger if f'"{one}"'.encode() in entry.data}:
                        told_by[copied].add(above)
                        own[above].add(copied)
            elif what == "purge" and len(own) > 1:
                store.purge(thread)
                for gone in own.pop(thread):
                    told_by[gone].discard(thread)
            elif what == "ask":
                store.usage()
        paid = {key: tokens for key, tokens in ledger.items() if told_by[key]}
        total = store.usage(by="thread", tree=True)
        assert total.total.replies == len(paid)
        assert total.total.tokens.input == sum(paid.values())
        assert sum(row.used.tokens.input for row in total.rows) == sum(paid.values())
