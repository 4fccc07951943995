"""The rules of leases, as pure functions: who may write a thread, and until when."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from clew.core.errors import Corrupt, InvalidInput, LeaseHeld, LeaseLost
from clew.core.facts import is_time
from clew.core.model import Acquire, ClearExpired, Inspect, Lease, LeaseRequest, Release, Renew

TTL_SECONDS_MAX = 7 * 24 * 3600.0
_TTL_NS_MAX = round(TTL_SECONDS_MAX * 1e9)
FENCE_MAX = 2**63 - 1  # what every database takes
_STEP_MAX = 2**20


class Instant(Struct, frozen=True):
    """Now, on an engine's clock: a number that only grows within one `era`, and wall time."""

    now_ns: int
    era: str
    wall_us: int


class LeaseState(Struct, frozen=True):
    """A thread's lease as it is stored. It stays after the release, for the fence to grow."""

    fence: int = 0
    owner: str | None = None
    turn: str | None = None
    created_us: int = 0
    until_us: int = 0  # wall time, to be shown
    until_ns: int = 0  # the engine's clock, to be compared
    era: str = ""

    def live(self, thread: str, now: Instant) -> Lease | None:
        """The lease if it is in force. One from another era of the clock is over.

        So is one that lasts longer than any that was ever given: it was planted.
        """
        if self.owner is None or self.era != now.era or self.until_ns <= now.now_ns:
            return None
        if self.until_ns > now.now_ns + _TTL_NS_MAX:
            return None
        if not is_time(self.created_us) or not is_time(self.until_us):
            return None
        return self._as_lease(thread)

    def _as_lease(self, thread: str) -> Lease:
        owner = self.owner or ""
        return Lease(thread, owner, self.turn, self.fence, self.created_us, self.until_us)


def step_lease(
    thread: str, state: LeaseState, request: LeaseRequest, now: Instant
) -> tuple[LeaseState, Lease | None]:
    """The lease after a request, and the answer to it."""
    live = state.live(thread, now)
    if isinstance(request, Acquire):
        return _acquire(thread, state, live, request, now)
    if isinstance(request, Renew):
        if live is None or live.fence != request.fence:
            current = None if live is None else live.fence
            raise LeaseLost(thread, fence=request.fence, current=current)
        renewed = _extended(state, request.ttl_seconds, now)
        return renewed, renewed.live(thread, now)
    if isinstance(request, Release):
        return (state if state.fence != request.fence else _ended(state)), None
    if isinstance(request, ClearExpired):
        return _clear(thread, state, live, request)
    assert isinstance(request, Inspect)
    return state, live


def _acquire(
    thread: str, state: LeaseState, live: Lease | None, request: Acquire, now: Instant
) -> tuple[LeaseState, Lease | None]:
    if live is not None:
        raise LeaseHeld(thread, owner=live.owner, until=live.until)
    taken = LeaseState(
        fence=_next_fence(thread, state.fence, now),
        owner=request.owner,
        turn=request.turn,
        created_us=now.wall_us,
    )
    taken = _extended(taken, request.ttl_seconds, now)
    return taken, taken.live(thread, now)


def _next_fence(thread: str, fence: int, now: Instant) -> int:
    """Greater than the last one, and other than all that this thread ever gave out.

    A store that was put back from a backup, a standby that lacked the last commits, and a thread
    that was purged and made anew know nothing of the fences in between. The clock does.
    """
    following = now.wall_us
    if following <= fence:
        # The clock was ahead once. By a step that depends on the moment, as one more than the last
        # would be what is given from a backup too.
        following = fence + 1 + now.wall_us % _STEP_MAX
    if following > FENCE_MAX:
        raise Corrupt(f"the lease of thread {thread!r}", f"{fence} is no fence that Clew gave")
    return following


def _clear(
    thread: str, state: LeaseState, live: Lease | None, request: ClearExpired
) -> tuple[LeaseState, Lease | None]:
    stale = request.cutoff_us is not None and state.created_us < request.cutoff_us
    if state.owner is None or (live is not None and not stale):
        return state, None
    return _ended(state), state._as_lease(thread)


def _ended(state: LeaseState) -> LeaseState:
    return replace(state, owner=None, turn=None)


def _extended(state: LeaseState, ttl_seconds: float, now: Instant) -> LeaseState:
    if type(ttl_seconds) not in (int, float) or not 0 < ttl_seconds <= TTL_SECONDS_MAX:
        raise InvalidInput("ttl_seconds", f"must be over 0 and at most {TTL_SECONDS_MAX:.0f}")
    return replace(
        state,
        until_ns=now.now_ns + round(ttl_seconds * 1e9),
        until_us=now.wall_us + round(ttl_seconds * 1e6),
        era=now.era,
    )
