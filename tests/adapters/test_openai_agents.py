"""ClewSession beside the SDK's own session: what its documentation says holds for both.

Every test that takes `make` runs on SQLiteSession and on ClewSession, with the same code.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("agents", reason="the Agents SDK is not installed")

from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool
from agents.memory import Session, SessionSettings
from openai_scripts import (
    ScriptedModel,
    assistant,
    call,
    calls,
    default_loop,
    output,
    says,
    user,
)
from places import ADDRESSES

import clew
from clew.adapters.openai_agents import ClewSession

Make = Callable[..., Any]
QUIET = RunConfig(tracing_disabled=True)
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # which is all that the SDK runs on


@pytest.fixture(params=["SQLiteSession", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes sessions by their id, all in one place; those of the SDK, and ours on each engine."""
    if request.param == "SQLiteSession":
        path = request.getfixturevalue("tmp_path") / "sessions.db"
        made: list[SQLiteSession] = []

        def theirs(id: str, **options: Any) -> SQLiteSession:
            made.append(SQLiteSession(id, path, **options))
            return made[-1]

        yield theirs
        for session in made:
            session.close()
        return
    with clew.open(ADDRESSES[request.param](request)) as store:
        yield lambda id, **options: ClewSession(id, store=store, **options)


# --- the protocol ---


def test_it_is_a_session(make: Make) -> None:
    assert isinstance(make("s"), Session)


async def test_items_come_back_in_order(make: Make) -> None:
    session = make("s")
    assert await session.get_items() == []
    given = [user("add"), call("c1"), output("c1"), assistant("3")]
    await session.add_items(given[:1])
    await session.add_items(given[1:])
    assert await session.get_items() == given


@pytest.mark.parametrize(
    ("limit", "texts"), [(1, "d"), (3, "bcd"), (4, "abcd"), (9, "abcd"), (0, ""), (-1, "abcd")]
)
async def test_a_limit_gives_the_newest_in_order(make: Make, limit: int, texts: str) -> None:
    session = make("s")
    await session.add_items([user(text) for text in "abcd"])
    assert [item["content"] for item in await session.get_items(limit)] == list(texts)
    assert [item["content"] for item in await session.get_items(limit=limit)] == list(texts)


async def test_the_settings_of_a_session_are_the_limit_unless_one_is_given(make: Make) -> None:
    session = make("s", session_settings=SessionSettings(limit=2))
    await session.add_items([user(text) for text in "abcd"])
    assert [item["content"] for item in await session.get_items()] == ["c", "d"]
    assert [item["content"] for item in await session.get_items(3)] == ["b", "c", "d"]
    assert make("s").session_settings == SessionSettings()
    assert make("s", session_settings={"limit": 1}).session_settings.limit == 1


async def test_adding_nothing_does_nothing(make: Make) -> None:
    session = make("s")
    await session.add_items([])
    assert await session.get_items() == []


async def test_pop_gives_the_newest_item_and_takes_it_off(make: Make) -> None:
    session = make("s")
    assert await session.pop_item() is None
    given = [user("a"), assistant("b"), user("c")]
    await session.add_items(given)
    assert await session.pop_item() == user("c")
    assert await session.get_items() == given[:2]
    await session.add_items([user("d")])
    assert await session.get_items() == [*given[:2], user("d")]
    assert [await session.pop_item() for _ in range(4)] == [user("d"), *given[1::-1], None]
    await session.add_items([user("e")])
    assert await session.get_items() == [user("e")]


async def test_what_was_popped_can_be_added_again(make: Make) -> None:
    session = make("s")
    await session.add_items([user("a"), assistant("b")])
    popped = await session.pop_item()
    await session.add_items([popped])
    assert await session.get_items() == [user("a"), assistant("b")]


async def test_a_cleared_session_begins_anew(make: Make) -> None:
    session = make("s")
    await session.clear_session()
    await session.add_items([user("a"), assistant("b")])
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.add_items([user("c")])
    assert await session.get_items() == [user("c")]


async def test_sessions_do_not_see_each_other(make: Make) -> None:
    one, other = make("one"), make("other")
    await one.add_items([user("of one")])
    await other.add_items([user("of other")])
    await other.clear_session()
    assert await one.get_items() == [user("of one")]
    assert await make("one").get_items() == [user("of one")]


@pytest.mark.parametrize("id", ["x') OR 1=1 --", "$[*]", "a#b", "../../etc/passwd", "ü\n'\""])
async def test_an_id_is_a_name_and_nothing_else(make: Make, id: str) -> None:
    await make("other").add_items([user("theirs")])
    session = make(id)
    assert await session.get_items() == []
    await session.add_items([user("mine")])
    await session.clear_session()
    assert await make("other").get_items() == [user("theirs")]


