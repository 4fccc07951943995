"""Give an entry a name that it can be found by; an empty NAME takes it away."""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._screen import Screen
from clew.cli._stores import find_entry, opened_thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("entry", metavar="ENTRY", help="number, id, its first letters, or label")
    parser.add_argument("name", metavar="NAME", help="the label")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("label", options) as thread:
        entry = find_entry(thread, options.entry)
        thread.label(entry.id, options.name or None)
        if options.json:
            screen.json({"thread": thread.id, "entry": entry.id, "label": options.name or None})
        elif options.name:
            screen.line(("labelled", "bold green"), f" {entry.seq}: {options.name}")
        else:
            screen.line("the label was taken away")
    return _exits.OK
