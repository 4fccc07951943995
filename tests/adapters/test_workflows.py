"""Workflow engines: claims in place of messages; steps that may be repeated; small histories."""

from __future__ import annotations

import ast
import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from docs._pages import DOCS, assert_outputs

import clew
from clew.adapters.workflows import Claim
from clew.aio.handles import AsyncStore
from clew.messages import validate

AGENT = Path(__file__).with_name("workflow_agent.py")
MODEL_CALLS = 300
HELLO = [{"role": "user", "content": "Hello"}]
REPLY: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-test",
    "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@pytest.fixture
def claim(store: clew.Store) -> Claim:
    return Claim.of(store.create("t")).append(store, HELLO, step="begin")


# --- a claim ---


def test_a_claim_is_small_json_and_comes_back_equal(claim: Claim) -> None:
    told = json.dumps(claim.to_json())
    assert len(told) < 200
    assert Claim.from_json(json.loads(told)) == claim
    assert Claim.from_json({"thread": "t", "leaf": None}) == Claim("t")


@pytest.mark.parametrize(
    "value",
    [
        None,
        "t",
        [],
        {},
        {"thread": "t"},
        {"thread": "", "leaf": None},
        {"thread": 7, "leaf": None},
        {"thread": "t", "leaf": 7},
        {"thread": "t", "leaf": None, "py/object": "os.system"},
    ],
)
def test_what_is_no_claim_is_refused(value: Any) -> None:
    with pytest.raises(clew.InvalidInput):
        Claim.from_json(value)


def test_a_claim_means_the_same_whatever_is_written_later(store: clew.Store, claim: Claim) -> None:
    later = claim.append_response(store, REPLY, step="ask")
    assert len(claim.context(store, "anthropic").messages) == 1
    assert len(later.context(store, "anthropic").calls) == 1
    store.get("t").move(None)
    assert len(later.context(store, "openai-chat").messages) >= 2


def test_a_step_that_is_repeated_writes_once_and_leads_to_the_same_place(
    store: clew.Store, claim: Claim
) -> None:
    assert claim.after(store, "ask") is None
    asked = claim.append_response(store, REPLY, step="ask")
    given = asked.append_results(store, {"t1": "output"}, step="tools")
    last = given.append(store, [{"role": "assistant", "content": "a"}, *HELLO], step="more")
    count = store.stats().entries
    # A model that is asked twice says something else; what was said first counts.
    other = {**REPLY, "id": "msg_2", "content": [{"type": "text", "text": "otherwise"}]}
    assert claim.after(store, "ask") == asked == claim.append_response(store, other, step="ask")
    assert asked.after(store, "tools") == given
    assert asked.append_results(store, [("t1", "other output")], step="tools") == given
    assert given.append(store, HELLO, step="more") == last == given.after(store, "more")
    assert store.stats().entries == count
    assert validate("anthropic", last.context(store, "anthropic").messages) == []


def test_a_thread_that_has_gone_on_refuses_the_step(store: clew.Store, claim: Claim) -> None:
    store.get("t").append_message({"role": "user", "content": "I am in between"})
    for write in (
        lambda: claim.append(store, HELLO, step="s"),
        lambda: claim.append_response(store, REPLY, step="s"),
    ):
        with pytest.raises(clew.Conflict) as caught:
            write()
        assert caught.value.field == "leaf"
    forked = claim.fork(store, step="s", title="another way")
    assert claim.fork(store, step="s", title="another way") == forked
    assert len(forked.context(store, "plain").messages) == 1
    asked = forked.append_response(store, REPLY, step="s")
    assert asked.thread == forked.thread != claim.thread


