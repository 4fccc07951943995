"""A backup has everything, from whatever store, and what fails leaves nothing behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from places import ADDRESSES

import clew
from clew.address import maintenance, place_of
from clew.core.errors import (
    AlreadyExists,
    ClewError,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    Unavailable,
    Unsupported,
)
from clew.core.model import Problem
from clew.engines.sqlite.doctor import SQLiteMaintenance
from clew.upkeep import restore as restore_module
from clew.upkeep.backup import backup, find_mark, stored_namespaces
from clew.upkeep.restore import restore
from clew.upkeep.transfer import everything


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


# --- again, into the same place ---


@pytest.fixture(params=["{}", "files:{}"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path / "backup")


Log = dict[tuple[str, str], list[tuple[str, str]]]


def logs(address: str) -> Log:
    """Every record of every thread, by namespace and thread."""
    found: Log = {}
    for name in stored_namespaces(address):
        with clew.open(address, namespace=name) as store:
            for info in everything(store.engine):
                log = store.engine.read(info.id)
                found[name, info.id] = [(record.id, record.hash) for record in log]
    return found


def test_a_second_backup_costs_what_is_new_and_is_the_store_again(
    address: str, target: str
) -> None:
    fill(address)
    assert backup(address, target).first
    with clew.open(address, namespace="acme") as store:
        store.get("t").append("event", "new")
        store.get("fork").set(title="named since")
        store.restore("gone")
        store.create("more").append("event", "in a new one")
    again = backup(address, target)
    assert (again.first, again.records, again.blobs, again.kept) == (False, 4, 0, ())
    assert logs(target) == logs(address)
    assert backup(address, target).records == 0
    assert list(maintenance(target).check()) == []


def test_what_the_store_has_lost_the_backup_keeps(tmp_path: Path, target: str) -> None:
    """An older state was put back and went on, threads were purged, and an id was used again."""
    address, older = str(tmp_path / "s.db"), tmp_path / "older.db"
    fill(address)
    with clew.open(address) as store:
        store.create("used again").append("event", "the first")
        store.create("gone for good").append("event", 1)
    backup(address, older)
    with clew.open(address) as store:
        thread, fork = store.get("t"), store.get("fork")
        for n in range(3):
            thread.append("event", n, id=f"lost{n}")
        store.create("only mine").append("event", 1)
        fork.append("event", "lost too")
        of_fork = fork.fork(id="fork of the fork")
        of_fork.append("event", 1)
    backup(address, target)
    had = logs(target)
    for file in tmp_path.glob("s.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    restore(older, address)
    with clew.open(address) as store:
        store.get("t").append("event", "another way", id="mine")
        store.purge("used again")
        store.create("used again").append("event", "the second")
        store.purge("gone for good")
    done = backup(address, target)
    aside = {id: kept for _, id, kept in done.set_aside}
    assert set(aside) == {"t", "used again"}
    assert {id for _, id in done.kept} == {"gone for good", "only mine", "fork of the fork"}
    assert done.ahead == (("default", "fork"),)
    now = logs(target)
    there = logs(address)
    assert {key: now[key] for key in there if key[1] != "fork"} == {
        key: log for key, log in there.items() if key[1] != "fork"
    }
    with clew.open(target) as store:
        kept = store.get(aside["t"])
        assert [entry.id for entry in kept.path()][-3:] == ["lost0", "lost1", "lost2"]
        assert [e.body for e in store.get(aside["used again"]).path()] == ["the first"]
    for key in (("default", "fork of the fork"), ("default", "fork"), ("default", "only mine")):
        assert now[key] == had[key]
    assert list(maintenance(target).check()) == []
    assert backup(address, target).set_aside == (), "once"


def image(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return {str(file): file.read_bytes() for file in files}


def test_nothing_but_a_backup_of_this_store_is_written_to(tmp_path: Path, target: str) -> None:
    address, other = str(tmp_path / "s.db"), str(tmp_path / "other.db")
    fill(address)
    with clew.open(other) as store:
        store.create("theirs").append("event", 1)
    copied = f"{target.removesuffix('backup')}copy"  # the folder may have the word in its name, too
    with clew.open(address) as source, clew.open(copied) as made:
        source.copy_to(made)
    before = image(place_of(copied))
    with pytest.raises(AlreadyExists):
        backup(address, copied)
    assert image(place_of(copied)) == before, "a copy is in use; only a backup is nothing else"
    backup(address, target)
    before = image(place_of(target))
    with pytest.raises(Conflict, match="is a backup of"):
        backup(other, target)
    with pytest.raises(Conflict, match="has none of"):
        backup(other, target, moved=True)
    with pytest.raises(InvalidInput):
        backup(target, target)
    assert image(place_of(target)) == before
    moved = tmp_path / "moved.db"
    Path(address).rename(moved)
    with clew.open(moved) as store:
        store.create("since then")
    with pytest.raises(Conflict, match="--moved"):
        backup(moved, target)
    assert image(place_of(target)) == before
    assert backup(moved, target, moved=True).records == 0
    assert backup(moved, target).threads == 7, "from then on that is its place"


def test_a_store_that_lost_everything_does_not_count_as_its_own_backup(tmp_path: Path) -> None:
    address, target = str(tmp_path / "s.db"), str(tmp_path / "b.db")
    fill(address)
    backup(address, target)
    for file in tmp_path.glob("s.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    clew.open(address).close()
    with pytest.raises(Conflict, match="has none of"):
        backup(address, target)


def test_a_damaged_thread_keeps_no_other_one_from_the_backup(tmp_path: Path) -> None:
    address, target = tmp_path / "s.db", tmp_path / "b.db"
    fill(str(address))
    backup(address, target)
    with clew.open(address) as store:
        store.get("t").append("event", "needle")
        store.create("z").append("event", "sound")
    address.write_bytes(address.read_bytes().replace(b"needle", b"noodle"))
    with pytest.raises(Corrupt, match="all other threads"):
        backup(address, target)
    with clew.open(target) as store:
        assert [entry.body for entry in store.get("z").path()] == ["sound"]
        assert store.verify() == []
    mark = find_mark(target)
    assert mark is not None
    assert not mark.finished


# --- back ---


def test_a_store_comes_back_whole_on_every_engine(
    address: str, target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    fill(address)
    backup(address, target)
    wanted = logs(address)
    for place in (tmp_path / "deep" / "new.db", f"files:{tmp_path / 'new'}"):
        done = restore(target, place)
        assert (done.threads, set(done.namespaces)) == (6, {"default", "acme"})
        assert logs(str(place)) == wanted
        assert find_mark(place) is None
        with pytest.raises(AlreadyExists):
            restore(target, place)
        assert logs(str(place)) == wanted


def test_a_store_comes_back_on_a_server_that_holds_none(tmp_path: Path, postgres_dsn: str) -> None:
    address, target = str(tmp_path / "s.db"), str(tmp_path / "b.db")
    fill(address)
    backup(address, target)
    assert restore(target, postgres_dsn).threads == 6
    assert logs(postgres_dsn) == logs(address)
    with pytest.raises(AlreadyExists):
        restore(target, postgres_dsn)


def test_a_clock_before_the_backup_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, target = str(tmp_path / "s.db"), str(tmp_path / "b.db")
    fill(address)
    backup(address, target)
    monkeypatch.setattr(restore_module, "now_us", lambda: 1_000_000_000_000_000)
    with pytest.raises(Unavailable, match="set the clock first"):
        restore(target, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
