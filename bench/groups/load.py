"""load: a whole path with every body decoded, against fetching and decoding the bare rows."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

import clew
from bench.bare import BareTable
from bench.figures import Figure, milliseconds, ratio
from bench.messages import encoded, messages
from bench.timing import in_rounds, seconds
from bench.workshop import Workshop, extend

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
    yield milliseconds(name, ours)
    yield milliseconds("load: bare fetch and decode", theirs)


def bodies(thread: clew.Thread) -> list[Any]:
    return [entry.body for entry in thread.path()]
