"""Waiting, counting, checking, closing, and purging threads that forks of forks hang on."""

from __future__ import annotations

import threading
from itertools import permutations
from typing import Any

from clew.core import drafts
from clew.core.engine import Engine
from clew.core.errors import Closed, Conflict, NotFound
from clew.core.model import Acquire, Inspect, Renew, ThreadQuery
from clew.testing.cases.base import (
    T0,
    Cases,
    Place,
    entry,
    fork_of,
    grow,
    ids,
    move,
    refused,
    thread,
    whole,
)

CASES = Cases()


@CASES
def a_waiter_is_woken_by_the_next_record(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a")
    assert engine.wait("t", after=0, timeout_seconds=0)
    assert not engine.wait("t", after=1, timeout_seconds=0)
    woken: list[bool] = []
    waiter = threading.Thread(
        target=lambda: woken.append(engine.wait("t", after=1, timeout_seconds=30))
    )
    waiter.start()
    grow(engine, "t", "b")
    waiter.join(30)
    assert woken == [True]


@CASES
def waiting_for_a_thread_that_is_not_there_is_an_error(place: Place) -> None:
    engine = place.open()
    for timeout_seconds in (-1, 0, 30):
        with refused(NotFound):
            engine.wait("t", after=0, timeout_seconds=timeout_seconds)


@CASES
def a_waiter_is_told_that_its_thread_was_purged(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    told: list[str] = []

    def wait() -> None:
        try:
            engine.wait("t", after=0, timeout_seconds=30)
        except NotFound as error:
            told.append(error.id)

    waiter = threading.Thread(target=wait)
    waiter.start()
    engine.purge("t")
    waiter.join(30)
    assert told == ["t"]


@CASES
def a_deleted_thread_is_waited_for(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t", facts={"deleted_us": T0}))
    assert engine.wait("t", after=0, timeout_seconds=0)
    assert not engine.wait("t", after=1, timeout_seconds=-1)
    engine.append("t", drafts.facts({"deleted_us": None}, T0))
    assert engine.wait("t", after=1, timeout_seconds=0)


@CASES
def stats_count_what_is_there(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t", facts={"title": "x"}))
    engine.create(thread("u"))
    engine.append("t", [entry("a"), entry("b")])
    engine.put_blobs([b"12345"])
    stats = place.reopen(engine).stats()
    assert (stats.threads, stats.deleted, stats.entries, stats.records) == (2, 0, 2, 3)
    assert (stats.blobs, stats.blob_bytes) == (1, 5)
    assert stats.stored_bytes > 0


@CASES
def check_tells_how_far_it_is(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a", "b", "c")
    for quick in (False, True):
        told: list[tuple[int, int]] = []
        problems = engine.check(quick=quick, progress=lambda *now: told.append(now))  # noqa: B023
        assert list(problems) == []
        assert told or quick, "at the least when it is done; the quick form may be too quick"
        assert all(0 <= done <= total for done, total in told)
        assert all(done == total > 0 for done, total in told[-1:]), "it ends with everything done"
        assert told == sorted(told)


@CASES
def a_check_beside_writers_finds_nothing_wrong(place: Place) -> None:
    engine = place.open()
    engine.create(thread("kept"))
    grow(engine, "kept", "a", "b")
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for n in range(6):
                grow(engine, "kept", f"w{n}")
                fork_of(engine, "kept", "a", f"f{n}")
                grow(engine, f"f{n}", "own")
                engine.purge(f"f{n}")
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    running = engine.check()
    first = next(running, None)  # begun before the writer, and ended beside it
    writer.start()
    problems = [first, *running] if first is not None else list(running)
    for quick in (True, False):
        problems += engine.check(quick=quick)
    writer.join(60)
    assert (problems, failures) == ([], [])
    whole(engine)


@CASES
def a_purge_takes_the_lease_with_it(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    lease = engine.lease("t", Acquire("me", 600.0))
    assert lease is not None
    engine.purge("t")
    engine = place.reopen(engine)
    for call in (
        lambda: engine.append("t", [entry("a")], fence=lease.fence),
        lambda: engine.lease("t", Renew(lease.fence, 600.0)),
        lambda: engine.lease("t", Inspect()),
    ):
        with refused(NotFound):
            call()


@CASES
def what_is_not_there_cannot_be_purged(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    engine.create(thread("deleted", facts={"deleted_us": T0}))
    with refused(NotFound) as caught:
        engine.purge("u")
    assert (caught[0].what, caught[0].id) == ("thread", "u")
    for id in ("t", "deleted"):
        engine.purge(id)
        with refused(NotFound):
            engine.purge(id)
    whole(engine)


def _step_back(engine: Engine, source: str, at: str) -> None:
    """A fork q that goes back to the entry a, with a fork of its own z: the path of z is a, x."""
    fork_of(engine, source, at, "q")
    engine.append("q", [move("back", "a")])
    grow(engine, "q", "x")
    fork_of(engine, "q", "x", "z")


def _purge_all(place: Place, engine: Engine, order: tuple[str, ...]) -> None:
    """After each purge z is what it was, and with z everything goes."""
    for id in order:
        engine.purge(id)
        assert ids(engine.path("z")) == ["a", "x"], (order, id)
        whole(engine)
    engine = place.reopen(engine)
    assert ids(engine.path("z")) == ["a", "x"], order
    grow(engine, "z", "more")
    whole(engine)
    engine.purge("z")
    stats = place.reopen(engine).stats()
    assert (stats.threads, stats.records) == (0, 0), order


@CASES
def purging_leaves_a_fork_of_a_fork_that_stepped_back(place: Place) -> None:
    for order in permutations("oq"):
        engine = place.open()
        engine.create(thread("o"))
        grow(engine, "o", "a", "b")
        _step_back(engine, "o", "b")
        _purge_all(place, engine, order)


@CASES
def purging_finds_what_is_needed_behind_a_fork_that_is_gone(place: Place) -> None:
    for order in permutations("opq"):
        engine = place.open()
        engine.create(thread("o"))
        grow(engine, "o", "a", "b")
        fork_of(engine, "o", "b", "p")
        grow(engine, "p", "c")
        _step_back(engine, "p", "c")  # no path runs through p then
        _purge_all(place, engine, order)


@CASES
def properties_say_what_the_engine_is(place: Place) -> None:
    properties = place.open().properties
    assert properties.engine
    assert properties.durability in ("full", "relaxed", "none")
    assert properties.acknowledged


@CASES
def a_closed_engine_says_so(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    engine.close()
    engine.close()
    for call in (
        lambda: engine.create(thread("u")),
        lambda: engine.thread("t"),
        lambda: engine.threads(ThreadQuery()),
        lambda: engine.append("t", [entry("a")]),
        lambda: engine.read("t"),
        lambda: engine.path("t"),
        lambda: engine.segments("t"),
        lambda: engine.lease("t", Inspect()),
        lambda: engine.wait("t", after=0, timeout_seconds=0),
        lambda: engine.put_blobs([b"x"]),
        lambda: engine.get_blob("b3:x"),
        lambda: engine.has_blobs(["b3:x"]),
        lambda: engine.purge("t"),
        lambda: engine.erase("t", ["a"], time_us=T0),
        lambda: engine.sweep(grace_seconds=0),
        lambda: engine.pack(),
        lambda: engine.stats(),
        lambda: list(engine.check()),
    ):
        with refused(Closed):
            call()


# --- packing: what is compressed reads as before ---


def _filled(place: Place) -> Engine:
    """A long thread with moves, facts, metas and a large body in it, and forks of it."""
    engine = place.open()
    engine.create(thread(facts={"title": {"text": "long"}}))
    for n in range(300):
        body = {"role": "user", "content": f"message {n} says what many others say as well"}
        more: dict[str, Any] = {"meta": {"model": "m"}, "turn": f"turn-{n // 3}"} if n % 3 else {}
        engine.append("t", [entry(f"e{n}", body, at=T0 + n, **more)])
        if n % 100 == 50:
            engine.append("t", drafts.facts({"status": f"at {n}"}, T0 + n))
    engine.append("t", [entry("large", "much text " * 2000)])
    engine.append("t", [move("back", "e200"), entry("aside", {"n": "aside"})])
    fork_of(engine, "t", "e120", "f")
    grow(engine, "f", *(f"f{n}" for n in range(40)))
    fork_of(engine, "f", "f7", "g")
    return engine


def _seen(engine: Engine, *names: str) -> dict[str, object]:
    """All that can be read of some threads, and what is counted."""
    found: dict[str, object] = {
        name: (
            engine.thread(name),
            engine.read(name),
            engine.read(name, after=60, limit=90),
            engine.path(name),
            engine.path(name, limit=30),
            engine.segments(name),
        )
        for name in names
    }
    stats = engine.stats()
    return found | {"counts": (stats.threads, stats.entries, stats.records, stats.blobs)}


@CASES
def packing_changes_nothing_that_is_read(place: Place) -> None:
    engine = _filled(place)
    before = _seen(engine, "t", "f", "g")
    done = engine.pack(tail=1, idle_seconds=0)
    assert done.complete
    assert bool(done.entries) == engine.properties.packs
    assert _seen(engine, "t", "f", "g") == before
    again = engine.pack(tail=1, idle_seconds=0, shrink=True)
    assert (again.entries, again.complete) == (0, True)
    assert _seen(engine, "t", "f", "g") == before
    whole(engine)
    assert list(engine.check(quick=True)) == []
    engine = place.reopen(engine)
    assert _seen(engine, "t", "f", "g") == before


@CASES
def packing_stops_and_goes_on(place: Place) -> None:
    engine = _filled(place)
    before = _seen(engine, "t", "f", "g")
    steps = 0
    while not engine.pack(tail=1, idle_seconds=0, max_seconds=0).complete:
        steps += 1
        assert _seen(engine, "t", "f", "g") == before
    assert bool(steps) == engine.properties.packs


@CASES
def packing_goes_on_where_it_stopped(place: Place) -> None:
    engine = _filled(place)
    before = _seen(engine, "t", "f", "g")
    done = engine.pack(tail=1, idle_seconds=0, max_seconds=0, after="")
    entries, places = done.entries, [done.stopped]
    while not done.complete:
        done = engine.pack(tail=1, idle_seconds=0, max_seconds=0, after=done.stopped or "")
        entries, places = entries + done.entries, [*places, done.stopped]
        assert _seen(engine, "t", "f", "g") == before
    assert done.stopped is None
    named = [place for place in places if place is not None]
    assert len(set(named)) == len(named), "it is nowhere twice"
    assert bool(entries) == engine.properties.packs
    assert engine.pack(tail=1, idle_seconds=0).entries == 0, "and it came by everything"


@CASES
def what_is_packed_is_written_on_like_any_other(place: Place) -> None:
    engine = _filled(place)
    stored = engine.path("t", "e7", limit=1)[0]
    engine.pack(tail=1, idle_seconds=0)
    meta: dict[str, Any] = {"meta": {"model": "m"}, "turn": "turn-2", "at": T0 + 7}
    assert engine.append("t", [entry("e7", stored.body, **meta)]) == [stored]
    with refused(Conflict):
        engine.append("t", [entry("e7", "other words", **meta)])
    grow(engine, "t", "more")
    engine.append("t", [move("far", "e3"), entry("branch", {"n": 1})])
    assert ids(engine.path("t"))[-2:] == ["e3", "branch"]
    fork_of(engine, "t", "e9", "late")
    assert ids(engine.path("late")) == [f"e{n}" for n in range(10)]
    assert ids(engine.path("g", limit=3)) == ["f5", "f6", "f7"]
    whole(engine)


@CASES
def what_is_packed_is_purged_but_for_what_forks_share(place: Place) -> None:
    engine = _filled(place)
    engine.pack(tail=1, idle_seconds=0)
    kept = [engine.path(name) for name in ("f", "g")]
    assert engine.purge("t").kept == 121
    assert [engine.path(name) for name in ("f", "g")] == kept
    whole(engine)
    engine.purge("f")
    assert ids(engine.path("g"))[-1] == "f7"
    whole(engine)
    engine.purge("g")
    assert engine.stats().records == 0
    whole(engine)
