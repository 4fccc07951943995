"""Whatever tree the records of a file make, each of them is stored once and none is made up."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from amounts import amount
from hypothesis import given, settings
from providers import loops
from providers.loops import APIS
from samples import bring, thread_of, write_lines

import clew

Record = dict[str, Any]
NAMES = [f"{n:08d}-0000-4000-8000-000000000000" for n in range(6)]
name = st.sampled_from(NAMES)
words = st.sampled_from(["Hello", "", "  ", "Go on", "half \ud83d", "\x1b[31m"])
block = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.builds(lambda id: {"type": "tool_use", "id": id, "name": "ls", "input": {}}, name),
    st.builds(lambda id: {"type": "tool_result", "tool_use_id": id, "content": "x"}, name),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "c2ln"}, words),
    st.just({"type": "fallback"}),
    st.just("no block"),
)


def claude(
    type: str, uuid: Any, parent: Any, content: Any, reply: str, side: bool, extra: Record
) -> Record:
    message = {"role": type, "content": content, "id": reply}
    links = {"uuid": uuid, "parentUuid": parent, "isSidechain": side, "sessionId": "s"}
    return {"type": type, "message": message, **links, **extra}


EXTRAS = st.sampled_from(
    [
        {},
        {"isMeta": True},
        {"timestamp": "2026-03-01T10:00:00Z"},
        {"timestamp": 7},
        {"type": "system", "subtype": "compact_boundary", "logicalParentUuid": NAMES[0]},
        {"type": "progress"},
        {"type": "custom-title", "customTitle": "T"},
        {"message": None},
        {"cwd": 5, "gitBranch": ["x"]},
    ]
)
CLAUDE = st.builds(
    claude,
    st.sampled_from(["user", "assistant"]),
    st.one_of(name, name, name, st.none(), st.just(7)),
    st.one_of(name, name, st.none(), st.just("lost"), st.just(7)),
    st.one_of(words, st.lists(block, max_size=3)),
    st.sampled_from(["m1", "m2"]),
    st.booleans(),
    EXTRAS,
)
PI = st.builds(
    lambda type, id, parent, role, content, extra: {
        "type": type,
        "id": id,
        "parentId": parent,
        "message": {"role": role, "content": content, "toolCallId": NAMES[0]},
        **extra,
    },
    st.sampled_from(["message", "message", "custom_message", "label", "unknown"]),
    name,
    st.one_of(name, st.none(), st.just("lost")),
    st.sampled_from(["user", "assistant", "toolResult", "system", "bashExecution", "strange"]),
    st.one_of(words, st.none(), st.lists(block, max_size=2)),
    st.sampled_from(
        [
            {},
            {"type": "compaction", "summary": "S", "firstKeptEntryId": NAMES[1]},
            {"type": "context_edit", "targetId": NAMES[2], "replacement": None},
            {"type": "context_edit", "targetId": NAMES[2], "replacement": {"content": "new"}},
            {"type": "branch_summary", "summary": 4},
        ]
    ),
)
HEADS = {
    "claude": {"type": "user", "uuid": "first", "parentUuid": None, "sessionId": "s"},
    "pi": {"type": "session", "id": "s", "version": 3},
}


@pytest.mark.parametrize(("agent", "kind"), [("claude", CLAUDE), ("pi", PI)])
@settings(max_examples=amount(50, 150))
@given(data=st.data())
def test_every_record_of_any_tree_is_stored_and_every_provider_takes_the_context(
    agent: str, kind: st.SearchStrategy[Record], data: st.DataObject
) -> None:
    records = [HEADS[agent], *data.draw(st.lists(kind, max_size=10))]
    cut = data.draw(st.integers(1, len(records)))
    with tempfile.TemporaryDirectory() as folder, clew.open("memory:") as store:
        path = write_lines(Path(folder) / "s.jsonl", records)
        report = bring(store, path)
        assert report.status == "imported"
        thread = thread_of(store, report)
        stored = [entry.body for entry in thread.entries()]
        assert all(record in stored for record in records)
        assert all(body in records for body in stored)
        assert bring(store, path).status == "unchanged"
        _check_contexts(thread)
        with clew.open("memory:") as grown:
            other = write_lines(Path(folder) / "g" / "s.jsonl", records[:cut])
            bring(grown, other)
            again = thread_of(grown, bring(grown, write_lines(other, records)))
            assert all(body in records for body in [e.body for e in again.entries()])
            assert all(record in [e.body for e in again.entries()] for record in records)
            _check_contexts(again)


def _check_contexts(thread: clew.Thread) -> None:
    for format in loops.FORMATS:
        context = thread.context(format)
        if context.messages:
            APIS[format].check(loops.request(format, context.messages, context.system))
