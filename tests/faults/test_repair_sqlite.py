"""A repair of a SQLite store whose pages and rows are gone, or where others should be."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from faults.test_repair import fill, mend, picture

import clew
from clew.engines.sqlite.repair import salvage
from clew.engines.sqlite.repair.workshop import SQLiteWorkshop
from clew.upkeep.repair import repair

PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rows") / "store.db"
    fill(str(made))
    return made


@pytest.fixture
def rows(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "store.db"))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Threads whose rows, and whose records, each take pages of their own."""
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        for n in range(100):
            thread = store.create(f"t{n}", workspace="w" * 250)
            drafts = [clew.draft("event", "x" * 900, id=f"e{n}.{m}") for m in range(10)]
            thread.append(drafts)
    return path


def change(path: Path, *statements: str) -> None:
    with closing(apsw.Connection(str(path))) as db:
        for statement in statements:
            db.execute(statement)
            assert db.changes() > 0, "the change must change something"


def leaves(path: Path, table: str) -> list[int]:
    """The pages that hold the rows, in their order."""
    query = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path"
    with closing(apsw.Connection(str(path))) as db:
        return [page for (page,) in db.execute(query, (table,))]


def root(path: Path, name: str) -> int:
    with closing(apsw.Connection(str(path))) as db:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        return int(db.execute(query, (name,)).get)


def page(path: Path, number: int) -> bytes:
    return path.read_bytes()[(number - 1) * PAGE_BYTES : number * PAGE_BYTES]


