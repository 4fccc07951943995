"""Damage, repair and interruption in a store of several namespaces: none costs another anything."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from faults.test_repair import place_of

import clew
from clew.address import maintenance, namespaces
from clew.core.codec import digest
from clew.core.model import Acquire, ClearExpired, Problem
from clew.engines.shared.migrations import schema
from clew.engines.sqlite.repair import pages
from clew.upkeep.repair import RepairReport, repair
from clew.upkeep.transfer import everything

NAMES = ["default", "acme", "Über/sea"]  # as they sort
SHARED = b"the same bytes in every namespace " * 40


def fill(address: str, namespace: str) -> None:
    with clew.open(address, namespace=namespace) as store:
        blob = store.blobs.put(SHARED)
        store.blobs.put(f"put by hand in {namespace}".encode())
        thread = store.create("t", title=namespace, tags=["x"])
        a = thread.append("user_message", f"needle-a of {namespace}", id="a", blobs=[blob])
        thread.append("tool_result", f"large, of {namespace} " * 5000, id="b")
        thread.append("event", "the same everywhere " * 5000, id="c")
        thread.move(a.id)
        thread.append("user_message", f"needle-d of {namespace}", id="d")
        thread.fork(at="c", id="f").append("event", 1, id="g")
        store.create("alone").append("event", f"needle-h of {namespace}", id="h")
        for _ in range(NAMES.index(namespace) + 1):
            store.engine.lease("t", Acquire("somebody", 60.0))
            store.engine.lease("t", ClearExpired(cutoff_us=2**60))


def filled(address: str) -> str:
    for name in NAMES:
        fill(address, name)
    return address


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled(str(tmp_path_factory.mktemp("rows") / "store.db"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled(f"files:{tmp_path_factory.mktemp('files') / 'store'}")


def copied(made: str, to: Path) -> str:
    """The address of a copy that a test may damage."""
    shutil.copytree(place_of(made).parent, to / "copy")
    kept = "files:" if made.startswith("files:") else ""
    return kept + str(to / "copy" / place_of(made).name)


@pytest.fixture(params=["sqlite", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return copied(request.getfixturevalue(request.param), tmp_path)


@pytest.fixture
def rows(sqlite: str, tmp_path: Path) -> str:
    return copied(sqlite, tmp_path)


@pytest.fixture
def files(folder: str, tmp_path: Path) -> str:
    return copied(folder, tmp_path)


@pytest.fixture
def known(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """What is in the store of a test, if nothing is damaged."""
    about = {"rows": "sqlite", "files": "folder"}
    made = next((made for name, made in about.items() if name in request.fixturenames), None)
    address = request.getfixturevalue(made or request.node.callspec.params["store"])
    return {name: picture(address, name) for name in NAMES}


def picture(address: str, namespace: str) -> dict[str, Any]:
    with clew.open(address, namespace=namespace, create=False) as store:
        assert store.verify() == []
        engine = store.engine
        return {
            info.id: (info, engine.read(info.id), engine.path(info.id))
            for info in everything(engine)
        }


def damage(address: str, old: str, new: str) -> None:
    """Change bytes of the same length, behind Clew's back."""
    place = place_of(address)
    files = [place] if place.is_file() else list(place.rglob("*.jsonl"))
    found = 0
    for file in files:
        data = file.read_bytes()
        found += data.count(old.encode())
        file.write_bytes(data.replace(old.encode(), new.encode()))
    assert found == 1


def problems(address: str, **options: Any) -> list[Problem]:
    whole = maintenance(address)
    try:
        return list(whole.check(**options))
    finally:
        whole.close()


def change(address: str, *statements: str) -> None:
    db = apsw.Connection(address)
    for sql in statements:
        db.execute(sql)
    db.close()


def mend(address: str, damaged: tuple[str, ...], known: dict[str, dict[str, Any]]) -> RepairReport:
    """Repair; every namespace but those named is as it was."""
    report = repair(address)
    assert problems(address) == []
    for name in NAMES:
        if name not in damaged:
            assert picture(address, name) == known[name], name
    return report


