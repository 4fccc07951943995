"""What a restore would do, worked out before anything is touched.

Two trees are compared folder by folder: the working tree as it was looked at, and the one that
is stored. Folders with the same manifest are the same and are not entered. Every other stored
tree of the same root is asked only about paths that differ: it says whether what is there now
is something that Clew could bring back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from clew.core.errors import Corrupt, InvalidInput, NotFound, Unsupported
from clew.snapshots.manifest import Node, name_problem
from clew.snapshots.model import Act, Plan, Snapshot, Step
from clew.snapshots.scan import Folder, Survey
from clew.snapshots.tree import DEPTH_MAX, Trees

Content = tuple[str, str]  # kind and ref
T = TypeVar("T")

# A few small manifests that name each other over and over are a tree without end.
PATHS_MAX = 1_000_000


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
    def step(self) -> Step:
        return Step(self.act, self.path, self.node.kind, self.node.size)


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


def plan(
    trees: Trees,
    snapshot: Snapshot,
    survey: Survey,
    known: Iterable[str],
    paths: Sequence[str] | None = None,
    *,
    noted: Iterable[str] = (),
) -> Plan:
    """What a restore of `snapshot` would do to the tree that `survey` saw.

    `known` are the trees of all snapshots that are kept of this root. `paths` limits it to
    these files and folders. `noted` are trees that were stored on the way to somewhere else:
    what they have is safe, but they do not make a file one of ours that may be deleted.
    """
    return work(trees, snapshot, survey, known, paths, noted=noted).plan


def work(
    trees: Trees,
    snapshot: Snapshot,
    survey: Survey,
    known: Iterable[str],
    paths: Selection | Sequence[str] | None = None,
    *,
    noted: Iterable[str] = (),
    again: bool = False,
) -> Work:
    """The same, with all that it takes to do it.

    `again`: it was begun before, so that a path which is nowhere any more is no mistake.
    """
    selection = paths if isinstance(paths, Selection) else Selection(paths)
    ours = _Known(trees, chain(known, [snapshot.tree]))
    planner = _Planner(trees, ours, _Known(trees, noted), selection)
    planner.left_out = _LeftOut(snapshot)
    planner.folder("", survey.top, snapshot.tree, needed=False)
    if not again:
        selection.check()
    actions = tuple(in_order(planner.actions))
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


def _steps(actions: Iterable[Action]) -> tuple[Step, ...]:
    """As people read them: by path, what is deleted before what takes its place."""
    ordered = sorted(actions, key=lambda action: (action.path, action.act != "delete"))
    return tuple(action.step for action in ordered)


def in_order(actions: Iterable[Action]) -> list[Action]:
    """As they are done: room is made from the bottom up, then filled from the top down.

    Links come last, so that none is there while something else is written.
    """
    return sorted(actions, key=_turn)


def _turn(action: Action) -> tuple[int, int, str]:
    depth = action.path.count("/")
    if action.act == "delete":
        return (1, -depth, action.path) if action.node.is_folder else (0, 0, action.path)
    if action.node.is_folder:
        return 2, depth, action.path
    return (4 if action.node.kind == "link" else 3), 0, action.path


def bounded(paths: Iterable[T]) -> Iterator[T]:
    """The paths of a stored tree, as long as there are not absurdly many."""
    for n, path in enumerate(paths):
        if n >= PATHS_MAX:
            raise Unsupported(f"the stored tree has over {PATHS_MAX:,} paths")
        yield path


class _LeftOut:
    """What was there when the target was taken, but that it does not have: nobody deletes that."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._paths = {item.path for item in snapshot.left_out}
        # Not all of them are noted by name, or the top could not be read: it may be any path.
        self._any = snapshot.left_out_count > len(snapshot.left_out) or "." in self._paths

    def holds(self, path: str) -> bool:
        """The path itself, or a folder above it that could not be read."""
        while path and not self._any:
            if path in self._paths:
                return True
            path = path.rpartition("/")[0]
        return self._any


# --- what Clew knows ---


class _Lazily(Generic[T]):
    """What an iterator gives, as often as one likes, and only as much of it as is looked at."""

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._got: list[T] = []

    def __iter__(self) -> Iterator[T]:
        n = 0
        while n < len(self._got) or self._more():
            yield self._got[n]
            n += 1

    def _more(self) -> bool:
        found = list(islice(self._source, 1))
        self._got += found
        return bool(found)


class _Known:
    """Every version of a path in the stored trees, in their order. What they share is read once."""

    def __init__(self, trees: Trees, tops: Iterable[str]) -> None:
        self._trees = trees
        self._folders: dict[str, _Lazily[str]] = {"": _Lazily(_once(tops))}

    def versions(self, path: str) -> Iterator[Node]:
        """Those that were found first come first: mostly one look is enough."""
        above, _, name = path.rpartition("/")
        found = (self._index(manifest).get(name) for manifest in self._manifests(above))
        return (node for node in found if node is not None)

    def has(self, path: str, wanted: Content) -> bool:
        return any(content(node) == wanted for node in self.versions(path))

    def has_folder(self, path: str) -> bool:
        return any(node.is_folder for node in self.versions(path))

    def _manifests(self, path: str) -> Iterable[str]:
        """Those that a folder has had, each once."""
        if path not in self._folders:
            self._folders[path] = _Lazily(self._distinct(path))
        return self._folders[path]

    def _distinct(self, path: str) -> Iterator[str]:
        return _once(node.ref for node in self.versions(path) if node.is_folder)

    def _index(self, manifest: str) -> dict[str, Node]:
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


