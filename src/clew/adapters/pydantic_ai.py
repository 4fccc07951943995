"""Pydantic AI: a conversation store, and message histories from and to any thread.

A conversation is the thread of the same id. Each of its messages is an entry, in the JSON that
Pydantic AI gives it; what the record has besides (usage, scope, the calls that a paused run waits
for) is one fact. A save is one atomic step. Which of two saves of one revision wins is decided by
the id of that fact, which is made of the revision that it replaces: a record's id is written once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import Any, Self, Unpack

from clew.adapters._versions import require

require("pydantic-ai-slim", extra="pydantic-ai", at_least="2.66", below="3")

from pydantic import TypeAdapter
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.usage import RunUsage

from clew import messages
from clew.adapters._histories import last_message
from clew.adapters._stores import AnyStore, open_store
from clew.aio.hop import hop
from clew.context.window import MESSAGE_KINDS
from clew.core import drafts
from clew.core.codec import digest, encode
from clew.core.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from clew.core.model import Draft, Entry, FactDraft, ThreadInfo, to_us
from clew.core.options import ContextOptions
from clew.messages.incoming import message_draft
from clew.messages.neutral import Message, Text, ToolResult, calls_of
from clew.messages.pydantic_ai import NAME as FORMAT
from clew.messages.shared.media import dump
from clew.thread import Thread

__all__ = ["ClewConversationStore", "append_messages", "message_history"]

FACT = "pydantic-ai"  # the record of a conversation
TAG = "pydantic-ai"  # by which conversations are listed
SCOPE_TAG = "pydantic-ai:scope="
DELETED = "pydantic-ai.deleted"  # deleted by `delete_record`, which a crash kept from purging
_HOLDERS_MAX = 4096

_RECORDS: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


# --- message histories ----------------------------------------------------------------------


def message_history(thread: Thread, **options: Unpack[ContextOptions]) -> list[ModelMessage]:
    """The context of any thread, for `agent.run(message_history=…)`."""
    written = thread.context(FORMAT, **options).messages
    found: list[ModelMessage] = ModelMessagesTypeAdapter.validate_python(written)
    return found


def append_messages(
    thread: Thread, new: Iterable[ModelMessage], *, fence: int | None = None
) -> list[Entry]:
    """Append messages, such as `result.new_messages()`, as one step."""
    given = [message_draft(body, FORMAT) for body in _dump(list(new))]
    return thread.append(given, fence=fence) if given else []


def _dump(given: list[ModelMessage]) -> list[Any]:
    dumped: list[Any] = ModelMessagesTypeAdapter.dump_python(given, mode="json")
    return dumped


# --- the store ------------------------------------------------------------------------------


class ClewConversationStore(ConversationStore):
    """Conversations as threads of a store, or of the store at an address.

    `delete` removes a conversation for good, but for the messages that forks of it share. A thread
    that was not written here can be loaded, branched and forked as well; entries that are no
    messages are passed over.
    """

    def __init__(self, store: AnyStore) -> None:
        self.store, self._opened_here = open_store(store)
        # An entry → a thread that has it. The interface asks for entries without their
        # conversation, most often right after it has asked for that.
        self._holders: OrderedDict[str, str] = OrderedDict()
        self._mutex = threading.Lock()

    def close(self) -> None:
        """Close the store, if it was given as an address."""
        if self._opened_here:
            self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await hop(self.close)

    # --- the primitives: one hop each ---

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return await hop(self._find, conversation_id)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        return await hop(self._list, scope, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        await hop(self._write, record, new_entries, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await hop(self._delete, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        found = await hop(self._history, entry_id, 1)
        return found[0]

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """The entries up to `head_id`, or the last `limit` of them: one read of the path."""
        return [] if head_id is None or limit == 0 else await hop(self._history, head_id, limit)

    # --- forks and branches that need no history ---

    async def fork(
        self,
        conversation_id: str,
        *,
        at: int | None = None,
        from_entry: str | None = None,
        new_conversation_id: str | None = None,
        scope: str | None = None,
        source_scope: str | None = None,
        limit: int | None = None,
    ) -> Conversation:
        """Start a conversation from a stored one: one row, unless `at` has to be counted out.

        `limit` is that of `load`: with 0 none of the history is read, and a run that is saved
        goes on from all of it.
        """
        record = await self._in_store(conversation_id, source_scope)
        if at is not None and from_entry is not None:
            raise UserError("Pass exactly one of `at` and `from_entry`.")
        head = await self._point(record, at, from_entry)
        whole = head == record.head_id
        made = ConversationRecord(
            conversation_id=new_conversation_id or Conversation().conversation_id,
            head_id=head,
            usage=replace(record.usage) if whole else RunUsage(),
            deferred_tool_requests=record.deferred_tool_requests if whole else None,
            scope=scope if scope is not None else record.scope,
            forked_from=record.conversation_id,
            forked_at=head,
        )
        await self.write_record(made, expected_revision=None)
        return await self._loaded(made, limit)

    async def branch(
        self,
        conversation_id: str,
        *,
        at: int | None = None,
        from_entry: str | None = None,
        expected_revision: str | None,
        scope: str | None = None,
        limit: int | None = None,
    ) -> Conversation:
        """Continue from an earlier point, or in a branch that was left: a move of the leaf.

        `limit` is that of `load`.
        """
        record = await self._in_store(conversation_id, scope)
        if record.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        if (at is None) == (from_entry is None):
            raise UserError("Pass exactly one of `at` and `from_entry`.")
        head = await self._point(record, at, from_entry)
        left = list(record.branches)
        if record.head_id is not None and not await hop(self._leads_to, record, head):
            left = [*(tip for tip in left if tip != record.head_id), record.head_id]
        fresh = ConversationRecord(conversation_id=conversation_id, head_id=head)
        made = replace(
            record,
            head_id=head,
            deferred_tool_requests=(
                record.deferred_tool_requests if head == record.head_id else None
            ),
            branches=[tip for tip in left if tip != head],
            revision=fresh.revision,
            updated_at=fresh.updated_at,
        )
        await self.write_record(made, expected_revision=expected_revision)
        return await self._loaded(made, limit)

    async def _in_store(self, conversation_id: str, scope: str | None) -> ConversationRecord:
        record = await self.read_record(conversation_id)
        if record is None or (scope is not None and record.scope != scope):
            raise UserError(f"Conversation {conversation_id!r} is not in the store.")
        return record

    async def _point(
        self, record: ConversationRecord, at: int | None, from_entry: str | None
    ) -> str | None:
        """The entry where a fork or a branch begins."""
        if from_entry is not None:
            if await hop(self._has, record.conversation_id, from_entry):
                return from_entry
            raise UserError(
                f"Entry {from_entry!r} is not in the history of conversation "
                f"{record.conversation_id!r} or a branch it left."
            )
        if at is None:
            whole: str | None = record.head_id
            return whole
        history = await self.read_history(record.head_id)
        if not 0 <= at <= len(history):
            raise UserError(
                f"`at` must be between 0 and {len(history)}, the number of messages in the "
                "conversation."
            )
        return history[at - 1].id if at else None

    async def _loaded(self, record: ConversationRecord, limit: int | None) -> Conversation:
        found = await self.load(record.conversation_id, limit=limit)
        if found is None:
            raise ConversationConflict(record.conversation_id)  # it is deleted again already
        return found

    # --- records ---

    def _find(self, conversation_id: str) -> ConversationRecord | None:
        thread = self.store.find(conversation_id)
        return None if thread is None else self._record(thread.info)

    def _list(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        tag = TAG if scope is None else f"{SCOPE_TAG}{scope}"
        size = 500 if limit is None else min(max(limit, 1), 500)
        infos = self.store.threads(order="updated", archived=None, tag=tag, limit=size)
        return list(islice(filter(None, map(self._record, infos)), limit))

    def _record(self, info: ThreadInfo) -> ConversationRecord | None:
        """What a thread is as a conversation; None for one that is being made just now."""
        kept = info.facts.get(FACT)
        if kept is not None:
            record = _RECORDS.validate_python(kept)
        elif info.leaf is None and info.facts.get("adapter") == FORMAT:
            return None
        else:
            scopes = [tag for tag in info.tags if tag.startswith(SCOPE_TAG)]
            scope = scopes[0].removeprefix(SCOPE_TAG) if scopes else None
            record = ConversationRecord(
                conversation_id=info.id, head_id=None, scope=scope, revision="@"
            )
        if kept is None or record.head_id != info.leaf:
            # Others have gone on with the thread, so what was loaded before is out of date.
            last = last_message(Thread(self.store, info.id), info.leaf)
            record.head_id = None if last is None else last.id
            record.deferred_tool_requests = None
            record.revision = f"{record.revision}@{info.leaf}"
            record.updated_at = info.updated_at
        for tip in (record.head_id, *record.branches):
            if tip is not None:
                self._remember(tip, info.id)
        return record

    def _write(
        self,
        record: ConversationRecord,
        new_entries: Sequence[ConversationEntry],
        expected: str | None,
    ) -> None:
        id, time_us = record.conversation_id, to_us(record.updated_at, "updated_at")
        thread = self.store.find(id)
        # One look: what is compared here is what the write expects to find.
        info = None if thread is None else thread.info
        current = None if info is None else self._record(info)
        if (None if current is None else current.revision) != expected:
            raise ConversationConflict(id)
        known = None if current is None else current.head_id
        begins_at = new_entries[0].parent_id if new_entries else record.head_id
        try:
            if thread is None or info is None:
                is_whole = not new_entries and begins_at is not None
                thread = self._create(record, begins_at, whole=is_whole)
                if is_whole:
                    return
                info, known = thread.info, begins_at
                if FACT in info.facts:
                    raise ConversationConflict(id)
            batch = self._entries(record, new_entries, known)
            if TAG not in info.tags:
                tags = [*info.tags, *_tags(record)]
                batch += drafts.facts({"tags": tags}, time_us)
            batch.append(_claim(expected, FACT, _RECORDS.dump_python(record, mode="json"), time_us))
            thread.write(batch, expect=info.leaf)
        except (Conflict, NotFound, AlreadyExists):
            raise ConversationConflict(id) from None
        except InvalidInput as error:
            if error.field in ("parent", "leaf"):
                raise ConversationConflict(id) from None
            raise
        if record.head_id is not None:
            self._remember(record.head_id, id)

    def _entries(
        self,
        record: ConversationRecord,
        new_entries: Sequence[ConversationEntry],
        head: str | None,
    ) -> list[Draft]:
        """The entries and the move that lead from `head`, where the thread stands, to the new."""
        batch: list[Draft] = []
        time = record.updated_at
        bodies = _dump([entry.message for entry in new_entries])
        for entry, body in zip(new_entries, bodies, strict=True):
            # Without a parent it hangs on the leaf, behind what is no message after the head.
            place = {} if entry.parent_id == head else {"parent": entry.parent_id}
            batch.append(message_draft(body, FORMAT, id=entry.id, time=time, **place))
            head = entry.id
        if not new_entries or record.head_id != head:
            batch.append(drafts.move(record.head_id, to_us(time)))
        return batch

    def _create(self, record: ConversationRecord, begins_at: str | None, *, whole: bool) -> Thread:
        """The thread of a new conversation; a fork where it begins in another one."""
        id = record.conversation_id
        facts = {"adapter": FORMAT, "tags": _tags(record)}
        if whole:
            facts[FACT] = _RECORDS.dump_python(record, mode="json")
        while True:
            try:
                if begins_at is None:
                    return self.store.create(id, facts=facts, time=record.updated_at)
                holder = self._holder(begins_at, record.forked_from)
                return self.store.fork(
                    holder.id, at=begins_at, id=id, facts=facts, time=record.updated_at
                )
            except AlreadyExists as error:
                if error.deleted_at is None and not whole:
                    return self.store.get(id)  # another caller makes it, too; one write wins
                if not self._purge_deleted(id):
                    raise
            except LookupError:
                raise ConversationConflict(id) from None

    # --- deleting ---

    def _delete(self, conversation_id: str, expected: str) -> None:
        thread = self.store.find(conversation_id)
        info = None if thread is None else thread.info
        record = None if info is None else self._record(info)
        if thread is None or info is None or record is None or record.revision != expected:
            raise ConversationConflict(conversation_id)
        now_us = self.store.clock()
        # A delete has to win the revision first: a purge does not ask for one.
        batch = [
            _claim(expected, DELETED, True, now_us),
            *drafts.facts({"deleted_us": now_us}, now_us),
        ]
        try:
            thread.write(batch, expect=info.leaf)
        except (Conflict, NotFound):
            raise ConversationConflict(conversation_id) from None
        self._purge_deleted(conversation_id)

    def _purge_deleted(self, conversation_id: str) -> bool:
        """Finish a `delete`. A thread that was deleted in another way may yet be restored."""
        try:
            if not self.store.get(conversation_id, deleted=True).facts.get(DELETED):
                return False
            self.store.purge(conversation_id)
        except NotFound:
            pass  # another process has finished it
        return True

    # --- entries ---

    def _history(self, head: str, limit: int | None) -> list[ConversationEntry]:
        thread = self._holder(head)
        if limit is None:
            path = thread.path(head)
        else:
            # One more, as the parent of the first; and as many again for what is no message.
            size = 2 * limit + 8
            path = thread.path(head, limit=size)
            while len(_messages(path)) <= limit and path and path[0].parent is not None:
                size *= 4
                path = thread.path(head, limit=size)
        found = _conversation_entries(_messages(path))
        return found if limit is None else found[-limit:]

    def _leads_to(self, record: ConversationRecord, head: str | None) -> bool:
        """Whether the head of a record lies on the way to another entry."""
        if head is None or head == record.head_id:
            return bool(head == record.head_id)
        thread = Thread(self.store, record.conversation_id)
        try:
            thread.path(head, after=record.head_id, limit=1)
        except NotFound:
            return False
        return True

    def _holder(self, entry: str, hint: str | None = None) -> Thread:
        """A thread that has an entry. LookupError if there is none.

        Who asks for an entry that no record has named costs a look into each conversation.
        """
        known = [id for id in (self._holders.get(entry), hint) if id is not None]
        for id in known:
            if self._has(id, entry):
                return Thread(self.store, id)
        for info in self.store.threads(order="updated", archived=None, tag=TAG):
            if self._has(info.id, entry):
                self._remember(entry, info.id)
                return Thread(self.store, info.id)
        raise LookupError(f"entry {entry!r} is in no conversation")

    def _has(self, thread: str, entry: str) -> bool:
        try:
            return self.store.get(thread).get(entry).kind in MESSAGE_KINDS
        except (NotFound, InvalidInput):
            return False

    def _remember(self, entry: str, thread: str) -> None:
        with self._mutex:
            self._holders[entry] = thread
            self._holders.move_to_end(entry)
            while len(self._holders) > _HOLDERS_MAX:
                self._holders.popitem(last=False)


def _tags(record: ConversationRecord) -> list[str]:
    return [TAG] if record.scope is None else [TAG, f"{SCOPE_TAG}{record.scope}"]


def _claim(expected: str | None, key: str, value: Any, time_us: int) -> FactDraft:
    """A fact that only one writer can set: its id is made of the revision that it replaces."""
    replaced = digest(encode(expected))
    return FactDraft(id=f"{FACT}:{replaced}", key=key, data=encode(value), time_us=time_us)


def _messages(path: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in path if entry.kind in MESSAGE_KINDS]


def _conversation_entries(path: Sequence[Entry]) -> list[ConversationEntry]:
    """Entries as Pydantic AI sees them; what was written in another format is converted."""
    bodies: list[Any] = []
    ids: list[str] = []
    names: dict[str, str] = {}
    for entry in path:
        made = [entry.body] if entry.format == FORMAT else _converted(entry, names)
        # Hardly ever, one entry is several messages; the last of them has its id.
        ids += [f"{entry.id}/{n}" for n in range(1, len(made))] + [entry.id][: len(made)]
        bodies += made
    found: list[ConversationEntry] = []
    parent: str | None = None
    for id, message in zip(ids, ModelMessagesTypeAdapter.validate_python(bodies), strict=True):
        found.append(ConversationEntry(id=id, parent_id=parent, message=message))
        parent = id
    return found


def _converted(entry: Entry, names: dict[str, str]) -> list[Any]:
    """The messages of an entry in another format. `names` are those of the calls before it."""
    found = messages.view(entry.format, entry.body)
    if not found:
        found = [Message(role="user", parts=(Text(dump(entry.body)),))]
    named: list[Message] = []
    for message in found:
        names |= {call.id: call.name for call in calls_of(message)}
        parts = tuple(
            ToolResult(part.call, part.content, part.name or names.get(part.call), part.is_error)
            if isinstance(part, ToolResult)
            else part
            for part in message.parts
        )
        named.append(Message(role=message.role, parts=parts, model=message.model))
    return messages.write(FORMAT, named).messages
