"""What a record's hash covers. docs/format.md says the same for other languages."""

from __future__ import annotations

from clew.core.codec import digest, digest_fields
from clew.core.model import (
    DEFAULT_NAMESPACE,
    Entry,
    EntryDraft,
    Fact,
    FactDraft,
    Move,
    MoveDraft,
    Origin,
)


def entry_hash(
    draft: EntryDraft | Entry,
    parent: str | None,
    parent_hash: str | None,
    body: str | None = None,
) -> str:
    """The hash of an entry: its own fields, the digests of body and meta, its parent's hash.

    `body` is the digest of the body where that is known: a blob is named by it.
    """
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
        digest(draft.data) if body is None else body,
    )


def move_hash(thread: str, seq: int, move: MoveDraft | Move) -> str:
    return digest_fields("move", thread, seq, move.id, move.leaf, move.time_us)


def fact_hash(thread: str, seq: int, fact: FactDraft | Fact, body: str | None = None) -> str:
    value = digest(fact.data) if body is None else body
    return digest_fields("fact", thread, seq, fact.id, fact.key, fact.time_us, value)


def thread_hash(
    id: str,
    created_us: int,
    parent: str | None,
    origin: Origin | None,
    namespace: str = DEFAULT_NAMESPACE,
) -> str:
    """The hash of what a thread was created with, so that verify can vouch for it.

    Where several namespaces share tables it also covers the one that the thread is in.
    """
    fields: list[str | int | None] = ["thread", id, created_us, parent]
    if origin is not None:
        fields += ["fork", origin.thread, origin.entry, origin.hash]
    if namespace != DEFAULT_NAMESPACE:
        fields += ["namespace", namespace]
    return digest_fields(*fields)
