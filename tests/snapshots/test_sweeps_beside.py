"""A sweep works out what snapshots need while others write; what becomes needed meanwhile stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from places import ADDRESSES

import clew
from clew.core.engine import Engine
from clew.snapshots.catalogue import wanted

CONTENT = b"what a file holds, and somebody put long ago " * 50


@pytest.fixture(params=["memory", *ADDRESSES])
def store(request: pytest.FixtureRequest) -> Iterator[clew.Store]:
    makers = {"memory": lambda _: "memory:", **ADDRESSES}
    with clew.open(makers[request.param](request)) as opened:
        opened.blobs.put(CONTENT)
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "file").write_bytes(CONTENT)
    return made


def is_whole(thread: clew.Thread, snapshot: str, folder: Path) -> bool:
    there = folder.with_name("restored")
    there.mkdir()
    thread.snapshots.restore(snapshot, there)
    return (there / "file").read_bytes() == CONTENT


def test_a_snapshot_that_is_taken_after_the_sweep_has_asked_is_whole(
    store: clew.Store, folder: Path
) -> None:
    thread = store.create("t")
    taken: list[str] = []

    def keep(blobs: set[str]) -> set[str]:
        found = wanted(store, blobs)
        taken.append(thread.snapshots.take(folder).id)
        return found

    store.engine.sweep(grace_seconds=0, keep=keep)
    assert is_whole(thread, taken[0], folder)


def test_a_snapshot_whose_blobs_go_before_it_could_renew_them_is_stored_anew(
    store: clew.Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep asked before there was this snapshot, and removes after it was written down."""
    thread = store.create("t")
    renew, swept = store.engine.renew_blobs, []

    def sweep_first(engine: Engine, hashes: Any) -> set[str]:
        if not swept:
            swept.append(engine.sweep(grace_seconds=0, keep=lambda blobs: set()))
        return renew(hashes)

    monkeypatch.setattr(type(store.engine), "renew_blobs", sweep_first)
    taken = thread.snapshots.take(folder)
    assert swept[0].blobs >= 1
    assert is_whole(thread, taken.id, folder)


def test_a_thread_that_is_restored_while_it_is_looked_for_keeps_what_it_needs(
    store: clew.Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = store.create("t")
    taken = thread.snapshots.take(folder)
    store.delete("t")
    threads = store.threads

    def restored_in_between(**filters: Any) -> Any:
        if filters["deleted"]:
            store.restore("t")
        return threads(**filters)

    monkeypatch.setattr(store, "threads", restored_in_between)
    store.sweep(grace_seconds=0)
    assert is_whole(thread, taken.id, folder)
