"""What was projected for a thread before, so that its next context costs only what is new.

An agent asks for its context after every few appends. What a store's contexts were last made of
is kept here, for any handle of the thread, and goes on with the entries that came since, by this
process or another one. Where it cannot go on, because the leaf stands elsewhere, a compaction or
an edit came, or something was erased, it is dropped and made anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from operator import attrgetter
from threading import Lock
from typing import Protocol

from msgspec import Struct, UnsetType

from clew.context.logs import Log, advance, where_they_end
from clew.context.projection import Options, Projection, check_options, format_of, project_window
from clew.context.request import Context
from clew.context.window import PathReader, Window, read_window
from clew.core.engine import Engine
from clew.core.errors import NotFound

SIZE_BYTES_MAX = 32 * 1024 * 1024  # of the bodies, in all; what is made of them takes some more

# What changes what came before it, so that a projection cannot go on with it.
_LOOKING_BACK = frozenset({"compaction", "context_edit"})


class _Thread(PathReader, Protocol):
    @property
    def id(self) -> str: ...


class _Kept(Struct):
    """A projection, the entry that it has come to, and its size in bytes, about.

    `logs` are those of the threads that its entries are of.
    """

    projection: Projection
    logs: dict[str, Log]
    parent: str | None
    hash: str
    size: int


class Recall:
    """The projections of a store that were asked for last, up to a size in all."""

    def __init__(self, engine: Engine, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self._engine = engine
        self._size_max = size_bytes_max
        self._size = 0
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()  # those asked for last at the end
        self._lock = Lock()

    def context(
        self, thread: _Thread, options: Options, leaf: str | UnsetType | None, *, compacted: bool
    ) -> Context:
        """The context of a thread, as `Thread.context` gives it."""
        if not _may_be_kept(options):
            return project_window(read_window(thread, leaf, compacted=compacted), options)
        check_options(options)
        signals = frozenset(options.signal_tools)
        key = (thread.id, options.format, bool(options.system), signals, bool(compacted))
        # Taken away while it is in use: of two who ask at once, one makes it from nothing.
        kept = self._take(key)
        if kept is not None:
            kept = _continued(kept, self._engine, thread, leaf, options)
        if kept is not None:
            context = kept.projection.context(options)
        else:
            logs = where_they_end(self._engine, thread.id)
            window = read_window(thread, leaf, compacted=compacted)
            projection = Projection(window, options)
            context = projection.context(options)
            owners = _owners(window)
            if window.last is not None and _is_found(window) and owners <= logs.keys():
                last = window.last
                logs = {id: log for id, log in logs.items() if id in {thread.id, *owners}}
                kept = _Kept(projection, logs, last.parent, last.hash, projection.size)
        if kept is not None:
            self._put(key, kept)
        return context

    def forget(self) -> None:
        """Keep nothing of what was projected so far."""
        with self._lock:
            self._kept.clear()
            self._size = 0

    def _take(self, key: Hashable) -> _Kept | None:
        with self._lock:
            found = self._kept.pop(key, None)
            self._size -= 0 if found is None else found.size
            return found

    def _put(self, key: Hashable, kept: _Kept) -> None:
        with self._lock:
            other = self._kept.pop(key, None)
            self._kept[key] = kept
            self._size += kept.size - (0 if other is None else other.size)
            while self._size > self._size_max:
                self._size -= self._kept.popitem(last=False)[1].size


def _may_be_kept(options: Options) -> bool:
    """Whether it is what agents ask for, with options that can be compared."""
    if options.purpose != "provider_request" or options.segments:
        return False
    signals = options.signal_tools
    return isinstance(signals, tuple | list | set | frozenset) and all(
        isinstance(name, str) for name in signals
    )


def _continued(
    kept: _Kept, engine: Engine, thread: _Thread, leaf: str | UnsetType | None, options: Options
) -> _Kept | None:
    """The projection with what came since; None if it cannot go on."""
    try:
        path = thread.path(leaf, after=kept.parent)
    except NotFound:
        return None
    # The hash covers the whole path to an entry, so that all before it is as it was, too.
    if not path or path[0].hash != kept.hash:
        return None
    new = path[1:]
    # Hashes stay when something is erased. This comes after the path was read.
    if not advance(engine, thread.id, kept.logs, path):
        return None
    if any(entry.kind in _LOOKING_BACK for entry in new):
        return None
    target = kept.projection.target
    if options.format is None and (format_of(new) or target) != target:
        return None
    kept.projection.take(new)
    last = path[-1]
    kept.parent, kept.hash, kept.size = last.parent, last.hash, kept.projection.size
    return kept


def _owners(window: Window) -> set[str]:
    """The threads that the entries of a window were written in."""
    shown = [*window.entries, *window.kept, *window.carried]
    if window.compaction is not None:
        shown.append(window.compaction.entry)
    return set(map(_thread_of, shown))


_thread_of = attrgetter("thread")


def _is_found(window: Window) -> bool:
    """Whether all that a compaction names was there. What was missing may be written later."""
    compaction = window.compaction
    if compaction is None:
        return True
    entries = [*window.entries, *window.kept, *window.carried]
    named = {*compaction.kept_users, *compaction.carried}
    return not window.repaired and named <= {entry.id for entry in entries}
