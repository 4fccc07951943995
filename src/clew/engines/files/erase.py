"""Erasing bodies: the file that holds them is written anew without them, and takes its place.

The same file gets the facts that tell of it, so that both are there or none. The gate is shut
meanwhile, as for a purge: no caller of any process reads across forks, or refers to a blob. Others
that have the old file open notice that it is another one, as they look before they use it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from clew.core.errors import ClewError, NotFound, Unavailable
from clew.core.lines import ERASED_VERSION, Line, header_line, parse, record_line
from clew.core.model import Entry
from clew.core.reducer import plan_erasure
from clew.core.removal import Erased
from clew.core.tombstones import to_erased, tombstoned
from clew.engines.files.blobs import SPILL_BYTES
from clew.engines.files.changes import Changes
from clew.engines.files.index import Untrue
from clew.engines.files.journal import Journal
from clew.engines.files.open_store import OpenStore
from clew.engines.files.pack import awake, remove_drafts, remove_leftover
from clew.engines.files.place import put_file
from clew.engines.files.purge import remove_cuts, remove_unused, wipe
from clew.engines.files.tail import Damage, judge, scan


class _Rewritten(Struct):
    """A file's contents without what is erased in it, and the entries as they are now."""

    data: bytes
    entries: dict[str, Entry]
    is_new: bool  # whether anything was there to be erased


def erase(
    store: OpenStore,
    changes: Changes,
    thread: str,
    entries: Sequence[str],
    time_us: int,
    reason: str | None,
) -> list[Erased]:
    """File after file, each as a whole; what is left over elsewhere goes last."""

    def work() -> list[Erased]:
        with changes.relations_known():
            done: dict[str, Erased] = {}
            places = _places(store, thread, entries)
            for no in places:
                _check_whole(store.by_number(no))
            for no, ids in places.items():
                done |= _erase_in(store, store.by_number(no), ids, time_us, reason)
            return [done[id] for id in dict.fromkeys(entries)]

    def clear_up() -> None:
        with changes.relations_known():
            _clear_up(store, done)

    done = store.with_index(work, keep=False)
    try:
        store.with_index(clear_up, keep=False)
    except (OSError, ClewError) as error:
        text = f"the entries were erased, but not all that they left elsewhere: {error}"
        raise Unavailable(text, retryable=True, committed=True) from error
    return done


def _places(store: OpenStore, thread: str, entries: Sequence[str]) -> Mapping[int, list[str]]:
    """The entries by the number of the file that each one lies in."""
    journal = store.journal(thread)
    found: dict[int, list[str]] = {}
    with journal.mutex:
        journal.refresh_index()
        for id in dict.fromkeys(entries):
            place = store.index.locate(journal.no, id)
            if place is None:
                store.check_absent([id], journal)
                raise NotFound("entry", id)
            found.setdefault(place >> 32, []).append(id)
    return found


def _check_whole(owner: Journal) -> None:
    """Corrupt if a line is damaged: found later, it would hide what had been erased by then."""
    with owner.mutex:
        owner.refresh_index()
        name, start, contents = owner.id.encode("utf-8"), owner.file.start, owner.contents()
        try:
            found = scan(name, contents[start:], start, 0, gaps=owner.header.purged)
            judge(name, contents[found.end :], found.end)
        except Damage as damage:
            told = Damage(damage.start, f"{damage.reason}; nothing was erased")
            raise owner.corrupt(told) from None


def _erase_in(
    store: OpenStore, owner: Journal, ids: Sequence[str], time_us: int, reason: str | None
) -> dict[str, Erased]:
    with owner.mutex:
        owner.refresh_index()
        purged = owner.header.purged
        if purged:
            found = _rewrite(store, owner, ids, time_us, None)
            if found.is_new:
                _put(store, owner, store.place.purged, found.data)
                owner.refresh_index(afresh=True)
        else:
            # One that is packed is unpacked first: what is erased must be in no other file.
            with awake(store, owner):
                remove_leftover(store, owner)
                owner.catch_up(exclusive=True)
                found = _rewrite(store, owner, ids, time_us, reason)
                if found.is_new:
                    _put(store, owner, store.place.threads, found.data)
                    remove_drafts(store, owner)
                    store.mark(owner.mark)
                    owner.catch_up(exclusive=True)
    if store.waiting:
        store.notify()
    return {id: to_erased(entry, recorded=not purged) for id, entry in found.entries.items()}


def _put(store: OpenStore, owner: Journal, folder: str, data: bytes) -> None:
    # First from the index: what it remembers and is not there counts as lost.
    store.index.forget(owner.no, file=False)
    wipe(store)
    put_file(store.disk, folder, os.path.basename(owner.path), data)
    owner.replaced()


def _rewrite(
    store: OpenStore, owner: Journal, ids: Sequence[str], time_us: int, reason: str | None
) -> _Rewritten:
    """The file line by line, with tombstones, and the facts that tell of them at its end."""
    header, name = owner.header, owner.id.encode("utf-8")
    lines = owner.contents().split(b"\n")[1:-1]
    wanted = set(ids)
    entries: dict[str, Entry] = {}
    marks = [b'"id":' + msgspec.json.encode(id) for id in ids]
    made: list[Entry] = []
    for n, text in enumerate(lines):
        # A line that is not looked at is copied as it is: a look at each would take long.
        if not any(mark in text for mark in marks):
            continue
        line = parse(name, text, owner.path)
        if line.type != "entry" or line.id not in wanted:
            continue
        entry = line.record(owner.id, _body(store, line))
        assert isinstance(entry, Entry)
        if entry.tombstone is None:
            entry = tombstoned(entry, time_us, line.body_size)
            made.append(entry)
            lines[n] = record_line(name, entry, left=line.left, of=line.of)[:-1]
        entries[line.id] = entry
    missing = wanted - entries.keys()
    if missing:
        raise Untrue(owner.path, f"entry {min(missing)!r} is not in it")
    facts = [] if header.purged else plan_erasure(owner.head, made, reason).new
    of = len(facts)
    told = [
        record_line(name, fact, left=of - n, of=of)[:-1] for n, fact in enumerate(facts, start=1)
    ]
    first = header_line(replace(header, version=ERASED_VERSION))[:-1]
    return _Rewritten(b"\n".join([first, *lines, *told, b""]), entries, bool(made))


def _body(store: OpenStore, line: Line) -> bytes | None:
    """A large body; nothing if it is missing or damaged, which must not keep it from going."""
    if line.spilled is None:
        return b"" if line.lacks_body else None
    try:
        return store.blobs.get(line.spilled)
    except ClewError:
        return b""


def _clear_up(store: OpenStore, done: Iterable[Erased]) -> None:
    """Blobs of bodies, and ends of files that were torn and set aside."""
    for erased in done:
        remove_cuts(store, erased.thread)
        # Also for what was erased before: a process may have died before it came to this.
        if erased.size_bytes > SPILL_BYTES:
            remove_unused(store, [erased.body_hash])
    wipe(store, always=True)
