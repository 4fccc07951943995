"""The lines of a file, each with the entry that brought it.

The file is that of a snapshot, by default of the newest. A line that was there before the first
snapshot has no entry; one that is older than what was looked at is marked with a question mark.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits, _files
from clew.cli._arguments import add_json, add_thread
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import pad, preview
from clew.core.model import to_time
from clew.snapshots.model import BlamedLine, Version
from clew.thread import Thread

_MADE_CELLS = 24


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("path", metavar="PATH", help="the file, as the snapshot names it")
    _files.add_snapshot(parser, "--snapshot", help="default: the newest")
    add_json(parser, "each line")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("snapshot blame", options, look=True) as thread:
        snapshot = _files.find(thread, options.snapshot)
        lines = thread.snapshots.blame(options.path, snapshot)
        if options.json:
            for n, line in enumerate(lines, 1):
                screen.json({"line": n} | json_value(line))
        else:
            _draw(screen, thread, lines)
    return _exits.OK


def _draw(screen: Screen, thread: Thread, lines: list[BlamedLine]) -> None:
    """What brought a line is said once for all the lines below it that came with it."""
    width = len(str(len(lines)))
    said: Version | None = None
    for n, line in enumerate(lines, 1):
        is_said = n > 1 and line.version == said
        said = line.version
        made = "" if is_said else _made(thread, said)
        when = "" if is_said or said is None else f"{to_time(said.time_us):%m-%d %H:%M}"
        screen.line(
            (pad(when, 11), "dim"),
            "  ",
            (pad(made, _MADE_CELLS), "yellow"),
            (f"  {n:>{width}}  ", "dim"),
            line.text.expandtabs(4),
        )


def _made(thread: Thread, version: Version | None) -> str:
    if version is None:
        return "?"
    if version.entry is None:
        return "(there before)"
    return preview(thread.get(version.entry))
