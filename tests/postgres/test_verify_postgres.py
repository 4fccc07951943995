"""Whatever is changed in the tables behind Clew's back, verify names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import psycopg
import pytest
from amounts import FULL, amount, sample
from postgres import damage
from postgres.damage import LARGE, Damaged, fill
from servers.cluster import Cluster
from servers.processes import wait_until

import clew
from clew.engines.postgres import table_streams as streams
from clew.engines.postgres.table_streams import Moment
from clew.engines.postgres.wire import Wire
from clew.upkeep.repair import repair


@pytest.fixture(scope="module")
def whole(postgres_cluster: Cluster) -> Iterator[str]:
    """A database with every shape of thread in it, to be copied; verify finds nothing."""
    name = postgres_cluster.create_database()
    fill(postgres_cluster.dsn(name))
    yield name
    postgres_cluster.drop_database(name)


@pytest.fixture
def copy(postgres_cluster: Cluster, whole: str) -> Iterator[Damaged]:
    name = postgres_cluster.create_database(whole)
    with Damaged(postgres_cluster.dsn(name)) as made:
        yield made
    postgres_cluster.drop_database(name)


# --- what is changed is found ---

# The change, then what it is called, and in which thread.
CHANGES = [
    ("UPDATE {records} SET body = '{{}}' WHERE id = 'c'", "damaged_body", "t"),
    ("UPDATE {records} SET body = body || ' ' WHERE kind = 'title'", "damaged_record", "t"),
    ("UPDATE {records} SET body = NULL WHERE id = 'c'", "missing_body", "t"),
    ("UPDATE {records} SET kind = 'event' WHERE id = 'a'", "damaged_record", "t"),
    ("UPDATE {records} SET kind = 'other' WHERE kind = 'title'", "damaged_record", "t"),
    ("UPDATE {records} SET time_us = time_us + 1 WHERE id = 'c'", "damaged_record", "t"),
    ("UPDATE {records} SET time_us = time_us + 1 WHERE type = 1", "damaged_record", "t"),
    ("UPDATE {records} SET turn = 'other' WHERE turn IS NOT NULL", "damaged_record", "t"),
    ("UPDATE {records} SET format = NULL WHERE format IS NOT NULL", "damaged_record", "t"),
    ("UPDATE {records} SET format = '' WHERE id = 'a'", "damaged_record", "t"),
    ("UPDATE {records} SET meta = NULL WHERE meta IS NOT NULL", "damaged_record", "t"),
    ("UPDATE {records} SET meta = '' WHERE type = 1", "damaged_record", "t"),
    ("UPDATE {records} SET blobs = NULL WHERE blobs IS NOT NULL", "damaged_record", "t"),
    ("UPDATE {records} SET blobs = upper(blobs) WHERE id = 'b'", "missing_blob", "t"),
    ("UPDATE {records} SET type = 2 WHERE id = 'a'", "damaged_record", "t"),
    ("UPDATE {records} SET type = 3 WHERE id = 'a'", "damaged_record", "t"),
    ("UPDATE {records} SET parent = NULL WHERE type = 1", "damaged_record", "t"),
    ("UPDATE {records} SET parent = NULL WHERE id = 'd'", "damaged_record", "f"),
    ("UPDATE {records} SET parent = 'e' WHERE id = 'd'", "broken_chain", "f"),
    ("UPDATE {records} SET parent = id WHERE id = 'd'", "broken_chain", "f"),
    ("UPDATE {records} SET parent = 'b' WHERE id = 'd'", "broken_chain", "f"),  # not on its path
    ("UPDATE {records} SET id = 'renamed' WHERE id = 'a'", "broken_chain", "f"),
    ("UPDATE {records} SET hash = '\\x00' WHERE id = 'c'", "damaged_record", "t"),
    ("UPDATE {records} SET body_hash = '\\x00' WHERE id = 'c'", "damaged_record", "t"),
    ("UPDATE {records} SET body_hash = NULL WHERE id = 'c'", "damaged_record", "t"),
    ("UPDATE {records} SET body_hash = hash WHERE type = 1", "damaged_record", "t"),
    ("UPDATE {records} SET seq = seq + 77 WHERE id = 'd'", "gap", "f"),
    ("UPDATE {records} SET seq = -seq WHERE id = 'd'", "damaged_record", "f"),
    ("UPDATE {records} SET thread = 999 WHERE id = 'd'", "orphans", None),
    ("UPDATE {records} SET space = 999 WHERE id = 'd'", "orphans", None),
    ("DELETE FROM {records} WHERE id = 'a'", "gap", "t"),
    ("DELETE FROM {records} WHERE type = 1", "gap", "t"),
    ("DELETE FROM {records} WHERE id = 'd'", "wrong_sum", "f"),
    ("DELETE FROM {records} WHERE id = 'p1'", "broken_chain", "p"),
    ("UPDATE {records} SET body = '1' WHERE id = 'p3'", "damaged_body", "p"),
    ("DELETE FROM {segments} WHERE thread > 1 AND space = 1", "wrong_sum", "f"),
    ("UPDATE {segments} SET parent_seq = parent_seq - 1 WHERE parent_seq > 1", "wrong_sum", "f"),
    ("UPDATE {segments} SET parent_seq = first + 5 WHERE parent_seq > 1", "wrong_sum", "f"),
    ("UPDATE {segments} SET parent_thread = thread WHERE parent_seq > 1", "wrong_sum", "f"),
    ("UPDATE {segments} SET parent_seq = 1 WHERE parent_seq IS NULL", "wrong_sum", "t"),
    ("UPDATE {segments} SET first = first + 1 WHERE first = 3", "wrong_sum", "n"),
    ("INSERT INTO {segments} (space, thread, first) VALUES (1, 1, 999)", "wrong_sum", "t"),
    ("INSERT INTO {segments} (space, thread, first) VALUES (1, 999, 1)", "orphans", None),
    ("DELETE FROM {facts} WHERE key = 'tags'", "wrong_sum", "t"),
    ("UPDATE {facts} SET seq = seq + 1 WHERE key = 'title'", "wrong_sum", "t"),
    ("UPDATE {facts} SET key = 'other' WHERE key = 'title'", "wrong_sum", "t"),
    ("INSERT INTO {facts} (space, thread, key, seq) VALUES (1, 1, 'x', 1)", "wrong_sum", "t"),
    ("INSERT INTO {facts} (space, thread, key, seq) VALUES (1, 999, 'x', 1)", "orphans", None),
    ("INSERT INTO {facts} SELECT no, 1, 1, 'x' FROM {threads} WHERE id = 'p'", "wrong_sum", "p"),
    ("DELETE FROM {tags}", "wrong_sum", "t"),
    ("UPDATE {tags} SET tag = 'z' WHERE tag = 'a'", "wrong_sum", "t"),
    ("INSERT INTO {tags} (space, tag, thread) VALUES (1, 'z', 1)", "wrong_sum", "t"),
    ("INSERT INTO {tags} (space, tag, thread) VALUES (1, 'z', -5)", "orphans", None),
    ("UPDATE {threads} SET leaf = NULL WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET leaf_hash = '\\x00' WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET leaf_thread = 2 WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET leaf_seq = leaf_seq - 1 WHERE id = 'e'", "wrong_sum", "e"),
    ("UPDATE {threads} SET tail = NULL WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET seq = seq + 1 WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET updated_us = 0 WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET listed_us = 0 WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET created_us = 0 WHERE id = 't'", "damaged_thread", "t"),
    ("UPDATE {threads} SET parent = NULL WHERE id = 't'", "damaged_thread", "t"),
    ("UPDATE {threads} SET parent = '' WHERE id = 'f'", "damaged_thread", "f"),
    ("UPDATE {threads} SET workspace = 'x' WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET status = 'x' WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET archived = true WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET archived = false WHERE id = 'gone'", "wrong_sum", "gone"),
    ("UPDATE {threads} SET deleted_us = NULL WHERE id = 'gone'", "wrong_sum", "gone"),
    ("UPDATE {threads} SET purged = true WHERE id = 't'", "wrong_sum", "t"),
    ("UPDATE {threads} SET purged = true WHERE id = 'empty'", "wrong_sum", "empty"),
    ("UPDATE {threads} SET purged = false WHERE id = 'p'", "gap", "p"),
    ("UPDATE {threads} SET id = 'other' WHERE id = 't'", "damaged_thread", "other"),
    ("UPDATE {threads} SET origin = 'x' WHERE id = 'f'", "damaged_thread", "f"),
    ("UPDATE {threads} SET origin_entry = NULL WHERE id = 'f'", "broken_origin", "f"),
    ("UPDATE {threads} SET origin_hash = '\\x00' WHERE id = 'f'", "broken_origin", "f"),
    ("UPDATE {threads} SET origin_seq = origin_seq - 1 WHERE id = 'f'", "broken_origin", "f"),
    ("UPDATE {threads} SET origin_seq = origin_seq + 1 WHERE id = 'f'", "broken_origin", "f"),
    ("UPDATE {threads} SET origin_thread = 77 WHERE id = 'f'", "broken_origin", "f"),
    ("UPDATE {threads} SET origin_thread = NULL WHERE id = 'f'", "broken_origin", "f"),
    ("UPDATE {threads} SET hash = '\\x00' WHERE id = 'gone'", "damaged_thread", "gone"),
    ("UPDATE {threads} SET space = 2 WHERE id = 'gone'", "orphans", None),
    ("UPDATE {threads} SET fence = fence + 1 WHERE id = 't'", "damaged_lease", "t"),
    ("UPDATE {threads} SET fence = 1 WHERE id = 'empty'", "damaged_lease", "empty"),
    ("UPDATE {threads} SET owner = 'x' WHERE id = 'f'", "damaged_lease", "f"),
    ("UPDATE {threads} SET lease_turn = NULL WHERE id = 'f'", "damaged_lease", "f"),
    ("UPDATE {threads} SET leased_us = leased_us + 1 WHERE id = 'f'", "damaged_lease", "f"),
    ("UPDATE {threads} SET until_us = until_us * 2 WHERE id = 'f'", "damaged_lease", "f"),
    ("DELETE FROM {threads} WHERE id = 't'", "orphans", None),
    ("DELETE FROM {threads} WHERE id = 'gone'", "orphans", None),
    ("DELETE FROM {threads} WHERE id = 'p'", "orphans", None),
    ("DELETE FROM {blobs} WHERE size > 1000", "missing_body", "t"),
    ("DELETE FROM {blobs} WHERE size > 1000", "damaged_record", "many"),
    ("DELETE FROM {blobs} WHERE size < 1000", "missing_blob", "t"),
    ("UPDATE {blobs} SET hash = '\\x00' WHERE size = 250", "damaged_blob", None),
    ("UPDATE {blobs} SET size = size + 1 WHERE size > 1000", "damaged_blob", None),
    ("UPDATE {blobs} SET size = 1::bigint << 60 WHERE size > 1000", "damaged_blob", None),
    ("UPDATE {blobs} SET codec = 'raw' WHERE size > 1000", "damaged_blob", None),
    ("UPDATE {blobs} SET codec = 'rav' WHERE codec = 'raw'", "damaged_blob", None),
    ("UPDATE {blobs} SET stored = '\\x00' WHERE size > 1000", "damaged_blob", None),
    ("UPDATE {blobs} SET data = data || '\\x00' WHERE size > 1000", "damaged_body", "t"),
    ("UPDATE {blobs} SET space = 999 WHERE size = 5", "orphans", None),  # nobody uses it
    ("DELETE FROM {blob_uses}", "wrong_sum", "t"),
    ("UPDATE {blob_uses} SET seq = seq + 1", "wrong_sum", "t"),
    ("UPDATE {blob_uses} SET seq = 9999", "orphans", "t"),
    ("UPDATE {blob_uses} SET thread = 999", "orphans", None),
    ("UPDATE {blob_uses} SET blob = blob || '\\x00'", "wrong_sum", "t"),
    ("INSERT INTO {blob_uses} VALUES (1, 1, 1, '\\x00')", "wrong_sum", "t"),
    ("UPDATE {namespaces} SET name = 'other' WHERE name = 'default'", "orphans", None),
    ("UPDATE {format} SET version = 0", "damaged_schema", None),
]


@pytest.mark.parametrize(("change", "code", "thread"), sample(CHANGES, 3))
def test_a_changed_row_is_found(copy: Damaged, change: str, code: str, thread: str | None) -> None:
    copy.change(change)
    found = copy.problems()
    assert (code, thread) in {(problem.code, problem.thread) for problem in found}, found


def test_any_bit_that_flips_is_found_or_means_nothing(copy: Damaged) -> None:
    """In every column of every table; NULLs are filled, and what may be NULL is emptied."""
    copy.keep_connections()
    outcome = damage.flip_values(copy, seed=6, rows_max=amount(1, 4))
    assert outcome.wrong == []
    assert outcome.found > amount(60, 250)
    assert outcome.meant_nothing > amount(2, 10), "the harness can tell"


def test_no_bit_that_flips_gives_a_wrong_answer_with_check_reads(copy: Damaged) -> None:
    tables = damage.TABLES if FULL else ["records"]
    outcome = damage.flip_values(copy, 7, amount(1, 4), damage.judge_reads, tables)
    assert outcome.wrong == []
    bare = damage.flip_values(copy, 7, 1, damage.judge_bare_reads, ["records"])
    assert bare.wrong, "the harness can tell"


def test_a_problem_names_its_place(copy: Damaged) -> None:
    copy.change("UPDATE {records} SET body = '1' WHERE id = 'd'")
    found = copy.problems()
    assert [(p.code, p.thread, p.seq, p.entry) for p in found] == [("damaged_body", "f", 3, "d")]


@pytest.mark.parametrize(
    ("change", "code"), [("body = '1'", "damaged_body"), ("kind = 'x'", "damaged_record")]
)
def test_one_damaged_entry_is_not_blamed_on_those_that_hang_on_it(
    copy: Damaged, change: str, code: str
) -> None:
    copy.change(f"UPDATE {{records}} SET {change} WHERE id = 'a'")
    assert [(p.code, p.entry) for p in copy.problems()] == [(code, "a")]


BODIES = [
    "UPDATE {records} SET body = NULL WHERE id = 'a'",
    "DELETE FROM {blobs} WHERE size > 1000",
]


@pytest.mark.parametrize("change", BODIES, ids=["in its row", "in a blob"])
@pytest.mark.parametrize("quick", [True, False])
def test_the_chain_verifies_without_a_body(copy: Damaged, change: str, quick: bool) -> None:
    """An entry's hash covers the hash of its body, so nothing but the body is missing."""
    copy.change(change)
    found = [problem for problem in copy.problems(quick=quick) if problem.entry is not None]
    assert {problem.code for problem in found} == {"missing_body"}


