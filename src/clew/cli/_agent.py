"""The agent of the demo: a script in place of the model, all else as in a real agent.

It keeps nothing in memory from one step to the next: what to do follows from the thread's path
alone. That is why any other process can go on where one was killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, NamedTuple

import clew
from clew.model import Entry
from clew.thread import Thread

LEASE_SECONDS = 1.0  # short, so that nobody waits long for a dead agent
WAIT_SECONDS = 10.0
PACE_SECONDS = 0.15

_FORMAT = "openai-chat"


class Step(NamedTuple):
    """What the model says; with `tool`, what it calls and what that gives."""

    says: str
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    gives: str = ""


Script = tuple[Step, ...]

_TESTS = {"path": "test_slug.py"}
_EDIT = {"path": "slug.py", "insert": "text = unicodedata.normalize('NFKD', text)"}
FIX: Script = (
    Step(
        "I run it first.",
        "run_tests",
        _TESTS,
        "FAILED: slugify('Crème brûlée') gave 'cr-me-br-l-e'",
    ),
    Step("Accented letters get lost.", "edit_file", _EDIT, "slug.py: 1 line inserted"),
    Step("And again.", "run_tests", _TESTS, "3 passed"),
    Step("Fixed: 'Crème brûlée' is 'creme-brulee' again."),
)
STALLED_STEP = 3  # where the first agent dies: the tests are called and have no result yet


def work(thread: Thread, script: Script, *, stall_at: int | None = None) -> None:
    """Do what is left to do in this thread, as one turn; first of all an unfinished one."""
    unfinished = thread.unfinished_turn()
    turn = thread.turn(
        owner=f"agent-{os.getpid()}",
        id=None if unfinished is None else unfinished.turn,
        ttl_seconds=LEASE_SECONDS,
        wait_seconds=WAIT_SECONDS,
    )
    with turn:
        while (message := _next_message(thread.path(), script, stall_at)) is not None:
            time.sleep(PACE_SECONDS)
            turn.append_message(message, format=_FORMAT)


def steps_taken(path: list[Entry]) -> int:
    """How many steps the model took since it was last asked something."""
    taken = 0
    for entry in path:
        if entry.kind == "user_message":
            taken = 0
        elif entry.kind in ("tool_call", "assistant_message"):
            taken += 1
    return taken


def _next_message(path: list[Entry], script: Script, stall_at: int | None) -> dict[str, Any] | None:
    taken = steps_taken(path)
    if _awaits_result(path):
        if taken == stall_at:
            time.sleep(60)  # a tool that takes long: somebody will kill us here
        return _result(taken, script[taken - 1])
    return _reply(taken + 1, script[taken]) if taken < len(script) else None


def _awaits_result(path: list[Entry]) -> bool:
    messages = [entry for entry in path if entry.kind != "turn_marker"]
    return bool(messages) and messages[-1].kind == "tool_call"


def _reply(number: int, step: Step) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step.says}
    if step.tool is not None:
        function = {"name": step.tool, "arguments": json.dumps(step.arguments)}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        message["tool_calls"] = [call]
    return message


def _result(number: int, step: Step) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": step.gives}


def main(place: str, thread: str, stall_at: str = "0") -> None:
    """The process that the demo starts, kills, and starts again."""
    with clew.open(place) as store:
        work(store.get(thread), FIX, stall_at=int(stall_at))


if __name__ == "__main__":
    main(*sys.argv[1:])
