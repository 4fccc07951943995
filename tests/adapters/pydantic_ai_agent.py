"""An agent of Pydantic AI in a process of its own: `pydantic_ai_agent.py ROLE ADDRESS`."""

from __future__ import annotations

import sys

import anyio
from children import die, tell
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from clew.adapters.pydantic_ai import ClewConversationStore


def answer(history: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    last = history[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"the answer is {last.content}")])
    return ModelResponse(parts=[ToolCallPart("look_up", {}, "call-1")])


async def begin(address: str) -> None:
    """Save after each step, and die while the tool runs."""
    agent = Agent(FunctionModel(answer))
    agent.tool_plain(die, name="look_up")
    ours = ClewConversationStore(address)
    conversation = Conversation(conversation_id="c")
    async with agent.iter("what is it?", conversation=conversation) as run:
        async for _ in run:
            conversation.messages = list(run.all_messages())
            tell(str(len(await ours.save(conversation))))


async def resume(address: str) -> None:
    """Go on where the other one was: the call that it made is done now."""
    agent = Agent(FunctionModel(answer))
    agent.tool_plain(lambda: "42", name="look_up")
    async with ClewConversationStore(address) as ours:
        known = await ours.load("c")
        assert known is not None
        tell(" ".join(message.kind for message in known.messages))
        result = await agent.run(conversation=known)
        await ours.save(result)
        tell(result.output)


async def race(address: str) -> None:
    """Load, wait for the word, and save what the other one saves, too."""
    async with ClewConversationStore(address) as ours:
        known = await ours.load("c")
        assert known is not None
        tell("loaded")
        sys.stdin.readline()
        known.messages.append(ModelRequest(parts=[UserPromptPart("mine")]))
        try:
            await ours.save(known)
            tell("saved")
        except ConversationConflict:
            tell("refused")


if __name__ == "__main__":
    anyio.run({"begin": begin, "resume": resume, "race": race}[sys.argv[1]], sys.argv[2])