def test_a_missing_blob_is_called_that_and_nothing_else(copy: Damaged) -> None:
    copy.change("DELETE FROM {blobs} WHERE size < 1000")
    assert {problem.code for problem in copy.problems()} == {"missing_blob"}


@pytest.mark.parametrize("column", ["id", "kind", "parent", "format", "blobs"])
def test_text_that_is_no_text_any_more_is_a_problem(copy: Damaged, column: str) -> None:
    """In every row of it at once: nothing of a page can be decoded then."""
    bad = f"('\\xff'::bytea || coalesce({column}, '')::bytea)::text"
    copy.change(f"UPDATE {{records}} SET {column} = {bad} WHERE id IN ('b', 'c')")
    found = copy.problems()
    assert {"damaged_record"} <= {problem.code for problem in found}
    for problem in found:
        str(problem).encode("utf-8")


@pytest.mark.parametrize(("table", "key"), [("facts", "key"), ("tags", "tag"), ("threads", "id")])
def test_keys_that_are_no_text_any_more_are_problems(copy: Damaged, table: str, key: str) -> None:
    bad = f"('\\x61ff00'::bytea || {key}::bytea)::text"
    copy.change(f"UPDATE clew.{table} SET {key} = {bad} WHERE space = 2")
    assert copy.problems("acme") != []


