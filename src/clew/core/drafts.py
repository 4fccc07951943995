"""The door: what callers pass becomes checked drafts here, the same for every engine."""

from __future__ import annotations

import os
import time as wall
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType, to_builtins

from clew.core.codec import encode, new_id
from clew.core.errors import InvalidInput
from clew.core.facts import check_fact
from clew.core.model import (
    KINDS,
    Artifact,
    Draft,
    EntryDraft,
    FactDraft,
    MoveDraft,
    Order,
    ThreadInfo,
    decode_cursor,
    to_us,
)
from clew.core.names import check_name

if TYPE_CHECKING:
    from clew.core.options import PackOptions

KIND_BYTES_MAX = 128
KEY_BYTES_MAX = 1024  # a label's key holds an id
META_BYTES_MAX = 64 * 1024


def now_us() -> int:
    """The wall clock."""
    return wall.time_ns() // 1000


class ImpliedTurn(str):
    """The id of the turn that an entry is written in, where its caller did not say one."""


def draft(
    kind: str,
    body: Any = None,
    *,
    id: str | None = None,
    parent: str | UnsetType | None = UNSET,
    turn: str | None = None,
    format: str | None = None,
    meta: Mapping[str, Any] | None = None,
    blobs: Iterable[str] = (),
    time: datetime | None = None,
    clock: Callable[[], int] = now_us,
    once: bool = False,
) -> EntryDraft:
    """An entry to be appended, checked: for `Thread.append` of several at once, or for retries.

    Its id and time are fixed here, so appending the same draft again writes nothing twice.
    `once` promises that it will be appended one time only.
    """
    implied_turn = type(turn) is ImpliedTurn
    if implied_turn:
        turn = str(turn)  # the mark ends here: engines get plain text
    return EntryDraft(
        id=new_id() if id is None else check_name(id, "id"),
        kind=_check_kind(kind),
        data=encode(body),
        time_us=clock() if time is None else to_us(time),
        parent=parent if parent is UNSET or parent is None else check_name(parent, "parent"),
        turn=None if turn is None else check_name(turn, "turn"),
        format=None if format is None else check_name(format, "format", KIND_BYTES_MAX),
        meta_data=None if meta is None else _meta(meta),
        blobs=tuple(map(_check_hash, several(blobs, "blobs"))) if blobs else (),
        implied_turn=implied_turn,
        fresh=once and id is None,
    )


def _check_kind(kind: object) -> str:
    if isinstance(kind, str) and kind in KINDS:
        return kind
    return check_name(kind, "kind", KIND_BYTES_MAX)


def check_batch(entries: Any) -> list[EntryDraft]:
    """Several drafts for one append."""
    batch = list(entries) if isinstance(entries, Iterable) else [entries]
    for entry in batch:
        if not isinstance(entry, EntryDraft):
            raise InvalidInput("append", f"takes a kind, or drafts of clew.draft(), not {entry!r}")
    return batch


def check_drafts(batch: Any) -> list[Draft]:
    """Several drafts of any kind for one step."""
    given = list(several(batch, "write"))
    for one in given:
        if not isinstance(one, Draft):
            raise InvalidInput("write", f"takes drafts of clew.core.drafts, not {one!r}")
    return given


def move(leaf: str | None, time_us: int, id: str | None = None) -> MoveDraft:
    """A move of the leaf, checked."""
    if leaf is not None:
        check_name(leaf, "leaf")
    return MoveDraft(id=mint(id), leaf=leaf, time_us=time_us)


def facts(values: Mapping[str, Any], time_us: int) -> tuple[FactDraft, ...]:
    """Facts to be set, checked."""
    if not isinstance(values, Mapping):
        raise InvalidInput("facts", f"must be an object of keys and values, not {values!r}")
    return tuple(_fact(key, value, time_us) for key, value in values.items())


def _fact(key: str, value: Any, time_us: int) -> FactDraft:
    check_name(key, "facts", KEY_BYTES_MAX)
    if key == "title" and isinstance(value, str):
        value = {"text": value, "status": "ready", "source": "host", "time_us": time_us}
    data = encode(value, field=f"fact {key}")
    check_fact(key, value)
    return FactDraft(id=new_id(), key=key, data=data, time_us=time_us)


