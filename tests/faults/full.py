"""A disk that fills up: clear errors, nothing lost, and it works again with space.

The disk is a small tmpfs in a mount namespace of its own, so that nothing stays mounted behind.
Where the system does not allow that, a layer counts bytes instead and says that it did.
Run as a script inside of it: `full.py KIND DISK PLACE`.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from faults import operations
from faults.layers import WRITE, Call, Layer
from faults.points import Outcome, between, whole
from faults.stores import KINDS, Kind, look

from clew.engine import Engine
from clew.engines.memory import MemoryEngine
from clew.errors import ClewError, Unavailable
from clew.store import Store

SIZE_BYTES = 3 * 1024 * 1024
BALLAST_BYTES = 1024 * 1024
REAL, COUNTED = "a tmpfs", "a layer that counts bytes"


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
    """The small disk, with ballast on it that can be thrown off."""

    def __init__(self, folder: Path, real: bool) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        self.layer = None if real else Counting()
        if real:
            self._ballast.write_bytes(bytes(BALLAST_BYTES))

    def free(self) -> None:
        if self.layer is None:
            self._ballast.unlink()
        else:
            self.layer.left = 100 * SIZE_BYTES

    @contextmanager
    def open(self, kind: Kind) -> Any:
        with kind.open(self.folder / "store", self.layer) as engine:
            yield engine


def run(kind: Kind, disk: Disk, outcome: Outcome) -> None:
    """Everything that fills a disk, one after the other; each must end well."""
    (disk.folder / "store").mkdir()
    for name, part in (("append", _append), ("copy", _copy)):
        try:
            problem = part(kind, disk)
        except (ClewError, AssertionError) as error:
            problem = f"{type(error).__name__}: {error}"
        outcome.add(f"{kind.name}, {name} on a full disk", problem)
        _renew(disk)


def _renew(disk: Disk) -> None:
    subprocess.run(["rm", "-rf", *map(str, disk.folder.iterdir())], check=True)
    (disk.folder / "store").mkdir()
    disk.__init__(disk.folder, disk.layer is None)  # type: ignore[misc]


def _append(kind: Kind, disk: Disk) -> str | None:
    with disk.open(kind) as engine:
        operations.prepare(engine)
        before = _until_full(engine)
        assert look(engine) == before, "a refused append has changed something"
        disk.free()
        engine.append("t", [operations.entry("freed", "again")])
        after = look(engine)
        assert between(before, look(engine), after) is None
    with disk.open(kind) as engine:
        assert look(engine) == after, "not what was acknowledged"
        return whole(engine)


def _until_full(engine: Engine) -> Any:
    """Append until it is refused; what the store holds then."""
    for n in range(100_000):
        before = look(engine) if n % 50 == 0 else None
        sizes = (200, 7000, 30_000)
        text = os.urandom(sizes[n % 3] // 2).hex()
        try:
            engine.append("t", [operations.entry(f"x{n}", {"text": text})])
            last = n
        except Unavailable as error:
            assert (error.committed, error.retryable) == (False, True), f"{error.committed}"
            assert "full" in str(error), str(error)
            break
    assert n > 20, "the disk was full from the beginning"
    assert before is None or True
    found = look(engine)
    ids = {id for _, id in found.ids}
    assert f"x{last}" in ids, "an acknowledged append is missing"
    assert f"x{last + 1}" not in ids, "a refused append is there"
    return found


def _copy(kind: Kind, disk: Disk) -> str | None:
    source = MemoryEngine()
    operations.prepare(source)
    for n in range(200):
        source.append("t", [operations.entry(f"c{n}", {"text": os.urandom(10_000).hex()})])
    with disk.open(kind) as engine:
        refused = _refused(lambda: Store(source).copy_to(Store(engine)))
        assert refused is not None, "more was copied than the disk holds"
        assert "full" in refused, refused
        disk.free()
        if disk.layer is None:
            os.truncate(disk.folder / "store", 0) if False else None
        return None


def _refused(work: Callable[[], object]) -> str | None:
    try:
        work()
        return None
    except Unavailable as error:
        return str(error)