# --- looking ---


def test_every_namespace_is_verified_as_a_whole(store: str) -> None:
    told: list[tuple[int, int]] = []
    assert problems(store, progress=lambda *now: told.append(now)) == []
    assert problems(store, quick=True) == []
    assert namespaces(store) == NAMES
    assert all(done <= total for done, total in told)
    assert told == sorted(told)
    whole = maintenance(store)
    stats = whole.stats()
    whole.close()
    assert (stats.threads, stats.entries) == (9, 18)


def test_damage_is_named_with_its_namespace_and_seen_there_only(store: str) -> None:
    damage(store, "needle-d of acme", "needle-x of acme")
    found = problems(store)
    assert {problem.namespace for problem in found} == {"acme"}
    codes = {problem.code for problem in found if problem.thread == "t"}
    assert codes & {"damaged_body", "damaged_record"}, "in a line nothing can be told apart"
    for name in NAMES:
        with clew.open(store, namespace=name) as opened:
            assert bool(opened.verify()) == (name == "acme")


def test_looking_does_not_make_a_namespace(store: str) -> None:
    with pytest.raises(clew.NotFound) as caught:
        clew.open(store, namespace="nobody", create=False)
    assert (caught.value.what, caught.value.id) == ("namespace", "nobody")
    assert namespaces(store) == NAMES


# --- repairing ---


def test_a_repair_keeps_every_namespace(store: str, known: dict[str, Any]) -> None:
    damage(store, "needle-d of acme", "needle-x of acme")
    report = mend(store, ("acme",), known)
    assert [(lost.namespace, lost.thread, lost.id) for lost in report.lost] == [("acme", "t", "d")]
    assert report.threads == 9
    found = picture(store, "acme")
    assert {id: found[id] for id in ("f", "alone")} == {
        id: known["acme"][id] for id in ("f", "alone")
    }
    assert [entry.kind for entry in found["t"][2]] == ["user_message", "custom"]


def test_leases_and_loose_blobs_stay_with_their_namespace(store: str) -> None:
    damage(store, "needle-d of acme", "needle-x of acme")
    repair(store)
    for n, name in enumerate(NAMES, start=1):
        with clew.open(store, namespace=name) as opened:
            lease = opened.engine.lease("t", Acquire("me", 1.0))
            assert lease is not None
            assert lease.fence > n, "past those that were given out"
            own = {other: f"put by hand in {other}".encode() for other in NAMES}
            hashes = {other: digest(data) for other, data in own.items()}
            assert opened.engine.has_blobs(hashes.values()) == {hashes[name]}


def test_a_repair_waits_for_those_who_have_a_namespace_open(store: str) -> None:
    with clew.open(store, namespace="acme"), pytest.raises(clew.Unavailable, match="in use"):
        repair(store)


def test_reindexing_loses_nothing(store: str, known: dict[str, Any]) -> None:
    repair(store, reindex=True)
    assert {name: picture(store, name) for name in NAMES} == known


# --- SQLite ---


MOVED = {
    "a thread": ("UPDATE threads SET space = 3 WHERE space = 2 AND id = 'alone'",),
    "an origin": ("UPDATE threads SET space = 1, id = 'x' WHERE space = 2 AND id = 't'",),
    "names": (
        "UPDATE namespaces SET name = 'between' WHERE no = 2",
        "UPDATE namespaces SET name = 'acme' WHERE no = 3",
        "UPDATE namespaces SET name = 'Über/sea' WHERE no = 2",
    ),
}


