"""What the facets share: a key's thread, how it begins, ends and begins anew, and pages of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar, Unpack

from msgspec import Meta, Struct, ValidationError, convert

from clew import messages
from clew.context.window import MESSAGE_KINDS
from clew.core import drafts
from clew.core.codec import digest, encode
from clew.core.errors import (
    AlreadyExists,
    ClewError,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    TooLarge,
)
from clew.core.facts import TIME_US_MAX, TIME_US_MIN
from clew.core.model import (
    PAGE_MAX,
    Draft,
    Entry,
    Order,
    Page,
    Record,
    ThreadInfo,
    ThreadQuery,
    decode_cursor,
    encode_cursor,
    to_time,
    to_us,
)
from clew.core.names import check_name, is_name
from clew.store import Store
from clew.thread import Thread
from clew.tree import FORK_ID_FACT

if TYPE_CHECKING:
    from clew.core.options import ForkOptions

T = TypeVar("T")

# A fact: the thread is deleted only as long as what it needs is copied; see `Conversations`.
COMPACTING = "compacting"
TimeUs = Annotated[int, Meta(ge=TIME_US_MIN, le=TIME_US_MAX)]  # a time in a stored shape

_TRIES = 100


# --- where a facet's thread is --------------------------------------------------------------


class FacetKey(Struct, frozen=True):
    """A key of a facet, and the id of the thread that belongs to it and to no other key.

    `adopted`: the thread is no key's, and was there before. It is neither made nor begun anew.
    """

    facet: str
    key: str
    thread: str
    adopted: bool = False


def facet_key(facet: str, key: object, field: str) -> FacetKey:
    """A caller's key, checked. Any non-empty string is a key; no two share a thread."""
    if not isinstance(key, str) or not key:
        raise InvalidInput(field, f"must be a non-empty string, not {key!r}")
    try:
        thread = check_name(f"{facet}:{key}", "id")
    except (InvalidInput, TooLarge):  # a key may be what no id is: long, or half a character
        thread = ""
    # Hashed ids begin with '#', so keys that begin with it are hashed too. U+10FFFF is where the
    # engines' lists by prefix end.
    if not thread or key[0] in "#\U0010ffff":
        thread = f"{facet}:#{digest(key.encode('utf-8', 'surrogatepass'))}"
    return FacetKey(facet, key, thread)


def key_of(info: ThreadInfo) -> str:
    """The key that leads to a facet's thread: the one that it was made for, or else its id.

    A fork has the key of its origin, which does not lead to it. And a key may be damaged.
    """
    facet = info.facts.get("facet") or info.id.partition(":")[0]
    stored = info.facts.get("key")
    if isinstance(stored, dict):
        with suppress(KeyError, TypeError, ValueError):
            stored = bytes.fromhex(stored["utf8"]).decode("utf-8", "surrogatepass")
    for key in (stored, info.id.removeprefix(f"{facet}:")):
        if isinstance(key, str) and key and facet_key(facet, key, "key").thread == info.id:
            return key
    return info.id


def ensure(store: Store, at: FacetKey, *, time: datetime | None = None) -> None:
    """Make the thread, unless another writer has made it before."""
    with suppress(AlreadyExists):
        store.create(at.thread, facts=key_facts(at), time=time)


def key_facts(at: FacetKey) -> dict[str, Any]:
    """What a thread that is made for a key says about itself."""
    return {"facet": at.facet, "key": stored_key(at.key)}


def stored_key(key: str) -> str | dict[str, str]:
    """A key as the fact that `key_of` reads."""
    raw = key.encode("utf-8", "surrogatepass")
    # Two halves of a surrogate pair would come back from JSON as one character: not as text.
    return key if raw.decode("utf-8", "replace") == key else {"utf8": raw.hex()}


