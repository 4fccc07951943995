"""Packed threads of a store of files: read, woken up, damaged, left over, and beside others."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from amounts import amount
from faults import operations, power
from faults.layers import in_child
from faults.points import Outcome
from faults.stores import KINDS

import clew
from clew.core.names import file_stem
from clew.engines.files import frames, pack, place
from clew.engines.files.disk import Disk
from clew.engines.files.frames import Frames
from clew.engines.shared.compression import _zstd
from clew.upkeep.proof import prove
from clew.upkeep.repair import repair

ENTRIES = 1200
LONG_AGO = datetime.now(UTC) - timedelta(days=9)


def body(n: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {n} says what many others say as well", "n": n}


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_BYTES", 100_000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a thread of several frames that rests, a fork of it, and one that does not."""
    root = tmp_path / "store"
    with opened(root, durability="relaxed") as store:
        thread = store.create("t", title="cold", time=LONG_AGO)
        drafts = [
            clew.draft("user_message", body(n), id=f"e{n}", time=LONG_AGO) for n in range(ENTRIES)
        ]
        for at in range(0, ENTRIES, 50):
            thread.append(drafts[at : at + 50])
        thread.fork(at="e600", id="f")
        store.create("warm").append("event", "words " * 2000)
    return root


def opened(root: Path, **options: Any) -> clew.Store:
    return clew.open(f"files:{root}", **options)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "threads").iterdir())


def packed(root: Path) -> bytes:
    """Pack what rests; the lines that the thread had before."""
    lines = (root / "threads" / "t.jsonl").read_bytes()
    with opened(root) as store:
        assert store.pack().packs == 1
    assert names(root) == ["f.jsonl", "t.jsonl.zst", "warm.jsonl"]
    return lines


def numbers(store: clew.Store, thread: str = "t") -> list[int]:
    return [entry.body["n"] for entry in store.get(thread).path()]


