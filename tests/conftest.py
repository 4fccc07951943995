"""The engines that every shared test runs on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from clew.engine import Engine
from clew.engines.memory import MemoryEngine
from clew.engines.sqlite import SQLiteEngine
from clew.leasing import Instant
from clew.store import Store

# Deadlines measure the machine, not the code; examples are derived from the test itself.
settings.register_profile("clew", deadline=None, derandomize=True, database=None)
settings.load_profile("clew")


class MemoryPlace:
    def open(self) -> Engine:
        self.engine = MemoryEngine()
        return self.engine

    def reopen(self, engine: Engine) -> Engine:
        return engine

    def close(self) -> None:
        self.engine.close()


class SQLitePlace:
    def __init__(self, folder: Path, clock: Callable[[], Instant] | None = None) -> None:
        self.path = folder / "threads.db"
        self._options = {} if clock is None else {"clock": clock}
        self._opened: list[Engine] = []

    def open(self) -> Engine:
        engine = SQLiteEngine(self.path, **self._options)
        self._opened.append(engine)
        return engine

    def reopen(self, engine: Engine) -> Engine:
        engine.close()
        return self.open()

    def close(self) -> None:
        for engine in self._opened:
            engine.close()


PLACES = {"memory": lambda folder: MemoryPlace(), "sqlite": SQLitePlace}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryPlace | SQLitePlace]:
    made = PLACES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(place: MemoryPlace | SQLitePlace) -> Iterator[Store]:
    """A store on each engine, with a clock that ticks a second with every look."""
    ticks = itertools.count(1_700_000_000_000_000, 1_000_000)
    opened = Store(place.open(), clock=lambda: next(ticks))
    yield opened
    opened.close()