def is_of(info: ThreadInfo, facet: str) -> bool:
    """Whether a thread is the facet's. If that fact is what is damaged, its id tells."""
    lost = info.unreadable is not None or not info.damaged_facts.keys().isdisjoint(("facet", ""))
    if "facet" not in info.facts and (lost or facet in _BY_HAND):
        return info.id.startswith(f"{facet}:")
    return bool(info.facts.get("facet") == facet)


# A conversation is nothing but messages, so a thread that was made by hand under its id is one.
_BY_HAND = frozenset({"conversation"})


def find(store: Store, at: FacetKey) -> ThreadInfo | None:
    """The facet's thread that a key leads to, also when it is deleted; None if there is none.

    A key leads to the thread that is made for it. Where there is none, it may be the id of a
    thread that is the facet's: a fork has an id of any kind.
    """
    return next((info for info in _led_to(store, at) if is_of(info, at.facet)), None)


def claim(store: Store, at: FacetKey) -> tuple[FacetKey, ThreadInfo | None]:
    """The same for writers: where to write. AlreadyExists if another thread is in the way."""
    in_the_way = None
    for info in _led_to(store, at):
        if is_of(info, at.facet):
            return FacetKey(at.facet, key_of(info), info.id), info
        if info.id == at.thread:
            in_the_way = info
    if in_the_way is not None:
        raise AlreadyExists("thread", at.thread, deleted_at=in_the_way.deleted_at)
    return at, None


def _led_to(store: Store, at: FacetKey) -> Iterator[ThreadInfo]:
    """The threads that a key may mean, the one that is made for it first."""
    for id in (at.thread, at.key):
        if is_name(id):
            with suppress(NotFound):
                yield Thread(store, id).info


def find_info(store: Store, at: FacetKey) -> ThreadInfo | None:
    """The thread as it is, also when it is deleted.

    A thread that was made under that id in another way, such as a fork, is the key's as well.
    AlreadyExists: it is another facet's.
    """
    try:
        info = Thread(store, at.thread).info
    except NotFound:
        return None
    if not at.adopted and not is_of(info, at.facet):
        raise AlreadyExists("thread", at.thread, deleted_at=info.deleted_at)
    return info


# --- writing --------------------------------------------------------------------------------


def is_gone(info: ThreadInfo) -> bool:
    """Whether a thread is deleted, as its user sees it."""
    return info.deleted_at is not None and COMPACTING not in info.facts


def retried(attempt: Callable[[], T]) -> T:
    """Try again while other writers come first.

    A Conflict about the leaf means that one of them has got something done, so the writers as a
    whole advance. Any other one would be the same again.
    """
    for _ in range(_TRIES - 1):
        try:
            return attempt()
        except Conflict as error:
            if error.field != "leaf":
                raise
    return attempt()


def write(
    store: Store,
    at: FacetKey,
    batch: Sequence[Draft],
    *,
    restored: Callable[[], bool] = lambda: False,
) -> list[Record]:
    """Append to a facet's thread, which is made on the first write, unless it could be `restored`.

    After a delete the thread begins anew: it is restored and stands before its root, in the same
    step. What it held stays reachable as a branch.
    """
    thread = Thread(store, at.thread)

    def attempt() -> list[Record]:
        # Most writes go to a thread that is there, so it is written first and looked at later.
        try:
            return thread.write(batch)
        except NotFound as error:
            if at.adopted:
                raise
            if error.deleted_at is None:
                if not restored():
                    ensure(store, at, time=to_time(batch[0].time_us))
                return thread.write(batch)
        info = thread.info
        if info.deleted_at is None:  # another writer has revived it
            return thread.write(batch)
        anew = revival(info, store.clock())
        return thread.write([*anew, *batch], expect=info.leaf)[len(anew) :]

    return retried(attempt)


def begin(store: Store, at: FacetKey) -> None:
    """Make the thread, or begin it anew if it is deleted; of several callers all succeed."""

    def attempt() -> None:
        info = find_info(store, at)
        if info is None:
            ensure(store, at)
        elif info.deleted_at is not None:
            Thread(store, at.thread).write(revival(info, store.clock()), expect=info.leaf)

    retried(attempt)


