"""Cleanup: removing threads that were not used for a while, beside live traffic.

Nothing that is written meanwhile is lost. A thread that is to go is leased, looked at again, and
given a tombstone that only holds if nothing was written since it was listed; from then on no
append is acknowledged, and only then it is purged. A cleanup that is interrupted leaves at most a
tombstone, which `restore` takes away.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from clew.core import drafts
from clew.core.engine import Progress
from clew.core.errors import (
    ClewError,
    Conflict,
    Corrupt,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    NotFound,
)
from clew.core.model import (
    Acquire,
    Inspect,
    Lease,
    Page,
    Release,
    ThreadInfo,
    ThreadQuery,
    decode_cursor,
    fact_keys,
    to_time,
    to_us,
)
from clew.core.removal import Purged, Receipt, Swept
from clew.tree import children_of
from clew.upkeep.receipt import Inventory, forget_derived
from clew.upkeep.transfer import MARK

if TYPE_CHECKING:
    from clew.store import Store

LEASE_SECONDS = 60.0
OWNER = "clew cleanup"
_PAGE = 500

Keep = Callable[[ThreadInfo], bool]
_Edge = tuple[int, str]  # the time and the id of the last thread of a page
Reason = Literal["in_use", "changed", "kept", "family", "damaged"]


class Skipped(Struct, frozen=True):
    """A thread that is old enough and yet stays. `text` says more than `reason`.

    in_use: its lease is held. changed: something was written while it was looked at.
    kept: `keep` said so. family: it works for a thread that stays, or the other way round.
    damaged: it cannot be read; see `verify`.
    """

    thread: str
    reason: Reason
    text: str


class CleanupReport(Struct, frozen=True, kw_only=True):
    """What a cleanup removed: threads, their records, and the blobs that it swept.

    `kept` records of purged threads stay because forks share them. `children` are the threads that
    stay although the thread that they worked for is gone. `more`: the limit was reached.
    Large bodies go with their records and are not counted as blobs. Of a dry run `purged` is what
    would go and `records` how many that are at most; blobs it cannot tell. `receipts` has one for
    each purged thread, yours to keep.
    """

    cutoff: datetime
    dry_run: bool
    purged: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    records: int
    kept: int
    blobs: int
    size_bytes: int
    more: bool
    children: tuple[str, ...] = ()
    receipts: tuple[Receipt, ...] = ()


def keeping(*, tags: Iterable[str] = (), statuses: Iterable[str] = ()) -> Keep:
    """A `keep` for `Store.cleanup`: threads with one of these tags, or one of these statuses."""
    if isinstance(tags, str) or isinstance(statuses, str):
        raise InvalidInput("keep", "tags and statuses are lists of names")
    spared, at_work = frozenset(tags), frozenset(statuses)
    return lambda info: not spared.isdisjoint(info.tags) or info.status in at_work


def cleanup(
    store: Store,
    *,
    older_than: timedelta | datetime,
    keep: Keep | None = None,
    deleted_only: bool = False,
    archived: bool = False,
    limit: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> CleanupReport:
    """See `Store.cleanup`."""
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise InvalidInput("limit", f"must be a number from 1 on, not {limit!r}")
    cutoff_us = _cutoff(store, older_than)
    work = _Cleanup(store, cutoff_us, keep, archived, dry_run)
    try:
        more = work.run(_candidates(store, cutoff_us, deleted_only, archived, progress), limit)
    finally:
        # At the end, once: to take words out of the search index costs as much as the index is.
        if work.purged and not dry_run:
            forget_derived(store, work.purged)
    # At the end, once: a sweep looks at every blob of the store.
    swept = Swept(blobs=0, size_bytes=0) if dry_run else store.sweep()
    return CleanupReport(
        cutoff=to_time(cutoff_us),
        dry_run=dry_run,
        purged=tuple(work.purged),
        skipped=tuple(work.skipped),
        records=work.records,
        kept=work.kept,
        blobs=swept.blobs,
        size_bytes=swept.size_bytes,
        more=more,
        children=tuple(sorted(work.children.difference(work.purged))),
        receipts=tuple(work.receipts()),
    )


def _cutoff(store: Store, older_than: timedelta | datetime) -> int:
    now_us = store.clock()
    if isinstance(older_than, timedelta):
        cutoff_us = to_us(drafts.before(to_time(now_us), older_than, "older_than"))
    elif isinstance(older_than, datetime):
        cutoff_us = to_us(older_than, "older_than")
    else:
        raise InvalidInput("older_than", f"must be a timedelta or datetime, not {older_than!r}")
    if cutoff_us > now_us:
        raise InvalidInput("older_than", "lies in the future")
    return cutoff_us


def _last_us(info: ThreadInfo) -> int:
    """When a thread was last used. A delete counts, so that `restore` has its time too."""
    deleted_us: int = info.facts.get("deleted_us") or info.updated_us
    return max(info.updated_us, deleted_us)


# --- which ----------------------------------------------------------------------------------


def _candidates(
    store: Store, cutoff_us: int, deleted_only: bool, archived: bool, progress: Progress | None
) -> Iterator[ThreadInfo]:
    """The threads that are old enough, the oldest first; each as it is when its page is read."""
    queries = [ThreadQuery(order="updated", deleted=True, before_us=cutoff_us, limit=_PAGE)]
    if not deleted_only:
        among = None if archived else False
        queries.append(
            ThreadQuery(order="updated", archived=among, before_us=cutoff_us, limit=_PAGE)
        )
    listings = [_Listing(store, query) for query in queries]
    total = sum(listing.total for listing in listings)
    oldest_first = heapq.merge(*listings, key=lambda info: info.updated_us)
    for done, info in enumerate(oldest_first):
        if progress is not None:
            progress(done, total)
        if _last_us(info) < cutoff_us and info.parent != MARK:
            yield info
    if progress is not None:
        progress(total, total)


class _Listing:
    """A list from its end. Lists are read newest first, so the pages are walked once before.

    Only where they begin is remembered: a page is read anew when its turn comes.
    """

    def __init__(self, store: Store, query: ThreadQuery) -> None:
        self._store = store
        self._query = query
        self._edges: list[_Edge | None] = [None]
        self.total = 0
        while True:
            page = self._page(self._edges[-1])
            self.total += len(page.items)
            if page.cursor is None:
                break
            self._edges.append(decode_cursor(page.cursor))

    def _page(self, begin: _Edge | None) -> Page[ThreadInfo]:
        return self._store.engine.threads(replace(self._query, cursor=begin))

    def __iter__(self) -> Iterator[ThreadInfo]:
        end: _Edge | None = None
        for begin in reversed(self._edges):
            for info in reversed(self._page(begin).items):
                # Where some have left the page, it shows what is behind it: that was looked at.
                if end is None or (-info.updated_us, info.id) <= (-end[0], end[1]):
                    yield info
            end = begin


# --- one after the other --------------------------------------------------------------------


class _Cleanup:
    """What was done so far."""

    def __init__(
        self, store: Store, cutoff_us: int, keep: Keep | None, archived: bool, dry_run: bool
    ) -> None:
        self._store = store
        self._engine = store.engine
        self._cutoff_us = cutoff_us
        self._keep = keep
        self._archived = archived
        self._dry_run = dry_run
        self._parents: dict[str, ThreadInfo | None] = {}
        self.purged: list[str] = []
        self.skipped: list[Skipped] = []
        self.children: set[str] = set()
        self._done: list[tuple[Inventory, Purged]] = []
        self.records = 0
        self.kept = 0

    def run(self, candidates: Iterable[ThreadInfo], limit: int | None) -> bool:
        """Go through them; whether the limit was the end of it."""
        for info in candidates:
            if limit is not None and len(self.purged) >= limit:
                return True
            try:
                self._consider(info)
            except (LeaseHeld, LeaseLost) as error:
                self._skip(info, "in_use", str(error))
            except Conflict as error:
                self._skip(info, "changed", str(error))
            except Corrupt as error:
                self._skip(info, "damaged", str(error))
            except NotFound:
                pass  # another process has purged it since it was listed
        return False

    def receipts(self) -> Iterator[Receipt]:
        """For each purged thread, made when all that was derived is forgotten."""
        for inventory, purged in self._done:
            receipt = inventory.receipt(purged).receipt
            if receipt is not None:
                yield receipt

    def _consider(self, info: ThreadInfo) -> None:
        if info.damaged is not None:
            # When it was last used, and whether it was archived, is not sure.
            self._skip(info, "damaged", info.damaged)
        elif self._keep is not None and self._keep(info):
            self._skip(info, "kept", "keep says so")
        elif reason := self._family(info):
            self._skip(info, "family", reason)
        elif self._dry_run:
            lease = self._engine.lease(info.id, Inspect())
            if lease is not None:
                raise LeaseHeld(info.id, owner=lease.owner, until=lease.until)
            self.purged.append(info.id)
            self.records += info.seq
            self.children.update(children_of(self._store, info.id))
        else:
            self._remove(info)

    def _skip(self, info: ThreadInfo, reason: Reason, text: str) -> None:
        self.skipped.append(Skipped(info.id, reason, text))

    # --- families ---

    def _family(self, info: ThreadInfo) -> str | None:
        """Why a thread stays for the sake of another: one that it works for, or that works for it.

        A deleted thread goes by itself: its owner has decided already.
        """
        if info.deleted_at is not None:
            return None
        above = {info.id}
        at = info.parent
        while at is not None and at not in above:  # parents are ids that a caller chose: no tree
            above.add(at)
            parent = self._parent(at)
            if parent is None:
                break
            if self._stays(parent):
                return f"it works for {at!r}, which stays"
            at = parent.parent
        young = ThreadQuery(
            parent=info.id, archived=None, order="updated", after_us=self._cutoff_us - 1, limit=1
        )
        for child in self._engine.threads(young).items:
            return f"{child.id!r} works for it, and was used since"
        return None

    def _parent(self, id: str) -> ThreadInfo | None:
        if id not in self._parents:
            try:
                self._parents[id] = self._engine.thread(id)
            except NotFound:
                self._parents[id] = None
        return self._parents[id]

    def _stays(self, parent: ThreadInfo) -> bool:
        return (
            _last_us(parent) >= self._cutoff_us
            or (parent.archived and not self._archived)
            or (self._keep is not None and self._keep(parent))
        )

    # --- removing ---

    def _remove(self, info: ThreadInfo) -> None:
        lease = self._engine.lease(info.id, Acquire(OWNER, LEASE_SECONDS))
        assert lease is not None
        buried_us = self._store.clock()
        try:
            self._check_same(info, info.seq)
            if info.deleted_at is None:
                self._bury(info, lease, buried_us)
            children = children_of(self._store, info.id)
            inventory = Inventory(self._store, info.id)
            purged = self._engine.purge(info.id)
        except BaseException:
            self._let_go(info.id, lease, buried_us)
            raise
        if fact_keys(info, "snapshot."):
            from clew.snapshots.take import forget_caches

            forget_caches(self._store, info)
        inventory.settle(purged)
        self._done.append((inventory, purged))
        self.purged.append(info.id)
        self.records += purged.records - (info.deleted_at is None)  # the tombstone is ours
        self.kept += purged.kept
        self.children.update(children)

    def _check_same(self, listed: ThreadInfo, seq: int) -> None:
        """That nothing was written since, not even a fact."""
        now = self._engine.thread(listed.id)
        if (now.created_us, now.seq) != (listed.created_us, seq):
            text = f"thread {listed.id!r} was written to while it was looked at"
            raise Conflict(text, field="seq", expected=seq, actual=now.seq)

    def _bury(self, info: ThreadInfo, lease: Lease, now_us: int) -> None:
        """Under a tombstone nothing is acknowledged any more, also when the lease has run out.

        Facts need no lease, so one may have been set just before: hence another look.
        """
        tombstone = drafts.facts({"deleted_us": now_us}, now_us)
        self._engine.append(info.id, tombstone, expect=info.leaf, fence=lease.fence)
        self._check_same(info, info.seq + 1)

    def _let_go(self, thread: str, lease: Lease, buried_us: int) -> None:
        """Leave a thread as it was; if that fails as well, the first error is what matters."""
        try:
            if self._engine.thread(thread).facts.get("deleted_us") == buried_us:
                self._engine.append(thread, drafts.facts({"deleted_us": None}, buried_us))
            self._engine.lease(thread, Release(lease.fence))
        except ClewError:
            pass