class Unpacked:
    """Counts the frames that are unpacked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._inner = Frames._unpacked
        monkeypatch.setattr(Frames, "_unpacked", lambda frames, no: self._call(frames, no))

    def _call(self, frames: Frames, no: int) -> bytes:
        self.count += 1
        return self._inner(frames, no)


# --- packed, and read ---


def test_other_tools_read_the_very_lines(root: Path) -> None:
    lines = packed(root)
    file = root / "threads" / "t.jsonl.zst"
    assert _zstd().decompress(file.read_bytes()) == lines
    assert len(lines) > 3 * file.stat().st_size
    if shutil.which("zstdcat"):
        done = subprocess.run(["zstdcat", str(file)], capture_output=True, check=True)
        assert done.stdout == lines


def test_each_frame_has_whole_lines_and_can_be_read_alone(root: Path) -> None:
    lines = packed(root)
    descriptor = os.open(root / "threads" / "t.jsonl.zst", os.O_RDONLY)
    try:
        found = Frames(descriptor, "t")
        pieces = list(found.each())
        assert b"".join(pieces) == lines
        assert len(pieces) > 2
        assert all(piece.endswith(b"\n") for piece in pieces)
        chance = random.Random(4)
        for _ in range(100):
            start, length = chance.randrange(len(lines)), chance.choice([1, 300, 10**6])
            assert found.read(start, length) == lines[start : start + length]
        assert found.read(len(lines), 10) == b""
    finally:
        os.close(descriptor)


def test_everything_reads_as_before(root: Path) -> None:
    def seen(store: clew.Store) -> Any:
        engine, thread = store.engine, store.get("t")
        return (
            thread.path(),
            engine.read("t", after=300, limit=500),
            engine.path("t", limit=9),
            store.get("f").path(),
            [info.id for info in store.threads()],
            thread.info.title.text,
            [hit.entry for hit in store.search("1156").items],
        )

    with opened(root) as store, opened(root) as other:
        before = seen(store)
        assert seen(other) == before
        found = store.pack()
        assert (found.packs, found.entries, found.complete) == (1, ENTRIES, True)
        assert found.stored_bytes == (root / "threads" / "t.jsonl.zst").stat().st_size
        assert seen(store) == before, "by the handle that packed it"
        assert seen(other) == before, "and by one that had the file open"
        assert store.verify() == other.verify() == []
        assert store.pack().packs == 0
        assert store.stats().stored_bytes < found.size_bytes
    shutil.rmtree(root / "index")
    for readonly in (True, False):
        with opened(root, readonly=readonly) as store:
            assert seen(store) == before, "with no index"


def test_packing_without_time_takes_a_thread_at_a_step_and_goes_on_behind_it(root: Path) -> None:
    with opened(root) as store:
        text = "words that repeat themselves " * 400
        for id in ("a", "z"):
            store.create(id, time=LONG_AGO).append(
                [clew.draft("event", text, id="e", time=LONG_AGO)]
            )
        steps = [store.engine.pack(max_seconds=0)]
        assert (steps[0].packs, steps[0].complete, steps[0].stopped) == (1, False, "a")
        while not steps[-1].complete:
            steps.append(store.engine.pack(max_seconds=0, after=steps[-1].stopped))
        assert sum(step.packs for step in steps) == 3
    assert [name for name in names(root) if name.endswith(".zst")] == [
        "a.jsonl.zst",
        "t.jsonl.zst",
        "z.jsonl.zst",
    ]


def test_a_record_in_the_middle_costs_a_frame(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(root)
    with opened(root) as store:
        store.get("t").path(limit=1)
        unpacked = Unpacked(monkeypatch)
        monkeypatch.setattr(frames, "_KEPT_MAX", 0)
        assert store.engine.read("t", after=500, limit=1)[0].seq == 501
        assert unpacked.count == 1


def test_an_index_from_before_is_not_read_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(root) as store:
        list(store.threads())
    packed(root)
    unpacked = Unpacked(monkeypatch)
    with opened(root) as store:
        assert [info.seq for info in store.threads() if info.id == "t"] == [ENTRIES + 1]
    assert unpacked.count <= 1, "to see that it ends as it did"


def test_it_can_be_copied_exported_and_backed_up(root: Path, tmp_path: Path) -> None:
    packed(root)
    with opened(root) as store, clew.open(tmp_path / "copy.db") as other:
        assert store.copy_to(other).having("damaged", "blocked", "unrelated") == []
        assert numbers(other) == list(range(ENTRIES))
        assert len(numbers(other, "f")) == 601
    shutil.copytree(root, tmp_path / "backup", ignore=shutil.ignore_patterns("index", "locks"))
    with opened(tmp_path / "backup") as store:
        assert numbers(store) == list(range(ENTRIES))
        assert store.verify() == []


# --- what is packed ---


def test_what_does_not_rest_or_gains_nothing_stays(root: Path) -> None:
    with opened(root) as store:
        store.create("noise", time=LONG_AGO).append(
            "event", random.Random(1).randbytes(1500).hex(), time=LONG_AGO
        )
        lease = store.get("t").leases.acquire("somebody", ttl_seconds=60)
        assert store.pack().packs == 0, "it is leased"
        store.get("t").leases.release(lease)
        assert store.pack(idle_seconds=10**9).packs == 0, "it was updated since"
        assert store.pack().packs == 1
        assert store.pack(idle_seconds=0).packs == 1, "the other one, when asked for it"
        left = {"f.jsonl", "noise.jsonl", "t.jsonl.zst", "warm.jsonl.zst"}
        assert set(names(root)) == left, "what takes one block takes one when packed"


def test_a_damaged_thread_stays_and_the_others_are_packed(root: Path) -> None:
    with opened(root) as store:
        thread = store.create("a", time=LONG_AGO)
        thread.append([clew.draft("event", body(n), time=LONG_AGO) for n in range(99)])
    file = root / "threads" / "a.jsonl"
    data = file.read_bytes().replace(b"message 50 ", b"message 51 ")
    file.write_bytes(data)
    with opened(root) as store:
        assert store.pack().packs == 1
    assert names(root) == ["a.jsonl", "f.jsonl", "t.jsonl.zst", "warm.jsonl"]
    assert file.read_bytes() == data


def test_it_says_which_clew_it_needs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = root / "clew.json"
    before, inode = marker.read_bytes(), marker.stat().st_ino
    assert json.loads(before)["version"] == 1
    with opened(root) as store:
        assert store.pack(idle_seconds=10**9).packs == 0
        assert marker.read_bytes() == before, "nothing was packed"
    packed(root)
    assert json.loads(marker.read_bytes()) == json.loads(before) | {"version": 2}
    assert marker.stat().st_ino == inode, "others hold a lock on it"
    with monkeypatch.context() as patch:
        patch.setattr(place, "VERSION", 1)
        with pytest.raises(clew.FormatTooNew):
            opened(root)
    with opened(root) as store:
        assert len(numbers(store)) == ENTRIES


def test_a_marker_that_is_written_otherwise_is_not_spoiled(root: Path) -> None:
    marker = root / "clew.json"
    marker.write_text('{"more": {"version": 1}, "version": 1, "format": "clew.files"}')
    before = marker.read_text()
    with opened(root) as store:
        assert store.pack().packs == 0
    assert (marker.read_text(), "t.jsonl" in names(root)) == (before, True)
    marker.write_text('{ "version" : 1 , "format" : "clew.files" }')
    packed(root)
    assert marker.read_text() == '{ "version" : 2 , "format" : "clew.files" }'


class CountingDisk(Disk):
    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync(self, descriptor: int) -> None:
        self.synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        super().sync(descriptor)


def test_packing_is_durable_in_a_store_that_is_not(root: Path) -> None:
    disk = CountingDisk()
    with opened(root, durability="relaxed", disk=disk) as store:
        store.pack()
        assert [Path(name).name for name in disk.synced] == [".t.jsonl.zst.new", "clew.json"]
        store.get("t").append("event", {"n": 1})
        assert [Path(name).name for name in disk.synced[2:]] == [".t.jsonl.new"]


# --- woken up ---

WRITES: dict[str, Callable[[clew.Store], object]] = {
    "append": lambda store: store.get("t").append("event", {"n": ENTRIES}),
    "fact": lambda store: store.get("t").set(title="woken"),
    "move": lambda store: store.get("t").move("e7"),
    "delete": lambda store: store.delete("t"),
    "erase": lambda store: store.get("t").erase("e7"),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_write_unpacks_it_first(what: str, root: Path) -> None:
    lines = packed(root)
    with opened(root) as other, opened(root) as store:
        other.get("t").path(limit=1)
        WRITES[what](store)
        assert names(root) == ["f.jsonl", "t.jsonl", "warm.jsonl"]
        file = (root / "threads" / "t.jsonl").read_bytes()
        assert file.startswith(lines) == (what != "erase")
        assert len(other.get("f").path()) == 601
        assert [info.seq for info in other.threads() if info.id == "t"] == (
            [] if what == "delete" else [store.get("t").info.seq]
        )
        assert store.verify() == other.verify() == []


def test_a_lease_wakes_nothing(root: Path) -> None:
    packed(root)
    with opened(root) as store:
        store.get("t").leases.acquire("somebody", ttl_seconds=60)
        assert "t.jsonl.zst" in names(root)
        assert store.get("t").leases.active() is not None


def test_a_turn_goes_on_in_a_packed_thread(root: Path) -> None:
    packed(root)
    with opened(root) as store:
        with store.get("t").turn(owner="me") as turn:
            turn.append_message({"role": "user", "content": "again"})
            assert store.pack(idle_seconds=0).entries == 1, "the warm one, and not this"
        assert store.verify() == []
    assert "t.jsonl" in names(root)


def test_nobody_needs_clew_to_unpack_it(root: Path) -> None:
    lines = packed(root)
    file = root / "threads" / "t.jsonl.zst"
    (root / "threads" / "t.jsonl").write_bytes(_zstd().decompress(file.read_bytes()))
    with opened(root) as store:
        assert numbers(store) == list(range(ENTRIES))
        assert store.verify() == []
        store.get("t").append("event", {"n": ENTRIES})
        assert numbers(store) == list(range(ENTRIES + 1))
    assert (root / "threads" / "t.jsonl").read_bytes().startswith(lines)
    assert not file.exists(), "the packed one was left over"


# --- both are there ---


def both(root: Path, plain: Callable[[bytes], bytes]) -> None:
    """As after a crash in between, or an unpacking by hand that ended too early."""
    lines = packed(root)
    (root / "threads" / "t.jsonl").write_bytes(plain(lines))


def cut(lines: bytes) -> bytes:
    return lines[: lines.rindex(b"\n", 0, len(lines) * 3 // 4) + 1]


def torn(lines: bytes) -> bytes:
    return lines[: len(lines) * 3 // 4]


def test_what_is_left_over_goes_with_the_next_pack(root: Path) -> None:
    both(root, lambda lines: lines)
    with opened(root) as store:
        assert store.verify() == []
        assert store.pack().packs == 1
        assert "t.jsonl" not in names(root)
        assert numbers(store) == list(range(ENTRIES))


@pytest.mark.parametrize("plain", [cut, torn])
def test_two_that_do_not_agree_are_named_and_none_is_lost(
    root: Path, plain: Callable[[bytes], bytes]
) -> None:
    both(root, plain)
    shutil.rmtree(root / "index")
    with opened(root) as store:
        for call in (
            lambda: store.get("t").append("event", {"n": -1}),
            lambda: store.get("t").erase("e7"),
        ):
            with pytest.raises(clew.Corrupt, match=r"t\.jsonl\.zst.*other lines.*clew repair"):
                call()
        assert store.pack().packs == 0
        assert "t.jsonl.zst" in names(root)
        assert "strange_file" in {problem.code for problem in store.verify()}
    assert repair(f"files:{root}").lost == ()
    with opened(root) as store:
        assert numbers(store) == list(range(ENTRIES))
        assert store.verify() == []


def test_a_purge_takes_both(root: Path) -> None:
    both(root, cut)
    with opened(root) as store:
        store.purge("f")
        store.purge("t")
        assert names(root) == ["warm.jsonl"]
        assert store.verify() == []


# --- the power goes ---


def test_a_power_cut_leaves_the_thread_packed_or_plain(tmp_path: Path) -> None:
    """After every call, with whatever was not synced lost, kept, or kept here and there."""
    steps = [
        operations._begin_to_rest,
        operations._lengthen_what_rests,
        operations.pack,
        operations.append_to_packed,
        operations.pack,
        operations.erase_packed,
        operations.pack,
        operations.purge_packed,
    ]
    outcome, kind = Outcome(), KINDS["files"]
    log = power.record(kind, tmp_path / "work", steps=steps)
    seeds = range(1, amount(10, 60))
    power.run(kind, log, tmp_path / "work", outcome, seeds=seeds, step=amount(3, 1))
    assert outcome.failures == []
    assert outcome.points > 100


# --- damage ---


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def frame_of(root: Path, no: int) -> tuple[int, int, range]:
    """Where a frame begins and ends, and the seqs that are in it."""
    descriptor = os.open(root / "threads" / "t.jsonl.zst", os.O_RDONLY)
    try:
        found = Frames(descriptor, "t")
        lines = [piece.count(b"\n") for piece in found.each()]
        before = sum(lines[:no])
        return found._places[no], found._places[no + 1], range(before, before + lines[no])
    finally:
        os.close(descriptor)


def test_damage_in_a_frame_is_named_and_costs_no_other(root: Path) -> None:
    with opened(root) as store:
        list(store.threads())
    packed(root)
    begin, end, seqs = frame_of(root, 1)
    flip(root / "threads" / "t.jsonl.zst", (begin + end) // 2)
    place = rf"t\.jsonl\.zst line {seqs.start + 1} \(about record {seqs.start}\)"
    with opened(root) as store:
        assert store.engine.read("t", limit=5)[-1].seq == 5, "what lies before it can be read"
        assert store.engine.read("t", after=seqs.stop)[0].seq == seqs.stop + 1, "and behind it"
        with pytest.raises(clew.Corrupt, match=place):
            store.get("t").path()
        with pytest.raises(clew.Corrupt, match=place):
            store.get("t").append("event", {"n": -1})
        problems = [problem for problem in store.verify() if problem.thread == "t"]
        assert ("damaged_record", seqs.start) in {(p.code, p.seq) for p in problems}
        (missing,) = (p.message for p in problems if p.code == "gap")
        assert f"records {seqs.start + 1} to {seqs.stop - 1} are missing" in missing
        assert "f.jsonl" in names(root)
        assert "t.jsonl.zst" in names(root), "nothing was unpacked"
    report = repair(f"files:{root}")
    assert {one.seq for one in report.lost if one.thread == "t"} == set(seqs)
    with opened(root) as store:
        assert store.verify() == []
        found = {entry.id for entry in store.get("t").path()}
        assert {f"e{seq - 2}" for seq in set(range(2, ENTRIES + 2)) - set(seqs)} <= found


@pytest.mark.parametrize("at", [-1, -9, -30])
def test_a_damaged_table_costs_no_record(root: Path, at: int) -> None:
    packed(root)
    flip(root / "threads" / "t.jsonl.zst", at)
    with opened(root) as store:
        with pytest.raises(clew.Corrupt, match=r"t\.jsonl\.zst.*clew repair"):
            store.get("t").path()
        assert "damaged_thread" in {problem.code for problem in store.verify()}
        assert {info.id for info in store.threads()} == {"t", "f", "warm"}
    assert repair(f"files:{root}").lost == ()
    with opened(root) as store:
        assert numbers(store) == list(range(ENTRIES))


def test_a_table_that_is_cut_off_costs_no_record(root: Path) -> None:
    packed(root)
    file = root / "threads" / "t.jsonl.zst"
    os.truncate(file, file.stat().st_size - 20)
    assert repair(f"files:{root}").lost == ()
    with opened(root) as store:
        assert numbers(store) == list(range(ENTRIES))


def test_the_index_misses_a_packed_thread_that_is_gone(root: Path) -> None:
    packed(root)
    with opened(root) as store:
        list(store.threads())
    (root / "threads" / "t.jsonl.zst").unlink()
    with opened(root) as store:
        assert ("missing_thread", "t") in {(p.code, p.thread) for p in store.verify()}


# --- what must not be left ---

SECRET = "correct horse battery staple"


def holding(root: Path) -> list[str]:
    """The files that hold the secret, unpacked or not."""
    found = []
    for path in root.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        lines = (
            frames.readable(data)
            if ".zst" in path.suffixes or b".new" in path.name.encode()
            else b""
        )
        if SECRET.encode() in data + lines:
            found.append(path.name)
    return found


@pytest.mark.parametrize("how", ["erase", "purge"])
@pytest.mark.parametrize("left", ["packed", "drafts", "both"])
def test_nothing_is_left_of_what_was_packed(how: str, left: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root) as store:
        thread = store.create("s", time=LONG_AGO)
        for n in range(100):
            said = SECRET if n == 50 else "other words"
            thread.append("event", body(n) | {"said": said}, id=f"e{n}", time=LONG_AGO)
        folder, plain = root / "threads", (root / "threads" / "s.jsonl").read_bytes()
        assert store.pack().packs == 1
        packed_bytes = (folder / "s.jsonl.zst").read_bytes()
        if left == "both":
            (folder / "s.jsonl").write_bytes(plain)
        if left == "drafts":  # of processes that were killed
            (folder / ".s.jsonl.new").write_bytes(plain[: len(plain) // 2 + 5000])
            (folder / ".s.jsonl.zst.new").write_bytes(packed_bytes)
        assert holding(root)
        if how == "erase":
            thread.erase("e50")
        else:
            store.purge("s")
        assert holding(root) == []
        assert store.verify() == []


def test_the_proof_of_a_purge_sees_a_packed_draft(root: Path) -> None:
    with opened(root) as store:
        store.create("secret plan", time=LONG_AGO).append("event", "unlike others")
        receipt = store.purge("secret plan").receipt
        assert prove(store, receipt).traces == ()
        name = f".{file_stem('secret plan')}.jsonl.zst.new"
        (root / "threads" / name).write_bytes(b"packed, so that no id can be seen in it")
        (trace,) = prove(store, receipt).traces
        assert name in trace.text


# --- beside others ---


def test_what_comes_in_between_is_not_overwritten(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append, an erasure, a lease and a sweep, after the draft was made and before its turn."""
    inner = pack._compare
    ways: list[Callable[[clew.Store], object]] = [
        lambda other: other.get("t").append("event", {"n": ENTRIES}, time=LONG_AGO),
        lambda other: other.get("t").erase("e7"),
        lambda other: other.engine.sweep(grace_seconds=0),
        lambda other: other.get("t").leases.acquire("me", ttl_seconds=60),
    ]
    with opened(root) as other:
        for way in ways:

            def meddle(*arguments: Any) -> None:
                inner(*arguments)
                way(other)  # noqa: B023

            monkeypatch.setattr(pack, "_compare", meddle)
            with opened(root) as store:
                assert store.pack().packs == 0
            assert names(root) == ["f.jsonl", "t.jsonl", "warm.jsonl"]
        assert other.verify() == []
        assert len(other.get("t").path()) == ENTRIES + 1


