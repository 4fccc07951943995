"""Bring what a fork has added to the thread that it came from, which then stands where it stands.

The entries keep their ids and times, and say where they come from. If the thread has moved on
since, nothing is written (exit code 4) unless --force: then what it has of its own stays as a
branch. clew move takes it back, clew diff THREAD FORK shows it before.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import THREAD_HELP, add_object, add_thread
from clew.cli._json import record_value
from clew.cli._screen import Screen
from clew.cli._stores import command_line, opened_thread, resolve
from clew.cli._text import plural


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("fork", metavar="FORK", help=THREAD_HELP)
    parser.add_argument("--force", action="store_true", help="also if the thread has moved on")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("adopt", options) as thread:
        fork, before = resolve(thread.store, options.fork), thread.leaf
        done = thread.adopt(fork, force=options.force)
        if options.json:
            entries = [record_value(entry) for entry in done]
            screen.json({"thread": thread.id, "fork": fork.id, "entries": entries})
        elif not done:
            screen.line("nothing to adopt: the thread has all that the fork has")
        else:
            screen.line(("adopted", "bold green"), f" {plural(len(done), 'entry')}")
            if before is not None:
                screen.note(f"{command_line('move', options, thread.id, before)} goes back")
    return _exits.OK
