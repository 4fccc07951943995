"""A scrub reads everything in the end, a part at a time, and forgets nothing that it found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ADDRESSES

import clew
from clew.upkeep import scrub as module
from clew.upkeep.scrub import Scrubber, ScrubReport, scrub, scrubbed


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest) -> str:
    return ADDRESSES[request.param](request)


def fill(address: str) -> int:
    """Threads in two namespaces, one longer than a page, a purged origin: how many records."""
    for namespace in ("default", "acme"):
        with clew.open(address, namespace=namespace) as store:
            for n in range(1, 4):
                thread = store.create(f"t{n}")
                count = 2 * module.PAGE + 7 if n == 2 else 3
                thread.append([clew.draft("event", [n, m, "needle"]) for m in range(count)])
            blob = store.blobs.put(b"bytes of a blob " * 10)
            thread.append("event", "x" * 50_000, blobs=[blob])
            gone = store.create("gone")
            gone.append("event", "shared with a fork")
            gone.fork(id="fork")
            store.purge("gone")
    with clew.open(address) as store, clew.open(address, namespace="acme") as other:
        return store.stats().records + other.stats().records


def parts(address: str) -> Iterator[ScrubReport]:
    """Runs that read one page each, up to the end of the store."""
    while True:
        report = scrub(address, seconds=0)
        yield report
        if report.finished:
            return


def test_every_record_is_read_once_a_page_a_run(address: str) -> None:
    records = fill(address)
    done = list(parts(address))
    # What is kept of a purged thread for its forks is counted by some, and read with the fork.
    assert records - 2 <= sum(report.records for report in done) <= records
    assert len(done) >= 10
    assert all(report.records <= module.PAGE for report in done)
    read = [report.threads_read for report in done]
    assert read == sorted(read)
    assert (done[-1].threads_read, done[-1].threads, done[-1].problems) == (8, 8, [])
    again = scrub(address, seconds=0)
    assert (again.threads_read, again.done_us) == (1, done[-1].done_us), "from the start"


def test_a_budget_of_bytes_ends_a_run(address: str) -> None:
    fill(address)
    report = scrub(address, seconds=600, size_bytes=20_000)
    assert not report.finished
    assert 20_000 <= report.size_bytes < 100_000
    assert scrub(address, seconds=600).finished


def test_nothing_is_written_to_the_store(tmp_path: Path) -> None:
    for address in (f"{tmp_path}/s.db", f"files:{tmp_path}/f"):
        fill(address)
        before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
        assert scrub(address).finished
        after = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
        assert {p: after[p] for p in before} == before


def damage(file: Path, old: bytes, new: bytes, times: int = 1) -> None:
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new, times))


def test_what_is_found_is_told_until_it_is_found_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    fill(str(path))
    whole = path.read_bytes()
    damage(path, b'[2,150,"needle"]', b'[2,150,"noodle"]')
    damage(path, b'[3,1,"needle"]', b'[3,1,"noodle"]')
    reports = list(parts(str(path)))
    found = {(one.thread, one.seq) for one in reports[-1].problems}
    assert found == {("t2", 151), ("t3", 2)}
    assert reports[0].problems == [], "not before it was read"
    again = scrub(path, seconds=0)
    assert {(one.thread, one.seq) for one in again.problems} == found, "still known"
    path.write_bytes(whole)
    assert list(parts(str(path)))[-1].problems == []
    state = scrubbed(str(path))
    assert state is not None
    assert state.known == []


def test_a_damaged_blob_and_a_damaged_index_are_found(tmp_path: Path) -> None:
    import apsw

    path = tmp_path / "s.db"
    fill(str(path))
    with apsw.Connection(str(path)) as db:
        db.execute("DELETE FROM blobs WHERE size < 1000 AND space = 1")
        db.execute("UPDATE threads SET status = 'never set' WHERE id = 't1'")
    codes = {one.code for one in scrub(path).problems}
    assert "missing_blob" in codes
    assert len(codes) > 1, "the structure is looked at, too"


def test_two_processes_do_not_scrub_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    fill(str(path))
    with module._kept(str(path)):
        code = f"from clew.upkeep.scrub import scrub; scrub({str(path)!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "another process scrubs" in done.stderr
    with pytest.raises(clew.NotFound):
        scrub(tmp_path / "none.db")
    assert scrub(path).finished


def test_a_state_that_is_no_use_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    fill(str(path))
    scrub(path, seconds=0)
    (state,) = (tmp_path / "state" / "clew").glob("scrub-*.json")
    state.write_bytes(b"\xff{")
    assert scrub(path, seconds=0).threads_read == 1


# --- in the background ---


class Time:
    """A clock on which work takes as long as it is said to, and rests pass at once."""

    def __init__(self, runs: int) -> None:
        self.now = 0.0
        self.rests: list[float] = []
        self._runs = runs

    def clock(self) -> float:
        self.now += 0.25  # each run asks twice
        return self.now

    def wait(self, seconds: float) -> bool:
        self.rests.append(seconds)
        return len(self.rests) > self._runs


def test_it_takes_a_hundredth_of_a_core_and_then_rests_for_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    fill(str(path))
    damage(path, b'[3,1,"needle"]', b'[3,1,"noodle"]')
    monkeypatch.setattr(module, "STEP_SECONDS", 0)
    told: list[ScrubReport] = []
    runs = len(list(parts(str(path))))
    for file in (tmp_path / "state" / "clew").iterdir():
        file.unlink()
    time = Time(runs)
    Scrubber(path, told.append, clock=time.clock, wait=time.wait).run()
    first, *rests, last = time.rests
    assert first == 0
    assert all(rest == pytest.approx(25.0) for rest in rests)
    assert 6.9 * 86_400 < last < 7 * 86_400
    assert {one.seq for report in told for one in report.problems} == {2}
    due = Time(0)
    Scrubber(path, clock=due.clock, wait=due.wait).run()
    assert due.rests[0] > 6.9 * 86_400, "another process knows that it was read"


def test_a_store_that_is_busy_or_gone_does_not_end_it(tmp_path: Path) -> None:
    time = Time(3)
    Scrubber(tmp_path / "none.db", clock=time.clock, wait=time.wait).run()
    assert time.rests == [0.0, 60.0, 60.0, 60.0]


def test_it_ends_with_its_process(tmp_path: Path) -> None:
    fill(str(tmp_path / "s.db"))
    with Scrubber(tmp_path / "s.db") as scrubber:
        assert scrubber._thread.is_alive()
    assert not scrubber._thread.is_alive()
