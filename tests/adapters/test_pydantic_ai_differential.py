"""Random programs on our conversation store and on InMemoryConversationStore say the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")

from programs import Ours, each
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.conversation_store import (
    ConversationEntry,
    ConversationRecord,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage

from clew.adapters.pydantic_ai import ClewConversationStore

IDS = ("c1", "c2", "c3", "c4")


def message(dice: random.Random, number: str) -> ModelMessage:
    image = ImageUrl(url="http://example.com/x.png")
    request = dice.choice(
        [
            [UserPromptPart(content=f"question {number}")],
            [SystemPromptPart(content="s"), UserPromptPart(content=["look", image])],
            [ToolReturnPart(tool_name="t", content={"n": [number]}, tool_call_id="c")],
        ]
    )
    response = dice.choice(
        [
            [TextPart(content=f"answer {number}")],
            [ThinkingPart(content="hm"), ToolCallPart(tool_name="t", args={}, tool_call_id="c")],
            [],
        ]
    )
    return dice.choice([ModelRequest(parts=request), ModelResponse(parts=response)])


async def outcome(call: Awaitable[Any]) -> Any:
    """What a call gives, or the kind of error by which it is refused."""
    try:
        return await call
    except (UserError, LookupError) as error:
        return "LookupError" if isinstance(error, LookupError) else type(error).__name__


class Program:
    """Conversations here and there, and the copies of them that callers hold."""

    def __init__(self, dice: random.Random, ours: Ours[ClewConversationStore]) -> None:
        self.dice, self.ours, self.theirs = dice, ours, InMemoryConversationStore()
        self.held: list[tuple[Conversation, Conversation]] = []
        self.theirs_of: dict[str, str] = {}  # an entry of ours → the same one of theirs
        self.number = 0

    async def run(self) -> None:
        steps = [self.begin, self.load, self.load, self.save, self.save, self.save]
        steps += [self.branch, self.branch, self.fork, self.delete, self.look]
        for number in range(self.dice.randint(5, 25)):
            self.number = number
            if self.dice.random() < 0.08:
                self.ours.reopen()
            scope = self.dice.choice([None, None, None, "s1", "s2"])
            await self.dice.choice(steps)(self.dice.choice(IDS[:2] + IDS), scope)

    async def both(self, ask: Callable[[Any, Callable[[str], str]], Awaitable[Any]]) -> Any:
        """What a call gives on each side; it is given the name of an entry by that of ours."""
        mine = await outcome(ask(self.ours.any, str))
        their = await outcome(ask(self.theirs, lambda id: self.theirs_of.get(id, id)))
        assert isinstance(mine, str) == isinstance(their, str), (mine, their)
        if isinstance(mine, str):
            assert mine == their
            return None, None
        return mine, their

    def hold(self, mine: Any, their: Any) -> None:
        assert self.said(mine) == self.said(their)
        if mine is not None:
            self.held.append((mine, their))

    def said(self, one: Conversation | None) -> Any:
        if one is None:
            return None
        new = one.new_message_index
        return [one.conversation_id, one.messages, one.usage, one.deferred_tool_requests, new]

    async def begin(self, id: str, scope: str | None) -> None:
        told = [message(self.dice, f"{self.number}.{n}") for n in range(self.dice.randint(0, 4))]
        made = [Conversation(messages=list(told), conversation_id=id) for _ in range(2)]
        self.hold(*made)
        await self.save(id, scope)

    async def load(self, id: str, scope: str | None) -> None:
        limit = self.dice.choice([None, None, 0, 1, 2, 3])
        self.hold(*await self.both(lambda store, _: store.load(id, limit=limit, scope=scope)))

    async def save(self, id: str, scope: str | None) -> None:
        if not self.held:
            return
        pair = self.dice.choice(self.held[-3:])
        how = self.dice.choice(["as it is", "as it is", "from JSON", "rewritten", "cut"])
        if how == "from JSON":
            adapter = ConversationTypeAdapter
            made = [adapter.validate_json(adapter.dump_json(one)) for one in pair]
            pair = (made[0], made[1])
            self.held.append(pair)
        at = self.dice.randint(0, len(pair[0].messages))
        new = [message(self.dice, f"{self.number}.{n}") for n in range(self.dice.randint(0, 3))]
        for one in pair:
            kept = list(one.messages[:at] if how == "cut" else one.messages)
            if how == "rewritten":
                kept[at : at + 1] = new[:1]
            one.messages = [*kept, *new]
            one.usage = RunUsage(requests=self.number)
        copies = iter(pair)
        mine, their = await self.both(lambda store, _: store.save(next(copies), scope=scope))
        if mine is not None:
            assert len(mine) == len(their)
            self.theirs_of |= {one.id: other.id for one, other in zip(mine, their, strict=True)}
            assert [self.entry(one) for one in mine] == [self.entry(one, str) for one in their]
        assert self.said(pair[0]) == self.said(pair[1])

    def place(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.dice.random() < 0.6:
            found["at"] = self.dice.randint(-1, 6)
        if self.theirs_of and self.dice.random() < 0.5:
            found["from_entry"] = self.dice.choice([*self.theirs_of])
        return found

    async def branch(self, id: str, scope: str | None) -> None:
        place, stale = self.place(), self.dice.random() < 0.2

        async def ask(store: Any, named: Callable[[str], str]) -> Any:
            record = await store.read_record(id)
            revision = "another" if stale or record is None else record.revision
            where = {key: named(at) if key == "from_entry" else at for key, at in place.items()}
            return await store.branch(id, expected_revision=revision, scope=scope, **where)

        self.hold(*await self.both(ask))

    async def fork(self, id: str, scope: str | None) -> None:
        place, new = self.place(), self.dice.choice(IDS)

        async def ask(store: Any, named: Callable[[str], str]) -> Any:
            where = {key: named(at) if key == "from_entry" else at for key, at in place.items()}
            return await store.fork(id, new_conversation_id=new, scope=scope, **where)

        self.hold(*await self.both(ask))

    async def delete(self, id: str, scope: str | None) -> None:
        if self.dice.random() < 0.6:
            await self.both(lambda store, _: store.delete(id, scope=scope))

    async def look(self, id: str, scope: str | None) -> None:
        limit = self.dice.choice([None, None, 0, 1, 2])
        listed = await self.both(
            lambda store, _: store.list_conversations(scope=scope, limit=limit)
        )
        assert self.records(listed[0]) == self.records(listed[1], str)
        for one in IDS:
            read = await self.both(lambda store, _, one=one: store.read_record(one))
            assert self.records(read[:1]) == self.records(read[1:], str)
        mine, their = await self.both(lambda store, _: store.load_entries(id, limit=limit))
        entries = [self.entry(one) for one in mine or ()]
        assert entries == [self.entry(one, str) for one in their or ()]
        for one in self.dice.sample([*self.theirs_of], min(2, len(self.theirs_of))):
            mine, their = await self.both(
                lambda store, named, one=one: store.read_entry(named(one))
            )
            if mine is not None:
                assert self.entry(mine) == self.entry(their, str)

    def name(self, entry: str | None) -> str | None:
        return None if entry is None else self.theirs_of[entry]

    def entry(self, one: ConversationEntry, name: Any = None) -> Any:
        name = name or self.name
        return [name(one.id), one.parent_id and name(one.parent_id), one.message]

    def records(self, found: Any, name: Any = None) -> list[Any]:
        name = name or self.name
        return [self.record(one, name) for one in found if one is not None]

    def record(self, one: ConversationRecord, name: Any) -> Any:
        ends = [one.head_id and name(one.head_id), one.forked_at and name(one.forked_at)]
        about = [one.conversation_id, one.usage, one.scope, one.forked_from]
        return [*about, *ends, [name(tip) for tip in one.branches]]


@pytest.mark.parametrize("engine", ["sqlite", "files", "postgres"])
def test_conversations_are_what_pydantic_ais_own_are(
    request: pytest.FixtureRequest, engine: str
) -> None:
    def program(dice: random.Random, ours: Ours[ClewConversationStore]) -> None:
        asyncio.run(Program(dice, ours).run())

    each(request, engine, ClewConversationStore, program)
