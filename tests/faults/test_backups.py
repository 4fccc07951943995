"""Backups of stores in use, by processes that are killed; and zombies that outlive a store."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from amounts import amount, sample
from places import PostgresPlace

import clew
from clew.address import maintenance
from clew.upkeep.backup import backup
from clew.upkeep.restore import restore
from clew.upkeep.transfer import everything

KILLED = """
import os, signal, sys
from clew.upkeep.backup import backup

source, target, left = sys.argv[1], sys.argv[2], int(sys.argv[3])

def progress(done, total):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

backup(source, target, progress=progress)
"""

WRITER = """
import sys
import clew

address, owner = sys.argv[1], sys.argv[2]
store = clew.open(address)
lease = store.get("t").leases.acquire(owner, ttl_seconds=600)
print(lease.fence, flush=True)

def attempt(store, how):
    try:
        store.get("t").append("event", f"{owner}, {how}", fence=lease.fence)
        print("written", flush=True)
    except clew.ClewError as error:
        print(type(error).__name__, flush=True)

for line in sys.stdin:  # each line asks for one attempt with the handle it has, and one with a new
    attempt(store, "the old handle")
    with clew.open(address) as anew:
        attempt(anew, "a new handle")
"""


class Writer:
    """A process that holds the lease of a thread and writes when it is told to."""

    def __init__(self, address: str, owner: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, address, owner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.fence = int(self._line())

    def write(self) -> list[str]:
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)
        return [self._line(), self._line()]

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Disk:
    """A store in a file or a folder, which can be lost."""

    def __init__(self, folder: Path, scheme: str) -> None:
        self._home = folder / "home"
        self._home.mkdir()
        self.address = f"{scheme}{self._home / 'threads'}"

    def lose(self) -> None:
        shutil.rmtree(self._home)
        self._home.mkdir()

    def close(self) -> None:
        pass


class Server:
    def __init__(self, folder: Path, scheme: str) -> None:
        self._cluster = PostgresPlace.cluster
        self._name = self._cluster.create_database(PostgresPlace.template)
        self.address = self._cluster.dsn(self._name)

    def lose(self) -> None:
        self.close()
        made = self._cluster.create_database()
        self._cluster.sql(f"ALTER DATABASE {made} RENAME TO {self._name}")

    def close(self) -> None:
        self._cluster.drop_database(self._name)


PLACES = {"sqlite": (Disk, "sqlite:"), "files": (Disk, "files:"), "postgres": (Server, "")}


@pytest.fixture(params=PLACES)
def home(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_places: None
) -> Iterator[Disk | Server]:
    kind, scheme = PLACES[request.param]
    made = kind(tmp_path, scheme)
    yield made
    made.close()


def logs(address: str) -> dict[str, list[str]]:
    with clew.open(address, create=False) as store:
        engine = store.engine
        return {i.id: [r.hash for r in engine.read(i.id, limit=9999)] for i in everything(engine)}


def grow(address: str, label: str) -> None:
    """Old threads grow, new ones come, with forks and large bodies."""
    with clew.open(address) as store:
        for n in range(4):
            thread = store.find(f"t{n}") or store.create(f"t{n}")
            for m in range(300 if n == 0 else 3):
                thread.append("event", [label, m, "x" * (30_000 if m == 1 else 10)])
            thread.fork(id=f"{label}{n}").append("event", label)


@pytest.mark.parametrize("kind", sample(["files:{}", "{}"], 2))
def test_a_backup_that_is_killed_leaves_the_one_before_it_whole(
    home: Disk | Server, tmp_path: Path, kind: str
) -> None:
    target = kind.format(tmp_path / "backup")
    grow(home.address, "a")
    backup(home.address, target)
    for round in range(amount(1, 5)):
        grow(home.address, f"b{round}.")
        before, at, code = logs(target), 2, -signal.SIGKILL
        while code:
            command = [sys.executable, "-c", KILLED, home.address, target, str(at)]
            code = subprocess.run(command).returncode
            assert code in (0, -signal.SIGKILL)
            assert list(maintenance(target).check()) == [], f"killed at {at}"
            now = logs(target)
            for id, log in before.items():
                assert now[id][: len(log)] == log, f"killed at {at}"
            at = amount(at * 3, at + 1)
        assert logs(target) == logs(home.address)


@pytest.mark.parametrize("kind", ["{}", "files:{}"])
def test_a_first_backup_that_is_killed_is_no_backup(tmp_path: Path, kind: str) -> None:
    address, target = str(tmp_path / "s.db"), kind.format(tmp_path / "backups" / "b")
    (tmp_path / "backups").mkdir()
    grow(address, "a")
    for at in sample((5, 1, 2, 3, 4, 6), 6):
        done = subprocess.run([sys.executable, "-c", KILLED, address, target, str(at)])
        assert done.returncode == -signal.SIGKILL
        assert not (tmp_path / "backups" / "b").exists()
    assert backup(address, target).first
    assert logs(target) == logs(address)


def test_a_zombie_of_the_lost_store_writes_nothing_to_the_restored_one(
    home: Disk | Server, tmp_path: Path
) -> None:
    with clew.open(home.address) as store:
        store.create("t").append("event", "before")
    target = tmp_path / "backup.db"
    backup(home.address, target)
    zombie = Writer(home.address, "the zombie")
    try:
        assert zombie.write() == ["written", "written"]
        home.lose()
        restore(target, home.address)
        holder = Writer(home.address, "the holder")
        try:
            assert holder.fence > zombie.fence
            refused = zombie.write()
            assert "written" not in refused
            assert refused[1] == "LeaseLost"
            assert holder.write() == ["written", "written"]
            assert "written" not in zombie.write()
        finally:
            holder.close()
    finally:
        zombie.close()
    with clew.open(home.address) as store:
        bodies = [entry.body for entry in store.get("t").path()]
        assert bodies == ["before", "the holder, the old handle", "the holder, a new handle"]
        assert store.verify() == []
