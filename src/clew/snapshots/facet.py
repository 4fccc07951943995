"""`thread.snapshots`: trees of files, pinned to entries of a thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clew import drafts
from clew.checks import check_name
from clew.codec import digest, new_id
from clew.errors import Corrupt, InvalidInput, NotFound
from clew.model import Properties
from clew.snapshots import catalogue, looking, quota
from clew.snapshots.cache import Cache, Known
from clew.snapshots.contents import Progress, survey
from clew.snapshots.diff import below, diff_trees
from clew.snapshots.ignore import Rules
from clew.snapshots.manifest import Node
from clew.snapshots.model import (
    Difference,
    Restored,
    Rewound,
    Snapshot,
    SnapshotStats,
    Version,
)
from clew.snapshots.take import Also, Taker, nothing_more
from clew.snapshots.tree import Trees
from clew.snapshots.unified import unified
from clew.snapshots.walk import Survey
from clew.snapshots.working import WorkingTrees

if TYPE_CHECKING:
    from clew.thread import Thread

List = list[Snapshot]
Files = list[tuple[str, Node]]
Differences = list[Difference]
Versions = list[Version]
_TRIES = 3
_ENDINGS = {
    "sqlite": ("", "-wal", "-shm", "-lock", "-journal", "-snapshots"),
    "files": ("",),
}


class Snapshots:
    """The snapshots of one thread. Cheap to make, holds no state but the thread."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._engine = thread.store.engine
        self.trees: Trees = thread.store.snapshot_caches.setdefault("", Trees(self._engine))

    # --- taking ---

    def take(
        self,
        root: str | os.PathLike[str],
        *,
        at: str | None = None,
        label: str | None = None,
        rules: Rules | None = None,
        fence: int | None = None,
        progress: Progress | None = None,
        also: Also | None = None,
    ) -> Snapshot:
        """Store the tree of files under `root` as it is now, pinned to a user message.

        `at` is the message's id; without it, the latest on the path. What has not changed since
        the last snapshot is neither read nor stored again. What was left out, and why, is in
        the snapshot. `rules` say what does not belong into it; later ones, and a rewind, go by them
        as well. `also` may add to what is written of it, or raise so that nothing is.
        """
        top = os.path.realpath(root)
        rules = self._rules_for(top, rules)
        at = self._latest_message() if at is None else self._thread.get(check_name(at, "at")).id
        for _ in range(_TRIES):
            taken = self._take_once(top, rules, at, label, fence, progress, also)
            if taken is not None:
                return taken
        raise Corrupt(top, "what was stored of it was removed again and again")

    def _take_once(
        self,
        top: str,
        rules: Rules,
        at: str | None,
        label: str | None,
        fence: int | None,
        progress: Progress | None,
        also: Also | None,
    ) -> Snapshot | None:
        cache = self._cache(top)
        known = cache.load(top)
        base = known.base if self._is_kept(known.base) else None
        taker = Taker(self._engine)
        found = taker.take(top, rules, None if base is None else known, progress)
        snapshot = self._append(found, taker, rules, at, label, fence, also or nothing_more)
        if found.read or found.tree != _tree_of(known):
            cache.save(found.known((self._thread.id, snapshot.id)))
        # What we relied on may have been swept since we looked; then all of it is stored anew.
        if (base is not None and not self._is_kept(base)) or not self._has(taker.relied_on):
            cache.save(Known(root=top))
            self.drop(snapshot.id)
            return None
        return snapshot

    def _append(
        self,
        found: Survey,
        taker: Taker,
        rules: Rules,
        at: str | None,
        label: str | None,
        fence: int | None,
        also: Also,
    ) -> Snapshot:
        left_out = found.left_out
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
            label=label,
            rules=None if (told := replace(rules, store=frozenset())) == Rules() else told,
        )
        entry = drafts.draft(
            "snapshot",
            catalogue.body_of(snapshot),
            id=snapshot.id,
            time=snapshot.time,
        )
        facts = {catalogue.PREFIX + snapshot.id: catalogue.fact_of(snapshot)}
        noted = drafts.facts(facts, snapshot.time_us)
        more = also(found, snapshot)
        batch = [entry, *noted, *more.drafts]
        self._engine.append(self._thread.id, batch, expect=more.expect, fence=fence)
        return snapshot

    def _latest_message(self) -> str | None:
        """The last user message on the path, looked for from its end."""
        for limit in (32, 1000, None):
            path = self._thread.path(limit=limit)
            for entry in reversed(path):
                if entry.kind == "user_message":
                    return entry.id
            if limit is None or len(path) < limit:
                break
        return None

    def _is_kept(self, base: tuple[str, str] | None) -> bool:
        """Whether a snapshot, perhaps of another thread, still keeps all that it stored."""
        if base is None:
            return False
        try:
            return catalogue.PREFIX + base[1] in self._engine.thread(base[0]).fact_data
        except NotFound:
            return False

    def _has(self, hashes: set[str]) -> bool:
        return self._engine.has_blobs(hashes) >= hashes

    def rules(self) -> Rules:
        """What a snapshot leaves out unless it is told otherwise: what the last one did."""
        last = catalogue.newest(self._engine, self._thread.info)
        return Rules() if last is None or last.rules is None else last.rules

    def survey(self, root: str | os.PathLike[str], rules: Rules | None = None) -> Survey:
        """How the tree under `root` looks now; nothing is stored."""
        top = os.path.realpath(root)
        return survey(top, self._rules_for(top, rules), self._cache(top).load(top))

    def _rules_for(self, top: str, rules: Rules | None) -> Rules:
        """A store inside of the tree must not become part of it: it would be in its own way."""
        return replace(rules or self.rules(), store=own_files(self._engine.properties, top))

    def _cache(self, root: str) -> Cache:
        caches: dict[str, Cache] = self._thread.store.snapshot_caches
        if root not in caches:
            folder = _cache_folder(self._thread.store.properties)
            name = digest(os.fsencode(root))[3:35] + ".cache"
            caches[root] = Cache(None if folder is None else folder / name)
        return caches[root]

    # --- looking ---

    def list(self) -> List:
        """Those that can be seen in this thread, the newest first; also what a fork shares."""
        return catalogue.visible(self._engine, self._thread.info)

    def get(self, id: str) -> Snapshot:
        """The snapshot with this id, with the names of what it left out. NotFound."""
        check_name(id, "id")
        for snapshot in self.list():
            if snapshot.id == id:
                told = catalogue.from_entry(self._thread.get(id))
                return replace(told, pinned=snapshot.pinned)
        raise NotFound("snapshot", id)

    def latest(self, at: str | None = None) -> Snapshot | None:
        """The newest one, or the newest that is pinned to a user message."""
        found = [snapshot for snapshot in self.list() if at in (None, snapshot.at)]
        return found[0] if found else None

    def files(self, snapshot: Snapshot | str) -> Files:
        """Every file and link of a snapshot: its path and its node, in the order of paths."""
        return looking.files(self.trees, self._found(snapshot).tree)

    def read(self, snapshot: Snapshot | str, path: str) -> bytes:
        """The bytes of one file, checked against their hash. NotFound, InvalidInput, Corrupt."""
        return looking.read(self.trees, self._found(snapshot), path)

    def diff(
        self,
        a: Snapshot | str,
        b: Snapshot | str | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
    ) -> Differences:
        """What became of each path from one snapshot to another, or to the files as they are now.

        Without `b` the working tree under `root` (default: where `a` was taken) is looked at.
        """
        return self._compare(a, b, root)[1]

    def unified(
        self,
        a: Snapshot | str,
        b: Snapshot | str | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        path: str | None = None,
    ) -> str:
        """The same as text: unified diffs. Binary and large files are named only.

        `path` limits it to one file, or to what lies in one folder.
        """
        trees, found = self._compare(a, b, root)
        wanted = found if path is None else below(found, looking.check_path(path))
        return unified(trees, wanted)

    def _compare(
        self,
        a: Snapshot | str,
        b: Snapshot | str | None,
        root: str | os.PathLike[str] | None,
    ) -> tuple[Trees, Differences]:
        old = self._found(a)
        if b is not None:
            if root is not None:
                raise InvalidInput("root", "give either a second snapshot or a root, not both")
            return self.trees, diff_trees(self.trees, old.tree, self._found(b).tree)
        survey = self.survey(old.root if root is None else root, old.rules or Rules())
        trees = WorkingTrees(self._engine, survey)
        return trees, looking.diff_working(trees, old.tree, survey)

    def _found(self, snapshot: Snapshot | str) -> Snapshot:
        return self.get(snapshot if isinstance(snapshot, str) else snapshot.id)

    def history(self, path: str, *, root: str | os.PathLike[str] | None = None) -> Versions:
        """Every version of one file (or folder) in this thread's snapshots, in order of time.

        A version tells the entry that produced it, as far as one can tell from what was said
        between this snapshot and the one before it: the last call of a tool that names the file;
        else the last call of any tool; else the last answer; else the last message. It is None
        for what was there before, or came back by a rewind. `ref` is None where the file is
        gone. `root` says whose snapshots, if there are some of several folders; by default
        those of the folder that was snapshotted last.
        """
        return looking.history(self._thread, path, None if root is None else os.path.realpath(root))

    def stats(self) -> SnapshotStats:
        """How many there are, of how many files, and how much is stored for them."""
        return quota.stats(self.trees, self.list())

    # --- going back ---

    def restore(
        self,
        snapshot: Snapshot | str,
        root: str | os.PathLike[str] | None = None,
        paths: Sequence[str] | None = None,
        **options: Any,
    ) -> Restored:
        """Bring the files back as a snapshot has them; the conversation stays where it is.

        `root` is another folder than the one it was taken of, `paths` only some of it. `dry_run`
        tells what would be done. `thread.undo_rewind` takes it back.
        """
        from clew.snapshots.rewind import restore

        return restore(self._thread, snapshot, root, paths, **options)

    def recover(self, **options: Any) -> Rewound | None:
        """Finish a rewind or restore that was interrupted; None if none was."""
        from clew.snapshots.rewind import recover

        return recover(self._thread, **options)

    # --- keeping ---

    def limit(self, *, keep_last: int | None = None, keep_bytes: int | None = None) -> List:
        """Let go of the oldest until at most so many are left, and so many bytes; those dropped.

        Never goes: what is pinned, the newest, what a fork of this thread can see, and what the
        last rewind needs to be finished or undone. Bytes are those of distinct contents before
        compression (`stats`). They are freed by the next `store.sweep`.
        """
        return quota.limit(self._thread, keep_last, keep_bytes)

    def drop(self, id: str) -> None:
        """Let go of a snapshot. Its files go with the next `store.sweep` that nobody needs."""
        if any(snapshot.id == id for snapshot in catalogue.own(self._thread.info)):
            self._thread.set_facts({catalogue.PREFIX + id: None})
        elif any(snapshot.id == id for snapshot in self.list()):
            raise InvalidInput("id", f"snapshot {id!r} belongs to the thread this was forked from")

    def pin(self, id: str, pinned: bool = True) -> None:
        """Keep a snapshot whatever the quota says, or no longer."""
        for snapshot in catalogue.own(self._thread.info):
            if snapshot.id == id:
                changed = catalogue.fact_of(replace(snapshot, pinned=pinned))
                self._thread.set_facts({catalogue.PREFIX + id: changed})
                return
        raise NotFound("snapshot", id)


def own_files(properties: Properties, top: str) -> frozenset[str]:
    """The paths in a tree that the store itself is made of."""
    endings = _ENDINGS.get(properties.engine)
    if endings is None:
        return frozenset()
    place = os.path.relpath(os.path.realpath(properties.place), top)
    if set(place.split("/")) <= {".", ".."}:
        raise InvalidInput("root", f"{top} is part of the store itself")
    return frozenset() if place.startswith("../") else frozenset(place + end for end in endings)


def _tree_of(known: Known) -> str | None:
    top = known.folders.get("")
    return None if top is None else top.manifest


def _cache_folder(properties: Properties) -> Path | None:
    """Beside the store: the cache is about this machine and this store."""
    if properties.engine == "sqlite":
        return Path(properties.place + "-snapshots")
    if properties.engine == "files":
        return Path(properties.place) / "index" / "snapshots"
    return None
