"""`thread.snapshots`: trees of files, pinned to entries of a thread."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clew.core.engine import Progress
from clew.core.errors import InvalidInput, NotFound
from clew.core.names import check_name
from clew.snapshots import catalogue, history, quota, trust
from clew.snapshots.blame import blame
from clew.snapshots.checkout import materialize
from clew.snapshots.diff import below, diff_trees, file_changes, unified
from clew.snapshots.ignore import Rules
from clew.snapshots.manifest import Node
from clew.snapshots.model import (
    BlamedLine,
    Difference,
    FileChange,
    Restored,
    Rewound,
    Snapshot,
    SnapshotStats,
    Version,
)
from clew.snapshots.point import belonging, point_at, point_before
from clew.snapshots.rewind import restore, rewind
from clew.snapshots.scan import real_root
from clew.snapshots.survey import Survey
from clew.snapshots.take import Taking, forget_dropped, look, usual_rules
from clew.snapshots.tree import Trees, WorkingTrees, trees_of
from clew.snapshots.undo import recover, redo_rewind, undo_rewind

if TYPE_CHECKING:
    from clew.thread import Thread


List = list[Snapshot]
Files = list[tuple[str, Node]]
Differences = list[Difference]
Versions = list[Version]
FileChanges = list[FileChange]
BlamedLines = list[BlamedLine]


class Snapshots:
    """The snapshots of one thread. Cheap to make, holds no state but the thread."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._engine = thread.store.engine
        self.trees: Trees = trees_of(thread.store)

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
    ) -> Snapshot:
        """Store the tree of files under `root` as it is now, pinned to a user message.

        `at` is the message's id; without it, the latest on the path. What has not changed since
        the last snapshot is neither read nor stored again. What was left out, and why, is in
        the snapshot. `rules` say what does not belong into it; later ones, and a rewind, go by them
        as well. `progress` is told how many files are read, and of how many.
        """
        folder = real_root(root)
        trust.note_root(self._engine, folder)
        pinned = None if at is None else self._thread.get(check_name(at, "at")).id
        taking = Taking(self._thread, folder, at=pinned, label=label, rules=rules)
        return taking.take(fence=fence, progress=progress)

    def take_if_changed(
        self,
        root: str | os.PathLike[str],
        *,
        label: str | None = None,
        rules: Rules | None = None,
        fence: int | None = None,
        progress: Progress | None = None,
    ) -> Snapshot:
        """Like `take`; but the last snapshot of this folder if nothing has changed since.

        It must lie on the path, and nothing is written then. This is how a turn with files begins
        and ends. When a message comes, `take` says more: that the files were so at that time.
        """
        folder = real_root(root)
        trust.note_root(self._engine, folder)
        taking = Taking(self._thread, folder, label=label, rules=rules)
        return taking.take_if_changed(fence=fence, progress=progress)

    def rules(self) -> Rules:
        """What a snapshot leaves out unless the caller says otherwise: what the last one did."""
        return usual_rules(self._thread)

    def survey(self, root: str | os.PathLike[str], rules: Rules | None = None) -> Survey:
        """How the tree under `root` looks now; nothing is stored."""
        return look(self._thread, root, rules)

    # --- looking ---

    def list(self) -> List:
        """Those that can be seen in this thread, the newest first; also what a fork shares."""
        return catalogue.visible(self._engine, self._thread.info)

    def get(self, id: str) -> Snapshot:
        """The snapshot with this id, with the names of what it left out. NotFound."""
        return catalogue.get(self._engine, self._thread.info, check_name(id, "id"))

    def latest(self, at: str | None = None) -> Snapshot | None:
        """The newest one, or the newest that is pinned to a user message."""
        found = [snapshot for snapshot in self.list() if at in (None, snapshot.at)]
        return found[0] if found else None

    def files(self, snapshot: Snapshot | str) -> Files:
        """Every file and link of a snapshot: its path and its node, in the order of paths."""
        return history.files(self.trees, self._found(snapshot).tree)

    def read(self, snapshot: Snapshot | str, path: str) -> bytes:
        """The bytes of one file, checked against their hash. NotFound, InvalidInput, Corrupt."""
        return history.read(self.trees, self._found(snapshot), path)

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
        wanted = found if path is None else below(found, history.check_path(path))
        return unified(trees, wanted)

    def changes(
        self, a: Snapshot | str, b: Snapshot | str, *, limit: int | None = None
    ) -> FileChanges:
        """What became of each path from one snapshot to another, with SHA-256 before and after.

        Folders are not told of: what lies in them says it all. The contents of every file that is
        told of are read; `limit` is how many that are at most.
        """
        found = diff_trees(self.trees, self._found(a).tree, self._found(b).tree)
        return file_changes(self.trees, found, limit)

    def _compare(
        self,
        a: Snapshot | str,
        b: Snapshot | str | None,
        root: str | os.PathLike[str] | None,
    ) -> tuple[Trees, Differences]:
        old = self._found(a)
        if b is not None:
            # Two snapshots know their own folders, and need no look at the disk.
            if root is not None:
                raise InvalidInput("root", "give either a second snapshot or a root, not both")
            return self.trees, diff_trees(self.trees, old.tree, self._found(b).tree)
        survey = self.survey(old.root if root is None else root, old.rules or Rules())
        trees = WorkingTrees(self._engine, survey)
        return trees, history.diff_working(trees, old.tree, survey)

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
        return history.history(self._thread, path, None if root is None else real_root(root))

    def blame(self, path: str, snapshot: Snapshot | str | None = None) -> BlamedLines:
        """The lines of one file, each with the version that brought it, and so with its entry.

        The file is that of a snapshot, by default of the newest. What is looked at are the versions
        on the way to that snapshot; those of other branches have no part in it. A file that was
        renamed begins anew. A line whose version lies farther back than 400 versions, or 32 MB of
        them, has None. NotFound; InvalidInput for what has no lines; TooLarge.
        """
        found = self.latest() if snapshot is None else self._found(snapshot)
        if found is None:
            raise NotFound("snapshot", "the newest")
        return blame(self._thread, path, found)

    def stats(self) -> SnapshotStats:
        """How many there are, of how many files, and how much is stored for them."""
        return quota.stats(self.trees, self.list())

    # --- going back ---

    def restore(
        self,
        snapshot: Snapshot | str,
        root: str | os.PathLike[str] | None = None,
        paths: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        force: bool = False,
        fence: int | None = None,
        progress: Progress | None = None,
    ) -> Restored:
        """Bring the files back as a snapshot has them; the conversation stays where it is.

        Another entry than a snapshot's stands for the snapshot that belongs to it: see `rewind`.
        `root` is another folder than the one it was taken of. With `paths` only these files, and
        folders with all that is in them, are looked at, judged and touched. `dry_run` tells what
        would be done, `progress` how many files are done, and of how many.
        `thread.undo_rewind` takes it back.
        """
        return restore(
            self._thread,
            snapshot,
            root,
            paths,
            dry_run=dry_run,
            force=force,
            fence=fence,
            progress=progress,
        )

    def rewind(
        self,
        to: str,
        *,
        conversation: bool = True,
        files: bool = True,
        root: str | os.PathLike[str] | None = None,
        at: bool = False,
        dry_run: bool = False,
        force: bool = False,
        fence: int | None = None,
        progress: Progress | None = None,
    ) -> Rewound:
        """See `Thread.rewind`."""
        return rewind(
            self._thread,
            to,
            conversation=conversation,
            files=files,
            root=root,
            at=at,
            dry_run=dry_run,
            force=force,
            fence=fence,
            progress=progress,
        )

    def undo_rewind(
        self,
        *,
        force: bool = False,
        root: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        fence: int | None = None,
        progress: Progress | None = None,
    ) -> Rewound:
        """See `Thread.undo_rewind`."""
        return undo_rewind(
            self._thread, force=force, root=root, dry_run=dry_run, fence=fence, progress=progress
        )

    def redo_rewind(
        self,
        *,
        force: bool = False,
        root: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        fence: int | None = None,
        progress: Progress | None = None,
    ) -> Rewound:
        """See `Thread.redo_rewind`."""
        return redo_rewind(
            self._thread, force=force, root=root, dry_run=dry_run, fence=fence, progress=progress
        )

    def recover(
        self,
        *,
        force: bool = False,
        root: str | os.PathLike[str] | None = None,
        abandon: bool = False,
        fence: int | None = None,
        progress: Progress | None = None,
    ) -> Rewound | None:
        """Finish a rewind or restore that was interrupted; None if none was.

        Conflict if the thread has moved on since, or a file was changed, unless `force`. `root`
        says where the tree is now if it was moved. `abandon` forgets about it, and leaves the
        files as they are.
        """
        return recover(
            self._thread, force=force, root=root, abandon=abandon, fence=fence, progress=progress
        )

    def fork(
        self,
        files_to: str | os.PathLike[str],
        *,
        root: str | os.PathLike[str] | None = None,
        at: str | None = None,
        before: str | None = None,
        id: str | None = None,
        title: str | None = None,
        parent: str | None = None,
        facts: Mapping[str, Any] | None = None,
        time: datetime | None = None,
    ) -> Thread:
        """A fork, and in a new folder the files that belong to the point where it begins.

        Which those are is the same as for a rewind to there: see `rewind`. `root` says whose, if
        there are snapshots of several folders. The fork's first snapshot is that of its own
        folder. If the files cannot be written, there is no fork either. NotFound if no snapshot
        belongs there.
        """
        folder, source = real_root(files_to, "files_to"), None if root is None else real_root(root)
        thread, store = self._thread, self._thread.store
        is_new = id is None or store.find(id) is None
        fork = store.fork(
            thread.id,
            at=at,
            before=before,
            id=id,
            title=title,
            parent=parent,
            facts=facts,
            time=time,
        )
        try:
            origin = fork.info.origin
            assert origin is not None
            here = point_at(thread, origin.entry)
            snapshot = belonging(
                thread, here if before is None else point_before(thread, before), source
            )
            materialize(self.trees, snapshot.tree, folder)
            fork.snapshots.take(folder, label="fork")
        except BaseException as error:
            # A fork without its files would look whole, and work in the files of its origin. One
            # that was there before, and is asked for again, has its own.
            if is_new:
                store.purge(fork.id)
            if isinstance(error, NotFound):
                hint = "take one there, fork at a point that has one, or without files_to"
                error.args = (f"{error}; {hint}",)
            raise
        return fork

    # --- keeping ---

    def limit(self, *, keep_last: int | None = None, keep_bytes: int | None = None) -> List:
        """Let go of the oldest until at most so many are left, and so many bytes; those dropped.

        Never goes: what is pinned, the newest, what a fork of this thread can see, and what the
        last rewind needs to be finished or undone. Bytes are those of distinct contents before
        compression (`stats`). They are freed by the next `store.sweep`.
        """
        return quota.limit(self._thread, keep_last, keep_bytes)

    def drop(self, id: str) -> None:
        """Let go of a snapshot. What no other one needs goes with the next `store.sweep`."""
        dropped = [one for one in catalogue.own(self._thread.info) if one.id == id]
        if dropped:
            self._thread.set_facts({catalogue.PREFIX + id: None})
            forget_dropped(self._thread.store, dropped)
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
