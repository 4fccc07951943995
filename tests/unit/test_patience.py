"""Waiting for others: a SQLite file whose log is to be emptied."""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import apsw
import pytest

from clew.core.patience import patience, patiently


def empty_log(db: apsw.Connection, seconds: float) -> None:
    empty = partial(db.wal_checkpoint, mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    patiently(empty, apsw.BusyError, seconds)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "a.db")
    with closing(apsw.Connection(path)) as db:
        db.pragma("journal_mode", "wal")
        db.execute("CREATE TABLE rows (no INTEGER PRIMARY KEY)")
    return path


def test_two_that_empty_a_log_at_once_both_do(path: str) -> None:
    """SQLite lets the second one fail at once, whatever its busy handler says."""
    at_it, told = threading.Event(), threading.Event()

    def handler(tries: int) -> bool:
        at_it.set()
        return told.wait(60)

    with ExitStack() as stack:
        first, second, reader = (stack.enter_context(closing(apsw.Connection(path))) for _ in "123")
        first.execute("INSERT INTO rows VALUES (1)")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM rows").get == 1
        second.pragma("schema_version")  # before anything is read SQLite knows of no log
        first.set_busy_handler(handler)
        second.set_busy_handler(patience(60))
        one = threading.Thread(target=empty_log, args=(first, 60))
        one.start()
        assert at_it.wait(60)
        with pytest.raises(apsw.BusyError):
            second.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        other = threading.Thread(target=empty_log, args=(second, 60))
        other.start()
        reader.execute("COMMIT")
        told.set()
        one.join(60)
        other.join(60)
        assert not one.is_alive()
        assert not other.is_alive()
        assert Path(f"{path}-wal").stat().st_size == 0


def test_a_log_that_others_read_for_too_long_is_told(path: str) -> None:
    with closing(apsw.Connection(path)) as db, closing(apsw.Connection(path)) as reader:
        db.execute("INSERT INTO rows VALUES (1)")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM rows").get == 1
        db.execute("INSERT INTO rows VALUES (2)")
        with pytest.raises(apsw.BusyError):
            empty_log(db, 0.01)
        reader.execute("COMMIT")
        empty_log(db, 0.01)
        assert Path(f"{path}-wal").stat().st_size == 0
