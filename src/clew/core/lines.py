"""Lines: how a thread's header and its records are written, and read back exactly.

A line is one JSON object whose last member is `sum`, a checksum over the thread's id and all
bytes before that member. Bodies are carried as the bytes that came through the door.
docs/format.md says the same for other languages.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import msgspec
from blake3 import blake3
from msgspec import Raw, Struct

from clew.core.codec import to_bytes
from clew.core.errors import ClewError, Corrupt
from clew.core.hashes import thread_hash
from clew.core.model import Entry, Fact, Move, Origin, Record, ThreadDraft, to_time, to_us
from clew.core.tombstones import bury, from_stored, to_stored

FORMAT = "clew.thread"
VERSION = 2  # the highest that is known
ERASED_VERSION = 2  # of a file in which something was erased; the header of every other one says 1
MARKER = "clew.json"  # the file that makes a folder a store of such files
SUM_DIGITS = 16
_MARK = b',"sum":"'
_TAIL = len(_MARK) + SUM_DIGITS + 2  # …"}
_encode = msgspec.json.Encoder().encode
_NOTHING = Raw(b"")
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Source(Struct, frozen=True):
    """The very record that a fork begins at: whose file it is in, also after a purge."""

    thread: str
    key: str
    seq: int


class Header(Struct, frozen=True):
    """A thread as its file's first line tells it. `key` is the file's own, and never reused."""

    key: str
    draft: ThreadDraft
    source: Source | None = None
    purged: bool = False
    version: int = 1


class Line(Struct, frozen=True):
    """One record's line, taken apart.

    `of` counts the records of its write, if there are several, and `left` those that follow it.
    """

    seq: int
    type: str
    time: str
    id: str
    hash: str
    parent: str | None = None
    kind: str = ""
    turn: str | None = None
    format: str | None = None
    meta: Raw = _NOTHING
    blobs: tuple[str, ...] = ()
    body: Raw = _NOTHING
    body_hash: str = ""
    body_blob: str | None = None
    body_size: int | None = None
    erased: Raw = _NOTHING
    leaf: str | None = None
    key: str = ""
    value: Raw = _NOTHING
    value_blob: str | None = None
    left: int = 0
    of: int = 1

    @property
    def begins(self) -> bool:
        """Whether it is the first of its write."""
        return self.left == self.of - 1

    @property
    def time_us(self) -> int:
        try:
            return to_us(datetime.fromisoformat(self.time))
        except (ValueError, ClewError) as error:
            raise Corrupt(f"record {self.seq}", f"its time cannot be read: {error}") from error

    @property
    def is_complete(self) -> bool:
        if self.type == "entry":
            return bool(self.kind and (self.body_blob or self.body_hash))
        if self.type == "fact":
            return bool(self.key and (self.value_blob or bytes(self.value)))
        return self.type == "move"

    @property
    def spilled(self) -> str | None:
        """The blob that holds the body or value, if it was too large for the line."""
        return self.body_blob or self.value_blob

    @property
    def lacks_body(self) -> bool:
        """Whether it is an entry's line with the hash of a body, but without the body."""
        return (
            self.type == "entry"
            and self.body_blob is None
            and not bytes(self.body)
            and not bytes(self.erased)
        )

    @property
    def uses(self) -> tuple[str, ...]:
        """The blobs that it names and needs: those of an entry that was erased may be gone."""
        return () if bytes(self.erased) else self.blobs

    def record(self, thread: str, large: bytes | None = None) -> Record:
        """The record; `large` is what `spilled` names, or what to put for a missing body."""
        time_us, digest = self.time_us, to_bytes(self.hash)
        if large is None and self.lacks_body:
            raise Corrupt(f"record {self.seq} of {thread!r}", "its body is missing")
        if self.type == "entry":
            made = Entry(
                thread,
                self.seq,
                self.id,
                time_us,
                digest,
                self.parent,
                self.kind,
                _bytes(large, self.body),
                to_bytes(self.body_blob or self.body_hash),
                self.turn,
                self.format,
                bytes(self.meta) or None,
                self.blobs,
            )
            if not bytes(self.erased):
                return made
            place = f"record {self.seq} of {thread!r}"
            return bury(made, from_stored(bytes(self.erased), self.format, place))
        if self.type == "move":
            return Move(thread, self.seq, self.id, time_us, digest, self.leaf)
        return Fact(thread, self.seq, self.id, time_us, digest, self.key, _bytes(large, self.value))


