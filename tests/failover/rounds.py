"""Rounds of failover under load, and what they came to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from failover.ledger import Ack, Contents, Finding, compare
from failover.load import THREADS, Load
from failover.pair import Pair, Stall
from faults.points import Outcome

import clew

IMPATIENT_SECONDS = 0.3
STALL_SECONDS = 0.2  # shorter, so that nobody calls off a wait meanwhile
ACKS_BEFORE = 20  # for each writer, with the standby in place
ACKS_AFTER = 5
ACKS_STALLED = 150  # in all, which an asynchronous standby will lack


@dataclass
class Tally:
    """What the rounds of one run came to, for one line of the report."""

    load: Load
    lossy: bool = False  # a loss is expected; what is left must be whole all the same
    rounds: int = 0
    first_gaps: list[float] = field(default_factory=list)  # until somebody was acknowledged again
    gaps: list[float] = field(default_factory=list)  # until everybody was
    lost: set[tuple[str, str]] = field(default_factory=set)
    doubled: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    late: int | None = None  # acknowledged by an old leader that woke up
    last: Finding | None = None

    def after_round(self, failed: float) -> None:
        """Everybody goes on by themselves; then the store is compared with what they were told."""
        self.load.wait_for_acks(ACKS_AFTER)
        writers, until = self.load.writers(), time.monotonic()
        first, everybody = self.load.ledger.gaps(writers, failed, until)
        self.first_gaps.append(first)
        self.gaps.append(everybody)
        self.rounds += 1
        self.check(f"round {self.rounds}")

    def check(self, when: str) -> None:
        acks: Sequence[Ack] = list(self.load.ledger.catch_up().acks)
        with clew.open(self.load.address, busy_seconds=60) as store:
            contents = Contents.of(store, THREADS)
            found = compare(acks, self.load.ledger.catch_up(), contents)
            found.problems += [f"verify: {problem.message}" for problem in store.verify()]
        found.problems += self.load.disappointed()
        self.lost |= found.lost
        self.doubled |= set(found.doubled)
        wrong = found.problems if self.lossy else [*found.problems, *found.misheard]
        self.problems += [f"{when}: {problem}" for problem in wrong]
        if self.lossy and wrong:
            raise RuntimeError(f"not whole: {self.problems}")
        self.last = found

    def tell(self, outcome: Outcome) -> None:
        ledger = self.load.ledger
        outcome.points += self.rounds
        outcome.failures += [
            *(f"{id} in {thread!r} was acknowledged and is lost" for thread, id in self.lost),
            *self.doubled,
            *dict.fromkeys(self.problems),
        ]
        acknowledged = sum(len(ack.ids) for ack in ledger.acks)
        outcome.notes.append(
            f"{acknowledged:,} entries acknowledged, {len(self.lost):,} lost,"
            f" {len(self.doubled):,} doubled"
        )
        outcome.notes.append(self._unknown())
        outcome.notes.append(f"gap {span(self.gaps)} (the first again: {span(self.first_gaps)})")
        if self.late is not None:
            outcome.notes.append(f"{self.late} acknowledged by the old leader when it woke up")

    def _unknown(self) -> str:
        assert self.last is not None
        ledger = self.load.ledger
        uncertain = {(one.writer, one.item) for one in ledger.unknown}
        repeated = uncertain & {(ack.writer, ack.item) for ack in ledger.acks}
        return (
            f"{len(uncertain):,} unknown to their writers: {len(repeated):,} repeated until"
            f" acknowledged, of the others {self.last.unknown_there:,} there and"
            f" {self.last.unknown_not_there:,} not"
        )


def span(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    return f"median {statistics.median(seconds):.1f} s, max {max(seconds):.1f} s"


def run_pair(
    outcome: Outcome,
    rounds: int,
    stalls: Sequence[Stall],
    *,
    synchronous: bool = True,
    repeat_under_new_ids: bool = False,
    stall_seconds: float = STALL_SECONDS,
) -> None:
    """Primary and standby; the primary dies by SIGKILL, the standby takes over, 1, 2, 3, …"""
    options = {"repeat_under_new_ids": repeat_under_new_ids}
    with (
        Pair(synchronous=synchronous) as pair,
        Load(pair.address(), impatient_seconds=IMPATIENT_SECONDS, **options) as load,
    ):
        tally = Tally(load, lossy=not synchronous)
        for n in range(rounds):
            if n:
                pair.rebuild()
            load.wait_for_acks(ACKS_BEFORE)
            stall(pair, load, stalls[n % len(stalls)], stall_seconds)
            failed = time.monotonic()
            pair.fail_over()
            tally.after_round(failed)
        load.stop()
        tally.check("the end")
        tally.tell(outcome)


def stall(pair: Pair, load: Load, how: Stall, seconds: float) -> None:
    """The last moments of the primary. Whoever does not wait for the standby writes on."""
    pair.stall(how)
    if how == "none":
        return
    if pair.synchronous:
        time.sleep(seconds)
    else:
        load.wait_for_total(ACKS_STALLED)