@pytest.mark.parametrize("moved", MOVED)
def test_what_came_into_another_namespace_is_found_and_goes_back(
    rows: str, known: dict[str, Any], moved: str
) -> None:
    if moved == "a thread":
        change(rows, "UPDATE threads SET id = 'elsewhere' WHERE space = 3 AND id = 'alone'")
        change(rows, "DELETE FROM threads WHERE space = 3 AND id = 'elsewhere'")
    change(rows, *MOVED[moved])
    assert "damaged_thread" in {problem.code for problem in problems(rows)}
    mend(rows, ("Über/sea",) if moved == "a thread" else (), known)
    assert picture(rows, "acme") == known["acme"]


def test_a_blob_in_another_namespace_is_missing(rows: str) -> None:
    change(rows, "UPDATE blobs SET space = 3, hash = 'b3:' || no WHERE space = 2")
    found = {(problem.code, problem.namespace) for problem in problems(rows, quick=True)}
    assert ("missing_blob", "acme") in found


def test_a_lost_blob_is_healed_by_another_namespace(rows: str, known: dict[str, Any]) -> None:
    hash = digest(SHARED)
    change(rows, f"UPDATE blobs SET data = x'00' WHERE space = 2 AND hash = '{hash}'")
    assert [problem.namespace for problem in problems(rows)] == ["acme"]
    report = mend(rows, (), known)
    assert (report.lost, report.lost_blobs) == ((), ())


def test_a_thread_that_lost_its_row_does_not_come_to_somebody_else(
    rows: str, known: dict[str, Any]
) -> None:
    """A fork of it tells where it was; if there is none, nobody gets it."""
    change(rows, "DELETE FROM threads WHERE space = 2 AND id IN ('t', 'alone')")
    mend(rows, ("acme",), known)
    assert sorted(namespaces(rows)) == sorted([*NAMES, "lost"])
    found = picture(rows, "acme")
    assert {entry.id for entry in found["f"][2]} == {"a", "b", "c", "g"}
    (thread,) = picture(rows, "lost").values()
    assert [entry.body for entry in thread[2]] == ["needle-h of acme"]


def test_a_namespace_that_lost_its_name_keeps_its_threads(rows: str, known: dict[str, Any]) -> None:
    change(rows, "DELETE FROM namespaces WHERE no = 2")
    mend(rows, ("acme",), known)
    assert namespaces(rows) == ["default", "lost-namespace-2", "Über/sea"]
    assert picture(rows, "lost-namespace-2") == known["acme"]


@pytest.mark.parametrize("table", ["namespaces", "sqlite_autoindex_namespaces_1", "threads"])
def test_a_destroyed_root_costs_no_namespace(rows: str, known: dict[str, Any], table: str) -> None:
    _destroy(rows, _root(rows, table))
    mend(rows, (), known)


def test_a_destroyed_first_page_costs_no_namespace(rows: str, known: dict[str, Any]) -> None:
    _destroy(rows, 1)
    mend(rows, (), known)


