"""What the processes of the tests of the Agents SDK do: `openai_workers.py ROLE ARGUMENTS…`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from agents import Agent, RunConfig, Runner, function_tool
from openai_scripts import ScriptedModel, calls, says, user

import clew
from clew.adapters import _ownership
from clew.adapters.openai_agents import ClewSession


def tell(line: str) -> None:
    os.write(1, (line + "\n").encode())


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(*replies: list[Any], before: Any = None) -> tuple[Agent[Any], ScriptedModel]:
    model = ScriptedModel(*replies, before=before)
    return Agent(name="adder", model=model, tools=[add]), model


def run_and_die(address: str, requests: str) -> None:
    """Run an agent with tools; die by SIGKILL when the model is asked for the n-th time."""
    left = int(requests)

    def before() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            tell("dying")
            os.kill(os.getpid(), signal.SIGKILL)

    replies = [[calls(f"c{n}", "add", '{"a":1,"b":2}')] for n in range(3)]
    one, _ = agent(*replies, [says("It is 9.")], before=before)
    session = ClewSession(f"s{requests}", store=address)
    config = RunConfig(tracing_disabled=True)
    Runner.run_sync(one, "Add thrice.", session=session, run_config=config)


def resume(address: str, *ids: str) -> None:
    """Go on with sessions in a new process; tell which items the model gets, a line for each."""
    for id in ids:
        one, model = agent([says("Here I am.", "msg_9")])
        session = ClewSession(id, store=address)
        Runner.run_sync(one, "Well?", session=session, run_config=RunConfig(tracing_disabled=True))
        given = [
            (item.get("type", item.get("role")), item.get("call_id")) for item in model.requests[0]
        ]
        tell(json.dumps(given))
        session.close()


def own_and_stop(address: str) -> None:
    """Write under a short lease, stop, and try to write when woken."""
    session = ClewSession("s", store=address, ownership="lease")
    session._owner = _ownership.Owner(session.store, "lease", ttl_seconds=0.2)
    asyncio.run(session.add_items([user("by the first")]))
    tell("written")
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        asyncio.run(session.add_items([user("by a zombie")]))
        tell("written")
    except clew.LeaseLost:
        tell("refused")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
