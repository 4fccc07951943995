"""A restore that fails or dies at any system call at all, and what the next call makes of it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from amounts import sample
from faults.layers import die, in_child
from snapshots.trees import Spec, read, whole, write

from clew.core.errors import ClewError, Unavailable
from clew.core.model import Record
from clew.engines.files import FilesEngine
from clew.engines.memory import MemoryEngine
from clew.engines.sqlite import SQLiteEngine
from clew.snapshots import intent as intents
from clew.snapshots.checkout import materialize
from clew.snapshots.dirfd import System
from clew.snapshots.ignore import TEMPORARY
from clew.snapshots.rewind import rewind
from clew.snapshots.tree import Trees
from clew.snapshots.undo import recover, undo_rewind
from clew.store import Store
from clew.thread import Thread

# Every kind of step: create, overwrite, delete and mode of files, links and folders, and swaps.
A: Spec = {
    "f": b"old",
    "mode": ("x", b"1"),
    "gone/deep": b"1",
    "l": ("link", "f"),
    "swap": b"file",
    "pwas/x": b"1",
}
B: Spec = {
    "f": b"new",
    "mode": b"1",
    "more/x": b"2",
    "l": ("link", "g"),
    "swap/in": b"2",
    "pwas": b"",
}

CALLS = [name for name in vars(System) if not name.startswith("_")]
GROWING = ("create", "write", "make_folder", "make_link", "rename", "sync")


class Faulty(System):
    """Counts all calls, and does something bad at one of them, or at all from there on."""

    def __init__(self, at: int = -1, strike: Callable[[], None] | None = None) -> None:
        self.calls: list[str] = []
        self._at = at
        self._strike = strike
        self.after = False
        for name in CALLS:
            setattr(self, name, self._wrap(name, getattr(System(), name)))

    def _wrap(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def called(*arguments: object) -> object:
            index = len(self.calls)
            self.calls.append(name)
            if self._strike is not None and index == self._at and not self.after:
                self._strike()
            done = None if name == "sync" else real(*arguments)  # nobody pulls the plug here
            if self._strike is not None and index == self._at and self.after:
                self._strike()
            return done

        return called


class FaultyOn(Faulty):
    """From one call on everything that needs room on the disk fails."""

    def _wrap(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        inner = super()._wrap(name, real)

        def called(*arguments: object) -> object:
            if name in GROWING and 0 <= self._at <= len(self.calls):
                raise OSError(errno.ENOSPC, "injected")
            return inner(*arguments)

        return called


class ShortWrites(System):
    """Writes one byte at a time, which is legal."""

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        return os.write(descriptor, bytes(data[:1]))


def eio() -> None:
    raise OSError(errno.EIO, "injected")


def prepared(store: Store, root: Path) -> Thread:
    """A thread that went from A, with its message m, to B."""
    write(root, A)
    thread = store.create("t")
    thread.append("user_message", "x", id="m")
    thread.snapshots.take(root)
    write(root, B)
    thread.append("assistant_message", "y", id="a")
    thread.snapshots.take(root)
    thread.move("a")
    return thread


def count(root: Path, again: bool = False) -> list[str]:
    """The calls of a rewind, or of its undo, when nothing fails."""
    store = Store(MemoryEngine())
    thread = prepared(store, root)
    system = Faulty()
    if again:
        rewind(thread, "m", system=Faulty())
        undo_rewind(thread, system=system)
    else:
        rewind(thread, "m", system=system)
    return system.calls


def check_nothing_is_half_forgotten(thread: Thread, root: Path, *, back: bool) -> None:
    """Whatever was left: the next call brings both files and leaf to one side, or the other."""
    assert thread.leaf in ("a", None)
    if intents.pending(thread.info) is not None:
        assert thread.leaf == "a", "the leaf moved before the files had arrived"
        if back:
            undo_rewind(thread, system=Faulty())
            assert (thread.leaf, read(root)) == ("a", whole(B))
        else:
            recover(thread, system=Faulty())
            assert (thread.leaf, read(root)) == (None, whole(A))
            undo_rewind(thread, system=Faulty())
    elif thread.leaf is None:
        assert read(root) == whole(A)
        undo_rewind(thread, system=Faulty())
    assert not [n for _, _, files in os.walk(root) for n in files if n.startswith(TEMPORARY)]
    assert (thread.leaf, intents.pending(thread.info)) == ("a", None)
    rewind(thread, "m", system=Faulty())
    assert (thread.leaf, read(root)) == (None, whole(A))


@pytest.mark.parametrize("back", [False, True], ids=["finish", "undo"])
@pytest.mark.parametrize("kind", [Faulty, FaultyOn], ids=["EIO once", "ENOSPC from there on"])
def test_an_error_at_any_call_leaves_something_that_can_be_finished_or_undone(
    tmp_path: Path, kind: type[Faulty], back: bool
) -> None:
    root = tmp_path / "tree"
    for at in range(len(count(root))):
        store = Store(MemoryEngine())
        thread = prepared(store, root)
        try:
            rewind(thread, "m", system=kind(at, eio))
        except ClewError:
            assert thread.leaf == "a"
        check_nothing_is_half_forgotten(thread, root, back=back)


def test_an_error_at_any_call_of_an_undo_leaves_an_undo(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    for at in range(len(count(root, again=True))):
        thread = prepared(Store(MemoryEngine()), root)
        rewind(thread, "m", system=Faulty())
        try:
            undo_rewind(thread, system=Faulty(at, eio))
        except ClewError:
            assert thread.leaf is None
            undo_rewind(thread, system=Faulty())
        assert (thread.leaf, read(root)) == ("a", whole(B))
        assert intents.pending(thread.info) is None


def test_an_error_at_any_call_of_the_recovery_leaves_it_to_be_recovered(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    calls = count(root)
    half = [n for n, name in enumerate(calls) if name == "rename"][1]

    def stopped() -> Thread:
        thread = prepared(Store(MemoryEngine()), root)
        with pytest.raises(ClewError):
            rewind(thread, "m", system=Faulty(half, eio))
        return thread

    system = Faulty()
    recover(stopped(), system=system)
    for at in range(len(system.calls)):
        thread = stopped()
        try:
            recover(thread, system=Faulty(at, eio))
        except ClewError:
            assert thread.leaf == "a"
            recover(thread, system=Faulty())
        assert (thread.leaf, read(root)) == (None, whole(A))


def test_short_writes_are_completed(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    thread = prepared(Store(MemoryEngine()), root)
    rewind(thread, "m", system=ShortWrites())
    assert read(root) == whole(A)


# --- death ---

ENGINES = {
    "sqlite": lambda folder: SQLiteEngine(folder / "threads.db", durability="relaxed"),
    "files": lambda folder: FilesEngine(folder / "threads", durability="relaxed"),
}


@pytest.fixture(params=ENGINES)
def template(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A store as it is before a rewind, to be copied for every death."""
    folder = tmp_path / "template"
    folder.mkdir()
    store = Store(ENGINES[request.param](folder))
    prepared(store, tmp_path / "tree")
    store.close()
    return request.param, folder


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_death_at_any_call_leaves_something_that_can_be_finished_or_undone(
    template: tuple[str, Path], tmp_path: Path, after: bool
) -> None:
    name, folder = template
    root, here = tmp_path / "tree", tmp_path / "store"
    calls = count(tmp_path / "counted")
    for at, call in sample(enumerate(calls), 5, after):
        if after and call not in GROWING and call not in ("unlink", "remove_folder", "set_mode"):
            continue  # death after a mere look is death before the next call
        write(root, B)
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(folder, here)
        assert killed(name, here, root, at, after) == b"+"
        store = Store(ENGINES[name](here))
        check_nothing_is_half_forgotten(store.get("t"), root, back=at % 2 == 1)
        store.close()


