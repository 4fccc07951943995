"""Microsoft Agent Framework: a history provider for agents, a checkpoint storage for workflows.

A session's history is the thread of the session's id; saving is one append. A checkpoint is a
thread of its own, `checkpoint:<id>`, found by its id and listed by a tag of its workflow, so that
no call reads the checkpoints that it is not about.

Values of a checkpoint that JSON cannot carry are pickled by the framework's own encoding. They are
read with its restricted unpickler only, which makes the types that the framework allows and those
that the user has named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any

from clew.adapters._versions import require

require("agent-framework-core", extra="agent-framework", at_least="1.23", below="2")

from agent_framework import HistoryProvider, Message, WorkflowCheckpoint
from agent_framework._sessions import filter_new_messages
from agent_framework._workflows._checkpoint_encoding import (
    decode_checkpoint_value,
    encode_checkpoint_value,
)
from agent_framework.exceptions import WorkflowCheckpointException

from clew.adapters._stores import AnyStore, open_store
from clew.aio.hop import hop
from clew.context.window import MESSAGE_KINDS
from clew.core import drafts
from clew.core.errors import InvalidInput, NotFound, TooLarge
from clew.core.model import Draft, Entry, ThreadInfo, to_us
from clew.core.names import check_name
from clew.messages.agent_framework import NAME as FORMAT
from clew.messages.incoming import message_drafts
from clew.thread import Thread

__all__ = ["ClewCheckpointStorage", "ClewHistoryProvider"]

TAG = "agent-framework"
WORKFLOW_TAG = "agent-framework:workflow="
CHECKPOINT = "checkpoint:"  # begins the ids of their threads


# --- histories ------------------------------------------------------------------------------


class ClewHistoryProvider(HistoryProvider):
    """The history of sessions, in a store or in the store at an address.

    What is loaded is the thread's context: whole, or from its last compaction on, and valid also
    if a run was killed between a call and its result. The other options are those of every history
    provider. With `skip_excluded` messages that a compaction of the framework has excluded are
    left out.
    """

    DEFAULT_SOURCE_ID = "clew"

    def __init__(
        self,
        store: AnyStore,
        source_id: str = DEFAULT_SOURCE_ID,
        *,
        skip_excluded: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(source_id, **options)
        self.store, self._opened_here = open_store(store)
        self.skip_excluded = skip_excluded

    def close(self) -> None:
        """Close the store, if it was given as an address."""
        if self._opened_here:
            self.store.close()

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """The messages of a session; none if it is new."""
        return await hop(self._load, _checked(session_id))

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append messages, without those at their beginning that the session ends with already."""
        await hop(self._save, _checked(session_id), list(messages))

    def _load(self, session_id: str) -> list[Message]:
        thread = self.store.find(session_id)
        if thread is None:
            return []
        bodies = thread.context(FORMAT, purpose="display").messages
        found = list(map(Message.from_dict, bodies))
        if self.skip_excluded:
            found = [one for one in found if not one.additional_properties.get("_excluded", False)]
        return found

    def _save(self, session_id: str, given: list[Message]) -> None:
        if not given:
            return
        facts = {"adapter": FORMAT, "tags": [TAG]}
        thread = self.store.get_or_create(session_id, facts=facts)
        new = filter_new_messages(self._tail(thread, len(given) + 1), given)
        if new:
            thread.append(message_drafts([message.to_dict() for message in new], FORMAT))

    def _tail(self, thread: Thread, count: int) -> list[Message]:
        """The last messages: one more than are given, so that these cannot replay them all."""
        size = count + 8
        while True:
            path = thread.path(limit=size)
            said = [entry for entry in path if entry.kind in MESSAGE_KINDS]
            if len(said) >= count or not path or path[0].parent is None:
                # What others wrote was not given by this framework, so no replay reaches over it.
                newest_first = takewhile(lambda entry: entry.format == FORMAT, reversed(said))
                own = list(islice(newest_first, count))[::-1]
                return [Message.from_dict(entry.body) for entry in own]
            size *= 4


def _checked(session_id: Any) -> str:
    """An id. Without one, strangers would share a history."""
    if session_id is None:
        raise InvalidInput("session_id", "is needed: pass a session to the agent")
    return check_name(session_id, "session_id")


# --- checkpoints ----------------------------------------------------------------------------


