"""A new thread that shares the path to an entry with another one, by reference; prints its id.

--at shares up to that entry (default: the leaf), --before up to where the thread stood before it.
Workspace, tags and model come along. The other thread stays as it is; clew adopt brings back what
the fork has added, clew diff shows it.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._json import thread_value
from clew.cli._screen import Screen
from clew.cli._stores import find_entry, opened_thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--at", metavar="ENTRY", help="the last entry that both share")
    place.add_argument("--before", metavar="ENTRY", help="the first one that the fork has not")
    parser.add_argument("--title", metavar="TEXT", help="what it is about")
    parser.add_argument("--id", metavar="ID", help="default: a fresh one that sorts by time")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("fork", options) as thread:
        fork = thread.fork(
            at=options.at and find_entry(thread, options.at).id,
            before=options.before and find_entry(thread, options.before).id,
            title=options.title,
            id=options.id,
        )
        if options.json:
            screen.json(thread_value(fork.info))
        else:
            screen.line(fork.id, fit=False)
    return _exits.OK
