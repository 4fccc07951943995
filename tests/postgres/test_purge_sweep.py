"""What is purged is gone, what somebody can still reach is not, whatever happens at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from crews import Open
from servers.cluster import Cluster

import clew
from clew.core.codec import digest

TABLES = ("threads", "records", "segments", "facts", "tags", "blobs", "blob_uses")


@pytest.fixture
def counts(postgres_cluster: Cluster, database: str) -> Callable[[], dict[str, int]]:
    """How many rows there are of each sort, seen or hidden."""

    def count() -> dict[str, int]:
        parts = ", ".join(f"(SELECT count(*) FROM clew.{table})" for table in TABLES)
        (row,) = postgres_cluster.sql(f"SELECT {parts}", database=database)
        return {table: found for table, found in zip(TABLES, row, strict=True) if found}

    return count


@pytest.fixture
def stores(opened: Open, postgres_cluster: Cluster, database: str) -> list[clew.Store]:
    """Three workers with connections and memories of their own."""
    return [opened(postgres_cluster.dsn(database), connections=4) for _ in range(3)]


def large(n: object) -> dict[str, str]:
    return {"text": f"{n} " * 5000}


def together(*jobs: Callable[[], object]) -> None:
    """Run jobs in threads; the first error is raised here."""
    errors: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)


# --- one after the other ----------------------------------------------------------------------


def test_a_purge_leaves_no_row(beside: clew.Store, counts: Callable[[], dict[str, int]]) -> None:
    thread = beside.create("t", tags=["a", "b"], facts={"note": large("fact")})
    thread.append("event", large("entry"))
    thread.append([clew.draft("event", n) for n in range(3)])
    thread.move(None)
    thread.append("event", 1)
    thread.leases.acquire("me", ttl_seconds=60)
    assert set(counts()) == set(TABLES)
    purged = beside.purge("t")
    assert (purged.records, purged.kept, purged.kept_for) == (8, 0, ())
    assert counts() == {}


def test_what_forks_share_goes_with_the_last_of_them(
    beside: clew.Store, counts: Callable[[], dict[str, int]]
) -> None:
    thread = beside.create("t", tags=["x"], facts={"secret": large("fact")})
    entries = thread.append([clew.draft("event", large(n)) for n in range(4)])
    beside.fork("t", at=entries[1].id, id="f")
    beside.get("f").append("event", large("f"))
    beside.fork("f", id="g")
    purged = beside.purge("t")
    assert (purged.records, purged.kept, purged.kept_for) == (4, 2, ("f", "g"))
    assert counts()["records"] == 5, "two that are shared, one of f, and the tags of both forks"
    assert counts()["blobs"] == 3
    assert beside.purge("f").kept_for == ("g",)
    assert [entry.body for entry in beside.get("g").path()] == [large(0), large(1), large("f")]
    assert beside.verify() == []
    beside.purge("g")
    assert counts() == {}


def test_a_blob_goes_with_the_last_that_uses_it(
    beside: clew.Store, counts: Callable[[], dict[str, int]]
) -> None:
    for name in "tu":
        beside.create(name).append("event", large("shared"))
    hash = beside.blobs.put(b"put by hand")
    beside.get("t").append("event", 1, blobs=[hash])
    assert counts()["blobs"] == 2
    beside.purge("t")
    assert counts()["blobs"] == 2
    beside.purge("u")
    assert counts() == {"blobs": 1}, "what was put by hand has its time of grace"
    assert beside.sweep(grace_seconds=3600).blobs == 0
    assert beside.sweep(grace_seconds=0).blobs == 1
    assert counts() == {}


def test_a_sweep_of_more_than_one_batch_reaches_all(
    beside: clew.Store, counts: Callable[[], dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.engines.postgres import blobs

    monkeypatch.setattr(blobs, "SWEEP_PAGE", 7)
    hashes = beside.engine.put_blobs([f"blob {n}".encode() for n in range(50)])
    thread = beside.create("t")
    thread.append("event", 1, blobs=hashes[:5])
    kept = set(hashes[:5]) | set(hashes[10:20])
    swept = beside.engine.sweep(grace_seconds=0, keep=lambda names: names & kept)
    assert (swept.blobs, counts()["blobs"]) == (35, 15)
    assert beside.engine.has_blobs(hashes) == kept


# --- at once ----------------------------------------------------------------------------------


def test_forks_that_race_with_purges_and_sweeps_are_whole_or_not_made(
    stores: list[clew.Store], beside: clew.Store, counts: Callable[[], dict[str, int]]
) -> None:
    """Sources are purged while they are forked; all bodies are blobs, which they share."""
    rounds = 8
    done = threading.Event()
    made: list[str] = []
    refused: list[str] = []

    def body(n: int) -> list[Any]:
        return [large(m) for m in range(n % 3 + 1)]

    def fork(store: clew.Store, worker: int) -> None:
        for n in range(rounds):
            try:
                handle = store.fork(f"s{n}", id=f"f{n}.{worker}")
                handle.append("event", large("own"))
                made.append(handle.id)
            except clew.NotFound:
                refused.append(f"f{n}.{worker}")
            gate.wait(60)

    def purge(store: clew.Store) -> None:
        for n in range(rounds):
            store.purge(f"s{n}")
            gate.wait(60)

    def sweep(store: clew.Store) -> None:
        while not done.is_set():
            store.sweep(grace_seconds=0)

    for n in range(rounds):
        beside.create(f"s{n}").append([clew.draft("event", part) for part in body(n)])
    gate = threading.Barrier(5, action=None)
    sweeper = threading.Thread(target=sweep, args=(beside,))
    sweeper.start()
    try:
        forkers = [lambda w=w: fork(stores[w % 3], w) for w in range(4)]
        together(*forkers, lambda: purge(stores[2]))
    finally:
        done.set()
        sweeper.join(60)
    assert len(made) + len(refused) == rounds * 4
    for name in made:
        n = int(name[1:].partition(".")[0])
        assert [entry.body for entry in beside.get(name).path()] == [*body(n), large("own")]
    assert beside.verify() == []
    for name in made:
        beside.purge(name)
    assert counts() == {}


def test_a_blob_that_an_append_was_acknowledged_with_is_never_swept(
    stores: list[clew.Store], beside: clew.Store
) -> None:
    done = threading.Event()
    kept: list[str] = []

    def write(store: clew.Store, worker: int) -> None:
        thread = store.create(f"t{worker}")
        for n in range(15):
            data = f"blob {n % 4}".encode() * 100  # the same few for all
            try:
                thread.append("event", n, blobs=[store.blobs.put(data)])
            except clew.InvalidInput:
                continue  # swept before it was named, as it may be without any grace
            kept.append(digest(data))
            if n % 5 == 4:
                store.purge(f"t{worker}")
                thread = store.create(f"t{worker}")

    def sweep(store: clew.Store) -> None:
        while not done.is_set():
            store.engine.sweep(grace_seconds=0)

    sweepers = [threading.Thread(target=sweep, args=(store,)) for store in stores[:2]]
    for sweeper in sweepers:
        sweeper.start()
    try:
        together(*(lambda w=w: write(stores[w % 3], w) for w in range(4)))
    finally:
        done.set()
        for sweeper in sweepers:
            sweeper.join(60)
    assert kept
    for info in beside.threads():
        for entry in beside.get(info.id).path():
            assert all(beside.blobs.get(hash) for hash in entry.blobs)
    assert beside.verify() == []


def test_a_large_body_survives_the_purge_of_everybody_else_who_has_it(
    stores: list[clew.Store], beside: clew.Store, counts: Callable[[], dict[str, int]]
) -> None:
    def come_and_go(store: clew.Store, worker: int) -> None:
        for n in range(10):
            name = f"t{worker}.{n}"
            thread = store.create(name)
            thread.append("event", large(n % 2))
            assert thread.path()[0].body == large(n % 2)
            if n % 3:
                store.purge(name)

    together(*(lambda w=w: come_and_go(stores[w % 3], w) for w in range(6)))
    assert beside.verify() == []
    assert counts()["blobs"] == 2
    assert {len(beside.get(info.id).path()) for info in beside.threads()} == {1}


def test_purges_of_a_family_at_once_leave_nothing(
    stores: list[clew.Store], beside: clew.Store, counts: Callable[[], dict[str, int]]
) -> None:
    """Forks of forks, purged in any order by several at once: somebody takes the last of it."""
    chance = random.Random(5)
    names = ["n0"]
    beside.create("n0").append("event", large(0))
    for n in range(1, 16):
        beside.fork(chance.choice(names), id=f"n{n}").append("event", large(n))
        names.append(f"n{n}")
    chance.shuffle(names)
    together(*(lambda w=w: [stores[w].purge(name) for name in names[w::3]] for w in range(3)))
    assert counts() == {}


def test_purging_one_thread_by_many_is_done_once(stores: list[clew.Store]) -> None:
    stores[0].create("t").append("event", 1)
    outcomes: list[str] = []

    def purge(store: clew.Store) -> None:
        try:
            outcomes.append(f"purged {store.purge('t').records}")
        except clew.NotFound:
            outcomes.append("not there")

    together(*(lambda w=w: purge(stores[w % 3]) for w in range(6)))
    assert sorted(outcomes) == ["not there"] * 5 + ["purged 1"]


def test_a_cleanup_beside_writers_loses_nothing_that_was_acknowledged(
    stores: list[clew.Store], beside: clew.Store
) -> None:
    old = beside.now() - timedelta(days=30)
    names = [f"t{n}" for n in range(24)]
    for name in names:
        beside.create(name, time=old).append("event", "old", time=old)
    written: list[tuple[str, str]] = []

    def write(store: clew.Store, worker: int) -> None:
        chance = random.Random(worker)
        for _ in range(20):
            name = chance.choice(names)
            try:
                written.append((name, store.get(name).append("event", "new").id))
            except (clew.NotFound, clew.LeaseHeld):
                pass  # it is going, or being looked at

    def clean(store: clew.Store) -> None:
        store.cleanup(older_than=timedelta(days=7))

    together(*(lambda w=w: write(stores[w], w) for w in range(3)), *[lambda: clean(beside)] * 2)
    there = {info.id for info in beside.threads()}
    assert {name for name, _ in written} <= there
    for name, id in written:
        assert id in [entry.id for entry in beside.get(name).path()]
    assert beside.verify() == []