def test_a_holder_that_is_no_text_any_more_is_a_problem(copy: Damaged) -> None:
    copy.change("UPDATE {threads} SET owner = '\\xff'::bytea::text WHERE id = 'f' AND space = 1")
    found = copy.problems()
    assert [(p.code, p.thread) for p in found] == [("damaged_lease", "f")], found


def test_facts_of_the_wrong_kind_are_problems_and_no_accident(copy: Damaged) -> None:
    for value in ("5", "[[1]]", "{", "[" * 3000, '"\\\\ud800"'):
        for key in ("tags", "status", "archived", "deleted_us"):
            copy.run(f"UPDATE clew.records SET body = '{value}', blob = NULL WHERE kind = '{key}'")
        assert {"damaged_record"} <= {problem.code for problem in copy.problems()}


# --- the schema ---

SCHEMA_CHANGES = [
    ("DROP INDEX clew.records_by_id", "index records_by_id"),
    ("DROP INDEX clew.threads_by_id; CREATE INDEX threads_by_id ON clew.threads (id)", "by_id"),
    ("CREATE OR REPLACE FUNCTION clew.take_turns(_space bigint) RETURNS void LANGUAGE sql AS"
     " 'SELECT'", "function take_turns"),
    ("DROP FUNCTION clew.spans", "function spans"),
    ("DROP TABLE clew.tags CASCADE", "table tags"),
    ("ALTER TABLE clew.segments RENAME COLUMN first TO begin", "cannot be read further"),
    ("DELETE FROM clew.format", "format version"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "named"), SCHEMA_CHANGES)
