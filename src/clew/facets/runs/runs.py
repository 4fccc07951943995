"""The runs of a store."""

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
from clew.facets._base import Address
from clew.facets.runs.checkpoint import (
    Checkpoint,
    CheckpointInfo,
    Known,
    Slot,
    Step,
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

CheckpointInfos = list[CheckpointInfo]


class Runs:
    """The runs of a store, by run id: any non-empty string.

    Safe to use from many threads. Two savers of one run never mix: the last one wins as a whole.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._reset()

    # --- saving ---

    def save(self, checkpoint: Checkpoint, *, format: str | None = None) -> Checkpoint:
        """Replace the run's checkpoint; durable when it returns, with the times it got.

        Of the messages only those after the common beginning with the stored ones are written
        (compared as Python compares: 1 and True are equal). LeaseHeld while somebody is in a
        `resume_or_start` of this run. InvalidInput names the field; nothing is written.
        """
        return self.save_fenced(checkpoint, format, None)

    def save_fenced(
        self, checkpoint: Checkpoint, format: str | None, fence: int | None
    ) -> Checkpoint:
        """`save`, under the lease with this fence."""
        at = _address(checkpoint.run_id)
        check(checkpoint)
        slot = self._slot(at.thread)
        with slot.lock:
            for _ in range(_TRIES):
                known, slot.known = slot.known, None
                if known is None:
                    known = self._read(at)
                step = Step(self.store, checkpoint, known, format)
                try:
                    self.store.engine.append(at.thread, step.batch, expect=known.leaf, fence=fence)
                except (Conflict, NotFound) as error:
                    last = error  # somebody else was first: look again
                    continue
                slot.known = step.after()
                return step.stored
        raise last

    def _read(self, at: Address) -> Known:
        """What is stored of a run; its thread is made if there is none."""
        info = _base.find_info(self.store, at)
        if info is None:
            _base.ensure(self.store, at)
            return Known(leaf=None)
        if info.deleted_at is not None:
            return Known(leaf=info.leaf, deleted=info)
        messages = _entries(self.store, info)
        return Known(
            leaf=info.leaf,
            messages=[entry.body for entry in messages],
            ids=[entry.id for entry in messages],
            facts=info.facts,
        )

    # --- looking ---

    def load(self, run_id: str, *, revision: int | None = None) -> Checkpoint:
        """The run's checkpoint, or an earlier one by its `revision` (see `history`). NotFound."""
        at = _address(run_id)
        if revision is not None:
            return self._load_revision(at, revision)
        info = self._info(at)
        if info is None:
            raise NotFound("run", run_id)
        messages = [entry.body for entry in _entries(self.store, info)]
        return Checkpoint(**metadata(run_id, info.fact_data), messages=messages)

    def find(self, run_id: str) -> Checkpoint | None:
        """Like `load`, but None instead of NotFound."""
        try:
            return self.load(run_id)
        except NotFound:
            return None

    def has(self, run_id: str) -> bool:
        """Whether there is a checkpoint. Reads no message."""
        return self._info(_address(run_id)) is not None

    def list(self, *, limit: int = 50, cursor: str | None = None) -> Page[CheckpointInfo]:
        """One page of checkpoints without their messages, the last saved first."""
        _base.check_limit(limit)
        found = _base.infos(self.store, FACET, cursor=cursor, limit=limit, archived=None)
        saved = (info for info in found if "checkpoint" in info.fact_data)
        return _base.page_of(saved, limit, as_info)

    def history(self, run_id: str) -> CheckpointInfos:
        """Every checkpoint the run has had, newest first, deleted ones too. Reads its whole log."""
        return [info for info, _ in self._revisions(_address(run_id))][::-1]

    def _revisions(self, at: Address) -> Iterator[tuple[CheckpointInfo, str | None]]:
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
                if record.key == "checkpoint" and record.value is not None:
                    fields = metadata(at.key, facts)
                    count = record.value["message_count"]
                    info = CheckpointInfo(**fields, message_count=count, revision=record.seq)
                    yield info, leaf

    def _load_revision(self, at: Address, revision: int) -> Checkpoint:
        for info, leaf in self._revisions(at):
            if info.revision == revision:
                path = Thread(self.store, at.thread).path(leaf)
                fields = asdict(info)
                del fields["message_count"], fields["revision"]
                bodies = [entry.body for entry in path if _base.is_message(entry)]
                return Checkpoint(**fields, messages=bodies)
        raise NotFound("run", f"{at.key} at revision {revision}")

    def delete(self, run_id: str) -> None:
        """Delete the checkpoint; fine if there is none. The next save of the run starts afresh.

        A tombstone: `history` still knows it. LeaseHeld while somebody is in the run.
        """
        self.delete_fenced(_address(run_id), None)

    def delete_fenced(self, at: Address, fence: int | None) -> None:
        """`delete`, under the lease with this fence."""
        _base.tombstone(self.store, at, fence=fence)
        with self._lock:
            self._slots.pop(at.thread, None)

    def _info(self, at: Address) -> ThreadInfo | None:
        info = _base.find_info(self.store, at)
        if info is None or info.deleted_at is not None or "checkpoint" not in info.fact_data:
            return None
        return info

    # --- running ---

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
        return Run(self, _address(run_id), task_name, owner, ttl_seconds, format)

    # --- what was saved last ---

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._slots: OrderedDict[str, Slot] = OrderedDict()

    def _slot(self, thread: str) -> Slot:
        if self._pid != os.getpid():  # a forked child: locks may be held by nobody
            self._reset()
        with self._lock:
            slot = self._slots.setdefault(thread, Slot())
            self._slots.move_to_end(thread)
            if len(self._slots) > REMEMBERED_RUNS:
                self._slots.popitem(last=False)
            return slot


def _address(run_id: object) -> Address:
    return _base.address(FACET, run_id, "run_id")


def _entries(store: Store, info: ThreadInfo) -> list[Entry]:
    path = Thread(store, info.id).path(info.leaf)
    return [entry for entry in path if _base.is_message(entry)]


class Run:
    """A run at work: nobody else can resume or save it meanwhile.

    Change the attributes and `save`. Leaving the block after `done` deletes the checkpoint; an
    exception leaves it, and so does leaving without `done`. Entering raises LeaseHeld while
    somebody else is in the run.
    """

    def __init__(
        self,
        runs: Runs,
        at: Address,
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
            self._resume()
        except BaseException:
            self._thread.leases.release(self._lease)
            raise
        store.renewer.add(self._lease, self._ttl_seconds)
        return self

    def _resume(self) -> None:
        checkpoint = self._runs.find(self.run_id)
        if checkpoint is None:
            return
        self.resumed = self._saved = True
        for name in ("messages", "iteration", "system_prompt", "metadata"):
            setattr(self, name, getattr(checkpoint, name))
        self.input_tokens = checkpoint.input_tokens
        self.output_tokens = checkpoint.output_tokens
        self.task_name = checkpoint.task_name if self._given_name is None else self._given_name

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

        LeaseLost if the lease was lost: somebody else is in the run now. Nothing is written then.
        """
        given = {
            "messages": messages,
            "iteration": iteration,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "system_prompt": system_prompt,
            "metadata": metadata,
        }
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)
        fields = {name: getattr(self, name) for name in ("run_id", "task_name", *given)}
        stored = self._runs.save_fenced(Checkpoint(**fields), self._format, self.lease.fence)
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
            if (self._done and error is None) or not self._saved:
                self._runs.delete_fenced(self._at, self.lease.fence)
            self._thread.leases.release(self.lease)
        except ClewError as lost:
            if error is None:
                raise
            error.add_note(f"clew: the end of the run could not be written: {lost}")

    def __repr__(self) -> str:
        return f"<clew.Run {self.run_id!r} at iteration {self.iteration}>"
