"""What a conversation shows, and the records that make it show something else.

Nothing is removed here: the leaf goes back to where the histories part, and a compaction hides
what lies before the messages that are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from clew import messages as formats
from clew.context.compaction import compaction_body
from clew.context.window import Window, read_window
from clew.core import drafts
from clew.core.codec import digest
from clew.core.errors import Conflict, InvalidInput, NotFound
from clew.core.model import Draft, Entry, EntryDraft
from clew.core.names import check_name
from clew.facets import _base
from clew.messages.neutral import tool_ids
from clew.store import Store
from clew.thread import Thread


def shown(window: Window) -> list[Entry]:
    """The messages of a window, oldest first."""
    return [entry for entry in (*window.kept, *window.entries) if _base.is_message(entry)]


# --- another history ------------------------------------------------------------------------


class Given(Struct, frozen=True):
    """A history as a caller gives it: a draft for each message, and the ids that are the caller's.

    A draft whose id is not the caller's is a message of these words, whichever entry has them.
    """

    drafts: list[EntryDraft]
    ids: list[str | None]

    def common(self, stored: Sequence[Entry]) -> int:
        """How many of its first messages are the first of those that are stored."""
        same = 0
        for draft, id, entry in zip(self.drafts, self.ids, stored, strict=False):
            if id not in (None, entry.id) or not _is_said_by(entry, draft):
                break
            same += 1
        return same

    def is_stored(self, stored: Sequence[Entry]) -> bool:
        """Whether these entries are the very ones that the caller means: a call that is retried."""
        return len(stored) == len(self.ids) == self.common(stored) and None not in self.ids


def _is_said_by(entry: Entry, draft: EntryDraft) -> bool:
    if entry.tombstone is None:
        return draft.data == entry.data and draft.format in (None, entry.format)
    # The caller may still have what was erased. That must not make it a message of its own again.
    return draft.data == entry.data or digest(draft.data) == entry.body_hash


def check_ids(ids: Any, count: int) -> list[str | None]:
    """The caller's ids, one for each message; None for a message that has none."""
    if ids is None:
        return [None] * count
    if isinstance(ids, str | bytes):
        raise InvalidInput("ids", f"must be a list of ids, not {ids!r}")
    given = [None if id is None else check_name(id, "ids") for id in ids]
    if len(given) != count:
        raise InvalidInput("ids", f"there are {len(given)} for {count} messages")
    named = [id for id in given if id is not None]
    if len(set(named)) < len(named):
        twice = next(id for id in named if named.count(id) > 1)
        raise InvalidInput("ids", f"{twice!r} is given to two messages")
    return given


def replacement(
    store: Store, thread: Thread, leaf: str | None, window: Window, given: Given
) -> tuple[list[Draft], str | None]:
    """What is to be written so that the given history is shown, and where the thread stands then.

    Only messages after the common beginning are written. `window` is that of the leaf.
    """
    there = shown(window)
    same = given.common(there)
    batch: list[Draft] = []
    if same < len(there):
        batch, leaf = _back(store, thread, leaf, window, same)
    on, entry = _known_branch(thread, given, same)
    if entry is not None:
        batch, leaf, same = [drafts.move(entry, store.clock())], entry, on
    for draft, id in zip(given.drafts[same:], given.ids[same:], strict=True):
        # An id of the caller's may be stored elsewhere in the thread. With its parent the draft
        # says where it belongs, so that this is a Conflict.
        batch.append(draft if id is None else replace(draft, parent=leaf))
        leaf = draft.id
    return batch, leaf


def _back(
    store: Store, thread: Thread, leaf: str | None, window: Window, same: int
) -> tuple[list[Draft], str | None]:
    """The way back to where only the first `same` messages of the window are shown."""
    now_us = store.clock()
    if not same:
        return [drafts.move(None, now_us)], None
    there = shown(window)
    kept, first_gone = there[:same], there[same]
    # To its parent, not to the last kept message: edits between the two stay in force.
    to = first_gone.parent
    batch: list[Draft] = [drafts.move(to, now_us)]
    ids = [entry.id for entry in window.entries]
    gone = window.entries[ids.index(first_gone.id) :] if first_gone.id in ids else window.entries
    behind = window.compaction is None or first_gone.id in {
        entry.id for entry in thread.path(leaf, after=window.compaction.entry.id)
    }
    if behind and not any(entry.kind == "context_edit" for entry in gone):
        return batch, to
    # Without the compaction, or without the edit that undid one, more or less would be shown.
    cut = drafts.draft("compaction", cut_body(window, kept, to, "set_history"), clock=store.clock)
    return [*batch, cut], cut.id


def _known_branch(thread: Thread, given: Given, same: int) -> tuple[int, str | None]:
    """Where the history goes on along a branch that is there already, by the caller's ids.

    How many of its messages that branch has, and the entry to stand on.
    """
    first = given.ids[same] if same < len(given.ids) else None
    # Every such branch has the first message that differs, so most calls look for one id only.
    if first is None or not _has(thread, first):
        return same, None
    for last in range(len(given.ids), same, -1):
        id = given.ids[last - 1]
        if id is not None and _has(thread, id):
            there = shown(read_window(thread, id))
            if len(there) == last == given.common(there):
                return last, id
    raise Conflict(
        f"id {first!r} is stored already, with other content or behind other messages; nothing was"
        " written. Look at what is stored, or give the message another id",
        field="id",
        expected=first,
        actual=thread.get(first),
    )


def _has(thread: Thread, id: str) -> bool:
    try:
        thread.get(id)
    except NotFound:
        return False
    return True


# --- fewer messages -------------------------------------------------------------------------


def truncate(thread: Thread, leaf: str | None, keep_last: int, exact: bool) -> None:
    """Hide all but the last messages. Conflict if the thread does not stand on the leaf."""
    window = read_window(thread, leaf)
    there = shown(window)
    start = len(there) - keep_last
    if start > 0 and keep_last and not exact:
        start = with_calls(there, start)
    if start > 0:
        # A message that was added meanwhile would lie behind the cut or before it by chance, so
        # the cut is made again from the new leaf.
        body = cut_body(window, there[start:], leaf, "truncate")
        thread.append("compaction", body, expect=leaf)


def cut_body(window: Window, kept: list[Entry], leaf: str | None, trigger: str) -> dict[str, Any]:
    """A compaction on a leaf that keeps these messages, and the summary before them, if any."""
    before = {entry.id for entry in window.kept}
    first = next((entry for entry in kept if entry.id not in before), None)
    previous = window.compaction
    summary = previous.summary if kept and previous is not None else ""
    return compaction_body(
        previous,
        first_kept=None if first is None else first.id,
        through=leaf if first is None else first.parent,
        kept_users=[entry.id for entry in kept if entry.id in before],
        summary=summary,
        trigger=trigger,
    )


def with_calls(entries: list[Entry], start: int) -> int:
    """`start`, moved back as far as a result after it needs its call. Looks at each entry once."""
    calls: set[str] = set()
    missing: set[str] = set()
    waiting: list[tuple[frozenset[str], frozenset[str]]] = []
    for index in range(len(entries) - 1, -1, -1):
        made, answered = tool_ids(formats.view(entries[index].format, entries[index].body))
        waiting.append((made, answered))
        if index > start or (index < start and not made & missing):
            continue
        # All from here on are kept. The message that makes a call may itself hold a result, whose
        # call lies further back.
        start = min(start, index)
        for made, _ in waiting:
            calls |= made
            missing -= made
        for _, answered in waiting:
            missing |= answered - calls
        waiting.clear()
        if not missing:
            break
    return start
