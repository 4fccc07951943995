"""Restore: a store made of a backup, verified before it gets its name.

What is there is never overwritten: a store is restored to a place where none is, or to a server on
which it holds no thread. Single threads come back into a store that is in use by `copy`, which
adds and never removes.

A restored store gives out no fence again. Leases are in no backup, and fences grow with the clock;
so the clock must not stand before the backup.
"""

from __future__ import annotations

import os
from contextlib import closing

from msgspec import Struct

from clew.address import default_path, maintenance, namespaces, open_engine, place_of
from clew.core.drafts import now_us
from clew.core.engine import Progress
from clew.core.errors import AlreadyExists, Corrupt, NotFound, Unavailable, Unsupported
from clew.core.model import rfc3339, to_time
from clew.upkeep.backup import (
    Mark,
    copy_namespace,
    find_mark,
    make_store,
    stored_namespaces,
    verify_copy,
)
from clew.upkeep.copy import CopyReport
from clew.upkeep.transfer import everything


class RestoreReport(Struct, frozen=True, kw_only=True):
    """What was restored, and to where. `backup`: what the backup said of itself, if it was one."""

    place: str
    namespaces: tuple[str, ...]
    threads: int
    records: int
    blobs: int
    backup: Mark | None = None


def restore(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> RestoreReport:
    """Make a store of a backup, with all its namespaces and deleted threads, and verify it.

    `target` is a path, `files:folder` or a server, of any engine; None is the user's own store.
    AlreadyExists: there is something at the path, or the store on the server has threads. Corrupt:
    the backup cannot be read to the end, or the copy is not what was written; on disk nothing is
    left then. Unavailable: the clock stands before the backup. NotFound: no such backup.
    """
    target = default_path() if target is None else target
    _refuse_loss(source)
    names = stored_namespaces(source)
    mark = find_mark(source)
    if mark is not None:
        _refuse_past(mark)
    try:
        place = os.fspath(place_of(target))
    except Unsupported:
        place, reports = _fill(source, target, names, progress)
    else:
        if os.path.lexists(place):
            raise AlreadyExists("file or folder", place)
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        reports = make_store(source, target, names, None, progress)
    return RestoreReport(
        place=place,
        namespaces=names,
        threads=sum(len(report.threads) for report in reports.values()),
        records=sum(report.records for report in reports.values()),
        blobs=sum(report.blobs for report in reports.values()),
        backup=mark,
    )


def _refuse_loss(source: str | os.PathLike[str]) -> None:
    """What is not there any more is nothing that cannot be read: copying would miss nothing.

    Asked first, as what remembers it is a cache, which goes by the files as soon as it is used.
    """
    try:
        place_of(source)
    except Unsupported:
        return  # a server has no files that can be missing
    with closing(maintenance(source)) as store:
        for problem in store.check(quick=True):
            if problem.code in ("missing_thread", "missing_records"):
                text = f"{problem.message}; clew copy brings what is there"
                raise Corrupt(f"thread {problem.thread!r}", text)


def _refuse_past(mark: Mark) -> None:
    """A store that is restored to before its backup could give out the fences of then again."""
    seen_us, clock_us = max(mark.begun_us, mark.done_us or 0), now_us()
    if clock_us < seen_us:
        clock, then = rfc3339(to_time(clock_us)), rfc3339(to_time(seen_us))
        text = f"the clock says {clock}, and the backup is from {then}: set the clock first, as the"
        raise Unavailable(f"{text} fences of leases grow with it; nothing was written")


def _fill(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    names: tuple[str, ...],
    progress: Progress | None,
) -> tuple[str, dict[str, CopyReport]]:
    """The same on a server, where a store is made in place."""
    try:
        there = namespaces(target)
    except NotFound:
        there = []
    for name in there:
        with closing(open_engine(target, readonly=True, namespace=name)) as engine:
            if next(everything(engine), None) is not None:
                raise AlreadyExists("store", engine.properties.place)
    with closing(open_engine(target)) as engine:
        place = engine.properties.place
    stays = "what was copied so far stays; clew copy brings what can be read"
    reports: dict[str, CopyReport] = {}
    for name in names:
        reports[name] = copy_namespace(source, target, name, progress)
        for thread in reports[name].threads:
            if not thread.complete:
                raise Corrupt(f"thread {thread.thread!r}", f"{thread.reason}; {stays}")
    verify_copy(target, stays, progress)
    return place, reports