def test_a_changed_schema_is_found(copy: Damaged, change: str, named: str) -> None:
    copy.run(change)
    found = copy.problems()
    assert any(named in problem.message for problem in found), found
    assert len(found) < 40, "it is not told of every thread and row"


def test_what_others_add_to_the_schema_is_no_damage(copy: Damaged) -> None:
    copy.run("CREATE INDEX of_theirs ON clew.records (time_us); CREATE TABLE clew.theirs ()")
    assert copy.problems() == []


# --- namespaces ---


def test_damage_in_one_namespace_is_not_told_of_another(copy: Damaged) -> None:
    copy.change("UPDATE {records} SET body = '1' WHERE space = 2 AND type = 0")
    assert copy.problems() == []
    (found,) = copy.problems("acme")
    assert (found.code, found.thread, found.namespace) == ("damaged_body", "t", "acme")


def test_a_thread_that_was_put_into_another_namespace_is_found(copy: Damaged) -> None:
    for table in ("threads SET space = 2 WHERE no", "records SET space = 2 WHERE thread"):
        copy.change(f"UPDATE clew.{table} = (SELECT no FROM clew.threads WHERE id = 'gone')")
    codes = {(problem.code, problem.thread) for problem in copy.problems("acme")}
    assert ("damaged_thread", "gone") in codes


