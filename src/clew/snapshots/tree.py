"""Trees of a store: folder by folder, each manifest checked and read once.

A working tree can be read as if it were stored (`WorkingTrees`), to be compared with one that is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from clew.core.codec import digest
from clew.core.engine import Engine
from clew.core.errors import Conflict, Corrupt, NotFound, Unsupported
from clew.snapshots.manifest import MANIFEST_BYTES_MAX, Node, unpack
from clew.snapshots.model import Difference
from clew.snapshots.scan import FILE, open_below, open_root
from clew.snapshots.survey import Survey

if TYPE_CHECKING:
    from clew.store import Store

DEPTH_MAX = 256
# A few small manifests that name each other over and over are a tree without end.
PATHS_MAX = 1_000_000
_KEPT_MAX = 4096


def trees_of(store: Store) -> Trees:
    """One for all threads of a store, so that what one of them read is known to the others."""
    found: Trees | None = store.snapshot_caches.get("")
    if found is None:
        found = store.snapshot_caches.setdefault("", Trees(store.engine))
    return found


class Trees:
    """The trees of a store. A manifest never changes, so those last read are remembered."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._folders: dict[str, list[Node]] = {}
        self._indexes: dict[str, dict[str, Node]] = {}

    def nodes(self, manifest: str) -> list[Node]:
        """What a folder holds. Corrupt if its manifest is missing or not what it should be."""
        found = self._folders.get(manifest)
        if found is None:
            found = unpack(self._load(manifest), f"manifest {manifest}")
            self.remember(manifest, found)
        return found

    def remember(self, manifest: str, nodes: list[Node]) -> None:
        """What is in a folder, so that it need not be read; in the order of a manifest."""
        if len(self._folders) >= _KEPT_MAX:
            self._folders.clear()  # simple, and as good: what is needed now comes back at once
        self._folders[manifest] = nodes

    def index(self, manifest: str) -> dict[str, Node]:
        """The same by name; not to be changed."""
        found = self._indexes.get(manifest)
        if found is None:
            found = {node.name: node for node in self.nodes(manifest)}
            if len(self._indexes) >= _KEPT_MAX:
                self._indexes.clear()
            self._indexes[manifest] = found
        return found

    def _load(self, hash: str) -> bytes:
        try:
            data = self._engine.get_blob(hash)
        except NotFound:
            raise Corrupt(f"manifest {hash}", "it is not in the store") from None
        if len(data) > MANIFEST_BYTES_MAX or digest(data) != hash:
            raise Corrupt(f"manifest {hash}", "its bytes do not match its hash")
        return data

    def walk(
        self, tree: str, enter: Callable[[str], bool] | None = None
    ) -> Iterator[tuple[str, Node]]:
        """Every path of a tree with its node: folders before what is in them, names in order.

        `enter` may be asked which folders to go into. Unsupported if there are absurdly many.
        """
        if enter is None:
            self.refuse_endless(tree)  # before anything is done with the first of them
        for n, found in enumerate(self._walk(tree, "", 0, enter)):
            if n >= PATHS_MAX:
                raise _endless()
            yield found

    def _walk(
        self, tree: str, prefix: str, depth: int, enter: Callable[[str], bool] | None
    ) -> Iterator[tuple[str, Node]]:
        if depth > DEPTH_MAX:
            raise Corrupt(f"manifest {tree}", f"{prefix!r:.100} lies too deep")
        for node in self.nodes(tree):
            path = prefix + node.name
            yield path, node
            if node.is_folder and (enter is None or enter(path)):
                yield from self._walk(node.ref, path + "/", depth + 1, enter)

    def refuse_endless(self, tree: str | None) -> None:
        """Unsupported if a tree has more paths than can be gone through.

        Each manifest is looked at once, however often it is named: they are counted, not walked.
        """
        counts: dict[str, int] = {}
        todo = [] if tree is None else [(tree, 0)]
        while todo:
            manifest, depth = todo[-1]
            if depth > DEPTH_MAX:
                raise Corrupt(f"manifest {manifest}", "it lies too deep")
            below = [node.ref for node in self.nodes(manifest) if node.is_folder]
            new = [ref for ref in dict.fromkeys(below) if ref not in counts]
            if new:
                todo += [(ref, depth + 1) for ref in new]
                continue
            todo.pop()
            counts[manifest] = len(self.nodes(manifest)) + sum(counts[ref] for ref in below)
            if counts[manifest] > PATHS_MAX:
                raise _endless()

    def find(self, tree: str, path: str) -> Node | None:
        """The node at a path, read along it; None if there is none."""
        node: Node | None = None
        for name in path.split("/"):
            if node is not None and not node.is_folder:
                return None
            node = next((n for n in self.nodes(tree) if n.name == name), None)
            if node is None:
                return None
            tree = node.ref
        return node

    def read(self, node: Node) -> bytes:
        """The bytes of a file. Corrupt if they are missing or not the ones that were stored."""
        data = self.data(node.ref, node.name)
        # Its hash says that they are these bytes, but a manifest may tell another size of them.
        if len(data) != node.size:
            text = f"{node.name!r} should have {node.size:,} bytes, but has {len(data):,}"
            raise Corrupt(f"blob {node.ref}", text)
        return data

    def data(self, ref: str, name: str) -> bytes:
        """Bytes by their hash alone; `name` is for the error."""
        try:
            data = self._engine.get_blob(ref)
        except NotFound:
            raise Corrupt(f"blob {ref}", f"the contents of {name!r} are missing") from None
        if digest(data) != ref:
            raise Corrupt(f"blob {ref}", "its bytes do not match its hash")
        return data

    def missing(self, refs: Iterable[str]) -> set[str]:
        """Those of the blobs that the store does not have."""
        wanted = set(refs)
        return wanted - self._engine.has_blobs(wanted)

    def blobs(self, tree: str) -> list[str]:
        """Every blob that a tree is made of, once; none if it is not, or not all, there."""
        found: dict[str, None] = {}
        todo = [tree]
        while todo:
            manifest = todo.pop()
            if manifest in found:
                continue
            found[manifest] = None
            try:
                nodes = self.nodes(manifest)
            except Corrupt:
                return []
            found.update((node.ref, None) for node in nodes if node.is_file)
            todo += [node.ref for node in nodes if node.is_folder]
        return list(found) if self._engine.has_blobs(found) >= found.keys() else []


