"""With row-level security a tenant's role reaches its own namespaces, and nothing of others'."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors as states
from servers.cluster import Cluster
from servers.proxy import Proxy
from tenancy import ACME, GLOBEX, LARGE, ROWS, as_role, fill, secure, space_of

import clew
from clew.address import namespaces
from clew.cli import main
from clew.core.errors import InvalidInput, NotFound, Unavailable, Unsupported
from clew.core.maintenance import Grant
from clew.core.model import Acquire, ThreadQuery
from clew.upkeep.migrate import migrate

Open = Callable[..., clew.Store]

# --- its own ---


def test_a_role_can_do_everything_in_its_own_namespace(tenants: str, opened: Open) -> None:
    store = opened(as_role(tenants, ACME), namespace="acme")
    thread = store.get("t")
    assert [entry.id for entry in thread.path()] == ["a", "b", "c"]
    thread.append([clew.draft("event", n) for n in range(20)])
    thread.append("event", LARGE + "!", blobs=[store.blobs.put(b"more")])
    thread.move("a")
    thread.set(status="busy", tags=["red", "blue"])
    with thread.turn(owner="me") as turn:
        turn.append("event", "under a lease")
    lease = thread.leases.acquire("me")
    assert thread.leases.renew(lease).fence == lease.fence
    thread.leases.release(lease)
    fork = thread.fork(id="g")
    assert fork.path()[0].id == "a"
    assert [info.id for info in store.list(tag="blue").items] == ["g", "t"]
    assert {info.id for info in store.threads(order="updated")} == {"t", "f", "g"}
    assert [info.id for info in store.list(origin="t", workspace="w").items] == ["g", "f"]
    store.delete("f")
    assert store.restore("f").info.deleted_at is None
    assert [one.entry for one in fork.erase("a").entries] == ["a"]
    assert fork.path()[0].erased_at is not None
    assert store.purge("t").kept_for == ("f", "g")
    assert fork.path()[0].id == "a"
    assert store.sweep(grace_seconds=0).blobs > 0
    assert store.stats().threads == 2
    assert store.verify() == []
    assert sorted(store.cleanup(older_than=timedelta(0)).purged) == ["f", "g"]
    assert store.stats().records == 0


def test_a_role_is_told_what_its_purge_did_though_the_answer_was_lost(
    tenants: str, opened: Open, proxy: Proxy, database: str
) -> None:
    """The retry commits something, so that its answer is sure: it must be something it may do."""
    store = opened(as_role(proxy.dsn(database), ACME), namespace="acme")
    proxy.cut_after(b"COMMIT")
    assert store.purge("t").kept_for == ("f",)
    assert proxy.cuts == 1


def test_a_role_can_wait_for_appends(tenants: str, opened: Open) -> None:
    store = opened(as_role(tenants, ACME), namespace="acme")
    seq = store.get("t").info.seq
    assert store.engine.wait("t", after=seq, timeout_seconds=0.01) is False
    writer = threading.Thread(target=lambda: store.get("t").append("event", "woken"))
    writer.start()
    assert store.engine.wait("t", after=seq, timeout_seconds=60)
    writer.join()


def test_tenants_with_the_same_names_are_not_in_each_others_way(tenants: str, opened: Open) -> None:
    acme = opened(as_role(tenants, ACME), namespace="acme")
    globex = opened(as_role(tenants, GLOBEX), namespace="globex")
    acme.purge("t")
    acme.purge("f")
    acme.sweep(grace_seconds=0)
    assert [entry.body for entry in globex.get("t").path()] == ["hello", LARGE, None]
    assert globex.blobs.get(globex.get("t").path()[2].blobs[0]) == b"the same everywhere"
    assert globex.verify() == []


def test_a_role_may_be_granted_several_namespaces(tenants: str, opened: Open) -> None:
    secure(tenants, Grant(ACME, "acme-2"), Grant(ACME, "acme-2"))
    opened(as_role(tenants, ACME), namespace="acme-2").create("t")
    assert opened(as_role(tenants, ACME), namespace="acme").get("t").path()


def test_a_login_that_stands_for_a_role_has_its_namespaces(
    tenants: str, opened: Open, postgres_cluster: Cluster
) -> None:
    postgres_cluster.sql(f"GRANT {ACME} TO acme_login")
    postgres_cluster.sql(f"ALTER ROLE acme_login SET role = {ACME}")
    store = opened(as_role(tenants, "acme_login"), namespace="acme")
    assert store.get("t").append("event", "x").seq > 3


# --- others ---


@pytest.mark.parametrize("namespace", ["globex", "default", "not there"])
def test_a_namespace_that_was_not_granted_is_refused_and_does_not_show_whether_it_exists(
    tenants: str, namespace: str
) -> None:
    with pytest.raises(Unsupported) as caught:
        clew.open(as_role(tenants, ACME), namespace=namespace)
    said = str(caught.value).partition(": ")[2]
    assert said == (
        f"the role 'acme_app' was not granted the namespace {namespace!r}, and may not make it; "
        f"let the owner run: clew migrate --rls --grant acme_app={namespace}"
    )
    if namespace != "default":
        with pytest.raises(NotFound, match="namespace"):
            clew.open(as_role(tenants, ACME), namespace=namespace, create=False)


def test_commands_show_a_role_its_own_namespaces(
    tenants: str, capsys: pytest.CaptureFixture[str]
) -> None:
    address = as_role(tenants, ACME)
    assert namespaces(address) == ["acme"]
    assert main(["verify", address]) == 0
    assert main(["copy", address, "memory:", "--all-namespaces"]) == 0
    assert main(["stats", address, "--namespace", "acme"]) == 0
    assert main(["doctor", address, "--namespace", "acme"]) == 9, "the tests' server does not sync"
    capsys.readouterr()
    assert main(["list", address, "--namespace", "globex"]) == 2
    assert "it has: acme" in capsys.readouterr().err


def with_rights(connect: Callable[..., Any]) -> psycopg.Connection[Any]:
    """A tenant's role with rights on tables, which it never gets from us: the second wall."""
    rights = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA clew"
    connect("postgres").execute(f"GRANT {rights} TO {ACME}")
    role: psycopg.Connection[Any] = connect(ACME)
    return role


