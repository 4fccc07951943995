"""What SQLite leaves in the pages of a file when it moves rows: copies that nobody reads any more.

`secure_delete` overwrites a row where it is when it is deleted. But when a page is full, rows move
to pages beside it, and their old bytes stay in the room between the cells of the page that they
left. Such a copy outlives its row. So after something was removed, that room is overwritten in the
whole file: a copy may be in any page that once lay beside the row's. Which pages have something
there is read before, without any lock.

This writes past SQLite, so three things must hold. The log is empty and its lock for writing is
ours: then no process puts a page into the file meanwhile. Only room is overwritten that no cell is
in, so that readers, and a machine that dies in the middle, find the same rows. And a commit
follows, upon which every connection forgets the pages that it remembers as they were.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import apsw
from msgspec import Struct

_PIECE_PAGES = 256
_RESTS = 10  # times as long as it took last
_SHORT_SECONDS = 0.02  # a file that takes less is wiped each time
_PAGES_MAX = 0x0200_0000  # from here on other sorts of pages may look like those of trees
_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}  # pages of trees, and how long their headers are
_HEAD = struct.Struct(">BHHH")  # sort, first free block, cells, where they begin
_MAGIC = b"SQLite format 3\0"


class Pace:
    """When to wipe a file: it takes as long as the file is large, and removals come in rows."""

    def __init__(self) -> None:
        self.is_due = False  # whether something was removed since
        self._after = 0.0

    def wipe(self, work: Callable[[], bool], *, always: bool = False) -> None:
        """Do it, unless it was done a moment ago; then it stays due."""
        self.is_due = True
        began = time.monotonic()
        if always or began >= self._after:
            self.is_due = not work()
            took = time.monotonic() - began
            self._after = began + _RESTS * took if took > _SHORT_SECONDS else began


def find(path: str, vfs: str | None = None) -> list[int]:
    """The numbers of the pages that have something in that room, read without any lock.

    The log was emptied after the removal. What comes into other pages since is of rows that are
    still there.
    """
    with _opened(path, vfs, apsw.SQLITE_OPEN_READONLY) as file:
        shape = _shape(file)
        if shape is None:
            return []
        found: list[int] = []
        for first in range(0, shape.pages, _PIECE_PAGES):
            count = min(_PIECE_PAGES, shape.pages - first)
            data = _read(file, count * shape.size, first * shape.size)
            found += [first + n for n in range(count) if shape.room(data, n, first + n)]
        return found


def wipe(
    path: str,
    *,
    vfs: str | None = None,
    pages: Sequence[int] | None = None,
    busy_seconds: float = 5.0,
) -> bool:
    """Overwrite that room in pages; by default in all. False: others write, or read the log.

    The caller has emptied the log. Errors are those of apsw.
    """
    pages = find(path, vfs) if pages is None else pages
    if not pages:
        return True
    with closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)) as db:
        db.set_busy_timeout(round(busy_seconds * 1000))
        try:
            db.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        try:
            if _is_log_used(db.filename_wal):
                return False
            version = db.pragma("user_version")
            _overwrite(db.filename, vfs, pages)
            db.pragma("user_version", version)  # the same, but it is a commit
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
    return True


def _is_log_used(log: str) -> bool:
    try:
        return os.stat(log).st_size > 0
    except FileNotFoundError:
        return False


def _overwrite(path: str, vfs: str | None, pages: Sequence[int]) -> None:
    """It is on disk before a commit tells of it."""
    with _opened(path, vfs, apsw.SQLITE_OPEN_READWRITE) as file:
        shape = _shape(file)
        if shape is None:
            return
        for page in pages:
            if page < shape.pages:
                room = shape.room(_read(file, shape.size, page * shape.size), 0, page)
                if room is not None:
                    file.xWrite(bytes(room[1] - room[0]), page * shape.size + room[0])
        file.xSync(apsw.SQLITE_SYNC_FULL)


@contextmanager
def _opened(path: str, vfs: str | None, flag: int) -> Iterator[apsw.VFSFile]:
    """By SQLite's own layer: a file that is opened and closed beside it would lose its locks."""
    file = apsw.VFSFile(vfs or "", os.path.abspath(path), [flag | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        yield file
    finally:
        file.xClose()


def _read(file: apsw.VFSFile, count: int, place: int) -> bytes:
    """Filled up with zeros, where the file has become shorter meanwhile."""
    return file.xRead(count, place).ljust(count, b"\0")


def _shape(file: apsw.VFSFile) -> Shape | None:
    """None: it is no database, or one of which not every page can be told from others."""
    size_bytes = file.xFileSize()
    head = file.xRead(100, 0) if size_bytes >= 100 else b""
    size = int.from_bytes(head[16:18], "big") if head.startswith(_MAGIC) else 0
    size = 65536 if size == 1 else size
    if size < 512 or size_bytes // size >= _PAGES_MAX:
        return None
    usable = size - head[20]
    return Shape(size_bytes // size, size, usable, usable // 5 + 1 if any(head[52:56]) else 0)


class Shape(Struct, frozen=True):
    """Of a file: how many pages, of what size, and which are not of trees.

    Where a file can be made shorter bit by bit, each so many pages one says whose the others are.
    """

    pages: int
    size: int
    usable: int
    every: int

    def room(self, data: bytes, n: int, page: int) -> tuple[int, int] | None:
        """Where the n-th page of some bytes has anything between the places of its cells and its
        cells, from its beginning; None where it has nothing. `page` is its number, from 0.

        A page whose cells do not lie where it says is damaged, and left for repair as it is.
        """
        if self.every and (page - 1) % self.every in (0, 1):
            return None  # such a page; or the next one, where that of locks is in its place
        start, skipped = n * self.size, 100 if page == 0 else 0
        sort, _, cells, begin = _HEAD.unpack_from(data, start + skipped)
        header = _HEADERS.get(sort)
        if header is None:
            return None
        places, end = skipped + header, begin or 65536
        free = places + 2 * cells
        if not free < end <= self.usable or not data[start + free : start + end].strip(b"\0"):
            return None
        if cells and min(struct.unpack_from(f">{cells}H", data, start + places)) < begin:
            return None
        return free, end
