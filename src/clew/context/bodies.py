"""What entries about a context say, field by field: compactions, and edits.

The body is ours, or the record of an agent whose format can tell what it says in our words; what
such a record cannot tell by itself, because it counts lines or turns, stands in the entry's meta.
Other programs write such entries too, and so does damage. A field of another shape than it should
have says nothing, and what there is besides it still counts: one body must not take a context down.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from clew import messages
from clew.core.model import Entry


class Compaction(Struct, frozen=True, kw_only=True):
    """The body of a compaction. `messages` stand in place of the summary, if it brings some."""

    entry: Entry
    compaction_id: str | None
    generation: int
    first_kept: str | None
    through: str | None
    kept_users: tuple[str, ...]
    carried: tuple[str, ...]
    summary: str
    messages: list[Any] | None
    format: str | None = None  # of `messages`; None: by their shapes


class ContextEdit(Struct, frozen=True, kw_only=True):
    """The body of a context edit: what is done to the entry that it is about."""

    entry: Entry
    edit: str | None
    target: str | None
    compaction_id: str | None
    message: Any
    format: str | None
    content: Any = None  # of the message as it stands, if only that is replaced


def read_compaction(entry: Entry) -> Compaction:
    body = _translated(entry, "read_compaction")
    generation = body.get("generation")
    details = _object(body.get("details"))
    given = details.get("messages")
    return Compaction(
        entry=entry,
        compaction_id=_text(body, "compaction_id"),
        generation=generation if type(generation) is int and generation > 0 else 1,
        first_kept=_text(body, "first_kept_entry_id"),
        through=_text(body, "compacted_through_entry_id"),
        kept_users=_texts(body, "kept_user_entry_ids"),
        carried=_texts(body, "carried_entry_ids"),
        summary=_text(body, "summary") or "",
        messages=given if isinstance(given, list) else None,
        format=_text(details, "format"),
    )


def read_edit(entry: Entry) -> ContextEdit:
    body = _translated(entry, "read_edit")
    return ContextEdit(
        entry=entry,
        edit=_text(body, "edit"),
        target=_text(body, "target"),
        compaction_id=_text(body, "compaction_id"),
        message=body.get("message"),
        format=_text(body, "format"),
        content=body.get("content"),
    )


def _translated(entry: Entry, reader: str) -> dict[str, Any]:
    """The body of an entry in our words."""
    body = _object(entry.body)
    if entry.format is None:
        return body
    read = messages.translator(entry.format, reader)
    return body if read is None else {**read(body, entry.parent), **_object(entry.meta.get("told"))}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(body: dict[str, Any], key: str) -> str | None:
    value = body.get(key)
    return value if isinstance(value, str) and value else None


def _texts(body: dict[str, Any], key: str) -> tuple[str, ...]:
    values = body.get(key)
    if not isinstance(values, list):
        return ()
    return tuple([value for value in values if isinstance(value, str) and value])