def test_a_purge_in_between_stays_a_purge(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = pack._compare
    with opened(root) as other, opened(root) as store:

        def meddle(*arguments: Any) -> None:
            inner(*arguments)
            other.purge("t")

        monkeypatch.setattr(pack, "_compare", meddle)
        assert store.pack().packs == 0
        assert names(root) == ["f.jsonl", "warm.jsonl"]
        assert len(store.get("f").path()) == 601
        assert store.verify() == []


def test_one_packs_at_a_time(root: Path) -> None:
    from clew.engines.files.locks import EXCLUSIVE, FileLock

    with opened(root, busy_seconds=0.05) as store:
        other = FileLock(str(root / "locks" / "pack"))
        with other.held(EXCLUSIVE, 1), pytest.raises(clew.Unavailable, match="locks/pack"):
            store.pack()
        other.close()
        assert store.pack().packs == 1


def test_a_fork_of_the_process_does_not_wait_for_a_reader_that_it_lacks(root: Path) -> None:
    packed(root)

    def work(tell: Callable[[bytes], object]) -> None:
        signal.alarm(60)  # rather than for ever
        tell(b"%d" % len(numbers(store)))

    with opened(root) as store:
        assert len(numbers(store)) == ENTRIES
        with frames._kept._mutex:  # as when another thread reads just then
            assert in_child(work) == b"%d" % ENTRIES
        assert len(numbers(store)) == ENTRIES


def test_a_namespace_is_packed_alone(root: Path) -> None:
    with opened(root, namespace="acme") as store:
        thread = store.create("t", time=LONG_AGO)
        thread.append([clew.draft("event", body(n), time=LONG_AGO) for n in range(99)])
        assert store.pack().packs == 1
    inside = root / "namespaces" / "acme"
    assert names(inside) == ["t.jsonl.zst"]
    assert names(root) == ["f.jsonl", "t.jsonl", "warm.jsonl"]
    versions = [json.loads((at / "clew.json").read_bytes())["version"] for at in (root, inside)]
    assert versions == [1, 2]
    assert repair(f"files:{root}").lost == ()
    with opened(root, namespace="acme") as store:
        assert numbers(store) == list(range(99))
        assert store.verify() == []


WRITER = """
import sys, clew
with clew.open(sys.argv[1]) as store:
    for n, _ in enumerate(sys.stdin):
        for part in range(10):
            body = {"n": 10 * n + part, "text": "words that come again " * 9}
            store.get(sys.argv[2]).append("event", body)
        print(n, flush=True)
"""


def test_packing_beside_writers_of_other_processes_loses_nothing(tmp_path: Path) -> None:
    """They write while it packs, and rest in between, so that each round wakes what it packed."""
    address, rounds = f"files:{tmp_path / 'store'}", 12
    filler = [clew.draft("event", {"n": -1, "text": "words " * 50}) for _ in range(60)]
    with clew.open(address) as store:
        for name in "ab":
            store.create(name).append(filler)
        store.fork("a", id="f")
        command = [sys.executable, "-c", WRITER, address]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        writers = [subprocess.Popen([*command, name], **pipes) for name in "ab"]
        for n in range(rounds):
            for writer in writers:
                writer.stdin.write(b"go on\n")
                writer.stdin.flush()
            for _ in range(3):
                store.engine.pack(idle_seconds=-60)
                assert len(store.get("f").path()) == 60
                assert {info.id for info in store.threads()} == {"a", "b", "f"}
            assert [writer.stdout.readline() for writer in writers] == [b"%d\n" % n] * 2
            store.engine.pack(idle_seconds=-60)
            folder = tmp_path / "store" / "threads"
            assert [path.name for path in sorted(folder.iterdir())] == [
                "a.jsonl.zst",
                "b.jsonl.zst",
                "f.jsonl",
            ]
        for writer in writers:
            writer.communicate()
            assert writer.returncode == 0
        for name in "ab":
            found = [entry.body["n"] for entry in store.get(name).path()]
            assert found == [-1] * 60 + list(range(10 * rounds))
        assert store.verify() == []


def test_the_name_of_a_draft_is_no_other_threads(tmp_path: Path) -> None:
    """Names of drafts are made of a thread's own, and begin with a dot: no thread's does."""
    for id in (".t.jsonl", ".t.jsonl.zst", "t.jsonl.zst", "t.jsonl", "x.zst", "zst"):
        assert "." not in file_stem(id)
    root = tmp_path / "store"
    with opened(root) as store:
        for id in ("t", "t.jsonl", "t.jsonl.zst", ".t.jsonl.zst"):
            store.create(id, time=LONG_AGO).append(
                [clew.draft("event", {"id": id, **body(n)}, time=LONG_AGO) for n in range(60)]
            )
        assert store.pack().packs == 4
        assert store.verify() == []
        for info in store.threads():
            assert {entry.body["id"] for entry in store.get(info.id).path()} == {info.id}
