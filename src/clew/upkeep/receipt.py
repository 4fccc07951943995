"""Receipts for what was removed for good: what it was, and where it was looked for afterwards.

A receipt has the ids and hashes of what is gone. The store keeps none of them: then it would still
name what was removed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from clew.core.codec import new_id
from clew.core.engine import PackResult, pages
from clew.core.errors import ClewError, Corrupt, NotFound, Unavailable
from clew.core.model import Entry, fact_keys
from clew.core.parts import part
from clew.core.removal import Checked, Erased, Purged, Receipt, Removed
from clew.core.tombstones import used_blobs
from clew.derived import files_of
from clew.snapshots.take import forget_caches
from clew.tree import children_of
from clew.upkeep.transfer import everything, holds

if TYPE_CHECKING:
    from clew.store import Store

_PIECE_BYTES = 4 * 1024 * 1024
UNTOLD = (
    "the server's files keep earlier versions of rows until they are written anew; its owner does "
    "that with: clew pack --shrink"
)
SERVER_LOG = "the server's write-ahead log, its standbys and its backups are out of reach"


def purge(store: Store, thread: str) -> Purged:
    """See `Store.purge`."""
    # Looked for first: if that fails, nothing has been removed yet.
    children = children_of(store, thread)
    try:
        info = store.engine.thread(thread)
    except Corrupt:
        info = None  # it can be removed all the same
    inventory = Inventory(store, thread)
    purged = replace(store.engine.purge(thread), children=children)
    inventory.settle(purged)
    forget_derived(store, [thread])
    if info is not None and fact_keys(info, "snapshot."):
        forget_caches(store, info)
    return inventory.receipt(purged)


class Inventory:
    """What there is of a thread that is about to be purged."""

    def __init__(self, store: Store, thread: str) -> None:
        self._store = store
        self._thread = thread
        self._entries: list[Removed] = []
        self._size = 0
        self._blobs: set[str] = set()
        self._flaw: str | None = None
        self._shared: set[tuple[str, str]] = set()
        self._inherits = False
        try:
            for record in chain(self._left_of_origins(), *pages(store.engine, thread)):
                self._size += len(getattr(record, "data", b""))
                if isinstance(record, Entry):
                    self._blobs |= {record.body_hash, *used_blobs(record)}
                    self._entries.append(
                        Removed(
                            thread=record.thread,
                            entry=record.id,
                            hash=record.hash,
                            body_hash=record.body_hash,
                        )
                    )
        except NotFound:
            raise
        except ClewError as error:
            self._flaw = f"it could not be read to its end: {error}"  # it goes all the same
        self._blobs = store.engine.has_blobs(self._blobs)

    def _left_of_origins(self) -> list[Entry]:
        """What it shares with purged threads: if no other fork does, that goes with it."""
        engine, origin = self._store.engine, self._store.engine.thread(self._thread).origin
        if origin is None or origin.entry is None:
            return []
        if holds(engine, origin.thread, origin.entry, origin.hash):
            return []
        self._inherits = True
        return engine.path(self._thread, origin.entry)

    def settle(self, purged: Purged) -> None:
        """See what of it is still there, right after the purge: others may go as well."""
        forks = list(purged.kept_for)
        if self._inherits:
            forks += [info.id for info in everything(self._store.engine) if info.origin is not None]
        for fork in dict.fromkeys(forks):
            try:
                path = self._store.engine.path(fork)
            except NotFound:
                continue  # it is purged as well, at this moment
            except ClewError as error:
                # The thread is gone all the same, and so must be what was derived from it.
                self._flaw = f"its fork {fork!r} could not be read: {error}"
                continue
            self._shared |= {(entry.thread, entry.id) for entry in path}

    def receipt(self, purged: Purged) -> Purged:
        """The purge with its receipt, when what was derived is forgotten, too."""
        store, engine = self._store, self._store.engine
        left = engine.has_blobs(self._blobs)
        found = _find(store, self._thread)
        receipt = Receipt(
            id=new_id(),
            what="purge",
            time_us=store.clock(),
            store=store.properties.place,
            namespace=store.properties.namespace,
            threads=(self._thread,),
            entries=tuple(
                one for one in self._entries if (one.thread, one.entry) not in self._shared
            ),
            records=purged.records,
            size_bytes=self._size,
            blobs=tuple(sorted(self._blobs - left)),
            kept=purged.kept,
            kept_for=purged.kept_for,
            reason=self._flaw,
            checked=(
                Checked(
                    place="records",
                    left=found + purged.kept,
                    note=f"kept for the forks {', '.join(purged.kept_for)}"
                    if purged.kept
                    else None,
                ),
                *check_places(store, [self._thread], purged, left),
                _check_caches(store, self._thread),
            ),
        )
        return replace(purged, receipt=receipt)


def _find(store: Store, thread: str) -> int:
    try:
        store.engine.thread(thread)
    except NotFound:
        return 0
    return 1


def forget_derived(store: Store, threads: Sequence[str]) -> None:
    """Remove what was made of threads and is kept elsewhere: words, counts, contexts.

    It is the last step of a removal, and Unavailable says so.
    """
    if "recall" in store.__dict__:
        store.recall.forget()
    part("forget_turns")(store, threads)
    part("forget_usage")(store, threads)
    try:
        store.searcher.forget(threads)
    except Unavailable as error:
        reason = (
            "what was asked for was removed, but words of it may still be in the search index,"
            f" until a search can take them out: {error}"
        )
        raise Unavailable(reason, retryable=error.retryable, committed=True) from error


def check_places(
    store: Store,
    threads: Sequence[str],
    removed: Purged | Erased | None,
    blobs: Collection[str],
    shrunk: PackResult | ClewError | None = None,
) -> tuple[Checked, ...]:
    """Where else it could be: a server's tables, pages of a file, the log, blobs, the search index.

    `removed` is what the engine said, None if there was nothing to remove; `shrunk` is what came of
    writing the store's files anew, after all else was done.
    """
    log_bytes = 0 if removed is None else removed.log_bytes
    pages: tuple[Checked, ...] = ()
    if removed is not None and removed.pages_left:
        note = "copies may lie there until the store is closed, or swept, or something is erased"
        pages = (Checked(place="pages", left=1, note=note),)
    log = Checked(place="log", left=log_bytes)
    tables: tuple[Checked, ...] = ()
    if log_bytes is None:
        tables = (_check_tables(shrunk),)
        log = Checked(place="log", left=None, note=SERVER_LOG)
    elif log_bytes:
        note = (
            f"{log_bytes:,} bytes could not be emptied while others read; the next checkpoint does"
        )
        log = Checked(place="log", left=1, note=note)
    used = "others use them, or the next sweep takes them" if blobs else None
    known = store.searcher.known(threads)
    return (
        *tables,
        *pages,
        log,
        Checked(place="blobs", left=len(blobs), note=used),
        Checked(place="index", left=len(known), note="read again since" if known else None),
    )


def _check_tables(shrunk: PackResult | ClewError | None) -> Checked:
    """Whether earlier versions of rows are in the files of a server."""
    if isinstance(shrunk, ClewError):
        return Checked(place="tables", left=None, note=f"they were not written anew: {shrunk}")
    if shrunk is None or shrunk.left_rows is None:
        return Checked(place="tables", left=None, note=UNTOLD)
    if not shrunk.left_rows:
        return Checked(place="tables", left=0, note="they were written anew")
    note = "earlier versions of rows, of any thread, that another transaction may see; try again"
    return Checked(place="tables", left=shrunk.left_rows, note=note)


def _check_caches(store: Store, thread: str) -> Checked:
    """How many files of caches name a thread."""
    found = [path for path in files_of(store) if is_in(path, [thread.encode("utf-8")])]
    note = "forks or sub-agents of it are in " + ", ".join(map(str, found)) if found else None
    return Checked(place="caches", left=len(found), note=note)


def is_in(path: Path, marks: Collection[bytes]) -> bool:
    """Whether a file has one of these in it; also where it is across two pieces of the file."""
    overlap = max(map(len, marks), default=1) - 1
    rest = b""
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                data = rest + piece
                if any(mark in data for mark in marks):
                    return True
                rest = data[-overlap:] if overlap else b""
    except OSError:
        return False  # it is gone
    return False
