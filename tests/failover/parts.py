"""The parts of the failover harness, as `make torture` runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from failover import group, leases, rounds
from faults.points import Outcome


@dataclass(frozen=True)
class Amount:
    """How many rounds of each part."""

    rounds: int
    lossy_rounds: int
    patroni_rounds: int  # for each way to break it; most of a minute each
    lease_rounds: int


SHORT = Amount(rounds=2, lossy_rounds=2, patroni_rounds=0, lease_rounds=1)
LONG = Amount(rounds=20, lossy_rounds=5, patroni_rounds=4, lease_rounds=5)

Part = Callable[[Amount, Outcome], None]


def synchronous_standby(amount: Amount, outcome: Outcome) -> None:
    rounds.run_pair(outcome, amount.rounds, ("none", "sender", "standby"))


def patroni_leader_killed(amount: Amount, outcome: Outcome) -> None:
    group.run_patroni(outcome, amount.patroni_rounds, group.kill_leader)


def patroni_leader_frozen(amount: Amount, outcome: Outcome) -> None:
    group.run_patroni(outcome, amount.patroni_rounds, group.freeze_leader)


def leases_over_failover(amount: Amount, outcome: Outcome) -> None:
    leases.run(outcome, amount.lease_rounds)


PARTS: dict[str, Part] = {
    "failover: primary killed, synchronous standby": synchronous_standby,
    "failover: Patroni, leader killed": patroni_leader_killed,
    "failover: Patroni, leader frozen": patroni_leader_frozen,
    "failover: leases": leases_over_failover,
}


# --- controls: the same on something that is broken, where failures must be found -----------


def asynchronous_standby(amount: Amount, outcome: Outcome) -> None:
    rounds.run_pair(outcome, amount.lossy_rounds, ("sender",), synchronous=False)


def repeated_under_new_ids(amount: Amount, outcome: Outcome) -> None:
    long = 3 * rounds.IMPATIENT_SECONDS
    options = {"repeat_under_new_ids": True, "stall_seconds": long}
    rounds.run_pair(outcome, amount.lossy_rounds, ("standby",), **options)


# With the words that a failure must have which is found for the right reason.
CONTROLS: dict[str, tuple[Part, str]] = {
    "failover: primary killed, asynchronous standby": (asynchronous_standby, "is lost"),
    "failover: unknown outcomes repeated under new ids": (repeated_under_new_ids, "is there 2"),
}
