"""Copy a store that is in use to DEST, a path or files:folder, and verify the copy.

If DEST is a backup of this store, it gets what is new; nothing else that is there is ever written
to. A new one gets its name when it is whole and verified; if anything fails, nothing is left.
Killed in the middle, an older one still has all that it had. Each thread is as it was at one
moment; all namespaces and deleted threads come along. A store on a server can be backed up to a
file. clew restore --from DEST brings everything back, or one thread.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_store_option
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import existing
from clew.cli._text import plural
from clew.cli.verify import told
from clew.core.errors import AlreadyExists
from clew.upkeep.backup import BackupReport, backup


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", nargs="?", metavar="STORE", help="default: your own store")
    parser.add_argument("dest", metavar="DEST", help="where to: nothing yet, or an older backup")
    add_store_option(parser)
    parser.add_argument(
        "--moved", action="store_true", help="the store of DEST was elsewhere then, and is this one"
    )
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with existing(options.store), screen.bar("backup") as bar:
        try:
            done = backup(options.store, options.dest, moved=options.moved, progress=bar)
        except AlreadyExists as error:
            text = f"{error.id} is there already, and is no backup; nothing was written"
            raise _exits.UsageError(text) from None
    if options.json:
        screen.json(json_value(done) | {"verified": True})
    else:
        _draw(screen, done)
    return _exits.OK


def _draw(screen: Screen, done: BackupReport) -> None:
    for namespace, id in done.ahead:
        text = "the backup has more of it than the store, and keeps it"
        screen.line((_name(namespace, id), "yellow"), ": ", text, fit=False)
    for namespace, id, kept in done.set_aside:
        text = f"it went another way since; the backup keeps what it had as {kept}"
        screen.line((_name(namespace, id), "yellow"), ": ", text, fit=False)
    if done.kept:
        text = f"{plural(len(done.kept), 'thread')} of the backup that the store has no more: kept"
        screen.line(text)
    what = f"{plural(done.threads, 'thread')}, {plural(done.records, 'record')}"
    new = "" if done.first else " new"
    screen.line(("verified", "bold green"), f": {what}{new} in {done.path}", fit=False)


def _name(namespace: str, id: str) -> str:
    part = told(namespace)
    return f"thread {id}" if part is None else f"namespace {part}, thread {id}"
