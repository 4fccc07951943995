"""Forks that have files of their own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from clew.errors import NotFound
from clew.snapshots import catalogue
from clew.snapshots.copying import materialize
from clew.snapshots.model import Snapshot
from clew.snapshots.rewind import pinned

if TYPE_CHECKING:
    from clew.thread import Thread


def fork_with_files(thread: Thread, files_to: str | os.PathLike[str], options: Any) -> Thread:
    """A fork, and in a new folder the files as they were at the point where it begins.

    With `before` those are the ones of when that message came.

    The fork's first snapshot is that of its own folder. If the files cannot be written, there is
    no fork either.
    """
    fork = thread.store.fork(thread.id, **options)
    try:
        before = options.get("before")
        snapshot = _latest_on_path(fork) if before is None else pinned(thread, before)
        materialize(fork.snapshots.trees, snapshot.tree, os.fspath(files_to))
        fork.snapshots.take(files_to, label="fork")
    except BaseException:
        thread.store.purge(fork.id)
        raise
    return fork


def _latest_on_path(fork: Thread) -> Snapshot:
    """The newest snapshot that lies on the path which the fork shares."""
    info = fork.info
    for snapshot in catalogue.visible(fork.store.engine, info):
        if catalogue.is_on_path(fork.store.engine, fork.id, info.leaf, snapshot.id):
            return snapshot
    raise NotFound("snapshot on the path to", info.leaf or "the root")
