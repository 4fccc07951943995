"""A disk that fills up: clear errors, nothing lost, and it works again with space.

The disk is a small tmpfs in a mount namespace of its own, so that nothing stays mounted behind.
Where the system does not allow that, a layer counts bytes instead, and the outcome says so.
Run as a script inside of it: `full.py KIND FOLDER real|counted`.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from faults import operations
from faults.layers import WRITE, Call, Layer
from faults.points import Outcome, whole
from faults.stores import KINDS, Image, Kind, View, load, look

from clew.core.engine import Engine
from clew.core.errors import ClewError, Unavailable
from clew.engines.memory import MemoryEngine
from clew.store import Store
from clew.thread import Thread
from clew.upkeep.repair import repair

SIZE_BYTES = 12 * 1024 * 1024
BALLAST_BYTES = 11 * 1024 * 1024
REAL, COUNTED = "real", "counted"


class Counting(Layer):
    """Full when so many bytes were written, however much was freed since."""

    def __init__(self) -> None:
        self.left = SIZE_BYTES - BALLAST_BYTES

    def around(self, call: Call, whole: Callable[[], Any], half: Any = None) -> Any:
        if call.name == WRITE:
            if self.left < len(call.data):
                raise OSError(errno.ENOSPC, "full")
            self.left -= len(call.data)
        return whole()


class Disk:
    """A small disk, empty but for ballast that can be thrown off."""

    def __init__(self, kind: Kind, folder: Path, real: bool) -> None:
        self._kind = kind
        self._store, self._ballast = folder / "store", folder / "ballast"
        self._layer = None if real else Counting()
        for rest in folder.iterdir():
            shutil.rmtree(rest) if rest.is_dir() else rest.unlink()
        self._store.mkdir()
        if real:
            self._ballast.write_bytes(bytes(BALLAST_BYTES))

    def open(self) -> AbstractContextManager[Engine]:
        return self._kind.open(self._store, self._layer)

    @contextmanager
    def tree(self) -> Iterator[Path]:
        """A folder on another disk."""
        with tempfile.TemporaryDirectory(dir=self._store.parents[1]) as folder:
            yield Path(folder)

    @property
    def address(self) -> str:
        return self._kind.address(self._store)

    def free(self) -> None:
        if self._layer is None:
            self._ballast.unlink()
        else:
            self._layer.left = 100 * SIZE_BYTES

    def leave(self, size_bytes: int) -> None:
        """Put on so much ballast that only so much is free."""
        free = os.statvfs(self._store).f_bavail * os.statvfs(self._store).f_frsize
        self._ballast.write_bytes(bytes(free - size_bytes))

    def damage(self, text: bytes) -> None:
        """Flip a bit of a text in the middle of the store."""
        for path in sorted(self._store.rglob("*")):
            data = bytearray(path.read_bytes() if path.is_file() else b"")
            if text in data and "index" not in path.parts:
                data[data.index(text)] ^= 1
                path.write_bytes(data)

    def image(self) -> Image:
        return load(self._store)


# --- what fills it --------------------------------------------------------------------------


def fill_by_appending(disk: Disk) -> str | None:
    with disk.open() as engine:
        operations.prepare(engine)
        last = _append_until_full(engine)
        before = look(engine)
        assert ("t", f"x{last}") in before.ids, "an acknowledged append is missing"
        assert ("t", f"x{last + 1}") not in before.ids, "a refused append is there"
        disk.free()
        engine.append("t", [_entry(last + 1)])
        after = look(engine)
        assert after.ids == before.ids | {("t", f"x{last + 1}")}
    return _reopened(disk, after)


def fill_by_appending_and_reopening(disk: Disk) -> str | None:
    """The process that met the full disk is gone; the next one opens before there is space."""
    with disk.open() as engine:
        operations.prepare(engine)
        last = _append_until_full(engine)
        before = look(engine)
    try:
        with disk.open() as engine:
            assert look(engine) == before, "not what was acknowledged"
    except Unavailable:
        pass  # there may be no room for what even reading needs
    disk.free()
    with disk.open() as engine:
        assert look(engine) == before, "not what was acknowledged"
        engine.append("t", [_entry(last + 1)])
        after = look(engine)
    return _reopened(disk, after)


def fill_by_copying(disk: Disk) -> str | None:
    source = MemoryEngine()
    operations.prepare(source)
    for n in range(90):
        source.append("t", [_entry(n)])
    with disk.open() as engine:
        _refused(lambda: Store(source).copy_to(Store(engine)))
        assert look(engine).ids <= look(source).ids, "there is something that nobody wrote"
        disk.free()
        report = Store(source).copy_to(Store(engine))
        assert report.complete, f"{report}"
        after = look(engine)
        assert after.ids == look(source).ids, "not everything came over"
    return _reopened(disk, after)


def fill_by_taking(disk: Disk) -> str | None:
    """Snapshots of a tree that grows. Each one that was acknowledged is there, file by file."""
    with disk.tree() as tree:
        with disk.open() as engine:
            thread = Store(engine).create("t")
            taken = _take_until_full(thread, tree)
            assert [one.id for one in thread.snapshots.list()] == taken[::-1]
            disk.free()
            taken.append(thread.snapshots.take(tree).id)
        with disk.open() as engine:
            snapshots = Store(engine).get("t").snapshots
            assert [one.id for one in snapshots.list()] == taken[::-1]
            for count, id in enumerate(taken, 1):
                found = {path: snapshots.read(id, path) for path, _ in snapshots.files(id)}
                assert found == {f"f{n}": _noise(n) for n in range(count)}, "not as it was"
            return whole(engine)


def _take_until_full(thread: Thread, tree: Path) -> list[str]:
    taken: list[str] = []
    for n in range(1000):
        (tree / f"f{n}").write_bytes(_noise(n))
        try:
            taken.append(thread.snapshots.take(tree).id)
        except Unavailable as error:
            _check_refusal(error)
            assert n > 3, "the disk was full from the beginning"
            return taken
    raise AssertionError("the disk does not fill up")


def _noise(n: int) -> bytes:
    return random.Random(n).randbytes((300, 7000, 120_000)[n % 3])


def fill_by_repairing(disk: Disk) -> str | None:
    """Repair works on copies; if there is no room for them, the damaged store is as it was."""
    disk.free()
    with disk.open() as engine:
        operations.prepare(engine)
        for n in range(15):
            engine.append("t", [_entry(n)])
        before = look(engine)
    disk.damage(b"message 3")
    damaged = disk.image()
    for left in (64 * 1024, 512 * 1024, 1024 * 1024):
        disk.leave(left)
        said = _refusal(lambda: repair(disk.address))
        assert "space" in said or "full" in said, f"with {left:,} bytes: {said}"
        assert disk.image() == damaged, "a refused repair has changed the store, or left something"
        disk.free()
    report = repair(disk.address)
    assert not report.whole
    with disk.open() as engine:
        assert look(engine).ids >= before.ids, "more was lost than what was damaged"
        return whole(engine)


def _append_until_full(engine: Engine) -> int:
    """The number of the last append that was acknowledged."""
    for n in range(100_000):
        try:
            engine.append("t", [_entry(n)])
        except Unavailable as error:
            _check_refusal(error)
            assert n > 3, "the disk was full from the beginning"
            return n - 1
    raise AssertionError("the disk does not fill up")


def _entry(n: int) -> Any:
    """Large and small, and nothing that compression makes smaller; the same for the same n."""
    size = (300, 7000, 60_000)[n % 3]
    return operations.entry(f"x{n}", {"text": random.Random(n).randbytes(size).hex()})


def _refused(work: Callable[[], object]) -> None:
    try:
        work()
    except Unavailable as error:
        _check_refusal(error)
    else:
        raise AssertionError("more was written than the disk holds")


def _refusal(work: Callable[[], object]) -> str:
    try:
        return f"not refused: {work()}"
    except Unavailable as error:
        return str(error)


def _check_refusal(error: Unavailable) -> None:
    assert (error.committed, error.retryable) == (False, True), f"{error.committed}: {error}"
    assert "full" in str(error), str(error)


def _reopened(disk: Disk, expected: View) -> str | None:
    with disk.open() as engine:
        assert look(engine) == expected, "not what was acknowledged"
        return whole(engine)


TRIALS = (fill_by_appending, fill_by_appending_and_reopening, fill_by_copying, fill_by_taking)
ON_REAL_DISKS = (fill_by_repairing,)  # it copies files past all layers


def trials(kind: Kind, folder: Path, real: bool) -> Outcome:
    outcome = Outcome()
    for trial in (*TRIALS, *(ON_REAL_DISKS if real else ())):
        try:
            problem = trial(Disk(kind, folder, real))
        except (ClewError, AssertionError) as error:
            problem = f"{type(error).__name__}: {error}"
        outcome.add(f"{kind.name}, {trial.__name__}", problem)
    return outcome


# --- the disk itself ------------------------------------------------------------------------


def run(kind: Kind, folder: Path, outcome: Outcome, environment: dict[str, str]) -> str:
    """Try it on a tmpfs of its own or, where none may be mounted, by counting; says which."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = f"mount -t tmpfs -o size={SIZE_BYTES} tmpfs {folder}"
    script = f'{mount} && exec {sys.executable} {__file__} {kind.name} {folder} "$0"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    allowed = (
        shutil.which("unshare")
        and not subprocess.run([*unshare, mount], capture_output=True).returncode
    )
    command = (
        [*unshare, script, REAL]
        if allowed
        else [sys.executable, __file__, kind.name, str(folder), COUNTED]
    )
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    outcome.points += found["points"]
    outcome.failures += found["failures"]
    return REAL if allowed else COUNTED


if __name__ == "__main__":
    found = trials(KINDS[sys.argv[1]], Path(sys.argv[2]), sys.argv[3] == REAL)
    print(json.dumps({"points": found.points, "failures": found.failures}))