def killed(name: str, folder: Path, root: Path, at: int, after: bool) -> bytes:
    def work(tell: object) -> None:
        system = Faulty(at, die)
        system.after = after
        # The store is a copy, so the folder has to be named to it.
        rewind(Store(ENGINES[name](folder)).get("t"), "m", root=root, system=system)

    return in_child(work)


# --- a new copy ---


def test_an_error_at_any_call_of_a_copy_leaves_nothing(tmp_path: Path) -> None:
    engine = MemoryEngine()
    thread = prepared(Store(engine), tmp_path / "tree")
    tree = thread.snapshots.list()[-1].tree
    copy = tmp_path / "copy"
    system = Faulty()
    materialize(Trees(engine), tree, str(copy), system)
    assert read(copy) == whole(A)
    for at in range(len(system.calls)):
        shutil.rmtree(copy)
        with pytest.raises(ClewError):
            materialize(Trees(engine), tree, str(copy), Faulty(at, eio))
        assert not copy.exists() or not os.listdir(copy)
        copy.mkdir(exist_ok=True)


# --- the journal ---


class Unsure(MemoryEngine):
    """Fails at one append, before or after it was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0
        self.at, self.after = -1, False

    def append(self, *arguments: object, **options: object) -> list[Record]:
        self.appends += 1
        struck = self.appends == self.at
        if struck and not self.after:
            raise Unavailable("injected", committed=None)
        records = super().append(*arguments, **options)  # type: ignore[arg-type]
        if struck:
            raise Unavailable("injected", committed=None)
        return records


@pytest.mark.parametrize("back", [False, True], ids=["finish", "undo"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [1, 2])
def test_an_append_of_unknown_outcome_leaves_something_that_can_be_finished_or_undone(
    tmp_path: Path, number: int, after: bool, back: bool
) -> None:
    engine, root = Unsure(), tmp_path / "tree"
    thread = prepared(Store(engine), root)
    engine.at, engine.after = engine.appends + number, after
    with pytest.raises(Unavailable, match="injected"):
        rewind(thread, "m", system=Faulty())
    assert engine.appends == engine.at
    check_nothing_is_half_forgotten(thread, root, back=back)
