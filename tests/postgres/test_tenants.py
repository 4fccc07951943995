"""A tenant's role cannot stop the others, count them, or come into what was another's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from crews import Open
from psycopg import errors as states
from servers.cluster import Cluster
from tenancy import ACME, GLOBEX, LARGE, ROWS, as_role, secure, space_of

import clew
from clew.cli import main
from clew.core.errors import Unsupported
from clew.core.maintenance import Grant
from clew.upkeep.migrate import migrate

Connect = Callable[[str], psycopg.Connection[Any]]

LATER = "acme_later"


# --- grants are a role's, not a name's ---


def test_a_role_keeps_its_namespaces_under_another_name_and_a_newcomer_gets_none(
    tenants: str, opened: Open, postgres_cluster: Cluster
) -> None:
    postgres_cluster.sql(f"ALTER ROLE {ACME} RENAME TO {LATER}")
    postgres_cluster.sql(f"CREATE ROLE {ACME} LOGIN")
    try:
        secure(tenants)
        assert opened(as_role(tenants, LATER), namespace="acme").get("t").path()
        with pytest.raises(Unsupported):
            clew.open(as_role(tenants, ACME), namespace="acme")
        grants = migrate(tenants, rls=True).grants
        assert [grant for grant in grants if grant.namespace == "acme"] == [Grant(LATER, "acme")]
    finally:
        database = tenants.rpartition("/")[2].partition("?")[0]
        postgres_cluster.sql(f"DROP OWNED BY {LATER}", database=database)
        postgres_cluster.sql(f"DROP ROLE {LATER}")


def test_a_new_role_of_a_dropped_ones_name_gets_nothing_and_the_owner_is_told(
    tenants: str,
    postgres_cluster: Cluster,
    database: str,
    connect: Connect,
    capsys: pytest.CaptureFixture[str],
) -> None:
    postgres_cluster.sql(f"DROP OWNED BY {ACME}", database=database)
    postgres_cluster.sql(f"DROP ROLE {ACME}")
    postgres_cluster.sql(f"CREATE ROLE {ACME} LOGIN")
    assert main(["migrate", tenants, "--rls"]) == 0
    told = capsys.readouterr().out
    assert "may use the namespace acme" not in told
    assert "namespace acme" in told, "that it was taken back"
    with pytest.raises(Unsupported, match="may not use the schema"):
        clew.open(as_role(tenants, ACME), namespace="acme")
    assert len(connect("postgres").execute("SELECT * FROM clew.grants").fetchall()) == 1
    secure(tenants, Grant(ACME, "acme"))
    clew.open(as_role(tenants, ACME), namespace="acme").close()


def test_a_grant_of_a_role_without_rights_is_told_and_gives_none(
    tenants: str, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a restore without rights, or when a number of a dropped role is used again."""
    stranger = "INSERT INTO clew.grants SELECT 'stranger'::regrole, no FROM clew.namespaces"
    connect("postgres").execute(f"{stranger} WHERE name = 'acme'")
    assert main(["migrate", tenants, "--rls"]) == 0
    assert "--grant stranger=acme" in capsys.readouterr().out
    with pytest.raises(Unsupported, match="may not use the schema"):
        clew.open(as_role(tenants, "stranger"), namespace="acme")


def test_grants_are_restored_to_the_roles_of_the_same_names(tenants: str, connect: Connect) -> None:
    """A dump has names in it: numbers would mean other roles on another server."""
    owner = connect("postgres")
    with owner.cursor().copy("COPY clew.grants (role) TO STDOUT") as copied:
        lines = sorted(bytes(line).decode().strip() for line in copied)
    assert lines == [ACME, GLOBEX]


# --- nobody can be stopped ---

MODES = (
    *("ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", "SHARE"),
    *("SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"),
)


def test_a_role_can_lock_no_table_that_others_need(tenants: str, connect: Connect) -> None:
    opened_search(tenants)
    acme = connect(ACME)
    for table in tables(connect("postgres")):
        for mode in MODES:
            if table == "format" and mode == "ACCESS SHARE":
                continue  # it can be read, which keeps no process from reading or migrating
            with pytest.raises(states.InsufficientPrivilege), acme.transaction():
                acme.execute(f"LOCK TABLE clew.{table} IN {mode} MODE NOWAIT")
        for strength in ("UPDATE", "KEY SHARE"):
            with pytest.raises(states.InsufficientPrivilege):
                acme.execute(f"SELECT 1 FROM clew.{table} FOR {strength}")


def tables(owner: psycopg.Connection[Any]) -> list[str]:
    query = (
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'clew'::regnamespace"
        " AND relkind IN ('r', 'p')"
    )
    return [name for (name,) in owner.execute(query)]


