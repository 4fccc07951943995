"""Pages of what has no index in its order: looked for near the beginning, and else sorted."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.core.model import ThreadQuery, decode_cursor
from clew.engines.memory import MemoryEngine
from clew.engines.shared.tables import read
from clew.engines.sqlite import write
from clew.engines.sqlite.engine import SQLiteEngine

Query = dict[str, Any]

QUERIES: list[Query] = [
    {"prefix": "many:"},
    {"prefix": "few:"},
    {"prefix": "none:"},
    {"tag": "most"},
    {"tag": "some"},
    {"tag": "most", "prefix": "many:"},
    {"tag": "some", "prefix": "many:", "workspace": "/a"},
    {"workspace": "/a"},
    {"workspace": "/b", "status": "done"},
    {"parent": "many:0"},
    {"prefix": "many:", "roots": True},
    {"prefix": "many:", "archived": None},
    {"prefix": "many:", "archived": True},
    {"prefix": "many:", "deleted": True},
    {"prefix": "many:", "after_us": 40_000_000, "before_us": 90_000_000},
]


def facts_of(number: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"workspace": "/a" if number % 3 else "/b"}
    facts["tags"] = [*(["most"] if number % 5 else []), *(["some"] if number % 7 == 0 else [])]
    if number % 4 == 0:
        facts["status"] = "done"
    if number % 11 == 0:
        facts["archived"] = True
    return facts


def fill(store: clew.Store) -> None:
    chance = random.Random(3)
    for number in range(120):
        name = f"few:{number}" if number % 20 == 19 else f"many:{number}"
        store.create(name, parent="many:0" if number % 9 == 1 else None, facts=facts_of(number))
    for name in chance.sample([info.id for info in store.list(limit=1000).items], 40):
        store.get(name).append("note", name)
    for number in (2, 3, 63):
        store.delete(f"many:{number}")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[clew.Store, clew.Store]]:
    """The same threads on SQLite and in memory, where a list is a sorted list."""
    first, second = itertools.count(1_000_000, 1_000_000), itertools.count(1_000_000, 1_000_000)
    ours = clew.Store(SQLiteEngine(tmp_path / "store.db"), clock=lambda: next(first))
    model = clew.Store(MemoryEngine(), clock=lambda: next(second))
    with ours, model:
        fill(ours)
        fill(model)
        yield ours, model


def pages(store: clew.Store, query: Query, order: str, limit: int) -> list[list[str]]:
    found, cursor = [], None
    while True:
        place = None if cursor is None else decode_cursor(cursor)
        asked = ThreadQuery(order=order, limit=limit, cursor=place, **query)  # type: ignore[arg-type]
        page = store.engine.threads(asked)
        found.append([info.id for info in page.items])
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("near", [1, 3, 32])
@pytest.mark.parametrize("relisted", [False, True])
def test_pages_are_those_of_a_sorted_list(
    stores: tuple[clew.Store, clew.Store],
    near: int,
    relisted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read, "_NEAR", near)
    ours, model = stores
    if relisted:
        ours.engine._write(lambda db: write.relist(db, 1))  # type: ignore[attr-defined]
    for query, order, limit in itertools.product(QUERIES, ("created", "updated"), (1, 7, 50)):
        told = (query, order, limit)
        assert pages(ours, query, order, limit) == pages(model, query, order, limit), told


@pytest.mark.parametrize("order", ["created", "updated"])
@pytest.mark.parametrize(
    "query", [{"prefix": "many:"}, {"tag": "most"}, {"tag": "most", "prefix": "many:"}]
)
def test_what_is_most_of_a_store_is_not_sorted_for_a_page_of_it(
    tmp_path: Path, query: Query, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page of the one application would cost what the store has."""
    sorted_rows: list[int] = []
    look = read._all

    def watched(*args: Any) -> Any:
        found = look(*args)
        sorted_rows.append(len(found))
        return found

    with clew.open(tmp_path / "store.db") as store:
        fill(store)
        monkeypatch.setattr(read, "_all", watched)
        store.engine._write(lambda db: write.relist(db, 1))  # type: ignore[attr-defined]
        asked = ThreadQuery(order=order, limit=5, **query)  # type: ignore[arg-type]
        assert len(store.engine.threads(asked).items) == 5
    assert sum(sorted_rows) == 0


def test_a_row_that_cannot_be_read_near_the_beginning_hides_no_other(tmp_path: Path) -> None:
    with clew.open(tmp_path / "store.db") as store:
        fill(store)
        db = store.engine._connections.writer()
        db.execute("UPDATE threads SET parent = ? WHERE id = 'many:118'", ("x" * 600,))
        for order in ("created", "updated"):
            asked = ThreadQuery(order=order, prefix="many:", limit=5)  # type: ignore[arg-type]
            page = store.engine.threads(asked)
            assert len(page.items) == 5
            assert page.cursor is not None
            assert "many:118" not in [info.id for info in page.items]
