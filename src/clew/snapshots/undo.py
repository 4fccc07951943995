"""Taking a rewind back: undo, redo, and finishing what was interrupted.

Undo and redo are rewinds to where one came from; what can be taken back is on two stacks
(`intent`). An interrupted rewind is finished or taken back from what it wrote down.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from clew.core.engine import Progress
from clew.core.errors import Conflict, InvalidInput
from clew.core.model import ThreadInfo
from clew.snapshots import intent as intents
from clew.snapshots.dirfd import REAL, System
from clew.snapshots.intent import Files, Intent
from clew.snapshots.model import Rewound
from clew.snapshots.point import stands_at
from clew.snapshots.rewind import Request, foresee, over, resume, run
from clew.snapshots.scan import real_root

if TYPE_CHECKING:
    from clew.thread import Thread


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
    """Take the last rewind or restore back, files and leaf. InvalidInput: there is none.

    The next undo takes the one before it back, and `redo_rewind` does it again. One that was
    interrupted is taken back first. What was written after the rewind stays as a branch of its
    own; files that were changed since and never snapshotted are foreign changes. `root` says
    where the tree is now if it was moved, `dry_run` only tells.
    """
    folder = None if root is None else real_root(root)
    info = thread.info
    begun = intents.pending(info)
    undone = begun or intents.last(info)
    if undone is None:
        raise InvalidInput("undo", "there is no rewind and no restore to be undone")
    request = Request(
        thread=thread, what="undo", force=force, fence=fence, progress=progress, system=system
    )
    if begun is not None and begun.what == "undo" and begun.files is not None:
        # An undo was interrupted: to undo is to finish it.
        return _finish(request, begun, begun.files, folder, info, dry_run=dry_run)
    if begun is not None:
        request = replace(request, replaces=begun, keeps=True)
    return _reverse(request, undone, folder, info, dry_run=dry_run)


def redo_rewind(
    thread: Thread,
    *,
    force: bool = False,
    root: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    fence: int | None = None,
    progress: Progress | None = None,
    system: System = REAL,
) -> Rewound:
    """Take the last undo back, files and leaf. InvalidInput: there is none, or no longer.

    A rewind, a restore, and every entry but markers and snapshots end what could be redone.
    """
    folder = None if root is None else real_root(root)
    info = thread.info
    request = Request(
        thread=thread, what="redo", force=force, fence=fence, progress=progress, system=system
    )
    begun = intents.pending(info)
    if begun is not None and begun.files is not None:
        if begun.what != "redo":
            text = (
                f"a {begun.what} was interrupted; recover() finishes it, undo_rewind() takes it "
                "back, and then there may be something to be redone"
            )
            raise Conflict(text, expected=None, actual=begun.what)
        return _finish(request, begun, begun.files, folder, info, dry_run=dry_run)
    undo = intents.undone(info)
    if undo is None:
        text = "there is no undo to be taken back; a rewind or a restore ends what could be redone"
        raise InvalidInput("redo", text)
    if not stands_at(thread, info, undo.leaf if undo.moves else undo.from_leaf):
        text = (
            "the thread has gone on since the undo, so that it cannot be redone; what was undone "
            "is still there as a branch, and in the snapshots"
        )
        raise InvalidInput("redo", text)
    return _reverse(request, undo, folder, info, dry_run=dry_run)


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
    folder = None if root is None else real_root(root)
    begun = intents.pending(thread.info)
    if begun is None or begun.files is None:
        return None
    if abandon:
        intents.forget(thread, begun)
        return None
    request = Request(
        thread=thread, what=begun.what, force=force, fence=fence, progress=progress, system=system
    )
    return resume(request, begun, begun.files, folder)


def _reverse(
    request: Request, done: Intent, root: str | None, info: ThreadInfo, *, dry_run: bool
) -> Rewound:
    """Go back to where one came from: leaf and files."""
    interrupted = request.replaces is not None  # then it has not moved, and is on no stack
    request = replace(
        request,
        to=done.to,
        moves=done.moves and not interrupted,
        leaf=done.from_leaf,
        takes_back=None if interrupted else done,
        sweeps=done.sweeps,
    )
    if done.files is not None:
        request = over(request, done.files, done.files.before, root)
    return foresee(request, info) if dry_run else run(request, info)


def _finish(
    request: Request,
    begun: Intent,
    files: Files,
    root: str | None,
    info: ThreadInfo,
    *,
    dry_run: bool,
) -> Rewound:
    """Go on with one that was interrupted, or tell what would be done."""
    if not dry_run:
        return resume(request, begun, files, root)
    request = replace(request, moves=begun.moves, leaf=begun.leaf, sweeps=begun.sweeps)
    return foresee(over(request, files, files.snapshot, root), info)
