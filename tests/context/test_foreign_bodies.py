"""Entries of kinds that Clew reads, with bodies that others wrote, take nothing down with them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from amounts import amount
from hypothesis import given, settings

import clew
from clew import ClewError
from clew.context.compaction import compaction_body
from clew.thread import Thread

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini", "plain")
# All that a context, or what is asked about a thread beside it, looks into.
KINDS = (
    "compaction context_edit branch_summary turn_marker snapshot usage active_tools_change "
    "model_change label run_failure custom event thread_info"
).split()
KEYS = sorted(
    {*compaction_body(None, first_kept=None, through=None)}
    | {"edit", "target", "message", "format", "status", "summary", "messages", "snapshot", "owner"}
    | {"tree", "root", "at", "rules", "left_out", "role", "content", "parts", "output"}
)
words = st.sampled_from(
    ["", "a" * 600, *"m1 m2 a1 nobody remove replace restore uncompact".split()]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | words, inner, max_size=4)
    ),
    max_leaves=8,
)
bodies = values | st.dictionaries(st.sampled_from(KEYS), values, max_size=6)


def thread_with(kind: str, body: Any) -> Thread:
    thread = clew.open("memory:").create()
    thread.append_message({"role": "user", "content": "one"}, id="m1")
    thread.append_message({"role": "assistant", "content": "yes"}, id="a1")
    thread.append_message({"role": "user", "content": "two"}, id="m2")
    thread.append(kind, body)
    thread.append_message({"role": "user", "content": "three"})
    return thread


@settings(max_examples=amount(133, 400))
@given(kind=st.sampled_from(KINDS), body=bodies, format=st.sampled_from(FORMATS))
def test_a_context_is_made_whatever_an_entry_says(kind: str, body: Any, format: str) -> None:
    thread = thread_with(kind, body)
    for options in ({}, {"compacted": False}, {"segments": True}, {"purpose": "display"}):
        context = thread.context(format, **options)  # type: ignore[arg-type]
        assert "three" in json.dumps(context.messages)
        assert context.report.tokens > 0


@settings(max_examples=amount(100, 300))
@given(kind=st.sampled_from(KINDS), body=bodies)
def test_what_is_asked_about_a_thread_is_answered_or_refused_by_name(kind: str, body: Any) -> None:
    for ask in (
        lambda thread: thread.compaction(),
        lambda thread: thread.unfinished_turn(),
        lambda thread: thread.snapshots.list(),
        lambda thread: thread.snapshots.stats(),
        lambda thread: thread.count_user_messages(),
        lambda thread: thread.compact(summary="S", keep_turns=1),
        lambda thread: thread.uncompact(),
        lambda thread: thread.rewind("m2", files=False),
        lambda thread: thread.fork(before="m2"),
        lambda thread: thread.store.verify(),
    ):
        thread = thread_with(kind, body)
        with contextlib.suppress(ClewError):
            ask(thread)
        thread.context("anthropic")


@pytest.mark.parametrize(
    "body", [5, "text", None, [], {"summary": 5}, {"details": {"messages": [5]}}]
)
def test_a_compaction_of_somebody_elses_is_read_as_far_as_it_can_be(body: Any) -> None:
    thread = thread_with("compaction", body)
    assert "three" in json.dumps(thread.context("anthropic").messages)
    made = thread.compact(summary="All of it.", keep_turns=1)
    if made is not None:
        assert made.body["generation"] in (1, 2)
