"""A LangGraph thread as a Clew thread: what is read of it elsewhere, branches, copies, pruning."""

from __future__ import annotations

import operator
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict

import anyio
import pytest

pytest.importorskip("langgraph.graph", reason="langgraph is not installed")

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from langgraph_agents import CONFIG, agent, call

import clew
from clew import messages
from clew.adapters.langgraph import ClewSaver


def at(thread: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def said(graph: Any, config: Any = CONFIG) -> list[str]:
    return [message.content for message in graph.get_state(config).values["messages"]]


def texts(store: clew.Store, thread: str = "agent") -> list[str]:
    found = []
    for message in store.get(thread).context("plain").messages:
        content = message["content"]
        found += [content] if isinstance(content, str) else [block["text"] for block in content]
    return [text for text in found if not text.startswith("[")]


def ask(graph: Any, *questions: str, config: Any = CONFIG) -> None:
    for question in questions:
        graph.invoke({"messages": [("user", question)]}, config)


def answers(count: int = 50) -> list[AIMessage]:
    return [AIMessage(f"answer {n}") for n in range(count)]


# --- the conversation, read elsewhere ----------------------------------------------------------


def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def test_the_messages_of_a_graph_are_messages_of_the_thread(store: clew.Store) -> None:
    script = [call("c1", "weather", city="Rome"), AIMessage("It rains in Rome.")]
    graph = agent(ClewSaver(store), script, weather)
    graph.invoke({"messages": [("system", "Be brief."), ("user", "Weather in Rome?")]}, CONFIG)

    thread = store.get("agent")
    kinds = [entry.kind for entry in thread.path() if entry.format == "langchain"]
    assert kinds == [
        "system_message",
        "user_message",
        "tool_call",
        "tool_result",
        "assistant_message",
    ]
    for format in ("anthropic", "openai-chat", "openai-responses", "gemini", "langchain"):
        context = thread.context(format)
        assert messages.validate(format, context.messages) == []
        assert "rain in Rome" in str(context.messages)


def test_the_command_line_shows_and_exports_it(
    store: clew.Store, address: str, tmp_path: Path
) -> None:
    ask(agent(ClewSaver(store), answers()), "Where is the lighthouse?")
    exported = tmp_path / "exported.jsonl"
    told = ""
    for command, *options in (["show"], ["show", "--path"], ["export", "--out", str(exported)]):
        run = [sys.executable, "-m", "clew", command, address, "agent", *options]
        told += subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert "checkpoint of step 1, loop" in told
    assert "channel_versions" not in told  # what a checkpoint is made of says nothing to people
    for out in (told, exported.read_text()):
        assert out.count("Where is the lighthouse?") >= 1
        assert out.count("answer 0") >= 1


def test_what_was_written_through_the_library_goes_into_a_graph(store: clew.Store) -> None:
    thread = store.create("elsewhere")
    thread.append("user_message", {"role": "user", "content": "Hello"}, format="anthropic")
    thread.append(
        "assistant_message",
        {"role": "assistant", "content": [{"type": "text", "text": "Good day"}]},
        format="anthropic",
    )
    graph = agent(ClewSaver(store), answers())
    told = thread.context("langchain", purpose="display").messages
    found = graph.invoke({"messages": [*told, ("user", "And now?")]}, at("elsewhere"))
    assert [message.content for message in found["messages"]] == [
        "Hello",
        "Good day",
        "And now?",
        "answer 0",
    ]
    assert texts(store, "elsewhere") == ["Hello", "Good day", "And now?", "answer 0"]


# --- branches --------------------------------------------------------------------------------


def test_time_travel_is_a_branch_and_the_path_is_the_newest_one(store: clew.Store) -> None:
    graph = agent(ClewSaver(store), answers())
    ask(graph, "one", "two", "three")
    history = list(graph.get_state_history(CONFIG))
    after_one = next(s for s in history if len(s.values.get("messages", [])) == 2 and not s.next)

    ask(graph, "other", config=after_one.config)

    assert said(graph) == ["one", "answer 0", "other", "answer 3"]
    assert texts(store) == said(graph)
    assert len(store.get("agent").leaves()) == 2
    assert len(list(graph.get_state_history(CONFIG))) == len(history) + 3
    assert said(graph, history[0].config)[-1] == "answer 2"


def test_messages_taken_out_and_edited_are_gone_from_the_context(store: clew.Store) -> None:
    graph = agent(ClewSaver(store), answers())
    ask(graph, "one", "two")
    first, _, third, _ = graph.get_state(CONFIG).values["messages"]
    update = [RemoveMessage(id=first.id), HumanMessage("edited", id=third.id)]
    graph.update_state(CONFIG, {"messages": update})
    assert said(graph) == texts(store) == ["answer 0", "edited", "answer 1"]


def test_an_interrupt_is_answered_by_another_saver(store: clew.Store) -> None:
    class State(TypedDict):
        name: str

    graph = StateGraph(State)
    graph.add_node("ask", lambda state: {"name": interrupt("Who are you?")})
    graph.add_edge(START, "ask")
    first = graph.compile(checkpointer=ClewSaver(store)).invoke({"name": ""}, CONFIG)
    assert first["__interrupt__"][0].value == "Who are you?"
    second = graph.compile(checkpointer=ClewSaver(store)).invoke(Command(resume="Ada"), CONFIG)
    assert second == {"name": "Ada"}


def test_parallel_tasks_and_sends(store: clew.Store) -> None:
    class State(TypedDict):
        found: Annotated[list[int], operator.add]

    graph = StateGraph(State)
    graph.add_node("square", lambda state: {"found": [state["n"] ** 2]})
    graph.add_conditional_edges(START, lambda state: [Send("square", {"n": n}) for n in range(9)])
    saver = ClewSaver(store)
    compiled = graph.compile(checkpointer=saver)
    assert compiled.invoke({"found": []}, CONFIG)["found"] == [n**2 for n in range(9)]
    fresh = graph.compile(checkpointer=ClewSaver(store))
    assert fresh.get_state(CONFIG).values["found"] == [n**2 for n in range(9)]


# --- subgraphs -------------------------------------------------------------------------------


def nested(saver: Any) -> Any:
    inner = StateGraph(MessagesState)
    inner.add_node("think", lambda state: {"messages": [AIMessage("inner thought")]})
    inner.add_node("approve", lambda state: {"messages": [AIMessage(interrupt("ok?"))]})
    inner.add_edge(START, "think")
    inner.add_edge("think", "approve")
    outer = StateGraph(MessagesState)
    outer.add_node("team", inner.compile())
    outer.add_edge(START, "team")
    return outer.compile(checkpointer=saver)


def test_a_subgraph_is_a_thread_that_works_for_the_graphs(store: clew.Store) -> None:
    graph = nested(ClewSaver(store))
    graph.invoke({"messages": [("user", "go")]}, CONFIG)
    children = [info.id for info in store.threads(parent="agent")]
    assert len(children) == 1
    assert texts(store, children[0]) == ["go", "inner thought"]
    assert texts(store) == ["go"]

    again = nested(ClewSaver(store))
    state = again.get_state(CONFIG, subgraphs=True)
    assert state.tasks[0].state.next == ("approve",)
    again.invoke(Command(resume="approved"), CONFIG)
    assert said(again) == texts(store) == ["go", "inner thought", "approved"]

    saver = ClewSaver(store)
    assert {one.config["configurable"]["checkpoint_ns"] for one in saver.list(at("agent"))} != {""}
    ids = [one.checkpoint["id"] for one in saver.list(at("agent"))]
    assert ids == sorted(ids, reverse=True)
    assert [one.checkpoint["id"] for one in saver.list(at("agent"), limit=2)] == ids[:2]
    assert len(list(saver.list(None))) == len(ids)
    saver.copy_thread("agent", "copy")
    assert len(list(saver.list(at("copy")))) == len(ids)
    saver.delete_thread("agent")
    assert store.find("agent") is None
    assert store.find(children[0]) is None
    assert len(list(saver.list(at("copy")))) > 3


# --- threads as a whole ------------------------------------------------------------------------


def test_a_copy_costs_the_same_at_any_length_and_goes_its_own_way(store: clew.Store) -> None:
    saver = ClewSaver(store)
    graph = agent(saver, answers())
    for number, length in enumerate((1, 20)):
        ask(graph, *["question"] * length)
        before = store.stats().records
        saver.copy_thread("agent", f"copy {number}")
        assert store.stats().records - before <= 3  # its facts
    ask(graph, "only here")
    ask(graph, "only there", config=at("copy 1"))
    assert said(graph)[-2] == "only here"
    assert said(graph, at("copy 1"))[-2] == "only there"
    saver.delete_thread("agent")
    assert said(graph, at("copy 1"))[:2] == ["question", "answer 0"]
    assert store.verify() == []


def test_a_copy_has_the_branches_that_were_left(store: clew.Store) -> None:
    saver = ClewSaver(store)
    graph = agent(saver, answers())
    ask(graph, "one", "two")
    old = [s for s in graph.get_state_history(CONFIG) if len(s.values.get("messages", [])) == 2]
    ask(graph, "other", config=old[0].config)
    saver.copy_thread("agent", "copy")
    saver.delete_thread("agent")
    fresh = agent(ClewSaver(store), answers())
    history = list(fresh.get_state_history(at("copy")))
    assert len(history) == 9
    assert any([m.content for m in s.values["messages"]][2:3] == ["two"] for s in history)
    assert texts(store, "copy") == ["one", "answer 0", "other", "answer 2"]


def test_a_copy_with_branches_is_listed_newest_first(store: clew.Store) -> None:
    saver = ClewSaver(store)
    graph = agent(saver, answers())
    ask(graph, "one", "two")
    old = [s for s in graph.get_state_history(CONFIG) if len(s.values.get("messages", [])) == 2]
    ask(graph, "other", config=old[0].config)
    saver.copy_thread("agent", "copy")
    saver.copy_thread("copy", "copy of the copy")
    ids = [one.checkpoint["id"] for one in saver.list(CONFIG)]
    assert ids == sorted(ids, reverse=True)
    for thread in ("copy", "copy of the copy"):
        assert [one.checkpoint["id"] for one in saver.list(at(thread))] == ids
        assert [one.checkpoint["id"] for one in saver.list(at(thread), limit=1)] == ids[:1]


def test_a_copy_lists_a_checkpoint_that_was_put_again_as_it_was_put_last(
    store: clew.Store,
) -> None:
    saver = ClewSaver(store)
    first, second = empty_checkpoint(), empty_checkpoint()
    for checkpoint in (first, second):
        saver.put(at("t", checkpoint_ns=""), checkpoint, {"step": 1}, {})
    for step in (2, 3):  # the version before the last is on no path that a copy shares
        saver.put(at("t", checkpoint_ns=""), second, {"step": step}, {})
    saver.copy_thread("t", "copy")
    found = {one.checkpoint["id"]: one.metadata["step"] for one in saver.list(at("copy"))}
    assert found == {first["id"]: 1, second["id"]: 3}


def test_a_copy_of_a_copy_has_the_branch_that_the_copy_had_left(store: clew.Store) -> None:
    saver = ClewSaver(store)
    graph = agent(saver, answers())
    ask(graph, "one", "two")
    saver.copy_thread("agent", "copy")
    history = list(graph.get_state_history(at("copy")))
    ask(graph, "three", config=at("copy"))
    old = [state for state in history if len(state.values.get("messages", [])) == 2]
    ask(graph, "other", config=old[0].config)
    ids = [one.checkpoint["id"] for one in saver.list(at("copy"))]
    saver.copy_thread("copy", "copy of the copy")
    assert [one.checkpoint["id"] for one in saver.list(at("copy of the copy"))] == ids
    assert said(graph, at("copy of the copy")) == ["one", "answer 0", "other", "answer 3"]
    assert store.verify() == []


def test_a_checkpoint_after_another_saver_has_pruned_is_whole(store: clew.Store) -> None:
    saver = ClewSaver(store)
    config = at("agent", checkpoint_ns="")
    told = [HumanMessage(f"message {n}", id=f"m{n}") for n in range(4)]
    for count in (1, 2, 3, 4):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": told[:count]}
        checkpoint["channel_versions"] = {"messages": count}
        if count > 2:  # what the saver knows by heart is of a thread that is no more
            ClewSaver(store).prune(["agent"])
        config = saver.put(config, checkpoint, {"step": count}, {"messages": count})
    for checked in (saver, ClewSaver(store)):
        found = {one.metadata["step"]: one for one in checked.list(at("agent"))}
        assert {
            step: len(one.checkpoint["channel_values"]["messages"]) for step, one in found.items()
        } == {3: 3, 4: 4}
        assert found[4].checkpoint["channel_values"]["messages"] == told
    assert texts(store) == [message.content for message in told]


def test_a_write_after_another_saver_has_pruned_is_there(store: clew.Store) -> None:
    saver = ClewSaver(store)
    checkpoint = empty_checkpoint()
    config = saver.put(at("agent", checkpoint_ns=""), checkpoint, {}, {})
    saver.put(config, older := empty_checkpoint(), {}, {})
    config["configurable"]["checkpoint_id"] = older["id"]
    for question in ("one?", "two?", "three?"):  # the last one counts
        saver.put_writes(config, [("__interrupt__", question)], "t")
    ClewSaver(store).prune(["agent"])
    saver.put_writes(config, [("found", 1)], "u")
    saver.put_writes(config, [("found", 2)], "v")
    found = ClewSaver(store).get_tuple(config)
    assert found is not None
    assert found.pending_writes == [
        ("t", "__interrupt__", "three?"),
        ("u", "found", 1),
        ("v", "found", 2),
    ]


def test_pruning_keeps_the_newest_whole_and_frees_the_rest(store: clew.Store) -> None:
    saver = ClewSaver(store)
    graph = agent(saver, answers())
    ask(graph, "one", "two", "three")
    store.get("agent").set(title="a name", mine=1)
    saver.copy_thread("agent", "copy")
    expected = said(graph)
    saver.prune(["agent", "unknown"])
    for checked in (saver, ClewSaver(store)):
        fresh = agent(checked, answers())
        assert said(fresh) == expected
        assert len(list(fresh.get_state_history(CONFIG))) == 1
        assert len(list(fresh.get_state_history(at("copy")))) == 9
    assert texts(store) == expected
    info = store.get("agent").info
    assert info.title is not None
    assert (info.title.text, info.facts["mine"]) == ("a name", 1)
    ask(graph, "four")
    assert said(agent(ClewSaver(store), answers())) == [*expected, "four", "answer 3"]
    assert not [one.id for one in store.threads(archived=None) if "rewritten" in one.id]
    assert store.verify() == []


def test_an_interrupted_prune_is_finished_by_whoever_comes_next(
    store: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = ClewSaver(store)
    graph = agent(saver, answers())
    ask(graph, "one", "two")
    expected = said(graph)
    purge = store.purge

    def purge_and_die(thread: str) -> Any:
        purged = purge(thread)
        if thread == "agent":
            raise KeyboardInterrupt
        return purged

    monkeypatch.setattr(store, "purge", purge_and_die)
    with pytest.raises(KeyboardInterrupt):
        saver.prune(["agent"])
    monkeypatch.undo()
    assert store.find("agent") is None
    assert said(agent(ClewSaver(store), answers())) == expected


def test_runs_are_deleted_in_every_thread_and_copy(store: clew.Store) -> None:
    saver = ClewSaver(store)
    graph = agent(saver, answers())
    for thread in ("a", "b"):
        for run in ("r1", "r2"):
            config = {**at(thread), "metadata": {"run_id": run}}
            ask(graph, f"{run} in {thread}", config=config)
    saver.copy_thread("a", "copy")
    ClewSaver(store).delete_for_runs(["r1", "unknown"])
    for thread in ("a", "b", "copy"):
        found = list(saver.list(at(thread)))
        assert {one.metadata["run_id"] for one in found} == {"r2"}
        state = said(graph, at(thread))
        assert len(state) == 4  # what r2 has built upon is its state, too
    ClewSaver(store).delete_for_runs(["r2"])
    assert [*saver.list(at("a")), *saver.list(at("b")), *saver.list(at("copy"))] == []
    assert store.verify() == []


def test_a_thread_that_another_one_holds_is_not_deleted(store: clew.Store) -> None:
    first, second = (ClewSaver(store, ownership="lease") for _ in range(2))
    ask(agent(first, answers()), "one")
    for refused in (second.delete_thread, lambda thread: second.prune([thread])):
        with pytest.raises(clew.LeaseHeld):
            refused("agent")
    first.prune(["agent"])
    ask(agent(first, answers()), "two")
    first.delete_thread("agent")
    ask(agent(second, answers()), "three")
    assert texts(store) == ["three", "answer 0"]


def test_a_thread_that_is_deleted_here_is_not_there_and_can_be_restored(store: clew.Store) -> None:
    saver = ClewSaver(store)
    graph = agent(saver, answers())
    ask(graph, "one")
    store.delete("agent")
    assert saver.get_tuple(CONFIG) is None
    assert list(saver.list(CONFIG)) == []
    with pytest.raises(clew.NotFound):
        ask(graph, "two")
    store.restore("agent")
    assert said(graph) == ["one", "answer 0"]


# --- DeltaChannel ----------------------------------------------------------------------------


def delta_graph(saver: Any, frequency: int) -> Any:
    def add(left: list[Any], right: list[Any]) -> list[Any]:
        found = [*left]
        for update in right:
            found += update
        return found

    channel = DeltaChannel(add, snapshot_frequency=frequency)
    state: Any = TypedDict("state", {"log": Annotated[list[str], channel]})
    graph = StateGraph(state)
    graph.add_node("n", lambda state: {"log": [f"step {len(state['log'])}"]})
    graph.add_edge(START, "n")
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("version", [1, 2])
def test_a_delta_channel_has_no_writes_that_its_checkpoint_did_not_take(
    store: clew.Store, version: int
) -> None:
    saver = ClewSaver(store)
    first, second = empty_checkpoint(), empty_checkpoint()
    first["channel_values"] = {"found": ["a"]}
    first["channel_versions"] = {"found": 1}
    config = saver.put(at("agent", checkpoint_ns=""), first, {}, {"found": 1})
    # A task that ran before the state was updated by hand, or a run that was cut off.
    saver.put_writes(config, [("found", ["b"])], "t")
    second["channel_versions"] = {"found": version}
    config = saver.put(config, second, {}, {})
    history = saver.get_delta_channel_history(config=config, channels=["found"])["found"]
    assert history["seed"] == ["a"]
    assert history["writes"] == ([("t", "found", ["b"])] if version > 1 else [])


@pytest.mark.parametrize("frequency", [3, 1000])
def test_delta_channels_are_read_as_from_langgraphs_own_saver(
    store: clew.Store, frequency: int
) -> None:
    theirs, ours = InMemorySaver(), ClewSaver(store)
    for saver in (theirs, ours):
        graph = delta_graph(saver, frequency)
        for n in range(8):
            graph.invoke({"log": [f"in {n}"]}, CONFIG)
    expected = delta_graph(theirs, frequency).get_state(CONFIG).values
    assert len(expected["log"]) == 16
    assert delta_graph(ClewSaver(store), frequency).get_state(CONFIG).values == expected
    lengths = [
        [
            (len(found["writes"]), found.get("seed"))
            for found in saver.get_delta_channel_history(
                config=at("agent", checkpoint_ns=""), channels=["log", "none"]
            ).values()
        ]
        for saver in (theirs, ours)
    ]
    assert lengths[0] == lengths[1]
    ours.prune(["agent"])
    assert delta_graph(ClewSaver(store), frequency).get_state(CONFIG).values == expected


# --- asynchronous ----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_asynchronous_side_needs_no_loop_of_its_own(address: str, backend: str) -> None:
    async def run() -> list[str]:
        async with ClewSaver(address) as saver:
            if backend == "asyncio":
                graph = agent(saver, answers())
                await graph.ainvoke({"messages": [("user", "one")]}, CONFIG)
                state = await graph.aget_state(CONFIG)
                return [message.content for message in state.values["messages"]]
            assert await saver.aget_tuple(CONFIG) is None
            return [one.checkpoint["id"] async for one in saver.alist(CONFIG)]

    expected = ["one", "answer 0"] if backend == "asyncio" else []
    assert anyio.run(run, backend=backend) == expected


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["x') OR 1=1 --", "$[*]", "", 'a"b', "a b", "a'"])
def test_filters_with_hostile_keys_are_refused(store: clew.Store, key: str) -> None:
    saver = ClewSaver(store)
    ask(agent(saver, answers()), "one")
    with pytest.raises(clew.InvalidInput):
        list(saver.list(None, filter={key: 1}))


def test_filters_compare_values_and_nothing_else(store: clew.Store) -> None:
    saver = ClewSaver(store)
    ask(agent(saver, answers()), "one")
    assert len(list(saver.list(None, filter={"step": 1}))) == 1
    assert list(saver.list(None, filter={"step": True})) == []
    assert list(saver.list(None, filter={"step": "1) OR (1=1"})) == []
    assert len(list(saver.list(None, filter={"nothing": None}))) == 3


@pytest.mark.parametrize(
    "config",
    [
        None,
        {},
        {"configurable": {}},
        {"configurable": {"thread_id": ""}},
        {"configurable": {"thread_id": None}},
        {"configurable": {"thread_id": ["x"]}},
        {"configurable": {"thread_id": "langgraph:runs"}},
        {"configurable": {"thread_id": "x", "checkpoint_ns": 5}},
        {"configurable": {"thread_id": "x" * 600}},
    ],
)
def test_a_config_that_names_no_thread_is_an_error(store: clew.Store, config: Any) -> None:
    with pytest.raises((clew.InvalidInput, clew.TooLarge)):
        ClewSaver(store).get_tuple(config)


def test_no_thread_id_reaches_the_subgraph_of_another_thread(store: clew.Store) -> None:
    graph = nested(ClewSaver(store))
    graph.invoke({"messages": [("user", "go")]}, CONFIG)
    (child,) = [info.id for info in store.threads(parent="agent")]
    saver = ClewSaver(store)
    with pytest.raises(clew.InvalidInput):
        saver.get_tuple(at(child))
    assert saver.get_tuple(at("agen", checkpoint_ns="t:x")) is None


def test_other_namespaces_of_a_store_are_not_there(address: str) -> None:
    with clew.open(address, namespace="one") as one, clew.open(address, namespace="two") as two:
        ask(agent(ClewSaver(one), answers()), "secret")
        assert ClewSaver(two).get_tuple(CONFIG) is None
        assert list(ClewSaver(two).list(None)) == []


def test_unknown_threads_are_empty(store: clew.Store) -> None:
    saver = ClewSaver(store)
    assert saver.get_tuple(at("nowhere")) is None
    assert list(saver.list(at("nowhere"))) == []
    saver.delete_thread("nowhere")
    saver.delete_for_runs(["nothing"])
    with pytest.raises(clew.NotFound):
        saver.copy_thread("nowhere", "elsewhere")
    with pytest.raises(clew.InvalidInput):
        saver.prune(["nowhere"], strategy="everything")


def test_the_same_checkpoint_put_again_is_harmless_and_another_replaces_it(
    store: clew.Store,
) -> None:
    saver = ClewSaver(store)
    config = at("agent", checkpoint_ns="")
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"a": 1}
    checkpoint["channel_versions"] = {"a": 1}
    for _ in range(2):
        saver.put(config, checkpoint, {"step": 1}, {"a": 1})
    before = store.get("agent").info.seq
    assert before == 3  # two facts, one entry
    checkpoint["channel_values"] = {"a": 2}
    saver.put(config, checkpoint, {"step": 2}, {"a": 1})
    for checked in (saver, ClewSaver(store)):
        assert [one.checkpoint["channel_values"] for one in checked.list(config)] == [{"a": 2}]
        named = at("agent", checkpoint_ns="", checkpoint_id=checkpoint["id"])
        found = checked.get_tuple(named)
        assert found is not None
        assert found.metadata["step"] == 2


