"""Removing a thread for good, but for the entries that forks share with it.

Those stay in a file of their own, in purged/, under the thread's key. The gate is shut meanwhile:
no caller of any process makes a fork, reads across one, or refers to a blob.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

import apsw
from msgspec import Struct
from msgspec.structs import replace

from clew.core.errors import ClewError, NotFound, Unavailable
from clew.core.lines import Header, Source, header_line, record_line
from clew.core.names import file_stem
from clew.core.patience import patiently
from clew.core.removal import Purged, Swept
from clew.engines.files.blobs import Stored
from clew.engines.files.changes import Changes
from clew.engines.files.index import BUSY_SECONDS
from clew.engines.files.journal import Journal
from clew.engines.files.open_store import OpenStore
from clew.engines.files.pack import remove_thread
from clew.engines.files.place import ROOMS, put_file, remove_quietly
from clew.engines.shared.tables import purge as sql
from clew.engines.shared.tables import rows
from clew.engines.shared.tables.rows import every, value

SWEEP_SECONDS = 0.01  # that the gate is shut at a time, to remove blobs


class _Gone(Struct, frozen=True):
    """A thread whose file was removed, and what is to be done about the rest."""

    purged: Purged
    header: Header
    stays: bool
    blobs: list[str]


def purge(store: OpenStore, changes: Changes, thread: str) -> Purged:
    """First the thread itself, as a whole; then what it leaves behind, which cannot undo that."""

    def remove() -> _Gone:
        with changes.relations_known():
            return _remove(store, thread)

    def clear_up() -> None:
        with changes.relations_known():
            _clear_up(store, gone)

    gone = store.with_index(remove, keep=False)
    try:
        store.with_index(clear_up, keep=False)
    except (OSError, ClewError) as error:
        text = f"thread {thread!r} was purged, but not all that it shared with others: {error}"
        raise Unavailable(text, retryable=False, committed=True) from error
    return gone.purged


def _remove(store: OpenStore, thread: str) -> _Gone:
    journal = store.journal(thread)
    with journal.mutex:
        journal.refresh_index()
        no, header = journal.no, journal.header
        with journal.alone():
            journal.catch_up(exclusive=True)
            forks, records, kept = _weigh(store, no)
            stays = bool(kept) or _is_source(store, no)
            blobs = _bodies(store, rows.everything_of(no))
            if stays:
                _put_husk(store, header, _rest(store, journal, header, kept))
            # First from the index: what it remembers and is not there counts as lost.
            store.index.forget(no, file=not stays)
            wipe(store)
            remove_thread(store, journal)
            with suppress(OSError):
                # The thread is gone. If its lease cannot be ended now, the next thread of that id
                # ends it when it is made.
                store.disk.truncate(journal.lock.descriptor, 0)
    purged = Purged(
        thread=thread, records=records - len(kept), kept=len(kept), kept_for=tuple(forks)
    )
    return _Gone(purged, header, stays, blobs)


def _clear_up(store: OpenStore, gone: _Gone) -> None:
    thread = gone.purged.thread
    remove_quietly(store.disk, store.place.mark(thread))
    remove_cuts(store, thread)
    if gone.stays:
        _index_husk(store, gone.header)
    _collect(store, gone.header.source)
    remove_unused(store, gone.blobs)


def remove_cuts(store: OpenStore, thread: str) -> None:
    """What was set aside of a thread's torn ends goes with what it held."""
    for name in os.listdir(store.place.recovered):
        if name.endswith(".cut") and name.rsplit("-", 2)[0] == file_stem(thread):
            remove_quietly(store.disk, f"{store.place.recovered}/{name}")


def _weigh(store: OpenStore, no: int) -> tuple[tuple[str, ...], int, list[int]]:
    """The forks that need something of a thread, how many records it has, and which must stay."""
    with store.index.lock:
        db = store.index.db
        forks, needed = sql.needs(db, no)
        mine = every(
            db, "SELECT no, type FROM records WHERE no BETWEEN ? AND ?", rows.everything_of(no)
        )
        kept = [
            record
            for record, type in mine
            # Inside of what is needed, moves and facts may hold what was meant to go.
            if type == rows.ENTRY and any(first <= record <= last for first, last in needed)
        ]
        return forks, len(mine), kept


def _is_source(store: OpenStore, no: int) -> bool:
    """Whether a file says that it begins in this one.

    Then this one stays, be it without a line: what forks need further up is found through it.
    """
    with store.index.lock:
        query = "SELECT 1 FROM threads WHERE origin_no BETWEEN ? AND ? LIMIT 1"
        return value(store.index.db, query, rows.everything_of(no)) is not None


