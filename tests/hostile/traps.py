"""Stores that somebody prepared, each one an honest store with one trap in it.

A trap is small on disk and asks for much: of time, of memory, of room on the disk. What is in it
has sound checksums wherever whoever made it could have computed them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apsw
from msgspec.structs import astuple

import clew
from clew.core.codec import digest, encode, new_id, to_bytes
from clew.core.hashes import record_hash
from clew.core.lease_rules import LeaseState
from clew.core.lines import Header, Source, header_line, record_line, summed
from clew.core.model import Entry, EntryDraft, Origin, ThreadDraft
from clew.engines.files.disk import Disk
from clew.engines.files.place import anonymous
from clew.engines.shared import clock

NOW = 1_700_000_000_000_000
TERABYTE = 1 << 40
PAGE = 4096
Build = Callable[[Path], None]


@dataclass(frozen=True)
class Trap:
    """How it is made, and which thread is the one to be asked for."""

    build: Build
    thread: str = "bad"


FILES: dict[str, Trap] = {}
SQLITE: dict[str, Trap] = {}


def files(build: Build, thread: str = "bad") -> Build:
    FILES[build.__name__.replace("_", " ")] = Trap(build, thread)
    return build


def sqlite(build: Build, thread: str = "t") -> Build:
    SQLITE[build.__name__.replace("_", " ")] = Trap(build, thread)
    return build


def honest(engine: str, folder: Path) -> str:
    """A store with a thread, a fork of it, blobs and a snapshot; its address."""
    address = str(folder / "s.db") if engine == "sqlite" else f"files:{folder / 'store'}"
    tree = folder / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "a.txt").write_text("one\n")
    with clew.open(address, durability="relaxed") as store:
        good = store.create("good", title="a good one")
        good.append_message({"role": "user", "content": "hello word"})
        good.snapshots.take(tree)
        (tree / "sub" / "a.txt").write_text("two\n")
        good.append_message({"role": "assistant", "content": "an answer"})
        good.append("event", {"text": "x" * 70_000}, blobs=[store.blobs.put(b"blob")])
        good.snapshots.take(tree)
        good.fork(id="fork").append("event", 1)
        store.create("t").append("event", 1)
        store.search("word")
        list(store.threads())
    return address


def place_of(address: str) -> Path:
    return Path(address.removeprefix("files:"))


def sparse(path: Path, size: int = TERABYTE) -> None:
    """As long as one likes, and it takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(size)


# --- files: lines ---------------------------------------------------------------------------


def write_thread(root: Path, id: str, *lines: bytes, room: str = "threads", **header: Any) -> None:
    key = header.pop("key", f"k{id.replace('-', '')}")
    source = header.pop("source", None)
    purged = room == "purged"
    draft = ThreadDraft(id=id, created_us=NOW, **header)
    name = key if purged else id
    data = header_line(Header(key, draft, source, purged)) + b"".join(lines)
    (root / room / f"{name}.jsonl").write_bytes(data)


def entry_line(thread: str, seq: int, parent: str | None = None, **members: Any) -> bytes:
    whole = {
        "seq": seq,
        "type": "entry",
        "kind": "event",
        "time": "2023-11-14T22:13:20.000001Z",
        "id": f"{thread}-{seq}",
        "parent": parent,
        "body": 1,
        "body_hash": "b3:" + "0" * 64,
        "hash": "b3:" + "0" * 64,
    } | members
    text = json.dumps(whole, separators=(",", ":")).encode()[:-1]
    return summed(thread.encode(), text)


def chain(thread: str, bodies: list[Any], parent: str | None = None, above: str | None = None):
    """Entries that hang on each other, with the hashes that they should have."""
    made: list[Entry] = []
    for n, body in enumerate(bodies, start=1):
        data = body if isinstance(body, bytes) else encode(body)
        rest = (parent, "event", data, to_bytes(digest(data)))
        above = record_hash(Entry(thread, n, f"{thread}-{n}", NOW, b"", *rest), above)
        made.append(Entry(thread, n, f"{thread}-{n}", NOW, to_bytes(above or ""), *rest))
        parent = made[-1].id
    return made


