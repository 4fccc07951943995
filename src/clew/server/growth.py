"""How the store grew: what was written on each day, by the times of its records.

The sizes are those of what was said, before compression, and without the files of snapshots. The
store is read once for it, behind the pages; after that only what is new.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from clew.core.engine import Engine, Progress, pages
from clew.core.errors import Corrupt, NotFound
from clew.core.model import Entry, Fact, Record, to_time

COUNTED_UNASKED = 300_000  # records; a store with more is only read for this when it is asked for
_PAGE = 1000
_DAY_US = 86_400_000_000


class Growth:
    """What was written on each day, as far as it was read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._read: dict[str, tuple[str, int]] = {}  # thread → its birth, and how far
        self._days: dict[int, list[int]] = defaultdict(lambda: [0, 0])

    def count(self, progress: Progress | None = None) -> None:
        """Read what is new."""
        with self._lock:
            behind = [
                head
                for head in self._engine.heads()
                if self._read.get(head.thread) != (head.birth, head.seq)
            ]
            for done, head in enumerate(behind):
                if progress is not None:
                    progress(done, len(behind))
                birth, after = self._read.get(head.thread, ("", 0))
                try:
                    after = self._read_on(head.thread, after if birth == head.birth else 0)
                except (NotFound, Corrupt):
                    continue  # it was purged; or verify will tell
                self._read[head.thread] = (head.birth, after)

    def _read_on(self, thread: str, after: int) -> int:
        for page in pages(self._engine, thread, after=after, limit=_PAGE):
            for record in page:
                day = self._days[record.time_us // _DAY_US]
                day[0] += 1
                day[1] += size_of(record)
            after = page[-1].seq
        return after

    def days(self) -> dict[str, tuple[int, int]]:
        """Each day on which something was written: how many records, and how many bytes."""
        return {
            f"{to_time(day * _DAY_US):%Y-%m-%d}": (records, size)
            for day, (records, size) in sorted(self._days.copy().items())
        }


def size_of(record: Record) -> int:
    if isinstance(record, Entry):
        return len(record.data) + len(record.meta_data or b"")
    return len(record.data) if isinstance(record, Fact) else 0
