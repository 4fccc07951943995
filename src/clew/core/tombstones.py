"""Erasure: what stands in place of a body that must not be kept, and how that is written down.

A tombstone holds what the hash of its entry needs and cannot be computed any more. So the chain
verifies on, and the entry stays where it is. What readers see as its body depends on its kind: a
message says `[erased]` in its role, and what holds a thread together (the state of a turn, where a
compaction cuts) is kept, as it is made of ids and of words of ours.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from clew.core.codec import decode, digest, encode
from clew.core.errors import ClewError, Corrupt
from clew.core.facts import is_time
from clew.core.model import TURN_STATUSES, Entry, Fact, FactDraft, Record
from clew.core.names import is_name
from clew.core.removal import Erased, Tombstone

PREFIX = "erased."  # a fact of the thread that the entry was written in, with the entry's id
TEXT = "[erased]"
_ROLES = {
    "user_message": "user",
    "assistant_message": "assistant",
    "tool_call": "assistant",
    "system_message": "system",
}
# By kind: what a body may keep, since without it other entries would be read otherwise.
_KEPT = {
    "compaction": (
        *("compaction_id", "generation", "first_kept_entry_id", "compacted_through_entry_id"),
        *("kept_user_entry_ids", "carried_entry_ids"),
    ),
    "context_edit": ("edit", "target", "compaction_id"),
}


def tombstoned(entry: Entry, time_us: int, size_bytes: int | None = None) -> Entry:
    """An entry without its body and meta. `size_bytes` is that of a body that was not read."""
    meta = entry.meta_data
    size = len(entry.data) if size_bytes is None else size_bytes
    tombstone = Tombstone(
        time_us=time_us,
        size_bytes=size + len(meta or b""),
        meta_hash=None if meta is None else digest(meta),
        format=entry.format,
        stand_in=_stand_in(entry),
    )
    return bury(entry, tombstone)


def bury(entry: Entry, tombstone: Tombstone) -> Entry:
    """An entry as readers see it under a tombstone."""
    return replace(entry, data=tombstone.stand_in, format=None, meta_data=None, tombstone=tombstone)


def used_blobs(record: Record) -> tuple[str, ...]:
    """The blobs that a record needs. One that was erased names some, and needs none."""
    return record.blobs if isinstance(record, Entry) and record.tombstone is None else ()


def _stand_in(entry: Entry) -> bytes:
    role = _ROLES.get(entry.kind)
    if role is not None:
        return encode({"role": role, "content": TEXT})
    said = _object(entry)
    if entry.kind == "turn_marker" and said.get("status") in TURN_STATUSES:
        return encode({"status": said["status"], "erased": True})
    kept = {name: said[name] for name in _KEPT.get(entry.kind, ()) if _is_id(said.get(name))}
    if entry.kind == "compaction":
        kept["summary"] = TEXT
    if kept.get("edit") == "replace":
        kept["message"] = TEXT
    return encode({**kept, "erased": True})


def _object(entry: Entry) -> dict[str, Any]:
    try:
        body = decode(entry.data)
    except ClewError:
        return {}  # it is damaged, and goes all the same
    return body if isinstance(body, dict) else {}


def _is_id(value: Any) -> bool:
    """Whether a value is a number, an id, or several ids: nothing that tells anything."""
    some = value if isinstance(value, list) else [value]
    return all(type(one) is int or (is_name(one) and " " not in one) for one in some)


# --- as it is stored ---


class _Stored(Struct, forbid_unknown_fields=True):
    erased_us: int
    size: int
    meta_hash: str | None
    body: Raw


_decoder = msgspec.json.Decoder(_Stored)


def to_stored(tombstone: Tombstone) -> bytes:
    """A tombstone as canonical JSON: what tables have instead of the meta, and lines too."""
    return encode(
        {
            "erased_us": tombstone.time_us,
            "size": tombstone.size_bytes,
            "meta_hash": tombstone.meta_hash,
            "body": decode(tombstone.stand_in),
        }
    )


def from_stored(data: bytes | None, format: str | None, place: str) -> Tombstone:
    """What was stored without a body. Corrupt if it is no tombstone: then the body is missing."""
    try:
        found = _decoder.decode(data or b"")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Corrupt(place, "its body is missing") from None
    if not is_time(found.erased_us):
        raise Corrupt(place, "its body is missing, and the tombstone says no time")
    return Tombstone(found.erased_us, found.size, found.meta_hash, format, bytes(found.body))


# --- as it is told ---


def announcement(entry: Entry, reason: str | None) -> FactDraft:
    """The fact by which the thread's log tells of an erasure; the same for the same erasure."""
    assert entry.tombstone is not None
    value = {
        "time_us": entry.tombstone.time_us,
        "body_hash": entry.body_hash,
        "size": entry.tombstone.size_bytes,
    }
    if reason is not None:
        value["reason"] = reason
    return FactDraft(
        id=PREFIX + digest(entry.id.encode())[3:35],
        key=PREFIX + entry.id,
        data=encode(value),
        time_us=entry.tombstone.time_us,
    )


def is_erasure(record: Record) -> TypeGuard[Fact]:
    """Whether a record tells that an entry was erased."""
    return isinstance(record, Fact) and record.key.startswith(PREFIX)


def to_erased(entry: Entry, *, recorded: bool = True) -> Erased:
    """What there is to say of an entry that was erased."""
    tombstone = entry.tombstone
    assert tombstone is not None
    return Erased(
        thread=entry.thread,
        entry=entry.id,
        time_us=tombstone.time_us,
        hash=entry.hash,
        body_hash=entry.body_hash,
        meta_hash=tombstone.meta_hash,
        size_bytes=tombstone.size_bytes,
        blobs=entry.blobs,
        recorded=recorded,
    )
