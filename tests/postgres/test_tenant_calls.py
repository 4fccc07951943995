"""A tenant's role calls every function of the schema, with what belongs to another tenant.

It is refused, or does something in its own namespace. It never sees a word of the other's, changes
no row of it, and its call holds no row that the other needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from amounts import amount
from crews import Open
from psycopg import sql
from tenancy import ACME, GLOBEX, as_role, space_of

import clew

Connect = Callable[[str], psycopg.Connection[Any]]
WORD = "qzglobexsecret"
CALLS = amount(600, 20_000)

FUNCTIONS = """
SELECT p.proname::text, ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) AS t)::text[]
  FROM pg_proc p
 WHERE p.pronamespace = 'clew'::regnamespace AND p.prokind = 'f' ORDER BY p.oid
"""
ROWS = """
SELECT relname::text FROM pg_class c
 WHERE relnamespace = 'clew'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
   AND EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'space')
 ORDER BY 1
"""


class Caller:
    """The other's numbers, ids and hashes, and calls that are made of them."""

    def __init__(self, owner: psycopg.Connection[Any], seed: int) -> None:
        self.random = random.Random(seed)
        self.mine, self.theirs = space_of(owner, "acme"), space_of(owner, "globex")
        query = "SELECT no FROM clew.threads"
        self.threads = [no for (no,) in owner.execute(query)]
        self.hashes = [hash for (hash,) in owner.execute("SELECT hash FROM clew.blobs")]
        self.hashes += [hash for (hash,) in owner.execute("SELECT hash FROM clew.records")]
        self.functions = owner.execute(FUNCTIONS).fetchall()
        rows = [name for (name,) in owner.execute(ROWS)]
        self.texts = ["t", "f", "a", "b", "c", "globex", "acme", WORD, "note", GLOBEX, "", *rows]

    def value(self, type: str, place: int) -> Any:
        if type.endswith("[]"):
            size = self.random.choice([0, 1, 1, 3])
            return [self.value(type[:-2], 1) for _ in range(size)]
        if self.random.random() < 0.03:
            return None
        if type in ("bigint", "integer", "smallint"):
            if place == 0:
                return self.random.choice([self.theirs] * 3 + [self.mine, 0, -1])
            numbers = [*self.threads, 0, 1, 2, 3, 1000, -1, self.theirs, 2**31 - 1]
            return self.random.choice(numbers)
        if type == "bytea":
            return self.random.choice(self.hashes)
        if type == "boolean":
            return self.random.random() < 0.5
        if type in ("jsonb", "json"):
            return self.random.choice(['{"a": 1}', "[]", '"t"', "null"])
        if type == "double precision":
            return 1.5
        return self.random.choice(self.texts)

    def call(self, name: str, types: list[str]) -> tuple[sql.Composed, list[Any]]:
        parts = [sql.SQL("%s::{}").format(sql.SQL(type)) for type in types]
        query = sql.SQL("SELECT * FROM clew.{}({})").format(
            sql.Identifier(name), sql.SQL(", ").join(parts)
        )
        return query, [self.value(type, n) for n, type in enumerate(types)]


def rows_of(owner: psycopg.Connection[Any], space: int) -> dict[str, list[str]]:
    """Every row of a namespace, as text."""
    found = {}
    for (name,) in owner.execute(ROWS).fetchall():
        table = sql.Identifier("clew", name)
        query = sql.SQL("SELECT r::text FROM {} AS r WHERE space = %s ORDER BY 1").format(table)
        found[name] = [text for (text,) in owner.execute(query, (space,))]
    return found


def fill_with_secrets(address: str) -> None:
    with clew.open(address, namespace="globex") as store:
        thread = store.get("t")
        thread.append_message({"role": "user", "content": f"{WORD} a heron"}, meta={"by": WORD})
        thread.append("event", f"{WORD} " * 3_000, blobs=[store.blobs.put(WORD.encode() * 9)])
        thread.set(title=WORD, note=WORD, tags=[WORD], workspace=WORD, status=WORD)
        store.fork("t", id=f"of {WORD}").append("event", WORD)
        thread.leases.acquire(WORD, ttl_seconds=3600)
        assert store.search("heron").total == 1


