"""What has been read of which file, so that the next import reads only what is new.

A line of the ledger is a fact of the thread that the file became. It is written in one step with
the entries that it speaks of, so that it never says more than the store has, and it goes when the
thread is purged. How a file was read is told by its size and time; whether it has only grown since,
by a mark over its beginning and over what stood right before the place that was read to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins

from clew.core.codec import decode, digest
from clew.core.errors import Corrupt
from clew.core.model import PAGE_MAX, ThreadInfo, ThreadQuery, decode_cursor
from clew.interchange.values import open_values
from clew.store import Store

PREFIX = "import."
_MARK_BYTES = 4096


class Line(Struct, frozen=True, kw_only=True):
    """How far a file has been read. Sizes and offsets are those of the unpacked file."""

    path: str
    agent: str
    size: int  # of the file itself
    mtime_ns: int
    offset: int
    line: int
    mark: str


def key_of(path: Path) -> str:
    return PREFIX + digest(str(path).encode("utf-8", "surrogateescape"))[3:27]


def mark_of(path: Path, offset: int) -> str:
    """The beginning of a file and what stands before an offset, as one hash.

    A compressed file has none: it is not added to, and is read as a whole when it has changed.
    """
    if path.suffix == ".zst":
        return ""
    with open_values(path) as file:
        head = file.read(min(offset, _MARK_BYTES))
    with open_values(path, max(0, offset - _MARK_BYTES)) as file:
        tail = file.read(min(offset, _MARK_BYTES))
    return digest(b"%d\n" % offset + head + tail)


class Ledger:
    """All lines of a store's ledger, by the path of the file."""

    def __init__(self, store: Store) -> None:
        self._lines: dict[str, tuple[str, Line]] = {}
        for deleted in (False, True):
            cursor = None
            while True:
                query = ThreadQuery(archived=None, deleted=deleted, limit=PAGE_MAX, cursor=cursor)
                page = store.engine.threads(query)
                for info in page.items:
                    self._add(info)
                if page.cursor is None:
                    break
                cursor = decode_cursor(page.cursor)

    def _add(self, info: ThreadInfo) -> None:
        for key, data in info.fact_data.items():
            if key.startswith(PREFIX):
                try:
                    line = convert(decode(data), Line)
                except (ValidationError, Corrupt):
                    continue  # it is read again, and what is stored is found
                self._lines[line.path] = (info.id, line)

    def find(self, path: Path) -> tuple[str, Line] | None:
        """The thread that a file became, and how far it was read."""
        return self._lines.get(str(path))

    def set(self, thread: str, line: Line) -> None:
        self._lines[line.path] = (thread, line)


def fact_of(line: Line) -> dict[str, Any]:
    """A line as a fact to be set."""
    return {key_of(Path(line.path)): to_builtins(line)}