def _endless() -> Unsupported:
    return Unsupported(f"the stored tree has over {PATHS_MAX:,} paths")


class WorkingTrees(Trees):
    """The trees of a store, and the one that a survey saw; its files are read from the disk."""

    def __init__(self, engine: Engine, survey: Survey) -> None:
        super().__init__(engine)
        self._root = survey.root
        self._left_out = {item.path: item for item in survey.left_out}
        self._here: dict[str, list[Node]] = {}
        self._paths: dict[str, str] = {}  # contents → where they are
        for folder in survey.all_folders():
            self._here[folder.manifest] = folder.nodes
            files = (file for file in folder.files if file.kind != "link")
            self._paths |= {file.ref: folder.path + file.name for file in files}

    def nodes(self, manifest: str) -> list[Node]:
        found = self._here.get(manifest)
        return super().nodes(manifest) if found is None else found

    def data(self, ref: str, name: str) -> bytes:
        # What the store has goes first: the disk may have changed since it was looked at.
        path = self._paths.get(ref)
        if path is None or self._engine.has_blobs([ref]):
            return super().data(ref, name)
        data = _read(self._root, path)
        if data is None or digest(data) != ref:
            text = f"{path!r} was changed while it was compared; compare it again"
            raise Conflict(text, field="files", expected=ref, actual=path)
        return data

    def told(self, one: Difference) -> Difference:
        """A file that is there, but that no snapshot can take, is not one that was removed."""
        path = one.path if one.change == "removed" else ""
        while path and path not in self._left_out:
            path = path.rpartition("/")[0]  # of a folder above it that cannot be entered
        if not path:
            return one
        return Difference(
            change="modified",
            path=one.path,
            old_kind=one.old_kind,
            old_size=one.old_size,
            old_ref=one.old_ref,
            new_size=self._left_out[path].size,
        )


def _read(root: str, path: str) -> bytes | None:
    """A file of the tree, through no link; None if it cannot be read."""
    above, _, name = path.rpartition("/")
    try:
        top = open_root(root)
        try:
            folder = open_below(top, above)
        finally:
            os.close(top)
        try:
            descriptor = os.open(name, FILE, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(descriptor, "rb") as file:
            look = os.fstat(descriptor)
            return file.read(look.st_size) if stat.S_ISREG(look.st_mode) else None
    except OSError:
        return None
