"""Files of SQLiteSession and AdvancedSQLiteSession become threads: all of it, once, or told."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("agents", reason="the Agents SDK is not installed")

from agents import SQLiteSession, Usage
from agents.extensions.memory import AdvancedSQLiteSession
from openai_scripts import assistant, call, output, user

import clew
from clew.adapters.openai_agents import ClewSession, import_sqlite, list_sessions

TALK = [user("1 + 2?"), call("c1"), output("c1"), assistant("3")]


def items(store: clew.Store, id: str, branch: str = "main") -> list[Any]:
    return asyncio.run(ClewSession(id, store=store, branch_id=branch).get_items())


def fill(path: Path, **sessions: list[Any]) -> None:
    for id, given in sessions.items():
        session = SQLiteSession(id, path)
        asyncio.run(session.add_items(given))
        session.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def test_sessions_come_over_as_they_are(path: Path, store: clew.Store) -> None:
    strange = [{"__enc__": 1, "payload": "x"}, "a text", user("ü\ud800")]
    fill(path, one=TALK, two=strange)
    told: list[tuple[int, int]] = []
    done = import_sqlite(path, store, progress=lambda *numbers: told.append(numbers))
    assert (done.threads, done.entries, done.left) == (2, 7, [])
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert items(store, "one") == TALK
    assert items(store, "two") == strange
    assert {info.id for info in asyncio.run(list_sessions(store)).items} == {"one", "two"}
    assert store.verify() == []


def test_a_second_import_brings_what_is_new(path: Path, store: clew.Store) -> None:
    fill(path, one=TALK)
    import_sqlite(path, store)
    assert import_sqlite(path, store).entries == 0
    fill(path, one=[user("More?")], two=TALK)
    done = import_sqlite(path, store)
    assert (done.entries, done.left) == (5, [])
    assert items(store, "one") == [*TALK, user("More?")]
    asyncio.run(SQLiteSession("one", path).pop_item())
    fill(path, one=[user("Or rather")])
    import_sqlite(path, store)
    assert items(store, "one") == [*TALK, user("Or rather")]
    asyncio.run(SQLiteSession("one", path).pop_item())
    import_sqlite(path, store)
    assert items(store, "one") == TALK


def test_what_was_said_here_since_is_kept(path: Path, store: clew.Store) -> None:
    fill(path, one=TALK)
    import_sqlite(path, store)
    asyncio.run(ClewSession("one", store=store).add_items([user("here")]))
    assert import_sqlite(path, store).left == []
    assert items(store, "one") == [*TALK, user("here")]
    fill(path, one=[user("there")])
    done = import_sqlite(path, store)
    assert done.left == ["thread 'one' was written to on both sides since its import"]
    assert items(store, "one") == [*TALK, user("here")]


def test_a_thread_that_has_the_id_already_is_left_alone(path: Path, store: clew.Store) -> None:
    store.create("one").append_message(user("mine"))
    fill(path, one=TALK, two=TALK)
    done = import_sqlite(path, store)
    assert done.left == ["thread 'one' is there already, and did not come from an import"]
    assert done.threads == 1
    assert [entry.body for entry in store.get("one").path()] == [user("mine")]


def test_rows_that_are_no_json_are_told_and_the_rest_comes(path: Path, store: clew.Store) -> None:
    fill(path, one=TALK)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE agent_messages SET message_data = '{\"role\": ' WHERE id = 2")
    done = import_sqlite(path, store)
    assert len(done.left) == 1
    assert "session 'one': row 2 is no item" in done.left[0]
    assert items(store, "one") == [TALK[0], *TALK[2:]]


async def _branched(path: Path) -> dict[str, list[Any]]:
    session = AdvancedSQLiteSession(session_id="one", db_path=path, create_tables=True)
    spent = Usage(requests=1, input_tokens=5, output_tokens=2, total_tokens=7)
    result: Any = SimpleNamespace(context_wrapper=SimpleNamespace(usage=spent))
    await session.add_items(TALK)
    await session.store_run_usage(result)
    await session.add_items([user("second"), assistant("yes")])
    await session.create_branch_from_turn(2, "a")
    await session.add_items([user("other second")])
    await session.store_run_usage(result)
    await session.create_branch_from_turn(2, "b")
    await session.add_items([user("third second")])
    await session.create_branch_from_turn(1, "empty")
    await session.add_items([user("from the start")])
    found = {name: await session.get_items(branch_id=name) for name in ("main", "a", "b", "empty")}
    session.close()
    return found


def test_branches_come_over_as_forks_that_share_what_they_shared(
    path: Path, store: clew.Store
) -> None:
    theirs = asyncio.run(_branched(path))
    done = import_sqlite(path, store)
    assert (done.threads, done.left) == (4, [])
    assert {name: items(store, "one", name) for name in theirs} == theirs
    assert done.entries == 6 + 3
    session = ClewSession("one", store=store)
    usage = asyncio.run(session.get_session_usage())
    assert usage is not None
    assert (usage["total_tokens"], usage["total_turns"]) == (14, 2)
    assert asyncio.run(session.get_turn_usage(1))["total_tokens"] == 7  # type: ignore[call-overload]
    again = import_sqlite(path, store)
    assert (again.entries, again.left) == (0, [])
    assert {name: items(store, "one", name) for name in theirs} == theirs
    assert asyncio.run(session.get_session_usage()) == usage


async def _spent_before_the_first_turn(path: Path) -> None:
    session = AdvancedSQLiteSession(session_id="one", db_path=path, create_tables=True)
    result: Any = SimpleNamespace(context_wrapper=SimpleNamespace(usage=Usage(total_tokens=7)))
    await session.add_items([assistant("Good morning")])
    await session.store_run_usage(result)
    session.close()


def test_usage_before_the_first_turn_comes_over(path: Path, store: clew.Store) -> None:
    asyncio.run(_spent_before_the_first_turn(path))
    import_sqlite(path, store)
    found: Any = asyncio.run(ClewSession("one", store=store).get_turn_usage(0))
    assert found["total_tokens"] == 7


def test_files_that_are_none_of_the_sdk(tmp_path: Path, store: clew.Store) -> None:
    with pytest.raises(clew.NotFound):
        import_sqlite(tmp_path / "nowhere.db", store)
    assert not (tmp_path / "nowhere.db").exists()
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at" * 20)
    with pytest.raises(clew.Unsupported, match="is no file of the Agents SDK"):
        import_sqlite(tmp_path / "text.db", store)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)")
    with pytest.raises(clew.Unsupported, match="no table 'agent_sessions'"):
        import_sqlite(tmp_path / "other.db", store)


def test_the_names_of_tables_are_names(path: Path, store: clew.Store) -> None:
    hostile = 'x"; DROP TABLE agent_messages; --'
    fill(path, one=TALK)
    with pytest.raises(clew.Unsupported, match="no table"):
        import_sqlite(path, store, messages_table=hostile)
    assert import_sqlite(path, store).entries == 4
