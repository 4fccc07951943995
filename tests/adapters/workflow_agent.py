"""An agent as a workflow of DBOS. Run as a script: `workflow_agent.py ROLE STORE SYSTEM CALLS …`.

The model is a script: it calls a tool each time but the last. Its calls are counted in a file.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

import clew
from clew.adapters.workflows import Claim

REPLY, RESULT = "thinking aloud, " * 60, "a line of the tool's output\n" * 140  # 1 and 4 KB
WORKFLOW = "agent-1"

store: clew.Store
counter: Path  # a byte for each call of the model
last_call: int
killed_at: int | None = None


def model(messages: list[Any]) -> dict[str, Any]:
    """A reply in Anthropic's form. What is sent must be a valid request of the expected length."""
    with counter.open("ab") as file:
        file.write(b".")
    asked = 1 + sum(message["role"] == "assistant" for message in messages)
    call = {"type": "tool_use", "id": f"toolu_{asked}", "name": "read", "input": {"n": asked}}
    content: list[Any] = [{"type": "text", "text": REPLY}]
    return {
        "id": f"msg_{asked}",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": content if asked == last_call else [*content, call],
        "stop_reason": "end_turn" if asked == last_call else "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def step_id() -> str:
    return f"{DBOS.workflow_id}/{DBOS.step_id}"


@DBOS.step()
def ask(claim: dict[str, Any]) -> dict[str, Any]:
    here, step = Claim.from_json(claim), step_id()
    done = here.after(store, step)
    if done is None:
        reply = model(here.context(store, "anthropic").messages)
        done = here.append_response(store, reply, step=step)
        if reply["id"] == f"msg_{killed_at}":
            # The worst moment: the reply is stored, and the engine does not know of the step.
            os.kill(os.getpid(), signal.SIGKILL)
    return done.to_json()


@DBOS.step()
def run_tools(claim: dict[str, Any]) -> dict[str, Any]:
    here = Claim.from_json(claim)
    reply, _ = store.get(here.thread).path(here.leaf, limit=2)  # and its usage
    calls = [block["id"] for block in reply.body["content"] if block["type"] == "tool_use"]
    return here.append_results(store, dict.fromkeys(calls, RESULT), step=step_id()).to_json()


@DBOS.workflow()
def agent(claim: dict[str, Any], calls: int) -> dict[str, Any]:
    for number in range(calls):
        claim = ask(claim)
        if number + 1 < calls:
            claim = run_tools(claim)
    return claim


@DBOS.step()
def ask_with_messages(messages: list[Any]) -> Any:
    reply = model(messages)
    return {"role": "assistant", "content": reply["content"]}


@DBOS.step()
def run_tools_with_messages(message: Any) -> Any:
    blocks = [block for block in message["content"] if block["type"] == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": RESULT} for block in blocks
    ]
    return {"role": "user", "content": results}


@DBOS.workflow()
def agent_with_messages(calls: int) -> int:
    """The same without a claim: what each step gives is a message, and the engine keeps it."""
    messages: list[Any] = [{"role": "user", "content": "Read everything."}]
    for number in range(calls):
        messages.append(ask_with_messages(messages))
        if number + 1 < calls:
            messages.append(run_tools_with_messages(messages[-1]))
    return len(messages)


def main(role: str, address: str, system: str, calls: str, kill_at: str = "") -> None:
    global store, counter, last_call, killed_at
    counter, last_call = Path(system).with_suffix(".count"), int(calls)
    killed_at = int(kill_at) if kill_at else None
    store = clew.open(address)
    url = f"sqlite:///{system}"
    DBOS(config={"name": "agent", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()  # goes on with what was interrupted
    if role == "start":
        thread = store.get_or_create("agent")
        first = [{"role": "user", "content": "Read everything."}]
        claim = Claim.of(thread).append(store, first, step=WORKFLOW)
        with SetWorkflowID(WORKFLOW):
            print(agent(claim.to_json(), int(calls)))
    elif role == "resume":
        print(DBOS.retrieve_workflow(WORKFLOW).get_result())
    elif role == "messages":
        with SetWorkflowID(WORKFLOW):
            print(agent_with_messages(int(calls)))
    DBOS.destroy()
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
