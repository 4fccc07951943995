"""Which snapshot belongs to a point of a thread: what rewind, fork and restore go by.

The files of a point are those of the nearest snapshot with no work between the two: for a user
message, at it or before it, the first that was taken for it; elsewhere the last one up to the
point, or else the first one after it.

What was taken for a message is what its turn began with, or what was taken after it came. A later
one may have been taken only to save work, so it does not count. Work is every entry but those
that change no file: messages of the user, markers, snapshots, notes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from clew.core.errors import InvalidInput, NotFound
from clew.core.model import Entry, ThreadInfo
from clew.snapshots import catalogue
from clew.snapshots import intent as intents
from clew.snapshots.model import SAFETY, Snapshot

if TYPE_CHECKING:
    from clew.thread import Thread

IDLE = frozenset(
    "user_message system_message snapshot turn_marker thread_info model_change active_tools_change "
    "compaction branch_summary context_edit usage label".split()
)
_NEAR = 64  # entries and records that are looked at: what lies further away has work before it


class Point(Struct, frozen=True):
    """A place in a thread's tree: on an entry, or before the root.

    `message` is the user message that is there, or that comes next.
    """

    entry: Entry | None
    message: Entry | None = None


def point_at(thread: Thread, id: str | None) -> Point:
    """The point where a thread stands on an entry."""
    entry = None if id is None else thread.get(id)
    return Point(entry, entry if entry is not None and entry.kind == "user_message" else None)


def point_before(thread: Thread, id: str) -> Point:
    """The point where a thread stands just before an entry."""
    entry = thread.get(id)
    parent = None if entry.parent is None else thread.get(entry.parent)
    return Point(parent, entry if entry.kind == "user_message" else None)


def belonging(
    thread: Thread, point: Point, root: str | None = None, info: ThreadInfo | None = None
) -> Snapshot:
    """The snapshot that belongs to a point, with the names of what it left out.

    NotFound if there is none. InvalidInput if there are some of several folders, and no `root`
    says which one is meant.
    """
    engine, info = thread.store.engine, info or thread.info
    folders: dict[str, _Folder] = {}
    for snapshot in reversed(catalogue.visible(engine, info)):
        if is_meant(snapshot):
            folder = folders.setdefault(snapshot.root, _Folder(thread, info, snapshot.root))
            folder.seen[snapshot.id] = snapshot
    # Of another folder that the thread works in none will do. One that is gone may have been moved
    # to where `root` is, and those of its origin are what a fork's own folder began with.
    if root in folders:
        own = {one.root for one in catalogue.own(info)} - {root}
        others = {name for name in own if os.path.isdir(name)}
        folders = {name: folder for name, folder in folders.items() if name not in others}
    # Of several folders those count whose files were asked for at just this point.
    answers = {name: folder.on_purpose(point) for name, folder in folders.items()}
    if not any(answers.values()):
        answers = {name: folder.nearest(point) for name, folder in folders.items()}
    told = [(folders[name].seen, one.id) for name, one in answers.items() if one is not None]
    found = [seen[id] for seen, id in told if id in seen]  # not those that were dropped
    meant = [one for one in found if one.root == root]
    own_ones = [one for one in found if one.thread == thread.id]
    found = meant or own_ones or found
    if len(found) > 1:
        names = ", ".join(sorted(one.root for one in found))
        raise InvalidInput("root", f"there are snapshots of several folders: {names}")
    if found:
        # With the names of what it left out: those must not be taken for new ones.
        return catalogue.named(engine, info, found[0])
    if point.message is not None:
        raise NotFound("snapshot for user message", point.message.id)
    raise NotFound("snapshot for entry", "root" if point.entry is None else point.entry.id)


def snapshot_at(thread: Thread, info: ThreadInfo, id: str, root: str | None) -> Snapshot:
    """The snapshot with this id, or the one that belongs to the entry with this id."""
    try:
        return catalogue.get(thread.store.engine, info, id)
    except NotFound as error:
        try:
            point = point_at(thread, id)
        except NotFound:
            raise error from None
        if point.entry is None or catalogue.is_snapshot(point.entry):
            raise  # it was one, and was dropped
    return belonging(thread, point, root, info)


def stands_at(thread: Thread, info: ThreadInfo, leaf: str | None) -> bool:
    """Whether a thread stands on an entry still, but for markers and snapshots behind it."""
    for entry in reversed(thread.path(info.leaf, limit=_NEAR)):
        if entry.id == leaf:
            return True
        if entry.kind not in ("snapshot", "turn_marker"):
            return False
        if entry.parent == leaf:
            return True
    return info.leaf == leaf


class _Folder:
    """The snapshots of one folder, and which of them belongs to a point.

    It is found by the entries, which stay when a snapshot is dropped: one that is gone must not
    make another one, of other files, look like the nearest.
    """

    def __init__(self, thread: Thread, info: ThreadInfo, root: str) -> None:
        self._thread = thread
        self._info = info
        self._root = root
        self.seen: dict[str, Snapshot] = {}  # those that are kept, the oldest first

    def on_purpose(self, point: Point) -> Snapshot | None:
        """The one that was taken for this point, or that a rewind to it has brought."""
        if point.message is None:
            return self._brought(point)
        return self._taken_for(point.message, _idle_before(self._thread, point))

    def nearest(self, point: Point) -> Snapshot | None:
        """The last one up to the point, or else the first one after it, with no work between."""
        before, after = _idle_before(self._thread, point), _idle_after(self._thread, point)
        return self._first(before) or self._first(after)

    def _first(self, entries: Iterable[Entry]) -> Snapshot | None:
        return next(filter(None, map(self._told, entries)), None)

    def _told(self, entry: Entry) -> Snapshot | None:
        """The snapshot that an entry says the files were as in: it is one, or a turn's marker."""
        if entry.kind == "turn_marker":
            id = entry.body.get("snapshot") if isinstance(entry.body, dict) else None
            if not isinstance(id, str):
                return None
            try:
                entry = self._thread.get(id)
            except NotFound:
                return None
        if not catalogue.is_snapshot(entry):
            return None
        snapshot = catalogue.from_entry(entry)
        return snapshot if snapshot.root == self._root and is_meant(snapshot) else None

    def _brought(self, point: Point) -> Snapshot | None:
        """What a rewind has brought to where the thread stands: the files of a later message."""
        last, leaf = intents.last(self._info), self._info.leaf
        if last is None or not last.moves or last.files is None or last.files.paths is not None:
            return None
        here = None if point.entry is None else point.entry.id
        return self.seen.get(last.files.snapshot) if here == leaf == last.leaf else None

    def _taken_for(self, message: Entry, before: Iterable[Entry]) -> Snapshot | None:
        began = [e for e in before if e.kind == "turn_marker" and e.turn == message.turn]
        taken = None if message.turn is None else self._first(began)
        if taken is not None:
            return taken
        on_purpose: Snapshot | None = None
        for snapshot in self.seen.values():
            if snapshot.at != message.id:
                continue
            try:
                between = self._thread.path(snapshot.id, after=message.id, limit=_NEAR)
            except NotFound:
                between = []  # it does not lie behind the message
            if not between or any(entry.kind == "user_message" for entry in between):
                # There was another message that it would belong to, but the caller named this one.
                on_purpose = on_purpose or snapshot
            elif len(between) < _NEAR and all(entry.kind in IDLE for entry in between):
                return self._first(between)
        return on_purpose


def is_meant(snapshot: Snapshot) -> bool:
    """Whether it shows a state of the whole folder, and was not only taken on the way."""
    return snapshot.paths is None and snapshot.label not in SAFETY.values()


def _idle_before(thread: Thread, point: Point) -> Iterator[Entry]:
    """The entries up to a point, the newest first, as far back as there is no work."""
    leaf, limit = None if point.entry is None else point.entry.id, 8
    while leaf is not None:
        entries = thread.path(leaf, limit=limit)
        for entry in reversed(entries):
            if entry.kind not in IDLE:
                return
            yield entry
        leaf, limit = entries[0].parent, _NEAR


def _idle_after(thread: Thread, point: Point) -> Iterator[Entry]:
    """The entries that follow a point before any work is done, as far as they are near."""
    entry = point.entry
    source, after = (thread.id, 0) if entry is None else (entry.thread, entry.seq)
    try:
        records = thread.store.engine.read(source, after=after, limit=_NEAR)
    except NotFound:
        return  # the thread that this one came from was purged
    reached = {None if entry is None else entry.id}
    for record in records:
        if isinstance(record, Entry) and record.parent in reached and record.kind in IDLE:
            yield record
            reached.add(record.id)
