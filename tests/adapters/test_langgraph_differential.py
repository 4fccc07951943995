"""Random graphs and programs say the same on our saver and on LangGraph's own.

The graphs run on a saver that asks both at each call, so that ids, versions and times are the
same. SqliteSaver lacks writes that came again with others (see `langgraph_pair`). Where the writes
of a checkpoint were taken by none of its children, InMemorySaver alone is right about a
DeltaChannel, and SqliteSaver is not asked for its value.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import random
import sqlite3
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph.graph", reason="langgraph is not installed")

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import EmptyInputError, InvalidUpdateError
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, StateUpdate, interrupt
from langgraph_pair import Pair, shown
from programs import Ours, each

import clew
from clew.adapters.langgraph import ClewSaver

RUNS = ("run 0", "run 1", "run 2")


# --- graphs ---------------------------------------------------------------------------------


def joined(state: list[Any], writes: Sequence[Any]) -> list[Any]:
    return [*state, *[one for write in writes for one in write]]


def newest(_: Any, new: Any) -> Any:
    return new


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[Any], operator.add]
    data: Annotated[dict[str, Any], newest]
    pile: Annotated[list[Any], newest]
    delta: Annotated[list[Any], DeltaChannel(joined, snapshot_frequency=3)]


class Broken(Exception):
    """What a node of a random graph raises."""


class Nodes:
    """What the nodes of a graph do. Each is chosen by its number, and knows no more than the state.

    `failures` is how many of them will fail yet: one that depended on the state failed for ever.
    """

    def __init__(self) -> None:
        self.failures = 0

    def act(self, number: int, state: Any) -> Any:
        acts = [self.say, self.change, self.remove, self.ask, self.ask_twice, self.fail]
        acts += [self.log, self.grow, self.shrink, self.pile, self.delta, self.command]
        told = state.get("messages") or []
        return acts[number % len(acts)](number, {**state, "messages": told})

    def say(self, number: int, state: Any) -> Any:
        name = f"a{len(state['messages'])}-{number}"
        return {"messages": [AIMessage("m" * number, id=name)], "delta": ["said"]}

    def change(self, number: int, state: Any) -> Any:
        told = state["messages"]
        old = told[number % len(told)] if told else HumanMessage("first", id="first")
        return {"messages": [type(old)(f"changed {number} {len(told)}", id=old.id)]}

    def remove(self, number: int, state: Any) -> Any:
        told = state["messages"]
        gone = [RemoveMessage(told[number % len(told)].id)] if told else []
        return {"messages": [*gone, AIMessage("instead", id=f"r{len(told)}-{number}")]}

    def ask(self, number: int, state: Any) -> Any:
        heard = interrupt({"ask": number})
        name = f"h{len(state['messages'])}-{number}"
        return {"messages": [HumanMessage(f"heard {heard}", id=name)], "log": [heard]}

    def ask_twice(self, number: int, state: Any) -> Any:
        return {"log": [interrupt("one?"), interrupt("two?")]}

    def fail(self, number: int, state: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise Broken
        return {"log": [{"fine": number}]}

    def log(self, number: int, state: Any) -> Any:
        return {"log": ["x" * 60 + str(len(state.get("log") or ()))] * (number % 12)}

    def grow(self, number: int, state: Any) -> Any:
        known = state.get("data") or {}
        return {"data": {**known, f"key {number % 17}": {"text": "y" * 90, "n": len(known)}}}

    def shrink(self, number: int, state: Any) -> Any:
        known = [*(state.get("data") or {}).items()]
        return {"data": dict(known[:: 1 + number % 3])}

    def pile(self, number: int, state: Any) -> Any:
        more = [{"n": number + n, "pad": "z" * 80} for n in range(number % 9)]
        pile = [*(state.get("pile") or []), *more]
        return {"pile": pile[::-1] if number % 2 else pile[number % 4 :]}

    def delta(self, number: int, state: Any) -> Any:
        return {"delta": [f"{number}.{n}" for n in range(number % 4)]}

    def command(self, number: int, state: Any) -> Any:
        return Command(update={"log": ["command"], "delta": ["c"]})


def graph_of(dice: random.Random, nodes: Nodes) -> StateGraph[Any]:
    """Some steps after each other: nodes alone, beside each other, in a subgraph, or sent to."""
    graph = StateGraph(State)
    graph.add_node("first", lambda state: {"log": ["first"]})
    graph.add_edge(START, "first")
    last = ["first"]
    for place in range(dice.randint(1, 4)):
        how = dice.choice(["alone", "beside", "subgraph", "sent", "alone"])
        names = [f"n{place}", f"n{place}b"][: 2 if how == "beside" else 1]
        for name in names:
            number = dice.randrange(120)
            node: Any = lambda state, number=number: nodes.act(number, state)  # noqa: E731
            if how == "subgraph":
                inner = StateGraph(State)
                inner.add_node("in", node)
                inner.add_node("out", lambda state: {"log": ["inner"]})
                inner.add_edge(START, "in")
                inner.add_edge("in", "out")
                node = inner.compile(checkpointer=dice.choice([True, None]))
            graph.add_node(name, node)
        count = dice.randint(1, 3)
        send: Any = lambda state, names=names, count=count: [Send(names[0], state)] * count  # noqa: E731
        for before in last:
            if how == "sent":
                graph.add_conditional_edges(before, send, names)
            else:
                for name in names:
                    graph.add_edge(before, name)
        last = names
    return graph


# --- programs of graphs -----------------------------------------------------------------------


class Program:
    """What a graph's users do. `cut`: the runs are tasks, and some are cancelled at any await."""

    def __init__(self, dice: random.Random, ours: Ours[ClewSaver], *, cut: bool) -> None:
        self.dice, self.ours, self.cut = dice, ours, cut
        reference: Any = InMemorySaver()
        versions: Any = reference
        if not cut and dice.random() < 0.4:
            reference = SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False))
            versions = dice.choice([reference, ours.adapters[0]])
        self.pair = Pair(ours, reference, versions)
        self.nodes = Nodes()
        self.graph = graph_of(dice, self.nodes).compile(checkpointer=self.pair)
        self.in_memory = isinstance(reference, InMemorySaver)

    def run(self) -> None:
        steps = [self.invoke, self.invoke, self.invoke, self.resume, self.resume, self.go_on]
        steps += [self.update, self.travel, self.travel, self.look, self.delete]
        steps += [self.copy, self.prune, self.prune, self.delete_runs] if self.in_memory else []
        for number in range(self.dice.randint(3, 9)):
            if self.dice.random() < 0.1:
                self.ours.reopen()
            self.nodes.failures = self.dice.choice([0, 0, 1, 2])
            thread = self.dice.choice(["t1", "t1", "t1", "t2"])
            config = {"thread_id": thread, "run_id": self.dice.choice(RUNS)}
            try:
                self.dice.choice(steps)({"configurable": config}, number)
            except (Broken, InvalidUpdateError, EmptyInputError):
                pass  # as on any saver
            except RuntimeError as error:
                if "multiple pending interrupts" not in str(error):
                    raise
        for thread in ("t1", "t2"):
            self.check(thread)

    def start(self, given: Any, config: Any) -> None:
        durability: Any = self.dice.choice(["sync", "async", "exit"])
        if not self.cut:
            self.graph.invoke(given, config, durability=durability)
            return

        async def run() -> None:
            self.pair.turn = asyncio.Lock()
            task = asyncio.ensure_future(self.graph.ainvoke(given, config, durability=durability))
            if self.dice.random() < 0.5:
                for _ in range(self.dice.randint(1, 60)):
                    await asyncio.sleep(0 if self.dice.random() < 0.7 else 0.001)
                task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass

        asyncio.run(run())

    def invoke(self, config: Any, number: int) -> None:
        asked = HumanMessage(f"question {number}", id=f"q{number}")
        self.start({"messages": [asked], "delta": [f"i{number}"]}, config)

    def go_on(self, config: Any, number: int) -> None:
        self.start(None, config)

    def resume(self, config: Any, number: int) -> None:
        asked = self.graph.get_state(config).interrupts
        answered = asked[: self.dice.randint(1, 2)]
        if answered:
            self.start(Command(resume={one.id: f"answer {number}" for one in answered}), config)

    def update(self, config: Any, number: int) -> None:
        if self.dice.random() < 0.3:
            steps = [[StateUpdate({"log": [n], "delta": [n]}, "n0")] for n in range(2)]
            self.graph.bulk_update_state(config, steps)
            return
        told = {"messages": [HumanMessage("told", id=f"u{number}")], "delta": ["u"]}
        self.graph.update_state(config, told, as_node=self.dice.choice([None, "n0"]))

    def travel(self, config: Any, number: int) -> None:
        history = [*self.graph.get_state_history(config)]
        if history:
            past = self.dice.choice(history).config
            if self.dice.random() < 0.4:
                self.update(past, number)
            else:
                given = self.dice.choice([None, {"log": ["again"]}, Command(resume="past")])
                self.start(given, past)

    def look(self, config: Any, number: int) -> None:
        history = [*self.graph.get_state_history(config)]
        self.graph.get_state(config, subgraphs=True)
        options: dict[str, Any] = {"limit": self.dice.choice([None, 0, 1, 3])}
        if history:
            options["before"] = self.dice.choice(history).config
        filters = [None, {"source": "loop"}, {"step": 1}, {"source": "update", "step": 2}]
        config["configurable"]["checkpoint_ns"] = ""
        self.pair.list(config, filter=self.dice.choice(filters), **options)

    def delete(self, config: Any, number: int) -> None:
        if self.dice.random() < 0.4:
            self.pair.delete_thread(config["configurable"]["thread_id"])

    def copy(self, config: Any, number: int) -> None:
        if self.pair.ids("t1", "") and not self.pair.ids("t2", ""):
            self.pair.delete_thread("t2")
            self.pair.copy_thread("t1", "t2")

    def prune(self, config: Any, number: int) -> None:
        self.pair.prune([config["configurable"]["thread_id"]])

    def delete_runs(self, config: Any, number: int) -> None:
        storage, gone = self.pair.reference.storage, self.dice.choice(RUNS)
        staying = {
            (thread, namespace, id)
            for thread in storage
            for namespace in storage[thread]
            for id, (_, metadata, _) in storage[thread][namespace].items()
            if self.pair.serde.loads_typed(metadata).get("run_id") != gone
        }
        self.ours.any.delete_for_runs([gone])
        for thread, namespace, id in staying:
            assert id in self.pair.ids(thread, namespace)
        for thread in [*storage]:
            self.pair.forget(thread)

    def check(self, thread: str) -> None:
        """Each checkpoint is read by each saver alone, as a graph reads it."""
        for found in self.pair.list({"configurable": {"thread_id": thread}}):
            self.pair.get_tuple(found.config)
            if found.config["configurable"]["checkpoint_ns"] == "":
                mine, their = [
                    self.state(self.graph.copy({"checkpointer": saver}), found.config)
                    for saver in (self.ours.any, self.pair.reference)
                ]
                assert mine == their

    def state(self, graph: Any, config: Any) -> Any:
        state = graph.get_state(config)
        values = {k: v for k, v in state.values.items() if k != "delta" or self.in_memory}
        tasks = [[task.id, task.name, task.interrupts, task.error] for task in state.tasks]
        return shown([values, state.next, tasks, state.metadata, state.created_at])


