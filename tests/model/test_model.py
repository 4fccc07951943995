"""Random programs: every engine does what the reducer does.

The same operations run on the engine under test and on the memory engine, which is the reducer
behind a lock; after each, both must have answered alike (or refused alike), and everything that
can be read must be equal.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from amounts import amount
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import UNSET
from msgspec.structs import replace
from places import FilesPlace, PostgresPlace, SQLitePlace, packed_eagerly

from clew.core.codec import digest
from clew.core.engine import Engine
from clew.core.errors import ClewError
from clew.core.lease_rules import Instant
from clew.core.model import (
    Acquire,
    ClearExpired,
    Draft,
    EntryDraft,
    FactDraft,
    Inspect,
    MoveDraft,
    Origin,
    Release,
    Renew,
    ThreadDraft,
    ThreadQuery,
)
from clew.core.removal import Erased
from clew.engines.memory import MemoryEngine
from clew.engines.shared.tables import read

# Few names, so that programs collide: retries, conflicts, unknown and shared entries.
THREADS = st.sampled_from(["t", "u", "v", "w"])
ENTRIES = st.sampled_from([f"e{n}" for n in range(14)])
LEAVES = st.none() | ENTRIES
EXPECTED = st.just(UNSET) | LEAVES
FENCES = st.none() | st.integers(1, 3)
TIMES = st.integers(0, 50)
BODIES = st.sampled_from([b"1", b"[2]", b'"' + b"long " * 2000 + b'"'])

BLOBS = [digest(b"one"), digest(b"two" * 5000)]
entry_drafts = st.builds(
    EntryDraft,
    id=ENTRIES,
    kind=st.sampled_from(["user_message", "tool_call"]),
    data=BODIES,
    time_us=TIMES,
    parent=EXPECTED,
    turn=st.none() | st.just("turn"),
    blobs=st.sampled_from([(), (), (BLOBS[0],), (BLOBS[0], BLOBS[1])]),
)
move_drafts = st.builds(
    MoveDraft, id=st.sampled_from(["m0", "m1", "e3"]), leaf=LEAVES, time_us=TIMES
)
facts = st.sampled_from(
    [
        ("tags", b'["x"]'),
        ("tags", b'["x","y"]'),
        ("tags", b"null"),
        ("archived", b"true"),
        ("archived", b"false"),
        ("status", b'"busy"'),
        ("workspace", b'"/w"'),
        ("free", b'{"a":1}'),
        ("deleted_us", b"7"),
        ("deleted_us", b"null"),
        ("tags", b"5"),  # refused
    ]
)
fact_drafts = st.builds(
    lambda n, fact, time_us: FactDraft(id=f"f{n}", key=fact[0], data=fact[1], time_us=time_us),
    st.integers(0, 99),
    facts,
    TIMES,
)
batches = st.lists(entry_drafts | move_drafts | fact_drafts, min_size=1, max_size=4)
requests = st.one_of(
    st.builds(Acquire, st.sampled_from(["me", "you"]), st.sampled_from([1.0, 5.0])),
    st.builds(Renew, st.integers(1, 3), st.just(3.0)),
    st.builds(Release, st.integers(1, 3)),
    st.just(Inspect()),
    st.builds(ClearExpired, st.none() | st.integers(0, 50_000_000)),
)


class Clock:
    """Time that moves only when the program says so."""

    def __init__(self) -> None:
        self.seconds = 0

    def __call__(self) -> Instant:
        return Instant(self.seconds * 10**9, "era", self.seconds * 10**6)


class EngineMatchesReducer(RuleBasedStateMachine):
    place_kind: type[SQLitePlace] | type[FilesPlace] | type[PostgresPlace]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.folder = Path(tempfile.mkdtemp())
        self.place = self.place_kind(self.folder, self.clock)
        self.engine: Engine = self.place.open()
        self.others: dict[str, Engine] = {}  # a second handle for each namespace
        self.model: Engine = MemoryEngine(clock=self.clock)

    def teardown(self) -> None:
        problems = list(self.engine.check())
        self.place.close()
        shutil.rmtree(self.folder)
        assert problems == []

    def both(self, call: Callable[[Engine], Any]) -> Any:
        """Run a call on both, and compare answers or errors."""
        expected, found = (_outcome(call, engine) for engine in (self.model, self.engine))
        assert found == expected
        return found

    # --- the program ---

    @initialize()
    def begin(self) -> None:
        self.both(lambda e: e.create(ThreadDraft(id="t", created_us=0)))

    @rule(id=THREADS, created_us=st.integers(0, 3), fact=st.none() | fact_drafts)
    def create(self, id: str, created_us: int, fact: FactDraft | None) -> None:
        given = () if fact is None else (fact,)
        self.both(lambda e: e.create(ThreadDraft(id=id, created_us=created_us, facts=given)))

    @rule(id=THREADS, source=THREADS, entry=LEAVES)
    def fork(self, id: str, source: str, entry: str | None) -> None:
        def call(engine: Engine) -> Any:
            hash = None if entry is None else engine.path(source, entry, limit=1)[0].hash
            return engine.create(
                ThreadDraft(id=id, created_us=9, origin=Origin(source, entry, hash))
            )

        self.both(call)

    @rule(thread=THREADS, batch=batches, expect=EXPECTED, fence=FENCES)
    def append(self, thread: str, batch: list[Draft], expect: Any, fence: int | None) -> None:
        self.both(lambda e: e.append(thread, batch, expect=expect, fence=fence))

    @rule(thread=THREADS, batch=st.lists(entry_drafts, min_size=1, max_size=6))
    def append_entries(self, thread: str, batch: list[Draft]) -> None:
        self.both(lambda e: e.append(thread, batch))

    @rule(thread=THREADS, request=requests)
    def lease(self, thread: str, request: Any) -> None:
        self.both(lambda e: e.lease(thread, request))

    @rule(seconds=st.integers(1, 4))
    def time_passes(self, seconds: int) -> None:
        self.clock.seconds += seconds

    @rule(thread=THREADS)
    def purge(self, thread: str) -> None:
        self.both(lambda e: replace(e.purge(thread), log_bytes=0, pages_left=False))

    @rule(thread=THREADS, entries=st.lists(ENTRIES, min_size=1, max_size=3), time_us=TIMES)
    def erase(self, thread: str, entries: list[str], time_us: int) -> None:
        def call(engine: Engine) -> list[Erased]:
            # How much of a log is left is a matter of the engine.
            found = engine.erase(thread, entries, time_us=time_us, reason="why")
            return [replace(one, log_bytes=0, pages_left=False) for one in found]

        self.both(call)

    @rule(data=st.sampled_from([b"one", b"two" * 5000]))
    def put_blob(self, data: bytes) -> None:
        self.both(lambda e: e.put_blobs([data]))

    @rule()
    def sweep(self) -> None:
        for engine in (self.model, self.engine):
            engine.sweep(grace_seconds=0)  # how many is not compared: large bodies are blobs too
        self.both(lambda e: e.has_blobs(BLOBS))

    @rule(tail=st.integers(1, 3), idle_seconds=st.sampled_from([0, 10**9]), shrink=st.booleans())
    def pack(self, tail: int, idle_seconds: float, shrink: bool) -> None:
        with packed_eagerly():
            self.engine.pack(tail=tail, idle_seconds=idle_seconds, shrink=shrink)

    @rule()
    def reopen(self) -> None:
        self.engine = self.place.reopen(self.engine)

    @rule()
    def change_handles(self) -> None:
        """What a handle remembers must not hide what another one has written."""
        name = self.engine.properties.namespace
        other = self.others.get(name) or self.place.open(namespace=name)
        self.others[name], self.engine = self.engine, other

    # --- what can be seen ---

    @rule(thread=THREADS, leaf=EXPECTED, after=LEAVES, limit=st.none() | st.integers(1, 4))
    def path(self, thread: str, leaf: Any, after: str | None, limit: int | None) -> None:
        self.both(lambda e: e.path(thread, leaf, after=after, limit=limit))

    @rule(
        order=st.sampled_from(["created", "updated"]),
        archived=st.none() | st.booleans(),
        deleted=st.booleans(),
        tag=st.none() | st.just("x"),
        status=st.none() | st.just("busy"),
        workspace=st.none() | st.just("/w"),
        origin=st.none() | THREADS,
        limit=st.integers(1, 3),
        cursor=st.none() | st.tuples(TIMES, THREADS),
    )
    def threads(self, **query: Any) -> None:
        self.both(lambda e: e.threads(ThreadQuery(**query)))

    @invariant()
    def everything_readable_is_equal(self) -> None:
        for thread in ("t", "u", "v", "w"):
            self.both(lambda e, t=thread: e.thread(t))
            self.both(lambda e, t=thread: e.read(t))
            self.both(lambda e, t=thread: e.path(t))
            self.both(lambda e, t=thread: e.segments(t))


def _outcome(call: Callable[[Engine], Any], engine: Engine) -> Any:
    try:
        return call(engine)
    except ClewError as error:
        return type(error), str(error)


class SQLiteMatchesReducer(EngineMatchesReducer):
    place_kind = SQLitePlace

    def __init__(self) -> None:
        super().__init__()
        # So that the index by update is brought up to date every now and then.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(read, "UNLISTED_MAX", 1)

    def teardown(self) -> None:
        self.patch.undo()
        super().teardown()


class FilesMatchReducer(EngineMatchesReducer):
    place_kind = FilesPlace


class PostgresMatchesReducer(EngineMatchesReducer):
    place_kind = PostgresPlace


TestSQLite = SQLiteMatchesReducer.TestCase
TestFiles = FilesMatchReducer.TestCase
TestSQLite.settings = settings(max_examples=amount(40, 400), stateful_step_count=40)
TestFiles.settings = settings(max_examples=amount(40, 400), stateful_step_count=40)


@pytest.mark.usefixtures("postgres_places")
class TestPostgres(PostgresMatchesReducer.TestCase):
    settings = settings(max_examples=amount(8, 100), stateful_step_count=40)
