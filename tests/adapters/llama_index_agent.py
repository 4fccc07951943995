"""Agents of LlamaIndex with a scripted model: `llama_index_agent.py ROLE ADDRESS`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

from children import die, tell
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store.base import BaseChatStore

from clew.adapters.llama_index import ClewChatStore


def answer(messages: Sequence[ChatMessage], **kwargs: Any) -> ChatMessage:
    """Call the tool, and then tell what it gave."""
    last = messages[-1]
    if last.role.value == "tool":
        return ChatMessage(role="assistant", content=f"the answer is {last.content}")
    call = {
        "block_type": "tool_call",
        "tool_call_id": f"call-{len(messages)}",
        "tool_name": "look_up",
        "tool_kwargs": {"key": "x"},
    }
    return ChatMessage.model_validate({"role": "assistant", "blocks": [call]})


def memory(chats: BaseChatStore, key: str = "c") -> ChatMemoryBuffer:
    # Its own tokenizer would be fetched from the network.
    return ChatMemoryBuffer.from_defaults(
        chat_store=chats, chat_store_key=key, tokenizer_fn=str.split, token_limit=10_000
    )


async def ask(question: str, chats: BaseChatStore, look: Callable[[], str] = lambda: "42") -> str:
    def look_up(key: str) -> str:
        """Look it up."""
        return look()

    model = MockFunctionCallingLLM(response_generator=answer)
    agent = FunctionAgent(tools=[look_up], llm=model)
    return str(await agent.run(question, memory=memory(chats)))


def begin(address: str) -> None:
    chats = ClewChatStore(address)
    tell(asyncio.run(ask("what is it?", chats)))
    asyncio.run(ask("and now?", chats, look=lambda: die() or ""))


def resume(address: str) -> None:
    chats = ClewChatStore(address)
    tell(" ".join(message.role.value for message in chats.get_messages("c")))
    tell(asyncio.run(ask("once more?", chats)))
    chats.close()


if __name__ == "__main__":
    {"begin": begin, "resume": resume}[sys.argv[1]](sys.argv[2])
