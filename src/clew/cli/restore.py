"""Bring a deleted thread back. clew list --deleted shows those that can be."""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._json import thread_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("restore", options, deleted=True) as thread:
        was_deleted = thread.info.deleted_at is not None
        thread.store.restore(thread.id)
        if options.json:
            screen.json(thread_value(thread.info))
        elif was_deleted:
            screen.line(("restored", "bold green"), f": {thread.id}")
        else:
            screen.line(f"{thread.id} is not deleted; nothing was changed")
    return _exits.OK
