"""What becomes of an event in a thread, and of an entry in a session.

An event is an entry with its own JSON, under its own id, so that a retry writes nothing twice. If
it says something it is a message, which every reader of Clew can show and convert; else it is an
entry of kind `event`. What it rewinds or compacts becomes context edits behind it, so that the
thread's context shows what ADK would send.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from clew import messages
from clew.context.window import MESSAGE_KINDS
from clew.core import drafts
from clew.core.errors import InvalidInput
from clew.core.model import Entry, EntryDraft
from clew.messages.incoming import kind_for
from clew.thread import Thread

FORMAT = "adk"
CHUNK, CHUNK_MAX = 64, 4096

_log = logging.getLogger(__name__)


def event_drafts(
    thread: Thread,
    leaf: str | None,
    event: Event,
    body: dict[str, Any],
    meta: dict[str, Any] | None,
    time_us: int,
) -> list[EntryDraft]:
    """An event as entries to be appended: the event, then what it changes of the context."""
    clock: Callable[[], int] = lambda: time_us  # noqa: E731
    entry = drafts.draft(
        kind_of(body),
        body,
        id=event.id,
        format=FORMAT,
        turn=event.invocation_id or None,
        meta=meta,
        clock=clock,
    )
    found = [
        drafts.draft("context_edit", edit, id=f"{event.id}.edit.{number}", clock=clock)
        for number, edit in enumerate(_edits(thread, leaf, event))
    ]
    return [entry, *found]


def kind_of(body: Any) -> str:
    """The kind of entry that an event becomes."""
    return _obvious_kind(body) or _read_kind(body)


_SPEAKERS = {"user": "user_message", "model": "assistant_message"}


def _obvious_kind(body: Any) -> str | None:
    """The kind of an event of words, calls or results alone. It needs no reader to confirm it."""
    content = body.get("content") if type(body) is dict else None
    if type(content) is not dict or "candidates" in content:
        return None
    role, parts = content.get("role"), content.get("parts")
    if type(parts) is not list or not parts:
        return None
    held = set(map(_obvious_part, parts))
    if held == {"text"}:
        return _SPEAKERS.get(role) if type(role) is str else None
    if role == "model" and held <= {"text", "function_call"}:
        return "tool_call"
    return "tool_result" if role == "user" and held == {"function_response"} else None


def _obvious_part(part: Any) -> str | None:
    """What a part holds, if it is well-formed and holds nothing else."""
    if type(part) is not dict or len(part) != 1:
        return None
    ((name, held),) = part.items()
    if name == "text":
        return "text" if type(held) is str else None
    if name not in ("function_call", "function_response") or type(held) is not dict:
        return None
    tool, id = held.get("name"), held.get("id")
    if not tool or type(tool) is not str or not (id is None or type(id) is str) or "parts" in held:
        return None
    return str(name)


def _read_kind(body: Any) -> str:
    try:
        return kind_for(body, FORMAT)
    except InvalidInput:
        return "event"


def event_time(timestamp: float) -> datetime:
    """The time of an event, to the microsecond."""
    try:
        return datetime.fromtimestamp(timestamp, UTC)
    except (OverflowError, ValueError, OSError, TypeError):
        raise InvalidInput("timestamp", f"{timestamp!r} is no time") from None


def _edits(thread: Thread, leaf: str | None, event: Event) -> Iterator[dict[str, Any]]:
    """What an event takes out of the context, as bodies of context edits."""
    actions = event.actions
    if actions.rewind_before_invocation_id:
        for entry in _invocation_on(thread, leaf, actions.rewind_before_invocation_id):
            yield {"target": entry.id, "edit": "remove"}
    if actions.compaction:
        start, end = actions.compaction.start_timestamp, actions.compaction.end_timestamp
        summed_up = _messages_between(thread, leaf, start, end)
        summary = actions.compaction.compacted_content.model_dump(mode="json", exclude_none=True)
        for number, entry in enumerate(summed_up):
            if number:
                yield {"target": entry.id, "edit": "remove"}
            else:
                told = {"role": "model", **summary}
                yield {"target": entry.id, "edit": "replace", "message": told, "format": "gemini"}


def _invocation_on(thread: Thread, leaf: str | None, invocation: str) -> list[Entry]:
    """The messages from the first event of an invocation on; none if it is not on the path."""
    path = thread.path(leaf)
    turns = [entry.turn for entry in path]
    if invocation not in turns:
        return []
    return [entry for entry in path[turns.index(invocation) :] if entry.kind in MESSAGE_KINDS]


def _messages_between(thread: Thread, leaf: str | None, start: float, end: float) -> list[Entry]:
    """The messages of a span of time, oldest first; as far back is read, and no further."""
    found = []
    for entry in backwards(thread, leaf):
        if entry.kind in MESSAGE_KINDS:
            time = entry.time_us / 1e6
            if time < start - 1e-6:
                break
            if time <= end + 1e-6:
                found.append(entry)
    return found[::-1]


# --- reading --------------------------------------------------------------------------------


def backwards(thread: Thread, leaf: str | None, size: int = CHUNK) -> Iterator[Entry]:
    """The entries of a path, the newest first, read as far as they are asked for."""
    while leaf is not None:
        chunk = thread.path(leaf, limit=size)
        yield from reversed(chunk)
        leaf, size = chunk[0].parent, min(size * 2, CHUNK_MAX)


def is_event(entry: Entry) -> bool:
    """Whether an entry is something that a session shows."""
    return entry.format == FORMAT or entry.kind in MESSAGE_KINDS


def newest_entries(
    thread: Thread, leaf: str | None, config: GetSessionConfig
) -> tuple[list[Entry], Entry | None]:
    """The entries that hold the events asked for, oldest first, and the newest event of all."""
    count, after = config.num_recent_events, config.after_timestamp
    if leaf is None:
        return [], None
    if count is None and after is None:
        path = reversed(thread.path(leaf))
    else:
        path = backwards(thread, leaf, CHUNK if count is None else max(count, 1))
    found: list[Entry] = []
    newest: Entry | None = None
    events, enough = 0, count == 0
    for entry in path:
        if newest is None and entry.format == FORMAT:
            newest = entry
        if after is not None and is_event(entry) and entry.time_us / 1e6 < after - 1e-6:
            enough = True
        if not enough:
            found.append(entry)
            events += is_event(entry)
            enough = events == count
        if enough and newest is not None:
            break
    return found[::-1], newest


def newest_event(thread: Thread, leaf: str | None) -> Entry | None:
    """The newest event of ADK's on a path."""
    return next((e for e in backwards(thread, leaf, 1) if e.format == FORMAT), None)


