"""What ADK's documents say of a session service, asked of its own services and of ours alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from places import ADDRESSES

pytest.importorskip("google.adk", reason="google-adk is not installed")

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from google_adk_support import WHO, ask, calls, changes, compacts, runner_of, says, texts

from clew.adapters.google_adk import ClewSessionService

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def opened(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[BaseSessionService]:
    if kind == "in memory":
        yield InMemorySessionService()
    elif kind == "adk's sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        yield SqliteSessionService(str(folder / "adk.db"))
    else:
        ours = ClewSessionService(ADDRESSES[kind](request))
        yield ours
        await ours.close()


ALL = ["in memory", "adk's sqlite", "sqlite", "postgres"]


@pytest.fixture(params=ALL)
async def service(request: pytest.FixtureRequest) -> AsyncIterator[BaseSessionService]:
    async with opened(request.param, request) as made:
        yield made


@pytest.fixture(params=[kind for kind in ALL if kind != "in memory"])
async def durable(request: pytest.FixtureRequest) -> AsyncIterator[BaseSessionService]:
    """Those that keep sessions apart from the copies that they give."""
    async with opened(request.param, request) as made:
        yield made


# --- creating, getting, deleting --------------------------------------------------------------


async def test_a_session_that_is_not_there_is_none(service: BaseSessionService) -> None:
    assert await service.get_session(**WHO, session_id="s") is None
    await service.create_session(**WHO, session_id="s")
    assert await service.get_session(app_name="travel", user_id="bob", session_id="s") is None
    assert await service.get_session(app_name="other", user_id="ann", session_id="s") is None


async def test_a_session_comes_back_as_it_was_created(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="s", state={"a": 1, "b": {"c": [None]}})
    assert (made.app_name, made.user_id, made.id) == ("travel", "ann", "s")
    assert made.state == {"a": 1, "b": {"c": [None]}}
    assert await service.get_session(**WHO, session_id="s") == made


async def test_a_session_without_an_id_gets_one_of_its_own(service: BaseSessionService) -> None:
    made = [await service.create_session(**WHO, session_id=id) for id in (None, "", "  ")]
    assert len({session.id for session in made if session.id}) == 3


async def test_blanks_around_an_id_do_not_count(service: BaseSessionService) -> None:
    made = await service.create_session(**WHO, session_id="  s ")
    assert made.id == "s"
    assert await service.get_session(**WHO, session_id=" s") == made


async def test_an_id_can_be_used_once_by_each_user(service: BaseSessionService) -> None:
    await service.create_session(**WHO, session_id="s")
    await service.create_session(app_name="travel", user_id="bob", session_id="s")
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**WHO, session_id="s")


async def test_a_deleted_session_is_gone_and_its_id_is_free(service: BaseSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s", state={"a": 1})
    await service.append_event(session, says("Hello"))
    await service.delete_session(**WHO, session_id="s")
    await service.delete_session(**WHO, session_id="s")
    assert await service.get_session(**WHO, session_id="s") is None
    assert (await service.list_sessions(**WHO)).sessions == []
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, says("Anybody there?"))
    again = await service.create_session(**WHO, session_id="s")
    assert (again.state, again.events) == ({}, [])


# --- events -----------------------------------------------------------------------------------


async def test_get_session_equals_the_session_in_hand(service: BaseSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s", state={"a": 1})
    picture = types.Blob(data=b"\xff\xfe\xfb\x00", mime_type="image/png")
    events = [
        says("Hello", timestamp=1_700_000_000.123456),
        Event(
            author="guide",
            invocation_id="run-1",
            content=types.Content(
                role="model",
                parts=[
                    types.Part(text="I look", thought=True, thought_signature=b"\x00\xff"),
                    types.Part(
                        function_call=types.FunctionCall(id="c1", name="look", args={"at": None})
                    ),
                ],
            ),
            long_running_tool_ids={"c1", "c0"},
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=7),
            custom_metadata={"k": [1.5, None]},
            branch="guide.looker",
        ),
        Event(
            author="guide",
            invocation_id="run-1",
            content=types.Content(
                role="user",
                parts=[
                    types.Part(
                        function_response=types.FunctionResponse(
                            id="c1", name="look", response={"seen": "ä€😀"}
                        )
                    ),
                    types.Part(inline_data=picture),
                ],
            ),
            actions=EventActions(state_delta={"a": None, "b": {}}, artifact_delta={"f.txt": 3}),
        ),
        Event(author="guide", invocation_id="run-1", error_code="LIMIT", error_message="stop"),
    ]
    for event in events:
        given = await service.append_event(session, event)
        assert given == event
        assert session.last_update_time == pytest.approx(event.timestamp, abs=1e-6)
    again = await service.get_session(**WHO, session_id="s")
    assert again == session
    assert again.events == events
    assert again.state == {"a": None, "b": {}}


async def test_events_of_one_moment_stay_in_order(service: BaseSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s")
    for n in range(20):
        await service.append_event(session, says(str(n), timestamp=1_700_000_000.5))
    again = await service.get_session(**WHO, session_id="s")
    assert texts(again.events) == [str(n) for n in range(20)]


async def test_a_partial_event_is_not_kept(service: BaseSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s")
    event = says("Hel", partial=True)
    assert await service.append_event(session, event) is event
    assert session.events == []
    assert (await service.get_session(**WHO, session_id="s")).events == []


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, ["9"]), (3, ["7", "8", "9"]), (99, 10)]
)
async def test_the_newest_events_alone(
    service: BaseSessionService, count: int, expected: Any
) -> None:
    session = await service.create_session(**WHO, session_id="s")
    for n in range(10):
        event = says(str(n), timestamp=1_700_000_000.0 + n)
        event.actions.state_delta = {"n": n, f"k{n}": n}
        await service.append_event(session, event)
    config = GetSessionConfig(num_recent_events=count)
    some = await service.get_session(**WHO, session_id="s", config=config)
    assert texts(some.events) == (expected if isinstance(expected, list) else texts(session.events))
    assert some.state == session.state, (
        "the state does not depend on the events that were asked for"
    )


async def test_events_from_a_time_on(service: BaseSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s")
    for n in range(200):
        await service.append_event(session, says(str(n), timestamp=1_700_000_000.0 + n))

    async def some(after: float, count: int | None = None) -> list[str | None]:
        config = GetSessionConfig(after_timestamp=after, num_recent_events=count)
        found = await service.get_session(**WHO, session_id="s", config=config)
        return texts(found.events)

    assert await some(1_700_000_197.0) == ["197", "198", "199"], "an event at the time is there"
    assert await some(1_700_000_197.5) == ["198", "199"]
    assert await some(1_700_001_000.0) == []
    assert len(await some(1_699_999_999.0)) == 200
    assert await some(1_700_000_100.0, 2) == ["198", "199"]
    assert await some(1_700_000_199.0, 9) == ["199"]


def test_a_negative_number_of_events_is_refused() -> None:
    with pytest.raises(ValueError, match="num_recent_events"):
        GetSessionConfig(num_recent_events=-1)


async def test_an_event_goes_on_after_a_partial_read(service: BaseSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s")
    for n in range(5):
        await service.append_event(session, says(str(n)))
    config = GetSessionConfig(num_recent_events=1)
    some = await service.get_session(**WHO, session_id="s", config=config)
    await service.append_event(some, says("5"))
    again = await service.get_session(**WHO, session_id="s")
    assert texts(again.events) == ["0", "1", "2", "3", "4", "5"]


# --- state ------------------------------------------------------------------------------------


async def test_state_has_four_scopes(service: BaseSessionService) -> None:
    state = {"own": 1, "app:all": 2, "user:mine": 3, "temp:now": 4}
    session = await service.create_session(**WHO, session_id="s1", state=state)
    assert session.state == {"own": 1, "app:all": 2, "user:mine": 3}
    await service.append_event(
        session, changes(own=10, app__all=20, user__mine=30, temp__now=40, app__new=[1])
    )
    assert session.state["temp:now"] == 40, "what is temporary is visible in the run"
    kept = {"own": 10, "app:all": 20, "user:mine": 30, "app:new": [1]}
    assert (await service.get_session(**WHO, session_id="s1")).state == kept
    second = await service.create_session(**WHO, session_id="s2")
    assert second.state == {"app:all": 20, "user:mine": 30, "app:new": [1]}
    other = await service.create_session(app_name="travel", user_id="bob", session_id="s3")
    assert other.state == {"app:all": 20, "app:new": [1]}
    assert (await service.create_session(app_name="b", user_id="ann")).state == {}


async def test_what_is_temporary_is_not_in_the_stored_event(service: BaseSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s")
    await service.append_event(session, changes(temp__a=1, b=2))
    stored = await service.get_session(**WHO, session_id="s")
    assert stored.events[0].actions.state_delta == {"b": 2}


async def test_the_state_of_a_user_without_a_session(service: BaseSessionService) -> None:
    assert await service.get_user_state(**WHO) == {}
    session = await service.create_session(**WHO, session_id="s", state={"user:a": 1, "b": 2})
    await service.append_event(session, changes(user__c={"d": None}))
    assert await service.get_user_state(**WHO) == {"a": 1, "c": {"d": None}}
    assert await service.get_user_state(app_name="travel", user_id="bob") == {}
    (await service.get_user_state(**WHO))["c"]["d"] = "changed"
    assert await service.get_user_state(**WHO) == {"a": 1, "c": {"d": None}}


async def test_what_is_given_is_a_copy(service: BaseSessionService) -> None:
    given = {"a": {"b": [1]}, "app:c": {"d": 2}}
    session = await service.create_session(**WHO, session_id="s", state=given)
    session.state["a"]["b"].append("changed")
    session.state["app:c"]["d"] = "changed"
    again = await service.get_session(**WHO, session_id="s")
    again.state["app:c"]["d"] = "changed"
    again.events.append(says("changed"))
    (await service.list_sessions(**WHO)).sessions[0].state["app:c"]["d"] = "changed"
    last = await service.get_session(**WHO, session_id="s")
    assert (last.state, last.events) == ({"a": {"b": [1]}, "app:c": {"d": 2}}, [])


async def test_values_of_state_come_back_exactly(durable: BaseSessionService) -> None:
    values = {
        "f": 0.1 + 0.2,
        "i": 2**60,
        "t": "\u2028'\"\\%",
        "n": None,
        "e": {},
        "": "empty",
        "x" * 900: 1,
    }
    session = await durable.create_session(**WHO, session_id="s", state=values)
    await durable.append_event(
        session, changes(**{f"{key}2": value for key, value in values.items()})
    )
    again = await durable.get_session(**WHO, session_id="s")
    assert again.state == values | {f"{key}2": value for key, value in values.items()}


# --- lists ------------------------------------------------------------------------------------


async def test_lists_are_ordered_by_the_last_update(service: BaseSessionService) -> None:
    made = {}
    for user in ("ann", "bob"):
        for n in range(3):
            id = f"{user}-{n}"
            state = {"n": n, "user:who": user, "app:x": 1}
            made[id] = await service.create_session(
                app_name="travel", user_id=user, session_id=id, state=state
            )
    await service.create_session(app_name="other", user_id="ann", session_id="not here")
    for second, id in enumerate(["ann-2", "bob-0", "ann-0", "bob-2", "bob-1", "ann-1"]):
        await service.append_event(made[id], says("Hi", timestamp=2e9 + second))
    every = (await service.list_sessions(app_name="travel")).sessions
    assert [s.id for s in every] == ["ann-2", "bob-0", "ann-0", "bob-2", "bob-1", "ann-1"]
    assert [s.last_update_time for s in every] == [2e9 + second for second in range(6)]
    assert all(s.events == [] for s in every)
    assert every[1].state == {"n": 0, "user:who": "bob", "app:x": 1}
    anns = (await service.list_sessions(**WHO)).sessions
    assert [s.id for s in anns] == ["ann-2", "ann-0", "ann-1"]
    assert (await service.list_sessions(app_name="none")).sessions == []
    assert (await service.list_sessions(app_name="travel", user_id="eve")).sessions == []


# --- two copies of a session ------------------------------------------------------------------


async def test_a_stale_copy_is_refused(durable: BaseSessionService) -> None:
    first = await durable.create_session(**WHO, session_id="s")
    second = await durable.get_session(**WHO, session_id="s")
    await durable.append_event(first, says("mine"))
    with pytest.raises(StaleSessionError):
        await durable.append_event(second, says("mine, too", timestamp=first.last_update_time))
    fresh = await durable.get_session(**WHO, session_id="s")
    assert texts(fresh.events) == ["mine"]
    await durable.append_event(fresh, says("then"))
    assert texts((await durable.get_session(**WHO, session_id="s")).events) == ["mine", "then"]


# --- the runner -------------------------------------------------------------------------------


async def test_a_run_with_a_tool_and_a_second_turn(service: BaseSessionService) -> None:
    runner, model = runner_of(service, calls("Rome"), "Rome is in Italy.", "You are welcome.")
    await service.create_session(**WHO, session_id="s")
    await ask(runner, "Where is Rome?")
    await ask(runner, "Thanks!")
    kept = await service.get_session(**WHO, session_id="s")
    authors = " ".join(event.author for event in kept.events if event.content)
    assert authors == "user guide guide guide user guide"
    assert kept.state["last"] == "You are welcome."
    assert [len(contents) for contents in model.asked] == [1, 3, 5]


async def test_a_rewind_takes_messages_and_state_back(service: BaseSessionService) -> None:
    runner, model = runner_of(service, "One.", "Two.", "Three.", "Four.")
    await service.create_session(**WHO, session_id="s")
    await ask(runner, "First?")
    second = await ask(runner, "Second?")
    await ask(runner, "Third?")
    await runner.rewind_async(
        user_id="ann", session_id="s", rewind_before_invocation_id=second[0].invocation_id
    )
    kept = await service.get_session(**WHO, session_id="s")
    assert kept.state["last"] == "One."
    assert kept.events[-1].actions.rewind_before_invocation_id == second[0].invocation_id
    await ask(runner, "Again?")
    assert [content.parts[0].text for content in model.asked[-1]] == ["First?", "One.", "Again?"]


async def test_a_compaction_is_an_event_like_any_other(service: BaseSessionService) -> None:
    session = await service.create_session(**WHO, session_id="s")
    for n in range(4):
        await service.append_event(session, says(str(n), timestamp=1_700_000_000.0 + n))
    await service.append_event(
        session, compacts("It was counted.", 1_700_000_000.0, 1_700_000_002.0)
    )
    assert (await service.get_session(**WHO, session_id="s")) == session
