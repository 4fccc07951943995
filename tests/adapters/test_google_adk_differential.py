"""Random programs on our session service and on ADK's InMemorySessionService say the same.

What differs by intention: that one takes an event from a stale copy of a session, ours refuses it
whatever the clock says. SqliteSessionService is no reference for state: it merges -0.0 to 0.0.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
import time
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="google-adk is not installed")

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types
from google_adk_support import agent_of
from programs import Ours, each, same

from clew.adapters.google_adk import ClewSessionService

KEYS = ["a", "b", "app:x", "app:a", "user:y", "user:a", "temp:t", "odd/%\u00e9", "k" * 300]
KEYS += ["", "app:", "user:", "a.b"]
VALUES: list[Any] = [1, 0, -5, 2.5, 1.0, -0.0, 1e300, "text", "", "é\u2028", None, True, 10**15]
VALUES += [[], {}, [1, {"a": None}], {"z": 1, "a": {"b": []}}]
STEPS_APART = [0.0, 0.0, 1.0, 0.000001, 0.1234567, -2.0]
REFUSED = (AlreadyExistsError, StaleSessionError, SessionNotFoundError)


def changes(dice: random.Random) -> dict[str, Any]:
    return {dice.choice(KEYS): dice.choice(VALUES) for _ in range(dice.randint(0, 4))}


def content(dice: random.Random, number: int) -> types.Content | None:
    call = types.FunctionCall(id=f"c{number}", name="f", args={"n": number})
    answer = types.FunctionResponse(id=f"c{number}", name="f", response={"n": number})
    part = dice.choice(
        [
            types.Part(text=f"text {number}"),
            types.Part(function_call=call),
            types.Part(function_response=answer),
            None,
        ]
    )
    return part and types.Content(role=dice.choice(["user", "model"]), parts=[part])


def told(session: Any, *, timed: bool = True) -> Any:
    if session is None:
        return None
    said = [
        session.id,
        session.app_name,
        session.user_id,
        sorted(session.state.items(), key=str),
        [event.model_dump(mode="json") for event in session.events],
    ]
    return [*said, round(session.last_update_time, 6)] if timed else said


class Program:
    """Sessions of some apps and users here and there, and the copies of them that callers hold."""

    def __init__(self, dice: random.Random, ours: Ours[ClewSessionService]) -> None:
        self.dice, self.ours, self.theirs = dice, ours, InMemorySessionService()
        self.held: list[tuple[Any, Any, Any, Any]] = []  # ours, theirs, whose, as it was then
        self.now: dict[
            Any, Any
        ] = {}  # each session as it is: how often it was made, its last event
        self.clock = time.time() + 100
        self.number = 0

    async def run(self) -> None:
        steps = [self.create, self.create, self.get, self.get, self.append, self.append]
        steps += [self.append, self.append, self.again, self.list, self.delete, self.rewind]
        for number in range(self.dice.randint(5, 25)):
            self.number = number
            if self.dice.random() < 0.08:
                self.ours.reopen()
            app = self.dice.choice(["app", "app", "app/2"])
            user = self.dice.choice(["u", "u", "v"])
            name = self.dice.choice(["s", "s", "t"])
            await self.dice.choice(steps)(
                {"app_name": app, "user_id": user, "session_id": name}, (app, user, name)
            )

    async def create(self, key: Any, whose: Any) -> None:
        state = changes(self.dice)
        given = {**key, "session_id": self.dice.choice(["", " "]) + key["session_id"]}
        made: list[Any] = []
        for service in (self.ours.any, self.theirs):
            try:
                made.append(await service.create_session(**given, state=copy.deepcopy(state)))
            except AlreadyExistsError:
                made.append(None)
        mine, their = made
        same(told(mine, timed=False), told(their, timed=False))
        if mine is not None:
            self.now[whose] = None
            self.hold(mine, their, whose)

    async def get(self, key: Any, whose: Any) -> None:
        config = None
        if self.dice.random() < 0.6:
            after = self.dice.choice([None, *[self.clock + step for step in STEPS_APART]])
            count = self.dice.choice([None, 0, 1, 2, 5])
            config = GetSessionConfig(num_recent_events=count, after_timestamp=after)
        mine = await self.ours.any.get_session(**key, config=config)
        their = await self.theirs.get_session(**key, config=config)
        # When a session was made each service tells by its own clock.
        timed = self.now.get(whose) is not None
        same(told(mine, timed=timed), told(their, timed=timed))
        if mine is not None:
            self.hold(mine, their, whose)

    def hold(self, mine: Any, their: Any, whose: Any) -> None:
        self.held.append((mine, their, whose, self.now[whose]))

    async def append(self, key: Any, whose: Any) -> None:
        if not self.held:
            return
        copies = self.held if self.dice.random() < 0.2 else self.held[-3:]
        held = self.dice.choice(copies)
        mine, their, whose, then = held
        self.clock += self.dice.choice(STEPS_APART)
        event = Event(
            author=self.dice.choice(["user", "guide"]),
            invocation_id=self.dice.choice(["r1", "r2", "r3"]),
            content=content(self.dice, self.number),
            timestamp=self.clock,
            partial=self.dice.choice([None, None, None, False, True]),
            branch=self.dice.choice([None, "a.b"]),
            actions=EventActions(state_delta=changes(self.dice)),
        )
        is_there = whose in self.now
        expected: Any = None
        if not event.partial and not (is_there and self.now[whose] == then):
            expected = StaleSessionError if is_there else SessionNotFoundError
        try:
            got = await self.ours.any.append_event(mine, event.model_copy(deep=True))
            refused = None
        except REFUSED as error:
            refused = type(error)
        if refused is not None:
            # A copy of a session that is gone may be called stale as well.
            assert refused is expected or not is_there
            self.held.remove(held)  # it has the event's temporary state, as in ADK's own services
            return
        assert expected is None
        if not event.partial:
            kept = await self.theirs.append_event(their, event)
            same(got.model_dump(mode="json"), kept.model_dump(mode="json"))
            self.held.remove(held)
            self.now[whose] = event.id
            self.hold(mine, their, whose)
        same(told(mine)[:5], told(their)[:5])

    async def again(self, key: Any, whose: Any) -> None:
        """The same event once more, as after an answer that was lost."""
        fresh = [one for one in self.held if one[2] in self.now and self.now[one[2]] == one[3]]
        for mine, their, *_ in fresh[-1:]:
            if mine.events and mine.events[-1].id == self.now[fresh[-1][2]]:
                await self.ours.any.append_event(mine, mine.events[-1].model_copy(deep=True))
                same(told(mine), told(their))

    async def list(self, key: Any, whose: Any) -> None:
        user = self.dice.choice([None, whose[1]])
        mine = (await self.ours.any.list_sessions(app_name=whose[0], user_id=user)).sessions
        their = (await self.theirs.list_sessions(app_name=whose[0], user_id=user)).sessions
        by_name = lambda said: said[1:3] + said[:1]  # noqa: E731
        same(
            sorted([told(one, timed=False) for one in mine], key=by_name),
            sorted([told(one, timed=False) for one in their], key=by_name),
        )
        by_time = [(one.last_update_time, one.user_id, one.id) for one in mine]
        assert by_time == sorted(by_time)
        same(
            await self.ours.any.get_user_state(app_name=whose[0], user_id=whose[1]),
            await self.theirs.get_user_state(app_name=whose[0], user_id=whose[1]),
        )

    async def delete(self, key: Any, whose: Any) -> None:
        if self.dice.random() < 0.4:
            await self.ours.any.delete_session(**key)
            await self.theirs.delete_session(**key)
            self.now.pop(whose, None)

    async def rewind(self, key: Any, whose: Any) -> None:
        """The last step of a session: its rewinds have ids and times of their own."""
        their = await self.theirs.get_session(**key)
        if their is None or not their.events:
            return
        run = self.dice.choice(their.events).invocation_id
        found = []
        for service in (self.ours.any, self.theirs):
            runner = Runner(app_name=whose[0], agent=agent_of()[0], session_service=service)
            await runner.rewind_async(
                user_id=whose[1], session_id=whose[2], rewind_before_invocation_id=run
            )
            session: Any = await service.get_session(**key)
            *rest, last = session.events
            found.append([told(session, timed=False)[3], last.actions.model_dump(mode="json")])
            found[-1].append([event.id for event in rest])
        same(*found)
        await self.ours.any.delete_session(**key)
        await self.theirs.delete_session(**key)
        self.now.pop(whose)


@pytest.mark.parametrize("engine", ["sqlite", "files", "postgres"])
def test_sessions_are_what_adks_own_are(request: pytest.FixtureRequest, engine: str) -> None:
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)

    def program(dice: random.Random, ours: Ours[ClewSessionService]) -> None:
        asyncio.run(Program(dice, ours).run())

    each(request, engine, ClewSessionService, program)
