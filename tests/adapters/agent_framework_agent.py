"""Agents and workflows of Agent Framework, scripted: `agent_framework_agent.py ROLE ADDRESS`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    Executor,
    FunctionInvocationLayer,
    HistoryProvider,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    tool,
)
from children import die, tell

from clew.adapters.agent_framework import ClewCheckpointStorage, ClewHistoryProvider


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore
    """Calls the tool, and then tells what it gave."""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any
    ) -> Any:
        async def answer() -> ChatResponse:
            last = messages[-1]
            if last.role == "tool":
                text = f"the answer is {last.contents[-1].result}"
                return ChatResponse(messages=[Message("assistant", [text])])
            call = Content.from_function_call(
                f"call-{len(messages)}", "look_up", arguments={"key": "x"}
            )
            return ChatResponse(messages=[Message("assistant", [call])])

        return answer()


async def ask(
    question: str,
    provider: HistoryProvider,
    session: AgentSession,
    look: Callable[[], str] = lambda: "42",
) -> str:
    @tool(approval_mode="never_require")
    def look_up(key: str) -> str:
        """Look it up."""
        return look()

    agent = Agent(
        Scripted(),
        tools=[look_up],
        context_providers=[provider],
        require_per_service_call_history_persistence=True,
    )
    return str(await agent.run(question, session=session))


class Count(Executor):
    """Adds one and hands on, until there are five; dies at a number."""

    def __init__(self, id: str, dies_at: int | None = None) -> None:
        super().__init__(id=id)
        self._dies_at = dies_at

    @handler
    async def count(self, number: int, context: WorkflowContext[int, int]) -> None:
        if number == self._dies_at:
            die()
        if number >= 5:
            await context.yield_output(number)
        else:
            await context.send_message(number + 1)


def workflow(storage: Any, dies_at: int | None = None) -> Workflow:
    even, odd = Count("even", dies_at), Count("odd", dies_at)
    builder = WorkflowBuilder(
        name="counting", start_executor=even, checkpoint_storage=storage, output_from=[even, odd]
    )
    return builder.add_edge(even, odd).add_edge(odd, even).build()


def begin(address: str) -> None:
    provider = ClewHistoryProvider(address)
    session = AgentSession(session_id="s")
    asyncio.run(ask("what is it?", provider, session, look=lambda: die() or ""))


def resume(address: str) -> None:
    provider = ClewHistoryProvider(address)

    async def steps() -> None:
        known = await provider.get_messages("s")
        tell(" ".join(message.role for message in known))
        tell(await ask("and now?", provider, AgentSession(session_id="s")))

    asyncio.run(steps())
    provider.close()


def begin_workflow(address: str) -> None:
    asyncio.run(workflow(ClewCheckpointStorage(address), dies_at=3).run(0))


def resume_workflow(address: str) -> None:
    storage = ClewCheckpointStorage(address)

    async def steps() -> None:
        latest = await storage.get_latest(workflow_name="counting")
        assert latest is not None
        tell(str(latest.iteration_count))
        result = await workflow(storage).run(checkpoint_id=latest.checkpoint_id)
        tell(str(result.get_outputs()))

    asyncio.run(steps())
    storage.close()


ROLES = {
    "begin": begin,
    "resume": resume,
    "begin_workflow": begin_workflow,
    "resume_workflow": resume_workflow,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](sys.argv[2])
