"""A store in PostgreSQL with a bit of everything, and ways to damage it behind Clew's back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from unittest import mock

import psycopg
from faults.stores import View, look, wrong_answer

import clew
from clew.core.checked_reads import check_reads
from clew.core.engine import Engine
from clew.core.model import Acquire, Problem
from clew.engines.postgres.rows import to_bytes
from clew.testing.cases.base import thread as draft_of

LARGE = "a tool's output that becomes a blob\n" * 300
TABLES = "format namespaces threads records segments facts tags blobs blob_uses".split()
NAMESPACES = ("default", "acme")


def fill(dsn: str) -> None:
    """Forks, forks of forks, roots, moves, leases, large bodies, purged threads, namespaces."""
    with clew.open(dsn) as store:
        facts = {"workspace": "/w", "title": "a title", "tags": ["a", "b"]}
        store.engine.create(draft_of("t", parent="above", facts=facts))  # its parent was purged
        thread = store.get("t")
        blob = store.blobs.put(b"blob " * 50)
        thread.append("user_message", {"text": "a"}, id="a", meta={"model": "m"})
        thread.append("tool_result", {"text": LARGE}, id="b", blobs=[blob])
        thread.move("a")
        with thread.turn(owner="me") as turn:
            turn.append("user_message", {"text": "c"}, id="c", format="plain")
        thread.move(None)
        thread.append("user_message", "another root", id="r")
        thread.set(status="busy", other=1)
        thread.set(other=None)
        fork = thread.fork(at="a", id="f")
        fork.append("user_message", {"text": "d"}, id="d")
        deep = fork.fork(id="ff")
        deep.append("user_message", "e", id="e")
        deep.move("a")
        deep.append("user_message", "g", id="g")
        thread.fork(before="a", id="n").append("user_message", "first", id="n1")
        store.create("gone", facts={"archived": True, "status": "x"})
        store.delete("gone")
        store.create("empty")
        store.create("e").append("event", 1, id="e1")
        store.get("e").append("event", 2, id="e2")
        store.create("many", tags=[f"{n:04}" * 4 for n in range(500)])
        _purge(store)
        store.engine.lease("f", Acquire("somebody", 3600.0, "a turn"))
        store.blobs.put(b"loose")
        assert store.verify() == store.verify(quick=True) == []
    with clew.open(dsn, namespace="acme") as store:
        thread = store.create("t", tags=["a"])
        thread.append("user_message", "x", id="a", blobs=[store.blobs.put(b"blob " * 50)])
        thread.fork(id="f")
        store.create("empty")
        assert store.verify() == []


def _purge(store: clew.Store) -> None:
    """What is left of `p` are p1, p2 and p3, of `q` q1."""
    thread = store.create("p", title="to be purged")
    thread.append("event", "p1", id="p1")
    thread.append("event", {"text": LARGE + "p"}, id="p2")
    thread.move("p1")
    for id in ("p3", "p4"):
        thread.append("event", id, id=id)
    fork = thread.fork(at="p3", id="q")
    fork.append("event", "q1", id="q1")
    thread.fork(at="p2", id="u")
    store.purge("p")
    fork.fork(id="z").append("event", "z1", id="z1")
    store.purge("q")


class Damaged:
    """A database that is changed by hand, and the stores in it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.connection = psycopg.connect(dsn, autocommit=True)
        # So that a text can be made of any bytes, as a broken disk would.
        self.connection.execute("CREATE CAST (bytea AS text) WITHOUT FUNCTION")
        self._stores: dict[str, clew.Store] = {}
        self._kept = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()
        for store in self._stores.values():
            store.close()
        self.connection.close()

    def store(self, namespace: str = "default") -> clew.Store:
        if namespace not in self._stores:
            self._stores[namespace] = clew.open(self.dsn, namespace=namespace)
        return self._stores[namespace]

    def keep_connections(self) -> None:
        """Verify on the same connection each time, for those who do it a thousand times."""
        for name in NAMESPACES:
            connections = self.store(name).engine._connections  # type: ignore[attr-defined]
            wire = connections.apart()
            self._kept.callback(wire.close)
            for patch in (
                mock.patch.object(connections, "apart", mock.Mock(return_value=wire)),
                mock.patch.object(wire, "close"),
            ):
                self._kept.enter_context(patch)

    def problems(self, namespace: str = "default", *, quick: bool = False) -> list[Problem]:
        return self.store(namespace).verify(quick=quick)

    def change(self, sql: str) -> None:
        """Run a statement that must change something; {records} stands for the table."""
        for name in NAMESPACES:
            self.store(name)  # opened before it is damaged, if not yet
        text = sql.format(**{table: f"clew.{table}" for table in TABLES})
        assert self.connection.execute(text.encode()).rowcount > 0, "it changes nothing"

    def run(self, sql: str) -> None:
        self.store()
        self.connection.execute(sql.encode())

    def cut(self) -> None:
        """End every connection but this one."""
        self.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )

    def sessions(self, application: str) -> int:
        count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname ="
        row = self.connection.execute(f"{count} current_database()", (application,)).fetchone()
        return int(row[0]) if row else 0


