"""A checkpoint, and the facts that it is stored as."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from clew.core import drafts
from clew.core.codec import decode
from clew.core.errors import InvalidInput
from clew.core.model import Draft, EntryDraft, FactDraft, ThreadInfo, to_time, to_us
from clew.facets import _base
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


# --- one save: what it writes, and what is known after it ---


class Known(Struct, kw_only=True):
    """What is stored of a run, as far as we know: true as long as the leaf is this one."""

    leaf: str | None
    messages: list[Any] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    deleted: ThreadInfo | None = None


class Slot:
    """The memory of one run. Savers of the same run wait for each other here."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: Known | None = None


class Step:
    """One save: what it writes, and what is known after it.

    Every save leaves the thread on an entry that was not there before, so that an unchanged leaf
    means that nobody else has saved.
    """

    def __init__(
        self, store: Store, checkpoint: Checkpoint, known: Known, format: str | None
    ) -> None:
        now_us = store.clock()
        common = _base.shared(known.messages, checkpoint.messages)
        rest = checkpoint.messages[common:]
        new = _base.message_drafts(store, rest, format, start=common)
        created_us = _created_us(checkpoint, known, now_us)
        facts = facts_of(checkpoint, len(checkpoint.messages), created_us, now_us)
        self._known = known
        self._common = common
        self._rest = rest
        self._new = new or [_marker(now_us)]
        self._facts = facts
        self.batch: list[Draft] = [
            *_way_back(known, common, now_us),
            *self._new,
            *_changed(known, facts, now_us),
        ]
        self.stored = replace(
            checkpoint, created_at=to_time(created_us), updated_at=to_time(now_us)
        )

    def after(self) -> Known:
        """What is known once the batch is stored."""
        known, common = self._known, self._common
        messages, ids = known.messages, known.ids
        if common < len(messages):
            messages, ids = messages[:common], ids[:common]
        messages += _base.copied(self._rest)  # callers go on changing theirs
        ids += [draft.id for draft in self._new[: len(self._rest)]]
        facts = self._facts | {"metadata": _base.copied(self._facts["metadata"])}
        return Known(leaf=self._new[-1].id, messages=messages, ids=ids, facts=facts)


def _way_back(known: Known, common: int, now_us: int) -> list[Draft]:
    """Go to where the messages begin to differ."""
    if known.deleted is not None:
        return _base.revival(known.deleted, now_us)
    if common == len(known.messages):
        return []
    return [drafts.move(known.ids[common - 1] if common else None, now_us)]


def _marker(now_us: int) -> EntryDraft:
    return drafts.draft("turn_marker", {"status": "save_point"}, clock=lambda: now_us)


def _changed(known: Known, facts: dict[str, Any], now_us: int) -> tuple[FactDraft, ...]:
    changed = {k: v for k, v in facts.items() if k not in known.facts or known.facts[k] != v}
    return drafts.facts(changed, now_us)


def _created_us(checkpoint: Checkpoint, known: Known, now_us: int) -> int:
    stored = known.facts.get("checkpoint")
    if stored is not None:
        return int(stored["created_us"])
    given = checkpoint.created_at
    return now_us if given is None else to_us(given, "created_at")
