"""Whatever was damaged, repair saves the rest, says what is lost, and keeps the original."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
from faults.test_verify import CHANGES
from faults.test_verify import whole as a_store

import clew
from clew.core.model import Acquire, Entry
from clew.engines.files.repair.workshop import FilesWorkshop
from clew.engines.shared import swap
from clew.engines.sqlite.repair.workshop import SQLiteWorkshop
from clew.testing.cases.base import thread as draft_of
from clew.upkeep.repair import RepairReport, repair
from clew.upkeep.transfer import everything

ENGINES = ["sqlite", "files"]


def address(engine: str, folder: Path) -> str:
    return f"files:{folder / 'store'}" if engine == "files" else str(folder / "store.db")


def place_of(address: str) -> Path:
    return Path(address.removeprefix("files:"))


def fill(address: str) -> None:
    """Threads with branches, facts, blobs, forks, a purged origin, a deleted one, a lease."""
    with clew.open(address) as store:
        blob = store.blobs.put(b"blob " * 50)
        store.blobs.put(b"put by hand, and not named yet")
        gone = store.create("gone")
        first = gone.append("event", "kept for a fork")
        gone.set(title="not kept")
        last = gone.append("event", "kept as well")
        facts = {"workspace": "/w", "title": "title", "tags": ["a"]}
        store.engine.create(draft_of("t", parent="p", facts=facts))  # its parent was purged
        thread = store.get("t")
        a = thread.append("user_message", {"text": "needle-a"}, id="a", meta={"m": 1})
        thread.append("tool_result", {"text": "needle-b " * 2000}, id="b", blobs=[blob])
        thread.append("user_message", {"text": "needle-c"}, id="c")
        thread.move(a.id)
        thread.append("user_message", {"text": "needle-d"}, id="d")
        thread.append("user_message", {"text": "needle-e"}, id="e")
        thread.fork(at="c", id="f").append("user_message", {"text": "needle-g"}, id="g")
        gone.fork(at=last.id, id="orphan").append("event", "alone")
        gone.fork(at=first.id, id="orphan2")
        store.purge("gone")
        store.create("gone", title="another").append("event", 1)
        store.create("deleted", facts={"archived": True, "status": "x"})
        store.delete("deleted")
        store.engine.lease("t", Acquire("somebody", 60.0))
        store.engine.lease("t", clew.core.model.ClearExpired(cutoff_us=2**60))


@pytest.fixture(scope="module", params=ENGINES)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    made = address(request.param, tmp_path_factory.mktemp(request.param))
    fill(made)
    return made


@pytest.fixture
def store(whole: str, tmp_path: Path) -> str:
    """The address of a copy that a test may damage."""
    shutil.copytree(place_of(whole).parent, tmp_path / "copy")
    kept = "files:" if whole.startswith("files:") else ""
    return kept + str(tmp_path / "copy" / place_of(whole).name)


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rows") / "store.db"
    fill(str(made))
    return made


def picture(address: str) -> dict[str, Any]:
    with clew.open(address) as store:
        assert store.verify() == []
        engine = store.engine
        return {
            info.id: (info, engine.read(info.id), engine.path(info.id))
            for info in everything(engine)
        }


def contents(place: Path) -> dict[str, bytes]:
    """The bytes of a store, but for locks and what is derived."""
    if place.is_file():
        ends = [end for end in ("", "-wal") if Path(f"{place}{end}").exists()]
        return {end: Path(f"{place}{end}").read_bytes() for end in ends}
    return {
        str(file.relative_to(place)): file.read_bytes()
        for file in sorted(place.rglob("*"))
        if file.is_file()
    }


def rewrite(address: str, old: bytes, new: bytes) -> None:
    """Change bytes of the same length in every file that has them, behind Clew's back."""
    place = place_of(address)
    files = [place] if place.is_file() else list((place / "threads").iterdir())
    found = 0
    for file in files:
        data = file.read_bytes()
        found += data.count(old)
        file.write_bytes(data.replace(old, new))
    assert found


