"""Looking over the whole store: which threads there are, and which have changed.

The first look of a handle goes through the folder and compares how every file looks with what
the index remembers, so changes by hand, by a sync tool or before a loss of power are seen. After
that, writers leave a mark for each thread that they change, and only those are looked at. Marks
may be missing, so those who remove things look at everything, or know that nothing has changed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from clew.core.errors import ClewError, NotFound
from clew.core.lines import Source, file_stem
from clew.core.model import Stats
from clew.engines.files.handle import Shared
from clew.engines.files.journal import stamp_of
from clew.engines.files.thread_file import read_header
from clew.engines.shared.tables.rows import value

_log = logging.getLogger("clew")

_Looks = tuple[int, int, bytes, int, int]


class Survey:
    """What a handle knows about all threads."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._mutex = threading.Lock()
        self._epoch = -1
        self._last_known: _Looks | None = None

    def refresh(self) -> None:
        """Bring the index up to date. A thread that cannot be read stays as it was known."""
        with self._mutex:
            epoch = self._shared.index.epoch
            for stem in self._marked() if self._epoch == epoch else self._changed_files():
                try:
                    self._update(stem)
                except (ClewError, OSError) as error:
                    _log.warning("%s cannot be read, it is listed as it was: %s", stem, error)
            self._epoch = epoch

    def refresh_all(self) -> None:
        """The same for those who remove things: they must know everything, or not begin."""
        with self._mutex:
            for stem in self._changed_files():
                self._update(stem)
            for key, _ in thread_files(self._shared.place.purged):
                self._update_husk(key)

    @contextmanager
    def relations_known(self) -> Iterator[None]:
        """Inside, the index has every fork and every use of a blob. Needs the gate shut.

        Whoever adds one leaves a token at the gate first, and what is done by hand shows at the
        folders. As long as both are as the last purge left them, no file has to be looked at.
        """
        shared = self._shared
        if self._last_known is None or self._last_known != _looks(shared):
            self.refresh_all()
        self._last_known = None
        token = shared.gate.note(shared.disk)  # other handles do not know what we remove
        yield
        looks = _looks(shared)
        self._last_known = looks if token in looks else None

    def _changed_files(self) -> list[str]:
        self._shared.place.restore_index()
        known = self._shared.index.stamps()
        changed = []
        for name, stamp in thread_files(self._shared.place.threads):
            if known.pop(name, None) != stamp:
                changed.append(name)
        # What is left of the known ones has gone. Marks are looked at too, to take them away.
        return changed + list(known) + self._marks()

    def _marked(self) -> list[str]:
        shared = self._shared
        try:
            if shared.index.is_shared:
                return self._marks()
        except FileNotFoundError:
            pass  # somebody has deleted the index
        return self._changed_files()

    def _marks(self) -> list[str]:
        return [name for name in os.listdir(self._shared.place.changed) if name.isascii()]

    def _update(self, stem: str) -> None:
        shared = self._shared
        self._unmark(stem)  # first: a later change marks it again
        path = f"{shared.place.threads}/{stem}.jsonl"
        try:
            if stamp_of(os.lstat(path)) == shared.index.stamp(stem):
                return
            id = read_header(path).draft.id
            if file_stem(id) != stem:
                return  # a copy under another name is not a thread; verify tells
            journal = shared.journal(id)
            with journal.mutex:
                journal.refresh_index()
                if stamp_of(os.lstat(path)) != shared.index.stamp(stem):
                    journal.refresh_index(afresh=True)  # changed by hand, or the index is new
        except (NotFound, FileNotFoundError):
            shared.index.forget_name(stem)

    def _unmark(self, stem: str) -> None:
        try:
            os.unlink(f"{self._shared.place.changed}/{stem}")
        except OSError:
            pass

    def _update_husk(self, key: str) -> None:
        shared = self._shared
        header = read_header(shared.place.husk(key))
        known = shared.index.known(header.key)
        if known is None:
            husk = shared.husk(Source(header.draft.id, header.key, 0))
            with husk.mutex:
                husk.refresh_index()


def _looks(shared: Shared) -> _Looks:
    """What is different when somebody else has added or removed something, or the index is new."""
    threads, purged = os.stat(shared.place.threads), os.stat(shared.place.purged)
    index, noted = shared.index, shared.gate.noted()
    return index.epoch, index.closings, noted, threads.st_mtime_ns, purged.st_mtime_ns


def thread_files(folder: str) -> Iterator[tuple[str, int]]:
    """The files of threads, by name without ending, and how they look."""
    # By a descriptor of the folder: then a look at a file need not find the folder again.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(descriptor) as found:
            for item in found:
                name = item.name
                if name[-6:] == ".jsonl" and name[0] != "." and name.isascii():
                    look = item.stat(follow_symlinks=False)
                    yield name[:-6], hash((look.st_ino, look.st_size, look.st_mtime_ns))
    finally:
        os.close(descriptor)


def stats(shared: Shared, survey: Survey) -> Stats:
    survey.refresh()
    with shared.index.lock:
        db = shared.index.db

        def number(sql: str) -> int:
            return int(value(db, sql) or 0)

        blobs = list(shared.blobs.all())
        return Stats(
            threads=number("SELECT count(*) FROM threads WHERE shelf < 2"),
            deleted=number("SELECT count(*) FROM threads WHERE shelf = 2"),
            entries=number("SELECT count(*) FROM records WHERE type = 0"),
            records=number("SELECT count(*) FROM records"),
            blobs=len(blobs),
            blob_bytes=sum(shared.blobs.size_of(blob) for blob in blobs),
            stored_bytes=number("SELECT sum(size) FROM files") + sum(blob.size for blob in blobs),
        )
