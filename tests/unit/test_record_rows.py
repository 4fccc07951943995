"""Rows as records: in runs as one by one, whatever a file holds in any column."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import clew
from clew.core.errors import Corrupt
from clew.core.facts import TIME_US_MAX, TIME_US_MIN
from clew.engines.shared.tables import record_rows
from clew.engines.shared.tables.rows import Row

COLUMNS = "no type id time_us hash parent kind turn format meta blobs body_hash blob body".split()
# Of every type that SQLite has, and of each what comes near to what belongs there.
VALUES: list[Any] = [
    *(None, 0, 1, 2, 3, -1, 1 << 62, 0.0, 1.5, "", "text", "aGFzaA==", b"", b"1", b"\xff"),
    *(TIME_US_MIN - 1, TIME_US_MAX, TIME_US_MAX + 1),
]


def row(seq: int, **other: Any) -> Row:
    ordinary: dict[str, Any] = {
        "no": 1 << 32 | seq,
        "type": 0,
        "id": f"e{seq}",
        "time_us": 1_000 + seq,
        "hash": b"h" * 32,
        "parent": f"e{seq - 1}" if seq > 1 else None,
        "kind": "user_message",
        "turn": None,
        "format": "plain",
        "meta": None,
        "blobs": None,
        "body_hash": b"b" * 32,
        "blob": None,
        "body": b'"said"',
    }
    return tuple((ordinary | other).values())


@pytest.fixture
def db() -> Iterator[apsw.Connection]:
    made = apsw.Connection(":memory:")
    made.execute("CREATE TABLE records (no INTEGER PRIMARY KEY, body)")
    made.execute("CREATE TABLE blobs (no INTEGER PRIMARY KEY, hash, size, codec, data)")
    yield made
    made.close()


def told(db: apsw.Connection, rows: list[Row], *, one_by_one: bool) -> list[Any]:
    """The records, and at the end what was wrong if something was."""
    found: list[Any] = []
    try:
        if one_by_one:
            for one in rows:
                found.append(record_rows.to_record(db, "t", one))
        else:
            for record in record_rows.to_records(db, "t", rows):
                found.append(record)
    except Corrupt as error:
        found.append((error.place, str(error)))
    return found


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_a_run_of_rows_says_what_each_of_them_says(column: str, db: apsw.Connection) -> None:
    for value in VALUES:
        for kinds in ({}, {"type": 1, "kind": None}, {"type": 2, "kind": "title"}):
            rows = [row(1), row(2), row(3, **(kinds | {column: value})), row(4)]
            alone = told(db, rows, one_by_one=True)
            assert told(db, rows, one_by_one=False) == alone, value
            assert len(alone) in (3, 4)


def test_a_row_that_cannot_be_read_comes_after_those_before_it(db: apsw.Connection) -> None:
    def damaged() -> Iterator[Row]:
        yield from (row(1), row(2))
        raise apsw.CorruptError("a page is gone")

    found = record_rows.to_records(db, "t", damaged())
    assert [next(found).seq, next(found).seq] == [1, 2]
    with pytest.raises(apsw.CorruptError):
        next(found)


def test_large_bodies_that_others_wrote_are_read_one_at_a_time(tmp_path: Path) -> None:
    path, size = tmp_path / "threads.db", 1_000_000
    with clew.open(path) as store:
        thread = store.create("t")
        for number in range(40):
            thread.append("event", number)
    db = apsw.Connection(str(path))
    db.execute("UPDATE records SET body = ? WHERE no % 2", (b'"' + b"x" * size + b'"',))
    found = record_rows.scan(db, (1 << 32, 2 << 32), entries_only=True, name="t")
    tracemalloc.start()
    sizes = [len(record.data) for record in found]
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    db.close()
    assert sorted(set(sizes)) == [1, 2, size + 2]
    assert sizes.count(size + 2) == 20
    assert held < 5 * size
    with clew.open(path) as store:
        assert [len(entry.data) for entry in store.get("t").path()] == sizes


def test_a_number_where_a_body_should_be_is_no_body(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    with clew.open(path) as store:
        store.create("t").append("event", 1)
    db = apsw.Connection(str(path))
    db.execute("PRAGMA writable_schema = ON")
    db.execute("PRAGMA ignore_check_constraints = ON")
    sql = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'records'").get
    db.execute(
        "UPDATE sqlite_schema SET sql = ? WHERE name = 'records'", (sql.replace("STRICT", ""),)
    )
    db.close()
    db = apsw.Connection(str(path))
    db.execute("UPDATE records SET body = no WHERE type = 0")
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'records'", (sql,))
    db.close()
    with clew.open(path) as store, pytest.raises(Corrupt, match="int where none can be"):
        store.get("t").path()
