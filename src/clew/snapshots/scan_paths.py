"""Looking at some paths of a working tree; the rest counts as what the last snapshot has of it.

What is on the way to a path is looked at as far as it leads there: what kind of thing it is, the
ignore files in it, and names that would be one with the next on some file systems. A path that
is a folder is looked at with all that is in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from msgspec import Struct

from clew.core.codec import digest
from clew.snapshots import scan
from clew.snapshots.ignore import IGNORE_FILES, Matcher, Rules
from clew.snapshots.manifest import Node, folded, pack
from clew.snapshots.model import LeftOut
from clew.snapshots.plan import Selection
from clew.snapshots.scan import Keep, Look, Reader, Walker
from clew.snapshots.survey import CachedTree, Folder, Survey
from clew.snapshots.tree import Trees


class Base(Struct, frozen=True):
    """What the rest counts as; a caller who only wants to look needs no tree."""

    trees: Trees
    tree: str | None = None
    files: int = 0
    left_out: tuple[LeftOut, ...] = ()


class _Way(Struct, frozen=True):
    """A folder on the way: the names that lead on, and what the base has in it."""

    wanted: set[str]
    before: dict[str, Node]


def scan_paths(
    root: str,
    rules: Rules,
    selection: Selection,
    base: Base,
    cached: Callable[[], CachedTree],
    keep: Keep = scan.forget,
) -> Survey:
    """Look at the selected paths. `cached` is asked only if one of them is a folder."""
    top = scan.open_root(root)
    try:
        walker = _PathWalker(top, rules, selection, base, cached, keep)
        found = Survey(root, walker.folder(top, "", rules.matcher()), walker.began_ns)
        walker.reader.run(found)
    finally:
        scan.close(top)
    walker.sum_up(found.top, base.tree)
    found.files = base.files + walker.more_files
    found.unseen = [item for item in base.left_out if not walker.saw(item.path)]
    return found


class _PathWalker(Walker):
    def __init__(
        self,
        top: int,
        rules: Rules,
        selection: Selection,
        base: Base,
        cached: Callable[[], CachedTree],
        keep: Keep,
    ) -> None:
        self.began_ns = scan.now_ns()
        super().__init__(CachedTree(), rules, self.began_ns)
        self.reader = Reader(top, rules, self.began_ns, self._keep_new)
        self.more_files = 0
        self._keep = keep
        self._load: Callable[[], CachedTree] | None = cached
        self._selection = selection
        self._base = base
        self._ways: dict[str, _Way] = {}
        self._stored: set[str] = set()

    def saw(self, path: str) -> bool:
        return self._selection.leads_to(path) or self._selection.holds(path)

    # --- looking ---

    def folder(self, descriptor: int, path: str, outer: Matcher) -> Folder:
        wanted = self._selection.names_in(path[:-1])
        if wanted is None:
            # The cache of a large tree takes long to load, and files alone do not need it.
            if self._load is not None:
                self._cached, self._load = self._load().folders, None
            return super().folder(descriptor, path, outer)
        before = self._index(path)
        self._ways[path] = _Way(wanted, before)
        self._stored |= {before[name].ref for name in wanted if name in before}
        found = self._anew(descriptor, path, outer, None, scan.NO_SIGNATURE)
        found.files = [file for file in found.files if file.name in wanted]
        found.pending = [item for item in found.pending if item[0] in wanted]
        found.left_out = [item for item in found.left_out if self.saw(item.path)]
        self.reader.read_pending(descriptor, found)
        return found

    def _index(self, path: str) -> dict[str, Node]:
        """What the base has in a folder."""
        manifest = self._base.tree
        if path:
            above, _, name = path[:-1].rpartition("/")
            node = self._ways[f"{above}/" if above else ""].before.get(name)
            manifest = node.ref if node is not None and node.is_folder else None
        return {} if manifest is None else self._base.trees.index(manifest)

    def _list(self, descriptor: int, path: str) -> list[Look]:
        """The names that are wanted, and those that say whether they may be taken."""
        way = self._ways.get(path)
        if way is None:
            return super()._list(descriptor, path)
        folds = {folded(name) for name in way.wanted}
        names = os.listdir(descriptor)
        near = sorted(name for name in names if name in IGNORE_FILES or folded(name) in folds)
        looks: list[Look] = []
        for name in near:
            try:
                looks.append((name, os.stat(name, dir_fd=descriptor, follow_symlinks=False)))
            except FileNotFoundError:
                pass  # it has gone since the folder was listed
            except OSError:
                looks.append((name, None))
        return looks

    def _enter(self, descriptor: int, found: Folder, name: str, matcher: Matcher) -> None:
        way = self._ways.get(found.path)
        if way is None or name in way.wanted:
            super()._enter(descriptor, found, name, matcher)

    # --- storing ---

    def _keep_new(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        """What the base has under the very names need not be stored again."""
        new = [blob for blob in blobs if blob[0] not in self._stored]
        if new:
            self._keep(new)

    def sum_up(self, folder: Folder, base: str | None) -> None:
        """The manifest of a folder: what was found in it, and what the base has beside that."""
        way = self._ways.get(folder.path)
        if way is None:
            scan.sum_up(folder)
            return
        for sub in folder.folders:
            old = way.before.get(sub.name)
            self.sum_up(sub, old.ref if old is not None and old.is_folder else None)
        found = {node.name: node for node in folder.nodes}
        if base is not None and all(found.get(n) == way.before.get(n) for n in way.wanted):
            folder.manifest, folder.size = base, sum(n.size for n in way.before.values())
            return
        # What the base has under other names stays, but for those that would be one with a new one.
        taken = {folded(name) for name in found}
        rest = (node for node in way.before.values() if node.name not in way.wanted)
        after = {node.name: node for node in rest if folded(node.name) not in taken} | found
        self._count(folder, way.before, after)
        folder.size = sum(node.size for node in after.values())
        folder.data = pack(after.values())
        folder.manifest = digest(folder.data)

    def _count(self, folder: Folder, before: dict[str, Node], after: dict[str, Node]) -> None:
        """How many files there are more than in the base."""
        subs = {sub.name: sub for sub in folder.folders}
        for name in before.keys() | after.keys():
            old, new = before.get(name), after.get(name)
            if old != new:
                # What lies in a folder on the way is counted when that folder is summed up.
                on_the_way = name in subs and subs[name].path in self._ways
                self.more_files += 0 if on_the_way else _files_here(new, subs.get(name))
                if not on_the_way or (old is not None and not old.is_folder):
                    self.more_files -= self._files_there(old)

    def _files_there(self, node: Node | None) -> int:
        if node is None or not node.is_folder:
            return 0 if node is None else 1
        return sum(not below.is_folder for _, below in self._base.trees.walk(node.ref))


def _files_here(node: Node | None, folder: Folder | None) -> int:
    if folder is None:
        return 0 if node is None else 1
    return len(folder.files) + sum(_files_here(None, sub) for sub in folder.folders)
