"""What a rewind is about to do, written down first, so that it is never half-forgotten.

Two facts of a thread: `rewinding` stands from before the first file is touched until files and
leaf have both arrived; `rewound` is the last one that did, and what undoing it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from clew.core.codec import decode, encode
from clew.core.errors import Corrupt
from clew.core.model import Draft, FactDraft, MoveDraft, ThreadInfo, fact_keys
from clew.snapshots.model import Verb

if TYPE_CHECKING:
    from clew.thread import Thread

PENDING, LAST = "rewinding", "rewound"


class Files(Struct, frozen=True, kw_only=True):
    """Where the files go, and where they come from."""

    root: str
    folder: list[int]  # which folder that is, by device and inode
    snapshot: str
    tree: str
    before: str
    before_tree: str
    paths: list[str] | None = None
    above: list[str] = []  # what had to change on the way to them, and changes back with them


class Intent(Struct, frozen=True, kw_only=True):
    """What is about to happen to a thread, and to its files."""

    id: str
    what: Verb
    time_us: int
    files: Files | None = None  # None: they stay as they are
    moves: bool = False
    leaf: str | None = None  # where the thread will stand, if it moves
    from_leaf: str | None = None
    to: str | None = None  # the user message that was named
    keeps: bool = False  # the last one that arrived stays the one that can be undone


def pending(info: ThreadInfo) -> Intent | None:
    """The one that was begun and has not arrived."""
    return _read(info, PENDING)


def last(info: ThreadInfo) -> Intent | None:
    """The one that can be undone."""
    return _read(info, LAST)


def needed(info: ThreadInfo) -> set[str]:
    """The snapshots that must be kept so that a rewind can be finished or undone."""
    found = (intent.files for intent in (pending(info), last(info)) if intent is not None)
    return {id for files in found if files is not None for id in (files.snapshot, files.before)}


def _read(info: ThreadInfo, key: str) -> Intent | None:
    # The others need not be decoded.
    value = decode(info.fact_data[key]) if key in fact_keys(info, key) else None
    if value is None:
        return None
    try:
        return msgspec.convert(value, Intent)
    except msgspec.ValidationError as error:
        raise Corrupt(f"fact {key} of thread {info.id!r}", str(error)) from error


def begin(intent: Intent) -> list[Draft]:
    """The drafts that write it down, behind those of the snapshot on the way.

    That snapshot's entry has become the leaf, so the thread moves back to where it stood.
    """
    # Ids are made of the intent's own, so that a retry after an unclear error writes nothing twice.
    back = MoveDraft(id=f"{intent.id}.back", leaf=intent.from_leaf, time_us=intent.time_us)
    return [back, _fact(intent, "begun", PENDING, msgspec.to_builtins(intent))]


def finish(
    thread: Thread, intent: Intent, expect: str | UnsetType | None, fence: int | None
) -> None:
    """The leaf and the facts, as one step. Doing it again changes nothing: the ids are the same."""
    batch: list[Draft] = []
    if intent.moves:
        batch.append(MoveDraft(id=f"{intent.id}.move", leaf=intent.leaf, time_us=intent.time_us))
    if intent.files is not None:
        batch.append(_fact(intent, "arrived", PENDING, None))
    # An undo leaves nothing that could be undone: to undo it again would be to rewind once more.
    if not intent.keeps:
        value = None if intent.what == "undo" else msgspec.to_builtins(intent)
        batch.append(_fact(intent, "done", LAST, value))
    if not intent.moves:
        expect = UNSET  # files alone: it does not matter what was written meanwhile
    thread.store.engine.append(thread.id, batch, expect=expect, fence=fence)


def forget(thread: Thread, intent: Intent) -> None:
    """It did not happen. A fact needs no lease, so this works for one who has lost it."""
    batch = [_fact(intent, "forgotten", PENDING, None)]
    thread.store.engine.append(thread.id, batch)


def _fact(intent: Intent, step: str, key: str, value: Any) -> FactDraft:
    id = f"{intent.id}.{step}"
    return FactDraft(id=id, key=key, data=encode(value, field=key), time_us=intent.time_us)
