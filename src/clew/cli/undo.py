"""Take the last rewind or restore back: the files as they were before it, and the leaf.

Says first what it would do, and asks. One that was interrupted is taken back, too. What was written
after the rewind stays as a branch of its own.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits, _plan
from clew.cli._arguments import add_consent, add_object, add_thread
from clew.cli._preview import preview
from clew.cli._render import Screen
from clew.cli._stores import opened_thread
from clew.snapshots import intent as intents
from clew.snapshots.going import refuse
from clew.snapshots.intent import Intent
from clew.snapshots.model import Restored
from clew.snapshots.rewind import restore, undo_rewind
from clew.thread import Thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    add_consent(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("undo", options) as thread:
        undone = intents.pending(thread.info) or intents.last(thread.info)
        if undone is None:
            raise _exits.UsageError("there is no rewind and no restore to be undone")
        planned = _plan_of(thread, undone)
        if not options.json:
            _draw(screen, thread, undone, planned)
        if options.dry_run:
            if options.json:
                screen.json({} if planned is None else _plan.value(planned))
            return _exits.OK
        if planned is not None:
            refuse(planned.plan, force=options.force)
        if not _plan.consent(screen, options, "undo it?"):
            return _exits.OK
        done = undo_rewind(thread, force=options.force)
    if options.json:
        screen.json(_plan.value(done))
    else:
        files = "" if done.files is None else f": {_plan.counts(done.files.plan)}"
        screen.line(("undone", "bold green"), files)
    return _exits.OK


def _plan_of(thread: Thread, undone: Intent) -> Restored | None:
    """What would happen to the files; None if they were not part of it."""
    files = undone.files
    if files is None:
        return None
    wanted = files.snapshot if undone.what == "undo" else files.before
    return restore(thread, wanted, files.root, files.paths, dry_run=True)


def _draw(screen: Screen, thread: Thread, undone: Intent, planned: Restored | None) -> None:
    screen.line(("undo", "bold"), f" the last {undone.what}")
    if undone.moves and undone.from_leaf is None:
        screen.line(("conversation", "bold"), " before the root")
    elif undone.moves and undone.from_leaf is not None:
        leaf = thread.get(undone.from_leaf)
        screen.line(("conversation", "bold"), f" to entry {leaf.seq}: ", preview(leaf))
    if planned is not None:
        _plan.draw(screen, planned.plan)
