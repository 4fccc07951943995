"""A store that was prepared ends no command but its own: in time, in memory, on the disk.

Every trap with every command, under limits; `make test` runs one command for each trap.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from amounts import pairs
from hostile.commands import EVERYTHING
from hostile.limited import Limits, Runner
from hostile.traps import FILES, SQLITE, honest

from clew.cli._exits import UNAVAILABLE

LIMITS = Limits(cpu_seconds=30, wall_seconds=600)
SAMPLED = len(EVERYTHING)


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


@pytest.fixture(scope="module")
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    for engine in ("sqlite", "files"):
        honest(engine, folder / engine)
    return folder


@pytest.mark.parametrize(("trap", "command"), pairs(tuple(SQLITE), EVERYTHING, SAMPLED))
def test_a_sqlite_store_is_no_trap(
    trap: str, command: str, template: Path, runner: Runner, tmp_path: Path
) -> None:
    folder = tmp_path / "w"
    shutil.copytree(template / "sqlite", folder, symlinks=True)
    SQLITE[trap].build(folder / "s.db")
    check(str(folder / "s.db"), SQLITE[trap].thread, command, folder, runner)


@pytest.mark.parametrize(("trap", "command"), pairs(tuple(FILES), EVERYTHING, SAMPLED))
def test_a_store_of_files_is_no_trap(
    trap: str, command: str, template: Path, runner: Runner, tmp_path: Path
) -> None:
    folder = tmp_path / "w"
    shutil.copytree(template / "files", folder, symlinks=True)
    FILES[trap].build(folder / "store")
    check(f"files:{folder / 'store'}", FILES[trap].thread, command, folder, runner)


def check(address: str, thread: str, command: str, folder: Path, runner: Runner) -> None:
    words = [word.format(a=address, t=thread) for word in command.split()]
    ended = runner.run(words, folder, LIMITS)
    out = list(folder.glob("out.*"))
    if words[0] == "export" and ended.written_bytes > LIMITS.written_bytes:
        # It is asked for all that the thread says. A disk with no room for that ends it, and has
        # its room back.
        assert (ended.code, out) == (UNAVAILABLE, [])
        ended = replace(ended, written_bytes=0)
    os.system(f"rm -rf {folder}")  # folders a thousand deep are nothing for shutil
    assert ended.failings(LIMITS) == []
    assert "unrecognized" not in ended.said


def test_what_goes_over_a_limit_is_noticed(runner: Runner, tmp_path: Path) -> None:
    """Otherwise all of the above would say nothing."""
    for function in ("takes_time", "takes_memory", "writes", "fails", "waits"):
        limits = Limits(cpu_seconds=1, wall_seconds=5, memory_bytes=1 << 28, written_bytes=1 << 20)
        ended = runner.call(f"hostile.excesses:{function}", tmp_path, limits)
        assert ended.failings(limits), function
    ended = runner.call("hostile.excesses:is_modest", tmp_path, Limits())
    assert ended.failings(Limits()) == []
