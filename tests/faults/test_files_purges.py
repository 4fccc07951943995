"""A purge of a store of files is cheap, and never takes what it did not know to be needed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import clew
from clew.core.engine import Engine
from clew.engines.files import FilesEngine, changes
from clew.engines.files import purge as purges
from clew.engines.files.index import Index
from clew.engines.files.locks import is_ours
from clew.engines.shared.tables import rows
from clew.engines.sqlite import SQLiteEngine
from clew.testing.cases.base import fork_of, grow, ids, thread, whole

LARGE = {"text": "the same long tool output " * 5000}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "threads"


@pytest.fixture
def store(root: Path) -> Iterator[clew.Store]:
    """A store whose handle has purged something: it knows all forks and all uses of blobs."""
    with clew.open(f"files:{root}") as opened:
        opened.create("origin").append("event", "shared", id="shared")
        opened.create("large").append("tool_result", LARGE)
        opened.create("other").append("event", 1)
        opened.create("first")
        opened.purge("first")
        yield opened


class Looks:
    """How often somebody looks through a folder of threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._inner = changes.thread_files
        monkeypatch.setattr(changes, "thread_files", self)

    def __call__(self, folder: str, packed_too: bool = True) -> dict[str, int]:
        self.count += 1
        return self._inner(folder, packed_too)


def killed_before_its_mark(root: Path, work: str) -> None:
    """Another process writes, and is gone before it can tell those who list."""
    script = (
        "import os, sys, clew\n"
        "from clew.engines.files.open_store import OpenStore\n"
        "store = clew.open('files:' + sys.argv[1])\n"
        "OpenStore.mark = lambda *_: os._exit(9)\n" + work
    )
    ended = subprocess.run([sys.executable, "-c", script, str(root)], check=False)
    assert ended.returncode == 9


def with_times_kept(root: Path, work: Callable[[], object]) -> None:
    """Do something so soon that a folder's times do not tell: clocks of file systems are coarse."""
    folders = [root / "threads", root / "purged"]
    before = [os.stat(folder) for folder in folders]
    work()
    for folder, look in zip(folders, before, strict=True):
        os.utime(folder, ns=(look.st_atime_ns, look.st_mtime_ns))


# --- what it costs ---


