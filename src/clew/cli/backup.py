"""Copy a store that is in use to DEST, a path or files:folder, and verify the copy.

DEST gets its name when the copy is whole and verified, and must not be there before; if anything
fails, nothing is left. Each thread is as it was at one moment; all namespaces and deleted threads
come along. A store on a server can be backed up to a file. clew copy brings an older copy up to
date instead.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_store_option
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import existing
from clew.cli._text import plural
from clew.core.errors import AlreadyExists
from clew.upkeep.backup import backup


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", nargs="?", metavar="STORE", help="default: your own store")
    parser.add_argument("dest", metavar="DEST", help="where to; must not be there yet")
    add_store_option(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with existing(options.store), screen.bar("backup") as bar:
        try:
            done = backup(options.store, options.dest, progress=bar)
        except AlreadyExists as error:
            raise _exits.UsageError(f"{error.id} is there already; nothing was written") from None
    if options.json:
        screen.json(json_value(done) | {"verified": True})
        return _exits.OK
    what = f"{plural(done.threads, 'thread')}, {plural(done.records, 'record')}"
    screen.line(("verified", "bold green"), f": {what} in {done.path}", fit=False)
    return _exits.OK
