"""Random families of forks, purged in any order: what is left of them is what it was.

Unlike in the model test, every step does something: forks begin at any entry that is visible, also
at inherited ones, and leaves move to any of them. So forks of forks hang on what others left.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from places import FilesPlace, SQLitePlace

from clew.engine import Engine
from clew.engines.memory import MemoryEngine
from clew.model import EntryDraft, MoveDraft, Origin, ThreadDraft

PICKS = st.integers(0, 1000)  # of whatever there is then
GROWTH = st.lists(
    st.tuples(st.sampled_from(["fork", "fork", "append", "append", "move", "purge"]), PICKS, PICKS),
    max_size=24,
)
PURGES = st.lists(st.tuples(st.just("purge"), PICKS, PICKS), max_size=8)


class Family:
    """The same threads on several engines, the reducer first."""

    def __init__(self, engines: list[Engine]) -> None:
        self.engines = engines
        self.visible: dict[str, list[str]] = {}  # thread → entries, its own and inherited ones
        self._made = 0
        self._all(lambda e: e.create(ThreadDraft(id="t0", created_us=0)))
        self.visible["t0"] = []
        self.append("t0", 0)

    def _all(self, call: Any) -> Any:
        expected, *found = (call(engine) for engine in self.engines)
        assert all(answer == expected for answer in found)
        return expected

    def _new(self) -> int:
        self._made += 1
        return self._made

    def step(self, what: str, thread: int, entry: int) -> None:
        if self.visible:
            getattr(self, what)(sorted(self.visible)[thread % len(self.visible)], entry)

    def fork(self, source: str, pick: int) -> None:
        id, at = f"t{self._new()}", self._pick(source, pick)
        path = self._all(lambda e: [] if at is None else e.path(source, at))
        origin = Origin(source, at, path[-1].hash if path else None)
        self._all(lambda e: e.create(ThreadDraft(id=id, created_us=0, origin=origin)))
        self.visible[id] = [entry.id for entry in path]
        if pick % 2:
            self.append(id, 0)

    def append(self, thread: str, pick: int) -> None:
        draft = EntryDraft(id=f"e{self._new()}", kind="user_message", data=b"1", time_us=0)
        self._all(lambda e: e.append(thread, [draft]))
        self.visible[thread].append(draft.id)

    def move(self, thread: str, pick: int) -> None:
        draft = MoveDraft(id=f"m{self._new()}", leaf=self._pick(thread, pick), time_us=0)
        self._all(lambda e: e.append(thread, [draft]))
        self.append(thread, 0)

    def purge(self, thread: str, pick: int) -> None:
        before = self._paths()
        self._all(lambda e: e.purge(thread))
        del before[thread], self.visible[thread]
        assert self._paths() == before
        for engine in self.engines:
            assert list(engine.check()) == []
        if not self.visible:
            assert [engine.stats().records for engine in self.engines] == [0] * len(self.engines)

    def _pick(self, thread: str, pick: int) -> str | None:
        return [*self.visible[thread], None][pick % (len(self.visible[thread]) + 1)]

    def _paths(self) -> dict[str, Any]:
        return {
            thread: self._all(lambda e, t=thread: self._paths_of(e, t)) for thread in self.visible
        }

    def _paths_of(self, engine: Engine, thread: str) -> list[Any]:
        """The path to every entry that a thread can see."""
        return [engine.path(thread), *(engine.path(thread, id) for id in self.visible[thread])]


@settings(max_examples=1500, derandomize=False)
@given(growth=GROWTH, purges=PURGES, afresh=st.booleans())
def test_purges_in_any_order_leave_the_paths_of_all_others(
    growth: list[Any], purges: list[Any], afresh: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        places = [SQLitePlace(Path(folder, "sqlite")), FilesPlace(Path(folder, "files"))]
        for place in places:
            place.path.parent.mkdir()
        family = Family([MemoryEngine(), *(place.open() for place in places)])
        for step in growth:
            family.step(*step)
        for step in purges:
            if afresh:  # what is known by heart, and the index of files, are gone
                _reopen(family, places)
            family.step(*step)
        for place in places:
            place.close()


def _reopen(family: Family, places: list[Any]) -> None:
    for at, place in enumerate(places, start=1):
        family.engines[at].close()
        shutil.rmtree(place.path / "index", ignore_errors=True)
        family.engines[at] = place.open()
