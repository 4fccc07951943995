"""Random programs between backups that are killed at any moment, or whose target is damaged.

What is restored is verified, and each thread in it is as it was at a moment that was acknowledged;
after a backup that ended, all of them are as they were then. No fence is given twice.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from amounts import amount

import clew
from clew.core.errors import ClewError
from clew.core.model import Acquire
from clew.upkeep.backup import backup
from clew.upkeep.restore import restore
from clew.upkeep.transfer import everything

BACKUP = "import sys; from clew.upkeep.backup import backup; backup(sys.argv[1], sys.argv[2])"
SCHEMES = [("", ""), ("files:", "files:"), ("", "files:"), ("files:", "")]
Log = list[tuple[str, str]]


class Program:
    """A store that goes on, and every log that a thread of it has ever had."""

    def __init__(self, address: str, seed: int) -> None:
        self.address = address
        self.random = random.Random(seed)
        self.fences: set[int] = set()
        self.longest: dict[tuple[str, str], Log] = {}  # by thread and its first record
        self.erased: set[str] = set()
        self.made = 0

    def live(self, steps: int) -> None:
        with clew.open(self.address) as store:
            for _ in range(steps):
                self.step(store)
                self.learn(store)

    def step(self, store: clew.Store) -> None:
        ids = sorted(info.id for info in everything(store.engine) if info.deleted_at is None)
        what = self.random.random()
        if what < 0.2 or not ids:
            self.made += 1
            store.create(f"t{self.made}", title="first").append("event", self.body())
            return
        thread = store.get(self.random.choice(ids))
        if what < 0.6:
            many = self.random.choice([1, 5, 60])
            thread.append([clew.draft("event", self.body()) for _ in range(many)])
        elif what < 0.7 and thread.path():
            self.made += 1
            at = self.random.choice(thread.path()).id
            store.fork(thread.id, at=at, id=f"t{self.made}", title="first")
        elif what < 0.78 and thread.path():
            chosen = self.random.choice(thread.path()).id
            store.erase(thread.id, [chosen])
            self.erased.add(chosen)
        elif what < 0.83 and len(ids) > 3:
            store.purge(thread.id)
        elif what < 0.93:
            lease = store.engine.lease(thread.id, Acquire("somebody", 600))
            assert lease is not None
            assert lease.fence not in self.fences, "a fence was given twice"
            self.fences.add(lease.fence)
            thread.leases.release(lease)
        else:
            thread.set(title=str(self.body())[:40], note=self.body())

    def body(self) -> str:
        return f"{self.random.random()} " * self.random.choice([1, 10, 900])

    def learn(self, store: clew.Store) -> None:
        for id, log in logs(store).items():
            known = self.longest.get((id, log[0][1])) if log else None
            assert known is None or log[: len(known)] == known
            if log:
                self.longest[id, log[0][1]] = log

    def is_acknowledged(self, id: str, log: Log) -> bool:
        """Whether a thread was so at a moment; one that another has followed has a name more."""
        name = id.partition("~")[0]
        return not log or log == self.longest.get((name, log[0][1]), [])[: len(log)]


def logs(store: clew.Store) -> dict[str, Log]:
    return {
        info.id: [(one.id, one.hash) for one in store.engine.read(info.id, limit=9999)]
        for info in everything(store.engine)
    }


def restored(program: Program, target: str, place: str) -> dict[str, Log]:
    """What comes back: verified, each thread as it was, and with fences of its own."""
    restore(target, place)
    with clew.open(place) as store:
        assert store.verify() == []
        found = logs(store)
        for id, log in found.items():
            assert program.is_acknowledged(id, log), id
            lease = store.engine.lease(id, Acquire("another", 600))
            assert lease is not None
            assert lease.fence not in program.fences, "a fence was given twice"
            program.fences.add(lease.fence)
    return found


def attempt(program: Program, target: str, seconds: float | None) -> bool:
    """A backup by a process that is killed then. Whether it ended before."""
    command = [sys.executable, "-c", BACKUP, program.address, target]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        _, told = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return False
    assert process.returncode == 0, told.decode()
    return True


@pytest.mark.parametrize("seed", range(amount(4, 40)))
def test_what_is_restored_was_acknowledged(tmp_path: Path, seed: int) -> None:
    source, scheme = SCHEMES[seed % len(SCHEMES)]
    program = Program(f"{source}{tmp_path / 'store'}", seed)
    target = f"{scheme}{tmp_path / 'backup'}"
    program.live(12)
    began = time.monotonic()
    assert attempt(program, target, None)
    usual = time.monotonic() - began
    before = restored(program, target, f"{tmp_path / 'r.db'}")
    for n in range(amount(4, 12)):
        program.live(8)
        killed = program.random.random() < 0.7
        # From the middle on: what comes before is Python itself.
        after = usual * program.random.uniform(0.4, 1.1) if killed else None
        ended = attempt(program, target, after)
        found = restored(program, target, f"{program.random.choice(['', 'files:'])}{tmp_path}/r{n}")
        for id, log in before.items():
            assert any(log == one[: len(log)] for one in found.values()), id
        if ended:
            with clew.open(program.address) as store:
                assert {id: found.get(id) for id in logs(store)} == logs(store)
        before = found


@pytest.mark.parametrize("seed", range(amount(12, 300)))
def test_a_damaged_backup_is_told_or_comes_back_whole(tmp_path: Path, seed: int) -> None:
    source, scheme = SCHEMES[seed % len(SCHEMES)]
    program = Program(f"{source}{tmp_path / 'store'}", seed)
    program.live(15)
    whole = tmp_path / "backup"
    assert attempt(program, f"{scheme}{whole}", None)
    with clew.open(program.address) as store:
        there = logs(store)
        contents = {id: store.engine.path(id) for id in there}
    for n in range(amount(3, 10)):
        damaged = tmp_path / f"damaged{n}"
        shutil.copytree(whole, damaged) if whole.is_dir() else shutil.copy(whole, damaged)
        damage(damaged, program.random)
        try:
            restore(f"{scheme}{damaged}", str(tmp_path / f"r{n}.db"))
        except ClewError:
            assert not (tmp_path / f"r{n}.db").exists()
            continue
        with clew.open(str(tmp_path / f"r{n}.db")) as store:
            assert store.verify() == []
            assert logs(store) == there
            assert {id: store.engine.path(id) for id in there} == contents


def damage(place: Path, chance: random.Random) -> None:
    """Flip a bit, cut the end off, or remove a file."""
    files = [path for path in sorted(place.rglob("*")) if path.is_file()] or [place]
    path = chance.choice([one for one in files if one.stat().st_size] or files)
    data = bytearray(path.read_bytes())
    how = chance.random()
    if how < 0.7 and data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    elif how < 0.9 or path == place:
        path.write_bytes(data[: chance.randrange(len(data) or 1)])
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["removed", "cut off"])
def test_what_a_folder_has_lost_of_a_thread_is_told_and_not_left_out(
    tmp_path: Path, how: str
) -> None:
    with clew.open(str(tmp_path / "s.db")) as store:
        for n in range(3):
            store.create(f"t{n}").append("event", n)
    backup(tmp_path / "s.db", f"files:{tmp_path / 'b'}")
    file = tmp_path / "b" / "threads" / "t1.jsonl"
    if how == "removed":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(clew.Corrupt, match="t1"):
        restore(f"files:{tmp_path / 'b'}", tmp_path / "r.db")
    assert not (tmp_path / "r.db").exists()
