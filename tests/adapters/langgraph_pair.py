"""A saver that is two, ours and one of LangGraph's own: it asks both, and compares them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Send
from programs import Ours

from clew.adapters.langgraph import ClewSaver

DELTA = "delta"  # the channel whose values each saver finds in its own way


class Pair(BaseCheckpointSaver[Any]):
    """Each call goes to another of our savers, and to the reference; what ours says is given."""

    def __init__(self, ours: Ours[ClewSaver], reference: Any, versions: Any) -> None:
        super().__init__(serde=reference.serde)
        self.ours, self.reference, self.versions = ours, reference, versions
        self.mutex = threading.RLock()  # LangGraph's threads must not come between the two
        self.turn = asyncio.Lock()  # nor its tasks

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        return self.versions.get_next_version(current, channel)

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        with self.mutex:
            found = self.ours.any.get_tuple(config)
            assert told(found) == told(self.reference.get_tuple(config))
            return found

    def list(self, config: Any, **options: Any) -> Iterator[CheckpointTuple]:
        with self.mutex:
            found = [*self.ours.any.list(config, **options)]
            expected = [*self.reference.list(config, **options)]
            assert by_namespace(found) == by_namespace(expected)
            return iter(found)

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        with self.mutex:
            made = self.ours.any.put(config, checkpoint, metadata, new_versions)
            assert made == self.reference.put(config, checkpoint, metadata, new_versions)
            return made

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        with self.mutex:
            self.ours.any.put_writes(config, writes, task_id, task_path)
            self._put_writes(config, writes, task_id, task_path)

    def _put_writes(self, config: Any, writes: Any, task_id: str, task_path: str) -> None:
        self.reference.put_writes(config, writes, task_id, task_path)
        # SqliteSaver keeps the first of what has to be replaced if it comes with other writes.
        special = [write for write in writes if write[0] in WRITES_IDX_MAP]
        if special and not isinstance(self.reference, InMemorySaver):
            self.reference.put_writes(config, special, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        self.ours.any.delete_thread(thread_id)
        self.reference.delete_thread(thread_id)

    def get_delta_channel_history(
        self, *, config: Any, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        with self.mutex:
            return self.ours.any.get_delta_channel_history(config=config, channels=channels)

    # --- the same, asynchronous ---

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        async with self.turn:
            found = await self.ours.any.aget_tuple(config)
            assert told(found) == told(self.reference.get_tuple(config))
            return found

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for one in self.list(config, **options):
            yield one

    async def aput(self, *given: Any) -> Any:
        async with self.turn:
            try:
                made = await self.ours.any.aput(*given)
            except asyncio.CancelledError:
                # What was begun is ended, also when its caller does not wait: then it is there.
                if self.ours.any.has_checkpoint(given[0], given[1]["id"]):
                    self.reference.put(*given)
                raise
            assert made == self.reference.put(*given)
            return made

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        async with self.turn:
            before = self.ours.store.stats().records
            try:
                await self.ours.any.aput_writes(config, writes, task_id, task_path)
            except asyncio.CancelledError:
                if self.ours.store.stats().records != before:
                    self._put_writes(config, writes, task_id, task_path)
                raise
            self._put_writes(config, writes, task_id, task_path)

    async def aget_delta_channel_history(
        self, *, config: Any, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        async with self.turn:
            saver = self.ours.any
            return await saver.aget_delta_channel_history(config=config, channels=channels)

    # --- what InMemorySaver has no method for ---

    def copy_thread(self, source: str, target: str) -> None:
        self.ours.any.copy_thread(source, target)
        for namespace, checkpoints in self.reference.storage[source].items():
            self.reference.storage[target][namespace] = dict(checkpoints)
        for (thread, *rest), writes in [*self.reference.writes.items()]:
            if thread == source:
                self.reference.writes[(target, *rest)] = dict(writes)
        for (thread, *rest), blob in [*self.reference.blobs.items()]:
            if thread == source:
                self.reference.blobs[(target, *rest)] = blob

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.ours.any.prune(thread_ids, strategy=strategy)
        for thread in thread_ids:
            for namespace, checkpoints in self.reference.storage[thread].items():
                assert not checkpoints or max(checkpoints) in self.ids(thread, namespace)
            self.forget(thread)

    def forget(self, thread: str) -> None:
        """Let the reference have what is left of a thread here, and nothing else."""
        for namespace, checkpoints in self.reference.storage[thread].items():
            left = self.ids(thread, namespace)
            for id in [id for id in checkpoints if id not in left]:
                del checkpoints[id]
            for key in [key for key in self.reference.writes if key[:2] == (thread, namespace)]:
                if key[2] not in left:
                    del self.reference.writes[key]

    def ids(self, thread: str, namespace: str) -> set[str]:
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
        return {one.checkpoint["id"] for one in self.ours.any.list(config)}


def by_namespace(found: Sequence[CheckpointTuple]) -> Any:
    """In the order of ids, which InMemorySaver has in each namespace only."""
    return sorted(map(told, found), key=lambda one: one[0][1])


def told(found: CheckpointTuple | None) -> Any:
    """Everything that a checkpoint says."""
    if found is None:
        return None
    keys = ("thread_id", "checkpoint_ns", "checkpoint_id")
    configs: list[Any] = [found.config, found.parent_config]
    ids, parent = [one and [one["configurable"].get(key) for key in keys] for one in configs]
    checkpoint: Any = dict(found.checkpoint)
    values = dict(checkpoint.pop("channel_values"))
    # InMemorySaver finds the snapshot of an ancestor by its version, and gives it as the value.
    values.pop(DELTA, None)
    said = [checkpoint, values, found.metadata, found.pending_writes]
    return [ids, parent, *map(shown, said)]


def shown(value: Any) -> Any:
    """A value with its types. Tuples are lists: LangGraph's own savers make no difference."""
    if isinstance(value, BaseMessage):
        return [type(value).__name__, shown(value.__dict__)]
    if isinstance(value, dict):
        return {key: shown(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [shown(part) for part in value]
    if isinstance(value, Send):
        return ["Send", value.node, shown(value.arg)]
    return repr(value)
