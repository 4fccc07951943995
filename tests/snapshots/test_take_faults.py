"""A take that meets errors in the tree, in its cache or in the store, one by one.

tests/faults lets every call fail; here is what must come of it in each case that went wrong once.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from faults.layers import Call, Layer
from faults.points import Outcome
from faults.stores import KINDS
from faults.takecuts import TakeCuts
from faults.taking import held, later
from faults.watched import LIST, OPEN, READ, watched_by
from snapshots.trees import Spec, add, write

from clew.core import drafts
from clew.core.codec import digest
from clew.core.errors import Closed, InvalidInput, Unavailable
from clew.core.model import Record
from clew.engines.files import blobs
from clew.engines.memory import MemoryEngine
from clew.snapshots import scan, take
from clew.snapshots.model import Snapshot
from clew.store import Store
from clew.thread import Thread


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", {"a.txt": b"one", "d/b.txt": b"two", "d/c.txt": b"three"})


@pytest.fixture
def memory() -> Thread:
    return Store(MemoryEngine()).create("t")


class Failing(Layer):
    """Lets those calls fail that it is told to, as often as it is told to."""

    def __init__(self, wanted: Callable[[Call], bool], times: int = 1000) -> None:
        self._wanted = wanted
        self.left = times

    def around(self, call: Call, whole: Callable[[], Any], half: Any = None) -> Any:
        if self.left and self._wanted(call):
            self.left -= 1
            raise OSError(errno.EIO, "injected")
        return whole()


def taken(thread: Thread, root: Path, layer: Layer) -> Snapshot:
    with watched_by(layer):
        return thread.snapshots.take(root)


def reasons(snapshot: Snapshot) -> dict[str, str]:
    return {item.path: item.reason for item in snapshot.left_out}


def files(thread: Thread, snapshot: Snapshot) -> list[str]:
    return [path for path, _ in thread.snapshots.files(snapshot)]


# --- the tree ---


def test_a_name_that_cannot_be_looked_at_does_not_take_its_folder_along(
    memory: Thread, root: Path
) -> None:
    bad = Failing(lambda call: (call.name, call.path) == ("stat", "b.txt"))
    first = taken(memory, root, bad)
    assert (reasons(first), files(memory, first)) == (
        {"d/b.txt": "unreadable"},
        ["a.txt", "d/c.txt"],
    )
    again = memory.snapshots.take(root)
    assert (reasons(again), files(memory, again)) == ({}, ["a.txt", "d/b.txt", "d/c.txt"])


def test_an_ignored_name_that_cannot_be_looked_at_is_not_told(memory: Thread, root: Path) -> None:
    add(root, {".git/config": b"", "x.log": b"", ".gitignore": b"*.log\n"})
    bad = Failing(lambda call: (call.name, call.path) in (("stat", ".git"), ("stat", "x.log")))
    assert reasons(taken(memory, root, bad)) == {}
    assert bad.left == 998


@pytest.mark.parametrize("call", ["stat", LIST, "next name"])
def test_a_folder_that_cannot_be_looked_into_is_told_and_stops_nothing(
    call: str, memory: Thread, root: Path
) -> None:
    opened: list[bool] = []

    def in_d(made: Call) -> bool:
        opened.extend([True] if (made.name, made.path) == (OPEN, "d") else [])
        return made.name == call and bool(opened)

    first = taken(memory, root, Failing(in_d, times=1))
    assert (reasons(first), files(memory, first)) == ({"d": "unreadable"}, ["a.txt"])
    assert reasons(memory.snapshots.take(root)) == {}


def test_a_top_folder_that_cannot_be_listed_is_told(memory: Thread, root: Path) -> None:
    first = taken(memory, root, Failing(lambda call: call.name == LIST))
    assert (reasons(first), first.files) == ({".": "unreadable"}, 0)
    assert memory.snapshots.take(root).files == 3


def test_descriptors_are_not_used_up_by_failures(memory: Thread, root: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    for at in range(60):
        calls = iter(range(1000))
        bad = Failing(lambda call: next(calls) == at)  # noqa: B023
        with suppress(InvalidInput):  # of its top there must be something
            taken(Store(MemoryEngine()).create("t"), root, bad)
    assert len(os.listdir("/dev/fd")) == before


# --- ignore files ---


@pytest.fixture
def ignoring(root: Path) -> Path:
    add(root, {".gitignore": b"*.log\n", "x.log": b"log", "d/y.log": b"log"})
    return root


def test_an_ignore_file_that_cannot_be_read_is_told_and_ignores_nothing(
    memory: Thread, ignoring: Path
) -> None:
    bad = Failing(lambda call: (call.name, call.path) == (OPEN, ".gitignore"))
    first = taken(memory, ignoring, bad)
    assert reasons(first) == {".gitignore": "unreadable"}
    assert files(memory, first) == ["a.txt", "d/b.txt", "d/c.txt", "d/y.log", "x.log"]
    again = memory.snapshots.take(ignoring)
    assert files(memory, again) == [".gitignore", "a.txt", "d/b.txt", "d/c.txt"]


@pytest.mark.parametrize("call", [OPEN, "stat", READ])
def test_an_ignore_file_that_fails_once_still_counts(
    call: str, memory: Thread, ignoring: Path
) -> None:
    opened: list[bool] = []

    def once(made: Call) -> bool:
        opened.extend([True] if (made.name, made.path) == (OPEN, ".gitignore") else [])
        return made.name == call and bool(opened)

    first = taken(memory, ignoring, Failing(once, times=1))
    assert (reasons(first), files(memory, first)) == (
        {},
        [".gitignore", "a.txt", "d/b.txt", "d/c.txt"],
    )


class InPieces(Layer):
    """Every read and write does one half of what is asked for."""

    def around(self, call: Call, whole: Callable[[], Any], half: Any = None) -> Any:
        return whole() if half is None or call.size == 1 or len(call.data) == 1 else half()


def test_what_comes_in_pieces_is_read_and_written_whole(
    store: Store, ignoring: Path, tmp_path: Path
) -> None:
    thread = store.create("t")
    with later():
        first = taken(thread, ignoring, InPieces())
        store.snapshot_caches.clear()
        again = taken(thread, ignoring, InPieces())
    for snapshot in (first, again):
        assert held(store.engine, snapshot) == {
            ".gitignore": b"*.log\n",
            "a.txt": b"one",
            "d": None,
            "d/b.txt": b"two",
            "d/c.txt": b"three",
        }


# --- the cache ---


def cache_folder(store: Store) -> Path:
    return Path(os.environ["XDG_CACHE_HOME"], "clew", "snapshots")


@pytest.fixture(params=["sqlite", "files"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with KINDS[request.param].open(tmp_path, durability="relaxed") as engine:
        yield Store(engine)


def test_a_place_where_no_cache_can_be_stops_nothing(durable: Store, root: Path) -> None:
    folder = cache_folder(durable)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_bytes(b"a file where the folder of caches would be")
    thread = durable.create("t")
    for _ in range(2):
        durable.snapshot_caches.clear()
        assert files(thread, thread.snapshots.take(root)) == ["a.txt", "d/b.txt", "d/c.txt"]
    assert folder.is_file()


def test_a_cache_with_another_hash_in_it_is_not_believed(durable: Store, root: Path) -> None:
    """A torn or flipped one could name contents that were never stored."""
    thread = durable.create("t")
    with later():
        first = thread.snapshots.take(root)
        (file,) = cache_folder(durable).iterdir()
        ref = dict(thread.snapshots.files(first))["d/b.txt"].ref.encode()
        assert file.read_bytes().count(ref) == 1
        file.write_bytes(file.read_bytes().replace(ref, b"b3:" + b"0" * 64))
        durable.snapshot_caches.clear()
        again = thread.snapshots.take(root)
    assert again.tree == first.tree


@pytest.mark.parametrize("where", ["files", "folders", "ignores"])
@pytest.mark.parametrize("name", ["../outside", "..", "d/b.txt", "/etc/hostname"])
def test_a_cache_does_not_lead_out_of_the_tree(
    durable: Store, root: Path, where: str, name: str
) -> None:
    """One may come with a store from somebody else, with a hash that is right."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("not for others")
    thread = durable.create("t")
    with later():
        thread.snapshots.take(root)
        (file,) = cache_folder(durable).iterdir()
        seal = len(digest(b""))
        tree = msgspec.msgpack.decode(file.read_bytes()[seal:])
        top = tree["folders"][""]
        places = {"files": (4, [name, "file", "b3:" + "0" * 64, 3, None]), "folders": (5, name)}
        place, planted = places.get(where, (7, name))
        top[place].append(planted)
        data = msgspec.msgpack.encode(tree)
        file.write_bytes(digest(data).encode() + data)
        durable.snapshot_caches.clear()
        again = thread.snapshots.take(root)
    assert files(thread, again) == ["a.txt", "d/b.txt", "d/c.txt"]


