"""A backup has everything, from whatever store, and what fails leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from places import ADDRESSES

import clew
from clew.core.errors import AlreadyExists, ClewError, Corrupt, NotFound, Unsupported
from clew.core.model import Problem
from clew.engines.sqlite.doctor import SQLiteMaintenance
from clew.upkeep.backup import backup


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest) -> str:
    return ADDRESSES[request.param](request)


def fill(address: str) -> dict[tuple[str, str], list[str]]:
    """Threads in two namespaces: their hashes, by namespace and id."""
    found = {}
    for namespace in ("default", "acme"):
        with clew.open(address, namespace=namespace) as store:
            thread = store.create("t", title="T")
            thread.append("event", "x" * 50_000)  # large enough to be a blob
            fork = thread.fork(id="fork")
            fork.append("event", "own", blobs=[store.blobs.put(b"bytes")])
            store.delete(store.create("gone").id)
            for one in (thread, fork, store.get("gone", deleted=True)):
                found[namespace, one.id] = [entry.hash for entry in one.path()]
    return found


@pytest.mark.parametrize("kind", ["{}", "files:{}"])
def test_every_store_can_be_backed_up_to_a_file_and_to_a_folder(
    address: str, tmp_path: Path, kind: str
) -> None:
    stored = fill(address)
    folder = tmp_path / "backups"
    folder.mkdir()
    target = kind.format(folder / "copy")
    with clew.open(address) as writer:  # others have it open
        done = backup(address, target)
        assert writer.get("t")
    assert (done.threads, set(done.namespaces)) == (6, {"default", "acme"})
    assert [path.name for path in folder.iterdir()] == ["copy"]
    for (namespace, id), hashes in stored.items():
        with clew.open(target, namespace=namespace, create=False) as copied:
            thread = copied.get(id, deleted=True)
            assert [entry.hash for entry in thread.path()] == hashes
            assert (thread.info.deleted_at is not None) == (id == "gone")
            assert copied.verify() == []
            if id == "fork":
                assert copied.blobs.get(thread.path()[-1].blobs[0]) == b"bytes"


def test_what_is_there_already_is_not_touched(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    fill(str(source))
    target.write_text("mine")
    with pytest.raises(AlreadyExists):
        backup(source, target)
    assert target.read_text() == "mine"
    link = tmp_path / "c.db"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(AlreadyExists):
        backup(source, link)
    with pytest.raises(Unsupported):
        backup(source, "memory:")
    with pytest.raises(NotFound):
        backup(tmp_path / "missing.db", tmp_path / "d.db")
    assert not (tmp_path / "d.db").exists()


FAILURES: dict[str, BaseException] = {
    "verify": Corrupt("x", "y"),
    "interrupt": KeyboardInterrupt(),
    "full disk": OSError(28, "No space left on device"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    source = tmp_path / "a.db"
    fill(str(source))
    before = {path.name for path in tmp_path.iterdir()}

    def check(self: SQLiteMaintenance, **options: Any) -> Any:
        raise FAILURES[case]

    monkeypatch.setattr(SQLiteMaintenance, "check", check)
    with pytest.raises((ClewError, KeyboardInterrupt, OSError)):
        backup(source, tmp_path / "b.db")
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_copy_that_is_not_whole_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a.db"
    fill(str(source))
    bad = Problem(code="hash", message="not as it was written")
    monkeypatch.setattr(SQLiteMaintenance, "check", lambda self, **options: iter([bad]))
    with pytest.raises(Corrupt, match="the copy: not as it was written"):
        backup(source, tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()