def _rest(store: OpenStore, journal: Journal, header: Header, kept: list[int]) -> bytes:
    """The file of what stays: the same lines but for their header, and what batch they were in."""
    places = [store.index.places((no, no))[0] for no in kept]
    entries = journal.records(places)
    thread = header.draft.id.encode("utf-8")
    spilled = {no: blob for no in kept for blob in _bodies(store, (no, no))}
    lines = [
        record_line(thread, entry, blob=spilled.get(no))
        for no, entry in zip(kept, entries, strict=True)
    ]
    return b"".join([header_line(replace(header, purged=True)), *lines])


def _put_husk(store: OpenStore, header: Header, data: bytes) -> None:
    name = os.path.basename(store.place.husk(header.key))
    put_file(store.disk, store.place.purged, name, data)


def _bodies(store: OpenStore, span: rows.Range) -> list[str]:
    """The blobs that hold the bodies of some records."""
    with store.index.lock:
        query = "SELECT blob FROM uses WHERE body AND record BETWEEN ? AND ?"
        return [blob for (blob,) in every(store.index.db, query, span)]


def _index_husk(store: OpenStore, header: Header) -> None:
    husk = store.husk(Source(header.draft.id, header.key, 0))
    with husk.mutex:
        husk.refresh_index()


def _collect(store: OpenStore, source: Source | None) -> None:
    """Remove what is left of purged threads above one that has gone, if no fork needs it now."""
    first = True
    while source is not None:
        owner = store.owner(source)
        with owner.mutex:
            try:
                owner.refresh_index()
            except NotFound:  # no test: another process has purged it meanwhile
                return
            header = owner.header
            if not header.purged:
                return  # a thread that is still there needs all that is above it
            went = _shrink(store, owner)
        if first and not went:
            # Another fork needs what this one began at, and so all that is above.
            return
        first = False
        source = header.source


def _shrink(store: OpenStore, husk: Journal) -> bool:
    """Remove what no fork needs any more of what was left of a thread; whether there was any."""
    header, no = husk.header, husk.no
    _, records, kept = _weigh(store, no)
    stays = bool(kept) or _is_source(store, no)
    if stays and len(kept) == records:
        return False
    blobs = _bodies(store, rows.everything_of(no))
    rest = _rest(store, husk, header, kept)
    store.index.forget(no, file=not stays)
    wipe(store)
    if stays:
        _put_husk(store, header, rest)
        _index_husk(store, header)
    else:
        store.disk.unlink(husk.path)
        store.disk.sync_folder(store.place.purged)
    remove_unused(store, blobs)
    return True


def remove_unused(store: OpenStore, blobs: Iterable[str]) -> None:
    """Large bodies go at once; blobs that were put by hand wait for `sweep` and its grace."""
    for hash in blobs:
        if not _is_used(store.index.db, hash):
            store.blobs.remove(hash)


def _is_used(db: apsw.Connection, hash: str) -> bool:
    return value(db, "SELECT 1 FROM uses WHERE blob = ?", (hash,)) is not None


def wipe(store: OpenStore, *, always: bool = False) -> None:
    """Make the index durable, and its log empty: what is removed must not live on there.

    Nor in its pages, which takes as long as the index is large: `always`, or once in a while.
    """
    with store.index.lock:
        try:
            empty = partial(store.index.db.wal_checkpoint, mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            patiently(empty, apsw.BusyError, BUSY_SECONDS)
            store.wipe_index(always=always)
        except apsw.BusyError:  # no test: another process reads it at this moment
            pass


def unused(store: OpenStore, changes: Changes, before_us: int) -> list[Stored]:
    """The blobs that no record uses, and that were put before a time."""
    changes.refresh_all()
    with store.index.lock:
        used = {hash for (hash,) in store.index.db.execute("SELECT DISTINCT blob FROM uses")}
    old = (stored for stored in store.blobs.all() if stored.put_us <= before_us)
    return [stored for stored in old if stored.hash not in used]


def remove(store: OpenStore, doomed: deque[Stored], before_us: int) -> Swept:
    """Remove the first of them, as far as they are still old, for a short while."""
    count = size_bytes = 0
    until = time.monotonic() + SWEEP_SECONDS
    while doomed and (not count or time.monotonic() < until):
        stored = doomed.popleft()
        now = store.blobs.find(stored.hash)
        if now is not None and now.put_us <= before_us:
            count, size_bytes = count + 1, size_bytes + store.blobs.size_of(now)
            store.disk.unlink(now.path)
    return Swept(blobs=count, size_bytes=size_bytes)


def remove_leftovers(store: OpenStore, before_us: int) -> None:
    """Files that were never finished, by writers that are gone."""
    root = Path(store.place.root)  # not what is below: other namespaces' writers are at work
    rooms = [(root / room).rglob(".*.new") for room in ROOMS if "/" not in room]
    # Looked for with the gate open: that takes as long as there are files.
    for found in list(chain(root.glob(".*.new"), *rooms)):
        with store.gate.shut():
            try:
                if found.lstat().st_mtime_ns // 1000 <= before_us:
                    store.disk.unlink(str(found))
            except OSError:  # no test: between two looks
                pass  # it has been finished meanwhile
