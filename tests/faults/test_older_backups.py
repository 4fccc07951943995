"""A store that is put back from an older backup gives out no fence again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from places import PostgresPlace

import clew
from clew.core.model import Lease


class SQLiteBackup:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = str(folder / "now" / "s.db")
        (folder / "now").mkdir()

    def save(self) -> None:
        shutil.copytree(self._folder / "now", self._folder / "then")

    def put_back(self) -> None:
        shutil.rmtree(self._folder / "now")
        shutil.copytree(self._folder / "then", self._folder / "now")

    def close(self) -> None:
        pass


class FilesBackup(SQLiteBackup):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = f"files:{folder / 'now' / 'threads'}"


class BackupWithoutLocks(FilesBackup):
    """As people are told to copy a store of files."""

    def save(self) -> None:
        super().save()
        shutil.rmtree(self._folder / "then" / "threads" / "locks")


class PostgresBackup:
    """Also what a standby is that lacked the last commits when it was promoted."""

    def __init__(self, folder: Path) -> None:
        self._cluster = PostgresPlace.cluster
        self._now = self._cluster.create_database(PostgresPlace.template)
        self._then = ""
        self.address = self._cluster.dsn(self._now)

    def save(self) -> None:
        self._then = self._cluster.create_database(self._now)

    def put_back(self) -> None:
        self.close()
        self._cluster.sql(f"ALTER DATABASE {self._then} RENAME TO {self._now}")

    def close(self) -> None:
        self._cluster.drop_database(self._now)


Backup = SQLiteBackup | PostgresBackup
BACKUPS: dict[str, Callable[[Path], Backup]] = {
    "sqlite": SQLiteBackup,
    "files": FilesBackup,
    "files without locks": BackupWithoutLocks,
    "postgres": PostgresBackup,
}


@pytest.fixture(params=BACKUPS)
def backup(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_places: None
) -> Iterator[Backup]:
    made = BACKUPS[request.param](tmp_path)
    yield made
    made.close()


def acquire(address: str, owner: str) -> Lease:
    with clew.open(address) as store:
        return store.get("t").leases.acquire(owner, ttl_seconds=60)


def test_a_zombie_is_refused_by_a_store_that_was_put_back(backup: Backup) -> None:
    with clew.open(backup.address) as store:
        thread = store.create("t")
        thread.append("event", "before")
        thread.leases.release(thread.leases.acquire("an early one"))
    backup.save()
    zombie = acquire(backup.address, "the zombie")
    backup.put_back()
    holder = acquire(backup.address, "the new holder")
    assert holder.fence > zombie.fence
    with clew.open(backup.address) as store:
        thread = store.get("t")
        with pytest.raises(clew.LeaseLost):
            thread.append("event", "the zombie's", fence=zombie.fence)
        with pytest.raises(clew.LeaseLost):
            thread.leases.renew(zombie)
        thread.leases.release(zombie)
        assert thread.leases.active() == holder, "nor does it give back what is not its own"
        thread.append("event", "the holder's", fence=holder.fence)
        assert [entry.body for entry in thread.path()] == ["before", "the holder's"]
