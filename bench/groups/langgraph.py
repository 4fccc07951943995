"""langgraph: one agent's conversation through LangGraph itself, on its own saver and on Clew's.

Turns of 2 KB (a question and an answer of 1 KB each) of a graph with one node: what LangGraph
writes in a turn (three checkpoints, two tasks' writes) and reads at its beginning. Both savers sync
every write. The text is random, so that no compression flatters either.
"""

from __future__ import annotations

import random
import sqlite3
import string
from collections.abc import Iterable
from contextlib import ExitStack, closing
from typing import Any

from bench.figures import Figure, megabytes, milliseconds, ratio
from bench.progress import say
from bench.timing import in_rounds, seconds
from bench.workshop import Workshop, size_on_disk

_TURNS = 400
_LAST = 25  # turns that are timed, in turns with the other saver, when the rest are written
_MESSAGE_BYTES = 1000


def measure(workshop: Workshop) -> Iterable[Figure]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import StateGraph
    except ImportError as error:
        say(f"langgraph is left out: {error}")
        return
    import clew
    from clew.adapters.langgraph import ClewSaver

    assert StateGraph
    our_path, their_path = workshop.new_path(), workshop.new_path()
    with ExitStack() as stack:
        store = stack.enter_context(clew.open(our_path))
        theirs_db = sqlite3.connect(their_path, check_same_thread=False)
        stack.enter_context(closing(theirs_db))
        agents = [_Agent(ClewSaver(store)), _Agent(SqliteSaver(theirs_db))]
        for agent, name in zip(agents, ("Clew", "SqliteSaver"), strict=True):
            say(f"{_TURNS - _LAST} turns on {name}")
            for _ in range(_TURNS - _LAST):
                agent.turn()
        ours, theirs = in_rounds(_LAST, lambda: tuple(seconds(agent.turn) for agent in agents))
        copied = seconds(lambda: agents[0].saver.copy_thread("agent", "copy"))
    what = f"langgraph: {_TURNS} turns of 2 KB"
    yield megabytes(f"{what}, disk, Clew", size_on_disk(our_path) / 1e6, at_most=12)
    yield megabytes(f"{what}, disk, SqliteSaver", size_on_disk(their_path) / 1e6)
    yield ratio(f"{what}, last turn, Clew / SqliteSaver, time", ours, theirs, at_most=0.3)
    yield milliseconds(f"{what}, last turn, Clew", ours)
    yield milliseconds(f"{what}, last turn, SqliteSaver", theirs)
    yield milliseconds(f"{what}, copy_thread, Clew", [copied])


class _Agent:
    """A graph that answers, and a user who asks: one thread, one turn after the other."""

    def __init__(self, saver: Any) -> None:
        from langchain_core.messages import AIMessage, HumanMessage
        from langgraph.graph import START, MessagesState, StateGraph

        self.saver = saver
        self._chance = random.Random(20)
        self._question = HumanMessage
        graph = StateGraph(MessagesState)
        graph.add_node("answer", lambda state: {"messages": [AIMessage(self._text())]})
        graph.add_edge(START, "answer")
        self._graph = graph.compile(checkpointer=saver)

    def _text(self) -> str:
        return "".join(self._chance.choices(string.ascii_letters + " ", k=_MESSAGE_BYTES))

    def turn(self) -> None:
        config: Any = {"configurable": {"thread_id": "agent"}}
        self._graph.invoke({"messages": [self._question(self._text())]}, config)
