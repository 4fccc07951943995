"""Every row of docs/explain/coming-from.md about projections is true, on every engine."""

from __future__ import annotations

from typing import Any

import pytest
from _rows import PARTS, Claims

import clew
from clew import messages
from clew.store import Store
from clew.thread import Thread

PROJECTION = Claims("projection")
row = PROJECTION.row


@pytest.mark.parametrize("name", PARTS["projection"])
def test_row(name: str, store: Store) -> None:
    PROJECTION.check(store, name)


def test_every_claim_has_its_row_and_no_row_comes_twice() -> None:
    PROJECTION.check_complete()


# --- helpers ---

FORMATS = messages.FORMATS


def call(*ids: str, tool: str = "read", arguments: str = "{}") -> dict[str, Any]:
    calls = [
        {"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}}
        for id in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id: str, text: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


def say(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def thread_of(store: Store, *bodies: dict[str, Any]) -> Thread:
    thread = store.create()
    for body in bodies:
        thread.append_message(body)
    return thread


def talked(store: Store, turns: int) -> Thread:
    said = [(say(f"question {n}"), say(f"answer {n}", "assistant")) for n in range(turns)]
    return thread_of(store, *(body for pair in said for body in pair))


def codes(thread: Thread, **options: Any) -> list[str]:
    return [repair.code for repair in thread.context("openai-chat", **options).report.repairs]


def summary(thread: Thread, **options: Any) -> str:
    return str(thread.context("plain", **options).messages[0]["content"])


# --- contexts ---


@row("build_context", "ContextProjection.messages")
def _build_context(store: Store, name: str) -> None:
    thread = thread_of(store, say("go"), call("a", "b"), result("b"), result("lost"))
    for kind in ("turn_marker", "usage", "custom", "a kind of tomorrow"):
        thread.append(kind, {"status": "…"})
    for format in FORMATS:
        found = thread.context(format).messages
        assert messages.validate(format, found) == []
    assert codes(thread) == ["interrupted_call", "orphan_result"]
    assert len(thread.context("openai-chat").messages) == 4


@row("build_context_projection", "ContextProjection.segments")
def _segments(store: Store, name: str) -> None:
    thread = thread_of(store, say("go"), call("a"), result("a"))
    assert thread.context("openai-chat").segments == ()
    context = thread.context("openai-chat", segments=True)
    assert [segment.entry_id for segment in context.segments] == [e.id for e in thread.path()]
    assert context.messages == thread.context("openai-chat").messages


@row(
    "ProjectedSegment.entry_id",
    "ProjectedSegment.entry_type",
    "ProjectedSegment.role",
    "ProjectedSegment.tool_call_id",
    "ProjectedSegment.tool_name",
    "EntryID",
)
def _segment(store: Store, name: str) -> None:
    thread = thread_of(store, say("go"), call("a"), result("a"))
    found = thread.context("openai-chat", segments=True).segments
    for segment, entry in zip(found, thread.path(), strict=True):
        assert (segment.entry_id, segment.kind) == (entry.id, entry.kind)
    assert [segment.role for segment in found] == ["user", "assistant", "tool"]
    assert [segment.tool_call_id for segment in found] == [None, "a", "a"]
    assert [segment.tool_name for segment in found] == [None, "read", "read"]


@row("ProjectedSegment.message_index")
def _message_index(store: Store, name: str) -> None:
    thread = thread_of(store, say("Be brief.", "system"), say("go"), call("a"), result("a"))
    found = thread.context("anthropic", segments=True).segments
    assert [segment.message_index for segment in found] == [None, 0, 1, 2]


@row("ProjectedSegment.token_estimate")
def _token_estimate(store: Store, name: str) -> None:
    thread = thread_of(store, say("x" * 350))
    context = thread.context("plain", segments=True)
    assert context.segments[0].token_estimate == context.report.tokens == 104
    counted = thread.context("plain", segments=True, count=lambda text: 7)
    assert counted.segments[0].token_estimate == 11


@row("ProjectedSegment.artifact_refs")
def _artifact_refs(store: Store, name: str) -> None:
    picture = store.blobs.put(b"picture")
    thread = thread_of(store, say("go"), call("a"))
    seen = clew.Artifact(label="picture", kind="image", mime="image/png", size=7, hash=picture)
    body, meta = result("a", "see the picture"), {"artifacts": [seen]}
    thread.append("tool_result", body, blobs=[picture], meta=meta)
    for purpose in ("provider_request", "display"):
        found = thread.context("plain", purpose=purpose, segments=True).segments
        assert [segment.blobs for segment in found] == [(), (), (picture,)]
        assert [segment.artifacts for segment in found] == [(), (), (seen,)]


@row("ProjectedSegment.ui_preview")
def _preview(store: Store, name: str) -> None:
    family = "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
    thread = thread_of(store, say("x" * 237 + family * 3))
    preview = thread.context("plain", segments=True).segments[0].preview
    assert preview == "x" * 237 + "…"


# --- purposes ---


@row("provider_request")
def _provider_request(store: Store, name: str) -> None:
    thread = talked(store, 2)
    assert thread.context(purpose="provider_request") == thread.context()


@row("compaction")
def _compaction(store: Store, name: str) -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    spoken = {"role": "assistant", "content": [thinking, {"type": "text", "text": "I read."}]}
    thread = thread_of(store, say("go"), spoken, say("on"), call("a"), result("a", "long " * 2000))
    found = thread.context("plain", purpose="compaction").messages
    assert "reasoning" not in found[1]
    assert len(found[-1]["content"]) < 4100
    given: list[Any] = []
    thread.compact(lambda told: given.extend(told) or "S", keep_turns=1, format="plain")
    assert given == found[:2]


@row("test_ui")
def _display(store: Store, name: str) -> None:
    context = talked(store, 2).context(purpose="display")
    assert context.format == "plain"
    assert len(context.segments) == len(context.messages) == 4


@row("ask_user", "task_complete")
def _signals(store: Store, name: str) -> None:
    thread = thread_of(store, say("go"), call("a", tool=name, arguments='{"text": "Which one?"}'))
    found = thread.context("openai-chat", signal_tools=[name]).messages
    assert found[-1] == say("Which one?", "assistant")
    assert len(thread.context("openai-chat").messages) == 3, "by default it is a call like others"


# --- compactions ---


@row("compaction_summary")
def _summary(store: Store, name: str) -> None:
    thread = talked(store, 4)
    thread.compact(lambda told: "They talked.", keep_turns=1)
    context = thread.context("plain", segments=True)
    assert context.messages[0]["role"] == "user"
    assert "They talked." in context.messages[0]["content"]
    assert context.messages[1:] == [say("question 3"), say("answer 3", "assistant")]
    assert context.segments[0].kind == "compaction"


@row("preserved_user_inputs")
def _preserved(store: Store, name: str) -> None:
    thread = talked(store, 4)
    entry = thread.compact(lambda told: "S", keep_turns=1)
    kept = [thread.get(id).body["content"] for id in entry.body["kept_user_entry_ids"]]
    assert kept == ["question 0", "question 1", "question 2"]
    assert '["question 0","question 1","question 2"]' in summary(thread)
    thread.uncompact()
    thread.compact(lambda told: "S", keep_turns=1, keep_user_tokens=0)
    assert "question" not in summary(thread)
    repeated = talked(store, 2)
    last = repeated.path()[2].id
    body = {"summary": "S", "first_kept_entry_id": last, "kept_user_entry_ids": [last]}
    repeated.append("compaction", body)
    assert "question 1" not in summary(repeated), "it is in the tail"


@row("missing_first_kept")
def _missing(store: Store, name: str) -> None:
    thread = thread_of(store, say("go"), call("a"), result("a"))
    thread.append("compaction", {"summary": "S", "first_kept_entry_id": "nobody"})
    assert codes(thread) == ["boundary_repaired"]
    shown = thread.context("openai-chat").messages
    assert messages.validate("openai-chat", shown) == []
    assert shown[-1] == result("a")


@row("last_compaction_wins")
def _last_wins(store: Store, name: str) -> None:
    thread = talked(store, 5)
    before = thread.context("plain").messages
    thread.compact(lambda told: "FIRST", keep_turns=3)
    thread.compact(lambda told: "SECOND", keep_turns=1)
    assert ("SECOND" in summary(thread), "FIRST" in summary(thread)) == (True, False)
    assert thread.context("plain", compacted=False).messages == before
    thread.uncompact()
    assert "FIRST" in summary(thread)
    thread.uncompact()
    assert thread.context("plain").messages == before
