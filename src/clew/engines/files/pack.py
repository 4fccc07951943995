"""Packing threads that are cold, and unpacking one before it is written to.

The packed file is written beside the plain one and compared with it while others go on. Then, under
the locks that a writer has, it gets its name before the plain one goes; unpacking is the same the
other way round. Whatever happens in between, one of the two is whole, and where both are there the
plain one is the thread.

The gate is open meanwhile, so that no purge or sweep looks for files just then: they change their
names. Those that read across forks are not kept waiting, since the lines stay as they are.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from clew.core.engine import PackResult
from clew.core.errors import Corrupt, NotFound, Unsupported
from clew.core.lines import is_sound
from clew.engines.files import leases
from clew.engines.files.frames import FRAME_BYTES, RATIO_MAX, Frames, packed
from clew.engines.files.locks import EXCLUSIVE, FileLock
from clew.engines.files.place import PACKED, declare_packed, remove_quietly, write_all
from clew.engines.files.thread_file import ThreadFile
from clew.engines.shared.tables import rows
from clew.engines.shared.tables.rows import every, value
from clew.engines.shared.thread_list import PURGED

if TYPE_CHECKING:
    from clew.engines.files.changes import Changes
    from clew.engines.files.journal import Journal
    from clew.engines.files.open_store import OpenStore

BLOCK_BYTES = 4096  # a file takes at least one: what saves none is left as it is
WORTH = 1.0  # of the blocks that the plain file takes: so many are too many
_log = logging.getLogger("clew")


class _Draft(Struct, frozen=True):
    """A packed file that has no name yet: how long it is, and the plain one that it was made of."""

    path: str
    inode: int
    stored: int


# --- packing ---


def pack(
    store: OpenStore,
    changes: Changes,
    *,
    idle_seconds: float,
    max_seconds: float | None,
    after: str | None,
) -> PackResult:
    """Thread after thread by their ids, each as a whole. One process packs at a time."""
    rests_us = store.clock().wall_us - round(idle_seconds * 1e6)
    until = math.inf if max_seconds is None else time.monotonic() + max_seconds
    done = PackResult()
    lock = FileLock(f"{store.place.locks}/pack")
    try:
        with lock.held(EXCLUSIVE, store.busy_seconds):
            cold = store.with_index(lambda: _cold(store, changes, rests_us, after or ""))
            for id in cold:
                try:
                    done = _pack(store, store.journal(id), rests_us, done)
                except NotFound:
                    pass  # purged meanwhile
                except (Corrupt, Unsupported) as error:
                    _log.warning("thread %r is not packed: %s", id, error)
                # From the beginning not before the first: what gains nothing would be all that
                # each call gets to.
                late = (done.packs or after is not None) and time.monotonic() >= until
                if late and id != cold[-1]:
                    return replace(done, complete=False, stopped=id)
    finally:
        lock.close()
    return done


def _cold(store: OpenStore, changes: Changes, rests_us: int, after: str) -> list[str]:
    """The threads that rest and have a plain file, of more than one block."""
    changes.refresh()
    query = (
        "SELECT t.id FROM threads t JOIN files f ON f.no = t.no"
        " WHERE t.shelf < ? AND t.updated_us <= ? AND f.size > ? AND f.damage IS NULL AND t.id > ?"
        " ORDER BY t.id"
    )
    with store.index.asked() as db:
        found = [id for (id,) in every(db, query, (PURGED, rests_us, BLOCK_BYTES, after))]
    return [id for id in found if os.path.lexists(store.place.thread(id))]


def _pack(store: OpenStore, journal: Journal, rests_us: int, done: PackResult) -> PackResult:
    """Pack a thread if that gains something and nothing comes in between."""
    with journal.mutex:
        store.with_index(journal.refresh_index)
        if journal.file.is_packed or not _rests(store, journal, rests_us):
            return done
        size = journal.extent
    draft = _draft(store, journal, size)
    if draft is None:
        return done
    named = False
    try:
        with store.gate.open(), journal.mutex, journal.alone():
            store.with_index(lambda: journal.catch_up(exclusive=True))
            file = journal.file
            same = (file.inode, file.size, journal.extent) == (draft.inode, size, size)
            # Written anew, appended to, or leased meanwhile: or swept, with all that is unfinished.
            if not same or not _rests(store, journal, rests_us) or not os.path.lexists(draft.path):
                return done
            remove_leftover(store, journal)
            declare_packed(store.place.root, store.disk)
            store.disk.rename(draft.path, journal.path + PACKED)
            named = True
            store.disk.sync_folder(store.place.threads, always=True)
            store.disk.unlink(journal.path)
            store.disk.sync_folder(store.place.threads, always=True)
            store.mark(journal.mark)
            journal.close_file()
            entries = store.with_index(lambda: _entries(store, journal))
    finally:
        if not named:
            remove_quietly(store.disk, draft.path)
    return replace(
        done,
        entries=done.entries + entries,
        packs=done.packs + 1,
        size_bytes=done.size_bytes + size,
        stored_bytes=done.stored_bytes + draft.stored,
    )


def _rests(store: OpenStore, journal: Journal, rests_us: int) -> bool:
    """Whether nothing was written for so long, and no writer holds it. Needs the mutex."""
    if journal.head.updated_us > rests_us:
        return False
    return leases.live(journal.lock.descriptor, journal.id, store.clock) is None


def _entries(store: OpenStore, journal: Journal) -> int:
    """How many entries a thread has; with that the index knows how its file looks now."""
    journal.catch_up()
    query = "SELECT count(*) FROM records WHERE no BETWEEN ? AND ? AND type = 0"
    with store.index.asked() as db:
        return int(value(db, query, rows.everything_of(journal.no)) or 0)


def _draft(store: OpenStore, journal: Journal, size: int) -> _Draft | None:
    """A thread's file packed, beside it, synced and compared. None if that gains nothing.

    It is begun before the plain file is opened. An erasure puts another file in the place of that
    one and removes what is beside it then, so that no draft of the old one outlives it.
    """
    path, disk = _drafts(journal)[0], store.disk
    if os.path.lexists(path):
        disk.unlink(path)  # of a process that died
    descriptor = disk.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    made = None
    try:
        source = ThreadFile(journal.path, journal.id, husk=False, readonly=True)
        try:
            stored = _write(store, descriptor, source, size)
            if stored and size <= RATIO_MAX * stored:
                disk.sync(descriptor, always=True)
                _compare(Frames(descriptor, path), source, size)
                made = _Draft(path, source.inode, stored)
        finally:
            source.close()
    except FileNotFoundError:
        return None  # packed or purged meanwhile
    finally:
        os.close(descriptor)
        if made is None:
            remove_quietly(disk, path)
    return made


def _write(store: OpenStore, descriptor: int, source: ThreadFile, size: int) -> int:
    """Write the frames; how long they are, or 0 if they would take as many blocks."""
    stored = 0
    try:
        for piece in packed(source.read, size):
            stored += len(piece)
            if _blocks(stored) >= WORTH * _blocks(size):
                return 0
            write_all(store.disk, descriptor, piece)
    except ValueError:
        return 0  # a line is too long
    return stored


def _blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES)


def _compare(frames: Frames, source: ThreadFile, size: int) -> None:
    """Corrupt unless a draft has the very lines of the plain file, and these are sound."""
    at, id = 0, source.header.draft.id.encode("utf-8")
    for lines in frames.each():
        if lines != source.read(at, len(lines)):
            raise Corrupt(source.path, "it was not packed right, and is left as it was")
        begin = source.start if at == 0 else 0  # behind the header
        if not all(is_sound(id, text) for text in lines[begin:].split(b"\n")[:-1]):
            raise Corrupt(source.path, "it is damaged, and left as it is; run clew verify")
        at += len(lines)
    if at != size:
        raise Corrupt(source.path, "it was not packed as a whole, and is left as it was")


# --- unpacking ---


@contextmanager
def awake(store: OpenStore, journal: Journal) -> Iterator[None]:
    """Inside, the thread's file is a plain one, and no other writer is at work. Holds the mutex.

    Not inside of its mutex, but by who has shut the gate: others may hold that and want this one.
    """
    while True:
        with journal.mutex, journal.alone():
            if not journal.file.is_packed:
                if not journal.file.alone_checked:
                    remove_leftover(store, journal)
                    journal.file.alone_checked = True
                yield
                return
        with store.gate.open(), journal.mutex, journal.alone():
            if journal.file.is_packed:
                _unpack(store, journal)


def _unpack(store: OpenStore, journal: Journal) -> None:
    # Nothing is written of a file that cannot be read to its end, whatever it says of its size.
    store.with_index(journal.catch_up)
    disk, file, path = store.disk, journal.file, _drafts(journal)[1]
    if os.path.lexists(path):
        disk.unlink(path)  # of a process that died
    try:
        descriptor = disk.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        try:
            for at in range(0, file.size, FRAME_BYTES):
                write_all(disk, descriptor, file.read(at, FRAME_BYTES))
            disk.sync(descriptor, always=True)
        finally:
            os.close(descriptor)
        disk.rename(path, journal.path)
    except BaseException:
        remove_quietly(disk, path)
        raise
    disk.sync_folder(store.place.threads, always=True)
    disk.unlink(journal.path + PACKED)
    disk.sync_folder(store.place.threads, always=True)
    store.mark(journal.mark)
    journal.close_file()


# --- what is left over ---


def remove_leftover(store: OpenStore, journal: Journal) -> None:
    """Remove a packed file beside the plain one, which has all that is in it. Needs the locks.

    Corrupt if it has anything else: then it is not what packing or unpacking left there.
    """
    if os.path.lexists(journal.path + PACKED):
        check_leftover(journal.file)
        store.disk.unlink(journal.path + PACKED)
        store.disk.sync_folder(store.place.threads, always=True)


def check_leftover(plain: ThreadFile) -> None:
    """Corrupt unless the packed file beside a plain one has the same lines, or its first ones."""
    path, at = plain.path + PACKED, 0
    other = ThreadFile(path, plain.header.draft.id, husk=False, readonly=True)
    try:
        for lines in other.pieces(other.size):
            if lines != plain.read(at, len(lines)):
                name = os.path.basename(plain.path)
                text = f"it has other lines than {name} beside it, which is taken for the thread; "
                raise Corrupt(path, text + "run clew repair to keep those of both")
            at += len(lines)
    finally:
        other.close()


def remove_drafts(store: OpenStore, journal: Journal) -> None:
    """Remove what a process that died had written of a thread, to pack or unpack it.

    After the thread's file was replaced or removed: one that is begun later has the new lines.
    """
    left = [path for path in _drafts(journal) if os.path.lexists(path)]
    for path in left:
        store.disk.unlink(path)
    if left:
        store.disk.sync_folder(store.place.threads)


def remove_thread(store: OpenStore, journal: Journal) -> None:
    """Remove a thread's file for good. Needs the locks."""
    disk, folder = store.disk, store.place.threads
    plain, other = journal.path, journal.path + PACKED
    if os.path.lexists(other):
        disk.unlink(other)
        disk.sync_folder(folder)
    if os.path.lexists(plain):
        disk.unlink(plain)
        disk.sync_folder(folder)
    remove_drafts(store, journal)


def _drafts(journal: Journal) -> tuple[str, str]:
    """What a thread's file is called while it is packed, and while it is unpacked."""
    folder, name = os.path.split(journal.path)
    return f"{folder}/.{name}{PACKED}.new", f"{folder}/.{name}.new"
