"""What the system refuses, or finds in an odd place, in a store of files: each is told as ours."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import clew
from clew.address import maintenance
from clew.core.engine import innermost
from clew.engines.files import FilesEngine
from clew.engines.files import changes as changes_
from clew.engines.files import index as index_
from clew.engines.files import journal as journal_
from clew.engines.files import open_store as open_store_
from clew.engines.files.blobs import SPILL_BYTES
from clew.engines.files.doctor import FilesMaintenance
from clew.upkeep.repair import repair

LARGE = "large body " * (2 * SPILL_BYTES // 11)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with clew.open(f"files:{path}") as store:
        thread = store.create("t")
        thread.append("event", "small", id="small")
        thread.append("event", LARGE, id="large")
        thread.append("event", "last", id="last")
        store.create("other").append("event", "of the other", id="o")
    return path


def opened(path: Path, **options: Any) -> clew.Store:
    return clew.open(f"files:{path}", **options)


def file_of(path: Path, id: str) -> Path:
    (found,) = (path / "threads").glob(f"{id}*.jsonl")
    return found


def blob_of(path: Path) -> Path:
    (found,) = (file for file in (path / "blobs").rglob("*") if file.is_file())
    return found


def refusing(
    monkeypatch: pytest.MonkeyPatch, name: str, what: Path, error: int
) -> Callable[..., Any]:
    """A call of the system that is refused for one file."""
    real = getattr(os, name)

    def refuse(given: Any, *more: Any, **options: Any) -> Any:
        if isinstance(given, (str, os.PathLike)) and os.fspath(given) == str(what):
            raise OSError(error, os.strerror(error), str(what))
        return real(given, *more, **options)

    monkeypatch.setattr(os, name, refuse)
    return refuse


@pytest.mark.parametrize(
    ("call", "error", "kind"),
    [
        ("lstat", errno.EIO, clew.Corrupt),
        ("open", errno.EIO, clew.Corrupt),
        ("open", errno.EMFILE, clew.Unavailable),
    ],
)
def test_a_blob_that_cannot_be_read_costs_no_other_entry(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int, kind: type[Exception]
) -> None:
    with opened(path) as store:
        refusing(monkeypatch, call, blob_of(path), error)
        with pytest.raises(kind):
            _ = store.get("t").get("large").body
        assert store.get("t").get("last").body == "last"
        if (call, kind) == ("open", clew.Corrupt):
            assert store.verify() != []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_damaged_blob_is_mended_by_the_same_bytes(path: Path, elsewhere: bool) -> None:
    blob = blob_of(path)
    if elsewhere:  # as raw bytes, where it was compressed
        blob.rename(blob.with_suffix(""))
        blob = blob.with_suffix("")
    blob.chmod(0o600)
    blob.write_bytes(b"garbled")
    with opened(path) as store:
        with pytest.raises(clew.Corrupt):
            _ = store.get("t").get("large").body
        store.get("other").append("event", LARGE, id="again")
        assert store.get("other").get("again").body == LARGE
        assert store.get("t").get("large").body == LARGE
        assert store.verify() == []


@pytest.mark.parametrize("damage", [None, b"garbled"])
def test_a_large_body_is_erased_with_its_blob_also_if_that_is_damaged(
    path: Path, damage: bytes | None
) -> None:
    blob = blob_of(path)
    if damage is not None:
        blob.chmod(0o600)
        blob.write_bytes(damage)
    with opened(path) as store:
        store.engine.erase("t", ["large"], time_us=store.clock(), reason=None)
        assert store.get("t").get("large").erased_at is not None
        assert store.verify() == []
        assert not blob.exists()


@pytest.mark.parametrize(
    ("error", "kind"),
    [(errno.ELOOP, clew.Corrupt), (errno.EMFILE, clew.Unavailable), (errno.EIO, clew.Unavailable)],
)
def test_a_thread_whose_file_cannot_be_opened_is_told_and_costs_no_other(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: int, kind: type[clew.ClewError]
) -> None:
    file = file_of(path, "t")
    with opened(path, readonly=True) as store:
        refusing(monkeypatch, "open", file, error)
        with pytest.raises(kind):
            store.get("t").path()
        assert store.get("other").get("o").body == "of the other"


def test_a_file_without_the_right_to_write_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(given: Any, flags: int, *more: Any, **options: Any) -> int:
        if str(given).endswith(".jsonl") and flags & os.O_RDWR:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), given)
        return real(given, flags, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    with opened(path) as store:
        assert store.get("t").get("last").body == "last"


def test_files_that_cannot_be_opened_for_want_of_files_are_no_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(path / "index")
    for call in ("verify", "list"):
        with monkeypatch.context() as patch, pytest.raises(clew.Unavailable):
            refusing(patch, "open", file_of(path, "t"), errno.EMFILE)
            with opened(path) as store:
                getattr(store, call)()
    with opened(path) as store:
        assert store.verify() == []


def test_of_very_many_damaged_files_not_each_is_logged(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(changes_, "LOGGED_MAX", 1)
    for id in ("t", "other"):
        file_of(path, id).write_bytes(b"garbled\n")
    shutil.rmtree(path / "index")
    with opened(path) as store:
        store.list()
    told = [record.getMessage() for record in caplog.records]
    assert sum("is listed as damaged" in text for text in told) == 1
    assert any("1 more cannot be read" in text for text in told)


def test_an_index_that_goes_while_it_is_asked_is_made_again(path: Path) -> None:
    with opened(path) as store:
        assert len(store.list().items) == 2
        shutil.rmtree(path / "index")
        assert {info.id for info in store.list().items} == {"t", "other"}
        assert store.get("t").get("last").body == "last"


def test_a_store_whose_index_may_not_be_made_does_without(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(path / "index")
    real = os.open

    def refuse(given: Any, flags: int, *more: Any, **options: Any) -> int:
        if str(given).startswith(str(path / "index")) and flags & os.O_CREAT:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), given)
        return real(given, flags, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    with opened(path) as store:
        assert store.get("t").get("last").body == "last"
        store.get("t").append("event", "more", id="more")
    monkeypatch.undo()
    with opened(path) as store:
        assert store.get("t").get("more").body == "more"


def test_another_version_of_the_index_is_made_anew(path: Path) -> None:
    (file,) = (one for one in (path / "index").rglob("*.db") if "search" not in one.parts)
    db = apsw.Connection(str(file))
    db.pragma("user_version", 7)
    db.close()
    with opened(path) as store:
        assert {info.id for info in store.list().items} == {"t", "other"}
        assert store.verify() == []


def test_a_line_larger_than_a_piece_is_read_in_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_, "CHUNK_BYTES", 64)
    shutil.rmtree(path / "index")
    with opened(path) as store:
        assert [entry.id for entry in store.get("t").path()] == ["small", "large", "last"]
        assert store.verify() == []


def test_what_is_no_store_is_refused_and_what_was_one_is_damaged(
    path: Path, tmp_path: Path
) -> None:
    for call in (lambda m: m.stats(), lambda m: m.migrate()):
        (path / "clew.json").rename(tmp_path / "marker")
        (path / "clew.json").mkdir()
        with pytest.raises(clew.ClewError):
            call(maintenance(f"files:{path}"))
        (path / "clew.json").rmdir()
        (tmp_path / "marker").rename(path / "clew.json")
    with pytest.raises(clew.InvalidInput, match="no roles"):
        maintenance(f"files:{path}").migrate(rls=True)
    assert maintenance(f"files:{path}").migrate().current
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "notes.txt").write_text("mine")
    with pytest.raises(clew.NotFound):
        maintenance(f"files:{stranger}")
    with pytest.raises(clew.ClewError):
        FilesMaintenance(str(stranger)).stats()
    with pytest.raises(clew.ClewError):
        repair(f"files:{stranger}")
    (stranger / "threads").mkdir()
    (stranger / "threads" / "mine.jsonl").write_text("not a thread of Clew\n")
    with pytest.raises(clew.Unsupported, match="nothing in"):
        repair(f"files:{stranger}")
    assert (stranger / "notes.txt").read_text() == "mine"


def test_two_files_of_one_thread_are_both_kept_by_a_repair(path: Path) -> None:
    file = file_of(path, "t")
    shutil.copy(file, file.with_name("copied.jsonl"))
    with opened(path) as store:
        assert "misnamed" in {problem.code for problem in store.verify()}
    report = repair(f"files:{path}")
    assert any("two files were of one thread" in note for note in report.notes)
    with opened(path) as store:
        assert store.verify() == []
        assert len(store.list().items) == 3


def test_a_thread_that_repair_may_not_read_is_named_and_the_others_are_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_of(path, "t")
    file.unlink()
    file.mkdir()
    report = repair(f"files:{path}")
    assert not report.whole
    with opened(path) as store:
        assert [info.id for info in store.list().items] == ["other"]


def test_no_more_broken_threads_are_remembered_than_may_be(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_store_, "BROKEN_MAX", 0)
    with opened(path) as store:
        store.fork("t", at="small", id="fork")
    file_of(path, "t").write_bytes(b"garbled\n")
    with opened(path) as store:
        for _ in range(2):
            with pytest.raises(clew.ClewError):
                store.get("fork").path()
        assert store.get("other").get("o").body == "of the other"


def test_a_disk_that_only_looks_refuses_every_change(path: Path) -> None:
    with opened(path, readonly=True) as store:
        engine: Any = innermost(store.engine)
        with pytest.raises(clew.ReadOnly):
            engine._store.disk.unlink(str(path / "clew.json"))
    assert index_.BUSY_SECONDS > 0


def test_a_file_in_the_place_of_a_store_is_refused_and_left(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(clew.Unsupported, match="is a file, not a folder"):
        FilesEngine(file)
    assert file.read_text() == "mine"


def test_files_of_others_among_the_threads_are_passed_by(path: Path) -> None:
    with opened(path) as store:
        before = store.stats().stored_bytes
    (path / "threads" / "notes.txt").write_text("mine" * 1000)
    with opened(path) as store:
        assert store.stats().stored_bytes == before
        assert {info.id for info in store.list().items} == {"t", "other"}
    assert (path / "threads" / "notes.txt").read_text() == "mine" * 1000


def test_what_is_left_of_a_purged_thread_under_another_name_is_told(path: Path) -> None:
    with opened(path) as store:
        store.fork("t", at="small", id="fork").append("event", "of the fork", id="f")
        store.purge("t")
    (husk,) = (path / "purged").glob("*.jsonl")
    shutil.copy(husk, husk.with_name("elsewhere.jsonl"))
    with opened(path) as store:
        assert [problem.code for problem in store.verify()] == ["misnamed"]
        assert [entry.id for entry in store.get("fork").path()] == ["small", "f"]
    repair(f"files:{path}")
    with opened(path) as store:
        assert store.verify() == []
        assert [entry.id for entry in store.get("fork").path()] == ["small", "f"]
