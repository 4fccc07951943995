"""Export: one thread as one file that needs no other, in the lines of a store of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from clew.core.codec import new_id
from clew.core.errors import AlreadyExists
from clew.core.hashes import record_hash
from clew.core.lines import Header, file_stem, header_line, record_line
from clew.core.model import Entry, Record, ThreadDraft
from clew.thread import Thread


class Exported(Struct, frozen=True, kw_only=True):
    """Where a thread was written to, and how many records it has there."""

    path: Path
    records: int


def export(thread: Thread, path: str | os.PathLike[str] | None = None) -> Exported:
    """Write a thread to a new file; without a path, named by the thread, in the current folder.

    Under that name, in the `threads` folder of a store of files, it is a thread there.
    AlreadyExists: there is something at the path. When it raises, no file is left behind.
    """
    target = Path(f"{file_stem(thread.id)}.jsonl" if path is None else path)
    try:
        # Only a file that is not there yet, and for its owner alone: what it holds may be private.
        descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise AlreadyExists("file", str(target)) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            lines = sum(file.write(line) > 0 for line in export_lines(thread))
    except BaseException:
        target.unlink()
        raise
    return Exported(path=target, records=lines - 1)  # the first line is the header


def export_lines(thread: Thread) -> Iterator[bytes]:
    """The file, line by line.

    What a fork shares with its origin comes first, as entries of its own: ids, times and hashes
    stay, seq is counted anew. Large bodies are in the lines; blobs that entries name are not.
    """
    info = thread.info
    draft = ThreadDraft(id=info.id, created_us=info.created_us, parent=info.parent)
    yield header_line(Header(new_id(), draft))
    name = info.id.encode("utf-8")
    for seq, record in enumerate(_records(thread), start=1):
        yield record_line(name, _renumbered(record, info.id, seq))


def _records(thread: Thread) -> Iterator[Record]:
    origin = thread.info.origin
    if origin is not None and origin.entry is not None:
        yield from thread.path(origin.entry)
    yield from thread.read()


def _renumbered(record: Record, thread: str, seq: int) -> Record:
    """A record at its new place. Only moves and facts have the place in their hash."""
    moved = replace(record, thread=thread, seq=seq)
    return moved if isinstance(moved, Entry) else replace(moved, hash=record_hash(moved) or "")