def test_hand_written_sql_shows_no_row_of_others(
    tenants: str, connect: Callable[..., Any], postgres_cluster: Cluster
) -> None:
    owner, acme = connect("postgres"), with_rights(connect)
    mine, theirs = space_of(owner, "acme"), space_of(owner, "globex")
    for table in ROWS:
        query = f"SELECT space, count(*) FROM clew.{table} GROUP BY 1"
        assert {mine, theirs} <= dict(owner.execute(query).fetchall()).keys(), table
        assert dict(acme.execute(query).fetchall()).keys() == {mine}, table
        one = f"SELECT 1 FROM clew.{table} WHERE space = %s"
        assert acme.execute(one, (theirs,)).fetchall() == [], table
    assert acme.execute("SELECT name FROM clew.namespaces").fetchall() == [("acme",)]
    assert acme.execute("SELECT role, space FROM clew.grants").fetchall() == [(ACME, mine)]


def test_an_engine_with_a_forged_namespace_reaches_nothing(
    tenants: str, connect: Callable[..., Any], opened: Open
) -> None:
    """Every statement and function of Clew's own, with the number of another namespace in it."""
    owner = connect("postgres")
    theirs = space_of(owner, "globex")
    before = contents(owner, theirs)
    store = opened(as_role(tenants, ACME), namespace="acme")
    engine: Any = store.engine
    hash = engine.path("t")[2].blobs[0]
    engine._book.space = theirs
    for call in (
        lambda: engine.thread("t"),
        lambda: engine.read("t"),
        lambda: engine.path("t"),
        lambda: engine.path("t", "b", after="a"),
        lambda: engine.segments("t"),
        lambda: engine.append("t", [clew.draft("event", "evil")]),
        lambda: engine.append("t", [clew.draft("event", LARGE)], expect="c"),
        lambda: engine.lease("t", Acquire("evil", 60)),
        lambda: engine.wait("t", after=0, timeout_seconds=0),
        lambda: engine.purge("t"),
        lambda: engine.erase("t", ["a"], time_us=1),
        lambda: store.fork("t"),
        lambda: engine.get_blob(hash),
        lambda: store.create("evil"),
        lambda: store.blobs.put(b"evil"),
        lambda: engine.threads(ThreadQuery()),
        lambda: engine.threads(ThreadQuery(order="updated")),
        lambda: engine.heads(),
        lambda: engine.has_blobs([hash]),
        lambda: engine.renew_blobs([hash]),
        lambda: engine.sweep(grace_seconds=0),
        lambda: engine.stats(),
        lambda: list(engine.check()),
        lambda: store.search("hello"),
    ):
        with pytest.raises(Unsupported, match="row-level security"):
            call()
    assert contents(owner, theirs) == before


