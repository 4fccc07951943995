"""The file of LangGraph's own SqliteSaver becomes threads, and is never executed."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite", reason="langgraph is not installed")

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph_agents import CONFIG, agent, call
from pydantic import BaseModel

import clew
from clew.adapters.langgraph import ClewSaver, import_sqlite


class Plan(BaseModel):
    steps: list[str]


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    plan: Plan


def planner(saver: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("plan", lambda state: {"plan": Plan(steps=["one"]), "messages": ["ok"]})
    graph.add_edge(START, "plan")
    return graph.compile(checkpointer=saver)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file as LangGraph leaves it: an agent with a branch, a class in a state."""
    path = tmp_path / "checkpoints.sqlite"

    def look(place: str) -> str:
        """Look at a place."""
        return f"nothing at {place}"

    with SqliteSaver.from_conn_string(str(path)) as saver:
        script = [call("c1", "look", place="home"), *[AIMessage(f"answer {n}") for n in range(9)]]
        graph = agent(saver, script, look)
        for question in ("one", "two"):
            graph.invoke({"messages": [("user", question)]}, CONFIG)
        old = list(graph.get_state_history(CONFIG))[3]
        graph.invoke({"messages": [("user", "other")]}, old.config)
        planner(saver).invoke({"messages": ["go"]}, {"configurable": {"thread_id": "plan"}})
    return path


def test_every_checkpoint_comes_over_and_the_graph_goes_on(store: clew.Store, file: Path) -> None:
    told: list[tuple[int, int]] = []
    report = import_sqlite(file, store, progress=lambda done, total: told.append((done, total)))
    assert report.threads == 2
    assert report.left == []
    assert told[-1] == (report.entries, report.entries)

    ours = ClewSaver(store)
    with SqliteSaver.from_conn_string(str(file)) as theirs:
        expected = list(theirs.list(CONFIG))
        found = list(ours.list({"configurable": {"thread_id": "agent", "checkpoint_ns": ""}}))
        assert found == expected
        state = agent(theirs, []).get_state(CONFIG).values
    graph = agent(ours, [AIMessage("and on")])
    assert graph.get_state(CONFIG).values == state
    assert len(store.get("agent").leaves()) == 2
    graph.invoke({"messages": [("user", "go on")]}, CONFIG)
    assert graph.get_state(CONFIG).values["messages"][-1].content == "and on"
    assert "nothing at home" in str(store.get("agent").context("anthropic").messages)
    assert store.verify() == []


def test_nothing_is_made_beside_the_file(store: clew.Store, file: Path) -> None:
    before = sorted(file.parent.glob("checkpoints*"))
    import_sqlite(file, store)
    assert sorted(file.parent.glob("checkpoints*")) == before


def test_a_second_import_brings_what_is_new(store: clew.Store, file: Path) -> None:
    import_sqlite(file, ClewSaver(store))
    with SqliteSaver.from_conn_string(str(file)) as saver:
        agent(saver, [AIMessage("later")]).invoke({"messages": [("user", "three")]}, CONFIG)
    again = import_sqlite(file, ClewSaver(store))
    assert again.entries == 3


def test_classes_come_over_as_data_and_are_rebuilt_where_they_are_allowed(
    store: clew.Store, file: Path
) -> None:
    import_sqlite(file, store)
    config: Any = {"configurable": {"thread_id": "plan"}}
    with pytest.raises(clew.InvalidInput, match=r"allow=\[Plan\]"):
        ClewSaver(store).get_tuple(config)
    state = planner(ClewSaver(store, allow=[Plan])).get_state(config).values
    assert state["plan"] == Plan(steps=["one"])


def test_pickles_are_left_behind_and_named(store: clew.Store, file: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return print, ("executed",)

    with sqlite3.connect(file) as db:
        db.execute(
            "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint,"
            " metadata) VALUES ('evil', '', ?, 'pickle', ?, '{}')",
            (empty_checkpoint()["id"], pickle.dumps(Bomb())),
        )
    report = import_sqlite(file, store)
    assert len(report.left) == 1
    assert "'evil'" in report.left[0]
    assert "pickle" in report.left[0]
    assert store.find("evil") is None


def test_a_file_that_is_none_is_told(store: clew.Store, tmp_path: Path) -> None:
    with pytest.raises(clew.NotFound):
        import_sqlite(tmp_path / "nowhere", store)
    (tmp_path / "text").write_text("this is no database " * 100)
    with pytest.raises(clew.Unsupported, match="is no file of LangGraph's SqliteSaver"):
        import_sqlite(tmp_path / "text", store)
