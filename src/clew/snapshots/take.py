"""Storing a tree: new files and new manifests go into the store, in batches, before the entry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from msgspec import UNSET, Struct, UnsetType

from clew.engine import Engine
from clew.model import Draft
from clew.snapshots.cache import Known
from clew.snapshots.contents import BATCH_BYTES, Progress, survey
from clew.snapshots.ignore import Rules
from clew.snapshots.model import Snapshot
from clew.snapshots.walk import Survey

_BATCH_MAX = 1000


class More(Struct, frozen=True):
    """What is written with a snapshot, as one step, and the leaf that it counts on."""

    drafts: Sequence[Draft] = ()
    expect: str | UnsetType | None = UNSET


Also = Callable[[Survey, Snapshot], More]


def nothing_more(found: Survey, snapshot: Snapshot) -> More:
    return More()


class Taker:
    """Puts what a store lacks into it, many files at a time, and counts it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._waiting: dict[str, bytes] = {}
        self._waiting_bytes = 0
        self.new_bytes = 0
        self.relied_on: set[str] = set()  # blobs that were there already

    def take(
        self, root: str, rules: Rules, known: Known | None, progress: Progress | None = None
    ) -> Survey:
        found = survey(root, rules, known, self.keep, progress)
        self.finish(found)
        return found

    def finish(self, found: Survey) -> None:
        """The manifests, after all that they name."""
        fresh = [(folder.manifest, folder.data) for folder in found.all_folders() if folder.data]
        if fresh:
            self.keep(fresh)
        self._put(self._drain(0, 0))

    def keep(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        """Remember bytes to be stored; whoever finds enough of them waiting stores them."""
        there = self._engine.has_blobs([hash for hash, _ in blobs])
        with self._mutex:
            self.relied_on |= there
            for hash, data in blobs:
                if hash not in there and hash not in self._waiting:
                    self._waiting[hash] = data
                    self._waiting_bytes += len(data)
        self._put(self._drain(BATCH_BYTES, _BATCH_MAX))

    def _drain(self, size: int, count: int) -> list[bytes]:
        with self._mutex:
            if self._waiting_bytes <= size and len(self._waiting) <= count:
                return []
            batch, self._waiting = list(self._waiting.values()), {}
            self.new_bytes += self._waiting_bytes
            self._waiting_bytes = 0
            return batch

    def _put(self, batch: list[bytes]) -> None:
        for at in range(0, len(batch), _BATCH_MAX):
            self._engine.put_blobs(batch[at : at + _BATCH_MAX])
