"""claude: transcripts of the Claude Agent SDK, beside the store that it ships, in memory.

The SDK reads each record as a line of JSON from the CLI's output, measures it, and hands the store
what a turn has gathered. Records have 3 KB on average, as in real transcripts. The SDK's store
keeps references to them and makes no JSON, nothing is durable, and nothing is there after the end.
So there are two comparisons at equal durability: Clew in memory beside it, and Clew on disk beside
the same with what any durable store must do at least, a line for each record and one fsync a batch.
Loading is measured as the SDK does it when it resumes: it writes a file for the CLI. What parses
nothing is told as well, without a bar: a list of references is copied in no time. What bounds any
store that makes JSON of records without holding up the event loop stands beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    InMemorySessionStore,
    fork_session_via_store,
    get_session_messages,
    get_session_messages_from_store,
    project_key_for_directory,
)
from claude_agent_sdk._internal.transcript_mirror_batcher import TranscriptMirrorBatcher

from bench.figures import Figure, milliseconds, ratio
from bench.messages import SEED, prose
from bench.progress import say
from bench.timing import in_rounds, seconds
from bench.workshop import Workshop
from clew.adapters.claude_agent_sdk import ClewSessionStore
from clew.aio.hop import hop
from clew.core.codec import encode

PROJECT = project_key_for_directory(None)
_ROUNDS = 9
_TURNS = 20  # a round
# Calls of tools in a turn; a question and an answer come with them. Real turns had 27 records on
# average and 9 at the median; with eager flushing the SDK sends each record by itself.
_CALLS = {"24 records (about the mean)": 11, "10 records (about the median)": 4}
_LONG_TURNS = 100  # of the session that is loaded


class SyncedSessionStore(InMemorySessionStore):
    """The SDK's store, and a file with a line for each record, synced after each batch."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("ab", buffering=0)

    async def append(self, key: Any, entries: list[Any]) -> None:
        await super().append(key, entries)
        self._file.write("".join([json.dumps(entry) + "\n" for entry in entries]).encode())
        os.fsync(self._file.fileno())


class EncodedSessionStore(InMemorySessionStore):
    """The SDK's store, and JSON of each batch, made in a worker thread and thrown away: the limit
    of a store that keeps JSON, before it checks or keeps anything."""

    async def append(self, key: Any, entries: list[Any]) -> None:
        await hop(encode, entries)
        await super().append(key, entries)


def measure(workshop: Workshop) -> Iterable[Figure]:
    with (
        closing(ClewSessionStore("memory:")) as in_memory,
        closing(ClewSessionStore(f"sqlite:{workshop.new_path()}")) as on_disk,
        asyncio.Runner() as runner,
    ):
        synced = SyncedSessionStore(workshop.new_path())
        stores = [InMemorySessionStore(), in_memory, synced, on_disk, EncodedSessionStore()]
        yield from _append(runner, stores)
        yield from _load(runner, stores, workshop.new_path().parent)
        yield from _fork(runner, on_disk)


# --- appending ------------------------------------------------------------------------------


def _append(runner: asyncio.Runner, stores: list[Any]) -> Iterable[Figure]:
    for size, calls in _CALLS.items():
        yield from _compare_mirrors(runner, stores, f"turns of {size}", calls, eager=False)
    few = next(reversed(_CALLS.values()))
    yield from _compare_mirrors(runner, stores, "eager, record by record", few, eager=True)
    made = _Transcript(str(uuid.uuid4()))
    key = {"project_key": PROJECT, "session_id": str(uuid.uuid4())}

    def bare() -> tuple[float, ...]:
        batches = [made.turn() for _ in range(_TURNS)]
        return tuple(seconds(lambda s=s: runner.run(_append_all(s, key, batches))) for s in stores)

    theirs, ours, _, durable, limit = in_rounds(_ROUNDS, bare)
    name = "claude: bare append of what is parsed, Clew"
    yield ratio(f"{name} in memory / InMemory", ours, theirs, at_most=3)
    yield ratio("claude: bare append of what is parsed, limit: hop and JSON", limit, theirs)
    yield ratio(f"{name} on SQLite / InMemory", durable, theirs)


def _compare_mirrors(
    runner: asyncio.Runner, stores: list[Any], size: str, calls: int, *, eager: bool
) -> Iterable[Figure]:
    say(f"mirroring as the SDK does: {size}")
    session = str(uuid.uuid4())
    made = _Transcript(session, calls)

    def mirror() -> tuple[float, ...]:
        lines = [_lines(session, made.turn()) for _ in range(_TURNS)]
        batches = [[line] for turn in lines for line in turn] if eager else lines
        return tuple(seconds(lambda s=s: runner.run(_mirror(s, batches))) for s in stores)

    theirs, ours, synced, durable, limit = in_rounds(_ROUNDS, mirror)
    what = f"claude: append, {size}"
    yield ratio(f"{what}, Clew in memory / InMemory, time", ours, theirs, at_most=3)
    yield ratio(f"{what}, limit: hop and JSON / InMemory, time", limit, theirs)
    yield ratio(f"{what}, Clew on SQLite / InMemory with JSONL + fsync", durable, synced, at_most=3)
    yield ratio(f"{what}, Clew on SQLite (durable) / InMemory (not)", durable, theirs)


async def _mirror(store: Any, turns: list[list[str]]) -> None:
    """What the SDK does with the lines that the CLI writes, turn after turn."""

    async def failed(key: Any, message: str) -> None:
        raise RuntimeError(message)

    batcher = TranscriptMirrorBatcher(store, "/projects", failed)
    for turn in turns:
        for line in turn:
            frame = json.loads(line)
            batcher.enqueue(frame["filePath"], frame["entries"])
        await batcher.flush()


