"""Packs that are damaged, purged, or made while others write."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from msgspec.structs import replace

import clew
from clew.engines.shared.compression import compress_run, decompress_run
from clew.engines.shared.tables import packs, rows
from clew.engines.sqlite import pack as packing
from clew.upkeep.repair import repair

ENTRIES = 600


def body(n: int) -> dict[str, str]:
    return {"role": "user", "content": f"message {n} of many that have most words in common"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a packed thread and a fork of it."""
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        thread = store.create("t")
        for n in range(ENTRIES):
            thread.append("user_message", body(n), id=f"e{n}")
        store.fork("t", at="e300", id="f").append("event", "of the fork")
        assert store.pack(tail=1, idle_seconds=0).packs == 3
    return path


@contextmanager
def database(path: Path) -> Iterator[apsw.Connection]:
    db = apsw.Connection(str(path))
    try:
        yield db
    finally:
        db.close()


def seqs(problems: list[clew.Problem]) -> set[int | None]:
    return {problem.seq for problem in problems if problem.thread == "t"}


DAMAGE = {
    "its data": "UPDATE packs SET data = {} WHERE first = :first",
    "its hashes": "UPDATE packs SET hashes = zeroblob(length(hashes)) WHERE first = :first",
    "its hash": "UPDATE packs SET stored = 'b3:' WHERE first = :first",
    "its range": "UPDATE packs SET last = last + 1 WHERE first = :first",
    "its count": "UPDATE packs SET entries = entries - 1 WHERE first = :first",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_in_a_pack_is_named_with_its_entries_and_costs_no_other(
    path: Path, what: str
) -> None:
    with database(path) as db:
        first, last, data = db.execute(
            "SELECT first, last, data FROM packs ORDER BY first LIMIT 1 OFFSET 1"
        ).fetchone() or (0, 0, b"")
        spoiled = bytearray(data)
        spoiled[len(data) // 2] ^= 1
        sql = DAMAGE[what].format(":data") if "{}" in DAMAGE[what] else DAMAGE[what]
        db.execute(sql, {"first": first, "data": bytes(spoiled)})
    lost = set(range(first & 0xFFFF_FFFF, (last & 0xFFFF_FFFF) + 1))
    with clew.open(path) as store:
        problems = store.verify()
        assert {problem.code for problem in problems} >= {"damaged_pack", "damaged_record"}
        assert lost <= seqs(problems)
        with pytest.raises(clew.Corrupt, match="pack"):
            store.get("t").path()
        assert [entry.body for entry in store.get("t").path("e200")] == [
            body(n) for n in range(201)
        ]
    report = repair(path)
    assert {one.seq for one in report.lost if one.thread == "t"} == lost
    with clew.open(path) as store:
        assert store.verify() == []
        found = {entry.id: entry.body for entry in store.get("t").path()}
        for n in set(range(ENTRIES)) - {seq - 1 for seq in lost}:
            assert found[f"e{n}"] == body(n)


@pytest.mark.parametrize(
    "sql", ["DELETE FROM packed_ids WHERE no IN (SELECT no FROM packed_ids LIMIT 1)"]
)
def test_an_id_that_is_not_noted_is_found(path: Path, sql: str) -> None:
    with database(path) as db:
        db.execute(sql)
    with clew.open(path) as store:
        assert {problem.code for problem in store.verify()} == {"damaged_record", "wrong_sum"}


def test_a_pack_that_claims_to_be_huge_is_refused(path: Path) -> None:
    with database(path) as db:
        first, last, entries, hashes = db.execute(
            "SELECT first, last, entries, hashes FROM packs ORDER BY first LIMIT 1"
        ).fetchone() or (0, 0, 0, b"")
        bomb = compress_run(bytes(64 * 1024 * 1024))
        stored = packs.stored_hash(first, last, entries, hashes, bomb)
        query = "UPDATE packs SET data = ?, stored = ? WHERE first = ?"
        db.execute(query, (bomb, stored, first))
    with clew.open(path) as store, pytest.raises(clew.Corrupt, match="67108864 bytes"):
        store.get("t").path()


def forge(path: Path, change: Callable[[Any], Any], **row: Any) -> None:
    """The first pack with other columns, or another row, and a hash that fits: it is no secret."""
    with database(path) as db:
        query = f"SELECT {packs._PACK} FROM packs ORDER BY first LIMIT 1"
        first, last, entries, hashes, _, data = db.execute(query).fetchone() or ()
        columns = change(packs._decoder.decode(decompress_run(data, packs.PACK_BYTES_MAX)))
        new = {"last": last, "entries": entries, "hashes": hashes} | row
        new["data"] = compress_run(msgspec.msgpack.encode(columns))
        stored = packs.stored_hash(first, new["last"], new["entries"], new["hashes"], new["data"])
        query = "UPDATE packs SET last=?, entries=?, hashes=?, data=?, stored=? WHERE first=?"
        db.execute(query, (*new.values(), stored, first))


def shorter(columns: Any) -> Any:
    return replace(columns, ids=columns.ids[:-1])


FORGED: dict[str, tuple[Callable[[Any], Any], dict[str, Any], str]] = {
    "columns of two lengths": (shorter, {}, "not of one length"),
    "another beginning": (
        lambda found: replace(found, seqs=[2, *found.seqs[1:]]),
        {},
        "not those of its range",
    ),
    "an entry twice": (
        lambda found: replace(found, seqs=[*found.seqs[:-2], found.seqs[-2] + 1, 0]),
        {},
        "not those of its range",
    ),
    "a seq beyond all": (
        lambda found: replace(found, seqs=[*found.seqs[:-1], 1 << 62]),
        {},
        "not those of its range",
    ),
    "a time beyond the calendar": (
        lambda found: replace(found, times=[1 << 62, *found.times[1:]]),
        {},
        "times that cannot be",
    ),
    "no columns": (lambda found: [1, 2, 3], {}, "cannot be read"),
    "no entries": (lambda found: found, {"entries": 0, "hashes": b""}, "as many hashes"),
    "a hash too few": (lambda found: found, {"hashes": b"x" * 32}, "as many hashes"),
    "more entries than may be": (
        lambda found: found,
        {"entries": packs.ENTRIES_MAX + 1, "hashes": bytes(32 * (packs.ENTRIES_MAX + 1))},
        "as many hashes",
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_pack_that_was_forged_whole_is_named_and_costs_no_other(what: str, path: Path) -> None:
    change, row, reason = FORGED[what]
    forge(path, change, **row)
    with clew.open(path) as store:
        with pytest.raises(clew.Corrupt, match=reason):
            store.get("t").path()
        with pytest.raises(clew.Corrupt, match=reason):
            store.get("t").path("e1")
        assert store.get("t").path(limit=1)[0].id == f"e{ENTRIES - 1}"
        assert any(reason in problem.message for problem in store.verify())
    assert not repair(path).whole, "and it says so"
    with clew.open(path) as store:
        assert store.verify() == []


def test_a_pack_without_numbers_for_its_range_is_damage(path: Path) -> None:
    """The columns of the table have types; those of a file that others made need not."""
    with database(path) as db:
        row = db.execute(f"SELECT {packs._PACK} FROM packs ORDER BY first LIMIT 1").fetchone() or ()
    for at, wrong in ((0, "1"), (1, None), (2, 1.5), (3, "text"), (5, None)):
        with pytest.raises(clew.Corrupt, match="values that cannot be"):
            packs.decode((*row[:at], wrong, *row[at + 1 :]))
    for wrong in ("no place", "1", "1:2:3", ":"):
        with clew.open(path) as store, pytest.raises(clew.InvalidInput, match="where a pack"):
            store.engine.pack(after=wrong)


@pytest.mark.parametrize("hash", [None, b"x" * 32])
def test_an_entry_whose_body_is_not_in_its_pack_is_named_and_costs_no_other(
    path: Path, hash: bytes | None
) -> None:
    def without(found: Any) -> Any:
        bodies, hashes = [None, *found.bodies[1:]], [hash, *found.body_hashes[1:]]
        return replace(found, bodies=bodies, body_hashes=hashes)

    forge(path, without)
    with clew.open(path) as store:
        with pytest.raises(clew.Corrupt, match="body is missing"):
            store.get("t").get("e0")
        assert store.get("t").get("e1").body == body(1)
        assert seqs(store.verify()) == {1}


def test_an_entry_that_goes_by_another_id_is_not_found_by_the_noted_one(path: Path) -> None:
    forge(path, lambda found: replace(found, ids=["other", *found.ids[1:]]))
    with clew.open(path) as store:
        with pytest.raises(clew.NotFound):
            store.get("t").get("e0")
        assert 1 in seqs(store.verify())


def test_a_pack_that_reaches_into_another_thread_is_damage_and_costs_no_other(path: Path) -> None:
    with database(path) as db:
        sql = (
            "UPDATE packs SET last = last + (1 << 32) WHERE first = (SELECT min(first) FROM packs)"
        )
        db.execute(sql)
        with pytest.raises(clew.Corrupt, match="not there any more"):
            packs.read(db, packs.Pack(5, 6, "b3:"))
    with clew.open(path) as store, pytest.raises(clew.Corrupt, match="values that cannot be"):
        store.get("t").path()
    repair(path)
    with clew.open(path) as store:
        assert store.verify() == []
        assert store.get("t").get(f"e{ENTRIES - 1}").body == body(ENTRIES - 1)


def test_a_purge_takes_damaged_packs_along_but_for_those_that_a_fork_needs(path: Path) -> None:
    with clew.open(path) as store:
        assert store.search("message").total == ENTRIES
    with database(path) as db:
        db.execute("UPDATE packs SET stored = 'b3:'")
        first = db.execute("SELECT min(first) FROM packs").get
    with clew.open(path) as store:
        receipt = store.purge("t").receipt
        assert receipt is not None
        assert "'f' could not be read" in str(receipt.reason)
        assert store.search("message").total == 0, "of the thread nothing is left to be found"
    with database(path) as db:
        left = [begin for (begin,) in db.execute("SELECT first FROM packs ORDER BY first")]
        assert left[0] == first
        assert len(left) == 2, "the fork reaches into the second one"
        ids = db.execute("SELECT count(*) FROM packed_ids WHERE no > ?", (first + 512,)).get
        assert ids == 0


def test_what_stays_beside_the_packs_is_erased_as_well(tmp_path: Path) -> None:
    """A large body is in no pack, though there are packed entries before and behind it."""
    with clew.open(tmp_path / "store.db") as store:
        thread = store.create("t")
        for n in range(ENTRIES):
            thread.append("user_message", "large " * 9000 if n == 99 else body(n), id=f"e{n}")
        assert store.pack(tail=1, idle_seconds=0).packs
        thread.erase("e99", "e98")
        assert store.verify() == []
        gone = [n for n in range(95, 105) if thread.get(f"e{n}").erased_at is not None]
        assert gone == [98, 99]


def test_a_repair_keeps_what_is_beside_a_damaged_pack(tmp_path: Path) -> None:
    """Large bodies are in no pack: if one is damaged, they are still there, in the midst of it."""
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        thread = store.create("t")
        for n in range(ENTRIES):
            thread.append("user_message", "large " * 9000 if n == 99 else body(n), id=f"e{n}")
        assert store.pack(tail=1, idle_seconds=0).packs
    with database(path) as db:
        db.execute("UPDATE packs SET stored = 'b3:' WHERE first = (SELECT min(first) FROM packs)")
    report = repair(path)
    assert 100 not in {one.seq for one in report.lost}
    with clew.open(path) as store:
        assert store.verify() == []
        assert store.get("t").get("e99").body == "large " * 9000


def test_a_run_that_another_process_changes_while_it_is_packed_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with clew.open(path) as store, clew.open(path) as other:
        thread = store.create("t")
        for n in range(ENTRIES):
            thread.append("user_message", body(n), id=f"e{n}")
        make = packing.make

        def meanwhile(run: list[Any]) -> Any:
            made = make(run)
            monkeypatch.setattr(packing, "make", make)
            other.get("t").erase("e7")
            return made

        monkeypatch.setattr(packing, "make", meanwhile)
        store.pack(tail=1, idle_seconds=0)
        assert thread.get("e7").erased_at is not None
        assert thread.get("e8").body == body(8)
        assert store.verify() == []


def test_large_entries_make_small_runs_and_a_run_ends_before_a_pack(tmp_path: Path) -> None:
    chance = random.Random(0)
    with clew.open(tmp_path / "store.db") as store:
        thread = store.create("t")
        noise = [chance.randbytes(3000).hex() for _ in range(100)]
        for n in range(packs.ENTRIES_MAX):  # nothing is gained by these
            thread.append(
                "event", chr(0x4E00 + n) + "".join(chance.choices(CJK, k=300)), id=f"x{n}"
            )
        for n, text in enumerate(noise):
            thread.append("event", text, id=f"l{n}")
        first = store.pack(tail=1, idle_seconds=0)
        assert first.packs > 1, "256 KiB are a run, however few entries that is"
        again = store.pack(tail=1, idle_seconds=0)
        assert again.entries <= packs.ENTRIES_MAX
        assert store.verify() == []
        assert thread.get("l5").body == noise[5]


CJK = "".join(map(chr, range(0x4E00, 0x9FFF)))


def test_entries_that_a_pack_would_make_no_smaller_stay_as_they_are(tmp_path: Path) -> None:
    with clew.open(tmp_path / "store.db") as store:
        thread = store.create("t")
        for n in range(20):
            thread.append("event", n)
        assert store.pack(tail=1, idle_seconds=0).packs == 0
        thread.append("event", "words " * 1000)
        thread.append("event", "the last")
        assert store.pack(tail=1, idle_seconds=0).entries == 21, "with another one they gain"


def test_a_run_does_not_reach_over_a_pack_that_was_made_before(tmp_path: Path) -> None:
    """A pack holds one range: with rows from both sides of another one it would cover that."""
    with clew.open(tmp_path / "store.db") as store:
        thread = store.create("t")
        for n in range(ENTRIES):
            thread.append("user_message", body(n))
        behind = packing.Place(1, rows.number(1, 100))
        first = store.engine.pack(tail=1, idle_seconds=0, after=str(behind))
        assert first.entries == ENTRIES - 101
        for n in range(ENTRIES, ENTRIES + 100):
            thread.append("user_message", body(n))
        before_and_behind = store.engine.pack(tail=1, idle_seconds=0)
        assert (before_and_behind.entries, before_and_behind.packs) == (200, 2)
        assert store.verify() == []
        assert [entry.body for entry in thread.path()] == [body(n) for n in range(ENTRIES + 100)]


def test_a_damaged_pack_in_a_file_with_a_broken_page_costs_no_other(path: Path) -> None:
    with database(path) as db:
        db.execute("UPDATE packs SET stored = 'b3:' WHERE first = (SELECT min(first) FROM packs)")
        page = int(db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'packed_ids'").get)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    data = path.read_bytes()
    path.write_bytes(data[: (page - 1) * 4096] + bytes(4096) + data[page * 4096 :])
    repair(path)
    with clew.open(path) as store:
        assert store.verify() == []
        assert store.get("t").get("e300").body == body(300)
        assert store.get("t").get(f"e{ENTRIES - 1}").body == body(ENTRIES - 1)


def test_an_entry_that_is_beside_its_pack_as_well_is_named(path: Path) -> None:
    with database(path) as db:
        pack = next(packs.every(db, (apsw.Error,)))
        row = packs.read(db, pack).rows()[5]
        sql = f"INSERT INTO records VALUES ({','.join('?' * len(row))})"
        db.execute(sql, row)
    with clew.open(path) as store:
        assert "beside it" in " ".join(problem.message for problem in store.verify())
    with database(path) as db:
        db.execute("UPDATE packs SET stored = 'b3:' WHERE first = ?", (pack.first,))
    with clew.open(path) as store:
        named = {problem.seq for problem in store.verify() if problem.code == "damaged_record"}
        assert pack.first & 0xFFFF_FFFF in named
        assert row[0] & 0xFFFF_FFFF not in named, "it is there, beside the pack"
    repair(path)
    with clew.open(path) as store:
        assert store.verify() == []
        assert store.get("t").get(row[2]).body == body(5)


def test_a_destroyed_schema_costs_no_packed_entry(path: Path) -> None:
    with clew.open(path) as store:
        before = store.get("t").path(), store.get("f").path()
        store.pack(shrink=True)
    data = bytearray(path.read_bytes())
    data[:4096] = b"\xee" * 4096
    path.write_bytes(data)
    assert repair(path).lost == ()
    with clew.open(path) as store:
        assert (store.get("t").path(), store.get("f").path()) == before
        assert store.verify() == []


# --- purge and erasure ---

THREADS = 6
SECRET = random.Random(5).randbytes(48).hex()
STRETCH = 12  # characters of the secret: so much of it in a row is no chance


def everything_stored(folder: Path) -> bytes:
    """The bytes of a store's files, and whatever its packs have in them, unpacked."""
    found = [path.read_bytes() for path in sorted(folder.iterdir())]
    with database(folder / "store.db") as db:
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for row in db.execute(f"SELECT * FROM {table}"):
                found += [value for value in row if isinstance(value, bytes)]
        for pack in packs.every(db, ()):
            data = db.execute("SELECT data FROM packs WHERE first = ?", (pack.first,)).get
            found.append(decompress_run(data, packs.PACK_BYTES_MAX))
    return b"\0".join(found)


def stretches_left(folder: Path) -> list[str]:
    stored = everything_stored(folder)
    every = (SECRET[at : at + STRETCH] for at in range(len(SECRET) - STRETCH + 1))
    return [stretch for stretch in every if stretch.encode() in stored]


@pytest.mark.parametrize("how", ["erase", "purge"])
def test_nothing_is_left_of_a_secret_that_many_packed_threads_had(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    with clew.open(folder / "store.db") as store:
        for t in range(THREADS):
            thread = store.create(f"t{t}")
            for n in range(300):
                text = f"message {n} has words that are common to all of the threads " * 4
                secret = SECRET if n % 10 == 0 else ""
                body = {"role": "user", "content": f"{text} {secret}"}
                thread.append("user_message", body, id=f"t{t}-e{n}")
        assert store.pack(tail=1, idle_seconds=0).packs >= THREADS
        assert stretches_left(folder)
        for t in range(THREADS):
            if how == "purge":
                store.purge(f"t{t}")
            else:
                store.get(f"t{t}").erase(*(f"t{t}-e{n}" for n in range(0, 300, 10)))
        assert stretches_left(folder) == []
        assert store.verify() == []
        if how == "erase":
            words = str(store.get("t3").path()[7].body)
            assert "message 7 has words" in words


# --- beside others ---

WRITER = """
import sys, clew
with clew.open(sys.argv[1]) as store:
    thread = store.create(sys.argv[2])
    for n in range(400):
        thread.append("user_message", {"n": n, "text": "words that come again " * 3})
"""


def test_packing_beside_writers_of_other_processes_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    clew.open(path).close()
    writers: list[subprocess.Popen[Any]] = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "ab"
    ]
    with clew.open(path) as store:
        packed = 0
        while any(writer.poll() is None for writer in writers):
            packed += store.pack(tail=8).entries
        packed += store.pack(tail=8).entries
        assert packed > 0
        for name in "ab":
            assert [entry.body["n"] for entry in store.get(name).path()] == list(range(400))
        assert store.verify() == []
    assert [writer.returncode for writer in writers] == [0, 0]


@pytest.mark.parametrize("poisons", [False, True])
def test_a_file_that_could_not_be_shrunk_is_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, poisons: bool
) -> None:
    def fail(db: object) -> None:
        raise apsw.IOError("disk I/O error") if poisons else apsw.FullError("disk is full")

    monkeypatch.setattr(packing, "shrink", fail)
    with clew.open(path) as store:
        with pytest.raises(clew.Unavailable) as caught:
            store.pack(shrink=True)
        assert caught.value.retryable != poisons
        if poisons:
            with pytest.raises(clew.Closed, match="what is on disk is unknown"):
                store.get("t").path()
    with clew.open(path) as store:
        assert len(store.get("t").path()) == ENTRIES
        assert store.verify() == []
