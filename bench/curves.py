"""What an append and a load cost as a store grows: Clew and its peers, in turns.

Every store of every size is open at once and they take turns, so that a busy moment falls on all.
A point is the quickest of its rounds: what the work itself takes, without the waiting for
other programs, which on a machine that is shared may be the larger part. An append waits for the
disk, so it goes by the clock; a load reads what is in memory, so it goes by the processor's time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import process_time
from typing import Any

from bench.messages import SEED, messages
from bench.peers import contestants
from bench.peers.clew_store import ClewStore
from bench.peers.contestant import Contestant
from bench.progress import say
from bench.timing import in_rounds, seconds
from bench.workshop import Workshop, grow_log

_SIZES = (100, 1_000, 10_000)
_LEFT_OUT = ("google-adk SqliteSessionService",)  # its rollback journal; in WAL mode it is quicker
_APPEND_ROUNDS = 80  # of one append each, so that what is small stays small
_LOAD_ROUNDS = 3


@dataclass(frozen=True)
class Curve:
    label: str
    points: list[tuple[int, float]]  # size, milliseconds


@dataclass(frozen=True)
class Panel:
    title: str
    axis: str
    curves: list[Curve]


def measure(workshop: Workshop) -> Iterator[Panel]:
    kinds = [ClewStore, *(kind for kind in contestants() if kind.label not in _LEFT_OUT)]
    with ExitStack() as stack:
        grown = _stores(workshop, kinds, stack, lambda store, batch: store.fill(batch))
        loads = _panel(
            "Loading it, processor",
            "messages in the conversation",
            grown,
            _load_seconds,
            _LOAD_ROUNDS,
        )
        yield _panel(
            "One durable append",
            "messages in the conversation so far",
            grown,
            _append_seconds,
            _APPEND_ROUNDS,
        )
        yield loads
    with ExitStack() as stack:
        crowded = _stores(workshop, kinds, stack, lambda store, batch: store.crowd(batch))
        yield _panel(
            "One durable append",
            "conversations in the same store",
            crowded,
            _append_seconds,
            _APPEND_ROUNDS,
        )


Stores = list[tuple[int, Contestant]]


def _stores(
    workshop: Workshop,
    kinds: Sequence[type[Contestant]],
    stack: ExitStack,
    grow: Callable[[Contestant, list[Any]], None],
) -> Stores:
    stores: Stores = []
    for size, kind in itertools.product(_SIZES, kinds):
        say(f"building {kind.label}, {size:,}")
        path = workshop.new_path()
        store = stack.enter_context(closing(kind(path)))
        grow(store, store.prepare(messages(size)))
        grow_log(path)
        stores.append((size, store))
    return stores


def _panel(
    title: str, axis: str, stores: Stores, cost: Callable[[Contestant], float], rounds: int
) -> Panel:
    say(f"measuring: {title.lower()}, by {axis}")
    chance = random.Random(SEED)

    def once() -> tuple[float, ...]:
        """All of them in another order each time: who comes after a large write waits for it."""
        order = chance.sample(range(len(stores)), len(stores))
        taken = {number: cost(stores[number][1]) for number in order}
        return tuple(taken[number] for number in range(len(stores)))

    sides = in_rounds(rounds, once)
    curves: dict[str, Curve] = {}
    for (size, store), taken in zip(stores, sides, strict=True):
        curve = curves.setdefault(store.label, Curve(store.label, []))
        curve.points.append((size, min(taken) * 1e3))
    return Panel(title, axis, list(curves.values()))


def _append_seconds(store: Contestant) -> float:
    batch = store.prepare(messages(1))
    return seconds(lambda: store.append_all(batch))


def _load_seconds(store: Contestant) -> float:
    begin = process_time()
    store.load()
    return process_time() - begin
