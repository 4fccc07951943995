"""peers: the same conversation in Clew and in what other frameworks ship, in the same run.

Asynchronous peers pay their own event loop and threads, as their users do; the loop is started
once, and messages are converted to a peer's types beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from bench.figures import Figure, milliseconds, rate, ratio
from bench.messages import messages, raw_bytes
from bench.peers import contestants
from bench.peers.clew_store import ClewStore
from bench.peers.contestant import Contestant
from bench.progress import say
from bench.timing import per_second, rounds, seconds
from bench.workshop import Workshop, size_on_disk

_SLICES = 10  # a conversation grows in so many slices, in turns with the others
_LOAD_ROUNDS = 9
_LOAD_MESSAGES = 1000

Opener = Callable[[Path], Contestant]


def measure(workshop: Workshop) -> Iterable[Figure]:
    openers: list[Opener] = [ClewStore, *contestants()]
    places = [workshop.new_path() for _ in openers]
    yield from _append(openers, places)
    yield from _size(openers, places)
    yield from _load(openers, [workshop.new_path() for _ in openers])


def _append(openers: Sequence[Opener], places: Sequence[Path]) -> Iterable[Figure]:
    say("appending to each in turn")
    with ExitStack() as stack:
        stores = [
            stack.enter_context(closing(opener(place)))
            for opener, place in zip(openers, places, strict=True)
        ]
        supplies = [_Supply(store) for store in stores]
        ours, *peers = rounds(_SLICES - 1, lambda: tuple(s.append_slice() for s in supplies))
    yield rate(f"peers: append, Clew, growing to {ClewStore.length:,}", ours)
    for store, theirs in zip(stores[1:], peers, strict=True):
        what = f"append, {store.label}, growing to {store.length:,}"
        yield ratio(f"peers: {what}: Clew's rate / its", ours, theirs)
        yield rate(f"peers: {what}", theirs)


class _Supply:
    """The messages that a contestant is yet to append."""

    def __init__(self, store: Contestant) -> None:
        self._store = store
        self._rest = store.prepare(messages(store.length))

    def append_slice(self) -> float:
        """Append the next slice; the rate."""
        count = self._store.length // _SLICES
        part, self._rest = self._rest[:count], self._rest[count:]
        return per_second(len(part), lambda: self._store.append_all(part))


def _size(openers: Sequence[Opener], places: Sequence[Path]) -> Iterable[Figure]:
    for opener, place in zip(openers, places, strict=True):
        label, length = opener.label, opener.length
        name = f"peers: disk, {label}, {length:,} messages / raw JSON"
        yield Figure(name, size_on_disk(place) / raw_bytes(messages(length)), "x")


def _load(openers: Sequence[Opener], places: Sequence[Path]) -> Iterable[Figure]:
    say("loading from each in turn")
    with ExitStack() as stack:
        stores = [
            stack.enter_context(closing(opener(place)))
            for opener, place in zip(openers, places, strict=True)
        ]
        for store in stores:
            store.fill(store.prepare(messages(_LOAD_MESSAGES)))
            assert store.load() == _LOAD_MESSAGES, f"{store.label} has lost messages"
        ours, *peers = rounds(_LOAD_ROUNDS, lambda: tuple(seconds(s.load) for s in stores))
    yield milliseconds(f"peers: load {_LOAD_MESSAGES:,}, Clew", ours)
    for store, theirs in zip(stores[1:], peers, strict=True):
        what = f"load {_LOAD_MESSAGES:,}, {store.label}"
        yield ratio(f"peers: {what}: its time / Clew's", theirs, ours)
        yield milliseconds(f"peers: {what}", theirs)
