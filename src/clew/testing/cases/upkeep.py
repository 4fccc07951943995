"""Waiting, counting, checking, closing, and purging threads that forks of forks hang on."""

from __future__ import annotations

import threading
from itertools import permutations

from clew.core import drafts
from clew.core.engine import Engine
from clew.core.errors import Closed, NotFound
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
        lambda: engine.stats(),
        lambda: list(engine.check()),
    ):
        with refused(Closed):
            call()