def lines_of(entries: list[Entry]) -> list[bytes]:
    return [record_line(entry.thread.encode(), entry) for entry in entries]


@files
def a_line_says_a_seq_of_2_to_the_40(root: Path) -> None:
    write_thread(root, "bad", entry_line("bad", 1), entry_line("bad", 1 << 40))


@files
def many_lines_leave_large_gaps(root: Path) -> None:
    write_thread(root, "bad", *(entry_line("bad", n * 99_999) for n in range(1, 200)))


@files
def what_is_left_of_a_purged_thread_says_a_seq_of_2_to_the_31(root: Path) -> None:
    (entry,) = chain("gone", [1])
    far = Entry(*(getattr(entry, name) if name != "seq" else 1 << 31 for name in _FIELDS))
    write_thread(root, "gone", record_line(b"gone", far), room="purged", key="kgone")
    origin = Origin("gone", far.id, far.hash)
    write_thread(root, "bad", origin=origin, source=Source("gone", "kgone", 1 << 31))


_FIELDS = tuple(Entry.__struct_fields__)


@partial(files, thread="one")
def two_threads_were_forked_from_each_other(root: Path) -> None:
    one, two = chain("one", [1])[0], chain("two", [1])[0]
    write_thread(
        root,
        "one",
        record_line(b"one", one),
        origin=Origin("two", two.id, two.hash),
        source=Source("two", "ktwo", 1),
    )
    write_thread(
        root,
        "two",
        record_line(b"two", two),
        origin=Origin("one", one.id, one.hash),
        source=Source("one", "kone", 1),
    )


@partial(files, thread="c0")
def a_thousand_threads_were_forked_in_a_circle(root: Path) -> None:
    count = 1000
    ends = {n: chain(f"c{n}", [1])[0] for n in range(count)}
    for n in range(count):
        m = (n + 1) % count
        origin = Origin(f"c{m}", ends[m].id, ends[m].hash)
        line = record_line(f"c{n}".encode(), ends[n])
        write_thread(root, f"c{n}", line, origin=origin, source=Source(f"c{m}", f"kc{m}", 1))


@partial(files, thread="c0")
def a_thousand_forks_of_a_thread_that_is_gone(root: Path) -> None:
    a_thousand_threads_were_forked_in_a_circle(root)
    (root / "threads" / "c999.jsonl").unlink()


@partial(files, thread="one")
def it_was_forked_from_itself(root: Path) -> None:
    one = chain("one", [1])[0]
    origin, source = Origin("one", one.id, one.hash), Source("one", "kone", 1)
    write_thread(root, "one", record_line(b"one", one), origin=origin, source=source)


# --- files: what is no file, or says that it is large ---


def _somewhere(*where: str) -> Build:
    def trap(root: Path) -> None:
        for name in where:
            sparse(root / name)

    return trap


for _place in (
    "threads/bad.jsonl",
    "threads/good.jsonl",
    "purged/kbad.jsonl",
    "recovered/good-1.cut",
    "locks/open",
    "locks/gate",
    f"locks/{anonymous('good')}",
    "index/index.db",
    "index/index.db-wal",
    "index/index.db-shm",
    "index/index.db-journal",
    "index/changed/good",
    "index/search.db",
    "clew.json",
    ".gitignore",
    f"blobs/ab/{'c' * 62}",
    f"blobs/ab/{'c' * 62}.zst",
    "namespaces/n/threads/bad.jsonl",
    "namespaces/n/clew.json",
):
    _thread = "bad" if "bad" in _place else "good"
    FILES[f"a terabyte of nothing at {_place}"] = Trap(_somewhere(_place), _thread)


def _special(place: str, make: Callable[[Path], None]) -> Build:
    def trap(root: Path) -> None:
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        make(path)

    return trap