# --- flipping bits --------------------------------------------------------------------------

# Nothing that is read or decided depends on them: hints, and when something was put.
IDLE = {
    ("format", "migrated_us"),
    ("threads", "watched_us"),  # who waits looks for himself now and then
    ("blobs", "put_us"),  # when it may be swept, if nothing uses it
}
_BITS = {"smallint": 16, "integer": 32, "bigint": 64}
_FILLS: dict[str, Any] = {"bytea": b"", "text": b"", "boolean": False, **dict.fromkeys(_BITS, 0)}


@dataclass
class Outcome:
    found: int = 0
    refused: int = 0
    meant_nothing: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Cell:
    """One value of one row; a changed row is at another place, so that moves along."""

    table: str
    column: str
    type: str
    nullable: bool
    place: tuple[str, str]
    value: Any

    def variants(self, chance: random.Random) -> Iterator[Any]:
        if self.value is None:
            yield _FILLS[self.type]
            return
        if self.nullable:
            yield None
        if self.type == "boolean":
            yield not self.value
        elif self.type in _BITS:
            yield _flip_number(self.value, chance.randrange(_BITS[self.type]), _BITS[self.type])
        elif self.value:
            yield flip(self.value, chance.randrange(8 * len(self.value)))

    def put(self, connection: psycopg.Connection[Any], value: Any) -> None:
        cast = "bytea::text" if self.type == "text" else self.type
        row = connection.execute(
            f"UPDATE clew.{self.table} SET {self.column} = %s::{cast}"
            " WHERE tableoid = %s::regclass AND ctid = %s::tid"
            " RETURNING tableoid::regclass::text, ctid::text".encode(),
            (value, *self.place),
        ).fetchone()
        assert row is not None
        self.place = row


def _flip_number(value: int, bit: int, width: int) -> int:
    changed = (value ^ 1 << bit) & ((1 << width) - 1)
    return changed - (1 << width) if changed >> (width - 1) else changed


Judge = Callable[["Damaged", Cell, Any, list[View], Outcome], None]


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip_values(
    store: Damaged,
    seed: int,
    rows_max: int,
    judge: Judge | None = None,
    tables: Iterable[str] = TABLES,
) -> Outcome:
    """Change values of every column, in so many rows of each table: one bit, to NULL, from NULL."""
    judge = judge or _judge
    outcome = Outcome()
    views = [_view(store, name) for name in NAMESPACES]
    for table in tables:
        count = _count(store, table)
        for column, type, nullable in _columns(store, table):
            chance = random.Random(f"{seed} {table} {column}")
            # A row that changes gets another place, so places are asked for anew.
            for n in sorted(chance.sample(range(count), min(count, rows_max))):
                cell = _cell(store, table, column, type, nullable, n)
                for value in cell.variants(chance):
                    judge(store, cell, value, views, outcome)
    return outcome


def judge_reads(
    store: Damaged, cell: Cell, value: Any, views: list[View], outcome: Outcome
) -> None:
    """Nothing is verified: no answer of engines with check_reads may be wrong."""
    _judge_answers(store, cell, value, views, outcome, check_reads)


def judge_bare_reads(
    store: Damaged, cell: Cell, value: Any, views: list[View], outcome: Outcome
) -> None:
    _judge_answers(store, cell, value, views, outcome, lambda engine: engine)


