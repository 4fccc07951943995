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

from clew.address import make_folders
from clew.core.codec import digest, new_id
from clew.snapshots.scan import close, read_all, settled
from clew.snapshots.survey import VERSION, CachedFolder, CachedTree, Survey

ENDING = ".cache"
_SEAL_BYTES = len(digest(b""))
_TEMPORARY = ".new"
_LEFTOVER_SECONDS = 3600.0
_FORGOTTEN_SECONDS = 180 * 86400.0  # a tree that comes back after so long is read anew


def cached(survey: Survey, base: tuple[str, str]) -> CachedTree:
    """What to remember of a tree that `base`, a snapshot, has stored."""
    folders = {
        folder.path: CachedFolder(
            settled(folder.signature, survey.began_ns),
            folder.rules,
            folder.manifest,
            folder.size,
            folder.files,
            [sub.name for sub in folder.folders],
            [(item.path, item.reason, item.size) for item in folder.left_out],
            folder.ignores,
        )
        for folder in survey.all_folders()
    }
    return CachedTree(root=survey.root, base=base, folders=folders)


class Cache:
    """A cache in a file; without one it lives as long as the handle.

    The file is not synced, and of several processes the last one to write it wins. Its bytes
    begin with their hash, so one that was torn, mixed up or changed is told from one that can be
    believed.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._trees: dict[str, CachedTree] = {}

    def load(self, root: str) -> CachedTree:
        found = self._trees.get(root)
        if found is None:
            found = self._read(root)
            self._trees[root] = found
        return found

    def save(self, tree: CachedTree) -> None:
        """Remember it. Where that fails, the next snapshot reads more, that is all."""
        self._trees[tree.root] = tree
        if self._file is None:
            return
        # Under a name of its own first: another process may be reading, or writing, the file.
        temporary = f"{self._file.parent}/.{new_id()}{_TEMPORARY}"
        try:
            data = msgspec.msgpack.encode(tree)
            make_folders(self._file.parent)
            _write(temporary, digest(data).encode() + data)
            os.replace(temporary, self._file)
        except (OSError, UnicodeEncodeError):
            _remove(temporary)
        else:
            _remove_leftovers(str(self._file.parent))

    def forget(self, root: str, thread: str, snapshot: str | None = None) -> None:
        """Remove it, if it is of a tree that this thread has stored, or this very snapshot of it.

        Another process may have written the file since this one has read it.
        """
        for is_file, found in ((False, self._trees.get(root)), (True, self._read(root))):
            base = None if found is None else found.base
            if base is None or base[0] != thread or snapshot not in (None, base[1]):
                continue
            if not is_file:
                self._trees.pop(root, None)
            elif self._file is not None:
                _remove(str(self._file))

    def _read(self, root: str) -> CachedTree:
        if self._file is not None:
            try:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(self._file, flags)
                try:
                    sealed = read_all(descriptor, os.fstat(descriptor).st_size)
                finally:
                    close(descriptor)
                seal, data = sealed[:_SEAL_BYTES], sealed[_SEAL_BYTES:]
                # Of another tree, or of another version, is as good as none.
                if is_sealed(seal, data):
                    found = msgspec.msgpack.decode(data, type=CachedTree)
                    ours = found.version == VERSION and found.root == root
                    if ours and not any(map(_leads_out, found.folders.values())):
                        return found
            except (OSError, ValueError, msgspec.MsgspecError):
                pass  # there is none, or it is not one of ours: all of the tree is read
        return CachedTree(root=root)


def _leads_out(folder: CachedFolder) -> bool:
    """Whether a name in it is none: with a stranger's store there may come any cache."""
    names = [*[file.name for file in folder.files], *folder.folders, *folder.ignores]
    return any("/" in name for name in names) or not _NO_NAMES.isdisjoint(names)


_NO_NAMES = frozenset({"", ".", ".."})


def is_sealed(seal: bytes, data: bytes) -> bool:
    return seal == digest(data).encode()


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
    """Of processes that died while they wrote, and of trees that have not changed for long.

    What is younger may belong to a process that is alive.
    """
    ages = {_TEMPORARY: _LEFTOVER_SECONDS, ENDING: _FORGOTTEN_SECONDS}
    with suppress(OSError):
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            age = ages.get(os.path.splitext(name)[1])
            if age is not None and os.stat(path).st_mtime < time.time() - age:
                _remove(path)
