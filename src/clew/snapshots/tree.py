"""Reading stored trees: folder by folder, each manifest checked and read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from clew.codec import digest
from clew.engine import Engine
from clew.errors import Corrupt, NotFound
from clew.snapshots.manifest import MANIFEST_BYTES_MAX, Node, unpack

_KEPT_MAX = 4096
DEPTH_MAX = 256


class Trees:
    """The trees of a store. A manifest never changes, so those last read are remembered."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, list[Node]] = {}
        self._indexes: dict[str, dict[str, Node]] = {}

    def nodes(self, manifest: str) -> list[Node]:
        """What a folder holds. Corrupt if its manifest is missing or not what it should be."""
        found = self._known.get(manifest)
        if found is None:
            found = unpack(self._load(manifest), f"manifest {manifest}")
            self.remember(manifest, found)
        return found

    def remember(self, manifest: str, nodes: list[Node]) -> None:
        """What is in a folder, for whoever asks next; in the order of their names."""
        if len(self._known) >= _KEPT_MAX:
            self._known.clear()
        self._known[manifest] = nodes

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
        self,
        tree: str,
        prefix: str = "",
        depth: int = 0,
        enter: Callable[[str], bool] | None = None,
    ) -> Iterator[tuple[str, Node]]:
        """Every path of a tree with its node: folders before what is in them, names in order.

        `enter` may be asked which folders to go into.
        """
        if depth > DEPTH_MAX:
            raise Corrupt(f"manifest {tree}", f"{prefix!r:.100} lies too deep")
        for node in self.nodes(tree):
            path = prefix + node.name
            yield path, node
            if node.is_folder and (enter is None or enter(path)):
                yield from self.walk(node.ref, path + "/", depth + 1, enter)

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
        return self.data(node.ref, node.name)

    def data(self, ref: str, name: str) -> bytes:
        """The same by the hash alone; `name` is for the error."""
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
