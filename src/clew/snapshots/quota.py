"""How much snapshots hold, and letting go of the oldest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from clew.core.errors import Corrupt, InvalidInput
from clew.core.model import ThreadInfo
from clew.snapshots import catalogue, intent
from clew.snapshots.model import Snapshot, SnapshotStats
from clew.snapshots.take import forget_dropped
from clew.snapshots.tree import Trees

if TYPE_CHECKING:
    from clew.store import Store
    from clew.thread import Thread


class Holding:
    """The contents that some trees hold together: each blob once, however many trees name it."""

    def __init__(self, trees: Trees) -> None:
        self._trees = trees
        self._uses: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        self.distinct_bytes = 0

    def add(self, tree: str) -> None:
        todo = [tree]
        while todo:
            hash = todo.pop()
            self._uses[hash] += 1
            if self._uses[hash] == 1:
                self.distinct_bytes += self._sizes.get(hash, 0)
                todo += self._below(hash)

    def remove(self, tree: str) -> None:
        # Below a manifest only when the last tree that names it goes: the same way as it came.
        todo = [tree]
        while todo:
            hash = todo.pop()
            self._uses[hash] -= 1
            if self._uses[hash] == 0:
                self.distinct_bytes -= self._sizes.get(hash, 0)
                todo += self._below(hash)

    def _below(self, hash: str) -> list[str]:
        """What a manifest names; of a file, and of what is damaged, nothing."""
        if hash in self._sizes:
            return []
        try:
            nodes = self._trees.nodes(hash)
        except Corrupt:
            return []
        self._sizes |= {node.ref: node.size for node in nodes if node.is_file}
        return [node.ref for node in nodes if node.kind != "link"]


def stats(trees: Trees, snapshots: Iterable[Snapshot]) -> SnapshotStats:
    held, kept = Holding(trees), list(snapshots)
    for snapshot in kept:
        held.add(snapshot.tree)
    return SnapshotStats(
        snapshots=len(kept),
        pinned=sum(snapshot.pinned for snapshot in kept),
        files=sum(snapshot.files for snapshot in kept),
        size_bytes=sum(snapshot.size_bytes for snapshot in kept),
        distinct_bytes=held.distinct_bytes,
    )


def limit(thread: Thread, keep_last: int | None, keep_bytes: int | None) -> list[Snapshot]:
    """Let go of the oldest until both limits hold, or only those are left that must stay."""
    if keep_last is None and keep_bytes is None:
        raise InvalidInput("keep_last", "say how much shall be kept: keep_last or keep_bytes")
    for name, value in (("keep_last", keep_last), ("keep_bytes", keep_bytes)):
        if value is not None and (type(value) is not int or value < 0):
            raise InvalidInput(name, f"must be a number from 0 on, not {value!r}")
    info = thread.info
    kept = sorted(catalogue.own(info), key=lambda one: (one.time_us, one.id))
    free = _free(thread.store, info, kept)
    dropped = _over(thread.snapshots.trees, kept, free, keep_last, keep_bytes)
    if dropped:
        thread.set_facts({catalogue.PREFIX + snapshot.id: None for snapshot in dropped})
        forget_dropped(thread.store, dropped)
    return dropped


def _free(store: Store, info: ThreadInfo, kept: list[Snapshot]) -> list[Snapshot]:
    """Those that may go, the oldest first."""
    # The newest stays as well: the next snapshot and the next rewind count on it.
    needed = intent.needed(info) | {snapshot.id for snapshot in kept[-1:]}
    candidates = [one for one in kept if not one.pinned and one.id not in needed]
    # Every fork with where it begins, also those that are deleted and could be restored.
    forks = [
        (fork.id, fork.origin.entry)
        for deleted in ((False, True) if candidates else ())
        for fork in store.threads(origin=info.id, archived=None, deleted=deleted)
        if fork.origin is not None and fork.origin.entry is not None
    ]
    return [
        one
        for one in candidates
        if not any(catalogue.is_on_path(store.engine, id, leaf, one.id) for id, leaf in forks)
    ]


def _over(
    trees: Trees,
    kept: list[Snapshot],
    free: list[Snapshot],
    keep_last: int | None,
    keep_bytes: int | None,
) -> list[Snapshot]:
    held, count, dropped = Holding(trees), len(kept), []
    if keep_bytes is not None:
        for snapshot in kept:
            held.add(snapshot.tree)
    for snapshot in free:
        too_many = keep_last is not None and count > keep_last
        if not too_many and (keep_bytes is None or held.distinct_bytes <= keep_bytes):
            break
        dropped.append(snapshot)
        count -= 1
        if keep_bytes is not None:
            held.remove(snapshot.tree)
    return dropped
