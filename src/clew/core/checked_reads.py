"""An engine around an engine that lets no damaged record out: `clew.open(…, check_reads=True)`.

What an engine reads is checked on its way to the caller: each body against its hash, each record
against its own, each entry's parent against the entry before it, feeds for gaps, and where a
thread stands against the end of its log. It is the waist itself, so every engine has it.

Not checked: facts as `thread` and `threads` give them, the shape that `segments` tells, leases and
counts. The log has no place for them that could be found without reading it whole; `check` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from blake3 import blake3
from msgspec import UNSET, UnsetType

from clew.core.codec import digest
from clew.core.engine import Engine
from clew.core.errors import Corrupt, NotFound
from clew.core.hashes import record_hash
from clew.core.model import Entry, Move, Properties, Record, ThreadInfo
from clew.core.wrapper import OPERATIONS

_ATTEMPTS = 5  # others append between two looks at a thread
_BACK = 64  # records at the end of a log that are looked at to find where it stands
_HELP = "clew verify names all that is damaged; restore it from a backup, or run clew repair"


def check_reads(engine: Engine) -> Engine:
    """An engine that raises Corrupt, with the place, where another one would give what it found."""
    return cast(Engine, _CheckedReads(engine))


class _CheckedReads:
    def __init__(self, engine: Engine) -> None:
        self.wrapped = engine

    @property
    def properties(self) -> Properties:
        return self.wrapped.properties

    def __getattr__(self, name: str) -> Any:
        if name not in OPERATIONS:
            raise AttributeError(f"the waist has no operation {name!r}")
        return getattr(self.wrapped, name)

    # --- what is checked ---

    def thread(self, id: str) -> ThreadInfo:
        """As the engine has it, with a `seq` and a `leaf` that its log bears out."""
        info = self.wrapped.thread(id)
        for _ in range(_ATTEMPTS):
            wrong = None if info.unreadable is not None else self._wrong_head(info)
            if wrong is None:
                return info
            again = self.wrapped.thread(id)
            if (again.seq, again.leaf) == (info.seq, info.leaf):
                break
            info = again
        raise Corrupt(f"thread {id!r}", f"{wrong}; {_HELP}")

    def read(self, thread: str, *, after: int = 0, limit: int = 1000) -> list[Record]:
        records = self.wrapped.read(thread, after=after, limit=limit)
        self._check_feed(thread, max(after, 0), records)
        if len(records) < limit:
            end = records[-1].seq if records else max(after, 0)
            seq = self.thread(thread).seq
            # A seq beyond it may have been written since; what is there must not be left out.
            if end < seq and self.wrapped.read(thread, after=after, limit=limit) == records:
                raise _damage(thread, end + 1, None, "it is missing")
        return records

    def path(
        self,
        thread: str,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        if leaf is UNSET:
            leaf = self.thread(thread).leaf
        entries = self.wrapped.path(thread, leaf, after=after, limit=limit)
        if not entries:
            if leaf is not None and leaf != after:
                raise Corrupt(f"thread {thread!r}", f"the path to {leaf!r} is empty; {_HELP}")
            return entries
        if entries[-1].id != leaf:
            raise _damage(thread, None, entries[-1].id, f"the path to {leaf!r} ends there")
        first, hash = entries[0].parent, None
        if after is not None and (limit is None or len(entries) < limit):
            if first != after:
                raise _damage(thread, None, entries[0].id, f"it is no child of {after!r}")
        elif first is not None and (limit is None or len(entries) < limit):
            raise _damage(thread, None, entries[0].id, "the path begins with it, and it is no root")
        if first is not None:
            hash = self._entry(thread, first).hash
        _check_chain(entries, first, hash)
        return entries

    # --- how ---

    def _wrong_head(self, info: ThreadInfo) -> str | None:
        """What a thread's log says against where it is said to stand."""
        own = 1 if info.seq else 0
        tail = self.wrapped.read(info.id, after=info.seq - own, limit=2)
        # One more may have been written since, but then the thread has grown, too.
        if len(tail) > own and self.wrapped.thread(info.id).seq == info.seq:
            return f"its log does not end with record {info.seq}"
        tail, end = tail[:own], info.seq
        if len(tail) < own:
            return f"its log ends before record {info.seq}"
        self._check_feed(info.id, info.seq - own, tail)
        while True:
            for record in reversed(tail):
                if isinstance(record, Entry | Move):
                    leaf = record.id if isinstance(record, Entry) else record.leaf
                    return None if leaf == info.leaf else f"it does not stand on {info.leaf!r}"
            end -= len(tail)
            if end <= 0:  # facts only: it stands where it began
                leaf = None if info.origin is None else info.origin.entry
                return None if leaf == info.leaf else f"it does not stand on {info.leaf!r}"
            after = max(0, end - _BACK)
            tail = self.wrapped.read(info.id, after=after, limit=end - after)
            if len(tail) != end - after:
                return f"records are missing before record {end + 1}"
            self._check_feed(info.id, after, tail)

    def _check_feed(self, thread: str, after: int, records: Sequence[Record]) -> None:
        hashes: dict[str, str] = {}
        for seq, record in enumerate(records, start=after + 1):
            if record.seq != seq or record.thread != thread:
                raise _damage(thread, seq, None, "it is missing")
            if isinstance(record, Entry):
                parent_hash = None
                if record.parent is not None:
                    parent_hash = hashes.get(record.parent)
                    if parent_hash is None:
                        parent = self._entry(thread, record.parent)
                        if parent.thread == thread and parent.seq >= seq:
                            raise _damage(thread, seq, record.id, "it comes before its parent")
                        parent_hash = parent.hash
                hashes[record.id] = record.hash
                if not _is_sound(record, parent_hash):
                    raise _damage(thread, seq, record.id, _wrong_part(record))
            elif record_hash(record) != record.hash:
                raise _damage(thread, seq, record.id, "it is not what was written")

    def _entry(self, thread: str, entry: str) -> Entry:
        try:
            return self.wrapped.path(thread, entry, limit=1)[0]
        except NotFound:
            raise _damage(
                thread, None, entry, "another entry names it, and it is missing"
            ) from None


