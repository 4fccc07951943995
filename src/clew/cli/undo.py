"""Take the last rewind or restore back: the files as they were before it, and the leaf.

Says first what it would do, and asks. One that was interrupted is taken back, too. What was written
after the rewind stays as a branch of its own.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits, _files
from clew.cli._arguments import add_consent, add_object, add_thread, consent
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import preview
from clew.snapshots import intent as intents
from clew.snapshots.intent import Intent
from clew.snapshots.model import Rewound
from clew.snapshots.preflight import refuse
from clew.snapshots.rewind import undo_rewind
from clew.thread import Thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    add_consent(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("undo", options, look=options.dry_run) as thread:
        undone = intents.pending(thread.info) or intents.last(thread.info)
        if undone is None:
            raise _exits.UsageError("there is no rewind and no restore to be undone")
        done = undo_rewind(thread, force=options.force, dry_run=True)
        if not options.json:
            _draw(screen, thread, undone, done)
        if not options.dry_run:
            if done.files is not None:
                refuse(done.files.plan, force=options.force)
            if not consent(screen, options, "undo it?"):
                return _exits.OK
            with screen.bar("undo") as bar:
                done = undo_rewind(thread, force=options.force, progress=bar)
    if options.json:
        screen.json(json_value(done))
    elif not options.dry_run:
        files = "" if done.files is None else f": {_files.counts(done.files.plan)}"
        screen.line(("undone", "bold green"), files)
    return _exits.OK


def _draw(screen: Screen, thread: Thread, undone: Intent, planned: Rewound) -> None:
    screen.line(("undo", "bold"), f" the last {undone.what}")
    if planned.moved and planned.leaf is None:
        screen.line(("conversation", "bold"), " before the root")
    elif planned.moved and planned.leaf is not None:
        leaf = thread.get(planned.leaf)
        screen.line(("conversation", "bold"), f" to entry {leaf.seq}: ", preview(leaf))
    if planned.files is not None:
        _files.draw(screen, planned.files.plan)