@pytest.mark.parametrize("seed", range(amount(1, 4)))
def test_no_call_with_what_is_anothers_sees_changes_or_holds_it(
    tenants: str, connect: Connect, opened: Open, seed: int
) -> None:
    fill_with_secrets(tenants)
    with clew.open(as_role(tenants, ACME), namespace="acme") as store:
        store.search("anything")
    owner, acme = connect("postgres"), connect(ACME)
    caller = Caller(owner, seed)
    before = rows_of(owner, caller.theirs)
    assert WORD in str(before)
    acme.execute("SET statement_timeout = '2s'")
    held = (
        "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE l.pid = %s"
        " AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')"
    )
    done = dict.fromkeys((name for name, _ in caller.functions), 0)
    for _ in range(CALLS):
        name, types = caller.random.choice(caller.functions)
        query, values = caller.call(name, types)
        told = f"clew.{name}{values}"[:2000]
        acme.execute("BEGIN")
        try:
            answer = acme.execute(query, values).fetchall()
            done[name] += 1
            given = {value for value in values if isinstance(value, str)}
            said = str(answer) if WORD not in str(given) else ""
            assert WORD not in said, told
            assert WORD.encode().hex() not in said, told
            assert owner.execute(held, (acme.info.backend_pid,)).fetchone() == (0,), told
        except psycopg.Error as error:
            # What is wrong is told without a word of the other's.
            diagnosis = error.diag
            said = f"{error} {diagnosis.message_detail} {diagnosis.context}"
            assert WORD not in said.replace(told, "") or WORD in str(values), told
        if caller.random.random() < 0.05:  # nothing of the other's is locked meanwhile
            others = connect(GLOBEX)
            others.execute("SET lock_timeout = '1s'")
            others.execute("SELECT * FROM clew.stand(%s, 't', true)", (caller.theirs,))
            others.execute("SELECT clew.renew_blobs(%s, %s)", (caller.theirs, caller.hashes))
            others.close()
            before = rows_of(owner, caller.theirs)
        acme.execute(caller.random.choice(["COMMIT", "ROLLBACK"]))
        assert rows_of(owner, caller.theirs) == before, told
    assert sum(map(bool, done.values())) > len(done) // 4, "most calls never come to anything"
    assert opened(tenants, namespace="globex").verify() == []


def test_the_size_of_another_is_in_no_answer(tenants: str, connect: Connect, opened: Open) -> None:
    """The same calls give the same answers, whether the other tenant has much or little."""
    owner, acme = connect("postgres"), connect(ACME)
    caller = Caller(owner, 7)
    only_own = [one for one in caller.functions if one[0] not in ("now_us",)]
    calls = []
    for name, types in only_own:
        for _ in range(amount(3, 40)):
            query, values = caller.call(name, types)
            if values and types[0] == "bigint":
                values[0] = caller.random.choice([caller.mine, caller.theirs])
            calls.append((query, values))

    def answers() -> list[str]:
        found = []
        for query, values in calls:
            acme.execute("BEGIN")
            acme.execute("SET LOCAL statement_timeout = '2s'")
            try:
                found.append(str(sorted(map(str, acme.execute(query, values).fetchall()))))
            except psycopg.Error as error:
                found.append(f"{error.sqlstate} {error}")
            acme.execute("ROLLBACK")
        return found

    little = answers()
    with clew.open(tenants, namespace="globex") as store:
        for n in range(30):
            store.create(f"n{n}").append("event", f"{n} " * 4_000)
    again = answers()
    compared = zip(calls, little, again, strict=True)
    assert [one for one in compared if one[1] != one[2] and not _is_time(*one[1:])] == []


def _is_time(one: str, two: str) -> bool:
    """Whether two answers differ in times, and numbers of new threads, alone."""
    plain = [part for part in zip(one.split(), two.split(), strict=False) if part[0] != part[1]]
    return all(any(c.isdigit() for c in a) and any(c.isdigit() for c in b) for a, b in plain)
