"""Repair: a new store from what can be read of a damaged one. The damaged one is kept.

Nothing is ever changed in place. The store is copied, the copy is read, what can be saved is
written into a new store, and only when that is whole does it take the old one's place.
"""

from __future__ import annotations

import os
from contextlib import closing

from msgspec import Struct

from clew.address import maintenance, open
from clew.core.engine import Progress
from clew.core.errors import ClewError, Corrupt, Unavailable
from clew.core.maintenance import Lost, Maintenance, Salvage, Workshop
from clew.core.model import Problem
from clew.upkeep.rebuild import LostBlob, Tally, rebuild


class RepairReport(Struct, frozen=True, kw_only=True):
    """What a repair found, saved and lost.

    `whole`: nothing was damaged. `original`: where the damaged store is now, None if nothing
    was changed. `rehashed` entries are as they were but have another hash, because something
    before them is lost. `unverified` ones are kept although what would vouch for them is lost.
    """

    place: str
    whole: bool
    original: str | None = None
    problems: tuple[Problem, ...] = ()
    threads: int = 0
    records: int = 0
    blobs: int = 0
    placeholders: int = 0
    rehashed: int = 0
    unverified: int = 0
    lost: tuple[Lost, ...] = ()
    lost_blobs: tuple[LostBlob, ...] = ()
    notes: tuple[str, ...] = ()


def repair(
    address: str | os.PathLike[str] | None = None,
    *,
    reindex: bool = False,
    progress: Progress | None = None,
) -> RepairReport:
    """Repair the store at an address, alone with it. A store that is whole is left as it is.

    What cannot be read becomes a placeholder or is reported; see the report. The damaged store
    stays beside the new one, byte for byte, under the name that the report gives. `reindex`
    builds everything derived anew even if nothing is damaged.

    Unavailable: another process has it open, or there is no room for it; nothing was changed.
    Unsupported: this engine's stores are not repaired by Clew; the error says what to do.
    """
    with closing(maintenance(address)) as store:
        if reindex and not store.repairs:
            return _reindex(address, store, progress)
        return _repair(store, reindex, progress)


def _reindex(
    address: str | os.PathLike[str] | None, store: Maintenance, progress: Progress | None
) -> RepairReport:
    """Where a server looks after the rest, what is derived is the search index."""
    for namespace in store.namespaces():
        with open(address, create=False, namespace=namespace) as opened:
            opened.reindex(progress=progress)
    note = "the search index was made anew; the rest is the server's own"
    return RepairReport(place=store.place, whole=True, notes=(note,))


def _repair(store: Maintenance, reindex: bool, progress: Progress | None) -> RepairReport:
    with store.repair() as shop:
        problems = _problems(shop)
        # What an interrupted repair has left was made anew just now: it needs no second time.
        if not problems and (not reindex or shop.finished is not None):
            return RepairReport(place=shop.place, whole=True, original=shop.finished)
        if not problems and shop.reindex():
            note = "the index was removed, and is made anew when the store is opened"
            return RepairReport(place=shop.place, whole=True, notes=(note,))
        salvages = shop.salvage()
        try:
            tally = _rebuild(shop, salvages, progress)
            shop.finish(_live(salvages))
        except Unavailable as error:
            text = f"{shop.place} cannot be repaired: {error}; it is as it was"
            raise Unavailable(text, retryable=False) from error
        return RepairReport(
            place=shop.place,
            whole=not problems,
            original=shop.swap(),  # the one moment that changes something outside of the workshop
            problems=tuple(problems),
            threads=tally.threads,
            records=tally.records,
            blobs=tally.blobs,
            placeholders=tally.placeholders,
            rehashed=tally.rehashed,
            unverified=sum(len(salvage.unverified) for salvage in salvages),
            lost=tuple(tally.lost),
            lost_blobs=tuple(tally.lost_blobs),
            notes=tuple(dict.fromkeys(note for salvage in salvages for note in salvage.notes)),
        )


def _problems(shop: Workshop) -> list[Problem]:
    """What is wrong with the store, found on the copy: the store itself is not opened."""
    with closing(shop.open_copy()) as copy:
        try:
            return list(copy.check())
        except ClewError as error:
            if error.retryable:  # no room for it, and the like: that says nothing about the store
                raise
            return [Problem(code="unreadable", message=str(error))]


def _rebuild(shop: Workshop, salvages: list[Salvage], progress: Progress | None) -> Tally:
    """Build the new store and prove it; if it is not whole, both are left to be looked at."""
    tally = Tally()
    for salvage in salvages:
        with closing(shop.create(salvage.namespace)) as engine:
            tally.add(salvage.namespace, rebuild(salvage, engine, progress))
    with closing(shop.open_new()) as new:
        left = list(new.check())
    if left:
        kept = shop.keep()
        reason = f"the new store is not whole either ({left[0].message}); both are left: {kept}"
        raise Corrupt(shop.place, reason)
    return tally


def _live(salvages: list[Salvage]) -> dict[tuple[str, str], str]:
    """The ids of threads that are not purged, by namespace and key."""
    return {
        (salvage.namespace, thread.key): thread.draft.id
        for salvage in salvages
        for thread in salvage.threads()
        if not thread.purged
    }