def test_a_purge_does_not_look_at_every_other_thread(
    store: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [store.create(f"t{n}") for n in range(10)]
    made[0].append("event", 1, id="e")
    made[0].fork(at="e", id="fork")
    looks = Looks(monkeypatch)
    for at in range(len(made) - 1):
        store.purge(f"t{at}")
        made[-1].set(title=str(at))  # appends that refer to nothing do not matter
    assert looks.count == 2, "the first one looks, at threads/ and purged/"
    assert [entry.id for entry in store.get("fork").path()] == ["e"]
    assert store.verify() == []


@pytest.mark.parametrize("kind", [FilesEngine, SQLiteEngine])
def test_a_link_of_a_chain_of_forks_is_not_walked_for_each_of_the_others(
    kind: type[FilesEngine] | type[SQLiteEngine], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Engine = kind(root)
    length = 40
    engine.create(thread("t0"))
    grow(engine, "t0", "e0")
    for n in range(1, length):
        fork_of(engine, f"t{n - 1}", f"e{n - 1}", f"t{n}")
        grow(engine, f"t{n}", f"e{n}")
    walked = 0
    inner = rows.path_ranges

    def counted(*args: Any) -> Iterator[rows.Range]:
        nonlocal walked
        for span in inner(*args):
            walked += 1
            yield span

    monkeypatch.setattr(rows, "path_ranges", counted)
    assert len(engine.purge("t0").kept_for) == length - 1
    assert walked < 5 * length
    assert ids(engine.path(f"t{length - 1}")) == [f"e{n}" for n in range(length)]
    whole(engine)
    engine.close()


# --- what it must not miss ---


def test_a_fork_whose_maker_was_killed_keeps_what_it_needs(store: clew.Store, root: Path) -> None:
    work = "store.get('origin').fork(at='shared', id='fork')"
    with_times_kept(root, lambda: killed_before_its_mark(root, work))
    assert store.engine.purge("origin").kept_for == ("fork",)
    assert [entry.id for entry in store.get("fork").path()] == ["shared"]
    assert store.verify() == []


def test_a_large_body_whose_writer_was_killed_is_not_taken_away(
    store: clew.Store, root: Path
) -> None:
    body = '{"text": "the same long tool output " * 5000}'
    killed_before_its_mark(root, f"store.get('other').append('tool_result', {body})")
    store.purge("large")
    assert store.get("other").path()[-1].body == LARGE
    assert store.verify() == []


def test_a_fork_that_was_put_there_by_hand_keeps_what_it_needs(
    store: clew.Store, root: Path
) -> None:
    store.get("origin").fork(at="shared", id="fork")
    file = root / "threads" / "fork.jsonl"
    data = file.read_bytes()
    file.unlink()
    store.create("second")
    store.purge("second")
    file.write_bytes(data)
    assert store.engine.purge("origin").kept_for == ("fork",)
    assert [entry.id for entry in store.get("fork").path()] == ["shared"]


def test_an_index_that_was_lost_in_between_is_not_relied_on(store: clew.Store) -> None:
    store.get("origin").fork(at="shared", id="fork")
    store.create("second")
    store.purge("second")
    store.engine._store.index.fall_back()  # type: ignore[attr-defined]
    assert store.engine.purge("origin").kept_for == ("fork",)
    assert store.verify() == []


def test_an_index_that_somebody_made_anew_in_between_is_not_relied_on(
    store: clew.Store, root: Path
) -> None:
    store.get("origin").fork(at="shared", id="fork")
    store.create("second")
    store.purge("second")
    store.engine._store.index.close()  # type: ignore[attr-defined]  # as when a process forks
    for file in (root / "index").glob("index.db*"):
        file.unlink()
    assert store.engine.purge("origin").kept_for == ("fork",)
    assert store.verify() == []


def test_a_fork_that_cannot_be_read_any_more_stops_a_purge(store: clew.Store, root: Path) -> None:
    store.get("origin").fork(at="shared", id="fork").append("event", "long enough to be cut")
    store.create("second")
    store.purge("second")
    file = root / "threads" / "fork.jsonl"
    data = bytearray(file.read_bytes())
    data[-30] ^= 1
    with_times_kept(root, lambda: file.write_bytes(data))
    with clew.open(f"files:{root}") as another, pytest.raises(clew.Corrupt):
        another.get("fork").path()
    with pytest.raises(clew.Corrupt):
        store.purge("origin")
    assert [entry.id for entry in store.get("origin").path()] == ["shared"]


def test_two_handles_that_purge_see_what_the_other_one_left(store: clew.Store, root: Path) -> None:
    with clew.open(f"files:{root}") as another:
        store.get("origin").fork(at="shared", id="fork").append("event", "own", id="own")
        another.get("fork").fork(at="own", id="leaf")
        with_times_kept(root, lambda: store.purge("origin"))
        with_times_kept(root, lambda: another.purge("fork"))
        with_times_kept(root, lambda: store.purge("large"))
        assert [entry.id for entry in another.get("leaf").path()] == ["shared", "own"]
        another.purge("leaf")
        assert not list((root / "purged").iterdir())
        assert store.verify() == another.verify() == []


# --- who has a mutex ---


def test_a_file_that_this_thread_works_on_is_not_taken_for_an_idle_one() -> None:
    mutex = threading.RLock()
    assert not is_ours(mutex)
    with mutex:
        assert is_ours(mutex)
        found: list[bool] = []
        other = threading.Thread(target=lambda: found.append(is_ours(mutex)))
        other.start()
        other.join()
        assert found == [False]
    assert not is_ours(mutex)


# --- an index that cannot be written meanwhile ---


@pytest.mark.parametrize("part", ["forget", "wipe", "husk", "unused"])
@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError, apsw.BusyError, apsw.CorruptError])
@pytest.mark.parametrize("id", ["origin", "fork", "large"])
def test_a_purge_happens_once_though_the_index_fails(
    id: str, error: type[apsw.Error], part: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clew.open(f"files:{root}") as store:
        origin = store.create("origin")
        origin.append("event", "shared", id="shared")
        fork = origin.fork(at="shared", id="fork")
        fork.append("event", "own", id="own")
        fork.fork(at="own", id="leaf")
        store.create("large").append("tool_result", LARGE)
        list(store.threads())
    owner, name = {
        "forget": (Index, "forget"),
        "wipe": (purges, "wipe"),
        "husk": (purges, "_index_husk"),
        "unused": (purges, "_is_used"),
    }[part]
    inner, failures = getattr(owner, name), [error("a test")]

    def failing(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return inner(*arguments, **options)

    monkeypatch.setattr(owner, name, failing)
    with clew.open(f"files:{root}") as store:
        assert store.purge(id).thread == id
        assert store.verify() == []
        assert id not in [info.id for info in store.threads()]
    with clew.open(f"files:{root}") as store:
        assert store.verify() == []
        assert id not in [info.id for info in store.threads()]
        whole = ["shared", "own"]
        assert [entry.id for entry in store.get("leaf").path()] == whole
        assert store.stats().blobs == (0 if id == "large" else 1)


def test_a_purge_that_could_not_clear_up_says_that_it_happened(
    store: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(purges, "_collect", fail)
    with pytest.raises(clew.Unavailable, match="was purged") as caught:
        store.purge("origin")
    assert caught.value.committed is True
    assert "origin" not in [info.id for info in store.threads()]


@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError, apsw.BusyError])
def test_an_index_that_was_given_up_before_a_purge_does_not_remember_the_thread(
    error: type[apsw.Error], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clew.open(f"files:{root}") as store:
        for id in ("t", "u"):
            store.create(id).append("event", id)
        list(store.threads())
    with clew.open(f"files:{root}") as store:
        with monkeypatch.context() as patch:

            def failing(*arguments: Any, **options: Any) -> Any:
                if store.engine._store.index.is_shared:  # type: ignore[attr-defined]
                    raise error("a test")
                return inner(*arguments, **options)

            inner = Index.asked
            patch.setattr(Index, "asked", failing)
            list(store.threads())
        assert not store.engine._store.index.is_shared  # type: ignore[attr-defined]
        store.purge("t")
    with clew.open(f"files:{root}") as store:
        assert store.verify() == []
        assert [info.id for info in store.threads()] == ["u"]
