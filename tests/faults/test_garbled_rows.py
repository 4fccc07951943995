"""Every column of a row garbled, one at a time: what is done with the thread ends in our errors.

The mutants of tests/hostile change a store at random. Here no column is left to chance.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import clew
from clew.core.errors import ClewError
from clew.core.model import Acquire
from clew.engines.shared.tables import rows
from clew.upkeep.repair import repair

LARGE = "a large body " * 2000

GARBLED = "CAST(x'66ff' AS TEXT)"  # text that is not UTF-8
VALUES = {"TEXT": (GARBLED, "''"), "INTEGER": ("-1", "1 << 62"), "BLOB": ("x'ff'", "zeroblob(0)")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a row in every table."""
    path = tmp_path_factory.mktemp("whole") / "store.db"
    with clew.open(path) as store:
        thread = store.create("t")
        thread.append_message({"role": "user", "content": "asked"}, id="a")
        thread.append("event", {"text": LARGE}, id="large")
        thread.set(title="a title", tags=["one", "two"], workspace="/w", notes=LARGE)
        for n in range(8):
            thread.append("event", [n], id=f"e{n}")
        thread.move("e2")
        thread.append("event", "on a branch", id="branch")
        store.fork("t", at="e1", id="fork").append("event", "of the fork", id="f")
        packed = store.create("packed")
        for n in range(600):
            packed.append("event", f"message {n} of many that have most words", id=f"p{n}")
        assert store.pack(tail=1, idle_seconds=0).packs
        store.engine.lease("t", Acquire("me", 1000))
        store.create("other").append("event", "of the other", id="o")
    with closing(apsw.Connection(str(path))) as db:
        db.execute("VACUUM")
    return path


def columns(path: Path) -> Iterator[tuple[str, str, str]]:
    with closing(apsw.Connection(str(path))) as db:
        tables = [
            name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type='table'")
        ]
        for table in tables:
            if not table.startswith("sqlite_"):
                for _, name, kind, *_ in db.execute(f"PRAGMA table_info({table})").fetchall():
                    yield table, name, kind


def uses(store: clew.Store) -> list[Callable[[], Any]]:
    """What people do with the threads of a store."""
    found: list[Callable[[], Any]] = [
        lambda: [one.id for one in store.list(limit=50).items],
        lambda: [one.id for one in store.list(limit=50, order="updated", tag="one").items],
        lambda: store.search("asked").total,
        lambda: store.usage(),
        lambda: [problem.code for problem in store.verify()],
        lambda: [problem.code for problem in store.verify(quick=True)],
        lambda: store.stats(),
    ]
    for id in ("t", "fork", "packed", "other"):
        found += [
            lambda id=id: store.get(id).path(),  # type: ignore[misc]
            lambda id=id: [record.seq for record in store.get(id).read()],  # type: ignore[misc]
            lambda id=id: store.get(id).facts,  # type: ignore[misc]
            lambda id=id: store.get(id).leaves(),  # type: ignore[misc]
            lambda id=id: store.get(id).context("plain"),  # type: ignore[misc]
            lambda id=id: store.get(id).append("event", "more"),  # type: ignore[misc]
            lambda id=id: store.engine.lease(id, Acquire("you", 1)),  # type: ignore[misc]
            lambda id=id: store.get(id).set(title="new"),  # type: ignore[misc]
        ]
    for entry in ("a", "large", "e2", "p7"):
        found.append(lambda entry=entry: store.get("packed").get(entry).body)  # type: ignore[misc]
        found.append(lambda entry=entry: store.get("t").get(entry).body)  # type: ignore[misc]
        found.append(lambda entry=entry: store.get("t").path(entry, limit=2))  # type: ignore[misc]
    found += [
        lambda: store.erase("t", ["e3"]),
        lambda: store.purge("t"),
        lambda: store.purge("packed"),
        lambda: store.sweep(),
        lambda: store.pack(tail=1, idle_seconds=0),
    ]
    return found


def used(path: Path) -> None:
    try:
        store = clew.open(path)
    except ClewError:
        return
    with store:
        for use in uses(store):
            try:
                use()
            except ClewError:
                pass


TABLES = (
    "namespaces threads records segments facts tags leases blobs blob_uses packs packed_ids".split()
)


@pytest.mark.parametrize("table", TABLES)
def test_whatever_a_row_holds_what_is_done_with_it_ends_in_our_errors(
    whole: Path, tmp_path: Path, table: str
) -> None:
    names = [(name, kind) for found, name, kind in columns(whole) if found == table]
    assert names
    changed = 0
    for name, kind in names:
        for value in (*VALUES[kind], "NULL"):
            path = tmp_path / "store.db"
            shutil.copyfile(whole, path)
            with closing(apsw.Connection(str(path))) as db:
                try:  # where only one row may have a value, that is the first one
                    db.execute(f"UPDATE OR IGNORE {table} SET {name} = {value}")
                except apsw.Error:
                    continue
            changed += 1
            copy = tmp_path / "copy.db"
            shutil.copyfile(path, copy)
            used(path)
            try:
                repair(copy)
            except ClewError:
                continue
            with clew.open(copy) as store:
                assert store.verify() == [], (name, value)
            for left in tmp_path.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    assert changed


