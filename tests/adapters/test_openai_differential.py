"""Random programs on a session of ours and on AdvancedSQLiteSession say the same.

What differs by intention: a branch without items is one here and none there, find_turns_by_content
folds the case of every letter and not of ASCII alone, a branch shows what the turns that it shares
have cost, and what stands on a branch that another object has deleted is refused, not moved.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("agents", reason="the Agents SDK is not installed")

from agents import Usage
from agents.extensions.memory import AdvancedSQLiteSession
from openai_scripts import assistant, call, output, user
from programs import Ours, each, same

import clew
from clew.adapters.openai_agents import ClewSession

NAMES = ("b1", "b2", "b3")
TERMS = ("hello", "HELLO", "50%_", "_", 'q"', "\\", "", "question", "Größe")


def item(dice: random.Random, number: str) -> Any:
    named: Any = {**call(f"c{number}"), "namespace": dice.choice([None, "crm", "add"])}
    label = dice.choice(["crm", None, ""])
    return dice.choice(
        [
            user(f"question {number} Ä"),
            user([{"type": "input_text", "text": f"hello {number} 50%_"}]),  # type: ignore[arg-type]
            {**user('Größe\u2028 \\ "q" hello'), "extra": {"b": 1, "a": 2}},
            assistant(f"answer {number}"),
            named,
            output(f"c{number}"),
            {"type": "mcp_call", "id": "x", "server_label": label, "name": "t", "arguments": "{}"},
            {"type": "computer_call", "call_id": "c", "action": {}},
            {"type": "tool_search_call", "id": "t", "arguments": {}},
            {"type": "tool_search_output", "id": "t", "tools": []},
            {"role": "system", "content": "Be brief."},
            {"some": "thing", "n": [1, 2.5, None, True]},
        ]
    )


async def outcome(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except ValueError:
        return ValueError


class Program:
    """One session here and one there, with as many objects each."""

    def __init__(self, dice: random.Random, ours: Ours[ClewSession], file: Path) -> None:
        self.dice, self.ours = dice, ours
        make = lambda: AdvancedSQLiteSession(session_id="s", db_path=file, create_tables=True)  # noqa: E731
        self.theirs = [make() for _ in ours.adapters]
        self.live: list[str] = []  # branches that were made and not deleted
        self.number = 0

    async def run(self) -> None:
        steps = [self.add, self.add, self.add, self.pop, self.get, self.branch, self.branch]
        steps += [self.switch, self.delete, self.clear, self.look, self.look, self.spend]
        try:
            for number in range(self.dice.randint(5, 30)):
                self.number = number
                if self.dice.random() < 0.08:
                    self.reopen()
                at = self.dice.randrange(len(self.theirs))
                await self.dice.choice(steps)(self.ours.adapters[at], self.theirs[at])
        finally:
            for session in self.theirs:
                session.close()

    def reopen(self) -> None:
        """New objects stand on the main branch, whatever the old ones stood on."""
        self.ours.reopen()
        for session in self.theirs:
            self.stand(session, "main")

    def stand(self, theirs: Any, branch: str) -> None:
        theirs._branch_state = (branch, theirs._generation)

    async def add(self, ours: Any, theirs: Any) -> None:
        count = self.dice.randint(0, 4)
        items = [item(self.dice, f"{self.number}.{n}") for n in range(count)]
        await ours.add_items(items)
        await theirs.add_items(items)

    async def pop(self, ours: Any, theirs: Any) -> None:
        same(await ours.pop_item(), await theirs.pop_item())

    async def get(self, ours: Any, theirs: Any) -> None:
        limit = self.dice.choice([None, None, 0, 1, 2, 5, 100, -1])
        branch = self.dice.choice([None, "main", *self.live])
        same(await ours.get_items(limit, branch), await theirs.get_items(limit, branch))

    async def branch(self, ours: Any, theirs: Any) -> None:
        if not await theirs.get_items(1):
            return  # where there is nothing, there is no place to branch off from here
        name = self.dice.choice(NAMES)
        if self.dice.random() < 0.5:
            how, what = "create_branch_from_turn", self.dice.randint(0, 5)
        else:
            how, what = "create_branch_from_content", self.dice.choice(TERMS[:4])
        made = await outcome(getattr(ours, how)(what, name))
        assert made == await outcome(getattr(theirs, how)(what, name))
        self.live += [name] if made == name else []

    async def switch(self, ours: Any, theirs: Any) -> None:
        name = self.dice.choice(["main", "nowhere", *self.live])
        if await outcome(ours.switch_to_branch(name)) == await outcome(
            theirs.switch_to_branch(name)
        ):
            return
        assert not await ours.get_items(1)
        self.stand(theirs, name)

    async def delete(self, ours: Any, theirs: Any) -> None:
        name = self.dice.choice(["main", "nowhere", *self.live])
        force = self.dice.random() < 0.5
        mine = await outcome(ours.delete_branch(name, force))
        if await outcome(theirs.delete_branch(name, force)) != mine:
            assert name in self.live  # without an item, which is none there
        if mine is None:
            self.live.remove(name)
            self.leave([name])

    async def clear(self, ours: Any, theirs: Any) -> None:
        if self.dice.random() < 0.3:
            await ours.clear_session()
            await theirs.clear_session()
            gone, self.live = self.live, []
            self.leave(gone)

    def leave(self, branches: list[str]) -> None:
        """Let no object stand on a branch that is gone."""
        for mine, their in zip(self.ours.adapters, self.theirs, strict=True):
            if mine.branch_id in branches:
                mine._branch = "main"
            if their._current_branch_id in branches:
                self.stand(their, "main")

    async def spend(self, ours: Any, theirs: Any) -> None:
        spent = Usage(requests=self.number, input_tokens=3, output_tokens=1, total_tokens=4)
        result: Any = SimpleNamespace(context_wrapper=SimpleNamespace(usage=spent))
        await ours.store_run_usage(result)
        await theirs.store_run_usage(result)

    async def look(self, ours: Any, theirs: Any) -> None:
        branch = self.dice.choice([None, "main", *self.live])
        term = self.dice.choice(TERMS)
        same(
            self.turns(await ours.find_turns_by_content(term, branch)),
            self.turns(await theirs.find_turns_by_content(term, branch)),
        )
        same(
            self.turns(await ours.get_conversation_turns(branch)),
            self.turns(await theirs.get_conversation_turns(branch)),
        )
        same(
            await ours.get_conversation_by_turns(branch),
            await theirs.get_conversation_by_turns(branch),
        )
        mine, their = await ours.get_tool_usage(branch), await theirs.get_tool_usage(branch)
        same(sorted(mine), sorted(their))
        same(await self.branches(ours), await self.branches(theirs))
        their = await theirs.get_turn_usage(None, branch)
        known = {turn["user_turn_number"] for turn in their}
        mine = await ours.get_turn_usage(None, branch)
        if (branch or ours.branch_id) != "main":
            mine = [turn for turn in mine if turn["user_turn_number"] in known]
        same(mine, their)

    def turns(self, found: list[dict[str, Any]]) -> list[Any]:
        return [[turn["turn"], turn["content"], turn["full_content"]] for turn in found]

    async def branches(self, session: Any) -> list[Any]:
        keys = ("branch_id", "message_count", "user_turns", "is_current")
        found = [[one[key] for key in keys] for one in await session.list_branches()]
        return sorted(one for one in found if one[1])


@pytest.mark.parametrize("engine", ["sqlite", "files", "postgres"])
def test_a_session_is_what_the_sdks_own_is(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    logging.getLogger("agents").setLevel(logging.CRITICAL)
    files = iter(range(10_000))

    def program(dice: random.Random, ours: Ours[ClewSession]) -> None:
        asyncio.run(Program(dice, ours, tmp_path / f"{next(files)}.db").run())

    def make(store: clew.Store) -> ClewSession:
        return ClewSession("s", store=store)

    each(request, engine, make, program)
