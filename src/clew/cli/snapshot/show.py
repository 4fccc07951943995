"""The files of a snapshot, the contents of one of them, or how that one became what it is.

--file prints the contents of one. --history lists every version of it in this thread, each with the
entry that produced it.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits, _files
from clew.cli._arguments import add_json, add_thread
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import plural, preview, size
from clew.core.errors import NotFound
from clew.core.model import to_time
from clew.snapshots.manifest import Node
from clew.snapshots.model import Snapshot, Version
from clew.thread import Thread

_MARKS = {"file": "-", "executable": "x", "link": "l", "folder": "d", "none": " "}


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    _files.add_snapshot(parser, "--snapshot", help="default: the newest")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--file", metavar="PATH", help="the contents of this file")
    what.add_argument("--history", metavar="PATH", help="every version of this file")
    add_json(parser, "each file or version")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("snapshot show", options, look=True) as thread:
        if options.history is not None:
            _show_history(screen, thread, options)
            return _exits.OK
        snapshot = _files.find(thread, options.snapshot)
        if options.file is not None:
            screen.bytes(thread.snapshots.read(snapshot, options.file))
        else:
            _show_files(screen, thread, snapshot, as_json=options.json)
    return _exits.OK


def _show_files(screen: Screen, thread: Thread, snapshot: Snapshot, *, as_json: bool) -> None:
    for path, node in thread.snapshots.files(snapshot):
        if as_json:
            screen.json({"path": path} | json_value(node))
        else:
            screen.line((f"{_MARKS[node.kind]} {node.size:>11,}  ", "dim"), _name(path, node))
    if as_json:
        return
    words = f"{plural(snapshot.files, 'file')}, {size(snapshot.size_bytes)}"
    screen.line((f"{words}, of {snapshot.root}", "dim"), fit=False)
    _files.draw_left_out(screen, snapshot)


def _name(path: str, node: Node) -> str:
    return f"{path} → {node.ref}" if node.kind == "link" else path


def _show_history(screen: Screen, thread: Thread, options: argparse.Namespace) -> None:
    versions = thread.snapshots.history(options.history)
    if not versions:
        raise NotFound("file", options.history)
    for version in versions:
        if options.json:
            screen.json(json_value(version))
        else:
            _draw_version(screen, thread, version)


def _draw_version(screen: Screen, thread: Thread, version: Version) -> None:
    held = "gone" if version.ref is None else f"{version.size:,}"
    made = "" if version.entry is None else preview(thread.get(version.entry))
    screen.line(
        (version.snapshot[: _files.SHORT_ID], "yellow"),
        f"  {to_time(version.time_us):%Y-%m-%d %H:%M}",
        f"  {_MARKS[version.kind]} {held:>11}  ",
        (made or "(it was there before)", "" if made else "dim"),
    )
