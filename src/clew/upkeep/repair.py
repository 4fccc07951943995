"""Repair: a new store from what can be read of a damaged one. The damaged one is kept.

Nothing is ever changed in place. The store is copied, the copy is read, what can be saved is
written into a new store, and only when that is whole does it take the old one's place.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing
from pathlib import Path

from clew.address import is_postgres, locate
from clew.core.engine import Progress
from clew.core.errors import ClewError, Corrupt, Unavailable, Unsupported
from clew.core.maintenance import RepairReport, Salvage, Tally, Workshop
from clew.core.model import Problem
from clew.engines.shared.swap import note_of
from clew.upkeep.rebuild import rebuild


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

    Unavailable: somebody has it open, or there is no room for it; nothing was changed.
    """
    if is_postgres(address):
        raise Unsupported(
            "a store in PostgreSQL is not repaired by Clew: restore the server's backup; what can "
            "be read of it can be copied to a new store with clew copy"
        )
    engine, path = locate(address)
    if path is None:
        raise Unsupported("a store in memory cannot be repaired")
    try:
        shop = _workshop(engine, path)
        try:
            return _repair(shop, reindex, progress)
        finally:
            shop.close()
    except OSError as error:
        left = "run clew repair again" if note_of(path).exists() else "it is as it was"
        text = f"{path} cannot be repaired: {_reason(error)}; {left}"
        raise Unavailable(text, retryable=False) from error


def _reason(error: OSError) -> str:
    """Copying a folder gathers what fails in an error that says nothing itself."""
    if isinstance(error, shutil.Error) and error.args[0]:
        return str(error.args[0][0][-1])
    return error.strerror or str(error)


def _workshop(engine: str, path: Path) -> Workshop:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    taken = path.with_name(f"{path.name}.damaged-{stamp}").exists()
    stamp = f"{stamp}-{os.urandom(2).hex()}" if taken else stamp
    if engine == "files":
        from clew.engines.files.repair.workshop import FilesWorkshop

        return FilesWorkshop(path, stamp)
    from clew.engines.sqlite.repair.workshop import SQLiteWorkshop

    return SQLiteWorkshop(path, stamp)


def _repair(shop: Workshop, reindex: bool, progress: Progress | None) -> RepairReport:
    problems = _problems(shop)
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
        original=shop.swap(),
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


def _live(salvages: list[Salvage]) -> dict[tuple[str, str], str]:
    return {
        (salvage.namespace, thread.key): thread.draft.id
        for salvage in salvages
        for thread in salvage.threads()
        if not thread.purged
    }


def _problems(shop: Workshop) -> list[Problem]:
    try:
        copy = shop.open_copy()
    except ClewError as error:
        if error.retryable:  # no room for it, and the like
            raise
        return [Problem(code="unreadable", message=str(error))]
    try:
        return list(copy.check())
    except ClewError as error:
        return [Problem(code="unreadable", message=str(error))]
    finally:
        copy.close()


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