def test_what_dead_writers_of_a_cache_leave_is_removed_when_it_is_old(
    durable: Store, root: Path
) -> None:
    thread = durable.create("t")
    thread.snapshots.take(root)
    folder = cache_folder(durable)
    (cache,) = folder.iterdir()
    hours = time.time() - 2 * 3600
    for name in (".old.new", ".young.new", "old.other"):
        (folder / name).write_bytes(b"half a cache")
        if "old" in name:
            os.utime(folder / name, (hours, hours))
    add(root, {"more": b"1"})
    thread.snapshots.take(root)
    assert {file.name for file in folder.iterdir()} == {cache.name, ".young.new", "old.other"}


def test_caches_of_trees_that_are_long_gone_do_not_pile_up(durable: Store, root: Path) -> None:
    thread = durable.create("t")
    thread.snapshots.take(root)
    folder = cache_folder(durable)
    (cache,) = folder.iterdir()
    for name, days in (("gone.cache", 200), ("asleep.cache", 100)):
        (folder / name).write_bytes(b"of another tree")
        long_ago = time.time() - days * 86400
        os.utime(folder / name, (long_ago, long_ago))
    add(root, {"more": b"1"})
    thread.snapshots.take(root)
    assert {file.name for file in folder.iterdir()} == {cache.name, "asleep.cache"}


