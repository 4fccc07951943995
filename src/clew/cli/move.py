"""Stand on another entry of the thread; @root stands for before the first one.

The next message becomes a child of that entry. What came after it stays as a branch, which clew
tree shows and another move goes back to. Files are left alone: clew rewind takes them along.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._json import thread_value
from clew.cli._screen import Screen
from clew.cli._stores import command_line, find_entry, opened_thread
from clew.cli._text import preview

ROOT = "@root"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("entry", metavar="ENTRY", help="number, id, its first letters, or label")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("move", options) as thread:
        before = thread.leaf
        entry = None if options.entry == ROOT else find_entry(thread, options.entry)
        thread.move(None if entry is None else entry.id, expect=before)
        if options.json:
            screen.json(thread_value(thread.info) | {"leaf_before": before})
            return _exits.OK
        if entry is None:
            screen.line(("moved", "bold green"), " to before the root")
        else:
            screen.line(("moved", "bold green"), f" to {entry.seq}: ", preview(entry))
        if before is not None:
            screen.note(f"{command_line('move', options, thread.id, before)} goes back")
    return _exits.OK