def test_hand_written_sql_changes_no_row_of_others(
    tenants: str, connect: Callable[..., Any]
) -> None:
    owner, acme = connect("postgres"), with_rights(connect)
    mine, theirs = space_of(owner, "acme"), space_of(owner, "globex")
    before = contents(owner, theirs)
    for table in ROWS:
        column = "blob" if table == "blob_uses" else "hash" if table == "blobs" else "thread"
        column = "id" if table == "threads" else column
        for sql in (f"UPDATE clew.{table} SET {column} = {column}", f"DELETE FROM clew.{table}"):
            assert acme.execute(f"{sql} WHERE space = {theirs}").rowcount == 0, table
        with pytest.raises(states.InsufficientPrivilege, match="row-level security"):
            acme.execute(f"UPDATE clew.{table} SET space = {theirs} WHERE space = {mine}")
        copied = [c for c in columns(owner, table) if c not in ("space", "no", "shelf")]
        names = ", ".join(copied)
        insert = f"INSERT INTO clew.{table} (space, {names}) SELECT {theirs}, {names}"
        with pytest.raises(states.InsufficientPrivilege, match="row-level security"):
            acme.execute(f"{insert} FROM clew.{table} WHERE space = {mine}")
    assert contents(owner, theirs) == before


def contents(owner: psycopg.Connection[Any], space: int) -> dict[str, list[Any]]:
    return {
        table: sorted(owner.execute(f"SELECT t::text FROM clew.{table} t WHERE space = {space}"))
        for table in ROWS
    }


def columns(owner: psycopg.Connection[Any], table: str) -> list[str]:
    query = (
        "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND NOT attisdropped ORDER BY attnum"
    )
    return [name for (name,) in owner.execute(query, (f"clew.{table}",))]


