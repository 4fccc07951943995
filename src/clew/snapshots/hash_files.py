"""Reading the files that changed, on all cores, and summing up folders to manifests."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from clew.core.codec import digest
from clew.snapshots.dirfd import Signature, close, read_all, signature
from clew.snapshots.ignore import Rules
from clew.snapshots.manifest import pack
from clew.snapshots.model import LeftOut, Reason
from clew.snapshots.scan import FILE, FOLDER, Folder, Survey, look_at, open_root
from clew.snapshots.stat_cache import Known, KnownFile, settled

CHUNK_FILES = 64
BATCH_BYTES = 4 * 1024 * 1024
TRIES = 3

# Takes the bytes of files with their hashes, and stores those that are new.
Keep = Callable[[Sequence[tuple[str, bytes]]], None]
Progress = Callable[[int, int], None]
_Chunk = tuple[Folder, list[tuple[str, Signature]]]


def survey(
    root: str,
    rules: Rules,
    known: Known | None = None,
    keep: Keep | None = None,
    progress: Progress | None = None,
) -> Survey:
    """Look at a tree. Files that changed since `known` are read, and handed to `keep`."""
    top = open_root(root)
    try:
        found = look_at(root, top, rules, known or Known(root=root))
        Reader(top, rules, found.began_ns, keep or forget).run(found, progress)
    finally:
        close(top)
    sum_up(found.top)
    found.files = sum(len(folder.files) for folder in found.all_folders())
    return found


def forget(blobs: Sequence[tuple[str, bytes]]) -> None:
    """For those who only want to know what a tree looks like."""


class Reader:
    def __init__(self, top: int, rules: Rules, began_ns: int, keep: Keep) -> None:
        self._top = top
        self._rules = rules
        self._began_ns = began_ns
        self._keep = keep

    def run(self, found: Survey, progress: Progress | None = None) -> None:
        """Read all that is pending in a tree."""
        chunks = list(_chunks(found))
        total = sum(len(names) for _, names in chunks)
        found.read += total
        workers = min(os.cpu_count() or 1, len(chunks), _worth(chunks))
        if workers <= 1:
            results = map(self._read_chunk, chunks)
            self._collect(chunks, results, progress, total)
            return
        with ThreadPoolExecutor(workers, "clew-snapshot") as pool:
            self._collect(chunks, pool.map(self._read_chunk, chunks), progress, total)

    def _collect(
        self,
        chunks: list[_Chunk],
        results: Iterator[list[KnownFile | LeftOut]],
        progress: Progress | None,
        total: int,
    ) -> None:
        done = 0
        for (folder, names), result in zip(chunks, results, strict=True):
            _note(folder, result)
            done += len(names)
            if progress is not None:
                progress(done, total)
        for folder, _ in chunks:
            folder.pending = []

    def _read_chunk(self, chunk: _Chunk) -> list[KnownFile | LeftOut]:
        folder, names = chunk
        try:
            descriptor = open_below(self._top, folder.path)
        except OSError:
            return [LeftOut(folder.path + name, "unreadable") for name, _ in names]
        try:
            return self._read_names(descriptor, folder.path, names)
        finally:
            close(descriptor)

    def read_pending(self, descriptor: int, folder: Folder) -> None:
        """What is pending in one folder that is open already."""
        _note(folder, self._read_names(descriptor, folder.path, folder.pending))
        folder.pending = []

    def _read_names(
        self, descriptor: int, path: str, names: Sequence[tuple[str, Signature]]
    ) -> list[KnownFile | LeftOut]:
        result: list[KnownFile | LeftOut] = []
        batch: list[tuple[str, bytes]] = []
        size = 0
        for name, _ in names:
            item, data = self._read(descriptor, path, name)
            result.append(item)
            if isinstance(item, KnownFile):
                batch.append((item.ref, data))
                size += len(data)
            if size > BATCH_BYTES:
                self._keep(batch)
                batch, size = [], 0
        if batch:
            self._keep(batch)
        return result

    def _read(self, folder: int, path: str, name: str) -> tuple[KnownFile | LeftOut, bytes]:
        """A file's bytes, all of one moment: one that changes meanwhile is read again."""
        reason: Reason = "changing"
        for _ in range(TRIES):
            try:
                descriptor = os.open(name, FILE, dir_fd=folder)
            except OSError:
                return LeftOut(path + name, "unreadable"), b""
            try:
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    return LeftOut(path + name, "special"), b""
                if before.st_size > self._rules.max_file_bytes:
                    return LeftOut(path + name, "too_large", before.st_size), b""
                data = _read_all(descriptor, before.st_size)
                sign = signature(before)
                if len(data) == before.st_size and signature(os.fstat(descriptor)) == sign:
                    return self._known(name, sign, data), data
            except OSError:
                reason = "unreadable"
            finally:
                close(descriptor)
        return LeftOut(path + name, reason), b""

    def _known(self, name: str, sign: Signature, data: bytes) -> KnownFile:
        kind = "executable" if sign[4] & stat.S_IXUSR else "file"
        trusted = settled(sign, self._began_ns)
        return KnownFile(name, kind, digest(data), len(data), trusted)  # type: ignore[arg-type]


def _chunks(found: Survey) -> Iterator[_Chunk]:
    for folder in found.all_folders():
        for at in range(0, len(folder.pending), CHUNK_FILES):
            yield folder, folder.pending[at : at + CHUNK_FILES]


def _note(folder: Folder, result: Sequence[KnownFile | LeftOut]) -> None:
    folder.files += [item for item in result if isinstance(item, KnownFile)]
    folder.left_out += [item for item in result if isinstance(item, LeftOut)]


def _worth(chunks: list[_Chunk]) -> int:
    """How many threads have enough to do to make up for being started."""
    sizes = [sign[0] for _, names in chunks for _, sign in names]
    return max(len(sizes) // CHUNK_FILES, sum(sizes) // BATCH_BYTES)


def _read_all(descriptor: int, size: int) -> bytes:
    """One byte more than there should be, to see whether there is."""
    return read_all(descriptor, size + 1)


def open_below(top: int, path: str) -> int:
    """A folder below another one, step by step and through no link."""
    descriptor = os.dup(top)
    for name in path.split("/"):
        if name:
            try:
                below = os.open(name, FOLDER, dir_fd=descriptor)
            finally:
                close(descriptor)
            descriptor = below
    return descriptor


def sum_up(folder: Folder) -> None:
    """The manifest of every folder in which something changed."""
    if folder.manifest:
        return
    folder.files.sort(key=lambda file: file.name)
    for sub in folder.folders:
        sum_up(sub)
    nodes = folder.nodes
    folder.size = sum(node.size for node in nodes)
    folder.data = pack(nodes)
    folder.manifest = digest(folder.data)
