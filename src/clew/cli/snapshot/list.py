"""The snapshots of a thread, newest first: id, when, files, size, and the message it belongs to."""

from __future__ import annotations

import argparse

from clew.cli import _exits, _files
from clew.cli._arguments import add_json, add_thread
from clew.cli._json import json_value
from clew.cli._screen import Part, Screen
from clew.cli._stores import opened_thread
from clew.cli._text import ago, cells, one_line, pad, plural, preview, size
from clew.core.errors import NotFound
from clew.snapshots.model import Snapshot
from clew.thread import Thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    add_json(parser, "each snapshot")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("snapshot list", options, look=True) as thread:
        found = thread.snapshots.list()
        if options.json:
            for snapshot in found:
                screen.json(json_value(snapshot))
        elif found:
            _draw(screen, thread, found)
        else:
            screen.line(("no snapshots", "dim"))
    return _exits.OK


def _draw(screen: Screen, thread: Thread, found: list[Snapshot]) -> None:
    now, short = thread.store.now(), _files.short_ids(found)
    lines = [
        (
            short[snapshot.id],
            ago(snapshot.time, now),
            plural(snapshot.files, "file"),
            size(snapshot.size_bytes),
        )
        for snapshot in found
    ]
    widths = [max(map(cells, column)) for column in zip(*lines, strict=True)]
    for snapshot, (id, when, files, held) in zip(found, lines, strict=True):
        screen.line(
            (pad(id, widths[0]), "yellow"),
            f"  {pad(when, widths[1])}  {files:>{widths[2]}}  {held:>{widths[3]}}  ",
            *_notes(snapshot),
            *_message(thread, snapshot),
        )
    stats = thread.snapshots.stats()
    words = f"{plural(stats.snapshots, 'snapshot')}, {size(stats.distinct_bytes)} in all"
    screen.line((words, "dim"))


def _notes(snapshot: Snapshot) -> list[Part]:
    notes = [] if snapshot.label is None else [f"[{one_line(snapshot.label)}] "]
    notes += ["[pinned] "] if snapshot.pinned else []
    notes += [f"[{snapshot.left_out_count:,} left out] "] if snapshot.left_out_count else []
    return [(note, "magenta") for note in notes]


def _message(thread: Thread, snapshot: Snapshot) -> list[Part]:
    """How the message begins that the snapshot belongs to."""
    if snapshot.at is None:
        return []
    try:
        return [(preview(thread.get(snapshot.at)), "")]
    except NotFound:
        return []
