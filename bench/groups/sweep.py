"""sweep: writers go on while blobs that nothing needs are worked out and removed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import clew
from bench.figures import Figure, milliseconds
from bench.progress import say
from bench.server import server
from bench.workshop import Workshop

_BLOBS = 100_000
_SNAPSHOTS, _FORKS = 200, 400
_BATCH = 1_000
_HOLD_MS = 50.0  # more than this no writer waits because of a sweep


# A process of its own, as a cleanup at night is. It times how long it holds the lock of its engine,
# from inside: what a writer waits for is that, and whatever else the machine does meanwhile.
_SWEEPER = """
import sys, time
from contextlib import contextmanager
import clew

held = []

def lasting(began):
    held.append(time.monotonic() - began)

def time_sqlite():
    from clew.engines.sqlite.engine import SQLiteEngine
    from clew.engines.sqlite.connections import Connections
    run, confirm, began = SQLiteEngine._run, Connections.confirm, []
    def confirmed(self, db):
        began.append(time.monotonic())  # the transaction has just got the lock
        return confirm(self, db)
    def ran(self, db, batch):
        began.clear()
        try:
            return run(self, db, batch)
        finally:
            lasting(began[0])
    Connections.confirm, SQLiteEngine._run = confirmed, ran

def time_files():
    from clew.engines.files.locks import Gate
    shut = Gate.shut
    @contextmanager
    def timed(self):
        try:
            with shut(self):
                began = time.monotonic()
                yield
        finally:
            lasting(began)
    Gate.shut = timed

def time_postgres():
    from clew.engines.postgres import blobs
    remove = blobs.remove
    def timed(*arguments):
        swept, began = remove(*arguments)
        lasting(began)
        return swept, began
    blobs.remove = timed

{"SQLite": time_sqlite, "files": time_files, "PostgreSQL": time_postgres}[sys.argv[1]]()
with clew.open(sys.argv[2]) as store:
    print(store.sweep(grace_seconds=0).blobs, max(held))
"""


def measure(workshop: Workshop) -> Iterable[Figure]:
    root = workshop.new_path().with_name("tree")
    root.mkdir()
    for name, address in (
        ("SQLite", str(workshop.new_path())),
        ("files", f"files:{workshop.new_path()}"),
    ):
        with clew.open(address, durability="relaxed") as store:
            _fill(store, root)
        yield from _sweep(name, address)
    with server() as cluster:
        address = cluster.dsn(cluster.create_database())
        with clew.open(address) as store:
            _fill(store, root)
        yield from _sweep("PostgreSQL", address)


def _fill(store: clew.Store, root: Path) -> None:
    say(f"building a store with {_BLOBS:,} unused blobs")
    thread = store.create("t")
    for n in range(_SNAPSHOTS):
        (root / f"file{n}").write_bytes(os.urandom(2_000))
        thread.append("user_message", {"role": "user", "content": str(n)})
        thread.snapshots.take(root)
        for _ in range(_FORKS // _SNAPSHOTS):
            thread.fork()
    for first in range(0, _BLOBS, _BATCH):
        store.engine.put_blobs([b"blob %d " % n * 20 for n in range(first, first + _BATCH)])


def _sweep(name: str, address: str) -> Iterable[Figure]:
    beside: list[float] = []
    with clew.open(address) as store:
        writer = store.create("writer")
        alone = [_append(writer, n) for n in range(1_000)]
        begun = time.perf_counter()
        command = [sys.executable, "-c", _SWEEPER, name, address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sweeper:
            while sweeper.poll() is None:
                beside.append(_append(writer, len(beside)))
            took = time.perf_counter() - begun
            swept, held = sweeper.communicate()[0].split()
    assert int(swept) >= _BLOBS, swept
    title = f"sweep: {_BLOBS:,} blobs, {name}"
    yield milliseconds(f"{title}, longest hold of the lock", [float(held)], at_most=_HOLD_MS)
    yield milliseconds(f"{title}, longest append beside it", [max(beside)])
    yield milliseconds(f"{title}, an append beside it", beside)
    yield milliseconds(f"{title}, longest append alone", [max(alone)])
    yield milliseconds(f"{title}, an append alone", alone)
    yield milliseconds(f"{title}, all of it", [took])


def _append(thread: clew.Thread, n: int) -> float:
    """How long a writer waits whose entry names a blob, so that it meets the sweep."""
    begun = time.perf_counter()
    thread.append("event", n, blobs=[thread.store.blobs.put(b"one of the writer's own")])
    return time.perf_counter() - begun