def cut(events: list[Event], config: GetSessionConfig) -> list[Event]:
    """The events that were asked for, of those that were read."""
    count, after = config.num_recent_events, config.after_timestamp
    if count is not None:
        events = events[-count:] if count else []
    if after is not None:
        old = [number for number, event in enumerate(events) if event.timestamp < after]
        events = events[old[-1] + 1 :] if old else events
    return events


def to_events(entries: Iterable[Entry], agent: str) -> list[Event]:
    """Entries of a path as events. `agent` is the author of what others wrote for a model."""
    events: list[Event] = []
    others: list[Entry] = []
    for entry in entries:
        if entry.format != FORMAT:
            if entry.kind in MESSAGE_KINDS:
                others.append(entry)
            continue
        events += _from_others(others, agent)
        others = []
        try:
            events.append(_event(entry))
        except ValueError as error:
            # One entry that is no event must not keep a session from being read.
            _log.warning("entry %r of %r is passed over: %s", entry.id, entry.thread, error)
    return events + _from_others(others, agent)


def _event(entry: Entry) -> Event:
    try:
        return Event.model_validate_json(entry.data)
    except ValueError:  # pydantic's JSON refuses half characters, which tools do give
        return Event.model_validate(entry.body)


def _from_others(entries: Sequence[Entry], agent: str) -> list[Event]:
    """Messages that were not written by ADK, in whatever format, as events with contents."""
    told = [
        (entry, message)
        for entry in entries
        for message in messages.view(entry.format, entry.body)
        if message.role != "system"  # in ADK the agent says what it is told
    ]
    if not told:
        return []
    written = messages.write("gemini", [message for _, message in told])
    first: dict[int, Entry] = {}
    for (entry, _), place in zip(told, written.places, strict=True):
        if place is not None:
            first.setdefault(place, entry)
    events: list[Event] = []
    for place, entry in sorted(first.items()):
        content = types.Content.model_validate(written.messages[place])
        seen = any(event.id == entry.id for event in events[-1:])
        events.append(
            Event(
                id=f"{entry.id}.{place}" if seen else entry.id,
                author=agent if content.role == "model" else "user",
                invocation_id=entry.turn or "",
                timestamp=entry.time_us / 1e6,
                content=content,
            )
        )
    return events
