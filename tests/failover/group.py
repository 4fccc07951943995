"""Three servers under Patroni: the leader is killed or frozen under load, and the others go on."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable

from failover.load import Load
from failover.rounds import ACKS_BEFORE, Tally
from failover.worker import Job
from faults.points import Outcome
from servers.cluster import dsn_of
from servers.patroni import Node, Patroni, why_not
from servers.processes import wait_until

# More than Patroni takes to find a new leader, so that the engine gets through by itself.
PATIENT_SECONDS = 90.0
BELIEVER = "believer"
LOG_CHARACTERS = 6000

Break = Callable[[Patroni, Load, Tally], None]


def run_patroni(outcome: Outcome, rounds: int, breaks: Break) -> None:
    if reason := why_not() if rounds else "only in the long form":
        outcome.notes.append(f"not run: {reason}")
        return
    with Patroni() as group, Load(group.dsn(), patient_seconds=PATIENT_SECONDS) as load:
        tally = Tally(load)
        for _ in range(rounds):
            try:
                wait_until_ready(group)
                load.wait_for_acks(ACKS_BEFORE)
                breaks(group, load, tally)
            except TimeoutError as error:
                raise TimeoutError(f"{error}\n{logs(group)}") from None
        load.stop()
        tally.check("the end")
        tally.tell(outcome)


def wait_until_ready(group: Patroni) -> None:
    """All follow, and Patroni has written down which standby may take over.

    It does so a moment after the server waits for that standby. Whoever kills the leader in
    between waits for it to come back: nobody else may lead, since nobody is known to have all.
    """
    group.wait_for_standbys(len(group.nodes) - 1)
    wait_until(lambda: any(map(may_take_over, group.nodes)), "a standby that may take over")


def may_take_over(node: Node) -> bool:
    try:
        url = f"http://127.0.0.1:{node.rest_port}/synchronous"
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def logs(group: Patroni) -> str:
    """What Patroni said last, node by node."""
    words = {
        node.name: node.log.read_text(errors="replace")[-LOG_CHARACTERS:] for node in group.nodes
    }
    return "\n".join(f"--- {name}\n{said}" for name, said in words.items())


def kill_leader(group: Patroni, load: Load, tally: Tally) -> None:
    """As when the machine dies; it comes back later and follows."""
    failed = time.monotonic()
    node = group.kill_leader()
    tally.after_round(failed)
    group.start_node(node)


def freeze_leader(group: Patroni, load: Load, tally: Tally) -> None:
    """As when the machine hangs. It wakes up in the belief that it still leads.

    One writer knows no other server. What it asked of the frozen one is done when that wakes up,
    and must not be acknowledged, unless the others have it.
    """
    node = group.wait_for_leader()
    name = f"{BELIEVER}{tally.rounds}"
    with load.beside(Job(name, dsn_of([node]), "", [])):
        failed = time.monotonic()
        assert group.freeze_leader() is node
        since = time.monotonic()
        tally.after_round(failed)
        group.thaw(node)
        group.wait_for_standbys(len(group.nodes) - 1)
        acks = load.ledger.catch_up().acks
    late = [ack for ack in acks if ack.writer == f"{name}.0" and ack.time > since]
    # If there are any, their standby had confirmed them before; the comparison sees whether.
    tally.late = len(late) + (tally.late or 0)
