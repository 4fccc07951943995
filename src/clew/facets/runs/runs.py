"""The runs of a store, and one of them at work."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from clew.core.errors import ClewError, Conflict, InvalidInput, NotFound
from clew.core.model import PAGE_MAX, Lease, Order, Page, ThreadInfo, to_us
from clew.core.names import check_name
from clew.facets import _base
from clew.facets._base import FacetKey
from clew.facets.runs.checkpoint import (
    FACET,
    Checkpoint,
    CheckpointInfo,
    RunSave,
    StoredRun,
    as_info,
    check,
    from_info,
    is_saved,
    messages_to,
    revisions,
)
from clew.store import Store
from clew.thread import Thread

REMEMBERED_RUNS = 16  # each holds the messages of its run
TTL_SECONDS = 30.0

_TRIES = 100
# The attributes of a Run that its checkpoint holds, in the order of the arguments of `Run.save`.
_SAVED_FIELDS = (
    "messages",
    "iteration",
    "input_tokens",
    "output_tokens",
    "system_prompt",
    "metadata",
)

# `list` is a method of Runs, and so no type inside of it.
CheckpointInfos = list[CheckpointInfo]


class Runs:
    """The runs of a store, by run id: any non-empty string.

    Wherever a run id is taken, the id of the run's thread does as well, unless another run has
    that very run id. Safe to use from many threads. Two savers of one run never mix: the last one
    wins as a whole.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._forget()

    # --- saving ---

    def save(
        self,
        checkpoint: Checkpoint,
        *,
        format: str | None = None,
        updated_at: datetime | None = None,
    ) -> Checkpoint:
        """Replace the run's checkpoint; durable when it returns, with the times it got.

        `updated_at` is the time of the save, for a run that comes from elsewhere; by default now.

        Of the messages only those after the common beginning with the stored ones are written
        (compared as Python compares: 1 and True are equal). LeaseHeld while another caller is in
        a `resume_or_start` of this run. InvalidInput names the field; nothing is written.
        """
        updated_us = None if updated_at is None else to_us(updated_at, "updated_at")
        return self._save(checkpoint, format, None, updated_us)

    def resume_or_start(
        self,
        run_id: str,
        *,
        task_name: str | None = None,
        owner: str | None = None,
        ttl_seconds: float = TTL_SECONDS,
        format: str | None = None,
    ) -> Run:
        """The run for the length of a `with`, from its checkpoint or from nothing; see `Run`."""
        return Run(self, _facet_key(run_id), task_name, owner, ttl_seconds, format)

    def delete(self, run_id: str) -> None:
        """Delete the checkpoint; fine if there is none. The next save of the run starts afresh.

        A tombstone: `history` still knows it. LeaseHeld while another caller is in the run.
        """
        self._delete(_facet_key(run_id), None)

    def fork(
        self,
        run_id: str,
        *,
        id: str | None = None,
        revision: int | None = None,
        at: str | None = None,
        before: str | None = None,
    ) -> Checkpoint:
        """A run of its own that begins as this one is: one row, whatever the run's length.

        `id` is the run id of the fork; without one it is `run_id#fork-1`, or the next number that
        is free. `revision` takes an earlier checkpoint (see `history`), `at` and `before` an
        entry, as `Store.fork` does; then the last checkpoint before it is the fork's, and the log
        is read. NotFound if there is no checkpoint.
        """
        info = self._info(run_id)
        if revision is not None:
            if at is not None or before is not None:
                raise InvalidInput("revision", "give either a revision or an entry, not both")
            at = self._revision(info, revision, run_id).leaf  # every save leaves an entry
        return self.load(_base.fork(self.store, FACET, info, id, at=at, before=before).id)

    # --- looking ---

    def load(self, run_id: str, *, revision: int | None = None) -> Checkpoint:
        """The run's checkpoint, or an earlier one by its `revision` (see `history`). NotFound.

        Corrupt if what is stored of it is damaged.
        """
        if revision is None:
            info = self._info(run_id)
        else:
            # Also of a deleted run.
            found = _base.find(self.store, _facet_key(run_id))
            info = self._revision(found, revision, run_id)
        messages = messages_to(Thread(self.store, info.id), info.leaf)
        return from_info(info, [entry.body for entry in messages])

    def find(self, run_id: str) -> Checkpoint | None:
        """Like `load`, but None instead of NotFound."""
        try:
            return self.load(run_id)
        except NotFound:
            return None

    def has(self, run_id: str) -> bool:
        """Whether there is a checkpoint, be it damaged. Reads no message."""
        try:
            return bool(self._info(run_id))
        except NotFound:
            return False

    def list(
        self, *, order: Order = "updated", limit: int = 50, cursor: str | None = None
    ) -> Page[CheckpointInfo]:
        """One page of checkpoints without their messages, the last saved first.

        With `order="created"` the newest `created_at` first. Those are times that callers give, so
        the metadata of every run is read for a page. A damaged checkpoint is listed with what is
        wrong in `damaged`.
        """
        _base.check_limit(limit)
        _base.check_order(order)
        if order == "created":
            return _base.sorted_page(self.all(), cursor, limit)
        found = _base.infos(self.store, FACET, cursor=cursor, limit=limit, archived=None)
        return _base.page_of(filter(is_saved, found), limit, as_info)

    def all(self) -> Iterator[CheckpointInfo]:
        """Every checkpoint that `list` would give, page after page, the last begun run first.

        A run that is saved meanwhile is neither missed nor given twice.
        """
        options: dict[str, Any] = {"cursor": None, "limit": PAGE_MAX, "order": "created"}
        found = _base.infos(self.store, FACET, archived=None, **options)
        return map(as_info, filter(is_saved, found))

    def history(self, run_id: str) -> CheckpointInfos:
        """Every checkpoint the run has had, newest first, deleted ones too. Reads its whole log.

        That of a fork begins with the checkpoint that it was forked with.
        """
        info = _base.find(self.store, _facet_key(run_id))
        if info is None:
            return []
        found = [
            replace(as_info(one.info), revision=one.seq) for one in revisions(self.store, info)
        ]
        return found[::-1]

    def thread(self, run_id: str) -> Thread:
        """The thread behind a run, to read, label, rewind. NotFound."""
        return Thread(self.store, self._info(run_id).id)

    # --- saving and deleting, under the lease of a Run if there is a fence ---

    def _save(
        self,
        checkpoint: Checkpoint,
        format: str | None,
        fence: int | None,
        updated_us: int | None = None,
    ) -> Checkpoint:
        at = _facet_key(checkpoint.run_id)
        check(checkpoint)
        memory = self._memory(at.key)
        # Threads that save the same run take turns: each would otherwise find the other's leaf
        # and read the whole run again.
        with memory.lock:
            for _ in range(_TRIES):
                # Taken out for the time of the write: after an error it may be wrong.
                stored, memory.stored = memory.stored, None
                if stored is None:
                    stored = self._read(at)
                now_us = self.store.clock() if updated_us is None else updated_us
                save = RunSave(checkpoint, stored, format, now_us)
                thread = Thread(self.store, stored.thread)
                try:
                    thread.write(save.batch, expect=stored.leaf, fence=fence)
                except (Conflict, NotFound) as error:
                    last = error  # another process has saved, or purged the thread: look again
                    continue
                memory.stored = save.after()
                return save.checkpoint
        raise last

    def _read(self, at: FacetKey) -> StoredRun:
        """What is stored of a run; its thread is made if there is none."""
        at, info = _base.claim(self.store, at)
        if info is None:
            _base.ensure(self.store, at)
            return StoredRun(thread=at.thread, leaf=None)
        if info.deleted_at is not None:
            return StoredRun(thread=at.thread, leaf=info.leaf, deleted=info)
        messages = messages_to(Thread(self.store, info.id), info.leaf)
        found = as_info(info)
        known = "checkpoint" in info.facts and found.damaged is None and found.created_at
        return StoredRun(
            thread=at.thread,
            leaf=info.leaf,
            messages=[entry.body for entry in messages],
            ids=[entry.id for entry in messages],
            erased={n: one.body_hash for n, one in enumerate(messages) if one.tombstone},
            facts=info.facts,
            created_us=to_us(known) if known else None,
        )

    def _delete(self, at: FacetKey, fence: int | None) -> None:
        _base.tombstone(self.store, _base.claim(self.store, at)[0], fence=fence)
        with self._lock:
            self._memories.pop(at.key, None)

    # --- reading ---

    def _info(self, run_id: str) -> ThreadInfo:
        """The thread of a run that has a checkpoint. NotFound."""
        info = _base.find(self.store, _facet_key(run_id))
        if info is None or info.deleted_at is not None or not is_saved(info):
            raise NotFound("run", run_id)
        return info

    def _revision(self, info: ThreadInfo | None, revision: int, run_id: str) -> ThreadInfo:
        for one in () if info is None else revisions(self.store, info):
            if one.seq == revision:
                return one.info
        raise NotFound("run", f"{run_id} at revision {revision}")

    # --- what was saved last ---

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._memories: OrderedDict[str, _RunMemory] = OrderedDict()

    def _memory(self, key: str) -> _RunMemory:
        # In a forked child a lock may be held by a thread that exists in the parent only.
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            memory = self._memories.setdefault(key, _RunMemory())
            self._memories.move_to_end(key)
            if len(self._memories) > REMEMBERED_RUNS:
                self._memories.popitem(last=False)
            return memory