def test_no_way_leads_around_the_policies(tenants: str, connect: Callable[..., Any]) -> None:
    acme = connect(ACME)
    for sql in (
        *(f"SELECT * FROM clew.{table}" for table in (*ROWS, "namespaces", "grants", "records_0")),
        *(f"DELETE FROM clew.{table}" for table in (*ROWS, "namespaces", "grants", "format")),
        *(f"TRUNCATE clew.{table}" for table in (*ROWS, "namespaces", "grants", "format")),
        "INSERT INTO clew.blobs_1 SELECT * FROM clew.blobs",
        "INSERT INTO clew.namespaces (name) VALUES ('mine')",
        "INSERT INTO clew.grants VALUES ('acme_app'::regrole, 1)",
        "SELECT clew.remove_unneeded(1, 1)",
        "SELECT clew.path(1, 1, 1, NULL, NULL, 9)",
        "SELECT clew.set_fact(1, 1, 1, 'status', '1')",
        "SELECT clew.grant_namespace('acme_app', 'globex')",
        "SELECT clew.give_rights('acme_app')",
        "SELECT clew.revoke_namespace('globex_app', 'globex')",
        "ALTER TABLE clew.threads DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenants ON clew.threads",
        "SET row_security = off; SELECT * FROM clew.threads",
        "CREATE FUNCTION clew.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ):
        with pytest.raises(states.InsufficientPrivilege):
            acme.execute(sql)


def test_a_role_without_a_grant_gets_nowhere(tenants: str) -> None:
    with pytest.raises(Unsupported, match="may not use the schema"):
        clew.open(as_role(tenants, "stranger"))


def test_what_was_granted_can_be_taken_back(
    tenants: str, opened: Open, connect: Callable[..., Any]
) -> None:
    acme = opened(as_role(tenants, ACME), namespace="acme")
    secure(tenants, Grant(ACME, "second"))
    connect("postgres").execute("SELECT clew.revoke_namespace('acme_app', 'acme')")
    with pytest.raises(Unsupported, match="row-level security"):
        acme.get("t")
    opened(as_role(tenants, ACME), namespace="second").create("t")
    connect("postgres").execute("SELECT clew.revoke_namespace('acme_app', 'second')")
    with pytest.raises(Unsupported, match="may not use the schema"):
        clew.open(as_role(tenants, ACME), namespace="second")


# --- the owner ---


def test_the_owner_is_not_held_to_it(tenants: str, opened: Open) -> None:
    for namespace in ("acme", "globex"):
        store = opened(tenants, namespace=namespace)
        assert store.verify() == []
        store.purge("f")
    assert opened(tenants, namespace="a new one").create("t").id == "t"


def test_every_table_is_held_to_it_also_those_that_came_later(
    tenants: str, connect: Callable[..., Any]
) -> None:
    owner = connect("postgres")
    query = (
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'clew'::regnamespace"
        " AND relkind IN ('r', 'p') AND NOT relrowsecurity"
    )
    assert owner.execute(query).fetchall() == [("format",)]
    owner.execute("CREATE TABLE clew.later (space integer)")
    assert not migrate(tenants, dry_run=True).rls
    migrate(tenants)
    assert migrate(tenants, dry_run=True).rls
    owner.execute("INSERT INTO clew.later SELECT no FROM clew.namespaces")
    acme = with_rights(connect)
    assert len(acme.execute("SELECT * FROM clew.later").fetchall()) == 1
    forced = "SELECT 1 FROM pg_class WHERE relforcerowsecurity"
    assert owner.execute(forced).fetchall() == []


@pytest.mark.parametrize("role", ["postgres", "chief", "nobody"])
def test_a_grant_that_would_mean_nothing_is_refused_as_a_whole(
    server_address: str, connect: Callable[..., Any], postgres_cluster: Cluster, role: str
) -> None:
    owner = connect("postgres")
    postgres_cluster.sql("ALTER ROLE chief BYPASSRLS")
    with pytest.raises(InvalidInput, match=f"{role!r}"):
        secure(server_address, Grant(ACME, "acme"), Grant(role, "acme"))
    assert owner.execute("SELECT to_regclass('clew.grants')").fetchone() == (None,)
    assert owner.execute("SELECT name FROM clew.namespaces WHERE name = 'acme'").fetchall() == []


def test_switching_it_on_does_not_make_everybody_wait_for_one_who_takes_long(
    server_address: str, connect: Callable[..., Any]
) -> None:
    slow = connect("postgres")
    with slow.transaction():
        slow.execute("SELECT 1 FROM clew.threads")
        with pytest.raises(Unavailable, match="nothing was changed"):
            secure(server_address, Grant(ACME, "acme"))
    assert slow.execute("SELECT to_regclass('clew.grants')").fetchone() == (None,)
    secure(server_address, Grant(ACME, "acme"))


def test_a_full_disk_in_the_middle_of_granting_is_no_refusal_of_the_role(
    server_address: str, connect: Callable[..., Any]
) -> None:
    owner = connect("postgres")
    owner.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'no room' USING ERRCODE = 'disk_full'; END $$"
    )
    owner.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON clew.namespaces"
        " FOR EACH ROW EXECUTE FUNCTION public.refuse()"
    )
    with pytest.raises(Unavailable, match="no room"):
        secure(server_address, Grant(ACME, "acme"))
    assert owner.execute("SELECT to_regclass('clew.grants')").fetchone() == (None,)


def test_only_the_owner_can_switch_it_on(server_address: str, connect: Callable[..., Any]) -> None:
    connect("postgres").execute(f"GRANT USAGE ON SCHEMA clew TO {ACME}")
    connect("postgres").execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA clew TO {ACME}")
    with pytest.raises(Unsupported, match="clew migrate --rls --sql"):
        secure(as_role(server_address, ACME), Grant(GLOBEX, "globex"))


