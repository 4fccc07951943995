"""What was planted through the door, with all hashes right, on every engine."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hostile.traps import NOW, SNAPSHOTS, plant_snapshot, tangle

import clew
from clew import ClewError, Store
from clew.core import engine as waist
from clew.core.errors import MESSAGE_MAX, Corrupt, TooLarge, Unsupported
from clew.core.lease_rules import TTL_SECONDS_MAX, Instant, LeaseState
from clew.snapshots.diff import unified

# --- trees ---


def test_a_tree_of_endless_paths_is_counted_and_not_walked(store: Store, tmp_path: Path) -> None:
    deep, other = tangle(store), tangle(store, 59)
    empty = store.blobs.put(b'{"format":"clew.tree","nodes":[],"version":1}')
    ids = [plant_snapshot(store, "bad", tree) for tree in (deep, other, empty)]
    thread = store.get("bad")
    for call in (
        lambda: thread.snapshots.files(ids[0]),
        lambda: thread.snapshots.diff(ids[0], ids[1]),
        lambda: thread.snapshots.diff(ids[2], ids[1]),
        lambda: unified(thread.snapshots.trees, thread.snapshots.diff(ids[1], ids[2])),
        lambda: thread.fork(id="fork", at=ids[0], files_to=tmp_path / "copy"),
    ):
        with pytest.raises(Unsupported, match="over 1,000,000 paths"):
            call()
    assert not (tmp_path / "copy").exists()
    assert store.find("fork") is None
    thread.snapshots.stats()
    store.sweep(grace_seconds=0)


def test_a_tree_without_a_single_file_ends_too(store: Store) -> None:
    """Nothing is there to be told, so that nothing else would stop it."""
    from clew.snapshots.manifest import Node, pack

    ref = store.blobs.put(pack([]))
    for _ in range(60):
        ref = store.blobs.put(pack([Node("a", "folder", ref), Node("b", "folder", ref)]))
    first = plant_snapshot(store, "bad", ref)
    second = plant_snapshot(store, "bad", store.blobs.put(pack([Node("c", "folder", ref)])))
    with pytest.raises(Unsupported, match="paths"):
        store.get("bad").snapshots.diff(first, second)


# --- facts ---


@pytest.mark.parametrize("case", SNAPSHOTS)
def test_a_planted_snapshot_is_damage_and_no_surprise(
    case: str, store: Store, tmp_path: Path
) -> None:
    tree = tangle(store, 0)
    id = plant_snapshot(store, "bad", **({"tree": tree} | SNAPSHOTS[case]))
    good = plant_snapshot(store, "good", tree)
    thread = store.get("bad")
    message = thread.path()[0].id
    for call in (
        lambda: thread.snapshots.list(),
        lambda: [snapshot.time for snapshot in thread.snapshots.list()],
        lambda: thread.snapshots.files(id),
        lambda: thread.snapshots.restore(id, dry_run=True),
        lambda: thread.snapshots.restore(id, tmp_path / "root", dry_run=True),
        lambda: thread.snapshots.diff(id),
        lambda: thread.rewind(message, files=True, dry_run=True),
        lambda: thread.fork(id="fork", at=id, files_to=tmp_path / "copy"),
        lambda: thread.undo_rewind(),
        lambda: store.sweep(grace_seconds=0),
        lambda: store.cleanup(older_than=timedelta(0)),
    ):
        with suppress(ClewError):
            call()
    if store.find("good") is not None:
        assert [snapshot.id for snapshot in store.get("good").snapshots.list()] == [good]


# --- sizes ---


def test_a_path_of_too_much_is_refused_before_the_memory_is_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = store.create("t")
    for _ in range(5):
        thread.append("event", {"text": "a" * 300_000})
    monkeypatch.setattr(waist, "PATH_BYTES_MAX", 1_000_000)
    for call in (thread.path, lambda: thread.path(limit=4)):
        with pytest.raises(TooLarge, match="path of thread 't'"):
            call()
    assert len(thread.path(limit=3)) == 3
    assert len(list(thread.read())) == 5


def test_an_error_quotes_no_value_of_megabytes() -> None:
    error = Corrupt("x" * 5_000_000, "it is large")
    assert len(str(error)) <= MESSAGE_MAX + 10
    assert str(error).endswith("it is large")
    assert len(error.place) == 5_000_000


# --- leases ---


@pytest.mark.parametrize(
    "planted",
    [
        {"until_ns": 1 << 62},
        {"until_us": 1 << 62},
        {"created_us": -(1 << 62)},
        {"until_ns": round((TTL_SECONDS_MAX + 1) * 1e9)},
    ],
)
def test_a_lease_longer_than_any_that_was_given_is_over(planted: dict[str, int]) -> None:
    now = Instant(now_ns=0, era="boot", wall_us=NOW)
    fields: dict[str, Any] = {
        "fence": 1,
        "owner": "o",
        "created_us": NOW,
        "until_us": NOW + 1,
        "until_ns": 1,
        "era": "boot",
    }
    assert LeaseState(**fields).live("t", now) is not None
    assert LeaseState(**(fields | planted)).live("t", now) is None


# --- what is left of what was purged ---


@pytest.mark.parametrize("how", ["purge", "cleanup"])
@pytest.mark.parametrize("engine", ["sqlite", "files"])
def test_the_caches_forget_a_thread_that_was_purged(
    engine: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = tmp_path / "caches"
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a-telling-name").write_text("x")
    with clew.open(f"{engine}:{tmp_path}/store") as store:
        thread = store.create("a-telling-id")
        thread.append_message({"role": "user", "content": "hello"})
        thread.snapshots.take(tree)
        assert mentions(caches, b"a-telling-name")
        if how == "purge":
            store.purge("a-telling-id")
        else:
            assert store.cleanup(older_than=timedelta(0)).purged == ("a-telling-id",)
        store.sweep(grace_seconds=0)
    assert mentions(caches, b"a-telling") == []


def mentions(folder: Path, word: bytes) -> list[str]:
    return [
        path.name
        for path in folder.rglob("*")
        if stat.S_ISREG(os.lstat(path).st_mode) and word in path.read_bytes()
    ]


# --- lineages ---


@pytest.mark.parametrize("engine", ["sqlite", "files"])
def test_forks_of_forks_share_what_is_remembered_of_their_lineage(
    engine: str, tmp_path: Path
) -> None:
    """Each would remember all of it otherwise: the square of their number."""
    count = 150
    with clew.open(f"{engine}:{tmp_path}/store", durability="relaxed") as store:
        thread = store.create("f0")
        thread.append("event", 0)
        for n in range(1, count):
            thread = thread.fork(id=f"f{n}")
            thread.append("event", n)
        for n in range(count):
            assert len(store.get(f"f{n}").path()) == n + 1
            with pytest.raises(clew.NotFound):
                store.engine.path(f"f{n}", "nowhere")
        first = store.get("f0").path()[0]
        assert store.engine.path(f"f{count - 1}", first.id) == [first]
        lineages = getattr(store.engine, "_lineages", None) or store.engine._store.index.lineages
        assert len(lineages._steps) <= count
