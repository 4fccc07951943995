"""The facets, asynchronous: `store.conversations`, `store.runs` and `store.sessions`.

    conversation = store.conversations.get("telegram:123")
    await conversation.add("user", "Hello")

    async with store.runs.resume_or_start("nightly") as run:
        run.iteration += 1
        await run.save()

Documents and checkpoints are plain data and the same on both sides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack

import anyio
from msgspec import UNSET, UnsetType

from clew.aio.handles import AsyncStore, AsyncThread
from clew.aio.hop import enter, hop, iterate, leave
from clew.core.model import Entry, Lease, Order, Page
from clew.core.removal import Purged
from clew.facets.conversations import (
    Conversation,
    ConversationInfo,
    Conversations,
    Failures,
    Messages,
    Reclaimed,
)
from clew.facets.runs import Checkpoint, CheckpointInfo, Run
from clew.facets.runs.runs import TTL_SECONDS, CheckpointInfos
from clew.facets.sessions import Event, Session, SessionInfo
from clew.messages.neutral import Usage

if TYPE_CHECKING:
    from clew.core.options import ForkFields

T = TypeVar("T")


class AsyncConversations:
    """See `Conversations`, also for `on_error="log"`."""

    def __init__(self, store: AsyncStore, *, on_error: Literal["raise", "log"] = "raise") -> None:
        self.store = store
        self.on_error = on_error
        self.sync = Conversations(store.sync, on_error=on_error)

    def get(self, key: str) -> AsyncConversation:
        return AsyncConversation(self, self.sync.get(key))

    async def get_or_create(self, key: str) -> AsyncConversation:
        return AsyncConversation(self, await hop(self.sync.get_or_create, key))

    async def of(self, thread: AsyncThread | str) -> AsyncConversation:
        given = thread if isinstance(thread, str) else thread.sync
        return AsyncConversation(self, await hop(self.sync.of, given))

    async def fork(
        self, key: str, new_key: str | None = None, **options: Unpack[ForkFields]
    ) -> AsyncConversation:
        return AsyncConversation(self, await hop(self.sync.fork, key, new_key, **options))

    async def thread(self, key: str) -> AsyncThread:
        return AsyncThread(self.store, await hop(self.sync.thread, key))

    def all(self) -> AsyncIterator[ConversationInfo]:
        return iterate(self.sync.all())

    async def list(self, *, limit: int = 50, cursor: str | None = None) -> Page[ConversationInfo]:
        return await hop(self.sync.list, limit=limit, cursor=cursor)

    @property
    def failed(self) -> int:
        return self.sync.failed

    @property
    def failures(self) -> Failures:
        return self.sync.failures

    async def add_message(
        self,
        key: str,
        role: str,
        content: Any,
        *,
        format: str | None = None,
        id: str | None = None,
    ) -> None:
        await hop(self.sync.add_message, key, role, content, format=format, id=id)

    async def add_full_message(
        self, key: str, message: Any, *, format: str | None = None, id: str | None = None
    ) -> None:
        await hop(self.sync.add_full_message, key, message, format=format, id=id)

    async def get_history(self, key: str) -> Messages:
        return await hop(self.sync.get_history, key)

    async def get_summary(self, key: str) -> str:
        return await hop(self.sync.get_summary, key)

    async def set_summary(self, key: str, text: str) -> None:
        await hop(self.sync.set_summary, key, text)

    async def set_history(
        self,
        key: str,
        messages: Iterable[Any],
        *,
        ids: Iterable[str | None] | None = None,
        format: str | None = None,
        expect: str | UnsetType | None = UNSET,
    ) -> str | None:
        call = self.sync.set_history
        return await hop(call, key, messages, ids=ids, format=format, expect=expect)

    async def truncate_history(self, key: str, keep_last: int, *, exact: bool = False) -> None:
        await hop(self.sync.truncate_history, key, keep_last, exact=exact)

    async def compact_storage(self, key: str, *, drop_branches: bool = False) -> Reclaimed:
        return await hop(self.sync.compact_storage, key, drop_branches=drop_branches)

    async def save(self, key: str) -> None:
        await hop(self.sync.save, key)

    async def delete(self, key: str) -> None:
        await hop(self.sync.delete, key)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await hop(self.sync.close)


class AsyncConversation:
    """See `Conversation`."""

    def __init__(self, owner: AsyncConversations, conversation: Conversation) -> None:
        self.key = conversation.key
        self.sync = conversation
        self._owner = owner
        self._store = owner.store

    @property
    def thread(self) -> Awaitable[AsyncThread]:
        return hop(lambda: AsyncThread(self._store, self.sync.thread))

    async def add(
        self, role: str, content: Any, *, format: str | None = None, id: str | None = None
    ) -> None:
        await hop(self.sync.add, role, content, format=format, id=id)

    async def add_message(
        self, message: Any, *, format: str | None = None, id: str | None = None
    ) -> None:
        await hop(self.sync.add_message, message, format=format, id=id)

    async def set_summary(self, text: str) -> None:
        await hop(self.sync.set_summary, text)

    async def set_history(
        self,
        messages: Iterable[Any],
        *,
        ids: Iterable[str | None] | None = None,
        format: str | None = None,
        expect: str | UnsetType | None = UNSET,
    ) -> str | None:
        call = self.sync.set_history
        return await hop(call, messages, ids=ids, format=format, expect=expect)

    async def truncate(self, keep_last: int, *, exact: bool = False) -> None:
        await hop(self.sync.truncate, keep_last, exact=exact)

    async def compact_storage(self, *, drop_branches: bool = False) -> Reclaimed:
        return await hop(self.sync.compact_storage, drop_branches=drop_branches)

    async def fork(
        self, new_key: str | None = None, **options: Unpack[ForkFields]
    ) -> AsyncConversation:
        made = await hop(self.sync.fork, new_key, **options)
        return AsyncConversation(self._owner, made)

    async def save(self) -> None:
        await hop(self.sync.save)

    async def delete(self) -> None:
        await hop(self.sync.delete)

    async def history(self) -> list[Any]:
        return await hop(self.sync.history)

    async def entries(self) -> list[Entry]:
        return await hop(self.sync.entries)

    @property
    def summary(self) -> Awaitable[str]:
        return hop(lambda: self.sync.summary)

    @property
    def leaf(self) -> Awaitable[str | None]:
        return hop(lambda: self.sync.leaf)

    def __repr__(self) -> str:
        return f"<clew.AsyncConversation {self.key!r}>"


class AsyncRuns:
    """See `Runs`."""

    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        # That of the store: it remembers what was saved last, so both sides save in few bytes.
        self.sync = store.sync.runs

    async def save(
        self,
        checkpoint: Checkpoint,
        *,
        format: str | None = None,
        updated_at: datetime | None = None,
    ) -> Checkpoint:
        return await hop(self.sync.save, checkpoint, format=format, updated_at=updated_at)

    async def load(self, run_id: str, *, revision: int | None = None) -> Checkpoint:
        return await hop(self.sync.load, run_id, revision=revision)

    async def find(self, run_id: str) -> Checkpoint | None:
        return await hop(self.sync.find, run_id)

    async def has(self, run_id: str) -> bool:
        return await hop(self.sync.has, run_id)

    async def list(
        self, *, order: Order = "updated", limit: int = 50, cursor: str | None = None
    ) -> Page[CheckpointInfo]:
        return await hop(self.sync.list, order=order, limit=limit, cursor=cursor)

    async def all(self) -> AsyncIterator[CheckpointInfo]:
        async for info in iterate(self.sync.all()):
            yield info

    async def thread(self, run_id: str) -> AsyncThread:
        return AsyncThread(self.store, await hop(self.sync.thread, run_id))

    async def fork(
        self,
        run_id: str,
        *,
        id: str | None = None,
        revision: int | None = None,
        at: str | None = None,
        before: str | None = None,
    ) -> Checkpoint:
        options = {"id": id, "at": at, "before": before}
        return await hop(self.sync.fork, run_id, revision=revision, **options)

    async def history(self, run_id: str) -> CheckpointInfos:
        return await hop(self.sync.history, run_id)

    async def delete(self, run_id: str) -> None:
        await hop(self.sync.delete, run_id)

    def resume_or_start(
        self,
        run_id: str,
        *,
        task_name: str | None = None,
        owner: str | None = None,
        ttl_seconds: float = TTL_SECONDS,
        format: str | None = None,
    ) -> AsyncRun:
        return AsyncRun(
            self.sync.resume_or_start(
                run_id, task_name=task_name, owner=owner, ttl_seconds=ttl_seconds, format=format
            )
        )


class _Attribute(Generic[T]):
    """An attribute that is the one of the synchronous run, to read and to set."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, run: AsyncRun, owner: type) -> T:
        value: T = getattr(run.sync, self._name)
        return value

    def __set__(self, run: AsyncRun, value: T) -> None:
        setattr(run.sync, self._name, value)


