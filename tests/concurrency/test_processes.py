"""Several processes on one store: nothing lost, nothing twice, no gap, no zombie's write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from amounts import amount
from places import ADDRESSES

import clew
from clew import messages
from clew.core.model import Entry

WORKERS = Path(__file__).with_name("workers.py")


def start(role: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKERS), role, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return out.splitlines()


@pytest.fixture(params=ADDRESSES)
def path(request: pytest.FixtureRequest) -> str:
    """A store's address, on each engine that several processes can share."""
    return ADDRESSES[request.param](request)


@pytest.mark.parametrize("threads", [1, 8])
def test_eight_processes_lose_nothing_and_leave_no_gap(path: str, threads: int) -> None:
    names = [f"t{n}" for n in range(threads)]
    with clew.open(path) as store:
        for name in names:
            store.create(name)
        workers = [start("append", path, f"w{n}", ",".join(names), 40) for n in range(8)]
        acknowledged = [line.split() for worker in workers for line in said(worker)]
        assert len(acknowledged) == 320
        for name in names:
            entries = [r for r in store.get(name).read() if isinstance(r, Entry)]
            assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
            mine = {(id, int(seq)) for thread, id, seq in acknowledged if thread == name}
            assert {(e.id, e.seq) for e in entries} == mine
            assert store.get(name).path() == entries, "one branch: each saw the leaf before it"
        assert store.verify() == []


def test_processes_never_get_the_same_fork_id(path: str) -> None:
    with clew.open(path) as store:
        store.create("t")
        workers = [start("fork_ids", path, 10) for _ in range(4)]
        given = [line for worker in workers for line in said(worker)]
        assert sorted(given) == sorted(f"t#fork-{n}" for n in range(1, 41))
        assert store.verify() == []


def test_processes_that_want_the_same_threads_all_get_them(path: str) -> None:
    with clew.open(path) as store:
        workers = [start("get_or_create", path, 10) for _ in range(4)]
        assert [said(worker) for worker in workers] == [["done"]] * 4
        assert store.stats().threads == 20
        for n in range(10):
            assert len(store.get(f"t{n}").path()) == 4
            assert len(store.conversations.get(f"k{n}").thread.path()) == 4


def test_a_process_killed_at_any_moment_loses_nothing_acknowledged(path: str) -> None:
    cycles = amount(60, 1000)
    with clew.open(path) as store:
        store.create("t")
    harness = start("crash_loop", path, cycles, 7)
    lines = said(harness)
    assert lines.pop() == "done"
    with clew.open(path) as store:
        assert store.verify() == []
        stored = Counter(r.id for r in store.get("t").read() if isinstance(r, Entry))
    missing = [id for id in lines if id not in stored]
    assert missing == []
    assert max(stored.values()) == 1
    assert len(lines) >= cycles // 2, "the writers must have had time to write"


def test_a_stopped_lease_holder_cannot_write_after_its_time(path: str) -> None:
    with clew.open(path) as store:
        thread = store.create("t")
        zombie = start("hold_lease", path)
        fence = int(zombie.stdout.readline().removeprefix("acquired "))
        lease = _take_over(thread)
        _until(lambda: _state(zombie.pid) == "T")
        os.kill(zombie.pid, signal.SIGCONT)
        assert lease.fence > fence
        assert said(zombie) == [f"refused {fence} {lease.fence}"]
        assert thread.path() == []


def test_a_stopped_lease_holder_is_refused_even_if_nobody_took_over(path: str) -> None:
    with clew.open(path) as store:
        thread = store.create("t")
        zombie = start("hold_lease", path)
        fence = int(zombie.stdout.readline().removeprefix("acquired "))
        _until(lambda: thread.leases.active() is None)
        _until(lambda: _state(zombie.pid) == "T")
        os.kill(zombie.pid, signal.SIGCONT)
        assert said(zombie) == [f"refused {fence} None"]
        assert thread.path() == []


