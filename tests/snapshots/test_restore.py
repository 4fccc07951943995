"""Restores that would not give back just what was stored, or touch more than they must."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from amounts import amount
from hypothesis import given, settings
from snapshots.trees import SPECS, Spec, add, look, read, snapshot_of, stored, whole, write

from clew.core.engine import Engine
from clew.core.errors import Conflict, Corrupt, InvalidInput, Unavailable
from clew.engines.memory import MemoryEngine
from clew.snapshots import apply
from clew.snapshots.apply import Restoration
from clew.snapshots.checkout import materialize
from clew.snapshots.dirfd import Root, System
from clew.snapshots.ignore import TEMPORARY
from clew.snapshots.manifest import Node, pack
from clew.snapshots.model import Plan
from clew.snapshots.plan import work
from clew.snapshots.preflight import inspect, refuse
from clew.snapshots.tree import Trees


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    opened = MemoryEngine()
    yield opened
    opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tree"


class Fast(System):
    """Nobody pulls the plug here."""

    def sync(self, descriptor: int) -> None:
        pass


def bring_back(engine: Engine, root: Path, tree: str, *known: Spec, force: bool = False) -> Plan:
    """Restore a stored tree, without a thread around it."""
    trees = Trees(engine)
    made = work(trees, snapshot_of(tree), look(root), [stored(engine, spec) for spec in known])
    with Root(os.path.realpath(root), Fast()) as place:
        made = inspect(place, made)
        refuse(made.plan, force=force)
        job = Restoration(place, trees, made, "token")
        try:
            job.prepare()
            job.apply()
        finally:
            job.clean()
    return made.plan


@given(SPECS, SPECS)
@settings(max_examples=amount(50, 150))
def test_any_tree_becomes_any_other_tree_exactly(before: Spec, after: Spec) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, engine = write(Path(folder, "tree"), before), MemoryEngine()
        made = bring_back(engine, root, stored(engine, after), before)
        assert read(root) == whole(after)
        assert (made.foreign, made.kept, made.blocked) == ((), (), ())
        assert bring_back(engine, root, stored(engine, after), before, after).is_empty


@given(SPECS, SPECS, SPECS)
@settings(max_examples=amount(33, 100))
def test_what_no_snapshot_knows_survives_or_stops_the_restore(
    known: Spec, here: Spec, after: Spec
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, engine = write(Path(folder, "tree"), here), MemoryEngine()
        before = read(root)
        try:
            made = bring_back(engine, root, stored(engine, after), known)
        except Conflict:
            assert read(root) == before
            return
        found = read(root)
        assert whole(after).items() <= found.items()
        mine = {p: v for p, v in before.items() if v is not None and p not in known}
        assert {p: v for p, v in mine.items() if p not in whole(after)}.items() <= found.items()
        assert set(made.kept) <= found.keys()


def test_files_that_are_the_same_keep_inode_and_time(engine: MemoryEngine, root: Path) -> None:
    write(root, {"same": b"1", "other": b"2", "d/same": b"3"})
    before = [(root / name).stat() for name in ("same", "d/same")]
    target = stored(engine, {"same": b"1", "d/same": b"3", "other": b"x"})
    bring_back(engine, root, target, {"other": b"2"})
    after = [(root / name).stat() for name in ("same", "d/same")]
    assert [(s.st_ino, s.st_mtime_ns) for s in before] == [(s.st_ino, s.st_mtime_ns) for s in after]


def test_permissions_stay_but_for_the_executable_bits(engine: MemoryEngine, root: Path) -> None:
    write(root, {"private": b"1", "shared": ("x", b"1"), "mode": b"1"})
    (root / "private").chmod(0o600)
    (root / "shared").chmod(0o775)
    (root / "mode").chmod(0o640)
    target: Spec = {"private": ("x", b"2"), "shared": b"2", "mode": ("x", b"1"), "new": b"3"}
    old = os.umask(0o027)
    try:
        bring_back(engine, root, stored(engine, target), read(root))
    finally:
        os.umask(old)
    modes = {name: (root / name).stat().st_mode & 0o7777 for name in target}
    assert modes == {"private": 0o700, "shared": 0o664, "mode": 0o750, "new": 0o640}


def test_a_change_of_mode_does_not_write_the_file(engine: MemoryEngine, root: Path) -> None:
    write(root, {"f": b"1"})
    before = (root / "f").stat()
    bring_back(engine, root, stored(engine, {"f": ("x", b"1")}), {"f": b"1"})
    after = (root / "f").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert after.st_mode & 0o111


def test_many_files_are_restored_as_well_as_few(engine: MemoryEngine, root: Path) -> None:
    spec: Spec = {f"d{n % 7}/f{n}": bytes([n]) * n for n in range(100)}
    write(root, {})
    bring_back(engine, root, stored(engine, spec))
    assert read(root) == whole(spec)


def test_names_that_are_not_text_come_back(engine: MemoryEngine, root: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    write(root, {})
    bring_back(engine, root, stored(engine, {f"{name}/{name}": b"1"}))
    assert os.listdir(os.fsencode(root / name)) == [b"caf\xe9"]


@pytest.mark.parametrize("count", [apply.MANY - 1, apply.MANY, 100])
def test_every_one_of_many_is_waited_for(count: int) -> None:
    done: list[int] = []
    threads: set[int] = set()
    met = threading.Barrier(2 if count >= apply.MANY else 1)

    def sync(number: int) -> None:
        if number < met.parties:
            met.wait(timeout=60)  # nobody is here alone
        threads.add(threading.get_ident())
        done.append(number)

    apply.each(sync, range(count))
    assert sorted(done) == list(range(count))
    assert (len(threads) > 1) == (count >= apply.MANY)


def test_the_first_error_of_many_is_told_and_ends_it() -> None:
    tried: list[int] = []

    def fail(number: int) -> None:
        tried.append(number)
        raise OSError(5, f"injected {number}")

    with pytest.raises(OSError, match="injected"):
        apply.each(fail, range(1000))
    assert len(tried) < 20


def test_where_no_thread_can_be_started_one_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a limit: the restore would end half done, with others at work."""
    started: list[object] = []
    real = apply._start

    def start(work: Callable[[], None]) -> object:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(real(work))
        return started[0]

    monkeypatch.setattr(apply, "_start", start)
    done: list[int] = []
    apply.each(done.append, range(100))
    assert sorted(done) == list(range(100))


