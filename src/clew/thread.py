"""The thread handle: one conversation or run, a tree of entries with one current leaf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

from msgspec import UNSET, Struct, UnsetType

from clew import drafts
from clew.checks import check_name
from clew.errors import InvalidInput
from clew.leases import Leases
from clew.model import (
    Entry,
    EntryDraft,
    Fact,
    Move,
    Record,
    Segment,
    ThreadInfo,
    to_us,
)
from clew.turn import Turn

if TYPE_CHECKING:
    from clew.store import Store

_PAGE = 1000


class Comparison(Struct, frozen=True):
    """Where two entries' paths part: the last entry in common, and what each has after it."""

    common: Entry | None
    left: list[Entry]
    right: list[Entry]


def turn_status(marker: Entry) -> str | None:
    """What a turn marker says; None for one that says nothing we know."""
    return marker.body.get("status") if isinstance(marker.body, dict) else None


class Thread:
    """A thread of a store. Handles are cheap, hold no state, and may be used by many at once."""

    def __init__(self, store: Store, id: str) -> None:
        self.store = store
        self.id = id
        self.leases = Leases(store.engine, id)

    # --- looking ---

    @property
    def info(self) -> ThreadInfo:
        """The thread's metadata as it is now: one read."""
        return self.store.engine.thread(self.id)

    @property
    def leaf(self) -> str | None:
        """The entry that the thread stands on; None before the root."""
        return self.info.leaf

    def get(self, entry: str) -> Entry:
        """An entry of this thread, or of the path that it shares with its origin. NotFound."""
        return self.store.engine.path(self.id, check_name(entry, "entry"), limit=1)[0]

    def path(
        self,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """The entries from the root to `leaf` (default: where the thread stands), oldest first.

        `after` leaves out everything up to that entry, `limit` all but the newest. What is left
        out is not read.
        """
        if limit is not None and limit < 1:
            raise InvalidInput("limit", f"must be at least 1, not {limit}")
        for name, entry in (("leaf", leaf), ("after", after)):
            if isinstance(entry, str):
                check_name(entry, name)
        return self.store.engine.path(self.id, leaf, after=after, limit=limit)

    def entries(self) -> Iterator[Entry]:
        """Every entry: first the path shared with the origin, then the thread's own by seq."""
        origin = self.info.origin
        if origin is not None and origin.entry is not None:
            yield from self.path(origin.entry)
        yield from (record for record in self.read() if isinstance(record, Entry))

    def read(self, *, after: int = 0) -> Iterator[Record]:
        """The complete change feed: entries, moves and facts with seq > after, without a gap."""
        while True:
            page = self.store.engine.read(self.id, after=after, limit=_PAGE)
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].seq

    def follow(
        self, *, after: int | None = None, idle_seconds: float | None = None
    ) -> Iterator[Record]:
        """Records as they are committed, by any process, from `after` (default: from now) on.

        Ends when nothing came for `idle_seconds`; by default it waits for ever.
        """
        seen = self.info.seq if after is None else after
        wait_seconds = 60.0 if idle_seconds is None else idle_seconds
        while True:
            for record in self.read(after=seen):
                yield record
                seen = record.seq
            woken = self.store.engine.wait(self.id, after=seen, timeout_seconds=wait_seconds)
            if not woken and idle_seconds is not None:
                return

    # --- the shape of the tree ---

    def segments(self) -> list[Segment]:
        """The runs of consecutive entries that the thread's own tree is made of."""
        return self.store.engine.segments(self.id)

    def leaves(self) -> list[str]:
        """The entries without children, in the order they were written."""
        segments = self.segments()
        origin = self.info.origin
        ends = [segment.last for segment in segments]
        if origin is not None and origin.entry is not None:
            ends.insert(0, origin.entry)
        inner = {segment.parent for segment in segments}
        return [end for end in ends if end not in inner]

    def children(self, entry: str | None) -> list[str]:
        """The entries whose parent is `entry`, oldest first; None asks for the roots."""
        segments = self.segments()
        found = [segment.first for segment in segments if segment.parent == entry]
        if entry is not None:
            follower = self._next_in_segment(self.get(entry), segments)
            if follower is not None:
                found.insert(0, follower)
        return found

    def _next_in_segment(self, entry: Entry, segments: list[Segment]) -> str | None:
        if entry.thread != self.id:  # shared with the origin: only the path goes on from it
            return self._next_inherited(entry)
        if any(segment.last == entry.id for segment in segments):
            return None
        for record in self.read(after=entry.seq):
            if isinstance(record, Entry):
                return record.id
        return None

    def _next_inherited(self, entry: Entry) -> str | None:
        origin = self.info.origin
        assert origin is not None
        rest = self.path(origin.entry, after=entry.id)
        return rest[0].id if rest else None

    def compare(self, left: str, right: str) -> Comparison:
        """Where the paths to two entries part. Reads as far back as that, not further."""
        limit = 64
        while True:
            a, b = self.path(left, limit=limit), self.path(right, limit=limit)
            known = {entry.id: i for i, entry in enumerate(b)}
            meet = max((i for i, entry in enumerate(a) if entry.id in known), default=None)
            if meet is not None:
                return Comparison(a[meet], a[meet + 1 :], b[known[a[meet].id] + 1 :])
            if len(a) < limit and len(b) < limit:
                return Comparison(None, a, b)
            limit *= 4

    # --- appending ---

    @overload
    def append(
        self,
        kind: str,
        body: Any = None,
        *,
        id: str | None = None,
        parent: str | UnsetType | None = UNSET,
        turn: str | None = None,
        format: str | None = None,
        meta: Mapping[str, Any] | None = None,
        blobs: Iterable[str] = (),
        time: datetime | None = None,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> Entry: ...

    @overload
    def append(
        self,
        kind: Iterable[EntryDraft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Entry]: ...

    def append(
        self,
        kind: str | Iterable[EntryDraft],
        body: Any = None,
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
        **fields: Any,
    ) -> Entry | list[Entry]:
        """Append one entry, or several drafts as one atomic step; durable when it returns.

        The first becomes a child of the leaf, or of `parent`; the leaf moves to the last.
        `expect` is the leaf you know of: Conflict if the thread stands elsewhere. `fence` is
        that of your lease. An `id` that is stored already with the same content gives the
        stored entry, so a retry is harmless; with other content it is a Conflict.
        """
        engine = self.store.engine
        if isinstance(kind, str):
            one = drafts.draft(kind, body, clock=self.store.clock, **fields)
            return engine.append(self.id, [one], expect=expect, fence=fence)[0]  # type: ignore[return-value]
        batch = list(kind)
        return engine.append(self.id, batch, expect=expect, fence=fence)  # type: ignore[return-value]

    def append_message(self, message: Mapping[str, Any], **options: Any) -> Entry:
        """Append a message as the provider gave it; its kind follows from its role."""
        return self.append(drafts.kind_for(message), dict(message), **options)

    def move(
        self,
        leaf: str | None,
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> Move:
        """Stand on another entry, or with None before the root. What was after it stays."""
        draft = drafts.move(leaf, self.store.clock())
        record = self.store.engine.append(self.id, [draft], expect=expect, fence=fence)[0]
        assert isinstance(record, Move)
        return record

    # --- facts ---

    def set(self, **facts: Any) -> list[Fact]:
        """Set facts, latest wins, all in one step: `thread.set(title="…", archived=True)`.

        None removes a fact. title, tags, archived, status and workspace have a meaning for
        lists; any other key is yours. Setting facts does not change `updated_at`.
        """
        return self.set_facts(facts)

    def set_facts(self, facts: Mapping[str, Any]) -> list[Fact]:
        """Like `set`, for keys that are not names in Python."""
        batch = drafts.facts(facts, self.store.clock())
        return self.store.engine.append(self.id, batch)  # type: ignore[return-value]

    def set_title(
        self,
        text: str,
        *,
        status: str = "ready",
        source: str = "host",
        error: str | None = None,
    ) -> None:
        """Set the title with its history: who made it, and whether it is ready."""
        title = {"text": text, "status": status, "source": source, "error": error}
        self.set(title={**title, "time_us": self.store.clock()})

    def viewed(self, time: datetime | None = None) -> None:
        """Note that somebody has looked at the thread."""
        self.set(last_viewed_us=self.store.clock() if time is None else to_us(time))

    def label(self, entry: str, name: str | None) -> None:
        """Give an entry a name that people can find it by; None takes it away."""
        self.get(entry)
        self.set_facts({f"label.{entry}": name})

    @property
    def facts(self) -> dict[str, Any]:
        """The latest value of every fact."""
        return self.info.facts

    @property
    def labels(self) -> dict[str, str]:
        """Entry id → the name it was given."""
        return self.info.labels

    # --- turns ---

    def turn(
        self,
        *,
        owner: str,
        id: str | None = None,
        ttl_seconds: float = 30.0,
        wait_seconds: float = 0.0,
    ) -> Turn:
        """The right to write for the length of a `with`; see `Turn`."""
        return Turn(self, owner=owner, id=id, ttl_seconds=ttl_seconds, wait_seconds=wait_seconds)

    def unfinished_turn(self) -> Entry | None:
        """The marker of a turn on the current path that was started and never ended.

        That is what a crash leaves behind, as well as what a running turn looks like; the
        lease (`thread.leases.active()`) tells them apart.
        """
        limit = 64
        while True:
            tail = self.path(limit=limit)
            markers = [entry for entry in tail if entry.kind == "turn_marker"]
            for marker in reversed(markers):
                if turn_status(marker) != "save_point":
                    return marker if turn_status(marker) == "started" else None
            if len(tail) < limit:
                return None
            limit *= 4

    def fork(self, **options: Any) -> Thread:
        """A new thread from this one: see `Store.fork`."""
        return self.store.fork(self.id, **options)

    def __repr__(self) -> str:
        return f"<clew.Thread {self.id!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thread) and (other.store, other.id) == (self.store, self.id)

    def __hash__(self) -> int:
        return hash(self.id)
