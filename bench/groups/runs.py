"""runs: saving a long run again writes only what is new, so it costs about as much as an append."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bench.figures import Figure, milliseconds, ratio
from bench.messages import Message, messages
from bench.timing import in_rounds, take_turns
from bench.workshop import Workshop
from clew.facets.runs import Checkpoint, Runs

_ROUNDS = 15
_TURNS = 20
_MESSAGES = 1_000


def measure(workshop: Workshop) -> Iterable[Figure]:
    store = workshop.open()
    thread, runs = store.create(), store.runs
    fresh = iter(messages(_MESSAGES + 2 * (_ROUNDS + 1) * _TURNS))
    history = [next(fresh) for _ in range(_MESSAGES)]
    runs.save(Checkpoint(run_id="long", messages=history))
    ours, theirs = in_rounds(
        _ROUNDS,
        lambda: take_turns(
            _TURNS, saver(runs, history, fresh), lambda: thread.append_message(next(fresh))
        ),
    )
    name = f"runs: save with one new message at {_MESSAGES:,} messages"
    yield ratio(f"{name} / append of one message", ours, theirs, at_most=2)
    yield milliseconds(name, ours)


def saver(runs: Runs, history: list[Message], fresh: Iterator[Message]) -> Callable[[], object]:
    """Saves the run with one more message."""

    def save() -> None:
        history.append(next(fresh))
        runs.save(Checkpoint(run_id="long", iteration=len(history), messages=history))

    return save
