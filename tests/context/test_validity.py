"""Whatever happened to a thread, its context is valid for every provider.

Random journals: messages of all formats in any order, calls without results and results without
calls, ids used twice, empty and malformed messages, moves, forks, compactions, edits. Then the
provider's own rules decide.
"""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from amounts import amount
from context import dialogues as say
from hypothesis import given, settings

import clew
from clew import messages
from clew.thread import Thread

FORMATS = say.FORMATS
IDS = st.sampled_from(["c1", "c2", "c3", "odd id/1", "x" * 70])
NAMES = st.sampled_from(["run", "read_file", "odd name!", "a.b"])
TEXTS = st.sampled_from(["hello", "", " \n", "two\nlines ", "Grüße 😀", "cut \ud83d", "x" * 500])
ARGUMENTS = st.sampled_from([{}, {"path": "/tmp"}, {"n": [1, {"deep": None}]}])

formats = st.sampled_from(FORMATS)
calls = st.lists(st.tuples(IDS, NAMES, ARGUMENTS), min_size=1, max_size=3)

steps = st.one_of(
    st.tuples(st.just("user_message"), formats, st.builds(lambda t: ("user", t), TEXTS)),
    st.tuples(st.just("assistant_message"), formats, st.builds(lambda t: ("assistant", t), TEXTS)),
    st.tuples(st.just("system_message"), formats, st.builds(lambda t: ("system", t), TEXTS)),
    st.tuples(
        st.just("assistant_message"),
        formats,
        st.builds(lambda t, s: ("thinking", t, s), TEXTS, st.sampled_from([None, "sig"])),
    ),
    st.tuples(st.just("tool_call"), formats, st.builds(lambda c: ("calls", *c), calls)),
    st.tuples(
        st.just("tool_result"), formats, st.builds(lambda i, t: ("result", i, t), IDS, TEXTS)
    ),
    st.tuples(
        st.just("malformed"), formats, st.sampled_from([5, "text", {}, {"role": "user"}, []])
    ),
    st.tuples(st.just("branch_summary"), formats, TEXTS),
    st.tuples(st.just("turn_marker"), formats, TEXTS),
    st.tuples(st.just("move"), formats, st.integers(0, 30)),
    st.tuples(st.just("fork"), formats, st.integers(0, 30)),
    st.tuples(st.just("compact"), formats, st.integers(0, 3)),
    st.tuples(st.just("edit"), formats, st.integers(0, 30)),
    st.tuples(st.just("truncate"), formats, st.integers(0, 30)),
)
journals = st.lists(steps, min_size=1, max_size=18)


def write(thread: Thread, step: tuple[str, str, Any]) -> Thread:
    kind, format, what = step
    if kind in ("move", "fork", "edit", "truncate"):
        return _at_entry(thread, kind, what)
    if kind == "compact":
        try:
            thread.compact(lambda _: "what was said before", keep_turns=what)
        except clew.ClewError as error:
            raise AssertionError(f"compaction failed: {error}") from error
    elif kind == "malformed":
        thread.append("user_message", what, format=format)
    elif kind in ("branch_summary", "turn_marker"):
        thread.append(kind, {"summary": what, "status": what})
    else:
        name, *arguments = what
        thread.append(kind, getattr(say, name)(format, *arguments), format=format)
    return thread


def _at_entry(thread: Thread, kind: str, number: int) -> Thread:
    entries = list(thread.entries())
    if not entries:
        return thread
    entry = entries[number % len(entries)].id
    if kind == "fork":
        return thread.fork(at=entry)
    if kind == "move":
        thread.move(entry)
    elif kind == "truncate":  # anywhere, also between a call and its result
        thread.append("compaction", {"summary": "", "first_kept_entry_id": entry})
    else:
        thread.append("context_edit", {"edit": "remove", "target": entry})
    return thread


def play(journal: list[tuple[str, str, Any]]) -> Thread:
    thread = clew.open("memory:").create()
    for step in journal:
        thread = write(thread, step)
    return thread


@settings(max_examples=amount(83, 250))
@given(journals)
def test_every_context_of_any_journal_is_valid(journal: list[tuple[str, str, Any]]) -> None:
    thread = play(journal)
    before = list(thread.read())
    for target in FORMATS:
        for options in ({}, {"compacted": False}, {"budget_tokens": 60}, {"system": False}):
            context = thread.context(target, **options)
            violations = messages.validate(target, context.messages) if context.messages else []
            assert violations == [], (target, options, context.messages)
            json.dumps(context.messages)
    assert list(thread.read()) == before, "the journal is not touched"


@settings(max_examples=amount(50, 150))
@given(journals, st.sampled_from(FORMATS))
def test_every_repair_names_an_entry_of_the_thread(
    journal: list[tuple[str, str, Any]], target: str
) -> None:
    thread = play(journal)
    known = {entry.id for entry in thread.entries()} | {None}
    for repair in thread.context(target).report.repairs:
        assert repair.entry in known
        assert repair.code
        assert repair.message


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_a_clean_thread_needs_no_repair_in_its_own_format(source: str, target: str) -> None:
    thread = clew.open("memory:").create()
    for n in range(3):
        thread.append("user_message", say.user(source, f"question {n}"), format=source)
        body = say.calls(source, (f"c{n}", "run", {"n": n}), (f"d{n}", "run", {}))
        thread.append("tool_call", body, format=source)
        thread.append("tool_result", say.result(source, f"c{n}", "fine"), format=source)
        thread.append("tool_result", say.result(source, f"d{n}", "fine"), format=source)
        thread.append("assistant_message", say.assistant(source, "done"), format=source)
    thread.append("user_message", say.user(source, "thanks"), format=source)
    context = thread.context(target)
    assert context.report.repairs == ()
    assert messages.validate(target, context.messages) == []


@pytest.mark.parametrize("target", FORMATS)
def test_appending_a_turn_changes_nothing_before_it(target: str) -> None:
    """Prompt caches hit only while what was sent before is sent again, byte for byte."""
    thread = clew.open("memory:").create()
    earlier = ""
    for n in range(6):
        thread.append("user_message", say.user(target, f"question {n}"), format=target)
        call = say.calls(target, (f"c{n}", "run", {"b": n, "a": 1}), text="I look.")
        thread.append("tool_call", call, format=target)
        thread.append("tool_result", say.result(target, f"c{n}", "output " * n), format=target)
        thread.append("assistant_message", say.assistant(target, f"answer {n} "), format=target)
        thread.append("user_message", say.user(target, "go on"), format=target)
        sent = json.dumps(thread.context(target).messages)
        shared = len(_common(earlier, sent))
        assert shared >= len(earlier) - len("}]}]"), "only closing brackets may differ"
        earlier = sent
    assert len(earlier) > 1000


def _common(one: str, other: str) -> str:
    length = min(len(one), len(other))
    return one[: next((i for i in range(length) if one[i] != other[i]), length)]
