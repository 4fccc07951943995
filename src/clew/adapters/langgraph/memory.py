"""What a saver knows by heart of its threads; all that is in it can be read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from clew.adapters.langgraph.elements import Elements

if TYPE_CHECKING:
    from clew.adapters.langgraph.journal import Head

K = TypeVar("K")
V = TypeVar("V")

_Place: TypeAlias = tuple[str, str, str]  # a thread, its birth, the entry of a checkpoint

_REMEMBERED = 256
_REMEMBERED_BYTES = 64 * 1024 * 1024


class Recent(Generic[K, V]):
    """Values by key, for any thread to use; it lets go of what was set longest ago."""

    def __init__(self) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, key: K) -> V | None:
        return self._values.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        with self._mutex:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > _REMEMBERED:
                self._values.popitem(last=False)

    def drop(self, unwanted: Callable[[K], bool]) -> None:
        with self._mutex:
            for key in [key for key in self._values if unwanted(key)]:
                del self._values[key]


class Memory:
    """Where threads stand, how many writes checkpoints have, and what their lists hold."""

    def __init__(self) -> None:
        self.heads: Recent[str, Head] = Recent()
        self.slots: Recent[_Place, int] = Recent()
        self.erasures: Recent[str, tuple[int, ...] | None] = Recent()
        self._lists: OrderedDict[_Place, dict[str, Elements]] = OrderedDict()
        self._sizes: dict[_Place, int] = {}  # to count all elements again costs as much as to read
        self._size = 0
        self._mutex = threading.Lock()
        # Several threads may share a lock: that costs a wait, and there are never too many.
        self._locks = [threading.RLock() for _ in range(64)]

    def lock(self, thread: str) -> threading.RLock:
        return self._locks[hash(thread) % len(self._locks)]

    def lists(self, thread: str, birth: str, entry: str) -> Mapping[str, Elements]:
        """The elements of a checkpoint's channels, as far as they are known."""
        return self._lists.get((thread, birth, entry), {})

    def remember(self, thread: str, birth: str, entry: str, lists: dict[str, Elements]) -> None:
        place = thread, birth, entry
        with self._mutex:
            known = self._lists.pop(place, {})
            self._lists[place] = {**known, **lists}
            size = sum([one.size for name, one in lists.items() if name not in known])
            self._sizes[place] = self._sizes.get(place, 0) + size
            self._size += size
            while self._size > _REMEMBERED_BYTES and len(self._lists) > 1:
                self._let_go(next(iter(self._lists)))

    def _let_go(self, place: _Place) -> None:
        """Holds the mutex."""
        del self._lists[place]
        self._size -= self._sizes.pop(place)

    def forget_erased(self, thread: str, erasures: tuple[int, ...] | None) -> None:
        """Let go of what a thread says if something of it was erased; None: that is not told."""
        known = self.erasures.get(thread)
        # Before the first look it may have been written to, and is known by heart all the same.
        if erasures is None or (any(erasures) if known is None else known != erasures):
            self.forget_head(thread)
            with self._mutex:
                for place in [place for place in self._lists if place[0] == thread]:
                    self._let_go(place)
        self.erasures[thread] = erasures

    def forget_head(self, thread: str) -> None:
        self.heads.drop(lambda name: name == thread)

    def forget(self, thread: str) -> None:
        self.forget_head(thread)
        self.slots.drop(lambda key: key[0] == thread)
