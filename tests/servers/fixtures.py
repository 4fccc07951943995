"""One PostgreSQL server for all tests that break nothing, and a fresh database for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.cluster import Cluster


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Cluster]:
    """Starts with the first test that asks for it. Whoever breaks a server starts their own."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def postgres_dsn(postgres_cluster: Cluster) -> Iterator[str]:
    """The address of a fresh database, which goes after the test."""
    name = postgres_cluster.create_database()
    yield postgres_cluster.dsn(name)
    postgres_cluster.drop_database(name)