class _RunMemory:
    """What was saved last of one run, so that a save need not read. One saver at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stored: StoredRun | None = None


def _facet_key(run_id: object) -> FacetKey:
    return _base.facet_key(FACET, run_id, "run_id")


class Run:
    """A run at work: no other caller can resume or save it meanwhile.

    Change the attributes and `save`. Leaving the block after `done` deletes the checkpoint; an
    exception leaves it, and so does leaving without `done`. Entering raises LeaseHeld while
    another caller is in the run.
    """

    def __init__(
        self,
        runs: Runs,
        at: FacetKey,
        task_name: str | None,
        owner: str | None,
        ttl_seconds: float,
        format: str | None,
    ) -> None:
        self.run_id = at.key
        self.task_name = task_name or ""
        self.messages: list[Any] = []
        self.iteration = 0
        self.system_prompt = ""
        self.input_tokens = 0
        self.output_tokens = 0
        self.metadata: dict[str, Any] = {}
        self.resumed = False
        self._runs = runs
        self._thread = Thread(runs.store, at.thread)  # of a fork it may be another: see __enter__
        self._at = at
        self._given_name = task_name
        self._owner = check_name(owner or f"process {os.getpid()}", "owner")
        self._ttl_seconds = float(ttl_seconds)
        self._format = format
        self._lease: Lease | None = None
        self._done = False
        self._saved = False

    def __enter__(self) -> Self:
        store = self._runs.store
        at, info = _base.claim(store, self._at)
        if info is None:
            _base.ensure(store, at)
        self._thread = Thread(store, at.thread)
        self._lease = self._thread.leases.acquire(self._owner, ttl_seconds=self._ttl_seconds)
        try:
            # Read under the lease: what is found is what the next save builds on.
            checkpoint = self._runs.find(self.run_id)
        except BaseException:
            self._thread.leases.release(self._lease)
            raise
        if checkpoint is not None:
            self.resumed = self._saved = True
            for name in _SAVED_FIELDS:
                setattr(self, name, getattr(checkpoint, name))
            if self._given_name is None:
                self.task_name = checkpoint.task_name
        store.renewer.add(self._lease, self._ttl_seconds, self)
        return self

    def save(
        self,
        messages: list[Any] | None = None,
        *,
        iteration: int | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        system_prompt: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Checkpoint:
        """Save the run as its attributes are; what is given here is set first.

        LeaseLost if the lease is over: another caller may be in the run. Nothing is written then.
        """
        given = (messages, iteration, input_tokens, output_tokens, system_prompt, metadata)
        for name, value in zip(_SAVED_FIELDS, given, strict=True):
            if value is not None:
                setattr(self, name, value)
        fields = {name: getattr(self, name) for name in ("run_id", "task_name", *_SAVED_FIELDS)}
        stored = self._runs._save(Checkpoint(**fields), self._format, self.lease.fence)
        self._saved = True
        return stored

    @property
    def lease(self) -> Lease:
        """The lease as it was taken."""
        if self._lease is None:
            raise RuntimeError("the run is not entered; use it in a with statement")
        return self._lease

    def done(self) -> None:
        """The run has succeeded: its checkpoint is deleted when the block is left."""
        self._done = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runs.store.renewer.remove(self.lease)
        try:
            # A run that was never saved leaves no trace but the thread that held its lease.
            if (self._done and error is None) or not self._saved:
                self._runs._delete(self._at, self.lease.fence)
            self._thread.leases.release(self.lease)
        except ClewError as lost:
            if error is None:
                raise
            error.add_note(f"clew: the end of the run could not be written: {lost}")

    def __repr__(self) -> str:
        return f"<clew.Run {self.run_id!r} at iteration {self.iteration}>"
