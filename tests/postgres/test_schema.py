"""Whatever is wrong with an address, a server or a schema, the error says what to do about it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator

import psycopg
import pytest
from amounts import sample
from crews import Open
from servers.cluster import Cluster
from servers.processes import free_port, wait_until

import clew
from clew.address import maintenance
from clew.engines.postgres import server as server_
from clew.engines.postgres.address import rename
from clew.engines.shared import migrations


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A server of its own, for the sake of its roles."""
    with Cluster(name="doors", access=("host all unwanted all reject",)) as cluster:
        cluster.sql("CREATE ROLE with_password")
        cluster.sql("CREATE ROLE locked LOGIN PASSWORD 'secret' IN ROLE with_password")
        cluster.sql("CREATE ROLE guest LOGIN")
        yield cluster


@pytest.fixture
def name(server: Cluster) -> str:
    """An empty database."""
    return server.create_database()


def refused(kind: type[clew.ClewError], says: str, address: str, **options: object) -> str:
    """Open it and be refused: with this error, these words, and no secrets."""
    with pytest.raises(kind, match=says) as caught:
        clew.open(address, **{"busy_seconds": 10, **options}).close()
    assert "secret" not in str(caught.value)
    assert caught.value.committed is False
    return str(caught.value)


def schemas(server: Cluster, database: str) -> set[str]:
    query = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$|public$)'"
    return {row[0] for row in server.sql(query, database=database)}


# --- the address -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://host:not-a-port/db",
        "postgresql://host/db?nonsense=1",
        "postgresql://[::1/db",
        "postgresql://host/db?sslmode=perhaps",
    ],
)
def test_an_address_that_makes_no_sense(address: str) -> None:
    with pytest.raises((clew.InvalidInput, clew.Unavailable)):
        clew.open(address, busy_seconds=1)


@pytest.mark.parametrize("more", ["", "&namespace=acme"])
def test_an_address_without_a_host_leads_to_the_socket(
    more: str, server: Cluster, name: str
) -> None:
    with clew.open(server.socket_dsn(name) + more) as store:
        assert store.properties.namespace == ("acme" if more else "default")
        store.create("t")
    with clew.open(server.dsn(name) + more.replace("&", "?")) as store:
        assert store.find("t") is not None


@pytest.mark.parametrize(
    "schema", ["", "two words", "Clew", "a;DROP", 'a"b', "ü", "pg_mine", "x" * 49, "1st", "a.b"]
)
def test_a_schema_name_that_is_no_plain_name(schema: str, server: Cluster, name: str) -> None:
    for address, options in (
        (server.dsn(name), {"schema": schema}),
        (server.dsn(name, schema=schema), {}),
    ):
        refused(clew.InvalidInput, "plain lower-case name", address, **options)
    assert schemas(server, name) == set()


def test_an_option_that_there_is_not(server: Cluster, name: str) -> None:
    refused(clew.InvalidInput, "durability: is not an option", server.dsn(name), durability="full")


@pytest.mark.parametrize("options", [{"connections": 0}, {"busy_seconds": 0}, {"busy_seconds": -1}])
def test_an_option_that_makes_no_sense(options: dict[str, int], server: Cluster, name: str) -> None:
    refused(clew.InvalidInput, next(iter(options)), server.dsn(name), **options)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "clew.engines.postgres", None)
    refused(clew.Unsupported, re.escape("pip install 'clew[postgres]'"), "postgresql://host/db")


# --- the door --------------------------------------------------------------------------------


def test_a_wrong_password(server: Cluster, name: str) -> None:
    wrong = server.dsn(name, user="locked", password="wrong")
    said = refused(clew.Unavailable, "check the user and the password", wrong)
    assert "wrong" not in said
    refused(clew.Unavailable, "put a password in the address", server.dsn(name, user="locked"))
    server.sql(f"GRANT CREATE ON DATABASE {name} TO locked")
    clew.open(server.dsn(name, user="locked", password="secret")).close()


def test_a_database_that_there_is_not(server: Cluster) -> None:
    said = refused(clew.NotFound, "database", server.dsn("nobody_made_this"))
    assert "nobody_made_this" in said


def test_a_role_that_there_is_not(server: Cluster, name: str) -> None:
    refused(clew.Unavailable, 'role "stranger" does not exist', server.dsn(name, user="stranger"))


def test_nobody_listens() -> None:
    address = f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"
    refused(clew.Unavailable, "is the server running there", address)


def test_a_maintenance_of_a_server_that_is_not_there() -> None:
    address = f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"
    with pytest.raises(clew.Unavailable, match="is the server running there"):
        maintenance(address).migrate()


