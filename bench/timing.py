"""Measuring in turns: A B A B, never all of A and then all of B.

The machine is shared. What slows it down for a second must fall on both sides alike, and what
slows it down for a moment must not reach the median.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

Round = Callable[[], tuple[float, ...]]


def in_rounds(count: int, measure: Round) -> list[list[float]]:
    """What `measure` gave in each of `count` rounds, one list a side. A first round warms up."""
    measure()
    return [list(side) for side in zip(*(measure() for _ in range(count)), strict=True)]


def seconds(work: Callable[[], object]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin


def per_second(count: int, work: Callable[[], object]) -> float:
    """The rate of `work`, which does `count` of something."""
    return count / seconds(work)


class Cost(NamedTuple):
    """What some work took: time, processor time of this process, and what it gave to the disk."""

    seconds: float
    processor_seconds: float
    written_bytes: int


def cost(work: Callable[[], object]) -> Cost:
    written, processor, begin = written_bytes(), process_time(), perf_counter()
    work()
    taken = perf_counter() - begin, process_time() - processor
    return Cost(*taken, written_bytes() - written)


_IO = Path("/proc/self/io")


def written_bytes() -> int:
    """What this process has given to disks so far; 0 where the system does not tell.

    In whole pages of the file system, and nothing of what only goes to memory (tmpfs).
    """
    if not _IO.exists():
        return 0
    fields = dict(line.split(": ") for line in _IO.read_text().splitlines())
    return int(fields["write_bytes"])


def take_turns(times: int, *sides: Callable[[], object]) -> tuple[float, ...]:
    """The median seconds of each operation; they take turns, one call at a time."""
    taken = [[seconds(side) for side in sides] for _ in range(times)]
    return tuple(median(side) for side in zip(*taken, strict=True))
