"""Measuring in turns: A B A B, never all of A and then all of B.

The machine is shared. What slows it down for a second must fall on both sides alike, and what
slows it down for a moment must not reach the median. A rate says little about a store on a machine
that is busy with something else, so the processor's time and the bytes written stand beside it:
these two stay nearly the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple, TypeVar

from bench.pace import COMPARISON_SECONDS, FEWEST_ROUNDS

Side = TypeVar("Side")


class Spent(NamedTuple):
    """What one operation of many took, on average."""

    per_second: float
    processor_seconds: float  # of all threads of this process, in user and system mode
    written_bytes: float | None  # given to the disk; unknown outside of Linux


def in_rounds(count: int, measure: Callable[[], tuple[Side, ...]]) -> list[list[Side]]:
    """What `measure` gave in each of `count` rounds, one list a side. A first round warms up."""
    measure()
    begin = perf_counter()
    rounds: list[tuple[Side, ...]] = []
    while len(rounds) < count:
        if len(rounds) >= FEWEST_ROUNDS and perf_counter() - begin > COMPARISON_SECONDS:
            break
        rounds.append(measure())
    return [list(side) for side in zip(*rounds, strict=True)]


def seconds(work: Callable[[], object]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin


def per_second(count: int, work: Callable[[], object]) -> float:
    """The rate of `work`, which does `count` of something."""
    return count / seconds(work)


def spent(count: int, work: Callable[[], object]) -> Spent:
    """What each of the `count` operations took that `work` does."""
    processor, written = process_time(), _written_bytes()
    taken = seconds(work)
    after = _written_bytes()
    return Spent(
        count / taken,
        (process_time() - processor) / count,
        None if written is None or after is None else (after - written) / count,
    )


def _written_bytes() -> int | None:
    """What this process has given to disks so far, checkpoints of a log included.

    In whole pages of the file system, and nothing of what only goes to memory (tmpfs).
    """
    with suppress(OSError), open("/proc/self/io") as file:
        return int(file.read().partition("\nwrite_bytes:")[2].split()[0])
    return None


def take_turns(times: int, *sides: Callable[[], object]) -> tuple[float, ...]:
    """The median seconds of each operation; they take turns, one call at a time."""
    taken = [[seconds(side) for side in sides] for _ in range(times)]
    return tuple(median(side) for side in zip(*taken, strict=True))
