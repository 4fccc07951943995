"""The index of a files store is a cache: whatever it says, the files have the last word."""

from __future__ import annotations

import logging
import os
import random
import shutil
from pathlib import Path

import apsw
import pytest

import clew
from clew.upkeep.repair import repair


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def opened(root: Path, **options: object) -> clew.Store:
    return clew.open(f"files:{root}", **options)


def fill(root: Path) -> None:
    with opened(root) as store:
        thread = store.create("t", title="Hello", tags=["a", "b"])
        first = thread.append("event", {"n": 0}, id="first")
        thread.append([clew.draft("event", {"n": n}, id=f"e{n}") for n in range(1, 8)])
        thread.move("e3")
        thread.append("event", {"n": 8}, id="e8")
        thread.set(status="done")
        thread.fork(at="e2", id="f").append("event", "in the fork", id="in-fork")
        store.create("deleted", title="x").append("event", first.body)
        store.delete("deleted")
        store.create("u").append("event", {"text": "x" * 70_000}, blobs=[store.blobs.put(b"b")])
        list(store.threads())
        for id in ("t", "f", "u"):
            store.get(id).path()


PATHS = [("t", None), ("t", "e7"), ("t", "e2"), ("f", None), ("u", None)]


def paths(store: clew.Store) -> list[object]:
    """What is read by way of the index, and from the files."""
    found: list[object] = []
    for id, leaf in PATHS:
        thread = store.get(id)
        found.append([(e.id, e.seq, e.parent, e.body) for e in thread.path(*filter(None, [leaf]))])
        found.append([(r.id, r.seq) for r in store.engine.read(id)])
        info = thread.info
        found.append((info.seq, info.leaf, info.created_us, info.title, info.origin))
    return found


def looks(store: clew.Store) -> list[object]:
    """The rest, which the index alone tells."""
    infos = [(info.id, info.title, info.seq, info.leaf, info.status) for info in store.threads()]
    segments = [store.engine.segments(id) for id in ("t", "f", "u")]
    return [infos, segments, [info.id for info in store.threads(tag="b")], store.stats()]


@pytest.mark.parametrize("seed", range(2))
def test_a_flipped_bit_in_the_index_changes_no_path_and_verify_names_it(
    seed: int, root: Path
) -> None:
    fill(root)
    with opened(root) as store:
        wanted, seen = paths(store), looks(store)
    whole = (root / "index" / "index.db").read_bytes()
    used = [at for at in range(len(whole)) if whole[at]]  # the rest is free space, mostly
    chance = random.Random(seed)
    for _ in range(int(os.environ.get("FLIPS", "25"))):
        at, bit = chance.choice(used), chance.randrange(8)
        data = bytearray(whole)
        data[at] ^= 1 << bit
        for check in (check_paths, check_verify):
            shutil.rmtree(root / "index")
            (root / "index" / "changed").mkdir(parents=True)
            (root / "index" / "index.db").write_bytes(data)
            with opened(root) as store:
                check(store, wanted, seen, f"bit {bit} of byte {at}")


def check_paths(store: clew.Store, wanted: object, seen: object, what: str) -> None:
    assert paths(store) == wanted, what


def check_verify(store: clew.Store, wanted: object, seen: object, what: str) -> None:
    assert store.verify() or looks(store) == seen, what
    assert store.verify() == [], f"{what}: it was dropped, and is made anew"
    assert looks(store) == seen, what


def tamper(root: Path, sql: str) -> None:
    db = apsw.Connection(str(root / "index" / "index.db"))
    db.execute(sql)
    db.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE threads SET seq = seq - 1 WHERE id = 't'",
        "UPDATE threads SET leaf = 'e7' WHERE id = 't'",
        "UPDATE threads SET leaf_hash = 'b3:0' WHERE id = 't'",
        "UPDATE threads SET deleted_us = 5 WHERE id = 't'",
        "UPDATE files SET size = 0, last = x'' WHERE name = 't'",
        "DELETE FROM records WHERE id = 'e3'",
        "DELETE FROM segments",
    ],
)
def test_an_append_hangs_on_what_the_file_says(sql: str, root: Path) -> None:
    fill(root)
    tamper(root, sql)
    with opened(root) as store:
        thread = store.get("t")
        new = thread.append("event", "next", id="next")
        assert new.parent == "e8"
        assert [entry.id for entry in thread.path()][-2:] == ["e8", "next"]
        assert store.verify() == []


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE facts SET record = record + (16 << 32) WHERE key = 'title'",
        "UPDATE threads SET origin_no = origin_no + (16 << 32) WHERE origin_no IS NOT NULL",
        "UPDATE files SET size = size - 16 WHERE name = 't'",
        "UPDATE files SET size = size + 16 WHERE name = 't'",
    ],
)
def test_verify_names_a_number_that_is_wrong_by_a_bit(sql: str, root: Path) -> None:
    fill(root)
    with opened(root) as store:
        seen = looks(store)
    tamper(root, sql)
    with opened(root) as store:
        assert {problem.code for problem in store.verify()} == {"wrong_index"}
        assert store.verify() == []
        assert looks(store) == seen


