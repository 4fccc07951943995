"""size: what a store takes on disk, against the JSON that was put in; packed as well.

What is written over a store's life the kernel counts, as bytes of write calls of this process.
It is set against what the appends wrote, because SQLite writes a page for every record of it, and
each page twice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import clew
from bench.figures import Figure
from bench.messages import messages, raw_bytes
from bench.workshop import Workshop, size_on_disk

_MESSAGES = 10_000


def measure(workshop: Workshop) -> Iterable[Figure]:
    for threads, what in ((1, "in one thread"), (100, "over 100 threads in turn")):
        yield from _sqlite(workshop, threads, what)
    for threads, what in ((1, "in one thread"), (100, "over 100 threads in turn")):
        yield from _files(workshop, threads, what)


def _sqlite(workshop: Workshop, threads: int, what: str) -> Iterable[Figure]:
    name = f"size: {_MESSAGES:,} messages {what} / raw JSON"
    path, raw = workshop.new_path(), raw_bytes(messages(_MESSAGES))
    begun = _written_bytes()
    fill(path, threads)
    appended = _written_bytes()
    yield Figure(name, size_on_disk(path) / raw, "x", bar=1.6)
    pack(path)
    packed = _written_bytes()
    yield Figure(f"{name}, packed", size_on_disk(path) / raw, "x", bar=0.35)
    if begun:
        name = f"size: bytes written, {_MESSAGES:,} messages {what}"
        yield Figure(
            f"{name}, appended and packed / appended alone",
            (packed - begun) / (appended - begun),
            "x",
            bar=2.5,
        )
        yield Figure(f"{name}, appended / raw JSON", (appended - begun) / raw, "x")
        yield Figure(f"{name}, by packing / raw JSON", (packed - appended) / raw, "x")


def _files(workshop: Workshop, threads: int, what: str) -> Iterable[Figure]:
    """The threads alone, since the index is a cache; and what it takes beside them."""
    name = f"size: files, {_MESSAGES:,} messages {what} / raw JSON"
    path, raw = workshop.new_path(), raw_bytes(messages(_MESSAGES))
    address = f"files:{path}"
    begun = _written_bytes()
    fill(address, threads)
    appended = _written_bytes()
    yield Figure(name, _bytes_in(path / "threads") / raw, "x")
    with clew.open(address) as store:
        list(store.threads())  # so that the index is not counted as what packing writes
    indexed = _written_bytes()
    pack(address)
    packed = _written_bytes()
    yield Figure(f"{name}, packed", _bytes_in(path / "threads") / raw, "x", bar=0.35)
    yield Figure(f"{name}, the index", _bytes_in(path / "index") / raw, "x")
    if begun:
        name = f"size: files, bytes written, {_MESSAGES:,} messages {what}"
        yield Figure(f"{name}, appended / raw JSON", (appended - begun) / raw, "x")
        yield Figure(f"{name}, by packing / raw JSON", (packed - indexed) / raw, "x")


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def fill(path: Path | str, threads: int) -> None:
    """One append a message, as agents do; the threads take turns."""
    with clew.open(path, durability="relaxed") as store:
        handles = [store.create() for _ in range(threads)]
        for number, message in enumerate(messages(_MESSAGES)):
            handles[number % threads].append_message(message)


def pack(path: Path | str) -> None:
    """As it is a day later: every thread rests."""
    with clew.open(path) as store:
        store.pack(idle_seconds=0, shrink=True)


def _written_bytes() -> int:
    """What this process has written so far; 0 where the system does not count it."""
    if sys.platform != "linux":
        return 0
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])
