"""The nouns: frozen data that goes into the waist (drafts) and comes out of it (records).

Supplied and assigned fields are split: a draft holds what the caller says, a record adds what
the engine decided (thread, seq, parent, hash). Bodies are carried as canonical JSON bytes and
decoded when they are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType, ValidationError, convert
from msgspec.structs import astuple, force_setattr

from clew.core.codec import decode, digest, to_bytes, to_hash
from clew.core.errors import Corrupt, InvalidInput, shortened
from clew.core.facts import TIME_US_MAX, TIME_US_MIN, read_fact
from clew.core.removal import Tombstone

# --- a property that is computed when it is first looked at ---

T = TypeVar("T")


class cached(Generic[T]):  # used like property
    """A property that is computed once and kept. Unlike functools' it takes no lock in 3.11."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        if owner is None:  # no test: asked of the class, by what documents it
            return self  # type: ignore[return-value]
        value = owner.__dict__[self._name] = self._compute(owner)
        return value


PAGE_MAX = 1000
DEFAULT_NAMESPACE = "default"
KINDS = frozenset(
    "thread_info turn_marker user_message assistant_message tool_call tool_result system_message "
    "model_change active_tools_change compaction branch_summary context_edit run_failure usage "
    "label event snapshot custom".split()
)
TURN_STATUSES = ("started", "save_point", "completed", "waiting", "failed", "aborted")

