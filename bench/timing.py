"""Measuring in turns: A B A B, never all of A and then all of B.

The machine is shared. What slows it down for a second must fall on both sides alike, and what
slows it down for a moment must not reach the median.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

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


def take_turns(times: int, *sides: Callable[[], object]) -> tuple[float, ...]:
    """The median seconds of each operation; they take turns, one call at a time."""
    taken = [[seconds(side) for side in sides] for _ in range(times)]
    return tuple(median(side) for side in zip(*taken, strict=True))
