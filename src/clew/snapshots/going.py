"""One way back, from the first look at the tree to the last append.

The order: what stands in the way is looked for first; the present state is snapshotted; the
intent is written down; the files change; leaf and facts change together, last. Whatever comes
between, the next call finds the intent and finishes it, or undoes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clew import drafts
from clew.codec import new_id
from clew.errors import ClewError, Conflict, InvalidInput, LeaseHeld, LeaseLost
from clew.snapshots import intent as intents
from clew.snapshots.intent import Files, Intent, What
from clew.snapshots.model import Plan, Restored, Rewound, Snapshot
from clew.snapshots.obstacles import inspect
from clew.snapshots.plan import Work, bounded, work
from clew.snapshots.reach import Root
from clew.snapshots.restore import Restoration, clean_up, translated
from clew.snapshots.system import System
from clew.snapshots.take import More
from clew.snapshots.walk import Survey

if TYPE_CHECKING:
    from clew.thread import Thread

# Labels of the snapshots that are taken on the way. They keep contents safe, but are no states
# that somebody meant to come back to.
SAFETY: dict[What, str] = {
    "rewind": "before rewind",
    "restore": "before restore",
    "undo": "before undo",
}
_NAMED_MAX = 10


class _Idle(Exception):
    """There is nothing to do."""


class Job:
    """One way back, from the first look to the last append."""

    def __init__(
        self, thread: Thread, what: What, *, fence: int | None, force: bool, system: System
    ) -> None:
        self._thread = thread
        self._what: What = what
        self._fence = fence
        self._force = force
        self._system = system
        self._target: Snapshot | None = None
        self._root = ""
        self._once: str | None = None  # where the tree was before it was moved
        self._folder: list[int] | None = None
        self._paths: list[str] | None = None
        self.to: str | None = None
        self.moves = False
        self.leaf: str | None = None
        self.keeps = False
        self.replaces: Intent | None = None

    def aim(
        self,
        snapshot: Snapshot,
        root: str,
        paths: Sequence[str] | None = None,
        folder: list[int] | None = None,
    ) -> None:
        """The files go as well. `folder` is the one that must be there, whatever its name says."""
        if isinstance(paths, str):
            raise InvalidInput("paths", "must be a list of paths")
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

    # --- looking ---

    def look(self) -> Rewound:
        """What would be done."""
        leaf = self._thread.leaf
        restored = None
        if self._target is not None:
            with self._open(lock=False) as root:
                survey = self._thread.snapshots.survey(self._root)
                plan = self._look(root, self._target, survey).plan
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
            Root(self._root, self._system, lock=lock) as root,
        ):
            found = root.identity
            if self._folder is not None and found != self._folder:
                text = f"{self._root} is another folder now than it was; if it is meant, name it"
                raise Conflict(f"{text} as root", expected=self._folder, actual=found)
            yield root

    def _look(self, root: Root, target: Snapshot, survey: Survey) -> Work:
        snapshots = self._thread.snapshots
        here = [s for s in snapshots.list() if s.root in (self._root, self._once)]
        made = work(
            snapshots.trees,
            target,
            survey,
            [s.tree for s in here if s.label not in SAFETY.values()],
            self._paths,
            noted=[s.tree for s in here if s.label in SAFETY.values()],
        )
        return inspect(root, made)

    # --- going ---

    def settle(self) -> Rewound | None:
        """Finish what was interrupted before this. If it was this very wish, that is all."""
        begun = intents.pending(self._thread.info)
        if begun is None or begun.files is None:
            return None
        other = Job(
            self._thread, begun.what, fence=self._fence, force=self._force, system=self._system
        )
        done = other.resume(begun, begun.files, None)
        return done if self._is_same(begun) else None

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

    def run(self) -> Rewound:
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
        leaf = self._thread.leaf
        todo: Work | None = None
        intent: Intent | None = None

        def decide(survey: Survey, before: Snapshot) -> More:
            nonlocal todo, intent
            todo = self._look(root, target, survey)
            refuse(todo.plan, force=self._force)
            if not todo.actions and (not self.moves or self.leaf == leaf) and self._what != "undo":
                raise _Idle
            intent = self._intent(leaf, self._files(root, target, before))
            return More(intents.begin(intent), leaf)

        try:
            label = SAFETY[self._what]
            self._thread.snapshots.take(self._root, label=label, fence=self._fence, also=decide)
        except _Idle:
            assert todo is not None
            restored = Restored(plan=todo.plan, before=None)
            return Rewound(what=self._what, leaf=leaf, from_leaf=leaf, files=restored)
        assert todo is not None
        assert intent is not None
        return self._arrive(root, intent, todo)

    def _files(self, root: Root, target: Snapshot, before: Snapshot) -> Files:
        return Files(
            root=self._root,
            folder=root.identity,
            snapshot=target.id,
            tree=target.tree,
            before=before.id,
            before_tree=before.tree,
            paths=self._paths,
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
        return _told(intent, self._thread.leaf, todo.plan)

    def _change(self, root: Root, intent: Intent, todo: Work, *, first: bool = True) -> None:
        """The files. If nothing was changed when it failed, the intent is forgotten."""
        job = Restoration(root, self._thread.snapshots.trees, todo, intent.id)
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
        intents.finish(self._thread, intent, leaf, self._fence)

    def _take_back(self, root: Root, intent: Intent) -> None:
        """Bring the files back to how they were just before."""
        assert intent.files is not None
        snapshots = self._thread.snapshots
        try:
            before = snapshots.get(intent.files.before)
            todo = self._look(root, before, snapshots.survey(self._root))
            refuse(todo.plan)
            self._change(root, intent, todo, first=False)
            intents.forget(self._thread, intent)
        except ClewError:
            pass  # the intent stands, and what came between is the error to be told

    # --- going on ---

    def resume(self, intent: Intent, files: Files, root: str | os.PathLike[str] | None) -> Rewound:
        """Finish an interrupted one."""
        leaf = self._thread.leaf
        if intent.moves and leaf != intent.from_leaf and not self._force:
            text = (
                f"a {intent.what} was interrupted, and the thread has moved on since; "
                "undo_rewind() takes it back, recover(force=True) finishes it"
            )
            raise Conflict(text, expected=intent.from_leaf, actual=leaf)
        target = self._thread.snapshots.get(files.snapshot)
        self.aim_again(target, files, root)
        with self._open() as place:
            self._clean(place, intent, files)
            todo = self._look(place, target, self._thread.snapshots.survey(self._root))
            refuse(todo.plan, force=self._force)
            if todo.plan.foreign:
                self._keep(leaf)
            self._change(place, intent, todo, first=False)
            self._finish(intent, leaf)
        return _told(intent, self._thread.leaf, todo.plan)

    def _keep(self, leaf: str | None) -> None:
        """Snapshot what would be overwritten by force; the thread stays where it is."""
        back = drafts.move(leaf, self._thread.store.clock())
        self._thread.snapshots.take(
            self._root,
            label=SAFETY[self._what],
            fence=self._fence,
            also=lambda _, __: More([back], leaf),
        )

    def _clean(self, root: Root, intent: Intent, files: Files) -> None:
        walk = bounded(self._thread.snapshots.trees.walk(files.tree))
        clean_up(root, intent.id, (path for path, node in walk if node.is_folder))


def _told(intent: Intent, leaf: str | None, plan: Plan) -> Rewound:
    restored = Restored(plan=plan, before=intent.files.before if intent.files else None)
    return Rewound(
        what=intent.what,
        leaf=intent.leaf if intent.moves else leaf,
        from_leaf=intent.from_leaf,
        files=restored,
    )


def refuse(plan: Plan, *, force: bool = False) -> None:
    """Conflict, with the names in `files`, if a plan would lose something."""
    if plan.blocked:
        text = (
            "cannot be restored: something is in the way that no snapshot has taken (ignored, too "
            f"large, no file, or a name that differs only in case): {_some(plan.blocked)}"
        )
        raise _refusal(text, plan, plan.blocked)
    if plan.foreign and not force:
        text = (
            "was changed outside of what Clew knows since the last snapshot; take a snapshot, or "
            f"use force: {_some(plan.foreign)}"
        )
        raise _refusal(text, plan, plan.foreign)


def _refusal(text: str, plan: Plan, files: tuple[str, ...]) -> Conflict:
    return Conflict(
        f"{plan.root} {text}", expected=plan.snapshot, actual=list(files), files=files, plan=plan
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    text = ", ".join(repr(name) for name in names[:_NAMED_MAX])
    return text if more <= 0 else f"{text} and {more} more"
