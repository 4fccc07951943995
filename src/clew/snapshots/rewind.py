"""Going back: conversation and files as one step that can be undone.

Each of the ways in says what is wanted as a `Request`, which never changes. `run` does it:
survey and plan, look for obstacles, safety snapshot and intent, apply, finish. Until the snapshot
and the intent are written, in one append, nothing has changed; from then on, whatever stops it,
the intent says how to finish it (`resume`), or how to take it back (`undo_rewind`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from clew import tree
from clew.core import drafts
from clew.core.codec import new_id
from clew.core.engine import Progress
from clew.core.errors import ClewError, Conflict, InvalidInput, LeaseHeld, LeaseLost, NotFound
from clew.core.model import Entry, ThreadInfo
from clew.core.names import check_name
from clew.snapshots import catalogue, trust
from clew.snapshots import intent as intents
from clew.snapshots.apply import Restoration, clean_up, translated
from clew.snapshots.dirfd import REAL, Root, System
from clew.snapshots.intent import Files, Intent
from clew.snapshots.model import SAFETY, Plan, Restored, Rewound, Snapshot, Verb
from clew.snapshots.plan import Selection, Work, work
from clew.snapshots.point import belonging, point_at, point_before, snapshot_at
from clew.snapshots.preflight import inspect, refuse
from clew.snapshots.scan import real_root
from clew.snapshots.survey import Survey
from clew.snapshots.take import Taking, look
from clew.snapshots.tree import trees_of

if TYPE_CHECKING:
    from clew.thread import Thread


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
    sweeps: bool = False  # what others have added goes as well
    is_named: bool = False  # the caller has said which folder it is
    # What becomes of what can be undone.
    keeps: bool = False
    replaces: Intent | None = None  # the interrupted one that this takes back
    takes_back: Intent | None = None  # the one that this undoes, or redoes
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

    The files go to the snapshot that belongs there (`point`); NotFound if there is none.
    `progress` is told how many files are done, and of how many.
    """
    if not conversation and not files:
        raise InvalidInput("files", "neither the conversation nor the files shall go back")
    folder = None if root is None else real_root(root)
    info = thread.info
    message = _named(thread, info, check_name(to, "to"))
    to = message.id
    if message.kind != "user_message":
        raise InvalidInput("to", f"{to!r} is no user message but a {message.kind}; use move")
    request = Request(
        thread=thread,
        what="rewind",
        to=to,
        moves=conversation,
        leaf=to if at else tree.before(thread, to),
        sweeps=force,
        force=force,
        fence=fence,
        progress=progress,
        system=system,
    )
    if files:
        point = point_at(thread, to) if at else point_before(thread, to)
        try:
            target = belonging(thread, point, folder, info)
        except NotFound as error:
            hint = "take one when a message comes, or in each turn (turn(files=…))"
            error.args = (f"{error}; {hint}, or rewind the conversation alone with files=False",)
            raise
        chosen = _root_for(thread, info, target, folder)
        request = replace(request, target=target, root=chosen, is_named=folder is not None)
    return foresee(request, info) if dry_run else _go(request, info)