Order = Literal["created", "updated"]
Durability = Literal["full", "relaxed", "none"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_time(time_us: int) -> datetime:
    """Microseconds since the epoch as an aware UTC datetime, exactly."""
    return _EPOCH + timedelta(microseconds=time_us)


def rfc3339(time: datetime) -> str:
    """A time as every output for programs spells it: UTC, to the microsecond, with Z.

    Always of the same length, so that texts sort as the times do.
    """
    return time.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def to_us(time: datetime, field: str = "time") -> int:
    """An aware datetime as microseconds since the epoch; naive ones are refused.

    So is what has another year in UTC than a datetime can have: it could not be shown again.
    """
    if not isinstance(time, datetime):
        raise InvalidInput(field, f"must be a datetime with a time zone, not {time!r}")
    if time.utcoffset() is None:
        raise InvalidInput(field, "datetime has no time zone; use datetime.now(UTC)")
    time_us = (time - _EPOCH) // timedelta(microseconds=1)
    if not TIME_US_MIN <= time_us <= TIME_US_MAX:
        raise InvalidInput(field, f"must lie in the years 1 to 9999 in UTC, not at {time}")
    return time_us


# --- records: what comes out ----------------------------------------------------------------


class Record(Struct, frozen=True, gc=False):
    """Anything with a `seq` in a thread's log. `thread` is the one it was written in.

    `digest` are the bytes of its hash: half as long as the text, and read for every record.
    """

    thread: str
    seq: int
    id: str
    time_us: int
    digest: bytes

    @property
    def hash(self) -> str:
        """The hash as text, with its algorithm in front."""
        return to_hash(self.digest)

    @property
    def time(self) -> datetime:
        return to_time(self.time_us)


class Entry(Record, frozen=True, gc=False):
    """An immutable record in the tree. `hash` covers its content and its parent's hash.

    The body is covered by `body_hash`; `noted_digest` are its bytes, None if the body gives them.
    Where it was erased, `tombstone` says so: `body` is then a short text that stands in for it,
    and there is no `meta` and no `format`.
    """

    parent: str | None
    kind: str
    data: bytes
    noted_digest: bytes | None
    turn: str | None = None
    format: str | None = None
    meta_data: bytes | None = None
    blobs: tuple[str, ...] = ()
    tombstone: Tombstone | None = None

    @property
    def body_digest(self) -> bytes:
        """The bytes of `body_hash`."""
        return self.noted_digest or to_bytes(digest(self.data))

    @property
    def body_hash(self) -> str:
        """The hash of the body alone, also when that was erased."""
        return digest(self.data) if self.noted_digest is None else to_hash(self.noted_digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self.digest)

    def _content(self) -> tuple[Any, ...]:
        return (*astuple(self)[:8], self.body_digest, *astuple(self)[9:])

    @property
    def erased_at(self) -> datetime | None:
        """When its body and meta were erased; None: they were not."""
        return None if self.tombstone is None else to_time(self.tombstone.time_us)

    @property
    def body(self) -> Any:
        """The body as a JSON value: decoded at each look, so what you get is yours to change.

        Keep it if you look often. `data` has the bytes.
        """
        return decode(self.data)

    @property
    def meta(self) -> dict[str, Any]:
        """What stands beside the body: provider, model, metadata of yours."""
        return {} if self.meta_data is None else decode(self.meta_data)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """What the entry refers to: those under `artifacts` of its meta that are artifacts."""
        if self.meta_data is None or b'"artifacts"' not in self.meta_data:
            return ()
        given = self.meta.get("artifacts")
        found = [_artifact(one) for one in given] if isinstance(given, list) else []
        return tuple([one for one in found if one is not None])


class Artifact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that lies elsewhere and belongs to an entry: a log, a picture, a report.

    Goes into an entry's meta: `meta={"artifacts": [clew.Artifact(label="log", url=…)]}`. `hash` is
    of its content, by an algorithm that it names; if it is a blob of this store, name that in
    `blobs` too, so that it is kept.
    """

    label: str
    url: str | None = None
    kind: str | None = None
    mime: str | None = None
    size: int | None = None
    hash: str | None = None


def _artifact(value: Any) -> Artifact | None:
    try:
        return convert(value, Artifact)
    except ValidationError:
        return None


class Move(Record, frozen=True, gc=False):
    """The leaf was moved to `leaf`; None stands for before the root."""

    leaf: str | None


class Fact(Record, frozen=True, gc=False):
    """A piece of the thread's metadata was set; the latest of a key wins, null removes it."""

    key: str
    data: bytes

    @property
    def value(self) -> Any:
        return decode(self.data)


# --- drafts: what goes in -------------------------------------------------------------------


class EntryDraft(Struct, frozen=True, kw_only=True):
    """An entry to append. Without `parent` it becomes a child of the leaf.

    A retry is compared by what its draft says, and a field that is left out says nothing.
    `implied_turn`: the turn is not said either; the draft only happens to be written in it.
    `whole`: the draft was made of a stored record, so that what it lacks counts as well. `fresh`:
    the id was minted for this one call, so that an engine need not look whether it is stored
    already. These three are not stored.
    `tombstone` and `known_hash` are of an entry whose body was erased before it is copied.
    """

    id: str
    kind: str
    data: bytes
    time_us: int
    parent: str | UnsetType | None = UNSET
    turn: str | None = None
    format: str | None = None
    meta_data: bytes | None = None
    blobs: tuple[str, ...] = ()
    implied_turn: bool = False
    whole: bool = False
    fresh: bool = False
    tombstone: Tombstone | None = None
    known_hash: str | None = None

    @property
    def content_hash(self) -> str:
        """The hash of the body: what `body_hash` of the entry will be."""
        return self.known_hash or digest(self.data)


class MoveDraft(Struct, frozen=True, kw_only=True):
    id: str
    leaf: str | None
    time_us: int


class FactDraft(Struct, frozen=True, kw_only=True):
    id: str
    key: str
    data: bytes
    time_us: int


Draft = EntryDraft | MoveDraft | FactDraft


class Origin(Struct, frozen=True):
    """Where a fork began. `entry` and `hash` are None for a fork from before the root."""

    thread: str
    entry: str | None
    hash: str | None


class ThreadDraft(Struct, frozen=True, kw_only=True):
    """A thread to create; with `origin` it shares the path to that entry by reference."""

    id: str
    created_us: int
    parent: str | None = None
    origin: Origin | None = None
    facts: tuple[FactDraft, ...] = ()


# --- threads --------------------------------------------------------------------------------


class Title(Struct, frozen=True):
    """A title and how it came about; `status` pending and failed have no usable text yet."""

    text: str
    status: str = "ready"
    source: str = "host"
    error: str | None = None
    time: datetime | None = None


class ThreadInfo(Struct, frozen=True, dict=True):
    """What a store knows about a thread without reading its entries.

    One that is damaged is told like any other, as far as it can be read, and `damaged` says what
    is wrong. `lost_facts` are those that the engine could not read, and why; `unreadable` says why
    its log cannot be read to the end.
    """

    id: str
    created_us: int
    updated_us: int
    seq: int
    leaf: str | None
    parent: str | None
    origin: Origin | None
    fact_data: Mapping[str, bytes]
    lost_facts: Mapping[str, str] = {}
    unreadable: str | None = None

    @property
    def created_at(self) -> datetime:
        return to_time(self.created_us)

    @property
    def updated_at(self) -> datetime:
        """When the last entry or leaf move was written. Facts do not touch it."""
        return to_time(self.updated_us)

    @property
    def facts(self) -> dict[str, Any]:
        """The latest value of every fact, without those that are damaged."""
        return self._read_facts[0]

    @property
    def damaged_facts(self) -> dict[str, str]:
        """The facts whose values are lost, are no JSON or have a wrong shape, and why."""
        return self._read_facts[1]

    @property
    def damaged(self) -> str | None:
        """What is wrong with the thread, as far as a list can tell; None: nothing."""
        wrong = [] if self.unreadable is None else [self.unreadable]
        wrong += [f"fact {key!r}: {reason}" for key, reason in self.damaged_facts.items()]
        return "; ".join(wrong) or None

    @cached
    def _read_facts(self) -> tuple[dict[str, Any], dict[str, str]]:
        facts: dict[str, Any] = {}
        damaged = dict(self.lost_facts)
        for key, data in self.fact_data.items():
            try:
                facts[key] = read_fact(key, data)
            except Corrupt as error:
                damaged[key] = error.fields["reason"]
        return facts, damaged

    @property
    def title(self) -> Title | None:
        value = self.facts.get("title")
        if value is None:
            return None
        time_us = value.get("time_us")
        return Title(
            value["text"],
            value.get("status", "ready"),
            value.get("source", "host"),
            value.get("error"),
            None if time_us is None else to_time(time_us),
        )

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.facts.get("tags", ()))

    @property
    def status(self) -> str | None:
        return self.facts.get("status")

    @property
    def workspace(self) -> str | None:
        return self.facts.get("workspace")

    @property
    def agent(self) -> str | None:
        """Whose work the thread is: the fact `agent`, or else the adapter that wrote it."""
        found = self.facts.get("agent") or self.facts.get("adapter")
        return found if isinstance(found, str) else None

    @property
    def archived(self) -> bool:
        return bool(self.facts.get("archived", False))

    @property
    def last_viewed_at(self) -> datetime | None:
        return self._time("last_viewed_us")

    @property
    def deleted_at(self) -> datetime | None:
        return self._time("deleted_us")

    @property
    def labels(self) -> dict[str, str]:
        """Names that were given to entries: entry id → name."""
        return {
            key.removeprefix("label."): value
            for key, value in self.facts.items()
            if key.startswith("label.") and isinstance(value, str)
        }

    def _time(self, key: str) -> datetime | None:
        time_us = self.facts.get(key)
        return None if time_us is None else to_time(time_us)


