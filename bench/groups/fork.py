"""fork: forking and moving the leaf share by reference, so they cost the same at any length."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import clew
from bench.figures import Figure, milliseconds, ratio
from bench.timing import in_rounds, take_turns
from bench.workshop import FEW_ENTRIES, MANY, Workshop, short_thread

_ROUNDS = 15
_TURNS = 40  # even, so that every round leaves the leaf where it was


def measure(workshop: Workshop) -> Iterable[Figure]:
    long = workshop.long_thread
    short = short_thread(long.store)
    yield from _compare("fork", lambda: take_turns(_TURNS, long.fork, short.fork))
    moves = mover(long), mover(short)
    yield from _compare("move of the leaf", lambda: take_turns(_TURNS, *moves))


def _compare(what: str, turns: Callable[[], tuple[float, ...]]) -> Iterable[Figure]:
    at_many, at_few = in_rounds(_ROUNDS, turns)
    name = f"fork: {what} at {MANY:,} entries"
    yield ratio(f"{name} / at {FEW_ENTRIES}", at_many, at_few, at_most=1.5)
    yield milliseconds(name, at_many)


def mover(thread: clew.Thread) -> Callable[[], object]:
    """Moves the leaf to the root and back again, one of them at each call."""
    root, leaf = thread.segments()[0].first, thread.leaf
    goals = itertools.cycle([root, leaf])
    return lambda: thread.move(next(goals))
