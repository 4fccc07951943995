"""What differs between two trees: folders with the same manifest are the same, and not entered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from clew.errors import Corrupt
from clew.snapshots.manifest import Node, sort_key
from clew.snapshots.model import Change, Difference
from clew.snapshots.renames import with_renames
from clew.snapshots.tree import DEPTH_MAX, Trees

_EMPTY: dict[str, Node] = {}


def diff_trees(
    trees: Trees,
    old: str | None,
    new: str | None,
    told: Callable[[Difference], Difference] | None = None,
) -> list[Difference]:
    """What became of each path on the way from one tree to another, in the order of paths.

    None stands for an empty tree. Folders are named only where they are empty: otherwise what
    lies in them says it all. A removed and an added file with the same contents, or with much
    of their text in common, are one that was renamed. `told` may put each one right before that.
    """
    found = list(_folder(trees, "", old, new))
    if told is not None:
        found = list(map(told, found))
    return sorted(with_renames(trees, found), key=lambda one: sort_key(one.path))


def _folder(trees: Trees, path: str, old: str | None, new: str | None) -> Iterator[Difference]:
    """`path` ends with a slash unless it is the top."""
    if old == new:
        return
    if path.count("/") > DEPTH_MAX:
        raise Corrupt(f"manifest {new or old}", f"{path!r:.100} lies too deep")
    before, after = _index(trees, old), _index(trees, new)
    for name in before.keys() | after.keys():
        yield from _name(trees, path + name, before.get(name), after.get(name))


def _index(trees: Trees, manifest: str | None) -> dict[str, Node]:
    return _EMPTY if manifest is None else {node.name: node for node in trees.nodes(manifest)}


def _name(trees: Trees, path: str, old: Node | None, new: Node | None) -> Iterator[Difference]:
    change = change_of(trees, old, new)
    if change is not None:
        yield difference(change, path, old, new)
    before = old.ref if old is not None and old.is_folder else None
    after = new.ref if new is not None and new.is_folder else None
    yield from _folder(trees, path + "/", before, after)


def change_of(trees: Trees, old: Node | None, new: Node | None) -> Change | None:
    """What is to be said of the path itself; None: nothing, or what is in it says it."""
    if old is None or new is None:
        node = old or new
        assert node is not None
        if node.is_folder and trees.nodes(node.ref):
            return None
        return "added" if old is None else "removed"
    if _sort(old) != _sort(new):
        return "type"
    if old.is_folder or (old.kind, old.ref) == (new.kind, new.ref):
        return None
    return "mode" if old.ref == new.ref else "modified"


def _sort(node: Node) -> str:
    """A file that becomes executable stays a file."""
    return "file" if node.is_file else node.kind


def difference(change: Change, path: str, old: Node | None, new: Node | None) -> Difference:
    return Difference(
        change=change,
        path=path,
        old_kind=None if old is None else old.kind,
        new_kind=None if new is None else new.kind,
        old_size=None if old is None else old.size,
        new_size=None if new is None else new.size,
        old_ref=None if old is None else old.ref,
        new_ref=None if new is None else new.ref,
    )


def below(differences: Iterable[Difference], path: str) -> list[Difference]:
    """Those that are about a path, or about something in it; "" is the top."""
    return [
        one
        for one in differences
        if not path
        or any(name and (name == path or name.startswith(path + "/")) for name in _names(one))
    ]


def _names(one: Difference) -> tuple[str, str]:
    return one.path, one.old_path or ""
