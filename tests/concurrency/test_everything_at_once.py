"""Everything that can be done with a store, by several processes at once: nothing gets in the way
of anything else but as it is documented, what was acknowledged is there, and the store is whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount
from places import ADDRESSES

import clew

PROCESSES = 3
WORKER = Path(__file__).with_name("everything.py")


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest) -> str:
    return ADDRESSES[request.param](request)


def start(address: str, folder: Path, seed: int, count: int) -> subprocess.Popen[str]:
    folder.mkdir()
    command = [sys.executable, str(WORKER), address, str(folder), str(seed), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("killed", [False, True])
def test_everything_at_once(address: str, tmp_path: Path, killed: bool) -> None:
    """One of the processes is killed somewhere on the way, and another one comes for it."""
    clew.open(address).close()
    count, rounds = amount(60, 500), amount(1, 4)
    for round_ in range(rounds):
        seeds = range(10 * round_, 10 * round_ + PROCESSES)
        workers = [start(address, tmp_path / f"{seed}", seed, count) for seed in seeds]
        said: list[list[str]] = []
        if killed:
            assert workers[0].stdout is not None
            said += [json.loads(workers[0].stdout.readline()) for _ in range(5)]
            workers[0].send_signal(signal.SIGKILL)
            workers.append(start(address, tmp_path / f"{round_}more", 10 * round_ + 9, count))
        for worker in workers:
            out, _ = worker.communicate(timeout=600)
            # Of a killed one the last line may be cut.
            said += [json.loads(line) for line in out.splitlines(keepends=True) if line[-1] == "\n"]
            assert worker.returncode == (-signal.SIGKILL if killed and worker is workers[0] else 0)
        assert [text for what, text in said if what == "wrong"] == []
        assert [what for what, _ in said].count("done") == PROCESSES
        with clew.open(address) as store:
            for thread, entry in (text.split() for what, text in said if what == "appended"):
                assert store.get(thread).get(entry).id == entry
            assert store.verify() == []
