"""The shape of a thread's tree, and what is looked for along one of its paths.

Leaves, children and the place where branches part are found from the segments; an unfinished turn
and the calls of tools from the end of a path, because that is where they usually lie.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from clew import messages
from clew.core.model import Entry, Segment
from clew.messages.neutral import ToolCall, calls_of

if TYPE_CHECKING:
    from clew.thread import Thread


class Comparison(Struct, frozen=True):
    """Where two entries' paths part: the last entry in common, and what each has after it."""

    common: Entry | None
    left: list[Entry]
    right: list[Entry]


def leaves(thread: Thread) -> list[str]:
    segments = thread.segments()
    origin = thread.info.origin
    ends = [segment.last for segment in segments]
    if origin is not None and origin.entry is not None:
        ends.insert(0, origin.entry)
    inner = {segment.parent for segment in segments}
    return [end for end in ends if end not in inner]


def children(thread: Thread, entry: str | None) -> list[str]:
    segments = thread.segments()
    found = [segment.first for segment in segments if segment.parent == entry]
    if entry is not None:
        follower = _next_in_segment(thread, thread.get(entry), segments)
        return found if follower is None else [follower, *found]
    origin = thread.info.origin
    if origin is not None and origin.entry is not None:
        found.insert(0, thread.path(origin.entry)[0].id)
    return found


def _next_in_segment(thread: Thread, entry: Entry, segments: list[Segment]) -> str | None:
    """The child that no segment begins with: the one that follows in the entry's own segment."""
    if entry.thread != thread.id:
        # It is shared with the origin, and a fork sees one child of it there: the next on the way
        # to where the fork began.
        origin = thread.info.origin
        assert origin is not None
        rest = thread.path(origin.entry, after=entry.id)
        return rest[0].id if rest else None
    if any(segment.last == entry.id for segment in segments):
        return None
    for record in thread.read(after=entry.seq):
        if isinstance(record, Entry):
            return record.id
    return None


def compare(thread: Thread, left: str, right: str) -> Comparison:
    # Branches usually part near their ends, so little is read at first, and then more and more.
    limit = 64
    while True:
        a, b = thread.path(left, limit=limit), thread.path(right, limit=limit)
        known = {entry.id: i for i, entry in enumerate(b)}
        meet = max((i for i, entry in enumerate(a) if entry.id in known), default=None)
        if meet is not None:
            return Comparison(a[meet], a[meet + 1 :], b[known[a[meet].id] + 1 :])
        if len(a) < limit and len(b) < limit:
            return Comparison(None, a, b)
        limit *= 4


def unfinished_turn(thread: Thread) -> Entry | None:
    """The marker of a turn on the path that was started and never ended, found from its end."""
    limit = 64
    while True:
        tail = thread.path(limit=limit)
        markers = [entry for entry in tail if entry.kind == "turn_marker"]
        for marker in reversed(markers):
            if _turn_status(marker) != "save_point":
                return marker if _turn_status(marker) == "started" else None
        if len(tail) < limit:
            return None
        limit *= 4


def _turn_status(marker: Entry) -> str | None:
    """What a turn marker says; None for one that says nothing we know."""
    return marker.body.get("status") if isinstance(marker.body, dict) else None


def calls(
    thread: Thread, ids: Collection[str], leaf: str | UnsetType | None = UNSET
) -> dict[str, ToolCall]:
    """Of some ids of calls, those that a message on the path to `leaf` makes: the newest."""
    found: dict[str, ToolCall] = {}
    wanted = set(ids)
    limit = 16  # a result comes soon after its call, so the newest entries are looked at first
    while wanted:
        entries = thread.path(leaf, limit=limit)
        for entry in reversed(entries):
            if entry.kind in ("tool_call", "assistant_message", "custom"):
                for message in messages.view(entry.format, entry.body):
                    made = {call.id: call for call in calls_of(message) if call.id in wanted}
                    found |= made
                    wanted -= made.keys()
        if not entries or entries[0].parent is None:
            break
        leaf, limit = entries[0].parent, 1000
    return found
