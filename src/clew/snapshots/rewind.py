"""Going back: conversation and files as one step that can be undone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct

from clew.core import drafts
from clew.core.codec import new_id
from clew.core.drafts import check_name
from clew.core.engine import Progress
from clew.core.errors import ClewError, Conflict, InvalidInput, LeaseHeld, LeaseLost, NotFound
from clew.core.model import ThreadInfo
from clew.snapshots import catalogue
from clew.snapshots import intent as intents
from clew.snapshots.apply import Restoration, clean_up, translated
from clew.snapshots.dirfd import REAL, Root, System
from clew.snapshots.intent import Files, Intent, What
from clew.snapshots.model import Plan, Restored, Rewound, Snapshot
from clew.snapshots.plan import Selection, Work, bounded, work
from clew.snapshots.preflight import inspect, refuse
from clew.snapshots.scan import Survey
from clew.snapshots.take import Also, More, Taking, look

if TYPE_CHECKING:
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


# --- one way back, from the first look at the tree to the last append ---

# Labels of the snapshots that are taken on the way. They keep contents safe, but are no states
# that somebody meant to come back to.
SAFETY: dict[What, str] = {
    "rewind": "before rewind",
    "restore": "before restore",
    "undo": "before undo",
}


class Ways(Struct, frozen=True, kw_only=True):
    """How somebody wants it to be done."""

    force: bool = False
    fence: int | None = None
    progress: Progress | None = None
    system: System = REAL


class _Idle(Exception):
    """There is nothing to do."""


class Job:
    """One way back, from the first look to the last append."""

    def __init__(self, thread: Thread, what: What, ways: Ways) -> None:
        self._thread = thread
        self._what: What = what
        self._ways = ways
        self._target: Snapshot | None = None
        self._root = ""
        self._once: str | None = None  # where the tree was before it was moved
        self._folder: list[int] | None = None
        self._paths: list[str] | None = None
        self._selection = Selection(None)
        self._again = False
        self._put: list[str] = []  # what an earlier try put there, and what it found
        self._found: list[str] = []
        self.to: str | None = None
        self.moves = False
        self.leaf: str | None = None
        self.keeps = False
        self.replaces: Intent | None = None
        self._info: ThreadInfo | None = None

    def aim(
        self,
        snapshot: Snapshot,
        root: str,
        paths: Sequence[str] | None = None,
        folder: list[int] | None = None,
    ) -> None:
        """The files go as well. `folder` is the one that must be there, whatever its name says."""
        self._selection = Selection(paths)
        self._target, self._root, self._folder = snapshot, root, folder
        self._paths = None if paths is None else list(paths)

    def aim_again(
        self, snapshot: Snapshot, files: Files, root: str | os.PathLike[str] | None
    ) -> None:
        """Where it went before: a folder that a store names must be the one that it was."""
        if root is None:
            self.aim(snapshot, files.root, files.paths, files.folder)
        else:
            self.aim(snapshot, os.path.realpath(root), files.paths)
            self._once = files.root
        self._go_again(files)

    def _go_again(self, files: Files) -> None:
        """Over the same paths; what was put there is nobody else's change."""
        self._selection, self._again = Selection(files.paths, files.above), True
        self._put, self._found = [files.tree], [files.before_tree]

    # --- looking ---

    def look(self) -> Rewound:
        """What would be done."""
        leaf = self._thread.leaf
        restored = None
        if self._target is not None:
            with self._open(lock=False) as root:
                plan = self._look(root, self._target, self._survey()).plan
            restored = Restored(plan=plan, before=None, dry_run=True)
        return Rewound(
            what=self._what,
            leaf=self.leaf if self.moves else leaf,
            from_leaf=leaf,
            files=restored,
            dry_run=True,
        )

    @contextmanager
    def _open(self, *, lock: bool = True) -> Iterator[Root]:
        with (
            translated(f"{self._root} cannot be restored"),
            Root(self._root, self._ways.system, lock=lock) as root,
        ):
            found = root.identity
            if self._folder is not None and found != self._folder:
                text = f"{self._root} is another folder now than it was; if it is meant, name it"
                raise Conflict(f"{text} as root", expected=self._folder, actual=found)
            yield root

    def _survey(self) -> Survey:
        return look(self._thread, self._root, selection=self._selection)

    def _look(self, root: Root, target: Snapshot, survey: Survey) -> Work:
        made = work(
            self._thread.snapshots.trees,
            target,
            survey,
            chain(self._stored(noted=False), self._put),
            self._selection,
            noted=chain(self._stored(noted=True), self._found),
            again=self._again,
        )
        return inspect(root, made)

    def _stored(self, *, noted: bool) -> Iterator[str]:
        """The trees of what was taken here on purpose, or else on the way to somewhere."""
        info = self._info or self._thread.info
        for snapshot in catalogue.newest_first(self._thread.store.engine, info):
            here = snapshot.root in (self._root, self._once)
            if here and (snapshot.label in SAFETY.values()) == noted:
                yield snapshot.tree

    # --- going ---

    def go(self, info: ThreadInfo) -> Rewound:
        """Do it, after what was interrupted before this. If that was this very wish, it is done.

        `info` is the thread as it is now.
        """
        begun = intents.pending(info)
        if begun is None or begun.files is None:
            return self.run(info)
        other = Job(self._thread, begun.what, self._ways)
        done = other.resume(begun, begun.files, None)
        return done if self._is_same(begun) else self.run()

    def _is_same(self, begun: Intent) -> bool:
        files = begun.files
        aimed = (begun.what, begun.to, begun.moves, begun.leaf if begun.moves else None)
        mine = (self._what, self.to, self.moves, self.leaf if self.moves else None)
        if aimed != mine or files is None or self._target is None:
            return False
        return (files.root, files.snapshot, files.paths) == (
            self._root,
            self._target.id,
            self._paths,
        )

    def run(self, info: ThreadInfo | None = None) -> Rewound:
        self._info = info
        if self._target is None:
            return self._move()
        with self._open() as root:
            if self.replaces is not None and self.replaces.files is not None:
                self._clean(root, self.replaces, self.replaces.files)
            return self._run(root, self._target)

    def _move(self) -> Rewound:
        """The conversation alone: one append."""
        leaf = self._thread.leaf
        if self.leaf != leaf:
            self._finish(self._intent(leaf, None), leaf)
        return Rewound(what=self._what, leaf=self.leaf, from_leaf=leaf, files=None)

    def _run(self, root: Root, target: Snapshot) -> Rewound:
        """One walk through the tree: what is planned for is just what is kept."""
        self._info = self._info or self._thread.info
        leaf = self._info.leaf
        todo: Work | None = None
        intent: Intent | None = None

        def decide(survey: Survey, before: Snapshot) -> More:
            nonlocal todo, intent
            todo = self._look(root, target, survey)
            refuse(todo.plan, force=self._ways.force)
            if not todo.actions and (not self.moves or self.leaf == leaf) and self._what != "undo":
                raise _Idle
            intent = self._intent(leaf, self._files(root, target, before, todo))
            return More(intents.begin(intent), leaf)

        try:
            self._take(decide)
        except _Idle:
            assert todo is not None
            restored = Restored(plan=todo.plan, before=None)
            return Rewound(what=self._what, leaf=leaf, from_leaf=leaf, files=restored)
        assert todo is not None
        assert intent is not None
        return self._arrive(root, intent, todo)

    def _take(self, also: Also) -> None:
        """What is there now; of some paths if only those can change."""
        label = SAFETY[self._what]
        taking = Taking(
            self._thread,
            self._root,
            label=label,
            fence=self._ways.fence,
            also=also,
            info=self._info,
        )
        taking.part(self._selection)

    def _files(self, root: Root, target: Snapshot, before: Snapshot, todo: Work) -> Files:
        above = {a.path for a in todo.actions if not self._selection.holds(a.path)}
        return Files(
            root=self._root,
            folder=root.identity,
            snapshot=target.id,
            tree=target.tree,
            before=before.id,
            before_tree=before.tree,
            paths=self._paths,
            above=sorted(above),
        )

    def _intent(self, leaf: str | None, files: Files | None) -> Intent:
        return Intent(
            id=new_id(),
            what=self._what,
            time_us=self._thread.store.clock(),
            files=files,
            moves=self.moves,
            leaf=self.leaf,
            from_leaf=leaf,
            to=self.to,
            keeps=self.keeps,
        )

    def _arrive(self, root: Root, intent: Intent, todo: Work) -> Rewound:
        self._change(root, intent, todo)
        try:
            self._finish(intent, intent.from_leaf)
        except (Conflict, LeaseHeld, LeaseLost):
            # Somebody else wrote meanwhile. Files and conversation go together, or not at all.
            if self.replaces is None:
                self._take_back(root, intent)
            raise
        return _told(intent, intent.from_leaf, todo.plan)

    def _change(self, root: Root, intent: Intent, todo: Work, *, first: bool = True) -> None:
        """The files. If nothing was changed when it failed, the intent is forgotten."""
        progress = self._ways.progress
        job = Restoration(root, self._thread.snapshots.trees, todo, intent.id, progress)
        try:
            with translated(f"nothing was changed in {root.path}"):
                job.prepare()
        except BaseException:
            if job.clean() and first and self.replaces is None:
                intents.forget(self._thread, intent)
            raise
        try:
            with translated(f"restoring {root.path} failed"):
                job.apply()
        except BaseException as error:
            job.clean()
            error.add_note(
                f"clew: it stopped at {job.at!r} with {job.done} of {job.total} steps done; the "
                "thread has not moved. The next rewind or recover() finishes it, undo_rewind() "
                "takes it back."
            )
            raise

    def _finish(self, intent: Intent, leaf: str | None) -> None:
        intents.finish(self._thread, intent, leaf, self._ways.fence)

    def _take_back(self, root: Root, intent: Intent) -> None:
        """Bring the files back to how they were just before."""
        assert intent.files is not None
        snapshots = self._thread.snapshots
        try:
            before = snapshots.get(intent.files.before)
            self._go_again(intent.files)
            todo = self._look(root, before, self._survey())
            refuse(todo.plan)
            self._change(root, intent, todo, first=False)
            intents.forget(self._thread, intent)
        except ClewError:
            pass  # the intent stands, and what came between is the error to be told

    # --- going on ---

    def foresee(self, intent: Intent, root: str | os.PathLike[str] | None) -> Rewound:
        """What finishing an interrupted one would do."""
        assert intent.files is not None
        self.aim_again(self._thread.snapshots.get(intent.files.snapshot), intent.files, root)
        self.moves, self.leaf = intent.moves, intent.leaf
        return self.look()

    def resume(self, intent: Intent, files: Files, root: str | os.PathLike[str] | None) -> Rewound:
        """Finish an interrupted one."""
        leaf = self._thread.leaf
        if intent.moves and leaf != intent.from_leaf and not self._ways.force:
            text = (
                f"a {intent.what} was interrupted, and the thread has moved on since; "
                "undo_rewind() takes it back, recover(force=True) finishes it"
            )
            raise Conflict(text, expected=intent.from_leaf, actual=leaf)
        target = self._thread.snapshots.get(files.snapshot)
        self.aim_again(target, files, root)
        with self._open() as place:
            self._clean(place, intent, files)
            todo = self._look(place, target, self._survey())
            refuse(todo.plan, force=self._ways.force)
            if todo.plan.foreign:
                self._keep(leaf)
            self._change(place, intent, todo, first=False)
            self._finish(intent, leaf)
        return _told(intent, self._thread.leaf, todo.plan)

    def _keep(self, leaf: str | None) -> None:
        """Snapshot what would be overwritten by force; the thread stays where it is."""
        back = drafts.move(leaf, self._thread.store.clock())
        self._take(lambda _, __: More([back], leaf))

    def _clean(self, root: Root, intent: Intent, files: Files) -> None:
        selection = Selection(files.paths, files.above)

        def concerns(path: str) -> bool:
            return selection.leads_to(path) or selection.holds(path)

        walk = bounded(self._thread.snapshots.trees.walk(files.tree, enter=concerns))
        folders = (path for path, node in walk if node.is_folder and concerns(path))
        clean_up(root, intent.id, folders)


def _told(intent: Intent, leaf: str | None, plan: Plan) -> Rewound:
    restored = Restored(plan=plan, before=intent.files.before if intent.files else None)
    return Rewound(
        what=intent.what,
        leaf=intent.leaf if intent.moves else leaf,
        from_leaf=intent.from_leaf,
        files=restored,
    )
