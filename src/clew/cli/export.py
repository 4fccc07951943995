"""Write one thread as one JSONL file that needs no other, forks made whole.

The lines are those of a store of files (docs/format/files.md): every record with its time, body
and hash. The file that is made must not be there yet. Put into the threads folder of such a
store under the same name, it is a thread there.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_thread
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import plural
from clew.core.errors import AlreadyExists
from clew.upkeep.export import export


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument(
        "--out", metavar="FILE", help="where to; default: named by the thread, here"
    )


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("export", options, look=True) as thread:
        try:
            done = export(thread, options.out or None)
        except AlreadyExists as error:
            raise _exits.UsageError(f"{error.id} is there already; nothing was written") from None
    screen.line(("exported", "bold green"), f" {plural(done.records, 'record')} to {done.path}")
    return _exits.OK