def fact_keys(info: ThreadInfo, prefix: str) -> list[str]:
    """The keys that begin so. Corrupt if a fact is lost that could have been one of them.

    For those who would do harm if they took what is lost for what was never set.
    """
    lost = [key for key in info.lost_facts if not key or key.startswith(prefix)]
    if lost or info.unreadable is not None:
        raise Corrupt(f"thread {info.id!r}", str(info.damaged))
    return [key for key in info.fact_data if key.startswith(prefix)]


class ThreadQuery(Struct, frozen=True, kw_only=True):
    """Which threads, in which order. Newest first; `cursor` continues a page.

    `roots`: only those that neither work for another thread nor were forked from one.
    """

    order: Order = "created"
    archived: bool | None = False
    deleted: bool = False
    tag: str | None = None
    workspace: str | None = None
    status: str | None = None
    parent: str | None = None
    origin: str | None = None
    roots: bool = False
    prefix: str | None = None
    after_us: int | None = None
    before_us: int | None = None
    limit: int = 50
    cursor: tuple[int, str] | None = None


class Page(Struct, Generic[T], frozen=True):
    """Some items and, where there are more, the cursor for the next call."""

    items: list[T]
    cursor: str | None = None


def encode_cursor(time_us: int, id: str) -> str:
    return f"{time_us}.{id}"