def test_a_lying_index_is_made_anew_on_disk_and_said(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(root)
    tamper(root, "UPDATE records SET parent = 'e5' WHERE id = 'e2'")
    with opened(root) as store, caplog.at_level(logging.WARNING, "clew"):
        assert [e.id for e in store.get("t").path("e3")] == ["first", "e1", "e2", "e3"]
        assert store.engine._store.index.is_shared  # type: ignore[attr-defined]
    assert "is made anew" in caplog.text
    with opened(root) as store:
        assert store.verify() == []


def test_other_handles_see_changes_after_one_has_made_the_index_anew(root: Path) -> None:
    fill(root)
    with opened(root) as one, opened(root) as other:
        assert len(list(other.threads())) == 3
        one.engine._store.index.drop("a test")  # type: ignore[attr-defined]
        one.get("t").set(status="new")
        assert "new" in [info.status for info in one.threads()]  # which takes the mark away
        assert "new" in [info.status for info in other.threads()]
        other.purge("u")
        assert "u" not in [info.id for info in one.threads()]


def test_a_purge_does_not_believe_that_there_is_no_fork(root: Path) -> None:
    fill(root)
    file = root / "index" / "index.db"
    db = apsw.Connection(str(file))
    page = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'threads_by_source'").get
    size = db.pragma("page_size")
    db.close()
    data = bytearray(file.read_bytes())
    at = (page - 1) * size + 3
    assert data[at : at + 2] == b"\0\1", "one fork in the tree"
    data[at + 1] = 0
    file.write_bytes(data)
    with opened(root) as store:
        assert store.purge("t").kept == 3
        assert [e.id for e in store.get("f").path()] == ["first", "e1", "e2", "in-fork"]


def test_repair_says_that_an_index_was_wrong(root: Path) -> None:
    fill(root)
    changed = "CAST(replace(CAST(body AS TEXT), 'Hello', 'Hullo') AS BLOB)"
    tamper(root, f"UPDATE records SET body = {changed} WHERE type = 2 AND kind = 'title'")
    report = repair(f"files:{root}")
    assert report.problems[0].code in ("wrong_index", "damaged_index")
    with opened(root) as store:
        assert "Hello" in str(store.get("t").info.title)


@pytest.mark.parametrize("change", ["renamed", "removed", "copied", "touched", "grown"])
def test_a_new_handle_sees_a_file_that_was_changed_by_hand(change: str, root: Path) -> None:
    """Each of these leaves something the same: the number of files, their sizes, their times."""
    with opened(root) as store:
        for name in "abc":
            store.create(name).append("event", name)
        store.list()
    a = root / "threads" / "a.jsonl"
    with opened(root) as store:  # what it finds is what the index remembers
        assert {info.id for info in store.list().items} == {"a", "b", "c"}
    if change == "renamed":
        a.rename(a.with_name("x.jsonl"))
        expected = {"b", "c"}
    elif change == "removed":
        a.unlink()
        expected = {"b", "c"}
    elif change == "copied":
        shutil.copy2(a, a.with_name("copy.jsonl"))
        expected = {"a", "b", "c"}
    elif change == "touched":
        os.utime(a)
        expected = {"a", "b", "c"}
    else:
        before = os.stat(root / "threads")
        with clew.open(f"files:{root.with_name('other')}") as other:
            other.create("a").append("event", "something else")
            other.get("a").append("event", "and more")
        shutil.copyfile(root.with_name("other") / "threads" / "a.jsonl", a)
        os.utime(root / "threads", ns=(before.st_atime_ns, before.st_mtime_ns))
        expected = {"a", "b", "c"}
    with opened(root) as store:
        assert {info.id for info in store.list().items} == expected
        if change == "grown":
            assert store.get("a").info.seq == 2
            assert next(i for i in store.list().items if i.id == "a").seq == 2


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE records SET type = 1 WHERE id = 'e2'",
        "DELETE FROM records WHERE id = 'e2'",
        "UPDATE records SET no = no + 64 WHERE id = 'e2'",
    ],
)
def test_a_fork_begins_where_its_file_says(sql: str, root: Path) -> None:
    fill(root)
    tamper(root, sql)
    with opened(root) as store:
        assert [e.id for e in store.get("f").path()] == ["first", "e1", "e2", "in-fork"]
    with opened(root) as store:
        assert store.verify() == []
