"""Taking a snapshot: of a whole tree, or of the paths that a restore is about to touch.

It goes in two steps, between which a rewind makes its plan: `Taking.store` looks at the folder
and stores the contents that are new; `Taking.append` writes the snapshot down, in one append with
whatever belongs to it. What it counts on being stored already, by an earlier snapshot, is asked
for again afterwards; if a sweep has taken it meanwhile, all of it is stored anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from clew.address import cache_folder
from clew.core import drafts
from clew.core.codec import digest, new_id
from clew.core.engine import Engine, Progress
from clew.core.errors import ClewError, Corrupt, InvalidInput, NotFound, Unsupported
from clew.core.model import Draft, Properties, ThreadInfo
from clew.snapshots import catalogue
from clew.snapshots import intent as intents
from clew.snapshots.ignore import Rules
from clew.snapshots.manifest import ordered
from clew.snapshots.model import Snapshot
from clew.snapshots.plan import Selection
from clew.snapshots.point import is_meant
from clew.snapshots.scan import BATCH_BYTES, real_root, scan
from clew.snapshots.scan_paths import Base, scan_paths
from clew.snapshots.stat_cache import ENDING, Cache, cached
from clew.snapshots.survey import CachedTree, Survey
from clew.snapshots.tree import trees_of

if TYPE_CHECKING:
    from clew.store import Store
    from clew.thread import Thread


_RENEWED_MAX = 500
_TRIES = 3
_REMEMBERED_MAX = 256  # folders: a whole new tree would only be in the way
_BATCH_MAX = 1000  # blobs


class Stored(Struct, frozen=True):
    """A folder whose contents are in the store, and the snapshot of it, not written down yet."""

    survey: Survey
    snapshot: Snapshot
    relied_on: set[str]  # blobs that were there already
    bases: list[tuple[str, str]]  # snapshots that were counted on: thread and id
    is_news: bool = False  # whether the cache does not know it yet


class Taking:
    """One snapshot of a folder: `store` and `append`, until the latter says that it is whole."""

    def __init__(
        self,
        thread: Thread,
        root: str | os.PathLike[str],
        *,
        at: str | None = None,
        label: str | None = None,
        rules: Rules | None = None,
        info: ThreadInfo | None = None,
    ) -> None:
        self._thread = thread
        self._engine = thread.store.engine
        self._info = info or thread.info
        self._is_current = True  # until another writer was seen to have written
        self._top = real_root(root)
        self._rules = rules_for(thread, self._top, rules, self._info)
        self._at = at
        self._label = label
        self._cache = cache_of(thread.store, self._top)
        self._trees = trees_of(thread.store)
        self._tries = 0
        self._trusts_base = True

    def take(
        self,
        selection: Selection | None = None,
        *,
        fence: int | None = None,
        progress: Progress | None = None,
    ) -> Snapshot:
        """Both steps, for a caller who has nothing to do between them."""
        while True:
            stored = self.store(selection, progress)
            if self.append(stored, fence=fence):
                return stored.snapshot

    def take_if_changed(
        self, *, fence: int | None = None, progress: Progress | None = None
    ) -> Snapshot:
        """The same; but the last snapshot on the path, if the folder is still as in that."""
        while True:
            stored = self.store(None, progress)
            same = self._same(stored.snapshot)
            if same is not None:
                if stored.is_news:  # files that were touched: they need not be read once more
                    self._cache.save(cached(stored.survey, (same.thread, same.id)))
                return same
            if self.append(stored, fence=fence):
                return stored.snapshot

    def store(self, selection: Selection | None = None, progress: Progress | None = None) -> Stored:
        """Look at the folder, and store what is new in it. Nothing is appended yet.

        With a selection only its paths are looked at, and the rest is as the newest snapshot of
        this folder has it. Without one, or if it is damaged or goes away meanwhile, all of the
        folder is.
        """
        if selection is not None and selection.paths is not None and self._trusts_base:
            self._trusts_base = False  # if this one is not whole, the next does without
            base = self._base()
            part = None if base is None else self._store_paths(selection, base)
            if part is not None:
                return part
        if self._tries == _TRIES:
            raise Corrupt(self._top, "what was stored of it was removed again and again")
        self._tries += 1
        return self._store_all(progress)

    def append(
        self,
        stored: Stored,
        more: Sequence[Draft] = (),
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> bool:
        """Write the snapshot down, with `more` in the same append.

        False if something that it relies on may have been swept since it was stored: then there
        is no snapshot, and it is to be stored again.
        """
        snapshot = stored.snapshot
        # The entry tells of it for ever, the fact keeps it: one append, for neither goes alone.
        body = catalogue.body_of(snapshot)
        entry = drafts.draft("snapshot", body, id=snapshot.id, time=snapshot.time)
        facts = {catalogue.PREFIX + snapshot.id: catalogue.fact_of(snapshot)}
        batch = [entry, *drafts.facts(facts, snapshot.time_us), *more]
        done = self._thread.write(batch, expect=expect, fence=fence)
        self._is_current = done[0].seq == self._info.seq + 1
        # A cache of some paths would make the next take believe that it knows the rest.
        if snapshot.paths is None:
            new = stored.survey.new_folders()
            if len(new) <= _REMEMBERED_MAX:
                for folder in new:  # a rewind asks first for what was stored last
                    self._trees.remember(folder.manifest, ordered(folder.nodes))
            if stored.is_news:
                self._cache.save(cached(stored.survey, (self._thread.id, snapshot.id)))
        try:
            # Only now is it safe from a sweep: what is still there stays. A sweep that is under way
            # may have asked before there was this snapshot; it leaves what was renewed.
            if all(map(self._is_kept, stored.bases)) and self._renew(stored.relied_on):
                return True
            self._cache.save(CachedTree(root=self._top))
            self._thread.set_facts({catalogue.PREFIX + snapshot.id: None})
        except ClewError as error:
            error.committed = True  # it is written, though we cannot tell if it is whole
            raise
        return False

    def _renew(self, relied_on: set[str]) -> bool:
        """Whether blobs that were there already are there still; a few at a time, for writers."""
        hashes = sorted(relied_on)
        for at in range(0, len(hashes), _RENEWED_MAX):
            some = hashes[at : at + _RENEWED_MAX]
            if len(self._engine.renew_blobs(some)) < len(some):
                return False
        return True

    # --- storing ---

    def _store_all(self, progress: Progress | None) -> Stored:
        before = self._cache.load(self._top)
        bases = [before.base] if before.base and self._is_kept(before.base) else []
        blobs = _BlobQueue(self._engine)
        known = before if bases else None  # without its base, nothing says that it is stored
        found = scan(self._top, self._rules, known, blobs.keep, progress)
        blobs.finish(found)
        at = _latest_message(self._thread) if self._at is None else self._at
        snapshot = self._snapshot(found, blobs, at)
        top = before.folders.get("")
        is_news = bool(found.read) or top is None or found.tree != top.manifest
        return Stored(found, snapshot, blobs.relied_on, bases, is_news)

    def _store_paths(self, selection: Selection, base: Snapshot) -> Stored | None:
        bases = [(base.thread, base.id)]
        blobs = _BlobQueue(self._engine)

        def known() -> CachedTree:
            found = self._cache.load(self._top)
            if found.base is None or not self._is_kept(found.base):
                return CachedTree(root=self._top)
            bases.append(found.base)
            return found

        told = Base(self._trees, base.tree, base.files, base.left_out)
        try:
            found = scan_paths(self._top, self._rules, selection, told, known, blobs.keep)
        except (Corrupt, Unsupported):
            return None  # the base is no tree that one could count on
        blobs.finish(found)
        snapshot = self._snapshot(found, blobs, base.at, selection.paths)
        return Stored(found, snapshot, blobs.relied_on, bases)

    def _same(self, new: Snapshot) -> Snapshot | None:
        """The last snapshot of this folder, if it shows the same and lies on the path."""
        own = catalogue.newest_first(self._engine, self._info)
        last = next((one for one in own if one.root == self._top and is_meant(one)), None)
        if last is None or (last.tree, last.rules) != (new.tree, new.rules):
            return None
        # Behind a rewind, or in another thread's branch, a fork of this one would not find it.
        if not catalogue.is_on_path(self._engine, self._info.id, self._info.leaf, last.id):
            return None
        last = catalogue.named(self._engine, self._info, last)
        same = (last.left_out, last.left_out_count) == (new.left_out, new.left_out_count)
        return last if same else None

    def _base(self) -> Snapshot | None:
        """The newest snapshot of this folder; after a rewind to another one, that one."""
        own = catalogue.newest_first(self._engine, self._info)
        newest = next((snapshot for snapshot in own if snapshot.root == self._top), None)
        if newest is None:
            return None
        last = intents.last(self._info)
        files = None if last is None else last.files
        # The newest one is then how it was before the rewind, and nearly nothing is as in it.
        if files is not None and files.before == newest.id and files.paths is None:
            try:
                return catalogue.get(self._engine, self._info, files.snapshot)
            except NotFound:
                pass  # it was dropped since
        return catalogue.named(self._engine, self._info, newest)

    def _snapshot(
        self, found: Survey, blobs: _BlobQueue, at: str | None, paths: tuple[str, ...] | None = None
    ) -> Snapshot:
        left_out = found.left_out
        # Where the store lies is not for others to know, and is found out anew each time.
        rules = replace(self._rules, store=frozenset())
        return Snapshot(
            id=new_id(),
            thread=self._thread.id,
            at=at,
            tree=found.top.manifest,
            root=found.root,
            time_us=self._thread.store.clock(),
            files=found.files,
            size_bytes=found.top.size,
            new_bytes=blobs.new_bytes,
            left_out=tuple(left_out[: catalogue.LEFT_OUT_MAX]),
            left_out_count=len(left_out),
            label=self._label,
            rules=None if rules == Rules() else rules,
            paths=paths,
        )

    def _is_kept(self, base: tuple[str, str]) -> bool:
        """Whether a snapshot, perhaps of another thread, still keeps all that it stored."""
        thread, id = base
        try:
            known = self._is_current and thread == self._info.id
            info = self._info if known else self._engine.thread(thread)
            return catalogue.PREFIX + id in info.fact_data
        except NotFound:
            return False


class _BlobQueue:
    """Puts what a store lacks into it, many blobs at a time, and counts it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._waiting: dict[str, bytes] = {}
        self._waiting_bytes = 0
        self.new_bytes = 0
        self.relied_on: set[str] = set()  # blobs that were there already

    def keep(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        """Remember bytes to be stored; the thread that finds enough of them waiting stores them."""
        with self._mutex:
            for hash, data in blobs:
                if hash not in self._waiting:
                    self._waiting[hash] = data
                    self._waiting_bytes += len(data)
            if self._waiting_bytes <= BATCH_BYTES and len(self._waiting) <= _BATCH_MAX:
                return
            batch, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        self._put(batch)

    def finish(self, found: Survey) -> None:
        """Store what waits still, and the manifests after all that they name."""
        manifests = {folder.manifest: folder.data for folder in found.new_folders()}
        if self._waiting or manifests:
            self._put(self._waiting | manifests)

    def _put(self, blobs: dict[str, bytes]) -> None:
        # To ask is cheap; to compress and send what is there already is not.
        there = self._engine.has_blobs(blobs)
        new = [data for hash, data in blobs.items() if hash not in there]
        for at in range(0, len(new), _BATCH_MAX):
            self._engine.put_blobs(new[at : at + _BATCH_MAX])
        with self._mutex:
            self.relied_on |= there
            self.new_bytes += sum(map(len, new))


def look(
    thread: Thread,
    root: str | os.PathLike[str],
    rules: Rules | None = None,
    selection: Selection | None = None,
) -> Survey:
    """How a folder, or a part of it, looks now; nothing is stored."""
    top = real_root(root)
    rules = rules_for(thread, top, rules)
    cache = cache_of(thread.store, top)
    if selection is None or selection.paths is None:
        return scan(top, rules, cache.load(top))
    base = Base(trees_of(thread.store))
    return scan_paths(top, rules, selection, base, lambda: cache.load(top))


def rules_for(
    thread: Thread, top: str, rules: Rules | None = None, info: ThreadInfo | None = None
) -> Rules:
    """As given, or those of the last snapshot. A store inside of the tree is no part of it."""
    store = own_files(thread.store.properties, top)
    return replace(rules or usual_rules(thread, info), store=store)


def usual_rules(thread: Thread, info: ThreadInfo | None = None) -> Rules:
    """The rules of the last snapshot: what a snapshot leaves out unless the caller says more."""
    last = catalogue.newest(thread.store.engine, info or thread.info)
    return Rules() if last is None or last.rules is None else last.rules


def _latest_message(thread: Thread) -> str | None:
    """The last user message on the path, looked for from its end: most are near."""
    for limit in (32, 1000, None):
        path = thread.path(limit=limit)
        for entry in reversed(path):
            if entry.kind == "user_message":
                return entry.id
        if limit is None or len(path) < limit:
            break
    return None


def cache_of(store: Store, root: str) -> Cache:
    """In the user's own cache folder: what comes with a store may come from a stranger.

    A store that only this process sees ends with it, so a file would be of no use there.
    """
    caches: dict[str, Cache] = store.snapshot_caches
    if root not in caches:
        properties = store.properties
        folder = cache_folder() if properties.processes else None
        # What one store, or one namespace of it, has stored, another one has not.
        key = "\0".join([root, properties.namespace, properties.place])
        name = digest(os.fsencode(key))[3:35] + ENDING
        caches[root] = Cache(None if folder is None else folder / "snapshots" / name)
    return caches[root]


def forget_caches(store: Store, info: ThreadInfo) -> None:
    """Remove what is remembered of trees that a thread, which is purged now, has stored."""
    roots = set()
    for key in catalogue.keys(info):
        with suppress(Corrupt):  # one that cannot be read has left nothing in a cache
            roots.add(catalogue.kept(info, key).root)
    for root in roots:
        cache_of(store, root).forget(root, info.id)


def forget_dropped(store: Store, dropped: Iterable[Snapshot]) -> None:
    """Remove what is remembered of trees as snapshots stored them that are not kept any more.

    Nothing can count on it. And with the fact of a snapshot goes what leads to it: the purge of the
    thread would not find it.
    """
    for snapshot in dropped:
        cache_of(store, snapshot.root).forget(snapshot.root, snapshot.thread, snapshot.id)


def own_files(properties: Properties, top: str) -> frozenset[str]:
    """The paths in a tree that the store itself is made of."""
    paths = [os.path.relpath(path, top) for path in properties.own_files]
    if any(set(path.split("/")) <= {".", ".."} for path in paths):
        raise InvalidInput("root", f"{top} is part of the store itself")
    return frozenset(path for path in paths if not path.startswith("../"))