def _bytes(large: bytes | None, raw: Raw) -> bytes:
    return bytes(raw) if large is None else large


# --- writing --------------------------------------------------------------------------------


def header_line(header: Header) -> bytes:
    draft = header.draft
    members: dict[str, Any] = {
        "format": FORMAT,
        "version": header.version,
        "id": draft.id,
        "key": header.key,
        "created": _time(draft.created_us),
    }
    if draft.parent is not None:
        members["parent"] = draft.parent
    if draft.origin is not None:
        members["origin"] = draft.origin
        if header.source is not None:
            members["source"] = header.source
    if header.purged:
        members["purged"] = True
    members["hash"] = thread_hash(draft.id, draft.created_us, draft.parent, draft.origin)
    return summed(b"", _encode(members)[:-1])


def record_line(
    thread: bytes, record: Record, *, blob: str | None = None, left: int = 0, of: int = 1
) -> bytes:
    """A record's line with its newline. `thread` is the id in UTF-8, `blob` holds a large body.

    It is one of `of` lines that are written together, of which `left` follow it.
    """
    if isinstance(record, Entry):
        text = _entry(record, blob)
    elif isinstance(record, Move):
        text = b'{"seq":%d,"type":"move","time":"%s","id":%s,"leaf":%s,"hash":"%s"' % (
            record.seq,
            _time(record.time_us).encode(),
            _encode(record.id),
            _encode(record.leaf),
            record.hash.encode(),
        )
    else:
        assert isinstance(record, Fact)
        text = b'{"seq":%d,"type":"fact","time":"%s","id":%s,"key":%s,%s,"hash":"%s"' % (
            record.seq,
            _time(record.time_us).encode(),
            _encode(record.id),
            _encode(record.key),
            _inline(b"value", record.data, blob),
            record.hash.encode(),
        )
    if of > 1:
        text += b',"left":%d,"of":%d' % (left, of)
    return summed(thread, text)


def _entry(entry: Entry, blob: str | None) -> bytes:
    parts = [
        b'{"seq":%d,"type":"entry","kind":%s,"time":"%s","id":%s,"parent":%s'
        % (
            entry.seq,
            _encode(entry.kind),
            _time(entry.time_us).encode(),
            _encode(entry.id),
            _encode(entry.parent),
        )
    ]
    if entry.turn is not None:
        parts.append(b'"turn":' + _encode(entry.turn))
    tombstone = entry.tombstone
    format = entry.format if tombstone is None else tombstone.format
    if format is not None:
        parts.append(b'"format":' + _encode(format))
    if entry.meta_data is not None:
        parts.append(b'"meta":' + entry.meta_data)
    if entry.blobs:
        parts.append(b'"blobs":' + _encode(entry.blobs))
    if tombstone is None:
        parts.append(_inline(b"body", entry.data, blob))
    else:
        parts.append(b'"erased":' + to_stored(tombstone))
    if blob is None:  # a blob is named by the hash of the body
        parts.append(b'"body_hash":"%s"' % entry.body_hash.encode())
    parts.append(b'"hash":"%s"' % entry.hash.encode())
    return b",".join(parts)


def _inline(name: bytes, data: bytes, blob: str | None) -> bytes:
    if blob is None:
        return b'"%s":%s' % (name, data)
    return b'"%s_blob":"%s","%s_size":%d' % (name, blob.encode(), name, len(data))


def summed(thread: bytes, text: bytes) -> bytes:
    return b'%s%s%s"}\n' % (text, _MARK, _sum(thread, text))


