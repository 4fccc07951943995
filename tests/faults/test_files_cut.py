"""A thread's file that others cut or replace under its open writer: it notices, and says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import clew
from clew import Corrupt
from clew.engines.files import open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def opened(root: Path, **options: object) -> clew.Store:
    return clew.open(f"files:{root}", **options)


def cut(file: Path, size: int) -> None:
    os.truncate(file, size)


def put_back(file: Path, size: int) -> None:
    older = file.with_name("older")
    older.write_bytes(file.read_bytes()[:size])
    older.replace(file)


def cut_and_written_on(file: Path, size: int) -> None:
    os.truncate(file, size)
    with opened(file.parents[1]) as other:
        other.get("t").append([clew.draft("event", f"others {n}") for n in range(9)])


@pytest.mark.parametrize("change", [cut, put_back, cut_and_written_on])
@pytest.mark.parametrize("evicted", [False, True])
def test_a_writer_notices_that_what_it_acknowledged_is_gone(
    change: Callable[[Path, int], None],
    evicted: bool,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = root / "threads" / "t.jsonl"
    with opened(root) as store:
        thread = store.create("t")
        first = thread.append("event", 0)
        size = file.stat().st_size
        for n in range(1, 4):
            thread.append("event", n)
        whole = file.read_bytes()
        if evicted:
            monkeypatch.setattr(open_store, "OPEN_MAX", 1)
            store.create("u")
            store.create("v")
        change(file, size)
        left = file.read_bytes()
        for call in (lambda: thread.append("event", 4), thread.path):
            with pytest.raises(Corrupt, match="others have cut it") as caught:
                call()
            assert caught.value.committed is False
        assert file.read_bytes() == left, "nothing was written"
        file.write_bytes(whole)
        thread.append("event", 4)
        assert [entry.body for entry in thread.path()] == [0, 1, 2, 3, 4]
        os.truncate(file, size)
    with opened(root) as store:
        assert [entry.id for entry in store.get("t").path()] == [first.id]
        store.get("t").append("event", "on")
        assert store.verify() == []


def test_a_thread_that_others_purge_and_make_again_is_another_one(root: Path) -> None:
    with opened(root) as store, opened(root) as other:
        store.create("t").append("event", {"text": "long " * 99})
        other.purge("t")
        other.create("t").append("event", 1)
        store.get("t").append("event", 2)
        assert [entry.body for entry in store.get("t").path()] == [1, 2]


def test_a_store_put_back_whole_is_noticed_by_its_open_writer(root: Path, tmp_path: Path) -> None:
    with opened(root) as store:
        store.create("t").append("event", 0)
        shutil.copytree(root, tmp_path / "backup")
        store.get("t").append("event", 1)
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "backup", root)
        with pytest.raises(Corrupt, match="put another in its place"):
            store.get("t").append("event", 2)
