"""Where the engines under test keep their things."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from clew.engine import Engine
from clew.engines.files import FilesEngine
from clew.engines.memory import MemoryEngine
from clew.engines.sqlite import SQLiteEngine
from clew.leasing import Instant


class MemoryPlace:
    def open(self) -> Engine:
        self.engine = MemoryEngine()
        return self.engine

    def reopen(self, engine: Engine) -> Engine:
        return engine

    def close(self) -> None:
        self.engine.close()


class DurablePlace:
    """A place on disk: what was closed can be opened again."""

    engine: Callable[..., Engine]

    def __init__(self, folder: Path, clock: Callable[[], Instant] | None = None) -> None:
        self.path = folder / "threads"
        self._options = {} if clock is None else {"clock": clock}
        self._opened: list[Engine] = []

    def open(self) -> Engine:
        engine = type(self).engine(self.path, **self._options)
        self._opened.append(engine)
        return engine

    def reopen(self, engine: Engine) -> Engine:
        engine.close()
        return self.open()

    def close(self) -> None:
        for engine in self._opened:
            engine.close()


class SQLitePlace(DurablePlace):
    engine = SQLiteEngine


class FilesPlace(DurablePlace):
    engine = FilesEngine


PLACES = {"memory": lambda folder: MemoryPlace(), "sqlite": SQLitePlace, "files": FilesPlace}
