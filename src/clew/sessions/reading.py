"""What is stored of a session: its messages as a load gives them, and its events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clew import _facets
from clew.context import summary_text
from clew.model import Entry, ThreadInfo
from clew.sessions.document import Event
from clew.thread import Thread
from clew.window import Window, read_window


def shown_at(thread: Thread, leaf: str | None) -> list[Any]:
    """The messages for the model: what the last checkpoint brings, and all after it."""
    return shown(read_window(thread, leaf))


def shown(window: Window) -> list[Any]:
    return [*_opening(window), *bodies(window.entries)]


def bodies(entries: Iterable[Entry]) -> list[Any]:
    return [entry.body for entry in entries if _facets.is_message(entry)]


def _opening(window: Window) -> list[Any]:
    """What stands for the part before the window."""
    body = None if window.compaction is None else window.compaction.body
    if not isinstance(body, dict):
        return []
    details = body.get("details")
    brought = details.get("messages") if isinstance(details, dict) else None
    if isinstance(brought, list):
        return brought
    text = summary_text(body.get("summary"), window.kept)
    return [] if text is None else [{"role": "user", "content": text}]


def events(entries: Iterable[Entry]) -> list[Event]:
    return [_event(entry.body) for entry in entries if entry.kind == "event"]


def _event(body: Any) -> Event:
    """Events that others have written come back as well: all that they say is data."""
    if isinstance(body, dict) and isinstance(body.get("event_id"), str):
        names = ("event_id", "stream_id", "type", "data")
        return Event(**{name: body[name] for name in names if name in body})
    return Event("", data=body)


def stored_events(thread: Thread, info: ThreadInfo, window: Window) -> list[Event]:
    """All events of the path. Reads past a checkpoint only if there are any."""
    if window.compaction is None:
        return events(window.entries)
    return events(thread.path(info.leaf)) if info.facts.get("has_events") else []
