"""What a client does when the server behind its address is not the one that it was.

`make torture` kills servers; these are the same situations one by one, and without the waiting.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from msgspec import UNSET
from servers.cluster import Cluster, dsn_of, run_sql

import clew
from clew.core.codec import digest
from clew.core.errors import InvalidInput, NotFound, Unavailable
from clew.engines.postgres.engine import PostgresEngine
from clew.engines.postgres.wire import is_replaced
from clew.engines.postgres.write import Append


@pytest.fixture
def store(postgres_dsn: str) -> Iterator[clew.Store]:
    with clew.open(postgres_dsn) as opened:
        yield opened


# A standby that takes over may lack the newest of what was acknowledged. SQL makes it so here.
REMEMBER = "CREATE TABLE before AS SELECT * FROM clew.threads"
LOSE = """
WITH gone AS (DELETE FROM clew.records r USING before b WHERE r.thread = b.no AND r.seq > b.seq)
UPDATE clew.threads t
   SET seq = b.seq, leaf = b.leaf, leaf_hash = b.leaf_hash, tail = b.tail, leaf_seq = b.leaf_seq,
       leaf_thread = b.leaf_thread, updated_us = b.updated_us
  FROM before b WHERE b.no = t.no
"""


def test_no_entry_hangs_on_one_that_the_new_primary_never_had(
    store: clew.Store, postgres_dsn: str
) -> None:
    thread = store.create("t")
    thread.append("event", 1)
    run_sql(postgres_dsn, REMEMBER)
    lost = thread.append("event", 2)
    run_sql(postgres_dsn, LOSE)
    with clew.open(postgres_dsn) as other:
        new = other.get("t").append("event", "two")
    assert new.seq == lost.seq
    assert thread.append("event", 3).parent == new.id
    assert store.verify() == []


def test_no_batch_hangs_on_one_that_the_new_primary_never_had(
    store: clew.Store, postgres_dsn: str
) -> None:
    thread = store.create("t")
    first = thread.append("event", 1)
    run_sql(postgres_dsn, REMEMBER)
    thread.append("event", 2)
    run_sql(postgres_dsn, LOSE)
    with clew.open(postgres_dsn) as other:
        other.get("t").set(title="two")
    batch = thread.append([clew.draft("event", n) for n in (3, 4)])
    assert batch[0].parent == first.id
    assert store.verify() == []


def test_a_thread_that_was_lost_is_not_taken_for_one_that_got_its_number(
    store: clew.Store, postgres_dsn: str
) -> None:
    thread = store.create("t")
    run_sql(postgres_dsn, "UPDATE clew.threads SET id = 'another'")
    with pytest.raises(NotFound):
        thread.append("event", 1)
    assert store.get("another").info.seq == 0


def test_a_call_that_never_had_a_connection_has_written_nothing() -> None:
    with Cluster() as cluster:
        clew.open(cluster.dsn()).close()
        with clew.open(cluster.dsn(), busy_seconds=2) as store:
            thread = store.create("t")
            cluster.stop()
            with pytest.raises(Unavailable):
                thread.append("event", 1)  # perhaps on a connection that was still there
            with pytest.raises(Unavailable) as caught:
                thread.append("event", 2)
        assert caught.value.committed is False


def test_a_missing_blob_is_named_also_when_an_earlier_try_left_a_doubt(store: clew.Store) -> None:
    store.create("t")
    engine = store.engine
    assert isinstance(engine, PostgresEngine)
    draft = clew.draft("event", 1, blobs=[digest(b"nothing")])
    append = Append(engine._book, "t", [draft], {}, UNSET, None)
    with pytest.raises(InvalidInput, match="put it first"):
        engine._run(lambda wire, _: append.run(wire, True))


def test_a_silent_server_is_given_up_only_when_another_one_took_its_place() -> None:
    with Cluster() as primary, primary.standby() as standby:
        address = dsn_of([primary, standby], target_session_attrs="read-write")
        with psycopg.connect(address) as connection:
            assert not is_replaced(address, connection.info)
            primary.freeze()
            assert not is_replaced(address, connection.info)
            standby.promote()
            assert is_replaced(address, connection.info)
            assert not is_replaced(primary.dsn(), connection.info)
            connection.close()


def test_a_thread_that_stands_before_its_root_can_be_grown_at_its_end(store: clew.Store) -> None:
    thread = store.create("t")
    root = thread.append("event", 1)
    thread.move(None)
    assert thread.append("event", 2, parent=root.id).parent == root.id
