"""What is in two stores that were told the same in different ways, but for ids and times."""

from __future__ import annotations

import json
import re
from typing import Any

import clew
from clew.core.model import Entry, Fact, Record

# Where Clew chose an id or a time, two stores differ.
_CHOSEN = re.compile(r"01[0-9a-z]{24}")
_TIMES = frozenset({"time_us", "deleted_us", "updated_us", "hash", "body_hash"})


def state(store: clew.Store) -> str:
    """Everything that is in a store, as JSON; the ids that Clew chose are numbered as they come."""
    found = [
        _thread(store.get(info.id, deleted=True))
        for deleted in (False, True)
        for info in sorted(store.threads(archived=None, deleted=deleted), key=lambda one: one.id)
    ]
    return numbered(json.dumps(found, indent=1, sort_keys=True))


def numbered(text: str) -> str:
    """The same text with a number for each id that Clew chose."""
    numbers: dict[str, str] = {}
    return _CHOSEN.sub(lambda id: numbers.setdefault(id[0], f"id-{len(numbers)}"), text)


def _thread(thread: clew.Thread) -> dict[str, Any]:
    info = thread.info
    return {
        "id": info.id,
        "parent": info.parent,
        "origin": None if info.origin is None else [info.origin.thread, info.origin.entry],
        "deleted": info.deleted_at is not None,
        "leaf": info.leaf,
        "path": [entry.id for entry in thread.path()],
        "facts": _timeless(info.facts),
        "records": [_record(record) for record in thread.read()],
    }


def _record(record: Record) -> list[Any]:
    told: list[Any] = [type(record).__name__, record.seq, record.id]
    if isinstance(record, Entry):
        body = None if record.erased_at is not None else record.body
        told += [record.parent, record.kind, record.format, _timeless(record.meta), body]
    elif isinstance(record, Fact):
        value = record.value is not None if record.key in _TIMES else record.value
        told += [record.key, _timeless(value)]
    else:
        told.append(record.leaf)
    return told


def _timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [_timeless(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: key if key in _TIMES else _timeless(one) for key, one in value.items()}
