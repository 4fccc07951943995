"""docs/format.md says what is on disk: its example, its SQL and its columns are checked here."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from _pages import DOCS, blocks, steps
from blake3 import blake3

import clew
from clew.core import codec
from clew.core.model import EntryDraft, FactDraft, MoveDraft, Origin, ThreadDraft
from clew.engines.sqlite import SQLiteEngine

PAGE = DOCS / "format.md"
TEXT = PAGE.read_text("utf-8")
T = 1_700_000_000_000_000


@contextlib.contextmanager
def database(path: Path) -> Iterator[apsw.Connection]:
    """The file itself, without Clew."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        yield db
    finally:
        db.close()


# --- the worked example ---


def _digest(data: bytes) -> str:
    return "b3:" + blake3(data).hexdigest()


def _over(*fields: str) -> str:
    return _digest("\0".join(fields).encode("utf-8"))


def _recomputed() -> dict[str, str]:
    """The example again, with nothing but BLAKE3 and plain Python, after the tables' words."""
    body = '{"role":"user","content":"Grüße"}'.encode()
    meta = _digest(b'{"model":"m"}')
    first = _over(
        *("entry", "", "e1", "", "user_message", "plain", "turn-1", "1700000000000001", ""),
        *(meta, _digest(body)),
    )
    second = _over(
        *("entry", first, "e2", "e1", "assistant_message", "", "", "1700000000000002", ""),
        *("", _digest(b'"ok"')),
    )
    value = _digest(b'"busy"')
    return {
        "thread": _over("thread", "t", "1700000000000000", ""),
        "e1": first,
        "e2": second,
        "move": _over("move", "t", "3", "m1", "e1", "1700000000000003"),
        "fact": _over("fact", "t", "4", "f1", "status", "1700000000000004", value),
        "fork": _over("thread", "f", "1700000000000005", "", "fork", "t", "e1", first),
    }


def test_the_hash_of_a_thread_covers_its_namespace(tmp_path: Path) -> None:
    path = tmp_path / "named.db"
    engine = SQLiteEngine(path, namespace="acme")
    engine.create(ThreadDraft(id="t", created_us=T))
    engine.create(ThreadDraft(id="f", created_us=T, origin=Origin("t", None, None)))
    engine.close()
    with database(path) as db:
        found = dict(db.execute("SELECT id, hash FROM threads").fetchall())
    assert found == {
        "t": _over("thread", "t", str(T), "", "namespace", "acme"),
        "f": _over("thread", "f", str(T), "", "fork", "t", "", "", "namespace", "acme"),
    }


def _stored(folder: Path) -> dict[str, str]:
    """The example as the SQLite engine writes it, read from the file."""
    path = folder / "example.db"
    engine = SQLiteEngine(path)
    engine.create(ThreadDraft(id="t", created_us=T))
    written = engine.append(
        "t",
        [
            EntryDraft(
                id="e1",
                kind="user_message",
                data=codec.encode({"role": "user", "content": "Grüße"}),
                time_us=T + 1,
                turn="turn-1",
                format="plain",
                meta_data=codec.encode({"model": "m"}),
            ),
            EntryDraft(id="e2", kind="assistant_message", data=b'"ok"', time_us=T + 2),
            MoveDraft(id="m1", leaf="e1", time_us=T + 3),
            FactDraft(id="f1", key="status", data=b'"busy"', time_us=T + 4),
        ],
    )
    origin = Origin("t", "e1", written[0].hash)
    engine.create(ThreadDraft(id="f", created_us=T + 5, origin=origin))
    engine.close()
    names = {"t": "thread", "f": "fork", "m1": "move", "f1": "fact"}
    with database(path) as db:
        found = dict(db.execute("SELECT id, hash FROM threads").fetchall())
        rows = db.execute("SELECT id, type, hash, body_hash, body FROM records").fetchall()
    for id, type, hash, body_hash, body in rows:
        found[id] = codec.to_hash(hash)
        assert body_hash == (codec.to_bytes(codec.digest(body)) if type == 0 else None)
    return {names.get(id, id): hash for id, hash in found.items()}


def _shown() -> dict[str, str]:
    shown = next(step.shown for step in steps(PAGE))
    assert shown is not None
    return dict(line.split() for line in shown.splitlines())


def test_the_worked_example_can_be_recomputed() -> None:
    assert _shown() == _recomputed()


def test_the_worked_example_is_what_the_engine_writes(tmp_path: Path) -> None:
    assert _shown() == _stored(tmp_path)


# --- the tables ---


def _described() -> dict[str, list[tuple[str, str]]]:
    """Table → its columns with their types, as the page has them."""
    section = TEXT.partition("\n## Tables\n")[2].partition("\n## ")[0]
    tables = re.split(r"^### ", section, flags=re.MULTILINE)[1:]
    return {
        table.split("\n")[0]: re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE)
        for table in tables
    }


def test_every_table_and_column_is_described(tmp_path: Path) -> None:
    clew.open(tmp_path / "empty.db").close()
    with database(tmp_path / "empty.db") as db:
        names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        tables = [name for (name,) in names if not name.startswith("sqlite_")]
        found = {
            table: [(row[1], row[2]) for row in db.execute(f"PRAGMA table_info({table})")]
            for table in tables
        }
    assert _described() == found


@pytest.mark.parametrize("pragma", ["application_id", "user_version", "journal_mode", "encoding"])
def test_the_header_is_as_described(tmp_path: Path, pragma: str) -> None:
    clew.open(tmp_path / "empty.db").close()
    match = re.search(rf"^\| `{pragma}` \| `([\w-]+)`", TEXT, re.MULTILINE)
    assert match is not None
    with database(tmp_path / "empty.db") as db:
        assert str(db.pragma(pragma)) == match[1]


