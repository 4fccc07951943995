"""Every column of the index of a store of files garbled: what is read is what the files say.

The index is a cache beside the journals. Whatever it says, nothing wrong may come out of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import clew
from clew.core.errors import ClewError

LARGE = "a large body " * 12_000
GARBLED = "CAST(x'66ff' AS TEXT)"  # text that is not UTF-8
VALUES = {
    "TEXT": (GARBLED, "''", "'other'", "NULL"),
    "INTEGER": ("-1", "0", "3", "1 << 62", "NULL"),
    "BLOB": ("x'ff'", "zeroblob(32)", "NULL"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "store"
    with clew.open(f"files:{path}") as store:
        thread = store.create("t")
        thread.append_message({"role": "user", "content": "asked"}, id="a")
        thread.append("event", {"text": LARGE}, id="large")
        thread.set(title="a title", tags=["one", "two"], workspace="/w", notes=LARGE)
        for n in range(8):
            thread.append("event", [n], id=f"e{n}")
        thread.move("e2")
        thread.append("event", "on a branch", id="branch")
        store.fork("t", at="e1", id="fork").append("event", "of the fork", id="f")
        gone = store.create("gone")
        gone.append("event", "shared", id="g")
        store.fork("gone", at="g", id="heir").append("event", "of the heir", id="h")
        store.purge("gone")
        store.create("other").append("event", "of the other", id="o")
        seen(store)
    return path


def index_of(path: Path) -> Path:
    (found,) = (file for file in path.rglob("*.db") if "search" not in file.parts)
    return found


def columns(path: Path) -> Iterator[tuple[str, str, str]]:
    with closing(apsw.Connection(str(index_of(path)))) as db:
        query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (table,) in db.execute(query).fetchall():
            for _, name, kind, *_ in db.execute(f"PRAGMA table_info({table})").fetchall():
                yield table, name, kind


def seen(store: clew.Store) -> dict[str, Any]:
    """What is read of each thread, or that it cannot be read."""
    found: dict[str, Any] = {}
    for id in ("t", "fork", "heir", "other"):
        for name in ("path", "log", "facts"):
            try:
                thread = store.get(id)
                found[f"{id} {name}"] = {
                    "path": lambda: [(e.id, e.hash, e.body) for e in thread.path()],  # noqa: B023
                    "log": lambda: [(r.seq, r.id, r.hash) for r in thread.read()],  # noqa: B023
                    "facts": lambda: thread.facts,  # noqa: B023
                }[name]()
            except ClewError:
                found[f"{id} {name}"] = None
    return found


TABLES = ("namespaces", "threads", "records", "segments", "facts", "tags", "blob_uses", "files")


@pytest.mark.parametrize("table", TABLES)
def test_whatever_the_index_says_nothing_wrong_comes_out_of_it(
    whole: Path, tmp_path: Path, table: str
) -> None:
    with clew.open(f"files:{whole}", readonly=True) as store:
        right = seen(store)
    assert None not in right.values()
    names = [(name, kind) for found, name, kind in columns(whole) if found == table]
    assert names
    for name, kind in names:
        for value in VALUES[kind]:
            path = tmp_path / "store"
            shutil.copytree(whole, path)
            with closing(apsw.Connection(str(index_of(path)))) as db:
                try:
                    db.execute(f"UPDATE OR IGNORE {table} SET {name} = {value}")
                except apsw.Error:
                    shutil.rmtree(path)
                    continue
            with clew.open(f"files:{path}") as store:
                found = seen(store)
                wrong = {key for key in right if found[key] not in (right[key], None)}
                if wrong:  # a fact that the index does not have is not missed, but verify tells it
                    assert wrong == {"t facts"}, (name, value, wrong)
                    assert found["t facts"].items() <= right["t facts"].items()
                    assert store.verify() != [], (name, value)
                thread = store.get("other")
                try:
                    thread.append("event", "more", id="more")
                    thread.erase("o")
                    store.purge("fork")
                except ClewError:
                    pass
                store.verify()
            shutil.rmtree(path)
