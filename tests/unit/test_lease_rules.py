"""The rules of leases, the pure functions: who may write, until when, under which fence."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import clew
from clew.core.errors import Corrupt, InvalidInput
from clew.core.lease_rules import FENCE_MAX, TTL_SECONDS_MAX, Instant, LeaseState, step_lease
from clew.core.model import Acquire, ClearExpired, Inspect, Release, Renew

NOON_US = 1_800_000_000_000_000


def at(wall_us: int) -> Instant:
    return Instant(now_ns=wall_us * 1000, era="", wall_us=wall_us)


def taken(state: LeaseState, now: Instant) -> LeaseState:
    """The lease after it was acquired and released."""
    held, lease = step_lease("t", state, Acquire("me", 1), now)
    assert lease is not None
    assert lease.fence == held.fence
    return step_lease("t", held, Release(held.fence), now)[0]


def test_fences_that_were_counted_from_one_go_on_from_the_clock() -> None:
    assert taken(LeaseState(fence=7), at(NOON_US)).fence == NOON_US


def test_a_clock_that_goes_back_takes_no_fence_with_it() -> None:
    state, seen = LeaseState(), [0]
    for wall_us in (NOON_US, NOON_US - 3_600_000_000, NOON_US - 1, 0, -5, NOON_US + 10**9):
        state = taken(state, at(wall_us))
        seen.append(state.fence)
    assert seen == sorted(set(seen))
    assert seen[-1] == NOON_US + 10**9


def test_a_backup_from_before_the_clock_was_set_back_gives_no_fence_again() -> None:
    """The fences are ahead of the clock, on both sides of the backup."""
    backup = taken(LeaseState(), at(NOON_US))
    given, state = set(), backup
    for n in range(50):
        state = taken(state, at(NOON_US - 10**12 + n * 7_919))
        given.add(state.fence)
    anew = taken(backup, at(NOON_US - 10**12 + 3_600_000_123))
    assert anew.fence not in given


def test_a_fence_that_cannot_grow_is_damage() -> None:
    with pytest.raises(Corrupt):
        taken(LeaseState(fence=FENCE_MAX), at(NOON_US))
    with pytest.raises(clew.LeaseLost):
        step_lease("t", LeaseState(fence=5), Renew(FENCE_MAX, 1), at(NOON_US))


# --- how long, and who ---


def held(now: Instant, ttl_seconds: float = 10) -> LeaseState:
    return step_lease("t", LeaseState(), Acquire("me", ttl_seconds, "a turn"), now)[0]


def later(now: Instant, seconds: float) -> Instant:
    us = round(seconds * 1e6)
    return Instant(now.now_ns + us * 1000, now.era, now.wall_us + us)


def test_a_lease_lasts_until_its_time_and_not_a_moment_longer() -> None:
    now = at(NOON_US)
    state = held(now)
    lease = state.live("t", later(now, 9.999999))
    assert lease is not None
    assert (lease.owner, lease.turn, lease.thread) == ("me", "a turn", "t")
    assert (lease.created_us, lease.until_us) == (NOON_US, NOON_US + 10_000_000)
    assert state.live("t", later(now, 10)) is None
    assert state.live("t", Instant(now.now_ns, "another boot", now.wall_us)) is None


def test_only_the_live_fence_renews_and_the_time_counts_from_now() -> None:
    now = at(NOON_US)
    state = held(now)
    half = later(now, 5)
    renewed, lease = step_lease("t", state, Renew(state.fence, 10), half)
    assert lease is not None
    assert (lease.until_us, lease.fence) == (NOON_US + 15_000_000, state.fence)
    assert renewed.live("t", later(now, 14)) is not None
    for fence, when in ((state.fence + 1, half), (state.fence - 1, half)):
        with pytest.raises(clew.LeaseLost) as lost:
            step_lease("t", state, Renew(fence, 10), when)
        assert lost.value.current == state.fence
    with pytest.raises(clew.LeaseLost) as lost:
        step_lease("t", state, Renew(state.fence, 10), later(now, 11))
    assert lost.value.current is None


def test_a_release_of_another_fence_does_nothing() -> None:
    now = at(NOON_US)
    state = held(now)
    assert step_lease("t", state, Release(state.fence + 1), now) == (state, None)
    released, answer = step_lease("t", state, Release(state.fence), now)
    assert (answer, released.owner, released.turn) == (None, None, None)
    assert released.fence == state.fence
    assert step_lease("t", state, Inspect(), now)[1] is not None
    assert step_lease("t", released, Inspect(), now) == (released, None)


def test_what_is_held_is_refused_and_what_is_over_is_taken() -> None:
    now = at(NOON_US)
    state = held(now)
    with pytest.raises(clew.LeaseHeld) as refused:
        step_lease("t", state, Acquire("me", 1), now)
    assert (refused.value.owner, refused.value.thread) == ("me", "t")
    taken_over, lease = step_lease("t", state, Acquire("you", 1), later(now, 10))
    assert lease is not None
    assert (lease.owner, taken_over.fence > state.fence) == ("you", True)


def test_only_what_is_over_or_older_than_a_cutoff_is_cleared() -> None:
    now = at(NOON_US)
    state = held(now)
    assert step_lease("t", state, ClearExpired(), now) == (state, None)
    assert step_lease("t", state, ClearExpired(NOON_US), now) == (state, None)
    cleared, removed = step_lease("t", state, ClearExpired(NOON_US + 1), now)
    assert removed is not None
    assert (removed.fence, cleared.owner) == (state.fence, None)
    over, removed = step_lease("t", state, ClearExpired(), later(now, 10))
    assert removed is not None
    assert step_lease("t", over, ClearExpired(), later(now, 10)) == (over, None)


@pytest.mark.parametrize("ttl", [0, -1, TTL_SECONDS_MAX + 1, float("nan"), True, "5", None])
def test_a_time_that_is_none_is_refused(ttl: Any) -> None:
    with pytest.raises(InvalidInput):
        step_lease("t", LeaseState(), Acquire("me", ttl), at(NOON_US))


def test_the_longest_time_is_a_week() -> None:
    state = held(at(NOON_US), TTL_SECONDS_MAX)
    assert state.until_us - NOON_US == 7 * 24 * 3600 * 1_000_000


def test_the_last_fence_of_all_can_be_given() -> None:
    assert FENCE_MAX == 2**63 - 1, "what every database takes"
    with pytest.raises(Corrupt):
        taken(LeaseState(fence=FENCE_MAX), at(NOON_US))
    assert taken(LeaseState(fence=FENCE_MAX - 1), at(-(2**20) * 7)).fence == FENCE_MAX


def test_a_fence_is_not_given_twice_in_one_moment() -> None:
    now = at(NOON_US)
    first = taken(LeaseState(), now)
    second = taken(first, now)
    assert first.fence == NOON_US
    assert second.fence > first.fence


def test_the_longest_lease_is_in_force_from_its_first_moment() -> None:
    now = at(NOON_US)
    state, lease = step_lease("t", LeaseState(), Acquire("me", TTL_SECONDS_MAX), now)
    assert lease is not None
    assert state.live("t", now) == lease
    longer = replace(state, until_ns=state.until_ns + 1)
    assert longer.live("t", now) is None, "no such lease was ever given"


@pytest.mark.parametrize("field", ["created_us", "until_us"])
def test_a_planted_time_that_no_clock_shows_keeps_no_writer_out(field: str) -> None:
    now = at(NOON_US)
    planted = replace(held(now), **{field: 2**63 - 1})
    assert planted.live("t", now) is None
    assert step_lease("t", planted, Acquire("you", 1), now)[1] is not None
