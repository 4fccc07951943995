"""`clew import`: the files of the frameworks' own stores, made by these, come over."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

import clew
from clew.cli import main


def openai_file(path: Path) -> None:
    agents = pytest.importorskip("agents", reason="openai-agents is not installed")
    session = agents.SQLiteSession("customer-1", path)
    asyncio.run(session.add_items([{"role": "user", "content": "Hello"}]))
    session.close()


def adk_file(path: Path) -> None:
    reason = "google-adk is not installed"
    module = pytest.importorskip("google.adk.sessions.sqlite_session_service", reason=reason)
    events = pytest.importorskip("google.adk.events.event", reason=reason)
    types = pytest.importorskip("google.genai.types", reason=reason)

    async def fill() -> None:
        service = module.SqliteSessionService(str(path))
        session = await service.create_session(app_name="a", user_id="u", session_id="s")
        content = types.Content(role="user", parts=[types.Part(text="Hello")])
        await service.append_event(session, events.Event(author="user", content=content))

    asyncio.run(fill())


def langgraph_file(path: Path) -> None:
    reason = "langgraph-checkpoint-sqlite is not installed"
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite", reason=reason)
    graph = pytest.importorskip("langgraph.graph", reason=reason)
    core = pytest.importorskip("langchain_core.messages", reason=reason)
    with sqlite.SqliteSaver.from_conn_string(str(path)) as saver:
        built = graph.StateGraph(graph.MessagesState)
        built.add_node("answer", lambda state: {"messages": [core.AIMessage("Hi")]})
        built.set_entry_point("answer")
        config = {"configurable": {"thread_id": "one"}}
        built.compile(checkpointer=saver).invoke({"messages": [core.HumanMessage("Hello")]}, config)


FILES = {"openai-sqlite": openai_file, "adk-sqlite": adk_file, "langgraph-sqlite": langgraph_file}


@pytest.mark.parametrize("kind", FILES)
def test_a_frameworks_file_becomes_threads_and_again_nothing_new(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, target = tmp_path / "theirs.db", str(tmp_path / "threads.db")
    FILES[kind](file)
    assert main(["import", kind, str(file), target]) == 0
    assert "imported" in capsys.readouterr().out
    with clew.open(target) as store:
        said = [
            str(message)
            for info in store.threads()
            for message in store.get(info.id).context("openai-chat").messages
        ]
        assert any("Hello" in text for text in said)
    assert main(["import", kind, str(file), target, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["threads"], again["entries"], again["left"]) == (1, 0, [])


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_something_else_is_named(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FILES[kind](tmp_path / "theirs.db")  # or it is skipped
    target = str(tmp_path / "threads.db")
    assert main(["import", kind, str(tmp_path / "nowhere.db"), target]) == 2
    text, other = tmp_path / "text", tmp_path / "other.db"
    text.write_text("no database at all, and long enough to be looked at\n" * 100)
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    for file in (text, other):
        assert main(["import", kind, str(file), target]) == 6
        assert f"{file} is no file of " in capsys.readouterr().err


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_damaged_is_told_from_one_of_something_else(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "theirs.db"
    FILES[kind](file)
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        size = db.execute("PRAGMA page_size").fetchone()[0]
    db.close()
    data = bytearray(file.read_bytes())
    for page in range(1, len(data) // size):  # all but the first, which has the schema
        data[page * size] = 0x77  # no kind of page has this byte
    file.write_bytes(data)
    assert main(["import", kind, str(file), str(tmp_path / "threads.db")]) == 1
    assert "cannot be read to its end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("openai", "openai-sqlite"),
        ("openai-agents", "openai-sqlite"),
        ("google-adk", "adk-sqlite"),
        ("langgraph", "langgraph-sqlite"),
    ],
)
def test_a_name_that_is_nearly_right_is_put_right(
    said: str,
    meant: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["import", said, "theirs.db", "threads.db"]) == 2
    assert f"clew import {meant} FILE [STORE]" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
