"""A last look at the disk before a plan is carried out: what a survey does not see.

A survey leaves out what is ignored, too large or no file at all. Such things are never
overwritten and never deleted: where they are in the way, the plan is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clew.core.errors import Conflict
from clew.snapshots.dirfd import Root
from clew.snapshots.manifest import folded
from clew.snapshots.model import Plan
from clew.snapshots.plan import Action, Work

_NAMED_MAX = 10


def inspect(root: Root, work: Work) -> Work:
    """The plan without what is done already, and with all that is in its way."""
    look = _Inspector(root, work.actions)
    look.deletes()
    look.creates()  # which are blocked only by what is not deleted before
    return work.without(look.dropped, look.blocked)


class _Inspector:
    def __init__(self, root: Root, actions: Iterable[Action]) -> None:
        self._root = root
        self._actions = list(enumerate(actions))
        self._going = {action.path for _, action in self._actions if action.act == "delete"}
        self._coming = {action.path for _, action in self._actions if action.act == "create"}
        self.dropped: set[int] = set()
        self.blocked: set[str] = set()

    def deletes(self) -> None:
        """A folder goes only if all that is in it goes: those below come before those above."""
        for n, action in self._actions:
            if action.act != "delete" or action.node.kind != "folder":
                continue
            staying = [p for p in self._paths(action.path) if p not in self._going]
            if not staying:
                continue
            if action.path in self._coming:
                self.blocked |= set(staying)
            else:
                self.dropped.add(n)
                self._going.discard(action.path)

    def creates(self) -> None:
        names: dict[str, dict[str, str]] = {}
        for n, action in self._actions:
            if action.act == "create":
                folder, _, name = action.path.rpartition("/")
                if folder not in names:
                    names[folder] = self._staying(folder)
                # A name on the disk that is this one, or would be on some file systems.
                there = names[folder].get(folded(name))
                if there is None:
                    continue
                if there == name and self._is_there(action):
                    self.dropped.add(n)
                else:
                    self.blocked.add(action.path)

    def _is_there(self, action: Action) -> bool:
        with self._root.parent(action.path) as (folder, name):
            return self._root.find_same(folder, name, action.node) is not None

    def _staying(self, folder: str) -> dict[str, str]:
        """The names in a folder that will not be deleted, as they are when folded."""
        staying = [path for path in self._paths(folder) if path not in self._going]
        names = [path.rpartition("/")[2] for path in staying]
        return {folded(name): name for name in names}

    def _paths(self, folder: str) -> list[str]:
        """What is on the disk in a folder; nothing if it is no folder."""
        if not self._root.is_folder(folder):
            return []
        with self._root.folder(folder) as descriptor:
            names = self._root.system.names(descriptor)
        return [f"{folder}/{name}" if folder else name for name in names]


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