async def _append_all(store: Any, key: Any, batches: list[list[Any]]) -> None:
    for batch in batches:
        await store.append(key, batch)


# --- loading --------------------------------------------------------------------------------


def _load(runner: asyncio.Runner, stores: list[Any], folder: Path) -> Iterable[Figure]:
    say("loading a long session from each in turn")
    session = str(uuid.uuid4())
    key = {"project_key": PROJECT, "session_id": session}
    records = [record for batch in _batches(session, _LONG_TURNS) for record in batch]
    for store in stores:
        runner.run(_append_all(store, key, [records]))
    sides = (stores[0], stores[1], stores[3])

    def compare(load: Callable[[Any], Any]) -> list[list[float]]:
        return in_rounds(
            _ROUNDS, lambda: tuple(seconds(lambda s=s: runner.run(load(s))) for s in sides)
        )

    what = f"claude: load {len(records):,} records"
    theirs, ours, durable = compare(lambda s: _resume(s, key))
    yield ratio(f"{what} to resume, Clew in memory / InMemory, time", ours, theirs, at_most=3)
    yield ratio(f"{what} to resume, Clew on SQLite / InMemory, time", durable, theirs, at_most=3)
    theirs, ours, durable = compare(lambda s: get_session_messages_from_store(s, session))
    yield ratio(f"{what} as messages, Clew in memory / InMemory (parses nothing)", ours, theirs)
    yield ratio(f"{what} as messages, Clew on SQLite / InMemory (parses nothing)", durable, theirs)
    file = folder / "projects" / PROJECT / f"{session}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join([json.dumps(record) + "\n" for record in records]))
    os.environ["CLAUDE_CONFIG_DIR"] = str(folder)  # where the SDK looks for transcripts
    on_disk = in_rounds(_ROUNDS, lambda: (seconds(lambda: get_session_messages(session)),))[0]
    name = f"{what} as messages, Clew on SQLite / the SDK's own file, time"
    yield ratio(name, durable, on_disk, at_most=3)
    theirs, ours, durable = compare(lambda s: s.load(key))
    yield milliseconds(f"{what}, bare call, Clew on SQLite", durable)
    yield milliseconds(f"{what}, bare call, InMemory (copies a list of references)", theirs)


async def _resume(store: Any, key: Any) -> int:
    """The text of the file that the SDK writes for the CLI to resume from."""
    return len("".join([json.dumps(record) + "\n" for record in await store.load(key)]))


# --- forking --------------------------------------------------------------------------------


def _fork(runner: asyncio.Runner, store: ClewSessionStore) -> Iterable[Figure]:
    say("forking by reference and by rewriting")
    session = str(uuid.uuid4())
    key = {"project_key": PROJECT, "session_id": session}
    records = [record for batch in _batches(session, _LONG_TURNS) for record in batch]
    runner.run(_append_all(store, key, [records]))

    def fork() -> tuple[float, ...]:
        return (
            seconds(lambda: runner.run(store.fork(key))),
            seconds(lambda: runner.run(fork_session_via_store(store, session))),
        )

    ours, theirs = in_rounds(_ROUNDS, fork)
    what = f"claude: fork {len(records):,} records"
    yield ratio(f"{what}, rewriting (the SDK's) / by reference, time", theirs, ours, at_least=20)
    yield milliseconds(f"{what} by reference", ours)


# --- records --------------------------------------------------------------------------------


def _lines(session: str, records: list[Any]) -> list[str]:
    """The lines that the CLI writes for records."""
    path = f"/projects/{PROJECT}/{session}.jsonl"
    frame = {"type": "transcript_mirror", "filePath": path}
    return [json.dumps({**frame, "entries": [record]}) for record in records]


def _batches(session: str, turns: int) -> list[list[Any]]:
    made = _Transcript(session)
    return [made.turn() for _ in range(turns)]


class _Transcript:
    """Records of a session: each turn a question, calls with their results, an answer."""

    def __init__(self, session: str, calls: int = 11) -> None:
        self._session = session
        self._calls = calls
        self._last: str | None = None
        self._chance = random.Random(SEED)

    def turn(self) -> list[Any]:
        records = [self._record("user", {"role": "user", "content": prose(self._chance, 60)})]
        for _ in range(self._calls):
            id = f"toolu_{uuid.uuid4().hex}"
            call = {
                "type": "tool_use",
                "id": id,
                "name": "Bash",
                "input": {"command": prose(self._chance, 30)},
            }
            records.append(self._record("assistant", self._reply(call)))
            output = prose(self._chance, 420)
            result = {"type": "tool_result", "tool_use_id": id, "content": output}
            message = {"role": "user", "content": [result]}
            records.append(self._record("user", message, toolUseResult={"stdout": output}))
        answer = self._reply({"type": "text", "text": prose(self._chance, 120)})
        return [*records, self._record("assistant", answer)]

    def _reply(self, block: Any) -> Any:
        usage = {"input_tokens": 10, "cache_read_input_tokens": 20_000, "output_tokens": 200}
        name = f"msg_{uuid.uuid4().hex}"
        model = "claude-test"
        return {"id": name, "role": "assistant", "model": model, "content": [block], "usage": usage}

    def _record(self, type: str, message: Any, **more: Any) -> Any:
        parent, self._last = self._last, str(uuid.uuid4())
        return {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/me/project",
            "sessionId": self._session,
            "version": "2.1.199",
            "gitBranch": "main",
            "type": type,
            "message": message,
            "uuid": self._last,
            "timestamp": "2026-03-01T10:00:00.000Z",
            **more,
        }
