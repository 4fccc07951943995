"""usage: asking again costs what is new, however much was counted before."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any

import clew
from bench.figures import Figure, milliseconds, ratio
from bench.progress import say
from bench.timing import seconds
from bench.workshop import Workshop

_THREADS = 1_000
_FAMILY = 10  # one thread, and the sub-agents that work for it
_REPLIES = 100  # in each thread, each after a message of a user
_ROUNDS, _FIRST_ROUNDS = 15, 3


def measure(workshop: Workshop) -> Iterable[Figure]:
    path = workshop.new_path()
    with clew.open(path, durability="relaxed") as store:
        _fill(store)
    store = workshop.open(path)
    name = f"usage: {_THREADS:,} threads, {_THREADS * _REPLIES:,} replies"
    firsts, worked, reads = [], [], []
    for number in range(_FIRST_ROUNDS):
        with _cache(path.parent / f"cache{number}"):
            before = process_time()
            firsts.append(seconds(lambda: store.usage(tree=True)))
            worked.append(process_time() - before)
        reads.append(seconds(lambda: _read_all(store)))
    yield milliseconds(f"{name}, the first time", firsts, at_most=1000)
    yield milliseconds(f"{name}, the first time, processor", worked)
    yield ratio(f"{name}, the first time / reading the records", firsts, reads, at_most=4)
    with _cache(path.parent / "cache0"):
        again = [seconds(lambda: store.usage(tree=True)) for _ in range(_ROUNDS)]
        yield milliseconds(f"{name}, asked again", again)
        thread = next(iter(store.threads()))
        more = []
        for number in range(_ROUNDS):
            store.get(thread.id).append("assistant_message", _reply(f"more_{number}"))
            more.append(seconds(lambda: store.usage(tree=True)))
        yield milliseconds(f"{name}, after one more", more, at_most=20)


def _fill(store: clew.Store) -> None:
    say(f"building a store with {_THREADS * _REPLIES:,} replies")
    parent = None
    for number in range(_THREADS):
        thread = store.create(parent=None if number % _FAMILY == 0 else parent)
        parent = thread.id if number % _FAMILY == 0 else parent
        batch = []
        for reply in range(_REPLIES):
            asked = {"role": "user", "content": f"Please do number {reply}."}
            batch.append(clew.draft("user_message", asked, format="anthropic"))
            body = _reply(f"{number}_{reply}")
            batch.append(clew.draft("assistant_message", body, format="anthropic"))
        thread.append(batch)


def _reply(id: str) -> dict[str, Any]:
    return {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "It is done, and here is what I did. " * 6}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 12,
            "output_tokens": 300,
            "cache_read_input_tokens": 12_000,
            "cache_creation_input_tokens": 400,
        },
    }


def _read_all(store: clew.Store) -> None:
    for head in store.engine.heads():
        store.engine.read(head.thread)


@contextmanager
def _cache(folder: Path) -> Iterator[None]:
    """A cache folder of its own, so that the first time is one."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before
