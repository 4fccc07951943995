"""Backup: a copy of a store that is in use, which is verified before it gets its name.

The copy is made thread by thread while others write: each thread is there as it was at one moment,
with every fork's origin. It is made in a folder beside its place, read from the first byte to the
last, and only then put there, in one step. So what has the name of a backup is one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager

from msgspec import Struct

from clew.address import maintenance, namespaces, open_engine, place_of, placed
from clew.core.codec import new_id
from clew.core.engine import Progress
from clew.core.errors import AlreadyExists, Corrupt, Unavailable
from clew.upkeep.copy import copy


class BackupReport(Struct, frozen=True, kw_only=True):
    """What a backup has: where it is, and how much was copied and verified."""

    path: str
    namespaces: tuple[str, ...]
    threads: int
    records: int
    blobs: int


def backup(
    address: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> BackupReport:
    """Copy every namespace of a store to a new one at `target`, a path or `files:folder`.

    AlreadyExists: there is something at the target. Corrupt: the source cannot be read to the end,
    or the copy is not what was written. When it raises, nothing is left at the target; what was
    copied so far is removed. Deleted threads come along, leases do not. NotFound: no such store.
    """
    place = os.fspath(place_of(target))
    if os.path.lexists(place):
        raise AlreadyExists("file or folder", place)
    names = tuple(namespaces(address))
    threads = records = blobs = 0
    with _workshop(place) as folder:
        inside = os.path.join(folder, os.path.basename(place))
        made = placed(target, inside)
        for name in names:
            with (
                closing(open_engine(address, readonly=True, namespace=name)) as source,
                closing(open_engine(made, namespace=name)) as copied,
            ):
                report = copy(source, copied, progress=progress)
            for thread in report.threads:
                if not thread.complete:
                    raise Corrupt(f"thread {thread.thread!r}", thread.reason or thread.outcome)
            threads += len(report.threads)
            records += report.records
            blobs += report.blobs
        _verify(made, progress)
        _put(inside, place)
    return BackupReport(path=place, namespaces=names, threads=threads, records=records, blobs=blobs)


@contextmanager
def _workshop(place: str) -> Iterator[str]:
    """A folder beside the target, so that what is made there can be moved in one step."""
    parent, name = os.path.split(place)
    folder = os.path.join(parent, f".{name}.partial-{new_id()}")
    try:
        os.mkdir(folder, 0o700)  # what it holds may be private
    except OSError as error:
        text = f"{parent} cannot be written: {error.strerror}; nothing was made"
        raise Unavailable(text, retryable=False) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _verify(address: str, progress: Progress | None) -> None:
    with closing(maintenance(address)) as store:
        for problem in store.check(progress=progress):
            raise Corrupt("the copy", f"{problem.message}; it was removed")


def _put(made: str, place: str) -> None:
    """Give the copy its name, unless another process was first."""
    if os.path.isdir(made):
        if os.path.lexists(place):
            raise AlreadyExists("folder", place)
        os.rename(made, place)
    else:
        _sync(made)
        try:
            os.link(made, place)  # fails where a rename would overwrite
        except FileExistsError:
            raise AlreadyExists("file", place) from None
        except OSError:  # no links on this file system
            os.rename(made, place)
    _sync(os.path.dirname(place))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