def _meta(meta: Mapping[str, Any]) -> bytes | None:
    if not isinstance(meta, Mapping):
        raise InvalidInput("meta", f"must be an object, not {meta!r}")
    artifacts = meta.get("artifacts")
    if isinstance(artifacts, list | tuple) and any(isinstance(a, Artifact) for a in artifacts):
        meta = {**meta, "artifacts": [to_builtins(one) for one in artifacts]}
    if not meta:
        return None  # an empty one says as little as none, and so has the same hash
    return encode(dict(meta), field="meta", limit=META_BYTES_MAX)


def _check_hash(hash: str) -> str:
    if not isinstance(hash, str) or not hash.startswith("b3:") or "," in hash:
        raise InvalidInput("blobs", f"{hash!r} is not the hash of a blob")
    return check_name(hash, "blobs", 80)


NUMBER_MAX = 2**63 - 1  # what every database takes
SECONDS_MAX = 1e10  # some 300 years: more is a mistake, and no clock can wait for it


def check_folder(value: str | os.PathLike[str], field: str) -> str:
    """The name of a folder. The empty one is a mistake, and never the current folder."""
    name = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(name, str) or not name or "\0" in name:
        raise InvalidInput(field, f"{name!r} is no name of a folder; '.' is the current one")
    return name


def check_number(value: Any, field: str, least: int = 0, most: int = NUMBER_MAX) -> int:
    """A whole number that every engine can take."""
    if type(value) is not int or not least <= value <= most:
        told = f"from {least} on" if most == NUMBER_MAX else f"from {least} to {most}"
        raise InvalidInput(field, f"must be a whole number {told}, not {_short(value)}")
    return value


def check_place(value: Any, field: str) -> str | UnsetType | None:
    """An entry's id, or None for before the root, or nothing at all."""
    return value if value is None or value is UNSET else check_name(value, field)


def check_fence(value: Any) -> int | None:
    """The fence of a lease, or none."""
    return None if value is None else check_number(value, "fence")


def several(values: Any, field: str) -> Iterable[Any]:
    """What a caller gave for a list of things; a text is one thing."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidInput(field, f"must be a list, not {_short(values)}")
    return values


def seconds(value: Any, field: str) -> float:
    """A span of time: a finite number that is not negative."""
    if type(value) not in (int, float) or not 0 <= value <= SECONDS_MAX:
        raise InvalidInput(field, f"must be a number of seconds, not {_short(value)}")
    return float(value)


def before(now: datetime, span: timedelta, field: str) -> datetime:
    """So long ago. InvalidInput: there was no such year."""
    try:
        return now - span
    except OverflowError:
        raise InvalidInput(field, "must lie in the years 1 to 9999") from None


def _short(value: Any) -> str:
    """A value in a message: Python refuses to spell out a number of more than 4,300 digits."""
    is_huge = type(value) is int and abs(value) > 2**200
    return "one that is far too large" if is_huge else repr(value)


def mint(id: str | None) -> str:
    """The caller's id, checked, or a fresh one."""
    return new_id() if id is None else check_name(id, "id")


def pack_options(given: PackOptions) -> PackOptions:
    """What `Store.pack` was given, checked."""
    if "tail" in given:
        check_number(given["tail"], "tail", 1)
    seconds(given.get("idle_seconds", 0), "idle_seconds")
    seconds(given.get("max_seconds") or 0, "max_seconds")
    return given


def said_facts(given: Mapping[str, Any] | None, **said: str | None) -> dict[str, Any]:
    """The facts that a caller gave, by key or by name; `facts` looks into them."""
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInput("facts", f"must be an object of keys and values, not {given!r}")
    return {**(given or {}), **{key: text for key, text in said.items() if text is not None}}


def page_start(cursor: str | ThreadInfo | None, order: Order) -> tuple[int, str] | None:
    """Where a page begins: behind the thread with this time and id."""
    if isinstance(cursor, ThreadInfo):
        return cursor.created_us if order == "created" else cursor.updated_us, cursor.id
    return None if cursor is None else decode_cursor(cursor)