class AsyncRun:
    """See `Run`. A cancelled task leaves the checkpoint, and gives the lease back all the same."""

    run_id = _Attribute[str]()
    task_name = _Attribute[str]()
    messages = _Attribute[list[Any]]()
    iteration = _Attribute[int]()
    system_prompt = _Attribute[str]()
    input_tokens = _Attribute[int]()
    output_tokens = _Attribute[int]()
    metadata = _Attribute[dict[str, Any]]()
    resumed = _Attribute[bool]()

    def __init__(self, run: Run) -> None:
        self.sync = run

    async def __aenter__(self) -> Self:
        await enter(self.sync)
        return self

    async def save(
        self,
        messages: list[Any] | None = None,
        *,
        iteration: int | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        system_prompt: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Checkpoint:
        return await hop(
            self.sync.save,
            messages,
            iteration=iteration,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            system_prompt=system_prompt,
            metadata=metadata,
        )

    @property
    def lease(self) -> Lease:
        return self.sync.lease

    def done(self) -> None:
        self.sync.done()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await leave(self.sync, error)

    def __repr__(self) -> str:
        return f"<clew.AsyncRun {self.run_id!r} at iteration {self.iteration}>"


class AsyncSessions:
    """See `Sessions`."""

    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        self.sync = store.sync.sessions

    async def new(
        self,
        vendor: str = "",
        endpoint: str = "",
        model: str = "",
        *,
        workspace: str | None = None,
        id: str | None = None,
    ) -> Session:
        return await hop(self.sync.new, vendor, endpoint, model, workspace=workspace, id=id)

    async def save(
        self,
        session: Session,
        *,
        format: str | None = None,
        fence: int | None = None,
        updated_at: datetime | None = None,
    ) -> bool:
        call = self.sync.save
        return await hop(call, session, format=format, fence=fence, updated_at=updated_at)

    async def append_message(
        self,
        session: Session | str,
        message: Any,
        *,
        usage: Usage | Mapping[str, Any] | None = None,
        model: str | None = None,
        format: str | None = None,
        fence: int | None = None,
    ) -> Entry:
        call = self.sync.append_message
        return await hop(
            call, session, message, usage=usage, model=model, format=format, fence=fence
        )

    async def append_event(
        self, session: Session | str, event: Event, *, fence: int | None = None
    ) -> Entry:
        return await hop(self.sync.append_event, session, event, fence=fence)

    async def append_checkpoint(
        self,
        session: Session | str,
        compacted_messages: Messages,
        token_count: int,
        *,
        fence: int | None = None,
    ) -> Entry:
        call = self.sync.append_checkpoint
        return await hop(call, session, compacted_messages, token_count, fence=fence)

    async def ensure_meta(self, session: Session) -> bool:
        return await hop(self.sync.ensure_meta, session)

    async def set_title(self, session: Session | str, text: str, *, source: str = "user") -> None:
        await hop(self.sync.set_title, session, text, source=source)

    async def delete(self, id: str) -> None:
        await hop(self.sync.delete, id)

    async def restore(self, id: str) -> None:
        await hop(self.sync.restore, id)

    async def purge(self, id: str) -> Purged:
        return await hop(self.sync.purge, id)

    async def fork(
        self,
        session: str,
        *,
        id: str | None = None,
        at: str | None = None,
        before: str | None = None,
        title: str | None = None,
    ) -> Session:
        return await hop(self.sync.fork, session, id=id, at=at, before=before, title=title)

    async def cleanup_older_than(self, time: datetime) -> int:
        return await hop(self.sync.cleanup_older_than, time)

    async def load(self, id: str, *, full: bool = False, events: bool = True) -> Session:
        return await hop(self.sync.load, id, full=full, events=events)

    async def list(
        self,
        workspace: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        archived: bool | None = False,
    ) -> Page[SessionInfo]:
        return await hop(self.sync.list, workspace, limit=limit, cursor=cursor, archived=archived)

    async def all(
        self, workspace: str | None = None, *, archived: bool | None = False
    ) -> AsyncIterator[SessionInfo]:
        async for info in iterate(await hop(self.sync.all, workspace, archived=archived)):
            yield info

    async def latest(self, workspace: str) -> SessionInfo | None:
        return await hop(self.sync.latest, workspace)

    async def thread(self, id: str) -> AsyncThread:
        return AsyncThread(self.store, await hop(self.sync.thread, id))

    async def calls(self, id: str) -> AsyncIterator[Entry]:
        async for entry in iterate(await hop(self.sync.calls, id)):
            yield entry

    def has_user_interaction(self, session: Session) -> bool:
        return self.sync.has_user_interaction(session)

    async def export_markdown(self, session: Session | str) -> str:
        return await hop(self.sync.export_markdown, session)
