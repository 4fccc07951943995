"""A last look at the disk before a plan is carried out: what a survey does not see.

A survey leaves out what is ignored, too large or no file at all. Such things are never
overwritten and never deleted: where they are in the way, the plan is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from clew.core.errors import Conflict
from clew.snapshots.dirfd import Root
from clew.snapshots.manifest import folded
from clew.snapshots.model import Plan
from clew.snapshots.plan import Action, Work

_NAMED_MAX = 10


def inspect(root: Root, work: Work) -> Work:
    """The plan without what is done already, and with all that is in its way."""
    actions = list(enumerate(work.actions))
    going = {action.path for _, action in actions if action.act == "delete"}
    coming = {action.path for _, action in actions if action.act == "create"}
    dropped: set[int] = set()
    blocked: set[str] = set()
    # A folder goes only if all that is in it goes. Those below come before those above, so that
    # one which stays keeps the folder above it.
    for n, action in actions:
        if action.act == "delete" and action.node.kind == "folder":
            staying = [path for path in _paths_in(root, action.path) if path not in going]
            if staying and action.path in coming:
                blocked |= set(staying)
            elif staying:
                dropped.add(n)
                going.discard(action.path)
    # Then whether there is room for what comes, beside all that stays.
    taken: dict[str, dict[str, str]] = {}  # folder → folded name → the name that stays
    for n, action in actions:
        if action.act == "create":
            folder, _, name = action.path.rpartition("/")
            if folder not in taken:
                paths = [path for path in _paths_in(root, folder) if path not in going]
                there = [path.rpartition("/")[2] for path in paths]
                taken[folder] = {folded(one): one for one in there}
            # A name on the disk that is this one, or would be on some file systems.
            found = taken[folder].get(folded(name))
            if found == name and _is_there(root, action):
                dropped.add(n)
            elif found is not None:
                blocked.add(action.path)
    return work.without(dropped, blocked)


def _paths_in(root: Root, folder: str) -> list[str]:
    """What is on the disk in a folder; nothing if it is no folder."""
    if not root.is_folder(folder):
        return []
    with root.folder(folder) as descriptor:
        names = root.system.names(descriptor)
    return [f"{folder}/{name}" if folder else name for name in names]


def _is_there(root: Root, action: Action) -> bool:
    with root.parent(action.path) as (folder, name):
        return root.find_same(folder, name, action.node) is not None


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
        f"{plan.root} {text}",
        field="files",
        expected=plan.snapshot,
        actual=list(files),
        files=files,
        plan=plan,
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    text = ", ".join(repr(name) for name in names[:_NAMED_MAX])
    return text if more <= 0 else f"{text} and {more} more"
