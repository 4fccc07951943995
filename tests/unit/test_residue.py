"""Copies of rows in pages that the rows have left: SQLite's secure_delete does not reach them."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import clew
from clew.core import residue
from clew.core.removal import Checked, Purged

WORD = "zanzibarkey"


def fill(path: Path, seed: int) -> list[str]:
    """Rows that go from page to page as others come between them; then they are deleted."""
    chance = random.Random(seed)
    with closing(apsw.Connection(str(path))) as db:
        db.pragma("journal_mode", "wal")
        db.pragma("secure_delete", 1)
        db.execute("CREATE TABLE t (no INTEGER PRIMARY KEY, text TEXT)")
        for no in chance.sample(range(3_000), 1_500):
            text = f"{WORD}{no:06} " + "y" * chance.randrange(300)
            db.execute("INSERT INTO t VALUES (?, ?)", (no, text))
        doomed = [no for (no,) in db.execute("SELECT no FROM t WHERE no % 3 = 0")]
        db.execute("DELETE FROM t WHERE no % 3 = 0")
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return [f"{WORD}{no:06}" for no in doomed]


def left(path: Path, words: list[str]) -> int:
    data = path.read_bytes()
    return sum(word.encode() in data for word in words)


def test_sqlite_leaves_copies_of_deleted_rows_and_they_are_wiped(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    doomed = fill(path, 1)
    assert left(path, doomed), "SQLite overwrites them by now, and this is not needed any more"
    with closing(apsw.Connection(str(path))) as other:  # it remembers pages as they were
        rows = other.execute("SELECT * FROM t").fetchall()
        assert residue.wipe(str(path))
        assert left(path, doomed) == 0
        assert other.execute("SELECT * FROM t").fetchall() == rows
        other.execute("UPDATE t SET text = text || 'more'")
        other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        assert left(path, doomed) == 0
        assert other.pragma("integrity_check") == "ok"


def test_pages_are_left_alone_while_others_write_or_read_the_log(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    fill(path, 2)
    before = path.read_bytes()
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not residue.wipe(str(path), busy_seconds=0.05)
        other.execute("ROLLBACK")
        other.execute("UPDATE t SET text = 'in the log' WHERE no % 3 = 1")
        assert not residue.wipe(str(path))
    assert path.read_bytes()[4096:] != b""
    assert len(path.read_bytes()) == len(before)


def test_a_file_that_becomes_shorter_bit_by_bit_stays_whole(tmp_path: Path) -> None:
    """Its pages of pointers look like those of trees."""
    path = tmp_path / "s.db"
    with closing(apsw.Connection(str(path))) as db:
        db.pragma("auto_vacuum", 2)
        db.pragma("page_size", 512)
        db.pragma("journal_mode", "wal")
        db.execute("CREATE TABLE t (no INTEGER PRIMARY KEY, text TEXT)")
        db.executemany("INSERT INTO t VALUES (?, ?)", [(n, "y" * 400) for n in range(2_000)])
        db.execute("DELETE FROM t WHERE no % 4 > 0")
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert residue.wipe(str(path))
    with closing(apsw.Connection(str(path))) as db:
        assert db.pragma("integrity_check") == "ok"
        db.execute("PRAGMA incremental_vacuum").fetchall()
        assert db.pragma("integrity_check") == "ok"


def test_a_page_whose_cells_lie_elsewhere_is_left_for_repair(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    fill(path, 3)
    data = bytearray(path.read_bytes())
    last = len(data) // 4096 - 1
    for page in range(1, last + 1):
        at = page * 4096
        if data[at] == 13 and int.from_bytes(data[at + 3 : at + 5], "big") > 2:
            data[at + 5 : at + 7] = (4000).to_bytes(2, "big")  # behind where its cells begin
    path.write_bytes(data)
    damaged = bytes(data)
    residue.wipe(str(path))
    wiped = path.read_bytes()
    for page in range(1, last + 1):
        at = page * 4096
        if damaged[at] == 13 and int.from_bytes(damaged[at + 3 : at + 5], "big") > 2:
            assert wiped[at : at + 4096] == damaged[at : at + 4096]


@pytest.mark.parametrize("how", ["erase", "purge"])
def test_a_store_has_no_copy_of_what_was_removed(tmp_path: Path, how: str) -> None:
    chance = random.Random(4)
    path = tmp_path / "s.db"
    said: dict[str, dict[str, str]] = {}
    gone: list[str] = []
    with clew.open(str(path)) as store:
        threads = [store.create(f"t{n}") for n in range(20)]
        for n in range(150):
            for thread in chance.sample(threads, 2):
                word = f"{WORD}{n:04}{thread.id}x"
                entry = thread.append("note", word + "y" * chance.randrange(300))
                said.setdefault(thread.id, {})[entry.id] = word
            if n % 15 == 14:
                thread = threads.pop(0)
                words = said.pop(thread.id, {})
                gone += words.values()
                if how == "erase":
                    store.engine.erase(thread.id, list(words), time_us=1)
                else:
                    store.engine.purge(thread.id)
        assert store.verify() == []
    assert len(gone) > 50
    assert left(path, gone) == 0


def test_a_receipt_tells_of_copies_that_are_wiped_later(tmp_path: Path) -> None:
    """Purges in a row share the wiping, which takes as long as the file is large."""
    with clew.open(str(tmp_path / "s.db")) as store:
        for name in ("a", "b"):
            store.create(name).append("event", name)
        assert [one.place for one in _left(store.purge("a"))] == []
        store.engine._traces._pace._after = float("inf")  # type: ignore[attr-defined]
        assert [one.place for one in _left(store.purge("b"))] == ["pages"]
        entry = store.create("c").append("event", "c")
        assert store.get("c").erase(entry.id).left == ()
        assert not store.engine._traces.are_left  # type: ignore[attr-defined]


def _left(purged: Purged) -> tuple[Checked, ...]:
    assert purged.receipt is not None
    return purged.receipt.left
