"""Honest stores with one thing changed in their structure, by a number: the same one every time.

What is changed is a row, a line, a manifest, the schema, a note, a lease or a cache. Where there is
a checksum, it is mostly made right again: whoever prepares a store can do that too.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
from hostile.traps import NOW, honest, plant_snapshot, sparse, tangle, unstrict

import clew
from clew.core.hashes import thread_hash
from clew.core.lease_rules import LeaseState
from clew.core.lines import is_sound, summed
from clew.core.model import Origin
from clew.engines.files import leases
from clew.engines.files.disk import Disk
from clew.engines.shared import clock

NUMBERS = (-1, 0, 1, 2, 255, 1 << 16, 1 << 24, 1 << 31, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1)
HUGE = (1 << 70, -(1 << 70), 1e308, 0.5)
TEXTS = (
    "",
    "\0",
    "a\0b",
    "..",
    "../../outside/file",
    "/",
    "x" * 600,
    "x" * 70_000,
    "b3:" + "0" * 64,
    "b3:../../x",
    "%",
    "good",
    "fork",
    "t",
    "9999-12-31T23:59:59.999999Z",
    "0001-01-01T00:00:00+23:59",
    "[" * 3000,
)
BLOBS = (b"", b"\0", b"null", b"{}", b"[[[[", b"\xff\xfe", b'{"a":1', b"x" * 70_000)


def mutant(engine: str, number: int, folder: Path) -> str:
    """Change the store in a folder that `honest` made; what was done, in words."""
    chance = random.Random(number)
    root = folder / ("s.db" if engine == "sqlite" else "store")
    ways = _SQLITE if engine == "sqlite" else _FILES
    said = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        way = chance.choice(ways)
        try:
            said.append(f"{way.__name__}: {way(root, chance)}")
        except (apsw.Error, clew.ClewError, OSError) as error:
            said.append(f"{way.__name__}: refused, {error}")  # by what was changed before
        except (ValueError, LookupError) as error:
            if not said:  # nothing was changed before, so the mistake is here
                raise
            said.append(f"{way.__name__}: nothing left to change, {error!r}")
    return "; ".join(said)


def template(engine: str, folder: Path) -> None:
    """What all mutants of an engine are made of: with a purged thread that a fork still needs."""
    address = honest(engine, folder)
    with clew.open(address, durability="relaxed") as store:
        gone = store.create("gone")
        gone.append("event", 1)
        gone.append("event", 2)
        gone.fork(id="heir").append("event", 3)
        store.purge("gone")
        store.get("good").set_facts({"model": "m"})
        store.get("t").set_facts({"tags": ["one"]})
    with clew.open(address, durability="relaxed", namespace="other") as store:
        store.create("tenant").append("event", {"text": "y" * 9000})


def nasty(chance: random.Random, value: Any = None) -> Any:
    """A value that should not be there; mostly of the type of the one that is."""
    if isinstance(value, bool) or value is None or chance.random() < 0.2:
        kinds = (NUMBERS, HUGE, TEXTS, (None, True, [], {}, [1], {"a": [1]}))
        return chance.choice(chance.choice(kinds))
    if isinstance(value, int):
        return chance.choice((*NUMBERS, value + 1, value - 1, -value))
    if isinstance(value, str):
        return chance.choice((*TEXTS, value[::-1], value + "x", value[:-1]))
    return chance.choice((None, 1, "x"))


def changed(chance: random.Random, value: Any) -> Any:
    """A JSON value with one place in it changed."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(sorted(value))
        if chance.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: changed(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.85:
        n = chance.randrange(len(value))
        return [*value[:n], changed(chance, value[n]), *value[n + 1 :]]
    return nasty(chance, value)


def address_of(engine: str, root: Path) -> str:
    return str(root) if engine == "sqlite" else f"files:{root}"


# --- both engines ---


def plant(root: Path, chance: random.Random) -> str:
    """Snapshots and facts, through the door."""
    from clew.snapshots.manifest import Node, pack

    engine = "sqlite" if root.suffix == ".db" else "files"
    with clew.open(address_of(engine, root), durability="relaxed") as store:
        if chance.random() < 0.5:
            key = chance.choice(("rewinding", "rewound", "unwound", "session", "run", "model"))
            value = changed(chance, _INTENT) if chance.random() < 0.7 else nasty(chance)
            store.get("good").set_facts({key: value})
            return f"{key} = {value!r:.80}"
        nodes = [["file", "a", 1, store.blobs.put(b"x")], ["folder", "b", 0, tangle(store, 3)]]
        data = {"format": "clew.tree", "version": 1, "nodes": nodes}
        tree = store.blobs.put(json.dumps(changed(chance, data)).encode())
        if chance.random() < 0.3:
            tree = store.blobs.put(pack([Node("d", "folder", tree)]))
        members = {} if chance.random() < 0.5 else changed(chance, _SNAPSHOT)
        members = members if isinstance(members, dict) else {}
        plant_snapshot(store, "good", **({"tree": tree} | members))
        return f"tree {tree}, {members!r:.80}"


_SNAPSHOT = {"root": "/nonexistent", "files": 1, "size_bytes": 1, "time_us": NOW, "pinned": False}
_INTENT = {
    "id": "i",
    "what": "rewind",
    "time_us": NOW,
    "files": {
        "root": "/nonexistent",
        "folder": [1, 1],
        "snapshot": "s",
        "tree": "b3:" + "0" * 64,
        "before": "s",
        "before_tree": "b3:" + "0" * 64,
        "paths": ["a"],
        "above": [],
    },
    "moves": True,
    "leaf": None,
    "after": 1,
    "below": {"id": "j", "after": 1},
}


def note(root: Path, chance: random.Random) -> str:
    """The note of a repair that was interrupted."""
    stamp = "20260101T000000Z"
    new = "repaired.db" if root.suffix == ".db" else "repaired"
    said = {"damaged": f"{root.name}.damaged-{stamp}", "folder": f"{root.name}.repairing-{stamp}"}
    value = changed(chance, {**said, "new": new})
    Path(f"{root}-repair").write_text(json.dumps(value))
    if chance.random() < 0.3:
        root.with_name(f"{root.name}.repairing-{stamp}").mkdir(exist_ok=True)
    return f"{value!r:.100}"


def beside(root: Path, chance: random.Random) -> str:
    """Any file of the store, or beside it: cut, filled, turned over, or another kind of thing."""
    top = root if root.is_dir() else root.parent
    plain = (p for p in top.rglob("*") if p.is_file() and not p.is_symlink())
    names = sorted(p for p in plain if "tree" not in p.parts)
    path = chance.choice(names)
    how = chance.choice(("cut", "fill", "flip", "empty", "pipe", "link", "device", "hole", "gone"))
    with path.open("rb") as file:  # not a terabyte of nothing, that was put there before
        data = file.read(1 << 26)
    if how == "cut":
        path.write_bytes(data[: chance.randrange(len(data) + 1)])
    elif how == "fill":
        path.write_bytes(data + chance.choice(BLOBS))
    elif how == "flip" and data:
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "hole":
        sparse(path)
    else:
        path.unlink()
        if how == "pipe":
            os.mkfifo(path)
        elif how in ("link", "device"):
            path.symlink_to("/dev/zero" if how == "device" else top.parent / "outside" / "file")
    return f"{how} {path.relative_to(top)}"


# --- a store of files ---


def line(root: Path, chance: random.Random) -> str:
    """A member of a line, with the checksum that it should have then."""
    path = _journal(root, chance)
    lines = path.read_bytes().split(b"\n")
    n = chance.randrange(1, max(2, len(lines) - 1))
    if n >= len(lines) or not lines[n]:
        return "nothing"
    value = changed(chance, _without_sum(lines[n]))
    if not isinstance(value, dict):
        return "nothing"
    lines[n] = summed(_id_of(lines[0]).encode(), _text(value)[:-1])[:-1]
    path.write_bytes(b"\n".join(lines))
    return f"{path.name} line {n + 1}: {value!r:.100}"


def header(root: Path, chance: random.Random) -> str:
    path = _journal(root, chance)
    first, _, rest = path.read_bytes().partition(b"\n")
    value = changed(chance, _without_sum(first))
    if not isinstance(value, dict):
        return "nothing"
    if chance.random() < 0.8:
        value["hash"] = _header_hash(value)
    if chance.random() < 0.3 and isinstance(value.get("key"), str):
        firsts = [p.read_bytes().partition(b"\n")[0] for p in _plain_journals(root)]
        others = [_without_sum(first) for first in firsts]
        other = chance.choice(others)
        value["source"] = {"thread": other["id"], "key": other["key"], "seq": 1}
        value["origin"] = {"thread": other["id"], "entry": "x", "hash": "b3:" + "0" * 64}
        value["hash"] = _header_hash(value)
    path.write_bytes(summed(b"", _text(value)[:-1]) + rest)
    return f"{path.name}: {value!r:.100}"


def order(root: Path, chance: random.Random) -> str:
    """Lines that are gone, doubled, or in another order."""
    path = _journal(root, chance)
    first, *lines = path.read_bytes().split(b"\n")
    how = chance.choice(("drop", "double", "turn", "other"))
    n = chance.randrange(len(lines)) if lines else 0
    if how == "drop":
        del lines[n : n + 1]
    elif how == "double":
        lines[n:n] = lines[n : n + 1]
    elif how == "turn":
        lines[:-1] = lines[-2::-1]
    else:
        lines[n:n] = _journal(root, chance).read_bytes().split(b"\n")[1:2]
    path.write_bytes(b"\n".join([first, *lines]))
    return f"{how} {path.name} {n}"


def lease(root: Path, chance: random.Random) -> str:
    state: dict[str, Any] = {
        "fence": 1,
        "owner": "me",
        "turn": None,
        "created_us": NOW,
        "until_us": NOW,
        "until_ns": 1 << 62,
        "era": clock.now().era,
    }
    for _ in range(2):
        name = chance.choice(sorted(state))
        state[name] = nasty(chance, state[name])
    locks = sorted((root / "locks").iterdir())
    descriptor = os.open(chance.choice(locks), os.O_RDWR)
    try:
        value = LeaseState(*(state[name] for name in LeaseState.__struct_fields__))
        leases.write(Disk(), descriptor, leases.LeaseSlots(), value)
    except (TypeError, ValueError, OverflowError):
        return "nothing"
    finally:
        os.close(descriptor)
    return f"{state!r:.100}"


def index(root: Path, chance: random.Random) -> str:
    return _row(root / "index" / "index.db", chance)


def _journals(root: Path) -> list[Path]:
    return sorted(p for room in ("threads", "purged") for p in (root / room).glob("*.jsonl"))


def _journal(root: Path, chance: random.Random) -> Path:
    return chance.choice(_plain_journals(root))


def _plain_journals(root: Path) -> list[Path]:
    """Without pipes and terabytes of nothing, that were put there before."""
    plain = (path for path in _journals(root) if path.is_file())
    return [path for path in plain if path.stat().st_size < 1 << 26]


def _without_sum(text: bytes) -> dict[str, Any]:
    value = json.loads(text)
    value.pop("sum", None)
    found: dict[str, Any] = value
    return found


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def _id_of(first: bytes) -> str:
    assert is_sound(b"", first)
    return str(json.loads(first)["id"])


def _header_hash(value: dict[str, Any]) -> Any:
    from datetime import datetime

    from clew.core.model import to_us

    try:
        found = value.get("origin")
        origin = None if found is None else Origin(found["thread"], found["entry"], found["hash"])
        created_us = to_us(datetime.fromisoformat(value["created"]))
        return thread_hash(value["id"], created_us, value.get("parent"), origin)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError, clew.ClewError):
        return value.get("hash")


