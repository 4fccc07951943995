"""The stat cache: what a tree looked like when it was last read, so that most of it need not be.

It is only ever a hint about this machine: a file counts as unchanged if size, both times, inode
and mode are the same and were not too fresh to tell when they were noted.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from clew.codec import new_id
from clew.snapshots.manifest import Kind

VERSION = 1
# Times of files move in ticks of the kernel, or in whole seconds on simple file systems.
_TICK_NS = 50_000_000
_COARSE_NS = 2_000_000_000

Signature = tuple[int, int, int, int, int]  # size, mtime, ctime, inode, mode


class KnownFile(Struct, frozen=True, array_like=True, gc=False):
    name: str
    kind: Kind
    ref: str
    size: int
    signature: Signature | None  # None: it was too fresh to be trusted


class KnownFolder(Struct, frozen=True, array_like=True):
    """A folder as it was: `rules` held in it, `manifest` is what was stored of it."""

    signature: Signature | None
    rules: str
    manifest: str
    size: int
    files: list[KnownFile]
    folders: list[str]
    left_out: list[tuple[str, str, int]]
    ignores: list[str]  # the ignore files in it, by name


class Known(Struct):
    """The cache of one tree. `base` is the snapshot that stored all of it: thread and id."""

    version: int = VERSION
    root: str = ""
    base: tuple[str, str] | None = None
    folders: dict[str, KnownFolder] = {}


class Cache:
    """A cache in a file; without one it lives as long as the handle."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._known: dict[str, Known] = {}

    def load(self, root: str) -> Known:
        found = self._known.get(root)
        if found is None:
            found = self._read(root)
            self._known[root] = found
        return found

    def save(self, known: Known) -> None:
        self._known[known.root] = known
        if self._file is None:
            return
        temporary = self._file.with_name(f".{new_id()}.new")
        try:
            data = msgspec.msgpack.encode(known)
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(temporary, self._file)
        except (OSError, UnicodeEncodeError):
            temporary.unlink(missing_ok=True)  # the next snapshot reads more, that is all

    def _read(self, root: str) -> Known:
        if self._file is not None:
            try:
                found = msgspec.msgpack.decode(self._file.read_bytes(), type=Known)
                if found.version == VERSION and found.root == root:
                    return found
            except (OSError, ValueError, msgspec.MsgspecError):
                pass
        return Known(root=root)


def signature(look: os.stat_result) -> Signature:
    return (look.st_size, look.st_mtime_ns, look.st_ctime_ns, look.st_ino, look.st_mode)


def settled(sign: Signature, now_ns: int) -> Signature | None:
    """The signature if it is old enough that a later change would show in it."""
    newest = max(sign[1], sign[2])
    margin = _COARSE_NS if sign[1] % 1_000_000_000 == 0 else _TICK_NS
    return sign if newest < now_ns - margin else None


def now_ns() -> int:
    return time.time_ns()
