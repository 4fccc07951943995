"""Whatever is changed behind Clew's back, verify names it."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import clew
from clew.engines.shared.tables import read
from clew.testing.cases.base import thread as draft_of

MARK = "needle"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with everything in it."""
    path = tmp_path_factory.mktemp("verify") / "threads.db"
    with clew.open(path) as store:
        facts = {"workspace": "/w", "title": f"{MARK}-title", "tags": ["a"]}
        store.engine.create(draft_of("t", parent="p", facts=facts))  # its parent was purged
        thread = store.get("t")
        blob = store.blobs.put(b"blob " * 50)
        a = thread.append("user_message", {"text": f"{MARK}-a"}, meta={"m": f"{MARK}-meta"})
        thread.append("tool_result", {"text": f"{MARK} " * 3000}, blobs=[blob])
        thread.move(a.id)
        with thread.turn(owner="me") as turn:
            turn.append("user_message", {"text": f"{MARK}-c"}, format="plain")
        fork = thread.fork(at=a.id, id="f")
        fork.append("user_message", {"text": f"{MARK}-d"})
        store.create("gone", facts={"archived": True, "status": "x"})
        store.delete("gone")
        assert store.verify() == []
    return path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "copy.db"))


def problems(path: Path) -> list[clew.Problem]:
    with clew.open(path) as store:
        return store.verify()


def test_flipping_any_byte_of_a_body_is_found(copy: Path) -> None:
    data = copy.read_bytes()
    flipped = 0
    for text in (f"{MARK}-a", f"{MARK}-meta", f"{MARK}-c", f"{MARK}-d", f"{MARK}-title"):
        start = data.index(text.encode())
        for offset in range(start - 2, start + len(text)):
            changed = bytearray(data)
            changed[offset] ^= 1 << (offset % 8)
            copy.write_bytes(changed)
            assert problems(copy) != [], f"byte {offset} of {text}"
            flipped += 1
    assert flipped > 40


def test_flipping_any_byte_of_a_blob_is_found(copy: Path) -> None:
    db = apsw.Connection(str(copy))
    stored = db.execute("SELECT data FROM blobs ORDER BY length(data)").fetchall()
    db.close()
    data = copy.read_bytes()
    for (blob,) in stored:
        start = data.index(blob[:40])
        for offset in range(start, start + min(len(blob), 60)):
            changed = bytearray(data)
            changed[offset] ^= 0x10
            copy.write_bytes(changed)
            assert problems(copy) != [], f"byte {offset - start} of a blob"


@pytest.mark.parametrize("column", ["id", "kind", "parent"])
def test_text_that_cannot_be_decoded_any_more_is_an_error_of_ours(copy: Path, column: str) -> None:
    db = apsw.Connection(str(copy))
    query = f"SELECT {column} FROM records WHERE type = 0 AND no >> 32 = 2"
    text = db.execute(query).get.encode()
    db.close()
    data = copy.read_bytes()
    copy.write_bytes(data.replace(text, bytes([text[0] ^ 0x80]) + text[1:]))
    with clew.open(copy) as store:
        assert store.verify() != []
        with pytest.raises((clew.Corrupt, clew.NotFound)):
            store.get("f").path()


