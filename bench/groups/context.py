"""context: what a provider gets, against reading and decoding its messages; after a compaction."""

from __future__ import annotations

from collections.abc import Iterable

import clew
from bench.figures import Figure, milliseconds, ratio
from bench.groups.load import bodies
from bench.messages import messages
from bench.timing import in_rounds, seconds, take_turns
from bench.workshop import MANY, Workshop, extend

_ROUNDS = 15
_MESSAGES = 9_996  # whole conversations of six messages each
_TAIL = 198
_TURNS = 20


def measure(workshop: Workshop) -> Iterable[Figure]:
    yield from _whole(workshop)
    yield from _compacted(workshop)


def _whole(workshop: Workshop) -> Iterable[Figure]:
    thread = workshop.open().create()
    extend(thread, messages(_MESSAGES))
    found = thread.context("openai-chat")
    assert len(found.messages) == _MESSAGES
    assert found.report.repairs == ()
    ours, theirs = in_rounds(
        _ROUNDS,
        lambda: (seconds(lambda: thread.context("openai-chat")), seconds(lambda: bodies(thread))),
    )
    name = f"context: of {_MESSAGES:,} messages"
    yield ratio(f"{name} / reading and decoding them", ours, theirs, at_most=3)
    yield milliseconds(name, ours)


def _compacted(workshop: Workshop) -> Iterable[Figure]:
    """The tail of a long thread, and a fresh thread of the same messages."""
    fork = workshop.long_thread.fork()
    fork.append("compaction", {"summary": "S", "compacted_through_entry_id": fork.leaf})
    extend(fork, messages(_TAIL))
    fresh = fork.store.create()
    extend(fresh, messages(_TAIL))
    _check(fork, fresh)
    ours, theirs = in_rounds(
        _ROUNDS,
        lambda: take_turns(
            _TURNS, lambda: fork.context("openai-chat"), lambda: fresh.context("openai-chat")
        ),
    )
    name = f"context: {_TAIL} messages after a compaction of {MANY:,} entries"
    yield ratio(f"{name} / a fresh thread of them", ours, theirs, at_most=1.5)
    yield milliseconds(name, ours)


def _check(fork: clew.Thread, fresh: clew.Thread) -> None:
    summary, *tail = fork.context("openai-chat").messages
    assert "<summary>" in summary["content"]
    assert tail == fresh.context("openai-chat").messages
