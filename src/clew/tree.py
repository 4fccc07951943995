"""The shape of a thread's tree, its relatives, and what is looked for along one of its paths.

Leaves, children and the place where branches part are found from the segments; an unfinished turn
and the calls of tools from the end of a path, because that is where they usually lie.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Struct, UnsetType

from clew import messages
from clew.core import drafts
from clew.core.codec import encode, new_id
from clew.core.errors import Conflict, InvalidInput, NotFound
from clew.core.model import Entry, EntryDraft, FactDraft, Segment, ThreadInfo
from clew.core.names import check_name
from clew.core.tombstones import used_blobs
from clew.messages.neutral import ToolCall, calls_of
from clew.messages.replies import ADOPTED, adopted_hash

if TYPE_CHECKING:
    from clew.store import Store
    from clew.thread import Thread

FORK_ID_FACT = "fork_id"  # of a thread: the last number that was given to a fork of it


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
    begins = turn_status(parent) == "started"
    return parent.parent if begins and parent.turn == entry.turn else parent.id


def unfinished_turn(thread: Thread, leaf: str | UnsetType | None = UNSET) -> Entry | None:
    """The marker of a turn on the path that was started and never ended, found from its end."""
    limit = 8  # most threads rest, and then the last entry is the marker of that
    while True:
        tail = thread.path(leaf, limit=limit)
        markers = [entry for entry in tail if entry.kind == "turn_marker"]
        for marker in reversed(markers):
            status = turn_status(marker)
            if status != "save_point":
                return marker if status == "started" else None
        if len(tail) < limit:
            return None
        limit *= 8


def turn_status(entry: Entry) -> str | None:
    """What a turn marker says; None for one that says nothing we know, and for all else."""
    body = entry.body if entry.kind == "turn_marker" else None
    return body.get("status") if isinstance(body, dict) else None


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


# --- forks and sub-agents -------------------------------------------------------------------


class Relative(Struct, frozen=True):
    """A thread, what it is to the thread `of`, and how many steps below the one asked for."""

    info: ThreadInfo
    relation: Literal["root", "fork", "sub-agent"]
    of: str | None
    depth: int


def relatives(store: Store, id: str) -> list[Relative]:
    """A thread, then its forks and sub-agents and theirs, each before what hangs on it."""
    # A stack of its own: a chain of forks may be as long as one likes.
    todo = [Relative(store.get(id, deleted=True).info, "root", None, 0)]
    found: list[Relative] = []
    seen = {id}
    while todo:
        found.append(todo.pop())
        parent, depth = found[-1].info.id, found[-1].depth + 1
        # A sub-agent that began as a fork is told once, as what it works as.
        helpers = list(store.threads(parent=parent, archived=None))
        forks = list(store.threads(origin=parent, archived=None))
        below = [Relative(info, "sub-agent", parent, depth) for info in helpers]
        below += [Relative(info, "fork", parent, depth) for info in forks]
        fresh = {one.info.id: one for one in reversed(below) if one.info.id not in seen}
        seen |= fresh.keys()
        todo += sorted(fresh.values(), key=lambda one: one.info.created_us, reverse=True)
    return found


def fork_id(store: Store, base: str) -> str:
    """See `Store.fork_id`."""
    number = 0
    while True:
        last = store.get(base).info.facts.get(FORK_ID_FACT)
        number = max(number, last["number"] if isinstance(last, dict) else 0) + 1
        id = check_name(f"{base}#fork-{number}", "id")
        with suppress(NotFound):
            store.get(id, deleted=True)
            continue  # it was made without being reserved
        # Facts are not compared and set. The ids of records are: the same one with other
        # content is a Conflict, so of several callers one gets the number.
        claim = FactDraft(
            id=f"{FORK_ID_FACT}:{number}",
            key=FORK_ID_FACT,
            data=encode({"number": number, "by": new_id()}),
            time_us=store.clock(),
        )
        try:
            store.engine.append(base, [claim])
        except Conflict:
            continue
        return id


def children_of(store: Store, thread: str) -> tuple[str, ...]:
    """The threads that work for a thread, archived and deleted ones too. Reads an index."""
    found = {
        info.id
        for deleted in (False, True)
        for info in store.threads(parent=thread, archived=None, deleted=deleted)
    }
    return tuple(sorted(found - {thread}))


def adopt(thread: Thread, fork: Thread, *, force: bool, fence: int | None) -> list[Entry]:
    """What a fork has added, as entries of the thread; see `Thread.adopt`."""
    _check_fork(thread, fork)
    info = thread.info
    parted = compare((thread, info.leaf), (fork, UNSET))
    base, ours, theirs = parted.common, parted.left, parted.right
    while ours and theirs and adopted_from(ours[0]) == (fork.id, theirs[0].id):
        base, ours, theirs = ours[0], ours[1:], theirs[1:]  # adopted before
    if not theirs:
        return []
    if ours and not force:
        raise Conflict(
            f"thread {thread.id!r} has moved on since {fork.id!r} was forked from it, by "
            f"{len(ours):,} entries; nothing was adopted. With force they stay as a branch",
            field="leaf",
            expected=None if base is None else base.id,
            actual=info.leaf,
        )
    new = {entry.id: new_id() if _has(thread, entry.id) else entry.id for entry in theirs}
    parent = None if base is None else base.id
    batch = [_adopted(entry, fork.id, new[entry.id], parent) for entry in theirs[:1]]
    batch += [_adopted(entry, fork.id, new[entry.id], UNSET) for entry in theirs[1:]]
    # Facts such as labels belong to an entry, whose id is in their key.
    of_entries = {
        f"{prefix}.{new[id]}": value
        for key, value in fork.info.facts.items()
        for prefix, _, id in [key.partition(".")]
        if id in new
    }
    facts = drafts.facts(of_entries, thread.store.clock())
    written = thread.write([*batch, *facts], expect=info.leaf, fence=fence)
    return [record for record in written if isinstance(record, Entry)]


def _check_fork(thread: Thread, fork: Thread) -> None:
    """That a thread was forked from this one, or from a fork of it."""
    seen, origin = {fork.id}, fork.info.origin
    while origin is not None and origin.thread not in seen:
        if origin.thread == thread.id:
            return
        seen.add(origin.thread)
        try:
            origin = thread.store.get(origin.thread, deleted=True).info.origin
        except NotFound:
            break
    raise InvalidInput("fork", f"{fork.id!r} is no fork of thread {thread.id!r}")


def _adopted(entry: Entry, fork: str, id: str, parent: str | UnsetType | None) -> EntryDraft:
    written = adopted_hash(entry) or entry.hash
    meta = {**entry.meta, ADOPTED: {"thread": fork, "entry": entry.id, "hash": written}}
    return EntryDraft(
        id=id,
        kind=entry.kind,
        data=entry.data,
        time_us=entry.time_us,
        parent=parent,
        turn=entry.turn,
        format=entry.format,
        meta_data=encode(meta, field="meta"),
        blobs=used_blobs(entry),
    )


def adopted_from(entry: Entry) -> tuple[Any, Any] | None:
    """The thread and the entry that an adopted one comes from."""
    told = entry.meta.get(ADOPTED)
    return (told.get("thread"), told.get("entry")) if isinstance(told, dict) else None


def _has(thread: Thread, entry: str) -> bool:
    try:
        thread.get(entry)
    except NotFound:
        return False
    return True
