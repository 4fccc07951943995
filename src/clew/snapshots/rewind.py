"""Going back: conversation and files as one step that can be undone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clew.checks import check_name
from clew.engine import Progress
from clew.errors import InvalidInput, NotFound
from clew.snapshots import catalogue
from clew.snapshots import intent as intents
from clew.snapshots.going import SAFETY, Job, Ways
from clew.snapshots.model import Restored, Rewound, Snapshot
from clew.snapshots.system import REAL, System

if TYPE_CHECKING:
    from clew.store import Store
    from clew.thread import Thread

# --- the ways in ---


def rewind(
    thread: Thread,
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
    system: System = REAL,
) -> Rewound:
    """Go back to before a user message, or with `at` to the message itself.

    The files go to the snapshot that was taken when the message came; NotFound if there is none.
    `progress` is told how many files are done, and of how many.
    """
    if not conversation and not files:
        raise InvalidInput("files", "neither the conversation nor the files shall go back")
    message = thread.get(check_name(to, "to"))
    if message.kind != "user_message":
        raise InvalidInput("to", f"{to!r} is no user message but a {message.kind}; use move")
    leaf = to if at else message.parent
    ways = Ways(force=force, fence=fence, progress=progress, system=system)
    job = Job(thread, "rewind", ways)
    job.to, job.moves, job.leaf = to, conversation, leaf
    if files:
        # With the names of what it left out: those must not be taken for new ones.
        snapshot = thread.snapshots.get(pinned(thread, to, root).id)
        job.aim(snapshot, _root_for(thread, snapshot, root))
    if dry_run:
        return job.look()
    return job.go(thread.info)


def restore(
    thread: Thread,
    snapshot: Snapshot | str,
    root: str | os.PathLike[str] | None = None,
    paths: Sequence[str] | None = None,
    *,
    dry_run: bool = False,
    force: bool = False,
    fence: int | None = None,
    progress: Progress | None = None,
    system: System = REAL,
) -> Restored:
    """Bring files back as a snapshot has them; the conversation stays where it is.

    With `paths` only these files and folders are looked at, judged and touched.
    """
    id = snapshot if isinstance(snapshot, str) else snapshot.id
    info = thread.info
    found = catalogue.get(thread.store.engine, info, check_name(id, "snapshot"))
    if paths is None:
        paths = found.paths  # of the rest it only says what others had said before
    ways = Ways(force=force, fence=fence, progress=progress, system=system)
    job = Job(thread, "restore", ways)
    job.aim(found, _root_for(thread, found, root), paths)
    done = job.look() if dry_run else job.go(info)
    assert done.files is not None
    return done.files


def undo_rewind(
    thread: Thread,
    *,
    force: bool = False,
    root: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    fence: int | None = None,
    progress: Progress | None = None,
    system: System = REAL,
) -> Rewound:
    """Take the last rewind or restore back, files and leaf; once. InvalidInput: there is none.

    One that was interrupted is taken back first. What was written after the rewind stays as a
    branch of its own; files that were changed since and never snapshotted are foreign changes.
    `root` says where the tree is now if it was moved, `dry_run` only tells.
    """
    info = thread.info
    begun = intents.pending(info)
    undone = begun or intents.last(info)
    if undone is None:
        raise InvalidInput("undo", "there is no rewind and no restore to be undone")
    job = Job(thread, "undo", Ways(force=force, fence=fence, progress=progress, system=system))
    if begun is not None and begun.what == "undo" and begun.files is not None:
        return job.foresee(begun, root) if dry_run else job.resume(begun, begun.files, root)
    job.to, job.leaf = undone.to, undone.from_leaf
    job.moves, job.keeps = undone.moves and begun is None, begun is not None
    if undone.files is not None:
        before = thread.snapshots.get(undone.files.before)
        job.aim_again(before, undone.files, root)
    job.replaces = begun
    return job.look() if dry_run else job.run()


def recover(
    thread: Thread,
    *,
    force: bool = False,
    root: str | os.PathLike[str] | None = None,
    abandon: bool = False,
    fence: int | None = None,
    progress: Progress | None = None,
    system: System = REAL,
) -> Rewound | None:
    """Finish what was interrupted; None if nothing was.

    Conflict if the thread has moved on meanwhile, or a file was changed, unless `force`; then
    `undo_rewind` takes it back. `root` says where the tree is now if it was moved. `abandon`
    forgets about it and leaves the files as they are.
    """
    begun = intents.pending(thread.info)
    if begun is None or begun.files is None:
        return None
    if abandon:
        intents.forget(thread, begun)
        return None
    ways = Ways(force=force, fence=fence, progress=progress, system=system)
    job = Job(thread, begun.what, ways)
    return job.resume(begun, begun.files, root)


# --- which snapshot, and where ---


def pinned(thread: Thread, to: str, root: str | os.PathLike[str] | None = None) -> Snapshot:
    """The snapshot of the files as they were when a message came.

    Of those that are pinned to it, the newest from before the work on it began: a snapshot that
    was taken later in the same turn has that work in it already.
    """
    found = [s for s in thread.snapshots.list() if s.at == to and s.label not in SAFETY.values()]
    if root is not None:
        top = os.path.realpath(root)
        found = [s for s in found if s.root == top] or found
    roots = sorted({s.root for s in found})
    if not found:
        raise _no_snapshot(to)
    if len(roots) > 1:
        raise InvalidInput("root", f"there are snapshots of several folders: {', '.join(roots)}")
    return next((s for s in found if _is_early(thread, s, to)), found[-1])


def _no_snapshot(to: str) -> NotFound:
    error = NotFound("snapshot for user message", to)
    hint = "take one when a message comes, or rewind the conversation alone with files=False"
    error.args = (f"{error}; {hint}",)
    return error


def _is_early(thread: Thread, snapshot: Snapshot, to: str) -> bool:
    try:
        between = thread.path(snapshot.id, after=to)
    except NotFound:
        return True  # it does not lie behind the message: somebody pinned it there on purpose
    return all(entry.kind in ("snapshot", "turn_marker") for entry in between)


def _root_for(thread: Thread, snapshot: Snapshot, root: str | os.PathLike[str] | None) -> str:
    """The folder to be changed: as given, or the one that the thread last worked in.

    A fork with files of its own must not reach for those of the thread it came from.
    """
    if root is not None:
        return os.path.realpath(root)
    own = [s.root for s in thread.snapshots.list() if s.thread == thread.id]
    return own[0] if own and snapshot.root not in own else snapshot.root


# --- forks ---


def fork_id(store: Store, base: str) -> str:
    """The first of `base#fork-1`, `base#fork-2`, … that no thread has, deleted ones included."""
    check_name(base, "base")
    number = 1
    while True:
        id = f"{base}#fork-{number}"
        try:
            store.get(id, deleted=True)
        except NotFound:
            return id
        number += 1