# --- the quick form ---

QUICKLY = [
    "UPDATE {records} SET parent = NULL WHERE type = 1",
    "UPDATE {records} SET id = 'renamed' WHERE id = 'a'",
    "UPDATE {records} SET time_us = time_us + 1 WHERE id = 'c'",
    "UPDATE {records} SET meta = NULL WHERE meta IS NOT NULL",
    "UPDATE {records} SET body_hash = hash WHERE id = 'c'",
    "UPDATE {records} SET hash = '\\x00' WHERE id = 'c'",
    "DELETE FROM {records} WHERE id = 'a'",
    "DELETE FROM {segments}",
    "DELETE FROM {facts} WHERE key = 'tags'",
    "UPDATE {threads} SET seq = seq + 1 WHERE id = 't'",
    "UPDATE {threads} SET created_us = 0 WHERE id = 't'",
    "UPDATE {threads} SET fence = fence + 1 WHERE id = 't'",
    "DELETE FROM {blobs} WHERE size > 1000",
    "DELETE FROM {blobs} WHERE size < 1000",
    "DELETE FROM {blob_uses}",
    "UPDATE {records} SET body = NULL WHERE id = 'c'",
]


@pytest.mark.parametrize("change", QUICKLY)
def test_the_quick_form_sees_what_is_wrong_with_the_structure(copy: Damaged, change: str) -> None:
    copy.change(change)
    assert copy.problems(quick=True) != []


def test_the_quick_form_does_not_read_bodies(copy: Damaged) -> None:
    copy.change("UPDATE {records} SET body = '{{}}' WHERE id = 'c'")
    copy.change("UPDATE {blobs} SET data = 'x'")
    assert copy.problems(quick=True) == []
    assert len(copy.problems()) >= 3


# --- how it reads ---


