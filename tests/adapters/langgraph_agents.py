"""Agents in LangGraph, with a scripted model; as a script, the processes of the tests.

`langgraph_agents.py ROLE ADDRESS …`
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import clew
from clew.adapters.langgraph import ClewSaver

CONFIG: Any = {"configurable": {"thread_id": "agent"}}


def call(id: str, name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"id": id, "name": name, "args": args}])


def agent(saver: Any, script: Iterable[BaseMessage], *tools: Callable[..., Any]) -> Any:
    """The usual loop: the model speaks, tools answer its calls, until it calls no more."""
    model = GenericFakeChatModel(messages=iter(script))
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([tool(one) for one in tools]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END
    )
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


def tell(line: str) -> None:
    os.write(1, (line + "\n").encode())


def sleeper(address: str) -> None:
    """Write under a lease, fall asleep until another process has taken over, write again."""
    with ClewSaver(address, ownership="lease", lease_seconds=1.0) as saver:
        graph = agent(saver, [AIMessage("first"), AIMessage("too late")])
        graph.invoke({"messages": [("user", "hello")]}, CONFIG)
        tell("asleep")
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            graph.invoke({"messages": [("user", "am I still here?")]}, CONFIG)
            tell("written")
        except clew.ClewError as error:
            tell(type(error).__name__)


def doomed(address: str, when: str) -> None:
    """Be killed inside of a tool, or inside of the model's second reply."""

    def deploy(target: str) -> str:
        """Deploy to a target."""
        if when == "tool":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"deployed to {target}"

    def script() -> Iterable[BaseMessage]:
        yield call("c1", "deploy", target="staging")
        os.kill(os.getpid(), signal.SIGKILL)
        yield AIMessage("never said")

    with ClewSaver(address) as saver:
        graph = agent(saver, script(), deploy)
        graph.invoke({"messages": [("user", "ship it")]}, CONFIG, durability="sync")


def writer(address: str, thread: str, turns: str) -> None:
    """Some turns on a thread, beside other processes."""
    with ClewSaver(address) as saver:
        graph = agent(saver, [AIMessage(f"{os.getpid()} {n}") for n in range(int(turns))])
        for n in range(int(turns)):
            config = {"configurable": {"thread_id": thread}}
            graph.invoke({"messages": [("user", f"{n}")]}, config)


if __name__ == "__main__":
    {"sleeper": sleeper, "doomed": doomed, "writer": writer}[sys.argv[1]](*sys.argv[2:])
