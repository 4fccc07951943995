"""Bring files back as a snapshot has them; the conversation stays where it is.

Says first what it would do, and asks. Files that another program changed since the last snapshot
stop it (exit code 4) unless --force; what is ignored, and what no snapshot ever had, stays. The
present state is snapshotted before: clew undo brings it back. With --path only what it names is
looked at, judged and touched.
"""

from __future__ import annotations

import argparse
from typing import Any

from clew.cli import _exits, _files
from clew.cli._arguments import add_consent, add_object, add_thread, consent
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.snapshots.model import Restored, Snapshot
from clew.snapshots.preflight import refuse
from clew.snapshots.rewind import restore
from clew.thread import Thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    _files.add_snapshot(parser, "--snapshot", help="default: the newest")
    parser.add_argument("--root", metavar="FOLDER", help="default: where it was taken")
    parser.add_argument(
        "--path",
        metavar="PATH",
        action="append",
        help="only this file or folder; may be given again",
    )
    add_consent(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("snapshot restore", options, look=options.dry_run) as thread:
        snapshot = _files.find(thread, options.snapshot)
        planned = _restore(thread, snapshot, options, dry_run=True)
        if not options.json:
            _files.draw(screen, planned.plan)
        if options.dry_run:
            done = planned
        else:
            refuse(planned.plan, force=options.force)
            if not planned.plan.is_empty and not consent(screen, options, "restore them?"):
                return _exits.OK
            with screen.bar("restore") as bar:
                done = _restore(thread, snapshot, options, dry_run=False, progress=bar)
    if options.json:
        screen.json(json_value(done))
    elif not options.dry_run:
        screen.line(("restored", "bold green"), f": {_files.counts(done.plan)}")
    return _exits.OK


def _restore(
    thread: Thread, snapshot: Snapshot, options: argparse.Namespace, **ways: Any
) -> Restored:
    return restore(thread, snapshot, options.root, options.path, force=options.force, **ways)
