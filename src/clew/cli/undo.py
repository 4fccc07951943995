"""Take the last rewind or restore back: the files as they were before it, and the leaf.

Says first what it would do, and asks. The next undo takes back the one before; clew redo does again
what was undone. One that was interrupted is taken back, too. What was written after the rewind
stays as a branch of its own.
"""

from __future__ import annotations

import argparse

from clew.cli import _files
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.snapshots import intent as intents
from clew.snapshots.undo import undo_rewind


def arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_take_back(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("undo", options, look=options.dry_run) as thread:
        undone = intents.pending(thread.info) or intents.last(thread.info)
        what = "nothing" if undone is None else f"the last {undone.what}"
        words = ("undo", what, "undone")
        return _files.take_back(options, screen, thread, undo_rewind, words)
