"""Items of the Agents SDK as entries of a thread: written one by one, read back as they were.

An item is an item of the Responses API and becomes a message entry of that format. What is none
(the envelope of an encrypted item, something of the caller's own) becomes a `custom` entry of the
same format and comes back as it was. Messages that another program wrote in another format are
read as what a request to the Responses API would hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from clew import messages
from clew.context.window import MESSAGE_KINDS
from clew.core import drafts
from clew.core.errors import Conflict, InvalidInput
from clew.core.model import Draft, Entry, EntryDraft
from clew.messages.incoming import message_draft, message_list
from clew.messages.sdk_objects import as_body
from clew.thread import Thread

FORMAT = "openai-responses"

# Entries that change what the messages before them say, which only a projection can tell.
_REVISIONS = frozenset({"compaction", "branch_summary", "context_edit"})


class Tail(Struct, frozen=True):
    """The newest items of a thread, oldest first, each with its entry; and where it stood."""

    items: list[tuple[Entry, Any]]
    leaf: str | None


def item_draft(item: Any, clock: Callable[[], int]) -> EntryDraft:
    """An item as an entry to be appended. InvalidInput if it is no JSON."""
    body = item if isinstance(item, dict) else as_body(item)
    # A whole response can be read as a message, too, but no request may hold it as an item.
    if isinstance(body, dict) and not is_response(body):
        try:
            return message_draft(body, FORMAT, clock=clock, once=True)
        except InvalidInput:
            pass
    return drafts.draft("custom", as_body(body), format=FORMAT, clock=clock, once=True)


def is_response(body: dict[str, Any]) -> bool:
    """Whether a body is what a response as a whole looks like."""
    return "output" in body and "type" not in body


def is_item(entry: Entry) -> bool:
    """Whether an entry stands for items: every message does, and what was stored in their place."""
    return entry.kind in MESSAGE_KINDS or (entry.kind == "custom" and entry.format == FORMAT)


def own_items(entry: Entry) -> list[Any] | None:
    """The items of an entry as they were given; None if it was written in another format."""
    if entry.format != FORMAT:
        return None
    body = entry.body
    if entry.kind == "custom":
        return [body]
    if isinstance(body, list):  # what one response gave
        return body
    return None if is_response(body) else [body]


def items_of(entry: Entry) -> list[Any]:
    """The items of an entry; of one in another format, those that say the same."""
    found = own_items(entry)
    if found is not None:
        return found
    return messages.write(FORMAT, messages.view(entry.format, entry.body)).messages


def read_tail(thread: Thread, count: int | None) -> Tail | None:
    """The newest items, no more than `count`, and no more read than they need.

    None if what would have to be read is not all in the format of items, or is revised by an
    entry such as a compaction: then only the projection can tell the items.
    """
    size = count
    while True:
        path = thread.path(limit=size)
        found: list[tuple[Entry, Any]] = []  # newest first
        for entry in reversed(path):
            if count is not None and len(found) >= count:
                break
            if entry.kind in _REVISIONS:
                return None
            if is_item(entry):
                given = own_items(entry)
                if given is None:
                    return None
                found += [(entry, item) for item in reversed(given)]
        if size is None or count is None or len(found) >= count or _begins(path):
            return Tail(found[:count][::-1], path[-1].id if path else None)
        size *= 4  # entries about usage, turns or files lie between the items


def _begins(path: list[Entry]) -> bool:
    """Whether nothing lies before these entries."""
    return not path or path[0].parent is None


def read_items(thread: Thread, limit: int | None) -> list[Any]:
    """The items of a thread, or the newest `limit` of them."""
    if limit == 0:
        return []
    tail = read_tail(thread, limit)
    if tail is not None:
        return [item for _, item in tail.items]
    found = thread.context(FORMAT).messages
    return found if limit is None else found[-limit:]


def append_items(thread: Thread, items: Iterable[Any], fence: int | None) -> None:
    """Append items as one step."""
    thread.append(item_drafts(thread, items), fence=fence)


def item_drafts(thread: Thread, items: Iterable[Any]) -> list[EntryDraft]:
    """Items as entries to be appended as one step."""
    return [item_draft(item, thread.store.clock) for item in message_list(items, "items")]


def pop_item(thread: Thread, fence: int | None) -> Any:
    """Step back behind the newest item, and give it; None if there is none.

    The item stays in the journal, on a branch that the thread has left.
    """
    limit = 8
    while True:
        path = thread.path(limit=limit)
        newest = [(e, items) for e in reversed(path) if is_item(e) and (items := items_of(e))][:1]
        if not newest:
            if _begins(path):
                return None
            limit *= 8
            continue
        ((entry, items),) = newest
        # An entry may hold several items: those that stay are written anew.
        batch = _replacement(thread, entry.parent, items[:-1])
        try:
            thread.write(batch, expect=path[-1].id, fence=fence)
        except Conflict:
            continue  # another one popped or added meanwhile
        return items[-1]


def replace_all(thread: Thread, items: Iterable[Any], fence: int | None) -> None:
    """Let the thread begin anew with these items, as one step. What was there stays behind."""
    thread.write(_replacement(thread, None, items), fence=fence)


def replace_tail(
    thread: Thread, given: list[tuple[Entry, Any]], items: Iterable[Any], fence: int | None
) -> bool:
    """Put items in the place of the newest ones, as one step; False if those have changed."""
    if not given:
        return False
    first, expected = given[0][0], [entry.id for entry, _ in given]
    while True:
        tail = read_tail(thread, len(given))
        if tail is None or [entry.id for entry, _ in tail.items] != expected:
            return False
        # The suffix may begin inside of an entry that holds several items.
        before = (own_items(first) or [])[: -expected.count(first.id)]
        try:
            thread.write(
                _replacement(thread, first.parent, [*before, *items]), expect=tail.leaf, fence=fence
            )
        except Conflict:
            continue  # something was written meanwhile, perhaps no item
        return True


def _replacement(thread: Thread, parent: str | None, items: Iterable[Any]) -> list[Draft]:
    clock = thread.store.clock
    return [drafts.move(parent, clock()), *[item_draft(item, clock) for item in items]]
