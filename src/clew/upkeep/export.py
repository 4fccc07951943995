"""One thread as one file that needs no other: the lines of a files store, forks made whole."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from clew.core.codec import new_id
from clew.core.hashes import record_hash
from clew.core.lines import Header, header_line, record_line
from clew.core.model import Entry, Record, ThreadDraft
from clew.thread import Thread


def export_lines(thread: Thread) -> Iterator[bytes]:
    """The file, line by line. Put into the `threads` folder of a files store, it is a thread.

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
    """The hash of an entry covers its content and its parents; those of the others their place."""
    moved = replace(record, thread=thread, seq=seq)
    return moved if isinstance(moved, Entry) else replace(moved, hash=record_hash(moved) or "")
