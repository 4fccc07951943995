"""Threads and records as JSON values: every field, times in ISO 8601."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from clew.core.model import Entry, Fact, Move, Record, ThreadInfo


def thread_value(info: ThreadInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "title": None if info.title is None else info.title.text,
        "created_at": info.created_at.isoformat(),
        "updated_at": info.updated_at.isoformat(),
        "deleted_at": _iso(info.deleted_at),
        "records": info.seq,
        "leaf": info.leaf,
        "parent": info.parent,
        "origin": msgspec.to_builtins(info.origin),
        "facts": info.facts,
        "damaged": info.damaged,
    }


def record_value(record: Record) -> dict[str, Any]:
    common = {
        "type": type(record).__name__.lower(),
        "thread": record.thread,
        "seq": record.seq,
        "id": record.id,
        "time": record.time.isoformat(),
        "hash": record.hash,
    }
    return common | _own_fields(record)


def _own_fields(record: Record) -> dict[str, Any]:
    if isinstance(record, Move):
        return {"leaf": record.leaf}
    if isinstance(record, Fact):
        return {"key": record.key, "value": record.value}
    assert isinstance(record, Entry)
    return {
        "parent": record.parent,
        "kind": record.kind,
        "turn": record.turn,
        "format": record.format,
        "meta": record.meta,
        "blobs": list(record.blobs),
        "body": record.body,
    }


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
