"""The runs of a store, and one of them at work."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from msgspec.structs import asdict

from clew.core.drafts import check_name
from clew.core.errors import ClewError, Conflict, NotFound
from clew.core.model import Entry, Fact, Lease, Move, Page, ThreadInfo
from clew.facets import _base
from clew.facets._base import FacetKey
from clew.facets.runs.checkpoint import (
    Checkpoint,
    CheckpointInfo,
    RunSave,
    StoredRun,
    as_info,
    check,
    metadata,
)
from clew.store import Store
from clew.thread import Thread

FACET = "run"
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
Entries = list[Entry]


class Runs:
    """The runs of a store, by run id: any non-empty string.

    Safe to use from many threads. Two savers of one run never mix: the last one wins as a whole.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._forget()

    # --- saving ---

    def save(self, checkpoint: Checkpoint, *, format: str | None = None) -> Checkpoint:
        """Replace the run's checkpoint; durable when it returns, with the times it got.

        Of the messages only those after the common beginning with the stored ones are written
        (compared as Python compares: 1 and True are equal). LeaseHeld while another caller is in
        a `resume_or_start` of this run. InvalidInput names the field; nothing is written.
        """
        return self._save(checkpoint, format, None)

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

    # --- looking ---

    def load(self, run_id: str, *, revision: int | None = None) -> Checkpoint:
        """The run's checkpoint, or an earlier one by its `revision` (see `history`). NotFound."""
        at = _facet_key(run_id)
        if revision is not None:
            return self._load_revision(at, revision)
        info = self._info(at)
        if info is None:
            raise NotFound("run", run_id)
        messages = [entry.body for entry in self._entries(info.id, info.leaf)]
        return Checkpoint(**metadata(run_id, info.fact_data), messages=messages)

    def find(self, run_id: str) -> Checkpoint | None:
        """Like `load`, but None instead of NotFound."""
        try:
            return self.load(run_id)
        except NotFound:
            return None

    def has(self, run_id: str) -> bool:
        """Whether there is a checkpoint. Reads no message."""
        return self._info(_facet_key(run_id)) is not None

    def list(self, *, limit: int = 50, cursor: str | None = None) -> Page[CheckpointInfo]:
        """One page of checkpoints without their messages, the last saved first."""
        _base.check_limit(limit)
        found = _base.infos(self.store, FACET, cursor=cursor, limit=limit, archived=None)
        saved = (info for info in found if "checkpoint" in info.fact_data)
        return _base.page_of(saved, limit, as_info)

    def history(self, run_id: str) -> CheckpointInfos:
        """Every checkpoint the run has had, newest first, deleted ones too. Reads its whole log."""
        return [info for info, _ in self._revisions(_facet_key(run_id))][::-1]

    # --- saving and deleting, under the lease of a Run if there is a fence ---

    def _save(self, checkpoint: Checkpoint, format: str | None, fence: int | None) -> Checkpoint:
        at = _facet_key(checkpoint.run_id)
        check(checkpoint)
        thread = Thread(self.store, at.thread)
        memory = self._memory(at.thread)
        # Threads that save the same run take turns: each would otherwise find the other's leaf
        # and read the whole run again.
        with memory.lock:
            for _ in range(_TRIES):
                # Taken out for the time of the write: after an error it may be wrong.
                stored, memory.stored = memory.stored, None
                if stored is None:
                    stored = self._read(at)
                save = RunSave(self.store, checkpoint, stored, format)
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
        info = _base.find_info(self.store, at)
        if info is None:
            _base.ensure(self.store, at)
            return StoredRun(leaf=None)
        if info.deleted_at is not None:
            return StoredRun(leaf=info.leaf, deleted=info)
        messages = self._entries(info.id, info.leaf)
        return StoredRun(
            leaf=info.leaf,
            messages=[entry.body for entry in messages],
            ids=[entry.id for entry in messages],
            facts=info.facts,
        )

    def _delete(self, at: FacetKey, fence: int | None) -> None:
        _base.tombstone(self.store, at, fence=fence)
        with self._lock:
            self._memories.pop(at.thread, None)

    # --- reading ---

    def _info(self, at: FacetKey) -> ThreadInfo | None:
        info = _base.find_info(self.store, at)
        if info is None or info.deleted_at is not None or "checkpoint" not in info.fact_data:
            return None
        return info

    def _entries(self, thread: str, leaf: str | None) -> Entries:
        path = Thread(self.store, thread).path(leaf)
        return [entry for entry in path if _base.is_message(entry)]

    def _revisions(self, at: FacetKey) -> Iterator[tuple[CheckpointInfo, str | None]]:
        if _base.find_info(self.store, at) is None:
            return
        facts: dict[str, bytes] = {}
        leaf: str | None = None
        for record in Thread(self.store, at.thread).read():
            if isinstance(record, Entry):
                leaf = record.id
            elif isinstance(record, Move):
                leaf = record.leaf
            elif isinstance(record, Fact):
                facts[record.key] = record.data
                # The last fact of a save, so all others are known and the leaf is that save's.
                if record.key == "checkpoint" and record.value is not None:
                    fields = metadata(at.key, facts)
                    count = record.value["message_count"]
                    info = CheckpointInfo(**fields, message_count=count, revision=record.seq)
                    yield info, leaf

    def _load_revision(self, at: FacetKey, revision: int) -> Checkpoint:
        for info, leaf in self._revisions(at):
            if info.revision == revision:
                fields = asdict(info)
                del fields["message_count"], fields["revision"]
                bodies = [entry.body for entry in self._entries(at.thread, leaf)]
                return Checkpoint(**fields, messages=bodies)
        raise NotFound("run", f"{at.key} at revision {revision}")

    # --- what was saved last ---

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._memories: OrderedDict[str, _RunMemory] = OrderedDict()

    def _memory(self, thread: str) -> _RunMemory:
        # In a forked child a lock may be held by a thread that exists in the parent only.
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            memory = self._memories.setdefault(thread, _RunMemory())
            self._memories.move_to_end(thread)
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
        self._thread = Thread(runs.store, at.thread)
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
        if _base.find_info(store, self._at) is None:
            _base.ensure(store, self._at)
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
