"""Turns over a failover: kept by who reaches the new primary in time, lost by who was cut off."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from failover.holder import HOLDER
from failover.pair import Pair
from faults.points import Outcome
from servers.processes import private_folder, wait_until
from servers.proxy import Proxy

import clew
from clew.core.errors import ClewError, LeaseHeld, Unavailable
from clew.core.model import Entry

SCRIPT = Path(__file__).with_name("holder.py")
THIEF = "thief"
SHORT_SECONDS, KEPT_SECONDS, LONG_SECONDS = 2.0, 6.0, 300.0
WAIT_SECONDS = 90.0
ACKS = 10


class Holder:
    """The process that holds the turn."""

    def __init__(self, address: str, thread: str, ttl_seconds: float) -> None:
        self._folder = private_folder("holder", memory=True)
        self._log = self._folder / "log"
        self._log.touch()
        arguments = [address, thread, ttl_seconds, self._log]
        paths = [str(Path(clew.__file__).parents[1]), *filter(None, sys.path)]
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, *map(str, arguments)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def said(self, what: str) -> list[dict[str, Any]]:
        whole = self._log.read_text().split("\n")[:-1]
        return [line for line in map(json.loads, whole) if line["said"] == what]

    def wait_for(self, what: str, count: int = 1) -> None:
        """Until it has said so, so many times more than now."""
        wanted = len(self.said(what)) + count

        def heard() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"the holder ended by itself, with {self.process.returncode}")
            return len(self.said(what)) >= wanted

        wait_until(heard, f"the holder says {what!r}", seconds=WAIT_SECONDS)


class Scene:
    """A thread, its holder and whoever takes over; `problem` is what went wrong, if anything."""

    def __init__(self, pair: Pair, thread: str) -> None:
        self.pair, self.thread = pair, thread
        with self.store() as store:
            store.create(thread)

    @contextmanager
    def store(self, address: str | None = None) -> Iterator[clew.Store]:
        with clew.open(address or self.pair.address(), busy_seconds=60.0) as store:
            yield store

    def holder(self, address: str | None, ttl_seconds: float) -> Holder:
        return Holder(address or self.pair.address(), self.thread, ttl_seconds)

    def take_over(self, address: str | None = None, *, by_force: bool = False) -> None:
        """Somebody else waits for the lease to run out, or ends it, and writes a turn."""
        with self.store(address) as store:
            thread = store.get(self.thread)
            if by_force:
                thread.leases.clear_expired(datetime.now(UTC))
            with thread.turn(owner=THIEF, wait_seconds=WAIT_SECONDS) as turn:
                for number in range(ACKS):
                    turn.append("event", {"number": number})

    def problem(self, holder: Holder) -> str | None:
        """The holder's entries are all from before the other one's, and none of them is missing."""
        told = {ack["id"] for ack in holder.said("ack")}
        with self.store() as store:
            records = list(store.get(self.thread).read())
        entries = [record for record in records if isinstance(record, Entry)]
        started = {e.turn: e.body["owner"] for e in entries if "owner" in (e.body or {})}
        owners = [started[entry.turn] for entry in entries]
        first = owners.index(THIEF) if THIEF in owners else len(owners)
        if HOLDER in owners[first:]:
            return f"the holder wrote after it was cut off: {owners}"
        if missing := told - {entry.id for entry in entries}:
            return f"{missing} were acknowledged to the holder, and are not there"
        return None


# --- kept -----------------------------------------------------------------------------------


class Competitors:
    """Others who try to take the lease and to write without one, all the time."""

    def __init__(self, thread: clew.Thread) -> None:
        self._theirs = thread
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.held = 0
        self.successes: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self._try(lambda: self._theirs.leases.acquire(THIEF, ttl_seconds=1.0), "a lease")
            self._try(lambda: self._theirs.append("event", {"owner": THIEF}), "an append")

    def _try(self, act: Callable[[], object], what: str) -> None:
        try:
            act()
            self.successes.append(what)
        except LeaseHeld:
            self.held += 1
        except Unavailable:
            pass


def kept_over_failover(pair: Pair, n: int) -> str | None:
    """Renewals reach the new primary in time: the turn goes on, and nobody else gets in."""
    scene = Scene(pair, f"kept {n}")
    with scene.holder(None, KEPT_SECONDS) as holder, scene.store() as store:
        holder.wait_for("ack", ACKS)
        with Competitors(store.get(scene.thread)) as others:
            pair.fail_over()
            failed = time.monotonic()
            holder.wait_for("ack", ACKS)
            # Longer than the lease would have lasted that the old primary knew of.
            wait_until(lambda: time.monotonic() > failed + KEPT_SECONDS + 1.0, "the time")
            holder.wait_for("ack", ACKS)
        if holder.said("lost"):
            return "the holder lost its lease in a failover"
        if others.successes or not others.held:
            return f"others got {others.successes}, and were refused {others.held} times"
        return scene.problem(holder)


# --- lost -----------------------------------------------------------------------------------


def network_cut(pair: Pair, n: int) -> str | None:
    """Nothing arrives any more; what was on its way arrives when it is too late."""
    scene = Scene(pair, f"network cut {n}")
    with Proxy(pair.primary) as proxy, scene.holder(proxy.dsn(), SHORT_SECONDS) as holder:
        holder.wait_for("ack", ACKS)
        proxy.black_hole()
        scene.take_over()
        proxy.heal()
        holder.wait_for("lost")
        return scene.problem(holder)


def process_stopped(pair: Pair, n: int) -> str | None:
    scene = Scene(pair, f"process stopped {n}")
    with scene.holder(None, SHORT_SECONDS) as holder:
        holder.wait_for("ack", ACKS)
        os.kill(holder.process.pid, signal.SIGSTOP)
        scene.take_over()
        os.kill(holder.process.pid, signal.SIGCONT)
        holder.wait_for("lost")
        return scene.problem(holder)


WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'clew'
"""


def primary_deposed(pair: Pair, n: int) -> str | None:
    """The holder's server hangs, is replaced, and wakes up as if nothing had happened.

    There the lease is still good and the append is done, but its standby is gone, so that it is
    never acknowledged. (One that the standby had confirmed before is, and the new primary has it.)
    """
    scene = Scene(pair, f"primary deposed {n}")
    with scene.holder(None, LONG_SECONDS) as holder:
        holder.wait_for("ack", ACKS)
        old = pair.depose()
        scene.take_over(pair.primary.dsn(), by_force=True)
        old.thaw()
        wait_until(lambda: old.sql(WAITING)[0][0] > 0, "the deposed primary waits for its standby")
        old.kill()
        holder.wait_for("lost")
        return scene.problem(holder)


SCENES: dict[str, Callable[[Pair, int], str | None]] = {
    "kept over a failover": kept_over_failover,
    "network cut": network_cut,
    "process stopped": process_stopped,
    "primary deposed": primary_deposed,
}


def run(outcome: Outcome, rounds: int) -> None:
    with Pair() as pair:
        for n in range(rounds):
            for name, act in SCENES.items():
                outcome.add(f"{name}, round {n + 1}", tried(act, pair, n))
                if not pair.complete:
                    pair.rebuild()
    outcome.notes.append(", ".join(SCENES))


def tried(act: Callable[[Pair, int], str | None], pair: Pair, n: int) -> str | None:
    try:
        return act(pair, n)
    except (ClewError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
