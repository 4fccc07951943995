"""A store that an older Clew wrote opens for ever: brought up to date as a whole, or not at all.

There are two formats so far. What a newer Clew would do to them is tested with a third one that is
made up here.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import clew
from clew.address import maintenance, namespaces
from clew.core.model import Acquire, ThreadQuery
from clew.engines.shared import migrations
from clew.engines.sqlite import schema
from clew.upkeep.repair import repair
from clew.upkeep.transfer import everything

DUMP = Path(__file__).with_name("format_1.sql").read_text("utf-8")
MADE_UP = Path(__file__).with_name("made_up_3.sql").read_text("utf-8")
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
TABLES = ("threads", "records", "segments", "facts", "leases", "blobs", "blob_uses")


@contextmanager
def database(path: Path) -> Iterator[apsw.Connection]:
    """The file itself, without Clew."""
    db = apsw.Connection(str(path))
    try:
        yield db
    finally:
        db.close()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of format 1."""
    path = tmp_path / "old.db"
    with database(path) as db:
        db.execute(DUMP)
        db.pragma("journal_mode", "wal")
    return path


def rows(path: Path) -> dict[str, list[Any]]:
    """What is stored, but for what a newer format adds."""
    with database(path) as db:
        return {
            table: [row[: _width(table)] for row in db.execute(f"SELECT * FROM {table} ORDER BY 1")]
            for table in TABLES
        }


def _width(table: str) -> int | None:
    return {"threads": 20, "records": 14}.get(table)


def version(path: Path) -> int:
    with database(path) as db:
        return int(db.pragma("user_version"))


def picture(path: Path, namespace: str = "default") -> dict[str, Any]:
    with clew.open(path, namespace=namespace, create=False) as store:
        engine = store.engine
        return {
            info.id: (info, engine.read(info.id), engine.path(info.id))
            for info in everything(engine)
        }


# --- the way up ---


