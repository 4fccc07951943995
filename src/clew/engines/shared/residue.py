"""What SQLite leaves in the pages of a file when it moves rows: copies that nobody reads any more.

`secure_delete` overwrites a row where it is when it is deleted. But when a page is full, rows move
to pages beside it, and their old bytes stay in the room between the cells of the page that they
left. Such a copy outlives its row. So after something was removed, that room is overwritten in the
whole file: a copy may be in any page that once lay beside the row's.

This writes past SQLite, so three things must hold. The log is empty and its lock for writing is
ours: then no process puts a page into the file meanwhile. Only room is overwritten that no cell is
in, so that readers, and a machine that dies in the middle, find the same rows. And a commit
follows, upon which every connection forgets the pages that it remembers as they were.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from contextlib import closing

import apsw

_PIECE_PAGES = 256
_RESTS = 10  # times as long as it took last
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
            self._after = time.monotonic() + _RESTS * (time.monotonic() - began)


def wipe(path: str, *, vfs: str | None = None, busy_seconds: float = 5.0) -> bool:
    """Overwrite the room between the cells of all pages. False: others write, or read the log.

    The caller has emptied the log. Errors are those of apsw.
    """
    flags = apsw.SQLITE_OPEN_READWRITE
    with closing(apsw.Connection(path, flags=flags, vfs=vfs)) as db:
        db.set_busy_timeout(round(busy_seconds * 1000))
        try:
            db.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        try:
            if _is_log_used(db.filename_wal):
                return False
            version = db.pragma("user_version")
            if _wipe_pages(db.filename, vfs or ""):
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


def _wipe_pages(path: str, vfs: str) -> bool:
    """Whether there was something to overwrite. It is on disk before a commit tells of it."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB
    # By SQLite's own layer: a file that is opened and closed beside it would lose its locks.
    file = apsw.VFSFile(vfs, path, [flags, 0])
    found = False
    try:
        size_bytes = file.xFileSize()
        head = file.xRead(100, 0) if size_bytes >= 100 else b""
        size = int.from_bytes(head[16:18], "big") if head.startswith(_MAGIC) else 0
        size = 65536 if size == 1 else size
        if size < 512 or size_bytes // size >= _PAGES_MAX:
            return False
        usable = size - head[20]
        # Where a file can be made shorter bit by bit, pages between the others say whose they are.
        every = usable // 5 + 1 if any(head[52:56]) else 0
        for first in range(0, size_bytes // size, _PIECE_PAGES):
            count = min(_PIECE_PAGES, size_bytes // size - first)
            data = file.xRead(count * size, first * size)
            for n in range(count):
                if every and (first + n - 1) % every in (0, 1):
                    continue  # such a page; or the next one, where that of locks is in its place
                room = _room(data, n * size, 100 if first + n == 0 else 0, usable)
                if room is not None:
                    begin, end = room
                    file.xWrite(bytes(end - begin), first * size + begin)
                    found = True
        if found:
            file.xSync(apsw.SQLITE_SYNC_FULL)
    finally:
        file.xClose()
    return found


def _room(data: bytes, page: int, skipped: int, usable: int) -> tuple[int, int] | None:
    """From where to where a page has bytes between its cells' places and its cells, if it has any.

    A page whose cells do not lie where it says is damaged, and left for repair as it is.
    """
    sort, _, cells, begin = _HEAD.unpack_from(data, page + skipped)
    header = _HEADERS.get(sort)
    if header is None:
        return None
    places = page + skipped + header
    start, end = places + 2 * cells, page + (begin or 65536)
    if not start < end <= page + usable or not data[start:end].strip(b"\0"):
        return None
    if cells and min(struct.unpack_from(f">{cells}H", data, places)) < begin:
        return None
    return start, end
