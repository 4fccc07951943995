"""What a rewind is about to do, written down first, so that it is never half-forgotten.

Three facts of a thread: `rewinding` stands from before the first file is touched until files and
leaf have both arrived; `rewound` is the last one that did, and what undoing it takes; `unwound`
is the last undo, and what redoing takes. The latter two are the tops of stacks. Each tells which
one lies below it and where in the feed that was written, so that a stack of any depth costs one
fact, and going down one step reads a few records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from clew.core.codec import decode, encode
from clew.core.engine import pages
from clew.core.errors import Corrupt
from clew.core.facts import is_time
from clew.core.model import Draft, Fact, FactDraft, MoveDraft, ThreadInfo, fact_keys
from clew.snapshots import trust
from clew.snapshots.model import Verb, root_flaw

if TYPE_CHECKING:
    from clew.core.engine import Engine
    from clew.thread import Thread

PENDING, LAST, UNDONE = "rewinding", "rewound", "unwound"

_PAGE = 32  # records; an intent arrives a few of them after it was begun


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


class Below(Struct, frozen=True):
    """The one that lies below another on its stack: it was written behind `after`."""

    id: str
    after: int


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
    keeps: bool = False  # what can be undone, and what can be redone, stays what it is
    after: int = 0  # the last record when it was begun: its own ones come later
    takes_back: str | None = None  # of an undo or redo: the one on top of the stack that it is for
    below: Below | None = None  # on the stack that it goes on
    clears: bool = False  # there was something to be redone, which there is no more
    sweeps: bool = False  # it was forced, and took away what others had added


def pending(info: ThreadInfo) -> Intent | None:
    """The one that was begun and has not arrived."""
    return _read(info, PENDING)


def last(info: ThreadInfo) -> Intent | None:
    """The one that can be undone."""
    return _read(info, LAST)


def undone(info: ThreadInfo) -> Intent | None:
    """The undo that can be redone, if the thread still stands where it left it."""
    return _read(info, UNDONE)


def below(top: Intent | None) -> Below | None:
    """What one that goes on top of this has to remember of it."""
    return None if top is None else Below(top.id, top.after)


def needed(info: ThreadInfo) -> set[str]:
    """The snapshots that must be kept so that a rewind can be finished, undone or redone."""
    tops = (pending(info), last(info), undone(info))
    found = (intent.files for intent in tops if intent is not None)
    return {id for files in found if files is not None for id in (files.snapshot, files.before)}


def _read(info: ThreadInfo, key: str) -> Intent | None:
    # The others need not be decoded.
    value = decode(info.fact_data[key]) if key in fact_keys(info, key) else None
    return None if value is None else _converted(value, f"fact {key} of thread {info.id!r}")


def _converted(value: Any, place: str) -> Intent:
    try:
        intent = msgspec.convert(value, Intent)
    except ValueError as error:  # also for text that none can be
        raise Corrupt(place, str(error)) from error
    flaw = None if intent.files is None else root_flaw(intent.files.root)
    if flaw is not None or not is_time(intent.time_us):
        raise Corrupt(place, flaw or f"its time is {intent.time_us} µs")
    return intent


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
    engine = thread.store.engine
    batch: list[Draft] = []
    if intent.moves:
        batch.append(MoveDraft(id=f"{intent.id}.move", leaf=intent.leaf, time_us=intent.time_us))
    if intent.files is not None:
        batch.append(_fact(intent, "arrived", PENDING, None))
    if not intent.keeps:
        # What is undone goes from the one stack to the other, and back when it is redone.
        goes_on, comes_from = (UNDONE, LAST) if intent.what == "undo" else (LAST, UNDONE)
        batch.append(_fact(intent, "done", goes_on, msgspec.to_builtins(intent)))
        if intent.takes_back is not None:
            top = _read(engine.thread(thread.id), comes_from)
            if top is not None and top.id == intent.takes_back:
                under = _find(engine, thread.id, top)
                value = None if under is None else msgspec.to_builtins(under)
                batch.append(_fact(intent, "taken", comes_from, value))
        elif intent.clears:
            batch.append(_fact(intent, "cleared", UNDONE, None))
    if not intent.moves:
        expect = UNSET  # files alone: it does not matter what was written meanwhile
    thread.write(batch, expect=expect, fence=fence)
    trust.forget_intent(engine, intent.id)


def _find(engine: Engine, thread: str, top: Intent) -> Intent | None:
    """The one below the top of a stack, from the record that it was written down in.

    None if there is none, or if a repair has lost it: then the stack ends there.
    """
    if top.below is None:
        return None
    for page in pages(engine, thread, after=top.below.after, limit=_PAGE):
        for record in page:
            if isinstance(record, Fact) and record.id == f"{top.below.id}.done":
                return _converted(record.value, f"record {record.seq} of thread {thread!r}")
        if page[-1].seq >= top.after:
            break
    return None


def forget(thread: Thread, intent: Intent) -> None:
    """It did not happen. A fact needs no lease, so this works for one who has lost it."""
    batch = [_fact(intent, "forgotten", PENDING, None)]
    thread.store.engine.append(thread.id, batch)
    trust.forget_intent(thread.store.engine, intent.id)


def _fact(intent: Intent, step: str, key: str, value: Any) -> FactDraft:
    id = f"{intent.id}.{step}"
    return FactDraft(id=id, key=key, data=encode(value, field=key), time_us=intent.time_us)
