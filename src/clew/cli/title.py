"""Name a thread; an empty TEXT takes the name away."""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._json import thread_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("text", metavar="TEXT", help="what it is about")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("title", options) as thread:
        if options.text.strip():
            thread.set_title(options.text, source="user")
        else:
            thread.set(title=None)
        if options.json:
            screen.json(thread_value(thread.info))
        elif options.text.strip():
            screen.line(("named", "bold green"), f": {options.text}")
        else:
            screen.line("the title was taken away")
    return _exits.OK
