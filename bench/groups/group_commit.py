"""group: writers that come together share a commit, which pays the more the slower the disk."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import clew
from bench.figures import Figure, rate, ratio
from bench.groups.append import append_all
from bench.messages import messages
from bench.slow_disk import slow_disk
from bench.timing import per_second, rounds
from bench.workshop import Workshop

_WRITERS = 8
_DELAY_SECONDS = 0.002


def measure(workshop: Workshop) -> Iterable[Figure]:
    with clew.open(workshop.new_path()) as store:
        many, one = _compare(store, rounds_=11, alone=400, each=100)
    yield from _figures("this disk", many, one, at_least=1.3)
    with slow_disk(_DELAY_SECONDS) as name, clew.open(workshop.new_path(), vfs=name) as store:
        many, one = _compare(store, rounds_=7, alone=100, each=60)
    yield from _figures(f"syncs {_DELAY_SECONDS * 1e3:.0f} ms longer", many, one, at_least=5)


def _compare(store: clew.Store, *, rounds_: int, alone: int, each: int) -> list[list[float]]:
    """The rates of all writers together, and of one alone; each writes to its own thread."""
    threads = [store.create() for _ in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS) as writers:

        def together() -> None:
            for outcome in [writers.submit(append_all, t, messages(each)) for t in threads]:
                outcome.result()

        return rounds(
            rounds_,
            lambda: (
                per_second(_WRITERS * each, together),
                per_second(alone, lambda: append_all(threads[0], messages(alone))),
            ),
        )


def _figures(
    where: str, many: list[float], one: list[float], *, at_least: float
) -> Iterable[Figure]:
    name = f"group: {_WRITERS} writers"
    yield ratio(f"{name} / one, rate, {where}", many, one, at_least=at_least)
    yield rate(f"{name}, {where}", many)
    yield rate(f"group: one writer, {where}", one)
