"""One save: what it writes, and what is known after it."""

from __future__ import annotations

import copy
import threading
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from clew import _facets, drafts
from clew.codec import decode
from clew.model import Draft, EntryDraft, FactDraft, ThreadInfo, to_time, to_us
from clew.runs.checkpoint import Checkpoint, fact_drafts
from clew.store import Store


class Known(Struct, kw_only=True):
    """What is stored of a run, as far as we know: true as long as the leaf is this one."""

    leaf: str | None
    messages: list[Any] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    facts: dict[str, bytes] = field(default_factory=dict)
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
        self,
        store: Store,
        checkpoint: Checkpoint,
        bodies: list[Any],
        known: Known,
        format: str | None,
    ) -> None:
        self._known = known
        self._bodies = bodies
        self._common = _facets.shared(known.messages, bodies)
        self._new = _facets.message_drafts(
            store, bodies[self._common :], format, start=self._common
        )
        now_us = store.clock()
        created_us = _created_us(checkpoint, known, now_us)
        self._facts = fact_drafts(checkpoint, len(bodies), created_us, now_us)
        self.batch = [*self._before(now_us), *self._entries(now_us), *self._changed_facts()]
        fields = asdict(checkpoint) | {
            "messages": bodies,
            "created_at": to_time(created_us),
            "updated_at": to_time(now_us),
        }
        self.stored = Checkpoint(**fields)

    def _before(self, now_us: int) -> list[Draft]:
        """Go back to where the messages begin to differ."""
        known = self._known
        if known.deleted is not None:
            return _facets.revival(known.deleted, now_us)
        if self._common == len(known.messages):
            return []
        return [drafts.move(known.ids[self._common - 1] if self._common else None, now_us)]

    def _entries(self, now_us: int) -> list[EntryDraft]:
        if self._new:
            return self._new
        marker = {"status": "save_point"}
        return [drafts.draft("turn_marker", marker, clock=lambda: now_us)]

    def _changed_facts(self) -> list[FactDraft]:
        return [fact for fact in self._facts if self._known.facts.get(fact.key) != fact.data]

    def after(self) -> Known:
        known, common = self._known, self._common
        leaf = next(d.id for d in reversed(self.batch) if isinstance(d, EntryDraft))
        # A copy, as callers go on changing their messages; it shares the texts, so that the next
        # comparison is fast.
        copies = copy.deepcopy(self._bodies[common:])
        return Known(
            leaf=leaf,
            messages=known.messages[:common] + copies,
            ids=known.ids[:common] + [draft.id for draft in self._new],
            facts={fact.key: fact.data for fact in self._facts},
        )


def _created_us(checkpoint: Checkpoint, known: Known, now_us: int) -> int:
    stored = known.facts.get("checkpoint")
    if stored is not None:
        return int(decode(stored)["created_us"])
    given = checkpoint.created_at
    return now_us if given is None else to_us(given, "created_at")