def mend(address: str) -> RepairReport:
    """Repair, and check what must hold after any repair."""
    before = contents(place_of(address))
    report = repair(address)
    if report.original is not None:
        assert contents(Path(report.original)) == before, "the original is as it was"
    left = [p.name for p in place_of(address).parent.iterdir()]
    assert not [name for name in left if "repairing" in name or name.endswith("-repair")]
    with clew.open(address) as store:
        assert store.verify() == []
    return report


def test_a_whole_store_is_left_as_it_is(store: str) -> None:
    before = contents(place_of(store))
    report = repair(store)
    assert (report.whole, report.original, report.lost) == (True, None, ())
    assert contents(place_of(store)) == before


def test_a_damaged_body_becomes_a_placeholder_and_the_rest_stays(store: str, whole: str) -> None:
    rewrite(store, b"needle-c", b"needle-x")
    before = picture(whole)
    report = mend(store)
    assert [(lost.thread, lost.id, lost.sort) for lost in report.lost] == [("t", "c", "entry")]
    assert report.lost[0].place
    assert (report.placeholders, report.rehashed, report.unverified) == (1, 1, 0)
    after = picture(store)
    for id in set(before) - {"t", "f"}:
        assert after[id] == before[id], "no other thread is touched"
    found = {r.id: r for r in after["t"][1]}
    assert found["c"].kind == "custom"
    assert found["c"].body["lost"]["reason"]
    assert found["c"].parent == "b"
    for old in before["t"][1]:
        if old.id != "c":
            assert found[old.id] == old, "seqs and hashes as well: nothing hangs on it here"
    assert after["t"][0].leaf == "e"
    ids = [entry.id for entry in after["f"][2]]
    assert ids == ["a", "b", "c", "g"], "the fork hangs on the placeholder"
    assert after["f"][2][-1].data == before["f"][2][-1].data


def test_fences_go_on_growing_after_a_repair(store: str) -> None:
    with clew.open(store) as before:
        leases = before.get("t").leases
        first = leases.acquire("the last before the repair")
        leases.release(first)
    rewrite(store, b"needle-c", b"needle-x")
    mend(store)
    with clew.open(store) as again:
        assert again.get("t").leases.acquire("next").fence > first.fence


def test_what_was_put_and_not_named_yet_is_kept(store: str) -> None:
    rewrite(store, b"needle-c", b"needle-x")
    mend(store)
    with clew.open(store) as again:
        hash = again.blobs.put(b"put by hand, and not named yet")
        assert again.stats().blobs >= 2
        assert again.blobs.has(hash)


def test_a_second_repair_finds_nothing_to_do(store: str) -> None:
    rewrite(store, b"needle-c", b"needle-x")
    mend(store)
    assert repair(store).whole


def test_a_damaged_fact_is_dropped_and_named(store: str, whole: str) -> None:
    rewrite(store, b'"text":"another"', b'"text":"an0ther"')
    report = mend(store)
    assert [(lost.thread, lost.sort) for lost in report.lost] == [("gone", "fact")]
    before, after = picture(whole)["gone"], picture(store)["gone"]
    assert after[0].title is None
    assert after[1][1:] == before[1][1:], "what follows keeps its seq and its hash"


def test_an_entry_whose_blob_is_gone_is_kept_and_says_so(store: str) -> None:
    with clew.open(store) as opened:
        (hash,) = opened.get("t").get("b").blobs
    remove_blob(store, hash)
    report = mend(store)
    assert [(lost.thread, lost.entry, lost.blob) for lost in report.lost_blobs] == [
        ("t", "b", hash)
    ]
    with clew.open(store) as opened:
        entry = opened.get("t").get("b")
        assert (entry.blobs, entry.meta) == ((), {"lost_blobs": [hash]})
        assert entry.body["text"].startswith("needle-b")


