"""Which snapshots a thread has: each one a fact beside its entry, so that listing reads no log.

The entry tells all about a snapshot, for ever; the fact says that it is still kept. A fork sees
those on the path that it shares, by the facts of the thread that it was forked from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from clew.core.codec import decode
from clew.core.errors import ClewError, Corrupt, NotFound
from clew.core.model import Entry, ThreadInfo, fact_keys
from clew.snapshots.model import LeftOut, Reason, Snapshot
from clew.snapshots.tree import Trees

if TYPE_CHECKING:
    from clew.core.engine import Engine
    from clew.store import Store

PREFIX = "snapshot."  # of the facts, one for each snapshot that is kept
LEFT_OUT_MAX = 1000  # names that are told one by one; the rest is counted
_SHORT = ("tree", "at", "root", "files", "size_bytes", "new_bytes", "left_out_count", "label")


def body_of(snapshot: Snapshot) -> dict[str, Any]:
    """What a snapshot's entry says."""
    left_out = [[item.path, item.reason, item.size] for item in snapshot.left_out[:LEFT_OUT_MAX]]
    return {**_short(snapshot), "left_out": left_out}


def fact_of(snapshot: Snapshot) -> dict[str, Any]:
    """What its fact says: all but the names of what was left out."""
    return {**_short(snapshot), "time_us": snapshot.time_us, "pinned": snapshot.pinned}


def _short(snapshot: Snapshot) -> dict[str, Any]:
    short = {name: getattr(snapshot, name) for name in _SHORT}
    if snapshot.rules is not None:
        short["rules"] = msgspec.to_builtins(snapshot.rules, order="deterministic")
    if snapshot.paths is not None:
        short["paths"] = list(snapshot.paths)
    return short


def from_entry(entry: Entry) -> Snapshot:
    """The snapshot that an entry tells of. Corrupt if it tells of none."""
    place, body = f"entry {entry.id}", entry.body
    if not is_snapshot(entry):
        raise Corrupt(place, "it is not the entry of a snapshot")
    names = (*_SHORT, "rules", "paths")
    fields = {name: body[name] for name in names if name in body} | {"time_us": entry.time_us}
    snapshot = _converted(entry.id, entry.thread, fields, place)
    try:
        rows = msgspec.convert(body.get("left_out"), list[tuple[str, Reason, int]])
    except ValueError as error:
        raise Corrupt(place, f"it does not tell what was left out: {error}") from error
    return replace(snapshot, left_out=tuple(LeftOut(*row) for row in rows))


def is_snapshot(entry: Entry) -> bool:
    """Whether an entry is one of ours; others may have written entries of that kind."""
    if entry.kind != "snapshot":  # before the body is looked at, which may be long, or damaged
        return False
    body = entry.body
    return isinstance(body, dict) and "tree" in body


def own(info: ThreadInfo) -> list[Snapshot]:
    """The snapshots that a thread took itself and still keeps."""
    return [kept(info, key) for key in keys(info)]


def keys(info: ThreadInfo) -> list[str]:
    """The keys of the facts of those."""
    return list(fact_keys(info, PREFIX))


def newest(engine: Engine, info: ThreadInfo) -> Snapshot | None:
    """The one that was taken last, without reading all of them: ids sort by time."""
    found = keys(info)
    # A thread's own come before those that it shares: it has been at work since it was forked.
    if not found:
        return next(iter(visible(engine, info)), None)
    return kept(info, max(found))


def newest_first(engine: Engine, info: ThreadInfo) -> Iterator[Snapshot]:
    """Those that can be seen, a thread's own before what it shares; read as far as one looks."""
    for key in sorted(keys(info), reverse=True):
        yield kept(info, key)
    yield from _inherited(engine, info)


