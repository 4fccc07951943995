"""What a saver knows by heart of its threads; all that is in it can be read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from clew.adapters.langgraph.elements import Elements

if TYPE_CHECKING:
    from clew.adapters.langgraph.journal import Head

K = TypeVar("K")
V = TypeVar("V")

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
        self.slots: Recent[tuple[str, str], int] = Recent()
        self.erasures: Recent[str, tuple[int, ...] | None] = Recent()
        self._lists: OrderedDict[tuple[str, str, str], dict[str, Elements]] = OrderedDict()
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
        with self._mutex:
            known = self._lists.pop((thread, birth, entry), {})
            self._lists[(thread, birth, entry)] = {**known, **lists}
            self._size += sum([one.size for name, one in lists.items() if name not in known])
            while self._size > _REMEMBERED_BYTES and len(self._lists) > 1:
                _, gone = self._lists.popitem(last=False)
                self._size -= sum([one.size for one in gone.values()])

    def forget_erased(self, thread: str, erasures: tuple[int, ...] | None) -> None:
        """Let go of what a thread says if something of it was erased; None: that is not told."""
        known = self.erasures.get(thread)
        # Before the first look it may have been written to, and is known by heart all the same.
        if erasures is None or (any(erasures) if known is None else known != erasures):
            self.forget_head(thread)
            with self._mutex:
                for key in [key for key in self._lists if key[0] == thread]:
                    self._size -= sum([one.size for one in self._lists.pop(key).values()])
        self.erasures[thread] = erasures

    def forget_head(self, thread: str) -> None:
        self.heads.drop(lambda name: name == thread)

    def forget(self, thread: str) -> None:
        self.forget_head(thread)
        self.slots.drop(lambda key: key[0] == thread)