def test_problems_come_while_the_rest_is_still_to_be_read(copy: Damaged) -> None:
    copy.change("UPDATE {blobs} SET data = 'x'")
    with clew.open(copy.dsn, connections=1) as store:
        told: list[int] = []
        found = store.engine.check(progress=lambda done, total: told.append(done))
        assert next(found).code == "damaged_blob"
        assert told == [], "nothing else was read yet"
        store.create("another")  # the only connection of the pool is free
        found.close()  # type: ignore[attr-defined]
        wait_until(lambda: copy.sessions("clew") == 1, "nothing stays open but the pool")


def test_what_is_written_meanwhile_is_not_taken_for_damage(copy: Damaged) -> None:
    with clew.open(copy.dsn) as store, mock.patch.object(streams, "PAGE_ROWS", 3):

        def write(done: int, total: int) -> None:
            store.get("t").append("event", {"at": done}, blobs=[store.blobs.put(b"%d" % done)])
            if done == 2:
                store.purge("u")
                store.create("late").append("event", {"text": LARGE})

        with mock.patch("clew.engines.shared.audit.TOLD_EVERY", 1):
            assert store.verify(progress=write) == []
        assert store.verify() == []


def test_it_tells_how_far_it_is(copy: Damaged) -> None:
    with (
        clew.open(copy.dsn) as store,
        mock.patch("clew.engines.shared.audit.TOLD_EVERY", 1),
    ):
        kept = "SELECT count(*) FROM clew.threads t JOIN clew.records r ON r.thread = t.no"
        left = copy.connection.execute(f"{kept} WHERE t.purged".encode()).fetchone()
        records, blobs = store.stats().records - left[0], store.stats().blobs
        for quick, total in ((False, records + blobs), (True, records)):
            told: list[tuple[int, int]] = []
            store.verify(quick=quick, progress=lambda *now: told.append(now))  # noqa: B023
            assert told == [*((n, total) for n in range(1, total + 1)), (total, total)]