def test_nobody_is_at_work_any_more_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told of it cleans up, and would do so under the hands of the others."""
    waited: list[str] = []

    class Interrupted:
        """How long a thread is waited for; Ctrl-C comes just then."""

        def acquire(self) -> None:
            waited.append("interrupted" if not waited else "to the end")
            if waited == ["interrupted"]:
                raise KeyboardInterrupt

    monkeypatch.setattr(apply, "_start", lambda _: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        apply.each(lambda _: None, range(apply.MANY))
    assert waited == ["interrupted", "to the end", "to the end"]


def test_contents_are_durable_before_they_get_their_name_and_folders_at_the_end(
    engine: MemoryEngine, root: Path
) -> None:
    """Whatever several threads make of it: what a loss of power leaves is the old or the new."""
    spec: Spec = {f"d{n % 4}/f{n}": b"%d" % n for n in range(40)}
    write(root, spec)
    system = Ordered()
    trees = Trees(engine)
    target = stored(engine, {name: b"new " + str(name).encode() for name in spec})
    made = work(trees, snapshot_of(target), look(root), [stored(engine, spec)])
    with Root(os.path.realpath(root), system) as place:
        job = Restoration(place, trees, made, "token")
        job.prepare()
        assert read(root).items() >= whole(spec).items()
        job.apply()
    assert len(system.renamed) == 40
    assert all(system.synced[inode] < at for inode, at in system.renamed.items())
    for folder in root.iterdir():
        inside = [file.stat().st_ino for file in folder.iterdir()]
        assert system.synced[folder.stat().st_ino] > max(system.renamed[one] for one in inside)
    assert system.syncs == 44, "each file and each folder once"


class Ordered(System):
    """Notes when what was synced, and when what got its name."""

    def __init__(self) -> None:
        self._clock = itertools.count()
        self.synced: dict[int, int] = {}
        self.syncs = 0
        self.renamed: dict[int, int] = {}

    def sync(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        self.syncs += 1
        self.synced[inode] = next(self._clock)

    def rename(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        at = next(self._clock)
        super().rename(name, folder, new_name, new_folder)
        self.renamed[os.stat(new_name, dir_fd=new_folder).st_ino] = at


# --- what a survey does not see ---


def test_an_ignored_file_is_neither_deleted_nor_its_folder(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"d/f": b"1", "d/__pycache__/f.pyc": b"!", "gone": None})
    made = bring_back(engine, root, stored(engine, {}), {"d/f": b"1", "gone": None})
    assert read(root) == whole({"d/__pycache__/f.pyc": b"!"})
    assert [step.path for step in made.steps] == ["d/f", "gone"]


def test_an_ignored_file_in_the_way_of_another_one_blocks_even_by_force(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {".gitignore": b"log\n", "log": b"mine"})
    with pytest.raises(Conflict, match="in the way") as caught:
        bring_back(engine, root, stored(engine, {"log": b"old"}), force=True)
    assert caught.value.files == ("log",)  # type: ignore[attr-defined]
    assert (root / "log").read_bytes() == b"mine"


def test_an_ignored_file_that_is_right_already_is_left_alone(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {".gitignore": b"log\nout/\n", "log": b"old", "out/f": b"1", "out/more": b"2"})
    target = stored(engine, {"log": b"old", "out/f": b"1"})
    made = bring_back(engine, root, target, {".gitignore": b"log\nout/\n"})
    assert [(s.act, s.path) for s in made.steps] == [("delete", ".gitignore")]
    assert made.unchanged == 2
    assert (root / "out/more").read_bytes() == b"2"


def test_an_ignored_file_in_a_folder_that_is_in_the_way_blocks(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"p/q": b"1", "p/.env": b"secret"})
    with pytest.raises(Conflict) as caught:
        bring_back(engine, root, stored(engine, {"p": b"2"}), {"p/q": b"1"}, force=True)
    assert caught.value.files == ("p/.env",)  # type: ignore[attr-defined]
    assert (root / "p/q").exists()


def test_a_file_that_is_too_large_for_snapshots_blocks(engine: MemoryEngine, root: Path) -> None:
    write(root, {})
    with (root / "f").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    with pytest.raises(Conflict, match="in the way"):
        bring_back(engine, root, stored(engine, {"f": b"1"}), force=True)


# --- while somebody else is at work ---


class Meddling(Trees):
    """Something happens when contents are read: after the look, before the change."""

    def __init__(self, engine: Engine, meddle: object) -> None:
        super().__init__(engine)
        self._meddle = meddle

    def read(self, node: Node) -> bytes:
        self._meddle()  # type: ignore[operator]
        return super().read(node)


@pytest.mark.parametrize("here", [{"f": b"1"}, {}], ids=["overwrite", "create"])
def test_a_change_in_the_last_moment_is_not_overwritten(
    engine: MemoryEngine, root: Path, here: Spec
) -> None:
    write(root, here)
    trees = Meddling(engine, lambda: add(root, {"f": b"mine"}))
    known = stored(engine, {"f": b"1"})
    made = work(trees, snapshot_of(stored(engine, {"f": b"2"})), look(root), [known])
    with Root(str(root)) as place:
        job = Restoration(place, trees, made, "token")
        job.prepare()
        with pytest.raises(Conflict, match="changed by another process"):
            job.apply()
        job.clean()
    assert read(root) == {"f": b"mine"}


def test_a_file_that_is_another_one_than_was_planned_for_stops_everything(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"a": b"1", "f": b"1"})
    known = stored(engine, {"a": b"1", "f": b"1"})
    trees = Trees(engine)
    made = work(trees, snapshot_of(stored(engine, {"f": b"2"})), look(root), [known])
    (root / "f").write_bytes(b"mine")
    with Root(str(root)) as place, pytest.raises(Conflict, match="'f'"):
        Restoration(place, trees, made, "token").prepare()
    assert read(root) == {"a": b"1", "f": b"mine"}


def test_two_restores_of_one_folder_do_not_mix(root: Path) -> None:
    write(root, {})
    with Root(str(root)), pytest.raises(Unavailable, match="another restore"), Root(str(root)):
        pass
    with Root(str(root)):
        pass


def test_nothing_is_left_behind_beside_the_files(engine: MemoryEngine, root: Path) -> None:
    write(root, {"f": b"1"})
    (ref,) = engine.put_blobs([b"12345"])
    (tree,) = engine.put_blobs(
        [pack([Node("a", "file", ref, 5), Node("b", "link", "x"), Node("f", "file", ref, 4)])]
    )
    with pytest.raises(Corrupt, match="should have 4 bytes"):
        bring_back(engine, root, tree, {"f": b"1"})
    assert read(root) == {"f": b"1"}
    assert not [name for name in os.listdir(root) if name.startswith(TEMPORARY)]


def test_a_missing_blob_is_noticed_before_anything_is_written(
    engine: MemoryEngine, root: Path
) -> None:
    write(root, {"f": b"1"})
    missing = "b3:" + "0" * 64
    (ref,) = engine.put_blobs([b"1"])
    (tree,) = engine.put_blobs([pack([Node("a", "file", ref, 1), Node("z", "file", missing, 1)])])
    with pytest.raises(Corrupt, match="'z' are missing"):
        bring_back(engine, root, tree, {"f": b"1"})
    assert read(root) == {"f": b"1"}


def test_a_root_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a folder"), Root(str(tmp_path / "no")):
        pass


# --- a new copy ---


@given(SPECS)
@settings(max_examples=amount(17, 50))
def test_a_copy_is_exact(spec: Spec) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = MemoryEngine()
        materialize(Trees(engine), stored(engine, spec), str(Path(folder, "new", "copy")))
        assert read(Path(folder, "new", "copy")) == whole(spec)


def test_a_copy_goes_into_an_empty_folder_only(engine: MemoryEngine, root: Path) -> None:
    write(root, {})
    assert materialize(Trees(engine), stored(engine, {"f": b"1"}), str(root)) == 1
    with pytest.raises(InvalidInput, match="not empty"):
        materialize(Trees(engine), stored(engine, {"f": b"1"}), str(root))
    assert read(root) == {"f": b"1"}


def test_a_copy_that_fails_leaves_nothing(engine: MemoryEngine, root: Path) -> None:
    missing = "b3:" + "0" * 64
    below = stored(engine, {"a": b"1", "l": ("link", "a")})
    (tree,) = engine.put_blobs([pack([Node("d", "folder", below), Node("z", "file", missing, 1)])])
    with pytest.raises(Corrupt):
        materialize(Trees(engine), tree, str(root))
    assert not root.exists()
