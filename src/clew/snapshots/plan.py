"""What a restore would do, worked out before anything is touched.

Two trees are compared folder by folder: the working tree as it was looked at, and the one that
is stored. Folders with the same manifest are the same and are not entered. Every other stored
tree of the same root is asked only about paths that differ: it says whether what is there now
is something that Clew could bring back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from clew.core.errors import Corrupt, InvalidInput, NotFound
from clew.snapshots.manifest import FILE_KINDS, Node, name_problem
from clew.snapshots.model import Act, Plan, PlannedStep, Snapshot
from clew.snapshots.survey import Folder, Survey
from clew.snapshots.tree import DEPTH_MAX, Trees

_LOOKED_AT = 10_000  # actions, before it is asked whether they come to an end

Content = tuple[str, str]  # kind and ref
T = TypeVar("T")


class Action(Struct, frozen=True):
    """A step with all that it takes: what must be there now, and what will be."""

    act: Act
    path: str
    old: Node | None = None
    new: Node | None = None

    @property
    def node(self) -> Node:
        found = self.new or self.old
        assert found is not None
        return found

    @property
    def step(self) -> PlannedStep:
        return PlannedStep(self.act, self.path, self.node.kind, self.node.size)


class Work(Struct, frozen=True, kw_only=True):
    """A plan to be shown, and its actions in the order in which they must be done."""

    plan: Plan
    actions: tuple[Action, ...]

    def without(self, dropped: set[int], blocked: Iterable[str]) -> Work:
        """The same less some actions (by index): they are not needed, or must not be done."""
        gone = [action for n, action in enumerate(self.actions) if n in dropped]
        left = [action for n, action in enumerate(self.actions) if n not in dropped]
        same = sum(1 for action in gone if action.act == "create" and not action.node.is_folder)
        plan = replace(
            self.plan,
            steps=_steps(left),
            unchanged=self.plan.unchanged + same,
            blocked=tuple(sorted({*self.plan.blocked, *blocked})),
        )
        return Work(plan=plan, actions=tuple(left))


def work(
    trees: Trees,
    snapshot: Snapshot,
    survey: Survey,
    known: Iterable[str],
    paths: Selection | Sequence[str] | None = None,
    *,
    noted: Iterable[str] = (),
    again: bool = False,
    sweeps: bool = False,
    force: bool = False,
) -> Work:
    """What a restore of `snapshot` would do to the tree that `survey` saw.

    `known` are the trees of all snapshots that are kept of this root. `paths` limits it to
    these files and folders. `noted` are trees that were stored on the way to somewhere else:
    what they have is safe, but they do not make a file one of ours that may be deleted.
    `again`: it was begun before, so that a path which is nowhere any more is no mistake.
    `sweeps`: what others have added goes as well, if it is in a tree that was noted; with `force`,
    also if it is in none yet.
    """
    selection = paths if isinstance(paths, Selection) else Selection(paths)
    ours = _Versions(trees, chain(known, [snapshot.tree]))
    left_out = _LeftOut(snapshot)
    others = _Others(_Versions(trees, noted), sweeps, force)
    planner = _Planner(trees, ours, others, selection, left_out, snapshot.tree)
    planner.folder("", survey.top, snapshot.tree, needed=False)
    # Only after the comparison does the selection know which of its paths are nowhere.
    if not again:
        selection.check()
    actions = tuple(sorted(planner.actions, key=_in_order))
    made = Plan(
        snapshot=snapshot.id,
        root=survey.root,
        steps=_steps(actions),
        unchanged=planner.unchanged,
        foreign=tuple(sorted(planner.foreign)),
        kept=tuple(sorted(planner.kept)),
        blocked=tuple(sorted(planner.blocked)),
    )
    return Work(plan=made, actions=actions)


def _steps(actions: Iterable[Action]) -> tuple[PlannedStep, ...]:
    """As people read them: by path, what is deleted before what takes its place."""
    ordered = sorted(actions, key=lambda action: (action.path, action.act != "delete"))
    return tuple(action.step for action in ordered)


def _in_order(action: Action) -> tuple[int, int, str]:
    """Room is made from the bottom up, then filled from the top down.

    Links come last, so that none is there while something else is written.
    """
    depth, kind = action.path.count("/"), action.node.kind
    if action.act == "delete":
        return (1, -depth, action.path) if kind == "folder" else (0, 0, action.path)
    if kind == "folder":
        return 2, depth, action.path
    return (4 if kind == "link" else 3), 0, action.path


class Selection:
    """The paths that a restore is limited to, with all below them; None stands for everything.

    `above` are places on the way to them that count as well, but only themselves: a folder that
    had to be made for a path, or a file that had to make room for it.
    """

    def __init__(self, paths: Sequence[str] | None, above: Iterable[str] = ()) -> None:
        if isinstance(paths, str):
            raise InvalidInput("paths", "must be a list of paths")
        self._paths = None if paths is None else _outermost({_checked(path) for path in paths})
        self._above = {_checked(path) for path in above}
        self._names: dict[str, set[str]] = {}  # folder → the names in it that lead to a path
        for path in (self._paths or set()) | self._above:
            while path:
                folder, _, name = path.rpartition("/")
                self._names.setdefault(folder, set()).add(name)
                path = folder
        self._met: set[str] = set()

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The outermost ones, in order; None for everything."""
        return None if self._paths is None else tuple(sorted(self._paths))

    def holds(self, path: str) -> bool:
        """Whether a path is one of them, or lies in one of them."""
        if self._paths is None:
            return True
        while path and path not in self._paths:
            path = path.rpartition("/")[0]
        if path:
            self._met.add(path)
        return bool(path)

    def not_held(self, paths: Iterable[str]) -> list[str]:
        """Those of the paths that are none of them, each once and in order."""
        return sorted({path for path in paths if not self.holds(path)})

    def covers(self, path: str) -> bool:
        """Whether a path may be changed itself, whatever becomes of what lies in it."""
        return self.holds(path) or path in self._above

    def leads_to(self, path: str) -> bool:
        """Whether one of them lies below a path."""
        return path in self._names

    def names_in(self, folder: str) -> set[str] | None:
        """The names in a folder that lead to one of them; None: all that are in it."""
        return None if self.holds(folder) else self._names.get(folder, set())

    def below(self, folder: str) -> list[str]:
        """Those that lie below a folder."""
        return [path for path in self._paths or () if path.startswith(folder + "/")]

    def check(self) -> None:
        """NotFound for a path that was met neither here nor there."""
        for path in sorted((self._paths or set()) - self._met):
            raise NotFound("file", path)


