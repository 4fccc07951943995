"""One thread of a SQLite store that holds what no code of ours wrote takes no other one down.

The tables are strict, but a file that others made need not be: its pages may hold anything.
"""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from amounts import pairs
from hostile.commands import COMMANDS, check_command

import clew
from clew import ClewError
from clew.upkeep.repair import repair

BAD = {
    "a huge number": "UPDATE threads SET no = 1 << 40 WHERE id = 'bad'",
    "the largest number": "UPDATE threads SET no = 9223372036854775807 WHERE id = 'bad'",
    "a negative number": "UPDATE threads SET no = -5 WHERE id = 'bad'",
    "a time that is no number": "UPDATE threads SET created_us = 'soon' WHERE id = 'bad'",
    "a time after all years": "UPDATE threads SET updated_us = 1 << 62 WHERE id = 'bad'",
    "a seq that is text": "UPDATE threads SET seq = 'many' WHERE id = 'bad'",
    "a leaf that is a number": "UPDATE threads SET leaf = x'00ff' WHERE id = 'bad'",
    "a fact that is text": "UPDATE records SET body = 'x' WHERE type = 2 AND no >> 32 = 1",
    "a hash that is text": "UPDATE records SET hash = 'x' WHERE no >> 32 = 1",
    "a record's time that is text": "UPDATE records SET time_us = 'x' WHERE no >> 32 = 1",
    "a record's time after all years": "UPDATE records SET time_us = 1 << 62 WHERE no >> 32 = 1",
    "an entry's id that is bytes": "UPDATE records SET id = x'ff' WHERE no = (1 << 32) + 2",
    "an entry without a kind": "UPDATE records SET kind = NULL WHERE no >> 32 = 1",
    "a type that is text": "UPDATE records SET type = 'x' WHERE no >> 32 = 1",
    "blobs that are a number": "UPDATE records SET blobs = x'01' WHERE no >> 32 = 1",
}


@pytest.fixture(params=BAD)
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    file = tmp_path / "threads.db"
    with clew.open(file) as store:
        for id in ("bad", "good", "fine"):
            thread = store.create(id, title="a title")
            thread.append("event", id)
    run_loosely(file, BAD[request.param])
    return file


def run_loosely(file: Path, sql: str) -> None:
    """Run what strict tables would refuse."""
    db = apsw.Connection(str(file))
    before = dict(db.execute("SELECT name, sql FROM sqlite_schema"))
    db.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    db.execute("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT, WITHOUT', 'WITHOUT')")
    db.execute("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '')")
    db.close()
    db = apsw.Connection(str(file))
    db.execute(sql)
    db.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    db.executemany(
        "UPDATE sqlite_schema SET sql = ? WHERE name = ?", [(v, k) for k, v in before.items()]
    )
    db.close()


def test_a_bad_thread_is_named_and_the_others_are_listed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with clew.open(path) as store:
        listed = {info.id for info in store.list().items}
        assert {"good", "fine"} <= listed
        assert "bad" in listed or "bad" in caplog.text
        paged: set[str] = set()
        cursor = None
        while True:
            page = store.list(limit=1, cursor=cursor)
            paged |= {info.id for info in page.items}
            cursor = page.cursor
            if cursor is None:
                break
        assert paged == listed
        assert [entry.body for entry in store.get("good").path()] == ["good"]
        assert any(problem.thread == "bad" or problem.thread is None for problem in store.verify())


def test_whatever_is_done_with_a_bad_thread_fails_as_ours(path: Path) -> None:
    with clew.open(path) as store:
        for call in (
            lambda: store.get("bad").path(),
            lambda: list(store.get("bad").read()),
            lambda: store.get("bad").context(),
            lambda: store.get("bad").append("event", 2),
            lambda: store.engine.append("bad", [clew.draft("event", 2)]),
            lambda: store.engine.segments("bad"),
            lambda: store.get("bad").fork(id="new"),
            lambda: store.engine.stats(),
        ):
            try:
                call()
            except ClewError:
                pass
        store.get("good").append("event", "more")


def test_a_bad_row_in_a_file_with_a_broken_page_costs_no_other_thread(path: Path) -> None:
    """What cannot be told by SQLite is read off the pages, and not all of that are rows of ours."""
    with closing(apsw.Connection(str(path))) as db:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'threads_by_created'"
        page = int(db.execute(query).get)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    data = path.read_bytes()
    path.write_bytes(data[: (page - 1) * 4096] + bytes(4096) + data[page * 4096 :])
    repair(path)
    with clew.open(path) as store:
        assert store.verify() == []
        assert [entry.body for entry in store.get("good").path()] == ["good"]
        assert [entry.body for entry in store.get("fine").path()] == ["fine"]


@pytest.mark.parametrize(("path", "command"), pairs(tuple(BAD), COMMANDS, 4), indirect=["path"])
def test_no_command_calls_it_a_mistake_of_clew(
    path: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_command(command, str(path), tmp_path, capsys)


@pytest.mark.parametrize("column", ["hash = 'x'", "id = x'ff'", "time_us = 'soon'"])
def test_nothing_is_appended_to_what_cannot_be_read(tmp_path: Path, column: str) -> None:
    """The thread's row is from before its last entry, which says where the thread stands."""
    file = tmp_path / "threads.db"
    with clew.open(file) as store:
        for n in range(3):
            store.get_or_create("bad").append("event", n)
    run_loosely(file, f"UPDATE records SET {column} WHERE no = (SELECT max(no) FROM records)")
    with clew.open(file) as store, pytest.raises(clew.Corrupt):
        store.engine.append("bad", [clew.draft("event", 3)])
    with closing(apsw.Connection(str(file))) as db:
        assert db.execute("SELECT count(*) FROM records").get == 3


def test_an_error_that_is_kept_does_not_keep_the_log_from_being_emptied(path: Path) -> None:
    """It knows the frames that it came through, and in them what was just being read."""
    kept: list[ClewError] = []
    with clew.open(path) as store:
        for call in (lambda: store.get("bad").path(), lambda: list(store.get("bad").read())):
            try:
                call()
            except ClewError as error:
                kept.append(error)
        store.get("good").append("event", "more")
        store.sweep(grace_seconds=0)
        log = path.with_name(path.name + "-wal")
        assert not log.exists() or log.stat().st_size == 0


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE sqlite_sequence SET seq = 9223372036854775807 WHERE name = 'threads'",
        "UPDATE sqlite_sequence SET seq = 2147483647 WHERE name = 'threads'",
        "UPDATE sqlite_sequence SET seq = 'many' WHERE name = 'threads'",
        "UPDATE threads SET no = 9223372036854775807 WHERE id = 'bad'",
    ],
)
def test_a_store_that_has_no_number_for_another_thread_is_no_full_disk(
    sql: str, tmp_path: Path
) -> None:
    file = tmp_path / "threads.db"
    with clew.open(file) as store:
        for id in ("bad", "good"):
            store.create(id).append("event", id)
    db = apsw.Connection(str(file))
    db.execute(sql)
    db.close()
    with clew.open(file) as store:
        assert store.get("good").path()[0].body == "good"
        try:
            store.create("new")
        except clew.Corrupt:  # and not Unavailable, for which one would make room
            assert store.verify() != []
        else:  # SQLite counts on from the largest number that is in use
            assert "many" in sql
    clew.repair(file)
    with clew.open(file) as store:
        store.get_or_create("new").append("event", 1)
        assert store.get("good").path()[0].body == "good"
        assert store.verify() == []