def test_the_statements_for_a_dba_do_the_same(
    tenants: str, postgres_cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    other = postgres_cluster.create_database()
    target = postgres_cluster.dsn(other)
    try:
        grants = ["--grant", f"{ACME}=acme", "--grant", f"{GLOBEX}=globex"]
        assert main(["migrate", target, "--sql", "--rls", *grants]) == 0
        text = capfd.readouterr().out
        assert postgres_cluster.sql("SELECT to_regnamespace('clew')", database=other) == [(None,)]
        with psycopg.connect(target) as connection:
            connection.execute(text.encode())
        assert main(["migrate", target, "--check", "--rls"]) == 0
        assert rules(target) == rules(tenants)
        with clew.open(as_role(target, ACME), namespace="acme", migrate=False) as store:
            fill(store)
    finally:
        postgres_cluster.drop_database(other)


def rules(address: str) -> list[Any]:
    """Policies, rights and grants, as the catalogue has them."""
    with psycopg.connect(address) as connection:
        return [
            connection.execute(query).fetchall()
            for query in (
                "SELECT tablename, policyname, cmd, qual, with_check FROM pg_policies ORDER BY 1",
                "SELECT relname, relacl::text, relrowsecurity FROM pg_class"
                " WHERE relnamespace = 'clew'::regnamespace ORDER BY 1",
                "SELECT proname, proacl::text, proconfig FROM pg_proc"
                " WHERE pronamespace = 'clew'::regnamespace ORDER BY 1",
                "SELECT g.role, n.name FROM clew.grants g JOIN clew.namespaces n ON n.no = g.space"
                " ORDER BY 1, 2",
            )
        ]


def test_a_schema_of_another_name_is_held_to_it_too(
    roles: None, postgres_cluster: Cluster, opened: Open
) -> None:
    name = postgres_cluster.create_database()
    address = postgres_cluster.dsn(name, schema="agents")
    try:
        secure(address, Grant(ACME, "acme"))
        store = opened(as_role(address, ACME), namespace="acme")
        fill(store)
        with pytest.raises(Unsupported, match="was not granted"):
            clew.open(as_role(address, ACME), namespace="globex")
        assert postgres_cluster.sql("SELECT to_regnamespace('clew')", database=name) == [(None,)]
        store.close()
    finally:
        postgres_cluster.drop_database(name)


# --- cost and safety ---

STATEMENTS = {
    "a thread by its id": "SELECT * FROM clew.threads WHERE space = 2 AND id = 't' AND NOT purged",
    "the head of an append": "UPDATE clew.threads SET seq = seq WHERE space = 2 AND no = 1",
    "a range of records": "SELECT * FROM clew.records"
    " WHERE space = 2 AND thread = 1 AND seq BETWEEN 1 AND 9 ORDER BY seq",
    "a page": "SELECT * FROM clew.threads WHERE space = 2 AND shelf = 0 AND listed_us IS NOT NULL"
    " ORDER BY listed_us DESC, id LIMIT 50",
    "a blob": "SELECT * FROM clew.blobs WHERE space = 2 AND hash = '\\x00'",
    "threads with a tag": "SELECT * FROM clew.tags WHERE space = 2 AND tag = 'red'",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_policy_is_looked_up_once_a_statement_and_lets_indexes_be_used(
    tenants: str, connect: Callable[..., Any], name: str
) -> None:
    acme = with_rights(connect)
    acme.execute("SET enable_seqscan = off")
    acme.execute("SET enable_bitmapscan = off")
    (plan,) = acme.execute(f"EXPLAIN (FORMAT JSON) {STATEMENTS[name]}").fetchone()
    nodes = list(walk(plan[0]["Plan"]))
    looked_up = [node for node in nodes if node.get("Alias", "").startswith("g")]
    assert looked_up
    assert {node["Parent Relationship"] for node in looked_up} == {"InitPlan"}, "not for each row"
    scans = [node for node in nodes if "Index Cond" in node and node not in looked_up]
    assert scans, json.dumps(plan)
    assert all("(space = 2)" in node["Index Cond"] for node in scans)
    assert not [node for node in nodes if node["Node Type"] in ("Seq Scan", "Sort")]


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from walk(below)


def test_functions_that_run_as_the_owner_ask_first_and_are_held_to_the_names_of_the_server(
    tenants: str, connect: Callable[..., Any]
) -> None:
    query = (
        "SELECT proname::text, prosecdef, proconfig, prosrc, has_function_privilege(oid, 'EXECUTE')"
        " FROM pg_proc WHERE pronamespace = 'clew'::regnamespace"
    )
    found = {name: rest for name, *rest in connect(ACME).execute(query)}
    for name, (definer, settings, source, open_to_all) in found.items():
        assert definer == ("clew.admit" in source and name != "admit"), name
        assert open_to_all == (definer or name == "now_us"), name
        if definer or name in ("give_rights", "grant_namespace", "revoke_namespace"):
            assert "search_path=pg_catalog, pg_temp" in settings, name
    with psycopg.connect(tenants) as owner:
        asked = "SELECT has_function_privilege('stranger', 'clew.now_us()', 'EXECUTE')"
        granted = owner.execute(asked)
        assert granted.fetchone() == (False,)


def test_every_function_refuses_a_namespace_that_was_not_granted(
    tenants: str, connect: Callable[..., Any]
) -> None:
    """Whatever else it is given, and before it does or locks anything."""
    owner, acme = connect("postgres"), connect(ACME)
    theirs = space_of(owner, "globex")
    query = (
        "SELECT oid::regprocedure::text, proargnames, proargmodes IS NULL, pronargs FROM pg_proc"
        " WHERE pronamespace = 'clew'::regnamespace AND prosecdef"
    )
    asked = 0
    for signature, names, _, count in owner.execute(query).fetchall():
        if "_space" not in (names or ()):
            continue
        types = signature.partition("(")[2][:-1].split(",")
        given = (
            f"{theirs}::bigint" if name == "_space" else f"NULL::{type}"
            for name, type in zip(names[:count], types, strict=True)
        )
        name = signature.partition("(")[0]
        with pytest.raises(states.InsufficientPrivilege, match="row-level security"):
            acme.execute(f"SELECT * FROM {name}({', '.join(given)})")
        asked += 1
    assert asked > 30
    assert acme.execute("SELECT name FROM clew.spaces()").fetchall() == [("acme",)]
    assert acme.execute("SELECT clew.space_named('globex')").fetchone() == (None,)
    assert acme.execute("SELECT * FROM clew.homeless('threads')").fetchall() == []


def test_a_search_path_that_others_can_put_functions_into_is_told(
    tenants: str, connect: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    connect("postgres").execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    assert main(["migrate", tenants, "--rls"]) == 0
    assert "REVOKE CREATE ON SCHEMA public FROM PUBLIC" in capsys.readouterr().out
    main(["doctor", tenants])
    assert "REVOKE CREATE ON SCHEMA public FROM PUBLIC" in capsys.readouterr().out
    connect("postgres").execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    assert main(["migrate", tenants, "--rls"]) == 0
    assert "REVOKE" not in capsys.readouterr().out


def test_a_role_searches_its_own_namespace_and_sees_no_words_of_others(
    tenants: str, opened: Open, connect: Callable[..., Any]
) -> None:
    """A role that may make no tables has its index in memory, until the owner has made them."""
    acme = opened(as_role(tenants, ACME), namespace="acme")
    acme.create("own").append_message({"role": "user", "content": "the acme heron"})
    assert acme.search("heron").total == 1
    owner = opened(tenants, namespace="globex")
    owner.create("other").append_message({"role": "user", "content": "the globex heron"})
    assert owner.search("heron").total == 1
    again = opened(as_role(tenants, ACME), namespace="acme")
    assert again.search("heron").total == 1
    assert [hit.thread for hit in again.search("globex OR acme").items] == ["own"]
    assert type(again.searcher.ready()[0]).__name__ == "PostgresTextIndex"
    count = "SELECT count(*) FROM clew.search_documents"
    seen = with_rights(connect).execute(count).fetchone()
    with psycopg.connect(tenants) as all_seeing:
        everything = all_seeing.execute(count).fetchone()
    assert seen is not None
    assert everything is not None
    assert 0 < seen[0] < everything[0]