CHANGES = [
    "UPDATE records SET body = CAST('{}' AS BLOB) WHERE no = (1 << 32) + 4",
    "UPDATE records SET body = CAST(body || ' ' AS BLOB) WHERE kind = 'title'",
    "UPDATE records SET kind = 'assistant_message' WHERE kind = 'user_message' AND no >> 32 = 1",
    "UPDATE records SET time_us = time_us + 1 WHERE type = 0 AND no & 255 = 4",
    "UPDATE records SET time_us = time_us + 1 WHERE type = 1",
    "UPDATE records SET turn = 'other' WHERE turn IS NOT NULL",
    "UPDATE records SET format = NULL WHERE format IS NOT NULL",
    "UPDATE records SET meta = NULL WHERE meta IS NOT NULL",
    "UPDATE records SET blobs = NULL WHERE blobs IS NOT NULL",
    "UPDATE records SET parent = NULL WHERE type = 1",
    "UPDATE records SET parent = NULL WHERE no >> 32 = 2 AND type = 0",
    "UPDATE records SET id = 'renamed' WHERE no >> 32 = 2 AND type = 0",
    "UPDATE records SET hash = (SELECT hash FROM records WHERE no = (1 << 32) + 4)"
    " WHERE no = (1 << 32) + 5",
    "UPDATE records SET body_hash = hash WHERE no = (1 << 32) + 5",
    "UPDATE records SET body_hash = NULL WHERE no = (1 << 32) + 5",
    "UPDATE records SET body = NULL WHERE no = (1 << 32) + 4",
    "UPDATE records SET no = no + 77 WHERE no >> 32 = 2 AND type = 0",
    "DELETE FROM records WHERE no = (1 << 32) + 3",
    "DELETE FROM records WHERE type = 1",
    "DELETE FROM records WHERE no = (SELECT max(no) FROM records)",
    "DELETE FROM segments WHERE first >> 32 = 2",
    "UPDATE segments SET parent = parent + 1 WHERE first >> 32 = 2",
    "UPDATE segments SET parent = first + 1 WHERE parent IS NOT NULL",  # a circle
    "INSERT INTO segments VALUES ((1 << 32) + 8, (1 << 32) + 7)",
    "DELETE FROM facts WHERE key = 'tags'",
    "UPDATE facts SET record = record + 1 WHERE key = 'title'",
    "DELETE FROM tags",
    "INSERT INTO tags VALUES (1, 'b', 1)",
    "UPDATE threads SET leaf = NULL WHERE id = 't'",
    "UPDATE threads SET leaf_hash = 'b3:0' WHERE id = 't'",
    "UPDATE threads SET tail = NULL WHERE id = 't'",
    "UPDATE threads SET seq = seq + 1 WHERE id = 't'",
    "UPDATE threads SET updated_us = 0 WHERE id = 't'",
    "UPDATE threads SET listed_us = 0 WHERE id = 't'",
    "UPDATE threads SET created_us = 0 WHERE id = 't'",
    "UPDATE threads SET parent = NULL WHERE id = 't'",
    "UPDATE threads SET workspace = 'x' WHERE id = 't'",
    "UPDATE threads SET status = 'x' WHERE id = 't'",
    "UPDATE threads SET shelf = 1 WHERE id = 't'",
    "UPDATE threads SET shelf = 0 WHERE id = 'gone'",
    "UPDATE threads SET deleted_us = NULL WHERE id = 'gone'",
    "UPDATE threads SET id = 'other' WHERE id = 't'",
    "UPDATE threads SET origin_entry = NULL WHERE id = 'f'",
    "UPDATE threads SET origin_hash = 'b3:0' WHERE id = 'f'",
    "UPDATE threads SET origin_no = origin_no - 1 WHERE id = 'f'",
    "UPDATE threads SET origin_no = origin_no + 1 WHERE id = 'f'",
    "UPDATE threads SET origin_no = 77 WHERE id = 'f'",
    "UPDATE threads SET hash = 'b3:0' WHERE id = 'gone'",
    "DELETE FROM threads WHERE id = 't'",
    "DELETE FROM threads WHERE id = 'gone'",
    "DELETE FROM blobs WHERE size > 1000",
    "DELETE FROM blobs WHERE size < 1000",
    "UPDATE blobs SET hash = 'b3:0' WHERE size < 1000",
    "UPDATE blobs SET size = size + 1 WHERE size > 1000",
    "UPDATE blobs SET codec = 'raw' WHERE size > 1000",
    "DELETE FROM blob_uses",
    "UPDATE leases SET created_us = created_us + 1",
    "UPDATE leases SET fence = fence + 1",
    "UPDATE threads SET space = 2 WHERE id = 't'",
    "UPDATE threads SET space = 3",
    "UPDATE blobs SET space = 2 WHERE size > 1000",
    "UPDATE blobs SET space = 2 WHERE size < 1000",
    "UPDATE blobs SET space = 3",
    "UPDATE tags SET space = 2",
    "UPDATE namespaces SET name = 'other' WHERE no = 1",
    "UPDATE namespaces SET no = 4 WHERE no = 1",
    "DELETE FROM namespaces",
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_row_is_found(copy: Path, change: str) -> None:
    db = apsw.Connection(str(copy))
    db.execute(change)
    assert db.changes() > 0, "the change must change something"
    db.close()
    assert problems(copy) != []


BEHIND = [
    "UPDATE threads SET leaf = NULL",
    "UPDATE threads SET leaf_hash = 'b3:0'",
    "UPDATE threads SET tail = 'e2'",
    "UPDATE threads SET updated_us = updated_us + 1",
    "UPDATE threads SET seq = seq + 1",
    "UPDATE threads SET seq = seq - 1",
    "UPDATE threads SET seq = 0",
    "UPDATE threads SET seq = 77",
    "UPDATE threads SET listed_us = updated_us",
]


@pytest.mark.parametrize("change", BEHIND)
def test_a_changed_row_is_found_also_where_entries_are_behind_it(
    tmp_path: Path, change: str
) -> None:
    path = tmp_path / "store.db"
    with clew.open(path) as store:
        thread = store.create("t", title="x")
        for n in range(4):
            thread.append("event", n, id=f"e{n}")
        assert store.verify() == []
    db = apsw.Connection(str(path))
    behind = "SELECT seq, (SELECT max(no) & 255 FROM records) FROM threads"
    assert db.execute(behind).get == (2, 5), "the row is as the first entry left it"
    db.execute(change)
    db.close()
    assert problems(path) != []


def test_a_move_that_the_row_does_not_know_of_is_found(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    columns = "seq = ?, leaf = ?, leaf_hash = ?, tail = ?, updated_us = ?"
    with clew.open(path) as store:
        thread = store.create("t")
        for n in range(3):
            thread.append("event", n, id=f"e{n}")
    db = apsw.Connection(str(path))
    before = db.execute(f"SELECT {columns.replace(' = ?', '')} FROM threads").get
    db.close()
    with clew.open(path) as store:
        store.get("t").move("e0")
    db = apsw.Connection(str(path))
    db.execute(f"UPDATE threads SET {columns}", before)
    db.close()
    assert [p.code for p in problems(path)] == ["wrong_sum"] * 3, "seq, leaf and its hash"
    with clew.open(path) as store:
        for append in (store.engine.append, lambda id, drafts: store.get(id).append(drafts)):
            with pytest.raises(clew.Corrupt):
                append("t", [clew.draft("event", "on a place that is not known")])


def test_what_a_purge_left_stays_right_when_lists_are_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "UNLISTED_MAX", 0)
    with clew.open(tmp_path / "store.db") as store:
        thread = store.create("t")
        for n in range(4):
            thread.append("event", n, id=f"e{n}")
        fork = thread.fork(at="e3", id="f")
        store.purge("t")
        fork.append("event", 4)
        assert [info.id for info in store.list(order="updated").items] == ["f"]
        assert store.verify() == []
        assert [entry.id for entry in fork.path()][:4] == ["e0", "e1", "e2", "e3"]


def test_a_problem_names_its_place(copy: Path) -> None:
    db = apsw.Connection(str(copy))
    (id,) = db.execute("SELECT id FROM records WHERE no >> 32 = 2 AND type = 0").fetchone()
    db.execute("UPDATE records SET body = CAST('1' AS BLOB) WHERE id = ?", (id,))
    db.close()
    found = problems(copy)
    assert [(p.code, p.thread, p.entry) for p in found] == [("damaged_body", "f", id)]
    assert found[0].seq is not None


def test_a_broken_index_is_found(copy: Path) -> None:
    db = apsw.Connection(str(copy))
    (page, size) = db.execute(
        "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_schema"
        " WHERE name = 'records_by_id'"
    ).fetchone()
    (id,) = db.execute("SELECT id FROM records WHERE no >> 32 = 2 AND type = 0").fetchone()
    db.close()
    data = bytearray(copy.read_bytes())
    start = data.index(id.encode(), (page - 1) * size)
    assert start < page * size
    data[start + 20] ^= 1
    copy.write_bytes(data)
    assert problems(copy) != []


QUICKLY = [
    "UPDATE records SET parent = NULL WHERE type = 1",
    "UPDATE records SET id = 'renamed' WHERE no = (1 << 32) + 4",
    "UPDATE records SET time_us = time_us + 1 WHERE no = (1 << 32) + 4",
    "UPDATE records SET meta = NULL WHERE meta IS NOT NULL",
    "UPDATE records SET body_hash = hash WHERE no = (1 << 32) + 4",
    "UPDATE records SET body = NULL WHERE no = (1 << 32) + 4",
    "DELETE FROM records WHERE no = (1 << 32) + 3",
    "DELETE FROM segments WHERE first >> 32 = 2",
    "DELETE FROM facts WHERE key = 'tags'",
    "UPDATE threads SET seq = seq + 1 WHERE id = 't'",
    "UPDATE threads SET created_us = 0 WHERE id = 't'",
    "DELETE FROM blobs WHERE size > 1000",
    "DELETE FROM blobs WHERE size < 1000",
]


@pytest.mark.parametrize("change", QUICKLY)
def test_the_quick_form_sees_what_is_wrong_with_the_structure(copy: Path, change: str) -> None:
    db = apsw.Connection(str(copy))
    db.execute(change)
    assert db.changes() > 0
    db.close()
    with clew.open(copy) as store:
        assert store.verify(quick=True) != []


def test_the_quick_form_does_not_read_bodies(copy: Path) -> None:
    db = apsw.Connection(str(copy))
    db.execute("UPDATE records SET body = CAST('{}' AS BLOB) WHERE no = (1 << 32) + 4")
    db.execute("UPDATE blobs SET data = CAST('x' AS BLOB)")
    db.close()
    with clew.open(copy) as store:
        assert store.verify(quick=True) == []
        assert len(store.verify()) >= 3


def test_problems_come_while_the_rest_is_still_to_be_read(copy: Path) -> None:
    db = apsw.Connection(str(copy))
    db.execute("UPDATE blobs SET data = CAST('x' AS BLOB)")
    db.close()
    with clew.open(copy) as store:
        told: list[int] = []
        found = store.engine.check(progress=lambda done, total: told.append(done))
        assert next(found).code == "damaged_blob"
        assert told == [], "nothing else was read yet"
        found.close()  # type: ignore[attr-defined]
        store.create("another")


def test_a_missing_blob_is_called_that_and_nothing_else(copy: Path) -> None:
    db = apsw.Connection(str(copy))
    db.execute("DELETE FROM blobs WHERE size < 1000")
    db.close()
    assert {problem.code for problem in problems(copy)} == {"missing_blob"}


def test_what_forks_of_purged_threads_hang_on_stays(tmp_path: Path) -> None:
    """A path that passes a thread by, whose row goes before those on both sides of it."""
    with clew.open(tmp_path / "threads.db") as store:
        o = store.create("o")
        o.append([clew.draft("event", id, id=id) for id in "ab"])
        p = o.fork(at="b", id="p")
        p.append("event", "c", id="c")
        q = p.fork(at="c", id="q")
        q.move("a")
        q.append("event", "x", id="x")
        z = q.fork(at="x", id="z")
        for name, kept in (("q", 1), ("p", 0), ("o", 1)):
            assert store.purge(name).kept == kept
            assert store.verify() == []
        assert [entry.body for entry in z.path()] == ["a", "x"]
        store.purge("z")
        assert store.stats().records == 0


def test_what_is_left_of_a_purged_thread_may_have_lost_its_origin(tmp_path: Path) -> None:
    with clew.open(tmp_path / "threads.db") as store:
        store.create("o").append("event", "a")
        q = store.get("o").fork(id="q")
        q.append("event", "b")
        q.move(None)
        q.append("event", "root", id="root")
        z = q.fork(id="z")
        for name in ("q", "o"):
            store.purge(name)
        assert store.verify() == []
        assert [entry.id for entry in z.path()] == ["root"]


def test_what_is_left_may_hang_past_an_origin_of_which_only_another_part_is_left(
    tmp_path: Path,
) -> None:
    """`q` begins where nothing is any more, in a thread that a fork of its other root keeps."""
    with clew.open(tmp_path / "threads.db") as store:
        o = store.create("o")
        o.append("event", "a", id="a")
        p = o.fork(at="a", id="p")
        p.append("event", "b", id="b")
        q = p.fork(at="b", id="q")
        q.move("a")
        q.append("event", "x", id="x")
        z = q.fork(at="x", id="z")
        p.move(None)
        p.append("event", "root", id="root")
        w = p.fork(at="root", id="w")
        for name in ("q", "p", "o"):
            assert store.purge(name).kept == 1
            assert store.verify() == []
        assert [entry.body for entry in z.path()] == ["a", "x"]
        assert [entry.body for entry in w.path()] == ["root"]


def test_what_cannot_be_counted_is_verified_all_the_same(copy: Path) -> None:
    with closing(apsw.Connection(str(copy))) as db:
        page = int(db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'records'").get)
    with copy.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(bytes(4096))
    with clew.open(copy) as store:
        found = store.verify(progress=lambda *now: None)
        assert found == store.verify() != []
