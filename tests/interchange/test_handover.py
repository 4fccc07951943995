"""Threads as files of agents: what came from an agent goes back as it was, and the rest fits in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from handovers import AGENTS, MESSAGES, asked, bring, conversation, go_on, helped, said
from samples import SAMPLES, needs_samples, sample_files, write_lines

import clew
from clew.core.errors import InvalidInput
from clew.interchange.export import Writing, export, writer_of
from clew.interchange.intake import Intake
from clew.interchange.resume import Resumed, resume
from clew.messages.neutral import text_of


@pytest.fixture
def store() -> Iterator[clew.Store]:
    with clew.open("memory:") as opened:
        yield opened


@pytest.fixture
def elsewhere() -> Iterator[clew.Store]:
    with clew.open("memory:") as opened:
        yield opened


def carried(thread: clew.Thread, agent: str, home: Path) -> Resumed:
    return resume(thread, agent, workspace=home, home=home, environ={})


def records_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


# --- out, and in again ---


FOLDERS = (
    sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()) if SAMPLES.is_dir() else []
)


@needs_samples
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_session_that_was_imported_is_exported_as_it_was(folder: str, tmp_path: Path) -> None:
    for file in sample_files(folder):
        with clew.open("memory:") as store, clew.open("memory:") as second:
            for report in Intake(store).bring(file):
                if report.agent not in AGENTS or report.thread is None:
                    continue
                thread = store.get(report.thread)
                writing = Writing(report.agent)
                path = _beside(tmp_path, file, report.agent)
                path.write_bytes(b"".join(writer_of(report.agent).write(thread, writing)))
                again = second.get(bring(second, path).thread or "")
                assert again.id == thread.id
                assert told(again) == told(thread), file
                assert again.leaf == thread.leaf, file
                assert writing.changes == [], file


def _beside(folder: Path, file: Path, agent: str) -> Path:
    """A path that tells the same as that of a sample."""
    if agent == "opencode":
        return folder / "session.json"
    path = folder / file.relative_to(SAMPLES)
    path = path.with_name(path.name.removesuffix(".zst")).with_suffix(".jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def told(thread: clew.Thread) -> list[tuple[Any, ...]]:
    return [
        (e.id, e.parent, e.kind, e.format, e.body_hash, e.turn, e.meta_data)
        for e in thread.entries()
    ]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_thread_of_ones_own_says_the_same_as_a_session_of_an_agent(
    agent: str, store: clew.Store, elsewhere: clew.Store, tmp_path: Path
) -> None:
    thread = conversation(store)
    done = carried(thread, agent, tmp_path)
    found = elsewhere.get(bring(elsewhere, done.path).thread or "")
    assert said(found) == said(thread)
    facts = found.info.facts
    assert (facts["agent"], facts["session_id"]) == (agent, done.session)
    assert found.info.workspace == str(tmp_path)
    assert found.info.title is not None
    assert found.info.title.text == "A picture"
    assert clew.messages.validate("anthropic", found.context("anthropic").messages) == []


@pytest.mark.parametrize(("agent", "names"), [
    ("claude-code", {"name_changed"}),
    ("codex", {"thinking_dropped", "name_changed"}),
    ("pi", set()),
    ("opencode", {"media_dropped"}),
])  # fmt: skip
def test_what_an_agent_cannot_hold_is_said(
    agent: str, names: set[str], store: clew.Store, tmp_path: Path
) -> None:
    thread = conversation(store)
    assert {change.name for change in carried(thread, agent, tmp_path).changes} == names
    thread.append("turn_marker", {"status": "completed"})
    exported = export(thread, tmp_path / "out", agent)
    assert {change.name for change in exported.changes} == {*names, "entry_left_out"}


@pytest.mark.parametrize("agent", AGENTS)
def test_a_summary_stands_for_what_came_before_it(
    agent: str, store: clew.Store, elsewhere: clew.Store, tmp_path: Path
) -> None:
    thread = conversation(store)
    thread.append_message({"role": "user", "content": "And now?"}, format="anthropic")
    thread.compact(summary="We looked at a picture.", keep_turns=1)
    thread.append_message({"role": "assistant", "content": "Done."}, format="anthropic")
    found = elsewhere.get(bring(elsewhere, carried(thread, agent, tmp_path).path).thread or "")
    words = [text for _, text in said(found)]
    assert not any("I read it" in text for text in words)
    assert "We looked at a picture." in words[0] or "We looked at a picture." in words[1]
    assert words[-2:] == ["And now?", "Done."]
    # The history before it is there as well.
    assert any("I read it" in text for text in said_of_all(found))


def said_of_all(thread: clew.Thread) -> list[str]:
    return [
        text_of(message)
        for entry in thread.entries()
        for message in clew.messages.view(entry.format, entry.body)
    ]


# --- there and back ---


@pytest.mark.parametrize(("first", "second"), list(permutations(AGENTS, 2)))
def test_there_and_back_again_loses_nothing(
    first: str, second: str, store: clew.Store, elsewhere: clew.Store, tmp_path: Path
) -> None:
    begun = carried(conversation(elsewhere), first, tmp_path / "begun")
    origin = store.get(bring(store, begun.path).thread or "")
    before = told_path(origin)

    there = carried(origin, second, tmp_path)
    assert there.is_new
    assert bring(store, there.path).thread == origin.id  # nothing was added yet
    go_on(second, there.path)
    fork = store.get(bring(store, there.path).thread or "")
    assert fork.info.origin is not None
    assert (fork.info.origin.thread, fork.info.origin.entry) == (origin.id, origin.leaf)
    assert told_path(fork)[: len(before)] == before
    assert [text for _, text in said(fork)[-2:]] == list(asked(1))

    back = carried(fork, first, tmp_path)
    assert back.path != begun.path
    go_on(first, back.path, 2)
    last = store.get(bring(store, back.path).thread or "")
    assert told_path(last)[: len(told_path(fork))] == told_path(fork)
    assert said(last)[: len(said(origin))] == said(origin)
    assert [text for _, text in said(last)[-4:]] == [*asked(1), *asked(2)]
    assert told_path(origin) == before
    assert list(store.verify()) == []

    # It may go on and on, and is read again.
    go_on(first, back.path, 3)
    assert bring(store, back.path).thread == last.id
    assert [text for _, text in said(last)[-2:]] == list(asked(3))


def told_path(thread: clew.Thread) -> list[tuple[str, str]]:
    return [(entry.id, entry.hash) for entry in thread.path()]


def test_a_session_that_goes_on_from_an_earlier_point_is_a_branch_there(
    store: clew.Store, tmp_path: Path
) -> None:
    thread = conversation(store)
    done = carried(thread, "claude-code", tmp_path)
    first, *_ = records_of(done.path)
    again = {
        **{key: value for key, value in first.items() if key != "clew"},
        "uuid": "00000000-0000-4000-8000-000000000009",
        "parentUuid": first["uuid"],
        "message": {"role": "user", "content": "No: look at b.png."},
    }
    write_lines(done.path, [*records_of(done.path), again])
    fork = store.get(bring(store, done.path).thread or "")
    assert [entry.id for entry in fork.path()][:1] == [thread.path()[0].id]
    assert [text for _, text in said(fork)] == [MESSAGES[0]["content"], "No: look at b.png."]


def test_a_mark_of_a_thread_that_is_not_here_makes_a_thread_of_its_own(
    store: clew.Store, elsewhere: clew.Store, tmp_path: Path
) -> None:
    done = carried(conversation(store), "pi", tmp_path)
    go_on("pi", done.path)
    for mark in ({"thread": "other", "leaf": "x"}, {"thread": 1}, "", None, {"thread": "mine"}):
        lines = [{**one, "clew": mark} if "clew" in one else one for one in records_of(done.path)]
        path = write_lines(tmp_path / "odd" / done.path.name, lines)
        with clew.open("memory:") as fresh:
            conversation(fresh)
            found = fresh.get(bring(fresh, path).thread or "")
            assert found.info.origin is None
            assert len(list(found.entries())) == len(lines)


def test_a_deleted_thread_is_not_forked_by_a_file(store: clew.Store, tmp_path: Path) -> None:
    thread = conversation(store)
    done = carried(thread, "pi", tmp_path)
    store.delete(thread.id)
    found = store.get(bring(store, done.path).thread or "")
    assert found.info.origin is None


# --- files ---


@pytest.mark.parametrize("agent", AGENTS)
def test_a_file_that_is_there_is_never_overwritten(
    agent: str, store: clew.Store, tmp_path: Path
) -> None:
    thread = conversation(store)
    first = carried(thread, agent, tmp_path)
    assert first.is_new
    assert first.path.stat().st_mode & 0o077 == 0
    same = carried(thread, agent, tmp_path)
    assert (same.is_new, same.session, same.path) == (False, first.session, first.path)
    go_on(agent, first.path)
    held = first.path.read_bytes()
    other = carried(thread, agent, tmp_path)
    assert other.is_new
    assert other.session != first.session
    assert other.path != first.path
    assert first.path.read_bytes() == held
    third = carried(thread, agent, tmp_path)
    assert (third.is_new, third.session) == (False, other.session)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_of_the_agent_itself_is_found_where_it_is(
    agent: str, store: clew.Store, elsewhere: clew.Store, tmp_path: Path
) -> None:
    begun = carried(conversation(elsewhere), agent, tmp_path)
    thread = store.get(bring(store, begun.path).thread or "")
    found = resume(thread, agent, home=tmp_path, environ={})
    assert found.session == begun.session
    assert found.changes == []
    assert (found.is_new, found.path) == (False, begun.path)


def test_a_thread_that_stands_elsewhere_goes_on_from_there(
    store: clew.Store, elsewhere: clew.Store, tmp_path: Path
) -> None:
    begun = carried(conversation(elsewhere), "pi", tmp_path)
    thread = store.get(bring(store, begun.path).thread or "")
    thread.move(thread.path()[0].id)
    writing = Writing("pi")
    lines = b"".join(writer_of("pi").write(thread, writing)).splitlines()
    assert len(lines) == 2 - 1
    assert [change.name for change in writing.changes] == ["entry_left_out"]


def test_what_cannot_be_carried_on_is_refused(store: clew.Store, tmp_path: Path) -> None:
    empty = store.create("empty")
    with pytest.raises(InvalidInput, match="has no messages"):
        carried(empty, "pi", tmp_path)
    blank = store.create("blank")
    blank.append_message({"role": "user", "content": " "}, format="anthropic")
    for agent in AGENTS:
        with pytest.raises(InvalidInput, match="has no messages"):
            carried(blank, agent, tmp_path)
    with pytest.raises(InvalidInput, match="not one of claude-code, codex, pi, opencode"):
        carried(empty, "emacs", tmp_path)
    with pytest.raises(InvalidInput, match="in which folder"):
        resume(empty, "pi", home=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("agent", "command", "pattern"), [
    ("claude-code", "claude --resume {id}", ".claude/projects/*/{id}.jsonl"),
    ("codex", "codex resume {id}", ".codex/sessions/20??/??/??/rollout-*-{id}.jsonl"),
    ("pi", "pi --session {path}", ".pi/agent/sessions/--*--/*_{id}.jsonl"),
    ("opencode", "opencode import {path} && opencode --session {id}",
     ".cache/clew/opencode/{id}.json"),
])  # fmt: skip
def test_the_command_and_the_place_are_the_agents_own(
    agent: str, command: str, pattern: str, store: clew.Store, tmp_path: Path
) -> None:
    done = carried(conversation(store), agent, tmp_path)
    wanted = command.format(id=done.session, path=done.path)
    assert done.line == f"cd {tmp_path} && {wanted}"
    assert list(tmp_path.glob(pattern.format(id=done.session))) == [done.path]


@pytest.mark.parametrize(
    "id", ["../../x", "..", "a/b", "-rf", "a b", "", "x" * 200, "a\nb", "a..b"]
)
@pytest.mark.parametrize("agent", AGENTS)
def test_no_session_id_that_was_stored_leads_out_of_the_agents_folder(
    agent: str, id: str, store: clew.Store, tmp_path: Path
) -> None:
    thread = conversation(store)
    thread.set(agent=agent, session_id=id)
    done = resume(thread, agent, home=tmp_path, environ={})
    assert id == "" or id not in done.line
    assert done.path.resolve().is_relative_to(tmp_path)
    assert done.session in done.path.name


# --- sub-agents ---


@pytest.mark.parametrize("agent", ["claude-code", "codex", "opencode"])
def test_sub_agents_go_with_the_thread_that_they_work_for(
    agent: str, store: clew.Store, elsewhere: clew.Store, tmp_path: Path
) -> None:
    thread = helped(store)
    done = carried(thread, agent, tmp_path)
    assert len(done.helpers) == 2
    assert [c.text for c in done.changes if c.name == "subagents_left_out"] == [
        "sub-agent 'silent': has no messages that an agent could go on from"
    ]
    main = bring(elsewhere, done.path).thread
    child, grandchild = [elsewhere.get(bring(elsewhere, p).thread or "") for p in done.helpers]
    assert said(child) == [("user", "child, look at it"), ("assistant", "Seen.")]
    assert said(grandchild)[0] == ("user", "grandchild, look at it")
    # Claude Code has all of them beside the session; the others name the one above them.
    above = main if agent == "claude-code" else child.id
    assert (child.info.parent, grandchild.info.parent) == (main, above)
    if agent == "claude-code":
        facts = child.info.facts
        assert (facts["agent_role"], facts["tool_call"]) == ("explorer", "toolu_1")
        (first, *_) = records_of(done.helpers[0])
        assert first["isSidechain"] is True
        assert done.helpers[0].name == f"agent-{first['agentId']}.jsonl"
        assert done.helpers[0].parent == done.path.with_suffix("") / "subagents"
    again = carried(thread, agent, tmp_path)
    assert (again.is_new, again.path, again.helpers) == (False, done.path, done.helpers)
    # Here, where they were written, they are what they were made of.
    for path, id in zip(done.helpers, ("child", "grandchild"), strict=True):
        assert (bring(store, path).thread, bring(store, path).entries) == (id, 0)


def test_a_place_without_sub_agents_is_told(store: clew.Store, tmp_path: Path) -> None:
    done = carried(helped(store), "pi", tmp_path)
    assert done.helpers == []
    assert [c.text for c in done.changes if c.name == "subagents_left_out"] == [
        "pi has no place for sub-agents: 2 of them; carry them on by themselves"
    ]


def projects(home: Path) -> tuple[Path, Path]:
    """A session of Claude Code with a sub-agent, as that writes them."""
    session = "0b0b0b0b-0000-4000-8000-000000000001"
    main = home / ".claude" / "projects" / "-home-me-project" / f"{session}.jsonl"
    below = main.with_suffix("") / "subagents" / "agent-a1b2c3.jsonl"
    for path, ids in ((main, ("m1", "m2")), (below, ("s1", "s2"))):
        about = {"sessionId": session, "cwd": "/home/me/project", "version": "2.1.199"}
        if path == below:
            about |= {"isSidechain": True, "agentId": "a1b2c3"}
        asks = {"role": "user", "content": f"asked in {ids[0]}"}
        answer = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}], "id": ids[1]}
        write_lines(path, [
            {"parentUuid": None, "uuid": ids[0], "type": "user", "message": asks, **about},
            {"parentUuid": ids[0], "uuid": ids[1], "type": "assistant", "message": answer, **about},
        ])  # fmt: skip
    below.with_name("agent-a1b2c3.meta.json").write_text(
        '{"agentType":"Explore","toolUseId":"toolu_9"}'
    )
    return main, below


def test_what_claude_code_lost_comes_back_with_its_sub_agents(
    store: clew.Store, tmp_path: Path
) -> None:
    main, below = projects(tmp_path / "old")
    thread = bring(store, main).thread
    child = bring(store, below).thread
    done = resume(store.get(thread or ""), "claude-code", home=tmp_path / "new", environ={})
    old, new = (tmp_path / name / ".claude" / "projects" for name in ("old", "new"))
    assert done.path.relative_to(new) == main.relative_to(old)
    assert [path.relative_to(new) for path in done.helpers] == [below.relative_to(old)]
    for before, after in ((main, done.path), (below, done.helpers[0])):
        assert records_of(after) == records_of(before)
    told = json.loads(done.helpers[0].with_name("agent-a1b2c3.meta.json").read_text())
    assert (told["agentType"], told["toolUseId"]) == ("Explore", "toolu_9")
    # By itself the sub-agent is a session of its own, and never takes the place of the main one.
    done.path.unlink()
    alone = resume(store.get(child or ""), "claude-code", home=tmp_path / "new", environ={})
    assert alone.session != done.session
    assert not done.path.exists()


def test_a_sub_agent_of_the_origin_goes_with_a_fork_that_shares_its_call(
    store: clew.Store, tmp_path: Path
) -> None:
    thread = helped(store)
    first, *_, last = thread.path()
    assert len(carried(thread.fork(id="late", at=last.id), "codex", tmp_path).helpers) == 2
    assert carried(thread.fork(id="early", at=first.id), "codex", tmp_path).helpers == []


def test_no_stored_path_leads_out_of_the_session(store: clew.Store, tmp_path: Path) -> None:
    thread = helped(store)
    thread.set(agent="claude-code")
    store.get("child").set(agent="claude-code")
    for told in ("subagents/../../../x", "/etc/x", "subagents/agent-../x", "other/agent-1"):
        store.get("child").set(subpath=told)
        done = carried(thread, "claude-code", tmp_path)
        folder = done.path.with_suffix("") / "subagents"
        assert {path.parent for path in done.helpers} == {folder}
