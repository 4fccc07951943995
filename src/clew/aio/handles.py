"""The asynchronous side: the same names as the handles, for asyncio and trio.

    async with await clew.open_async("threads.db") as store:
        thread = await store.create()
        await thread.append("user_message", {"role": "user", "content": "Hello"})

A thin facade: each call is one hop to a worker thread and the synchronous call there, so that
there is one implementation. A write that has begun is finished, also when its task is
cancelled: the cancellation is raised afterwards. What is a property there (`thread.info`) is an
awaitable property here.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from clew.address import open
from clew.aio.hop import hop, iterate
from clew.context import compaction
from clew.context.compaction import Compacted
from clew.context.cut import KEEP_USER_TOKENS
from clew.context.project import Context
from clew.core.errors import LeaseHeld
from clew.core.model import (
    Entry,
    Fact,
    Lease,
    Move,
    Page,
    Properties,
    Purged,
    Record,
    Segment,
    Stats,
    Swept,
    ThreadInfo,
)
from clew.snapshots.model import Rewound
from clew.store import Blobs, Problems, Store
from clew.thread import Thread
from clew.tree import Comparison
from clew.turn import Leases, Turn
from clew.upkeep.cleanup import CleanupReport
from clew.upkeep.copy import CopyReport

_WAIT_SECONDS = 0.5
_RETRY_SECONDS = 0.05


async def open_async(address: Any = None, **options: Any) -> AsyncStore:
    """Like `clew.open`."""
    return AsyncStore(await hop(open, address, **options))


class AsyncStore:
    """See `Store`."""

    def __init__(self, store: Store) -> None:
        self.sync = store
        self.blobs = AsyncBlobs(store.blobs)

    @property
    def properties(self) -> Properties:
        return self.sync.properties

    async def create(self, id: str | None = None, **options: Any) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.create, id, **options))

    async def get(self, id: str, **options: Any) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.get, id, **options))

    async def find(self, id: str) -> AsyncThread | None:
        found = await hop(self.sync.find, id)
        return None if found is None else AsyncThread(self, found)

    async def resolve(self, prefix: str, **options: Any) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.resolve, prefix, **options))

    async def list(self, **filters: Any) -> Page[ThreadInfo]:
        return await hop(self.sync.list, **filters)

    def threads(self, **filters: Any) -> AsyncIterator[ThreadInfo]:
        return iterate(self.sync.threads(**filters))

    async def delete(self, thread: str) -> None:
        await hop(self.sync.delete, thread)

    async def restore(self, thread: str) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.restore, thread))

    async def purge(self, thread: str) -> Purged:
        return await hop(self.sync.purge, thread)

    async def fork(self, thread: str, **options: Any) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.fork, thread, **options))

    async def fork_id(self, base: str) -> str:
        return await hop(self.sync.fork_id, base)

    async def stats(self) -> Stats:
        return await hop(self.sync.stats)

    async def verify(self, **options: Any) -> Problems:
        return await hop(self.sync.verify, **options)

    async def copy_to(self, other: AsyncStore, **options: Any) -> CopyReport:
        return await hop(self.sync.copy_to, other.sync, **options)

    async def sweep(self, **options: Any) -> Swept:
        return await hop(self.sync.sweep, **options)

    async def cleanup(self, **options: Any) -> CleanupReport:
        return await hop(self.sync.cleanup, **options)

    def now(self) -> Any:
        return self.sync.now()

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await hop(self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<clew.AsyncStore {self.properties.place}>"


class AsyncBlobs:
    """See `Blobs`."""

    def __init__(self, blobs: Blobs) -> None:
        self.sync = blobs

    async def put(self, data: bytes) -> str:
        return await hop(self.sync.put, data)

    async def get(self, hash: str) -> bytes:
        return await hop(self.sync.get, hash)

    async def has(self, hash: str) -> bool:
        return await hop(self.sync.has, hash)


class AsyncThread:
    """See `Thread`."""

    def __init__(self, store: AsyncStore, thread: Thread) -> None:
        self.store = store
        self.sync = thread
        self.id = thread.id
        self.leases = AsyncLeases(thread.leases)

    @property
    def info(self) -> Awaitable[ThreadInfo]:
        return hop(lambda: self.sync.info)

    @property
    def leaf(self) -> Awaitable[str | None]:
        return hop(lambda: self.sync.leaf)

    @property
    def facts(self) -> Awaitable[dict[str, Any]]:
        return hop(lambda: self.sync.facts)

    @property
    def labels(self) -> Awaitable[dict[str, str]]:
        return hop(lambda: self.sync.labels)

    async def get(self, entry: str) -> Entry:
        return await hop(self.sync.get, entry)

    async def path(self, *leaf: str | None, **options: Any) -> list[Entry]:
        return await hop(self.sync.path, *leaf, **options)

    def entries(self) -> AsyncIterator[Entry]:
        return iterate(self.sync.entries())

    def read(self, *, after: int = 0) -> AsyncIterator[Record]:
        return iterate(self.sync.read(after=after))

    async def follow(
        self, *, after: int | None = None, idle_seconds: float | None = None
    ) -> AsyncIterator[Record]:
        seen = (await self.info).seq if after is None else after
        quiet_since = time.monotonic()
        while True:
            async for record in self.read(after=seen):
                yield record
                seen, quiet_since = record.seq, time.monotonic()
            left = _WAIT_SECONDS
            if idle_seconds is not None:
                left = min(left, quiet_since + idle_seconds - time.monotonic())
                if left <= 0:
                    return
            await self._wait(seen, left)

    async def _wait(self, after: int, seconds: float) -> None:
        # Waiting writes nothing, so it may be left behind; it has places of its own, so that
        # many who follow do not keep those who write from their worker threads.
        wait = partial(self.sync.store.engine.wait, self.id, after=after, timeout_seconds=seconds)
        await anyio.to_thread.run_sync(
            wait, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )

    async def segments(self) -> list[Segment]:
        return await hop(self.sync.segments)

    async def leaves(self) -> list[str]:
        return await hop(self.sync.leaves)

    async def children(self, entry: str | None) -> list[str]:
        return await hop(self.sync.children, entry)

    async def compare(self, left: str, right: str) -> Comparison:
        return await hop(self.sync.compare, left, right)

    async def append(self, kind: Any, body: Any = None, **options: Any) -> Any:
        return await hop(self.sync.append, kind, body, **options)

    async def append_message(self, message: Any, **options: Any) -> Entry:
        return await hop(self.sync.append_message, message, **options)

    async def write(self, batch: Any, **options: Any) -> list[Record]:
        return await hop(self.sync.write, batch, **options)

    async def move(self, leaf: str | None, **options: Any) -> Move:
        return await hop(self.sync.move, leaf, **options)

    async def set(self, **facts: Any) -> list[Fact]:
        return await hop(self.sync.set, **facts)

    async def set_facts(self, facts: Any) -> list[Fact]:
        return await hop(self.sync.set_facts, facts)

    async def set_title(self, text: str, **options: Any) -> None:
        await hop(self.sync.set_title, text, **options)

    async def viewed(self, time: Any = None) -> None:
        await hop(self.sync.viewed, time)

    async def label(self, entry: str, name: str | None) -> None:
        await hop(self.sync.label, entry, name)

    async def context(self, format: str | None = None, **options: Any) -> Context:
        return await hop(self.sync.context, format, **options)

    async def compact(
        self,
        summarize: Callable[[list[Any]], Any],
        *,
        keep_turns: int | None = None,
        keep_tokens: int | None = None,
        keep_user_tokens: int = KEEP_USER_TOKENS,
        format: str | None = None,
        fence: int | None = None,
        **notes: Any,
    ) -> Entry | None:
        """Like `Thread.compact`; `summarize` may be asynchronous."""
        compaction.check_notes(notes)
        decided = await hop(
            compaction.prepare,
            self.sync,
            keep_turns=keep_turns,
            keep_tokens=keep_tokens,
            keep_user_tokens=keep_user_tokens,
            format=format,
        )
        if decided is None:
            return None
        if inspect.iscoroutinefunction(summarize):
            summary = await summarize(decided.context.messages)
        else:
            summary = await hop(summarize, decided.context.messages)
            summary = await summary if inspect.isawaitable(summary) else summary
        return await hop(compaction.commit, self.sync, decided, summary, fence=fence, notes=notes)

    async def uncompact(self, **options: Any) -> Entry | None:
        return await hop(self.sync.uncompact, **options)

    async def compaction(self) -> Compacted | None:
        return await hop(self.sync.compaction)

    async def unfinished_turn(self) -> Entry | None:
        return await hop(self.sync.unfinished_turn)

    async def fork(self, **options: Any) -> AsyncThread:
        return AsyncThread(self.store, await hop(self.sync.fork, **options))

    async def rewind(self, to: str, **options: Any) -> Rewound:
        return await hop(self.sync.rewind, to, **options)

    async def undo_rewind(self, **options: Any) -> Rewound:
        return await hop(self.sync.undo_rewind, **options)

    async def user_turns(self) -> int:
        return await hop(self.sync.user_turns)

    def turn(self, *, owner: str, wait_seconds: float = 0.0, **options: Any) -> AsyncTurn:
        return AsyncTurn(self, self.sync.turn(owner=owner, **options), wait_seconds)

    def __repr__(self) -> str:
        return f"<clew.AsyncThread {self.id!r}>"


class AsyncLeases:
    """See `Leases`."""

    def __init__(self, leases: Leases) -> None:
        self.sync = leases

    async def acquire(self, owner: str, **options: Any) -> Lease:
        return await hop(self.sync.acquire, owner, **options)

    async def renew(self, lease: Lease, **options: Any) -> Lease:
        return await hop(self.sync.renew, lease, **options)

    async def release(self, lease: Lease) -> None:
        await hop(self.sync.release, lease)

    async def active(self) -> Lease | None:
        return await hop(self.sync.active)

    async def clear_expired(self, cutoff: Any = None) -> Lease | None:
        return await hop(self.sync.clear_expired, cutoff)


class AsyncTurn:
    """See `Turn`. A cancelled task ends it as `aborted`, and the marker is written all the same."""

    def __init__(self, thread: AsyncThread, turn: Turn, wait_seconds: float) -> None:
        self.thread = thread
        self.sync = turn
        self.id = turn.id
        self.owner = turn.owner
        self._wait_seconds = wait_seconds

    @property
    def lease(self) -> Lease:
        return self.sync.lease

    async def __aenter__(self) -> Self:
        deadline = time.monotonic() + self._wait_seconds
        while True:
            try:
                await hop(self.sync.__enter__)
                return self
            except LeaseHeld:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            except BaseException as error:
                if self.sync.entered:  # cancelled while it was entered: nobody else will leave it
                    await self.__aexit__(type(error), error, None)
                raise
            await anyio.sleep(min(left, _RETRY_SECONDS))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await hop(self.sync.__exit__, kind, error, trace)

    async def append(self, kind: Any, body: Any = None, **options: Any) -> Any:
        return await hop(self.sync.append, kind, body, **options)

    async def append_message(self, message: Any, **options: Any) -> Entry:
        return await hop(self.sync.append_message, message, **options)

    async def move(self, leaf: str | None) -> Move:
        return await hop(self.sync.move, leaf)

    async def save_point(self, body: Any = None) -> Entry:
        return await hop(self.sync.save_point, body)

    def wait_for(self, reason: str) -> None:
        self.sync.wait_for(reason)

    def abort(self, reason: str) -> None:
        self.sync.abort(reason)
