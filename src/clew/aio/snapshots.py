"""`thread.snapshots`, asynchronous: trees of files, pinned to entries of a thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from clew.aio.handles import AsyncThread
from clew.aio.hop import hop
from clew.core.engine import Progress

if TYPE_CHECKING:
    from clew.core.options import (
        FencedRestoreOptions,
        FencedRewindOptions,
        FencedUndoOptions,
        ForkOptions,
    )
    from clew.snapshots.facet import (
        BlamedLines,
        Differences,
        FileChanges,
        Files,
        List,
        Versions,
    )
    from clew.snapshots.ignore import Rules
    from clew.snapshots.model import Restored, Rewound, Snapshot, SnapshotStats
    from clew.snapshots.survey import Survey


class AsyncSnapshots:
    """See `Snapshots`. A `progress` is called in the worker thread."""

    def __init__(self, thread: AsyncThread) -> None:
        self.sync = thread.sync.snapshots
        self._thread = thread

    async def take(
        self,
        root: str | os.PathLike[str],
        *,
        at: str | None = None,
        label: str | None = None,
        rules: Rules | None = None,
        fence: int | None = None,
        progress: Progress | None = None,
    ) -> Snapshot:
        return await hop(
            self.sync.take,
            root,
            at=at,
            label=label,
            rules=rules,
            fence=fence,
            progress=progress,
        )

    async def take_if_changed(
        self,
        root: str | os.PathLike[str],
        *,
        label: str | None = None,
        rules: Rules | None = None,
        fence: int | None = None,
        progress: Progress | None = None,
    ) -> Snapshot:
        return await hop(
            self.sync.take_if_changed,
            root,
            label=label,
            rules=rules,
            fence=fence,
            progress=progress,
        )

    async def rules(self) -> Rules:
        return await hop(self.sync.rules)

    async def survey(self, root: str | os.PathLike[str], rules: Rules | None = None) -> Survey:
        return await hop(self.sync.survey, root, rules)

    async def list(self) -> List:
        return await hop(self.sync.list)

    async def get(self, id: str) -> Snapshot:
        return await hop(self.sync.get, id)

    async def latest(self, at: str | None = None) -> Snapshot | None:
        return await hop(self.sync.latest, at)

    async def files(self, snapshot: Snapshot | str) -> Files:
        return await hop(self.sync.files, snapshot)

    async def read(self, snapshot: Snapshot | str, path: str) -> bytes:
        return await hop(self.sync.read, snapshot, path)

    async def diff(
        self,
        a: Snapshot | str,
        b: Snapshot | str | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
    ) -> Differences:
        return await hop(self.sync.diff, a, b, root=root)

    async def changes(
        self, a: Snapshot | str, b: Snapshot | str, *, limit: int | None = None
    ) -> FileChanges:
        return await hop(self.sync.changes, a, b, limit=limit)

    async def unified(
        self,
        a: Snapshot | str,
        b: Snapshot | str | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        path: str | None = None,
    ) -> str:
        return await hop(self.sync.unified, a, b, root=root, path=path)

    async def history(self, path: str, *, root: str | os.PathLike[str] | None = None) -> Versions:
        return await hop(self.sync.history, path, root=root)

    async def blame(self, path: str, snapshot: Snapshot | str | None = None) -> BlamedLines:
        return await hop(self.sync.blame, path, snapshot)

    async def stats(self) -> SnapshotStats:
        return await hop(self.sync.stats)

    async def restore(
        self,
        snapshot: Snapshot | str,
        root: str | os.PathLike[str] | None = None,
        paths: Sequence[str] | None = None,
        **options: Unpack[FencedRestoreOptions],
    ) -> Restored:
        return await hop(self.sync.restore, snapshot, root, paths, **options)

    async def rewind(self, to: str, **options: Unpack[FencedRewindOptions]) -> Rewound:
        return await hop(self.sync.rewind, to, **options)

    async def undo_rewind(self, **options: Unpack[FencedUndoOptions]) -> Rewound:
        return await hop(self.sync.undo_rewind, **options)

    async def redo_rewind(self, **options: Unpack[FencedUndoOptions]) -> Rewound:
        return await hop(self.sync.redo_rewind, **options)

    async def recover(
        self,
        *,
        force: bool = False,
        root: str | os.PathLike[str] | None = None,
        abandon: bool = False,
        fence: int | None = None,
        progress: Progress | None = None,
    ) -> Rewound | None:
        return await hop(
            self.sync.recover,
            force=force,
            root=root,
            abandon=abandon,
            fence=fence,
            progress=progress,
        )

    async def fork(
        self,
        files_to: str | os.PathLike[str],
        *,
        root: str | os.PathLike[str] | None = None,
        **options: Unpack[ForkOptions],
    ) -> AsyncThread:
        fork = await hop(self.sync.fork, files_to, root=root, **options)
        return AsyncThread(self._thread.store, fork)

    async def limit(self, *, keep_last: int | None = None, keep_bytes: int | None = None) -> List:
        return await hop(self.sync.limit, keep_last=keep_last, keep_bytes=keep_bytes)

    async def drop(self, id: str) -> None:
        await hop(self.sync.drop, id)

    async def pin(self, id: str, pinned: bool = True) -> None:
        await hop(self.sync.pin, id, pinned)
