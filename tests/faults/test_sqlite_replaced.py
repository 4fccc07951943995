"""A SQLite store whose files are deleted or replaced while it is open.

A backup that is put back does this, a program that keeps folders in step, an editor that saves a
file under a new name and renames it. SQLite goes on writing into the file that it has open.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import clew
from clew import Closed, Unavailable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that was closed, with a thread of three entries, and a copy of it as a backup."""
    (tmp_path / "place").mkdir()
    file = tmp_path / "place" / "threads.db"
    with clew.open(file) as store:
        thread = store.create("t")
        for n in range(3):
            thread.append("event", n)
    shutil.copyfile(file, file.with_name("backup.db"))
    return file


def _delete(path: Path) -> None:
    path.unlink()


def _delete_all(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _put_back(path: Path) -> None:
    shutil.copyfile(path.with_name("backup.db"), path.with_name("new.db"))
    path.with_name("new.db").replace(path)


def _move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def _delete_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


def _replace_log(path: Path) -> None:
    path.with_name("new-wal").write_bytes(b"")
    path.with_name("new-wal").replace(path.with_name(path.name + "-wal"))


def _delete_index(path: Path) -> None:
    path.with_name(path.name + "-shm").unlink()


def _replace_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("former"))
    shutil.copytree(path.parent.with_name("former"), path.parent)


CHANGES = (
    *(_delete, _delete_all, _put_back, _move),
    *(_delete_log, _replace_log, _delete_index, _replace_folder),
)


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_acknowledged_that_goes_into_a_file_nobody_finds(
    path: Path, change: Callable[[Path], None]
) -> None:
    store = clew.open(path)
    thread = store.get("t")
    thread.append("event", 3)
    change(path)
    with pytest.raises(Unavailable, match="was open") as caught:
        thread.append("event", 4)
    assert (caught.value.committed, caught.value.retryable) == (False, False)
    for call in (lambda: thread.append("event", 5), lambda: store.create(), thread.path):
        with pytest.raises(Closed, match="open the store again"):
            call()
    store.close()


@pytest.mark.parametrize("change", CHANGES)
def test_a_reader_gives_no_answers_from_a_file_that_is_gone(
    path: Path, change: Callable[[Path], None]
) -> None:
    store = clew.open(path)
    thread = store.get("t")
    thread.append("event", 3)
    change(path)
    with pytest.raises(Unavailable, match="was open"):
        thread.path()
    store.close()


@pytest.mark.parametrize("change", [_delete, _put_back, _move, _replace_folder])
def test_a_store_that_is_only_looked_at_is_not_exchanged_under_its_handle(
    path: Path, change: Callable[[Path], None]
) -> None:
    with clew.open(path, readonly=True) as store:
        assert len(store.get("t").path()) == 3
        change(path)
        with pytest.raises(Unavailable, match="was open"):
            store.get("t").path()


def test_following_ends_when_the_file_is_replaced(path: Path) -> None:
    with clew.open(path) as store:
        followed = store.get("t").follow(after=0)
        for _ in range(3):
            next(followed)
        _put_back(path)
        with pytest.raises(Unavailable, match="replaced by another file"):
            next(followed)


def test_closing_leaves_the_files_alone_that_came_into_the_place(path: Path) -> None:
    former = clew.open(path)
    former.get("t").append("event", 3)
    _delete_all(path)
    _put_back(path)
    with clew.open(path) as store:
        store.get("t").append("event", "new")
        with pytest.raises(Unavailable):
            former.get("t").append("event", 4)
        former.close()
        assert [entry.body for entry in store.get("t").path()] == [0, 1, 2, "new"]
        store.get("t").append("event", "newer")
    with clew.open(path) as store:
        assert [entry.body for entry in store.get("t").path()] == [0, 1, 2, "new", "newer"]
        assert store.verify() == []


def test_a_deleted_log_that_is_still_open_is_brought_into_the_file(path: Path) -> None:
    store = clew.open(path)
    thread = store.get("t")
    for n in range(3, 10):
        thread.append("event", n)
    _delete_log(path)
    with pytest.raises(Unavailable, match="deleted or moved"):
        thread.append("event", 10)
    store.close()
    with clew.open(path) as again:
        assert [entry.body for entry in again.get("t").path()] == list(range(10))
        assert again.verify() == []


def test_a_forked_child_does_not_go_on_with_another_file(path: Path) -> None:
    with clew.open(path) as store:
        store.get("t").append("event", 3)
        _put_back(path)
        child = os.fork()
        if child == 0:
            try:
                store.get("t").append("event", 4)
            except Unavailable:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(Unavailable, match="replaced by another file"):
            store.get("t").append("event", 4)
