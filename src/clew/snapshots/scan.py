"""Looking at a working tree: which files there are, and what is in those that changed.

Everything is reached through descriptors of folders, from the top down, and no link is ever
followed, so nothing outside of the tree is read, whatever another process puts into it meanwhile.
First all names are looked at (`Walker`), then the files that changed are read, on all cores
(`Reader`), and at the end every folder in which something changed gets its manifest (`sum_up`).
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter, itemgetter
from typing import cast

from clew.core.codec import digest
from clew.core.drafts import check_folder
from clew.core.engine import Progress
from clew.core.errors import InvalidInput, Unavailable
from clew.snapshots.ignore import IGNORE_FILE_BYTES_MAX, IGNORE_FILES, Matcher, Rules
from clew.snapshots.manifest import Kind, pack, unfit
from clew.snapshots.model import LeftOut, Reason
from clew.snapshots.survey import (
    CachedFolder,
    CachedTree,
    Folder,
    SeenFile,
    Signature,
    Survey,
    signature,
)

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
DEPTH_MAX = 200
CHUNK_FILES = 64
BATCH_BYTES = 4 * 1024 * 1024
TRIES = 3
NO_SIGNATURE = (0, 0, 0, 0, 0)  # of what cannot be looked at
_LASTING = frozenset(["special", "collides", "name"])  # as long as the names in a folder stay
# Times of files move in ticks of the kernel, or in whole seconds on simple file systems.
_TICK_NS = 50_000_000
_COARSE_NS = 2_000_000_000

# Takes the bytes of files with their hashes, and stores those that are new.
Keep = Callable[[Sequence[tuple[str, bytes]]], None]
Look = tuple[str, os.stat_result | None]  # a name; None: it cannot be looked at
_Chunk = tuple[Folder, list[tuple[str, Signature]]]


def scan(
    root: str,
    rules: Rules,
    cached: CachedTree | None = None,
    keep: Keep | None = None,
    progress: Progress | None = None,
) -> Survey:
    """Look at a tree. Files that changed since `cached` are read, and handed to `keep`."""
    top = open_root(root)
    try:
        began_ns = now_ns()
        walker = Walker(cached or CachedTree(root=root), rules, began_ns)
        found = Survey(root, walker.folder(top, "", rules.matcher()), began_ns)
        Reader(top, rules, began_ns, keep or forget).run(found, progress)
    finally:
        close(top)
    sum_up(found.top)
    found.files = sum(len(folder.files) for folder in found.all_folders())
    return found


def forget(blobs: Sequence[tuple[str, bytes]]) -> None:
    """For a caller who only wants to know what a tree looks like."""


# --- looking at names ---


class Walker:
    """Goes through all folders, and finds out which files have to be read."""

    def __init__(self, cached: CachedTree, rules: Rules, began_ns: int) -> None:
        self._cached = cached.folders
        self._rules = rules
        self._began_ns = began_ns
        self._left = rules.max_bytes

    def folder(self, descriptor: int, path: str, outer: Matcher) -> Folder:
        """A folder and all below it; `path` ends with a slash unless it is the top."""
        try:
            sign = signature(os.fstat(descriptor))
        except OSError:
            return _unreadable(path, NO_SIGNATURE, outer)
        cached = self._cached.get(path)
        # What was left out may belong now, though the names are the same: a file may shrink.
        if (
            cached is not None
            and cached.signature == sign
            and cached.size <= self._left
            and all(reason in _LASTING for _, reason, _ in cached.left_out)
        ):
            matcher, unread = self._matcher(descriptor, path, outer, cached.ignores)
            if matcher.id == cached.rules and not unread:
                return self._same(descriptor, path, matcher, cached, sign)
        return self._anew(descriptor, path, outer, cached, sign)

    def _matcher(
        self, descriptor: int, path: str, outer: Matcher, ignores: Sequence[str]
    ) -> tuple[Matcher, list[str]]:
        """The rules in a folder, and those of its ignore files that cannot be read."""
        if not ignores or not self._rules.gitignore:
            return outer, []
        texts = {name: _read_ignore(descriptor, name) for name in ignores}
        unread = [name for name, text in texts.items() if text is None]
        return outer.inside(path, [text or b"" for text in texts.values()]), unread

    def _same(
        self, descriptor: int, path: str, matcher: Matcher, cached: CachedFolder, sign: Signature
    ) -> Folder:
        """A folder whose list of names has not changed: each is looked at, none is judged."""
        left_out = [LeftOut(p, cast(Reason, reason), size) for p, reason, size in cached.left_out]
        found = Folder(path, sign, matcher.id, [], [], [], left_out, cached.ignores)
        files, look = found.files, os.stat
        for file in cached.files:
            try:
                st = look(file.name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                found.left_out.append(LeftOut(path + file.name, "unreadable"))
                continue
            now = signature(st)
            if now == file.signature and file.size <= self._left:
                files.append(file)
                self._left -= file.size
            else:
                self._take(descriptor, found, file.name, now)
        for name in cached.folders:
            self._enter(descriptor, found, name, matcher)
        if not found.pending and len(files) == len(cached.files):
            subs = [(sub.path, sub.manifest) for sub in found.folders]
            paths = [f"{path}{name}/" for name in cached.folders]
            before = [(p, self._cached[p].manifest if p in self._cached else "") for p in paths]
            if subs == before and all(manifest for _, manifest in subs):
                found.manifest, found.size = cached.manifest, cached.size
        return found

    def _anew(
        self,
        descriptor: int,
        path: str,
        outer: Matcher,
        cached: CachedFolder | None,
        sign: Signature,
    ) -> Folder:
        """A folder whose names have changed, or that was never seen: each name is judged."""
        try:
            looks = self._list(descriptor, path)
        except OSError:
            return _unreadable(path, sign, outer)
        names = {name for name, _ in looks}
        ignores = [name for name in IGNORE_FILES if name in names]
        matcher, unread = self._matcher(descriptor, path, outer, ignores)
        found = Folder(path, sign, matcher.id, [], [], [], [], ignores)
        before = {} if cached is None else {file.name: file for file in cached.files}
        seen = {name: st for name, st in looks if st is not None and name not in unread}
        folders = {name for name, st in seen.items() if stat.S_ISDIR(st.st_mode)}
        ignored = matcher.ignored(path, seen, folders)
        unfits = unfit([name for name in seen if name not in ignored])
        for name, _ in looks:
            if name not in seen:
                # Unless it does not belong into a snapshot, whatever it is.
                if not matcher.ignored(path, [name], []) & matcher.ignored(path, [name], [name]):
                    found.left_out.append(LeftOut(path + name, "unreadable"))
            elif name in unfits:
                found.left_out.append(LeftOut(path + name, unfits[name], seen[name].st_size))
            elif name not in ignored and name not in folders:
                now, file = signature(seen[name]), before.get(name)
                if file is not None and file.signature == now and file.size <= self._left:
                    found.files.append(file)
                    self._left -= file.size
                else:
                    self._take(descriptor, found, name, now)
        # Files first: a quota that is too small for all of it is spent from the top down.
        for name, _ in looks:
            if name in folders and name not in ignored and name not in unfits:
                self._enter(descriptor, found, name, matcher)
        return found

    def _list(self, descriptor: int, path: str) -> list[Look]:
        looks: list[Look] = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    looks.append((entry.name, entry.stat(follow_symlinks=False)))
                except FileNotFoundError:
                    pass  # it has gone since the folder was listed
                except OSError:
                    looks.append((entry.name, None))
        return sorted(looks, key=itemgetter(0))

    def _enter(self, descriptor: int, found: Folder, name: str, matcher: Matcher) -> None:
        try:
            # Each level holds a descriptor and a frame: an endless tree must not use them up.
            if found.path.count("/") >= DEPTH_MAX:
                raise OSError("it lies too deep")
            below = os.open(name, FOLDER, dir_fd=descriptor)
        except OSError:
            found.left_out.append(LeftOut(found.path + name, "unreadable"))
            return
        try:
            found.folders.append(self.folder(below, f"{found.path}{name}/", matcher))
        finally:
            close(below)

    def _take(self, descriptor: int, found: Folder, name: str, sign: Signature) -> None:
        """A file that is new or changed: to be read, or left out."""
        path, mode, size = found.path + name, sign[4], sign[0]
        if stat.S_ISLNK(mode):
            try:
                target = os.readlink(name, dir_fd=descriptor)
            except OSError:
                found.left_out.append(LeftOut(path, "unreadable"))
                return
            found.files.append(SeenFile(name, "link", target, 0, settled(sign, self._began_ns)))
        elif not stat.S_ISREG(mode):
            found.left_out.append(LeftOut(path, "special"))
        elif size > self._rules.max_file_bytes:
            found.left_out.append(LeftOut(path, "too_large", size))
        elif size > self._left:
            found.left_out.append(LeftOut(path, "over_quota", size))
        else:
            self._left -= size
            found.pending.append((name, sign))


def _unreadable(path: str, sign: Signature, outer: Matcher) -> Folder:
    """A folder that cannot be looked into: nothing is known of it but that it is there."""
    out = [LeftOut(path.rstrip("/") or ".", "unreadable")]
    return Folder(path, sign, outer.id, [], [], [], out, [])


def _read_ignore(descriptor: int, name: str) -> bytes | None:
    """The text of an ignore file; None if it cannot be read. Only a file has one, no link."""
    for _ in range(TRIES):
        try:
            file = os.open(name, FILE, dir_fd=descriptor)
            try:
                look = os.fstat(file)
                if not stat.S_ISREG(look.st_mode):
                    return b""
                return read_all(file, min(look.st_size, IGNORE_FILE_BYTES_MAX))
            finally:
                close(file)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return b""
    return None


# --- reading what changed ---


class Reader:
    """Reads files, many at a time, each of them as it was at one moment."""

    def __init__(self, top: int, rules: Rules, began_ns: int, keep: Keep) -> None:
        self._top = top
        self._rules = rules
        self._began_ns = began_ns
        self._keep = keep

    def run(self, found: Survey, progress: Progress | None = None) -> None:
        """Read all that is pending in a tree."""
        chunks: list[_Chunk] = [
            (folder, folder.pending[at : at + CHUNK_FILES])
            for folder in found.all_folders()
            for at in range(0, len(folder.pending), CHUNK_FILES)
        ]
        sizes = [sign[0] for _, names in chunks for _, sign in names]
        found.read += len(sizes)
        # A thread must have enough to do to make up for being started.
        worth = max(len(sizes) // CHUNK_FILES, sum(sizes) // BATCH_BYTES)
        workers = min(os.cpu_count() or 1, len(chunks), worth)
        if workers <= 1:
            self._collect(chunks, map(self._read_chunk, chunks), progress, len(sizes))
            return
        with ThreadPoolExecutor(workers, "clew-snapshot") as pool:
            self._collect(chunks, pool.map(self._read_chunk, chunks), progress, len(sizes))

    def _collect(
        self,
        chunks: list[_Chunk],
        results: Iterator[list[SeenFile | LeftOut]],
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

    def _read_chunk(self, chunk: _Chunk) -> list[SeenFile | LeftOut]:
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
    ) -> list[SeenFile | LeftOut]:
        result: list[SeenFile | LeftOut] = []
        batch: list[tuple[str, bytes]] = []
        size = 0
        for name, _ in names:
            item, data = self._read(descriptor, path, name)
            result.append(item)
            if isinstance(item, SeenFile):
                batch.append((item.ref, data))
                size += len(data)
            if size > BATCH_BYTES:
                self._keep(batch)
                batch, size = [], 0
        if batch:
            self._keep(batch)
        return result

    def _read(self, folder: int, path: str, name: str) -> tuple[SeenFile | LeftOut, bytes]:
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
                # One byte more than there should be shows a file that grows.
                data = read_all(descriptor, before.st_size + 1)
                sign = signature(before)
                if len(data) == before.st_size and signature(os.fstat(descriptor)) == sign:
                    kind: Kind = "executable" if before.st_mode & stat.S_IXUSR else "file"
                    trusted = settled(sign, self._began_ns)
                    return SeenFile(name, kind, digest(data), len(data), trusted), data
            except OSError:
                reason = "unreadable"
            finally:
                close(descriptor)
        return LeftOut(path + name, reason), b""


def _note(folder: Folder, result: Sequence[SeenFile | LeftOut]) -> None:
    folder.files += [item for item in result if isinstance(item, SeenFile)]
    folder.left_out += [item for item in result if isinstance(item, LeftOut)]


def sum_up(folder: Folder) -> None:
    """The manifest of every folder in which something changed."""
    if folder.manifest:
        return
    folder.files.sort(key=attrgetter("name"))
    for sub in folder.folders:
        sum_up(sub)
    nodes = folder.nodes
    folder.size = sum(node.size for node in nodes)
    folder.data = pack(nodes)
    folder.manifest = digest(folder.data)


# --- files as they are: one call may give less than was asked for, and closing may fail ---


def real_root(root: str | os.PathLike[str], field: str = "root") -> str:
    """A folder by its real name."""
    return os.path.realpath(check_folder(root, field))


def open_root(root: str) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise Unavailable(f"{root} cannot be read now: {error.strerror}") from error
        raise InvalidInput("root", f"{root} is not a folder to be read: {error.strerror}") from None


def open_below(top: int, path: str) -> int:
    """A folder below another one, name by name and through no link."""
    descriptor = os.dup(top)
    for name in path.split("/"):
        if name:
            try:
                below = os.open(name, FOLDER, dir_fd=descriptor)
            finally:
                close(descriptor)
            descriptor = below
    return descriptor


def read_all(descriptor: int, size_max: int) -> bytes:
    """All that is there, up to a size."""
    data = os.read(descriptor, size_max)
    while data and len(data) < size_max:
        more = os.read(descriptor, size_max - len(data))
        if not more:
            break
        data += more
    return data


def close(descriptor: int) -> None:
    """Of something that was only read: it is gone, and nothing is lost, even if that fails."""
    try:
        os.close(descriptor)
    except OSError:
        pass


def settled(sign: Signature, now_ns: int) -> Signature | None:
    """The signature if it is old enough that a later change would show in it."""
    newest = max(sign[1], sign[2])
    margin = _COARSE_NS if sign[1] % 1_000_000_000 == 0 else _TICK_NS
    return sign if newest < now_ns - margin else None


def now_ns() -> int:
    return time.time_ns()
