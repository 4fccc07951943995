"""clew migrate brings a store's format up to date when it is told to, or says what that takes."""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg
import pytest
from cli_support import Run
from servers.cluster import Cluster

import clew
from clew.cli import _exits
from clew.core.errors import Unsupported
from clew.engines.shared.migrations import migrations

OLD = Path(__file__).parents[1] / "migrations" / "format_1.sql"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A SQLite store of the first format."""
    place = tmp_path / "old.db"
    database = apsw.Connection(str(place))
    database.execute(OLD.read_text())
    database.close()
    return place


@pytest.mark.usefixtures("newer")
def test_an_old_file_is_brought_up_to_date_and_not_by_a_check(run: Run, old: Path) -> None:
    newest = len(migrations("sqlite"))
    checked = run("migrate", old, "--check")
    assert checked.code == _exits.ATTENTION
    assert f"has format 1, and this Clew needs {newest}; run: clew migrate" in checked.out
    assert run("migrate", old, "--check").code == _exits.ATTENTION
    done = run("migrate", old)
    assert (done.code, done.lines) == (0, [f"done: {old} was brought from format 1 to {newest}"])
    assert run("migrate", old, "--check").code == 0
    assert run("migrate", old).out.startswith("up to date: ")


def test_a_folder_of_files_has_its_format(run: Run, tmp_path: Path) -> None:
    clew.open(f"files:{tmp_path}/store").close()
    assert run("migrate", f"files:{tmp_path}/store", "--check").out.startswith("up to date: ")


def test_what_is_not_there_or_no_store_is_not_made(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_bytes(b"just some notes, longer than a header\n" * 50)
    for options in ([], ["--check"]):
        assert run("migrate", tmp_path / "no.db", *options).code == _exits.USAGE
        assert run("migrate", f"files:{tmp_path}/no", *options).code == _exits.USAGE
        assert run("migrate", tmp_path / "notes.db", *options).code == _exits.UNSUPPORTED
    assert [path.name for path in tmp_path.iterdir()] == ["notes.db"]


@pytest.mark.parametrize(
    "options",
    [["--sql"], ["--rls"], ["--rls", "--grant", "r=n"], ["--grant", "r=n"], ["--check", "--sql"]],
    ids=" ".join,
)
def test_what_only_postgres_has_is_a_mistake_elsewhere(
    run: Run, tmp_path: Path, options: list[str]
) -> None:
    clew.open(tmp_path / "threads.db").close()
    assert run("migrate", tmp_path / "threads.db", *options).code == _exits.USAGE


# --- PostgreSQL ---


def test_a_database_is_set_up_once(run: Run, postgres_dsn: str) -> None:
    checked = run("migrate", postgres_dsn, "--check")
    assert checked.code == _exits.ATTENTION
    assert "is not set up" in checked.out
    with pytest.raises(Unsupported, match="run: clew migrate"):
        clew.open(postgres_dsn, migrate=False)
    assert "made, with format" in run("migrate", postgres_dsn).out
    assert run("migrate", postgres_dsn, "--check").code == 0
    assert run("migrate", postgres_dsn).out.startswith("up to date: ")
    with clew.open(postgres_dsn, migrate=False) as store:
        store.create("t")


def test_a_dba_runs_the_statements_and_the_program_needs_no_rights_on_the_schema(
    run: Run, postgres_cluster: Cluster
) -> None:
    """As docs/howto/postgres.md says."""
    database = postgres_cluster.create_database()
    address = postgres_cluster.dsn(database)
    postgres_cluster.sql("CREATE ROLE plain_app LOGIN")
    try:
        done = run("migrate", postgres_cluster.dsn(database, "plain_app"), "--sql")
        assert done.code == 0
        assert run("migrate", address, "--check").code == _exits.ATTENTION, "nothing was done yet"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(done.out.encode())
            for statement in (
                "GRANT USAGE ON SCHEMA clew TO plain_app",
                "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA clew TO plain_app",
                "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA clew TO plain_app",
            ):
                connection.execute(statement)
        assert run("migrate", address, "--check").code == 0
        assert run("migrate", address, "--sql").out.endswith("is up to date\n")
        with clew.open(postgres_cluster.dsn(database, "plain_app"), migrate=False) as store:
            thread = store.create("t", tags=["a"])
            thread.append("event", "x" * 20_000)
            assert thread.fork().path()
            store.purge("t")
    finally:
        postgres_cluster.drop_database(database)
        postgres_cluster.sql("DROP ROLE plain_app")


def test_a_role_without_rights_is_told_what_to_do(run: Run, postgres_cluster: Cluster) -> None:
    database = postgres_cluster.create_database()
    postgres_cluster.sql("CREATE ROLE nobody_app LOGIN")
    try:
        failed = run("migrate", postgres_cluster.dsn(database, "nobody_app"))
        assert failed.code == _exits.UNSUPPORTED
        assert "clew migrate --sql" in failed.err
        found = "SELECT count(*) FROM pg_namespace WHERE nspname = 'clew'"
        assert postgres_cluster.sql(found, database=database) == [(0,)]
    finally:
        postgres_cluster.drop_database(database)
        postgres_cluster.sql("DROP ROLE nobody_app")


def test_a_newer_format_is_left_alone(run: Run, postgres_dsn: str) -> None:
    clew.open(postgres_dsn).close()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("UPDATE clew.format SET version = 99")
    for options in ([], ["--check"], ["--sql"], ["--rls"]):
        failed = run("migrate", postgres_dsn, *options)
        assert (failed.code, failed.out) == (_exits.UNSUPPORTED, "")
        assert "upgrade Clew" in failed.err


@pytest.mark.parametrize("grant", ["", "role", "=n", "r=", "r=" + "n" * 200, "r" * 64 + "=n"])
def test_a_grant_that_cannot_be_read_changes_nothing(
    run: Run, postgres_dsn: str, grant: str
) -> None:
    failed = run("migrate", postgres_dsn, "--rls", f"--grant={grant}")
    assert failed.code == _exits.USAGE
    assert run("migrate", postgres_dsn, "--check").code == _exits.ATTENTION