@pytest.mark.parametrize("names", [["0002_late.sql"], ["0001_a.sql", "0001_b.sql"], ["1_a.sql"]])
def test_migrations_with_wrong_numbers_are_never_run(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1")
    with pytest.raises(RuntimeError, match=r"numbered|named"):
        migrations._in_folder(tmp_path)


def test_the_first_migration_is_never_edited(old: Path) -> None:
    """Who has a store of format 1 has what its text said then."""
    with database(old) as db, database(Path(":memory:")) as fresh:
        fresh.execute(migrations.migrations("sqlite")[0].sql)
        assert db.execute(SCHEMA).fetchall() == fresh.execute(SCHEMA).fetchall()


@pytest.mark.parametrize("known", [2, 3])
def test_a_store_of_format_1_is_whole_and_complete_after_opening(
    old: Path, known: int, request: pytest.FixtureRequest
) -> None:
    if known > 2:
        request.getfixturevalue("newer")
    before = rows(old)
    with clew.open(old) as store:
        assert store.verify() == []
        assert store.properties.namespace == "default"
        thread = store.get("t")
        assert [entry.id for entry in thread.path()] == ["a", "d"]
        assert thread.get("a").body == {"role": "user", "content": "Grüße"}
        assert thread.get("b").body == "a long answer " * 1000
        assert store.blobs.get(thread.get("c").blobs[0]) == b"bytes that an entry names"
        assert [entry.id for entry in store.get("fork").path()] == ["a", "b", "c", "f1", "f2"]
        assert [entry.id for entry in store.get("heir").path()] == ["o1", "o2", "h1"]
        assert [entry.id for entry in store.get("origin").path()] == ["again"]
        assert [info.id for info in store.threads(tag="x", archived=None)] == ["archived", "t"]
        for filters in ({"workspace": "/w"}, {"status": "busy"}, {"parent": "boss"}):
            assert [info.id for info in store.threads(**filters)] == ["t"]
        assert [info.id for info in store.threads(origin="t")] == ["fork"]
        assert [info.id for info in store.threads(deleted=True)] == ["deleted"]
        assert store.stats().blobs == 3
    assert version(old) == len(migrations.migrations("sqlite")) == known
    assert rows(old) == before


@pytest.mark.usefixtures("newer")
def test_what_was_stored_goes_on(old: Path) -> None:
    with clew.open(old) as store:
        lease = store.engine.lease("t", Acquire("me", 60.0))
        assert lease is not None
        assert lease.fence > 1, "the fence of format 1 was 1"
        store.get("fork").append("event", "more")
        assert store.purge("heir").kept == 0
        assert store.create("newest").info.id == "newest"
        assert store.sweep(grace_seconds=0).blobs == 1
        assert store.verify() == []
    with database(old) as db:
        assert db.execute("SELECT no FROM threads WHERE id = 'newest'").get == 9, (
            "never used before"
        )


@pytest.mark.usefixtures("newer")
def test_another_namespace_of_a_migrated_store_is_empty(old: Path) -> None:
    with clew.open(old, namespace="acme") as store:
        assert [(info.id, info.tags) for info in store.threads()] == [("t", ("x",))]
    with clew.open(old, namespace="other") as store:
        assert list(store.threads(archived=None)) == []
        assert store.stats().blobs == 0
        store.create("t", tags=["x"]).append("event", 1)
        assert store.verify() == []
    with clew.open(old) as store:
        assert [entry.id for entry in store.get("t").path()] == ["a", "d"]
    assert namespaces(old) == ["default", "acme", "other"]


@pytest.mark.usefixtures("newer")
def test_a_migrated_store_has_the_schema_of_a_new_one(old: Path, tmp_path: Path) -> None:
    clew.open(old).close()
    clew.open(tmp_path / "new.db").close()
    with database(old) as db, database(tmp_path / "new.db") as new:
        assert db.execute(SCHEMA).fetchall() == new.execute(SCHEMA).fetchall()


# --- older and newer Clews ---


@pytest.mark.usefixtures("newer")
def test_a_clew_that_knows_format_1_only_refuses_the_newer_one(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clew.open(old).close()
    before = old.read_bytes()
    first = migrations.migrations("sqlite")[:1]
    monkeypatch.setattr(schema, "migrations", lambda dialect: first)
    with pytest.raises(clew.FormatTooNew) as caught:
        clew.open(old)
    assert (caught.value.found, caught.value.known) == (3, 1)
    assert old.read_bytes() == before


@pytest.mark.usefixtures("newer")
def test_a_store_is_not_migrated_under_an_older_clew(old: Path) -> None:
    """Its statements know nothing of the newer format."""
    before = rows(old)
    with Path(f"{old}-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as every Clew holds it that has the store open
        with pytest.raises(clew.Unavailable, match="older format") as caught:
            clew.open(old, busy_seconds=0.05)
        assert caught.value.retryable
        assert version(old) == 1
    assert rows(old) == before
    with clew.open(old) as store:
        assert store.verify() == []


OPEN = """
import sys, clew
from pathlib import Path
from clew.engines.shared import migrations
migrations._FOLDER = Path(sys.argv[3])
with clew.open(sys.argv[1], namespace=sys.argv[2]) as store:
    store.create("made").append("event", 1)
"""


def test_several_who_open_an_old_store_at_once_migrate_it_once(old: Path, newer: Path) -> None:
    names = ["default", "acme", "b", "c"]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(old), name, str(newer)], stderr=subprocess.PIPE
        )
        for name in names
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=60)
        assert worker.returncode == 0, errors
    assert sorted(namespaces(old)) == sorted(names)
    whole = maintenance(old)
    assert list(whole.check()) == []
    whole.close()


KILLED = """
import os, signal, sys
from pathlib import Path
import apsw, clew
from clew.engines.shared import migrations

migrations._FOLDER = Path(sys.argv[3])
left = int(sys.argv[2])

def watch(db):
    def trace(cursor, sql, bindings):
        global left
        left -= trace.begun or sql.startswith("BEGIN IMMEDIATE")
        trace.begun = trace.begun or sql.startswith("BEGIN IMMEDIATE")
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True
    trace.begun = False
    db.exec_trace = trace

apsw.connection_hooks.append(watch)
clew.open(sys.argv[1]).close()
"""
SECOND = migrations.migrations("sqlite")[1].sql
STEPS = len([s for s in (SECOND + MADE_UP).split(";") if s.strip()]) + 4