def opened_search(address: str) -> None:
    """The owner has searched once, so that the tables of the index are there."""
    with clew.open(address, namespace="globex") as store:
        store.create("searched").append_message({"role": "user", "content": "a heron"})
        assert store.search("heron").total == 1


def test_locks_that_every_role_may_take_are_in_no_ones_way(
    tenants: str, connect: Connect, opened: Open
) -> None:
    opened_search(tenants)
    owner, acme = connect("postgres"), connect(ACME)
    spaces = [no for (no,) in owner.execute("SELECT no FROM clew.namespaces")]
    for table in tables(owner):
        for space in spaces:
            key = f"'clew.{table}'::regclass::oid::integer, {space}"
            acme.execute(f"SELECT pg_advisory_lock({key})")
    acme.execute("SELECT pg_advisory_lock(hashtextextended('clew.migrate.clew', 0))")
    everything(opened(as_role(tenants, GLOBEX), namespace="globex", busy_seconds=20))
    secure(tenants, Grant(GLOBEX, "globex"))


def test_no_statement_of_ours_takes_a_lock_by_a_number(
    tenants: str, connect: Connect, opened: Open
) -> None:
    """Its number stands in pg_locks for every role to see, and to take."""
    query = "SELECT proname FROM pg_proc WHERE pronamespace = 'clew'::regnamespace AND prosrc LIKE"
    assert connect("postgres").execute(f"{query} '%pg_advisory%'").fetchall() == []


def everything(store: clew.Store) -> None:
    """What meets other processes: writing, blobs, leases, lists, search, purge, sweep."""
    thread = store.get("t")
    thread.append("event", LARGE + "!", blobs=[store.blobs.put(b"more")])
    lease = thread.leases.acquire("me")
    thread.leases.release(lease)
    assert list(store.threads(order="updated"))
    assert store.search("heron").total >= 0
    store.fork("t", id="of t")
    store.purge("of t")
    store.sweep(grace_seconds=0)
    assert store.verify() == []


def test_a_transaction_that_stays_open_holds_up_its_own_namespace_alone(
    tenants: str, connect: Connect, opened: Open
) -> None:
    opened_search(tenants)
    owner, acme = connect("postgres"), connect(ACME)
    mine, theirs = space_of(owner, "acme"), space_of(owner, "globex")
    acme.execute("BEGIN")
    for space in (theirs, mine):
        acme.execute("SAVEPOINT before")
        try:
            acme.execute("SELECT * FROM clew.purge(%s, 'f', NULL)", (space,))
        except states.InsufficientPrivilege:
            acme.execute("ROLLBACK TO SAVEPOINT before")
    one = "ARRAY['\\x00'::bytea]"
    acme.execute(f"SELECT clew.put_blobs(%s, {one}, '{{1}}', '{{raw}}', {one}, {one})", (mine,))
    held = "SELECT count(*) FROM pg_locks WHERE pid = %s"
    assert owner.execute(held, (acme.info.backend_pid,)).fetchone() > (5,), "it holds something"
    everything(opened(as_role(tenants, GLOBEX), namespace="globex", busy_seconds=20))
    acme.execute("ROLLBACK")


# --- what others have is not counted ---


def test_the_size_of_a_tenant_is_its_own(tenants: str, opened: Open, connect: Connect) -> None:
    opened_search(tenants)
    acme = opened(as_role(tenants, ACME), namespace="acme")
    acme.create("own").append_message({"role": "user", "content": "a heron"})
    assert acme.search("heron").total == 1
    before = acme.stats(), acme.searcher.ready()[0].size_bytes()
    globex = opened(tenants, namespace="globex")
    for n in range(20):
        thread = globex.create(f"new {n}")
        thread.append_message({"role": "user", "content": f"heron {n} " * 3000})
    assert globex.search("heron").total > 20
    assert (acme.stats(), acme.searcher.ready()[0].size_bytes()) == before
    assert before[0].stored_bytes < 10_000


def test_no_plan_tells_how_many_rows_of_others_were_passed_over(
    tenants: str, connect: Connect
) -> None:
    opened_search(tenants)
    acme = connect(ACME)
    for setting in ("indexscan", "bitmapscan", "indexonlyscan"):
        acme.execute(f"SET enable_{setting} = off")
    for table in (*ROWS, "namespaces", "grants", "search_documents", "search_threads"):
        with pytest.raises(states.InsufficientPrivilege):
            acme.execute(f"EXPLAIN ANALYZE SELECT count(*) FROM clew.{table}")
    plan = "EXPLAIN (ANALYZE, VERBOSE) SELECT * FROM clew.read(%s, 't', 0, 10, 1000)"
    mine = space_of(connect("postgres"), "acme")
    text = "\n".join(line for (line,) in acme.execute(plan, (mine,)))
    assert "Removed" not in text
    assert "Function Scan" in text
