"""What a call reads does not grow with the store, also before the server knows its tables.

The planner knows nothing of fresh tables, and a wrong guess reads a whole namespace: right, and
slower with every thread. So it is counted how many rows the server looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from crews import Open
from servers.cluster import Cluster

import clew
from clew.core import drafts
from clew.core.codec import digest
from clew.core.model import Acquire, Inspect, Release, ThreadQuery
from clew.engines.postgres.blobs import remove
from clew.engines.postgres.rows import to_bytes

THREADS, ENTRIES = 120, 40
ROWS_MAX = 3000  # of 5,000 records; the planner may well read all of what is a few pages

COUNT = """
SELECT coalesce(sum(seq_tup_read), 0)::bigint
     + (SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes)
  FROM pg_stat_user_tables
"""


@pytest.fixture(scope="module")
def loaded(postgres_cluster: Cluster) -> str:
    """A store with many threads, which no ANALYZE has seen."""
    address = postgres_cluster.dsn(postgres_cluster.create_database())
    with clew.open(address) as store:
        for n in range(THREADS):
            thread = store.create(f"t{n:03}", tags=[f"tag {n % 50}"], workspace=f"/w{n % 20}")
            large = clew.draft("event", {"text": f"{n} " * 3000})
            thread.append([clew.draft("event", m, id=f"e{m}") for m in range(ENTRIES)] + [large])
        for n in range(0, THREADS, 20):
            store.fork(f"t{n:03}", at="e9", id=f"f{n:03}").append("event", "fork")
    return address


def take_and_give_back(store: clew.Store, thread: str) -> None:
    """However long a lease was to last, the next call must not find it."""
    lease = store.engine.lease(thread, Acquire("me", 60))
    assert lease is not None
    store.engine.lease(thread, Release(lease.fence))


CALLS: dict[str, Callable[[clew.Store], Any]] = {
    "thread": lambda s: s.engine.thread("t100"),
    "read": lambda s: s.engine.read("t100", after=5, limit=5),
    "path": lambda s: s.engine.path("t100", limit=5),
    "path of a fork": lambda s: s.engine.path("f100"),
    "part of a path": lambda s: s.engine.path("t100", "e9", after="e3"),
    "an entry of a fork": lambda s: s.engine.path("f100", "e5", limit=1),
    "segments": lambda s: s.engine.segments("t100"),
    "created": lambda s: s.engine.threads(ThreadQuery(limit=5)),
    "by tag": lambda s: s.engine.threads(ThreadQuery(limit=3, tag="tag 7")),
    "by prefix": lambda s: s.engine.threads(ThreadQuery(limit=5, prefix="t10")),
    "by workspace": lambda s: s.engine.threads(ThreadQuery(limit=3, workspace="/w7")),
    "children": lambda s: s.engine.threads(ThreadQuery(limit=3, parent="t100", archived=None)),
    "forks": lambda s: s.engine.threads(ThreadQuery(limit=3, origin="t100")),
    "append": lambda s: s.get("t100").append("event", 1),
    "append a large body": lambda s: s.get("t100").append("event", {"text": "new " * 5000}),
    "append a batch": lambda s: s.get("t101").append([clew.draft("event", n) for n in range(4)]),
    "append beside a parent": lambda s: s.get("t102").append("event", 1, parent="e3"),
    "append with an id": lambda s: s.get("f100").append("event", 1, id="mine"),
    "facts": lambda s: s.engine.append("t103", drafts.facts({"tags": ["x"], "status": "y"}, 1)),
    "move": lambda s: s.get("t104").move("e2"),
    "retry": lambda s: s.engine.append("t105", [clew.draft("event", 3, id="e3")]),
    "create": lambda s: s.create(tags=["x"]),
    "create a child": lambda s: s.create(parent="t100"),
    "fork": lambda s: s.fork("t106", at="e4"),
    "lease": lambda s: take_and_give_back(s, "t107"),
    "inspect": lambda s: s.engine.lease("t107", Inspect()),
    "put a blob": lambda s: s.blobs.put(b"new"),
    "get a blob": lambda s: s.blobs.get(s.blobs.put(b"new")),
    "purge": lambda s: s.purge(s.fork("t108", at="e2").id),
    "wait": lambda s: s.engine.wait("t109", after=0, timeout_seconds=1),
}


@pytest.fixture(autouse=True)
def exact(postgres_cluster: Cluster) -> None:
    if postgres_cluster.version < 150000:
        pytest.skip("the server cannot be asked for exact numbers before 15")


class Meter:
    """Counts the rows that one connection makes the server look at."""

    def __init__(self, store: clew.Store, cluster: Cluster, database: str) -> None:
        self._store, self._cluster, self._database = store, cluster, database

    def read(self) -> int:
        self._store.engine._connections.run(
            lambda wire, again: wire.execute("SELECT pg_stat_force_next_flush()")
        )
        self._store.engine._connections.run(lambda wire, again: wire.execute("SELECT 1"))
        return int(self._cluster.sql(COUNT, database=self._database)[0][0])


@pytest.mark.parametrize("name", CALLS)
def test_rows_looked_at(name: str, loaded: str, opened: Open, postgres_cluster: Cluster) -> None:
    store = opened(loaded, connections=1)
    meter = Meter(store, postgres_cluster, loaded.rpartition("/")[2])
    most = 0
    for _ in range(7):  # until a plan that fits all values is tried instead of one for these
        before = meter.read()
        CALLS[name](store)
        most = max(most, meter.read() - before)
    assert most <= ROWS_MAX


CHANGED, CROWD = 600, 4000
EACH_MAX = 40  # looks at a row for each thread, with all its indexes


@pytest.fixture
def changed(postgres_cluster: Cluster) -> str:
    """A store in which many threads have changed since somebody listed them."""
    address = postgres_cluster.dsn(postgres_cluster.create_database())
    with clew.open(address) as store:
        for n in range(CHANGED):
            store.create(f"t{n:03}").append("event", n)
    return address


def test_many_changed_threads_are_brought_back_into_the_list_in_one_pass(
    changed: str, opened: Open, postgres_cluster: Cluster
) -> None:
    """Not each of them by a look at all the others, as a planner does who knows of none."""
    store = opened(changed, connections=1)
    meter = Meter(store, postgres_cluster, changed.rpartition("/")[2])
    before = meter.read()
    page = store.list(order="updated", limit=5)
    assert meter.read() - before <= EACH_MAX * CHANGED
    assert [info.id for info in page.items] == [
        f"t{n:03}" for n in range(CHANGED - 1, CHANGED - 6, -1)
    ]


def test_a_list_does_not_read_all_threads_where_statistics_are_of_another_moment(
    postgres_cluster: Cluster, opened: Open
) -> None:
    """Nearly all of them had changed when the server looked last, and none has by now."""
    name = postgres_cluster.create_database()
    address = postgres_cluster.dsn(name)
    store = opened(address, connections=1)
    for n in range(CROWD):
        store.create(f"t{n}")
    postgres_cluster.sql("ALTER TABLE clew.threads SET (autovacuum_enabled = off)", database=name)
    postgres_cluster.sql("UPDATE clew.threads SET listed_us = NULL", database=name)
    postgres_cluster.sql("ANALYZE clew.threads", database=name)
    store.list(order="updated", limit=5)
    meter = Meter(store, postgres_cluster, name)
    before = meter.read()
    store.list(order="updated", limit=5)
    assert meter.read() - before <= ROWS_MAX


def test_a_page_of_threads_starts_no_other_processes(
    postgres_cluster: Cluster, opened: Open
) -> None:
    """The server thinks that it pays where nearly all threads had changed when it looked last."""
    name = postgres_cluster.create_database()
    address = postgres_cluster.dsn(name)
    store = opened(address, connections=1)
    for n in range(CHANGED):
        store.create(f"t{n}")
    for setting in ("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_table_scan_size"):
        postgres_cluster.sql(f"ALTER DATABASE {name} SET {setting} = 0")
    postgres_cluster.sql("ALTER TABLE clew.threads SET (autovacuum_enabled = off)", database=name)
    postgres_cluster.sql("UPDATE clew.threads SET listed_us = NULL", database=name)
    postgres_cluster.sql("ANALYZE clew.threads", database=name)
    store = opened(address, connections=1)
    plans: list[str] = []

    def tell_plans(wire: Any, again: bool) -> None:
        wire.add_notice_handler(lambda said: plans.append(str(said.message_primary)))
        for setting in ("log_min_duration", "log_nested_statements", "log_level"):
            value = {"log_nested_statements": "on", "log_level": "notice"}.get(setting, "0")
            wire.execute(f"SET auto_explain.{setting} = {value}")

    store.engine._connections.run(lambda wire, again: wire.execute("LOAD 'auto_explain'"))
    store.engine._connections.run(tell_plans)
    for order in ("updated", "created"):
        store.list(order=order, limit=5)
    assert any("threads_by_created" in plan for plan in plans)
    assert not [plan for plan in plans if "Gather" in plan]


@pytest.fixture(scope="module")
def crowded(postgres_cluster: Cluster) -> str:
    """So many threads that to look at all of them would not be the same."""
    address = postgres_cluster.dsn(postgres_cluster.create_database())
    with clew.open(f"{address}?options=-csynchronous_commit%3Doff") as store:
        for n in range(CROWD):
            store.create(f"t{n}", title=f"Thread number {n}")
    postgres_cluster.sql("ANALYZE", database=address.rpartition("/")[2])
    return address


@pytest.mark.parametrize("order", ["created", "updated"])
def test_a_page_is_not_sorted_out_of_all_threads_by_a_plan_for_any_page(
    order: str, crowded: str, opened: Open, postgres_cluster: Cluster
) -> None:
    """A server that knows its tables plans a statement once, if it is used often."""
    generic = f"{crowded}?options=-cplan_cache_mode%3Dforce_generic_plan"
    store = opened(generic, connections=1)
    meter = Meter(store, postgres_cluster, crowded.rpartition("/")[2])
    most = 0
    for _ in range(7):
        before = meter.read()
        store.list(order=order, limit=5)
        most = max(most, meter.read() - before)
    assert most <= ROWS_MAX


USES, UNUSED = 20_000, 400
EACH_BLOB_MAX = 40  # looks at a row for each blob, in all partitions and in both statements


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_a_sweep_does_not_look_at_the_uses_of_other_blobs(
    is_analyzed: bool, opened: Open, postgres_cluster: Cluster
) -> None:
    """Not once a batch, as a join does, while writers wait; also where one blob has all uses."""
    address = postgres_cluster.dsn(postgres_cluster.create_database())
    database = address.rpartition("/")[2]
    store = opened(address, connections=1)
    thread, used = store.create("t"), store.blobs.put(b"one that is used a lot")
    for _ in range(USES // 1000):
        thread.append([clew.draft("event", n, blobs=[used]) for n in range(1000)])
    unused = [to_bytes(digest(f"blob {n}".encode())) for n in range(UNUSED)]
    store.engine.put_blobs([f"blob {n}".encode() for n in range(UNUSED)])
    if is_analyzed:
        postgres_cluster.sql("ANALYZE", database=database)
    meter = Meter(store, postgres_cluster, database)
    before = meter.read()
    for start in range(0, UNUSED, 50):
        swept, _ = store.engine._connections.run(
            store.engine._work(remove, unused[start : start + 50], 2**62)
        )
        assert swept.blobs == 50
    assert meter.read() - before <= EACH_BLOB_MAX * UNUSED


PURGED, BODIES = 4, 100  # threads, and large bodies in each
EACH_BODY_MAX = 20  # looks at a row for each body: its record, its use, its blob


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_what_is_removed_does_not_look_at_the_uses_of_other_blobs(
    is_analyzed: bool, opened: Open, postgres_cluster: Cluster
) -> None:
    """A purge and an erasure cost what the thread has, however many uses of blobs there are."""
    address = postgres_cluster.dsn(postgres_cluster.create_database())
    database = address.rpartition("/")[2]
    store = opened(address, connections=1)
    thread, used = store.create("t"), store.blobs.put(b"one that is used a lot")
    for _ in range(USES // 1000):
        thread.append([clew.draft("event", n, blobs=[used]) for n in range(1000)])
    for name in range(PURGED):
        texts = [f"{name} {n} " * 2000 for n in range(BODIES)]
        batch = [clew.draft("event", text, id=f"e{n}") for n, text in enumerate(texts)]
        store.create(f"small {name}").append(batch)
    if is_analyzed:
        postgres_cluster.sql("ANALYZE", database=database)
    meter = Meter(store, postgres_cluster, database)
    before = meter.read()
    store.engine.erase("small 0", ["e0", "e1"], time_us=1)
    assert meter.read() - before <= ROWS_MAX
    for name in range(PURGED):
        before = meter.read()
        assert store.engine.purge(f"small {name}").records >= BODIES
        assert meter.read() - before <= EACH_BODY_MAX * BODIES
    assert store.stats().blobs == 1
