"""What the facets share: where their threads are, how messages go in and come out, pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

from clew import messages
from clew.context.window import MESSAGE_KINDS
from clew.core import drafts
from clew.core.codec import digest, encode, new_id
from clew.core.drafts import check_name
from clew.core.errors import AlreadyExists, ClewError, Conflict, InvalidInput, NotFound, TooLarge
from clew.core.model import (
    PAGE_MAX,
    Draft,
    Entry,
    EntryDraft,
    MoveDraft,
    Page,
    Record,
    ThreadInfo,
    ThreadQuery,
    decode_cursor,
    encode_cursor,
    to_time,
)
from clew.messages.neutral import calls_of, results_of
from clew.store import Store

T = TypeVar("T")

_TRIES = 100
_SCHEMA_VERSION = 1


# --- where a facet's thread is --------------------------------------------------------------


class Address(Struct, frozen=True):
    """A key of a facet, and the id of the thread that belongs to it and to no other key."""

    facet: str
    key: str
    thread: str


def address(facet: str, key: object, field: str) -> Address:
    """Where a key's thread is. Any non-empty string is a key; no two share a thread."""
    if not isinstance(key, str) or not key:
        raise InvalidInput(field, f"must be a non-empty string, not {key!r}")
    return Address(facet, key, _thread_id(facet, key))


def _thread_id(facet: str, key: str) -> str:
    id = f"{facet}:{key}"
    # Hashed ids begin with '#', so keys that begin with it are hashed too. U+10FFFF is where the
    # engines' lists by prefix end.
    if key[0] in "#\U0010ffff" or not _is_id(id):
        return f"{facet}:#{digest(key.encode('utf-8', 'surrogatepass'))}"
    return id


def _is_id(id: str) -> bool:
    try:
        return bool(check_name(id, "id"))
    except (InvalidInput, TooLarge):
        return False


def key_of(info: ThreadInfo) -> str:
    """The key that a facet's thread was made for."""
    value = info.facts["key"]
    if isinstance(value, dict):
        return bytes.fromhex(value["utf8"]).decode("utf-8", "surrogatepass")
    return str(value)


def _key_fact(key: str) -> str | dict[str, str]:
    """Two halves of a surrogate pair would come back from JSON as one character: not as text."""
    raw = key.encode("utf-8", "surrogatepass")
    return key if raw.decode("utf-8", "replace") == key else {"utf8": raw.hex()}


def ensure(
    store: Store,
    at: Address,
    facts: Mapping[str, Any] | None = None,
    *,
    time: datetime | None = None,
) -> None:
    """Make the thread, unless somebody has made it before."""
    given = {"facet": at.facet, "key": _key_fact(at.key), **(facts or {})}
    try:
        store.create(at.thread, facts=given, time=time)
    except AlreadyExists:
        pass


def find_info(store: Store, at: Address) -> ThreadInfo | None:
    """The thread as it is, also when it is deleted. AlreadyExists: it is not the facet's."""
    try:
        info = store.engine.thread(at.thread)
    except NotFound:
        return None
    if info.facts.get("facet") != at.facet:
        raise AlreadyExists("thread", at.thread, deleted_at=info.deleted_at)
    return info


# --- writing --------------------------------------------------------------------------------


def retried(attempt: Callable[[], T]) -> T:
    """Try again as long as somebody else is first; each of them has got something done."""
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()


def write(store: Store, at: Address, batch: Sequence[Draft]) -> list[Record]:
    """Append to a facet's thread, which is made on the first write.

    After a delete the thread begins anew: it is restored and stands before its root, in the same
    step. What it held stays reachable as a branch.
    """
    return retried(lambda: _write(store, at, batch))


def _write(store: Store, at: Address, batch: Sequence[Draft]) -> list[Record]:
    try:
        return store.engine.append(at.thread, batch)
    except NotFound as error:
        if error.deleted_at is None:
            ensure(store, at, time=to_time(batch[0].time_us))
            return store.engine.append(at.thread, batch)
    info = store.engine.thread(at.thread)
    if info.deleted_at is None:  # somebody else was first to write it again
        return store.engine.append(at.thread, batch)
    anew = revival(info, store.clock())
    return store.engine.append(at.thread, [*anew, *batch], expect=info.leaf)[len(anew) :]


