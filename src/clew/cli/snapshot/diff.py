"""What changed: from a snapshot to the files as they are now, or to another snapshot.

A added, D removed, M modified, R renamed, T of another type, X only the executable bit. With --text
the changes themselves, as unified diffs; binary and large files are named only. Exit code 0,
whether there are differences or not.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits, _files
from clew.cli._arguments import add_json, add_thread
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import plural
from clew.snapshots.diff import below
from clew.snapshots.history import check_path
from clew.snapshots.model import Difference, Snapshot
from clew.thread import Thread

_LETTERS = {
    "added": ("A", "green"),
    "removed": ("D", "red"),
    "modified": ("M", "yellow"),
    "renamed": ("R", "cyan"),
    "type": ("T", "magenta"),
    "mode": ("X", "magenta"),
}
_STYLES = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    _files.add_snapshot(parser, "--from", help="default: the newest")
    _files.add_snapshot(parser, "--to", help="default: the files as they are now")
    parser.add_argument("--root", metavar="FOLDER", help="where the files are now, if they moved")
    parser.add_argument("--path", metavar="PATH", help="only this file, or what is in this folder")
    parser.add_argument("--text", action="store_true", help="show the changes themselves")
    add_json(parser, "each difference")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("snapshot diff", options, look=True) as thread:
        old = _files.find(thread, getattr(options, "from"))
        new = None if options.to is None else _files.find(thread, options.to)
        if options.text and not options.json:
            _draw_text(screen, thread, old, new, options)
            return _exits.OK
        found = thread.snapshots.diff(old, new, root=options.root)
        if options.path is not None:
            found = below(found, check_path(options.path))
        if options.json:
            for one in found:
                screen.json(json_value(one))
        else:
            draw(screen, found)
    return _exits.OK


def draw(screen: Screen, differences: list[Difference]) -> None:
    for one in differences:
        letter, style = _LETTERS[one.change]
        old = "" if one.old_path is None else f"{one.old_path} → "
        screen.line((letter, style), f" {old}{one.path}", (_sizes(one), "dim"), fit=False)
    if not differences:
        screen.line(("no differences", "dim"))
    else:
        screen.line((plural(len(differences), "difference"), "dim"))


def _sizes(one: Difference) -> str:
    if one.change != "modified" or one.old_size is None or one.new_size is None:
        return ""
    return f"  {one.old_size:,} → {one.new_size:,} bytes"


def _draw_text(
    screen: Screen,
    thread: Thread,
    old: Snapshot,
    new: Snapshot | None,
    options: argparse.Namespace,
) -> None:
    text = thread.snapshots.unified(old, new, root=options.root, path=options.path)
    for line in text.split("\n")[:-1]:
        shown = line.replace("\r", "^M").expandtabs(4)
        screen.line((shown, _STYLES.get(line[:1], "")), fit=False)
    if not text:
        screen.line(("no differences", "dim"))