def _sum(thread: bytes, text: bytes) -> bytes:
    return blake3(thread + b"\0" + text).hexdigest()[:SUM_DIGITS].encode()


def _time(time_us: int) -> str:
    second, fraction = divmod(time_us, 1_000_000)
    return f"{_second(second)}.{fraction:06}Z"


@lru_cache(16)  # records that are written together mostly share theirs
def _second(second: int) -> str:
    return to_time(second * 1_000_000).isoformat(timespec="seconds")[:-6]


# --- reading --------------------------------------------------------------------------------


def is_sound(thread: bytes, line: bytes) -> bool:
    """Whether a line (without its newline) is, byte for byte, as it was written."""
    text = line[:-_TAIL]
    return line[-_TAIL:] == b'%s%s"}' % (_MARK, _sum(thread, text))


def parse(thread: bytes, line: bytes, place: str) -> Line:
    """A record's line taken apart. Corrupt, with its place, if it is not as it was written."""
    if not is_sound(thread, line):
        raise Corrupt(place, "the line does not match its checksum")
    return take_apart(line, place)


def take_apart(line: bytes, place: str) -> Line:
    """The same without a look at the checksum."""
    try:
        found = _line_decoder.decode(line)
    except UNREADABLE:
        try:
            # The fast decoder refuses lone surrogates, which are legitimate tool output.
            found = _with_care(line.decode("utf-8"))
        except (LookupError, ValueError, RecursionError, TypeError) as error:
            raise Corrupt(place, f"the line is not a record: {error}") from error
    if not found.is_complete:
        raise Corrupt(place, "the line is not a record: it lacks what its type must have")
    return found


_line_decoder = msgspec.json.Decoder(Line)
_RAW = ("body", "value", "meta", "erased")
_decoder = json.JSONDecoder()


def _with_care(text: str) -> Line:
    """Member by member, with the raw text of those that are not ours to understand."""
    members: dict[str, Any] = {}
    raw: dict[str, Raw] = {}
    at = 0
    while text[at] in "{,":
        name, at = scanstring(text, at + 2)
        value, end = _decoder.raw_decode(text, at + 1)
        if name in _RAW:
            raw[name] = Raw(text[at + 1 : end].encode("utf-8"))
        else:
            members[name] = value
        at = end
        if at == len(text):
            raise ValueError("it has no end")
    return msgspec.structs.replace(msgspec.convert(members, Line), **raw)


class _RawHeader(Struct):
    format: str
    version: int
    id: str
    key: str
    created: str
    hash: str
    parent: str | None = None
    origin: Origin | None = None
    source: Source | None = None
    purged: bool = False


class _Declared(Struct):
    format: str
    version: int


_header_decoder = msgspec.json.Decoder(_RawHeader)
_declared_decoder = msgspec.json.Decoder(_Declared)


def declared_version(line: bytes) -> int | None:
    """The version that a first line declares; None if it is none of ours."""
    try:
        found = _declared_decoder.decode(line)
    except UNREADABLE:
        return None
    return found.version if found.format == FORMAT else None


def parse_header(line: bytes, place: str) -> Header:
    """The first line of a file. Corrupt unless it is as it was written, by its sum and its hash."""
    if not is_sound(b"", line):
        raise Corrupt(place, "the header does not match its checksum")
    try:
        raw = _header_decoder.decode(line)
        created_us = to_us(datetime.fromisoformat(raw.created))
    except (ValueError, ClewError, *UNREADABLE) as error:
        raise Corrupt(place, f"the header cannot be read: {error}") from error
    if thread_hash(raw.id, created_us, raw.parent, raw.origin) != raw.hash:
        raise Corrupt(place, "the header does not match its hash")
    if not (raw.key.isascii() and raw.key.isalnum()):
        raise Corrupt(place, f"{raw.key!r} is not the key of a thread")
    draft = ThreadDraft(id=raw.id, created_us=created_us, parent=raw.parent, origin=raw.origin)
    return Header(raw.key, draft, raw.source, raw.purged, raw.version)
