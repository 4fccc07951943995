"""The options that several handles take, each set written once, for editors and type checkers.

A method that hands its options on is declared with one of these: `**options: Unpack[ForkOptions]`.
Nothing of this is needed when the program runs, so the handles import it for their types only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from msgspec import UnsetType

from clew.core.engine import Progress
from clew.core.model import Order, ThreadInfo

if TYPE_CHECKING:
    from clew.context.projection import Purpose
    from clew.context.tokens import Count
    from clew.engines.files.disk import Disk
    from clew.snapshots.ignore import Rules
    from clew.usage.model import By


class OpenOptions(TypedDict, total=False):
    """What `clew.open` takes; each engine refuses those that it does not have."""

    create: bool
    readonly: bool
    check_reads: bool
    namespace: str
    busy_seconds: float  # SQLite, files and PostgreSQL
    durability: Literal["full", "relaxed"]  # SQLite and files
    vfs: str | None  # SQLite
    disk: Disk | None  # files
    schema: str | None  # PostgreSQL, as the rest
    migrate: bool
    connections: int
    pooler: bool | None


class UsageOptions(TypedDict, total=False):
    """Which replies, and in which groups: `Store.usage`."""

    tree: bool
    by: By | None
    since: datetime | timedelta | None
    until: datetime | None
    timezone: str
    model: str | None
    workspace: str | None
    agent: str | None
    prices: str | os.PathLike[str] | Mapping[str, Any] | None
    progress: Progress | None


class ThreadFields(TypedDict, total=False):
    """What a new thread may be given beside its id: `Store.create`."""

    title: str | None
    tags: Iterable[str]
    workspace: str | None
    parent: str | None
    facts: Mapping[str, Any] | None
    time: datetime | None
    updated_at: datetime | None


class ThreadFilters(TypedDict, total=False):
    """Which threads, and in which order: `Store.threads`. A page's cursor is no filter."""

    order: Order
    archived: bool | None
    deleted: bool
    tag: str | None
    workspace: str | None
    status: str | None
    parent: str | None
    origin: str | None
    roots: bool
    after: datetime | None
    before: datetime | None
    limit: int


class SearchOptions(TypedDict, total=False):
    """Where to search, for what, and how much of it: `Store.search`."""

    substring: bool
    thread: str | Iterable[str] | None
    agent: str | None
    workspace: str | None
    model: str | None
    tool: str | None
    role: str | None
    kind: str | None
    path: str | None
    tag: str | None
    since: datetime | None
    until: datetime | None
    deleted: bool
    limit: int
    cursor: str | None
    context: int
    progress: Progress | None


class ForkFields(TypedDict, total=False):
    """Where a fork begins, and what it is given beside its name: `Conversations.fork`."""

    at: str | None
    before: str | None
    title: str | None
    parent: str | None
    facts: Mapping[str, Any] | None
    time: datetime | None


class ForkOptions(ForkFields, total=False):
    """The same, and its id: `Store.fork`."""

    id: str | None


class CleanupOptions(TypedDict, total=False):
    """Which of the threads that are older than a time go, and how: `Store.cleanup`."""

    keep: Callable[[ThreadInfo], bool] | None
    deleted_only: bool
    archived: bool
    limit: int | None
    dry_run: bool
    progress: Progress | None


class EraseOptions(TypedDict, total=False):
    """`reason` is kept in the thread's log; `shrink` writes the store's files anew afterwards."""

    reason: str | None
    shrink: bool


class PackOptions(TypedDict, total=False):
    """What is cold, how long to go on, and whether to shrink the file: `Store.pack`."""

    tail: int
    idle_seconds: float
    max_seconds: float | None
    shrink: bool


class EntryFields(TypedDict, total=False):
    """What an entry may be given beside its kind, its body and its format."""

    id: str | None
    parent: str | UnsetType | None
    turn: str | None
    meta: Mapping[str, Any] | None
    blobs: Iterable[str]
    time: datetime | None


class AppendOptions(EntryFields, total=False):
    """The same, and the leaf that the caller knows of: `Turn.append`."""

    expect: str | UnsetType | None


class StreamOptions(TypedDict, total=False):
    """What a streamed reply is given: `Turn.streaming`."""

    id: str | None
    meta: Mapping[str, Any] | None
    save_seconds: float


class Fenced(TypedDict, total=False):
    """The fence of the caller's lease, which a turn knows itself."""

    fence: int | None


class FencedAppendOptions(AppendOptions, Fenced, total=False):
    """The same, and a fence: `Thread.append`."""


class FencedStreamOptions(StreamOptions, Fenced, total=False):
    """The same, its turn, and a fence: `Thread.streaming`."""

    turn: str | None


class ProjectionOptions(TypedDict, total=False):
    """What a context shows, and how much of it: `clew.context.project`."""

    purpose: Purpose
    budget_tokens: int | None
    count: Count
    system: bool
    signal_tools: Collection[str]
    segments: bool


class ContextOptions(ProjectionOptions, total=False):
    """The same, and of which path: `Thread.context`."""

    leaf: str | UnsetType | None
    compacted: bool


class CompactionNotes(TypedDict, total=False):
    """What is written into a compaction for those who read it later: `Thread.compact`."""

    trigger: str
    reason: str | None
    phase: str
    usage_before: Any
    usage_after: Any
    details: Any


class CompactOptions(CompactionNotes, total=False):
    """The same, the summary if there is one already, and what is kept: `Turn.compact`."""

    summary: str | None
    through: str | None
    keep_turns: int | None
    keep_tokens: int | None
    keep_user_tokens: int
    max_tokens: int | None
    format: str | None


class SnapshotOptions(TypedDict, total=False):
    """What a snapshot is given: `Turn.snapshot`."""

    at: str | None
    label: str | None
    rules: Rules | None
    progress: Progress | None


class RestoreOptions(TypedDict, total=False):
    """How files are brought back: `Turn.restore`."""

    dry_run: bool
    force: bool
    progress: Progress | None


class FencedRestoreOptions(RestoreOptions, Fenced, total=False):
    """The same under a lease of the caller's: `Snapshots.restore`."""


class UndoOptions(RestoreOptions, total=False):
    """The same, for a tree that may have been moved since: `Turn.undo_rewind`."""

    root: str | os.PathLike[str] | None


class FencedUndoOptions(UndoOptions, Fenced, total=False):
    """The same under a lease of the caller's: `Thread.undo_rewind`."""


class RewindOptions(UndoOptions, total=False):
    """What goes back, and how far: `Turn.rewind`."""

    conversation: bool
    files: bool
    at: bool


class FencedRewindOptions(RewindOptions, Fenced, total=False):
    """The same under a lease of the caller's: `Thread.rewind`."""
