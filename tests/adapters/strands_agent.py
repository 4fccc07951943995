"""Agents of Strands with a scripted model, or in a process: `strands_agent.py ROLE ADDRESS`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from children import die, tell
from strands import Agent, tool
from strands.models.model import Model
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.session_repository import SessionRepository

from clew.adapters.strands import ClewSessionRepository


class Scripted(Model):
    """Calls the tool, and then tells what it gave."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self.seen.append(messages)
        last = messages[-1]["content"][-1]
        yield {"messageStart": {"role": "assistant"}}
        if "toolResult" in last:
            given = last["toolResult"]["content"][0]["text"]
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": f"the answer is {given}"}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}
        else:
            call = {"name": "look_up", "toolUseId": f"call-{len(messages)}"}
            yield {"contentBlockStart": {"start": {"toolUse": call}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"key": "x"}'}}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use"}}
        usage = {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def agent(
    repository: SessionRepository,
    session: str,
    id: str = "default",
    look: Callable[[], str] = lambda: "42",
    **options: Any,
) -> Agent:
    @tool
    def look_up(key: str) -> str:
        """Look it up."""
        return look()

    return Agent(
        model=Scripted(),
        agent_id=id,
        tools=[look_up],
        callback_handler=None,
        session_manager=RepositorySessionManager(session, repository),
        **options,
    )


def begin(address: str) -> None:
    agent(ClewSessionRepository(address), "s", look=lambda: die() or "")("what is it?")


def resume(address: str) -> None:
    repository = ClewSessionRepository(address)
    resumed = agent(repository, "s")
    tell(" ".join(message["role"] for message in resumed.messages))
    tell(str(resumed("and now?")).strip())
    repository.close()


def stop(address: str) -> None:
    """Take a session, stop, and go on when another one has taken it over."""
    repository = ClewSessionRepository(address, ownership="lease", ttl_seconds=0.3)
    mine = agent(repository, "s")
    mine("what is it?")
    tell("stopped")
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        mine("and now?")
        tell("written")
    except Exception as error:
        tell(f"refused {type(error).__name__}")


if __name__ == "__main__":
    {"begin": begin, "resume": resume, "stop": stop}[sys.argv[1]](sys.argv[2])