def test_a_store_that_is_reached_by_a_link_is_repaired_where_it_lies(store: str) -> None:
    """Others come to it by its own name, or by another link."""
    place = place_of(store)
    link = place.with_name("link")
    link.symlink_to(place)
    through = store.replace(str(place), str(link))
    damage(store, random.Random(1))
    before = contents(place)
    report = repair(through)
    assert report.original is not None
    assert contents(Path(report.original)) == before
    assert link.readlink() == place
    for address in (store, through):
        with clew.open(address) as opened:
            assert opened.verify() == []
    swap.note_of(place).write_text("{}")
    for address in (store, through):
        with pytest.raises(clew.Unavailable, match="was interrupted"):
            clew.open(address)


def remove_blob(address: str, hash: str) -> None:
    place = place_of(address)
    if place.is_dir():
        (found,) = [f for f in (place / "blobs").rglob("*") if f.name.startswith(hash[5:])]
        found.unlink()
        return
    db = apsw.Connection(str(place))
    db.execute("DELETE FROM blobs WHERE hash = ?", (hash,))
    db.close()


def test_an_open_store_is_not_repaired(store: str) -> None:
    rewrite(store, b"needle-c", b"needle-x")
    with clew.open(store), pytest.raises(clew.Unavailable, match="in use"):
        repair(store)
    assert not mend(store).whole


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for engine in ENGINES:
        with pytest.raises(clew.NotFound):
            repair(address(engine, tmp_path))
    with pytest.raises(clew.Unsupported):
        repair("memory:")
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_file_or_folder_is_left_alone(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "other.db"))
    db.execute("CREATE TABLE mine (x)")
    db.close()
    (tmp_path / "notes.db").write_bytes(b"just some notes, longer than a header\n" * 500)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    before = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    for foreign in ("other.db", "notes.db"):
        with pytest.raises(clew.Unsupported):
            repair(tmp_path / foreign)
    with pytest.raises(clew.NotFound):  # as every other way in says of a folder that is no store
        repair(f"files:{tmp_path / 'folder'}")
    assert {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()} == before


def test_reindexing_loses_nothing(store: str, whole: str) -> None:
    report = repair(store, reindex=True)
    assert report.whole
    assert picture(store) == picture(whole)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("leaf", ["a", None, "c"])
def test_what_went_with_a_purge_is_not_called_lost(
    engine: str, leaf: str | None, tmp_path: Path
) -> None:
    """What is left of a purged fork hangs further up than where it was forked, or on nothing."""
    made = address(engine, tmp_path)
    with clew.open(made) as store:
        store.create("t").append("event", {"text": "needle-t"}, id="e")
        origin = store.create("origin")
        for id in ("a", "b", "c"):
            origin.append("event", id, id=id)
        fork = origin.fork(at="c", id="fork")
        fork.move(leaf)
        fork.append("event", "shared", id="shared")
        fork.fork(at="shared", id="last").append("event", "own", id="own")
        store.purge("origin")
        store.purge("fork")
    before = picture(made)
    rewrite(made, b"needle-t", b"needle-x")
    report = mend(made)
    assert [(lost.thread, lost.id) for lost in report.lost] == [("t", "e")]
    assert (report.placeholders, report.rehashed) == (1, 0)
    after = picture(made)
    assert after["last"][1:] == before["last"][1:]
    with clew.open(made) as store:
        store.purge("last")
        assert store.stats().records == 1, "nothing is left behind that nobody needs"


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_found_through_a_thread_without_remains_is_not_called_lost(
    engine: str, tmp_path: Path
) -> None:
    made = address(engine, tmp_path)
    with clew.open(made) as store:
        store.create("t").append("event", {"text": "needle-t"}, id="e")
        first = store.create("first")
        for id in ("a", "b"):
            first.append("event", id, id=id)
        second = first.fork(at="b", id="second")
        second.append("event", "c", id="c")
        third = second.fork(at="c", id="third")
        third.move("a")
        third.append("event", "d", id="d")
        third.fork(at="d", id="last")
        for id in ("first", "second", "third"):
            store.purge(id)
    before = picture(made)["last"]
    rewrite(made, b"needle-t", b"needle-x")
    assert [lost.id for lost in mend(made).lost] == ["e"]
    assert picture(made)["last"][1:] == before[1:]


