"""A thread once more under another id, with all its branches, facts and snapshots.

A fork shares one path of its origin and costs one row. A clone has everything that the thread has,
so that each of its messages can be gone back to there as well; it costs what the thread costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.core.model import ThreadInfo
from clew.upkeep.transfer import duplicate

if TYPE_CHECKING:
    from clew.store import Store


def clone(store: Store, source: ThreadInfo, id: str, created_us: int) -> None:
    """Write every record of a thread to a new one, in one step, under the same seqs and ids.

    What refers to a record by its seq or its id is right in both. Leases stay behind.
    """
    duplicate(store.engine, source, id, created_us, source.origin)