def _take_over(thread: clew.Thread) -> clew.Lease:
    taken: list[clew.Lease] = []

    def attempt() -> bool:
        try:
            taken.append(thread.leases.acquire("heir", ttl_seconds=60))
        except clew.LeaseHeld:
            return False
        return True

    _until(attempt)
    return taken[0]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _until(done: object, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_killed_turn_can_be_resumed_by_another_process(path: str) -> None:
    with clew.open(path) as store:
        thread = store.create("t")
        worker = start("take_turn_and_hang", path)
        assert worker.stdout.readline() == "in turn\n"
        worker.kill()
        worker.communicate()
        assert thread.unfinished_turn() is not None
        with thread.turn(owner="heir", wait_seconds=60) as turn:
            turn.append("tool_result", {"resumed": True})
        assert [e.kind for e in thread.path()] == [
            "turn_marker",
            "tool_call",
            "turn_marker",
            "tool_result",
            "turn_marker",
        ]
        assert thread.unfinished_turn() is None


def test_a_killed_agents_steps_are_not_refused_when_it_does_them_again(path: str) -> None:
    with clew.open(path) as store:
        thread = store.create("t")
        worker = start("take_steps_and_hang", path)
        assert worker.stdout.readline() == "in turn\n"
        worker.kill()
        worker.communicate()
        stored = {entry.id: entry for entry in thread.path()}
        with thread.turn(owner="heir", wait_seconds=60) as turn:
            begun = thread.info
            again = [
                turn.append_message({"role": "user", "content": "Renew it."}, id="step-1"),
                turn.append("tool_call", {"name": "renew"}, id="step-2"),
                *turn.append([clew.draft("usage", {"tokens": 7}, id="step-3", meta={})]),
            ]
            assert again == [stored[f"step-{n}"] for n in (1, 2, 3)]
            assert thread.info == begun, "nothing is written twice, and the leaf stays"
            turn.append("tool_result", {"renewed": True}, id="step-4")
        assert [e.id for e in thread.path() if e.kind != "turn_marker"] == [
            f"step-{n}" for n in (1, 2, 3, 4)
        ]
        assert thread.unfinished_turn() is None
        assert store.verify() == []


def test_follow_sees_what_another_process_commits(path: str) -> None:
    with clew.open(path) as store:
        thread = store.create("t")
        feed = thread.follow()
        first: list[object] = []
        reader = threading.Thread(target=lambda: first.extend(next(feed) for _ in range(10)))
        reader.start()
        acknowledged = [line.split()[1] for line in said(start("append", path, "w", "t", 10))]
        reader.join(60)
        assert [record.id for record in first] == acknowledged


def test_processes_that_open_a_new_store_at_once_all_succeed(path: str) -> None:
    command = f"import clew; s = clew.open({path!r}); s.create(); s.close()"
    workers = [subprocess.Popen([sys.executable, "-c", command]) for _ in range(8)]
    assert [worker.wait(120) for worker in workers] == [0] * 8
    with clew.open(path) as store:
        assert store.stats().threads == 8
        assert store.verify() == []


@pytest.mark.parametrize("name", ["threads.db", "threads/"])
def test_a_stream_that_is_killed_loses_at_most_the_last_interval(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    with clew.open(path) as store:
        store.create("t").append_message({"role": "user", "content": "Count."})
    worker = Path(__file__).parent / "stream_worker.py"
    child = subprocess.Popen([sys.executable, str(worker), path], stdout=subprocess.PIPE)
    assert child.stdout is not None
    fed = [int(child.stdout.readline()) for _ in range(30)][-1]
    child.kill()
    fed = max([fed, *(int(line) for line in child.stdout if line.endswith(b"\n"))])
    child.wait()
    child.stdout.close()
    with clew.open(path) as store:
        thread = store.get("t")
        saved = thread.path()[-1]
        numbers = [int(word) for word in saved.body["content"].split()]
        assert numbers == list(range(len(numbers)))
        assert fed - len(numbers) < 4
        assert saved.meta["partial"] == "streaming"
        assert thread.context().next == "model"
        assert messages.validate("anthropic", thread.context("anthropic").messages) == []
        assert list(store.verify()) == []
