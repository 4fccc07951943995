"""The last record cut at every byte, and filled with NULs from every byte on.

That is what a writer leaves that dies in the middle of it, and what a file system leaves that
wrote down the new size of a file and not its new bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from faults.operations import HASHES, append, entry, fact, prepare, warm
from faults.points import Outcome, whole
from faults.stores import Image, Kind, grown, load, look, store
from msgspec import UNSET

from clew.core.engine import Engine
from clew.core.errors import ClewError


def append_batch(engine: Engine) -> None:
    """Several records that stand or fall together."""
    batch = [
        entry(f"b{n}", {"content": "z" * 200}, parent="warm" if n == 0 else UNSET) for n in range(3)
    ]
    engine.append("t", [*batch, fact("b4", "status", "busy")])


LAST: dict[str, Callable[[Engine], None]] = {"append": append, "append a batch": append_batch}


class Tail:
    """A store with one more record, and without it, as a killed process leaves them."""

    def __init__(self, kind: Kind, name: str, folder: Path) -> None:
        self._kind, self._name, self._folder, self._run = kind, name, folder, LAST[name]
        with kind.open(store({}, folder)) as engine:
            prepare(engine)
        with kind.open(folder) as engine:
            warm(engine)
            self.before, image = look(engine, HASHES), self._image()
            self._run(engine)
            self.after, self._whole = look(engine, HASHES), self._image()
        self._file, self._start = grown(kind, image, self._whole)

    def _image(self) -> Image:
        image = load(self._folder)
        return {name: data for name, data in image.items() if name not in self._kind.never_kept}

    def run(self, outcome: Outcome, points_max: int) -> None:
        """Every byte, or evenly spread ones if there are too many."""
        data = self._whole[self._file]
        assert data is not None
        step = math.ceil(2 * (len(data) - self._start) / points_max)
        for offset in range(len(data) - 1, self._start - 1, -step):
            for name, damaged in (
                ("cut at", data[:offset]),
                ("NULs from", data[:offset] + bytes(len(data) - offset)),
            ):
                point = f"{self._kind.name}, {self._name}, {self._file} {name} {offset}"
                outcome.add(point, self._try(damaged))

    def _try(self, data: bytes) -> str | None:
        store(self._whole | {self._file: data}, self._folder)
        try:
            with self._kind.open(self._folder) as engine:
                return self._judge(engine)
        except (ClewError, AssertionError) as error:
            return f"{type(error).__name__}: {error}"

    def _judge(self, engine: Engine) -> str | None:
        found = look(engine, HASHES)
        if found.history not in (self.before.history, self.after.history):
            return "more is gone than the last record, or only a part of it"
        for problem in engine.check():
            if problem.thread != "t" or (problem.seq or 0) <= self.before.threads["t"].info.seq:
                return f"verify: {problem}"
        self._run(engine)
        if look(engine, HASHES).history != self.after.history:
            return "a retry did not lead to the state of one successful try"
        return whole(engine)
