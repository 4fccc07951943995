"""The shape of a path, kept between requests: a long thread is walked once, then only its end.

An entry's hash covers its content and its parent's hash, so a path is known by the hash of its
last entry, and what was kept of it stays true.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from msgspec import UNSET, Struct

from clew.core.errors import ClewError
from clew.core.model import Entry
from clew.thread import Thread

RUN_ENTRIES = 40
RUN_ENTRIES_MAX = 120  # where results and usage follow for so long, a run ends all the same
KEPT_ENTRIES = 400_000  # of all paths together; then the one that was not used for longest goes
STEP_ENTRIES = 200  # of a path's end that are looked at before it is walked anew
_BELONGS = frozenset({"tool_result", "usage"})  # to what came before it


class Run(Struct, frozen=True, kw_only=True):
    """Consecutive entries of a path. `height` is what they may take on a screen, in pixels."""

    first: str
    last: str
    before: str | None
    start: int
    size: int
    height: int


class Outline(Struct, frozen=True):
    """What is kept of a path: for each entry its id, kind, time and height, oldest first."""

    hash: str
    ids: list[str]
    kinds: list[str]
    times: list[int]
    heights: list[int]
    runs: list[Run]

    def __len__(self) -> int:
        return len(self.ids)


EMPTY = Outline("", [], [], [], [], [])


class Outlines:
    """The outlines of the paths that were looked at last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Outline] = OrderedDict()
        self._newest: dict[str, Outline] = {}  # of each thread, to go on from

    def get(self, thread: Thread, leaf: str | None = None) -> Outline:
        """The outline of the path to an entry; by default to where the thread stands."""
        tip = thread.path(UNSET if leaf is None else leaf, limit=1)
        if not tip:
            return EMPTY
        key = (thread.id, tip[0].hash)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
            base = self._newest.get(thread.id)
        made = _grown(thread, tip[0], base) or outlined(thread.path(tip[0].id))
        with self._lock:
            if base is not None and leaf is None:
                self._kept.pop((thread.id, base.hash), None)
            self._kept[key] = self._newest[thread.id] = made
            while len(self._kept) > 1 and sum(map(len, self._kept.values())) > KEPT_ENTRIES:
                (id, _), dropped = self._kept.popitem(last=False)
                if self._newest.get(id) is dropped:
                    del self._newest[id]
        return made


def _grown(thread: Thread, tip: Entry, base: Outline | None) -> Outline | None:
    """What is known of a path, and what came to it since; None if that path is another one.

    A reply that is streamed is stored again and again, each time beside what was stored before.
    So the end of what is known may be another branch by now: it is cut off.
    """
    if base is None or not base.ids:
        return None
    try:
        if thread.get(base.ids[-1]).hash != base.hash:
            return None  # a thread that got its id anew
        more = thread.path(tip.id, limit=STEP_ENTRIES)
    except ClewError:
        return None
    known = {id: place for place, id in enumerate(base.ids[-STEP_ENTRIES:], 1)}
    for n, entry in enumerate(more):
        place = known.get(entry.parent or "")
        if place is not None and entry.id not in known:
            cut = len(base.ids) - min(STEP_ENTRIES, len(base.ids)) + place
            return outlined(more[n:], base if cut == len(base.ids) else _cut(base, cut))
    return None


def _cut(base: Outline, size: int) -> Outline:
    """The first entries of an outline. Its hash is of no use: it is only to be gone on from."""
    runs = [run for run in base.runs if run.start + run.size <= size]
    if not runs or runs[-1].start + runs[-1].size < size:
        # A stand-in for the run that is cut through; the last one is drawn anew anyway.
        runs.append(base.runs[len(runs)])
    return Outline(
        "", base.ids[:size], base.kinds[:size], base.times[:size], base.heights[:size], runs
    )


def outlined(path: Sequence[Entry], base: Outline = EMPTY) -> Outline:
    """The outline of a path; with a `base`, of that one and what follows it."""
    if not path:
        return base
    # The last run was not full: it is drawn anew with what came.
    runs = base.runs[:-1]
    start = runs[-1].start + runs[-1].size if runs else 0
    ids = base.ids + [entry.id for entry in path]
    kinds = base.kinds + [entry.kind for entry in path]
    heights = base.heights + [_height(entry) for entry in path]
    return Outline(
        path[-1].hash,
        ids,
        kinds,
        base.times + [entry.time_us for entry in path],
        heights,
        runs + split(ids, kinds, heights, start),
    )


def split(
    ids: Sequence[str], kinds: Sequence[str], heights: Sequence[int], start: int = 0
) -> list[Run]:
    """A path as runs. A result stays with its call, and what was used with its reply."""
    found: list[Run] = []
    begin, end = start, len(ids)
    for n in range(start + 1, end + 1):
        size = n - begin
        full = size >= RUN_ENTRIES and (
            n == end or kinds[n] not in _BELONGS or size >= RUN_ENTRIES_MAX
        )
        if full or n == end:
            found.append(
                Run(
                    first=ids[begin],
                    last=ids[n - 1],
                    before=ids[begin - 1] if begin else None,
                    start=begin,
                    size=size,
                    height=sum(heights[begin:n]),
                )
            )
            begin = n
    return found


def _height(entry: Entry) -> int:
    if entry.kind in ("turn_marker", "usage"):
        return 8
    return 56 + min(len(entry.data), 2_400) // 10
