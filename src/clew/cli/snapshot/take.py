"""Store the files of a folder as they are now, pinned to a message of a thread.

What has not changed since the last snapshot is neither read nor stored again. Left out are .git,
what .gitignore and .clewignore name, folders that tools fill again (node_modules, .venv, …), .env
files unless --secrets says otherwise, and what is too large. What is left out because it is too
large, or cannot be read, is listed. --secrets, --exclude and --max-file-bytes hold for the later
snapshots of the thread as well.
"""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from clew.cli import _exits, _files
from clew.cli._arguments import add_object, add_thread, count
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import plural, size
from clew.snapshots.ignore import Rules
from clew.snapshots.model import Snapshot


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--root", metavar="FOLDER", default=".", help="default: where you are")
    parser.add_argument(
        "--at", metavar="ENTRY", help="the message; default: the latest on the path"
    )
    parser.add_argument("--label", metavar="TEXT", help="a word for people to find it by")
    parser.add_argument(
        "--secrets", action=argparse.BooleanOptionalAction, help=".env files as well, or no longer"
    )
    parser.add_argument(
        "--exclude",
        metavar="PATTERN",
        action="append",
        default=[],
        help="leave this out, too; as in .gitignore, may be given again",
    )
    parser.add_argument(
        "--max-file-bytes", metavar="N", type=count, help="leave out larger files; default: 32 MB"
    )
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("snapshot take", options) as thread, screen.bar("snapshot") as bar:
        taken = thread.snapshots.take(
            options.root,
            at=options.at,
            label=options.label,
            rules=_rules(options, thread.snapshots.rules()),
            progress=bar,
        )
    if options.json:
        screen.json(json_value(taken))
    else:
        _draw(screen, taken)
    return _exits.OK


def _rules(options: argparse.Namespace, usual: Rules) -> Rules:
    """As for the last snapshot, but for what the command line says."""
    more = [pattern for pattern in options.exclude if pattern not in usual.patterns]
    return replace(
        usual,
        secrets=usual.secrets if options.secrets is None else options.secrets,
        patterns=(*usual.patterns, *more),
        max_file_bytes=options.max_file_bytes or usual.max_file_bytes,
    )


def _draw(screen: Screen, taken: Snapshot) -> None:
    words = (
        f"{plural(taken.files, 'file')}, {size(taken.size_bytes)}; "
        f"{size(taken.new_bytes)} stored for it"
    )
    screen.line(("snapshot ", "bold green"), (taken.id, "yellow"), f": {words}", fit=False)
    _files.draw_left_out(screen, taken)
