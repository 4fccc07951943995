"""peers: the same conversation in Clew and in what other frameworks ship, in the same run.

Asynchronous peers pay their own event loop and threads, as their users do; the loop is started
once, and messages are converted to a peer's types beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from bench.figures import Figure, costs, milliseconds, rates, ratio
from bench.messages import messages, raw_bytes
from bench.peers import contestants
from bench.peers.clew_store import ClewStore
from bench.peers.contestant import Contestant
from bench.progress import say
from bench.timing import Spent, in_rounds, seconds, spent
from bench.workshop import Workshop, size_on_disk

_SLICES = 10  # a conversation grows in so many slices, in turns with the others; one warms up
_LOAD_ROUNDS = 15
_LOAD_MESSAGES = 1000
_LOAD_BARS = {"langgraph SqliteSaver": 1.0}  # it has all messages in one blob

Places = Sequence[tuple[type[Contestant], Any]]


def measure(workshop: Workshop) -> Iterable[Figure]:
    kinds: list[type[Contestant]] = [ClewStore, *contestants()]
    places = [(kind, workshop.new_path()) for kind in kinds]
    yield from compare_appends("peers", places)
    yield from _size(places)
    yield from compare_loads("peers", [(kind, workshop.new_path()) for kind in kinds])


@contextmanager
def _opened(places: Places) -> Iterator[list[Contestant]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(kind(path))) for kind, path in places]


# --- appending ------------------------------------------------------------------------------


def compare_appends(group: str, places: Places) -> Iterable[Figure]:
    say("appending to each in turn")
    with _opened(places) as stores:
        supplies = [_Supply(store) for store in stores]
        ours, *others = in_rounds(_SLICES - 1, lambda: tuple(s.append_slice() for s in supplies))
    yield from costs(f"{group}: append, Clew beside peers", ours)
    for peer, theirs in zip(stores[1:], others, strict=True):
        name = f"{peer.label}, to {peer.length:,} messages"
        yield ratio(f"{group}: append, Clew / {name}, rate", rates(ours), rates(theirs))
        yield from costs(f"{group}: append, {name}", theirs)


class _Supply:
    """The messages that a contestant is yet to append."""

    def __init__(self, store: Contestant) -> None:
        self._store = store
        self._rest = store.prepare(messages(store.length))

    def append_slice(self) -> Spent:
        """Append the next slice; what each append took."""
        count = self._store.length // _SLICES
        part, self._rest = self._rest[:count], self._rest[count:]
        return spent(count, lambda: self._store.append_all(part))


# --- the disk -------------------------------------------------------------------------------


def _size(places: Places) -> Iterable[Figure]:
    for kind, path in places:
        name = f"peers: disk, {kind.label}, {kind.length:,} messages / raw JSON"
        yield Figure(name, size_on_disk(path) / raw_bytes(messages(kind.length)), "x")


# --- loading --------------------------------------------------------------------------------


def compare_loads(group: str, places: Places) -> Iterable[Figure]:
    say("loading from each in turn")
    with _opened(places) as stores:
        for store in stores:
            _fill(store)
        ours, *others = in_rounds(_LOAD_ROUNDS, lambda: tuple(seconds(s.load) for s in stores))
    what = f"{group}: load {_LOAD_MESSAGES:,}"
    yield milliseconds(f"{what}, Clew", ours)
    for peer, theirs in zip(stores[1:], others, strict=True):
        bar = _LOAD_BARS.get(peer.label)
        yield ratio(f"{what}, {peer.label} / Clew, time", theirs, ours, at_least=bar)
        yield milliseconds(f"{what}, {peer.label}", theirs)


def _fill(store: Contestant) -> None:
    store.fill(store.prepare(messages(_LOAD_MESSAGES)))
    assert store.load() == _LOAD_MESSAGES, f"{store.label} gives back another number of messages"