class Asked:
    """Notes what the server is asked for, and how much it answers."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.sizes: list[int] = []

    def every(self, moment: Moment, sql: str, *bindings: Any) -> list[Any]:
        found = self._ask(moment, sql, *bindings)
        self.rows.append(len(found))
        values = [value for row in found for value in row if isinstance(value, bytes)]
        self.sizes.append(sum(map(len, values)))
        return found

    def __enter__(self) -> Asked:
        self._ask = Moment.every
        asked = self

        def every(self: Moment, sql: str, *bindings: Any) -> list[Any]:
            return asked.every(self, sql, *bindings)

        self._patch = mock.patch.object(Moment, "every", every)
        self._patch.__enter__()
        return self

    def __exit__(self, *_: Any) -> None:
        self._patch.__exit__(None, None, None)


def test_memory_and_questions_are_bounded_in_a_large_store(postgres_dsn: str) -> None:
    with clew.open(postgres_dsn) as store:
        thread = store.create("t")
        for n in range(12):
            thread.append([clew.draft("event", "x" * 6000, id=f"e{n}.{m}") for m in range(250)])
        for n in range(100):
            thread.fork(at=f"e{n % 12}.{n}", id=f"f{n}").append("event", n)
        for n in range(6):
            store.blobs.put(bytes(str(n), "ascii") * 3_000_000 + damage.noise(1_500_000, n))
        with Asked() as asked:
            assert store.verify() == []
    assert max(asked.rows) <= streams.PAGE_ROWS
    assert max(asked.sizes[5:]) <= 1.6 * streams.PAGE_BYTES, "a page, or a single blob"
    assert len(asked.rows) < 60, "pages, not single records, forks or blobs"


def test_a_thread_of_branches_is_looked_up_by_the_page(postgres_dsn: str) -> None:
    with clew.open(postgres_dsn) as store:
        thread = store.create("t")
        thread.append([clew.draft("event", n, id=f"e{n}") for n in range(10)])
        comb = [clew.draft("event", n, id=f"c{n}", parent=f"e{n % 10}") for n in range(900)]
        thread.append(comb)
        for n in range(20):
            thread.move(f"c{n}")
        with Asked() as asked:
            assert store.verify() == []
        assert len(asked.rows) < 40


# --- trouble ---


def test_a_lost_connection_is_trouble_and_not_damage(
    copy: Damaged, postgres_cluster: Cluster
) -> None:
    with clew.open(copy.dsn) as store, mock.patch.object(streams, "PAGE_ROWS", 3):
        cut = mock.Mock(side_effect=lambda *_: copy.cut())
        often = mock.patch("clew.engines.shared.audit.TOLD_EVERY", 2)
        with often, pytest.raises(clew.Unavailable):
            store.verify(progress=cut)
        assert store.verify() == []


def test_a_connection_that_is_lost_on_damage_is_trouble(copy: Damaged) -> None:
    """The other parts could not be asked for any more, so nothing would be known of them."""
    copy.run("ALTER TABLE clew.blobs RENAME COLUMN hash TO other")
    execute = Wire.execute

    def cut(wire: Wire, query: Any, *rest: Any, **options: Any) -> Any:
        if query == "ROLLBACK TO SAVEPOINT readable":
            copy.cut()
        return execute(wire, query, *rest, **options)

    with mock.patch.object(Wire, "execute", cut), pytest.raises(clew.ClewError) as caught:
        copy.problems()
    assert not isinstance(caught.value, clew.Corrupt)


def test_a_table_that_others_hold_is_waited_for_and_no_damage(copy: Damaged) -> None:
    with clew.open(copy.dsn, busy_seconds=1) as store, copy.connection.transaction():
        copy.connection.execute("LOCK TABLE clew.blobs")
        with pytest.raises(clew.Unavailable, match="did not answer in time"):
            store.verify()


def test_a_role_without_rights_is_told_so(copy: Damaged, postgres_cluster: Cluster) -> None:
    copy.run("CREATE ROLE looker LOGIN; GRANT USAGE ON SCHEMA clew TO looker;"
             "GRANT SELECT ON clew.format, clew.namespaces TO looker")  # fmt: skip
    address = copy.dsn.replace("postgres@", "looker@")
    try:
        opened = clew.open(address, readonly=True)
        with opened as store, pytest.raises(clew.Unsupported, match="grant"):
            store.verify()
    finally:
        copy.run("DROP OWNED BY looker; DROP ROLE looker")


def test_a_server_that_cannot_read_a_page_hides_only_what_is_on_it(tmp_path: Any) -> None:
    """The heap of one partition, and the large values beside another: broken on disk."""
    with Cluster(tmp_path) as server:
        name = server.create_database()
        address = server.dsn(name)
        fill(address)
        with clew.open(address) as store:
            for n in range(8):
                store.create(f"wide{n}").append("event", 1, meta={"m": damage.letters(60_000)})
        page, beside, wide, elsewhere = damage.files_of(address, "t", "wide")
        server.stop()
        damage.break_page(server.data / page)
        damage.break_page(server.data / beside)
        server.start()
        with clew.open(address) as store:
            found = store.verify()
            assert store.verify(quick=True) != []
    assert ("unreadable", "t") in {(p.code, p.thread) for p in found}
    assert ("damaged_record", wide, 1) in {(p.code, p.thread, p.seq) for p in found}, found
    elsewhere -= {"f", "ff"}  # forks of t, which end where they began
    assert len(elsewhere) > 3
    assert not elsewhere & {p.thread for p in found}, found


def test_a_blob_that_the_server_cannot_read_hides_no_other(tmp_path: Any) -> None:
    """They are asked for many at a time, and one by one where that fails."""
    with Cluster(tmp_path) as server:
        address = server.dsn(server.create_database())
        with clew.open(address) as store:
            hashes = [store.blobs.put(damage.noise(60_000, n)) for n in range(4)]
        file = damage.values_of(address, hashes[0])
        server.stop()
        damage.break_page(server.data / file)
        server.start()
        with clew.open(address) as store:
            told: list[tuple[int, int]] = []
            (found,) = store.verify(progress=lambda *now: told.append(now))
            assert store.verify(quick=True) == []
    assert (found.code, found.thread) == ("damaged_blob", None)
    assert found.blob == hashes[0]
    assert told[-1] == (4, 4)


# Each as a server would answer whose index has lost its order: what is after a place begins anew.
DISORDER = [
    ("scan_blob_sizes", "b.hash > $2", "$2 IS NOT NULL", {"unreadable"}),
    ("scan_threads", "t.no > $2", "$2 IS NOT NULL", {"unreadable"}),
    ("scan_tags", "(t.thread, t.tag) > ($2, $3)", "$2 + length($3) IS NOT NULL", set[str]()),
]


@pytest.mark.parametrize(("function", "after", "anew", "codes"), DISORDER)
def test_pages_that_lead_nowhere_are_not_read_for_ever(
    copy: Damaged, function: str, after: str, anew: str, codes: set[str]
) -> None:
    query = "SELECT pg_get_functiondef(%s::regproc)"
    row = copy.connection.execute(query, (f"clew.{function}",)).fetchone()
    assert row is not None
    assert after in row[0]
    copy.run(row[0].replace(after, anew))
    with mock.patch.object(streams, "PAGE_ROWS", 3):
        found = [problem for problem in copy.problems() if function not in problem.message]
    assert {problem.code for problem in found} == codes, found
    for problem in found:
        assert "not in order" in problem.message


def test_what_cannot_be_counted_is_verified_all_the_same(copy: Damaged) -> None:
    copy.run("ALTER TABLE clew.threads RENAME COLUMN seq TO other")
    found = copy.store().verify(progress=lambda *now: None)
    assert "threads cannot be read further" in found[-1].message, found
    assert found == copy.problems()


# --- what is left of purged threads ---


def test_what_forks_of_purged_threads_hang_on_stays(postgres_dsn: str) -> None:
    """A path that passes a thread by, whose row goes before those on both sides of it."""
    with clew.open(postgres_dsn) as store:
        o = store.create("o")
        o.append([clew.draft("event", id, id=id) for id in "ab"])
        p = o.fork(at="b", id="p")
        p.append("event", "c", id="c")
        q = p.fork(at="c", id="q")
        q.move("a")
        q.append("event", "x", id="x")
        z = q.fork(at="x", id="z")
        for name, kept in (("q", 1), ("p", 0), ("o", 1)):
            assert store.purge(name).kept == kept
            assert store.verify() == []
        assert [entry.body for entry in z.path()] == ["a", "x"]
        store.purge("z")
        assert store.stats().records == 0
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM clew.threads").fetchone() == (0,)


def test_what_is_left_may_have_lost_its_origin(postgres_dsn: str) -> None:
    with clew.open(postgres_dsn) as store:
        store.create("o").append("event", "a", id="a")
        q = store.get("o").fork(id="q")
        q.append("event", "b")
        q.move(None)
        q.append("event", "root", id="root")
        z = q.fork(id="z")
        for name in ("q", "o"):
            store.purge(name)
        assert store.verify() == []
        assert [entry.id for entry in z.path()] == ["root"]


# --- what damage means for the tools ---


def test_segments_in_a_circle_are_refused_and_not_followed_for_ever(copy: Damaged) -> None:
    copy.change("UPDATE {segments} SET parent_thread = thread, parent_seq = first")
    with clew.open(copy.dsn) as store:
        assert store.verify() != []
        for call in (lambda: store.get("ff").path(), lambda: store.purge("t")):
            with pytest.raises(clew.Corrupt, match="clew verify"):
                call()


def test_a_segment_whose_first_entry_is_gone_is_damage(copy: Damaged) -> None:
    copy.change("DELETE FROM {records} WHERE id = 'r'")
    with pytest.raises(clew.Corrupt, match="a segment begins here"):
        copy.store().engine.segments("t")


def test_a_server_is_not_repaired_but_restored(copy: Damaged) -> None:
    with pytest.raises(clew.Unsupported, match=r"backup.*clew copy"):
        repair(copy.dsn)


def test_what_can_be_read_of_a_damaged_store_can_be_copied(copy: Damaged, tmp_path: Any) -> None:
    copy.change("UPDATE {records} SET body = '1' WHERE id = 'd'")
    with clew.open(copy.dsn) as store, clew.open(tmp_path / "saved.db") as saved:
        report = store.copy_to(saved)
        assert [thread.thread for thread in report.having("damaged")] == ["f"]
        assert saved.verify() == []
        assert saved.get("t").info.leaf == store.get("t").info.leaf
