"""The proxy breaks connections where it is told to, and nowhere else."""

from __future__ import annotations

import gc
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest

from servers.cluster import Cluster
from servers.processes import wait_until
from servers.proxy import Messages, Proxy

Client = psycopg.Connection[tuple[int]]


@pytest.fixture
def database(postgres_cluster: Cluster) -> Iterator[str]:
    name = postgres_cluster.create_database()
    postgres_cluster.sql("CREATE TABLE thing (a int, b text)", database=name)
    yield name
    postgres_cluster.drop_database(name)


@pytest.fixture
def proxy(postgres_cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(postgres_cluster) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy, database: str) -> Iterator[Client]:
    with psycopg.connect(proxy.dsn(database), autocommit=True) as connection:
        yield connection


@pytest.fixture
def rows(postgres_cluster: Cluster, database: str) -> Callable[[], list[int]]:
    def look() -> list[int]:
        found = postgres_cluster.sql("SELECT a FROM thing ORDER BY a", database=database)
        return [row[0] for row in found]

    return look


def test_a_lost_reply_leaves_the_row_there(
    proxy: Proxy, client: Client, rows: Callable[[], list[int]]
) -> None:
    proxy.cut_after(b"INSERT")
    with pytest.raises(psycopg.OperationalError):
        client.execute("INSERT INTO thing VALUES (1)")
    assert rows() == [1]
    assert proxy.cuts == 1


def test_a_lost_reply_to_commit_leaves_all_of_the_transaction(
    proxy: Proxy, client: Client, rows: Callable[[], list[int]]
) -> None:
    proxy.cut_after(b"COMMIT")
    with pytest.raises(psycopg.OperationalError), client.transaction():
        client.execute("INSERT INTO thing VALUES (1)")
        client.execute("INSERT INTO thing VALUES (2)")
    assert rows() == [1, 2]


def test_a_lost_reply_to_a_prepared_statement_is_found_by_its_values(
    proxy: Proxy, client: Client, rows: Callable[[], list[int]]
) -> None:
    query = "INSERT INTO thing VALUES (%s, %s)"
    client.execute(query, (1, "other"), prepare=True)
    proxy.cut_after(b"marked")
    with pytest.raises(psycopg.OperationalError):
        client.execute(query, (2, "marked"), prepare=True)
    assert rows() == [1, 2]


def test_a_lost_reply_in_a_pipeline_leaves_all_of_the_pipeline(
    proxy: Proxy, client: Client, rows: Callable[[], list[int]]
) -> None:
    proxy.cut_after(b"first")
    with pytest.raises(psycopg.OperationalError), client.pipeline():
        for number, text in enumerate(["first" + "x" * 200_000, "second"]):
            client.execute("INSERT INTO thing VALUES (%s, %s)", (number, text))
    assert rows() == [0, 1]


def test_a_message_that_is_cut_before_never_arrives(
    proxy: Proxy, client: Client, rows: Callable[[], list[int]]
) -> None:
    proxy.cut_before(b"COMMIT")
    with pytest.raises(psycopg.OperationalError), client.transaction():
        client.execute("INSERT INTO thing VALUES (1)")
    proxy.wait_for_cut()
    assert rows() == []


def test_only_as_many_are_cut_as_were_asked_for(
    proxy: Proxy, database: str, rows: Callable[[], list[int]]
) -> None:
    proxy.cut_after(b"INSERT", times=2)
    for number in (1, 2):
        with (
            psycopg.connect(proxy.dsn(database), autocommit=True) as client,
            pytest.raises(psycopg.OperationalError),
        ):
            client.execute(f"INSERT INTO thing VALUES ({number})")
    with psycopg.connect(proxy.dsn(database)) as client:
        client.execute("INSERT INTO thing VALUES (3)")
    assert rows() == [1, 2, 3]


def test_a_client_without_a_reply_can_be_left_waiting(
    proxy: Proxy, client: Client, rows: Callable[[], list[int]]
) -> None:
    proxy.cut_after(b"INSERT", close=False)
    client.pgconn.send_query(b"INSERT INTO thing VALUES (1)")
    proxy.wait_for_cut()
    client.pgconn.consume_input()
    assert client.pgconn.is_busy()
    assert rows() == [1]
    client.close()


def test_all_connections_are_cut_at_once(proxy: Proxy, client: Client) -> None:
    assert proxy.cut() == 1
    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")


def test_what_a_black_hole_held_back_arrives_late(
    proxy: Proxy, client: Client, rows: Callable[[], list[int]]
) -> None:
    proxy.black_hole()
    client.pgconn.send_query(b"INSERT INTO thing VALUES (1)")
    client.close()
    assert rows() == []
    proxy.heal()
    wait_until(lambda: rows() == [1], "the late message has arrived")


def test_a_black_hole_takes_connections_and_answers_nobody(proxy: Proxy) -> None:
    proxy.black_hole()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=0.1) as client:
        client.sendall(b"\0\0\0\x17\0\x03\0\0user\0postgres\0\0")
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.heal()
        client.settimeout(60)
        assert client.recv(1) == b"R"


def test_a_refusing_proxy_takes_nobody_until_it_is_healed(proxy: Proxy, client: Client) -> None:
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.dsn())
    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")
    proxy.heal()
    psycopg.connect(proxy.dsn()).close()


def test_round_trips_are_counted(proxy: Proxy, client: Client) -> None:
    with proxy.counting() as one:
        client.execute("INSERT INTO thing VALUES (1)")
    with proxy.counting() as three, client.transaction():
        client.execute("INSERT INTO thing VALUES (1)")
    with proxy.counting() as pipeline, client.pipeline():
        for number in range(20):
            client.execute("INSERT INTO thing VALUES (%s)", (number,))
    assert [c.round_trips for c in (one, three, pipeline)] == [1, 3, 1]
    assert [c.connections for c in (one, three, pipeline)] == [0, 0, 0]


def test_a_delay_loses_and_mixes_up_nothing(proxy: Proxy, client: Client) -> None:
    proxy.delay_seconds = 0.02
    numbers = "SELECT x FROM generate_series(1, 50000) x"
    assert [row[0] for row in client.execute(numbers)] == list(range(1, 50_001))


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_messages_are_found_wherever_the_stream_is_cut(size: int) -> None:
    ssl = b"\0\0\0\x08\x04\xd2\x16\x2f"
    greeting = b"\0\0\0\x0a\0\x03\0\0ab"
    query = b"Q\0\0\0\x06a\0"
    stream, messages = ssl + greeting + query + query, Messages(greeted=False)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    found = [message for piece in pieces for message in messages.feed(piece)]
    assert found == [ssl, greeting, query, query]


def test_a_proxy_that_is_closed_while_clients_come_leaves_no_socket_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that asyncio was about to take in stayed open, and some later test was told of it."""
    left: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: left.append(str(told.exc_value)))
    for _ in range(20):
        proxy, is_over = Proxy(Nobody()), threading.Event()

        def come(proxy: Proxy = proxy, is_over: threading.Event = is_over) -> None:
            while not is_over.wait(0.0005):
                with suppress(OSError):
                    socket.create_connection(("127.0.0.1", proxy.port), timeout=5).close()

        clients = [threading.Thread(target=come) for _ in range(3)]
        for client in clients:
            client.start()
        proxy.close()
        is_over.set()
        for client in clients:
            client.join()
    gc.collect()
    assert left == []


class Nobody:
    port = 1  # where no server listens
