"""Turns and leases of the asynchronous side: see `clew.turn`."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import anyio
import anyio.to_thread
from msgspec import UNSET, UnsetType

from clew.aio.hop import enter, hop, leave
from clew.context.request import Context
from clew.core.errors import LeaseHeld
from clew.core.model import (
    Entry,
    EntryDraft,
    Lease,
    Move,
)
from clew.exchange import Outputs, Reply
from clew.stream import StreamedReply
from clew.turn import Leases, Turn

if TYPE_CHECKING:
    from clew.aio.handles import AsyncThread
    from clew.core.options import (
        AppendOptions,
        CompactOptions,
        ContextOptions,
        RestoreOptions,
        RewindOptions,
        SnapshotOptions,
        StreamOptions,
        UndoOptions,
    )
    from clew.snapshots.model import Restored, Rewound, Snapshot

_RETRY_SECONDS = 0.05


class AsyncLeases:
    """See `Leases`."""

    def __init__(self, leases: Leases) -> None:
        self.sync = leases

    async def acquire(
        self, owner: str, *, ttl_seconds: float = 30.0, turn: str | None = None
    ) -> Lease:
        return await hop(self.sync.acquire, owner, ttl_seconds=ttl_seconds, turn=turn)

    async def renew(self, lease: Lease, *, ttl_seconds: float = 30.0) -> Lease:
        return await hop(self.sync.renew, lease, ttl_seconds=ttl_seconds)

    async def release(self, lease: Lease) -> None:
        await hop(self.sync.release, lease)

    async def active(self) -> Lease | None:
        return await hop(self.sync.active)

    async def clear_expired(self, cutoff: datetime | None = None) -> Lease | None:
        return await hop(self.sync.clear_expired, cutoff)


class AsyncStreamedReply:
    """See `StreamedReply`. A cancelled task stores what there is all the same."""

    def __init__(self, thread: AsyncThread, reply: StreamedReply) -> None:
        self.thread = thread
        self.sync = reply
        self.format = reply.format
        self.id = reply.id

    async def __aenter__(self) -> Self:
        await enter(self.sync)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await leave(self.sync, error)

    async def feed(self, event: Any) -> None:
        # Here, and not on a worker: most events only wait for the next save.
        if self.sync.take(event):
            await self.save()

    def take(self, event: Any) -> bool:
        return self.sync.take(event)

    async def save(self) -> Entry | None:
        return await hop(self.sync.save)

    @property
    def text(self) -> str:
        return self.sync.text

    @property
    def result(self) -> Reply:
        return self.sync.result


class AsyncTurn:
    """See `Turn`. A cancelled task ends it as `aborted`, and the marker is written all the same."""

    def __init__(self, thread: AsyncThread, turn: Turn, wait_seconds: float) -> None:
        self.thread = thread
        self.sync = turn
        self.id = turn.id
        self.owner = turn.owner
        self.files = turn.files
        self._wait_seconds = wait_seconds

    @property
    def lease(self) -> Lease:
        return self.sync.lease

    async def __aenter__(self) -> Self:
        # Waits here and not in the synchronous turn, so that no worker thread sleeps meanwhile
        # and the task can be cancelled.
        deadline = time.monotonic() + self._wait_seconds
        while True:
            try:
                await enter(self.sync)
                return self
            except LeaseHeld:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            await anyio.sleep(min(left, _RETRY_SECONDS))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await leave(self.sync, error)

    @overload
    async def append(
        self,
        kind: str,
        body: Any = None,
        *,
        format: str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Entry: ...

    @overload
    async def append(
        self, kind: Iterable[EntryDraft], *, expect: str | UnsetType | None = UNSET
    ) -> list[Entry]: ...

    async def append(self, kind: Any, body: Any = None, **options: Any) -> Any:
        return await hop(lambda: self.sync.append(kind, body, **options))

    async def append_message(
        self, message: Any, *, format: str | None = None, **options: Unpack[AppendOptions]
    ) -> Entry:
        return await hop(self.sync.append_message, message, format=format, **options)

    async def append_response(
        self, response: Any, *, format: str | None = None, **options: Unpack[AppendOptions]
    ) -> Reply:
        return await hop(self.sync.append_response, response, format=format, **options)

    def streaming(self, format: str, **options: Unpack[StreamOptions]) -> AsyncStreamedReply:
        return AsyncStreamedReply(self.thread, self.sync.streaming(format, **options))

    async def append_results(
        self, outputs: Outputs, **options: Unpack[AppendOptions]
    ) -> list[Entry]:
        return await hop(self.sync.append_results, outputs, **options)

    async def move(self, leaf: str | None) -> Move:
        return await hop(self.sync.move, leaf)

    async def context(
        self, format: str | None = None, **options: Unpack[ContextOptions]
    ) -> Context:
        return await hop(self.sync.context, format, **options)

    async def compact(
        self,
        summarize: Callable[[list[Any]], str | Awaitable[str]] | None = None,
        **options: Unpack[CompactOptions],
    ) -> Entry | None:
        """Like `Turn.compact`; `summarize` may be asynchronous."""
        return await self.thread.compact(summarize, fence=self.lease.fence, **options)

    async def uncompact(self) -> Entry | None:
        return await hop(self.sync.uncompact)

    async def snapshot(
        self, root: str | os.PathLike[str] | None = None, **options: Unpack[SnapshotOptions]
    ) -> Snapshot:
        return await hop(self.sync.snapshot, root, **options)

    async def restore(
        self,
        snapshot: Snapshot | str,
        root: str | os.PathLike[str] | None = None,
        paths: Sequence[str] | None = None,
        **options: Unpack[RestoreOptions],
    ) -> Restored:
        return await hop(self.sync.restore, snapshot, root, paths, **options)

    async def rewind(self, to: str, **options: Unpack[RewindOptions]) -> Rewound:
        return await hop(self.sync.rewind, to, **options)

    async def undo_rewind(self, **options: Unpack[UndoOptions]) -> Rewound:
        return await hop(self.sync.undo_rewind, **options)

    async def redo_rewind(self, **options: Unpack[UndoOptions]) -> Rewound:
        return await hop(self.sync.redo_rewind, **options)

    async def save_point(self, body: dict[str, Any] | None = None) -> Entry:
        return await hop(self.sync.save_point, body)

    def wait_for(self, reason: str) -> None:
        self.sync.wait_for(reason)

    def abort(self, reason: str) -> None:
        self.sync.abort(reason)
