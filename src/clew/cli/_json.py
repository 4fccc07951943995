"""Threads, records and reports as JSON values: every field, times as RFC 3339 has them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from clew.cli._text import partial_of
from clew.core.model import Entry, Fact, Move, Record, ThreadInfo, rfc3339, to_time


def json_value(value: Any) -> Any:
    """A report or a part of one as JSON values, its times spelled as everywhere."""
    return _with_times(msgspec.to_builtins(value, builtin_types=(datetime,)))


def _with_times(value: Any) -> Any:
    match value:
        case datetime():
            return rfc3339(value)
        case list() | tuple():
            return [_with_times(item) for item in value]
        case {"time_us": int(time_us), **rest}:
            return _with_times(rest) | {"time": rfc3339(to_time(time_us))}
        case dict():
            return {key: _with_times(item) for key, item in value.items()}
        case _:
            return value


def thread_value(info: ThreadInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "title": None if info.title is None else info.title.text,
        "created_at": rfc3339(info.created_at),
        "updated_at": rfc3339(info.updated_at),
        "deleted_at": None if info.deleted_at is None else rfc3339(info.deleted_at),
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
        "time": rfc3339(record.time),
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
        "partial": partial_of(record),
        "blobs": list(record.blobs),
        "body": record.body,
        "erased_at": None if record.erased_at is None else rfc3339(record.erased_at),
    }
