"""list: the first page comes from an index, so it does not matter how many threads there are."""

from __future__ import annotations

from collections.abc import Iterable

from bench.figures import Figure, milliseconds, ratio
from bench.timing import in_rounds, take_turns
from bench.workshop import FEW_THREADS, MANY, Workshop
from clew.core.model import Order

_ROUNDS = 15
_TURNS = 30
_PAGE = 50


def measure(workshop: Workshop) -> Iterable[Figure]:
    yield from _compare(workshop, "updated")
    yield from _compare(workshop, "created")


def _compare(workshop: Workshop, order: Order) -> Iterable[Figure]:
    crowded, small = workshop.crowded_store, workshop.small_store
    of_many, of_few = in_rounds(
        _ROUNDS,
        lambda: take_turns(
            _TURNS,
            lambda: crowded.list(order=order, limit=_PAGE),
            lambda: small.list(order=order, limit=_PAGE),
        ),
    )
    name = f"list: first {_PAGE} of {MANY:,} by {order}"
    yield ratio(f"{name} / of {FEW_THREADS:,}", of_many, of_few, at_most=2)
    yield milliseconds(name, of_many)
