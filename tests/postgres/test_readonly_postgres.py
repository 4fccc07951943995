"""A role that may only read sees the whole store, and the server holds it to that."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import psycopg
import pytest
from crews import Open
from psycopg import errors as states
from servers.cluster import Cluster

import clew
from clew.cli import main
from clew.core.engine import innermost
from clew.core.model import ThreadQuery
from clew.engines.postgres.engine import PostgresEngine
from clew.engines.shared.thread_list import UNLISTED_MAX

READER, SLEEPER = "clew_reader", "clew_sleeper"


@pytest.fixture
def address(postgres_cluster: Cluster, database: str) -> Iterator[str]:
    """A store with more changed threads than a list likes; one role reads, one could write too."""
    with clew.open(postgres_cluster.dsn(database)) as store:
        for number in range(UNLISTED_MAX + 5):
            store.create(f"t{number}").append("note", number)
        store.get("t0").append("note", "x" * 100_000)
        store.fork("t0", id="f").append("note", "on the fork")
        store.blobs.put(b"bytes")
    rights = {READER: "SELECT", SLEEPER: "SELECT, INSERT, UPDATE, DELETE"}
    for role, right in rights.items():
        postgres_cluster.sql(f"CREATE ROLE {role} LOGIN")
        for statement in (
            f"GRANT USAGE ON SCHEMA clew TO {role}",
            f"GRANT {right} ON ALL TABLES IN SCHEMA clew TO {role}",
        ):
            postgres_cluster.sql(statement, database=database)
    postgres_cluster.sql(f"ALTER ROLE {SLEEPER} SET default_transaction_read_only = on")
    yield postgres_cluster.dsn(database)
    for role in rights:
        postgres_cluster.sql(f"DROP OWNED BY {role}", database=database)
        postgres_cluster.sql(f"DROP ROLE {role}")


def as_role(address: str, role: str) -> str:
    return re.sub("//[^@]*@", f"//{role}@", address)


def test_a_store_that_is_only_looked_at_is_not_written_anew(address: str, opened: Open) -> None:
    for options in ({}, {"shrink": True}):
        with pytest.raises(clew.ReadOnly):
            opened(address, readonly=True).pack(**options)
        with pytest.raises(clew.ReadOnly):
            innermost(opened(address, readonly=True).engine).pack(**options)


@pytest.mark.parametrize("role", [READER, SLEEPER])
def test_a_role_that_may_only_read_can_look_at_everything(
    address: str, opened: Open, role: str
) -> None:
    store, other = opened(as_role(address, role), readonly=True), opened(address)
    query = ThreadQuery(order="updated", limit=1000)
    assert store.engine.threads(query) == other.engine.threads(query)
    assert store.get("f").path() == other.get("f").path()
    assert store.stats() == other.stats()
    assert store.verify() == []
    assert not store.engine.wait("t0", after=100, timeout_seconds=0.05)
    for write in (store.create, lambda: store.blobs.put(b"more"), store.sweep):
        with pytest.raises(clew.ReadOnly):
            write()


def test_words_that_others_have_collected_are_found_by_who_may_only_look(
    address: str, opened: Open
) -> None:
    with clew.open(address) as store:
        store.create("s").append_message({"role": "user", "content": "a singular word"})
        assert store.search("singular").total == 1
    grant = f"GRANT SELECT ON ALL TABLES IN SCHEMA clew TO {READER}"
    other_rules = "UPDATE clew.search_threads SET version = 77"
    # Those that may not be read, or were collected by other rules, are collected again in memory.
    for change, is_theirs in (("SELECT", False), (grant, True), (other_rules, False)):
        with psycopg.connect(address, autocommit=True) as owner:
            owner.execute(change)
        looking = opened(as_role(address, READER), readonly=True)
        assert [hit.thread for hit in looking.search("singular").items] == ["s"]
        assert looking.searcher.ready()[0].fleeting != is_theirs
    with psycopg.connect(address) as owner:
        versions = owner.execute("SELECT DISTINCT version FROM clew.search_threads").fetchall()
    assert versions == [(77,)], "who may only look removes nothing"


@pytest.mark.parametrize("role", [READER, SLEEPER])
def test_opening_to_write_says_why_it_cannot_be_and_how_to_look(address: str, role: str) -> None:
    with pytest.raises(clew.ReadOnly, match=r"open it with readonly=True") as caught:
        clew.open(as_role(address, role))
    assert role in str(caught.value.reason)


def test_the_server_refuses_what_slipped_past_us(address: str, opened: Open) -> None:
    engine = innermost(opened(address, readonly=True).engine)
    assert isinstance(engine, PostgresEngine)
    with (
        pytest.raises(states.ReadOnlySqlTransaction),
        engine._connections._pool.connection() as wire,
    ):
        wire.execute("DELETE FROM clew.records")


def test_nothing_is_set_up_or_made_by_looking(
    address: str, postgres_cluster: Cluster, database: str
) -> None:
    with pytest.raises(clew.NotFound, match="namespace 'none'"):
        clew.open(address, namespace="none", readonly=True)
    postgres_cluster.sql("CREATE SCHEMA empty", database=database)
    with pytest.raises(clew.NotFound, match="store"):
        clew.open(address, schema="empty", readonly=True)
    assert postgres_cluster.sql("SELECT count(*) FROM clew.namespaces", database=database) == [(1,)]


@pytest.mark.parametrize("role", [READER, SLEEPER])
def test_every_command_that_looks_works_for_that_role(
    address: str,
    role: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    store = as_role(address, role)
    target = tmp_path_factory.mktemp("copy")
    for command in (
        ["list", store],
        ["show", store, "f"],
        ["verify", store],
        ["doctor", store, "--json"],
        ["migrate", store, "--check"],
        ["snapshot", "list", store, "f"],
        ["export", store, "f", "--out", f"{target}/f.jsonl"],
        ["copy", store, f"{target}/copy.db"],
    ):
        code = main(command)
        out, err = capsys.readouterr()
        # The server of the tests does not sync, and doctor says so.
        assert (code, err) == (9 if command[0] == "doctor" else 0, ""), command
        if command[0] == "doctor":
            assert json.loads(out)["properties"]["read_only"] is True
    assert main(["rewind", store, "f", "--yes"]) == 5
    assert "may not be written (" in capsys.readouterr().err
