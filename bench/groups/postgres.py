"""postgres: the same work on a server of its own, against bare rows and against the peers there."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from multiprocessing import get_context
from typing import TYPE_CHECKING

import psycopg

import clew
from bench.figures import Figure, milliseconds, rate, ratio
from bench.groups.append import append_all
from bench.groups.flat import appender
from bench.groups.peers import compare_appends, compare_loads
from bench.messages import SEED, encoded, messages, prose, raw_bytes
from bench.peers import contestants_on_postgres
from bench.peers.clew_store import ClewStore
from bench.progress import say
from bench.server import BareRows, pgbench, relaxed, server
from bench.timing import in_rounds, per_second, take_turns
from bench.workshop import FEW_ENTRIES, Workshop, extend, short_thread

if TYPE_CHECKING:
    from servers.cluster import Cluster

_ROUNDS = 15
_APPENDS = 200
_WORKERS = 8
_TURNS = 60
_LONG = 100_000
_LOADED_THREADS = 10_000
_LOADED_ENTRIES = 100  # in each of them
_LISTED_THREADS = 100_000
_COMPRESSED = 2_000
_PAGE = 50


def measure(workshop: Workshop) -> Iterable[Figure]:
    with server() as cluster:
        fresh = lambda: cluster.dsn(cluster.create_database())  # noqa: E731
        yield from _append(fresh())
        yield from _workers(cluster, fresh())
        yield from _disk(fresh)
        yield from _peers(fresh)
        yield from _loaded(fresh)


def _append(dsn: str) -> Iterable[Figure]:
    batch = messages(_APPENDS)
    bodies = encoded(batch)
    with closing(BareRows(dsn)) as bare, clew.open(dsn) as store:
        thread = store.create()
        ours, theirs, after = in_rounds(
            _ROUNDS,
            lambda: (
                per_second(_APPENDS, lambda: append_all(thread, batch)),
                per_second(_APPENDS, lambda: bare.append_all(bodies)),
                per_second(_APPENDS, lambda: bare.append_after(bodies)),
            ),
        )
    name = "postgres: append, one connection"
    yield ratio(f"{name} / bare INSERT and COMMIT, rate", ours, theirs, at_least=0.75)
    # An append changes the head and adds a record, or another writer could not be told apart.
    limit = "postgres: limit: a bare head compared and set, and a bare INSERT, as one function"
    yield ratio(f"{limit} / bare INSERT and COMMIT, rate", after, theirs)
    yield ratio(f"{name} / that, rate", ours, after)
    yield rate(name, ours)
    yield rate("postgres: bare INSERT and COMMIT", theirs)


# --- many workers ---------------------------------------------------------------------------

_thread: clew.Thread


def _begin_worker(dsn: str) -> None:
    global _thread
    _thread = clew.open(dsn).create()


def _work(count: int) -> None:
    append_all(_thread, messages(count))


def _workers(cluster: Cluster, dsn: str) -> Iterable[Figure]:
    say(f"{_WORKERS} workers, each a process with a thread of its own")
    with ProcessPoolExecutor(_WORKERS, get_context("spawn"), _begin_worker, (dsn,)) as pool:

        def together(workers: int) -> None:
            for done in [pool.submit(_work, _APPENDS) for _ in range(workers)]:
                done.result()

        together(_WORKERS * 4)  # all of them have begun
        many, one = in_rounds(
            7,
            lambda: (
                per_second(_APPENDS * _WORKERS, lambda: together(_WORKERS)),
                per_second(_APPENDS, lambda: together(1)),
            ),
        )
    name = f"postgres: append, {_WORKERS} workers"
    yield ratio(f"{name} / one, rate", many, one, at_least=2)
    yield rate(name, many)
    if (cluster.binaries.folder / "pgbench").exists():
        yield from _pgbench(cluster, dsn, many)


def _pgbench(cluster: Cluster, dsn: str, ours: list[float]) -> Iterable[Figure]:
    """What the server itself can do here: one bare row a commit, by a client that costs little."""
    body = encoded(messages(3))[2]
    BareRows(dsn).close()
    many, one = in_rounds(
        3, lambda: tuple(pgbench(cluster, dsn, clients, 2, body) for clients in (_WORKERS, 1))
    )
    yield ratio(f"postgres: pgbench, bare rows, {_WORKERS} clients / one, rate", many, one)
    yield rate(f"postgres: pgbench, bare rows, {_WORKERS} clients", many)


# --- size -----------------------------------------------------------------------------------


def _disk(fresh: Callable[[], str]) -> Iterable[Figure]:
    batch = messages(10_000)
    for threads, what in ((1, "in one thread"), (100, "over 100 threads in turn")):
        with clew.open(relaxed(fresh())) as store:
            before = store.stats().stored_bytes
            handles = [store.create() for _ in range(threads)]
            for number, message in enumerate(batch):
                handles[number % threads].append_message(message)
            size = store.stats().stored_bytes - before
        name = f"postgres: disk, {len(batch):,} messages {what} / raw JSON"
        yield Figure(name, size / raw_bytes(batch), "x", bar=2)
    yield from _compressed(fresh)


def _compressed(fresh: Callable[[], str]) -> Iterable[Figure]:
    """What the server compresses itself: bodies over 2 kB, up to 8 KiB. By pglz without us."""
    chance = random.Random(SEED)
    bodies = [{"role": "user", "content": prose(chance, 600)} for _ in range(_COMPRESSED)]
    with ExitStack() as open_stores:
        threads, sizes = [], []
        for method in ("default", "pglz"):
            dsn = relaxed(fresh())
            store = open_stores.enter_context(clew.open(dsn))
            if method != "default":
                _compress_by(dsn, method)
            before = store.stats().stored_bytes
            threads.append(store.create())
            extend(threads[-1], bodies)
            sizes.append(store.stats().stored_bytes - before)
        ours, theirs = in_rounds(
            _ROUNDS, lambda: take_turns(3, *(thread.path for thread in threads))
        )
    name = f"postgres: {len(bodies):,} bodies of about 4 kB"
    yield Figure(f"{name} / raw JSON", sizes[0] / raw_bytes(bodies), "x")
    yield Figure(f"{name}, as set / by pglz", sizes[0] / sizes[1], "x")
    yield ratio(f"{name}, read, as set / by pglz", ours, theirs, at_most=1.1)


def _compress_by(dsn: str, method: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        for part in range(8):
            db.execute(
                f"ALTER TABLE clew.records_{part} ALTER COLUMN body SET COMPRESSION {method}"
            )


def _peers(fresh: Callable[[], str]) -> Iterable[Figure]:
    kinds = [ClewStore, *contestants_on_postgres()]
    yield from compare_appends("postgres", [(kind, fresh()) for kind in kinds])
    yield from compare_loads("postgres", [(kind, fresh()) for kind in kinds])


# --- flat, beside much ----------------------------------------------------------------------


def _loaded(fresh: Callable[[], str]) -> Iterable[Figure]:
    crowded, empty = fresh(), fresh()
    long = _build(crowded)
    with clew.open(crowded) as many, clew.open(empty) as few:
        yield from _by_length(many.get(long))
        yield from _by_neighbours(many, few)
        yield from _list(many)


def _build(dsn: str) -> str:
    """A million entries in 10,000 threads, a long one, and many that are almost empty."""
    total = _LOADED_THREADS * _LOADED_ENTRIES
    say(f"building {total:,} entries in {_LOADED_THREADS:,} threads")
    batch = messages(_LOADED_ENTRIES)
    with clew.open(relaxed(dsn)) as store:
        for number in range(_LOADED_THREADS):
            extend(store.create(title=f"Thread number {number}"), batch)
        long = store.create(title="The long one")
        extend(long, messages(_LONG))
        say(f"building {_LISTED_THREADS:,} threads")
        for number in range(_LOADED_THREADS + 1, _LISTED_THREADS):
            store.create(title=f"Thread number {number}")
        return long.id


def _by_length(long: clew.Thread) -> Iterable[Figure]:
    at_many, at_few = in_rounds(
        _ROUNDS, lambda: take_turns(_TURNS, appender(long), appender(short_thread(long.store)))
    )
    name = f"postgres: append at {_LONG:,} entries"
    yield ratio(f"{name} / at {FEW_ENTRIES}", at_many, at_few, at_most=1.2)
    yield milliseconds(name, at_many)


def _by_neighbours(many: clew.Store, few: clew.Store) -> Iterable[Figure]:
    crowded, alone = short_thread(many), short_thread(few)
    with_many, with_none = in_rounds(
        _ROUNDS, lambda: take_turns(_TURNS, appender(crowded), appender(alone))
    )
    total = _LOADED_THREADS * _LOADED_ENTRIES + _LONG
    name = f"postgres: append beside {total:,} entries in {_LISTED_THREADS:,} threads"
    yield ratio(f"{name} / alone in the store", with_many, with_none, at_most=1.3)
    yield milliseconds(name, with_many)
    yield from _on_many(many)


def _on_many(store: clew.Store) -> Iterable[Figure]:
    """Each append to another thread, whose head nobody remembers."""
    ids = itertools.cycle([info.id for info in store.list(limit=1000).items])
    supply = itertools.cycle(messages(1000))
    (taken,) = in_rounds(
        5, lambda: take_turns(_TURNS, lambda: store.get(next(ids)).append_message(next(supply)))
    )
    yield milliseconds("postgres: open another thread and append", taken)


def _list(store: clew.Store) -> Iterable[Figure]:
    name = f"postgres: first {_PAGE} of {_LISTED_THREADS:,} threads"
    by_created, by_updated = in_rounds(
        _ROUNDS,
        lambda: take_turns(
            30,
            lambda: store.list(order="created", limit=_PAGE),
            lambda: store.list(order="updated", limit=_PAGE),
        ),
    )
    yield milliseconds(f"{name} by created", by_created, at_most=10)
    yield milliseconds(f"{name} by updated", by_updated, at_most=10)
