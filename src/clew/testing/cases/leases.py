"""Leases: one writer at a time, told by a number that only grows."""

from __future__ import annotations

from clew.core import drafts
from clew.core.engine import Engine
from clew.core.errors import InvalidInput, LeaseHeld, LeaseLost, NotFound
from clew.core.model import Acquire, ClearExpired, Inspect, Lease, Release, Renew
from clew.testing.cases.base import (
    T0,
    Cases,
    Place,
    entry,
    eventually,
    fork_of,
    grow,
    ids,
    move,
    refused,
    thread,
)

CASES = Cases()


def acquire(engine: Engine, owner: str = "me", ttl_seconds: float = 60.0) -> Lease:
    lease = engine.lease("t", Acquire(owner, ttl_seconds, "turn"))
    assert lease is not None
    return lease


def wait_for_expiry(engine: Engine) -> None:
    eventually(lambda: engine.lease("t", Inspect()) is None)


@CASES
def a_lease_keeps_others_out(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    lease = acquire(engine)
    assert (lease.owner, lease.turn, lease.thread) == ("me", "turn", "t")
    assert lease.until > lease.created_at
    engine = place.reopen(engine)
    assert engine.lease("t", Inspect()) == lease
    for owner in ("you", "me"):  # the same owner must renew, not acquire
        with refused(LeaseHeld) as caught:
            acquire(engine, owner)
        assert (caught[0].owner, caught[0].until) == ("me", lease.until)
    with refused(LeaseHeld):
        engine.append("t", [entry("a")])
    with refused(LeaseHeld):
        engine.append("t", [move("m", None)])
    engine.append("t", drafts.facts({"title": "facts are free"}, T0))
    engine.append("t", [entry("a")], fence=lease.fence)
    assert ids(place.reopen(engine).path("t")) == ["a"]


@CASES
def a_released_lease_lets_the_next_one_in(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    first = acquire(engine)
    engine.lease("t", Release(first.fence))
    assert engine.lease("t", Inspect()) is None
    grow(engine, "t", "a")
    engine = place.reopen(engine)
    second = acquire(engine, "you")
    assert second.fence > first.fence
    engine.lease("t", Release(first.fence))  # not ours any more: nothing happens
    assert engine.lease("t", Inspect()) == second


@CASES
def a_fence_that_is_over_writes_nothing(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    with refused(LeaseLost):
        engine.append("t", [entry("a")], fence=1)
    old = acquire(engine, ttl_seconds=0.05)
    wait_for_expiry(engine)
    with refused(LeaseLost) as caught:
        engine.append("t", [entry("a")], fence=old.fence)
    assert (caught[0].fence, caught[0].current) == (old.fence, None)
    with refused(LeaseLost):
        engine.lease("t", Renew(old.fence, 60))
    new = acquire(engine, "you")
    with refused(LeaseLost) as caught:
        engine.append("t", [entry("a")], fence=old.fence)
    assert caught[0].current == new.fence
    assert place.reopen(engine).read("t") == []


@CASES
def a_retry_under_a_lost_fence_finds_what_it_wrote(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    lease = acquire(engine)
    written = engine.append("t", [entry("a")], fence=lease.fence)
    engine.lease("t", Release(lease.fence))
    assert place.reopen(engine).append("t", [entry("a")], fence=lease.fence) == written


@CASES
def renewing_holds_a_lease_longer(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    lease = acquire(engine, ttl_seconds=5)
    renewed = engine.lease("t", Renew(lease.fence, 600))
    assert renewed is not None
    assert (renewed.fence, renewed.owner) == (lease.fence, "me")
    assert renewed.until > lease.until
    assert place.reopen(engine).lease("t", Inspect()) == renewed


@CASES
def expired_and_stale_leases_can_be_cleared(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    assert engine.lease("t", ClearExpired()) is None
    lease = acquire(engine)
    assert engine.lease("t", ClearExpired()) is None
    assert engine.lease("t", ClearExpired(lease.created_us)) is None
    assert engine.lease("t", ClearExpired(lease.created_us + 1)) == lease
    with refused(LeaseLost):
        engine.append("t", [entry("a")], fence=lease.fence)
    short = acquire(engine, ttl_seconds=0.05)
    wait_for_expiry(engine)
    cleared = engine.lease("t", ClearExpired())
    assert cleared == short
    assert acquire(place.reopen(engine), "you").fence > short.fence


@CASES
def leases_of_different_threads_are_independent(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a")
    fork_of(engine, "t", "a")
    acquire(engine)
    assert engine.lease("f", Acquire("you", 60)) is not None
    with refused(NotFound):
        engine.lease("nobody", Inspect())


@CASES
def a_thread_made_anew_is_not_leased(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    acquire(engine)
    engine.purge("t")
    engine.create(thread("t", at=T0 + 1))
    assert place.reopen(engine).lease("t", Inspect()) is None


@CASES
def a_thread_made_anew_gives_no_fence_again(place: Place) -> None:
    engine = place.open()
    given: list[int] = []
    for n in range(3):
        engine.create(thread("t", at=T0 + n))
        lease = acquire(engine)
        for fence in given:  # a writer of the thread that was here before
            with refused(LeaseLost):
                engine.append("t", [entry("a")], fence=fence)
            with refused(LeaseLost):
                engine.lease("t", Renew(fence, 60))
        given.append(lease.fence)
        engine.purge("t")
        engine = place.reopen(engine)
    assert given == sorted(set(given))


@CASES
def nonsense_times_are_refused(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    for ttl_seconds in (0, -1, float("nan"), float("inf"), 1e12):
        with refused(InvalidInput):
            engine.lease("t", Acquire("me", ttl_seconds))
    assert engine.lease("t", Inspect()) is None
