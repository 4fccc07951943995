"""Bring back what was lost: a deleted thread, or with --from what a backup has.

Without --from, THREAD is a deleted thread of the store; clew list --deleted shows those. With it,
the thread comes from the backup: one that was purged, or what the store's has lost of it. Where
both have moved on, both branches are kept.

@all instead of THREAD makes the whole store anew from the backup, with all namespaces, and verifies
it. STORE must not be there yet; the backup stays as it is.
"""

from __future__ import annotations

import argparse

import clew
from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._json import json_value, thread_value
from clew.cli._screen import Screen
from clew.cli._stores import existing, named, open_existing, open_to_look, opened_thread, resolve
from clew.cli._text import plural
from clew.core.errors import AlreadyExists, Conflict, Corrupt
from clew.core.model import rfc3339, to_time
from clew.upkeep.copy import CopiedThread, copy
from clew.upkeep.restore import RestoreReport, restore

_ALL = "@all"
_WORDS = {
    "copied": "restored",
    "extended": "restored: what the store lacked of",
    "same": "nothing to restore: the store has all of",
    "ahead": "nothing to restore: the store has more of",
    "diverged": "restored as a branch, as the store went another way:",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--from", dest="backup", metavar="BACKUP", help="a backup, or any store")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.backup is None:
        return _undelete(options, screen)
    if options.thread == _ALL:
        if options.namespace is not None:
            raise _exits.UsageError("@all is every namespace; name a thread, or leave it out")
        return _restore_all(options, screen)
    return _restore_thread(options, screen)


def _undelete(options: argparse.Namespace, screen: Screen) -> int:
    if options.thread == _ALL:
        raise _exits.UsageError("@all goes with --from BACKUP")
    with opened_thread("restore", options, deleted=True) as thread:
        was_deleted = thread.info.deleted_at is not None
        thread.store.restore(thread.id)
        if options.json:
            screen.json(thread_value(thread.info))
        elif was_deleted:
            screen.line(("restored", "bold green"), f": {thread.id}")
        else:
            screen.line(f"{thread.id} is not deleted; nothing was changed")
    return _exits.OK


# --- from a backup --------------------------------------------------------------------------


def _restore_all(options: argparse.Namespace, screen: Screen) -> int:
    with existing(options.backup), screen.bar("restore") as bar:
        try:
            done = restore(options.backup, options.store, progress=bar)
        except AlreadyExists as error:
            text = f"{error.id} is there already; move it away, or name another STORE"
            raise _exits.UsageError(f"{text}; nothing was written") from None
    if options.json:
        screen.json(json_value(done) | {"verified": True})
    else:
        _draw(screen, done)
    return _exits.OK


def _draw(screen: Screen, done: RestoreReport) -> None:
    mark = done.backup
    if mark is not None and mark.done_us is not None:
        screen.line(f"the backup of {mark.of} from {rfc3339(to_time(mark.done_us))}", fit=False)
    if mark is not None and not mark.finished:
        begun = rfc3339(to_time(mark.begun_us))
        text = f"a later run, begun at {begun}, was not finished; what it had added is there too"
        screen.line((text, "yellow"), fit=False)
    what = f"{plural(done.threads, 'thread')}, {plural(done.records, 'record')}"
    screen.line(("restored and verified", "bold green"), f": {what} in {done.place}", fit=False)


def _restore_thread(options: argparse.Namespace, screen: Screen) -> int:
    with (
        open_to_look(options.backup, options.namespace) as backup,
        _target(options) as store,
        screen.bar("restore") as bar,
    ):
        id = resolve(backup, options.thread, deleted=True).id
        done = copy(backup.engine, store.engine, only=[id], progress=bar).threads[0]
        if not done.complete:
            raise _failure(done)
        info = store.get(id, deleted=True).info
    if options.json:
        screen.json(thread_value(info) | {"outcome": done.outcome, "records": done.records})
        return _exits.OK
    more = "" if not done.records else f", {plural(done.records, 'record')}"
    screen.line((_WORDS[done.outcome], "bold green"), f" {id}{more}", fit=False)
    if info.deleted_at is not None:
        screen.line(f"it is deleted; clew restore {id} brings it back")
    return _exits.OK


def _target(options: argparse.Namespace) -> clew.Store:
    """The store to restore to; the namespace may be new in it, the store may not."""
    open_existing(options.store).close()
    return clew.open(options.store, **named(options.namespace))


def _failure(done: CopiedThread) -> Corrupt | Conflict:
    if done.outcome == "damaged":
        return Corrupt(f"thread {done.thread!r} of the backup", str(done.reason))
    text = f"thread {done.thread!r} was not restored: {done.reason}"
    return Conflict(text, field="thread", expected=done.thread, actual=done.outcome)
