"""Which threads a store has, and which of their files have changed since the index saw them.

The first look of a handle goes through the folder and compares how every file looks with what
the index remembers, so changes by hand, by a sync tool or before a loss of power are seen. After
that, writers leave a mark for each thread that they change, and only those are looked at. Marks
may be missing, so purge and sweep look at everything, or know that nothing has changed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from zlib import crc32

from clew.core.errors import ClewError, NotFound
from clew.core.lines import Header, Source
from clew.core.model import Stats, ThreadDraft, ThreadHead
from clew.core.names import file_stem, id_of
from clew.engines.files.disk import is_exhausted
from clew.engines.files.index import Untrue
from clew.engines.files.intake import note_damage
from clew.engines.files.open_store import OpenStore
from clew.engines.files.place import LINES, PACKED
from clew.engines.files.thread_file import look_at, read_header, stamp_of
from clew.engines.shared.tables.rows import every, value
from clew.engines.shared.thread_list import PURGED

_log = logging.getLogger("clew")

LOGGED_MAX = 20  # threads that a look at the folder names; a list names all of them

_PACKED = LINES + PACKED
_Looks = tuple[int, int, bytes, int, int]


class Changes:
    """Brings the index up to date with all files, for what needs to know every thread."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._mutex = threading.Lock()
        self._epoch = -1
        self._sound = -1  # the epoch of the index that was found sound
        self._last_known: _Looks | None = None

    def refresh(self) -> None:
        """Bring the index up to date. A thread that cannot be read is listed as damaged."""
        with self._mutex, self._store.looking_at_all():
            self._store.index.keep_up()
            epoch = self._store.index.epoch
            damaged: list[tuple[str, str]] = []
            for stem in self._marked() if self._epoch == epoch else self._changed_files():
                try:
                    self._update(stem)
                except (ClewError, OSError) as error:
                    if is_exhausted(error):
                        raise
                    if len(damaged) < LOGGED_MAX:
                        text = "%s cannot be read, it is listed as damaged: %s"
                        _log.warning(text, stem, error)
                    damaged.append((stem, str(error)))
            if len(damaged) > LOGGED_MAX:
                _log.warning("%d more cannot be read, either", len(damaged) - LOGGED_MAX)
            self._list_damaged(damaged)
            self._epoch = epoch

    def refresh_all(self) -> None:
        """The same for purge and sweep: they must know everything, or not begin."""
        with self._mutex, self._store.looking_at_all():
            self._store.index.keep_up()
            self._check_index()
            for stem in self._changed_files():
                self._update(stem)
            for key in thread_files(self._store.place.purged, packed_too=False):
                self._update_husk(key)

    def _check_index(self) -> None:
        """Once a handle: forks and uses of blobs stand in two trees, which a flipped bit parts.

        What is removed because of a wrong one is gone.
        """
        index = self._store.index
        if index.is_shared and self._sound != index.epoch:
            flaw = index.flaw()
            if flaw is not None:
                raise Untrue(index.file, flaw)
            self._sound = index.epoch

    @contextmanager
    def relations_known(self) -> Iterator[None]:
        """Inside, the index has every fork and every use of a blob. Needs the gate shut.

        A writer that adds one leaves a token at the gate first, and what is done by hand shows at
        the folders. As long as both are as the last purge left them, no file has to be looked at.
        """
        store = self._store
        store.index.keep_up()
        if self._last_known is None or self._last_known != _looks(store):
            self.refresh_all()
        self._last_known = None
        token = store.gate.note(store.disk)  # other handles do not know what we remove
        yield
        # Another token: a file was found changed on the way, and a fork of it may be unknown.
        looks = _looks(store)
        self._last_known = looks if token in looks else None

    def _changed_files(self) -> list[str]:
        if not self._store.readonly:
            self._store.place.restore_index()
        found = thread_files(self._store.place.threads)
        # Nearly always nothing has changed, and then SQLite need not name every file once more.
        if self._store.index.stamp_sum() == (len(found), sum(found.values())):
            return self._marks()
        known = self._store.index.stamps()
        changed = [name for name, stamp in found.items() if known.pop(name, None) != stamp]
        # What is left of the known ones has gone. Marks are looked at too, to take them away.
        return changed + list(known) + self._marks()

    def _marked(self) -> list[str]:
        store = self._store
        try:
            if store.index.is_shared:
                return self._marks()
        except FileNotFoundError:
            pass  # the index was deleted by hand
        return self._changed_files()

    def _marks(self) -> list[str]:
        if self._store.readonly:
            return []  # they are for the index on disk
        return [name for name in os.listdir(self._store.place.changed) if name.isascii()]

    def _update(self, stem: str) -> None:
        store = self._store
        # First of all: a change that comes while the file is read marks it again.
        if not store.readonly:
            with suppress(OSError):
                os.unlink(f"{store.place.changed}/{stem}")
        path = store.place.named(stem)
        try:
            if stamp_of(stem, look_at(path)) == store.index.stamp(stem):
                return
            id = read_header(path).draft.id
            if file_stem(id) != stem:
                return  # a copy under another name is not a thread; verify tells
            journal = store.journal(id)
            with journal.mutex:
                journal.refresh_index()
                if stamp_of(stem, look_at(path)) != store.index.stamp(stem):
                    journal.refresh_index(afresh=True)  # changed by hand, or the index is new
        except (NotFound, FileNotFoundError):
            store.index.forget_name(stem)

    def _list_damaged(self, damaged: list[tuple[str, str]]) -> None:
        """A file that cannot be read has a thread all the same, with the id that its name tells.

        All of them at once: a transaction for each would write as many pages of the index again.
        """
        found = [(self._header_of_damaged(stem), stem, reason) for stem, reason in damaged]
        if damaged:
            with self._store.index.writing():
                for header, stem, reason in found:
                    if header is not None and file_stem(header.draft.id) == stem:
                        note_damage(self._store.index, stem, header, reason)

    def _header_of_damaged(self, stem: str) -> Header | None:
        path = self._store.place.named(stem)
        try:
            return read_header(path)
        except (ClewError, OSError):
            id = id_of(stem)
            if id is None:
                return None  # its name is a hash, and its first line is gone
            try:
                time_us = look_at(path).st_mtime_ns // 1000
            except OSError:  # no test: it goes between two looks
                return None
            return Header(f"?{stem}", ThreadDraft(id=id, created_us=time_us))

    def _update_husk(self, key: str) -> None:
        store = self._store
        header = read_header(store.place.husk(key))
        known = store.index.known(header.key)
        if known is None:
            husk = store.husk(Source(header.draft.id, header.key, 0))
            with husk.mutex:
                husk.refresh_index()