def revival(info: ThreadInfo, now_us: int) -> list[Draft]:
    """What makes a deleted thread an empty one: no tombstone, no leaf, no facts of old."""
    kept = ("facet", "key", "deleted_us")
    old: dict[str, Any] = {key: None for key in info.facts if key not in kept}
    facts = drafts.facts({"deleted_us": None, **old}, now_us)
    return [*facts, drafts.move(None, now_us)]


def tombstone(store: Store, at: Address, *, fence: int | None = None) -> bool:
    """Delete a thread; False if there is none. LeaseHeld while somebody else is at work on it."""
    return retried(lambda: _tombstone(store, at, fence))


def _tombstone(store: Store, at: Address, fence: int | None) -> bool:
    info = find_info(store, at)
    if info is None or info.deleted_at is not None:
        return False
    try:
        store.engine.append(at.thread, burial(info, store.clock()), expect=info.leaf, fence=fence)
    except NotFound:
        return False
    return True


def burial(info: ThreadInfo, now_us: int) -> list[Draft]:
    """A tombstone, and a move to where the thread stands: moves, unlike facts, need the lease."""
    stay = drafts.move(info.leaf, info.updated_us)
    return [stay, *drafts.facts({"deleted_us": now_us}, now_us)]


def touch(leaf: str | None, now_us: int) -> MoveDraft:
    """A move to where the thread stands: changes `updated_at` only, and needs the lease."""
    return drafts.move(leaf, now_us)


def compaction_body(
    previous: Entry | None,
    *,
    first_kept: str | None,
    through: str | None,
    trigger: str,
    **more: Any,
) -> dict[str, Any]:
    """The body of a compaction that has no summary of its own."""
    before = previous.body if previous is not None and isinstance(previous.body, dict) else {}
    generation = before.get("generation")
    compaction_id = new_id()
    return {
        "compaction_id": compaction_id,
        "previous_compaction_id": before.get("compaction_id"),
        "generation": (generation if isinstance(generation, int) else int(bool(before))) + 1,
        "window_id": compaction_id,
        "first_kept_entry_id": first_kept,
        "compacted_through_entry_id": through,
        "kept_user_entry_ids": [],
        "summary": "",
        "summary_schema_version": _SCHEMA_VERSION,
        "trigger": trigger,
        "phase": "completed",
        **more,
    }


# --- messages -------------------------------------------------------------------------------


def as_list(given: object, field: str = "messages") -> list[Any]:
    if not isinstance(given, list | tuple):
        raise InvalidInput(field, f"must be a list of messages, not {type(given).__name__}")
    return list(given)


def as_bodies(given: object, field: str = "messages") -> list[Any]:
    """A list of messages as JSON values; objects of the SDKs become what they would send."""
    return [messages.as_body(message) for message in as_list(given, field)]


def message_draft(store: Store, message: object, format: str | None) -> EntryDraft:
    """A message as an entry to be appended, checked. InvalidInput names what is wrong.

    Objects of the SDKs are looked for only in what is not JSON as it is.
    """
    try:
        return _draft(store, message, format)
    except InvalidInput:
        body = messages.as_body(message)
        if body is message:
            raise
    return _draft(store, body, format)


def _draft(store: Store, body: object, format: str | None) -> EntryDraft:
    if not isinstance(body, dict):
        raise InvalidInput("message", f"must be an object with a role, not {body!r}")
    kind = _kind(body, format)
    if format is None:
        _check_content(body)
    else:
        messages.read(format, body)
    return drafts.draft(kind, body, format=format, clock=store.clock)


def message_drafts(
    store: Store, given: Iterable[object], format: str | None, *, start: int = 0
) -> list[EntryDraft]:
    """Several messages; what is wrong is named with its place, counted from `start`."""
    made: list[EntryDraft] = []
    for index, message in enumerate(given, start):
        try:
            made.append(message_draft(store, message, format))
        except InvalidInput as error:
            if error.field == "format":
                raise
            inner = "" if error.path is None else error.path.removeprefix("$")
            reason = error.fields["reason"]
            raise InvalidInput("messages", reason, path=f"$[{index}]{inner}") from None
    return made


