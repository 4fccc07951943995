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
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import anyio
import anyio.to_thread
from msgspec import UNSET, UnsetType

from clew.address import open
from clew.aio.appends import append
from clew.aio.hop import hop, iterate
from clew.aio.turn import AsyncLeases, AsyncStreamedReply, AsyncTurn
from clew.context import compaction
from clew.context.compaction import Compacted
from clew.context.request import Context
from clew.context.tokens import KEEP_USER_TOKENS
from clew.core.drafts import check_drafts
from clew.core.engine import PackResult, Progress
from clew.core.model import (
    Draft,
    Entry,
    EntryDraft,
    Fact,
    Move,
    Page,
    Properties,
    Record,
    Segment,
    Stats,
    ThreadInfo,
)
from clew.core.parts import loading
from clew.core.removal import Purged, Receipt, Swept
from clew.exchange import Outputs, Reply
from clew.store import SWEEP_GRACE_SECONDS, Blobs, Problems, Relatives, Store
from clew.thread import Thread
from clew.tree import Comparison

if TYPE_CHECKING:
    from clew.aio.facets import AsyncConversations, AsyncRuns, AsyncSessions
    from clew.aio.snapshots import AsyncSnapshots
    from clew.core.options import (
        CleanupOptions,
        CompactionNotes,
        ContextOptions,
        EraseOptions,
        FencedAppendOptions,
        FencedRewindOptions,
        FencedStreamOptions,
        FencedUndoOptions,
        ForkOptions,
        OpenOptions,
        PackOptions,
        SearchOptions,
        ThreadFields,
        ThreadFilters,
        UsageOptions,
    )
    from clew.search.searcher import SearchPage
    from clew.snapshots.model import Rewound
    from clew.upkeep.cleanup import CleanupReport
    from clew.upkeep.copy import CopyReport
    from clew.usage.model import UsageReport

_WAIT_SECONDS = 0.5