_SPECIALS: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
}
for _what, _make in _SPECIALS.items():
    for _place in (
        "index/index.db",
        "index/index.db-wal",
        "index",
        "locks/gate",
        "locks/open",
        f"locks/{anonymous('good')}",
        "recovered/bad.cut",
        "threads/bad.jsonl",
        "purged/kbad.jsonl",
        "clew.json",
        f"blobs/ab/{'c' * 62}",
        "../store-repair",
    ):
        _thread = "bad" if "bad" in _place else "good"
        FILES[f"{_what} at {_place}"] = Trap(_special(_place, _make), _thread)


@partial(files, thread="good")
def folders_a_thousand_deep_among_the_threads(root: Path) -> None:
    deepen(root / "threads" / "deep")


@partial(files, thread="good")
def folders_a_thousand_deep_among_the_blobs(root: Path) -> None:
    deepen(root / "blobs" / "ab")


@partial(files, thread="good")
def folders_a_thousand_deep_in_a_namespace(root: Path) -> None:
    deepen(root / "namespaces" / "n" / "threads")


@partial(files, thread="good")
def folders_a_thousand_deep_in_the_index(root: Path) -> None:
    deepen(root / "index" / "deep")


def deepen(path: Path, depth: int = 1500) -> None:
    """Made from the inside: no path is long enough to name them."""
    path.mkdir(parents=True, exist_ok=True)
    here = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


@partial(files, thread="good")
def a_lease_for_ever_of_this_boot(root: Path) -> None:
    from clew.engines.files import leases

    era = clock.now().era
    state = LeaseState(1, "somebody", "turn", 1 << 62, 1 << 62, 1 << 62, era)
    descriptor = os.open(root / "locks" / anonymous("good"), os.O_RDWR | os.O_CREAT, 0o600)
    leases.write(Disk(), descriptor, leases.LeaseSlots(), state)
    os.close(descriptor)


# --- bodies -----------------------------------------------------------------------------------

LARGE = 60 * 1024 * 1024


def _bombs(engine: str, kind: str, before: bytes, after: bytes) -> Build:
    """Ten bodies of 60 MB, of which each takes 2 KB."""

    def trap(place: Path) -> None:
        address = str(place) if engine == "sqlite" else f"files:{place}"
        data = before + b"a" * LARGE + after
        with clew.open(address, durability="relaxed") as store:
            store.create("bad")
            for _ in range(10):
                draft = EntryDraft(id=new_id(), kind=kind, data=data, time_us=NOW)
                store.engine.append("bad", [draft])

    return trap


for _engine, _traps in (("files", FILES), ("sqlite", SQLITE)):
    _traps["events of 60 MB that compress to 2 KB"] = Trap(
        _bombs(_engine, "event", b'{"text":"', b'"}')
    )
    _traps["messages of 60 MB that compress to 2 KB"] = Trap(
        _bombs(_engine, "user_message", b'{"content":"', b'","role":"user"}')
    )


# --- manifests --------------------------------------------------------------------------------


def tangle(store: clew.Store, depth: int = 60) -> str:
    """Folders that each name the next one twice: 2^60 paths in sixty manifests."""
    from clew.snapshots.manifest import Node
    from clew.snapshots.manifest import pack as manifest

    ref = store.blobs.put(manifest([Node("f", "file", store.blobs.put(b"x"), 1)]))
    for _ in range(depth):
        ref = store.blobs.put(manifest([Node("a", "folder", ref), Node("b", "folder", ref)]))
    return ref


def plant_snapshot(store: clew.Store, thread: str, tree: str, **members: Any) -> str:
    """A snapshot as `take` writes it, of a tree that was never taken."""
    handle = store.create(thread) if store.find(thread) is None else store.get(thread)
    message = handle.append_message({"role": "user", "content": "look"})
    body = {
        "tree": tree,
        "at": message.id,
        "root": "/nonexistent/tree",
        "files": 1,
        "size_bytes": 1,
        "new_bytes": 1,
        "left_out_count": 0,
        "label": None,
    } | members
    entry = handle.append("snapshot", {**body, "left_out": []})
    facts = {"time_us": entry.time_us, "pinned": False} | members
    handle.set_facts({f"snapshot.{entry.id}": {**body, **facts}})
    handle.append_message({"role": "assistant", "content": "done"})
    return entry.id


