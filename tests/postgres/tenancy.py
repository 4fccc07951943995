"""Tenants of one server, each with a role and a namespace of its own."""

from __future__ import annotations

import re
from typing import Any

import psycopg

import clew
from clew.core.maintenance import Grant
from clew.upkeep.migrate import migrate

ACME, GLOBEX = "acme_app", "globex_app"
OTHERS = ("acme_login", "stranger", "chief")
LARGE = "x" * 20_000
ROWS = ("threads", "records", "segments", "facts", "tags", "blobs", "blob_uses")


def secure(address: str, *grants: Grant) -> None:
    migrate(address, rls=True, grants=grants)


def as_role(address: str, role: str) -> str:
    return re.sub("//[^@]*@", f"//{role}@", address)


def fill(store: clew.Store) -> None:
    """Something in every table, under the same names in every namespace."""
    thread = store.create("t", title="T", tags=["red"], workspace="w")
    thread.append("user_message", "hello", id="a")
    thread.append("event", LARGE, id="b")
    thread.append("event", id="c", blobs=[store.blobs.put(b"the same everywhere")])
    thread.fork(at="a", id="f").append("event", "mine")


def space_of(connection: psycopg.Connection[Any], namespace: str) -> int:
    query = "SELECT no FROM clew.namespaces WHERE name = %s"
    row = connection.execute(query, (namespace,)).fetchone()
    assert row is not None
    return int(row[0])
