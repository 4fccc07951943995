"""The stat cache: what a tree looked like when it was last read, so that most of it need not be.

It is only ever a hint about this machine: a file counts as unchanged if size, both times, inode
and mode are the same and were not too fresh to tell when they were noted.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from clew.core.codec import digest, new_id
from clew.snapshots.dirfd import Signature, close, read_all
from clew.snapshots.manifest import Kind

VERSION = 1
# Times of files move in ticks of the kernel, or in whole seconds on simple file systems.
_TICK_NS = 50_000_000
_COARSE_NS = 2_000_000_000
_SEAL_BYTES = len(digest(b""))
_TEMPORARY = ".new"
_LEFTOVER_SECONDS = 3600.0
ENDING = ".cache"
_FORGOTTEN_SECONDS = 180 * 86400.0  # a tree that comes back after so long is read anew


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
    """A cache in a file; without one it lives as long as the handle.

    The file is not synced, and written by whoever comes last. Its bytes begin with their hash,
    so one that was torn, mixed up or changed is told from one that can be believed.
    """

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
        """Remember it. Where that fails, the next snapshot reads more, that is all."""
        self._known[known.root] = known
        if self._file is None:
            return
        temporary = f"{self._file.parent}/.{new_id()}{_TEMPORARY}"
        try:
            data = msgspec.msgpack.encode(known)
            _make_folders(self._file.parent)
            _write(temporary, digest(data).encode() + data)
            os.replace(temporary, self._file)
        except (OSError, UnicodeEncodeError):
            _remove(temporary)
        else:
            _remove_leftovers(str(self._file.parent))

    def _read(self, root: str) -> Known:
        if self._file is not None:
            try:
                sealed = _load(self._file)
                seal, data = sealed[:_SEAL_BYTES], sealed[_SEAL_BYTES:]
                if is_sealed(seal, data):
                    found = msgspec.msgpack.decode(data, type=Known)
                    if found.version == VERSION and found.root == root:
                        return found
            except (OSError, ValueError, msgspec.MsgspecError):
                pass
        return Known(root=root)


def is_sealed(seal: bytes, data: bytes) -> bool:
    return seal == digest(data).encode()


def _load(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return read_all(descriptor, os.fstat(descriptor).st_size)
    finally:
        close(descriptor)


def _make_folders(folder: Path) -> None:
    if not folder.is_dir():
        if not folder.parent.is_dir():
            _make_folders(folder.parent)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)


def _write(path: str, data: bytes) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _remove_leftovers(folder: str) -> None:
    """Of those who died while they wrote, and of trees that nobody has changed for long.

    What is younger may belong to somebody who lives.
    """
    ages = {_TEMPORARY: _LEFTOVER_SECONDS, ENDING: _FORGOTTEN_SECONDS}
    with suppress(OSError):
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            age = ages.get(os.path.splitext(name)[1])
            if age is not None and os.stat(path).st_mtime < time.time() - age:
                _remove(path)


def settled(sign: Signature, now_ns: int) -> Signature | None:
    """The signature if it is old enough that a later change would show in it."""
    newest = max(sign[1], sign[2])
    margin = _COARSE_NS if sign[1] % 1_000_000_000 == 0 else _TICK_NS
    return sign if newest < now_ns - margin else None


def now_ns() -> int:
    return time.time_ns()