def _planted(engine: str, plant: Callable[[clew.Store], None]) -> Build:
    def trap(place: Path) -> None:
        address = str(place) if engine == "sqlite" else f"files:{place}"
        with clew.open(address, durability="relaxed") as store:
            plant(store)

    return trap


def _tangle(store: clew.Store) -> None:
    other = tangle(store, 59)
    plant_snapshot(store, "bad", tangle(store))
    plant_snapshot(store, "bad", other)


SNAPSHOTS: dict[str, dict[str, Any]] = {
    "a NUL in the root of a snapshot": {"root": "/tmp/a\0b"},
    "a root of a megabyte": {"root": "/a" * 500_000},
    "a root that is relative": {"root": "../.."},
    "a tree that is no hash": {"tree": "x"},
    "a tree of a path": {"tree": "b3:../../x"},
    "a tree that does not exist": {"tree": "b3:" + "0" * 64},
    "a snapshot at a time beyond the calendar": {"time_us": 1 << 62},
    "a snapshot at a time before the calendar": {"time_us": -(1 << 62)},
    "a snapshot of a huge size": {"size_bytes": 1 << 62, "files": 1 << 62},
    "a snapshot at a message that is not there": {"at": "nowhere"},
    "a snapshot with a lone surrogate": {"root": "/\ud800", "label": "\ud800"},
    "a snapshot of paths that lead out": {"paths": ["../../etc"]},
}


def _rooted(members: dict[str, Any]) -> Callable[[clew.Store], None]:
    def plant(store: clew.Store) -> None:
        tree = tangle(store, 0)
        plant_snapshot(store, "bad", **({"tree": tree} | members))
        plant_snapshot(store, "bad", tree)

    return plant


def _facts(store: clew.Store) -> None:
    thread = store.create("bad")
    for n, (key, value) in enumerate(
        {
            "title": "t" * 5_000_000,
            "workspace": "/w\0x",
            "model": "m" * 5_000_000,
            "clew.undo": {"a": [1]},
            "rewind": "x" * 5_000_000,
            "session": 5,
            "run": [],
        }.items()
    ):
        try:
            thread.set_facts({key: value})
        except clew.ClewError:
            thread.append("event", n)


for _engine, _traps in (("files", FILES), ("sqlite", SQLITE)):
    _traps["sixty manifests that name each other twice"] = Trap(_planted(_engine, _tangle))
    _traps["facts of megabytes"] = Trap(_planted(_engine, _facts))
    for _name, _members in SNAPSHOTS.items():
        _traps[_name] = Trap(_planted(_engine, _rooted(_members)))


# --- SQLite -----------------------------------------------------------------------------------


def change(path: Path, *statements: str) -> None:
    db = apsw.Connection(str(path))
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    db.execute("PRAGMA writable_schema = ON")
    for statement in statements:
        db.execute(statement)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()


