"""A process that is killed in the middle of an erasure: each entry is whole or erased after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import clew

WORD = "zanzibarkey"
KILLED = """
import importlib, os, signal, sys
import clew

address, engine, point = sys.argv[1], sys.argv[2], int(sys.argv[3])
module = importlib.import_module(f"clew.engines.{engine}.erase")
whole, left = module.tombstoned, [point]

def tombstoned(*given):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(*given)

module.tombstoned = tombstoned
with clew.open(address) as store:
    store.erase("c", ["a0", "a1", "b0", "c0"])
"""


@pytest.fixture(params=["sqlite", "files", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param == "postgres":
        return "postgres", str(request.getfixturevalue("postgres_dsn"))
    return request.param, f"{request.param}:{tmp_path / 'store'}"


@pytest.mark.parametrize("point", range(4))
def test_each_entry_is_whole_or_erased(where: tuple[str, str], point: int) -> None:
    engine, address = where
    with clew.open(address) as store:
        thread = store.create("a")
        for n in range(3):
            thread.append("event", f"{WORD} {n}", id=f"a{n}")
        for id, origin in (("b", "a"), ("c", "b")):
            thread = store.fork(origin, id=id)
            thread.append("event", WORD, id=f"{id}0")
    command = [sys.executable, "-c", KILLED, address, engine, str(point)]
    assert subprocess.run(command, check=False).returncode == -9
    with clew.open(address) as store:
        assert store.verify() == []
        found = {entry.id: entry for entry in store.get("c").path()}
        gone = {id for id, entry in found.items() if entry.erased_at is not None}
        assert all(WORD in found[id].body for id in found.keys() - gone)
        assert not gone if engine != "files" else gone in (set(), {"a0", "a1"}, {"a0", "a1", "b0"})
        # What was written in one thread is erased at once, and told of in its log.
        told = {key for id in "abc" for key in store.get(id).facts if key.startswith("erased.")}
        assert told == {f"erased.{id}" for id in gone}
        receipt = store.erase("c", ["a0", "a1", "b0", "c0"])
        assert (receipt.records, [one.place for one in receipt.left if one.left]) == (4, [])
        kept = [entry.id for entry in store.get("c").path() if entry.erased_at is None]
        assert (kept, store.verify()) == (["a2"], [])