async def open_async(
    address: str | os.PathLike[str] | None = None, **options: Unpack[OpenOptions]
) -> AsyncStore:
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

    async def create(self, id: str | None = None, **fields: Unpack[ThreadFields]) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.create, id, **fields))

    async def get_or_create(self, id: str, **fields: Unpack[ThreadFields]) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.get_or_create, id, **fields))

    async def get(self, id: str, *, deleted: bool = False) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.get, id, deleted=deleted))

    async def find(self, id: str) -> AsyncThread | None:
        found = await hop(self.sync.find, id)
        return None if found is None else AsyncThread(self, found)

    async def resolve(self, prefix: str, *, deleted: bool = False) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.resolve, prefix, deleted=deleted))

    async def list(
        self, *, cursor: str | ThreadInfo | None = None, **filters: Unpack[ThreadFilters]
    ) -> Page[ThreadInfo]:
        return await hop(self.sync.list, cursor=cursor, **filters)

    def threads(self, **filters: Unpack[ThreadFilters]) -> AsyncIterator[ThreadInfo]:
        return iterate(self.sync.threads(**filters))

    async def delete(self, thread: str) -> None:
        await hop(self.sync.delete, thread)

    async def restore(self, thread: str) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.restore, thread))

    async def purge(self, thread: str) -> Purged:
        return await hop(self.sync.purge, thread)

    async def erase(
        self, thread: str, entries: Iterable[str], **options: Unpack[EraseOptions]
    ) -> Receipt:
        return await hop(self.sync.erase, thread, entries, **options)

    async def fork(self, thread: str, **options: Unpack[ForkOptions]) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.fork, thread, **options))

    async def clone(
        self, thread: str, *, id: str | None = None, time: datetime | None = None
    ) -> AsyncThread:
        return AsyncThread(self, await hop(self.sync.clone, thread, id=id, time=time))

    async def fork_id(self, base: str) -> str:
        return await hop(self.sync.fork_id, base)

    async def compare(self, a: str | AsyncThread, b: str | AsyncThread) -> Comparison:
        one, other = (given if isinstance(given, str) else given.sync for given in (a, b))
        return await hop(self.sync.compare, one, other)

    async def tree(self, thread: str) -> Relatives:
        return await hop(self.sync.tree, thread)

    async def unfinished_turns(self) -> dict[str, Entry]:
        return await hop(self.sync.unfinished_turns)

    async def search(self, query: str, **options: Unpack[SearchOptions]) -> SearchPage:
        return await hop(self.sync.search, query, **options)

    async def reindex(self, *, progress: Progress | None = None) -> int:
        return await hop(self.sync.reindex, progress=progress)

    @cached_property
    def conversations(self) -> AsyncConversations:
        with loading("clew.aio.facets"):
            from clew.aio.facets import AsyncConversations

        return AsyncConversations(self)

    @cached_property
    def runs(self) -> AsyncRuns:
        with loading("clew.aio.facets"):
            from clew.aio.facets import AsyncRuns

        return AsyncRuns(self)

    @cached_property
    def sessions(self) -> AsyncSessions:
        with loading("clew.aio.facets"):
            from clew.aio.facets import AsyncSessions

        return AsyncSessions(self)

    async def stats(self) -> Stats:
        return await hop(self.sync.stats)

    async def usage(
        self, thread: str | AsyncThread | None = None, **options: Unpack[UsageOptions]
    ) -> UsageReport:
        which = thread.sync if isinstance(thread, AsyncThread) else thread
        return await hop(self.sync.usage, which, **options)

    async def verify(self, *, quick: bool = False, progress: Progress | None = None) -> Problems:
        return await hop(self.sync.verify, quick=quick, progress=progress)

    async def copy_to(self, other: AsyncStore, *, progress: Progress | None = None) -> CopyReport:
        return await hop(self.sync.copy_to, other.sync, progress=progress)

    async def sweep(self, *, grace_seconds: float = SWEEP_GRACE_SECONDS) -> Swept:
        return await hop(self.sync.sweep, grace_seconds=grace_seconds)

    async def pack(self, **options: Unpack[PackOptions]) -> PackResult:
        return await hop(self.sync.pack, **options)

    async def cleanup(
        self, *, older_than: timedelta | datetime, **options: Unpack[CleanupOptions]
    ) -> CleanupReport:
        return await hop(self.sync.cleanup, older_than=older_than, **options)

    def now(self) -> datetime:
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

    async def path(
        self,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        return await hop(self.sync.path, leaf, after=after, limit=limit)

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
        # Waiting writes nothing, so it may be left behind. It has a limiter of its own, so that
        # many tasks that follow do not take the worker threads of those that write.
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

    async def compare(
        self, left: str, right: str, *, thread: str | AsyncThread | None = None
    ) -> Comparison:
        other = thread.sync if isinstance(thread, AsyncThread) else thread
        return await hop(self.sync.compare, left, right, thread=other)

    async def adopt(
        self, fork: str | AsyncThread, *, force: bool = False, fence: int | None = None
    ) -> list[Entry]:
        other = fork.sync if isinstance(fork, AsyncThread) else fork
        return await hop(self.sync.adopt, other, force=force, fence=fence)

    @overload
    async def append(
        self,
        kind: str,
        body: Any = None,
        *,
        format: str | None = None,
        **options: Unpack[FencedAppendOptions],
    ) -> Entry: ...

    @overload
    async def append(
        self,
        kind: Iterable[EntryDraft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Entry]: ...

    async def append(
        self,
        kind: Any,
        body: Any = None,
        *,
        format: str | None = None,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
        **fields: Any,
    ) -> Any:
        drafts = partial(self.sync._drafts, kind, body, format, fields)  # type: ignore[arg-type]
        entries = await append(self.sync, drafts, expect, fence)
        return entries[0] if isinstance(kind, str) else entries

    async def append_message(
        self, message: Any, *, format: str | None = None, **options: Unpack[FencedAppendOptions]
    ) -> Entry:
        return await hop(self.sync.append_message, message, format=format, **options)

    async def append_response(
        self, response: Any, *, format: str | None = None, **options: Unpack[FencedAppendOptions]
    ) -> Reply:
        return await hop(self.sync.append_response, response, format=format, **options)

    def streaming(self, format: str, **options: Unpack[FencedStreamOptions]) -> AsyncStreamedReply:
        return AsyncStreamedReply(self, self.sync.streaming(format, **options))

    async def append_results(
        self, outputs: Outputs, **options: Unpack[FencedAppendOptions]
    ) -> list[Entry]:
        return await hop(self.sync.append_results, outputs, **options)

    async def write(
        self,
        batch: Iterable[Draft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Record]:
        return await append(self.sync, partial(check_drafts, batch), expect, fence)

    async def move(
        self,
        leaf: str | None,
        *,
        id: str | None = None,
        time: datetime | None = None,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> Move:
        return await hop(self.sync.move, leaf, id=id, time=time, expect=expect, fence=fence)

    async def set(self, **facts: Any) -> list[Fact]:
        return await hop(self.sync.set, **facts)

    async def set_facts(self, facts: Mapping[str, Any]) -> list[Fact]:
        return await hop(self.sync.set_facts, facts)

    async def set_title(
        self, text: str, *, status: str = "ready", source: str = "host", error: str | None = None
    ) -> None:
        await hop(self.sync.set_title, text, status=status, source=source, error=error)

    async def viewed(self, time: datetime | None = None) -> None:
        await hop(self.sync.viewed, time)

    async def label(self, entry: str, name: str | None) -> None:
        await hop(self.sync.label, entry, name)

    async def erase(self, *entries: str, **options: Unpack[EraseOptions]) -> Receipt:
        return await hop(self.sync.erase, *entries, **options)

    async def context(
        self, format: str | None = None, **options: Unpack[ContextOptions]
    ) -> Context:
        return await hop(self.sync.context, format, **options)

    async def compact(
        self,
        summarize: Callable[[list[Any]], str | Awaitable[str]] | None = None,
        *,
        summary: str | None = None,
        keep_turns: int | None = None,
        keep_tokens: int | None = None,
        keep_user_tokens: int = KEEP_USER_TOKENS,
        through: str | None = None,
        max_tokens: int | None = None,
        format: str | None = None,
        fence: int | None = None,
        **notes: Unpack[CompactionNotes],
    ) -> Entry | None:
        """Like `Thread.compact`; `summarize` may be asynchronous."""
        compaction.check(summarize, summary, {**notes})
        decided = await hop(
            compaction.prepare,
            self.sync,
            keep_turns=keep_turns,
            keep_tokens=keep_tokens,
            keep_user_tokens=keep_user_tokens,
            through=through,
            max_tokens=max_tokens,
            format=format,
        )
        if decided is None:
            return None
        if summarize is not None:
            # It may ask a model, so it must not stop the event loop. A lambda around a coroutine
            # function is called there too, and returns what is still to be awaited.
            direct = inspect.iscoroutinefunction(summarize)
            requests = compaction.ask(decided)
            asked = next(requests)
            while asked is not None:
                made = summarize(asked) if direct else await hop(summarize, asked)
                summary = await made if inspect.isawaitable(made) else made
                asked = requests.send(summary)
        return await hop(
            compaction.commit, self.sync, decided, summary, fence=fence, notes={**notes}
        )

    async def uncompact(self, *, fence: int | None = None) -> Entry | None:
        return await hop(self.sync.uncompact, fence=fence)

    async def compaction(self) -> Compacted | None:
        return await hop(self.sync.compaction)

    async def usage(self, **options: Unpack[UsageOptions]) -> UsageReport:
        return await hop(self.sync.usage, **options)

    def turn(
        self,
        *,
        owner: str,
        id: str | None = None,
        ttl_seconds: float = 30.0,
        wait_seconds: float = 0.0,
        files: str | os.PathLike[str] | None = None,
    ) -> AsyncTurn:
        turn = self.sync.turn(owner=owner, id=id, ttl_seconds=ttl_seconds, files=files)
        return AsyncTurn(self, turn, wait_seconds)

    async def unfinished_turn(self) -> Entry | None:
        return await hop(self.sync.unfinished_turn)

    @property
    def snapshots(self) -> AsyncSnapshots:
        with loading("clew.aio.snapshots"):
            from clew.aio.snapshots import AsyncSnapshots

        return AsyncSnapshots(self)

    async def rewind(self, to: str, **options: Unpack[FencedRewindOptions]) -> Rewound:
        return await hop(self.sync.rewind, to, **options)

    async def undo_rewind(self, **options: Unpack[FencedUndoOptions]) -> Rewound:
        return await hop(self.sync.undo_rewind, **options)

    async def redo_rewind(self, **options: Unpack[FencedUndoOptions]) -> Rewound:
        return await hop(self.sync.redo_rewind, **options)

    async def count_user_messages(self) -> int:
        return await hop(self.sync.count_user_messages)

    async def fork(
        self,
        *,
        files_to: str | os.PathLike[str] | None = None,
        root: str | os.PathLike[str] | None = None,
        **options: Unpack[ForkOptions],
    ) -> AsyncThread:
        fork = await hop(self.sync.fork, files_to=files_to, root=root, **options)
        return AsyncThread(self.store, fork)

    def __repr__(self) -> str:
        return f"<clew.AsyncThread {self.id!r}>"