ENGINES = pytest.mark.parametrize("engine", ["sqlite", "files", "postgres"])


@ENGINES
@pytest.mark.parametrize("cut", [False, True], ids=["to the end", "cancelled"])
def test_a_graph_is_what_it_is_on_langgraphs_own_savers(
    request: pytest.FixtureRequest, engine: str, cut: bool
) -> None:
    logging.getLogger("langgraph").setLevel(logging.CRITICAL)
    each(request, engine, ClewSaver, lambda dice, ours: Program(dice, ours, cut=cut).run())


# --- programs of checkpoints ------------------------------------------------------------------


VALUES: list[Any] = [None, 0, 1.5, "x" * 300, [], {}, [1] * 400, {"a": {"b": [1]}}, b"xx", {1: 2}]
VALUES += [{f"k{n}": "v" * 40 for n in range(20)}, {"~": 1}, [{"~": 2}, None], {3, 1}, True]
VALUES += [[[n] * 3 for n in range(60)], float("inf"), {"tag": {"~": "x"}}, (1, 2)]


def message(dice: random.Random, number: float) -> Any:
    id = dice.choice([f"id{number}", f"id{number}", None, "twice"])
    called = [{"id": f"c{number}", "name": "t", "args": {"x": number}}]
    return dice.choice(
        [
            HumanMessage(f"h{number}", id=id, name="bob"),
            HumanMessage("the same", id="the same"),
            AIMessage("", id=id, tool_calls=called, response_metadata={"m": [1]}),
            AIMessage([{"type": "text", "text": "x"}], id=id, additional_kwargs={"k": {"z": 1}}),
            ToolMessage("t", tool_call_id=f"c{number}", id=id, artifact={"a": [1]}),
            SystemMessage([{"type": "text", "text": f"s{number}"}], id=id),
            {"role": "user", "content": f"d{number}"},
            f"text {number}",
        ]
    )


