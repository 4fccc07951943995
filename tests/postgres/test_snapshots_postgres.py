"""Snapshots in a store that is on another machine than the files."""

from __future__ import annotations

from pathlib import Path

import pytest
from crews import Open
from servers.cluster import Cluster

import clew
from clew.snapshots import scan
from clew.snapshots.scan import Reader


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "d").mkdir(parents=True)
    for name in ("a", "d/b", "d/c"):
        (folder / name).write_bytes(name.encode())
    return folder


def grown_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later, when the times of the files tell whether they were changed."""
    monkeypatch.setattr(scan, "now_ns", lambda: 2**62)


def test_another_process_reads_only_what_has_changed(
    beside: clew.Store,
    opened: Open,
    postgres_cluster: Cluster,
    database: str,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grown_old(monkeypatch)
    thread = beside.create("t")
    first = thread.snapshots.take(root)
    (root / "d/b").write_bytes(b"changed")
    read: list[str] = []
    real = Reader._read

    def noting(self: Reader, folder: int, path: str, name: str) -> object:
        read.append(path + name)
        return real(self, folder, path, name)

    monkeypatch.setattr(Reader, "_read", noting)
    again = opened(postgres_cluster.dsn(database)).get("t")
    second = again.snapshots.take(root)
    assert read == ["d/b"]
    assert again.snapshots.read(second, "d/c") == b"d/c"
    assert again.snapshots.read(first, "d/b") == b"d/b"


def test_a_store_that_never_saw_the_tree_is_told_all_of_it(
    beside: clew.Store,
    opened: Open,
    postgres_cluster: Cluster,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cache tells what one store has; another database of the same server has it not."""
    grown_old(monkeypatch)
    beside.create("t").snapshots.take(root)
    thread = opened(postgres_cluster.dsn(postgres_cluster.create_database())).create("t")
    taken = thread.snapshots.take(root)
    assert {path: thread.snapshots.read(taken, path) for path in ("a", "d/b", "d/c")} == {
        path: path.encode() for path in ("a", "d/b", "d/c")
    }
