"""Thousands of stores that are not what Clew writes: no command takes one for its own mistake.

Each mutant is used as a person would use a store that was sent to them, under limits of time,
memory and written bytes. Nothing outside of it is touched.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from amounts import amount
from hostile.commands import EVERYTHING
from hostile.limited import Limits, Runner
from hostile.mutants import mutant, template

LIMITS = Limits(cpu_seconds=20, wall_seconds=300)
BATCHES = amount(2, 50)
EACH = amount(10, 100)
LAST = ("repair {a}", "verify {a}")  # whatever became of it, it can be tried


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What building a store that is damaged logs is of no interest."""
    log = logging.getLogger("clew")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as runner:
        yield runner


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("engine", ["sqlite", "files"])
def test_a_mutant_is_no_mistake_of_clew(
    engine: str, batch: int, runner: Runner, tmp_path: Path
) -> None:
    origin = tmp_path / "template"
    origin.mkdir()
    template(engine, origin)
    found = []
    for number in range(batch * EACH, (batch + 1) * EACH):
        folder = tmp_path / "m"
        shutil.copytree(origin, folder / "in", symlinks=True)
        found += try_mutant(engine, number, folder, runner)
        os.system(f"rm -rf {folder}")  # deep folders, and what may be left, are nothing for shutil
    assert found == []


def try_mutant(engine: str, number: int, folder: Path, runner: Runner) -> list[str]:
    """What went wrong with one mutant."""
    outside = folder / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"somebody else's")
    said = mutant(engine, number, folder / "in")
    place = folder / "in" / ("s.db" if engine == "sqlite" else "store")
    address = str(place) if engine == "sqlite" else f"files:{place}"
    chance = random.Random(-number)
    chosen = [*chance.sample(EVERYTHING, 4), *LAST]
    threads = ("good", "fork", "t", "heir")
    commands = [
        [word.format(a=address, t=chance.choice(threads)) for word in command.split()]
        for command in chosen
    ]
    ended = runner.run_all(commands, folder, LIMITS)
    wrong = ended.failings(LIMITS)
    names = sorted(path.name for path in outside.iterdir())
    kept = stat.S_ISREG((outside / "file").lstat().st_mode)
    if names != ["file"] or not kept or (outside / "file").read_bytes() != b"somebody else's":
        wrong.append("it touched what is outside")
    return [f"{engine} mutant {number} ({said}): {one}" for one in wrong]
