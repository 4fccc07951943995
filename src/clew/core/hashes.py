"""What a record's hash covers. docs/format.md says the same for other languages.

An entry's hash covers its body by the body's own hash, which is stored beside it. So the chain of
entries can be checked without any body, and a body can be erased, or moved into a pack, while the
chain goes on to verify.
"""

from __future__ import annotations

from blake3 import blake3

from clew.core.codec import digest, digest_fields, to_hash
from clew.core.model import (
    DEFAULT_NAMESPACE,
    Entry,
    EntryDraft,
    Fact,
    FactDraft,
    Move,
    MoveDraft,
    Origin,
    Record,
)


def stable_hash(content: str | bytes) -> str:
    """The hash that the same content has in every process and every store."""
    return digest(
        content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    )


def record_hash(
    record: Record, parent_hash: str | None = None, value_hash: str | None = None
) -> str | None:
    """The hash that a record should have; None if damage made it of what cannot be hashed.

    `parent_hash` is that of an entry's parent. An entry's body is not looked at, only its hash;
    nor is a fact's value, if `value_hash` is given.
    """
    try:
        if isinstance(record, Entry):
            return entry_hash(record, record.parent, parent_hash, record.body_hash)
        if isinstance(record, Move):
            return move_hash(record.thread, record.seq, record)
        assert isinstance(record, Fact)
        return fact_hash(record.thread, record.seq, record, value_hash)
    except (UnicodeEncodeError, TypeError):
        return None


def entry_hash(
    draft: EntryDraft | Entry, parent: str | None, parent_hash: str | None, body_hash: str
) -> str:
    """The hash of an entry: its own fields, the hashes of body and meta, its parent's hash."""
    return to_hash(entry_digest(draft, parent, parent_hash, body_hash))


def entry_digest(
    draft: EntryDraft | Entry, parent: str | None, parent_hash: str | None, body_hash: str
) -> bytes:
    """The bytes of that hash."""
    meta_hash: str | None = "" if draft.meta_data is None else digest(draft.meta_data)
    format = draft.format
    if draft.tombstone is not None:
        meta_hash, format = draft.tombstone.meta_hash, draft.tombstone.format
    # As `digest_fields` does it, written out: every append makes one.
    text = (
        f"entry\0{parent_hash or ''}\0{draft.id}\0{parent or ''}\0{draft.kind}"
        f"\0{format or ''}\0{draft.turn or ''}\0{draft.time_us}"
        f"\0{','.join(draft.blobs)}\0{meta_hash or ''}\0{body_hash}"
    )
    return blake3(text.encode("utf-8")).digest()


def move_hash(thread: str, seq: int, move: MoveDraft | Move) -> str:
    return digest_fields("move", thread, seq, move.id, move.leaf, move.time_us)


def fact_hash(thread: str, seq: int, fact: FactDraft | Fact, value_hash: str | None = None) -> str:
    """The hash of a fact. `value_hash` is that of its value, where it is known already."""
    if value_hash is None:
        value_hash = digest(fact.data)
    return digest_fields("fact", thread, seq, fact.id, fact.key, fact.time_us, value_hash)


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
