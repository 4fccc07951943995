"""What an acknowledgement means is said as it is, and no more is acknowledged than that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from crews import Open
from servers.cluster import Cluster, dsn_of
from servers.processes import wait_until

import clew
from clew.core.model import Acquire

SAFE = {"fsync": "on", "full_page_writes": "on"}


DATABASE = "stores"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary with safe settings, and the standby that it waits for."""
    with Cluster(name="primary", settings=SAFE) as primary:
        primary.sql(f"CREATE DATABASE {DATABASE}")
        clew.open(primary.dsn(DATABASE)).close()
        yield primary, primary.standby()


@pytest.fixture
def primary(pair: tuple[Cluster, Cluster]) -> Cluster:
    return pair[0]


@pytest.fixture
def standby(pair: tuple[Cluster, Cluster]) -> Cluster:
    """It answers when a test begins, whatever the one before has done."""
    pair[1].thaw()
    return pair[1]


@pytest.fixture
def address(primary: Cluster, standby: Cluster, request: pytest.FixtureRequest) -> str:
    """A namespace for each test: a database would have to be copied to disk, twice."""
    return primary.dsn(DATABASE, namespace=request.node.name)


def told(address: str) -> tuple[str, str]:
    with clew.open(address) as store:
        return store.properties.durability, store.properties.acknowledged


def test_what_settings_mean_is_said(primary: Cluster, address: str) -> None:
    before = dict(primary.settings)
    alone = {"synchronous_standby_names": ""}
    try:
        for settings, durability, words in (
            ({}, "full", r"on a standby's too (standby)"),
            ({"synchronous_commit": "remote_write"}, "full", "in the memory of a standby"),
            ({"synchronous_commit": "local"}, "full", "on the primary's disk; a standby may lack"),
            ({"synchronous_commit": "off"}, "relaxed", "in the primary's memory"),
            (alone, "full", "on the primary's disk; a standby may lack"),
            (alone | {"synchronous_commit": "off"}, "relaxed", "in the primary's memory"),
            (alone | {"full_page_writes": "off"}, "none", "not durable: full_page_writes is off"),
            (alone | {"fsync": "off"}, "none", "not durable: fsync is off"),
        ):
            primary.configure(**{**before, "synchronous_commit": "on", **settings})
            assert told(address)[0] == durability, settings
            assert words in told(address)[1], settings
    finally:
        primary.configure(**{**before, "synchronous_commit": "on"})


def test_a_role_with_settings_of_its_own_is_told_what_they_mean(
    primary: Cluster, address: str
) -> None:
    """What counts is the session that writes, not what the server does for others."""
    careless = f"{address}&options=-csynchronous_commit%3Doff"
    assert told(careless)[0] == "relaxed"
    assert told(address)[0] == "full"


def test_a_standby_says_so_and_the_primary_is_found_beside_it(
    primary: Cluster, standby: Cluster, opened: Open
) -> None:
    with pytest.raises(clew.Unavailable, match="read-only standby"):
        clew.open(standby.dsn(DATABASE))
    opened(dsn_of([standby, primary], DATABASE, target_session_attrs="read-write")).create("t")
    with pytest.raises(clew.Unavailable, match="no host of the address is a primary"):
        clew.open(standby.dsn(DATABASE, target_session_attrs="read-write"))
    both = dsn_of([standby, standby], DATABASE, target_session_attrs="read-write")
    with pytest.raises(clew.Unavailable, match="no host of the address is a primary"):
        clew.open(both, busy_seconds=0.5)  # one of them might have become it


# --- waiting for the standby ------------------------------------------------------------------


def waiting(primary: Cluster) -> list[int]:
    query = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return [row[0] for row in primary.sql(query)]