def decode_cursor(cursor: str) -> tuple[int, str]:
    match = re.fullmatch(_CURSOR, cursor) if isinstance(cursor, str) else None
    if match is None or not TIME_US_MIN <= int(match[1]) <= TIME_US_MAX:
        raise InvalidInput("cursor", f"{cursor!r} is not one that a page gave")
    return int(match[1]), match[2]


# An id is text that UTF-8 can carry, without NUL: a cursor of other text comes from no page.
# (Compiled when it is first needed: with all these characters, that takes a while.)
_CURSOR = r"(-?[0-9]{1,18})\.([^\0\ud800-\udfff]+)"


class Segment(Struct, frozen=True):
    """A run of consecutive entries, each the child of the one before it.

    `parent` is the entry that the first one hangs on, perhaps in another thread.
    """

    parent: str | None
    first: str
    last: str
    first_seq: int
    last_seq: int


# --- leases ---------------------------------------------------------------------------------


class Lease(Struct, frozen=True):
    """The right to write a thread until a time. `fence` only grows, with every acquisition."""

    thread: str
    owner: str
    turn: str | None
    fence: int
    created_us: int
    until_us: int

    @property
    def created_at(self) -> datetime:
        return to_time(self.created_us)

    @property
    def until(self) -> datetime:
        return to_time(self.until_us)


class Acquire(Struct, frozen=True):
    owner: str
    ttl_seconds: float
    turn: str | None = None


class Renew(Struct, frozen=True):
    fence: int
    ttl_seconds: float


class Release(Struct, frozen=True):
    fence: int


class Inspect(Struct, frozen=True):
    """Ask for the live lease."""


class ClearExpired(Struct, frozen=True):
    """Remove a lease that expired or, with a cutoff, one that was acquired before it."""

    cutoff_us: int | None = None


LeaseRequest = Acquire | Renew | Release | Inspect | ClearExpired


# --- reports --------------------------------------------------------------------------------


class Properties(Struct, frozen=True, kw_only=True):
    """What an engine is and can do, as data. Layers above ask here, never for an engine's name.

    `acknowledged` says in words what an acknowledged write has survived. `processes`: whether
    several processes may have the store open at once. `read_only`: every write is refused.
    `maintenance` names the class that looks after the store as a whole, as "module:Class"; None:
    there is none (see `clew.core.maintenance`). `own_files` are the files and folders, by their
    real paths, that the store is made of, so that a snapshot of a folder leaves them out.
    `text_index` names the function that opens the namespace's index of words, as "module:function"
    (see `clew.core.text_index`), and `text_index_place` the file that it is in, if it is in one.
    `packs`: whether `pack` does anything. `packs_unasked`: whether it may be called when the user
    has not asked for it; not where other programs read the store, which must know what they find.
    """

    engine: str
    place: str
    durability: Durability
    acknowledged: str
    processes: bool
    version: str
    namespace: str = DEFAULT_NAMESPACE
    read_only: bool = False
    maintenance: str | None = None
    own_files: tuple[str, ...] = ()
    text_index: str = "clew.engines.shared.full_text:open_full_text"
    text_index_place: str | None = None
    packs: bool = False
    packs_unasked: bool = False


class ThreadHead(Struct, frozen=True):
    """How far a thread has come: what derived data compares with how far it has read.

    `birth` differs between a thread and another one that got its id after a purge.
    """

    thread: str
    birth: str
    seq: int


class Stats(Struct, frozen=True, kw_only=True):
    threads: int
    deleted: int
    entries: int
    records: int
    blobs: int
    blob_bytes: int
    stored_bytes: int


class Problem(Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written, with its place. `namespace`: other than default."""

    code: str
    message: str
    thread: str | None = None
    seq: int | None = None
    entry: str | None = None
    blob: str | None = None
    namespace: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "message", shortened(self.message))
