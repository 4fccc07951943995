"""Put a thread away: clew list passes it over, unless --all. --undo takes it out again."""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._json import thread_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--undo", action="store_true", help="take it out again")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("archive", options) as thread:
        thread.set(archived=None if options.undo else True)
        if options.json:
            screen.json(thread_value(thread.info))
        else:
            done = "taken out" if options.undo else "archived"
            screen.line((done, "bold green"), f": {thread.id}")
    return _exits.OK