def put_page(path: Path, number: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek((number - 1) * PAGE_BYTES)
        file.write(data)


def swap(path: Path, one: int, other: int) -> None:
    kept = page(path, one)
    put_page(path, one, page(path, other))
    put_page(path, other, kept)


# --- pages ---


@pytest.mark.parametrize("table", ["records", "threads", "blobs"])
def test_pages_in_the_place_of_others_cost_nothing(large: Path, table: str) -> None:
    with clew.open(large) as store:
        blobs = [store.blobs.put(bytes([n]) * 10 + bytes(range(256)) * 3) for n in range(40)]
    before = picture(str(large))
    found = leaves(large, table)
    assert len(found) > 4
    swap(large, found[2], found[-3])
    report = mend(str(large))
    assert report.lost == ()
    assert picture(str(large)) == before
    with clew.open(large) as store:
        assert all(store.blobs.has(blob) for blob in blobs)


def test_a_page_that_stands_twice_costs_the_one_in_whose_place_it_is(large: Path) -> None:
    found = leaves(large, "records")
    put_page(large, found[21], page(large, found[20]))
    report = mend(str(large))
    assert 0 < len(report.lost) < 10
    with clew.open(large) as store:
        for n in range(100):
            entries = store.get(f"t{n}").path()
            assert [entry.id for entry in entries] == [f"e{n}.{m}" for m in range(10)]


def test_what_is_made_up_for_broken_pages_takes_nothing_from_what_was_there(large: Path) -> None:
    """Every number on such a page is tried, and some of them were purged."""
    with clew.open(large) as store:
        for n in range(100):
            if n % 4:
                store.purge(f"t{n}")
        ids = {info.id for info in store.list(limit=100).items}
    found = leaves(large, "threads")
    for number in found[1::2]:
        put_page(large, number, bytes(PAGE_BYTES))
    mend(str(large))
    with clew.open(large) as store:
        more = {info.id for info in store.list(limit=100).items} - ids
        assert all(len(store.get(id).path()) == 10 for id in ids)
        assert not any(store.get(id).path() for id in more)


def test_a_thread_of_which_only_the_index_is_left_has_its_ids(large: Path) -> None:
    ids = [f"bare.{m}" for m in range(10)]
    with clew.open(large) as store:
        store.create("bare").append([clew.draft("event", "x" * 900, id=id) for id in ids])
    change(large, "DELETE FROM threads WHERE id = 'bare'")
    for number in leaves(large, "records"):
        if b"bare." in page(large, number):
            put_page(large, number, bytes(PAGE_BYTES))
    report = mend(str(large))
    assert set(ids) <= {lost.id for lost in report.lost}
    with clew.open(large) as store:
        entries = store.get("lost-thread-101").path()
        assert [entry.id for entry in entries] == ids
        assert {entry.kind for entry in entries} == {"custom"}
        assert len(store.get("t50").path()) == 10


def test_a_fork_that_nothing_leads_back_from_keeps_its_own_entries(rows: Path) -> None:
    """Its row is gone, and so is the index by which its first entry's parent would be found."""
    change(rows, "DELETE FROM threads WHERE id = 'f'")
    put_page(rows, root(rows, "records_by_id"), bytes(PAGE_BYTES))
    mend(str(rows))
    with clew.open(rows) as store:
        entries = [e.body for info in store.list().items for e in store.get(info.id).path()]
    assert {"text": "needle-g"} in entries


@pytest.mark.parametrize("log", [b"", b"\xaa" * 5000])
def test_a_destroyed_first_page_with_a_log_beside_it_costs_nothing(
    rows: Path, whole: Path, log: bytes
) -> None:
    put_page(rows, 1, b"\xaa" * PAGE_BYTES)
    rows.with_name(rows.name + "-wal").write_bytes(log)
    report = mend(str(rows))
    assert report.lost == ()
    assert picture(str(rows)) == picture(str(whole))


# --- rows ---


def test_an_erased_entry_stays_erased(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        thread = store.create("t")
        thread.append([clew.draft("event", f"needle-{n}", id=f"e{n}") for n in range(4)])
        store.erase("t", ["e1"])
    change(path, "UPDATE records SET body = CAST('1' AS BLOB) WHERE id = 'e3'")
    report = mend(str(path))
    assert [lost.id for lost in report.lost] == ["e3"]
    with clew.open(path) as store:
        assert [entry.erased_at is None for entry in store.get("t").path()][:3] == [
            True,
            False,
            True,
        ]


def test_a_lost_thread_takes_no_id_that_another_has(large: Path) -> None:
    with clew.open(large) as store:
        store.create("lost-thread-1", title="a title").append("event", "has its name")
    change(large, "DELETE FROM threads WHERE no = 1")
    mend(str(large))
    with clew.open(large) as store:
        thread = store.get("lost-thread-1")
        assert [entry.body for entry in thread.path()] == ["has its name"]
        assert thread.facts["title"]["text"] == "a title"
        assert len(store.get("lost-thread-1 (no. 1)").path()) == 10


def test_a_thread_with_the_damaged_id_of_another_takes_it_not_away(large: Path) -> None:
    (number,) = [n for n in leaves(large, "threads") if b"t10\0\x06" in page(large, n)]
    found = page(large, number)
    put_page(large, number, found.replace(b"t10\0\x06", b"t50\0\x06"))
    report = mend(str(large))
    assert any("two threads had one id" in note for note in report.notes)
    with clew.open(large) as store:
        thread = store.get("t50")
        assert thread.facts["workspace"] == "w" * 250
        assert [entry.id for entry in thread.path()] == [f"e50.{m}" for m in range(10)]
        other = store.get("t50 (no. 11)")
        assert [entry.id for entry in other.path()] == [f"e10.{m}" for m in range(10)]


def test_a_fork_is_put_where_the_thread_is_that_it_began_in(rows: Path) -> None:
    """Its row, which said in what namespace it is, is gone."""
    with clew.open(rows, namespace="acme") as store:
        thread = store.create("there")
        thread.append("event", 1, id="there-1")
        thread.fork(id="fork").append("event", 2, id="there-2")
    change(rows, "DELETE FROM threads WHERE id = 'fork'")
    mend(str(rows))
    with clew.open(rows, namespace="acme") as store:
        ids = {info.id for info in store.list().items} - {"there"}
        (fork,) = ids
        assert [entry.id for entry in store.get(fork).path()] == ["there-1", "there-2"]


def test_what_is_in_no_known_namespace_is_mixed_with_no_other(rows: Path) -> None:
    for name in ("lost", "acme"):
        with clew.open(rows, namespace=name) as store:
            store.create("t").append("event", name, id=f"in {name}")
    change(rows, "DELETE FROM threads WHERE id = 't' AND space = 3")
    mend(str(rows))
    with clew.open(rows, namespace="lost") as store:
        assert [entry.body for entry in store.get("t").path()] == ["lost"]
        assert [info.id for info in store.list().items] == ["t"]
    with clew.open(rows, namespace="lost-", create=False) as store:
        (info,) = store.list().items
        assert [entry.body for entry in store.get(info.id).path()] == ["acme"]


def test_a_namespace_whose_name_is_none_gets_another_one(rows: Path) -> None:
    with clew.open(rows, namespace="acme") as store:
        store.create("t").append("event", "in acme")
    change(rows, "UPDATE namespaces SET name = '' WHERE name = 'acme'")
    repair(rows)
    with clew.open(rows, namespace="lost-namespace-2", create=False) as store:
        assert store.verify() == []
        assert [entry.body for entry in store.get("t").path()] == ["in acme"]


@pytest.mark.parametrize("most", [0, 100_000])
def test_the_namespaces_that_are_tried_for_a_thread_are_not_without_end(
    rows: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    with clew.open(rows, namespace="acme") as store:
        store.create("moved").append("event", 1)
    change(rows, "UPDATE threads SET space = 1 WHERE id = 'moved'")
    monkeypatch.setattr(salvage, "_GUESSES_MAX", most)
    mend(str(rows))
    with clew.open(rows, namespace="acme" if most else "default") as store:
        assert store.get("moved").path()[0].body == 1


def test_what_is_left_of_a_purged_thread_stays_although_its_row_is_damaged(rows: Path) -> None:
    with clew.open(rows) as store:
        before = [entry.id for entry in store.get("orphan").path()]
        assert len(before) == 3
    change(rows, "UPDATE threads SET created_us = created_us + 1 WHERE shelf = 3")
    mend(str(rows))
    with clew.open(rows) as store:
        assert [entry.id for entry in store.get("orphan").path()] == before


def test_an_origin_that_leads_to_no_thread_is_not_followed(rows: Path) -> None:
    change(rows, "UPDATE threads SET origin_no = 77 << 32, origin = NULL WHERE id = 'f'")
    report = mend(str(rows))
    assert any("does not match its hash" in note for note in report.notes)
    with clew.open(rows) as store:
        assert {"text": "needle-g"} in [entry.body for entry in store.get("f").path()]


# --- what must not go wrong while it is made ---


def after(monkeypatch: pytest.MonkeyPatch, name: str, work: Any) -> None:
    """Do something to the new file just before a step of the workshop."""
    step = getattr(SQLiteWorkshop, name)

    def both(self: SQLiteWorkshop, *arguments: Any) -> Any:
        work(self._new)
        return step(self, *arguments)

    monkeypatch.setattr(SQLiteWorkshop, name, both)


def hurt(rows: Path) -> bytes:
    change(rows, "UPDATE records SET body = CAST('1' AS BLOB) WHERE id = 'c'")
    return rows.read_bytes()


def test_a_new_store_whose_log_is_held_takes_no_place(
    rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[apsw.Connection] = []

    def hold(new: Path) -> None:
        for statement in ("BEGIN", "SELECT count(*) FROM threads"):
            held[:] = held or [apsw.Connection(str(new))]
            held[0].execute(statement).fetchall()

    before = hurt(rows)
    after(monkeypatch, "finish", hold)
    with pytest.raises(clew.Unavailable, match="cannot be emptied"):
        repair(rows)
    held[0].close(True)
    assert rows.read_bytes() == before


def test_a_new_store_with_something_in_its_log_takes_no_place(
    rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = hurt(rows)
    after(monkeypatch, "swap", lambda new: Path(f"{new}-wal").write_bytes(b"more"))
    with pytest.raises(clew.Unavailable, match="nothing was changed"):
        repair(rows)
    assert rows.read_bytes() == before


def test_a_new_store_that_cannot_be_written_any_more_takes_no_place(
    rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = hurt(rows)
    after(monkeypatch, "finish", lambda new: put_page(new, 1, b"\xaa" * PAGE_BYTES))
    with pytest.raises(clew.ClewError):
        repair(rows)
    assert rows.read_bytes() == before
