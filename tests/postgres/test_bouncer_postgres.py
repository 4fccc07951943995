"""Behind pgbouncer in transaction mode: the same store, without what sessions would give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from amounts import sample
from crews import Crew, Open
from places import PostgresPlace
from servers.bouncer import MISSING, Bouncer, find_pgbouncer
from servers.cluster import Cluster

import clew
from clew.engines.postgres import listen
from clew.testing import conformance

pytestmark = pytest.mark.skipif(find_pgbouncer() is None, reason=MISSING)


@pytest.fixture(scope="module")
def bouncer(postgres_cluster: Cluster) -> Iterator[Bouncer]:
    """Few connections, so that every transaction may be on another one."""
    with Bouncer(postgres_cluster, pool_size=3) as made:
        yield made


@pytest.fixture
def quick_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "PROBE_SECONDS", 0.2)


class BouncedPlace(PostgresPlace):
    def __init__(self, folder: Path, bouncer: Bouncer) -> None:
        super().__init__(folder)
        self.path = bouncer.dsn(self._database)


@pytest.mark.usefixtures("postgres_places", "quick_probe")
@pytest.mark.parametrize("case", sample(conformance.CASES, 4), ids=lambda case: case.__name__)
def test_contract(case: conformance.Case, bouncer: Bouncer, tmp_path: Path) -> None:
    place = BouncedPlace(tmp_path, bouncer)
    try:
        case(place)
    finally:
        place.close()


def test_a_pooler_is_noticed(
    bouncer: Bouncer, database: str, opened: Open, beside: clew.Store
) -> None:
    assert opened(bouncer.dsn(database)).engine.pooler is True
    assert beside.engine.pooler is False
    assert opened(bouncer.dsn(database), pooler=False).engine.pooler is False, "as we were told"


def test_a_store_is_made_through_a_pooler(
    bouncer: Bouncer, postgres_cluster: Cluster, opened: Open
) -> None:
    name = postgres_cluster.create_database()
    store = opened(bouncer.dsn(name))
    store.create("t").append("event", 1)
    assert store.verify() == []
    store.close()
    postgres_cluster.drop_database(name)


def test_tables_are_written_anew_through_a_pooler(
    bouncer: Bouncer, postgres_cluster: Cluster, database: str, opened: Open
) -> None:
    """How long a table is waited for cannot be set: it would stay for the next client."""
    store = opened(bouncer.dsn(database))
    store.create("t").append("event", 1)
    assert store.pack(shrink=True).complete
    assert store.verify() == []


def test_processes_and_threads_behind_a_pooler_lose_nothing(
    bouncer: Bouncer, postgres_cluster: Cluster, database: str, opened: Open, beside: clew.Store
) -> None:
    """More clients than connections, and backends that are ended meanwhile."""
    address = bouncer.dsn(database)
    store = opened(address, busy_seconds=60)
    for name in "tu":
        store.create(name)
    with Crew(address, ["t", "u"], count=40) as crew:
        for _ in range(3):
            crew.add_process()
        crew.begin()
        for _ in range(4):
            crew.add_thread(store)
        for _ in range(5):
            crew.wait_for(20)
            postgres_cluster.kill_backends(database=database)
        crew.finish()
    crew.check(beside)
    crew.check(store)