def test_a_maintenance_looks_at_no_store_of_another_engine(server: Cluster, name: str) -> None:
    with clew.open("memory:") as store, pytest.raises(clew.Unsupported, match="MemoryEngine"):
        maintenance(server.dsn(name)).examine(store.engine)


@pytest.mark.parametrize(
    "says",
    [
        "FATAL:  the database system is starting up",
        "FATAL:  the database system is not yet accepting connections",
        "FATAL:  sorry, too many clients already",
    ],
)
def test_a_server_that_is_about_to_take_us_is_waited_for(
    server: Cluster, name: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every worker that starts during a restart would have to be started again."""
    left, connect = [says] * 3, psycopg.Connection.connect.__func__

    def refusing(cls: type, *arguments: object, **options: object) -> object:
        if left:
            raise psycopg.OperationalError(left.pop())
        return connect(cls, *arguments, **options)

    monkeypatch.setattr(psycopg.Connection, "connect", classmethod(refusing))
    with clew.open(server.dsn(name), busy_seconds=60) as store:
        assert not left
        assert store.create("t").id == "t"


def test_a_server_that_never_takes_us_is_told_when_the_time_is_over(
    server: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*arguments: object, **options: object) -> object:
        raise psycopg.OperationalError("FATAL:  the database system is starting up")

    monkeypatch.setattr(psycopg.Connection, "connect", refusing)
    refused(clew.Unavailable, "starting up", server.dsn(name), busy_seconds=0.2)


def test_a_client_that_the_server_does_not_let_in(name: str, server: Cluster) -> None:
    refused(clew.Unavailable, "pg_hba.conf", server.dsn(name, user="unwanted"))


# --- the server ------------------------------------------------------------------------------


def test_a_server_that_is_too_old(
    server: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = "current_setting('server_version_num')::bigint"
    assert number in server_._ASK
    monkeypatch.setattr(server_, "_ASK", server_._ASK.replace(number, "130022::bigint"))
    refused(clew.Unsupported, "Clew needs 14 or newer", server.dsn(name))
    assert schemas(server, name) == set()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_with_the_wrong_encoding(encoding: str, server: Cluster) -> None:
    name = f"in_{encoding.lower()}"
    server.sql(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    refused(clew.Unsupported, f"encoding {encoding}; Clew needs", server.dsn(name))
    assert schemas(server, name) == set()


# --- rights ----------------------------------------------------------------------------------


def test_a_role_that_may_make_nothing(server: Cluster, name: str) -> None:
    said = refused(clew.Unsupported, "may not make Clew's tables", server.dsn(name, user="guest"))
    assert "clew migrate --sql" in said
    assert schemas(server, name) == set()


def test_a_role_that_was_given_a_schema_needs_no_more(
    server: Cluster, name: str, opened: Open
) -> None:
    server.sql("CREATE SCHEMA clew AUTHORIZATION guest", database=name)
    opened(server.dsn(name, user="guest")).create("t")


def test_a_role_that_may_not_use_the_schema(server: Cluster, name: str) -> None:
    clew.open(server.dsn(name)).close()
    refused(clew.Unsupported, "GRANT USAGE ON SCHEMA clew", server.dsn(name, user="guest"))


def test_a_role_that_may_use_the_schema_and_not_the_tables(server: Cluster, name: str) -> None:
    clew.open(server.dsn(name)).close()
    server.sql("GRANT USAGE ON SCHEMA clew TO guest", database=name)
    refused(clew.Unsupported, "grant it the rights", server.dsn(name, user="guest"))


def test_a_role_with_all_rights_but_those_of_the_owner_can_work(
    server: Cluster, name: str, opened: Open
) -> None:
    clew.open(server.dsn(name)).close()
    for what in ("ALL TABLES", "ALL SEQUENCES", "ALL FUNCTIONS"):
        server.sql(f"GRANT ALL ON {what} IN SCHEMA clew TO guest", database=name)
    server.sql("GRANT USAGE ON SCHEMA clew TO guest", database=name)
    store = opened(server.dsn(name, user="guest"))
    store.create("t", tags=["x"]).append("event", {"text": "long " * 5000})
    store.purge("t")


def test_rights_that_are_taken_away_later(server: Cluster, name: str, opened: Open) -> None:
    server.sql(f"GRANT CREATE ON DATABASE {name} TO guest")
    store = opened(server.dsn(name, user="guest"))
    thread = store.create("t")
    server.sql("ALTER TABLE clew.records OWNER TO postgres", database=name)
    with pytest.raises(clew.Unsupported, match="grant it the rights"):
        thread.append("event", 1)


# --- the schema ------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["things", "format"])
def test_a_schema_that_is_not_ours_is_left_alone(table: str, server: Cluster, name: str) -> None:
    server.sql("CREATE SCHEMA clew", database=name)
    server.sql(f"CREATE TABLE clew.{table} (version int)", database=name)
    for options in ({}, {"create": False}, {"migrate": False}):
        refused(clew.Unsupported, r"not Clew's; .*\?schema=NAME", server.dsn(name), **options)
    found = server.sql(
        "SELECT relname FROM pg_class WHERE relnamespace = 'clew'::regnamespace", database=name
    )
    assert found == [(table,)]


def test_stores_live_beside_other_tables_and_beside_each_other(
    server: Cluster, name: str, opened: Open
) -> None:
    server.sql("CREATE TABLE threads (mine int)", database=name)
    one, two = opened(server.dsn(name, schema="one")), opened(server.dsn(name), schema="two")
    one.create("t", title="first").append("event", 1)
    two.create("t", title="second")
    two.sweep(grace_seconds=0)
    assert [(store.get("t").info.title.text, store.stats().entries) for store in (one, two)] == [
        ("first", 1),
        ("second", 0),
    ]
    assert one.properties.place.endswith("?schema=one")
    assert schemas(server, name) == {"one", "two"}
    two.purge("t")
    assert (one.verify(), two.verify()) == ([], [])
    server.sql("DROP SCHEMA two CASCADE", database=name)
    assert one.get("t").append("event", 2).seq == 3


def test_a_store_that_is_newer_than_this_clew(server: Cluster, name: str) -> None:
    clew.open(server.dsn(name)).close()
    server.sql("UPDATE clew.format SET version = 99", database=name)
    for options in ({}, {"create": False}, {"migrate": False}):
        with pytest.raises(clew.FormatTooNew, match="upgrade Clew") as caught:
            clew.open(server.dsn(name), **options)
        assert caught.value.found == 99


def test_without_create_nothing_is_made(server: Cluster, name: str) -> None:
    refused(clew.NotFound, "store", server.dsn(name), create=False)
    assert schemas(server, name) == set()
    clew.open(server.dsn(name)).close()
    clew.open(server.dsn(name), create=False).close()


def test_without_migrate_nothing_is_made(server: Cluster, name: str) -> None:
    refused(clew.Unsupported, "run: clew migrate", server.dsn(name), migrate=False)
    assert schemas(server, name) == set()
    clew.open(server.dsn(name)).close()
    clew.open(server.dsn(name), migrate=False).close()


def test_a_schema_that_is_dropped_under_an_open_store(
    server: Cluster, name: str, opened: Open
) -> None:
    store = opened(server.dsn(name))
    store.create("t")
    server.sql("DROP SCHEMA clew CASCADE", database=name)
    for call in (lambda: store.get("t"), lambda: store.create("u"), store.stats):
        with pytest.raises(clew.Unsupported, match="open the store again"):
            call()


def test_a_new_connection_to_a_schema_that_was_dropped_says_the_same(
    server: Cluster, name: str, opened: Open
) -> None:
    """It prepares statements that cannot be prepared any more, before the first call."""
    store = opened(server.dsn(name))
    store.create("t")
    server.sql("DROP SCHEMA clew CASCADE", database=name)
    store.engine._connections._pool.drain()  # type: ignore[attr-defined]
    with pytest.raises(clew.Unsupported, match="open the store again"):
        store.get("t")


# --- making it -------------------------------------------------------------------------------


def test_many_who_open_a_fresh_database_at_once_make_one_store(server: Cluster, name: str) -> None:
    gate = threading.Barrier(8)
    outcomes: list[str] = []

    def start(n: int) -> None:
        gate.wait(60)
        with clew.open(server.dsn(name), namespace=f"n{n % 2}") as store:
            outcomes.append(store.create(f"t{n}").id)

    workers = [threading.Thread(target=start, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(outcomes) == 8
    assert server.sql("SELECT count(*) FROM clew.format", database=name) == [(1,)]
    assert server.sql("SELECT name FROM clew.namespaces ORDER BY 1", database=name) == [
        ("n0",),
        ("n1",),
    ]


@pytest.mark.parametrize("version", [len(migrations.migrations("postgres")), 99])
def test_a_worker_that_waits_for_the_migration_of_another_takes_what_that_has_made(
    version: int, server: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _older(server, name, monkeypatch)
    outcomes: list[BaseException | str] = []

    def start() -> None:
        try:
            with clew.open(server.dsn(name), busy_seconds=60) as store:
                outcomes.append(store.get("t").id)
        except clew.ClewError as error:
            outcomes.append(error)

    with psycopg.connect(server.dsn(name)) as other:
        other.execute("LOCK TABLE clew.format IN SHARE ROW EXCLUSIVE MODE")
        other.execute("UPDATE clew.format SET version = %s", (version,))
        worker = threading.Thread(target=start)
        worker.start()
        query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
        wait_until(lambda: bool(server.sql(query, name)), "it waits for the lock")
        other.commit()
        worker.join(60)
    if version == 99:
        assert [type(outcome) for outcome in outcomes] == [clew.FormatTooNew]
    else:
        assert outcomes == ["t"]
    assert server.sql("SELECT version FROM clew.format", database=name) == [(version,)]
    assert server.sql(SET, database=name) != [("l",)], "nothing was migrated twice"


def test_a_function_of_others_with_the_name_of_ours_is_left_alone(
    server: Cluster, name: str
) -> None:
    server.sql(
        "CREATE SCHEMA clew; CREATE FUNCTION clew.now_us() RETURNS bigint LANGUAGE sql"
        " AS 'SELECT 1::bigint'",
        database=name,
    )
    refused(clew.ClewError, "now_us", server.dsn(name))
    assert server.sql("SELECT clew.now_us()", database=name) == [(1,)]


@pytest.mark.parametrize("tag", sample(["CREATE FUNCTION", "CREATE TABLE"], 2))
def test_an_interrupted_migration_leaves_nothing(tag: str, server: Cluster, name: str) -> None:
    """The backend is ended in the middle of it, where a trigger makes it wait."""
    server.sql(
        "CREATE FUNCTION wait() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_advisory_xact_lock(1); END $$",
        database=name,
    )
    trigger = f"ON ddl_command_end WHEN TAG IN ('{tag}') EXECUTE FUNCTION wait()"
    server.sql(f"CREATE EVENT TRIGGER wait {trigger}", database=name)
    with psycopg.connect(server.dsn(name)) as other:
        other.execute("SELECT pg_advisory_xact_lock(1)")
        errors: list[BaseException] = []
        opener = threading.Thread(target=lambda: errors.append(_failure(server.dsn(name))))
        opener.start()
        query = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = %s"
        wait_until(lambda: bool(server.sql(query, name)), "it is in the middle")
        server.sql("SELECT pg_terminate_backend(%s)", server.sql(query, name)[0][0])
        opener.join(60)
    assert [type(error) for error in errors] == [clew.Unavailable]
    assert schemas(server, name) == set()
    server.sql("DROP EVENT TRIGGER wait", database=name)
    clew.open(server.dsn(name)).close()


def _failure(address: str) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        clew.open(address, busy_seconds=15)  # for so long it tries again
    return caught.value


CATALOGUE = """
SELECT 'column', c.relname || '.' || a.attname,
       concat_ws(' ', a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage,
                 a.attcompression, coalesce(a.attstattarget, -1), a.attidentity, a.attgenerated,
                 l.collname, pg_get_expr(d.adbin, d.adrelid))
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
  LEFT JOIN pg_collation l ON l.oid = a.attcollation
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE c.relnamespace = %(schema)s::text::regnamespace AND a.attnum > 0
UNION ALL
SELECT 'relation', relname, concat_ws(' ', relkind, reloptions,
       pg_get_expr(relpartbound, oid), pg_get_partkeydef(oid), relrowsecurity,
       obj_description(oid, 'pg_class'))
  FROM pg_class WHERE relnamespace = %(schema)s::text::regnamespace
UNION ALL
SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = %(schema)s::text
UNION ALL
SELECT 'constraint', conrelid::regclass || ' ' || conname, pg_get_constraintdef(oid)
  FROM pg_constraint WHERE connamespace = %(schema)s::text::regnamespace
UNION ALL
SELECT 'function', proname, pg_get_functiondef(oid)
  FROM pg_proc WHERE pronamespace = %(schema)s::text::regnamespace
"""


def catalogue(dsn: str, schema: str) -> list[tuple[str, ...]]:
    """Everything in a schema, without its name."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(CATALOGUE, {"schema": schema}).fetchall()
    return sorted(tuple(part.replace(schema, "SCHEMA") for part in row) for row in rows)


def test_the_schema_to_read_is_the_sum_of_the_migrations(
    server: Cluster, name: str, opened: Open
) -> None:
    opened(server.dsn(name), schema="by_migrations")
    server.sql("CREATE SCHEMA by_one_file", database=name)
    with psycopg.connect(server.dsn(name)) as connection:
        connection.execute(rename(migrations.schema("postgres"), "by_one_file").encode())
    made = catalogue(server.dsn(name), "by_migrations")
    assert made == catalogue(server.dsn(name), "by_one_file")
    kinds = {row[0] for row in made}
    assert kinds == {"column", "relation", "index", "constraint", "function"}
    assert len(made) > 200


def _older(server: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store as the third version of the schema left it, with bodies that pglz has compressed."""
    from clew.engines.postgres import schema as schema_

    with monkeypatch.context() as older:
        older.setattr(schema_, "migrations", lambda dialect: migrations.migrations(dialect)[:3])
        with clew.open(server.dsn(name)) as store:
            store.create("t").append("event", BODY, id="old")


BODY = {"text": "what is said again and again " * 150}
COMPRESSED = "SELECT id, pg_column_compression(body) FROM clew.records WHERE type = 0 ORDER BY seq"
SET = """
SELECT DISTINCT a.attcompression::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE c.relname ~ '^records(_[0-7])?$' AND c.relkind IN ('r', 'p') AND a.attname = 'body'
"""


def has_lz4(server: Cluster) -> bool:
    query = (
        "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
    )
    return bool(server.sql(query)[0][0])


def test_bodies_of_an_older_store_stay_and_new_ones_are_compressed_by_lz4(
    server: Cluster, name: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_lz4(server):
        pytest.skip("this server was built without lz4")
    _older(server, name, monkeypatch)
    store = opened(server.dsn(name))
    store.get("t").append("event", BODY, id="new")
    assert server.sql("SELECT version FROM clew.format", database=name) == [(4,)]
    assert server.sql(SET, database=name) == [("l",)]
    assert server.sql(COMPRESSED, database=name) == [("old", "pglz"), ("new", "lz4")]
    assert [entry.body for entry in store.get("t").path()] == [BODY, BODY]
    assert store.verify() == []


def test_a_migration_does_not_keep_writers_waiting_for_a_long_transaction(
    server: Cluster, name: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stand before them in the queue for the table's lock for as long as that takes."""
    if not has_lz4(server):
        pytest.skip("this server was built without lz4")
    _older(server, name, monkeypatch)
    with psycopg.connect(server.dsn(name)) as dump:
        dump.execute("SELECT count(*) FROM clew.records")
        with pytest.raises(clew.Unavailable, match="a long transaction") as caught:
            maintenance(server.dsn(name)).migrate()
        assert caught.value.committed is False
        assert server.sql("SELECT version FROM clew.format", database=name) == [(3,)]
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        assert server.sql(waiting) == [(0,)]
    store = opened(server.dsn(name))
    assert server.sql("SELECT version FROM clew.format", database=name) == [(4,)]
    assert [entry.id for entry in store.get("t").path()] == ["old"]


def test_a_look_at_a_store_that_others_hold_ends_in_time(
    server: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clew.open(server.dsn(name)).close()
    monkeypatch.setattr("clew.engines.postgres.migrate.LOOK_SECONDS", 0.5)
    with psycopg.connect(server.dsn(name)) as other:
        other.execute("LOCK TABLE clew.format")
        with pytest.raises(clew.Unavailable, match=r"no answer within 0\.5 s") as caught:
            maintenance(server.dsn(name)).migrate(dry_run=True)
    assert caught.value.committed is False


def test_a_server_without_lz4_keeps_its_own_compression(
    server: Cluster, name: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trigger refuses the setting as such a server does."""
    _older(server, name, monkeypatch)
    server.sql(
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'compression method lz4 not supported'"
        " USING ERRCODE = 'feature_not_supported'; END $$",
        database=name,
    )
    server.sql(
        "CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('ALTER TABLE')"
        " EXECUTE FUNCTION refuse()",
        database=name,
    )
    store = opened(server.dsn(name))
    store.get("t").append("event", BODY, id="new")
    assert server.sql("SELECT version FROM clew.format", database=name) == [(4,)]
    assert server.sql(SET, database=name) == [("",)]
    assert server.sql(COMPRESSED, database=name) == [("old", "pglz"), ("new", "pglz")]
    assert store.verify() == []


def test_a_script_for_the_owner_makes_a_store_for_a_role_that_may_not(
    server: Cluster, name: str, opened: Open
) -> None:
    from clew.engines.postgres import schema as schema_

    with psycopg.connect(server.dsn(name)) as owner:
        owner.execute(schema_.script("clew").encode())
        owner.execute("GRANT USAGE ON SCHEMA clew TO guest")
        owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA clew TO guest")
    opened(server.dsn(name, user="guest"), migrate=False).create("t")
