"""Stores on the server that all tests share, with and without a proxy before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from crews import Open
from places import PostgresPlace
from servers.cluster import Cluster
from servers.proxy import Proxy
from tenancy import ACME, GLOBEX, OTHERS, fill, secure

import clew
from clew.core.maintenance import Grant


@pytest.fixture
def database(postgres_places: None) -> Iterator[str]:
    """A fresh database with an empty store in it."""
    name = PostgresPlace.cluster.create_database(PostgresPlace.template)
    yield name
    PostgresPlace.cluster.drop_database(name)


@pytest.fixture
def proxy(postgres_cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(postgres_cluster) as made:
        yield made


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens stores that are closed after the test."""
    stores: list[clew.Store] = []

    def open_one(address: str, **options: Any) -> clew.Store:
        stores.append(clew.open(address, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Open, proxy: Proxy, database: str) -> clew.Store:
    """A store behind the proxy."""
    return opened(proxy.dsn(database), busy_seconds=30)


@pytest.fixture
def beside(opened: Open, postgres_cluster: Cluster, database: str) -> clew.Store:
    """The same store for somebody whose connections are whole."""
    return opened(postgres_cluster.dsn(database))


# --- tenants with roles of their own ---


@pytest.fixture
def roles(postgres_cluster: Cluster) -> Iterator[None]:
    """Roles belong to the server: they go when the database with their rights is gone."""
    for name in (ACME, GLOBEX, *OTHERS):
        postgres_cluster.sql(f"CREATE ROLE {name} LOGIN")
    yield
    for name in (ACME, GLOBEX, *OTHERS):
        postgres_cluster.sql(f"DROP ROLE IF EXISTS {name}")


@pytest.fixture
def server_address(roles: None, postgres_cluster: Cluster, database: str) -> str:
    return postgres_cluster.dsn(database)


@pytest.fixture
def tenants(server_address: str) -> str:
    """Row-level security is on, and each tenant has filled its namespace."""
    secure(server_address, Grant(ACME, "acme"), Grant(GLOBEX, "globex"))
    for namespace in ("acme", "globex"):
        with clew.open(server_address, namespace=namespace) as store:
            fill(store)
    return server_address


@pytest.fixture
def connect(postgres_cluster: Cluster, database: str) -> Iterator[Callable[..., Any]]:
    """Connections without Clew, for SQL by hand."""
    made: list[psycopg.Connection[Any]] = []

    def one(role: str) -> psycopg.Connection[Any]:
        made.append(psycopg.connect(postgres_cluster.dsn(database, role), autocommit=True))
        return made[-1]

    yield one
    for connection in made:
        connection.close()
