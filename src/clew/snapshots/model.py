"""What snapshots are told as: frozen data."""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import Literal

from msgspec import Struct

from clew.core.facts import is_time
from clew.core.model import to_time
from clew.snapshots.ignore import Rules

Reason = Literal[
    "ignored", "too_large", "over_quota", "unreadable", "changing", "special", "collides", "name"
]


class LeftOut(Struct, frozen=True):
    """Something in the tree that a snapshot does not have, and why."""

    path: str
    reason: Reason
    size: int = 0


class Snapshot(Struct, frozen=True, kw_only=True):
    """A tree of files as it was, pinned to an entry. `id` is that of the snapshot's own entry."""

    id: str
    thread: str
    at: str | None  # the user message that it belongs to
    tree: str  # the hash of the top folder's manifest
    root: str
    time_us: int
    files: int
    size_bytes: int
    new_bytes: int  # of files that the store did not have before
    left_out: tuple[LeftOut, ...] = ()
    left_out_count: int = 0
    label: str | None = None
    pinned: bool = False  # quotas leave it alone
    rules: Rules | None = None  # None: the usual ones
    paths: tuple[str, ...] | None = None  # only these were looked at; the rest is as before

    @property
    def time(self) -> datetime:
        return to_time(self.time_us)

    def flaw(self) -> str | None:
        """What cannot be in it, for it may have been planted; None if all of it can."""
        if not is_time(self.time_us):
            return f"its time is {self.time_us} µs"
        if _TREE.fullmatch(self.tree) is None:
            return f"{self.tree!r:.100} is no tree"
        return root_flaw(self.root)


_TREE = re.compile(r"b3:[0-9a-f]{64}")
_ROOT_BYTES_MAX = 4096


def root_flaw(root: str) -> str | None:
    """Why a text cannot be the path of a folder; None if it can."""
    try:
        data = os.fsencode(root)
    except UnicodeEncodeError:
        data = b""
    if not os.path.isabs(root) or b"\0" in data or not 0 < len(data) <= _ROOT_BYTES_MAX:
        return f"{root!r:.100} is no folder"
    return None


Change = Literal["added", "removed", "modified", "mode", "renamed", "type"]


class Difference(Struct, frozen=True, kw_only=True):
    """One path that is not the same in two trees. `old_path` is set for a renamed file.

    Kinds, sizes and refs are those of the nodes on both sides, None where there is none. A file
    of a working tree that no snapshot could take, being too large, say, has no `new_ref`.
    """

    change: Change
    path: str
    old_path: str | None = None
    old_kind: str | None = None
    new_kind: str | None = None
    old_size: int | None = None
    new_size: int | None = None
    old_ref: str | None = None
    new_ref: str | None = None


class FileChange(Struct, frozen=True, kw_only=True):
    """What became of one path, by what its contents are: for those who have no store at hand.

    `before` and `after` are `sha256:` and the hash that `sha256sum` prints; None where there was,
    or is, no file. Of a link it is that of its target's name.
    """

    path: str
    change: Change
    before: str | None
    after: str | None
    old_path: str | None = None


Act = Literal["create", "overwrite", "delete", "mode"]  # what is done to one path
Verb = Literal["rewind", "restore", "undo", "redo"]  # what was asked for

# Labels of the snapshots that are taken on the way. They keep contents safe, but are no states
# that a user meant to come back to.
SAFETY: dict[Verb, str] = {
    "rewind": "before rewind",
    "restore": "before restore",
    "undo": "before undo",
    "redo": "before redo",
}


class PlannedStep(Struct, frozen=True):
    """One thing that a restore would do to a path."""

    act: Act
    path: str
    kind: str
    size: int = 0


class Plan(Struct, frozen=True, kw_only=True):
    """What a restore would do, before it does it. `foreign` are changes that no snapshot has."""

    snapshot: str
    root: str
    steps: tuple[PlannedStep, ...]
    unchanged: int
    foreign: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # not in the snapshot, and never in one: they stay
    blocked: tuple[str, ...] = ()  # in the way, and no snapshot can take them: they stay as well

    @property
    def is_empty(self) -> bool:
        return not self.steps


class Restored(Struct, frozen=True, kw_only=True):
    """What a restore did. `before` is the snapshot of how it was, to undo it."""

    plan: Plan
    before: str | None
    dry_run: bool = False


class Rewound(Struct, frozen=True, kw_only=True):
    """What a rewind did. `leaf` is where the thread stands now, `from_leaf` where it stood."""

    what: Verb
    leaf: str | None
    from_leaf: str | None
    files: Restored | None  # None: they were not asked for
    dry_run: bool = False

    @property
    def moved(self) -> bool:
        return self.leaf != self.from_leaf


class Version(Struct, frozen=True, kw_only=True):
    """A file as it was from one snapshot on; `entry` produced it (None: it was there before).

    `message` is the user message that the work was for.
    """

    snapshot: str
    entry: str | None
    message: str | None = None
    time_us: int
    kind: str
    ref: str | None  # None: the file was not there
    size: int


class BlamedLine(Struct, frozen=True, kw_only=True):
    """A line of a file, without its end, and the version of the file that brought it.

    `version` is None where that is older than what was looked at.
    """

    text: str
    version: Version | None


class SnapshotStats(Struct, frozen=True, kw_only=True):
    """How much the snapshots of a thread hold, what a fork shares included."""

    snapshots: int
    pinned: int
    files: int  # of all snapshots, each counted in every one that has it
    size_bytes: int  # of all these files
    distinct_bytes: int  # what is stored of them: the same contents once, before compression
