"""flat: what an append costs depends neither on its thread's length nor on other threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import clew
from bench.figures import Figure, milliseconds, ratio
from bench.messages import messages
from bench.timing import in_rounds, take_turns
from bench.workshop import FEW_ENTRIES, MANY, Workshop, short_thread

_ROUNDS = 15
_TURNS = 60


def measure(workshop: Workshop) -> Iterable[Figure]:
    yield from _by_length(workshop)
    yield from _by_neighbours(workshop)


def _by_length(workshop: Workshop) -> Iterable[Figure]:
    long = workshop.long_thread
    # A short thread does not stay short, so every round begins with a new one.
    at_many, at_few = in_rounds(
        _ROUNDS,
        lambda: take_turns(_TURNS, appender(long), appender(short_thread(long.store))),
    )
    name = f"flat: append at {MANY:,} entries"
    yield ratio(f"{name} / at {FEW_ENTRIES}", at_many, at_few, at_most=1.2)
    yield milliseconds(name, at_many)


def _by_neighbours(workshop: Workshop) -> Iterable[Figure]:
    crowded = short_thread(workshop.crowded_store)
    alone = short_thread(workshop.open())
    with_many, with_none = in_rounds(
        _ROUNDS, lambda: take_turns(_TURNS, appender(crowded), appender(alone))
    )
    name = f"flat: append beside {MANY:,} threads"
    yield ratio(f"{name} / alone in the store", with_many, with_none, at_most=1.3)
    yield milliseconds(name, with_many)


def appender(thread: clew.Thread) -> Callable[[], object]:
    """Appends the next message at each call."""
    supply = itertools.cycle(messages(1000))
    return lambda: thread.append_message(next(supply))
