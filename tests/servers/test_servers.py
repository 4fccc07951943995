"""The servers that the other tests lean on do what those tests take for granted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.pq import ExecStatus

from servers import processes
from servers.cluster import Cluster, dsn_of
from servers.processes import family, wait_until

OWNER = """
import sys
sys.path.insert(0, sys.argv[1])
from servers.cluster import Cluster
cluster = Cluster().start()
print(cluster.pid, cluster.socket_folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def own() -> Iterator[Cluster]:
    """A server that the test may break."""
    with Cluster() as cluster:
        yield cluster


def outcome(connection: psycopg.Connection[tuple[int]]) -> list[str]:
    """What became of the query that was sent."""
    found = []
    while (result := connection.pgconn.get_result()) is not None:
        found.append(ExecStatus(result.status).name)
    return found


def test_a_closed_server_leaves_no_process_and_no_file() -> None:
    with Cluster() as cluster:
        everybody = family(psutil.Process(cluster.pid).ppid())
        assert len(everybody) > 5
    assert not [process for process in everybody if process.is_running()]
    assert not cluster.socket_folder.exists()
    assert not cluster.data.exists()


def test_a_server_does_not_run_as_root(postgres_cluster: Cluster) -> None:
    assert psutil.Process(postgres_cluster.pid).uids().effective != 0


def test_a_port_that_was_taken_meanwhile_is_given_up(
    postgres_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([postgres_cluster.port, processes.free_port()])
    monkeypatch.setattr(processes, "free_port", lambda: next(ports))
    with Cluster() as cluster:
        assert cluster.port != postgres_cluster.port
        assert cluster.answers()


def test_a_server_does_not_outlive_tests_that_are_killed() -> None:
    tests = str(Path(__file__).parent.parent)
    command = [sys.executable, "-c", OWNER, tests]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().decode().split()
        everybody = family(int(pid))
        os.killpg(owner.pid, signal.SIGKILL)  # the whole group, as a terminal would
    assert everybody
    wait_until(lambda: not any(p.is_running() for p in everybody), "the server is gone")
    wait_until(lambda: not Path(folder).exists(), "its folder is gone")


def test_databases_are_fresh_and_apart(postgres_cluster: Cluster) -> None:
    names = [postgres_cluster.create_database() for _ in range(2)]
    for name in names:
        postgres_cluster.sql("CREATE TABLE thing (a int)", database=name)
        postgres_cluster.drop_database(name)
    assert names[0] != names[1]


def test_text_is_utf8_and_sorted_by_bytes(postgres_cluster: Cluster) -> None:
    found = postgres_cluster.sql("SELECT x FROM unnest(ARRAY['é', 'z', 'a', 'Z']) x ORDER BY x")
    assert [row[0] for row in found] == ["Z", "a", "z", "é"]


def test_the_wrong_password_is_refused(postgres_cluster: Cluster) -> None:
    postgres_cluster.sql("CREATE ROLE with_password")
    postgres_cluster.sql("CREATE ROLE careful LOGIN PASSWORD 'right' IN ROLE with_password")
    try:
        psycopg.connect(postgres_cluster.dsn(user="careful", password="right")).close()
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(postgres_cluster.dsn(user="careful", password="wrong"))
    finally:
        postgres_cluster.sql("DROP ROLE careful, with_password")


def test_what_was_committed_survives_every_way_to_stop(own: Cluster) -> None:
    port = own.port
    own.sql("CREATE TABLE thing (a int)")
    own.restart("fast")
    own.sql("INSERT INTO thing VALUES (1)")
    own.restart("immediate")
    own.sql("INSERT INTO thing VALUES (2)")
    own.kill()
    assert not own.running
    own.start()
    assert own.sql("SELECT a FROM thing ORDER BY a") == [(1,), (2,)]
    assert own.port == port, "clients must find it where it was"


def test_a_frozen_server_answers_only_after_it_thawed(own: Cluster) -> None:
    with psycopg.connect(own.dsn()) as connection:
        own.freeze()
        connection.pgconn.send_query(b"SELECT 1")
        states = {process.status() for process in family(own.pid)}
        own.thaw()
        assert states == {psutil.STATUS_STOPPED}
        assert outcome(connection) == ["TUPLES_OK"]


def test_killed_backends_end_their_clients_only(postgres_cluster: Cluster) -> None:
    name = postgres_cluster.create_database()
    with psycopg.connect(postgres_cluster.dsn(name)) as connection:
        assert postgres_cluster.kill_backends(database=name) == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    postgres_cluster.drop_database(name)


def test_a_server_recovers_from_the_crash_of_a_backend(own: Cluster) -> None:
    with psycopg.connect(own.dsn()) as connection:
        pid = own.pid
        assert own.kill_backends(hard=True) == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    wait_until(own.answers, "the server has recovered")
    assert own.pid == pid


def test_a_synchronous_standby_holds_what_was_acknowledged(own: Cluster) -> None:
    own.sql("CREATE TABLE thing (a int)")
    with own.standby() as standby:
        assert own.sql("SELECT application_name, sync_state FROM pg_stat_replication") == [
            ("standby", "sync")
        ]
        own.sql("INSERT INTO thing VALUES (1)")
        own.kill()
        standby.promote()
        dsn = dsn_of([own, standby], target_session_attrs="read-write")
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT a FROM thing").fetchall() == [(1,)]
            connection.execute("INSERT INTO thing VALUES (2)")


def test_a_commit_waits_for_a_frozen_synchronous_standby(own: Cluster) -> None:
    own.sql("CREATE TABLE thing (a int)")
    with own.standby() as standby, psycopg.connect(own.dsn(), autocommit=True) as connection:
        standby.freeze()
        connection.pgconn.send_query(b"INSERT INTO thing VALUES (1)")
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        wait_until(lambda: own.sql(waits) == [(1,)], "the commit waits")
        standby.thaw()
        assert outcome(connection) == ["COMMAND_OK"]


def test_a_commit_does_not_wait_for_an_asynchronous_standby(own: Cluster) -> None:
    own.sql("CREATE TABLE thing (a int)")
    with own.standby(synchronous=False) as standby:
        standby.freeze()
        own.sql("INSERT INTO thing VALUES (1)")
        own.kill()
        standby.thaw()
        standby.promote()
        assert standby.sql("SELECT count(*) FROM thing") <= [(1,)]
