"""A lease is measured by the server, and whoever was cut off cannot write after their time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from crews import Open
from servers.cluster import Cluster
from servers.processes import wait_until
from servers.proxy import Proxy

import clew
from clew.core.model import Acquire, Entry, Renew

DAY_SECONDS = 86_400


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets this process's wall clock off by so much."""
    now, now_ns = time.time, time.time_ns

    def by(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: now() + seconds)
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() + round(seconds * 1e9))

    return by


def server_us(cluster: Cluster, database: str) -> int:
    return int(cluster.sql("SELECT clew.now_us()", database=database)[0][0])


@pytest.mark.parametrize("days", [-400, 400])
def test_a_clients_clock_that_jumps_ends_no_lease_and_prolongs_none(
    days: int,
    jump: Callable[[float], None],
    beside: clew.Store,
    postgres_cluster: Cluster,
    database: str,
) -> None:
    thread = beside.create("t")
    jump(days * DAY_SECONDS)
    before = server_us(postgres_cluster, database)
    lease = thread.leases.acquire("me", ttl_seconds=60)
    assert before <= lease.created_us <= server_us(postgres_cluster, database)
    assert lease.until_us == lease.created_us + 60_000_000
    jump(-days * DAY_SECONDS)
    with pytest.raises(clew.LeaseHeld):
        thread.leases.acquire("you", ttl_seconds=60)
    thread.append("event", 1, fence=lease.fence)
    renewed = thread.leases.renew(lease, ttl_seconds=0.05)
    wait_until(lambda: thread.leases.active() is None, "it runs out on the server's clock")
    with pytest.raises(clew.LeaseLost):
        thread.append("event", 2, fence=renewed.fence)


def test_a_holder_that_was_cut_off_cannot_write_after_somebody_took_over(
    store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    """The append was sent in time, and arrives when the lease is somebody else's."""
    thread = store.create("t")
    thread.append("event", "before")  # from now on an append is one statement, on a guess
    lease = thread.leases.acquire("zombie", ttl_seconds=0.5)
    proxy.black_hole()
    errors: list[BaseException] = []

    def write() -> None:
        with pytest.raises(clew.LeaseLost) as caught:
            thread.append("event", "written by a zombie", fence=lease.fence)
        errors.append(caught.value)

    zombie = threading.Thread(target=write)
    zombie.start()
    heir = _take_over(beside.get("t"))
    beside.get("t").append("event", "written by the heir", fence=heir.fence)
    proxy.heal()  # now it arrives
    zombie.join(60)
    assert [(error.fence, error.current) for error in errors] == [(lease.fence, heir.fence)]  # type: ignore[attr-defined]
    assert [entry.body for entry in beside.get("t").path()] == ["before", "written by the heir"]


@pytest.mark.parametrize("batch", [1, 3], ids=["an entry", "several"])
@pytest.mark.parametrize("taken", [False, True], ids=["nobody took over", "somebody took over"])
def test_a_statement_that_comes_late_writes_nothing(
    taken: bool, batch: int, store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    """The server itself refuses it: the thread has not moved, so only the lease can tell."""
    thread = store.create("t")
    thread.append("event", "before")
    lease = thread.leases.acquire("zombie", ttl_seconds=0.5)
    drafts = [clew.draft("event", n) for n in range(batch)]
    proxy.black_hole()
    errors: list[BaseException] = []

    def write() -> None:
        with pytest.raises(clew.LeaseLost) as caught:
            store.engine.append("t", drafts, fence=lease.fence)
        errors.append(caught.value)

    zombie = threading.Thread(target=write)
    zombie.start()
    if taken:
        _take_over(beside.get("t"))
    else:
        wait_until(lambda: beside.get("t").leases.active() is None, "the lease has run out")
    proxy.heal()
    zombie.join(60)
    assert len(errors) == 1
    assert [entry.body for entry in beside.get("t").path()] == ["before"]


def _take_over(thread: clew.Thread) -> clew.Lease:
    taken: list[clew.Lease] = []

    def attempt() -> bool:
        try:
            taken.append(thread.leases.acquire("heir", ttl_seconds=600))
        except clew.LeaseHeld:
            return False
        return True

    wait_until(attempt, "the lease can be taken over")
    return taken[0]


def test_of_many_who_want_a_lease_one_gets_it(
    postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    stores = [opened(postgres_cluster.dsn(database)) for _ in range(2)]
    stores[0].create("t")
    gate = threading.Barrier(8)
    fences: list[int] = []

    def want(n: int) -> None:
        thread = stores[n % 2].get("t")
        for _ in range(5):
            gate.wait(60)
            try:
                lease = thread.leases.acquire(f"w{n}", ttl_seconds=60)
            except clew.LeaseHeld:
                gate.wait(60)
                continue
            fences.append(lease.fence)
            thread.append("event", lease.fence, fence=lease.fence)
            gate.wait(60)  # until all have tried
            thread.leases.release(lease)

    workers = [threading.Thread(target=want, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert len(fences) == 5
    assert fences == sorted(set(fences))
    entries: list[Any] = [r for r in stores[0].get("t").read() if isinstance(r, Entry)]
    assert [entry.body for entry in entries] == fences


# --- the server goes away for a while ---------------------------------------------------------


@pytest.fixture
def fragile() -> Iterator[Cluster]:
    with Cluster(name="fragile") as cluster:
        yield cluster


def test_leases_and_renewals_survive_a_restart(fragile: Cluster, opened: Open) -> None:
    store = opened(fragile.dsn(), busy_seconds=60)
    thread = store.create("t")
    with thread.turn(owner="me", ttl_seconds=600) as turn:
        turn.append("event", "before")
        fragile.stop("immediate")
        renewed: list[Any] = []
        request = Renew(turn.lease.fence, 700)
        renewer = threading.Thread(target=lambda: renewed.append(store.engine.lease("t", request)))
        renewer.start()
        fragile.start()
        renewer.join(60)
        assert [(lease.fence, lease.owner) for lease in renewed] == [(turn.lease.fence, "me")]
        assert renewed[0].until > turn.lease.until
        with pytest.raises(clew.LeaseHeld):
            store.engine.lease("t", Acquire("you", 60))
        turn.append("event", "after")
    assert thread.unfinished_turn() is None
    assert thread.leases.active() is None
    store.close()
