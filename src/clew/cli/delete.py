"""Delete a thread. It stays in the store, and clew restore brings it back, until it is purged.

Forks of it stay whole. clew gc and clew cleanup remove what was deleted long ago.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._json import thread_value
from clew.cli._screen import Screen
from clew.cli._stores import command_line, opened_thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("delete", options, look=options.dry_run) as thread:
        if not options.dry_run:
            thread.store.delete(thread.id)
        info = thread.info
    if options.json:
        screen.json(thread_value(info))
        return _exits.OK
    title = "" if info.title is None else f" ({info.title.text})"
    said = "would be deleted" if options.dry_run else "deleted"
    screen.line((said, "bold green"), f": {info.id}{title}")
    if not options.dry_run:
        screen.note(f"{command_line('restore', options, info.id)} brings it back")
    return _exits.OK