def test_an_error_that_is_kept_does_not_keep_the_log_from_being_emptied(
    whole: Path, tmp_path: Path
) -> None:
    """A log of errors keeps them for long, and with one its frames, where the read stood still."""
    path = tmp_path / "store.db"
    shutil.copyfile(whole, path)
    with closing(apsw.Connection(str(path))) as db:
        db.execute(f"UPDATE records SET id = {GARBLED} WHERE type = 0 AND id = 'e2'")
    kept: list[ClewError] = []
    with clew.open(path) as store:
        for read in (
            lambda: list(store.get("t").read()),
            lambda: store.get("t").path(),
            lambda: store.get("t").path(limit=3),
        ):
            with pytest.raises(ClewError) as caught:
                read()
            kept.append(caught.value)
        idle = store.engine._connections._idle  # type: ignore[attr-defined]
        assert [db.txn_state() for db in idle] == [apsw.SQLITE_TXN_NONE] * len(idle)
    assert len(kept) == 3


@pytest.mark.parametrize("door", [rows.one, rows.every, rows.value, rows.each])
def test_garbled_text_is_damage_by_whichever_door_it_comes(door: Callable[..., Any]) -> None:
    with closing(apsw.Connection(":memory:")) as db, pytest.raises(clew.Corrupt, match="UTF-8"):
        found = door(db, f"SELECT {GARBLED}")
        list(found)


def test_a_purge_in_a_circle_of_forks_ends_and_takes_nothing_that_others_need(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        thread = store.create("t")
        thread.append("event", 1, id="a")
        fork = thread.fork(at="a", id="f")
        fork.append("event", 2, id="b")
        fork.fork(at="b", id="g")
    with closing(apsw.Connection(str(path))) as db:
        db.execute(
            "UPDATE threads SET origin = 'f', origin_entry = 'b',"
            " origin_no = (SELECT no FROM records WHERE id = 'b') WHERE id = 't'"
        )
    with clew.open(path) as store:
        assert store.purge("t").kept_for == ("f", "g")
        assert [entry.id for entry in store.get("g").path()] == ["a", "b"]


PAGE_BYTES = 4096


@pytest.mark.parametrize("table", ["threads", "records", "packs", "blobs", "namespaces"])
def test_a_garbled_row_in_a_file_with_a_broken_page_can_be_repaired(
    whole: Path, tmp_path: Path, table: str
) -> None:
    """Its rows are read off the pages then, and not all that is there is as it was."""
    broken = dict(pages(whole))["threads_by_created"]
    for name, kind in [(name, kind) for found, name, kind in columns(whole) if found == table]:
        for value in (*VALUES[kind], "NULL"):
            path = tmp_path / "store.db"
            shutil.copyfile(whole, path)
            with closing(apsw.Connection(str(path))) as db:
                try:
                    db.execute(f"UPDATE OR IGNORE {table} SET {name} = {value}")
                except apsw.Error:
                    continue
            with path.open("r+b") as file:
                file.seek((broken - 1) * PAGE_BYTES)
                file.write(bytes(PAGE_BYTES))
            repair(path)
            with clew.open(path) as store:
                assert store.verify() == [], (name, value)
            for left in tmp_path.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def pages(path: Path) -> list[tuple[str, int]]:
    """The first page of every table and index."""
    with closing(apsw.Connection(str(path))) as db:
        query = "SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 1"
        return db.execute(query).fetchall()


@pytest.mark.parametrize("kind", ["blank", "noise", "a leaf of another table", "an inner page"])
def test_a_table_without_its_first_page_ends_in_our_errors_and_can_be_repaired(
    whole: Path, tmp_path: Path, kind: str
) -> None:
    chance = random.Random(kind)
    places = pages(whole)
    data = whole.read_bytes()
    assert len(places) > 20
    for number, (name, page) in enumerate(places):
        other = places[number - 1][1]
        new = {
            "blank": bytes(PAGE_BYTES),
            "noise": chance.randbytes(PAGE_BYTES),
            "a leaf of another table": data[(other - 1) * PAGE_BYTES : other * PAGE_BYTES],
            "an inner page": b"\x05" + data[(page - 1) * PAGE_BYTES + 1 : page * PAGE_BYTES],
        }[kind]
        begin = (page - 1) * PAGE_BYTES
        damaged = data[:begin] + new + data[begin + PAGE_BYTES :]
        path, copy = tmp_path / "store.db", tmp_path / "copy.db"
        path.write_bytes(damaged)
        copy.write_bytes(damaged)
        used(path)
        repair(copy)
        with clew.open(copy) as store:
            assert store.verify() == [], name
            if name != "records":  # which has no more than this page
                assert store.get("other").get("o").body == "of the other", name
        for left in tmp_path.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