def _check_chain(entries: Sequence[Entry], parent: str | None, hash: str | None) -> None:
    for entry in entries:
        if entry.parent != parent or not _is_sound(entry, hash):
            break
        parent, hash = entry.id, entry.hash
    else:
        return
    if entry.parent != parent:
        raise _damage(entry.thread, entry.seq, entry.id, f"it does not follow {parent!r}")
    raise _damage(entry.thread, entry.seq, entry.id, _wrong_part(entry))


def _is_sound(entry: Entry, parent_hash: str | None) -> bool:
    """Whether an entry and its body match their hashes: `record_hash`, written out.

    It is done for each entry of each path, and takes half as long this way.
    """
    data, body_hash, meta = entry.data, entry.body_hash, entry.meta_data
    if entry.tombstone is not None:  # there is no body, and the rest is checked as ever
        return record_hash(entry, parent_hash) == entry.hash
    if "b3:" + blake3(data).hexdigest() != body_hash:
        return False
    if entry.turn == "" or entry.format == "":  # a hash cannot tell an empty text from none
        return False
    said = "" if meta is None else digest(meta)
    try:
        text = (
            f"entry\0{parent_hash or ''}\0{entry.id}\0{entry.parent or ''}\0{entry.kind}\0"
            f"{entry.format or ''}\0{entry.turn or ''}\0{entry.time_us}\0"
            f"{','.join(entry.blobs)}\0{said}\0{body_hash}"
        ).encode()
    except UnicodeEncodeError:
        return False
    return "b3:" + blake3(text).hexdigest() == entry.hash


def _wrong_part(entry: Entry) -> str:
    body = entry.tombstone is None and digest(entry.data) != entry.body_hash
    return "its body is not what was written" if body else "it is not what was written"


def _damage(thread: str, seq: int | None, entry: str | None, what: str) -> Corrupt:
    place = f"thread {thread!r}"
    place += "" if seq is None else f", record {seq}"
    place += "" if entry is None else f", entry {entry!r}"
    return Corrupt(place, f"{what}; {_HELP}")
