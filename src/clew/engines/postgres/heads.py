"""Where threads stand, as this process saw them last.

An append is planned on the remembered head and sent at once; the server refuses it when the
thread has moved on, and then the head is read anew. So a guess costs nothing but itself, and what
is remembered need never be right.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from clew.engines.postgres.rows import Stand

REMEMBERED_MAX = 4096
_STRIPES = 1024


class Heads:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Stand] = OrderedDict()
        # Writers of one thread in one process take turns, rather than spoil each other's guess.
        self._turns = [threading.Lock() for _ in range(_STRIPES)]

    def turn(self, thread: str) -> threading.Lock:
        return self._turns[hash(thread) % _STRIPES]

    def guess(self, thread: str) -> Stand | None:
        return self._known.get(thread)

    def note(self, thread: str, stand: Stand) -> None:
        with self._lock:
            self._known[thread] = stand
            self._known.move_to_end(thread)
            if len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)

    def forget(self, thread: str) -> None:
        with self._lock:
            self._known.pop(thread, None)
