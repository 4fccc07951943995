"""A tree that is taken while something fails, and what must hold of store and tree afterwards."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from faults.points import whole
from faults.stores import Image, Kind, load, store
from snapshots import trees
from snapshots.trees import Spec

from clew.core.engine import Engine
from clew.core.errors import ClewError, NotFound
from clew.snapshots import scan
from clew.snapshots.model import Snapshot
from clew.snapshots.tree import Trees
from clew.store import Store
from clew.thread import Thread

HOUR_NS = 3_600_000_000_000
LARGE = random.Random(5).randbytes(120_000)
TOP = "."  # how a snapshot names the top folder itself

BEFORE: Spec = {
    ".gitignore": b"*.log\n",
    "a.txt": b"one",
    "gone/old.txt": b"old",
    "large": LARGE,
    "link": ("link", "a.txt"),
    "mixed/.clewignore": b"/skip\n",
    "mixed/m.txt": b"m",
    "run.sh": ("x", b"#!/bin/sh\n"),
    "same/deep/x.txt": b"x",
    "same/kept.txt": b"kept" * 50,
    "same/l": ("link", "../a.txt"),
    "empty": None,
}
AFTER: Spec = {
    **{name: value for name, value in BEFORE.items() if not name.startswith("gone")},
    "a.txt": b"two, and longer",
    "link": ("link", "same"),
    "mixed/m.txt": b"changed in its place",
    "new/copy": LARGE,
    "new/n.txt": LARGE[::-1],
    "run.sh": b"#!/bin/sh\n",
    "same/kept.txt": b"kept" * 50,
}
IGNORED: Spec = {"x.log": b"log", "mixed/skip": b"skipped"}
IGNORED_BY = {"x.log": ".gitignore", "mixed/skip": "mixed/.clewignore"}


# --- trees ----------------------------------------------------------------------------------


def make(tree: Path) -> None:
    trees.write(tree, BEFORE | IGNORED)


def change(tree: Path) -> None:
    """From BEFORE to AFTER, leaving alone what is in both."""
    (tree / "gone/old.txt").unlink()
    (tree / "gone").rmdir()
    (tree / "link").unlink()
    trees.add(tree, {name: value for name, value in AFTER.items() if BEFORE.get(name) != value})


Prints = dict[str, tuple[object, ...]]


def prints(tree: Path) -> Prints:
    """Everything about a tree that a take might touch; reading changes the time of reading."""
    found: Prints = {}
    for path in (tree, *sorted(tree.rglob("*"))):
        look = path.lstat()
        data = os.readlink(path) if path.is_symlink() else None
        if stat.S_ISREG(look.st_mode):
            data = path.read_bytes()  # type: ignore[assignment]
        times = look.st_mtime_ns, look.st_ctime_ns
        found[str(path)] = (look.st_mode, look.st_ino, look.st_nlink, look.st_size, *times, data)
    return found


def held(engine: Engine, snapshot: Snapshot) -> Spec:
    """What a snapshot holds, read from the store byte by byte, in the words of a spec."""
    found: Spec = {}
    stored = Trees(engine)
    for path, node in stored.walk(snapshot.tree):
        if node.is_folder:
            found[path] = None
        elif node.kind == "link":
            found[path] = ("link", node.ref)
        else:
            data = stored.read(node)
            assert len(data) == node.size, f"{path} has another size than is told"
            found[path] = ("x", data) if node.kind == "executable" else data
    return found


@contextmanager
def later() -> Iterator[None]:
    """Every file was there long ago, so that the cache trusts what it knows."""
    real = scan.now_ns

    def now_ns() -> int:
        return real() + HOUR_NS

    with mock.patch.object(scan, "now_ns", now_ns):
        yield


# --- what must hold ---------------------------------------------------------------------------


def taken_again(engine: Engine, tree: Path) -> str | None:
    """Whether the next take is right; without the thread there is nothing to be taken for."""
    try:
        thread = Store(engine).get("t")
    except NotFound:
        return None
    problem = problem_of(engine, thread.snapshots.take(tree))
    return None if problem is None else f"the next take is not right: {problem}"


def problem_of(engine: Engine, snapshot: Snapshot, tolerant: bool = False) -> str | None:
    """What is wrong with a snapshot of the tree as it has become.

    `tolerant`: what could not be read may be missing, if it is named.
    """
    expected, found = trees.whole(AFTER), held(engine, snapshot)
    left = {item.path: item.reason for item in snapshot.left_out}
    if not tolerant and left:
        return f"left out: {left}"
    if set(left.values()) - {"unreadable"}:
        return f"left out for no such reason: {left}"
    for path, value in found.items():
        if path not in expected and IGNORED_BY.get(path) not in left:
            return f"{path} does not belong to it"
        if (expected | IGNORED)[path] != value:
            return f"the contents of {path} are wrong"
        if path in left and value is not None:
            return f"{path} is there, and left out"
    for path in set(expected) - set(found):
        above = [str(folder) for folder in Path(path).parents]
        if not left.keys() & {path, *above}:
            return f"{path} is missing, and nobody says so"
    known = {TOP, *expected, *IGNORED}
    return None if left.keys() <= known else f"left out, and never there: {left}"


# --- a store beside a tree ------------------------------------------------------------------


@dataclass(frozen=True)
class Ending:
    """How takes ended: which were acknowledged, and how many more there may and must be."""

    acknowledged: frozenset[str] = frozenset()
    more_max: int = 0
    more_min: int = 0

    def __or__(self, other: Ending) -> Ending:
        return Ending(
            self.acknowledged | other.acknowledged,
            self.more_max + other.more_max,
            self.more_min + other.more_min,
        )


class Taking:
    """A store with one snapshot, or none yet, and the tree as it has become since."""

    def __init__(self, kind: Kind, folder: Path, *, fresh: bool = False) -> None:
        self.kind = kind
        self.place, self.tree = folder / "store", folder / "tree"
        folder.mkdir(parents=True, exist_ok=True)
        make(self.tree)
        with later(), kind.open(store({}, self.place)) as engine:
            thread = Store(engine).create("t")
            thread.append("user_message", "one", id="m1")
            self.earlier = set() if fresh else {thread.snapshots.take(self.tree).id}
        change(self.tree)
        self.template: Image = load(self.place)
        self.prints = prints(self.tree)

    def again(self) -> None:
        """The store as it was before the take."""
        store(self.template, self.place)

    def warm(self, engine: Engine) -> Thread:
        """Something acknowledged on the very handle that will meet the fault."""
        thread = Store(engine).get("t")
        thread.append("user_message", "two", id="m2")
        return thread

    def take(self, thread: Thread) -> Ending:
        try:
            return Ending(frozenset([thread.snapshots.take(self.tree).id]))
        except ClewError as error:
            return Ending(
                more_max=int(error.committed is not False), more_min=int(error.committed is True)
            )

    # --- what must hold ---

    def judge(self, ended: Ending, tolerant: bool = False) -> str | None:
        """`tolerant`: what could not be read may be missing, if it is named."""
        with later(), self.kind.open(self.place) as engine:
            problem = whole(engine) or self._listed(engine, ended, tolerant)
            problem = problem or taken_again(engine, self.tree) or whole(engine)
        if problem is None and prints(self.tree) != self.prints:
            return "the working tree was touched"
        return problem

    def _listed(self, engine: Engine, ended: Ending, tolerant: bool) -> str | None:
        thread = Store(engine).get("t")
        found = {snapshot.id: snapshot for snapshot in thread.snapshots.list()}
        told = {entry.id for entry in thread.path() if entry.kind == "snapshot"}
        if set(found) != told:
            return "there are snapshots without their entry, or entries without their snapshot"
        for id in self.earlier:
            if id not in found or held(engine, found[id]) != trees.whole(BEFORE):
                return "an earlier snapshot is not what it was"
        new = set(found) - self.earlier
        if not ended.acknowledged <= new:
            return f"{set(ended.acknowledged)} was acknowledged, and there are {new}"
        more = len(new - ended.acknowledged)
        if not ended.more_min <= more <= ended.more_max:
            return f"there are {more} more than were acknowledged, and it ended as {ended}"
        for id in new:
            problem = problem_of(engine, thread.snapshots.get(id), tolerant)
            if problem is not None:
                return f"it is not entirely there: {problem}"
        return None