def test_two_tries_of_a_step_at_once_have_one_outcome(
    store: clew.Store, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one looks before the first one writes, and writes after it."""
    first: list[Claim] = []
    look = Claim.after

    def slow(self: Claim, store: clew.Store, step: str) -> Claim | None:
        found = look(self, store, step)
        if not first:
            monkeypatch.undo()
            first.append(self.append_response(store, REPLY, step=step))
        return found

    monkeypatch.setattr(Claim, "after", slow)
    other = {**REPLY, "content": [{"type": "text", "text": "otherwise"}]}
    assert claim.append_response(store, other, step="ask") == first[0]


def test_nothing_to_write_is_no_step(store: clew.Store, claim: Claim) -> None:
    assert claim.append(store, [], step="s") == claim
    assert claim.append_results(store, {}, step="s") == claim


@pytest.mark.parametrize("step", ["", None, 7, "\0"])
def test_a_step_has_a_name(store: clew.Store, claim: Claim, step: Any) -> None:
    with pytest.raises(clew.InvalidInput):
        claim.append(store, HELLO, step=step)


def test_what_is_not_there_is_not_found(store: clew.Store, claim: Claim) -> None:
    with pytest.raises(clew.NotFound):
        Claim("nowhere", "x").context(store)
    with pytest.raises(clew.NotFound):
        Claim("nowhere").append(store, HELLO, step="s")
    with pytest.raises(clew.NotFound):
        Claim("t", "nowhere").context(store)
    with pytest.raises(clew.Conflict):
        Claim("t", "nowhere").append(store, HELLO, step="s")
    with pytest.raises(clew.InvalidInput):
        claim.append_results(store, {"unknown": "x"}, step="s")
    with pytest.raises(clew.InvalidInput):
        Claim("t").fork(store, step="s")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_claim_in_a_task(store: clew.Store, claim: Claim, backend: str) -> None:
    async def use() -> Claim:
        handle = AsyncStore(store)
        asked = await claim.aappend_response(handle, REPLY, step="ask")
        assert await claim.aafter(handle, "ask") == asked
        given = await asked.aappend_results(handle, {"t1": "output"}, step="tools")
        last = await given.aappend(store, [{"role": "user", "content": "and?"}], step="more")
        assert (await last.acontext(handle, "anthropic")).next == "model"
        return await last.afork(handle, step="fork")

    assert store.get(anyio.run(use, backend=backend).thread).info.origin.thread == "t"


def test_the_page_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_outputs(DOCS / "howto" / "workflow-engines.md")["store"].close()


# --- DBOS ---


def run_agent(role: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(AGENT), role, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def history_bytes(system: Path) -> int:
    """What DBOS keeps of the steps and of the workflow."""
    with sqlite3.connect(system) as db:
        sizes = [
            db.execute(f"SELECT coalesce(sum(length({column})), 0) FROM {table}").fetchone()[0]
            for table, column in (
                ("operation_outputs", "output"),
                ("workflow_input", "inputs"),
                ("workflow_output", "output"),
            )
        ]
    db.close()
    return sum(sizes)


def run_killed(address: str, system: Path, calls: int) -> Claim:
    """Run the agent, killed between two things that it writes; where the workflow ended."""
    killed = run_agent("start", address, system, calls, calls // 2)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = run_agent("resume", address, system, calls)
    assert resumed.returncode == 0, resumed.stderr
    return Claim.from_json(ast.literal_eval(resumed.stdout))


def test_an_agent_in_dbos_that_is_killed_goes_on_and_pays_no_call_twice(
    address: str, tmp_path: Path
) -> None:
    pytest.importorskip("dbos", reason="needs dbos")
    calls, system = 30, tmp_path / "system.sqlite"
    claim = run_killed(address, system, calls)
    assert system.with_suffix(".count").stat().st_size == calls
    with clew.open(address) as store:
        messages = claim.context(store, "anthropic", purpose="display").messages
        assert [message["role"] for message in messages] == ["user", "assistant"] * calls
        assert validate("anthropic", messages[:-1]) == []
        assert store.get(claim.thread).leaf == claim.leaf
        assert store.verify() == []


def test_an_agent_of_300_calls_in_dbos_keeps_a_small_history(tmp_path: Path) -> None:
    pytest.importorskip("dbos", reason="needs dbos")
    system = tmp_path / "system.sqlite"
    claim = run_killed(f"sqlite:{tmp_path}/threads", system, MODEL_CALLS)
    assert history_bytes(system) < 200_000
    assert system.stat().st_size < 1_000_000
    with clew.open(f"sqlite:{tmp_path}/threads") as store:
        assert len(claim.context(store, "anthropic").messages) == 2 * MODEL_CALLS + 1


def test_the_same_agent_in_dbos_without_claims_keeps_every_message_in_its_history(
    tmp_path: Path,
) -> None:
    pytest.importorskip("dbos", reason="needs dbos")
    system = tmp_path / "system.sqlite"
    carried = run_agent("messages", "memory:", system, MODEL_CALLS)
    assert carried.returncode == 0, carried.stderr
    assert history_bytes(system) > 1_500_000


# --- Temporal ---


def test_an_agent_in_temporal_keeps_a_small_history() -> None:
    pytest.importorskip("temporalio", reason="needs temporalio")
    from temporal_agent import Activities, AgentWithClaim
    from temporal_history import WORKFLOW, Recorder
    from temporalio.client import WorkflowHistory
    from temporalio.worker import Replayer

    store = clew.open("memory:")

    async def run() -> int:
        activities = Activities(store)
        claim = Claim.of(store.create("t")).append(store, HELLO, step=WORKFLOW)
        recorder = Recorder("AgentWithClaim", claim, MODEL_CALLS)
        for n in range(MODEL_CALLS):
            # Some are tried again: their worker died before the server knew of the outcome.
            claim = await recorder.run("ask", activities.ask, claim, times=1 + (n % 50 == 0))
            claim = await recorder.run("run_tools", activities.run_tools, claim)
        assert activities.asked == MODEL_CALLS
        history = recorder.end(claim)
        replayed = await Replayer(workflows=[AgentWithClaim]).replay_workflow(
            WorkflowHistory(WORKFLOW, history.events)
        )
        assert replayed.replay_failure is None
        messages = claim.context(store, "anthropic").messages
        assert len(messages) == 1 + 2 * MODEL_CALLS
        assert validate("anthropic", messages) == []
        return history.ByteSize()

    assert anyio.run(run) < 1_000_000


def test_the_same_agent_in_temporal_without_claims_keeps_every_message_many_times() -> None:
    """Each call of the model is given all messages again, and all of it is in the history."""
    pytest.importorskip("temporalio", reason="needs temporalio")
    from temporal_agent import Activities, AgentWithMessages
    from temporal_history import WORKFLOW, Recorder
    from temporalio.client import WorkflowHistory
    from temporalio.worker import Replayer

    async def run() -> int:
        with clew.open("memory:") as store:
            activities = Activities(store)
            messages: list[Any] = list(HELLO)
            calls = 60
            recorder = Recorder("AgentWithMessages", messages, calls)
            for _ in range(calls):
                asking, working = activities.ask_with_messages, activities.run_tools_with_messages
                messages.append(await recorder.run("ask_with_messages", asking, messages))
                result = await recorder.run("run_tools_with_messages", working, messages[-1])
                messages.append(result)
            history = recorder.end(len(messages))
            await Replayer(workflows=[AgentWithMessages]).replay_workflow(
                WorkflowHistory(WORKFLOW, history.events)
            )
            return history.ByteSize()

    assert anyio.run(run) > 9_000_000