# --- a SQLite file ---


def row(root: Path, chance: random.Random) -> str:
    return _row(root, chance)


def _row(path: Path, chance: random.Random) -> str:
    """A value of a row, of whatever type."""
    with unstrict(path) as db:
        return _update(db, chance)


def _update(db: apsw.Connection, chance: random.Random) -> str:
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_stat%'"
    table = chance.choice(sorted(name for (name,) in db.execute(query)))
    columns = [column[1] for column in db.execute(f"PRAGMA table_info({table})")]
    rows = db.execute(f"SELECT * FROM {table}").fetchall()
    if not rows:
        return f"{table} is empty"
    how = chance.choice(("set", "set", "set", "set", "delete", "double"))
    at = chance.choice(rows)
    where = " AND ".join(f"{column} IS ?" for column in columns)
    if how == "delete":
        db.execute(f"DELETE FROM {table} WHERE {where}", at)
        return f"delete of {table}"
    column = chance.randrange(len(columns))
    value = at[column]
    new = chance.choice(BLOBS) if isinstance(value, bytes) else nasty(chance, value)
    if isinstance(new, int) and abs(new) >= 1 << 63:
        new = float(new)
    if isinstance(new, list | dict):
        new = json.dumps(new)
    if how == "set":
        db.execute(f"UPDATE {table} SET {columns[column]} = ? WHERE {where}", (new, *at))
    else:
        values = [*at[:column], new, *at[column + 1 :]]
        marks = ",".join("?" * len(values))
        db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)
    return f"{how} {table}.{columns[column]} = {new!r:.80}"