# --- reading a path in SQL ---


def test_the_sql_reads_every_path(tmp_path: Path) -> None:
    sql = next(block.text for block in blocks(PAGE) if block.language == "sql")
    path = tmp_path / "paths.db"
    store = clew.open(path)
    trunk = store.create("trunk")
    for n in range(4):
        trunk.append("event", n, id=f"e{n}")
    trunk.set(status="facts stand between entries")
    trunk.move("e1")
    trunk.append("event", 4, id="e4")
    fork = trunk.fork(at="e4", id="fork")
    for n in (5, 6):
        fork.append("event", n, id=f"e{n}")
    twig = fork.fork(at="e5", id="twig")
    twig.append("event", 7, id="e7")
    twig.append("event", 8, id="e8", parent="e1")
    expected = {
        (info.id, entry.id): [e.id for e in store.get(info.id).path(entry.id)]
        for info in store.threads()
        for entry in store.get(info.id).entries()
        if entry.thread == info.id
    }
    store.close()
    with database(path) as db:
        entries = db.execute(
            "SELECT t.id, r.id, r.no FROM records r JOIN threads t ON t.no = r.no >> 32"
            " WHERE r.type = 0"
        ).fetchall()
        found = {
            (thread, entry): [id for (id,) in db.execute(sql, {"no": number}).fetchall()]
            for thread, entry, number in entries
        }
    assert found == expected
    assert found["twig", "e7"] == ["e0", "e1", "e4", "e5", "e7"]


def test_the_sql_tells_where_every_thread_stands(tmp_path: Path) -> None:
    _, sql = (block.text for block in blocks(PAGE) if block.language == "sql")
    store = clew.open(tmp_path / "heads.db")
    store.create("empty", facts={"status": "x"})
    entries = store.create("entries", title="its row stays as the first one left it")
    moved = store.create("moved")
    for n in range(3):
        entries.append("event", n)
        moved.append("event", n, id=f"e{n}")
    moved.move("e1")
    fork = moved.fork(at="e0", id="fork")
    fork.append("event", 3)
    expected = [(info.seq, info.leaf, info.updated_us) for info in store.threads(order="created")]
    store.close()
    with database(tmp_path / "heads.db") as db:
        numbers = db.execute("SELECT no, seq FROM threads ORDER BY created_us DESC, id").fetchall()
        found = [db.execute(sql, {"thread": number}).get for number, _ in numbers]
    assert found == expected
    assert [row[1] for row in numbers] != [seq for seq, _, _ in found], "some rows are behind"


# --- canonical JSON ---

CANONICAL: list[tuple[Any, str]] = [
    ({"b": 1, "a": [True, None]}, '{"b":1,"a":[true,null]}'),
    (2**64 - 1, "18446744073709551615"),
    (1.0, "1.0"),
    (-0.0, "-0.0"),
    (0.00001, "0.00001"),
    (1.5e-7, "1.5e-7"),
    (100.0, "100.0"),
    (1e15, "1000000000000000.0"),
    (1e16, "1e16"),
    ('"\\/\b\t\n\f\r\x00\x1f\x7f\u2028é', '"\\"\\\\/\\b\\t\\n\\f\\r\\u0000\\u001f\x7f\u2028é"'),
    ("\ud83d", '"\\ud83d"'),
    (["é😀\x7f", "\ud83d", 1e-5, 1e16], r'["\u00e9\ud83d\ude00\u007f","\ud83d",1e-05,1e+16]'),
]


@pytest.mark.parametrize(("value", "text"), CANONICAL, ids=[text[:12] for _, text in CANONICAL])
def test_canonical_json_is_as_described(value: Any, text: str) -> None:
    assert codec.encode(value) == text.encode("utf-8")
    assert json.loads(text) == value


# --- what crashes and purges leave ---


def test_a_purge_leaves_nothing_of_the_records_in_the_files(tmp_path: Path) -> None:
    secret = "a-word-that-is-nowhere-else"
    store = clew.open(tmp_path / "threads.db")
    thread = store.create()
    thread.append("user_message", secret)
    thread.append("tool_result", secret + " " + "".join(map(str, range(9000))))
    store.purge(thread.id)
    store.sweep(grace_seconds=0)
    store.close()
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes(), file.name


def test_the_rules_name_the_limits_of_the_code() -> None:
    from clew.core.drafts import KEY_BYTES_MAX, KIND_BYTES_MAX, META_BYTES_MAX
    from clew.core.names import ID_BYTES_MAX, NAMESPACE_BYTES_MAX
    from clew.engines.sqlite.blobs import SPILL_BYTES
    from clew.engines.sqlite.place import SAFE_VERSION

    assert (ID_BYTES_MAX, KIND_BYTES_MAX, KEY_BYTES_MAX) == (512, 128, 1024)
    assert NAMESPACE_BYTES_MAX == 128
    assert (codec.NESTING_MAX, codec.BODY_BYTES_MAX, META_BYTES_MAX) == (200, 2**26, 2**16)
    assert (SPILL_BYTES, SAFE_VERSION) == (8192, 3_051_003)
    for words in ("1 to 512 bytes", "1 to 128", "1 to 1024", "200 levels", "64 MiB", "64 KiB"):
        assert words in " ".join(TEXT.split())
    assert "more than 8,192 bytes" in TEXT
    assert "3.51.3" in TEXT