def revival(info: ThreadInfo, now_us: int) -> list[Draft]:
    """What makes a deleted thread an empty one: no tombstone, no leaf, no facts of old.

    One whose storage was being compacted when the process died was never deleted by its user, and
    comes back as it was. The move is refused while that process is still at it.
    """
    if COMPACTING in info.facts:
        back = drafts.facts({"deleted_us": None, COMPACTING: None}, now_us)
        return [*back, drafts.move(info.leaf, info.updated_us)]
    kept = ("facet", "key", "deleted_us", FORK_ID_FACT)
    old: dict[str, Any] = {key: None for key in info.facts if key not in kept}
    facts = drafts.facts({"deleted_us": None, **old}, now_us)
    return [*facts, drafts.move(None, now_us)]


def tombstone(store: Store, at: FacetKey, *, fence: int | None = None) -> bool:
    """Delete a thread; False if there is none. LeaseHeld while another owner is at work on it."""

    def attempt() -> bool:
        info = find_info(store, at)
        if info is None or info.deleted_at is not None:
            return False
        try:
            bury(store, info, fence=fence)
        except NotFound:
            return False
        return True

    return retried(attempt)


def bury(store: Store, info: ThreadInfo, *, fence: int | None = None) -> None:
    """Put a tombstone on a thread that stands as it was seen; Conflict if it was written to."""
    now_us = store.clock()
    # A move to where the thread stands: moves, unlike facts, are refused without the lease. It
    # has the time of the last update, so that the thread does not look as if it had been used.
    stay = drafts.move(info.leaf, info.updated_us)
    batch: list[Draft] = [stay, *drafts.facts({"deleted_us": now_us}, now_us)]
    Thread(store, info.id).write(batch, expect=info.leaf, fence=fence)


def fork(
    store: Store, facet: str, info: ThreadInfo, key: str | None, **options: Unpack[ForkOptions]
) -> Thread:
    """A fork of a facet's thread, for a key, or for the origin's with a number behind it."""
    if key is None:
        options["id"] = store.fork_id(info.id)
    else:
        options["id"] = facet_key(facet, key, "id").thread
        options["facts"] = {"key": stored_key(key)}
    return store.fork(info.id, **options)


# --- facts that are stored ------------------------------------------------------------------


