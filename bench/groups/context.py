"""context: what a provider gets, against reading and decoding it; in a loop; after a compaction."""

from __future__ import annotations

from collections.abc import Iterable

import clew
from bench.figures import Figure, milliseconds, ratio
from bench.groups.load import bodies
from bench.messages import messages
from bench.timing import in_rounds, seconds, take_turns
from bench.workshop import MANY, Workshop, extend
from clew.context.recall import Recall

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
    ours, theirs = in_rounds(_ROUNDS, lambda: (_first(thread), seconds(lambda: bodies(thread))))
    name = f"context: the first of {_MESSAGES:,} messages"
    yield ratio(f"{name} / reading and decoding them", ours, theirs, at_most=2)
    yield milliseconds(name, ours)
    yield from _in_a_loop(thread)


def _first(thread: clew.Thread) -> float:
    # A first context has none to forget: what the round before left goes before the clock starts.
    thread.store.recall = Recall(thread.store.engine)
    return seconds(lambda: thread.context("openai-chat").messages)


def _in_a_loop(thread: clew.Thread) -> Iterable[Figure]:
    """Two appends, a context, its bytes and its messages; and the bytes of a bare join."""
    stored = [entry.data for entry in thread.path()]
    thread.context("openai-chat").json()

    def once() -> tuple[float, ...]:
        extend(thread, [{"role": "user", "content": "go on"}])
        extend(thread, [{"role": "assistant", "content": "yes"}])
        found: list[clew.context.request.Context] = []
        return (
            seconds(lambda: found.append(thread.context("openai-chat"))),
            seconds(lambda: found[0].json()),
            seconds(lambda: found[0].messages),
            seconds(lambda: b"[" + b",".join(stored) + b"]"),
        )

    context, json, made, join = in_rounds(_ROUNDS, once)
    name = f"context: after two appends to {_MESSAGES:,} messages"
    yield milliseconds(name, context, at_most=5)
    yield milliseconds(f"{name}, its list of messages beside it", made)
    yield ratio(f"{name}, json() / a bare join of the stored bytes", json, join, at_most=1.2)


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
