"""How far the logs were read of threads that a context is made of: what is erased is told there.

A fork shows entries of the threads that it came from, and these are erased in their own logs. So
whoever keeps something that was made of entries looks there before it is used again. A thread that
was purged has no log: what it left to its forks can be erased without a word, and must not be kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from clew.core.engine import Engine, pages
from clew.core.errors import NotFound
from clew.core.model import Entry, ThreadInfo
from clew.core.tombstones import PREFIX, is_erasure

LOGS_MAX = 16  # threads that one came from, each from the next


class Log(Struct):
    """How far a log was read: up to this record, which no other thread of that id has."""

    seq: int
    hash: str | None


def where_they_end(engine: Engine, thread: str) -> dict[str, Log]:
    """The logs of a thread and of those that it came from, as far as these are there.

    To be asked before the entries are read, so that nothing is told in between and missed.
    """
    found: dict[str, Log] = {}
    info: ThreadInfo | None = engine.thread(thread)
    while info is not None and info.id not in found and len(found) < LOGS_MAX:
        last = engine.read(info.id, after=info.seq - 1, limit=1) if info.seq else []
        found[info.id] = Log(last[0].seq, last[0].hash) if last else Log(0, None)
        info = _origin(engine, info)
    return found


def erasures(engine: Engine, info: ThreadInfo) -> tuple[int, ...] | None:
    """How many are told of, by a thread and those that it came from; None: one is not there."""
    counts: list[int] = []
    found: ThreadInfo | None = info
    while found is not None and len(counts) < LOGS_MAX:
        counts.append(sum(key.startswith(PREFIX) for key in found.fact_data))
        if found.origin is None or found.origin.entry is None:
            return tuple(counts)
        found = _origin(engine, found)
    return None


def _origin(engine: Engine, info: ThreadInfo) -> ThreadInfo | None:
    """The thread that one was forked from; None if there is none, or another one has its id."""
    origin = info.origin
    if origin is None or origin.entry is None:
        return None
    try:
        (entry,) = engine.path(origin.thread, origin.entry, limit=1)
        return engine.thread(origin.thread) if entry.hash == origin.hash else None
    except NotFound:
        return None


def advance(engine: Engine, own: str, logs: dict[str, Log], path: Sequence[Entry]) -> bool:
    """Read on to the ends; false if something was erased, or that cannot be told any more.

    `path` are the newest entries of the thread itself, from one on that was known before.
    """
    log = logs[own]
    _skip(log, [entry for entry in path if entry.thread == own and entry.seq > log.seq])
    try:
        return all(_read_on(engine, id, log, id != own) for id, log in logs.items())
    except NotFound:
        return False


def _skip(log: Log, entries: Collection[Entry]) -> None:
    """Where nothing but entries was written, as mostly, they need not be read once more."""
    if [entry.seq for entry in entries] == list(range(log.seq + 1, log.seq + 1 + len(entries))):
        for entry in entries:
            log.seq, log.hash = entry.seq, entry.hash


def _read_on(engine: Engine, thread: str, log: Log, look: bool) -> bool:
    """`look`: see first that it is the same thread; its own entries tell that of the own one."""
    look = look and log.seq > 0
    for page in pages(engine, thread, after=log.seq - look):
        if look and page[0].hash != log.hash:
            return False
        look = False
        log.seq, log.hash = page[-1].seq, page[-1].hash
        if any(map(is_erasure, page)):
            return False
    return not look
