"""Stores on the server that all tests share, with and without a proxy before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from crews import Open
from places import PostgresPlace
from servers.cluster import Cluster
from servers.proxy import Proxy

import clew


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
