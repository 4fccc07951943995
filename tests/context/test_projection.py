"""How entries become messages: each kind, each way of writing it, and what is told of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from context import dialogues as say

import clew
from clew.context import project
from clew.context.normalise import CONTINUE, INTERRUPTED
from clew.context.projection import (
    Options,
    Projection,
    format_of,
    project_pieces,
    read_dialogue,
)
from clew.context.window import read_window
from clew.messages.incoming import kind_for
from clew.messages.neutral import Text, ToolResult, text_of
from clew.thread import Thread

ASK, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def thread_of(*bodies: Any, format: str | None = "plain") -> Thread:
    thread = clew.open("memory:").create()
    for n, body in enumerate(bodies):
        kind, body = body if isinstance(body, tuple) else (kind_for(body), body)
        thread.append(kind, body, format=format, id=f"e{n}")
    return thread


def told(thread: Thread, format: str = "plain", **options: Any) -> list[tuple[str, str | None]]:
    return [(r.code, r.entry) for r in thread.context(format, **options).report.repairs]


def said(thread: Thread) -> list[tuple[str, Any]]:
    return [(one["role"], one["content"]) for one in thread.context("plain").messages]


@pytest.mark.parametrize("format", say.FORMATS)
def test_a_long_thread_at_once_is_the_same_as_entry_by_entry(format: str) -> None:
    """It is read in runs of entries. Five do not divide them: they end everywhere in a turn."""
    written: list[Any] = []
    for n in range(130):
        # Every third call has no result in its turn: its result comes after the next question.
        on_time, late = (n, n - 2) if n % 3 else (-1, n - 1)
        written += [
            ("user_message", say.user(format, f"q{n}")),
            ("assistant_message", say.calls(format, (f"c{n}", "run", {"n": n}))),
            ("tool_result", say.result(format, f"c{on_time}", f"r{n}")),
            ("tool_result", say.result(format, f"c{late}", "late")),
            ("assistant_message", say.assistant(format, f"a{n}")),
        ]
    thread = thread_of(*written, format=format)
    whole, entries = thread.context(format), thread.path()
    options = Options(format=format)
    grown = Projection(read_window(thread, entries[0].id), options)
    for entry in entries[1:]:
        grown.take([entry])
    assert grown.context(options) == whole
    assert {"late_result", "orphan_result"} <= {r.code for r in whole.report.repairs}


# --- in which format ------------------------------------------------------------------------

SHAPED = say.calls("anthropic", ("c", "run", {}))  # only Anthropic has blocks like these


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([], None),
        ([("user_message", "plain", ASK)], "plain"),
        ([("user_message", "gemini", ASK), ("user_message", "openai-chat", ASK)], "openai-chat"),
        ([("user_message", "gemini", ASK), ("event", "openai-chat", ASK)], "gemini"),
        ([("assistant_message", None, SHAPED)], "anthropic"),
        ([("assistant_message", "their-own", SHAPED)], "anthropic"),
        ([("assistant_message", None, SHAPED), ("user_message", None, ASK)], "anthropic"),
        ([("user_message", None, ASK)], None),
        ([("user_message", "gemini", ASK), ("assistant_message", "claude-code", {})], "anthropic"),
    ],
)
def test_the_format_is_told_by_the_newest_message_that_can_tell(
    written: list[tuple[str, str | None, Any]], expected: str | None
) -> None:
    thread = clew.open("memory:").create()
    for kind, format, body in written:
        thread.append(kind, body, format=format)
    assert format_of(thread.path()) == expected
    assert thread.context().format == (expected or "plain")


# --- edits ----------------------------------------------------------------------------------


def edited(thread: Thread, **edit: Any) -> list[tuple[str, Any]]:
    thread.append("context_edit", {"target": "e0", **edit})
    if edit["edit"] in ("remove", "replace"):
        assert ("edited", "e0") in told(thread)
    return said(thread)


def test_an_edit_of_the_content_leaves_the_message_around_it() -> None:
    assert edited(thread_of(ASK), edit="replace", content="new") == [("user", "new")]
    record = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "old"}}
    held = thread_of(("user_message", record), format="claude-code")
    assert edited(held, edit="replace", content="new") == [("user", "new")]
    words = thread_of(("user_message", "only words"))
    assert edited(words, edit="replace", content="new") == [("user", "only words")]


def test_an_edit_may_bring_a_message_in_a_format_of_its_own() -> None:
    new = say.user("gemini", "new")
    found = edited(thread_of(ASK), edit="replace", message=new, format="gemini")
    assert found == [("user", "new")]
    half = {"role": "user", "content": [{"type": "text", "text": "half \ud83d"}]}
    thread = thread_of(say.user("anthropic", "old"), format="anthropic")
    assert edited(thread, edit="replace", message=half) == [("user", "half \ufffd")]


@pytest.mark.parametrize("edit", ["unknown", "uncompact", "restore"])
def test_an_edit_that_leaves_nothing_out_leaves_the_message(edit: str) -> None:
    assert edited(thread_of(ASK), edit=edit) == [("user", "q")]
    thread = thread_of(ASK)
    thread.append("context_edit", {"edit": "remove"})
    assert said(thread) == [("user", "q")]


# --- what cannot be told as it is -----------------------------------------------------------


def test_what_was_erased_is_told_as_erased_and_an_erased_result_as_none() -> None:
    thread = thread_of(
        ASK, say.calls("plain", ("c", "run", {})), say.result("plain", "c", "secret"), ASK
    )
    thread.erase("e0", "e2")
    assert told(thread) == [("erased", "e2"), ("interrupted_call", "e1")]
    shown = thread.context("plain").json().decode()
    assert "secret" not in shown
    assert INTERRUPTED in shown
    assert "[erased]" in thread.context("plain").messages[0]["content"]


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("user_message", "user"),
        ("assistant_message", "assistant"),
        ("tool_result", "user"),  # it names no call that it could answer
        ("system_message", "system"),
    ],
)
@pytest.mark.parametrize(("body", "text"), [("words", "words"), ({"only": "it"}, "it"), (5, "5")])
def test_what_cannot_be_read_is_told_as_text_by_who_wrote_it(
    kind: str, role: str, body: Any, text: str
) -> None:
    thread = thread_of((kind, body), format="anthropic")
    (block,) = read_dialogue(read_window(thread), "plain").blocks
    assert (block.message.role, text_of(block.message)) == (role, text)
    assert ("unreadable", "e0") in told(thread)


def test_half_a_character_is_mended_wherever_it_stands_and_nothing_else_is_changed() -> None:
    arguments = {"n": 5, "list": ["cut \ud83d", None, True], "cut \ud83d": {"x": 1.5}}
    thread = thread_of(ASK, say.calls("plain", ("c", "run", arguments)))
    (call,) = thread.context("plain").calls
    assert call.arguments == {"n": 5, "list": ["cut \ufffd", None, True], "cut \ufffd": {"x": 1.5}}
    assert ("text_mended", "e1") in told(thread)
    quoted = thread_of({"role": "user", "content": "it is spelled \\ud83d"})
    assert said(quoted) == [("user", "it is spelled \\ud83d")]
    assert told(quoted) == []


def test_what_a_format_cannot_carry_is_told_of_with_its_entry() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    body = {"role": "user", "content": [{"type": "text", "text": "listen"}, sound]}
    thread = thread_of(ASK, ANSWER, ("user_message", body), format="openai-chat")
    (code, entry) = told(thread, "anthropic")[-1]
    assert entry == "e2"
    assert code
    assert told(thread, "openai-chat") == []


# --- replies and steps ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("between", "times"),
    [
        ([], 1),
        ([("event", {})], 1),
        ([("turn_marker", {"status": "save_point"})], 1),
        ([("turn_marker", {"status": "completed"})], 2),
        ([("turn_marker", "no object")], 2),
        ([("usage", {"input_tokens": 1})], 2),
        ([ASK], 2),
    ],
)
def test_a_reply_that_was_written_twice_is_told_once_unless_something_came_between(
    between: list[Any], times: int
) -> None:
    thread = thread_of(ASK, ANSWER, *between, ANSWER)
    assert said(thread).count(("assistant", "a")) == times


def test_two_turns_may_say_the_same() -> None:
    thread = thread_of(ASK)
    for turn in ("t1", "t1", "t2"):
        thread.append("assistant_message", ANSWER, format="plain", turn=turn)
    assert said(thread).count(("assistant", "a")) == 2


@pytest.mark.parametrize(
    ("meta", "following"),
    [
        (None, "user"),
        ({"partial": True}, "model"),
        ({"partial": False}, "user"),
        ({"note": "partial"}, "user"),
        ({"other": True}, "user"),
    ],
)
def test_the_model_goes_on_with_a_reply_that_its_meta_calls_partial(
    meta: dict[str, Any] | None, following: str
) -> None:
    thread = thread_of(ASK)
    thread.append("assistant_message", ANSWER, format="plain", meta=meta)
    assert thread.context("plain").next == following


def test_the_records_of_an_agent_with_one_message_id_are_one_reply() -> None:
    def record(**message: Any) -> tuple[str, Any]:
        inside = {"id": "msg_1", "role": "assistant", **message}
        return "assistant_message", {"type": "assistant", "message": inside}

    call = {"type": "tool_use", "id": "c", "name": "run", "input": {}}
    pieces = [record(content=[{"type": "text", "text": "I look."}]), record(content=[call])]
    thread = thread_of(*pieces, format="claude-code")
    assert [len(one["content"]) for one in thread.context("anthropic").messages[1:2]] == [2]
    odd = thread_of(
        ("assistant_message", {"type": "assistant"}),
        ("assistant_message", {"type": "assistant", "message": "text"}),
        format="claude-code",
    )
    assert odd.context("anthropic").messages is not None
    apart = thread_of(
        {**ANSWER, "id": "one", "message": {"id": "x"}},
        {**ANSWER, "id": "two", "message": {"id": "x"}, "content": "b"},
    )
    assert said(apart) == [("assistant", "a"), ("assistant", "b")]


def test_a_signal_becomes_words_and_all_beside_it_stays() -> None:
    calls = say.calls("plain", ("s", "tell", {"text": "ready"}), ("c", "run", {}), text="Well:")
    results = [say.result("plain", "c", "done"), say.result("plain", "s", "seen")]
    thread = thread_of(ASK, calls, *results)
    found = thread.context("plain", signal_tools=["tell"]).messages
    assert json.dumps(found).count("ready") == 1
    assert "Well:" in json.dumps(found[1])
    assert [call["id"] for call in found[1]["tool_calls"]] == ["c"]
    assert [one["role"] for one in found] == ["user", "assistant", "tool", "user"]
    assert found[3]["content"] == "seen"


# --- what stands beside the messages --------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"summary": "S", "more": 1}, "S"),
        ({"summary": "", "a": 1}, '{"summary":"","a":1}'),
        ("T", "T"),
    ],
)
def test_a_branch_says_its_summary_or_else_all_it_has(body: Any, text: str) -> None:
    thread = thread_of(("branch_summary", body))
    assert said(thread) == [("user", f"<branch_summary>\n{text}\n</branch_summary>")]


def test_words_that_a_compaction_keeps_are_told_as_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    thread = thread_of(
        ("user_message", {"role": "user", "content": parts}),
        ("user_message", {"only": "it"}),
        ASK,
        format="anthropic",
    )
    body = {"summary": "S", "kept_user_entry_ids": ["e0", "e1"], "first_kept_entry_id": "e2"}
    thread.append("compaction", body)
    (_, text), _ = said(thread)
    assert '["one\\ntwo","it"]' in text


def test_a_report_counts_entries_and_names_the_compaction_whose_cut_was_missing() -> None:
    thread = thread_of(ASK, ("event", 1), ANSWER, ASK)
    assert thread.context("plain").report.entries == 4
    assert project(thread.path()[:3], "plain").report.entries == 3
    boundary = thread.append("compaction", {"summary": "S", "first_kept_entry_id": "gone"})
    assert told(thread) == [("boundary_repaired", boundary.id)]
    assert thread.context("plain").report.compaction == boundary.id


def test_the_size_of_a_message_is_shared_by_the_entries_that_it_was_made_of() -> None:
    pieces = [
        {**say.calls("anthropic", (id, "run", {"n": 1}), text="x" * 100), "id": "msg"}
        for id in ("a", "b")
    ]
    thread = thread_of(say.user("anthropic", "q"), *pieces, format="anthropic")
    context = thread.context("anthropic", segments=True)
    one, other = [found for found in context.segments if found.kind == "tool_call"]
    whole = project(thread.path()[1:], "plain").report
    assert one.token_estimate == other.token_estimate > 30
    assert one.token_estimate + other.token_estimate < whole.tokens


def test_what_a_compaction_carries_is_a_segment_like_all_that_is_sent() -> None:
    thread = clew.open("memory:").create()
    for n, role in enumerate(("system", "user", "assistant", "user", "assistant")):
        thread.append_message({"role": role, "content": f"{role} {n}"}, id=f"e{n}")
    summed_up = thread.compact(summary="S", keep_turns=1)
    assert summed_up is not None
    context = thread.context(segments=True)
    segments = [(segment.entry_id, segment.message_index) for segment in context.segments]
    assert segments == [("e0", 0), (summed_up.id, 1), ("e3", 2), ("e4", 3)]
    assert sum(segment.token_estimate for segment in context.segments) == context.report.tokens


def test_a_dialogue_that_is_written_down_is_at_rest_and_ends_where_the_thread_does() -> None:
    calls = say.calls("anthropic", ("c", "run", {}))
    open_ = thread_of(say.user("anthropic", "q"), calls, format="anthropic")
    open_.append("context_edit", {"edit": "replace", "target": "e0", "content": "new"})
    found = read_dialogue(read_window(open_), "anthropic")
    assert [block.message.role for block in found.blocks] == ["user", "assistant", "tool"]
    assert text_of(found.blocks[0].message) == "new"
    (result,) = found.blocks[-1].message.parts
    assert isinstance(result, ToolResult)
    assert result.content == (Text(text=INTERRUPTED),)
    assert [one.code for one in found.repairs] == ["edited", "interrupted_call"]
    ended = thread_of(say.user("anthropic", "q"), say.assistant("anthropic", "a"))
    assert len(read_dialogue(read_window(ended), "anthropic").blocks) == 2


def test_pieces_to_be_summed_up_end_where_the_thread_does() -> None:
    thread = thread_of(*[ASK, ANSWER] * 3)
    pieces = project_pieces(read_window(thread), Options(format="anthropic"), 10_000)
    assert [len(piece) for piece in pieces] == [6]
    assert CONTINUE not in json.dumps(pieces)


def test_a_context_is_unlike_anything_else() -> None:
    context = thread_of(ASK).context("plain")
    assert (context == 5) is False
    assert context != "q"
