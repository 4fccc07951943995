"""One body goes missing behind Clew's back: the chain still verifies, and that body is named."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from msgspec.structs import replace
from places import FilesPlace, MemoryPlace, PostgresPlace

import clew
from clew.core.codec import digest
from clew.core.hashes import record_hash
from clew.core.lines import summed
from clew.core.model import Entry
from clew.testing.cases.base import entry, fork_of, thread

BODIES = {"a": "first", "small": "needle", "b": "between", "large": "needle " * 20_000, "c": "last"}


def remove(place: Any, id: str) -> None:
    """Take the body of one entry out of a store that is closed (but for one in memory)."""
    blob = digest(clew.draft("event", BODIES[id]).data)
    if isinstance(place, MemoryPlace):
        records = place._opened[0]._threads["t"].records  # type: ignore[attr-defined]
        at = next(n for n, record in enumerate(records) if record.id == id)
        records[at] = replace(records[at], data=b"")
    elif isinstance(place, PostgresPlace):
        with psycopg.connect(place.path, autocommit=True) as connection:
            connection.execute("UPDATE clew.records SET body = NULL WHERE id = %s", (id,))
            hash = bytes.fromhex(blob[3:])
            connection.execute("DELETE FROM clew.blobs WHERE hash = %s", (hash,))
    elif isinstance(place, FilesPlace):
        _remove_from_files(Path(place.path), id, blob)
    else:
        db = apsw.Connection(str(place.path))
        db.execute("UPDATE records SET body = NULL WHERE id = ?", (id,))
        db.execute("DELETE FROM blobs WHERE hash = ?", (blob,))
        db.close()


def _remove_from_files(root: Path, id: str, blob: str) -> None:
    for path in root.glob(f"blobs/{blob[3:5]}/{blob[5:]}*"):
        path.unlink()
    path = root / "threads/t.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for n, line in enumerate(lines):
        if b'"id":"%s"' % id.encode() in line:
            lines[n] = summed(b"t", re.sub(rb'"body":"needle",|,"sum".*\n', b"", line))
    path.write_bytes(b"".join(lines))
    shutil.rmtree(root / "index")  # it has the places of the lines as they were


@pytest.mark.parametrize("id", ["small", "large"])
def test_the_chain_verifies_without_a_body(place: Any, id: str) -> None:
    engine = place.open()
    engine.create(thread("t"))
    for name, body in BODIES.items():
        engine.append("t", [entry(name, body)])
    fork_of(engine, "t", "c", "f")
    engine.append("f", [entry("d", "of the fork")])
    assert list(engine.check()) == []
    if not isinstance(place, MemoryPlace):
        engine.close()
    remove(place, id)
    if isinstance(place, MemoryPlace):
        records = engine.read("t")
    else:
        engine = place.open()
        (problem,) = engine.check()
        wanted = {"missing_body", "missing_blob"} if id == "large" else {"missing_body"}
        assert problem.code in wanted
        assert (problem.thread, problem.entry) == ("t", id)
        with pytest.raises(clew.Corrupt):
            engine.path("t", id, limit=1)
        records = engine.read("t", limit=list(BODIES).index(id))
    above = None
    for record in records:
        assert isinstance(record, Entry)
        assert record.body_hash == digest(clew.draft("event", BODIES[record.id]).data)
        assert record_hash(record, above) == record.hash
        above = record.hash
    assert [found.id for found in engine.path("f", limit=1)] == ["d"]
