"""Going back: conversation and files as one step that can be undone.

Each of the four ways in says what is wanted as a `Request`, which never changes. `_run` does it:
survey and plan, look for obstacles, safety snapshot and intent, apply, finish. Until the snapshot
and the intent are written, in one append, nothing has changed; from then on, whatever stops it,
the intent says how to finish it (`_resume`), or how to take it back (`undo_rewind`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from clew.core import drafts
from clew.core.codec import new_id
from clew.core.engine import Progress
from clew.core.errors import ClewError, Conflict, InvalidInput, LeaseHeld, LeaseLost, NotFound
from clew.core.model import ThreadInfo
from clew.core.names import check_name
from clew.snapshots import catalogue
from clew.snapshots import intent as intents
from clew.snapshots.apply import Restoration, clean_up, translated
from clew.snapshots.dirfd import REAL, Root, System
from clew.snapshots.intent import Files, Intent
from clew.snapshots.model import Plan, Restored, Rewound, Snapshot, Verb
from clew.snapshots.plan import Selection, Work, bounded, work
from clew.snapshots.preflight import inspect, refuse
from clew.snapshots.survey import Survey
from clew.snapshots.take import Taking, look
from clew.snapshots.tree import trees_of

if TYPE_CHECKING:
    from clew.thread import Thread

# Labels of the snapshots that are taken on the way. They keep contents safe, but are no states
# that a user meant to come back to.
SAFETY: dict[Verb, str] = {
    "rewind": "before rewind",
    "restore": "before restore",
    "undo": "before undo",
}


class Request(Struct, frozen=True, kw_only=True):
    """What is wanted of a thread, settled before anything is looked at."""

    thread: Thread
    what: Verb
    # The conversation.
    to: str | None = None  # the user message that was named
    moves: bool = False
    leaf: str | None = None  # where the thread shall stand, if it moves
    # The files.
    target: Snapshot | None = None  # None: they stay as they are
    root: str = ""
    folder: list[int] | None = None  # the folder that must be there, whatever `root` leads to
    moved_from: str | None = None  # where the tree was, if the caller has moved it
    paths: list[str] | None = None  # None: all of them
    earlier: Files | None = None  # an earlier try: what it put there is no foreign change
    # What becomes of what can be undone.
    keeps: bool = False
    replaces: Intent | None = None  # the interrupted one that this takes back
    # As the caller said.
    force: bool = False
    fence: int | None = None
    progress: Progress | None = None
    system: System = REAL

    def selection(self) -> Selection:
        """The paths that may change. It notes which of them it met, so each plan has its own."""
        return Selection(self.paths, () if self.earlier is None else self.earlier.above)


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
    info = thread.info
    request = Request(
        thread=thread,
        what="rewind",
        to=to,
        moves=conversation,
        leaf=to if at else message.parent,
        force=force,
        fence=fence,
        progress=progress,
        system=system,
    )
    if files:
        seen = catalogue.visible(thread.store.engine, info)
        # With the names of what it left out: those must not be taken for new ones.
        target = catalogue.named(thread.store.engine, info, _pinned(thread, seen, to, root))
        request = replace(request, target=target, root=_root_for(thread, seen, target, root))
    return _foresee(request, info) if dry_run else _go(request, info)


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
    engine, info = thread.store.engine, thread.info
    target = catalogue.get(engine, info, check_name(id, "snapshot"))
    if paths is None:
        paths = target.paths  # of the rest it only says what others had said before
    Selection(paths)  # refuses what are no paths
    seen = catalogue.visible(engine, info) if root is None else []
    request = Request(
        thread=thread,
        what="restore",
        target=target,
        root=_root_for(thread, seen, target, root),
        paths=None if paths is None else list(paths),
        force=force,
        fence=fence,
        progress=progress,
        system=system,
    )
    done = _foresee(request, info) if dry_run else _go(request, info)
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
    request = Request(
        thread=thread, what="undo", force=force, fence=fence, progress=progress, system=system
    )
    if begun is not None and begun.what == "undo" and begun.files is not None:
        # An undo was interrupted: to undo is to finish it.
        if not dry_run:
            return _resume(request, begun, begun.files, root)
        request = replace(request, moves=begun.moves, leaf=begun.leaf)
        return _foresee(_over(request, begun.files, begun.files.snapshot, root), info)
    request = replace(
        request,
        to=undone.to,
        # One that was interrupted had not moved the thread yet.
        moves=undone.moves and begun is None,
        leaf=undone.from_leaf,
        keeps=begun is not None,
        replaces=begun,
    )
    if undone.files is not None:
        request = _over(request, undone.files, undone.files.before, root)
    return _foresee(request, info) if dry_run else _run(request, info)


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
    request = Request(
        thread=thread, what=begun.what, force=force, fence=fence, progress=progress, system=system
    )
    return _resume(request, begun, begun.files, root)


# --- which snapshot, and where ---


def pinned(thread: Thread, to: str, root: str | os.PathLike[str] | None = None) -> Snapshot:
    """The snapshot of the files as they were when a message came."""
    return _pinned(thread, thread.snapshots.list(), to, root)


def _pinned(
    thread: Thread, seen: list[Snapshot], to: str, root: str | os.PathLike[str] | None
) -> Snapshot:
    """Of those that are pinned to it, the newest from before the work on it began.

    A snapshot that was taken later in the same turn has that work in it already.
    """
    found = [s for s in seen if s.at == to and s.label not in SAFETY.values()]
    if root is not None:
        top = os.path.realpath(root)
        found = [s for s in found if s.root == top] or found
    roots = sorted({s.root for s in found})
    if not found:
        error = NotFound("snapshot for user message", to)
        hint = "take one when a message comes, or rewind the conversation alone with files=False"
        error.args = (f"{error}; {hint}",)
        raise error
    if len(roots) > 1:
        raise InvalidInput("root", f"there are snapshots of several folders: {', '.join(roots)}")
    if len(found) == 1:
        return found[0]
    return next((s for s in found if _is_early(thread, s, to)), found[-1])


def _is_early(thread: Thread, snapshot: Snapshot, to: str) -> bool:
    try:
        between = thread.path(snapshot.id, after=to)
    except NotFound:
        return True  # it does not lie behind the message: the caller pinned it there on purpose
    return all(entry.kind in ("snapshot", "turn_marker") for entry in between)


def _root_for(
    thread: Thread, seen: list[Snapshot], snapshot: Snapshot, root: str | os.PathLike[str] | None
) -> str:
    """The folder to be changed: as given, or the one that the thread last worked in.

    A fork with files of its own must not reach for those of the thread it came from.
    """
    if root is not None:
        return os.path.realpath(root)
    own = [s.root for s in seen if s.thread == thread.id]
    return own[0] if own and snapshot.root not in own else snapshot.root


def _over(
    request: Request, files: Files, snapshot: str, root: str | os.PathLike[str] | None
) -> Request:
    """The same over the paths that an intent names, to one of its two snapshots.

    Without a `root` of the caller's, the folder must be the one that it was: the name of it comes
    from the store, and may lead to another one by now.
    """
    return replace(
        request,
        target=request.thread.snapshots.get(snapshot),
        root=files.root if root is None else os.path.realpath(root),
        folder=files.folder if root is None else None,
        moved_from=None if root is None else files.root,
        paths=files.paths,
        earlier=files,
    )


# --- from the first look at the tree to the last append ---


def _foresee(request: Request, info: ThreadInfo) -> Rewound:
    """What would be done: survey, plan and obstacles, without a lock and without a trace."""
    restored = None
    if request.target is not None:
        with _opened(request, lock=False) as root:
            selection = request.selection()
            survey = look(request.thread, request.root, selection=selection)
            plan = _plan(request, request.target, info, root, survey, selection).plan
        restored = Restored(plan=plan, before=None, dry_run=True)
    return Rewound(
        what=request.what,
        leaf=request.leaf if request.moves else info.leaf,
        from_leaf=info.leaf,
        files=restored,
        dry_run=True,
    )


def _go(request: Request, info: ThreadInfo) -> Rewound:
    """Do it, after what was interrupted before this. If that was this very wish, it is done.

    `info` is the thread as it is now.
    """
    begun = intents.pending(info)
    if begun is None or begun.files is None:
        return _run(request, info)
    done = _resume(request, begun, begun.files, None)
    files, target = begun.files, request.target
    wanted = (request.what, request.to, request.moves, request.leaf if request.moves else None)
    was_wanted = (begun.what, begun.to, begun.moves, begun.leaf if begun.moves else None)
    if target is not None and (*wanted, request.root, target.id, request.paths) == (
        *was_wanted,
        files.root,
        files.snapshot,
        files.paths,
    ):
        return done
    return _run(request, request.thread.info)


def _run(request: Request, info: ThreadInfo) -> Rewound:
    """Survey, plan, obstacles, safety snapshot and intent, apply, finish."""
    thread, target, leaf = request.thread, request.target, info.leaf
    if target is None:
        # The conversation alone: one append.
        if request.leaf != leaf:
            intents.finish(thread, _intent(request, leaf, None), leaf, request.fence)
        return Rewound(what=request.what, leaf=request.leaf, from_leaf=leaf, files=None)
    with _opened(request) as root:
        if request.replaces is not None and request.replaces.files is not None:
            _clean(request, root, request.replaces, request.replaces.files)
        label = SAFETY[request.what]
        taking = Taking(thread, request.root, label=label, info=info)
        is_written = False
        while not is_written:
            # Survey: one walk through the tree, so that what is planned for is just what is kept.
            selection = request.selection()
            stored = taking.store(selection)
            # Plan, and obstacles.
            todo = _plan(request, target, info, root, stored.survey, selection)
            refuse(todo.plan, force=request.force)
            stays = not request.moves or request.leaf == leaf
            if not todo.actions and stays and request.what != "undo":
                # There is nothing to do, and so nothing that could be undone. An undo is noted
                # nonetheless: it can be done once.
                restored = Restored(plan=todo.plan, before=None)
                return Rewound(what=request.what, leaf=leaf, from_leaf=leaf, files=restored)
            # Safety snapshot and intent, in one append: there is never the one without the other.
            files = Files(
                root=request.root,
                folder=root.identity,
                snapshot=target.id,
                tree=target.tree,
                before=stored.snapshot.id,
                before_tree=stored.snapshot.tree,
                paths=request.paths,
                above=selection.not_held([action.path for action in todo.actions]),
            )
            intent = _intent(request, leaf, files)
            begun = intents.begin(intent)
            is_written = taking.append(stored, begun, expect=leaf, fence=request.fence)
        _apply(request, root, intent, todo, may_forget=request.replaces is None)
        # Finish: the thread moves last, so that it never stands where its files are not.
        try:
            intents.finish(thread, intent, leaf, request.fence)
        except (Conflict, LeaseHeld, LeaseLost):
            # Another writer came between. Files and conversation go together, or not at all.
            if request.replaces is None:
                _take_back(request, info, root, intent, files)
            raise
    return _told(intent, leaf, todo.plan)


def _resume(
    request: Request, intent: Intent, files: Files, root: str | os.PathLike[str] | None
) -> Rewound:
    """Finish an interrupted one: the same, but its snapshot and its intent are there already."""
    thread, info = request.thread, request.thread.info
    if intent.moves and info.leaf != intent.from_leaf and not request.force:
        text = (
            f"a {intent.what} was interrupted, and the thread has moved on since; "
            "undo_rewind() takes it back, recover(force=True) finishes it"
        )
        raise Conflict(text, field="leaf", expected=intent.from_leaf, actual=info.leaf)
    request = _over(request, files, files.snapshot, root)
    assert request.target is not None
    with _opened(request) as place:
        _clean(request, place, intent, files)
        selection = request.selection()
        survey = look(thread, request.root, selection=selection)
        todo = _plan(request, request.target, info, place, survey, selection)
        refuse(todo.plan, force=request.force)
        if todo.plan.foreign:
            # Keep what is about to be overwritten by force; the thread stays where it is.
            taking = Taking(thread, request.root, label=SAFETY[intent.what], info=info)
            is_written = False
            while not is_written:
                stored = taking.store(selection)
                # A new one for each try: what is written already moves nothing.
                back = [drafts.move(info.leaf, thread.store.clock())]
                is_written = taking.append(stored, back, expect=info.leaf, fence=request.fence)
        _apply(request, place, intent, todo, may_forget=False)
        intents.finish(thread, intent, info.leaf, request.fence)
    return _told(intent, thread.leaf, todo.plan)


def _take_back(
    request: Request, info: ThreadInfo, root: Root, intent: Intent, files: Files
) -> None:
    """Bring the files back to how they were just before."""
    thread = request.thread
    try:
        before = thread.snapshots.get(files.before)
        back = replace(request, target=before, earlier=files)
        selection = back.selection()
        survey = look(thread, back.root, selection=selection)
        todo = _plan(back, before, info, root, survey, selection)
        refuse(todo.plan)
        _apply(back, root, intent, todo, may_forget=False)
        intents.forget(thread, intent)
    except ClewError:
        pass  # the intent stands, and what came between is the error to be told


# --- its steps ---


@contextmanager
def _opened(request: Request, *, lock: bool = True) -> Iterator[Root]:
    """The working tree, for one restore at a time: the one that was meant, or Conflict."""
    with (
        translated(f"{request.root} cannot be restored"),
        Root(request.root, request.system, lock=lock) as root,
    ):
        found = root.identity
        if request.folder is not None and found != request.folder:
            text = f"{request.root} is another folder now than it was; if it is meant, name it"
            raise Conflict(f"{text} as root", field="root", expected=request.folder, actual=found)
        yield root


def _plan(
    request: Request,
    target: Snapshot,
    info: ThreadInfo,
    root: Root,
    survey: Survey,
    selection: Selection,
) -> Work:
    """What is to be done to the tree as it was surveyed, with all that is in the way of it."""
    engine, earlier = request.thread.store.engine, request.earlier

    def stored(*, noted: bool) -> Iterator[str]:
        """The trees that were taken here on purpose, or else on the way to somewhere."""
        for snapshot in catalogue.newest_first(engine, info):
            here = snapshot.root in (request.root, request.moved_from)
            if here and (snapshot.label in SAFETY.values()) == noted:
                yield snapshot.tree

    made = work(
        trees_of(request.thread.store),
        target,
        survey,
        chain(stored(noted=False), () if earlier is None else [earlier.tree]),
        selection,
        noted=chain(stored(noted=True), () if earlier is None else [earlier.before_tree]),
        again=earlier is not None,
    )
    return inspect(root, made)


def _intent(request: Request, leaf: str | None, files: Files | None) -> Intent:
    return Intent(
        id=new_id(),
        what=request.what,
        time_us=request.thread.store.clock(),
        files=files,
        moves=request.moves,
        leaf=request.leaf,
        from_leaf=leaf,
        to=request.to,
        keeps=request.keeps,
    )


def _apply(request: Request, root: Root, intent: Intent, todo: Work, *, may_forget: bool) -> None:
    """Change the files. If nothing was changed when it failed, the intent is forgotten.

    Not if it stood before: then an earlier try may have changed some of them.
    """
    trees = trees_of(request.thread.store)
    job = Restoration(root, trees, todo, intent.id, request.progress)
    try:
        job.prepare()
    except BaseException:
        if job.clean() and may_forget:
            intents.forget(request.thread, intent)
        raise
    try:
        job.apply()
    except BaseException as error:
        job.clean()
        error.add_note(
            f"clew: it stopped at {job.at!r} with {job.done} of {job.total} steps done; the "
            "thread has not moved. The next rewind or recover() finishes it, undo_rewind() "
            "takes it back."
        )
        raise


def _clean(request: Request, root: Root, intent: Intent, files: Files) -> None:
    """Remove the temporary files of an interrupted one, wherever it may have put some."""
    selection = Selection(files.paths, files.above)

    def concerns(path: str) -> bool:
        return selection.leads_to(path) or selection.holds(path)

    walk = bounded(trees_of(request.thread.store).walk(files.tree, enter=concerns))
    clean_up(root, intent.id, (path for path, node in walk if node.is_folder and concerns(path)))


def _told(intent: Intent, leaf: str | None, plan: Plan) -> Rewound:
    restored = Restored(plan=plan, before=intent.files.before if intent.files else None)
    return Rewound(
        what=intent.what,
        leaf=intent.leaf if intent.moves else leaf,
        from_leaf=intent.from_leaf,
        files=restored,
    )
