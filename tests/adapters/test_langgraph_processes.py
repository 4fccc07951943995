"""LangGraph's agents across processes: superseded writers, killed ones, and many at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("langgraph.graph", reason="langgraph is not installed")

from langchain_core.messages import AIMessage
from langgraph_agents import CONFIG, agent

import clew
from clew import messages
from clew.adapters.langgraph import ClewSaver

AGENTS = Path(__file__).with_name("langgraph_agents.py")


def start(role: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", str(AGENTS), role, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_writer_that_was_superseded_while_it_slept_is_refused(address: str) -> None:
    process = start("sleeper", address)
    assert process.stdout is not None
    assert process.stdout.readline() == "asleep\n"
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    with ClewSaver(address, ownership="lease", lease_seconds=30) as saver:
        graph = agent(saver, [AIMessage("I took over")])
        taken = False
        while not taken:  # until the sleeper's lease is over
            try:
                saver.put_writes(
                    {"configurable": {**CONFIG["configurable"], "checkpoint_id": "x"}},
                    [("probe", 1)],
                    "task",
                )
                taken = True
            except clew.LeaseHeld:
                continue
        graph.invoke({"messages": [("user", "next")]}, CONFIG)
        os.kill(process.pid, signal.SIGCONT)
        out, _ = process.communicate(timeout=60)
        assert out == "LeaseLost\n"
        said = [message.content for message in graph.get_state(CONFIG).values["messages"]]
        assert said == ["hello", "first", "next", "I took over"]


def test_a_second_saver_is_refused_while_the_first_one_works(address: str) -> None:
    with (
        ClewSaver(address, ownership="lease") as first,
        ClewSaver(address, ownership="lease") as second,
        ClewSaver(address) as careless,
    ):
        agent(first, [AIMessage("mine")]).invoke({"messages": [("user", "a")]}, CONFIG)
        for other in (second, careless):
            with pytest.raises(clew.LeaseHeld):
                agent(other, [AIMessage("no")]).invoke({"messages": [("user", "b")]}, CONFIG)
        first.release("agent")
        agent(second, [AIMessage("now")]).invoke({"messages": [("user", "c")]}, CONFIG)


@pytest.mark.parametrize("when", ["tool", "model"])
def test_a_killed_agent_goes_on_in_a_new_process(address: str, when: str) -> None:
    process = start("doomed", address, when)
    process.wait(timeout=60)
    assert process.returncode == -signal.SIGKILL
    deployed: list[str] = []

    def deploy(target: str) -> str:
        """Deploy to a target."""
        deployed.append(target)
        return f"deployed to {target}"

    with clew.open(address) as store:
        graph = agent(ClewSaver(store), [AIMessage("It is out.")], deploy)
        found = graph.invoke(None, CONFIG)
        kinds = [message.type for message in found["messages"]]
        assert kinds == ["human", "ai", "tool", "ai"]
        assert deployed == (["staging"] if when == "tool" else [])
        for format in ("anthropic", "openai-chat", "openai-responses", "gemini"):
            context = store.get("agent").context(format)
            assert messages.validate(format, context.messages) == []
        assert store.verify() == []


def test_processes_on_one_thread_lose_nothing(address: str) -> None:
    processes = [start("writer", address, "shared", 3) for _ in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    with clew.open(address) as store:
        saver = ClewSaver(store)
        config = {"configurable": {"thread_id": "shared", "checkpoint_ns": ""}}
        found = list(saver.list(config))
        # Each turn of each process left its three checkpoints, on whichever branch.
        assert len(found) == 2 * 3 * 3
        for one in found:
            again = saver.get_tuple(one.config)
            assert again is not None
            assert again.checkpoint == one.checkpoint
        assert store.verify() == []
