"""append: one writer, each append durable, against one bare row and one commit."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import clew
from bench.bare import BareTable
from bench.figures import Figure, microseconds, rate, ratio
from bench.messages import Message, encoded, messages
from bench.timing import cost, in_rounds
from bench.workshop import Workshop

_ROUNDS = 25
_APPENDS = 500  # enough for each side to bring its log back into the file now and then


def measure(workshop: Workshop) -> Iterable[Figure]:
    thread = workshop.open().create()
    batch = messages(_APPENDS)
    bodies = encoded(batch)
    with closing(BareTable(workshop.new_path())) as bare:
        ours, processor, written, theirs, bare_processor, bare_written = in_rounds(
            _ROUNDS,
            lambda: (
                *cost(lambda: append_all(thread, batch)),
                *cost(lambda: bare.append_all(bodies)),
            ),
        )
    name, beside = "append: one writer", "append: bare apsw, one row a commit"
    yield ratio(f"{name} / bare apsw, rate", theirs, ours, at_least=0.75)
    yield rate(name, [_APPENDS / seconds for seconds in ours])
    yield rate(beside, [_APPENDS / seconds for seconds in theirs])
    yield ratio(f"{name} / bare apsw, processor time", processor, bare_processor, at_most=2)
    yield microseconds(f"{name}, processor time", [taken / _APPENDS for taken in processor])
    yield microseconds(f"{beside}, processor time", [taken / _APPENDS for taken in bare_processor])
    if all(bare_written):  # not in memory, and where the system tells
        # Over all rounds: a round may have one checkpoint more than another.
        total, bare_total = sum(written), sum(bare_written)
        per_append = 1000 * _APPENDS * _ROUNDS
        name_written = f"{name} / bare apsw, bytes written, with checkpoints"
        yield Figure(name_written, total / bare_total, "x", bar=1.5)
        yield Figure(f"{name}, bytes written", total / per_append, "KB")
        yield Figure(f"{beside}, bytes written", bare_total / per_append, "KB")


def append_all(thread: clew.Thread, batch: list[Message]) -> None:
    for message in batch:
        thread.append_message(message)
