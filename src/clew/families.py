"""How the threads that were salvaged hang together: who came before whom, and who needs what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from clew.model import Entry
from clew.salvage import SalvagedThread


def in_creation_order(threads: Iterable[SalvagedThread]) -> list[SalvagedThread]:
    """Origins before forks, and those who shared an id one after the other.

    A thread can only have got an id again after it was purged, so after all forks of the one
    before it were made; the one that has the id now was the last.
    """
    known = {thread.key: thread for thread in threads}
    forks: dict[str, list[str]] = {}
    by_id: dict[str, list[SalvagedThread]] = {}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for thread in known.values():
        sorter.add(thread.key)
        if thread.origin_key in known:
            sorter.add(thread.key, thread.origin_key)
            forks.setdefault(thread.origin_key, []).append(thread.key)
        by_id.setdefault(thread.draft.id, []).append(thread)
    for same in by_id.values():
        same.sort(key=lambda thread: not thread.purged)
        for earlier, later in pairwise(same):
            sorter.add(later.key, earlier.key, *forks.get(earlier.key, ()))
    try:
        return [known[key] for key in sorter.static_order()]
    except CycleError:
        return list(known.values())


def hung_on(threads: Sequence[SalvagedThread]) -> dict[str, set[str]]:
    """By the key of a purged thread: the parents of what is left of it, and of its purged forks.

    What a purged thread began at may have gone with it, if no fork's path ran through that. What
    is left then hangs further up, where it is found through threads of which nothing is left.
    The threads come in their order of creation.
    """
    found: dict[str, set[str]] = {thread.key: set() for thread in threads}
    for thread in reversed(threads):
        if thread.purged:
            found[thread.key] |= _parents(thread)
            if thread.origin_key in found:
                found[thread.origin_key] |= found[thread.key]
    return found


def _parents(thread: SalvagedThread) -> set[str]:
    entries = (item for item in thread.records() if isinstance(item, Entry))
    return {entry.parent for entry in entries if entry.parent is not None}
