"""What is left of an erased body in the files of a server, byte by byte, and what a receipt says.

The server samples columns, keeps earlier versions of rows and never forgets a word of an index. So
its data folder is searched for the secret after a checkpoint, when all it knows is on disk.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg
import pytest
from crews import Open
from servers.cluster import Cluster
from tenancy import ACME, as_role

import clew
from clew.core.removal import Receipt
from clew.engines.postgres.address import rename
from clew.engines.shared import migrations

WORD = "zanzibarkey"
SHORT = {"role": "user", "content": f"the {WORD}"}
MIDDLE = {"role": "user", "content": "".join(f"{WORD}{n} " for n in range(100))}
# Not compressible, so that it is found; over 2 KB, so that it lies outside of its row.
TOASTED = {"role": "user", "content": os.urandom(2_500).hex() + WORD}


@pytest.fixture
def address(postgres_cluster: Cluster) -> str:
    return postgres_cluster.dsn(postgres_cluster.create_database())


def fill(store: clew.Store) -> list[str]:
    """A thread with a few innocent entries and three that say the word; the ids of those."""
    thread = store.create("t")
    for n in range(3):
        thread.append_message({"role": "user", "content": f"hello {n} " * 20})
    found = [thread.append_message(body).id for body in (SHORT, MIDDLE, TOASTED)]
    found.append(thread.append("event", 1, meta={"by": WORD}).id)
    assert store.search(WORD).total >= 1
    return found


def files_with(cluster: Cluster, *, log: bool = False) -> list[str]:
    """The files of the server that have the word in them."""
    cluster.sql("CHECKPOINT")
    found = [path for path in Path(cluster.data).rglob("*") if path.is_file()]
    names = [str(path.relative_to(cluster.data)) for path in found if _has_word(path)]
    return sorted(name for name in names if name.startswith("pg_wal/") == log)


def _has_word(path: Path) -> bool:
    try:
        return WORD.encode() in path.read_bytes()
    except FileNotFoundError:
        return False  # the server has removed it meanwhile


def database_of(address: str) -> str:
    return address.rpartition("/")[2]


def left_in(receipt: Receipt) -> dict[str, int | None]:
    return {one.place: one.left for one in receipt.checked}


def test_shrinking_leaves_nothing_in_the_tables(
    address: str, opened: Open, postgres_cluster: Cluster
) -> None:
    store = opened(address)
    ids = fill(store)
    assert files_with(postgres_cluster)
    receipt = store.erase("t", ids)
    assert left_in(receipt)["tables"] is None
    postgres_cluster.sql("VACUUM (INDEX_CLEANUP ON)", database=database_of(address))
    assert files_with(postgres_cluster), "a plain VACUUM would do, and shrinking is not needed"
    again = store.erase("t", ids, shrink=True)
    assert again.entries == receipt.entries
    assert left_in(again) == {"records": 0, "tables": 0, "log": None, "blobs": 0, "index": 0}
    assert files_with(postgres_cluster) == []
    assert files_with(postgres_cluster, log=True), "the receipt cannot tell of the log, and does"
    assert store.verify() == []
    assert store.search("hello").total == 3


def test_a_purged_thread_is_in_no_table_after_shrinking(
    address: str, opened: Open, postgres_cluster: Cluster
) -> None:
    store = opened(address)
    fill(store)
    store.create("u").append("event", "innocent")
    receipt = store.purge("t").receipt
    assert receipt is not None
    assert left_in(receipt)["tables"] is None
    done = store.pack(shrink=True)
    assert (done.complete, done.left_rows) == (True, 0)
    assert done.shrunk_bytes > 0
    assert files_with(postgres_cluster) == []
    assert [entry.body for entry in store.get("u").path()] == ["innocent"]
    assert store.verify() == []


def test_shrinking_ends_when_its_time_is_over(address: str, opened: Open) -> None:
    store = opened(address)
    store.create("t").append("event", "innocent")
    done = store.pack(shrink=True, max_seconds=0)
    assert (done.complete, done.shrunk_bytes, done.left_rows) == (False, 0, None)


def test_rows_that_another_transaction_sees_are_counted(
    address: str, opened: Open, postgres_cluster: Cluster
) -> None:
    store = opened(address)
    ids = fill(store)
    with psycopg.connect(address) as beside:
        beside.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        beside.execute("SELECT 1")  # from here on it sees what is there now
        receipt = store.erase("t", ids, shrink=True)
        left = left_in(receipt)["tables"]
        assert left is not None
        assert left >= len(ids)
        assert files_with(postgres_cluster)
    assert store.pack(shrink=True).left_rows == 0
    assert files_with(postgres_cluster) == []


def test_a_table_that_others_hold_is_not_waited_for_without_an_end(
    address: str, opened: Open
) -> None:
    store = opened(address, busy_seconds=0.5)
    ids = fill(store)
    with psycopg.connect(address) as beside:
        beside.execute("BEGIN")
        beside.execute("LOCK TABLE clew.threads IN ROW EXCLUSIVE MODE")
        receipt = store.erase("t", ids, shrink=True)
        (tables,) = [one for one in receipt.checked if one.place == "tables"]
        assert tables.left is None
        assert "clew.threads" in (tables.note or "")
        assert [entry.tombstone is None for entry in store.get("t").path()].count(False) == 4
        with pytest.raises(clew.Unavailable) as caught:
            store.pack(shrink=True)
        assert (caught.value.retryable, caught.value.committed) == (True, True)
    assert store.pack(shrink=True).left_rows == 0


def test_only_the_owner_can_shrink(tenants: str, opened: Open) -> None:
    store = opened(as_role(tenants, ACME), namespace="acme")
    thread = store.create("with a secret")
    entry = thread.append_message(SHORT)
    with pytest.raises(clew.Unsupported, match="clew pack --shrink"):
        store.pack(shrink=True)
    receipt = thread.erase(entry.id, shrink=True)
    assert left_in(receipt)["tables"] is None
    assert thread.get(entry.id).erased_at is not None


# --- statistics ---

SAMPLES = """
SELECT tablename, attname FROM pg_stats
 WHERE schemaname = 'clew' AND attname IN ('body', 'meta', 'data', 'words')