def changed(dice: random.Random, told: list[Any], number: int) -> list[Any]:
    """A list of messages after some changes, also to its messages themselves."""
    told = list(told)
    for _ in range(dice.randint(0, 3)):
        how, place = dice.randrange(7), dice.randint(0, len(told))
        if how <= 1:
            told.append(message(dice, number + dice.random()))
        elif how == 2:
            told.insert(place, message(dice, number))
        elif how == 3:
            told[place : place + 1] = [message(dice, number)]
        elif how == 4:
            del told[place : place + dice.randint(1, 3)]
        elif how == 5:
            dice.shuffle(told)
        elif place < len(told) and isinstance(told[place], BaseMessage):
            told[place].additional_kwargs["changed"] = number
    return told


class Checkpoints:
    """Checkpoints and writes that no graph would make, but any of which a saver may be given."""

    def __init__(self, dice: random.Random, ours: Ours[ClewSaver]) -> None:
        self.dice = dice
        self.ours = ours
        reference = InMemorySaver()
        self.pair = Pair(ours, reference, reference)
        self.thread = "t"
        self.put_so_far: list[Any] = []  # namespace, config, checkpoint, metadata, versions
        self.version = 0

    def run(self) -> None:
        steps = [self.put] * 6 + [self.write, self.write, self.put_again, self.look]
        steps += [self.copy, self.prune]
        for number in range(self.dice.randint(5, 30)):
            if self.dice.random() < 0.08:
                self.ours.reopen()
            namespace = self.dice.choice(["", "", "sub"])
            known = [put for put in self.put_so_far if put[0] == namespace]
            config: Any = {"thread_id": self.thread, "checkpoint_ns": namespace}
            parent = None
            if known:
                parent = self.dice.choice([known[-1], known[-1], self.dice.choice(known)])[2]
                config["checkpoint_id"] = parent["id"]
            self.dice.choice(steps)({"configurable": config}, parent, number)
        for found in self.pair.list({"configurable": {"thread_id": self.thread}}):
            self.pair.get_tuple(found.config)
        for info in self.ours.store.threads(archived=None):
            self.ours.store.get(info.id).context("anthropic")

    def put(self, config: Any, parent: Any, number: int) -> None:
        made: Any = empty_checkpoint()
        if self.dice.random() < 0.15:  # ids that do not grow, or that LangGraph would not make
            made["id"] = self.dice.choice([f"z{number}", f"a{number}", f"odd id/é{number}"])
        values = dict(parent["channel_values"]) if parent else {}
        versions = dict(parent["channel_versions"]) if parent else {}
        # A message that was changed in place is another one in every list that it is in.
        values["messages"] = changed(self.dice, values.get("messages", []), number)
        new = {"messages"}
        for channel in ("a", "b"):
            if self.dice.random() < 0.4:
                values[channel] = self.dice.choice(VALUES)
                new.add(channel)
        self.version += 1
        made["channel_values"] = values
        made["channel_versions"] = {**versions, **dict.fromkeys(new, self.version)}
        given = config, made, {"source": "loop", "step": number}, dict.fromkeys(new, self.version)
        self.pair.put(*given)
        self.put_so_far.append((config["configurable"]["checkpoint_ns"], *given))

    def put_again(self, config: Any, parent: Any, number: int) -> None:
        """The same checkpoint once more, with what it says of itself, or other metadata."""
        if parent is None:
            return
        found = next(put for put in self.put_so_far if put[2] is parent)
        _, first, checkpoint, metadata, versions = found
        if self.dice.random() < 0.5:
            metadata = {**metadata, "again": number}
        named = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
        stored = self.pair.reference.get_tuple({"configurable": named})
        values = stored.checkpoint["channel_values"]
        before = {**first["configurable"], "thread_id": self.thread}
        again = {**checkpoint, "channel_values": values}
        self.pair.put({"configurable": before}, again, metadata, versions)

    def write(self, config: Any, parent: Any, number: int) -> None:
        config["configurable"].setdefault("checkpoint_id", "not yet there")
        channels = ["messages", "a", "__error__", "__interrupt__", "__resume__"]
        task = self.dice.choice(["t1", "t2", f"t{number}"])
        writes = [
            (self.dice.choice(channels), self.dice.choice([*VALUES, message(self.dice, number)]))
            for _ in range(self.dice.randint(0, 3))
        ]
        self.pair.put_writes(config, writes, task, self.dice.choice(["", "~a", "b"]))

    def look(self, config: Any, parent: Any, number: int) -> None:
        self.pair.get_tuple(config)
        config["configurable"].pop("checkpoint_id", None)
        self.pair.get_tuple(config)
        options: dict[str, Any] = {"limit": self.dice.choice([None, 0, 1, 3])}
        if parent is not None:
            options["before"] = {"configurable": {"checkpoint_id": parent["id"]}}
        wanted = self.dice.choice([None, {"step": number - 1}, {"again": number}])
        found = self.pair.list(config, filter=wanted, **options)
        ids = [one.checkpoint["id"] for one in found]
        assert ids == sorted(ids, reverse=True)

    def copy(self, config: Any, parent: Any, number: int) -> None:
        if self.put_so_far and self.pair.ids(self.thread, ""):
            source, self.thread = self.thread, f"copy {number}"
            self.pair.copy_thread(source, self.thread)
            if self.dice.random() < 0.3:
                self.pair.delete_thread(source)

    def prune(self, config: Any, parent: Any, number: int) -> None:
        self.pair.prune([self.thread])
        left = {one: self.pair.ids(self.thread, one) for one in ("", "sub")}
        self.put_so_far = [put for put in self.put_so_far if put[2]["id"] in left[put[0]]]


@ENGINES
def test_checkpoints_are_what_they_are_in_memory(
    request: pytest.FixtureRequest, engine: str
) -> None:
    def make(store: clew.Store) -> ClewSaver:
        return ClewSaver(store)

    each(request, engine, make, lambda dice, ours: Checkpoints(dice, ours).run())
