"""Removing a thread for good, but for the entries that forks share with it.

Those stay in a file of their own, in purged/, under the thread's key. The gate is shut meanwhile:
nobody makes a fork, reads across one, or refers to a blob.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import apsw
from msgspec.structs import replace

from clew.core.engine import Keep
from clew.core.errors import NotFound
from clew.core.lines import Header, Source, file_stem, header_line, record_line
from clew.core.model import Purged, Swept
from clew.engines.files.handle import Shared
from clew.engines.files.journal import Journal
from clew.engines.files.locks import EXCLUSIVE
from clew.engines.files.place import ROOMS, put_file, remove_quietly
from clew.engines.files.survey import Survey
from clew.engines.shared.tables import purge as sql
from clew.engines.shared.tables import rows
from clew.engines.shared.tables.rows import every, value


def purge(shared: Shared, survey: Survey, thread: str) -> Purged:
    with survey.relations_known():
        return _purge(shared, thread)


def _purge(shared: Shared, thread: str) -> Purged:
    journal = shared.journal(thread)
    with journal.mutex:
        journal.refresh_index()
        no, header = journal.no, journal.header
        with journal.lock.held(EXCLUSIVE, shared.busy_seconds):
            journal.catch_up(exclusive=True)
            forks, records, kept = _weigh(shared, no)
            stays = bool(kept) or _is_source(shared, no)
            blobs = _bodies(shared, rows.everything_of(no))
            if stays:
                _put_husk(shared, header, _rest(shared, journal, header, kept))
            # First from the index: what it remembers and is not there counts as lost.
            shared.index.forget(no, file=not stays)
            _wipe(shared)
            shared.disk.unlink(journal.path)
            shared.disk.sync_folder(shared.place.threads)
            remove_quietly(shared.disk, shared.place.mark(thread))
            _remove_cuts(shared, thread)
            _end_lease(shared, journal)
    if stays:
        _index_husk(shared, header)
    _collect(shared, header.source)
    _remove_unused(shared, blobs)
    return Purged(thread=thread, records=records - len(kept), kept=len(kept), kept_for=tuple(forks))


def _remove_cuts(shared: Shared, thread: str) -> None:
    """What was set aside of its torn ends goes too."""
    for name in os.listdir(shared.place.recovered):
        if name.endswith(".cut") and name.rsplit("-", 2)[0] == file_stem(thread):
            remove_quietly(shared.disk, f"{shared.place.recovered}/{name}")


def _end_lease(shared: Shared, journal: Journal) -> None:
    try:
        shared.disk.truncate(journal.lock.descriptor, 0)
    except OSError:
        pass  # the thread is gone; whoever makes one of that id again ends it


def _weigh(shared: Shared, no: int) -> tuple[tuple[str, ...], int, list[int]]:
    """The forks that need something of a thread, how many records it has, and which must stay."""
    with shared.index.lock:
        db = shared.index.db
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


def _is_source(shared: Shared, no: int) -> bool:
    """Whether a file says that it begins in this one.

    Then this one stays, be it without a line: what forks need further up is found through it.
    """
    with shared.index.lock:
        query = "SELECT 1 FROM threads WHERE origin_no BETWEEN ? AND ? LIMIT 1"
        return value(shared.index.db, query, rows.everything_of(no)) is not None


def _rest(shared: Shared, journal: Journal, header: Header, kept: list[int]) -> bytes:
    """The file of what stays: the same lines but for their header, and what batch they were in."""
    places = [shared.index.places((no, no))[0] for no in kept]
    entries = journal.records(places)
    thread = header.draft.id.encode("utf-8")
    spilled = {no: blob for no in kept for blob in _bodies(shared, (no, no))}
    lines = [
        record_line(thread, entry, blob=spilled.get(no))
        for no, entry in zip(kept, entries, strict=True)
    ]
    return b"".join([header_line(replace(header, purged=True)), *lines])


def _put_husk(shared: Shared, header: Header, data: bytes) -> None:
    name = os.path.basename(shared.place.husk(header.key))
    put_file(shared.disk, shared.place.purged, name, data)


def _bodies(shared: Shared, span: rows.Range) -> list[str]:
    """The blobs that hold the bodies of some records."""
    with shared.index.lock:
        query = "SELECT blob FROM uses WHERE body AND record BETWEEN ? AND ?"
        return [blob for (blob,) in every(shared.index.db, query, span)]


def _index_husk(shared: Shared, header: Header) -> None:
    husk = shared.husk(Source(header.draft.id, header.key, 0))
    with husk.mutex:
        husk.refresh_index()


def _collect(shared: Shared, source: Source | None) -> None:
    """Look at what a purged thread hung on: it may be left of purged ones, and unneeded now."""
    first = True
    while source is not None:
        owner = shared.owner(source)
        with owner.mutex:
            try:
                owner.refresh_index()
            except NotFound:
                return
            header = owner.header
            if not header.purged:
                return  # whatever is above, it needs itself
            went = _shrink(shared, owner)
        if first and not went:
            return  # somebody else needs what it began at, and so all that is above
        first = False
        source = header.source


def _shrink(shared: Shared, husk: Journal) -> bool:
    """Remove what nobody needs any more of what was left of a thread; whether there was any."""
    header, no = husk.header, husk.no
    _, records, kept = _weigh(shared, no)
    stays = bool(kept) or _is_source(shared, no)
    if stays and len(kept) == records:
        return False
    blobs = _bodies(shared, rows.everything_of(no))
    rest = _rest(shared, husk, header, kept)
    shared.index.forget(no, file=not stays)
    _wipe(shared)
    if stays:
        _put_husk(shared, header, rest)
        _index_husk(shared, header)
    else:
        shared.disk.unlink(husk.path)
        shared.disk.sync_folder(shared.place.purged)
    _remove_unused(shared, blobs)
    return True


def _remove_unused(shared: Shared, blobs: Iterable[str]) -> None:
    """Large bodies go at once; blobs that were put by hand wait for `sweep` and its grace."""
    for hash in blobs:
        if not _is_used(shared.index.db, hash):
            shared.blobs.remove(hash)


def _is_used(db: apsw.Connection, hash: str) -> bool:
    return value(db, "SELECT 1 FROM uses WHERE blob = ?", (hash,)) is not None


def _wipe(shared: Shared) -> None:
    """Make the index durable, and its log empty: what is removed must not live on there."""
    with shared.index.lock:
        try:
            shared.index.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            pass


def sweep(shared: Shared, survey: Survey, before_us: int, keep: Keep | None) -> Swept:
    survey.refresh_all()
    unused = [
        stored
        for stored in shared.blobs.all()
        if stored.put_us <= before_us and not _is_used(shared.index.db, stored.hash)
    ]
    wanted = keep({s.hash for s in unused}) if keep is not None and unused else set()
    gone = [stored for stored in unused if stored.hash not in wanted]
    size = sum(shared.blobs.size_of(stored) for stored in gone)
    for stored in gone:
        shared.disk.unlink(stored.path)
    _remove_leftovers(shared, before_us)
    return Swept(blobs=len(gone), size_bytes=size)


def _remove_leftovers(shared: Shared, before_us: int) -> None:
    """Files that were never finished, by writers that are gone."""
    root = Path(shared.place.root)  # not what is below: other namespaces' writers are at work
    rooms = [(root / room).rglob(".*.new") for room in ROOMS if "/" not in room]
    for found in chain(root.glob(".*.new"), *rooms):
        try:
            if found.lstat().st_mtime_ns // 1000 <= before_us:
                shared.disk.unlink(str(found))
        except OSError:
            pass  # it has been finished meanwhile