def schema(root: Path, chance: random.Random) -> str:
    done = chance.choice(
        (
            "CREATE VIEW spy AS SELECT * FROM records",
            "CREATE VIEW endless AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
            " SELECT x FROM n",
            "CREATE TRIGGER spy AFTER INSERT ON records BEGIN DELETE FROM blobs; END",
            "CREATE TABLE more (x)",
            "CREATE INDEX more ON records (kind)",
            "DROP INDEX records_by_id",
            "DROP TABLE leases",
            "DROP TABLE segments",
            "ALTER TABLE threads ADD COLUMN more TEXT",
            "PRAGMA user_version = 99",
            "PRAGMA user_version = 0",
            "PRAGMA application_id = 1",
            "PRAGMA journal_mode = delete",
            "PRAGMA auto_vacuum = 1; VACUUM",
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'x' WHERE name = 'facts'",
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 2 WHERE rootpage = 5",
            "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'threads'",
        )
    )
    db = apsw.Connection(str(root))
    try:
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        for statement in done.split("; "):
            db.execute(statement).fetchall()
    finally:
        db.close()
    return done


def search_cache(root: Path, chance: random.Random) -> str:
    found = sorted(p for p in Path(f"{root}-search").rglob("*.db") if p.is_file())
    return _row(chance.choice(found), chance) if found else "there is none"


Way = Callable[[Path, random.Random], str]
_FILES: tuple[Way, ...] = (
    line,
    line,
    line,
    header,
    header,
    order,
    lease,
    index,
    plant,
    note,
    beside,
)
_SQLITE: tuple[Way, ...] = (row, row, row, row, schema, search_cache, plant, note, beside)
