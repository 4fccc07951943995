"""append: one writer, each append durable, against one bare row and one commit."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import clew
from bench.bare import BareTable, BareTableWithIds
from bench.figures import Figure, costs, rates, ratio
from bench.messages import Message, encoded, messages
from bench.slow_disk import slow_disk
from bench.timing import in_rounds, spent
from bench.workshop import Workshop

_ROUNDS = 25
_APPENDS = 500  # enough for each side to bring its log back into the file now and then
_ROUNDS_SLOW = 9
_APPENDS_SLOW = 200
_DELAY_SECONDS = 0.001


def measure(workshop: Workshop) -> Iterable[Figure]:
    thread = workshop.open().create()
    batch = messages(_APPENDS)
    bodies = encoded(batch)
    with (
        closing(BareTable(workshop.new_path())) as bare,
        closing(BareTableWithIds(workshop.new_path())) as named,
    ):
        ours, theirs, limit = in_rounds(
            _ROUNDS,
            lambda: (
                spent(_APPENDS, lambda: append_all(thread, batch)),
                spent(_APPENDS, lambda: bare.append_all(bodies)),
                spent(_APPENDS, lambda: named.append_all(bodies)),
            ),
        )
    name, beside = "append: one writer", "append: bare apsw, one row a commit"
    yield ratio(f"{name} / bare apsw, rate", rates(ours), rates(theirs), at_least=0.75)
    # An entry is found by its id, or a retry could not be told from something new.
    limited = "append: limit: a bare row that is found by an id"
    yield ratio(f"{limited} / bare apsw, rate", rates(limit), rates(theirs))
    yield ratio(f"{name} / that, rate", rates(ours), rates(limit))
    worked = [[each.processor_seconds for each in side] for side in (ours, theirs)]
    yield ratio(f"{name} / bare apsw, processor time", *worked, at_most=2)
    written, bare_written = (
        sum(each.written_bytes or 0 for each in side) for side in (ours, theirs)
    )
    if bare_written:  # not in memory, and where the system tells
        # Over all rounds: a round may have one checkpoint more than another.
        name_written = f"{name} / bare apsw, bytes written, with checkpoints"
        yield Figure(name_written, written / bare_written, "x", bar=1.5)
    yield from costs(name, ours)
    yield from costs(beside, theirs)
    yield _on_a_slower_disk(workshop, name)


def _on_a_slower_disk(workshop: Workshop, name: str) -> Figure:
    """On both sides the same sync comes on top, so what Clew does beside it weighs less."""
    few = messages(_APPENDS_SLOW)
    bodies = encoded(few)
    with (
        slow_disk(_DELAY_SECONDS) as vfs,
        clew.open(workshop.new_path(), vfs=vfs) as store,
        closing(BareTable(workshop.new_path(), vfs)) as bare,
    ):
        thread = store.create()
        ours, theirs = in_rounds(
            _ROUNDS_SLOW,
            lambda: (
                spent(_APPENDS_SLOW, lambda: append_all(thread, few)),
                spent(_APPENDS_SLOW, lambda: bare.append_all(bodies)),
            ),
        )
    where = f"syncs {_DELAY_SECONDS * 1e3:.0f} ms slower"
    return ratio(f"{name} / bare apsw, rate, {where}", rates(ours), rates(theirs), at_least=0.75)


def append_all(thread: clew.Thread, batch: list[Message]) -> None:
    for message in batch:
        thread.append_message(message)
