"""The window: the part of a path that still speaks for itself, after the last compaction.

It is read from its end: as far back as the last compaction that is in force, then from the first
entry that this one keeps. What lies before is not read, however long it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType

from clew.context.bodies import Compaction, read_compaction, read_edit
from clew.core.errors import InvalidInput, NotFound, TooLarge
from clew.core.model import Entry

CHUNK, CHUNK_MAX = 256, 4096
_NO_ENTRY = (NotFound, InvalidInput, TooLarge)  # what is no id names no entry

# What takes part in a conversation; all other kinds are about it.
MESSAGE_KINDS = frozenset(
    {"user_message", "assistant_message", "tool_call", "tool_result", "system_message"}
)


class PathReader(Protocol):
    """What a thread offers to read: see `Thread.path` and `Thread.get`."""

    def path(
        self,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]: ...

    def get(self, entry: str) -> Entry: ...


class GivenPath:
    """A path that was read already, as something to read."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = list(entries)
        self._places = {entry.id: index for index, entry in enumerate(entries)}

    def path(
        self,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        end = len(self._entries) if leaf is UNSET else self._end(leaf)
        found = self._entries[self._end(after) : end]
        return found if limit is None else found[-limit:]

    def get(self, entry: str) -> Entry:
        if entry not in self._places:
            raise NotFound("entry", entry)
        return self._entries[self._places[entry]]

    def _end(self, entry: str | None) -> int:
        """How many entries there are up to this one; none, if the path begins behind it."""
        if entry is None or (self._entries and entry == self._entries[0].parent):
            return 0
        self.get(entry)
        return self._places[entry] + 1


class Window(Struct, frozen=True):
    """What a projection works on, oldest first.

    `compaction` stands for all that was before `entries`; `kept` are the user inputs from there
    that it preserves, `carried` the system messages and settings that are still in force.
    `repaired` says that its boundary was missing and had to be found. `last` is where the path
    ends, a compaction perhaps.
    """

    entries: list[Entry]
    compaction: Compaction | None = None
    kept: tuple[Entry, ...] = ()
    carried: tuple[Entry, ...] = ()
    repaired: bool = False
    last: Entry | None = None


def read_window(
    thread: PathReader, leaf: str | UnsetType | None = UNSET, *, compacted: bool = True
) -> Window:
    """The window of a path. With `compacted` false it is the whole path."""
    if not compacted:
        path = thread.path(leaf)
        return Window(_without_compactions(path), last=path[-1] if path else None)
    tail, compaction = _back_to_compaction(thread, leaf)
    if compaction is None:
        return Window(_without_compactions(tail), last=tail[-1] if tail else None)
    head, repaired = _kept_before(thread, compaction)
    entries = _without_compactions([*head, *tail])
    present = {entry.id for entry in entries}
    return Window(
        entries,
        compaction,
        _named(thread, compaction.kept_users, present),
        _named(thread, compaction.carried, present),
        repaired,
        tail[-1] if tail else compaction.entry,
    )


def _back_to_compaction(
    thread: PathReader, leaf: str | UnsetType | None
) -> tuple[list[Entry], Compaction | None]:
    """The entries after the last compaction in force, and that compaction."""
    chunks: list[list[Entry]] = []
    undone: set[str | None] = set()
    size = CHUNK
    while True:
        chunk = thread.path(leaf, limit=size)
        # From the end, because an edit that undoes a compaction stands behind it.
        for index in range(len(chunk) - 1, -1, -1):
            entry = chunk[index]
            if entry.kind == "context_edit":
                undone |= _undone_by(entry)
            elif entry.kind == "compaction":
                found = read_compaction(entry)
                if not undone & {entry.id, found.compaction_id}:
                    chunks.append(chunk[index + 1 :])
                    return _joined(chunks), found
        chunks.append(chunk)
        if len(chunk) < size or chunk[0].parent is None:
            return _joined(chunks), None
        leaf, size = chunk[0].parent, min(size * 2, CHUNK_MAX)


def _kept_before(thread: PathReader, compaction: Compaction) -> tuple[list[Entry], bool]:
    """The entries before a compaction that it keeps as they are."""
    leaf = compaction.entry.parent
    if leaf is None:
        return [], False  # it came without what it stands for
    try:
        if compaction.first_kept is not None:
            return thread.path(leaf, after=thread.get(compaction.first_kept).parent), False
        if compaction.through is not None:
            return thread.path(leaf, after=compaction.through), False
    except _NO_ENTRY:  # written by another program, or for another thread
        return _last_exchange(thread.path(leaf, limit=CHUNK)), True
    if compaction.kept_users:
        return [], False  # it says what it keeps, and that is no tail
    return _last_exchange(thread.path(leaf, limit=CHUNK)), True


def _last_exchange(entries: Sequence[Entry]) -> list[Entry]:
    """The last message, with the calls that it answers if it is a result."""
    index = len(entries) - 1
    while index > 0 and entries[index].kind not in MESSAGE_KINDS:
        index -= 1
    while index > 0 and entries[index].kind in ("tool_result", "tool_call"):
        index -= 1
    return list(entries[index:])


def _named(thread: PathReader, ids: Sequence[str], present: set[str]) -> tuple[Entry, ...]:
    """The entries that a compaction names and that are not in the window anyway."""
    found: list[Entry] = []
    for id in ids:
        if id not in present:
            try:
                found.append(thread.get(id))
            except _NO_ENTRY:
                continue
    return tuple(found)


def _without_compactions(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.kind != "compaction"]


def _undone_by(entry: Entry) -> set[str | None]:
    found = read_edit(entry)
    if found.edit != "uncompact":
        return set()
    return {id for id in (found.target, found.compaction_id) if id is not None}


def _joined(chunks: list[list[Entry]]) -> list[Entry]:
    return [entry for chunk in reversed(chunks) for entry in chunk]
