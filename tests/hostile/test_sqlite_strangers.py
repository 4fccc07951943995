"""A SQLite store that was made by others must not reach out of itself, nor run what it brings."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import clew
from clew import ClewError, Corrupt, Unsupported
from clew.cli import main
from clew.engines.sqlite.schema import harden


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "store" / "threads.db"
    with clew.open(file) as store:
        store.create("t").append("event", 1)
    return file


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user that has nothing to do with the store."""
    file = tmp_path / "diary.txt"
    file.write_bytes(b"dear diary")
    return file


def change(path: Path, *statements: str) -> None:
    db = apsw.Connection(str(path))
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    for statement in statements:
        db.execute(statement)
    db.close()


def everything_that_opens(path: Path) -> list[Callable[[], object]]:
    return [
        lambda: clew.open(path),
        lambda: clew.open(path, readonly=True),
        lambda: clew.open(path, create=False),
    ]


def run(command: str, path: Path, *rest: str) -> int:
    try:
        return int(main([command, str(path), *rest]) or 0)
    except SystemExit as end:
        return int(end.code or 0)


# --- files beside it ---


def hot_journal(names: Path) -> bytes:
    """A rollback journal of one page that names another journal, which it would have deleted."""
    header = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", 1, 0, 1, 512, 4096)
    page = struct.pack(">I", 1) + bytes(4096) + bytes(4)
    name = str(names).encode()
    pointer = struct.pack(">I", 0x40000000 // 4096 + 1) + name
    checksum = sum(name) & 0xFFFFFFFF
    end = struct.pack(">II", len(name), checksum) + bytes.fromhex("d9d505f920a163d7")
    return header.ljust(512, b"\0") + page + pointer + end


@pytest.mark.parametrize("size", [0, None])
def test_a_rollback_journal_is_not_carried_out(path: Path, victim: Path, size: int | None) -> None:
    journal = path.with_name(path.name + "-journal")
    journal.write_bytes(hot_journal(victim)[:size])
    before = path.read_bytes()
    for call in everything_that_opens(path):
        with pytest.raises(Unsupported, match="rollback journal"):
            call()
    for command in ("list", "verify", "doctor", "export"):
        assert run(command, path) != 0
    assert path.read_bytes() == before
    assert journal.exists()
    assert run("repair", path) == 0  # on a copy, without the journal
    assert victim.read_bytes() == b"dear diary"


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-lock"])
def test_a_link_beside_a_store_is_not_followed(path: Path, victim: Path, ending: str) -> None:
    beside = path.with_name(path.name + ending)
    beside.unlink(missing_ok=True)
    beside.symlink_to(victim)
    for call in everything_that_opens(path):
        with pytest.raises(Unsupported, match="no link"):
            call()
    assert victim.read_bytes() == b"dear diary"


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_second_name_of_another_file_is_not_taken_for_a_log(
    path: Path, victim: Path, ending: str
) -> None:
    path.with_name(path.name + ending).hardlink_to(victim)
    for call in everything_that_opens(path):
        with pytest.raises(Unsupported, match="hard link"):
            call()
    assert victim.read_bytes() == b"dear diary"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_log_of_another_owner_is_not_believed(path: Path, ending: str) -> None:
    beside = path.with_name(path.name + ending)
    beside.write_bytes(b"")
    os.chown(beside, 12345, -1)
    for call in everything_that_opens(path):
        with pytest.raises(Unsupported, match="same owner"):
            call()


def test_a_new_store_has_no_rollback_journal_at_any_time(tmp_path: Path) -> None:
    """Otherwise a process that is killed then leaves a store that is refused."""

    opened: list[str] = []

    class Watching(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("watching", "")

        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
            opened.append(name.filename() if isinstance(name, apsw.URIFilename) else str(name))
            return apsw.VFSFile("", name, flags)

    watching = Watching()
    with clew.open(tmp_path / "new.db", vfs="watching") as store:
        store.create("t").append("event", 1)
    watching.unregister()
    assert any(name.endswith("-wal") for name in opened)
    assert not any(name.endswith("-journal") for name in opened)


# --- a note of a repair ---


@pytest.mark.parametrize("how", ["absolute", "up", "beside", "folder"])
def test_a_note_of_a_repair_moves_no_file_of_the_user(path: Path, victim: Path, how: str) -> None:
    folder, new = {
        "absolute": ("x", str(victim)),
        "up": ("x", f"../../{victim.name}"),
        "beside": (".", "mine.txt"),
        "folder": ("threads.db.repairing-20260101T000000Z", "repaired.db"),
    }[how]
    path.with_name("mine.txt").write_bytes(b"mine")
    path.with_name("x").mkdir()
    if how == "folder":
        (victim.parent / "repaired.db").write_bytes(b"dear diary")
        path.with_name(folder).symlink_to(victim.parent)
    note = {"damaged": "threads.db.damaged-20260101T000000Z", "folder": folder, "new": new}
    path.with_name(path.name + "-repair").write_text(json.dumps(note))
    before = path.read_bytes()
    assert run("repair", path) != 0
    assert victim.read_bytes() == b"dear diary"
    assert path.with_name("mine.txt").read_bytes() == b"mine"
    assert path.read_bytes() == before


def test_a_note_that_is_a_link_or_a_pipe_is_not_read(path: Path, victim: Path) -> None:
    note = path.with_name(path.name + "-repair")
    note.symlink_to(victim)
    assert run("repair", path) != 0
    note.unlink()
    os.mkfifo(note)
    assert run("repair", path) != 0
    assert victim.read_bytes() == b"dear diary"


# --- what it defines ---

FOREIGN = {
    "a view": "CREATE VIEW spy AS SELECT * FROM records",
    "a trigger": "CREATE TRIGGER spy_trigger AFTER INSERT ON records BEGIN DELETE FROM blobs; END",
    "a table": "CREATE TABLE spying (x)",
    "an index": "CREATE INDEX spy_index ON records (kind)",
    "a virtual table": "CREATE VIRTUAL TABLE spy_words USING fts5(x)",
}


@pytest.mark.parametrize("statement", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_others_define_in_a_store_is_refused_by_name(path: Path, statement: str) -> None:
    change(path, statement)
    for call in everything_that_opens(path):
        with pytest.raises(Unsupported, match="spy"):
            call()
    assert run("verify", path) == 1


def test_a_repair_makes_a_store_without_what_others_defined(path: Path) -> None:
    change(path, *FOREIGN.values())
    assert run("repair", path) == 0
    with clew.open(path) as store:
        assert [entry.body for entry in store.get("t").path()] == [1]
        assert store.verify() == []


def test_a_table_that_takes_any_type_is_refused(path: Path) -> None:
    """A column then holds what no code of ours expects."""
    change(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'threads'",
    )
    for call in everything_that_opens(path):
        with pytest.raises((Corrupt, Unsupported), match="threads"):
            call()


def test_statistics_of_sqlite_are_nothing_foreign(path: Path) -> None:
    change(path, "ANALYZE")
    with clew.open(path) as store:
        assert store.verify() == []


def test_a_connection_has_nothing_that_a_store_does_not_need(path: Path) -> None:
    with clew.open(path) as store:
        db = store.engine._connections.writer()
        assert db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1) == 1
        assert db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, -1) == 0
        assert db.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, -1) == 0
        assert db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, -1) == 0
        assert db.pragma("cell_size_check") == 1
        with pytest.raises(apsw.SQLError, match="attached"):
            db.execute("ATTACH ':memory:' AS other")
    other = apsw.Connection(":memory:")
    harden(other)
    with pytest.raises(apsw.Error):
        other.load_extension("nothing.so")


def test_every_refusal_is_an_error_of_ours(path: Path) -> None:
    change(path, *FOREIGN.values())
    for call in everything_that_opens(path):
        with pytest.raises(ClewError) as caught:
            call()
        assert (caught.value.committed, caught.value.retryable) == (False, False)