"""


def test_what_entries_say_is_not_sampled(
    address: str, opened: Open, postgres_cluster: Cluster
) -> None:
    """Samples can be asked for by SQL, and would outlive the body."""
    fill(opened(address))
    database = database_of(address)
    postgres_cluster.sql("ANALYZE", database=database)
    assert postgres_cluster.sql(SAMPLES, database=database) == []
    samples = "SELECT count(*) FROM pg_stats WHERE schemaname = 'clew'"
    assert postgres_cluster.sql(samples, database=database)[0][0] > 10


def test_what_was_sampled_before_goes_with_the_migration(
    address: str, opened: Open, postgres_cluster: Cluster
) -> None:
    database = database_of(address)
    with psycopg.connect(address) as connection:
        connection.execute("CREATE SCHEMA clew")
        for migration in migrations.migrations("postgres")[:2]:
            connection.execute(rename(migration.sql, "clew").encode())
        connection.execute("INSERT INTO clew.format VALUES (2, 0)")
        search = rename(migrations.optional("postgres", "search"), "clew")
        connection.execute(search.replace("SET STATISTICS 0", "SET STATISTICS 100").encode())
        connection.execute("INSERT INTO clew.namespaces (name) VALUES ('default')")
        connection.execute(
            "INSERT INTO clew.records (thread, time_us, space, seq, type, id, hash, meta, body)"
            " SELECT 77, 0, 77, n, 0, n::text, '', 'm', convert_to('zanzibarkey' || n, 'UTF8')"
            " FROM generate_series(1, 20) AS n"
        )
        connection.execute(
            "INSERT INTO clew.search_documents (thread, time_us, space, seq, size, title, words)"
            " SELECT 77, 0, 77, n, 1, false, 'zanzibarkey' FROM generate_series(1, 20) AS n"
        )
    postgres_cluster.sql("ANALYZE", database=database)
    columns: set[Any] = {name for _, name in postgres_cluster.sql(SAMPLES, database=database)}
    assert columns == {"body", "meta", "words"}
    opened(address)
    postgres_cluster.sql("ANALYZE", database=database)
    assert postgres_cluster.sql(SAMPLES, database=database) == []
    rows = postgres_cluster.sql("SELECT count(*) FROM clew.records", database=database)
    assert rows[0][0] == 20


@pytest.mark.parametrize(
    "damage",
    ["UPDATE clew.blobs SET data = '\\x00'", "DELETE FROM clew.blobs"],
    ids=["damaged", "lost"],
)
def test_a_large_body_that_is_damaged_does_not_keep_its_entry_from_being_erased(
    address: str, opened: Open, postgres_cluster: Cluster, damage: str
) -> None:
    store = opened(address)
    store.create("t").append("note", os.urandom(100_000).hex(), id="broken")
    small = store.get("t").append("note", WORD, id="behind")
    postgres_cluster.sql(damage, database=database_of(address))
    receipt = store.erase("t", ["broken"])
    assert [one.entry for one in receipt.entries] == ["broken"]
    assert left_in(receipt)["records"] == 0
    first, second = store.get("t").path()
    assert first.tombstone is not None
    assert first.tombstone.size_bytes == (200_002 if "UPDATE" in damage else 0)
    assert second == small
    assert store.verify() == []


def test_a_tombstone_that_is_damaged_is_not_taken_for_a_body(
    address: str, opened: Open, postgres_cluster: Cluster
) -> None:
    store = opened(address)
    store.create("t").append("note", WORD, id="gone")
    store.erase("t", ["gone"])
    postgres_cluster.sql("UPDATE clew.records SET meta = NULL", database=database_of(address))
    with pytest.raises(clew.Corrupt):
        store.erase("t", ["gone"])
