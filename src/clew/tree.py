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


End = tuple["Thread", str | UnsetType | None]  # a thread, and the entry where a path of it ends


def compare(left: End, right: End) -> Comparison:
    """Where two paths part, in one thread or in two."""
    ours, theirs = _Walk(*left), _Walk(*right)
    while not (ours.ended and theirs.ended):
        walk, other = (ours, theirs) if ours.is_behind(theirs) else (theirs, ours)
        # What two paths share is the beginning of both, so the first that is met is the last.
        for entry in walk.read():
            if _identity(entry) in other.places:
                return Comparison(entry, ours.after(entry), theirs.after(entry))
    return Comparison(None, ours.entries[::-1], theirs.entries[::-1])


class _Walk:
    """A path from its end towards the root, of which no more is read than is asked for."""

    def __init__(self, thread: Thread, end: str | UnsetType | None) -> None:
        self._thread = thread
        self._next = end
        self._limit = 64
        self.ended = False
        self.entries: list[Entry] = []  # newest first
        self.places: dict[tuple[str, str], int] = {}

    def read(self) -> list[Entry]:
        """Some more entries; the more have been read, the more."""
        found = self._thread.path(self._next, limit=self._limit)[::-1]
        for entry in found:
            self.places[_identity(entry)] = len(self.entries)
            self.entries.append(entry)
        self._next = found[-1].parent if found else None
        self._limit = max(self._limit, len(self.entries))
        self.ended = self._next is None
        return found

    def is_behind(self, other: _Walk) -> bool:
        """Whether this one has to go on: the other one waits at what is older, or has ended.

        Times are those of the callers, and may mislead; then more is read than had to be.
        """
        if self.ended or other.ended:
            return other.ended
        if not self.entries or not other.entries:
            return not self.entries
        ours, theirs = self.entries[-1], other.entries[-1]
        if ours.thread == theirs.thread:
            return ours.seq > theirs.seq
        return (ours.time_us, len(other.entries)) > (theirs.time_us, len(self.entries))

    def after(self, entry: Entry) -> list[Entry]:
        return self.entries[: self.places[_identity(entry)]][::-1]


def _identity(entry: Entry) -> tuple[str, str]:
    """What makes an entry the same one: a fork may use an id that its origin uses later."""
    return entry.thread, entry.hash


def before(thread: Thread, id: str) -> str | None:
    """Where a thread stood before an entry came: before its turn, if that began with the entry.

    To stand on the turn's first marker would look as if the turn had been interrupted there.
    """
    entry = thread.get(id)
    if entry.parent is None or entry.turn is None:
        return entry.parent
    parent = thread.get(entry.parent)
    begins = parent.kind == "turn_marker" and _turn_status(parent) == "started"
    return parent.parent if begins and parent.turn == entry.turn else parent.id


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
