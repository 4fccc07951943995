"""What callers give the handles: the same values are refused on every engine, by InvalidInput."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from clew.core.errors import InvalidInput, TooLarge
from clew.store import Store
from clew.testing.cases.base import Cases, Place, refused, whole
from clew.thread import Thread

CASES = Cases()
Values = tuple[Any, ...]

TEXT = "\ud800"  # which no database can carry
HUGE: Values = (2**63, -(2**63) - 1, 10**400, 10**5000)
NO_NUMBERS: Values = (*HUGE, 1.5, float("nan"), float("inf"), "1", b"1", True, [], -1)
NO_SECONDS: Values = (*HUGE, float("nan"), float("inf"), "1", b"1", True, [], -1, None)
NO_NAMES: Values = (TEXT, "a\0b", "", b"x", 1, 1.5, [], {}, "x" * 1000)
NO_TIMES: Values = (
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),  # year 0 in UTC
    datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14))),  # year 10000
    datetime(2020, 1, 1),
    *("2020-01-01", 0, 1.5, []),
)
NO_CURSORS: Values = (
    TEXT,
    f"5.{TEXT}",
    "5.a\0b",
    f"{10**17 * 9}.t",
    "5",
    ".t",
    "x.t",
    5,
    b"5.t",
    [],
)


def _refused(call: Callable[[Any], object], values: Values) -> None:
    for value in values:
        try:
            with refused(InvalidInput):
                call(value)
        except TooLarge:
            pass
        except Exception as error:
            raise AssertionError(f"{value!r:.100} gives {error!r:.200}") from error


def _thread(place: Place) -> tuple[Store, Thread]:
    store = Store(place.open())
    thread = store.create("t", time=datetime(2020, 1, 1, tzinfo=UTC))
    thread.append("event", 1, id="e")
    return store, thread


@CASES
def values_that_no_entry_can_have_are_refused(place: Place) -> None:
    store, thread = _thread(place)
    _refused(lambda v: thread.append(v, 1), NO_NAMES[:3])
    _refused(lambda v: thread.append("event", 1, id=v), NO_NAMES)
    _refused(lambda v: thread.append("event", 1, parent=v), NO_NAMES)
    _refused(lambda v: thread.append("event", 1, turn=v), NO_NAMES)
    _refused(lambda v: thread.append("event", 1, format=v), NO_NAMES)
    _refused(lambda v: thread.append("event", 1, expect=v), NO_NAMES)
    said = {"role": "user", "content": "x"}
    _refused(lambda v: thread.append_message(said, format=v), (*NO_NAMES, [], {}))
    _refused(lambda v: thread.context(v), (*NO_NAMES, [], {}))
    _refused(lambda v: thread.append("event", 1, blobs=v), (5, "b3:", [TEXT], [1]))
    _refused(lambda v: thread.append("event", 1, time=v), NO_TIMES)
    _refused(lambda v: thread.move(v), NO_NAMES)
    _refused(lambda v: thread.write(v), (5, None, "x", [1]))
    _refused(lambda v: thread.set_facts(v), (5, None, "x", [1], {TEXT: 1}, {"": 1}, {5: 1}))
    _refused(lambda v: thread.viewed(v), NO_TIMES)
    assert thread.info.seq == 1
    whole(store.engine)


@CASES
def values_that_no_lease_can_have_are_refused(place: Place) -> None:
    _, thread = _thread(place)
    for write in (
        lambda v: thread.append("event", 1, fence=v),
        lambda v: thread.move("e", fence=v),
        lambda v: thread.write([], fence=v),
        lambda v: thread.append_message({"role": "user", "content": "x"}, fence=v),
    ):
        _refused(write, NO_NUMBERS)
    _refused(lambda v: thread.leases.acquire("me", ttl_seconds=v), (*NO_SECONDS, 0))
    _refused(lambda v: thread.leases.acquire(v), NO_NAMES)
    _refused(lambda v: thread.leases.clear_expired(v), NO_TIMES)
    _refused(lambda v: thread.leases.release(v), (5, None, "x"))
    _refused(lambda v: thread.turn(owner="me", ttl_seconds=v).__enter__(), NO_SECONDS)
    _refused(lambda v: thread.turn(owner="me", wait_seconds=v), NO_SECONDS)
    assert thread.leases.active() is None
    lease = thread.leases.acquire("me")
    _refused(lambda v: thread.leases.renew(lease, ttl_seconds=v), (*NO_SECONDS, 0))
    assert thread.info.seq == 1


@CASES
def values_that_no_question_can_have_are_refused(place: Place) -> None:
    store, _ = _thread(place)
    for key in ("thread", "tag", "agent", "workspace", "model", "tool", "role", "kind", "path"):
        for value in (TEXT, b"x", 1, 1.5, True):
            with refused(InvalidInput):
                store.search("x", **{key: value})  # type: ignore[arg-type]
    _refused(lambda v: store.search("x", thread=v), ([TEXT], [1], [None]))
    _refused(lambda v: store.cleanup(older_than=v), (timedelta.max, *NO_TIMES))
    _refused(lambda v: store.usage(since=v), (timedelta.max, timedelta.min, *NO_TIMES))
    assert [info.id for info in store.threads()] == ["t"]


@CASES
def values_that_no_thread_can_have_are_refused(place: Place) -> None:
    store, _ = _thread(place)
    for make in (store.create, lambda v: store.fork("t", id=v), lambda v: store.create(parent=v)):
        _refused(make, NO_NAMES)
    for at in (
        lambda v: store.create(time=v),
        lambda v: store.fork("t", time=v),
        lambda v: store.clone("t", time=v),
    ):
        _refused(at, NO_TIMES)
    _refused(lambda v: store.create(tags=v), (5, None, "text", [TEXT], [5]))
    _refused(lambda v: store.create(facts=v), (5, "text", [1], {TEXT: 1}))
    assert [info.id for info in store.threads()] == ["t"]
    whole(store.engine)


@CASES
def values_that_no_read_can_begin_at_are_refused(place: Place) -> None:
    store, thread = _thread(place)
    _refused(lambda v: list(thread.read(after=v)), (*NO_NUMBERS, None))
    _refused(lambda v: list(thread.follow(after=v, idle_seconds=0)), NO_NUMBERS)
    _refused(lambda v: list(thread.follow(idle_seconds=v)), NO_SECONDS[:-1])
    _refused(lambda v: thread.path(limit=v), (*NO_NUMBERS, 0))
    _refused(lambda v: thread.path(after=v), NO_NAMES)
    _refused(lambda v: thread.path(v), NO_NAMES)
    _refused(lambda v: store.list(limit=v), (*NO_NUMBERS, 0, None))
    _refused(lambda v: store.list(cursor=v), NO_CURSORS)
    _refused(lambda v: store.list(after=v), NO_TIMES)
    _refused(lambda v: store.list(before=v), NO_TIMES)
    _refused(lambda v: store.sweep(grace_seconds=v), NO_SECONDS)
    for limit in NO_NUMBERS[4:]:
        with refused(InvalidInput):
            store.engine.read("t", limit=limit)
        with refused(InvalidInput):
            store.engine.path("t", limit=limit)


@CASES
def times_at_the_ends_of_the_calendar_are_shown_again(place: Place) -> None:
    store = Store(place.open())
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    for id, time in (("first", first), ("last", last)):
        thread = store.create(id, time=time)
        entry = thread.append("event", 1, time=time)
        assert (thread.info.created_at, entry.time, thread.path()[0].time) == (time, time, time)
    assert [info.id for info in store.list(limit=1).items] == ["last"]
    page = store.list(limit=1)
    assert [info.id for info in store.list(cursor=page.cursor).items] == ["first"]
