"""A checkpoint, the facts that it is stored as, and the batch that saves one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from clew.core import drafts
from clew.core.codec import decode
from clew.core.errors import InvalidInput
from clew.core.model import Draft, ThreadInfo, to_time, to_us
from clew.facets import _base
from clew.messages.incoming import message_drafts
from clew.store import Store


class _Metadata(Struct, frozen=True, kw_only=True):
    run_id: str
    task_name: str = ""
    iteration: int = 0
    system_prompt: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class Checkpoint(_Metadata, frozen=True, kw_only=True):
    """A run's resumable state. `task_name` is empty for a run without a task.

    `created_at` is the time of the first save unless you give one; `updated_at` that of the last.
    """

    messages: list[Any] = field(default_factory=list)


class CheckpointInfo(_Metadata, frozen=True, kw_only=True):
    """A checkpoint without its messages. `revision` is known to `history` only."""

    message_count: int = 0
    revision: int | None = None


def check(checkpoint: Checkpoint) -> None:
    """A checkpoint that can be stored, or InvalidInput that names the field."""
    for name in ("iteration", "input_tokens", "output_tokens"):
        _base.check_count(getattr(checkpoint, name), name)
    for name in ("task_name", "system_prompt"):
        if not isinstance(getattr(checkpoint, name), str):
            raise InvalidInput(name, "must be text")
    if not isinstance(checkpoint.metadata, dict):
        raise InvalidInput("metadata", "must be an object")
    if not isinstance(checkpoint.messages, list):
        raise InvalidInput("messages", f"must be a list, not {type(checkpoint.messages).__name__}")


def facts_of(
    checkpoint: Checkpoint, count: int, created_us: int, updated_us: int
) -> dict[str, Any]:
    """The metadata as facts: the large and steady parts apart, so that they are written once."""
    # Last in the batch: `Runs.history` takes a save to be complete when it meets this one.
    state = {
        "task_name": checkpoint.task_name,
        "iteration": checkpoint.iteration,
        "input_tokens": checkpoint.input_tokens,
        "output_tokens": checkpoint.output_tokens,
        "created_us": created_us,
        "updated_us": updated_us,
        "message_count": count,
    }
    return {
        "system_prompt": checkpoint.system_prompt,
        "metadata": checkpoint.metadata,
        "checkpoint": state,
    }


def metadata(run_id: str, facts: Mapping[str, bytes]) -> dict[str, Any]:
    """The fields of a checkpoint but its messages, from the facts of its thread."""
    state = decode(facts["checkpoint"])
    names = ("task_name", "iteration", "input_tokens", "output_tokens")
    return {
        "run_id": run_id,
        **{name: state[name] for name in names},
        "system_prompt": decode(facts["system_prompt"]),
        "metadata": decode(facts["metadata"]),
        "created_at": to_time(state["created_us"]),
        "updated_at": to_time(state["updated_us"]),
    }


def as_info(info: ThreadInfo) -> CheckpointInfo:
    count = info.facts["checkpoint"]["message_count"]
    return CheckpointInfo(**metadata(_base.key_of(info), info.fact_data), message_count=count)


# --- one save -------------------------------------------------------------------------------


class StoredRun(Struct, kw_only=True):
    """What is stored of a run, as far as this process knows: true while the leaf is this one."""

    leaf: str | None
    messages: list[Any] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    deleted: ThreadInfo | None = None


class RunSave:
    """What one save writes (`batch`), and what is stored after it.

    Every save leaves the thread on an entry that was not there before, so that an unchanged leaf
    means that no other process has saved.
    """

    def __init__(
        self, store: Store, checkpoint: Checkpoint, stored: StoredRun, format: str | None
    ) -> None:
        now_us = store.clock()
        common = _base.shared(stored.messages, checkpoint.messages)
        self._stored = stored
        self._common = common
        self._rest = checkpoint.messages[common:]
        new = message_drafts(self._rest, format, start=common, clock=store.clock)
        marker = {"status": "save_point"}
        self._new = new or [drafts.draft("turn_marker", marker, clock=lambda: now_us)]
        before = stored.facts.get("checkpoint")
        if before is not None:
            created_us = int(before["created_us"])
        elif checkpoint.created_at is not None:
            created_us = to_us(checkpoint.created_at, "created_at")
        else:
            created_us = now_us
        self._facts = facts_of(checkpoint, len(checkpoint.messages), created_us, now_us)
        known = stored.facts
        changed = {k: v for k, v in self._facts.items() if k not in known or known[k] != v}
        self.batch: list[Draft] = [
            *_way_back(stored, common, now_us),
            *self._new,
            *drafts.facts(changed, now_us),
        ]
        self.checkpoint = replace(
            checkpoint, created_at=to_time(created_us), updated_at=to_time(now_us)
        )

    def after(self) -> StoredRun:
        """What is stored once the batch is."""
        messages, ids = self._stored.messages, self._stored.ids
        if self._common < len(messages):
            messages, ids = messages[: self._common], ids[: self._common]
        # In place where nothing was dropped: a save must not cost more the longer a run gets.
        messages += _base.copied(self._rest)  # callers go on changing theirs
        ids += [draft.id for draft in self._new[: len(self._rest)]]
        facts = self._facts | {"metadata": _base.copied(self._facts["metadata"])}
        return StoredRun(leaf=self._new[-1].id, messages=messages, ids=ids, facts=facts)


def _way_back(stored: StoredRun, common: int, now_us: int) -> list[Draft]:
    """Go to where the messages begin to differ."""
    if stored.deleted is not None:
        return _base.revival(stored.deleted, now_us)
    if common == len(stored.messages):
        return []
    return [drafts.move(stored.ids[common - 1] if common else None, now_us)]
