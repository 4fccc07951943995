"""Random programs on our session store and on the SDK's InMemorySessionStore say the same.

What differs by intention: a record whose uuid is stored is passed over, as the SDK recommends, and
InMemorySessionStore doubles it. So that one is given only the records that are new.
"""

from __future__ import annotations

import asyncio
import copy
import random
import re
import uuid
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk", reason="needs clew[claude-agent-sdk]")

from claude_agent_sdk import (
    InMemorySessionStore,
    fork_session_via_store,
    get_session_info_from_store,
    get_session_messages_from_store,
    get_subagent_messages_from_store,
    list_sessions_from_store,
    list_subagents_from_store,
    project_key_for_directory,
)
from programs import Ours, each, same

from clew.adapters.claude_agent_sdk import ClewSessionStore

PROJECT = project_key_for_directory(None)
SESSIONS = [str(uuid.UUID(int=number)) for number in (1, 2, 3)]
SUBPATHS = ("subagents/agent-a", "subagents/agent-b", "subagents/workflows/w/agent-c")
TIMES = ("2026-01-01T00:00:07.123Z", "2020-05-05T00:00:00Z", "2026-01-01T02:00:00+02:00", "bad")
# What a fork makes anew.
OF_A_FORK = {"uuid", "parentUuid", "sessionId", "timestamp", "logicalParentUuid", "leafUuid"}

Record = dict[str, Any]
Key = dict[str, str]


def record(dice: random.Random, number: str, session: str, known: list[str]) -> Record:
    """A record of a transcript; `known` are the uuids of those before it."""
    name = str(uuid.UUID(int=dice.getrandbits(128), version=4))
    parent = dice.choice([None, "unknown", *known[-1:], *known[-3:]])
    beside: Record = {"sessionId": session, "timestamp": dice.choice([*TIMES, None])}
    linked = {**beside, "uuid": name, "parentUuid": parent, "isSidechain": dice.random() < 0.2}
    question = dice.choice(
        [f"question {number}", "<command-name>/clear</command-name>", "", [], "Größe\u2028"]
    )
    where = {"cwd": dice.choice(["/home/x", "/y", None]), "gitBranch": "main"}
    user = {**linked, "type": "user", "message": {"role": "user", "content": question}, **where}
    said = {"role": "assistant", "content": [{"type": "text", "text": f"answer {number}"}]}
    made: Record = dice.choice(
        [
            user,
            {**linked, "type": "assistant", "message": said},
            {**linked, "type": "progress"},
            {**linked, "type": "system", "subtype": "compact_boundary", "content": "c"},
            {**beside, "type": "custom-title", "customTitle": dice.choice([number, "", None])},
            {**beside, "type": "tag", "tag": dice.choice(["x", "", None])},
            {**beside, "type": "ai-title", "aiTitle": number},
            {"type": "summary", "summary": number, "leafUuid": parent},
            {"type": "of another kind", "data": [number, {"b": 1, "a": None}]},
        ]
    )
    if known and dice.random() < 0.1:
        made["uuid"] = dice.choice(known)
    elif dice.random() < 0.05:
        made["uuid"] = dice.choice(["", 5, None, "x" * 300])
    return made


def is_told_apart(one: Record) -> bool:
    name = one.get("uuid")
    return isinstance(name, str) and 0 < len(name) <= 128


