"""load: a whole path with every body decoded, against fetching and decoding the bare rows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from typing import Any
from unittest import mock

import clew
from bench.bare import BareTable
from bench.figures import Figure, milliseconds, ratio
from bench.groups.size import fill, pack
from bench.messages import encoded, messages
from bench.timing import in_rounds, seconds
from bench.workshop import Workshop, extend
from clew.core.checked_reads import check_reads
from clew.store import Store
from clew.upkeep.scrub import scrub

_ROUNDS = 21
_MESSAGES = 10_000


def measure(workshop: Workshop) -> Iterable[Figure]:
    thread = workshop.open().create()
    extend(thread, messages(_MESSAGES))
    with closing(BareTable(workshop.new_path())) as bare:
        bare.fill(encoded(messages(_MESSAGES)))
        assert bodies(thread) == bare.load(), "both sides must load the same"
        ours, theirs = in_rounds(
            _ROUNDS, lambda: (seconds(lambda: bodies(thread)), seconds(lambda: bare.load()))
        )
    name = f"load: path of {_MESSAGES:,} messages, decoded"
    yield ratio(f"{name} / bare fetch and decode", ours, theirs, at_most=1.25)
    # Over 1.3 it is not the default: docs/explain/durability.md.
    for engine in ("sqlite", "files"):
        yield _checked(workshop, engine, name)
    for engine in ("sqlite", "files"):
        for threads in (1, 100):
            yield _packed(workshop, threads, engine)
    path = thread.store.properties.place
    with mock.patch.dict(os.environ, XDG_STATE_HOME=f"{workshop.new_path()}.state"):
        (scrubs,) = in_rounds(5, lambda: (seconds(lambda: scrub(path)),))
    yield milliseconds(f"load: scrub of {_MESSAGES:,} messages", scrubs)
    yield milliseconds(name, ours)
    yield milliseconds("load: bare fetch and decode", theirs)


def bodies(thread: clew.Thread) -> list[Any]:
    return [entry.body for entry in thread.path()]


def _checked(workshop: Workshop, engine: str, name: str) -> Figure:
    """The same load, with every entry checked against its hash on the way out."""
    with clew.open(f"{engine}:{workshop.new_path()}") as store:
        thread = store.create()
        extend(thread, messages(_MESSAGES))
        checked = Store(check_reads(store.engine)).get(thread.id)
        assert bodies(checked) == bodies(thread)
        ours, bare = in_rounds(
            _ROUNDS, lambda: (seconds(lambda: bodies(checked)), seconds(lambda: bodies(thread)))
        )
    return ratio(f"{name}, {engine}: check_reads / without", ours, bare, at_most=2)


def _packed(workshop: Workshop, threads: int, engine: str) -> Figure:
    """The same load from packs, in turn with a store that was not packed."""
    plain, packed = (f"{engine}:{workshop.new_path()}" for _ in range(2))
    for path in (plain, packed):
        fill(path, threads)
    pack(packed)
    with clew.open(packed) as ours, clew.open(plain) as theirs:
        mine, others = (
            [store.get(info.id) for info in store.threads()] for store in (ours, theirs)
        )
        assert sorted(map(str, map(bodies, mine))) == sorted(map(str, map(bodies, others)))
        a, b = in_rounds(
            _ROUNDS,
            lambda: (
                seconds(lambda: [bodies(thread) for thread in mine]),
                seconds(lambda: [bodies(thread) for thread in others]),
            ),
        )
    what = "one path" if threads == 1 else f"{threads} paths"
    name = f"load: {what}, {_MESSAGES:,} messages, decoded, packed / not packed"
    name += "" if engine == "sqlite" else f", {engine}"
    return ratio(name, a, b, at_most=1.3)
