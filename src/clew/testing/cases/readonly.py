"""A store that is open for looking only: the same answers, and no write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from clew.core import drafts
from clew.core.engine import Engine
from clew.core.errors import ReadOnly
from clew.core.model import (
    Acquire,
    ClearExpired,
    Inspect,
    Release,
    Renew,
    ThreadQuery,
)
from clew.testing.cases.base import (
    T0,
    Cases,
    Place,
    entry,
    fork_of,
    grow,
    ids,
    look,
    move,
    refused,
    thread,
)

CASES = Cases()


def fill(engine: Engine) -> None:
    """Something of everything that can be read."""
    engine.create(thread("t", facts={"title": {"text": "First"}, "tags": ["bug"]}))
    grow(engine, "t", "a", "b", "c")
    engine.append("t", [move("m", "a"), entry("d", {"text": "x" * 200_000})])
    fork_of(engine, "t", "c")
    grow(engine, "f", "e")
    fork_of(engine, "f", "e", "g")
    engine.purge("f")
    (blob,) = engine.put_blobs([b"bytes" * 1000])
    engine.append("g", [entry("h", blobs=[blob])])
    engine.lease("t", Acquire("me", 600.0, turn="u"))
    for n in range(30):
        engine.create(thread(f"n{n}", at=T0 + n))
        grow(engine, f"n{n}", f"{n}a", f"{n}b")
    engine.append("n0", drafts.facts({"deleted_us": T0}, T0))
    engine.append("n1", drafts.facts({"archived": True}, T0))


def answers(engine: Engine) -> dict[str, Any]:
    """All that can be asked of an engine, but for what it says of itself."""
    queries = [
        ThreadQuery(order=order, archived=None, deleted=deleted, limit=100)
        for order in ("created", "updated")
        for deleted in (False, True)
    ]
    pages = [engine.threads(query) for query in queries]
    found = {info.id for page in pages for info in page.items}
    hashes = [hash for id in sorted(found) for one in engine.path(id) for hash in one.blobs]
    return {
        "pages": pages,
        "tagged": engine.threads(ThreadQuery(tag="bug")),
        "threads": {id: engine.thread(id) for id in found},
        "records": {id: engine.read(id) for id in found},
        "paths": {id: engine.path(id) for id in found},
        "ends": {id: engine.path(id, limit=1) for id in found},
        "segments": {id: engine.segments(id) for id in found},
        "leases": {id: engine.lease(id, Inspect()) for id in found},
        "changed": {id: engine.wait(id, after=2, timeout_seconds=0) for id in found},
        "blobs": [engine.get_blob(hash) for hash in hashes],
        "held": engine.has_blobs([*hashes, "b3:" + "0" * 64]),
        "stats": engine.stats(),
        "problems": [list(engine.check(quick=quick)) for quick in (False, True)],
    }


@CASES
def a_read_only_engine_gives_the_same_answers(place: Place) -> None:
    engine = place.open()
    fill(engine)
    engine = place.reopen(engine)
    wanted = answers(engine)
    assert len(wanted["threads"]) == 32
    assert answers(look(place, engine)) == wanted


@CASES
def a_read_only_engine_refuses_every_write_and_changes_nothing(place: Place) -> None:
    engine = place.open()
    fill(engine)
    before = answers(engine)
    looking = look(place, engine)
    assert looking.properties.read_only
    assert not engine.properties.read_only
    lease = looking.lease("t", Inspect())
    assert lease is not None
    writes: dict[str, Callable[[], object]] = {
        "create": lambda: looking.create(thread("new")),
        "append": lambda: looking.append("t", [entry("z")]),
        "acquire": lambda: looking.lease("n2", Acquire("you", 1.0)),
        "renew": lambda: looking.lease("t", Renew(lease.fence, 600.0)),
        "release": lambda: looking.lease("t", Release(lease.fence)),
        "clear": lambda: looking.lease("t", ClearExpired()),
        "put": lambda: looking.put_blobs([b"more"]),
        "purge": lambda: looking.purge("n3"),
        "erase": lambda: looking.erase("t", ["a"], time_us=T0),
        "sweep": lambda: looking.sweep(grace_seconds=0),
        "pack": lambda: looking.pack(),
    }
    for write in writes.values():
        with refused(ReadOnly) as caught:
            write()
        assert caught[0].operation is not None
        assert not caught[0].retryable
    assert answers(looking) == before
    assert answers(engine) == before


@CASES
def a_read_only_engine_sees_what_is_written_beside_it(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    looking = look(place, engine)
    assert looking.read("t") == []
    for number in range(5):
        grow(engine, "t", f"e{number}")
        assert ids(looking.path("t")) == ids(engine.path("t"))
        engine.create(thread(f"u{number}"))
        page = looking.threads(ThreadQuery(order="updated"))
        assert {info.id for info in page.items} == {"t", *(f"u{n}" for n in range(number + 1))}
    engine.purge("u0")
    assert looking.threads(ThreadQuery(limit=100)) == engine.threads(ThreadQuery(limit=100))
    assert list(looking.check()) == []


@CASES
def a_waiter_on_a_read_only_engine_is_woken(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    looking = look(place, engine)
    woken: list[bool] = []
    waiter = threading.Thread(
        target=lambda: woken.append(looking.wait("t", after=0, timeout_seconds=30))
    )
    waiter.start()
    grow(engine, "t", "a")
    waiter.join(30)
    assert woken == [True]
    assert not looking.wait("t", after=1, timeout_seconds=0.05)
