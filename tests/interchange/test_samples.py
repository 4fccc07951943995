"""Real sessions of real agents: nothing of them is lost, and they end where the agent says.

What the agents' own code makes of a file lies beside it: the conversation as Anthropic's SDK gives
it, the turns as Codex' server gives them, pi's branch. This project did not write those.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers import loops
from providers.loops import APIS, FORMATS
from samples import SAMPLES, bring, needs_samples, sample_files, thread_of

import clew
from clew.context.projection import edited
from clew.context.window import read_window
from clew.interchange.intake import Intake

pytestmark = needs_samples

FOLDERS = (
    sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()) if SAMPLES.is_dir() else []
)
# Made up by other projects' tests, with fields that the provider's own messages never have.
MADE_UP = {
    "agentsessions__claude__small.jsonl": "anthropic",
    "agentsview__vibe__session_with_tools__messages.jsonl": "openai-chat",
}


@pytest.fixture
def store() -> Iterator[clew.Store]:
    with clew.open("memory:") as opened:
        yield opened


def oracles(agent: str, ending: str) -> list[Any]:
    found = sorted((SAMPLES / agent / "oracle").glob(f"*{ending}"))
    return [pytest.param(path, id=path.name.removesuffix(ending)) for path in found]


@pytest.mark.parametrize("oracle", oracles("claude-code", ".messages.json"))
def test_the_conversation_is_the_one_that_claudes_own_sdk_gives(
    oracle: Path, store: clew.Store
) -> None:
    told = json.loads(oracle.read_text("utf-8"))
    report = bring(store, oracle.parents[1] / told["file"])
    thread = thread_of(store, report)
    bodies = [entry.body for entry in read_window(thread).entries]
    spoken = [
        {"type": body["type"], "uuid": body["uuid"]}
        for body in bodies
        if isinstance(body, dict)
        and body.get("type") in ("user", "assistant")
        and not body.get("isMeta")  # which the SDK does not show
    ]
    assert spoken == told["messages"]
    assert thread.info.facts["session_id"] == told["session_id"]


@pytest.mark.parametrize("oracle", oracles("codex", ".turns.json"))
def test_the_turns_are_those_that_codex_own_server_gives(oracle: Path, store: clew.Store) -> None:
    told = json.loads(oracle.read_text("utf-8"))
    thread = thread_of(store, bring(store, oracle.parents[1] / told["file"]))
    path = thread.path()
    turns = list(dict.fromkeys(entry.turn for entry in path if entry.turn is not None))
    assert turns == [turn["id"] for turn in told["turns"]]
    prompts = [
        entry.body["payload"]["message"]
        for entry in path
        if entry.kind == "event" and entry.body["payload"].get("type") == "user_message"
    ]
    items = [item for turn in told["turns"] for item in turn["items"]]
    asked = [item["text"] for item in items if item["type"] == "userMessage"]
    assert [prompt[:100] for prompt in prompts] == [text[:100] for text in asked]
    assert thread.id == f"codex:{told['id']}"
    assert thread.info.workspace == told["cwd"]
    assert thread.info.facts.get("forked_from") == told["forkedFromId"]
    if told["parentThreadId"] is not None:
        assert thread.info.parent == f"codex:{told['parentThreadId']}"


@pytest.mark.parametrize("oracle", oracles("pi", ".context.json"))
def test_the_branch_and_its_messages_are_those_that_pi_itself_gives(
    oracle: Path, store: clew.Store
) -> None:
    told = json.loads(oracle.read_text("utf-8"))
    name = told["session"].split(".")[0]
    thread = thread_of(store, bring(store, oracle.parents[1] / f"{name}.jsonl"))
    if "." not in told["session"]:
        assert thread.leaf == told["leaf"]
    assert [entry.id for entry in thread.path(told["leaf"])] == told["branchIds"]
    window = read_window(thread, told["leaf"])
    gone = edited(window.entries)
    roles = [] if window.compaction is None else ["compactionSummary"]
    for entry in window.entries:
        if entry.kind == "branch_summary":
            roles.append("branchSummary")
        elif entry.body["type"] == "custom_message":
            roles.append("custom")
        elif entry.body["type"] == "message" and entry.id not in gone:
            roles.append(entry.body["message"]["role"])
    assert roles == [message["role"] for message in told["messages"]]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_value_of_every_file_is_stored_and_a_second_import_finds_nothing_new(
    folder: str, tmp_path: Path
) -> None:
    for file in sample_files(folder):
        with clew.open("memory:") as store:
            for report in Intake(store).bring(file):
                assert report.status == "imported", report
                assert report.values == report.entries + report.known + report.skipped, report
                assert not report.skipped, report
                entries = list(thread_of(store, report).entries())
                assert len(entries) == report.entries
            assert {again.status for again in Intake(store).bring(file)} <= {"unchanged"}
            assert list(store.verify()) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_context_of_every_thread_is_taken_by_every_provider(folder: str) -> None:
    for file in sample_files(folder):
        with clew.open("memory:") as store:
            for report in Intake(store).bring(file):
                thread = thread_of(store, report)
                for format in FORMATS:
                    context = thread.context(format)
                    if not context.messages or MADE_UP.get(file.name) == format:
                        continue
                    request = loops.request(format, context.messages, context.system)
                    APIS[format].check(request)
                    assert clew.messages.validate(format, context.messages) == []
