"""The waist: what every storage does, and all that the layers above may ask of it.

Synchronous, speaks the domain, and safe to call from any thread. The docstrings are the
contract; `clew.testing.conformance` holds an engine to it. Common to all methods:

- A method that raises has changed nothing, unless the error's `committed` says otherwise.
- `NotFound` names the thread, entry or blob. A deleted thread is found by `thread`, `read`,
  `path`, `segments` and `lease`; only `append` refuses it (but takes its restoration).
- After `close` every method raises `Closed`.
- Values given and returned are frozen; nothing is shared with the engine's own state.
- A `limit` is at least 1, else InvalidInput. One that is larger than what is there is fine.
- An engine is opened for one namespace of a store. What is in another one is not there: not found,
  not listed, not counted, not in the way, and not to be told from what does not exist.
- An engine around another one is a wrapper (see `clew.testing.wrappers`): it has the inner one
  as `wrapped`, and passes its properties on.

What goes beyond one namespace, or must work when a store cannot be opened, is no part of the
waist: `clew.core.maintenance` has it, in the class that `properties.maintenance` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from msgspec import UNSET, Struct, UnsetType

from clew.core.errors import InvalidInput, TooLarge
from clew.core.model import (
    Draft,
    Entry,
    Fact,
    Lease,
    LeaseRequest,
    Page,
    Problem,
    Properties,
    Record,
    Segment,
    Stats,
    ThreadDraft,
    ThreadHead,
    ThreadInfo,
    ThreadQuery,
)
from clew.core.removal import Erased, Purged, Swept

R = TypeVar("R", bound=Record)
Progress = Callable[[int, int], None]
"""Told how much of a long work is done, and of how much. The work decides what it counts."""

Keep = Callable[[set[str]], set[str]]
"""Asked which of some blobs must not be removed, though no record names them."""

PACK_TAIL = 32
PACK_IDLE_SECONDS = 86_400.0

LIMIT_MAX = 2**31 - 1  # what every database takes, and more than a list can hold
PAGE_BYTES = 16 * 1024 * 1024  # with so much a page of `read` is full
PATH_BYTES_MAX = 512 * 1024 * 1024  # as much as one blob may have


class PackResult(Struct, frozen=True, kw_only=True):
    """What `pack` has done: so many entries are in so many new packs.

    `size_bytes` is what the entries had before, `stored_bytes` what their packs have. `free_bytes`
    of the store's file are free for what is written next; it is `shrunk_bytes` shorter than before.
    `complete`: nothing cold was left over; if not, the next call may go on `after` where this one
    `stopped`, if that is told. `left_rows`: so many rows that were removed from the
    store are still in its files, because a transaction may see them; None: it cannot be told.
    """

    entries: int = 0
    packs: int = 0
    size_bytes: int = 0
    stored_bytes: int = 0
    free_bytes: int = 0
    shrunk_bytes: int = 0
    complete: bool = True
    left_rows: int | None = 0
    stopped: str | None = None


class AppendRequest(NamedTuple):
    """What `append` is called with."""

    thread: str
    drafts: Sequence[Draft]
    expect: str | UnsetType | None = UNSET
    fence: int | None = None


class AppendsEach(Protocol):
    """What an engine may have besides the waist, where writers share a sync; a wrapper has not."""

    def append_each(self, requests: Sequence[AppendRequest]) -> list[list[Record] | BaseException]:
        """Several appends from one caller, of any threads: the outcome of each by itself.

        Each is what `append` would do or raise, in this order. What one of them raises is in its
        place, and takes nothing from the others.
        """
        ...


class Engine(Protocol):
    @property
    def properties(self) -> Properties:
        """Capabilities as data; fixed while the engine is open."""
        ...

    def create(self, draft: ThreadDraft) -> ThreadInfo:
        """Make a thread, with its first facts, as one atomic step.

        With `origin` the thread is a fork: it shares the path to that entry by reference, at
        a cost that does not depend on its length. `origin.entry` None gives an empty thread.
        An entry that the origin thread inherited from its own origin will do as well.

        The same draft again returns what is stored: creating is idempotent on the id while
        created_us, parent, origin and first facts agree. Otherwise AlreadyExists, also when
        the thread there is deleted. NotFound: the origin's thread or entry does not exist.
        """
        ...

    def thread(self, id: str) -> ThreadInfo:
        """A thread's metadata, also of a deleted one. NotFound if there is none."""
        ...

    def threads(self, query: ThreadQuery) -> Page[ThreadInfo]:
        """One page of threads: newest first by `order`, then by id. Reads no entry.

        The page's cursor continues after its last item; threads created or updated in between
        are neither repeated nor do they shift the rest.

        A thread that is damaged is on its page like any other, as far as it can be read: what
        could not be read of its facts is in `lost_facts`, and `unreadable` says why its log ends
        early. One damaged thread must not keep a list from telling of the others.

        May write: an engine may use the call to put its index of threads in order, so that the
        next page is cheaper. That is no record, changes no `updated_us`, and wakes no waiter. An
        engine that cannot write just now gives the same page without it.
        """
        ...

    def heads(self) -> list[ThreadHead]:
        """Every thread that is not purged, deleted ones too, with its last seq; in no order.

        For what is derived from records (a search index, sums of usage) and has to find out, at
        the cost of a number a thread, which threads have got new ones. Of a thread that is damaged
        the head may be missing, or lie before the damage. May write like `threads`.
        """
        ...

    def append(
        self,
        thread: str,
        drafts: Sequence[Draft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Record]:
        """The only write to a journal: all drafts, or none, as consecutive records.

        Returns one record per draft, in order. When it returns, they are as durable as
        `properties.durability` says. An entry without `parent` is a child of the entry before
        it in the batch, the first one of the leaf; the leaf moves to the last entry written.

        Idempotent on ids: a draft whose id is stored in the thread (or on the path that it
        inherited) with the same content gives the stored record; with other content Conflict,
        whose `field` names what differs. Fields that a draft does not say are not compared, unless
        it is `whole`; an `implied_turn` is not said. `clew.core.reducer.plan` has the rule.
        (A `fresh` draft is new by the caller's word; an engine need not look.)
        If all are stored, nothing else is checked, so that a retry always resolves.

        `expect` is the leaf the caller knows, None for before the root: Conflict if it differs.
        `fence` must be that of the live lease, else LeaseLost. Without it, entries and moves
        are refused with LeaseHeld while a lease is live; facts are not.
        InvalidInput: an unknown parent, leaf or blob. NotFound: no such thread, or deleted.
        """
        ...

    def read(self, thread: str, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """The change feed: the thread's own records with seq > after, by seq without a gap.

        What a fork inherited is not in its feed; `path` crosses over to it. The oldest `limit` of
        them come, or fewer: a page is full with the record that brings its bodies and values to
        PAGE_BYTES, however many were asked for. Only an empty page says that the feed ends; `pages`
        goes through all of it. `after` 0 or less is the beginning, and from beyond the end there
        is nothing to read. NotFound: no such thread.
        """
        ...

    def path(
        self,
        thread: str,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """The entries from the root to `leaf` (default: the thread's), oldest first.

        `after` cuts off what lies up to and including that entry, `limit` keeps the newest:
        neither reads what it leaves out. NotFound: the leaf is not in the thread, or `after`
        is not on the path. TooLarge: the bodies have over PATH_BYTES_MAX together, however little
        they take where they are compressed; `after` and `limit` get them in parts.
        """
        ...

    def segments(self, thread: str) -> list[Segment]:
        """The shape of the thread's own tree, by first_seq: its runs of entries."""
        ...

    def wait(self, thread: str, *, after: int, timeout_seconds: float) -> bool:
        """Block until the thread has a record with seq > after, by any process. False: timeout.

        A record that is there already gives True at once; a timeout of 0 or less only looks. A
        deleted thread is waited for like any other, since its restoration is a record. NotFound:
        there is no such thread, or it was purged while the caller waited.
        """
        ...

    def lease(self, thread: str, request: LeaseRequest) -> Lease | None:
        """Acquire, renew, release, inspect or clear the right to write.

        Time is the engine's own, never the caller's. Acquire gives a fence greater than all
        before it; LeaseHeld while one is live, also for the same owner. Renew: LeaseLost
        unless the fence is the live one. Release of another fence does nothing. Inspect gives
        the live lease or None. ClearExpired gives what it removed or None.
        """
        ...

    def put_blobs(self, blobs: Sequence[bytes]) -> list[str]:
        """Store bytes by their hash; all or none. What is there already is not written again."""
        ...

    def get_blob(self, hash: str) -> bytes:
        """The bytes, checked against their hash: NotFound, or Corrupt."""
        ...

    def has_blobs(self, hashes: Iterable[str]) -> set[str]:
        """Those of the hashes whose blobs are stored."""
        ...

    def renew_blobs(self, hashes: Iterable[str]) -> set[str]:
        """Those of the hashes whose blobs are stored; they are as young for `sweep` as if put now.

        For a caller that refers to blobs in a way that the engine does not see: it writes the
        reference down, and then renews what it relies on. A sweep that is under way either sees
        the reference, or leaves what is young, or the caller is told that a blob is missing.
        """
        ...

    def purge(self, thread: str) -> Purged:
        """Remove a thread for good, but for the entries on paths that forks share.

        Those are removed with the last fork that needs them. The id is free again at once. The
        thread need not be deleted before. NotFound: no such thread, and so for a second purge.

        A live lease does not stand in the way, and goes with the thread: its holder's next append
        or renewal is NotFound. A caller that wants no writer to lose its thread acquires the lease
        first, as `Store.cleanup` does.
        """
        ...

    def erase(
        self, thread: str, entries: Sequence[str], *, time_us: int, reason: str | None = None
    ) -> list[Erased]:
        """Remove the bodies and metas of entries for good; their places stay.

        All or none of those that were written in one thread. Entries that a fork inherited may lie
        in several: then an interruption may leave some threads done and others not, each entry
        whole or erased, and the same call again finishes it.

        Each keeps its id, its hash and all that hangs on it: a tombstone is in its place, and what
        `read` and `path` give has a stand-in as its body (see `Entry.tombstone`). An entry that the
        thread inherited is erased where it was written, and so for every thread that shares it.
        The log of the thread that it was written in gets the fact `erased.` + its id, with the
        time, so that whatever follows a log is told; if that thread was purged, there is no log.

        Bodies that lie in blobs go with it, unless another record has the same one. Blobs that the
        entry names are not in use by it any more, and are left to `sweep`.

        Idempotent: what was erased already is told as it was then, and nothing is written. A
        deleted thread and a live lease do not stand in the way. NotFound: no such thread, or no
        such entry in it.
        """
        ...

    def sweep(self, *, grace_seconds: float, keep: Keep | None = None) -> Swept:
        """Remove blobs that no record refers to and that were put longer ago than the grace.

        `keep` is asked about all of them first, while others write: it may read, and names those
        that stay. What is put, renewed or referred to meanwhile stays too. They are removed a few
        at a time, so that no writer waits for long. Blobs that refer to blobs are the caller's own
        affair. If it is interrupted, a part of them is removed.
        """
        ...

    def pack(
        self,
        *,
        tail: int = PACK_TAIL,
        idle_seconds: float = PACK_IDLE_SECONDS,
        max_seconds: float | None = None,
        shrink: bool = False,
        after: str | None = None,
    ) -> PackResult:
        """Move cold entries into a compressed form. What is read afterwards is what was before.

        Cold is what lies behind the newest `tail` records of a thread and, in a thread that was
        not updated for `idle_seconds`, all but its last record. It is done a little at a time, so
        that no writer waits for long, and every step is as durable as an append; it stops with a
        step after `max_seconds`, and goes on when it is called again: from the beginning, or with
        `after` from where an earlier one `stopped`, so that what is packed already is not looked at
        again ("" is the beginning). Only then time counts in which nothing was packed.

        With `shrink` room that became free goes back to the file system, and with it all that was
        removed and is still in the files; writers may wait for as long as that takes. That is
        about all namespaces.

        An engine that can only pack a thread as a whole packs those that rest, and no other; a
        write to one that is packed may then cost what the thread costs, once.
        An engine that packs nothing says so in `properties.packs`, and at most shrinks.
        """
        ...

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        """Read everything, recompute every hash, and name each thing that is not as written.

        Problems come as they are found. `quick` reads the structure only: threads, the order
        and the chain of records, that bodies and blobs are there; not what is in them.
        `progress` is told of it in records, or whatever the engine counts.

        It runs beside writers of any process, and none of them waits until it ends. What they
        write, fork or purge meanwhile is no problem; whether it is checked as well is open.
        """
        ...

    def stats(self) -> Stats:
        """Counts and sizes. May read indexes, does not read bodies."""
        ...

    def close(self) -> None:
        """Finish running writes and let go of everything. Closing twice is fine."""
        ...


def innermost(engine: Engine) -> Engine:
    """The engine that does the work, without the wrappers around it."""
    while (inner := getattr(engine, "wrapped", None)) is not None:
        engine = inner
    return engine


def check_limit(limit: int) -> int:
    """A limit as engines can use it: the rule of the waist, in one place."""
    if type(limit) is not int or limit < 1:
        raise InvalidInput("limit", f"must be a whole number of at least 1, not {limit!r}")
    return min(limit, LIMIT_MAX)


def pages(
    engine: Engine, thread: str, *, after: int = 0, limit: int = 1000
) -> Iterator[list[Record]]:
    """The change feed from a seq on, page by page, to its end."""
    while page := engine.read(thread, after=after, limit=limit):
        yield page
        after = page[-1].seq


def fill_page(records: Iterable[Record]) -> list[Record]:
    """As many of them as make a page of `read`. What comes behind is not even asked for."""
    page: list[Record] = []
    add = page.append
    size = 0
    for record in records:
        add(record)
        # Not by a call: every record that is read comes through here.
        if type(record) is Entry:
            size += len(record.data)
            if record.meta_data is not None:
                size += len(record.meta_data)
        else:
            size += _bytes_of(record)
        if size >= PAGE_BYTES:
            break
    return page


class PathSize:
    """Adds up what the entries of a path have, so that it is noticed before the memory is gone."""

    def __init__(self, thread: str) -> None:
        self._thread = thread
        self._size = 0

    def count(self, entries: Iterable[R]) -> list[R]:
        """The entries as a list. TooLarge as soon as they are too much with one of them."""
        found: list[R] = []
        add = found.append
        size = self._size
        for entry in entries:
            # Not by a call: every entry of a path comes through here.
            if isinstance(entry, Entry):
                size += len(entry.data)
                if entry.meta_data is not None:
                    size += len(entry.meta_data)
            else:
                size += _bytes_of(entry)
            if size > PATH_BYTES_MAX:
                what = f"the path of thread {self._thread!r:.200} as a whole"
                raise TooLarge(what, size=size, limit=PATH_BYTES_MAX)
            add(entry)
        self._size = size
        return found


def _bytes_of(record: Record) -> int:
    """Of a record that is no entry."""
    return len(record.data) if isinstance(record, Fact) else 0
