"""Prove that nothing of what was removed is there: what `clew erased` does.

It is told an id, of a thread or of an entry, or a receipt. It reads every thread of the namespace,
and looks for the ids of purged threads in the bytes of the store's files and of the caches. What it
finds it names. Bytes cannot be looked for by their hash: of an erased body it is looked for records
and blobs that have that hash, and that every entry of that id has a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from clew.core.engine import pages
from clew.core.errors import InvalidInput
from clew.core.model import Entry, Origin, Record, ThreadInfo
from clew.core.names import check_name, file_stem
from clew.core.removal import Receipt
from clew.derived import files_of
from clew.tree import adopted_from
from clew.upkeep.receipt import UNTOLD, is_in
from clew.upkeep.transfer import everything, holds

if TYPE_CHECKING:
    from clew.core.engine import Progress
    from clew.store import Store


class Trace(Struct, frozen=True, kw_only=True):
    """Something that is still there: in which place, and what it is."""

    place: str
    text: str
    thread: str | None = None
    entry: str | None = None


class Proof(Struct, frozen=True, kw_only=True):
    """What was looked for, where, and what was found. `unseen` are places that cannot be seen.

    `receipt_of` is the store that a receipt was given by, if that is another one.
    """

    ids: tuple[str, ...]
    hashes: tuple[str, ...]
    looked: tuple[str, ...]
    traces: tuple[Trace, ...]
    unseen: tuple[str, ...] = ()
    receipt_of: str | None = None

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.traces


class Wanted(Struct, frozen=True):
    """What must not be there: threads by id; bodies of entries by id and by hash; blobs."""

    threads: frozenset[str] = frozenset()
    entries: frozenset[str] = frozenset()
    bodies: frozenset[str] = frozenset()
    blobs: frozenset[str] = frozenset()
    hashes: frozenset[tuple[str, str, str]] = frozenset()  # thread, entry and hash, by a receipt


def read_receipt(data: bytes) -> Receipt:
    """A receipt as `clew purge --json` and `clew erase --json` have printed it, or as it is."""
    try:
        value: Any = msgspec.json.decode(data)
        value = value.get("receipt", value)
        return msgspec.convert({"time_us": 0, **value}, Receipt)
    except (msgspec.MsgspecError, AttributeError, TypeError) as error:
        raise InvalidInput("receipt", f"it is none that Clew has given: {error}") from error


def wanted(store: Store, what: str | Receipt) -> Wanted:
    """What to look for: all that a receipt names, or an id, whatever it is the id of."""
    if isinstance(what, Receipt):
        threads = frozenset(what.threads) if what.what == "purge" else frozenset()
        entries = frozenset(one.entry for one in what.entries) if what.what == "erase" else ()
        bodies = frozenset(one.body_hash for one in what.entries)
        hashes = frozenset((one.thread, one.entry, one.hash) for one in what.entries)
        return Wanted(threads, frozenset(entries), bodies, frozenset(what.blobs), hashes)
    id = check_name(what, "id")
    found = [entry for _, entry in _entries(store, frozenset({id})) if entry.tombstone]
    if found:
        return Wanted(frozenset(), frozenset({id}), frozenset(one.body_hash for one in found))
    return Wanted(frozenset({id}), frozenset({id}))


def prove(store: Store, what: str | Receipt, progress: Progress | None = None) -> Proof:
    """Look everywhere."""
    sought = wanted(store, what)
    looked = ["threads", "records", "blobs", "index", "caches"]
    traces = [*_in_threads(store, sought, progress), *_in_blobs(store, sought)]
    traces += _in_index(store, sought)
    files, unseen = _files(store), []
    if store.properties.own_files:
        looked.append("files of the store")
    elif store.properties.processes:
        unseen.append(f"the files of {store.properties.place}: {UNTOLD}")
    traces += _in_files(sought, files)
    return Proof(
        ids=tuple(sorted(sought.threads | sought.entries)),
        hashes=tuple(sorted(sought.bodies | sought.blobs)),
        looked=tuple(looked),
        traces=tuple(dict.fromkeys(traces)),
        unseen=tuple(unseen),
        receipt_of=_elsewhere(store, what),
    )


def _elsewhere(store: Store, what: str | Receipt) -> str | None:
    """The store that a receipt is of, unless it is this one."""
    if not isinstance(what, Receipt):
        return None
    here = (store.properties.place, store.properties.namespace)
    return None if (what.store, what.namespace) == here else f"{what.store} ({what.namespace})"


# --- what the store says ---


def _in_threads(store: Store, sought: Wanted, progress: Progress | None) -> Iterator[Trace]:
    infos = list(everything(store.engine))
    for done, info in enumerate(infos):
        if progress is not None:
            progress(done, len(infos))
        yield from _in_info(info, sought)
        for record in _records(store, info):
            yield from _in_record(record, sought, info.id)


def _in_info(info: ThreadInfo, sought: Wanted) -> Iterator[Trace]:
    said = {"the thread itself": info.id, "its parent": info.parent}
    said["what it was forked from"] = info.origin.thread if info.origin is not None else None
    for text, id in said.items():
        if id in sought.threads:
            yield Trace(place="threads", text=f"{text} is {id}", thread=info.id)


def _records(store: Store, info: ThreadInfo) -> Iterator[Record]:
    """All that a thread has, and what it shares with one that was purged."""
    origin = info.origin
    if origin is not None and origin.entry is not None and _is_purged(store, origin):
        yield from store.engine.path(info.id, origin.entry)
    for page in pages(store.engine, info.id):
        yield from page


def _is_purged(store: Store, origin: Origin) -> bool:
    """Whether what a fork shares is in no thread that is there."""
    entry = origin.entry or ""
    return not holds(store.engine, origin.thread, entry, origin.hash)


def _in_record(record: Record, sought: Wanted, thread: str) -> Iterator[Trace]:
    """What is told by a record that `thread` has: its own, or one that it shares."""
    where = {"place": "records", "thread": record.thread}
    if record.thread in sought.threads:
        shared = "" if record.thread == thread else ", which a fork shares"
        yield Trace(**where, text=f"a record of it{shared}", entry=record.id)
    if not isinstance(record, Entry):
        return
    origin = adopted_from(record)
    if origin is not None and origin[0] in sought.threads:
        yield Trace(**where, text="the entry was adopted from it", entry=record.id)
    if record.id in sought.entries and _differs(record, sought):
        text = "the entry has another hash than the receipt says: it was changed, or is another's"
        yield Trace(**where, text=text, entry=record.id)
    if record.tombstone is not None:
        return
    if record.id in sought.entries:
        yield Trace(**where, text="an entry of that id has a body", entry=record.id)
    elif record.body_hash in sought.bodies:
        yield Trace(**where, text="an entry has the same body", entry=record.id)


def _differs(entry: Entry, sought: Wanted) -> bool:
    told = [hash for thread, id, hash in sought.hashes if (thread, id) == (entry.thread, entry.id)]
    return bool(told) and entry.hash not in told


def _entries(store: Store, ids: frozenset[str]) -> Iterator[tuple[str, Entry]]:
    for info in everything(store.engine):
        for record in _records(store, info):
            if isinstance(record, Entry) and record.id in ids:
                yield info.id, record


def _in_blobs(store: Store, sought: Wanted) -> Iterator[Trace]:
    for hash in sorted(store.engine.has_blobs(sought.bodies | sought.blobs)):
        yield Trace(place="blobs", text=f"the blob {hash} is there")


def _in_index(store: Store, sought: Wanted) -> Iterator[Trace]:
    for thread in store.searcher.known(sorted(sought.threads)):
        yield Trace(place="index", text="the search index has words of it", thread=thread)


# --- bytes ---


def _files(store: Store) -> list[tuple[str, Path]]:
    """The files that the store is made of, and those of caches about it."""
    found = []
    for name in store.properties.own_files:
        path = Path(name)
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        found += [("files of the store", one) for one in inside if one.is_file()]
    return found + [("caches", path) for path in files_of(store) if path.is_file()]


def _in_files(sought: Wanted, files: Sequence[tuple[str, Path]]) -> Iterator[Trace]:
    """The ids of threads that must not be there. That of an erased entry stays with its place."""
    marks = [id.encode("utf-8") for id in sought.threads]
    names = {file_stem(id) for id in sought.threads}
    for place, path in files if marks else ():
        if is_in(path, marks):
            yield Trace(place=place, text=f"{path} has the id in it")
        elif path.name.removeprefix(".").partition(".")[0] in names:  # whatever its endings
            yield Trace(place=place, text=f"{path} is named after it")
