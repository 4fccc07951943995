"""Compress what is cold, in place: everything reads, verifies and repairs as before.

Cold is all but the newest records of a thread and, in a thread that was not updated for a while,
all but the last one. Programs that have the store open go on meanwhile. What becomes free in the
file is used by what is written next; --shrink makes the file smaller, and writers wait for that. In
a store of files a thread that was not updated for a while becomes NAME.jsonl.zst, which zstdcat
reads, until it is written to. A store on PostgreSQL packs nothing; --shrink writes its tables anew,
each one locked meanwhile, so that nothing of what was erased or purged is in them. Only their owner
can do so.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_store, count
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import open_existing
from clew.cli._text import plural, size
from clew.core.engine import PACK_IDLE_SECONDS, PACK_TAIL, PackResult


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "--tail",
        type=count,
        default=PACK_TAIL,
        metavar="N",
        help=f"newest records of a thread that stay as they are (default: {PACK_TAIL})",
    )
    parser.add_argument(
        "--idle-seconds",
        type=float,
        default=PACK_IDLE_SECONDS,
        metavar="S",
        help="a thread that was not updated for so long is packed to its end (default: a day)",
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="stop after so long; the next one goes on"
    )
    parser.add_argument(
        "--shrink", action="store_true", help="give free room back to the file system as well"
    )
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_existing(options.store, options.namespace) as store:
        packs = store.properties.packs
        with screen.bar("pack"):
            done = store.pack(
                tail=options.tail,
                idle_seconds=options.idle_seconds,
                max_seconds=options.seconds,
                shrink=options.shrink,
            )
    if options.json:
        screen.json(json_value(done))
        return _exits.OK
    if packs:
        _draw_packed(screen, done)
    elif not options.shrink:
        screen.line("nothing to do: this kind of store packs nothing")
    if options.shrink:
        _draw_shrunk(screen, done, "file" if packs else "store")
    elif done.free_bytes:
        screen.line(f"{size(done.free_bytes)} of the file are free; --shrink gives them back")
    return _exits.OK


def _draw_packed(screen: Screen, done: PackResult) -> None:
    if done.packs:
        sizes = f"{size(done.size_bytes)} in {size(done.stored_bytes)}"
        screen.line(("packed", "bold green"), f": {plural(done.entries, 'entry')}, {sizes}")
    else:
        screen.line("nothing to pack: what is cold is packed already, or gains nothing by it")
    if not done.complete:
        screen.line("there is more to pack; run it again")


def _draw_shrunk(screen: Screen, done: PackResult, what: str) -> None:
    if done.shrunk_bytes:
        screen.line(("shrunk", "bold green"), f": the {what} is {size(done.shrunk_bytes)} shorter")
    else:
        screen.line(f"nothing to shrink: the {what} has no free room")
    if done.left_rows:
        count = plural(done.left_rows, "row")
        text = f"{count} that were removed are still there: another transaction may see them"
        screen.line(text, fit=False)
