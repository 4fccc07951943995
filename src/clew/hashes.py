"""What a record's hash covers. docs/format.md says the same for other languages."""

from __future__ import annotations

from clew.codec import digest, digest_fields
from clew.model import Entry, EntryDraft, Fact, FactDraft, Move, MoveDraft, Origin


def entry_hash(draft: EntryDraft | Entry, parent: str | None, parent_hash: str | None) -> str:
    """The hash of an entry: its own fields, the digests of body and meta, its parent's hash."""
    return digest_fields(
        "entry",
        parent_hash,
        draft.id,
        parent,
        draft.kind,
        draft.format,
        draft.turn,
        draft.time_us,
        ",".join(draft.blobs),
        None if draft.meta_data is None else digest(draft.meta_data),
        digest(draft.data),
    )


def move_hash(thread: str, seq: int, move: MoveDraft | Move) -> str:
    return digest_fields("move", thread, seq, move.id, move.leaf, move.time_us)


def fact_hash(thread: str, seq: int, fact: FactDraft | Fact) -> str:
    return digest_fields("fact", thread, seq, fact.id, fact.key, fact.time_us, digest(fact.data))


def thread_hash(id: str, created_us: int, parent: str | None, origin: Origin | None) -> str:
    """The hash of what a thread was created with, so that verify can vouch for it."""
    if origin is None:
        return digest_fields("thread", id, created_us, parent)
    return digest_fields(
        "thread", id, created_us, parent, "fork", origin.thread, origin.entry, origin.hash
    )
