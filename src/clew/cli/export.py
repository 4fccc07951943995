"""Write one thread as one JSONL file that needs no other, forks made whole.

The lines are those of a store of files (docs/format/files.md): every record with its time, body
and hash. The file that is made must not be there yet. Put into the threads folder of such a
store under the same name, it is a thread there.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from clew.cli import _exits
from clew.cli._arguments import add_thread
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import plural
from clew.engines.files.place import stem
from clew.upkeep.export import export_lines


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument(
        "--out", metavar="FILE", help="where to; default: named by the thread, here"
    )


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("export", options) as thread:
        path = Path(options.out or f"{stem(thread.id)}.jsonl")
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            raise _exits.UsageError(f"{path} is there already; nothing was written") from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                records = sum(file.write(line) > 0 for line in export_lines(thread)) - 1
        except BaseException:
            path.unlink()
            raise
    screen.line(("exported", "bold green"), f" {plural(records, 'record')} to {path}")
    return _exits.OK
