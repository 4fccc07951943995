"""The door: what callers pass becomes checked drafts here, the same for every engine."""

from __future__ import annotations

import time as wall
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import UNSET, UnsetType

from clew.checks import META_BYTES_MAX, check_fact, check_name, mint
from clew.codec import encode, new_id
from clew.errors import InvalidInput
from clew.model import (
    KINDS,
    EntryDraft,
    FactDraft,
    MoveDraft,
    to_us,
)

KIND_BYTES_MAX = 128
KEY_BYTES_MAX = 1024  # a label's key holds an id


def now_us() -> int:
    """The wall clock."""
    return wall.time_ns() // 1000


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
    return EntryDraft(
        id=new_id() if id is None else check_name(id, "id"),
        kind=_check_kind(kind),
        data=encode(body),
        time_us=clock() if time is None else to_us(time),
        parent=parent if parent is UNSET or parent is None else check_name(parent, "parent"),
        turn=None if turn is None else check_name(turn, "turn"),
        format=None if format is None else check_name(format, "format", KIND_BYTES_MAX),
        meta_data=_meta(meta),
        blobs=tuple(map(_check_hash, blobs)) if blobs else (),
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


def move(leaf: str | None, time_us: int, id: str | None = None) -> MoveDraft:
    """A move of the leaf, checked."""
    if leaf is not None:
        check_name(leaf, "leaf")
    return MoveDraft(id=mint(id), leaf=leaf, time_us=time_us)


def facts(values: Mapping[str, Any], time_us: int) -> tuple[FactDraft, ...]:
    """Facts to be set, checked."""
    return tuple(_fact(key, value, time_us) for key, value in values.items())


def _fact(key: str, value: Any, time_us: int) -> FactDraft:
    check_name(key, "facts", KEY_BYTES_MAX)
    if key == "title" and isinstance(value, str):
        value = {"text": value, "status": "ready", "source": "host", "time_us": time_us}
    data = encode(value, field=f"fact {key}")
    check_fact(key, value)
    return FactDraft(id=new_id(), key=key, data=data, time_us=time_us)


def kind_for(message: Mapping[str, Any]) -> str:
    """The kind of entry that a message of a chat becomes, by its role."""
    role = message.get("role") if isinstance(message, Mapping) else None
    if role is None and isinstance(message, Mapping) and message.get("type") in _KINDS_BY_TYPE:
        return _KINDS_BY_TYPE[message["type"]]
    if not isinstance(role, str) or not role:
        raise InvalidInput("message", "has no role")
    blocks = _blocks(message)
    if role in ("assistant", "model") and (message.get("tool_calls") or blocks & _CALLS):
        return "tool_call"
    if role == "user" and blocks and blocks <= _RESULTS:
        return "tool_result"
    return _KINDS_BY_ROLE.get(role, "custom")


def _blocks(message: Mapping[str, Any]) -> set[str]:
    """What a message's content is made of, by the providers' names for it."""
    content = message.get("content") or message.get("parts")
    if not isinstance(content, list):
        return set()
    found = [block for block in content if isinstance(block, dict)]
    return {str(block.get("type") or next(iter(block), "")) for block in found}


_KINDS_BY_TYPE = {  # items of the Responses API that have no role
    "function_call": "tool_call",
    "custom_tool_call": "tool_call",
    "local_shell_call": "tool_call",
    "computer_call": "tool_call",
    "function_call_output": "tool_result",
    "custom_tool_call_output": "tool_result",
    "local_shell_call_output": "tool_result",
    "computer_call_output": "tool_result",
    "reasoning": "assistant_message",
}
_CALLS = {"tool_use", "functionCall", "function_call"}
_RESULTS = {"tool_result", "functionResponse", "function_response"}
_KINDS_BY_ROLE = {
    "user": "user_message",
    "assistant": "assistant_message",
    "model": "assistant_message",
    "tool": "tool_result",
    "function": "tool_result",
    "system": "system_message",
    "developer": "system_message",
}


def _meta(meta: Mapping[str, Any] | None) -> bytes | None:
    if meta is None:
        return None
    if not isinstance(meta, Mapping):
        raise InvalidInput("meta", f"must be an object, not {meta!r}")
    return encode(dict(meta), field="meta", limit=META_BYTES_MAX)


def _check_hash(hash: str) -> str:
    if not isinstance(hash, str) or not hash.startswith("b3:") or "," in hash:
        raise InvalidInput("blobs", f"{hash!r} is not the hash of a blob")
    return check_name(hash, "blobs", 80)
