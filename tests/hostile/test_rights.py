"""What a store is made of is for its owner alone, however careless the process is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
from clew.upkeep.backup import backup


@pytest.fixture
def careless() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("careless")
@pytest.mark.parametrize("engine", ["sqlite", "files"])
def test_a_new_store_can_be_read_by_nobody_else(engine: str, tmp_path: Path) -> None:
    with clew.open(f"{engine}:{tmp_path}/above/deeper/store") as store:
        store.create("t").append("event", {"text": "secret"})
        store.blobs.put(b"secret")
        store.search("secret")
        found = sorted(tmp_path.rglob("*"))
        assert len(found) > 4
        modes = {str(path): stat.S_IMODE(path.lstat().st_mode) for path in found}
    assert {path: mode for path, mode in modes.items() if mode & 0o077} == {}


@pytest.mark.usefixtures("careless")
def test_what_is_remembered_of_a_store_can_be_exchanged_by_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name / "home"))
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").write_text("x")
    address = str(tmp_path / "threads.db")
    with clew.open(address) as store:
        thread = store.create("t")
        thread.append_message({"role": "user", "content": "hello"}, format="anthropic")
        thread.snapshots.take(work)
        store.usage()
        store.unfinished_turns()
    backup(address, str(tmp_path / "backup"))
    for name in ("STATE", "CACHE"):
        folders = [path for path in (tmp_path / name).rglob("*") if path.is_dir()]
        assert len(folders) > 2
        modes = {str(path): stat.S_IMODE(path.lstat().st_mode) for path in folders}
        assert {path: mode for path, mode in modes.items() if mode & 0o077} == {}
    files = [path for path in (tmp_path / "CACHE").rglob("*") if path.is_file()]
    modes = {str(path): stat.S_IMODE(path.lstat().st_mode) for path in files}
    assert len(modes) > 2
    assert {path: mode for path, mode in modes.items() if mode & 0o077} == {}
