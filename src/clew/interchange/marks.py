"""The mark that a record carries which Clew wrote for an agent: of which entry it was made.

    "clew": {"thread": …, "leaf": …, "entry": …}

`leaf` is where the thread stood then. A record that only stands around the conversation, such as a
title, names no entry. In a message of opencode the mark is in the metadata of its parts, which is
the one place that comes back.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from clew.core.names import is_name

KEY = "clew"


class Mark(Struct, frozen=True, kw_only=True):
    """Thread, leaf and entry that a record was made of. Stored text: it may say anything."""

    thread: str
    leaf: str | None
    entry: str | None = None

    def as_json(self) -> dict[str, Any]:
        found = {"thread": self.thread, "leaf": self.leaf}
        return found if self.entry is None else {**found, "entry": self.entry}


def mark_of(record: Any) -> Mark | None:
    """The mark of a record; None if it has none."""
    if not isinstance(record, dict):
        return None
    if KEY in record:
        return _mark(record[KEY])
    parts = record.get("parts")
    for part in parts if isinstance(parts, list) else ():
        metadata = part.get("metadata") if isinstance(part, dict) else None
        if isinstance(metadata, dict) and KEY in metadata:
            return _mark(metadata[KEY])
    return None


def _mark(value: Any) -> Mark | None:
    if not isinstance(value, dict):
        return None
    thread, leaf, entry = value.get("thread"), value.get("leaf"), value.get("entry")
    if not is_name(thread) or not is_name(leaf):
        return None
    return Mark(thread=str(thread), leaf=leaf, entry=entry if is_name(entry) else None)
