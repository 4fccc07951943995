"""Writers killed at random moments, beside readers and a writer that lives.

Run as a script: `kills.py ADDRESS KILLS SEED FOLDER`. Each process writes down in a file of its
own what was acknowledged to it; at the end everything must be there, once.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import clew
from clew.core.model import Entry

SHARED, OWN = "shared", "own"  # a thread that all write, and one of the writer that lives


class Notes:
    """Lines in a file, each in one write, so that what arrives was really said."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def note(self, line: str) -> None:
        os.write(self._descriptor, (line + "\n").encode())


# --- what the processes do ------------------------------------------------------------------


def victim(address: str, cycle: int, notes: Notes, begin: int, tree: Path) -> None:
    """Write in all ways until killed; `begin` hears when the first is acknowledged."""
    with clew.open(address) as store:
        thread = store.get(SHARED)
        for n in range(1_000_000):
            body = {"n": n, "text": "x" * (20_000 if n % 7 == 0 else 300)}
            batch = [clew.draft("event", body) for _ in range(1 + n % 3)]
            for entry in thread.append(batch):
                notes.note(f"{SHARED} {entry.id}")
            if n == 0:
                os.write(begin, b"!")
            if n % 5 == 0:
                thread.move(batch[0].id)
            if n % 11 == 0:
                thread.set(title=f"cycle {cycle}, {n}")
            if n % 13 == 0:
                fork = thread.fork(at=batch[0].id)
                notes.note(f"{fork.id} -")
            if n % 17 == 0:
                notes.note(f"- {store.blobs.put(os.urandom(500))}")
            if cycle % 3 == 0:
                (tree / f"f{n % 5}").write_bytes(f"{cycle} {n}\n".encode() * 200)
                notes.note(f"{SHARED} {thread.snapshots.take(tree).id}")


def other_writer(address: str, notes: Notes, stop: int) -> None:
    with clew.open(address) as store:
        shared, own = store.get(SHARED), store.get(OWN)
        n = 0
        while not _told(stop):
            for thread in (shared, own):
                notes.note(f"{thread.id} {thread.append('event', n).id}")
            n += 1
            time.sleep(0.001)


def reader(address: str, stop: int) -> None:
    """What was seen once stays, nothing comes out of order, and a path can always be read."""
    with clew.open(address) as store:
        thread = store.get(SHARED)
        seq = 0
        while not _told(stop):
            for record in store.engine.read(SHARED, after=seq, limit=1000):
                assert record.seq == seq + 1, f"{record.seq} follows {seq}"
                seq = record.seq
            path = thread.path(limit=20)
            for parent, child in pairwise(path):
                assert child.parent == parent.id
            assert thread.info.seq >= seq
            time.sleep(0.002)


def _told(stop: int) -> bool:
    return bool(select.select([stop], [], [], 0)[0])


# --- the harness ----------------------------------------------------------------------------


def run(address: str, kills: int, seed: int, folder: Path) -> dict[str, object]:
    tree = folder / "tree"
    tree.mkdir()
    (tree / "large").write_bytes(random.Random(seed).randbytes(50_000))
    with clew.open(address) as store:
        store.create(SHARED).snapshots.take(tree)  # also loads what the victims have no time to
        store.create(OWN)
    stop, stopping = os.pipe()
    others = [
        _fork(lambda: other_writer(address, Notes(folder / "other.notes"), stop)),
        _fork(lambda: reader(address, stop)),
        _fork(lambda: reader(address, stop)),
    ]
    _kill_again_and_again(address, kills, seed, Notes(folder / "victims.notes"), tree)
    os.write(stopping, b"!")
    ends = [os.waitpid(child, 0)[1] for child in others]
    problems = [f"process {n} beside them ended with {end}" for n, end in enumerate(ends) if end]
    said = [
        line for file in sorted(folder.glob("*.notes")) for line in file.read_text().split("\n")
    ]
    acknowledged = [tuple(line.split()) for line in said if line]
    return {
        "kills": kills,
        "acknowledged": len(acknowledged),
        "failures": problems + missing(address, acknowledged),
    }


def _kill_again_and_again(address: str, kills: int, seed: int, notes: Notes, tree: Path) -> None:
    """Every other moment is counted from the first acknowledgement, for the sake of slow hosts."""
    moments = random.Random(seed)
    for cycle in range(kills):
        began, begin = os.pipe()
        child = _fork(lambda: victim(address, cycle, notes, begin, tree))  # noqa: B023
        if cycle % 2:
            os.close(begin)
            os.read(began, 1)
        time.sleep(moments.uniform(0.0, 0.03 if cycle % 3 else 0.1))  # snapshots take longer
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the writer ended by itself"
        os.close(began)
        if not cycle % 2:
            os.close(begin)


def _fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def missing(address: str, acknowledged: list[tuple[str, ...]]) -> list[str]:
    """What was acknowledged and is not there, or is there twice; and what verify says."""
    with clew.open(address) as store:
        failures = [str(problem) for problem in store.verify()]
        stored: dict[str, Counter[str]] = {}
        for info in store.threads():
            records = store.get(info.id).read()
            stored[info.id] = Counter(r.id for r in records if isinstance(r, Entry))
        for thread, id in acknowledged:
            if thread == "-":
                there = store.blobs.has(id)
            else:
                there = thread in stored and (id == "-" or stored[thread][id] == 1)
            if not there:
                failures.append(f"{thread} {id} was acknowledged and is not there once")
        return failures + broken_snapshots(store)


def broken_snapshots(store: clew.Store) -> list[str]:
    """Those that cannot be read, file by file."""
    snapshots = store.get(SHARED).snapshots
    failures: list[str] = []
    for snapshot in snapshots.list():
        try:
            for path, _ in snapshots.files(snapshot):
                snapshots.read(snapshot, path)
        except clew.ClewError as error:
            failures.append(f"snapshot {snapshot.id} cannot be read: {error}")
    return failures


if __name__ == "__main__":
    found = run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    print(json.dumps(found))