def _judge_answers(
    store: Damaged,
    cell: Cell,
    value: Any,
    views: list[View],
    outcome: Outcome,
    wrap: Callable[[Engine], Engine],
) -> None:
    try:
        cell.put(store.connection, value)
    except psycopg.Error:
        outcome.refused += 1
        return
    try:
        for name, view in zip(NAMESPACES, views, strict=True):
            wrong = wrong_answer(wrap(store.store(name).engine), view)
            if wrong is not None:
                outcome.wrong.append(f"{cell.table}.{cell.column} became {value!r}: {wrong}")
        outcome.meant_nothing += 1
    except Exception as error:
        outcome.wrong.append(f"{cell.table}.{cell.column}: {value!r} raises {error!r}")
    finally:
        cell.put(store.connection, cell.value)


def _judge(store: Damaged, cell: Cell, value: Any, views: list[View], outcome: Outcome) -> None:
    try:
        cell.put(store.connection, value)
    except psycopg.Error:
        outcome.refused += 1
        return
    try:
        if any(store.problems(name) for name in NAMESPACES):
            outcome.found += 1
        elif (cell.table, cell.column) in IDLE or views == [_view(store, n) for n in NAMESPACES]:
            outcome.meant_nothing += 1
        else:
            outcome.wrong.append(f"{cell.table}.{cell.column}: {cell.value!r} became {value!r}")
    except Exception as error:
        outcome.wrong.append(f"{cell.table}.{cell.column}: {value!r} raises {error!r}")
    finally:
        cell.put(store.connection, cell.value)


def _view(store: Damaged, namespace: str) -> View:
    return look(store.store(namespace).engine)


def _columns(store: Damaged, table: str) -> list[tuple[str, str, bool]]:
    return store.connection.execute(
        "SELECT attname, format_type(atttypid, -1), NOT attnotnull FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND attgenerated = '' ORDER BY attnum",
        (f"clew.{table}",),
    ).fetchall()


def _count(store: Damaged, table: str) -> int:
    (count,) = store.connection.execute(f"SELECT count(*) FROM clew.{table}".encode()).fetchone()  # type: ignore[misc]
    return int(count)


def _cell(store: Damaged, table: str, column: str, type: str, nullable: bool, n: int) -> Cell:
    value = f"convert_to({column}, 'UTF8')" if type == "text" else column
    part, place, found = store.connection.execute(
        f"SELECT tableoid::regclass::text, ctid::text, {value} FROM clew.{table}"
        f" ORDER BY {table}::text LIMIT 1 OFFSET {n}".encode()
    ).fetchone()  # type: ignore[misc]
    return Cell(table, column, type, nullable, (part, place), found)


# --- broken disks ---------------------------------------------------------------------------


def files_of(dsn: str, thread: str, prefix: str) -> tuple[str, str, str, set[str]]:
    """Where the records of one thread are, and the large values beside those of another one.

    The other one has that prefix, and its name comes next; then the threads with nothing there.
    """
    sql = (
        "SELECT t.id, pg_relation_filepath(c.oid), pg_relation_filepath(c.reltoastrelid)"
        " FROM clew.records r JOIN clew.threads t ON t.no = r.thread JOIN pg_class c"
        " ON c.oid = r.tableoid WHERE t.space = 1 GROUP BY t.id, c.oid, c.reltoastrelid"
    )
    with psycopg.connect(dsn) as connection:
        connection.execute("CHECKPOINT")
        found = {id: files for id, *files in connection.execute(sql)}
    page = found[thread][0]
    other = min(id for id, files in found.items() if id.startswith(prefix) and page not in files)
    beside = found[other][1]
    elsewhere = {id for id, files in found.items() if not {page, beside} & set(files)}
    return page, beside, other, elsewhere


def values_of(dsn: str, hash: str) -> str:
    """Where the bytes of a large blob are."""
    sql = (
        "SELECT pg_relation_filepath(c.reltoastrelid) FROM clew.blobs b"
        " JOIN pg_class c ON c.oid = b.tableoid WHERE b.hash = %s"
    )
    with psycopg.connect(dsn) as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute(sql, (to_bytes(hash),)).fetchone()
    assert row is not None
    return str(row[0])


def break_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    assert data
    data[4000:4100] = b"x" * 100
    path.write_bytes(data)


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def letters(size: int) -> str:
    """Text that does not become shorter by much when it is compressed."""
    return random.Random(size).randbytes(size // 2).hex()
