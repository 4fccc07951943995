"""What each agent writes, and what its thread says: branches, compactions, titles, links."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from adapters.claude_transcripts import SESSION, Transcript, conversation, text
from samples import bring, thread_of, write_lines

import clew
from clew.interchange import opencode
from clew.interchange.intake import Intake
from clew.interchange.tree import bring_all
from clew.interchange.values import Unreadable, _zstd

Record = dict[str, Any]


@pytest.fixture
def store() -> Iterator[clew.Store]:
    with clew.open("memory:") as opened:
        yield opened


def said(thread: clew.Thread, format: str = "plain") -> list[tuple[str, str]]:
    found = []
    for message in thread.context(format).messages:
        content = message["content"]
        words = content if isinstance(content, str) else "".join(b.get("text", "") for b in content)
        found.append((message["role"], words))
    return found


# --- Claude Code ---


def claude(folder: Path, records: list[Record], name: str = SESSION) -> Path:
    return write_lines(folder / "projects" / "-home-me-project" / f"{name}.jsonl", records)


def test_a_claude_session_has_the_ids_and_facts_that_the_adapter_gives_it(
    store: clew.Store, tmp_path: Path
) -> None:
    made = conversation()
    made.aside("custom-title", customTitle="My files")
    thread = thread_of(store, bring(store, claude(tmp_path, made.records)))
    assert thread.id == f"claude:-home-me-project/{SESSION}"
    facts = thread.info.facts
    assert facts["agent"] == "claude-code"
    assert (facts["project_key"], facts["session_id"]) == ("-home-me-project", SESSION)
    assert (facts["git_branch"], facts["model"]) == ("main", "claude-test")
    assert thread.info.workspace == "/home/me/project"
    assert thread.info.title is not None
    assert (thread.info.title.text, thread.info.title.source) == ("My files", "host")
    for entry in thread.entries():
        assert entry.body in made.records  # the record itself, nothing else
        assert "uuid" not in entry.body or entry.id == entry.body["uuid"]


def test_parallel_calls_and_all_their_results_are_on_the_path(
    store: clew.Store, tmp_path: Path
) -> None:
    thread = thread_of(store, bring(store, claude(tmp_path, conversation().records)))
    context = thread.context("anthropic")
    assert context.report.repairs == () or {r.code for r in context.report.repairs} == {
        "user_added"
    }
    blocks = [b["type"] for message in context.messages for b in message["content"]]
    assert blocks.count("tool_use") == blocks.count("tool_result") == 2


def test_a_compacted_session_goes_on_from_its_summary_and_keeps_what_was_before(
    store: clew.Store, tmp_path: Path
) -> None:
    made = conversation()
    before = made.records[-2]["uuid"]
    made.linked(
        "system",
        subtype="compact_boundary",
        parentUuid=None,
        logicalParentUuid=before,
        compactMetadata={"trigger": "auto", "preTokens": 9},
    )
    made.user("Summary: there is a.py.", isCompactSummary=True)
    made.assistant(text("Go on."), id="msg_9")
    thread = thread_of(store, bring(store, claude(tmp_path, made.records)))
    context = thread.context("anthropic")
    assert "Summary" in str(context.messages[0])
    assert "Which files" not in str(context.messages)
    assert not [r for r in context.report.repairs if r.code == "boundary_repaired"]
    assert "Which files" in str(thread.context("anthropic", compacted=False).messages)


def test_loops_lost_parents_and_several_roots_survive_and_are_counted(
    store: clew.Store, tmp_path: Path
) -> None:
    made = Transcript()
    first = made.user("One")
    made.user("Itself")
    made.records[-1]["parentUuid"] = made.records[-1]["uuid"]
    made.user("Lost", parentUuid="00000000-0000-0000-0000-000000000000")
    made.user("Root", parentUuid=None)
    made.user("Two", parentUuid=first)
    report = bring(store, claude(tmp_path, made.records))
    assert report.entries == 5
    assert report.notes["loop"] == report.notes["dangling_parent"] == 1
    assert "Two" in str(said(thread_of(store, report)))


def test_a_result_that_stands_before_its_call_hangs_on_it_all_the_same(
    store: clew.Store, tmp_path: Path
) -> None:
    records = conversation().records
    calls = [i for i, record in enumerate(records) if "tool_use" in str(record.get("message"))]
    result = next(i for i, r in enumerate(records) if "tool_result" in str(r.get("message")))
    records.insert(calls[0], records.pop(result))
    report = bring(store, claude(tmp_path, records))
    assert report.notes == {"late_parent": 1}
    codes = {repair.code for repair in thread_of(store, report).context("anthropic").report.repairs}
    assert codes <= {"user_added"}


def test_the_thread_stands_where_claude_would_go_on_not_at_the_last_line(
    store: clew.Store, tmp_path: Path
) -> None:
    made = Transcript()
    main = made.user("Main")
    made.user("Aside", isSidechain=True, parentUuid=None)
    made.assistant(text("Side answer"), id="msg_s", isSidechain=True)
    thread = thread_of(store, bring(store, claude(tmp_path, made.records)))
    assert thread.leaf == main


def test_a_sub_agent_has_its_session_as_parent_wherever_its_file_lies(
    store: clew.Store, tmp_path: Path
) -> None:
    main = bring(store, claude(tmp_path, conversation().records))
    side = Transcript(SESSION, sidechain=True)
    side.user("Look")
    new = tmp_path / "projects" / "-home-me-project" / SESSION / "subagents" / "agent-a1.jsonl"
    old = tmp_path / "projects" / "-home-me-project" / "agent-b2.jsonl"
    for path, id in ((new, "agent-a1"), (old, "agent-b2")):
        thread = thread_of(store, bring(store, write_lines(path, side.records)))
        assert thread.id == f"{main.thread}/subagents/{id}"
        assert thread.info.parent == main.thread

    path = new.with_name("agent-c3.jsonl")
    path.with_name("agent-c3.meta.json").write_text('{"agentType": "Explore", "toolUseId": "t1"}')
    facts = thread_of(store, bring(store, write_lines(path, side.records))).info.facts
    assert (facts["agent_role"], facts["tool_call"]) == ("Explore", "t1")


# --- Codex ---


def line(type: str, payload: Record, second: int = 0) -> Record:
    return {"timestamp": f"2026-03-01T10:00:{second:02}.000Z", "type": type, "payload": payload}


def event(type: str, **fields: Any) -> Record:
    return line("event_msg", {"type": type, **fields})


def message(role: str, words: str) -> Record:
    kind = "output_text" if role == "assistant" else "input_text"
    block = {"type": kind, "text": words}
    return line("response_item", {"type": "message", "role": role, "content": [block]})


def turn(id: str, prompt: str, answer: str) -> list[Record]:
    return [
        event("task_started", turn_id=id),
        line("turn_context", {"turn_id": id, "cwd": "/work", "model": "gpt-5"}),
        message("user", prompt),
        event("user_message", message=prompt),
        message("assistant", answer),
        event("task_complete", turn_id=id),
    ]


def rollout(*records: Record, **meta: Any) -> list[Record]:
    head = {"id": "t-1", "cwd": "/work", "cli_version": "0.140.0", "git": {"branch": "dev"}, **meta}
    return [line("session_meta", head), *records]


def test_turns_that_codex_took_back_are_no_longer_on_the_path(
    store: clew.Store, tmp_path: Path
) -> None:
    records = rollout(
        *turn("a", "One", "1"),
        *turn("b", "Two", "2"),
        event("thread_rolled_back", num_turns=1),
        *turn("c", "Three", "3"),
    )
    thread = thread_of(store, bring(store, write_lines(tmp_path / "rollout-x.jsonl", records)))
    assert [words for _, words in said(thread)] == ["One", "1", "Three", "3"]
    assert {entry.turn for entry in thread.path() if entry.turn} == {"a", "c"}
    assert len(list(thread.entries())) == len(records)
    assert thread.info.facts["model"] == "gpt-5"
    assert thread.info.title is not None
    assert thread.info.title.text == "One"


def test_a_rollback_in_a_file_that_has_grown_goes_back_as_far(
    store: clew.Store, tmp_path: Path
) -> None:
    records = rollout(*turn("a", "One", "1"), *turn("b", "Two", "2"))
    path = write_lines(tmp_path / "rollout-x.jsonl", records)
    bring(store, path)
    more = [event("thread_rolled_back", num_turns=2), *turn("c", "Three", "3")]
    thread = thread_of(store, bring(store, write_lines(path, [*records, *more])))
    assert [words for _, words in said(thread)] == ["Three", "3"]


@pytest.mark.parametrize("replaced", [True, False])
def test_a_compacted_rollout_goes_on_from_what_stands_for_its_history(
    replaced: bool, store: clew.Store, tmp_path: Path
) -> None:
    payload: Record = {"message": "They said one."}
    if replaced:
        payload["replacement_history"] = [message("user", "In short")["payload"]]
    records = rollout(*turn("a", "One", "1"), line("compacted", payload), *turn("b", "Two", "2"))
    thread = thread_of(store, bring(store, write_lines(tmp_path / "rollout-x.jsonl", records)))
    context = str(thread.context("openai-responses").messages)
    assert ("In short" if replaced else "They said one.") in context
    assert ("'One'" in context or '"One"' in context) != replaced  # what the user asked is kept
    assert "'1'" not in context


def test_counts_that_codex_repeats_are_one_reply_of_the_model_of_the_turn(
    store: clew.Store, tmp_path: Path
) -> None:
    last = {
        "input_tokens": 100,
        "cached_input_tokens": 40,
        "output_tokens": 10,
        "reasoning_output_tokens": 4,
    }
    counts = [
        event(
            "token_count", info={"total_token_usage": {"total_tokens": n}, "last_token_usage": last}
        )
        for n in (110, 110, 220)
    ]
    limits = event("token_count", info=None)
    context = line("turn_context", {"model": "gpt-5", "cwd": "/w"})
    records = rollout(context, *turn("t1", "One", "First"), *counts, limits)
    bring(store, write_lines(tmp_path / "sessions" / "rollout-a.jsonl", records))
    [row] = store.usage(by="model").rows
    assert (row.key, row.used.replies, row.used.unreadable) == ("gpt-5", 2, 0)
    tokens = row.used.tokens
    assert (tokens.input, tokens.cache_read, tokens.output, tokens.reasoning) == (120, 80, 12, 8)


def test_a_rollout_that_was_compressed_meanwhile_is_the_same_thread(
    store: clew.Store, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "rollout-x.jsonl", rollout(*turn("a", "One", "1")))
    first = bring(store, path)
    packed = tmp_path / "rollout-x.jsonl.zst"
    packed.write_bytes(_zstd().compress(path.read_bytes()))
    again = bring(store, packed)
    assert (again.thread, again.entries, again.known) == (first.thread, 0, first.entries)


@pytest.mark.parametrize("as_document", [True, False])
def test_rollouts_of_the_first_versions_are_read(
    as_document: bool, store: clew.Store, tmp_path: Path
) -> None:
    head = {"id": "old", "timestamp": "2025-05-01T10:00:00Z", "instructions": None}
    items = [message("user", "One")["payload"], message("assistant", "1")["payload"]]
    if as_document:
        path = tmp_path / "rollout-2025-05-01-old.json"
        path.write_text(json.dumps({"session": head, "items": items}, indent=2))
    else:
        path = tmp_path / "rollout-2025-05-01-old.jsonl"
        write_lines(path, [head, items[0], {"record_type": "state"}, items[1]])
    thread = thread_of(store, bring(store, path))
    assert thread.id == "codex:old"
    assert said(thread) == [("user", "One"), ("assistant", "1")]


def test_a_spawned_codex_agent_works_for_its_parent(store: clew.Store, tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "t-0", "depth": 1}}}
    path = write_lines(tmp_path / "rollout-x.jsonl", rollout(source=source, forked_from_id="t-0"))
    info = thread_of(store, bring(store, path)).info
    assert (info.parent, info.facts["forked_from"]) == ("codex:t-0", "t-0")


def test_a_codex_thread_has_the_name_that_the_user_gave_it_last(
    store: clew.Store, tmp_path: Path
) -> None:
    path = tmp_path / "sessions" / "2026" / "03" / "01" / "rollout-x.jsonl"
    write_lines(path, rollout(*turn("a", "One", "1")))
    names = [{"id": "t-1", "thread_name": name} for name in ("First", "Last")]
    write_lines(tmp_path / "session_index.jsonl", names)
    title = thread_of(store, bring(store, path)).info.title
    assert title is not None
    assert title.text == "Last"


# --- pi ---


def pi(id: str, parent: str | None, role: str, words: str) -> Record:
    content = [{"type": "text", "text": words}]
    return {
        "type": "message",
        "id": id,
        "parentId": parent,
        "timestamp": "2026-03-01T10:00:00.000Z",
        "message": {"role": role, "content": content},
    }


HEADER = {
    "type": "session",
    "version": 3,
    "id": "s-1",
    "timestamp": "2026-03-01T09:59:59.000Z",
    "cwd": "/work",
}


def test_pis_tree_labels_and_name_are_those_of_the_thread(
    store: clew.Store, tmp_path: Path
) -> None:
    records = [
        HEADER,
        pi("a", None, "user", "One"),
        pi("b", "a", "assistant", "1"),
        pi("c", "a", "assistant", "other"),
        {"type": "label", "id": "d", "parentId": "c", "targetId": "b", "label": "good"},
        {"type": "session_info", "id": "e", "parentId": "d", "name": "Named"},
    ]
    thread = thread_of(store, bring(store, write_lines(tmp_path / "x.jsonl", records)))
    assert [entry.id for entry in thread.path()] == ["a", "c", "d", "e"]
    assert thread.labels == {"b": "good"}
    assert thread.info.title is not None
    assert thread.info.title.text == "Named"


def test_pis_edits_and_compactions_count_in_contexts(store: clew.Store, tmp_path: Path) -> None:
    records = [
        HEADER,
        pi("a", None, "user", "Old"),
        pi("b", "a", "assistant", "old"),
        pi("c", "b", "user", "Kept"),
        pi("d", "c", "assistant", "kept"),
        {
            "type": "compaction",
            "id": "e",
            "parentId": "d",
            "summary": "In short",
            "firstKeptEntryId": "c",
        },
        {
            "type": "context_edit",
            "id": "f",
            "parentId": "e",
            "targetId": "d",
            "replacement": {"content": [{"type": "text", "text": "edited"}]},
        },
        {"type": "context_edit", "id": "g", "parentId": "f", "targetId": "c", "replacement": None},
    ]
    thread = thread_of(store, bring(store, write_lines(tmp_path / "x.jsonl", records)))
    context = str(thread.context("anthropic").messages)
    assert "In short" in context
    assert "edited" in context
    assert not {"Old", "Kept", "'kept'"} & set(context.split())


def test_the_first_version_of_pi_counts_lines(store: clew.Store, tmp_path: Path) -> None:
    bare = [pi(id, None, "user", id) for id in ("Old", "Kept", "New")]
    for record in bare:
        del record["id"], record["parentId"]
    compaction = {"type": "compaction", "summary": "In short", "firstKeptEntryIndex": 2}
    header = {key: value for key, value in HEADER.items() if key != "version"}
    records = [header, bare[0], bare[1], compaction, bare[2]]
    thread = thread_of(store, bring(store, write_lines(tmp_path / "x.jsonl", records)))
    context = str(thread.context("anthropic").messages)
    assert "In short" in context
    assert "Kept" in context
    assert "New" in context
    assert "Old" not in context


# --- others ---


def test_messages_a_line_become_a_thread_and_a_list_a_line_becomes_one_each(
    store: clew.Store, tmp_path: Path
) -> None:
    one = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    thread = thread_of(store, bring(store, write_lines(tmp_path / "chat.jsonl", one)))
    assert said(thread) == [("user", "Hi"), ("assistant", "Ho")]
    several = write_lines(tmp_path / "train.jsonl", [{"messages": one}, {"messages": one[:1]}])
    reports = Intake(store).bring(several)
    assert [report.entries for report in reports] == [2, 1]
    assert {report.status for report in Intake(store).bring(several)} == {"unchanged"}


def test_gemini_goes_back_and_gives_messages_anew(store: clew.Store, tmp_path: Path) -> None:
    def gemini(id: str, type: str, content: str) -> Record:
        return {"id": id, "timestamp": "2026-03-01T10:00:00Z", "type": type, "content": content}

    records = [
        {"sessionId": "g-1", "projectHash": "h", "startTime": "2026-03-01T10:00:00Z"},
        gemini("a", "user", "One"),
        gemini("b", "gemini", "part"),
        gemini("b", "gemini", "whole"),
        gemini("c", "user", "Two"),
        {"$rewindTo": "c"},
        gemini("d", "user", "Three"),
    ]
    thread = thread_of(store, bring(store, write_lines(tmp_path / "session-1.jsonl", records)))
    assert [words for _, words in said(thread)] == ["One", "whole", "Three"]


def test_opencode_says_the_same_from_its_database_its_files_and_its_export(
    tmp_path: Path,
) -> None:
    info = {"id": "ses_1", "title": "Files", "directory": "/work", "version": "1.2.0"}
    messages = [
        {"info": {"id": "msg_1", "role": "user"}, "parts": [{"type": "text", "text": "Hi"}]},
        {
            "info": {"id": "msg_2", "role": "assistant", "modelID": "m"},
            "parts": [
                {
                    "type": "tool",
                    "tool": "ls",
                    "callID": "c1",
                    "state": {"status": "completed", "input": {}, "output": "a.py"},
                },
                {"type": "text", "text": "There is a.py."},
            ],
        },
    ]
    export = tmp_path / "export.json"
    export.write_text(json.dumps({"info": info, "messages": messages}), "utf-8")
    base = tmp_path / "storage"
    for kind, name, value in [
        ("session/p", "ses_1", {**info, "time": {"created": 1}}),
        *[("message/ses_1", m["info"]["id"], m["info"]) for m in messages],
        *[
            (f"part/{m['info']['id']}", f"prt_{i}", part)
            for m in messages
            for i, part in enumerate(m["parts"])
        ],
    ]:
        (base / kind).mkdir(parents=True, exist_ok=True)
        (base / kind / f"{name}.json").write_text(json.dumps(value), "utf-8")
    database = tmp_path / "opencode.db"
    with sqlite3.connect(database) as db:
        db.executescript(
            "CREATE TABLE session(id, project_id, parent_id, title, directory, time_updated);"
            "CREATE TABLE message(id, session_id, time_created, time_updated, data);"
            "CREATE TABLE part(id, message_id, session_id, time_created, time_updated, data);"
        )
        db.execute("INSERT INTO session VALUES('ses_1','p',NULL,'Files','/work',5)")
        for at, m in enumerate(messages):
            id = m["info"]["id"]
            db.execute(
                "INSERT INTO message VALUES(?,?,?,?,?)",
                (id, "ses_1", at, at, json.dumps(m["info"])),
            )
            for i, part in enumerate(m["parts"]):
                db.execute(
                    "INSERT INTO part VALUES(?,?,?,?,?,?)",
                    (f"{id}.{i}", id, "ses_1", at, at, json.dumps(part)),
                )
    contexts = []
    for path in (export, base / "session" / "p" / "ses_1.json", database):
        with clew.open("memory:") as store:
            (report,) = Intake(store).bring(path)
            thread = thread_of(store, report)
            assert thread.id == "opencode:ses_1"
            assert thread.info.workspace == "/work"
            contexts.append(thread.context("anthropic").messages)
            assert {again.status for again in Intake(store).bring(path)} == {"unchanged"}
    assert contexts[0] == contexts[1] == contexts[2]
    assert "a.py" in str(contexts[0])


def test_nothing_is_left_beside_a_database_that_was_read(store: clew.Store, tmp_path: Path) -> None:
    ours, others = tmp_path / "opencode.db", tmp_path / "others.db"
    for database in (ours, others):
        with closing(sqlite3.connect(database)) as db:
            db.execute("PRAGMA journal_mode = wal")
            db.execute("CREATE TABLE session(id)")
            db.commit()
    assert bring_all(store, [tmp_path]).files
    assert sorted(tmp_path.iterdir()) == [ours, others]
    with closing(sqlite3.connect(ours)) as writer:
        writer.execute("INSERT INTO session VALUES ('committed, and in the log alone')")
        writer.commit()
        with opencode._opened(ours) as db:
            assert len(db.execute("SELECT * FROM session").fetchall()) == 1


def test_a_database_that_is_written_while_it_is_read_is_read_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE session(id)")
        writer.commit()
        with pytest.raises(Unreadable, match="while it was read"), opencode._opened(path) as db:
            db.execute("SELECT * FROM session").fetchall()
            writer.execute("INSERT INTO session VALUES ('s')")
            writer.commit()
        with opencode._opened(path) as db:
            assert len(db.execute("SELECT * FROM session").fetchall()) == 1


def test_a_session_that_got_another_title_stands_where_it_stood(
    store: clew.Store, tmp_path: Path
) -> None:
    """Only its header is new then, and that is no place to go on from."""
    info = {"id": "ses_1", "title": "New session - 1", "directory": "/work"}
    messages = [
        {"info": {"id": "msg_1", "role": "user"}, "parts": [{"type": "text", "text": "Hi"}]},
        {"info": {"id": "msg_2", "role": "assistant"}, "parts": [{"type": "text", "text": "Ho"}]},
    ]
    export = tmp_path / "export.json"
    export.write_text(json.dumps({"info": info, "messages": messages}), "utf-8")
    thread = thread_of(store, bring(store, export))
    export.write_text(
        json.dumps({"info": info | {"title": "Greetings"}, "messages": messages}), "utf-8"
    )
    assert bring(store, export).entries == 1
    assert said(thread) == [("user", "Hi"), ("assistant", "Ho")]


def test_a_document_that_is_one_message_alone_is_nobodys_session(
    store: clew.Store, tmp_path: Path
) -> None:
    part = tmp_path / "part.json"
    part.write_text(json.dumps({"type": "reasoning", "text": "Hm."}), "utf-8")
    assert Intake(store).bring(part) == []
    assert store.list().items == []


def test_a_database_that_is_none_and_a_document_that_is_torn_are_named(
    store: clew.Store, tmp_path: Path
) -> None:
    database, document = tmp_path / "opencode.db", tmp_path / "api_conversation_history.json"
    database.write_bytes(b"SQLite format 3\0" + b"junk" * 400)
    document.write_text('[{"role": "user", "cont')
    for path in (database, document):
        (report,) = Intake(store).bring(path)
        assert report.status == "failed"
        assert report.reason


def test_openhands_folders_grow_event_by_event(store: clew.Store, tmp_path: Path) -> None:
    base = tmp_path / "c-1"
    (base / "events").mkdir(parents=True)
    (base / "base_state.json").write_text('{"id": "c-1"}')

    def put(number: int, **event: Any) -> None:
        value = {"id": f"e{number}", "timestamp": "2026-03-01T10:00:00", "source": "user", **event}
        (base / "events" / f"event-{number:05}-e{number}.json").write_text(json.dumps(value))

    def spoken(role: str, words: str) -> Record:
        content = [{"type": "text", "text": words}]
        return {"kind": "MessageEvent", "llm_message": {"role": role, "content": content}}

    put(0, **spoken("user", "Hi"))
    bring(store, base / "base_state.json")
    put(1, **spoken("assistant", "Ho"))
    report = bring(store, base / "base_state.json")
    assert (report.entries, report.known) == (1, 2)
    assert said(thread_of(store, report)) == [("user", "Hi"), ("assistant", "Ho")]


def test_each_chat_of_aiders_history_is_a_thread_and_together_they_are_the_file(
    store: clew.Store, tmp_path: Path
) -> None:
    text = (
        "\n# aider chat started at 2026-03-01 10:00:00\n\n> Aider v0.86\n\n#### fix it\n\nDone.\n"
        "\n# aider chat started at 2026-03-02 10:00:00\n\n#### again\n#### please\n\nSure.\n"
    )
    path = tmp_path / ".aider.chat.history.md"
    path.write_text(text)
    reports = Intake(store).bring(path)
    assert [said(thread_of(store, report)) for report in reports] == [
        [("user", "fix it"), ("assistant", "Done.")],
        [("user", "again\nplease"), ("assistant", "Sure.")],
    ]
    kept = [e.body["text"] for report in reports for e in thread_of(store, report).entries()]
    assert "".join(kept) == text
