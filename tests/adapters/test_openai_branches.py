"""Branches, turns and usage: as AdvancedSQLiteSession has them, and from any item."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("agents", reason="the Agents SDK is not installed")

from agents import Agent, RunConfig, Runner, Usage
from agents.extensions.memory import AdvancedSQLiteSession
from openai.types.responses.response_usage import InputTokensDetails
from openai_scripts import ScriptedModel, assistant, call, output, says, user
from places import ADDRESSES

import clew
from clew.adapters.openai_agents import ClewSession, list_sessions

Make = Callable[..., Any]
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["AdvancedSQLiteSession", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    if request.param == "AdvancedSQLiteSession":
        path = request.getfixturevalue("tmp_path") / "sessions.db"
        made: list[AdvancedSQLiteSession] = []

        def theirs(id: str) -> AdvancedSQLiteSession:
            made.append(AdvancedSQLiteSession(session_id=id, db_path=path, create_tables=True))
            return made[-1]

        yield theirs
        for session in made:
            session.close()
        return
    with clew.open(ADDRESSES[request.param](request)) as store:
        yield lambda id: ClewSession(id, store=store)


TALK = [
    user("What is 1 + 2?"),
    call("c1"),
    output("c1"),
    assistant("3"),
    user([{"type": "input_text", "text": "And 3 + 4 %?"}]),  # type: ignore[arg-type]
    assistant("7"),
    user("Thanks"),
]


async def talk(session: Any) -> Any:
    for item in TALK:
        await session.add_items([item])
    return session


# --- branches ---


async def test_a_branch_begins_before_a_turn_and_is_switched_to(make: Make) -> None:
    session = await talk(make("s"))
    name = await session.create_branch_from_turn(2)
    assert await session.get_items() == TALK[:4]
    await session.add_items([user("And 5 + 6?")])
    assert await session.get_items() == [*TALK[:4], user("And 5 + 6?")]
    assert await session.get_items(branch_id="main") == TALK
    await session.switch_to_branch("main")
    assert await session.get_items() == TALK
    assert await session.get_items(branch_id=name) == [*TALK[:4], user("And 5 + 6?")]
    assert await session.get_items(1, branch_id=name) == [user("And 5 + 6?")]


async def test_branches_of_branches(make: Make) -> None:
    session = await talk(make("s"))
    await session.create_branch_from_turn(3, "one")
    await session.add_items([user("third"), assistant("yes")])
    await session.create_branch_from_turn(3, "two")
    await session.add_items([user("another third")])
    assert await session.get_items() == [*TALK[:6], user("another third")]
    assert await session.get_items(branch_id="one") == [*TALK[:6], user("third"), assistant("yes")]
    found = {branch["branch_id"]: branch for branch in await session.list_branches()}
    assert list(found) == ["main", "one", "two"]
    assert [found[name]["message_count"] for name in found] == [7, 8, 7]
    assert [found[name]["user_turns"] for name in found] == [3, 3, 3]
    assert [found[name]["is_current"] for name in found] == [False, False, True]


async def test_popping_on_a_branch_leaves_the_others_as_they_are(make: Make) -> None:
    session = await talk(make("s"))
    await session.create_branch_from_turn(3, "b")
    assert await session.pop_item() == TALK[5]
    assert await session.get_items() == TALK[:5]
    assert await session.get_items(branch_id="main") == TALK


async def test_a_branch_of_the_first_turn_is_empty_until_it_is_written(make: Make) -> None:
    session = await talk(make("s"))
    await session.create_branch_from_turn(1, "b")
    assert await session.get_items() == []
    await session.add_items([user("from the start")])
    assert await session.get_items() == [user("from the start")]
    assert await session.get_items(branch_id="main") == TALK


async def test_a_branch_by_what_was_said(make: Make) -> None:
    session = await talk(make("s"))
    await session.create_branch_from_content("3 + 4 %", "b")
    assert await session.get_items() == TALK[:4]
    with pytest.raises(ValueError, match="No user turns found containing 'nobody said'"):
        await session.create_branch_from_content("nobody said")


@pytest.mark.parametrize("turn", [0, 4, 99])
async def test_a_turn_that_is_not_there(make: Make, turn: int) -> None:
    session = await talk(make("s"))
    with pytest.raises(ValueError, match=f"Turn {turn} does not contain a user message"):
        await session.create_branch_from_turn(turn)
    assert [branch["branch_id"] for branch in await session.list_branches()] == ["main"]


async def test_names_of_branches_are_used_once(make: Make) -> None:
    session = await talk(make("s"))
    for name in ("", "  "):
        with pytest.raises(ValueError, match="cannot be empty"):
            await session.create_branch_from_turn(2, name)
    await session.create_branch_from_turn(2, "b")
    await session.switch_to_branch("main")
    with pytest.raises(ValueError, match="has already been used"):
        await session.create_branch_from_turn(2, "b")
    await session.delete_branch("b")
    for name in ("b", "main"):
        with pytest.raises(ValueError, match="has already been used"):
            await session.create_branch_from_turn(2, name)
    made = set()
    for _ in range(3):
        made.add(await session.create_branch_from_turn(2))
        await session.switch_to_branch("main")
    assert len(made) == 3


async def test_deleting_branches(make: Make) -> None:
    session = await talk(make("s"))
    await session.create_branch_from_turn(2, "b")
    with pytest.raises(ValueError, match="current branch 'b'"):
        await session.delete_branch("b")
    with pytest.raises(ValueError, match="Cannot delete the 'main' branch"):
        await session.delete_branch("main")
    for name, told in (("", "cannot be empty"), ("nowhere", "does not exist")):
        with pytest.raises(ValueError, match=told):
            await session.delete_branch(name)
    await session.delete_branch("b", force=True)
    assert await session.get_items() == TALK
    with pytest.raises(ValueError, match="Branch 'b' does not exist"):
        await session.switch_to_branch("b")
    assert [branch["branch_id"] for branch in await session.list_branches()] == ["main"]


async def test_clearing_clears_the_branches_too(make: Make) -> None:
    session = await talk(make("s"))
    await session.create_branch_from_turn(2, "b")
    await session.clear_session()
    assert await session.get_items() == []
    with pytest.raises(ValueError, match="does not exist"):
        await session.switch_to_branch("b")
    await session.add_items([user("anew")])
    assert await session.get_items(branch_id="main") == [user("anew")]


# --- turns and tools ---


async def test_turns_can_be_listed_and_found(make: Make) -> None:
    session = await talk(make("s"))
    await session.add_items([user("x" * 150)])
    turns = await session.get_conversation_turns()
    assert [turn["turn"] for turn in turns] == [1, 2, 3, 4]
    assert turns[0]["content"] == turns[0]["full_content"] == "What is 1 + 2?"
    assert turns[1]["full_content"] == TALK[4]["content"]
    assert turns[3]["content"] == "x" * 100 + "..."
    assert all(turn["can_branch"] and turn["timestamp"] for turn in turns)
    assert [turn["turn"] for turn in await session.find_turns_by_content("WHAT IS")] == [1]
    assert [turn["turn"] for turn in await session.find_turns_by_content("3 + 4 %")] == [2]
    assert await session.find_turns_by_content("_") == []


async def test_tools_are_counted_by_turn(make: Make) -> None:
    session = await talk(make("s"))
    await session.add_items([call("c2"), output("c2"), call("c3", "times"), output("c3")])
    assert await session.get_tool_usage() == [("add", 1, 1), ("add", 1, 3), ("times", 1, 3)]
    by_turns = await session.get_conversation_by_turns()
    assert [one["type"] for one in by_turns[1]] == [
        "user",
        "function_call",
        "function_call_output",
        "assistant",
    ]
    assert by_turns[1][1]["tool_name"] == "add"
    assert by_turns[2] == [
        {"type": "user", "tool_name": None},
        {"type": "assistant", "tool_name": None},
    ]


# --- usage ---


async def test_usage_of_runs_is_stored_by_turn(make: Make) -> None:
    session = make("s")
    assert await session.get_session_usage() is None
    model = ScriptedModel([says("a", "m1")], [says("b", "m2")])
    for text in ("one", "two"):
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(
            Agent(name="a", model=model), text, session=session, run_config=config
        )
        await session.store_run_usage(result)
        await session.store_run_usage(result)  # a second time, which counts once
    assert await session.get_session_usage() == {
        "requests": 2,
        "input_tokens": 200,
        "output_tokens": 20,
        "total_tokens": 220,
        "total_turns": 2,
    }
    turns = await session.get_turn_usage()
    assert [turn["user_turn_number"] for turn in turns] == [1, 2]
    assert (await session.get_turn_usage(2))["total_tokens"] == 110
    assert await session.get_turn_usage(3) == {}
    await session.clear_session()
    assert await session.get_session_usage() is None


async def test_usage_of_a_branch_is_its_own(make: Make) -> None:
    session = await talk(make("s"))
    spent = Usage(requests=1, input_tokens=5, output_tokens=2, total_tokens=7)
    spent.input_tokens_details = InputTokensDetails(cached_tokens=3, cache_write_tokens=0)
    result = SimpleNamespace(context_wrapper=SimpleNamespace(usage=spent))
    await session.store_run_usage(result)
    await session.create_branch_from_turn(3, "b")
    await session.add_items([user("on the branch")])
    await session.store_run_usage(result)
    assert (await session.get_session_usage())["total_tokens"] == 14
    assert (await session.get_session_usage("b"))["total_tokens"] == 7
    found = await session.get_turn_usage(3)
    assert found["input_tokens_details"]["cached_tokens"] == 3


async def test_usage_before_the_user_has_said_anything_is_that_of_turn_0(make: Make) -> None:
    session = make("s")
    result = SimpleNamespace(context_wrapper=SimpleNamespace(usage=Usage(total_tokens=7)))
    await session.store_run_usage(result)
    assert await session.get_session_usage() is None  # there is nothing that it could be about
    await session.add_items([assistant("Good morning"), call("c1"), output("c1")])
    await session.store_run_usage(result)
    await session.store_run_usage(result)
    await session.add_items([user("Hello")])
    await session.store_run_usage(result)
    assert [turn["user_turn_number"] for turn in await session.get_turn_usage()] == [0, 1]
    assert (await session.get_turn_usage(0))["total_tokens"] == 7
    assert (await session.get_session_usage())["total_tokens"] == 14


async def test_a_turn_keeps_its_usage_when_its_last_item_is_popped(make: Make) -> None:
    session = await talk(make("s"))
    await session.add_items([assistant("You are welcome")])
    result = SimpleNamespace(context_wrapper=SimpleNamespace(usage=Usage(total_tokens=7)))
    await session.store_run_usage(result)
    await session.pop_item()
    assert (await session.get_turn_usage(3))["total_tokens"] == 7


async def test_tools_that_the_sdk_loads_later_have_their_own_names(make: Make) -> None:
    session = make("s")
    loaded: Any = {**call("c1"), "name": "tool", "namespace": "tool"}
    of_a_namespace: Any = {**call("c2"), "name": "tool", "namespace": "crm"}
    searched: Any = {"type": "tool_search_output", "tools": []}
    listed: Any = {"type": "mcp_list_tools", "id": "m", "server_label": "crm", "tools": []}
    await session.add_items([user("Hello"), searched, loaded, of_a_namespace, listed])
    assert sorted(await session.get_tool_usage()) == [
        ("crm.tool", 1, 1),
        ("tool", 1, 1),
        ("tool_search", 1, 1),
    ]
    assert (await session.get_conversation_by_turns())[1][-1]["tool_name"] is None


async def test_what_a_message_of_parts_says_is_shown_in_the_same_way(make: Make) -> None:
    session = await talk(make("s"))
    (turn,) = await session.find_turns_by_content("3 + 4")
    assert turn["content"] == '[{"type": "input_text", "text": "And 3 + 4 %?"}]'


# --- ours alone ---


@pytest.fixture
async def session(store: clew.Store) -> ClewSession:
    return await talk(ClewSession("s", store=store))


async def test_a_branch_from_any_item(session: ClewSession) -> None:
    entries = session.thread.path()
    await session.create_branch_from_item(entries[1].id, "inside of the turn")
    assert await session.get_items() == TALK[:2]
    await session.switch_to_branch("main")
    await session.create_branch_from_item(branch_name="here")
    assert await session.get_items() == TALK
    await session.create_branch_from_turn(-2, "from the end")
    assert await session.get_items() == TALK[:4]


async def test_a_branch_is_one_row_and_copies_nothing(session: ClewSession) -> None:
    before = session.store.stats().entries
    await session.create_branch_from_turn(-1, "b")
    assert session.store.stats().entries == before
    assert session.thread.info.origin.thread == "s"
    assert session.store.verify() == []


async def test_a_process_that_comes_later_opens_a_branch_by_its_name(session: ClewSession) -> None:
    await session.create_branch_from_turn(2, "b")
    later = ClewSession("s", store=session.store, branch_id="b")
    assert later.branch_id == "b"
    assert await later.get_items() == TALK[:4]
    with pytest.raises(ValueError, match="Branch 'c' does not exist"):
        ClewSession("s", store=session.store, branch_id="c")


async def test_a_branch_is_no_session_and_no_other_session_a_branch(session: ClewSession) -> None:
    """Ids of threads are made of those of session and branch, which must not be confused."""
    await session.create_branch_from_turn(2, "b")
    forged = ClewSession("s#b", store=session.store)
    for attempt in (forged.get_items, forged.pop_item, lambda: forged.add_items([user("x")])):
        with pytest.raises(clew.InvalidInput, match="branch 'b' of session 's'"):
            await attempt()
    await ClewSession("s#c", store=session.store).add_items([user("mine")])
    with pytest.raises(ValueError, match="does not exist"):
        await session.switch_to_branch("c")
    with pytest.raises(ValueError, match="already been used"):
        await session.create_branch_from_item(branch_name="c")
    nested = await talk(ClewSession("s#d", store=session.store))
    await nested.create_branch_from_turn(2, "e")
    with pytest.raises(ValueError, match="does not exist"):
        await session.switch_to_branch("d#e")


async def test_a_branch_that_was_deleted_elsewhere_is_not_written(session: ClewSession) -> None:
    await session.create_branch_from_turn(2, "b")
    other = ClewSession("s", store=session.store)
    await other.delete_branch("b")
    with pytest.raises(clew.NotFound, match="was deleted"):
        await session.add_items([user("lost?")])


async def test_sessions_are_listed_and_branches_are_not(session: ClewSession) -> None:
    await session.create_branch_from_turn(2, "b")
    session.store.create("of another program")
    await ClewSession("t", store=session.store).add_items([user("hello")])
    page = await list_sessions(session.store, limit=1)
    assert [info.id for info in page.items] == ["t"]
    page = await list_sessions(session.store, cursor=page.cursor)
    assert [info.id for info in page.items] == ["s"]
    assert page.cursor is None
