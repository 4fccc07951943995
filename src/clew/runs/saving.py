"""One save: what it writes, and what is known after it."""

from __future__ import annotations

import threading
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from clew import _facets, drafts
from clew.model import Draft, EntryDraft, FactDraft, ThreadInfo, to_time, to_us
from clew.runs.checkpoint import Checkpoint, facts_of
from clew.store import Store


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
        common = _facets.shared(known.messages, checkpoint.messages)
        rest = checkpoint.messages[common:]
        new = _facets.message_drafts(store, rest, format, start=common)
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
        messages += _facets.copied(self._rest)  # callers go on changing theirs
        ids += [draft.id for draft in self._new[: len(self._rest)]]
        facts = self._facts | {"metadata": _facets.copied(self._facts["metadata"])}
        return Known(leaf=self._new[-1].id, messages=messages, ids=ids, facts=facts)


def _way_back(known: Known, common: int, now_us: int) -> list[Draft]:
    """Go to where the messages begin to differ."""
    if known.deleted is not None:
        return _facets.revival(known.deleted, now_us)
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
