"""Erase entries for good, and give a receipt: what `Store.erase` and `clew erase` do.

First the engine removes the bodies. Then goes what was made of them: words in the search index,
what was counted, contexts that this process remembers, and the blobs that nothing else needs. A
snapshot that is erased is dropped as well, with the files that only it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from clew.core import drafts
from clew.core.codec import new_id
from clew.core.engine import PackResult
from clew.core.errors import ClewError, Corrupt, NotFound
from clew.core.model import Entry
from clew.core.names import check_name
from clew.core.removal import Checked, Erased, Receipt, Removed
from clew.core.tombstones import used_blobs
from clew.snapshots import catalogue
from clew.snapshots.take import cache_of
from clew.snapshots.tree import Trees
from clew.upkeep.receipt import check_places, forget_derived
from clew.upkeep.repeats import earlier_saves, family_of, repeats, texts_of, untitled

if TYPE_CHECKING:
    from clew.store import Store

REASON_BYTES_MAX = 1024


def erase(
    store: Store,
    thread: str,
    entries: Iterable[str],
    *,
    reason: str | None = None,
    shrink: bool = False,
) -> Receipt:
    """See `Store.erase`."""
    ids = [check_name(id, "entry") for id in drafts.several(entries, "entries")]
    if reason is not None:
        check_name(reason, "reason", REASON_BYTES_MAX)
    before = _readable(store, thread, ids)
    saves = earlier_saves(store.engine, before)
    family = family_of(store.engine, {thread, *(entry.thread for entry in before)})
    texts = texts_of(before)
    untitled(store, family, before)
    # First: after a crash they are found by the reply that they are saves of.
    saved = [
        one
        for entry in saves
        for one in store.engine.erase(
            entry.thread, [entry.id], time_us=store.clock(), reason=reason
        )
    ]
    doomed = {hash for entry in before for hash in used_blobs(entry)}
    doomed |= _release_snapshots(store, before)
    bodies = store.engine.has_blobs({entry.body_hash for entry in before})
    erased = store.engine.erase(thread, ids, time_us=store.clock(), reason=reason) + saved
    # What was erased by a call that got no further has left these behind.
    doomed |= {hash for one in erased for hash in one.blobs}
    owners = sorted({one.thread for one in erased})
    forget_derived(store, owners)
    gone = _sweep(store, doomed) | (bodies - store.engine.has_blobs(bodies))
    found = tuple(repeats(store.engine, family, before, texts))
    shrunk = _shrink(store) if shrink else None
    receipt = _receipt(store, owners, erased, gone, doomed, reason, shrunk)
    return replace(receipt, repeats=found)


def _shrink(store: Store) -> PackResult | ClewError:
    """Write the files anew. If that fails the receipt says so: what was erased is erased."""
    try:
        return store.engine.pack(shrink=True)
    except ClewError as error:
        return error


def _readable(store: Store, thread: str, ids: Sequence[str]) -> list[Entry]:
    """The entries as they are, without those whose bodies are damaged.

    The engine erases these as well; only what repeats them cannot be told.
    """
    found: list[Entry] = []
    for id in dict.fromkeys(ids):
        with suppress(Corrupt):
            found += store.engine.path(thread, id, limit=1)
    return found


def _release_snapshots(store: Store, entries: Sequence[Entry]) -> set[str]:
    """Let go of the snapshots among them, first: the blobs of their trees."""
    found: set[str] = set()
    trees = Trees(store.engine)
    for entry in entries:
        if not catalogue.is_snapshot(entry):
            continue
        with suppress(ClewError):  # one that is damaged, or was dropped and swept, has none
            snapshot = catalogue.from_entry(entry)
            found |= set(trees.blobs(snapshot.tree))
            cache_of(store, snapshot.root).forget(snapshot.root, entry.thread)
        with suppress(NotFound):  # the thread that took it was purged, or is deleted
            key = catalogue.PREFIX + entry.id
            if key in store.engine.thread(entry.thread).fact_data:
                facts = drafts.facts({key: None}, store.clock())
                store.engine.append(entry.thread, facts)
    return found


def _sweep(store: Store, doomed: set[str]) -> set[str]:
    """Remove those of the blobs that nothing else needs, however young; which ones."""
    there = store.engine.has_blobs(doomed)
    if not there:
        return set()

    def keep(unused: set[str]) -> set[str]:
        return (unused - there) | catalogue.wanted(store, unused & there)

    store.engine.sweep(grace_seconds=0, keep=keep)
    return there - store.engine.has_blobs(there)


def _receipt(
    store: Store,
    owners: Sequence[str],
    erased: Sequence[Erased],
    gone: set[str],
    doomed: set[str],
    reason: str | None,
    shrunk: PackResult | ClewError | None,
) -> Receipt:
    entries = tuple(
        Removed(thread=one.thread, entry=one.entry, hash=one.hash, body_hash=one.body_hash)
        for one in erased
    )
    kept = _kept(store, erased)
    bodies = store.engine.has_blobs({one.body_hash for one in erased})
    return Receipt(
        id=new_id(),
        what="erase",
        time_us=min((one.time_us for one in erased), default=store.clock()),
        store=store.properties.place,
        namespace=store.properties.namespace,
        threads=tuple(owners),
        entries=entries,
        records=len(entries),
        size_bytes=sum(one.size_bytes for one in erased),
        blobs=tuple(sorted(gone)),
        reason=reason,
        checked=(
            Checked(
                place="records", left=len(kept), note="their bodies are there" if kept else None
            ),
            *check_places(
                *(store, owners, erased[0] if erased else None),
                *(store.engine.has_blobs(doomed) | bodies, shrunk),
            ),
        ),
    )


def _kept(store: Store, erased: Sequence[Erased]) -> list[str]:
    """The entries whose bodies can still be read: none, by what the engine has promised."""
    found = []
    for one in erased:
        if one.recorded:
            (entry,) = store.engine.path(one.thread, one.entry, limit=1)
            found += [entry.id] if entry.tombstone is None else []
    return found