def read_facts(
    info: ThreadInfo, shapes: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The facts of a facet, each as what it must be; and those that are damaged, and why."""
    values: dict[str, Any] = {}
    damaged = {key: info.damaged_facts[key] for key in shapes if key in info.damaged_facts}
    for key, shape in shapes.items():
        if key in info.facts:
            try:
                values[key] = convert(info.facts[key], shape)
            except ValidationError as error:
                damaged[key] = str(error)
    return values, damaged


def damage_of(info: ThreadInfo, damaged: Mapping[str, str]) -> str | None:
    """All that is wrong with a facet's thread, for a list to tell; None: nothing."""
    more = [key for key in damaged if key not in info.damaged_facts]
    told = [f"fact {key!r}: {damaged[key]}" for key in more]
    return "; ".join([*([] if info.damaged is None else [info.damaged]), *told]) or None


def check_whole(what: str, damaged: Mapping[str, str], hint: str) -> None:
    """Corrupt if a fact is damaged that the caller needs; the hint says what to do."""
    if damaged:
        told = "; ".join(f"fact {key!r}: {reason}" for key, reason in damaged.items())
        raise Corrupt(what, f"{told}. Nothing was changed. {hint}")


# --- messages that are stored ---------------------------------------------------------------


def is_message(entry: Entry) -> bool:
    """Whether an entry is one of the messages: those with unknown roles are of kind custom."""
    if entry.kind == "custom":
        return isinstance(entry.body, dict) and isinstance(entry.body.get("role"), str)
    return entry.kind in MESSAGE_KINDS


def shared(
    known: Sequence[Any], given: Sequence[Any], erased: Mapping[int, str] | None = None
) -> int:
    """How many messages both lists begin with.

    `erased` are the places of those that were erased, with the hashes that they had: a caller may
    still have such a message, and it must not be stored anew for that.
    """
    length = len(known)
    if length <= len(given) and known == given[:length]:  # the common case, at C's speed
        return length
    for index, (ours, theirs) in enumerate(zip(known, given, strict=False)):
        if ours == theirs:
            continue
        # Tuples are stored as lists, and the objects of SDKs as what they would send.
        try:
            data = encode(messages.as_body(theirs))
            if encode(ours) != data and digest(data) != (erased or {}).get(index):
                return index
        except ClewError:
            return index
    return min(length, len(given))


def copied(value: Any) -> Any:
    """A copy of a JSON value. It shares the texts, so that comparing the two is fast."""
    if isinstance(value, dict):
        return {key: copied(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [copied(child) for child in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return messages.as_body(value)


# --- pages ----------------------------------------------------------------------------------


def infos(
    store: Store,
    facet: str,
    *,
    cursor: str | None,
    limit: int,
    order: Order = "updated",
    **filters: Any,
) -> Iterator[ThreadInfo]:
    """A facet's threads, newest first, from an index: other threads are not looked at.

    To go through all of them, take them in the order in which they were made: one that is written
    to meanwhile is neither missed then nor seen twice.
    """
    after = None if cursor is None else decode_cursor(cursor)
    while True:
        query = ThreadQuery(prefix=f"{facet}:", order=order, limit=limit, cursor=after, **filters)
        page = store.engine.threads(query)
        yield from (info for info in page.items if is_of(info, facet))
        if page.cursor is None:
            return
        after = decode_cursor(page.cursor)


def every(store: Store, facet: str) -> Iterator[ThreadInfo]:
    """All of a facet's threads, the last made first: in that order, unlike in the order of updates,
    one that is written to meanwhile is neither missed nor seen twice."""
    return infos(store, facet, cursor=None, limit=PAGE_MAX, order="created", archived=None)


def page_of(found: Iterator[ThreadInfo], limit: int, make: Callable[[ThreadInfo], T]) -> Page[T]:
    """The next items as a page, with the cursor that goes on after them."""
    ahead = list(islice(found, limit + 1))
    items = [make(info) for info in ahead[:limit]]
    if len(ahead) <= limit:
        return Page(items)
    last = ahead[limit - 1]
    return Page(items, encode_cursor(last.updated_us, last.id))


class Dated(Protocol):
    """What a facet's list gives, as far as its place in the list depends on it."""

    @property
    def thread(self) -> str: ...
    @property
    def created_at(self) -> datetime | None: ...


D = TypeVar("D", bound=Dated)


def sorted_page(items: Iterable[D], cursor: str | None, limit: int) -> Page[D]:
    """A page by a time that no index has: newest `created_at` first, then by thread."""

    def place(item: D) -> tuple[int, str]:
        assert item.created_at is not None
        return -to_us(item.created_at), item.thread

    if cursor is not None:
        time_us, id = decode_cursor(cursor)
        items = (item for item in items if place(item) > (-time_us, id))
    ahead = nsmallest(limit + 1, items, key=place)
    if len(ahead) <= limit:
        return Page(ahead)
    time_us, id = place(ahead[limit - 1])
    return Page(ahead[:limit], encode_cursor(-time_us, id))


def check_order(order: object) -> None:
    if order not in ("created", "updated"):
        raise InvalidInput("order", f"must be 'created' or 'updated', not {order!r}")


def check_limit(limit: int) -> int:
    if type(limit) is not int or not 1 <= limit <= PAGE_MAX:
        raise InvalidInput("limit", f"must be 1 to {PAGE_MAX}, not {limit!r}")
    return limit


def check_count(value: object, field: str) -> int:
    """A whole number, not negative."""
    if type(value) is not int or value < 0:
        raise InvalidInput(field, f"must be a whole number of at least 0, not {value!r}")
    return value