class ClewCheckpointStorage:
    """The checkpoints of workflows, in a store or in the store at an address.

    `allowed_checkpoint_types` are types of yours ("module:qualname") that a checkpoint may hold,
    beside those that the framework allows. What could not be loaded again is not saved.
    """

    def __init__(
        self, store: AnyStore, *, allowed_checkpoint_types: Iterable[str] | None = None
    ) -> None:
        self.store, self._opened_here = open_store(store)
        self._allowed = frozenset(allowed_checkpoint_types or ())

    def close(self) -> None:
        """Close the store, if it was given as an address."""
        if self._opened_here:
            self.store.close()

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint; its id. One of the same id is replaced."""
        return await hop(self._save, checkpoint)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """WorkflowCheckpointException if there is none, or it holds what is not allowed."""
        found = await hop(self._find, checkpoint_id)
        if found is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        return self._decoded(found)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """The checkpoints of a workflow, the oldest first."""
        found = await hop(self._entries, workflow_name)
        return [self._decoded(entry) for entry in found]

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Their ids, the oldest first. Reads no checkpoint."""
        infos = await hop(self._infos, workflow_name)
        return [info.id.removeprefix(CHECKPOINT) for info in infos]

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """The checkpoint of a workflow with the latest timestamp. Reads no other."""
        found = await hop(self._latest, workflow_name)
        return None if found is None else self._decoded(found)

    async def delete(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint for good; whether it was there."""
        return await hop(self._delete, checkpoint_id)

    def _save(self, checkpoint: WorkflowCheckpoint) -> str:
        id: str = checkpoint.checkpoint_id
        try:
            encoded = encode_checkpoint_value(checkpoint.to_dict())
            decode_checkpoint_value(encoded, allowed_types=self._allowed)
        except WorkflowCheckpointException:
            raise
        except Exception as error:
            raise WorkflowCheckpointException(
                f"Checkpoint {id} cannot be encoded, so it was not saved: {error}"
            ) from error
        time_us = _time_us(checkpoint.timestamp)
        thread = self.store.get_or_create(f"{CHECKPOINT}{id}", facts={"adapter": FORMAT})
        noted = {
            "workflow": checkpoint.workflow_name,
            "iteration": checkpoint.iteration_count,
            "previous": checkpoint.previous_checkpoint_id,
        }
        entry = drafts.draft("custom", encoded, format="agent-framework.checkpoint", meta=noted)
        tags = [TAG, f"{WORKFLOW_TAG}{checkpoint.workflow_name}"]
        # The move leads nowhere: it tells the list when the checkpoint was made.
        batch: list[Draft] = [entry, drafts.move(entry.id, time_us)]
        batch += drafts.facts({"tags": tags}, time_us)
        thread.write(batch)
        return id

    def _find(self, checkpoint_id: str) -> Entry | None:
        try:
            thread = self.store.find(f"{CHECKPOINT}{checkpoint_id}")
        except (InvalidInput, TooLarge):
            return None  # what cannot be an id is the id of none
        return None if thread is None else _newest(thread)

    def _infos(self, workflow_name: str) -> list[ThreadInfo]:
        tag = f"{WORKFLOW_TAG}{workflow_name}"
        return list(self.store.threads(order="updated", archived=None, tag=tag))[::-1]

    def _entries(self, workflow_name: str) -> list[Entry]:
        found = [_newest(Thread(self.store, info.id)) for info in self._infos(workflow_name)]
        return [entry for entry in found if entry is not None]

    def _latest(self, workflow_name: str) -> Entry | None:
        tag = f"{WORKFLOW_TAG}{workflow_name}"
        page = self.store.list(order="updated", archived=None, tag=tag, limit=1)
        return _newest(Thread(self.store, page.items[0].id)) if page.items else None

    def _delete(self, checkpoint_id: str) -> bool:
        try:
            self.store.purge(f"{CHECKPOINT}{checkpoint_id}")
        except (NotFound, InvalidInput, TooLarge):
            return False
        return True

    def _decoded(self, entry: Entry) -> WorkflowCheckpoint:
        # The framework's default for "no list of types" is to unpickle everything: never that.
        return WorkflowCheckpoint.from_dict(
            decode_checkpoint_value(entry.body, allowed_types=self._allowed)
        )


def _newest(thread: Thread) -> Entry | None:
    """The checkpoint in a thread; None if a crash came before it was written, or it was purged."""
    try:
        path = thread.path(limit=1)
    except NotFound:
        return None
    return path[0] if path else None


def _time_us(timestamp: str) -> int:
    """When a checkpoint was made; times without a zone are taken for UTC."""
    try:
        time = datetime.fromisoformat(timestamp)
    except (TypeError, ValueError) as error:
        raise WorkflowCheckpointException(f"{timestamp!r} is not a timestamp: {error}") from error
    return to_us(time if time.tzinfo is not None else time.replace(tzinfo=UTC), "timestamp")