@pytest.mark.parametrize("step", range(2, STEPS + 1))
def test_a_migration_that_is_killed_leaves_format_1(old: Path, newer: Path, step: int) -> None:
    before = rows(old)
    command = [sys.executable, "-c", KILLED, str(old), str(step), str(newer)]
    done = subprocess.run(command, check=False)
    assert done.returncode == -signal.SIGKILL
    assert version(old) == 1
    with database(old) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
    assert not {"colours", "packs"} & names
    assert rows(old) == before
    with clew.open(old) as store:
        assert store.verify() == []


@pytest.mark.usefixtures("newer")
def test_a_migration_that_fails_leaves_format_1(old: Path) -> None:
    with database(old) as db:
        db.execute("DROP INDEX threads_by_id")
        db.execute("UPDATE threads SET id = 'same'")
        db.execute("CREATE INDEX threads_by_id ON threads (id)")
    before = rows(old)
    with pytest.raises(clew.ClewError):
        clew.open(old)
    assert version(old) == 1
    assert rows(old) == before


# --- damaged ones ---


@pytest.fixture
def known(old: Path, newer: Path, tmp_path: Path) -> dict[str, Any]:
    """What is in it, if nothing is damaged."""
    copy = Path(shutil.copy(old, tmp_path / "known.db"))
    return picture(copy)


def _destroy(path: Path, page: int, skip: int = 0) -> None:
    data = bytearray(path.read_bytes())
    start = (page - 1) * 4096
    data[start + skip : start + 4096] = b"\xee" * (4096 - skip)
    path.write_bytes(data)


@pytest.mark.parametrize("migrated", [False, True], ids=["format 1", "migrated"])
def test_a_destroyed_schema_costs_nothing(old: Path, known: dict[str, Any], migrated: bool) -> None:
    if migrated:
        _grow(old)
        known = picture(old)
    _destroy(old, 1)
    report = repair(old)
    assert (report.lost, report.placeholders) == ((), 0)
    assert picture(old) == known
    assert [len(found[1]) for found in picture(old, "acme").values()] == [3 if migrated else 2]


def _grow(path: Path) -> None:
    """Its pages do not lie as in a store that was new with this format."""
    with clew.open(path) as store:
        for n in range(300):
            store.create(f"more-{n:03}", tags=["x"]).append("event", "x" * 600, id=f"e{n}")
    with clew.open(path, namespace="acme") as store:
        store.get("t").append("event", "more of acme's")


def test_a_damaged_store_of_format_1_can_be_repaired(old: Path, known: dict[str, Any]) -> None:
    with database(old) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'blobs'").fetchone()
    _destroy(old, page)
    with pytest.raises(clew.ClewError):
        clew.open(old).close()
    report = repair(old)
    assert {lost.id for lost in report.lost} == {"b"}
    found = picture(old)
    assert found.keys() == known.keys()
    assert found["heir"] == known["heir"]


def test_a_wrong_version_number_is_not_believed(old: Path, known: dict[str, Any]) -> None:
    with database(old) as db:
        db.pragma("user_version", 257)
    with pytest.raises(clew.FormatTooNew):
        clew.open(old)
    repair(old)
    assert picture(old) == known


@pytest.mark.usefixtures("newer")
def test_the_list_by_update_has_what_was_not_in_the_index(old: Path) -> None:
    with database(old) as db:
        db.execute("UPDATE threads SET listed_us = NULL WHERE id = 't'")
    with clew.open(old) as store:
        found = store.engine.threads(ThreadQuery(order="updated", archived=None)).items
        assert {info.id for info in found} == {"t", "fork", "origin", "heir", "archived"}
