"""openai: ClewSession beside the sessions that the Agents SDK ships, as its runner calls them.

Both sync every append: SQLiteSession sets no `synchronous`, and SQLite's own default is FULL,
which is asked for here all the same. Beside them stands what bounds any store on SQLite that keeps
the event loop free: a bare row behind the same hop to a worker thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from bench.bare import BareTable
from bench.figures import Figure, costs, milliseconds, rates, ratio
from bench.messages import messages
from bench.progress import say
from bench.timing import Spent, in_rounds, seconds, spent
from bench.workshop import Workshop, grow_log
from clew.aio.appends import append
from clew.core.codec import encode
from clew.engines.shared.group_commit import GroupCommit, Ticket
from clew.thread import Thread

_ROUNDS = 25
_ITEMS = 40  # that each session appends in a round
_SESSIONS = 16  # at once: a server that answers several users
_LONG = 16_000
_TURNS = _LONG // 4
_BRANCH_ROUNDS = 9


class BareRow(NamedTuple):
    data: bytes


class BareSession:
    """One row an append and nothing else, from a worker thread: the limit.

    Sessions that append at once share a worker and a transaction, as those of a store do: it is
    the engine of a thread that knows no more than to append.
    """

    def __init__(self, path: Path) -> None:
        self._table = BareTable(path)
        self._commits = GroupCommit(self._transact)
        self._thread = Thread(cast("Any", SimpleNamespace(engine=self)), "bare")

    async def add_items(self, items: list[Any]) -> None:
        await append(self._thread, lambda: cast("Any", [BareRow(encode(items))]))

    def append(self, thread: str, drafts: list[BareRow], **_: Any) -> Any:
        return self._commits.run(lambda _: drafts[0].data)

    def append_each(self, requests: list[Any]) -> list[list[Any]]:
        tickets = self._commits.run_each([lambda _, r=r: r.drafts[0].data for r in requests])
        return [[ticket.result] for ticket in tickets]

    def _transact(self, batch: list[Ticket[bytes]]) -> None:
        self._table.append_together(ticket.work(None) for ticket in batch)

    def close(self) -> None:
        self._table.close()


def measure(workshop: Workshop) -> Iterable[Figure]:
    from agents import SQLiteSession
    from agents.extensions.memory import AdvancedSQLiteSession

    from clew.adapters.openai_agents import ClewSession

    class FullSQLiteSession(SQLiteSession):
        """With the durability of Clew said in so many words."""

        @staticmethod
        def _configure_connection(conn: sqlite3.Connection) -> None:
            SQLiteSession._configure_connection(conn)
            conn.execute("PRAGMA synchronous = FULL")

    with asyncio.Runner() as runner:
        for count in (1, _SESSIONS):
            our_path, path = workshop.new_path(), workshop.new_path()
            store = workshop.open(our_path)
            ours = [ClewSession(f"s{n}", store=store) for n in range(count)]
            theirs = [FullSQLiteSession(f"s{n}", path) for n in range(count)]
            grow_log(our_path)
            grow_log(path)
            yield from _appends(runner, ours, theirs)
            yield from _limit(runner, theirs, workshop.new_path())
            for session in theirs:
                session.close()
        yield from _branches(
            runner,
            ClewSession("long", store=workshop.open()),
            lambda path: AdvancedSQLiteSession(session_id="long", db_path=path, create_tables=True),
            workshop.new_path(),
        )


# --- appending ------------------------------------------------------------------------------


def _appends(runner: asyncio.Runner, ours: list[Any], theirs: list[Any]) -> Iterable[Figure]:
    say(f"appending to {len(ours)} at once, in turns")
    mine, peers = _compared(runner, ours, theirs)
    name = "one session" if len(ours) == 1 else f"{len(ours)} sessions at once"
    title = f"openai: append, {name}, / SQLiteSession, rate"
    yield ratio(title, rates(mine), rates(peers), at_least=2)
    yield from costs(f"openai: append, {name}", mine)
    yield from costs(f"openai: append, {name}, SQLiteSession", peers)


def _limit(runner: asyncio.Runner, theirs: list[Any], path: Path) -> Iterable[Figure]:
    say("appending a bare row behind the same hop, in turns")
    with closing(BareSession(path)) as bare:
        grow_log(path)
        mine, peers = _compared(runner, [bare] * len(theirs), theirs)
    name = "openai: append, limit: the same hop and one bare row"
    if len(theirs) > 1:
        name += f", {len(theirs)} at once"
    yield ratio(f"{name}, / SQLiteSession, rate", rates(mine), rates(peers))
    yield from costs(name, mine)


def _compared(
    runner: asyncio.Runner, ours: list[Any], theirs: list[Any]
) -> tuple[list[Spent], list[Spent]]:
    items = _items(_ITEMS)

    async def append(session: Any) -> None:
        for item in items:
            await session.add_items([item])

    async def append_to_all(sessions: list[Any]) -> None:
        await asyncio.gather(*map(append, sessions))

    def measured(sessions: list[Any]) -> Spent:
        count = _ITEMS * len(sessions)
        return spent(count, lambda: runner.run(append_to_all(sessions)))

    mine, peers = in_rounds(_ROUNDS, lambda: (measured(ours), measured(theirs)))
    return mine, peers


def _items(count: int) -> list[dict[str, Any]]:
    """Items of the Responses API with the words of the usual messages: question, call, answers."""
    found = []
    for number, message in enumerate(messages(count)):
        text, call = str(message.get("content") or message.get("tool_calls")), f"c{number // 4}"
        found.append(
            (
                {"role": "user", "content": text},
                {"type": "function_call", "call_id": call, "name": "look", "arguments": text},
                {"type": "function_call_output", "call_id": call, "output": text},
                {"role": "assistant", "content": text},
            )[number % 4]
        )
    return found


# --- branches -------------------------------------------------------------------------------


def _branches(
    runner: asyncio.Runner, ours: Any, make: Callable[[Path], Any], path: Path
) -> Iterable[Figure]:
    """Branch off at the end of a long session, and come back."""
    say(f"building sessions of {_LONG:,} items")
    items = _items(_LONG)

    async def fill(session: Any) -> None:
        for start in range(0, _LONG, 1000):
            await session.add_items(items[start : start + 1000])

    async def again(session: Any, branch: Callable[[], Awaitable[Any]]) -> None:
        await branch()
        await session.switch_to_branch("main")

    with closing(make(path)) as theirs:
        for session in (ours, theirs):
            runner.run(fill(session))
        last = ours.thread.path(limit=2)[0].id
        ways = (
            (ours, lambda: ours.create_branch_from_item(last)),
            (ours, lambda: ours.create_branch_from_turn(-1)),
            (ours, lambda: ours.create_branch_from_turn(_TURNS)),
            (theirs, lambda: theirs.create_branch_from_turn(_TURNS)),
        )

        def round_() -> tuple[float, ...]:
            return tuple([seconds(partial(runner.run, again(*way))) for way in ways])

        by_item, from_end, by_number, peer = in_rounds(_BRANCH_ROUNDS, round_)
    name = f"openai: branch at {_LONG:,} items"
    yield ratio(f"{name}, AdvancedSQLiteSession / from an item, time", peer, by_item, at_least=50)
    yield ratio(f"{name}, … / from the last turn", peer, from_end)
    yield ratio(f"{name}, … / from turn {_TURNS:,}, counted from the first", peer, by_number)
    yield milliseconds(f"{name}, from an item", by_item)
    yield milliseconds(f"{name}, AdvancedSQLiteSession", peer)