def _named(thread: Thread, info: ThreadInfo, name: str) -> Entry:
    """The entry with this id, or with this label."""
    try:
        return thread.get(name)
    except NotFound:
        found = [entry for entry, label in info.labels.items() if label == name]
        if len(found) != 1:
            raise
        return thread.get(found[0])


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

    Where an entry is named that is no snapshot, it is the one that belongs to it (`point`). With
    `paths` only these files and folders are looked at, judged and touched.
    """
    folder = None if root is None else real_root(root)
    id = check_name(snapshot if isinstance(snapshot, str) else snapshot.id, "snapshot")
    info = thread.info
    target = snapshot_at(thread, info, id, folder)
    if paths is None:
        paths = target.paths  # of the rest it only says what others had said before
    Selection(paths)  # refuses what are no paths
    request = Request(
        thread=thread,
        what="restore",
        target=target,
        root=_root_for(thread, info, target, folder),
        is_named=folder is not None,
        paths=None if paths is None else list(paths),
        sweeps=force,
        force=force,
        fence=fence,
        progress=progress,
        system=system,
    )
    done = foresee(request, info) if dry_run else _go(request, info)
    assert done.files is not None
    return done.files


# --- which snapshot, and where ---


def _check_root(request: Request) -> None:
    """That the folder was named by the caller, now or at some time before on this machine."""
    engine = request.thread.store.engine
    if request.is_named:
        trust.note_root(engine, request.root)
    elif not trust.knows_root(engine, request.root):
        raise InvalidInput(
            "root",
            f"the store names {request.root}, which nobody has named to it on this machine before; "
            "say root=… if that is the folder that you mean",
        )


def _root_for(thread: Thread, info: ThreadInfo, snapshot: Snapshot, root: str | None) -> str:
    """The folder to be changed: as given, or the one that the thread last worked in.

    A fork with files of its own must not reach for those of the thread it came from.
    """
    if root is not None:
        return root
    own = sorted(catalogue.own(info), key=lambda one: (one.time_us, one.id))
    if not own or any(one.root == snapshot.root for one in own):
        return snapshot.root
    return own[-1].root


def over(request: Request, files: Files, snapshot: str, root: str | None) -> Request:
    """The same over the paths that an intent names, to one of its two snapshots.

    Without a `root` of the caller's, the folder must be the one that it was: the name of it comes
    from the store, and may lead to another one by now.
    """
    return replace(
        request,
        target=request.thread.snapshots.get(snapshot),
        root=files.root if root is None else root,
        is_named=root is not None,
        folder=files.folder if root is None else None,
        moved_from=None if root is None else files.root,
        paths=files.paths,
        earlier=files,
    )


# --- from the first look at the tree to the last append ---


def foresee(request: Request, info: ThreadInfo) -> Rewound:
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
        return run(request, info)
    done = resume(request, begun, begun.files, None)
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
    return run(request, request.thread.info)


def run(request: Request, info: ThreadInfo) -> Rewound:
    """Survey, plan, obstacles, safety snapshot and intent, apply, finish."""
    thread, target, leaf = request.thread, request.target, info.leaf
    if target is None:
        # The conversation alone: one append. An undo is noted also if it moves nothing, so that
        # the next one goes further.
        if request.leaf != leaf or request.takes_back is not None:
            intents.finish(thread, _intent(request, info, None), leaf, request.fence)
        return Rewound(what=request.what, leaf=request.leaf, from_leaf=leaf, files=None)
    _check_root(request)
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
            if not todo.actions and stays and request.what in ("rewind", "restore"):
                # There is nothing to do, and so nothing that could be undone. An undo is noted
                # nonetheless, so that the next one goes further.
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
            intent = _intent(request, info, files)
            trust.note_intent(thread.store.engine, intent.id)
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


def resume(request: Request, intent: Intent, files: Files, root: str | None) -> Rewound:
    """Finish an interrupted one: the same, but its snapshot and its intent are there already."""
    thread, info = request.thread, request.thread.info
    if intent.moves and info.leaf != intent.from_leaf and not request.force:
        text = (
            f"a {intent.what} was interrupted, and the thread has moved on since; "
            "undo_rewind() takes it back, recover(force=True) finishes it"
        )
        raise Conflict(text, field="leaf", expected=intent.from_leaf, actual=info.leaf)
    request = replace(over(request, files, files.snapshot, root), sweeps=intent.sweeps)
    assert request.target is not None
    if not request.is_named and not trust.knows_intent(thread.store.engine, intent.id):
        raise Conflict(
            f"a {intent.what} of {files.root} was interrupted, of which nothing is known on this "
            f"machine; snapshots.recover(root=…) finishes it, snapshots.recover(abandon=True) "
            "forgets it, and undo_rewind(dry_run=True) tells what it is about",
            field="root",
            expected=None,
            actual=files.root,
        )
    _check_root(request)
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
        sweeps=request.sweeps,
        force=request.force,
    )
    return inspect(root, made)


def _intent(request: Request, info: ThreadInfo, files: Files | None) -> Intent:
    undone, taken_back = intents.undone(info), request.takes_back
    under = undone if request.what == "undo" else intents.last(info)
    return Intent(
        id=new_id(),
        what=request.what,
        time_us=request.thread.store.clock(),
        files=files,
        moves=request.moves,
        leaf=request.leaf,
        from_leaf=info.leaf,
        to=request.to,
        keeps=request.keeps,
        after=info.seq,
        takes_back=None if taken_back is None else taken_back.id,
        below=intents.below(under),
        clears=undone is not None and taken_back is None,
        sweeps=request.sweeps,
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

    walk = trees_of(request.thread.store).walk(files.tree, concerns)
    clean_up(root, intent.id, (path for path, node in walk if node.is_folder and concerns(path)))


def _told(intent: Intent, leaf: str | None, plan: Plan) -> Rewound:
    restored = Restored(plan=plan, before=intent.files.before if intent.files else None)
    return Rewound(
        what=intent.what,
        leaf=intent.leaf if intent.moves else leaf,
        from_leaf=intent.from_leaf,
        files=restored,
    )
