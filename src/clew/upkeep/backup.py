"""Backup: a copy of a store that is in use, verified, and brought up to date by the next one.

The copy is made thread by thread while others write: each thread is there as it was at one moment,
with every fork's origin. A first backup is made in a folder beside its place, read from the first
byte to the last, and only then put there, in one step. A later one adds what is new, in place: a
thread's log only grows, so that whatever the backup had stays as it was, and a process that is
killed in the middle leaves what was there and a part of what is new.

A backup says in a namespace of its own which store it is of and when it was last finished. Nothing
else is ever written to.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager

from msgspec import Struct, ValidationError, convert, to_builtins

from clew.address import (
    default_path,
    is_same_store,
    maintenance,
    make_folders,
    namespaces,
    open_engine,
    place_of,
    placed,
    state_folder,
)
from clew.core.codec import decode, digest, encode, new_id
from clew.core.drafts import now_us
from clew.core.engine import Progress
from clew.core.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    Unavailable,
    Unsupported,
)
from clew.core.model import FactDraft, ThreadDraft
from clew.upkeep.copy import CopiedThread, CopyReport, copy
from clew.upkeep.transfer import everything, find_thread

BACKUP = "clew.backup"  # the namespace, the thread in it, and the fact that say what a backup is


class Mark(Struct, frozen=True, kw_only=True):
    """What a backup says of itself: the place of its store, and when it was begun and finished."""

    of: str
    begun_us: int
    done_us: int | None = None

    @property
    def finished(self) -> bool:
        """Whether the last run came to its end. If not, it holds what it had and a part more."""
        return self.done_us is not None and self.done_us >= self.begun_us


class BackupReport(Struct, frozen=True, kw_only=True):
    """What a backup has: where it is, how many threads the store has, and what was written.

    `first`: it was made anew. `kept`: threads that only the backup has, as namespace and id, since
    the store purged them. `ahead`: those of which it has more than the store, which was put back
    from an older one. `set_aside`: threads that went another way in the store, as namespace, id and
    the id under which the backup keeps what it had of them.
    """

    path: str
    namespaces: tuple[str, ...]
    threads: int
    records: int
    blobs: int
    first: bool = True
    kept: tuple[tuple[str, str], ...] = ()
    ahead: tuple[tuple[str, str], ...] = ()
    set_aside: tuple[tuple[str, str, str], ...] = ()


def backup(
    address: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    *,
    moved: bool = False,
    progress: Progress | None = None,
) -> BackupReport:
    """Copy every namespace of a store to `target`, a path or `files:folder`, and verify it.

    A backup of this store that is there already gets what is new. AlreadyExists: what is there is
    no backup. Conflict: it is one of another store; `moved` says that it is this one, which had
    another place then (it must have a thread in common). Corrupt: a thread of the source cannot be
    read to the end, or the backup is not what was written; of a first backup nothing is left
    then, a later one has all other threads. Deleted threads come along, leases do not. Unavailable:
    another process writes to it. NotFound: no such store.
    """
    place = os.fspath(place_of(target))
    source = os.fspath(default_path() if address is None else address)
    if is_same_store(source, os.fspath(target)):
        raise InvalidInput("target", "a store cannot be its own backup")
    names = stored_namespaces(address)
    with closing(open_engine(address, readonly=True)) as engine:
        of = engine.properties.place
    with _alone(place):
        if not os.path.lexists(place):
            mark = Mark(of=of, begun_us=now_us())
            return _report(place, make_store(address, target, names, mark, progress))
        mark = _own_mark(address, target, names, of, moved)
        return _renew(address, target, names, mark, progress)


def stored_namespaces(address: str | os.PathLike[str] | None) -> tuple[str, ...]:
    """The namespaces of a store, without the one in which a backup says what it is."""
    return tuple(name for name in namespaces(address) if name != BACKUP)


# --- the mark -------------------------------------------------------------------------------


def find_mark(address: str | os.PathLike[str] | None) -> Mark | None:
    """What a store says of the one that it is a backup of; None if it is no backup."""
    try:
        with closing(open_engine(address, readonly=True, namespace=BACKUP)) as engine:
            data = engine.thread(BACKUP).fact_data.get(BACKUP, b"null")
    except NotFound as error:
        if error.what == "store":
            raise
        return None
    try:
        return convert(decode(data), Mark)
    except ValidationError as error:
        raise Corrupt(f"thread {BACKUP!r}, namespace {BACKUP!r}", str(error)) from error


def _set_mark(address: str | os.PathLike[str], mark: Mark) -> None:
    with closing(open_engine(address, namespace=BACKUP)) as engine:
        if find_thread(engine, BACKUP) is None:
            engine.create(ThreadDraft(id=BACKUP, created_us=mark.begun_us))
        data = encode(to_builtins(mark))
        engine.append(BACKUP, [FactDraft(id=new_id(), key=BACKUP, data=data, time_us=now_us())])


def _own_mark(
    address: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    names: tuple[str, ...],
    of: str,
    moved: bool,
) -> Mark:
    """The mark of a backup that is there, if it is one of this store."""
    place = os.fspath(place_of(target))
    try:
        mark = find_mark(target)
    except (NotFound, Unsupported):
        mark = None
    if mark is None:
        raise AlreadyExists("file or folder", place)
    if mark.of != of and not moved:
        text = f"{place} is a backup of {mark.of}, not of {of}; nothing was written"
        text += " (if the store was moved there, say so: --moved)"
        raise Conflict(text, field="store", expected=of, actual=mark.of)
    if not _is_related(address, target, names):
        text = f"{place} is a backup of a store whose threads {of} has none of; nothing was written"
        raise Conflict(text, field="store", expected=of, actual=mark.of)
    return Mark(of=of, begun_us=now_us(), done_us=mark.done_us)


def _is_related(
    address: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    names: tuple[str, ...],
) -> bool:
    """Whether a store and a backup have a thread in common, or the backup has none at all."""
    empty = True
    for name in stored_namespaces(target):
        with closing(open_engine(target, readonly=True, namespace=name)) as there:
            if name not in names:
                empty = empty and next(everything(there), None) is None
                continue
            with closing(open_engine(address, readonly=True, namespace=name)) as here:
                for theirs in everything(there):
                    empty = False
                    mine = find_thread(here, theirs.id)
                    if mine is not None and mine.created_us == theirs.created_us:
                        return True
    return empty


# --- copying --------------------------------------------------------------------------------


def make_store(
    address: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    names: tuple[str, ...],
    mark: Mark | None,
    progress: Progress | None,
) -> dict[str, CopyReport]:
    """A verified copy of a store at a place on disk where nothing is yet, made in one step."""
    place = os.fspath(place_of(target))
    reports: dict[str, CopyReport] = {}
    with _workshop(place) as folder:
        inside = os.path.join(folder, os.path.basename(place))
        made = placed(target, inside)
        for name in names:
            reports[name] = copy_namespace(address, made, name, progress)
            for thread in reports[name].threads:
                if not thread.complete:
                    raise _incomplete(thread)
        if mark is not None:
            _set_mark(made, Mark(of=mark.of, begun_us=mark.begun_us, done_us=now_us()))
        verify_copy(made, "it was removed", progress)
        _put(inside, place)
    return reports


def _renew(
    address: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    names: tuple[str, ...],
    mark: Mark,
    progress: Progress | None,
) -> BackupReport:
    place = os.fspath(place_of(target))
    _set_mark(target, mark)
    reports = {name: copy_namespace(address, target, name, progress, exact=True) for name in names}
    failed = [t for report in reports.values() for t in report.threads if not t.complete]
    verify_copy(target, "make another backup, in a new place", progress)
    for thread in failed:
        raise _incomplete(thread, "; the backup has what it had of it, and all other threads")
    _set_mark(target, Mark(of=mark.of, begun_us=mark.begun_us, done_us=now_us()))
    return _report(place, reports, first=False, kept=_kept(target, reports))


def copy_namespace(
    address: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    name: str,
    progress: Progress | None,
    *,
    exact: bool = False,
) -> CopyReport:
    with (
        closing(open_engine(address, readonly=True, namespace=name)) as source,
        closing(open_engine(target, namespace=name)) as copied,
    ):
        return copy(source, copied, exact=exact, progress=progress)


def verify_copy(address: str | os.PathLike[str], what_then: str, progress: Progress | None) -> None:
    """Read the copy from the first byte to the last. Corrupt: it is not what was written."""
    with closing(maintenance(address)) as store:
        for problem in store.check(progress=progress):
            raise Corrupt("the copy", f"{problem.message}; {what_then}")


def _incomplete(thread: CopiedThread, more: str = "") -> Corrupt:
    return Corrupt(f"thread {thread.thread!r}", (thread.reason or thread.outcome) + more)


def _kept(
    target: str | os.PathLike[str], reports: dict[str, CopyReport]
) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for name in stored_namespaces(target):
        report = reports.get(name)
        known = set() if report is None else {thread.thread for thread in report.threads}
        known |= set() if report is None else set(report.set_aside.values())
        with closing(open_engine(target, readonly=True, namespace=name)) as engine:
            found += [(name, info.id) for info in everything(engine) if info.id not in known]
    return tuple(found)


def _report(
    place: str,
    reports: dict[str, CopyReport],
    *,
    first: bool = True,
    kept: tuple[tuple[str, str], ...] = (),
) -> BackupReport:
    return BackupReport(
        path=place,
        namespaces=tuple(reports),
        threads=sum(len(report.threads) for report in reports.values()),
        records=sum(report.records for report in reports.values()),
        blobs=sum(report.blobs for report in reports.values()),
        first=first,
        kept=kept,
        ahead=tuple((n, t.thread) for n, r in reports.items() for t in r.having("ahead")),
        set_aside=tuple((n, *two) for n, r in reports.items() for two in r.set_aside.items()),
    )


# --- places ---------------------------------------------------------------------------------


@contextmanager
def _alone(place: str) -> Iterator[None]:
    """One process at a time writes to a backup; the system ends it with the process."""
    folder = state_folder()
    if folder is None:
        yield
        return
    make_folders(folder)
    name = digest(os.path.realpath(place).encode("utf-8", "surrogateescape"))[3:19]
    with (folder / f"backup-{name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"another backup to {place} is being made") from None
        yield


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