def _checked(path: str) -> str:
    if not isinstance(path, str):
        raise InvalidInput("paths", f"must be text, not {path!r}")
    path = path.rstrip("/") if path != "/" else path
    if path in ("", "."):
        return ""
    for name in path.split("/"):
        problem = name_problem(name)
        if problem is not None:
            raise InvalidInput("paths", f"{path!r} does not lie inside of the root: {problem}")
    return path


def _outermost(paths: set[str]) -> set[str] | None:
    """Without those that lie in another one; None if the top itself is among them."""
    if "" in paths:
        return None
    parents = {path: accumulate(path.split("/")[:-1], "{}/{}".format) for path in paths}
    return {path for path in paths if not any(above in paths for above in parents[path])}


class _LeftOut:
    """What was there when the target was taken, but that it does not have: it is not deleted."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._paths = {item.path for item in snapshot.left_out}
        # Not all of them are noted by name, or the top could not be read: then it may be any path.
        self._any = snapshot.left_out_count > len(snapshot.left_out) or "." in self._paths

    def holds(self, path: str) -> bool:
        """The path itself, or a folder above it that could not be read."""
        while path and not self._any:
            if path in self._paths:
                return True
            path = path.rpartition("/")[0]
        return self._any


class _Planner:
    """Compares two trees, and notes what it finds."""

    def __init__(
        self,
        trees: Trees,
        known: _Versions,
        others: _Others,
        selection: Selection,
        left_out: _LeftOut,
        target: str,
    ) -> None:
        self._trees = trees
        self._target = target
        self._known = known
        self._others = others
        self._left_out = left_out
        self._selection = selection
        self.actions: list[Action] = []
        self.unchanged = 0
        self.foreign: set[str] = set()
        self.kept: set[str] = set()
        self.blocked: set[str] = set()

    def folder(self, path: str, here: Folder | None, there: str | None, *, needed: bool) -> bool:
        """Compare a folder with a stored one. True if nothing of what is here will be left.

        `path` ends with a slash unless it is the top. `needed`: its place is for something else.
        """
        if path.count("/") > DEPTH_MAX:
            raise Corrupt(f"manifest {there}", f"{path!r:.100} lies too deep")
        if here is not None and here.manifest == there and self._selection.holds(path[:-1]):
            self.unchanged += _count(here)  # without reading a single manifest
            return False
        mine = {} if here is None else {node.name: node for node in here.nodes}
        theirs = {} if there is None else self._trees.index(there)
        subs = {} if here is None else {sub.name: sub for sub in here.folders}
        names, wanted = mine.keys() | theirs.keys(), self._selection.names_in(path[:-1])
        gone = wanted is None or mine.keys() <= wanted
        for name in sorted(names if wanted is None else names & wanted):
            old, new = mine.get(name), theirs.get(name)
            gone &= self._name(path + name, old, new, subs.get(name), needed)
        # What no snapshot can hold would be lost for good: it stays, and keeps its folder.
        left_out = [item.path for item in here.left_out] if here is not None else []
        if needed:
            self.blocked |= set(left_out)
        return gone and not left_out

    def _name(
        self, path: str, old: Node | None, new: Node | None, here: Folder | None, needed: bool
    ) -> bool:
        """Compare one name. True if what is here now will be gone."""
        was_folder = old is not None and old.kind == "folder"
        will_be_folder = new is not None and new.kind == "folder"
        if not self._selection.covers(path) and not was_folder and not will_be_folder:
            return False  # what was asked for lies below it, and there is no below
        if old is None:
            return self._create(path, new)
        if new is None:
            return self._remove(path, old, here, needed)
        if was_folder and will_be_folder:
            return self.folder(path + "/", here, new.ref, needed=False)
        if was_folder or will_be_folder:
            return self._swap(path, old, new, here)
        if content(old) == content(new):
            self.unchanged += 1
            return False
        self._judge(path, old, needed=True)
        # The same bytes need not be written again, only the executable bit is set.
        same = old.ref == new.ref and old.kind in FILE_KINDS and new.kind in FILE_KINDS
        self.actions.append(Action("mode" if same else "overwrite", path, old, new))
        return False

    def _create(self, path: str, new: Node | None) -> bool:
        assert new is not None
        if new.is_folder and not self._selection.covers(path) and not self._leads_into(path, new):
            return True
        self.actions.append(Action("create", path, None, new))
        if len(self.actions) == _LOOKED_AT:
            self._trees.refuse_endless(self._target)
        if new.is_folder:
            self.folder(path + "/", None, new.ref, needed=False)
        return True

    def _leads_into(self, path: str, new: Node) -> bool:
        """Whether a folder that was not asked for holds something that was."""
        ways = (below[len(path) + 1 :] for below in self._selection.below(path))
        return any(self._trees.find(new.ref, way) is not None for way in ways)

    def _remove(self, path: str, old: Node, here: Folder | None, needed: bool) -> bool:
        """Something that the target does not have. It goes if it could be brought back."""
        if old.is_folder:
            gone = self.folder(path + "/", here, None, needed=needed)
            if not self._selection.covers(path) or not gone:
                return False
            # An empty folder that no snapshot has had is not ours to remove.
            ours = needed or self._known.has_folder(path)
            if not ours and not self._others.may_go(self._others.noted.has_folder(path)):
                self.kept.add(path)
                return False
        elif not needed and self._left_out.holds(path):
            self.kept.add(path)
            return False
        elif not self._judge(path, old, needed=needed):
            return False
        self.actions.append(Action("delete", path, old))
        return True

    def _swap(self, path: str, old: Node, new: Node, here: Folder | None) -> bool:
        """A folder becomes something else, or something else a folder."""
        if old.is_folder and not self._selection.covers(path):
            self.folder(path + "/", here, None, needed=False)  # only what lies in it was asked for
            return False
        if old.is_folder:
            self.folder(path + "/", here, None, needed=True)
        else:
            if not self._selection.covers(path) and not self._leads_into(path, new):
                return False
            self._judge(path, old, needed=True)
        self.actions.append(Action("delete", path, old))
        return self._create(path, new)

    def _judge(self, path: str, old: Node, *, needed: bool) -> bool:
        """Whether a file may go; notes it as kept or foreign. Foreign ones go only by force."""
        # Under this very path: a copy of it elsewhere would not be found by one who looks for it.
        if self._known.has(path, content(old)):
            return True
        noted = self._others.noted.has(path, content(old))
        ours = needed or any(True for _ in self._known.versions(path))
        if not ours and not self._others.may_go(noted):
            self.kept.add(path)
            return False
        if not noted:
            self.foreign.add(path)
        return True


class _Others(Struct, frozen=True):
    """What others have added, as far as it was stored on the way; and whether it goes."""

    noted: _Versions
    sweeps: bool
    force: bool

    def may_go(self, noted: bool) -> bool:
        return self.sweeps and (noted or self.force)


def _count(here: Folder) -> int:
    return len(here.files) + sum(_count(sub) for sub in here.folders)


class _Lazily(Generic[T]):
    """What an iterator gives, as often as one likes, and only as much of it as is looked at."""

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._got: list[T] = []

    def __iter__(self) -> Iterator[T]:
        n = 0
        while True:
            if n == len(self._got):
                self._got += islice(self._source, 1)
            if n == len(self._got):
                return
            yield self._got[n]
            n += 1


class _Versions:
    """Every version of a path in the stored trees, in their order. What they share is read once."""

    def __init__(self, trees: Trees, tops: Iterable[str]) -> None:
        self._trees = trees
        self._folders = {"": _Lazily(map(self._load, _once(tops)))}

    def versions(self, path: str) -> Iterator[Node]:
        """Those that were found first come first: mostly one look is enough."""
        above, _, name = path.rpartition("/")
        if above not in self._folders:
            manifests = _once(node.ref for node in self.versions(above) if node.is_folder)
            self._folders[above] = _Lazily(map(self._load, manifests))
        found = (nodes.get(name) for nodes in self._folders[above])
        return (node for node in found if node is not None)

    def has(self, path: str, wanted: Content) -> bool:
        return any(content(node) == wanted for node in self.versions(path))

    def has_folder(self, path: str) -> bool:
        return any(node.is_folder for node in self.versions(path))

    def _load(self, manifest: str) -> dict[str, Node]:
        try:
            return self._trees.index(manifest)
        except Corrupt:
            return {}  # a damaged snapshot knows nothing: more is foreign, nothing is lost


def _once(items: Iterable[str]) -> Iterator[str]:
    """Each of them once, in their order, and read no further than one looks."""
    seen: set[str] = set()
    for item in items:
        if item not in seen:
            seen.add(item)
            yield item


def content(node: Node) -> Content:
    return node.kind, node.ref