def get(engine: Engine, info: ThreadInfo, id: str) -> Snapshot:
    """One that can be seen, with the names of what it left out. NotFound."""
    key = PREFIX + id
    if key in fact_keys(info, key):
        return named(engine, info, kept(info, key))
    for snapshot in _inherited(engine, info):
        if snapshot.id == id:
            return named(engine, info, snapshot)
    raise NotFound("snapshot", id)


def named(engine: Engine, info: ThreadInfo, snapshot: Snapshot) -> Snapshot:
    """The same with the names of what it left out: only its entry has them."""
    if not snapshot.left_out_count:
        return snapshot  # without reading the entry: mostly nothing is left out
    (entry,) = engine.path(info.id, snapshot.id, limit=1)
    return replace(from_entry(entry), pinned=snapshot.pinned)


def kept(info: ThreadInfo, key: str) -> Snapshot:
    """The snapshot that a fact of a thread tells of."""
    place = f"fact {key} of thread {info.id!r}"
    return _converted(key.removeprefix(PREFIX), info.id, decode(info.fact_data[key]), place)


def _converted(id: str, thread: str, fields: Any, place: str) -> Snapshot:
    try:
        snapshot = msgspec.convert({**fields, "id": id, "thread": thread}, Snapshot)
    except (TypeError, ValueError) as error:
        raise Corrupt(place, f"it does not tell of a snapshot: {error}") from error
    flaw = snapshot.flaw()
    if flaw is not None:
        raise Corrupt(place, f"it does not tell of a snapshot: {flaw}")
    return snapshot


def visible(engine: Engine, info: ThreadInfo) -> list[Snapshot]:
    """Those that can be seen in a thread, the newest first."""
    found = own(info) + list(_inherited(engine, info))
    return sorted(found, key=lambda snapshot: (snapshot.time_us, snapshot.id), reverse=True)


def _inherited(engine: Engine, info: ThreadInfo) -> Iterator[Snapshot]:
    origin = info.origin
    if origin is None or origin.entry is None:
        return
    begin = origin.entry  # a fork of a fork may share less than the fork did: this much
    seen: set[str] = set()
    while origin is not None and origin.entry is not None:
        try:
            (entry,) = engine.path(origin.thread, origin.entry, limit=1)
            source = engine.thread(origin.thread) if entry.hash == origin.hash else None
        except NotFound:
            source = None
        if source is None:
            # It was purged, and its facts with it: what is left of it is on the path itself.
            for entry in engine.path(info.id, begin):
                if is_snapshot(entry) and entry.thread not in seen:
                    yield from_entry(entry)
            return
        yield from (s for s in own(source) if is_on_path(engine, info.id, begin, s.id))
        seen.add(source.id)
        origin = source.origin


def is_on_path(engine: Engine, thread: str, leaf: str | None, id: str) -> bool:
    """Whether an entry lies on the path to a leaf."""
    if leaf == id:
        return True
    try:
        engine.path(thread, leaf, after=id, limit=1)
    except NotFound:
        return False
    return True


def wanted(store: Store, candidates: set[str]) -> set[str]:
    """Those of the blobs that a snapshot of any thread still needs."""
    if not candidates:
        return set()  # every thread would be looked at for nothing
    trees = Trees(store.engine)  # of its own: a whole store would push out what is in use
    found: set[str] = set()
    seen: set[str] = set()
    threads: set[str] = set()
    # A deleted thread can be restored, also while we look: then it is among the others again.
    for deleted in (False, True, False):
        for info in store.threads(archived=None, deleted=deleted):
            if info.id in threads:
                continue
            threads.add(info.id)
            todo = [snapshot.tree for snapshot in visible(store.engine, info)]
            while todo:
                manifest = todo.pop()
                if manifest in seen:
                    continue
                seen.add(manifest)
                found |= {manifest} & candidates
                try:
                    nodes = trees.nodes(manifest)
                except ClewError:
                    continue  # it is damaged, which verify tells; what cannot be read keeps nothing
                found |= {node.ref for node in nodes if not node.is_folder} & candidates
                todo += [node.ref for node in nodes if node.is_folder]
    return found