def _looks(store: OpenStore) -> _Looks:
    """What differs once another handle has added or removed something, or the index is new."""
    threads, purged = os.stat(store.place.threads), os.stat(store.place.purged)
    index, noted = store.index, store.gate.noted()
    return index.epoch, index.closings, noted, threads.st_mtime_ns, purged.st_mtime_ns


def thread_files(folder: str, packed_too: bool = True) -> dict[str, int]:
    """The files of threads, by name without ending, and how they look: `stamp_of` each."""
    stamps: dict[str, int] = {}
    packed: dict[str, int] = {}
    # By a descriptor of the folder: then a look at a file need not find the folder again.
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return stamps  # a store that is only looked at may lack it
    try:
        with os.scandir(descriptor) as found:
            for item in found:
                name = item.name
                plain = name.endswith(LINES)
                if (
                    (plain or (packed_too and name.endswith(_PACKED)))
                    and name[0] != "."
                    and name.isascii()
                ):
                    try:
                        look = item.stat(follow_symlinks=False)
                    except FileNotFoundError:  # no test: between two calls of the system
                        continue  # purged since the folder was read
                    stem = name[: -len(LINES if plain else _PACKED)]
                    # Not by a call: of ten thousand files the calls would show.
                    (stamps if plain else packed)[stem] = hash(
                        (crc32(stem.encode()), look.st_ino, look.st_size, look.st_mtime_ns)
                    )
    finally:
        os.close(descriptor)
    return packed | stamps  # where both are there, the plain one is the thread


def heads(store: OpenStore, changes: Changes) -> list[ThreadHead]:
    changes.refresh()
    sql = "SELECT t.id, f.key, t.seq FROM threads t JOIN files f ON f.no = t.no WHERE t.shelf < ?"
    with store.index.asked() as db:
        return [ThreadHead(*row) for row in every(db, sql, (PURGED,))]


def stats(store: OpenStore, changes: Changes) -> Stats:
    changes.refresh()
    with store.index.asked() as db:

        def number(sql: str) -> int:
            return int(value(db, sql) or 0)

        blobs = list(store.blobs.all())
        return Stats(
            threads=number("SELECT count(*) FROM threads WHERE shelf < 2"),
            deleted=number("SELECT count(*) FROM threads WHERE shelf = 2"),
            entries=number("SELECT count(*) FROM records WHERE type = 0"),
            records=number("SELECT count(*) FROM records"),
            blobs=len(blobs),
            blob_bytes=sum(store.blobs.size_of(blob) for blob in blobs),
            stored_bytes=_file_bytes(store) + sum(blob.size for blob in blobs),
        )


def _file_bytes(store: OpenStore) -> int:
    """What the files of threads take, and what is left of purged ones."""
    size = 0
    for folder in (store.place.threads, store.place.purged):
        with suppress(FileNotFoundError), os.scandir(folder) as found:
            for item in found:
                if item.name.endswith((LINES, _PACKED)):
                    with suppress(FileNotFoundError):
                        size += item.stat(follow_symlinks=False).st_size
    return size