# --- comparing ---


class _Planner:
    def __init__(self, trees: Trees, known: _Known, noted: _Known, selection: Selection) -> None:
        self._trees = trees
        self._known = known
        self._noted = noted
        self.selection = selection
        self.actions: list[Action] = []
        self.unchanged = 0
        self.foreign: set[str] = set()
        self.kept: set[str] = set()
        self.blocked: set[str] = set()
        self.left_out: _LeftOut | None = None

    def folder(self, path: str, here: Folder | None, there: str | None, *, needed: bool) -> bool:
        """Compare a folder with a stored one. True if nothing of what is here will be left.

        `path` ends with a slash unless it is the top. `needed`: its place is for something else.
        """
        if path.count("/") > DEPTH_MAX:
            raise Corrupt(f"manifest {there}", f"{path!r:.100} lies too deep")
        if here is not None and here.manifest == there and self.selection.holds(path[:-1]):
            self.unchanged += _count(here)
            return False
        mine = {} if here is None else {node.name: node for node in here.nodes}
        theirs = {} if there is None else self._trees.index(there)
        subs = {} if here is None else {sub.name: sub for sub in here.folders}
        names, wanted = mine.keys() | theirs.keys(), self.selection.names_in(path[:-1])
        gone = wanted is None or mine.keys() <= wanted
        for name in sorted(names if wanted is None else names & wanted):
            old, new = mine.get(name), theirs.get(name)
            gone &= self._name(path + name, old, new, subs.get(name), needed)
        left_out = [item.path for item in here.left_out] if here is not None else []
        if needed:
            self.blocked |= set(left_out)
        return gone and not left_out

    def _name(
        self, path: str, old: Node | None, new: Node | None, here: Folder | None, needed: bool
    ) -> bool:
        """Compare one name. True if what is here now will be gone."""
        folders = [node for node in (old, new) if node is not None and node.is_folder]
        if not self.selection.covers(path) and not folders:
            return False  # what was asked for lies below it, and there is no below
        if old is None:
            return self._create(path, new)
        if new is None:
            return self._remove(path, old, here, needed)
        if old.is_folder and new.is_folder:
            return self.folder(path + "/", here, new.ref, needed=False)
        if old.is_folder or new.is_folder:
            return self._swap(path, old, new, here)
        if content(old) == content(new):
            self.unchanged += 1
            return False
        self._judge(path, old, needed=True)
        same = old.is_file and new.is_file and old.ref == new.ref
        self.actions.append(Action("mode" if same else "overwrite", path, old, new))
        return False

    def _create(self, path: str, new: Node | None) -> bool:
        assert new is not None
        if new.is_folder and not self.selection.covers(path) and not self._leads_into(path, new):
            return True
        self.actions.append(Action("create", path, None, new))
        if len(self.actions) > PATHS_MAX:
            raise Unsupported(f"the stored tree has over {PATHS_MAX:,} paths")
        if new.is_folder:
            self.folder(path + "/", None, new.ref, needed=False)
        return True

    def _leads_into(self, path: str, new: Node) -> bool:
        """Whether a folder that was not asked for holds something that was."""
        ways = (below[len(path) + 1 :] for below in self.selection.below(path))
        return any(self._trees.find(new.ref, way) is not None for way in ways)

    def _remove(self, path: str, old: Node, here: Folder | None, needed: bool) -> bool:
        """Something that the target does not have. It goes if it could be brought back."""
        if old.is_folder:
            gone = self.folder(path + "/", here, None, needed=needed)
            if not self.selection.covers(path) or not gone:
                return False
            if not needed and not self._known.has_folder(path):
                self.kept.add(path)
                return False
        elif not needed and self.left_out is not None and self.left_out.holds(path):
            self.kept.add(path)
            return False
        elif not self._judge(path, old, needed=needed):
            return False
        self.actions.append(Action("delete", path, old))
        return True

    def _swap(self, path: str, old: Node, new: Node, here: Folder | None) -> bool:
        """A folder becomes something else, or something else a folder."""
        if old.is_folder and not self.selection.covers(path):
            self.folder(path + "/", here, None, needed=False)  # only what lies in it was asked for
            return False
        if old.is_folder:
            self.folder(path + "/", here, None, needed=True)
        else:
            if not self.selection.covers(path) and not self._leads_into(path, new):
                return False
            self._judge(path, old, needed=True)
        self.actions.append(Action("delete", path, old))
        return self._create(path, new)

    def _judge(self, path: str, old: Node, *, needed: bool) -> bool:
        """Whether a file may go; notes it as kept or foreign. Foreign ones go only by force."""
        if self._known.has(path, content(old)):
            return True
        if not needed and not any(True for _ in self._known.versions(path)):
            self.kept.add(path)
            return False
        if not self._noted.has(path, content(old)):
            self.foreign.add(path)
        return True


def _count(here: Folder) -> int:
    return len(here.files) + sum(_count(sub) for sub in here.folders)


# --- the paths that a restore is limited to ---


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
        self._names: dict[str, set[str]] = {}
        for path in (self._paths or set()) | self._above:
            self._lead_to(path)
        self._met: set[str] = set()

    def _lead_to(self, path: str) -> None:
        while path:
            folder, _, name = path.rpartition("/")
            self._names.setdefault(folder, set()).add(name)
            path = folder

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
    return {path for path in paths if not paths & set(_parents(path))}


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]
