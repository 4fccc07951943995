"""group: writers that come together share a commit, which pays the more the slower the disk."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import clew
from bench.figures import Figure, costs, rates, ratio
from bench.groups.append import append_all
from bench.messages import Message, messages
from bench.slow_disk import slow_disk
from bench.timing import Spent, in_rounds, spent
from bench.workshop import Workshop

_WRITERS = 8
_DELAY_SECONDS = 0.002


def measure(workshop: Workshop) -> Iterable[Figure]:
    with clew.open(workshop.new_path()) as store:
        many, one = _compare(store, rounds=15, batch=messages(200))
    yield from _figures("this disk", many, one, at_least=1.3)
    with slow_disk(_DELAY_SECONDS) as name, clew.open(workshop.new_path(), vfs=name) as store:
        many, one = _compare(store, rounds=9, batch=messages(80))
    yield from _figures(f"syncs {_DELAY_SECONDS * 1e3:.0f} ms slower", many, one, at_least=5)


def _compare(store: clew.Store, *, rounds: int, batch: list[Message]) -> list[list[Spent]]:
    """What an append costs: all writers together, each on its own thread, and one alone."""
    threads = [store.create() for _ in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS) as writers:

        def together() -> None:
            outcomes = [writers.submit(append_all, thread, batch) for thread in threads]
            for outcome in outcomes:
                outcome.result()

        return in_rounds(
            rounds,
            lambda: (
                spent(_WRITERS * len(batch), together),
                spent(len(batch), lambda: append_all(threads[0], batch)),
            ),
        )


def _figures(
    where: str, many: list[Spent], one: list[Spent], *, at_least: float
) -> Iterable[Figure]:
    name = f"group: {_WRITERS} writers"
    title = f"{name} / one writer, rate, {where}"
    yield ratio(title, rates(many), rates(one), at_least=at_least)
    yield from costs(f"{name}, {where}", many)
    yield from costs(f"group: one writer, {where}", one)
