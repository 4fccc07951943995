"""pgbouncer in transaction mode is what it is feared for, so tests behind it mean something."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from servers.bouncer import MISSING, Bouncer, find_pgbouncer
from servers.cluster import Cluster
from servers.processes import family

pytestmark = pytest.mark.skipif(find_pgbouncer() is None, reason=MISSING)


@pytest.fixture(scope="module")
def bouncer(postgres_cluster: Cluster) -> Iterator[Bouncer]:
    with Bouncer(postgres_cluster, pool_size=1) as made:
        yield made


def test_many_clients_share_one_connection_in_transaction_mode(bouncer: Bouncer) -> None:
    with (
        psycopg.connect(bouncer.dsn(), autocommit=True, prepare_threshold=None) as one,
        psycopg.connect(bouncer.dsn(), autocommit=True, prepare_threshold=None) as other,
    ):
        query = "SELECT pg_backend_pid()"
        assert one.execute(query).fetchone() == other.execute(query).fetchone()
    assert "postgres" in [row["database"] for row in bouncer.show("pools")]


def test_prepared_statements_break_in_transaction_mode(bouncer: Bouncer) -> None:
    with (
        psycopg.connect(bouncer.dsn(), autocommit=True) as one,
        psycopg.connect(bouncer.dsn(), autocommit=True) as other,
        pytest.raises(psycopg.errors.DuplicatePreparedStatement),
    ):
        for connection in (one, other):
            connection.execute("SELECT %s", ("clash",), prepare=True)


def test_a_closed_pgbouncer_leaves_no_process(postgres_cluster: Cluster) -> None:
    with Bouncer(postgres_cluster, pool_mode="session") as bouncer:
        assert bouncer._keeper is not None
        everybody = family(bouncer._keeper.pid)
        assert len(everybody) == 2
        assert all(process.uids().effective != 0 for process in everybody[1:])
    assert not [process for process in everybody if process.is_running()]
