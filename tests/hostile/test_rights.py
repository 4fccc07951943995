"""What a store is made of is for its owner alone, however careless the process is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew


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
