"""How the index follows the store: what was written since is read at the next search.

An append knows nothing of it. Where every thread stands is compared with how far the index has
read it; only threads that are behind are read, and only what is new of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct

from clew.core.codec import legible
from clew.core.engine import Engine, Progress
from clew.core.errors import ClewError, Closed, NotFound, Unavailable
from clew.core.facts import read_fact
from clew.core.model import Entry, Fact, Record, ThreadHead
from clew.core.text_index import Addition, Document, Known, TextIndex
from clew.core.tombstones import PREFIX, is_erasure
from clew.search.documents import USER, Found, document, read_entry, read_title

_PAGE = 500
_BATCH_DOCUMENTS = 1_000
_BATCH_CHARACTERS = 4 * 1024 * 1024
_ROUNDS_MAX = 3
_MANY = 5_000  # records, after which the postings are worth being put in order

# Facts of a thread that a search is filtered by, and the key of the mark that each one sets.
_AGENT = ("agent", "adapter")  # the facts that `ThreadInfo.agent` is told by
_FACTS = {
    "archived": "archived",
    "deleted_us": "deleted",
    "model": "model fact",
    "tags": "tag",
    "workspace": "workspace",
}


class Followed(Struct):
    """What became of it: records that were read, threads that could not be, and why not all was."""

    records: int = 0
    unreadable: int = 0
    stopped: str | None = None


def is_behind(engine: Engine, index: TextIndex) -> bool:
    """Whether there is anything that the index has not read, or should not have any more."""
    heads, known = engine.heads(), index.known()
    return len(heads) != len(known) or any(_differs(head, known) for head in heads)


def _differs(head: ThreadHead, known: Any) -> bool:
    own = known.get(head.thread)
    return own is None or (own.birth, own.seq) != (head.birth, head.seq)


def catch_up(engine: Engine, index: TextIndex, progress: Progress | None = None) -> Followed:
    """Read what is new, and forget what is gone."""
    followed = Followed()
    for _ in range(_ROUNDS_MAX):
        heads = {head.thread: head for head in engine.heads()}
        known = index.known()
        gone = [id for id, own in known.items() if _is_gone(own, heads.get(id))]
        if gone:
            index.remove(gone)
            known = index.known()
        behind = [head for head in heads.values() if _differs(head, known)]
        if not behind:
            return followed
        reader = _Reader(engine, index, followed, progress)
        try:
            reader.read(_begun_elsewhere(behind), known)
        except Unavailable as error:
            followed.stopped = str(error)
            return followed
        if followed.records >= _MANY:
            with suppress(Unavailable):  # others are at it: nothing that was found depends on it
                index.settle()
        if not reader.changed:
            return followed
    return followed


def _is_gone(known: Known, head: ThreadHead | None) -> bool:
    return head is None or head.birth != known.birth or head.seq < known.seq


def _begun_elsewhere(heads: list[ThreadHead]) -> list[ThreadHead]:
    """In an order that differs between processes: of two that begin at once, both get on."""
    heads.sort(key=lambda head: head.thread)
    start = os.getpid() % len(heads)
    return heads[start:] + heads[:start]


class _Reader:
    def __init__(
        self, engine: Engine, index: TextIndex, followed: Followed, progress: Progress | None
    ) -> None:
        self._engine = engine
        self._index = index
        self._followed = followed
        self._progress = progress
        self._waiting: list[Addition] = []
        self._documents = self._characters = 0
        self.changed = False  # whether a thread turned out to be another one

    def read(self, heads: list[ThreadHead], known: Any) -> None:
        befores = [known.get(head.thread) for head in heads]
        total = sum(
            head.seq - (0 if own is None else own.seq)
            for head, own in zip(heads, befores, strict=True)
        )
        for head, before in zip(heads, befores, strict=True):
            try:
                for addition in self._additions(head, before):
                    self._take(addition)
                    if self._progress is not None:
                        self._progress(self._followed.records, max(total, self._followed.records))
            except (NotFound, Unavailable, Closed) as error:
                if not isinstance(error, NotFound):
                    raise
                self.changed = True  # it was purged meanwhile
            except ClewError:
                self._followed.unreadable += 1  # damaged: what was read of it can be found
        self._write()

    def _additions(self, head: ThreadHead, before: Known | None) -> Iterator[Addition]:
        resumed, bodies = before is not None, set[str]()
        while before is None or before.seq < head.seq:
            # With the record that was read last, to see that it is still there.
            after = 0 if before is None else before.seq - 1
            records = self._engine.read(head.thread, after=after, limit=_PAGE)
            if before is not None and before.seq > 0:
                if not records or records[0].hash != before.hash:
                    self._drop(head.thread)
                    return
                # A large one may be a page of its own.
                records = records[1:] or self._engine.read(
                    head.thread, after=before.seq, limit=_PAGE
                )
            if not records:
                return
            if _erases(records, resumed, bodies):
                # Words of what was erased may be in the index: it is read anew, without them.
                self._drop(head.thread)
                return
            now = Known(head.birth, records[-1].seq, records[-1].hash)
            agent = None
            if any(isinstance(record, Fact) and record.key in _AGENT for record in records):
                agent = self._engine.thread(head.thread).agent or ""
            yield _addition(head.thread, before, now, records, agent)
            self._followed.records += len(records)
            before = now

    def _drop(self, thread: str) -> None:
        self._write()
        self._index.remove([thread])
        self.changed = True

    def _take(self, addition: Addition) -> None:
        self._waiting.append(addition)
        self._documents += len(addition.documents)
        self._characters += sum(document.size for document in addition.documents)
        if self._documents >= _BATCH_DOCUMENTS or self._characters >= _BATCH_CHARACTERS:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._index.add(self._waiting)
        self._waiting, self._documents, self._characters = [], 0, 0


def _erases(records: list[Record], resumed: bool, bodies: set[str]) -> bool:
    """Whether records tell that something was erased whose words may have been read before.

    Before this run, if it goes on from an earlier one; or in it, if it was erased meanwhile.
    `bodies` are the entries that it has read so far, as they were.
    """
    told: list[str] = []
    for record in records:
        if isinstance(record, Entry):
            if record.tombstone is None:
                bodies.add(record.id)
        elif is_erasure(record):
            told.append(record.key.removeprefix(PREFIX))
    return bool(told) and (resumed or not bodies.isdisjoint(told))


def _addition(
    thread: str, before: Known | None, now: Known, records: list[Record], agent: str | None
) -> Addition:
    """With the agent of the thread, if that may have changed; "" if it has none."""
    documents: list[Document] = []
    marks: dict[str, tuple[str, ...]] = {}
    if agent is not None:
        marks["agent"] = (legible(agent),) if agent else ()
    models: set[tuple[str, str]] = set()
    for record in records:
        if isinstance(record, Entry):
            found = read_entry(record)
            if found.model is not None:
                models.add(("model", legible(found.model)))
            documents.append(document(record, found))
        elif isinstance(record, Fact) and record.key == "title":
            title = read_title(record)
            documents.append(document(record, Found([(USER, title or "")])))
        elif isinstance(record, Fact) and record.key in _FACTS:
            marks[_FACTS[record.key]] = _values(record)
    return Addition(
        thread=thread,
        before=before,
        now=now,
        documents=documents,
        marks=marks,
        more_marks=models,
    )


def _values(fact: Fact) -> tuple[str, ...]:
    """What a fact says, as marks: texts as they are, and that there is something else."""
    try:
        value = read_fact(fact.key, fact.data)
    except ClewError:
        return ()
    match value:
        case None | False:
            return ()
        case str(text):
            return (legible(text),)
        case list(items):
            texts = (legible(item) for item in items if isinstance(item, str))
            return tuple(dict.fromkeys(texts))
        case _:
            return ("yes",)