def test_what_the_remains_of_a_purged_fork_hang_on_is_called_lost(tmp_path: Path) -> None:
    made = address("files", tmp_path)
    with clew.open(made) as store:
        origin = store.create("origin")
        for id in ("a", "b"):
            origin.append("event", id, id=id)
        fork = origin.fork(at="b", id="fork")
        fork.append("event", "shared", id="shared")
        fork.fork(at="shared", id="last")
        store.purge("origin")
        store.purge("fork")
    (husk,) = [file for file in place_of(made).glob("purged/*") if b'"id":"b"' in file.read_bytes()]
    husk.write_bytes(b"".join(husk.read_bytes().splitlines(True)[:-1]))
    report = mend(made)
    assert [lost.id for lost in report.lost] == ["b"]
    with clew.open(made) as store:
        assert [entry.id for entry in store.get("last").path()] == ["a", "b", "shared"]


def test_progress_is_told(store: str) -> None:
    rewrite(store, b"needle-c", b"needle-x")
    told: list[tuple[int, int]] = []
    repair(store, progress=lambda done, total: told.append((done, total)))
    assert all(done <= total for done, total in told)


@pytest.mark.parametrize("lost", [3, 4])
def test_a_deleted_thread_with_lost_facts_stays_as_deleted_as_it_can_be(
    tmp_path: Path, lost: int
) -> None:
    """[entry, deleted, fact, restored, entry]: without the restoration nothing could follow."""
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        thread = store.create("t")
        thread.append("event", 1)
        store.delete("t")
        store.restore("t")
        store.delete("t")
        store.restore("t")
        thread.append("event", 2)
        store.delete("t")
    db = apsw.Connection(str(path))
    db.execute("UPDATE records SET time_us = 1 WHERE no = (1 << 32) + ?", (lost,))
    db.execute("UPDATE records SET time_us = 1 WHERE no = (1 << 32) + 7")
    db.close()
    report = mend(str(path))
    assert [entry.seq for entry in report.lost] == [lost, 7]
    with clew.open(path) as store:
        assert [e.body for e in store.get("t", deleted=True).path()] == [1, 2]


# --- SQLite: rows and pages ---


@pytest.fixture
def rows(sqlite: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(sqlite, tmp_path / "store.db"))


# Rows whose own content is damaged lose that; everything else is derived, and loses nothing.
DERIVED = ("UPDATE segments", "DELETE FROM segments", "INSERT INTO segments", "facts", "tags")


story = a_store


@pytest.mark.parametrize("change", CHANGES)
def test_any_changed_row_can_be_repaired(story: Path, tmp_path: Path, change: str) -> None:
    path = Path(shutil.copy(story, tmp_path / "store.db"))
    db = apsw.Connection(str(path))
    db.execute(change)
    db.close()
    report = mend(str(path))
    assert report.records + len(report.lost) >= 15
    if any(word in change for word in DERIVED):
        assert report.lost == ()


def page_of(data: bytes, needle: bytes) -> int:
    return data.index(needle) // 4096 * 4096


@pytest.mark.parametrize("filling", [b"\0", b"\xaa"])
def test_a_destroyed_page_costs_what_was_on_it(tmp_path: Path, filling: bytes) -> None:
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        thread = store.create("t")
        ids = [thread.append("event", f"needle-{n:04d} " + "x" * 300).id for n in range(200)]
    data = bytearray(path.read_bytes())
    start = page_of(bytes(data), b"needle-0100")
    destroyed = [n for n in range(200) if f"needle-{n:04d}".encode() in data[start : start + 4096]]
    data[start : start + 4096] = filling * 4096
    path.write_bytes(data)
    report = mend(str(path))
    assert 3 <= len(destroyed) <= 20
    assert [lost.id for lost in report.lost] == [ids[n] for n in destroyed], "named by the index"
    assert report.unverified == 1, "the one after the gap: what vouched for it is gone"
    with clew.open(path) as store:
        path_ = store.get("t").path()
        assert [e.id for e in path_] == ids
        assert [n for n, e in enumerate(path_) if e.kind == "custom"] == destroyed


