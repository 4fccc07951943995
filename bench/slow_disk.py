"""A disk whose syncs take longer, as on network volumes and cheap drives.

A shim over SQLite's own file layer, one over that of the files engine, and one below whole
processes; everything but the syncs goes straight through.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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


_SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
#define SLOW(name) int name(int file) { \\
    static int (*next)(int); \\
    if (!next) next = (int (*)(int)) dlsym(RTLD_NEXT, #name); \\
    usleep(DELAY_US); \\
    return next(file); }
SLOW(fsync)
SLOW(fdatasync)
"""


def slow_processes(folder: Path, delay_seconds: float) -> dict[str, str] | None:
    """The environment of processes all of whose syncs take longer; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "slow.so"
    command = [compiler, "-shared", "-fPIC", f"-DDELAY_US={round(delay_seconds * 1e6)}"]
    command += ["-x", "c", "-", "-o", str(library), "-ldl"]
    if subprocess.run(command, input=_SHIM.encode(), capture_output=True).returncode:
        return None
    return {**os.environ, "LD_PRELOAD": str(library)}


class SlowFiles(Disk):
    """For a folder of files: `disk=SlowFiles(0.002)`."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds

    def sync(self, descriptor: int) -> None:
        time.sleep(self._delay_seconds)
        super().sync(descriptor)