def _kind(body: dict[str, Any], format: str | None) -> str:
    if "role" in body or (format or messages.detect(body)) == "plain":
        return drafts.kind_for(body)
    found = messages.view(
        format, body
    )  # an item or a response: what it is does not stand in a role
    if not found:
        raise InvalidInput("message", "has no role")
    if any(calls_of(message) for message in found):
        return "tool_call"
    if any(results_of(message) for message in found):
        return "tool_result"
    return drafts.kind_for({"role": found[0].role})


def _check_content(body: dict[str, Any]) -> None:
    content = body.get("content")
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        reason = f"must be text or a list of blocks, not {type(content).__name__}"
        raise InvalidInput("message", reason, path="$.content")
    for index, block in enumerate(content):
        if not isinstance(block, str | dict):
            reason = f"a block must be text or an object, not {type(block).__name__}"
            raise InvalidInput("message", reason, path=f"$.content[{index}]")


def tool_ids(entry: Entry) -> tuple[frozenset[str], frozenset[str]]:
    """The calls that a message makes, and those that it has results of."""
    found = messages.view(entry.format, entry.body)
    return (
        frozenset(call.id for message in found for call in calls_of(message)),
        frozenset(result.call for message in found for result in results_of(message)),
    )


def is_message(entry: Entry) -> bool:
    """Whether an entry is one of the messages: roles that nobody knows are of kind custom."""
    if entry.kind == "custom":
        return isinstance(entry.body, dict) and isinstance(entry.body.get("role"), str)
    return entry.kind in MESSAGE_KINDS


def shared(known: Sequence[Any], given: Sequence[Any]) -> int:
    """How many messages both lists begin with."""
    length = len(known)
    if length <= len(given) and known == given[:length]:  # the common case, at C's speed
        return length
    length = min(length, len(given))
    for index in range(length):
        ours, theirs = known[index], given[index]
        if ours != theirs and not _same_json(ours, theirs):
            return index
    return length


def copied(value: Any) -> Any:
    """A JSON value of one's own. It shares the texts, so that comparing the two is fast."""
    if isinstance(value, dict):
        return {key: copied(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [copied(child) for child in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return messages.as_body(value)


def _same_json(ours: Any, theirs: Any) -> bool:
    """Tuples are stored as lists, and the objects of SDKs as what they would send."""
    try:
        return encode(ours) == encode(messages.as_body(theirs))
    except ClewError:
        return False


# --- pages ----------------------------------------------------------------------------------


def infos(
    store: Store, facet: str, *, cursor: str | None, limit: int, **filters: Any
) -> Iterator[ThreadInfo]:
    """A facet's threads, newest update first, from an index: other threads are not looked at."""
    after = None if cursor is None else decode_cursor(cursor)
    while True:
        query = ThreadQuery(
            prefix=f"{facet}:", order="updated", limit=limit, cursor=after, **filters
        )
        page = store.engine.threads(query)
        yield from (info for info in page.items if info.facts.get("facet") == facet)
        if page.cursor is None:
            return
        after = decode_cursor(page.cursor)


def page_of(found: Iterator[ThreadInfo], limit: int, make: Callable[[ThreadInfo], T]) -> Page[T]:
    """The next items as a page, with the cursor that goes on after them."""
    ahead = list(islice(found, limit + 1))
    items = [make(info) for info in ahead[:limit]]
    if len(ahead) <= limit:
        return Page(items)
    last = ahead[limit - 1]
    return Page(items, encode_cursor(last.updated_us, last.id))


def check_limit(limit: int) -> int:
    if type(limit) is not int or not 1 <= limit <= PAGE_MAX:
        raise InvalidInput("limit", f"must be 1 to {PAGE_MAX}, not {limit!r}")
    return limit


def check_count(value: object, field: str) -> int:
    """A whole number, not negative."""
    if type(value) is not int or value < 0:
        raise InvalidInput(field, f"must be a whole number of at least 0, not {value!r}")
    return value
