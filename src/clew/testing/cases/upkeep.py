"""Waiting, counting, closing."""

from __future__ import annotations

import threading

from clew.errors import Closed
from clew.model import Inspect, ThreadQuery
from clew.testing.cases.base import Cases, Place, entry, grow, refused, thread

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
        lambda: engine.sweep(grace_seconds=0),
        lambda: engine.stats(),
        lambda: list(engine.check()),
    ):
        with refused(Closed):
            call()
