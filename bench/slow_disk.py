"""A disk whose syncs take longer, as on network volumes and cheap drives.

A shim over SQLite's own file layer, and one over that of the files engine; everything but the
syncs goes straight through.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from clew.engines.files.disk import Disk

_SYSTEM = ""  # apsw's name for the file layer that SQLite uses by default


@contextmanager
def slow_disk(delay_seconds: float) -> Iterator[str]:
    """The name to open a store with (`vfs=`), good for the length of the `with`."""
    layer = _SlowLayer(f"slow-{delay_seconds}", delay_seconds)
    try:
        yield layer.name
    finally:
        layer.unregister()


class _SlowLayer(apsw.VFS):
    def __init__(self, name: str, delay_seconds: float) -> None:
        super().__init__(name, _SYSTEM)
        self.name = name
        self._delay_seconds = delay_seconds

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _SlowFile(name, flags, self._delay_seconds)


class _SlowFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], delay_seconds: float) -> None:
        super().__init__(_SYSTEM, name, flags)
        self._delay_seconds = delay_seconds

    def xSync(self, flags: int) -> None:
        time.sleep(self._delay_seconds)
        super().xSync(flags)


class SlowFiles(Disk):
    """For a folder of files: `disk=SlowFiles(0.002)`."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds

    def sync(self, descriptor: int) -> None:
        time.sleep(self._delay_seconds)
        super().sync(descriptor)
