"""adk: sessions of Google's ADK in Clew and in ADK's own SqliteSessionService, in the same run.

Both through ADK's interface and one event loop, both synced at each event. ADK's file is measured
as it ships, with a rollback journal, and in WAL mode, which is what Clew's file is in. Where ADK's
interface itself sets the limit, that is measured too: a bare row behind the same hop to a worker
thread, and the objects that ADK wants, made out of nothing.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import clew
from bench.bare import BareTable
from bench.figures import Figure, costs, milliseconds, rates, ratio
from bench.messages import messages
from bench.progress import say
from bench.timing import Spent, in_rounds, seconds, spent
from bench.workshop import Workshop
from clew.aio.hop import hop

_EVENTS = 10_000
_SESSIONS = 10_000
_WARM = 500
_SLICE = 60
_CROWD = 16
_EACH = 8
_GETS = 10
_ROUNDS = 9
_NEWEST = 10
_PAGE = 50
_APP: dict[str, Any] = {"app_name": "bench"}
_USER: dict[str, Any] = {"app_name": "bench", "user_id": "user"}


def measure(workshop: Workshop) -> Iterable[Figure]:
    try:
        import google.adk  # noqa: F401
    except ImportError:
        say("google-adk is not installed: left out")
        return
    with asyncio.Runner() as runner:
        yield from _appends(workshop, runner)
        yield from _crowds(workshop, runner)
        yield from _newest(workshop, runner)
        yield from _lists(workshop, runner)


def _appends(workshop: Workshop, runner: asyncio.Runner) -> Iterable[Figure]:
    from bench.peers.google_adk import GoogleADK, GoogleADKInWAL
    from clew.adapters.google_adk import ClewSessionService

    say("appending events")
    service = ClewSessionService(workshop.open())
    session = runner.run(service.create_session(**_USER))
    peers = [kind(workshop.new_path()) for kind in (GoogleADK, GoogleADKInWAL)]
    events = iter(peers[0].prepare(messages(4 * (_WARM + _SLICE * (_ROUNDS + 1)))))

    async def append(batch: list[Any]) -> None:
        for event in batch:
            await service.append_event(session, event)

    bare = BareTable(workshop.new_path())

    async def append_bare(batch: list[Any]) -> None:
        for event in batch:
            await hop(bare.append, event.model_dump_json(exclude_none=True).encode())

    ways = [
        lambda batch: runner.run(append(batch)),
        lambda batch: runner.run(append_bare(batch)),
        *(peer.append_all for peer in peers),
    ]

    def one_round(count: int = _SLICE) -> tuple[Spent, ...]:
        return tuple(_spent(way, list(islice(events, count))) for way in ways)

    one_round(_WARM)  # until the logs have their size, as they have in a store that is in use
    ours, limit, theirs, in_wal = in_rounds(_ROUNDS, one_round)
    for one in (bare, *peers):
        one.close()
    name = "adk: append_event, Clew / SqliteSessionService"
    yield ratio(f"{name}, rate", rates(ours), rates(theirs), at_least=5)
    yield ratio(f"{name} in WAL mode, rate", rates(ours), rates(in_wal))
    work = [[one.processor_seconds for one in side] for side in (theirs, ours)]
    name = "adk: append_event, SqliteSessionService / Clew, processor time"
    yield ratio(name, *work)
    name = "adk: append_event, limit: the same hop and one bare row"
    yield ratio(f"{name} / SqliteSessionService, rate", rates(limit), rates(theirs))
    yield from costs("adk: append_event, Clew", ours)
    yield from costs("adk: append_event, SqliteSessionService", theirs)


def _spent(way: Callable[[list[Any]], object], batch: list[Any]) -> Spent:
    return spent(len(batch), lambda: way(batch))


def _crowds(workshop: Workshop, runner: asyncio.Runner) -> Iterable[Figure]:
    """What a server does: many sessions at once."""
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    from bench.peers.google_adk import GoogleADK
    from clew.adapters.google_adk import ClewSessionService

    say(f"appending to {_CROWD} sessions at once")
    services = [
        ClewSessionService(workshop.open()),
        SqliteSessionService(str(workshop.new_path())),
    ]
    crowds = [[runner.run(one.create_session(**_USER)) for _ in range(_CROWD)] for one in services]
    count = _CROWD * _EACH
    events = iter(GoogleADK.prepare(None, messages(2 * count * (_ROUNDS + 1))))  # type: ignore[arg-type]

    async def write(service: Any, session: Any, batch: list[Any]) -> None:
        for event in batch:
            await service.append_event(session, event)

    async def write_all(service: Any, crowd: list[Any], batch: list[Any]) -> None:
        parts = [batch[n::_CROWD] for n in range(_CROWD)]
        tasks = [write(service, *pair) for pair in zip(crowd, parts, strict=True)]
        await asyncio.gather(*tasks)

    def one_round() -> tuple[Spent, ...]:
        return tuple(
            _spent(
                lambda batch: runner.run(write_all(service, crowd, batch)),  # noqa: B023
                list(islice(events, count)),
            )
            for service, crowd in zip(services, crowds, strict=True)
        )

    ours, theirs = in_rounds(_ROUNDS, one_round)
    name = f"adk: append_event to {_CROWD} sessions at once, Clew"
    yield ratio(f"{name} / SqliteSessionService, rate", rates(ours), rates(theirs))
    yield from costs(name, ours)


def _newest(workshop: Workshop, runner: asyncio.Runner) -> Iterable[Figure]:
    from google.adk.sessions.base_session_service import GetSessionConfig

    say(f"building a session of {_EVENTS:,} events in each")
    theirs, ours = _built(workshop, runner, _fill_events)
    config = GetSessionConfig(num_recent_events=_NEWEST)

    async def get(service: Any) -> None:
        for _ in range(_GETS):
            found = await service.get_session(**_USER, session_id="s0", config=config)
            assert len(found.events) == _NEWEST, "another number of events came back"

    def one_round() -> tuple[float, ...]:
        return tuple(seconds(lambda: runner.run(get(one))) / _GETS for one in (ours, theirs))  # noqa: B023

    quick, slow = in_rounds(_ROUNDS, one_round)
    name = f"adk: get_session, last {_NEWEST} of {_EVENTS:,} events"
    yield ratio(f"{name}, SqliteSessionService / Clew, time", slow, quick, at_least=20)
    yield milliseconds(f"{name}, Clew", quick)
    yield milliseconds(f"{name}, SqliteSessionService", slow)


def _lists(workshop: Workshop, runner: asyncio.Runner) -> Iterable[Figure]:
    from google.adk.sessions.session import Session

    say(f"building {_SESSIONS:,} sessions in each")
    theirs, ours = _built(workshop, runner, _fill_sessions)

    # Nothing is given back to the runner: when it takes its signal handler away, Python makes a
    # text of the task, with all that it gave.
    async def every(service: Any) -> None:
        found = (await service.list_sessions(**_APP)).sessions
        assert len(found) == _SESSIONS, "another number of sessions came back"

    def page() -> None:
        assert len(runner.run(ours.list_page(**_APP, limit=_PAGE)).sessions) == _PAGE

    def objects() -> None:
        """What any service makes for ADK, however it keeps sessions."""
        made = [
            Session(id=f"s{n}", app_name="bench", user_id="user", state={"step": n}, events=[])
            for n in range(_SESSIONS)
        ]
        assert len(made) == _SESSIONS

    ways = (page, lambda: runner.run(every(ours)), objects, lambda: runner.run(every(theirs)))
    spans = in_rounds(_ROUNDS, lambda: tuple(map(_alone, ways)))
    first, whole, bare, slow = ([1 / one.per_second for one in side] for side in spans)
    _, worked, _, theirs_worked = ([one.processor_seconds for one in side] for side in spans)
    name = f"adk: list {_SESSIONS:,} sessions"
    page_name = f"Clew's first page of {_PAGE}"
    yield ratio(f"{name}, SqliteSessionService / {page_name}, time", slow, first)
    yield ratio(f"{name} whole, SqliteSessionService / Clew, time", slow, whole, at_least=10)
    yield ratio(f"{name} whole, … / Clew, processor time", theirs_worked, worked)
    limit = "limit: the objects of ADK alone"
    yield ratio(f"{name} whole, SqliteSessionService / {limit}, time", slow, bare)
    yield milliseconds(f"{name}, {page_name}", first)
    yield milliseconds(f"{name} whole, Clew", whole)
    yield milliseconds(f"{name} whole, SqliteSessionService", slow)


def _alone(way: Callable[[], object]) -> Spent:
    """What something takes that leaves tens of thousands of objects behind.

    To look for garbage among them takes longer than to make them. So what others have left is
    collected before, and each way pays for its own.
    """
    gc.collect()
    return spent(1, way)


def _built(workshop: Workshop, runner: asyncio.Runner, fill: Any) -> tuple[Any, Any]:
    """ADK's service on a file that was filled past it, and ours on what was imported from it."""
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    from clew.adapters.google_adk import ClewSessionService, import_sqlite

    path, place = workshop.new_path(), workshop.new_path()
    theirs = SqliteSessionService(str(path))
    runner.run(theirs.create_session(**_USER, session_id="s0"))
    fill(path)
    with clew.open(place, durability="relaxed") as store:
        report = import_sqlite(path, store)
        assert report.left == [], report.left
    return theirs, ClewSessionService(workshop.open(place))


def _fill_events(path: Path) -> None:
    from bench.peers.google_adk import GoogleADK

    events = GoogleADK.prepare(None, messages(_EVENTS))  # type: ignore[arg-type]
    rows = [
        ("s0", event.id, "turn", event.timestamp, event.model_dump_json(exclude_none=True))
        for event in events
    ]
    sql = "INSERT INTO events VALUES (?2, 'bench', 'user', ?1, ?3, ?4, ?5)"
    with sqlite3.connect(path) as file:
        file.executemany(sql, rows)


def _fill_sessions(path: Path) -> None:
    state = '{"title": "A journey", "step": 3}'
    rows = [(f"s{n}", state, 1.7e9 + n) for n in range(1, _SESSIONS)]
    sql = "INSERT INTO sessions VALUES ('bench', 'user', ?1, ?2, ?3, ?3)"
    with sqlite3.connect(path) as file:
        file.executemany(sql, rows)