def test_what_the_standby_has_not_confirmed_is_not_acknowledged(
    primary: Cluster, standby: Cluster, address: str, opened: Open
) -> None:
    store = opened(address, busy_seconds=60)
    store.create("t")
    hasty = opened(address, busy_seconds=3)
    hasty.get("t")
    draft = clew.draft("event", 1)
    standby.freeze()
    for _ in range(2):  # the retry finds the entry stored, and that is not enough
        with pytest.raises(clew.Unavailable) as caught:
            hasty.engine.append("t", [draft])
        assert caught.value.committed is None
        assert [record.id for record in hasty.engine.read("t")] == [draft.id]
    assert store.get("t").leaf == draft.id, "reading does not wait"
    standby.thaw()
    written = store.engine.append("t", [draft])
    assert [(record.id, record.seq) for record in written] == [(draft.id, 1)]
    standby.catch_up(primary)
    query = "SELECT seq FROM clew.records WHERE id = %s"
    assert standby.sql(query, draft.id, database=DATABASE) == [(1,)]


@pytest.mark.parametrize("end", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_wait_that_was_called_off_is_no_acknowledgement(
    end: str, primary: Cluster, standby: Cluster, address: str, opened: Open
) -> None:
    """The server says success, and only warns that the standby may not have it."""
    store = opened(address, busy_seconds=60)
    store.create("t")
    standby.freeze()
    written: list[Any] = []
    draft = clew.draft("event", 1)
    writer = threading.Thread(target=lambda: written.extend(store.engine.append("t", [draft])))
    writer.start()
    ended: set[int] = set()
    for _ in range(2):
        wait_until(lambda: set(waiting(primary)) - ended != set(), "it waits for the standby")
        for pid in set(waiting(primary)) - ended:
            primary.sql(f"SELECT {end}(%s)", pid)
            if end == "pg_terminate_backend":
                ended.add(pid)
    wait_until(lambda: set(waiting(primary)) - ended != set(), "it waits again")
    assert written == []
    standby.thaw()
    writer.join(60)
    assert [record.id for record in written] == [draft.id]
    assert len(store.engine.read("t")) == 1


@pytest.mark.parametrize("what", ["create", "facts", "lease", "blobs", "purge"])
def test_nothing_else_that_is_written_is_acknowledged_before(
    what: str, primary: Cluster, standby: Cluster, address: str, opened: Open
) -> None:
    store = opened(address, busy_seconds=60)
    store.create("t").append("event", 1)
    calls: dict[str, Any] = {
        "create": lambda: store.create("u").id,
        "facts": lambda: store.create("u", tags=["x"]).id,
        "lease": lambda: store.engine.lease("t", Acquire("me", 600)).owner,
        "blobs": lambda: store.blobs.has(store.blobs.put(b"x")),
        "purge": lambda: store.purge("t").records,
    }
    answers = {"create": "u", "facts": "u", "lease": "me", "blobs": True, "purge": 1}
    standby.freeze()
    given: list[Any] = []
    caller = threading.Thread(target=lambda: given.append(calls[what]()))
    caller.start()
    for _ in range(2):
        wait_until(lambda: waiting(primary) != [], "it waits for the standby")
        for pid in waiting(primary):
            primary.sql("SELECT pg_cancel_backend(%s)", pid)
    wait_until(lambda: waiting(primary) != [], "it waits again")
    assert given == []
    standby.thaw()
    caller.join(60)
    assert given == [answers[what]]


def test_what_was_acknowledged_is_there_after_a_failover(opened: Open) -> None:
    with Cluster(name="first") as first:
        second = first.standby(name="second")
        both = dsn_of([first, second], target_session_attrs="read-write")
        store = opened(both, busy_seconds=60)
        thread = store.create("t")
        written = [thread.append("event", n).id for n in range(20)]
        lease = thread.leases.acquire("me", ttl_seconds=600)
        first.kill()
        second.promote()
        written.append(thread.append("event", "after", fence=lease.fence).id)
        assert thread.leases.renew(lease, ttl_seconds=700).fence == lease.fence
        assert [entry.id for entry in thread.path()] == written
        assert store.verify() == []
        store.close()
