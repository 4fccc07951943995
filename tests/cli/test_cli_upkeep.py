"""verify, repair and copy say what they did, and their exit codes tell it to programs."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_support import Run

import clew
from clew.cli import _exits, _screen
from clew.core.model import Acquire
from clew.upkeep.pack import REST_SECONDS, Packer

ENGINES = ["sqlite", "files"]


@pytest.fixture(params=ENGINES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A small store of each kind."""
    made = f"files:{tmp_path / 'store'}" if request.param == "files" else str(tmp_path / "store.db")
    with clew.open(made) as store:
        thread = store.create("t", title="a title")
        thread.append("user_message", {"text": "needle-a"}, id="a")
        thread.append("user_message", {"text": "needle-b"}, id="b", blobs=[store.blobs.put(b"x")])
        thread.append("user_message", {"text": "needle-c"}, id="c")
    return made


def place_of(address: str) -> Path:
    return Path(address.removeprefix("files:"))


def rewrite(address: str, old: bytes, new: bytes) -> None:
    place = place_of(address)
    files = [place] if place.is_file() else list((place / "threads").iterdir())
    for file in files:
        file.write_bytes(file.read_bytes().replace(old, new))


def drop_blob(address: str) -> None:
    place = place_of(address)
    if place.is_dir():
        for file in (place / "blobs").rglob("*"):
            if file.is_file():
                file.unlink()
        return
    import apsw

    db = apsw.Connection(str(place))
    db.execute("DELETE FROM blobs")
    db.close()


# --- verify ---


def test_verify_names_the_damaged_record(run: Run, address: str) -> None:
    rewrite(address, b"needle-b", b"needle-x")
    done = run("verify", address)
    assert done.code == _exits.DAMAGE
    named = "threads/t.jsonl" if address.startswith("files:") else "thread t, record 3, entry b"
    assert named in done.out
    assert "clew repair" in done.out


def test_missing_blobs_alone_have_a_code_of_their_own(run: Run, address: str) -> None:
    drop_blob(address)
    for options in ([], ["--quick"], ["--json"]):
        assert run("verify", address, *options).code == _exits.MISSING_BLOBS
    assert "missing: 1 blob" in run("verify", address).out


def test_quick_says_what_it_did_not_read(run: Run, address: str) -> None:
    whole = run("verify", address, "--quick")
    assert whole.code == 0
    assert "not read: the bodies" in whole.out
    report = json.loads(run("verify", address, "--quick", "--json").out)
    assert report["not_read"] == ["bodies", "blobs"]
    assert "not_read" not in json.loads(run("verify", address, "--json").out)


def test_a_store_that_cannot_be_opened_is_unreadable(run: Run, address: str) -> None:
    place = place_of(address)
    if place.is_dir():
        (place / "clew.json").write_text("{")
    else:
        place.write_bytes(b"\xaa" * 4096 + place.read_bytes()[4096:])
    done = run("verify", address)
    assert (done.code, done.out) == (_exits.UNREADABLE, "")
    assert "clew repair" in done.err
    report = json.loads(run("verify", address, "--json").out)
    assert (report["whole"], report["problems"][0]["code"]) == (False, "unreadable")
    assert run("repair", address).code == 0
    assert run("verify", address).code == 0


