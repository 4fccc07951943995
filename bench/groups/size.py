"""size: what a store takes on disk, against the JSON that was put in."""

from __future__ import annotations

from collections.abc import Iterable

import clew
from bench.figures import Figure
from bench.messages import messages, raw_bytes
from bench.workshop import Workshop, size_on_disk

_MESSAGES = 10_000


def measure(workshop: Workshop) -> Iterable[Figure]:
    for threads, what in ((1, "in one thread"), (100, "over 100 threads in turn")):
        name = f"size: {_MESSAGES:,} messages {what} / raw JSON"
        yield Figure(name, _size_ratio(workshop, threads), "x", bar=1.6)


def _size_ratio(workshop: Workshop, threads: int) -> float:
    """One append a message, as agents do; the threads take turns."""
    path = workshop.new_path()
    batch = messages(_MESSAGES)
    with clew.open(path, durability="relaxed") as store:
        handles = [store.create() for _ in range(threads)]
        for number, message in enumerate(batch):
            handles[number % threads].append_message(message)
    return size_on_disk(path) / raw_bytes(batch)