def _root(path: str, name: str) -> int:
    db = apsw.Connection(path)
    (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    db.close()
    return int(root)


def _destroy(path: str, page: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xee" * 4096
    Path(path).write_bytes(data)


# Segments have numbers where namespaces have names; the others are not stored as rows but as keys.
WITHOUT_ROWS_LIKE_THESE = {"segments", "facts", "tags", "blob_uses", "packed_ids"}


def test_rows_are_told_apart_by_how_many_columns_they_have() -> None:
    db = apsw.Connection(":memory:")
    db.execute(schema("sqlite"))
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    widths = {
        table: len(db.execute(f"PRAGMA table_info({table})").fetchall())
        for table in tables
        if not table.startswith("sqlite_")
    }
    for table in pages._TABLES:
        same = {name for name, width in widths.items() if width == widths[table]}
        assert same <= {table, *WITHOUT_ROWS_LIKE_THESE}, table
    assert widths.keys() - WITHOUT_ROWS_LIKE_THESE == set(pages._TABLES)


# --- files ---


def test_a_damaged_marker_of_a_namespace_costs_nothing(files: str, known: dict[str, Any]) -> None:
    (place_of(files) / "namespaces" / "%c3%9cber%2fsea" / "clew.json").write_bytes(b"\xff{")
    (found,) = problems(files)
    assert (found.code, found.namespace) == ("unreadable", "Über/sea")
    mend(files, (), known)


def test_a_folder_of_another_namespace_is_not_taken_for_it(files: str) -> None:
    rooms = place_of(files) / "namespaces"
    (rooms / "acme").rename(rooms / "other")
    with pytest.raises(clew.Corrupt, match="acme"):
        clew.open(files, namespace="other")


def test_a_name_that_is_too_long_for_a_file_is_found_again(tmp_path: Path) -> None:
    address, name = f"files:{tmp_path / 'store'}", "Ü" * 64
    clew.open(address, namespace=name).close()
    assert namespaces(address) == ["default", name]
    (folder,) = (tmp_path / "store" / "namespaces").iterdir()
    (folder / "clew.json").unlink()
    repair(address)
    assert len(namespaces(address)) == 2


@pytest.mark.parametrize("which", ["namespaces", "namespaces/acme"])
def test_a_link_is_not_followed_into_another_place(files: str, tmp_path: Path, which: str) -> None:
    link = place_of(files) / which
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(clew.Unsupported, match="symbolic link"):
        clew.open(files, namespace="acme")


def test_what_is_not_a_namespace_is_not_one(files: str) -> None:
    rooms = place_of(files) / "namespaces"
    (rooms / "notes").mkdir()
    (rooms / "Upper").mkdir()
    (rooms / "README").write_text("hello")
    assert namespaces(files) == NAMES


def test_a_sweep_leaves_what_others_are_writing(files: str) -> None:
    """A file in the making looks like what a dead writer left; only its own namespace can tell."""
    making = place_of(files) / "namespaces" / "acme" / "blobs" / ".01.new"
    making.write_bytes(b"half of it")
    os.utime(making, (1, 1))
    with clew.open(files) as opened:
        opened.sweep(grace_seconds=0)
    assert making.exists()
    with clew.open(files, namespace="acme") as opened:
        opened.sweep(grace_seconds=0)
    assert not making.exists()


def test_a_namespace_is_a_store_of_its_own(files: str, known: dict[str, Any]) -> None:
    alone = f"files:{place_of(files) / 'namespaces' / 'acme'}"
    assert picture(alone, "default") == known["acme"]


# --- what lies beside a store, and those who work at once ---


def test_a_snapshot_does_not_rely_on_what_another_namespace_has(store: str, tmp_path: Path) -> None:
    """What was read for one is remembered on disk; the other one has none of the contents."""
    root = tmp_path / "tree"
    root.mkdir()
    (root / "file.txt").write_text("contents")
    for path in (root / "file.txt", root):
        os.utime(path, (time.time() - 100,) * 2)
    for name in NAMES:
        with clew.open(store, namespace=name) as opened:
            thread = opened.get("t")
            for _ in range(2):
                taken = thread.snapshots.take(root)
                assert thread.snapshots.read(taken, "file.txt") == b"contents"
            assert opened.verify() == []


def test_writers_of_several_namespaces_do_not_disturb_each_other(store: str) -> None:
    def write(name: str) -> None:
        with clew.open(store, namespace=name) as opened:
            thread = opened.create("busy")
            for n in range(30):
                thread.append("event", name, id=f"e{n}", expect=f"e{n - 1}" if n else None)

    errors: list[BaseException] = []
    workers = [threading.Thread(target=_noting(errors, write), args=(name,)) for name in NAMES]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert errors == []
    for name in NAMES:
        with clew.open(store, namespace=name) as opened:
            assert {entry.body for entry in opened.get("busy").path()} == {name}
            assert len(opened.get("busy").path()) == 30
    assert problems(store) == []


def _noting(errors: list[BaseException], work: Callable[[str], None]) -> Callable[[str], None]:
    def run(name: str) -> None:
        try:
            work(name)
        except BaseException as error:
            errors.append(error)

    return run