def test_a_foreign_file_is_not_called_a_damaged_store(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_bytes(b"just some notes, longer than a header\n" * 50)
    assert run("verify", tmp_path / "notes.db").code == _exits.UNSUPPORTED
    assert run("repair", tmp_path / "notes.db").code == _exits.UNSUPPORTED


# --- verify --continue ---


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_store_is_verified_a_part_at_a_time(run: Run, address: str, state: None) -> None:
    with clew.open(address) as store:
        store.create("u").append("event", "x" * 9000)
    first = json.loads(run("verify", address, "--continue", "--bytes", 1, "--json").out)
    assert (first["finished"], first["threads"], first["threads_read"]) == (False, 2, 1)
    said = run("verify", address, "--continue")
    assert (said.code, "whole: everything" in said.out) == (0, True)
    assert "with that, all of the store since" in said.out


def test_what_a_part_finds_is_told_by_the_exit_code(run: Run, address: str, state: None) -> None:
    rewrite(address, b"needle-b", b"needle-x")
    done = run("verify", address, "--continue", "--seconds", 5)
    assert done.code == _exits.DAMAGE
    assert "thread t" in done.out
    assert "damaged: " in done.out
    rewrite(address, b"needle-x", b"needle-b")
    assert run("verify", address, "--continue").code == 0
    drop_blob(address)
    assert run("verify", address, "--continue").code == _exits.MISSING_BLOBS


def test_a_part_is_of_everything(run: Run, address: str, tmp_path: Path, state: None) -> None:
    for options in (["--quick"], ["--namespace", "default"]):
        assert run("verify", address, "--continue", *options).code == _exits.USAGE
    assert "--continue" in run("verify", address, "--seconds", "5").err
    assert run("verify", tmp_path / "none.db", "--continue").code == _exits.USAGE


# --- repair ---


def test_repair_says_what_it_saved_what_is_lost_and_where_the_original_is(
    run: Run, address: str
) -> None:
    rewrite(address, b"needle-b", b"needle-x")
    done = run("repair", address)
    assert done.code == 0
    assert "thread t, record 3, entry b" in done.out
    assert "saved 1 thread, 3 records" in done.out
    original = done.lines[-1].removeprefix("the store as it was: ")
    assert Path(original).exists()
    assert run("verify", address).code == 0


def test_repair_as_json_is_the_report(run: Run, address: str) -> None:
    rewrite(address, b"needle-b", b"needle-x")
    report = json.loads(run("repair", address, "--json").out)
    assert [lost["id"] for lost in report["lost"]] == ["b"]
    assert report["placeholders"] == 1


def test_repair_of_a_whole_store_changes_nothing(run: Run, address: str) -> None:
    done = run("repair", address)
    assert done.code == 0
    assert "nothing was changed" in done.out
    assert run("repair", address, "--reindex").code == 0
    assert run("verify", address).code == 0


def test_repair_of_nothing_and_of_an_open_store_is_refused(
    run: Run, address: str, tmp_path: Path
) -> None:
    assert run("repair", tmp_path / "none.db").code == _exits.USAGE
    with clew.open(address):
        done = run("repair", address)
    assert done.code == _exits.UNAVAILABLE
    assert "in use" in done.err


# --- copy ---


def test_copy_and_copy_again(run: Run, address: str, tmp_path: Path) -> None:
    for target in (tmp_path / "to.db", f"files:{tmp_path / 'to'}"):
        done = run("copy", address, target)
        assert done.code == 0
        assert "1 thread: 1 new; 4 records and 1 blob written" in done.out
        again = json.loads(run("copy", address, target, "--json").out)
        assert (again["complete"], again["records"]) == (True, 0)
        assert run("verify", target).code == 0


def test_copy_names_the_leaves_of_both_sides(run: Run, address: str, tmp_path: Path) -> None:
    target = tmp_path / "to.db"
    run("copy", address, target)
    for place, id in ((address, "mine"), (target, "theirs")):
        with clew.open(place) as store:
            store.get("t").append("event", id, id=id)
    done = run("copy", address, target)
    assert done.code == 0
    assert "thread t: both sides moved on" in done.out
    assert "stands on theirs, the source's leaf is mine" in done.out


def test_copy_goes_on_past_a_thread_that_it_cannot_copy(
    run: Run, address: str, tmp_path: Path
) -> None:
    target = tmp_path / "to.db"
    run("copy", address, target)
    with clew.open(address) as store:
        store.get("t").append("event", 1)
        store.create("u").append("event", 2)
    with clew.open(target) as store:
        store.engine.lease("t", Acquire("somebody", 60.0))
    done = run("copy", address, target)
    assert done.code == _exits.CONFLICT
    assert "thread t: " in done.out
    assert "run it again" in done.out
    with clew.open(target) as store:
        assert store.find("u") is not None


def test_copying_a_store_onto_itself_or_from_nowhere_is_a_mistake(
    run: Run, address: str, tmp_path: Path
) -> None:
    assert run("copy", address, address).code == _exits.USAGE
    assert run("copy", tmp_path / "none.db", tmp_path / "to.db").code == _exits.USAGE
    assert not (tmp_path / "to.db").exists()


# --- backup and restore ---


def test_backup_and_backup_again(run: Run, address: str, tmp_path: Path) -> None:
    for target in (tmp_path / "to.db", f"files:{tmp_path / 'to'}"):
        first = run("backup", address, target)
        assert (first.code, "verified: 1 thread, 4 records in " in first.out) == (0, True)
        again = json.loads(run("backup", address, target, "--json").out)
        assert (again["first"], again["records"], again["verified"]) == (False, 0, True)
    with clew.open(address) as store:
        store.get("t").append("event", 1)
    assert "1 thread, 1 record new in " in run("backup", address, tmp_path / "to.db").out


def test_a_backup_writes_to_nothing_that_is_none_of_this_store(
    run: Run, address: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused = run("backup", address, tmp_path / "notes.txt")
    assert (refused.code, "no backup" in refused.err) == (_exits.USAGE, True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert run("backup", address, tmp_path / "to.db").code == 0
    other = tmp_path / "other.db"
    with clew.open(other) as store:
        store.create("theirs")
    refused = run("backup", other, tmp_path / "to.db")
    assert (refused.code, "--moved" in refused.err) == (_exits.CONFLICT, True)


def test_a_backup_tells_what_only_it_has(run: Run, address: str, tmp_path: Path) -> None:
    with clew.open(address) as store:
        store.create("u").append("event", "the first")
        store.create("v")
    assert run("backup", address, tmp_path / "to.db").code == 0
    with clew.open(address) as store:
        store.purge("v")
        store.purge("u")
        store.create("u").append("event", "the second")
    done = run("backup", address, tmp_path / "to.db")
    assert done.code == 0
    assert "thread u: it went another way since; the backup keeps what it had as u~" in done.out
    assert "1 thread of the backup that the store has no more: kept" in done.out


def test_everything_comes_back_from_a_backup(run: Run, address: str, tmp_path: Path) -> None:
    backup, new = tmp_path / "to.db", tmp_path / "new.db"
    run("backup", address, backup)
    assert "@all goes with --from" in run("restore", "@all").err
    assert run("restore", new, "@all", "--from", tmp_path / "none.db").code == _exits.USAGE
    done = run("restore", new, "@all", "--from", backup)
    assert (done.code, "restored and verified: 1 thread, 4 records" in done.out) == (0, True)
    assert "the backup of " in done.out
    refused = run("restore", new, "@all", "--from", backup)
    assert (refused.code, "move it away" in refused.err) == (_exits.USAGE, True)
    report = json.loads(run("restore", tmp_path / "b.db", "@all", "--from", backup, "--json").out)
    assert (report["threads"], report["verified"]) == (1, True)
    assert run("verify", new).code == 0


def test_one_thread_comes_back_from_a_backup(run: Run, address: str, tmp_path: Path) -> None:
    backup = tmp_path / "to.db"
    with clew.open(address) as store:
        fork = store.get("t").fork(id="f")
        fork.append("event", "mine", id="mine")
    run("backup", address, backup)
    same = run("restore", address, "f", "--from", backup)
    assert (same.code, "nothing to restore" in same.out) == (0, True)
    with clew.open(address) as store:
        store.purge("f")
        store.purge("t")
    done = run("restore", address, "f", "--from", backup)
    assert (done.code, "restored f, 1 record" in done.out) == (0, True)
    with clew.open(address) as store:
        assert [entry.id for entry in store.get("f").path()] == ["a", "b", "c", "mine"]
        assert store.find("t") is None
        assert store.verify() == []
        store.purge("f")
        store.create("f").append("event", "another one")
    refused = run("restore", address, "f", "--from", backup)
    assert (refused.code, "another thread of this id" in refused.err) == (_exits.CONFLICT, True)
    assert run("restore", address, "none", "--from", backup).code == _exits.NOT_FOUND
    value = json.loads(run("restore", address, "t", "--from", backup, "--json").out)
    assert (value["id"], value["outcome"], value["records"]) == ("t", "copied", 4)


# --- progress ---


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bar_comes_late_and_leaves_nothing_behind() -> None:
    out, clock = io.StringIO(), Clock()
    with _screen.Bar(out, "copy", clock=clock) as bar:
        bar(1, 100)
        assert out.getvalue() == ""
        clock.now = 1.0
        bar(25, 100)
        assert out.getvalue() == "\rcopy [######------------------] 25 of 100 (25 %), 3 s left"
        bar(26, 100)
        assert "26" not in out.getvalue(), "not with every step"
    last = out.getvalue().split("\r")[-2:]
    assert (last[0].strip(), last[1]) == ("", "")


def test_without_a_terminal_there_is_no_bar() -> None:
    clock = Clock()
    with _screen.Bar(None, "copy", clock=clock) as bar:
        clock.now = 9.0
        bar(1, 2)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(30.0, "30 s left"), (90.0, "1 min 30 s left"), (3720.0, "1 h 2 min left")],
)
def test_the_time_that_is_left_is_said_in_words(seconds: float, said: str) -> None:
    assert _screen.bar_text("x", 1, 2, seconds).endswith(said)
    assert _screen.bar_text("x", 5, 0, seconds) == "x 5"


# --- pack ---


def test_pack_says_what_it_packed_and_what_shrank_and_when_there_was_nothing(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        thread = store.create("t")
        for n in range(400):
            thread.append("user_message", {"n": n, "text": "words that come again " * 9})
    done = run("pack", str(path), "--idle-seconds", "0")
    assert "packed: 399 entries, " in done.out
    assert "of the file are free; --shrink gives them back" in done.out
    before = path.stat().st_size
    done = run("pack", str(path), "--idle-seconds", "0", "--shrink")
    assert done.lines[0].startswith("nothing to pack")
    assert done.lines[1].startswith("shrunk: the file is ")
    assert path.stat().st_size < before
    done = run("pack", str(path), "--idle-seconds", "0", "--shrink")
    assert [line.split(":")[0] for line in done.lines] == ["nothing to pack", "nothing to shrink"]
    assert "0 bytes" not in done.out


def test_only_pack_packs_a_store_of_files(run: Run, tmp_path: Path) -> None:
    """Other programs read it: what they find there changes when its owner asks for that."""
    address, folder = f"files:{tmp_path / 'store'}", tmp_path / "store" / "threads"
    long_ago = datetime.now(UTC) - timedelta(days=9)
    with clew.open(address) as store:
        thread = store.create("t", time=long_ago)
        for n in range(200):
            body = {"n": n, "text": "words that come again " * 9}
            thread.append("user_message", body, time=long_ago)
    assert run("gc", address).code == 0
    assert Packer(address).step() == REST_SECONDS
    assert [path.name for path in folder.iterdir()] == ["t.jsonl"]
    done = run("pack", address)
    assert "packed: 200 entries, " in done.out
    assert "of the file are free" not in done.out
    assert [path.name for path in folder.iterdir()] == ["t.jsonl.zst"]
    assert run("show", address, "t").code == run("verify", address).code == 0
    assert run("pack", address).lines[0].startswith("nothing to pack")
    assert run("migrate", address, "--check").code == 0, "there is nothing to be brought up to date"
