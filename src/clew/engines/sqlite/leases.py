"""Leases as rows. `core.lease_rules` has the rules, this module stores."""

from __future__ import annotations

import apsw
from msgspec.structs import astuple

from clew.core.codec import digest_fields
from clew.core.lease_rules import Instant, LeaseState, step_lease
from clew.core.model import Lease, LeaseRequest
from clew.engines.shared.tables import rows
from clew.engines.shared.tables.rows import one

NAMES = "fence, owner, turn, created_us, until_us, until_ns, era"
COLUMNS = ", ".join(f"l.{name}" for name in NAMES.split(", "))


def step(
    db: apsw.Connection, space: int, thread: str, request: LeaseRequest, now: Instant
) -> Lease | None:
    no = rows.thread_row(db, space, thread).no
    state = load(db, no)
    after, answer = step_lease(thread, state, request, now)
    if after != state:
        _store(db, thread, no, after)
    return answer


def load(db: apsw.Connection, no: int) -> LeaseState:
    row = one(db, f"SELECT {NAMES} FROM leases WHERE thread = ?", (no,))
    return LeaseState() if row is None else LeaseState(*row)


def lease_hash(thread: str, state: LeaseState) -> str:
    """What vouches for a lease: it is no record, and has no other hash."""
    return digest_fields("lease", thread, *astuple(state))


def _store(db: apsw.Connection, thread: str, no: int, state: LeaseState) -> None:
    db.execute(
        f"INSERT OR REPLACE INTO leases (thread, {NAMES}, hash) VALUES (?,?,?,?,?,?,?,?,?)",
        (
            no,
            state.fence,
            state.owner,
            state.turn,
            state.created_us,
            state.until_us,
            state.until_ns,
            state.era,
            lease_hash(thread, state),
        ),
    )