@pytest.mark.parametrize("table", ["records", "threads", "blobs", "records_by_id"])
def test_a_destroyed_root_costs_nothing(tmp_path: Path, table: str) -> None:
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        threads = [store.create(f"thread-{n:03d}" + "x" * 200) for n in range(40)]
        for thread in threads:
            for n in range(5):
                thread.append("event", {"n": n, "text": "y" * 500})
            thread.append("event", "".join(map(str, range(3000))))
        blobs = [store.blobs.put(bytes(range(256)) * n) for n in range(1, 40)]
    before = picture(str(path))
    db = apsw.Connection(str(path))
    (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    db.close()
    data = bytearray(path.read_bytes())
    assert data[(root - 1) * 4096] in (0x05, 0x02), "it only says where the rest is"
    data[(root - 1) * 4096 : root * 4096] = b"\xaa" * 4096
    path.write_bytes(data)
    report = mend(str(path))
    assert report.lost == ()
    assert picture(str(path)) == before
    with clew.open(path) as store:
        assert all(store.blobs.has(blob) for blob in blobs)


def test_a_destroyed_first_page_costs_nothing(rows: Path, sqlite: Path) -> None:
    data = bytearray(rows.read_bytes())
    data[:4096] = b"\xaa" * 4096
    rows.write_bytes(data)
    rows.with_name(rows.name + "-lock").touch()
    with pytest.raises(clew.ClewError):
        clew.open(rows)
    report = mend(str(rows))
    assert report.lost == ()
    assert picture(str(rows)) == picture(str(sqlite))


@pytest.mark.parametrize("offset", [0, 16, 28, 60, 68])
def test_a_damaged_marker_costs_nothing(rows: Path, sqlite: Path, offset: int) -> None:
    data = bytearray(rows.read_bytes())
    data[offset] ^= 0x7F
    rows.write_bytes(data)
    mend(str(rows))
    assert picture(str(rows)) == picture(str(sqlite))


def test_a_newer_store_is_not_repaired(rows: Path) -> None:
    db = apsw.Connection(str(rows))
    db.pragma("user_version", 999)
    db.execute("CREATE TABLE something_new (x)")
    db.close()
    before = rows.read_bytes()
    with pytest.raises(clew.FormatTooNew):
        repair(rows)
    assert rows.read_bytes() == before


def test_a_file_that_was_cut_off_keeps_what_is_left(rows: Path) -> None:
    data = rows.read_bytes()
    rows.write_bytes(data[: len(data) * 3 // 4])
    report = mend(str(rows))
    assert not report.whole


def test_what_only_the_log_has_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    script = (
        "import clew, os, sys; t = clew.open(sys.argv[1]).create('t');"
        "[t.append('event', f'needle-{n}') for n in range(5)]; os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    wal = Path(f"{path}-wal")
    assert wal.stat().st_size > 0
    db = apsw.Connection(str(path))
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.execute("UPDATE records SET body = CAST('1' AS BLOB) WHERE no & 255 = 2")
    db.close()
    assert wal.exists()
    report = mend(str(path))
    assert Path(f"{report.original}-wal").exists()
    assert (report.records, len(report.lost)) == (4, 1)


# --- files: lines ---


@pytest.fixture
def files(tmp_path: Path) -> str:
    made = address("files", tmp_path)
    fill(made)
    return made


def lines_of(address: str, name: str = "t") -> list[bytes]:
    return (place_of(address) / "threads" / f"{name}.jsonl").read_bytes().splitlines(True)


def put_lines(address: str, lines: list[bytes], name: str = "t") -> None:
    (place_of(address) / "threads" / f"{name}.jsonl").write_bytes(b"".join(lines))


def test_swapped_and_doubled_lines_cost_nothing(files: str) -> None:
    before = picture(files)
    lines = lines_of(files)
    lines[4], lines[6] = lines[6], lines[4]
    lines.insert(3, lines[5])
    put_lines(files, lines)
    report = mend(files)
    assert report.lost == ()
    assert picture(files) == before


def test_a_missing_line_is_named_and_stood_in_for(files: str) -> None:
    lines = lines_of(files)
    at = next(n for n, line in enumerate(lines) if b'"id":"c"' in line)
    del lines[at]
    put_lines(files, lines)
    report = mend(files)
    assert [(lost.thread, lost.id) for lost in report.lost] == [("t", "c")]
    assert "threads/t.jsonl" in report.lost[0].place
    with clew.open(files) as store:
        assert [e.id for e in store.get("f").path()] == ["a", "b", "c", "g"]


@pytest.mark.parametrize("offset", [5, 20, 60, 120])
def test_a_damaged_header_is_found_out_from_the_rest(files: str, offset: int) -> None:
    before = picture(files)
    lines = lines_of(files)
    lines[0] = lines[0][:offset] + bytes([lines[0][offset] ^ 4]) + lines[0][offset + 1 :]
    put_lines(files, lines)
    mend(files)
    after = picture(files)
    assert set(after) == set(before)
    assert after["t"][1] == before["t"][1]


@pytest.mark.parametrize("marker", [b"", b"{", b'{"format":"clew.filez","version":1}'])
def test_a_damaged_marker_file_costs_nothing(files: str, marker: bytes) -> None:
    before = picture(files)
    (place_of(files) / "clew.json").write_bytes(marker)
    mend(files)
    assert picture(files) == before


def test_a_newer_folder_is_not_repaired(files: str) -> None:
    (place_of(files) / "clew.json").write_text(json.dumps({"format": "clew.files", "version": 9}))
    before = contents(place_of(files))
    with pytest.raises(clew.FormatTooNew):
        repair(files)
    assert contents(place_of(files)) == before


def test_an_origin_that_is_gone_is_stood_in_for(files: str) -> None:
    for husk in (place_of(files) / "purged").iterdir():
        husk.unlink()
    report = mend(files)
    assert any("orphan" in note for note in report.notes)
    with clew.open(files) as store:
        path = store.get("orphan").path()
        assert [entry.kind for entry in path] == ["custom", "event"]
        assert path[-1].body == "alone"


def test_what_is_not_ours_stays_with_the_original(files: str) -> None:
    (place_of(files) / ".git").mkdir()
    (place_of(files) / ".git" / "HEAD").write_text("ref")
    rewrite(files, b"needle-c", b"needle-x")
    report = mend(files)
    assert any(".git" in note for note in report.notes)
    assert (Path(report.original or "") / ".git" / "HEAD").exists()


# --- anything at all ---


def damage(address: str, chance: random.Random) -> None:
    """Flip bits, blank a stretch, cut the end off or swap two stretches of one file."""
    place = place_of(address)
    rooms = ("threads", "purged", "blobs")
    files = [place] if place.is_file() else [f for r in rooms for f in (place / r).rglob("*.*")]
    file = chance.choice(sorted(files))
    data = bytearray(file.read_bytes())
    size, at = min(4096, len(data) // 2), chance.randrange(len(data))
    match chance.choice(["flip", "blank", "noise", "cut", "swap"]):
        case "flip":
            for _ in range(chance.randint(1, 20)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "blank":
            data[at : at + size] = bytes(len(data[at : at + size]))
        case "noise":
            data[at : at + size] = chance.randbytes(len(data[at : at + size]))
        case "cut":
            del data[max(at, len(data) * 3 // 4) :]
        case "swap":
            data[:size], data[-size:] = data[-size:], data[:size]
    file.write_bytes(data)


@pytest.mark.parametrize("seed", range(12))
def test_no_damage_keeps_repair_from_its_work(store: str, whole: str, seed: int) -> None:
    before = {id: {r.id: r for r in seen[1]} for id, seen in picture(whole).items()}
    damage(store, random.Random(seed))
    mend(store)
    for id, (_, records, _) in picture(store).items():
        for record in records:
            known = before.get(id, {}).get(record.id)
            if isinstance(record, Entry) and known is not None and record.kind != "custom":
                assert (record.data, record.time_us) == (known.data, known.time_us)


# --- when repair itself is hindered ---


def stop_at(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """The n-th rename of a swap does not happen, and nothing after it."""
    left = [n]
    rename = Path.rename

    def failing(self: Path, target: Path) -> Any:
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)


@pytest.mark.parametrize("n", [1, 2])
def test_an_interrupted_swap_is_finished_by_the_next_repair(
    store: str, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    rewrite(store, b"needle-c", b"needle-x")
    before = contents(place_of(store))
    with monkeypatch.context() as patch:
        stop_at(patch, n)
        with pytest.raises(clew.Unavailable, match="again"):
            repair(store)
    with pytest.raises(clew.Unavailable, match="interrupted"):
        clew.open(store)
    report = repair(store)
    assert report.whole
    assert contents(Path(report.original or "")) == before
    with clew.open(store) as opened:
        assert opened.verify() == []
        assert opened.get("t").get("c").kind == "custom"


def test_a_swap_of_which_only_the_note_is_left_is_finished(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All was renamed, and then the machine stopped."""
    rewrite(store, b"needle-c", b"needle-x")
    place = place_of(store)
    with monkeypatch.context() as patch:
        unlink = Path.unlink

        def failing(self: Path, missing_ok: bool = False) -> None:
            if self == swap.note_of(place):
                raise OSError(5, "Input/output error")
            unlink(self, missing_ok)

        patch.setattr(Path, "unlink", failing)
        with pytest.raises(clew.Unavailable, match="again"):
            repair(store)
    with pytest.raises(clew.Unavailable, match="interrupted"):
        clew.open(store)
    assert repair(store).whole
    assert not swap.note_of(place).exists()
    with clew.open(store) as opened:
        assert opened.get("t").get("c").kind == "custom"


def test_a_new_store_that_is_not_whole_either_takes_no_place(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NotWhole:
        def check(self) -> list[clew.Problem]:
            return [clew.Problem(code="gap", message="something is missing")]

        def close(self) -> None: ...

    for kind in (SQLiteWorkshop, FilesWorkshop):
        monkeypatch.setattr(kind, "open_new", lambda self: NotWhole())
    rewrite(store, b"needle-c", b"needle-x")
    place = place_of(store)
    before = contents(place)
    with pytest.raises(clew.Corrupt, match="both are left"):
        repair(store)
    assert contents(place) == before
    assert [path.is_dir() for path in place.parent.glob(f"{place.name}.repaired-*")] == [True]


def test_what_is_still_in_the_log_of_the_new_store_comes_along(
    rows: Path, sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing checkpoints, but on a full disk it may not, and says nothing."""
    create = SQLiteWorkshop.create

    def lazy(self: SQLiteWorkshop, namespace: str) -> Any:
        engine = create(self, namespace)
        engine._connections.writer().config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        monkeypatch.setattr(engine._connections, "_idle", NoIdle())
        return engine

    class NoIdle(list):  # type: ignore[type-arg]
        def append(self, db: apsw.Connection) -> None:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            super().append(db)

    monkeypatch.setattr(SQLiteWorkshop, "create", lazy)
    repair(rows, reindex=True)
    assert picture(str(rows)) == picture(str(sqlite))


def test_an_unfinished_note_means_that_nothing_was_renamed(store: str) -> None:
    rewrite(store, b"needle-c", b"needle-x")
    swap.note_of(place_of(store)).write_bytes(b'{"damaged":"st')
    assert not mend(store).whole


FULL = """
import resource, sys
import clew
from clew.upkeep.repair import repair
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    repair(sys.argv[1])
except clew.Unavailable as error:
    print(error)
    sys.exit(5)
finally:  # what writes at the end, such as the measuring of coverage, has room again
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize("limit", [0, 4096, 20_000])
def test_without_room_nothing_is_changed_and_nothing_left(store: str, limit: int) -> None:
    rewrite(store, b"needle-c", b"needle-x")
    place = place_of(store)
    before = contents(place)
    names = sorted(path.name for path in place.parent.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", FULL, store, str(limit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (5, "")
    assert "as it was" in done.stdout
    assert contents(place) == before
    assert sorted(path.name for path in place.parent.iterdir()) == names
    mend(store)
