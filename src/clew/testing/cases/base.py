"""What cases are made of: places, drafts, and assertions about errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from clew.core import drafts
from clew.core.engine import Engine
from clew.core.errors import ClewError
from clew.core.model import (
    DEFAULT_NAMESPACE,
    Entry,
    EntryDraft,
    MoveDraft,
    Origin,
    Record,
    ThreadDraft,
    ThreadInfo,
    to_time,
)
from clew.core.wrapper import read_only

E = TypeVar("E", bound=ClewError)


class Place(Protocol):
    """Somewhere that an engine can keep things.

    It may have a third method, `look(engine)`: open the store of that engine once more, for looking
    only. Without it the engine itself is used, wrapped by `clew.testing.wrappers.read_only`.
    """

    def open(self, *, namespace: str = DEFAULT_NAMESPACE) -> Engine:
        """Open a new, empty engine, or the one that was here before it was closed.

        For one of the namespaces here; those that are open at once lie in one store.
        """
        ...

    def reopen(self, engine: Engine) -> Engine:
        """Close it and open it again. An engine without durability may return itself."""
        ...


Case = Callable[[Place], None]


class Cases:
    """Collects the cases of a module, in order."""

    def __init__(self) -> None:
        self.found: list[Case] = []

    def __call__(self, case: Case) -> Case:
        self.found.append(case)
        return case


def look(place: Place, engine: Engine) -> Engine:
    """The store of an engine, open for looking only, beside it."""
    opened: Engine = getattr(place, "look", read_only)(engine)
    return opened


# Fixed times, so that what is written is the same in every run.
T0 = 1_700_000_000_000_000


def thread(id: str = "t", *, at: int = T0, **fields: Any) -> ThreadDraft:
    facts = drafts.facts(fields.pop("facts", {}), at)
    return ThreadDraft(id=id, created_us=at, facts=facts, **fields)


def entry(id: str, body: Any = None, *, kind: str = "user_message", **fields: Any) -> EntryDraft:
    time_us = fields.pop("at", T0)
    return drafts.draft(kind, body, id=id, time=to_time(time_us), **fields)


def move(id: str, leaf: str | None, *, at: int = T0) -> MoveDraft:
    return MoveDraft(id=id, leaf=leaf, time_us=at)


def fork_of(engine: Engine, source: str, at: str | None, id: str = "f") -> ThreadInfo:
    hash = None if at is None else engine.path(source, at, limit=1)[0].hash
    return engine.create(thread(id, origin=Origin(source, at, hash)))


def grow(engine: Engine, name: str, *ids: str) -> list[Record]:
    """Append entries one after the other, each its own commit."""
    return [engine.append(name, [entry(id, {"n": id})])[0] for id in ids]


def ids(records: list[Entry] | list[Record]) -> list[str]:
    return [record.id for record in records]


@contextmanager
def refused(kind: type[E]) -> Iterator[list[E]]:
    """Assert that the block raises this error; it is put into the list."""
    caught: list[E] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def eventually(done: Callable[[], object], seconds: float = 10.0) -> None:
    """Assert that something comes true; looks often, gives up late."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.002)


def whole(engine: Engine) -> None:
    """Assert that verification finds nothing."""
    problems = list(engine.check())
    assert problems == [], problems