@contextmanager
def unstrict(path: Path) -> Iterator[apsw.Connection]:
    """The file with tables that take values of whatever type; they say STRICT again afterwards."""
    db = apsw.Connection(str(path))
    try:
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        db.execute("PRAGMA writable_schema = ON")
        schema = db.execute("SELECT rowid, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
        db.execute("UPDATE sqlite_schema SET sql = replace(sql, ' STRICT', ' ')")
        db.execute("PRAGMA writable_schema = RESET")
    finally:
        db.close()
    db = apsw.Connection(str(path))
    try:
        yield db
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        db.execute("PRAGMA writable_schema = ON")
        for no, sql in schema:
            db.execute("UPDATE sqlite_schema SET sql = ? WHERE rowid = ?", (sql, no))
    finally:
        db.close()


def _statement(*statements: str) -> Build:
    return lambda path: change(path, *statements)


_T = "(SELECT no FROM threads WHERE id = 't')"
for _name, _sql in {
    "the number of a thread is 16.7 million": ["UPDATE threads SET no = 16777215 WHERE id = 't'"],
    "the sequence of threads is 16.7 million": [
        "UPDATE sqlite_sequence SET seq = 16777215 WHERE name = 'threads'",
        "UPDATE threads SET hash = 'x' WHERE id = 't'",
    ],
    "the sequence of threads is 2 to the 62": [
        "UPDATE sqlite_sequence SET seq = 1 << 62 WHERE name = 'threads'",
    ],
    "the seq of a thread is 2 to the 32": ["UPDATE threads SET seq = 4294967295 WHERE id = 't'"],
    "a record has the last seq there is": [
        f"UPDATE records SET no = no | 4294967295 WHERE no >> 32 = {_T}",
    ],
    "a record of a purged thread has the last seq there is": [
        f"UPDATE records SET no = no | 2147483648 WHERE no >> 32 = {_T}",
        "UPDATE threads SET shelf = 3 WHERE id = 't'",
    ],
    "a segment hangs on itself": [f"UPDATE segments SET parent = first WHERE first >> 32 = {_T}"],
    "a fork of itself": ["UPDATE threads SET origin_no = no << 32 | 1, origin = id WHERE id = 't'"],
    "a blob says that it has a terabyte": ["UPDATE blobs SET size = 1 << 40"],
    "a blob says that it has half a gigabyte": ["UPDATE blobs SET size = 1 << 29"],
    "a body of zeros that are not stored": [
        f"UPDATE records SET body = zeroblob(400000000) WHERE no >> 32 = {_T}"
    ],
    "a thread at a time beyond the calendar": [
        "UPDATE threads SET updated_us = 1 << 62, listed_us = 1 << 62 WHERE id = 't'"
    ],
    "a lease with a fence without end": [
        "INSERT INTO leases SELECT no, 9223372036854775807, 'me', NULL, 1, 1 << 62, 1 << 62, '',"
        " 'x' FROM threads"
    ],
    "a fact of a value of 5 MB": [
        "UPDATE records SET body = CAST(printf('%.*c', 5000000, 'x') AS BLOB) WHERE type = 2"
    ],
    "a thread whose id has 5 MB": [
        "UPDATE threads SET id = printf('%.*c', 5000000, 'x') WHERE id = 't'"
    ],
    "a kind of 5 MB": [
        f"UPDATE records SET kind = printf('%.*c', 5000000, 'x') WHERE no >> 32 = {_T}"
    ],
    "a namespace of 5 MB": ["INSERT INTO namespaces VALUES (7, printf('%.*c', 5000000, 'x'))"],
}.items():
    SQLITE[_name] = Trap(_statement(*_sql), "t")


def _put_beside(end: str, make: Callable[[Path], None], path: Path) -> None:
    _special(f"{path.name}{end}", make)(path.parent)


for _place in ("", "-wal", "-shm", "-lock", "-journal", "-search/x"):
    SQLITE[f"a terabyte of nothing at s.db{_place}"] = Trap(
        lambda path, end=_place: sparse(Path(f"{path}{end}")),
        "t",  # type: ignore[misc]
    )
for _what, _make in _SPECIALS.items():
    for _place in ("-wal", "-shm", "-lock", "-journal", "-repair", "-search"):
        SQLITE[f"{_what} at s.db{_place}"] = Trap(partial(_put_beside, _place, _make), "t")


def pages_of(path: Path) -> bytearray:
    change(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    return bytearray(path.read_bytes())


def leaf_with(data: bytearray, cells: list[bytes]) -> bytes:
    """A leaf page of a table with these cells."""
    page = bytearray(PAGE)
    page[0] = 0x0D
    page[3:5] = len(cells).to_bytes(2, "big")
    at = PAGE
    for n, cell in enumerate(cells):
        at -= len(cell)
        page[at : at + len(cell)] = cell
        page[8 + 2 * n : 10 + 2 * n] = at.to_bytes(2, "big")
    page[5:7] = at.to_bytes(2, "big")
    return bytes(page)


def varint(value: int) -> bytes:
    parts = [value & 0x7F]
    while value := value >> 7:
        parts.append(value & 0x7F | 0x80)
    return bytes(reversed(parts))


def lengthen(path: Path, *pages: bytes) -> int:
    """Pages behind all others, and damage that makes a repair look at every page; the first one."""
    data = pages_of(path)
    first = len(data) // PAGE + 1
    data += b"".join(pages)
    data[28:32] = (len(data) // PAGE).to_bytes(4, "big")
    data[24:28] = data[92:96]
    data[100 + 5 : 100 + 7] = b"\xff\xff"
    path.write_bytes(bytes(data))
    return first


def _wide_cell(size: int, following: int) -> bytes:
    """A cell that claims a size, with its first bytes in the page and the rest in others."""
    least = (PAGE - 12) * 32 // 255 - 23
    inline = least + (size - least) % (PAGE - 4)
    inline = inline if inline <= PAGE - 35 else least
    return varint(size) + varint(1) + bytes(inline) + following.to_bytes(4, "big")


def _circle(size: int, cells: int) -> Build:
    def trap(path: Path) -> None:
        first = len(pages_of(path)) // PAGE + 1
        small = _wide_cell(size, first + 1)
        # As many cells as one page can name: they may lie on top of each other.
        page = bytearray(leaf_with(bytearray(), [small]))
        page[3:5] = cells.to_bytes(2, "big")
        place = page[8:10]
        for n in range(cells):
            page[8 + 2 * n : 10 + 2 * n] = place
        circle = (first + 2).to_bytes(4, "big") + bytes(PAGE - 4)
        back = (first + 1).to_bytes(4, "big") + bytes(PAGE - 4)
        lengthen(path, bytes(page), circle, back)

    return trap


SQLITE["overflow pages in a circle, and a cell of 2 GiB"] = Trap(_circle((1 << 31) - 100, 1), "t")
SQLITE["overflow pages in a circle, and a thousand cells"] = Trap(_circle(50_000_000, 1000), "t")


@sqlite
def many_pages_whose_cells_share_one_long_rest(path: Path) -> None:
    """Without a circle: each of many cells claims the same megabytes."""
    first = len(pages_of(path)) // PAGE + 1
    rest = 1000
    page = bytearray(leaf_with(bytearray(), [_wide_cell(rest * (PAGE - 4), first + 1)]))
    cells = 1000
    page[3:5] = cells.to_bytes(2, "big")
    place = bytes(page[8:10])
    for n in range(cells):
        page[8 + 2 * n : 10 + 2 * n] = place
    others = [(first + 2 + n).to_bytes(4, "big") + bytes(PAGE - 4) for n in range(rest)]
    lengthen(path, bytes(page), *others, *[bytes(page)] * 50)


@sqlite
def a_lease_for_ever_of_this_boot_in_a_file(path: Path) -> None:
    from clew.engines.sqlite.leases import lease_hash

    state = LeaseState(1, "somebody", "turn", 1 << 62, 1 << 62, 1 << 62, clock.now().era)
    db = apsw.Connection(str(path))
    for no, id in db.execute("SELECT no, id FROM threads").fetchall():
        row = (no, *astuple(state), lease_hash(id, state))
        db.execute("INSERT INTO leases VALUES (?,?,?,?,?,?,?,?,?)", row)
    db.close()


@partial(sqlite, thread="fork")
def segments_hang_on_a_text(path: Path) -> None:
    with unstrict(path) as db:
        db.execute("UPDATE segments SET parent = '{}'")


@partial(sqlite, thread="fork")
def segments_hang_on_half_a_number(path: Path) -> None:
    with unstrict(path) as db:
        db.execute("UPDATE segments SET parent = 0.5")


@partial(sqlite, thread="one")
def two_threads_of_one_file_were_forked_from_each_other(path: Path) -> None:
    with clew.open(path, durability="relaxed") as store:
        store.create("one").append("event", 1)
        store.create("two").append("event", 1)
    one, two = (f"(SELECT no << 32 | 1 FROM threads WHERE id = '{id}')" for id in ("one", "two"))
    change(
        path,
        f"UPDATE threads SET origin = 'two', origin_no = {two} WHERE id = 'one'",
        f"UPDATE threads SET origin = 'one', origin_no = {one} WHERE id = 'two'",
        f"UPDATE segments SET parent = {two} WHERE first = {one}",
        f"UPDATE segments SET parent = {one} WHERE first = {two}",
    )
