"""The newest entries of a thread, one a line; -f waits for more until Ctrl-C.

Follows the thread wherever it is written, by whatever process. Moves of the leaf are told as well.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_json, add_thread, count
from clew.cli._json import record_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli.tree import draw_entry, kind_width
from clew.core.model import Entry, Move, Record


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("-n", type=count, default=10, metavar="N", help="so many; default: 10")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more")
    add_json(parser, "each record")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("tail", options, look=True, deleted=True) as thread:
        # Read first: what is written between the two reads is then told twice by neither.
        seen = thread.info.seq
        newest = thread.path(limit=options.n) if thread.leaf is not None else []
        newest = [entry for entry in newest if entry.thread != thread.id or entry.seq <= seen]
        width = kind_width(screen, newest)
        for entry in newest:
            _tell(screen, entry, options, width)
        screen.flush()
        if options.follow:
            for record in thread.follow(after=seen):
                _tell(screen, record, options, width)
                screen.flush()
    return _exits.OK


def _tell(screen: Screen, record: Record, options: argparse.Namespace, width: int) -> None:
    if options.json:
        screen.json(record_value(record))
    elif isinstance(record, Entry):
        draw_entry(screen, record, width=width)
    elif isinstance(record, Move):
        screen.line((f"{record.seq:>4} ", "dim"), ("moved", "magenta"), f" to {record.leaf}")
