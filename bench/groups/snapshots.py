"""snapshots: a tree of files, beside git's index and restic, in one run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import clew
from bench import child, trees
from bench.figures import Figure, megabytes, milliseconds, ratio
from bench.progress import say
from bench.timing import seconds
from bench.workshop import Workshop
from clew.engines.shared.compression import pack
from clew.snapshots.model import Snapshot

_SMALL = (2_000, 20_000_000)
_LARGE = (50_000, 500_000_000)
_CHANGED = 10
_MEMORY_MB = 200
_TAKE = """
import sys, clew
with clew.open(sys.argv[1]) as store:
    store.create().snapshots.take(sys.argv[2])
"""


def measure(workshop: Workshop) -> Iterable[Figure]:
    for (files, size), rounds in ((_SMALL, 25), (_LARGE, 11)):
        say(f"growing a tree of {files:,} files")
        root = trees.grow(workshop.new_path().with_name("tree"), files, size)
        yield from _Tree(workshop, root, f"snapshots: {files:,} files").measure(rounds)


class _Tree:
    def __init__(self, workshop: Workshop, root: Path, name: str) -> None:
        self._workshop = workshop
        self._root = root
        self._name = name
        self._git = Git(workshop, root)
        self._restic = Restic(workshop, root) if shutil.which("restic") else None
        self._round = 0

    def measure(self, rounds: int) -> Iterable[Figure]:
        # The first snapshot of a tree that was just written would read its newest files twice.
        yield from self._first()
        store = self._workshop.open()
        self._thread = store.create()
        self._thread.append("user_message", {"role": "user", "content": "go"})
        self._take()
        self._git.take()
        yield from self._unchanged(rounds)
        yield from self._ten_changed(rounds)
        yield from self._restored(rounds)
        yield from self._growth(store)
        yield from self._memory()

    def _take(self) -> Snapshot:
        return self._thread.snapshots.take(self._root)

    def _first(self) -> Iterable[Figure]:
        theirs = seconds(self._git.take)
        with clew.open(self._workshop.new_path()) as store:
            thread = store.create()
            ours = seconds(lambda: thread.snapshots.take(self._root))
        yield ratio(f"{self._name}, first / git", [ours], [theirs], at_most=1.0)
        yield milliseconds(f"{self._name}, first", [ours])

    def _unchanged(self, rounds: int) -> Iterable[Figure]:
        ours, theirs = _turns(rounds, self._take, self._git.take)
        yield ratio(f"{self._name}, unchanged / git", ours, theirs, at_most=1.5)
        yield milliseconds(f"{self._name}, unchanged", ours)
        if self._restic is not None:
            self._restic.take()
            others = [seconds(self._restic.take) for _ in ours]
            yield ratio(f"{self._name}, unchanged / restic", ours, others, at_most=0.25)

    def _ten_changed(self, rounds: int) -> Iterable[Figure]:
        ours, theirs = [], []
        for _ in range(rounds):
            self._change()
            ours.append(seconds(self._take))
            theirs.append(seconds(self._git.take))
        yield ratio(f"{self._name}, ten changed / git", ours, theirs, at_most=1.5)
        yield milliseconds(f"{self._name}, ten changed", ours)

    def _restored(self, rounds: int) -> Iterable[Figure]:
        """Ten changed files back to a snapshot, by name on both sides; then a look at all files.

        What was done to them is known on both sides, as after every turn of an agent. Each
        begins with nothing left to be written, or the one that syncs would pay for the other.
        """
        ours, theirs, whole = [], [], []
        for _ in range(rounds):
            snapshot, tree = self._take(), self._git.take()
            changed = self._change()
            os.sync()
            theirs.append(seconds(lambda c=changed, t=tree: self._git.restore(t, c)))
            self._change(again=True)
            self._take()
            os.sync()
            names = [str(file.relative_to(self._root)) for file in changed]
            ours.append(seconds(lambda n=names, s=snapshot: self._restore(s, n)))
            self._change(again=True)
            whole.append(seconds(lambda s=snapshot: self._restore(s)))
        yield ratio(f"{self._name}, ten restored / git checkout", ours, theirs, at_most=1.0)
        yield milliseconds(f"{self._name}, ten restored", ours)
        yield milliseconds(f"{self._name}, ten restored, all looked at", whole)

    def _restore(self, snapshot: Snapshot, paths: list[str] | None = None) -> None:
        restored = self._thread.snapshots.restore(snapshot.id, self._root, paths)
        assert len(restored.plan.steps) == _CHANGED

    def _change(self, *, again: bool = False) -> list[Path]:
        self._round += not again
        return trees.change(self._root, _CHANGED, self._round)

    def _growth(self, store: clew.Store) -> Iterable[Figure]:
        """What a store of its own has grown by, when nothing else is written to it."""
        changed = self._change()
        stored = store.stats().blob_bytes, _size(store)
        self._take()
        grown = _size(store) - stored[1]
        packed = sum(len(pack(file.read_bytes()).data) for file in changed)
        yield ratio(f"{self._name}, growth / ten files packed", [grown], [packed], at_most=2.0)

    def _memory(self) -> Iterable[Figure]:
        ended = child.run(_TAKE, self._workshop.new_path(), self._root)
        yield megabytes(f"{self._name}, peak memory", ended.peak_megabytes, at_most=_MEMORY_MB)


def _turns(rounds: int, *sides: Callable[[], object]) -> tuple[list[float], list[float]]:
    for side in sides:
        side()
    ours, theirs = zip(
        *((seconds(sides[0]), seconds(sides[1])) for _ in range(rounds)), strict=True
    )
    return list(ours), list(theirs)


def _size(store: clew.Store) -> int:
    """The blobs as they are stored: the file itself grows in pages, and keeps room."""
    sql = "SELECT coalesce(sum(length(data)), 0) FROM blobs"
    with store.engine._connections.reader() as db:  # type: ignore[attr-defined]
        return int(db.execute(sql).get)


class Git:
    """The same tree in a scratch repository beside it."""

    def __init__(self, workshop: Workshop, root: Path) -> None:
        self._environment = {
            **os.environ,
            "GIT_DIR": str(workshop.new_path().with_name("scratch.git")),
            "GIT_WORK_TREE": str(root),
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(root.parent),
        }
        self._root = root
        self._run("init", "--quiet")

    def take(self) -> str:
        self._run("add", "-A")
        return self._run("write-tree").strip()

    def restore(self, tree: str, files: list[Path]) -> None:
        self._run("checkout", "--quiet", tree, "--", *map(str, files))

    def _run(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=self._root,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout


class Restic:
    def __init__(self, workshop: Workshop, root: Path) -> None:
        place = workshop.new_path().parent
        self._environment = {
            **os.environ,
            "RESTIC_REPOSITORY": str(place / "restic"),
            "RESTIC_PASSWORD": "none",
            "RESTIC_CACHE_DIR": str(place / "cache"),
        }
        self._root = root
        self._run("init")

    def take(self) -> None:
        self._run("backup", "--quiet", str(self._root))

    def _run(self, *arguments: str) -> None:
        subprocess.run(
            ["restic", *arguments], env=self._environment, capture_output=True, check=True
        )