class Program:
    """Sessions and their sub-agents, here and there."""

    def __init__(self, dice: random.Random, ours: Ours[ClewSessionStore]) -> None:
        self.dice, self.ours, self.theirs = dice, ours, InMemorySessionStore()
        self.uuids: dict[str, list[str]] = {}  # of each transcript, those that are stored
        self.batches: list[tuple[Key, list[Record]]] = []
        self.number = 0

    async def run(self) -> None:
        steps = [self.append, self.append, self.append, self.append, self.again, self.look]
        steps += [self.look, self.delete, self.helpers, self.fork]
        for number in range(self.dice.randint(5, 25)):
            self.number = number
            if self.dice.random() < 0.08:
                self.ours.reopen()
            key = {"project_key": self.dice.choice([PROJECT, PROJECT, "p/2"])}
            key["session_id"] = self.dice.choice(SESSIONS)
            if self.dice.random() < 0.4:
                key["subpath"] = self.dice.choice(SUBPATHS)
            await self.dice.choice(steps)(key)

    async def append(self, key: Key) -> None:
        known = self.uuids.setdefault(str(key), [])
        given, new = [], []
        for place in range(self.dice.choice([0, 1, 1, 2, 3, 7])):
            given.append(
                record(self.dice, f"{self.number}.{place}", key["session_id"], list(known))
            )
            if is_told_apart(given[-1]):
                if given[-1]["uuid"] in known:
                    continue
                known.append(given[-1]["uuid"])
            new.append(given[-1])
        await self.ours.any.append(key, copy.deepcopy(given))
        if new:
            await self.theirs.append(key, new)
        if given and all(is_told_apart(one) for one in (given[0], given[-1])):
            self.batches.append((key, given))

    async def again(self, key: Key) -> None:
        """A batch that is sent once more, as after an answer that was lost."""
        for whose, given in self.batches[-1:]:
            await self.ours.any.append(whose, copy.deepcopy(given))

    async def look(self, key: Key) -> None:
        project = key["project_key"]
        same(await self.ours.any.load(key), await self.theirs.load(key))
        session = {"project_key": project, "session_id": key["session_id"]}
        same(await self.ours.any.list_subkeys(session), await self.theirs.list_subkeys(session))
        listed = {one["session_id"]: one for one in await self.ours.any.list_sessions(project)}
        assert listed.keys() == {
            one["session_id"] for one in await self.theirs.list_sessions(project)
        }
        mine, their = [
            {one["session_id"]: one for one in await store.list_session_summaries(project)}
            for store in (self.ours.any, self.theirs)
        ]
        assert {id: one["data"] for id, one in mine.items()} == {
            id: one["data"] for id, one in their.items()
        }
        assert all(one["mtime"] >= listed[id]["mtime"] for id, one in mine.items())

    async def delete(self, key: Key) -> None:
        if self.dice.random() < 0.5:
            return
        await self.ours.any.delete(key)
        await self.theirs.delete(key)
        gone = [key, *[{**key, "subpath": path} for path in SUBPATHS if "subpath" not in key]]
        for one in gone:
            self.uuids.pop(str(one), None)
        self.batches = [batch for batch in self.batches if batch[0] not in gone]

    async def helpers(self, key: Key) -> None:
        session = key["session_id"]
        for function, *args in (
            (get_session_messages_from_store, session),
            (get_session_info_from_store, session),
            (list_subagents_from_store, session),
            (get_subagent_messages_from_store, session, "a"),
            (list_sessions_from_store,),
        ):
            mine, their = [await function(store, *args) for store in (self.ours.any, self.theirs)]
            if function is list_sessions_from_store:  # by time, which is told by two clocks
                mine, their = [sorted(found, key=str) for found in (mine, their)]
            # When it was stored each of them tells by its own clock.
            assert re.sub(r"last_modified=\d+", "", repr(mine)) == re.sub(
                r"last_modified=\d+", "", repr(their)
            )

    async def fork(self, key: Key) -> None:
        found: list[Any] = []
        for store in (self.ours.any, self.theirs):
            try:
                made = await fork_session_via_store(store, key["session_id"])
            except (ValueError, FileNotFoundError) as error:
                found.append(str(error))
                continue
            forked = {"project_key": PROJECT, "session_id": made.session_id}
            records = await store.load(forked)
            found.append([{k: v for k, v in one.items() if k not in OF_A_FORK} for one in records])
            await store.delete(forked)
        same(*found)


@pytest.mark.parametrize("engine", ["sqlite", "files", "postgres"])
def test_sessions_are_what_the_sdks_own_are(request: pytest.FixtureRequest, engine: str) -> None:
    def program(dice: random.Random, ours: Ours[ClewSessionStore]) -> None:
        asyncio.run(Program(dice, ours).run())

    each(request, engine, ClewSessionStore, program)
