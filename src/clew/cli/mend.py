"""Make a session file usable again that its agent, or the provider, refuses.

For Claude Code, Codex and pi. The file is not touched: a copy is written beside it, or where --out
says, in which calls without a result are answered, results without a call are told as text, empty
texts and pictures that are too large are left out, and the tree of the records is whole. Every
change is listed with its line. Put the copy in the place of the file to go on with it.

--check only looks: exit code 1 says that something is wrong.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from clew.cli import _exits
from clew.cli._arguments import add_object
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._text import plural
from clew.core.errors import AlreadyExists, Unavailable
from clew.interchange.mend import Mended, mend
from clew.interchange.values import Unreadable

_SHOWN = 100  # findings that are listed; --json has all of them


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="SESSION.jsonl", help="the file of the session")
    parser.add_argument(
        "--out", metavar="FILE", help="where the copy goes; default: SESSION.mended.jsonl"
    )
    parser.add_argument("--check", action="store_true", help="only say what is wrong")
    parser.add_argument(
        "--without-thinking",
        action="store_true",
        help="leave out all thinking, where the provider says that it was modified",
    )
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    path = Path(options.path)
    if not path.is_file():
        raise _exits.UsageError(f"there is no file {path}")
    out = None if options.check else Path(options.out or path.with_suffix(".mended.jsonl"))
    try:
        done = mend(path, out, without_thinking=options.without_thinking)
    except AlreadyExists as error:
        raise _exits.UsageError(f"{error.id} is there already; nothing was written") from None
    except (OSError, Unreadable) as error:
        raise Unavailable(f"{path} cannot be read, or its copy not be written: {error}") from error
    if options.json:
        screen.json(
            {
                "agent": done.agent,
                "path": str(path),
                "out": None if out is None else str(out),
                "records": done.records,
                "findings": json_value(done.findings),
            }
        )
    else:
        _tell(done, screen)
    return _exits.DAMAGE if options.check and done.findings else _exits.OK


def _tell(done: Mended, screen: Screen) -> None:
    for finding in done.findings[:_SHOWN]:
        name = finding.name.replace("_", " ")
        screen.line(f"line {finding.line}  ", (name, "bold"), f": {finding.wrong}; {finding.done}")
    if len(done.findings) > _SHOWN:
        screen.line(f"… and {len(done.findings) - _SHOWN} more; --json names all of them")
    if not done.findings:
        screen.line(("nothing is wrong", "bold green"), f" with {plural(done.records, 'record')}")
    if done.out is not None:
        screen.line(("wrote", "bold green"), f" {plural(done.records, 'record')} to {done.out}")