# --- the store ---


class Unreliable(MemoryEngine):
    """Fails at one `put_blobs`, or at every look after the next append and another writer's."""

    def __init__(self) -> None:
        super().__init__()
        self.puts, self.fail_at = 0, -1
        self.closing = self.closed = False

    def put_blobs(self, blobs: Sequence[bytes]) -> list[str]:
        self.puts += 1
        if self.puts == self.fail_at:
            raise Unavailable("the disk is full")
        return super().put_blobs(blobs)

    def append(self, *arguments: Any, **options: Any) -> list[Record]:
        if self.closing:
            super().append("t", drafts.facts({"theirs": 1}, 1))
        records = super().append(*arguments, **options)
        self.closed = self.closing
        return records

    def thread(self, id: str) -> Any:
        if self.closed:
            raise Closed("a checkpoint failed after the commit")
        return super().thread(id)


def test_a_store_that_fails_one_of_many_readers_gets_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec: Spec = {f"d{n % 7}/f{n}": f"{n}".encode() * 50 for n in range(60)}
    root = write(tmp_path / "tree", spec)
    monkeypatch.setattr(scan, "CHUNK_FILES", 3)
    monkeypatch.setattr(take, "BATCH_BYTES", 500)
    monkeypatch.setattr(scan.os, "cpu_count", lambda: 4)
    for at in (1, 2, 4):
        engine = Unreliable()
        thread = Store(engine).create("t")
        engine.fail_at = at
        with pytest.raises(Unavailable) as caught:
            thread.snapshots.take(root)
        assert (caught.value.committed, thread.snapshots.list()) == (False, [])
        again = thread.snapshots.take(root)
        assert {path: thread.snapshots.read(again, path) for path in files(thread, again)} == spec


def test_a_failure_after_the_commit_does_not_say_that_nothing_was_written(root: Path) -> None:
    """Whoever believed it would take another one, and have two."""
    engine = Unreliable()
    thread = Store(engine).create("t")
    thread.snapshots.take(root)
    engine.closing = True
    with pytest.raises(Closed) as caught:
        thread.snapshots.take(root)
    engine.closing = engine.closed = False
    assert len(thread.snapshots.list()) == 2
    assert caught.value.committed is True


@pytest.mark.parametrize("owed", [True, False], ids=["synced", "believed"])
def test_blobs_of_a_killed_take_are_not_relied_on_before_their_names_are_synced(
    owed: bool, tmp_path: Path
) -> None:
    """The next process sees them, and a power cut would take them from its snapshot."""
    shared = Path("/dev/shm")
    place = tempfile.mkdtemp(dir=shared if shared.is_dir() else tmp_path)
    outcome = Outcome()
    try:
        cuts = TakeCuts(KINDS["files"], Path(place))
        if owed:
            cuts.run_after_kills(outcome, ())
            assert outcome.failures == []
        else:
            with mock.patch.object(blobs.Blobs, "settle"):
                cuts.run_after_kills(outcome, (), step=2)
            assert any("(acknowledged) is not entirely there" in one for one in outcome.failures)
    finally:
        shutil.rmtree(place)
    assert outcome.points > 10
