"""Random families of forks, purged in any order: what is left of them is what it was.

Unlike in the model test, every step does something: forks begin at any entry that is visible, also
at inherited ones, and leaves move to any of them. So forks of forks need what forks left behind.
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
from hypothesis import given, settings
from msgspec.structs import replace
from places import FilesPlace, PostgresPlace, SQLitePlace

from clew.core.engine import Engine
from clew.core.model import Draft, EntryDraft, MoveDraft, Origin, ThreadDraft
from clew.engines.memory import MemoryEngine

PICKS = st.integers(0, 7)  # of whatever there is then, the newest first
# A thread: what it is forked from, and where; what it then moves its leaf to, each time to append.
FORKS = st.lists(st.tuples(PICKS, PICKS, st.lists(st.none() | PICKS, max_size=3)), max_size=6)


class Family:
    """The same threads on several engines, the reducer first."""

    def __init__(self, engines: list[Engine]) -> None:
        self.engines = engines
        self.visible: dict[str, list[str]] = {"t0": []}  # entries, a thread's own and inherited
        self._made = 0
        self._all(lambda e: e.create(ThreadDraft(id="t0", created_us=0)))
        self.append("t0", None)
        self.append("t0", None)

    def _all(self, call: Callable[[Engine], Any]) -> Any:
        expected, *found = (call(engine) for engine in self.engines)
        assert all(answer == expected for answer in found)
        return expected

    def _new(self) -> int:
        self._made += 1
        return self._made

    def fork(self, source: int, at: int, moves: list[int | None]) -> None:
        threads = list(self.visible)[::-1]
        thread = threads[source % len(threads)]
        entry = self._pick(thread, at)
        path = self._all(lambda e: [] if entry is None else e.path(thread, entry))
        origin = Origin(thread, entry, path[-1].hash if path else None)
        id = f"t{self._new()}"
        self._all(lambda e: e.create(ThreadDraft(id=id, created_us=0, origin=origin)))
        self.visible[id] = [entry.id for entry in path]
        for move in moves:
            self.append(id, move)

    def append(self, thread: str, move: int | None) -> None:
        """Append an entry, after moving the leaf, perhaps."""
        drafts: list[Draft] = []
        if move is not None:
            leaf = self._pick(thread, move)
            drafts.append(MoveDraft(id=f"m{self._new()}", leaf=leaf, time_us=0))
        id = f"e{self._new()}"
        drafts.append(EntryDraft(id=id, kind="user_message", data=b"1", time_us=0))
        self._all(lambda e: e.append(thread, drafts))
        self.visible[thread].append(id)

    def purge(self, thread: str) -> None:
        before = self._paths()
        self._all(lambda e: replace(e.purge(thread), log_bytes=0, pages_left=False))
        del before[thread], self.visible[thread]
        assert self._paths() == before
        for engine in self.engines:
            assert list(engine.check()) == []
        if not self.visible:
            assert [engine.stats().records for engine in self.engines] == [0] * len(self.engines)

    def _pick(self, thread: str, pick: int) -> str | None:
        entries = [*self.visible[thread][::-1], None]
        return entries[pick % len(entries)]

    def _paths(self) -> dict[str, Any]:
        return {
            thread: self._all(lambda e, t=thread: self._paths_of(e, t)) for thread in self.visible
        }

    def _paths_of(self, engine: Engine, thread: str) -> list[Any]:
        """The path to every entry that a thread can see."""
        return [engine.path(thread), *(engine.path(thread, id) for id in self.visible[thread])]


@settings(max_examples=amount(40, 500))
@given(forks=FORKS, data=st.data(), afresh=st.booleans())
def test_purges_in_any_order_leave_the_paths_of_all_others(
    forks: list[Any], data: st.DataObject, afresh: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        places = [SQLitePlace(Path(folder, "sqlite")), FilesPlace(Path(folder, "files"))]
        for place in places:
            place.path.parent.mkdir()
        family = Family([MemoryEngine(), *(place.open() for place in places)])
        try:
            for fork in forks:
                family.fork(*fork)
            for thread in data.draw(st.permutations(list(family.visible))):
                if afresh:  # what is known by heart, and the index of files, are gone
                    _reopen(family, places)
                family.purge(thread)
        finally:
            for place in places:
                place.close()


@pytest.mark.usefixtures("postgres_places")
@settings(max_examples=amount(8, 100))
@given(forks=FORKS, data=st.data())
def test_purges_on_a_server_leave_the_paths_of_all_others(
    forks: list[Any], data: st.DataObject
) -> None:
    place = PostgresPlace(Path())
    try:
        family = Family([MemoryEngine(), place.open()])
        for fork in forks:
            family.fork(*fork)
        for thread in data.draw(st.permutations(list(family.visible))):
            family.purge(thread)
    finally:
        place.close()


def _reopen(family: Family, places: list[Any]) -> None:
    for at, place in enumerate(places, start=1):
        family.engines[at].close()
        shutil.rmtree(place.path / "index", ignore_errors=True)
        family.engines[at] = place.open()
