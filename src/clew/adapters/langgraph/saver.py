"""ClewSaver: LangGraph's checkpoints in a store, by element, with the conversation readable.

One class for both worlds: the methods that begin with `a` do the same in a worker thread, under
asyncio as under trio.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import islice, repeat
from types import TracebackType
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)

from clew.adapters._ownership import Owner, Ownership
from clew.adapters._stores import AnyStore, open_store
from clew.adapters.langgraph import retention
from clew.adapters.langgraph.elements import Stored, item_of, pairs_of
from clew.adapters.langgraph.journal import Found, Journal
from clew.adapters.langgraph.memory import Memory
from clew.adapters.langgraph.names import FACT, thread_name
from clew.adapters.langgraph.sightings import Sightings
from clew.adapters.langgraph.values import Allowed, Values, is_plain_dict
from clew.aio.hop import hop
from clew.core.drafts import several
from clew.core.errors import InvalidInput, NotFound
from clew.core.names import check_name
from clew.tree import children_of

Journals = list[Journal]  # `list` means the method inside of ClewSaver

_log = logging.getLogger("clew")

_KEY = re.compile(r"[A-Za-z0-9_.-]+")


class ClewSaver(BaseCheckpointSaver[Any]):
    """A checkpointer on a Clew store: `graph.compile(checkpointer=ClewSaver("threads.db"))`.

    `store` is an open store, or the address of one. The LangGraph thread `t` is the Clew thread
    `t`; a subgraph's checkpoints are in threads of their own, whose parent it is. `messages` names
    the channel whose messages are the conversation. `allow` are classes of yours that may stand
    in a state: pydantic models, dataclasses, enums. With `ownership="lease"` one saver writes a
    thread at a time: another one gets LeaseHeld, and one that was superseded LeaseLost.
    """

    def __init__(
        self,
        store: AnyStore,
        *,
        messages: str = "messages",
        allow: Allowed = (),
        ownership: Ownership = None,
        lease_seconds: float = 30.0,
    ) -> None:
        values = Values(allow)
        super().__init__(serde=values)
        self._values = values
        self.store, self._opened_here = open_store(store)
        self._messages = check_name(messages, "messages")
        self._owner = Owner(self.store, ownership, ttl_seconds=lease_seconds)
        self._memory = Memory()
        self._sightings = Sightings(values)
        self._runs = retention.Runs(self.store)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> ClewSaver:
        """The same saver, on the same store, with more classes allowed."""
        clone = copy.copy(self)
        clone._values = clone.serde = self._values.allowing(extra_allowlist)
        clone._sightings = Sightings(clone._values)
        return clone

    def release(self, thread_id: str | None = None) -> None:
        """Give up the lease of a thread and its subgraphs, or all leases of this saver."""
        if thread_id is None:
            self._owner.release()
            return
        for journal in self._journals(_thread_id(thread_id)):
            self._owner.release(journal.name)

    def close(self) -> None:
        """Give up the leases; close the store if it was opened here."""
        self._owner.release()
        if self._opened_here:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await hop(self.close)

    # --- reading ----------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names; without an id, the newest of its namespace.

        NotFound, with `erased_at`: it was erased, or a value that it needs.
        """
        journal, checkpoint_id = self._at(config)
        found = journal.find(checkpoint_id)
        if found is not None:
            return self._tuple(journal, found, remember=True)
        if checkpoint_id is not None:
            journal.refuse_erased(checkpoint_id)
        return None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of a namespace, of a thread, or of all threads.

        `filter` compares fields of the metadata; a key with dots looks into objects.
        """
        wanted = _checked_filter(filter)
        end = None if before is None else _configurable(before).get("checkpoint_id")
        if limit is not None and type(limit) is not int:
            raise InvalidInput("limit", f"must be a whole number or None, not {limit!r}")
        if limit is not None and limit <= 0:
            return iter(())
        return islice(self._listed(config, wanted, end), limit)

    def _listed(
        self, config: RunnableConfig | None, wanted: Mapping[str, Any], end: str | None
    ) -> Iterator[CheckpointTuple]:
        only = None
        groups: Iterator[Journals]
        if config is None:
            groups = self._all_journals()
        else:
            named = _configurable(config)
            only = named.get("checkpoint_id")
            thread_id = _thread_id(named.get("thread_id"))
            if named.get("checkpoint_ns") is None:
                groups = iter([self._journals(thread_id)])
            else:
                groups = iter([[self._journal(thread_id, named["checkpoint_ns"])]])
        for journals in groups:
            of_all = [zip(repeat(journal), journal.newest_first()) for journal in journals]
            for journal, found in merge(*of_all, key=lambda pair: pair[1].id, reverse=True):
                if only is not None and found.id != only:
                    continue
                if end is not None and found.id >= end:
                    continue
                if wanted and not _fits(self._values.from_json(found.body["metadata"]), wanted):
                    continue
                try:
                    made = self._tuple(journal, found)
                except NotFound as error:
                    if error.erased_at is None:
                        raise
                    _log.warning("checkpoint %s is not listed: %s", found.id, error)
                    continue
                yield made

    def _tuple(self, journal: Journal, found: Found, *, remember: bool = False) -> CheckpointTuple:
        values = {
            channel: self._restored(journal, channel, stored, remember=remember)
            for channel, stored in journal.load(found).items()
        }
        frame = self._values.from_json(found.body["checkpoint"])
        parent = found.parent
        return CheckpointTuple(
            _config(journal, found.id),
            {**frame, "channel_values": values},
            self._values.from_json(found.body["metadata"]),
            None if parent is None else _config(journal, parent),
            [
                (write.task, write.channel, self._values.from_json(write.value))
                for write in journal.pending(found)
            ],
        )

    def _restored(
        self, journal: Journal, channel: str, stored: Stored, *, remember: bool = False
    ) -> Any:
        if stored.kind is None:
            return self._values.from_json(stored.value)
        if stored.kind == "dict":
            return dict([self._values.from_json(pair) for pair in pairs_of(stored)])
        place = (journal.name, channel)
        return self._sightings.restored(place, stored.items, remember=remember)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel, the writes since the nearest ancestor that has a value, and that value.

        Ancestors are read without the values of other channels.
        """
        journal, checkpoint_id = self._at(config)
        target = journal.find(checkpoint_id)
        writes: dict[str, list[tuple[str, str, Any]]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        child = target
        at = None if child is None else _parent(journal, child)
        while child is not None and at is not None and seeds.keys() != writes.keys():
            left = writes.keys() - seeds.keys()
            # Writes of a channel that the child has as its parent had it went to another child.
            taken = {channel for channel in left if not _is_same(child, at, channel)}
            for write in reversed(journal.pending(at) if taken else ()):
                if write.channel in taken:
                    value = self._values.from_json(write.value)
                    writes[write.channel].append((write.task, write.channel, value))
            for channel, stored in journal.load(at, left).items():
                seeds[channel] = self._restored(journal, channel, stored)
            child, at = at, _parent(journal, at)
        history: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            history[channel] = {"writes": writes[channel][::-1]}
            if channel in seeds:
                history[channel]["seed"] = seeds[channel]
        return history

    # --- writing ----------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, as a child of the one that the config names."""
        journal, parent = self._at(config)
        channels = checkpoint["channel_values"]
        frame = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        told: Any = get_checkpoint_metadata(config, metadata)
        run = told.get("run_id")
        if isinstance(run, str) and run:
            self._runs.note(run, journal.name)
        journal.put(
            check_name(checkpoint["id"], "checkpoint_id"),
            parent,
            self._values.to_json(frame),
            self._values.to_json(told),
            channels,
            lambda channel: self._stored(journal, channel, channels[channel]),
            new_versions,
        )
        return _config(journal, checkpoint["id"])

    def _stored(self, journal: Journal, channel: str, value: Any) -> Stored:
        if type(value) is dict and value and is_plain_dict(value):
            pairs = [item_of([key, self._values.to_json(part)]) for key, part in value.items()]
            return Stored(kind="dict", items=pairs)
        if type(value) is not list or not value:
            return Stored(self._values.to_json(value))
        place = (journal.name, channel)
        items = self._sightings.items(place, value, told=channel == self._messages)
        return Stored(kind="list", items=items)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task has written since a checkpoint, until the next one."""
        journal, checkpoint_id = self._at(config)
        check_name(checkpoint_id, "checkpoint_id")
        given = [
            [WRITES_IDX_MAP.get(channel, index), channel, self._values.to_json(value)]
            for index, (channel, value) in enumerate(writes)
        ]
        if given:
            assert checkpoint_id is not None
            journal.write(checkpoint_id, str(task_id), str(task_path), given)

    def has_checkpoint(self, config: RunnableConfig, checkpoint_id: str) -> bool:
        """Whether a checkpoint is there, in the thread and namespace of a config."""
        return self._at(config)[0].find(checkpoint_id) is not None

    def import_checkpoint(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        writes: Sequence[tuple[str, str, int, str, Any]],
    ) -> None:
        """Store a checkpoint of another saver, after its writes: task, path, place, channel, value.

        A config without a checkpoint_id stands for one without a parent.
        """
        journal, _ = self._at(config)
        for task, path, place, channel, value in writes:
            given = [[place, channel, self._values.to_json(value)]]
            journal.write(check_name(checkpoint["id"], "checkpoint_id"), task, path, given)
        self.put(config, checkpoint, metadata, {})

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """Numbers; after a thread that came from another saver, texts like those that it wrote."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.0"
        return 1 if current is None else current + 1

    # --- threads as a whole -----------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread and its subgraphs for good. What a copy shares with it stays there."""
        # Subgraphs first: they are found by their parent, also if this is interrupted.
        for journal in reversed(self._journals(_thread_id(thread_id))):
            journal.purge()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints and writes of runs, in whichever threads they are.

        A checkpoint stays if a later one, of another run, cannot be told without it (DeltaChannel).
        """
        gone = {check_name(run, "run_id") for run in several(run_ids, "run_ids")}
        for name in self._runs.threads(gone):
            found = self.store.find(name)
            journal = None if found is None else self._journal_of(found.facts)
            if journal is not None:
                retention.keep(journal, self._runs, lambda one: one.run not in gone)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread by reference: one fork for it, and one for each of its subgraphs."""
        target = _thread_id(target_thread_id)
        for journal in self._journals(_thread_id(source_thread_id)):
            retention.copy(journal, target)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace ("keep_latest"), or none ("delete").

        What the newest needs stays: its elements, and the ancestors that a DeltaChannel is read
        from. The rest is removed for good, also from the disk.
        """
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput("strategy", f"must be 'keep_latest' or 'delete', not {strategy!r}")
        for thread_id in several(thread_ids, "thread_ids"):
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            for journal in self._journals(_thread_id(thread_id)):
                newest = journal.find(None)
                if newest is not None:
                    retention.keep(journal, self._runs, partial(_is, newest.id))

    # --- the same, asynchronous -------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await hop(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        # One at a time: each is a whole state, and a caller may want no more than the first.
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await hop(next, found, None)) is not None:
            yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await hop(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await hop(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await hop(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await hop(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await hop(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await hop(self.prune, thread_ids, strategy=strategy)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await hop(self.get_delta_channel_history, config=config, channels=channels)

    # --- journals ---------------------------------------------------------------------------

    def _at(self, config: RunnableConfig) -> tuple[Journal, str | None]:
        named = _configurable(config)
        checkpoint_id = named.get("checkpoint_id")
        journal = self._journal(named.get("thread_id"), named.get("checkpoint_ns") or "")
        return journal, None if not checkpoint_id else str(checkpoint_id)

    def _journal(self, thread_id: Any, namespace: Any) -> Journal:
        if not isinstance(namespace, str):
            raise InvalidInput("checkpoint_ns", f"must be text, not {namespace!r}")
        named = _thread_id(thread_id)
        return Journal(self.store, self._owner, self._memory, named, namespace)

    def _journal_of(self, facts: Mapping[str, Any]) -> Journal | None:
        told = facts.get(FACT)
        if not isinstance(told, dict):
            return None
        return self._journal(told.get("thread_id"), told.get("checkpoint_ns"))

    def _journals(self, thread_id: str) -> Journals:
        """The journal of a thread, then those of its subgraphs."""
        found = [self._journal(thread_id, "")]
        for name in children_of(self.store, thread_name(thread_id, "")):
            child = self.store.find(name)
            journal = None if child is None else self._journal_of(child.facts)
            if journal is not None and journal.name == name:
                found.append(journal)
        return found

    def _all_journals(self) -> Iterator[Journals]:
        """The journals of every thread, one thread after the other."""
        for info in self.store.threads(archived=None):
            journal = self._journal_of(info.facts)
            if journal is not None and journal.name == info.id and not journal.namespace:
                yield self._journals(journal.thread_id)


def _is(id: str, found: Found) -> bool:
    return found.id == id


def _configurable(config: Any) -> dict[str, Any]:
    found = config.get("configurable") if isinstance(config, dict) else None
    if not isinstance(found, dict):
        raise InvalidInput("config", 'has no "configurable" with a thread_id')
    return found


def _thread_id(given: Any) -> str:
    """LangGraph takes numbers and UUIDs as thread ids, too."""
    if given is None or isinstance(given, bool | dict | list | tuple | set):
        raise InvalidInput("thread_id", f"must be a text, not {given!r}")
    return check_name(str(given), "thread_id")


def _is_same(child: Found, parent: Found, channel: str) -> bool:
    """Whether a channel is known to have the same version in two checkpoints."""
    version = child.versions.get(channel)
    return version is not None and version == parent.versions.get(channel)


def _parent(journal: Journal, found: Found) -> Found | None:
    """The checkpoint before one. NotFound: it was erased, and what it held is not known."""
    if found.parent is None:
        return None
    parent = journal.find(found.parent)
    if parent is None:
        journal.refuse_erased(found.parent)
    return parent


def _config(journal: Journal, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": journal.thread_id,
            "checkpoint_ns": journal.namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


def _checked_filter(filter: Any) -> dict[str, Any]:
    if filter is None:
        return {}
    if not isinstance(filter, dict):
        raise InvalidInput("filter", f"must be an object of keys and values, not {filter!r}")
    for key in filter:
        if not isinstance(key, str) or _KEY.fullmatch(key) is None:
            reason = f"key {key!r} has other characters than letters, digits and _ . -"
            raise InvalidInput("filter", reason)
    return filter


def _fits(metadata: dict[str, Any], wanted: Mapping[str, Any]) -> bool:
    for key, value in wanted.items():
        found: Any = metadata.get(key)
        if found is None and "." in key:
            found = metadata
            for part in key.split("."):
                found = found.get(part) if isinstance(found, dict) else None
        # In Python True is 1; in metadata it is not.
        if found != value or isinstance(found, bool) != isinstance(value, bool):
            return False
    return True
