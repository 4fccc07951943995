"""Taking a snapshot: of a whole tree, or of the paths that a restore is about to touch.

What it counts on being stored already, by an earlier snapshot, is asked for again when it is
written; if a sweep has taken it meanwhile, all of it is stored anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from clew.address import cache_folder
from clew.core import drafts
from clew.core.codec import digest, new_id
from clew.core.engine import Engine
from clew.core.errors import ClewError, Corrupt, InvalidInput, NotFound, Unsupported
from clew.core.model import DEFAULT_NAMESPACE, Draft, Properties, ThreadInfo
from clew.snapshots import catalogue
from clew.snapshots import intent as intents
from clew.snapshots.hash_files import BATCH_BYTES, Progress, survey
from clew.snapshots.ignore import Rules
from clew.snapshots.manifest import sort_key
from clew.snapshots.model import Snapshot
from clew.snapshots.plan import Selection
from clew.snapshots.scan import Survey
from clew.snapshots.scan_paths import Base, survey_part
from clew.snapshots.stat_cache import ENDING, Cache, Known

if TYPE_CHECKING:
    from clew.store import Store
    from clew.thread import Thread


_TRIES = 3
_REMEMBERED_MAX = 256  # folders: a whole new tree would only be in the way


class Taking:
    """One snapshot of a folder, from the look at it to the append."""

    def __init__(
        self,
        thread: Thread,
        root: str | os.PathLike[str],
        *,
        at: str | None = None,
        label: str | None = None,
        rules: Rules | None = None,
        fence: int | None = None,
        also: Also | None = None,
        info: ThreadInfo | None = None,
    ) -> None:
        self._thread = thread
        self._engine = thread.store.engine
        self._info = info or thread.info
        self._is_current = True  # until somebody else was seen to have written
        self._top = os.path.realpath(root)
        self._rules = rules_for(thread, self._top, rules, self._info)
        self._at = at
        self._label = label
        self._fence = fence
        self._also = also or nothing_more
        self._cache = cache_of(thread.store, self._top)

    def whole(self, progress: Progress | None = None) -> Snapshot:
        """Of all that is in the folder."""
        for _ in range(_TRIES):
            taken = self._whole(progress)
            if taken is not None:
                return taken
        raise Corrupt(self._top, "what was stored of it was removed again and again")

    def part(self, selection: Selection) -> Snapshot:
        """Of some paths only; the rest is as the newest snapshot of this folder has it.

        Without one, or if it is damaged or goes away meanwhile, it is of the whole folder.
        """
        base = None if selection.paths is None else self._base()
        taken = None if base is None else self._part(selection, base)
        return self.whole() if taken is None else taken

    # --- the two ways ---

    def _whole(self, progress: Progress | None) -> Snapshot | None:
        cache = self._cache
        known = cache.load(self._top)
        base = known.base if self._is_kept(known.base) else None
        taker = Taker(self._engine)
        found = taker.take(self._top, self._rules, None if base is None else known, progress)
        at = _latest_message(self._thread) if self._at is None else self._at
        snapshot = self._append(found, taker, at)
        self._remember(found)
        if found.read or found.tree != _tree_of(known):
            cache.save(found.known((self._thread.id, snapshot.id)))
        return self._checked(snapshot, taker, [] if base is None else [base])

    def _part(self, selection: Selection, base: Snapshot) -> Snapshot | None:
        bases = [(base.thread, base.id)]
        taker = Taker(self._engine)

        def known() -> Known:
            found = self._cache.load(self._top)
            if not self._is_kept(found.base):
                return Known(root=self._top)
            assert found.base is not None
            bases.append(found.base)
            return found

        trees = self._thread.snapshots.trees
        told = Base(trees, base.tree, base.files, base.left_out)
        try:
            found = survey_part(self._top, self._rules, selection, told, known, taker.keep)
        except (Corrupt, Unsupported):
            return None  # the base is no tree that one could count on
        taker.finish(found)
        snapshot = self._append(found, taker, base.at, selection.paths)
        return self._checked(snapshot, taker, bases)

    def _base(self) -> Snapshot | None:
        """The newest snapshot of this folder; after a way back to another one that one."""
        own = catalogue.newest_first(self._engine, self._info)
        newest = next((snapshot for snapshot in own if snapshot.root == self._top), None)
        if newest is None:
            return None
        last = intents.last(self._info)
        files = None if last is None else last.files
        if files is not None and files.before == newest.id and files.paths is None:
            try:
                return catalogue.get(self._engine, self._info, files.snapshot)
            except NotFound:
                pass  # it was dropped since
        return catalogue.named(self._engine, self._info, newest)

    def _remember(self, found: Survey) -> None:
        """A way back asks first for what was stored last."""
        new = [folder for folder in found.all_folders() if folder.data]
        if len(new) <= _REMEMBERED_MAX:
            for folder in new:
                nodes = sorted(folder.nodes, key=lambda node: sort_key(node.name))
                self._thread.snapshots.trees.remember(folder.manifest, nodes)

    def _checked(
        self, snapshot: Snapshot, taker: Taker, bases: list[tuple[str, str]]
    ) -> Snapshot | None:
        """None if what we relied on may have been swept since we looked: it is stored anew."""
        relied_on = taker.relied_on
        try:
            kept = all(self._is_kept(base) for base in bases)
            if kept and (not relied_on or self._engine.has_blobs(relied_on) >= relied_on):
                return snapshot
            self._cache.save(Known(root=self._top))
            self._thread.snapshots.drop(snapshot.id)
        except ClewError as error:
            error.committed = True  # it is written, though nobody knows if it is whole
            raise
        return None

    def _is_kept(self, base: tuple[str, str] | None) -> bool:
        """Whether a snapshot, perhaps of another thread, still keeps all that it stored."""
        if base is None:
            return False
        thread, id = base
        try:
            known = self._is_current and thread == self._info.id
            info = self._info if known else self._engine.thread(thread)
            return catalogue.PREFIX + id in info.fact_data
        except NotFound:
            return False

    # --- writing it down ---

    def _append(
        self, found: Survey, taker: Taker, at: str | None, paths: tuple[str, ...] | None = None
    ) -> Snapshot:
        left_out = found.left_out
        told = replace(self._rules, store=frozenset())
        snapshot = Snapshot(
            id=new_id(),
            thread=self._thread.id,
            at=at,
            tree=found.tree,
            root=found.root,
            time_us=self._thread.store.clock(),
            files=found.files,
            size_bytes=found.size,
            new_bytes=taker.new_bytes,
            left_out=tuple(left_out[: catalogue.LEFT_OUT_MAX]),
            left_out_count=len(left_out),
            label=self._label,
            rules=None if told == Rules() else told,
            paths=paths,
        )
        body = catalogue.body_of(snapshot)
        entry = drafts.draft("snapshot", body, id=snapshot.id, time=snapshot.time)
        facts = {catalogue.PREFIX + snapshot.id: catalogue.fact_of(snapshot)}
        more = self._also(found, snapshot)
        batch = [entry, *drafts.facts(facts, snapshot.time_us), *more.drafts]
        done = self._engine.append(self._thread.id, batch, expect=more.expect, fence=self._fence)
        self._is_current = done[0].seq == self._info.seq + 1
        return snapshot


# --- what is not a snapshot yet ---


def look(
    thread: Thread,
    root: str | os.PathLike[str],
    rules: Rules | None = None,
    selection: Selection | None = None,
) -> Survey:
    """How a folder, or a part of it, looks now; nothing is stored."""
    top = os.path.realpath(root)
    rules = rules_for(thread, top, rules)
    cache = cache_of(thread.store, top)
    if selection is None or selection.paths is None:
        return survey(top, rules, cache.load(top))
    base = Base(thread.snapshots.trees)
    return survey_part(top, rules, selection, base, lambda: cache.load(top))


def rules_for(
    thread: Thread, top: str, rules: Rules | None = None, info: ThreadInfo | None = None
) -> Rules:
    """As given, or those of the last snapshot. A store inside of the tree is no part of it."""
    store = own_files(thread.store.properties, top)
    return replace(rules or usual_rules(thread, info), store=store)


def usual_rules(thread: Thread, info: ThreadInfo | None = None) -> Rules:
    """What a snapshot leaves out unless it is told otherwise: what the last one did."""
    last = catalogue.newest(thread.store.engine, info or thread.info)
    return Rules() if last is None or last.rules is None else last.rules


def _latest_message(thread: Thread) -> str | None:
    """The last user message on the path, looked for from its end."""
    for limit in (32, 1000, None):
        path = thread.path(limit=limit)
        for entry in reversed(path):
            if entry.kind == "user_message":
                return entry.id
        if limit is None or len(path) < limit:
            break
    return None


# --- where things are ---


def cache_of(store: Store, root: str) -> Cache:
    caches: dict[str, Cache] = store.snapshot_caches
    if root not in caches:
        folder = _cache_folder(store.properties)
        name = digest(os.fsencode(_cache_key(store.properties, root)))[3:35] + ENDING
        caches[root] = Cache(None if folder is None else folder / name)
    return caches[root]


def _cache_key(properties: Properties, root: str) -> str:
    """What one namespace, or one server, has stored, another one has not."""
    own, place = properties.namespace, properties.place
    key = root if own == DEFAULT_NAMESPACE else f"{root}\0{own}"
    return f"{key}\0{place}" if properties.cache_folder is None else key


def own_files(properties: Properties, top: str) -> frozenset[str]:
    """The paths in a tree that the store itself is made of."""
    paths = [os.path.relpath(path, top) for path in properties.own_files]
    if any(set(path.split("/")) <= {".", ".."} for path in paths):
        raise InvalidInput("root", f"{top} is part of the store itself")
    return frozenset(path for path in paths if not path.startswith("../"))


def _tree_of(known: Known) -> str | None:
    top = known.folders.get("")
    return None if top is None else top.manifest


def _cache_folder(properties: Properties) -> Path | None:
    """With the store, if that is on this machine: the cache is about files that are.

    None where a cache would be of no use: a store that only this process sees ends with it.
    """
    if properties.cache_folder is not None:
        return Path(properties.cache_folder)
    caches = cache_folder() if properties.processes else None
    return None if caches is None else caches / "snapshots"


# --- storing a tree: new files and new manifests, in batches, before the entry ---

_BATCH_MAX = 1000


class More(Struct, frozen=True):
    """What is written with a snapshot, as one step, and the leaf that it counts on."""

    drafts: Sequence[Draft] = ()
    expect: str | UnsetType | None = UNSET


Also = Callable[[Survey, Snapshot], More]


def nothing_more(found: Survey, snapshot: Snapshot) -> More:
    return More()


class Taker:
    """Puts what a store lacks into it, many files at a time, and counts it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._waiting: dict[str, bytes] = {}
        self._waiting_bytes = 0
        self.new_bytes = 0
        self.relied_on: set[str] = set()  # blobs that were there already

    def take(
        self, root: str, rules: Rules, known: Known | None, progress: Progress | None = None
    ) -> Survey:
        found = survey(root, rules, known, self.keep, progress)
        self.finish(found)
        return found

    def finish(self, found: Survey) -> None:
        """The manifests, after all that they name."""
        fresh = [(folder.manifest, folder.data) for folder in found.all_folders() if folder.data]
        if fresh:
            self.keep(fresh)
        self._put(self._drain(0, 0))

    def keep(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        """Remember bytes to be stored; whoever finds enough of them waiting stores them."""
        there = self._engine.has_blobs([hash for hash, _ in blobs])
        with self._mutex:
            self.relied_on |= there
            for hash, data in blobs:
                if hash not in there and hash not in self._waiting:
                    self._waiting[hash] = data
                    self._waiting_bytes += len(data)
        self._put(self._drain(BATCH_BYTES, _BATCH_MAX))

    def _drain(self, size: int, count: int) -> list[bytes]:
        with self._mutex:
            if self._waiting_bytes <= size and len(self._waiting) <= count:
                return []
            batch, self._waiting = list(self._waiting.values()), {}
            self.new_bytes += self._waiting_bytes
            self._waiting_bytes = 0
            return batch

    def _put(self, batch: list[bytes]) -> None:
        for at in range(0, len(batch), _BATCH_MAX):
            self._engine.put_blobs(batch[at : at + _BATCH_MAX])
