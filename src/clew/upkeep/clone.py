"""A thread once more under another id, with all its branches, facts and snapshots.

A fork shares one path of its origin and costs one row. A clone has everything that the thread has,
so that each of its messages can be gone back to there as well; it costs what the thread costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.core.errors import AlreadyExists
from clew.core.model import ThreadDraft, ThreadInfo
from clew.upkeep.transfer import batches, to_draft

if TYPE_CHECKING:
    from clew.store import Store


def clone(store: Store, source: ThreadInfo, id: str, created_us: int) -> None:
    """Write every record of a thread to a new one, in one step, under the same seqs and ids.

    What refers to a record by its seq or its id is right in both. Leases stay behind.
    """
    engine = store.engine
    records = [record for batch in batches(engine, source.id, 0, source.seq) for record in batch]
    made = engine.create(
        ThreadDraft(id=id, created_us=created_us, parent=source.parent, origin=source.origin)
    )
    if made.seq:
        raise AlreadyExists("thread", id)  # the same thread was made before, and has moved on
    try:
        if records:
            engine.append(id, [to_draft(record) for record in records])
    except BaseException:
        # Without its records it would look like an empty thread, and stand in the way.
        engine.purge(id)
        raise