STRANGE = [
    {"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "gAAAAA=="},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "…"},
    {"type": "a_type_of_tomorrow", "data": {"deep": [1, 2.5, None, True, {"é": "\u2028"}]}},
    {"role": "critic", "content": "no such role"},
    {"role": "user", "content": 5},
    {"output": [{"type": "message"}]},
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}},
    {"py/object": "os.system", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    {},
    "only a text",
    [user("a list")],
]


async def test_what_is_no_item_comes_back_as_it_was(make: Make) -> None:
    session = make("s")
    await session.add_items(STRANGE)
    assert await session.get_items() == STRANGE
    assert await session.get_items(3) == STRANGE[-3:]
    assert [await session.pop_item() for _ in STRANGE] == STRANGE[::-1]


async def test_an_item_that_is_no_json_stops_them_all(make: Make) -> None:
    session = make("s")
    with pytest.raises((TypeError, clew.InvalidInput)):
        await session.add_items([user("fine"), {"role": "user", "content": object()}])
    assert await session.get_items() == []


# --- loops, threads, tasks ---


def test_one_session_in_several_event_loops(make: Make) -> None:
    session = make("s")
    for text in "abc":
        asyncio.run(session.add_items([user(text)]))
    assert [item["content"] for item in asyncio.run(session.get_items())] == list("abc")


def test_one_session_in_several_threads(make: Make) -> None:
    session = make("s")

    def add(name: str) -> None:
        for n in range(5):
            asyncio.run(session.add_items([user(f"{name}{n}"), assistant(f"{name}{n}")]))

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = asyncio.run(session.get_items())
    assert len(found) == 40
    # What was added together stands together.
    assert [i["content"] for i in found[::2]] == [i["content"][0]["text"] for i in found[1::2]]


async def test_tasks_that_pop_at_once_get_an_item_each(make: Make) -> None:
    session = make("s")
    await session.add_items([user(str(n)) for n in range(12)])
    popped = await asyncio.gather(*[session.pop_item() for _ in range(12)])
    assert sorted(int(item["content"]) for item in popped) == list(range(12))
    assert await session.get_items() == []


async def test_a_cancelled_add_is_stored_whole_or_not_at_all(make: Make) -> None:
    session = make("s")
    for n in range(20):
        task = asyncio.create_task(session.add_items([user(f"{n}a"), user(f"{n}b")]))
        for _ in range(n % 4):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:  # a worker was quicker than three turns of the loop
            await task
    texts = [item["content"] for item in await session.get_items()]
    assert [text[:-1] for text in texts[::2]] == [text[:-1] for text in texts[1::2]]


# --- under the runner ---


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(*replies: list[Any]) -> tuple[Agent[Any], ScriptedModel]:
    model = ScriptedModel(*replies)
    return Agent(name="adder", model=model, tools=[add]), model


SUM = ([calls("c1", "add", '{"a":1,"b":2}')], [says("It is 3.")])


async def test_a_run_with_a_tool_is_stored_and_the_next_one_sees_it(make: Make) -> None:
    first, _ = agent(*SUM)
    result = await Runner.run(first, "1 + 2?", session=make("s"), run_config=QUIET)
    assert result.final_output == "It is 3."
    second, model = agent([says("As before.", "msg_2")])
    await Runner.run(second, "Again?", session=make("s"), run_config=QUIET)
    kinds = [item.get("type", "user") for item in model.requests[0]]
    assert kinds == ["user", "function_call", "function_call_output", "message", "user"]
    assert len(await make("s").get_items()) == 6


def test_run_sync(make: Make) -> None:
    session = make("s")
    with default_loop():
        for number in "12":
            one, model = agent([says("Yes.", f"msg_{number}")])
            Runner.run_sync(one, f"Question {number}?", session=session, run_config=QUIET)
    assert [item["role"] for item in model.requests[0]] == ["user", "assistant", "user"]
    assert len(asyncio.run(session.get_items())) == 4


async def test_a_streamed_run_is_stored(make: Make) -> None:
    one, _ = agent(*SUM)
    result = Runner.run_streamed(one, "1 + 2?", session=make("s"), run_config=QUIET)
    async for _ in result.stream_events():
        pass
    assert len(await make("s").get_items()) == 4


async def test_a_run_that_fails_leaves_a_history_that_goes_on(make: Make) -> None:
    one, _ = agent(*SUM[:1])  # the model has nothing more to say: the second request fails
    with pytest.raises(IndexError):
        await Runner.run(one, "1 + 2?", session=make("s"), run_config=QUIET)
    two, model = agent([says("3.")])
    await Runner.run(two, "Well?", session=make("s"), run_config=QUIET)
    answered = [item["call_id"] for item in model.requests[0] if "output" in item]
    called = [item["call_id"] for item in model.requests[0] if item.get("type") == "function_call"]
    assert answered == called
