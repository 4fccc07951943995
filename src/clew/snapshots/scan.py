"""Looking at a working tree: which files there are, and what is in those that changed.

Everything is reached through descriptors of folders, from the top down, and no link is ever
followed, so nothing outside of the tree is read, whatever somebody puts into it meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import cast

from msgspec import Struct

from clew.core.errors import InvalidInput
from clew.snapshots.dirfd import Signature, close, read_all, signature
from clew.snapshots.ignore import IGNORE_FILE_BYTES_MAX, IGNORE_FILES, Matcher, Rules
from clew.snapshots.manifest import Node, folded, name_problem
from clew.snapshots.model import LeftOut, Reason
from clew.snapshots.stat_cache import Known, KnownFile, KnownFolder, now_ns, settled

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
DEPTH_MAX = 200
_LASTING = frozenset(["special", "collides", "name"])  # as long as the names in a folder stay
NO_SIGNATURE = (0, 0, 0, 0, 0)  # of what cannot be looked at
_TRIES = 3

Look = tuple[str, os.stat_result | None]  # a name; None: it cannot be looked at


class Folder(Struct):
    """A folder as it is found. `manifest` is known at once if nothing in it changed."""

    path: str  # "" for the top, else with a slash at its end
    signature: Signature
    rules: str
    files: list[KnownFile]
    folders: list[Folder]
    pending: list[tuple[str, Signature]]
    left_out: list[LeftOut]
    ignores: list[str]
    manifest: str = ""
    size: int = 0
    data: bytes = b""  # of the manifest, if it is a new one

    @property
    def name(self) -> str:
        return self.path[:-1].rpartition("/")[2]

    @property
    def nodes(self) -> list[Node]:
        """What was found in it, as it would be stored."""
        folders = [Node(sub.name, "folder", sub.manifest, sub.size) for sub in self.folders]
        return folders + [Node(file.name, file.kind, file.ref, file.size) for file in self.files]


class Survey(Struct):
    """A working tree, looked at as a whole."""

    root: str
    top: Folder
    began_ns: int
    files: int = 0
    read: int = 0  # files that had to be read
    unseen: list[LeftOut] = []  # left out before, where nobody has looked now

    @property
    def tree(self) -> str:
        return self.top.manifest

    @property
    def size(self) -> int:
        return self.top.size

    def all_folders(self) -> Iterator[Folder]:
        """Every folder, those above before those below."""
        todo = [self.top]
        while todo:
            folder = todo.pop()
            yield folder
            todo += reversed(folder.folders)

    @property
    def nodes(self) -> dict[str, Node]:
        """Every path with its node."""
        found: dict[str, Node] = {}
        for folder in self.all_folders():
            for sub in folder.folders:
                found[sub.path[:-1]] = Node(sub.name, "folder", sub.manifest, sub.size)
            for file in folder.files:
                found[folder.path + file.name] = Node(file.name, file.kind, file.ref, file.size)
        return found

    @property
    def left_out(self) -> list[LeftOut]:
        found = [item for folder in self.all_folders() for item in folder.left_out]
        return found + self.unseen

    def known(self, base: tuple[str, str] | None) -> Known:
        """What to remember of it."""
        folders = {folder.path: self._known_folder(folder) for folder in self.all_folders()}
        return Known(root=self.root, base=base, folders=folders)

    def _known_folder(self, folder: Folder) -> KnownFolder:
        return KnownFolder(
            settled(folder.signature, self.began_ns),
            folder.rules,
            folder.manifest,
            folder.size,
            folder.files,
            [sub.name for sub in folder.folders],
            [(item.path, item.reason, item.size) for item in folder.left_out],
            folder.ignores,
        )


def look_at(root: str, descriptor: int, rules: Rules, known: Known) -> Survey:
    """What there is in a tree; files that have changed are still to be read."""
    began_ns = now_ns()
    walker = Walker(known, rules, began_ns)
    return Survey(root, walker.folder(descriptor, "", rules.matcher()), began_ns)


def open_root(root: str) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidInput("root", f"{root} is not a folder to be read: {error.strerror}") from None


class Walker:
    def __init__(self, known: Known, rules: Rules, began_ns: int) -> None:
        self._known = known.folders
        self._rules = rules
        self._began_ns = began_ns
        self._left = rules.max_bytes

    def folder(self, descriptor: int, path: str, outer: Matcher) -> Folder:
        """A folder and all below it; `path` ends with a slash unless it is the top."""
        try:
            sign = signature(os.fstat(descriptor))
        except OSError:
            return _unreadable(path, NO_SIGNATURE, outer)
        known = self._known.get(path)
        if known is not None and known.signature == sign and self._can_stay(known):
            matcher, unread = self._matcher(descriptor, path, outer, known.ignores)
            if matcher.id == known.rules and not unread:
                return self._same(descriptor, path, matcher, known, sign)
        return self._anew(descriptor, path, outer, known, sign)

    def _can_stay(self, known: KnownFolder) -> bool:
        """Whether what was left out would be again: a file may shrink while the names stay."""
        lasting = all(reason in _LASTING for _, reason, _ in known.left_out)
        return lasting and known.size <= self._left

    def _matcher(
        self, descriptor: int, path: str, outer: Matcher, ignores: Sequence[str]
    ) -> tuple[Matcher, list[str]]:
        """The rules in a folder, and those of its ignore files that cannot be read."""
        if not ignores or not self._rules.gitignore:
            return outer, []
        texts = {name: _read_ignore(descriptor, name) for name in ignores}
        unread = [name for name, text in texts.items() if text is None]
        return outer.inside(path, [text or b"" for text in texts.values()]), unread

    # --- a folder whose list of names has not changed ---

    def _same(
        self, descriptor: int, path: str, matcher: Matcher, known: KnownFolder, sign: Signature
    ) -> Folder:
        left_out = [LeftOut(p, cast(Reason, reason), size) for p, reason, size in known.left_out]
        found = Folder(path, sign, matcher.id, [], [], [], left_out, known.ignores)
        files, pending = found.files, found.pending
        look = os.stat
        for file in known.files:
            try:
                st = look(file.name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                found.left_out.append(LeftOut(path + file.name, "unreadable"))
                continue
            now = (st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino, st.st_mode)
            if now == file.signature and file.size <= self._left:
                files.append(file)
                self._left -= file.size
            else:
                self._take(descriptor, found, file.name, now)
        for name in known.folders:
            self._enter(descriptor, found, name, matcher)
        if not pending and len(files) == len(known.files):
            subs = [(sub.path, sub.manifest) for sub in found.folders]
            before = [(f"{path}{n}/", self._manifest_of(f"{path}{n}/")) for n in known.folders]
            if subs == before and all(manifest for _, manifest in subs):
                found.manifest, found.size = known.manifest, known.size
        return found

    def _manifest_of(self, path: str) -> str:
        known = self._known.get(path)
        return "" if known is None else known.manifest

    # --- a folder that is looked at anew ---

    def _anew(
        self,
        descriptor: int,
        path: str,
        outer: Matcher,
        known: KnownFolder | None,
        sign: Signature,
    ) -> Folder:
        try:
            looks = self._list(descriptor, path)
        except OSError:
            return _unreadable(path, sign, outer)
        names = {name for name, _ in looks}
        ignores = [name for name in IGNORE_FILES if name in names]
        matcher, unread = self._matcher(descriptor, path, outer, ignores)
        found = Folder(path, sign, matcher.id, [], [], [], [], ignores)
        before = {} if known is None else {file.name: file for file in known.files}
        taken: set[str] = set()
        folders: list[str] = []
        for name, st in looks:
            if st is None or name in unread:
                found.left_out += _told_unless_ignored(matcher, path, name)
                continue
            if matcher.leaves_out(path + name, name, folder=stat.S_ISDIR(st.st_mode)):
                continue
            fold = folded(name)
            if fold in taken or name_problem(name) is not None:
                reason: Reason = "collides" if fold in taken else "name"
                found.left_out.append(LeftOut(path + name, reason, st.st_size))
                continue
            taken.add(fold)
            if stat.S_ISDIR(st.st_mode):
                folders.append(name)
                continue
            now, file = signature(st), before.get(name)
            if file is not None and file.signature == now and file.size <= self._left:
                found.files.append(file)
                self._left -= file.size
            else:
                self._take(descriptor, found, name, now)
        for name in folders:
            self._enter(descriptor, found, name, matcher)
        return found

    def _list(self, descriptor: int, path: str) -> list[Look]:
        with os.scandir(descriptor) as entries:
            return sorted(_looks(entries), key=itemgetter(0))

    def _enter(self, descriptor: int, found: Folder, name: str, matcher: Matcher) -> None:
        try:
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
            found.files.append(KnownFile(name, "link", target, 0, settled(sign, self._began_ns)))
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


def _told_unless_ignored(matcher: Matcher, path: str, name: str) -> list[LeftOut]:
    """What cannot be looked at, unless it does not belong into a snapshot whatever it is."""
    ignored = all(matcher.leaves_out(path + name, name, folder=it) for it in (False, True))
    return [] if ignored else [LeftOut(path + name, "unreadable")]


def _looks(entries: Iterable[os.DirEntry[str]]) -> Iterator[Look]:
    """What is in a folder; None for what cannot be looked at."""
    for entry in entries:
        try:
            yield entry.name, entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            pass  # it has gone since the folder was listed
        except OSError:
            yield entry.name, None


def _read_ignore(descriptor: int, name: str) -> bytes | None:
    """The text of an ignore file; None if it cannot be read. Only a file has one, no link."""
    for _ in range(_TRIES):
        try:
            return _read_text(descriptor, name)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return b""
    return None


def _read_text(descriptor: int, name: str) -> bytes:
    file = os.open(name, FILE, dir_fd=descriptor)
    try:
        look = os.fstat(file)
        if not stat.S_ISREG(look.st_mode):
            return b""
        return read_all(file, min(look.st_size, IGNORE_FILE_BYTES_MAX))
    finally:
        close(file)
