"""The runs of a store."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator

from msgspec.structs import asdict

from clew import _facets
from clew._facets import Address
from clew.errors import Conflict, NotFound
from clew.model import Entry, Fact, Move, Page, ThreadInfo
from clew.runs.checkpoint import Checkpoint, CheckpointInfo, as_info, check, metadata
from clew.runs.running import Run
from clew.runs.saving import Known, Slot, Step
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
        info = _facets.find_info(self.store, at)
        if info is None:
            _facets.ensure(self.store, at)
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
        _facets.check_limit(limit)
        found = _facets.infos(self.store, FACET, cursor=cursor, limit=limit, archived=None)
        saved = (info for info in found if "checkpoint" in info.fact_data)
        return _facets.page_of(saved, limit, as_info)

    def history(self, run_id: str) -> CheckpointInfos:
        """Every checkpoint the run has had, newest first, deleted ones too. Reads its whole log."""
        return [info for info, _ in self._revisions(_address(run_id))][::-1]

    def _revisions(self, at: Address) -> Iterator[tuple[CheckpointInfo, str | None]]:
        if _facets.find_info(self.store, at) is None:
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
                bodies = [entry.body for entry in path if _facets.is_message(entry)]
                return Checkpoint(**fields, messages=bodies)
        raise NotFound("run", f"{at.key} at revision {revision}")

    def delete(self, run_id: str) -> None:
        """Delete the checkpoint; fine if there is none. The next save of the run starts afresh.

        A tombstone: `history` still knows it. LeaseHeld while somebody is in the run.
        """
        self.delete_fenced(_address(run_id), None)

    def delete_fenced(self, at: Address, fence: int | None) -> None:
        """`delete`, under the lease with this fence."""
        _facets.tombstone(self.store, at, fence=fence)
        with self._lock:
            self._slots.pop(at.thread, None)

    def _info(self, at: Address) -> ThreadInfo | None:
        info = _facets.find_info(self.store, at)
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
    return _facets.address(FACET, run_id, "run_id")


def _entries(store: Store, info: ThreadInfo) -> list[Entry]:
    path = Thread(store, info.id).path(info.leaf)
    return [entry for entry in path if _facets.is_message(entry)]
