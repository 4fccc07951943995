"""append: one writer, each append durable, against one bare row and one commit."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import clew
from bench.bare import BareTable
from bench.figures import Figure, rate, ratio
from bench.messages import Message, encoded, messages
from bench.timing import in_rounds, per_second
from bench.workshop import Workshop

_ROUNDS = 25
_APPENDS = 500  # enough for each side to bring its log back into the file now and then


def measure(workshop: Workshop) -> Iterable[Figure]:
    thread = workshop.open().create()
    batch = messages(_APPENDS)
    bodies = encoded(batch)
    with closing(BareTable(workshop.new_path())) as bare:
        ours, theirs = in_rounds(
            _ROUNDS,
            lambda: (
                per_second(_APPENDS, lambda: append_all(thread, batch)),
                per_second(_APPENDS, lambda: bare.append_all(bodies)),
            ),
        )
    yield ratio("append: one writer / bare apsw, rate", ours, theirs, at_least=0.6)
    yield rate("append: one writer", ours)
    yield rate("append: bare apsw, one row a commit", theirs)


def append_all(thread: clew.Thread, batch: list[Message]) -> None:
    for message in batch:
        thread.append_message(message)
