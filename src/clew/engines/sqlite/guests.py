"""Appends as bytes: what a process that waits asks another one to write, and what it is told.

The one that writes it decides nothing: it plans the append like its own, on what is stored then.
What came out as an error it only refuses; who asked does it again itself, and so gets the error
first hand. To do an append twice does no harm: its records are known by their ids.

An answer does not repeat what was said. Who asked has that, and an answer that comes late may come
behind an erasure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw
from msgspec import UNSET, MsgspecError, Struct, UnsetType, msgpack
from msgspec.structs import replace

from clew.core.model import (
    Draft,
    Entry,
    EntryDraft,
    Fact,
    FactDraft,
    Move,
    MoveDraft,
    Record,
)
from clew.engines.shared.compression import Packed
from clew.engines.shared.group_commit import Ticket
from clew.engines.sqlite.mailbox import ERRAND_BYTES_MAX

Write = Callable[[apsw.Connection, "Append"], list[Record]]


class Append(Struct, gc=False):
    """An append that is ready to be written: what the waist's was called with, and by what."""

    write: Write
    space: int
    thread: str
    drafts: Sequence[Draft]
    expect: str | UnsetType | None
    fence: int | None
    packed: Mapping[str, Packed] = {}

    def __call__(self, db: apsw.Connection) -> list[Record]:
        return self.write(db, self)

    def doubt(self) -> None:
        """Another process may have written it: from now on its ids are not known to be new."""
        self.drafts = [
            replace(draft, fresh=False) if isinstance(draft, EntryDraft) and draft.fresh else draft
            for draft in self.drafts
        ]


class _Draft(Struct, omit_defaults=True):
    """One of the three, so that each is read back as what it was."""

    entry: EntryDraft | None = None
    move: MoveDraft | None = None
    fact: FactDraft | None = None

    @classmethod
    def of(cls, draft: Draft) -> _Draft:
        match draft:
            case EntryDraft():
                return cls(entry=draft)
            case MoveDraft():
                return cls(move=draft)
            case FactDraft():  # one way: there is no other
                return cls(fact=draft)


class _Record(Struct, omit_defaults=True):
    entry: Entry | None = None
    move: Move | None = None
    fact: Fact | None = None

    @classmethod
    def of(cls, record: Record) -> _Record:
        match record:
            case Entry():
                return cls(entry=record)
            case Move():
                return cls(move=record)
            case _:
                assert isinstance(record, Fact)
                return cls(fact=record)


class _Errand(Struct):
    space: int
    thread: str
    drafts: list[_Draft]
    expect: str | UnsetType | None = UNSET
    fence: int | None = None


_errands = msgpack.Decoder(list[_Errand])
_answers = msgpack.Decoder(list[list[_Record] | None])


def to_errand(appends: Sequence[Append]) -> bytes:
    """Without what is packed: no other process is asked to write large bodies."""
    return msgpack.encode(
        [
            _Errand(
                one.space, one.thread, [_Draft.of(d) for d in one.drafts], one.expect, one.fence
            )
            for one in appends
        ]
    )


def from_errand(data: bytes, write: Write) -> list[Append]:
    """The appends again; none, if it is no such errand."""
    try:
        found = _errands.decode(data)
    except (MsgspecError, RecursionError):
        return []
    appends = []
    for one in found:
        drafts = [draft.entry or draft.move or draft.fact for draft in one.drafts]
        append = Append(
            write, one.space, one.thread, [d for d in drafts if d], one.expect, one.fence
        )
        if not drafts or len(append.drafts) < len(drafts):
            return []
        append.doubt()  # one before us may have written it, and died before it could answer
        appends.append(append)
    return appends


def to_answer(appends: Sequence[Append], results: Sequence[Sequence[Record] | None]) -> bytes:
    """What became of each append; None: refused."""
    return msgpack.encode(
        [
            None if records is None else _without_content(append.drafts, records)
            for append, records in zip(appends, results, strict=True)
        ]
    )


def _without_content(drafts: Sequence[Draft], records: Sequence[Record]) -> list[_Record] | None:
    """Records without what their drafts say as well; None: one of them says something else."""
    bare = []
    for draft, record in zip(drafts, records, strict=True):
        if _content(draft) != _content(record):
            return None  # an id that was stored already, with a meta that the caller did not say
        if isinstance(record, Entry):
            record = replace(record, data=b"", meta_data=None)
        elif isinstance(record, Fact):
            record = replace(record, data=b"")
        bare.append(_Record.of(record))
    return bare


def _content(one: Draft | Record) -> tuple[bytes | None, bytes | None]:
    """What was said, in body and meta, or as a fact's value."""
    if isinstance(one, EntryDraft | Entry):
        return one.data, one.meta_data
    return (one.data if isinstance(one, FactDraft | Fact) else None), None


REFUSED = msgpack.encode([])


def from_answer(data: bytes, asked: Sequence[Sequence[Draft]]) -> list[list[Record] | None]:
    """The same again, for the drafts of each append: all are refused, if it is no such answer."""
    refused: list[list[Record] | None] = [None] * len(asked)
    try:
        found = _answers.decode(data)
    except (MsgspecError, RecursionError):
        return refused
    if len(found) != len(asked):
        return refused
    return [
        None if records is None else _with_content(drafts, records)
        for drafts, records in zip(asked, found, strict=True)
    ]


def _with_content(drafts: Sequence[Draft], records: Sequence[_Record]) -> list[Record] | None:
    whole: list[Record] = []
    for draft, said in zip(drafts, records, strict=False):
        match draft, said:
            case EntryDraft(), _Record(entry=Entry() as entry):
                whole.append(replace(entry, data=draft.data, meta_data=draft.meta_data))
            case MoveDraft(), _Record(move=Move() as move):
                whole.append(move)
            case FactDraft(), _Record(fact=Fact() as fact):
                whole.append(replace(fact, data=draft.data))
    return whole if len(whole) == len(drafts) == len(records) else None


# --- a batch of one's own ---


def ask_for(batch: list[Ticket[Any]]) -> bytes | None:
    """What another process could do for us; None if not all of it are appends that it can write."""
    works = [ticket.work for ticket in batch]
    appends = [work for work in works if isinstance(work, Append) and not work.packed]
    if len(appends) < len(works):
        return None
    for append in appends:
        append.doubt()
    errand = to_errand(appends)
    return errand if len(errand) <= ERRAND_BYTES_MAX else None


def settle(batch: list[Ticket[Any]], answer: bytes) -> list[Ticket[Any]]:
    """Fill in what another process has written; those that it has not are left."""
    asked = [ticket.work.drafts for ticket in batch if isinstance(ticket.work, Append)]
    for ticket, records in zip(batch, from_answer(answer, asked), strict=True):
        ticket.result = records
    return [ticket for ticket in batch if ticket.result is None]
