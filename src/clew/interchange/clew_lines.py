"""Clew's own lines: one thread as a file that needs no other.

The form "clew" has the lines of a store of files and no others, so that it can be put into one.
The form "bundle" has in between what else a thread needs to be at home in any store: a line for
each blob, before the first entry that needs it, and at the end what it all comes to.
docs/format/exports.md has the words of these lines; `bundle` reads them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterator
from typing import Any

from msgspec.structs import replace

from clew.core.codec import encode, new_id, to_bytes
from clew.core.errors import Corrupt, NotFound
from clew.core.hashes import record_hash
from clew.core.lines import Header, header_line, record_line, summed
from clew.core.model import Entry, Fact, Record, ThreadDraft, ThreadInfo
from clew.core.tombstones import used_blobs
from clew.interchange.delivery import json_line
from clew.interchange.export import Writing
from clew.messages import replies
from clew.messages.neutral import Usage
from clew.snapshots import catalogue
from clew.snapshots.tree import Trees
from clew.thread import Thread

VERSION = 1  # of what a bundle has beside the lines of a store of files


def write(thread: Thread, writing: Writing) -> Iterator[bytes]:
    """The header, and then a line for every record.

    What a fork shares with its origin comes first, as entries of its own: ids, times and hashes
    stay, seq is counted anew. Large bodies are in the lines.
    Without secrets, bodies are other ones, so hashes are made anew.
    """
    info = thread.info
    draft = ThreadDraft(id=info.id, created_us=info.created_us, parent=info.parent)
    yield header_line(Header(new_id(), draft))
    name = info.id.encode("utf-8")
    records = _Outgoing(info, writing)
    if writing.form == "clew":
        for record in _records(thread, info):
            yield record_line(name, records.place(record))
        return
    blobs = _Blobs(thread, writing)
    yield _line(name, {"type": "bundle", "version": VERSION, **_identity(info)})
    for record in _records(thread, info):
        for blob in blobs.needed(record):
            yield _line(name, blob)
        yield record_line(name, records.place(record, blobs.missing))
    yield _line(name, {"type": "end", **records.sums(), "blobs": blobs.count})


def _line(thread: bytes, members: dict[str, Any]) -> bytes:
    return summed(thread, json_line(members)[:-2])


def _identity(info: ThreadInfo) -> dict[str, Any]:
    """Whose record it is: the program, and where people met it, as far as the thread says so."""
    harness = info.facts.get("harness") or info.agent
    surface = info.facts.get("surface")
    return {
        "harness": harness if isinstance(harness, str) else "clew",
        "surface": surface if isinstance(surface, str) else None,
    }


def _records(thread: Thread, info: ThreadInfo) -> Iterator[Record]:
    origin = info.origin
    if origin is not None and origin.entry is not None:
        yield from thread.path(origin.entry)
        for snapshot in catalogue.visible(thread.store.engine, info):
            key = catalogue.PREFIX + snapshot.id
            if key not in info.fact_data:
                # It is kept by a fact of the origin's, which this file does without.
                data = encode(catalogue.fact_of(replace(snapshot, left_out=())))
                yield Fact(info.id, 0, f"{snapshot.id}.kept", snapshot.time_us, b"", key, data)
    yield from thread.read()


class _Outgoing:
    """Records at their new places, with the hashes that they have there.

    Only moves and facts have the place in their hash. An entry that was cleaned has another one,
    and so have all that come after it: the file is whole in itself.
    """

    def __init__(self, info: ThreadInfo, writing: Writing) -> None:
        self._thread = info.id
        self._writing = writing
        self._seq = 0
        self._entries = 0
        self._hashes: dict[str, str] = {}
        self._changed: set[str] = set()
        self._progress = replies.Progress()
        self._used: dict[int, Usage | None] = {}

    def place(self, record: Record, missing: Collection[str] = ()) -> Record:
        """`missing` are blobs that the file does not have: no entry of it names them."""
        self._seq += 1
        if isinstance(record, Entry):
            self._entries += 1
            made: Record = self._entry(record, missing)
        else:
            made = replace(record, thread=self._thread, seq=self._seq)
            made = replace(made, digest=to_bytes(record_hash(made) or ""))
        told = replies.read(made, self._progress)
        if told is not None:
            self._used[told.key] = told.usage
        return made

    def _entry(self, entry: Entry, missing: Collection[str]) -> Entry:
        kept = tuple([hash for hash in entry.blobs if hash not in missing])
        made = replace(entry, blobs=kept, thread=self._thread, seq=self._seq)
        parent = "" if entry.parent is None else entry.parent
        # By what it says and not by its hash: one that is damaged in the store stays so.
        if self._writing.redactor is not None or kept != entry.blobs or parent in self._changed:
            self._changed.add(entry.id)
            if made.tombstone is None:
                made = replace(made, noted_digest=None)
            hash = record_hash(made, self._hashes.get(parent))
            made = replace(made, digest=to_bytes(hash or ""))
        self._hashes[entry.id] = made.hash
        return made

    def sums(self) -> dict[str, Any]:
        """What was written, and the total that the replies sum to."""
        used = [usage for usage in self._used.values() if usage is not None]
        names = Usage.__struct_fields__
        usage = {name: sum(getattr(one, name) for one in used) for name in names}
        return {
            "records": self._seq,
            "entries": self._entries,
            "usage": {"replies": len(self._used), **usage},
        }


class _Blobs:
    """The blobs that entries need, each once."""

    def __init__(self, thread: Thread, writing: Writing) -> None:
        self._thread = thread
        self._engine = thread.store.engine
        self._writing = writing
        self._trees = Trees(self._engine)
        self._seen: set[str] = set()
        self.missing: set[str] = set()
        self.count = 0

    def needed(self, record: Record) -> Iterator[dict[str, Any]]:
        """Lines for the blobs that a record needs and that were not written yet."""
        if not isinstance(record, Entry):
            return
        for hash in [*used_blobs(record), *self._files_of(record)]:
            if hash in self._seen:
                continue
            self._seen.add(hash)
            try:
                data = self._engine.get_blob(hash)
            except (NotFound, Corrupt) as error:
                self._leave_out(hash, str(error), record.id)
                continue
            line = self._told(hash, data)
            if line is None:
                self._leave_out(hash, f"blob {hash} has what may not go out", record.id)
                continue
            self.count += 1
            yield line

    def _leave_out(self, hash: str, reason: str, entry: str) -> None:
        self.missing.add(hash)
        self._writing.change("blob", f"{reason}: left out", entry)

    def _files_of(self, entry: Entry) -> list[str]:
        """The blobs of the tree that a snapshot holds; none if it was dropped and swept."""
        return self._trees.blobs(entry.body["tree"]) if catalogue.is_snapshot(entry) else []

    def _told(self, hash: str, data: bytes) -> dict[str, Any] | None:
        """A line for a blob: text as text. None if it would have to be cleaned, which it cannot."""
        line = {"type": "blob", "hash": hash, "size": len(data)}
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return {**line, "base64": b64encode(data).decode("ascii")}
        redactor = self._writing.redactor
        if redactor is not None and redactor.value(text, place=f"blob {hash}") != text:
            return None
        return {**line, "text": text}
