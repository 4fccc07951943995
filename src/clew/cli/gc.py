"""Remove what nothing refers to: blobs that no entry and no snapshot needs any more.

With --deleted-before TIME, threads that were deleted longer ago are removed for good first; it says
which, and asks. TIME is a span (30d, 12h, 2w) or a date. Blobs that were put within the last hour
stay, because their entry may still come. Then what is cold is packed, as clew pack does, unless it
is a store of files: that one is packed only when clew pack is called. clew cleanup removes threads
that were not used.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_asking, add_object, add_store, consent, moment
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import open_existing, open_to_look
from clew.cli._text import plural, size
from clew.core.engine import PackResult
from clew.store import Store


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "--deleted-before", type=moment, metavar="TIME", help="remove what was deleted before"
    )
    add_asking(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    opening = open_to_look if options.dry_run else open_existing
    with opening(options.store, options.namespace) as store:
        if options.deleted_before is None:
            if options.dry_run:
                raise _exits.UsageError("--dry-run tells of threads; give --deleted-before TIME")
            with screen.bar("sweep"):
                swept = store.sweep()
                packed = store.pack() if store.properties.packs_unasked else PackResult()
            if options.json:
                screen.json({"threads": 0} | json_value(swept) | {"packed": packed.entries})
            else:
                _draw(screen, 0, swept.blobs, swept.size_bytes)
                if packed.entries:
                    screen.line(("packed", "bold green"), f": {plural(packed.entries, 'entry')}")
            return _exits.OK
        return _purge(screen, store, options)


def _purge(screen: Screen, store: Store, options: argparse.Namespace) -> int:
    planned = store.cleanup(older_than=options.deleted_before, deleted_only=True, dry_run=True)
    if not options.json:
        for id in planned.purged:
            screen.line((id, "yellow"), fit=False)
        what = f": {plural(len(planned.purged), 'deleted thread')}"
        screen.line(("to be removed", "bold red"), what)
    if options.dry_run:
        if options.json:
            screen.json(json_value(planned))
        return _exits.OK
    question = f"remove {plural(len(planned.purged), 'thread')} for good?"
    if planned.purged and not consent(screen, options, question, "removes threads for good"):
        return _exits.OK
    with screen.bar("gc") as bar:
        done = store.cleanup(older_than=options.deleted_before, deleted_only=True, progress=bar)
    if options.json:
        screen.json(json_value(done))
    else:
        _draw(screen, len(done.purged), done.blobs, done.size_bytes)
    return _exits.OK


def _draw(screen: Screen, threads: int, blobs: int, size_bytes: int) -> None:
    what = f": {plural(threads, 'thread')}, {plural(blobs, 'blob')} of {size(size_bytes)}"
    screen.line(("removed", "bold green"), what)