def test_a_checkpoint_that_is_put_as_it_was_once_is_so_again(store: clew.Store) -> None:
    saver = ClewSaver(store)
    config = saver.put(at("agent", checkpoint_ns=""), empty_checkpoint(), {"step": 0}, {})
    checkpoint = empty_checkpoint()
    for step in (1, 2, 1, 1, 2, 1):
        saver.put(config, checkpoint, {"step": step}, {})
        for checked in (saver, ClewSaver(store)):
            found = checked.get_tuple(at("agent"))
            assert found is not None
            assert found.metadata["step"] == step
            assert len(list(checked.list(at("agent")))) == 2


def test_writes_of_many_tasks_at_once_are_all_there(store: clew.Store) -> None:
    saver = ClewSaver(store)
    checkpoint = empty_checkpoint()
    config = at("agent", checkpoint_ns="", checkpoint_id=checkpoint["id"])
    # LangGraph may hand the writes over before the checkpoint that they belong to.
    with ThreadPoolExecutor(8) as pool:
        for task in range(40):
            other = at(f"other {task}", checkpoint_ns="", checkpoint_id=checkpoint["id"])
            pool.submit(saver.put_writes, other, [("found", task)], "t")
            pool.submit(saver.put_writes, config, [("found", task)], f"task {task:02}")
    saver.put(at("agent", checkpoint_ns=""), checkpoint, {}, {})
    for checked in (saver, ClewSaver(store)):
        found = checked.get_tuple(config)
        assert found is not None
        expected = [(f"task {task:02}", "found", task) for task in range(40)]
        assert found.pending_writes == expected


def test_what_a_saver_knows_by_heart_gives_way_to_what_others_did(store: clew.Store) -> None:
    warm = ClewSaver(store)
    graph = agent(warm, answers())
    ask(graph, "one", "two")
    ask(agent(ClewSaver(store), [AIMessage("by another")]), "three")
    ask(graph, "four")
    expected = ["one", "answer 0", "two", "answer 1", "three", "by another", "four", "answer 2"]
    assert said(graph) == expected
    newest = graph.get_state(CONFIG).config
    ClewSaver(store).prune(["agent"])
    assert said(graph, newest) == expected
    ask(graph, "five", config=newest)
    for checked in (warm, ClewSaver(store)):
        assert said(agent(checked, [])) == [*expected, "five", "answer 3"]
    ClewSaver(store).delete_thread("agent")
    assert warm.get_tuple(CONFIG) is None
    ask(graph, "anew")
    assert said(agent(ClewSaver(store), [])) == texts(store) == ["anew", "answer 4"]
    assert store.verify() == []
