"""Do again what clew undo took back: the files and the leaf as they were before that undo.

Says first what it would do, and asks. A rewind, a restore, and every entry that is appended after
an undo end what could be redone; markers and snapshots do not.
"""

from __future__ import annotations

import argparse

from clew.cli import _files
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.snapshots.undo import redo_rewind


def arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_take_back(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("redo", options, look=options.dry_run) as thread:
        words = ("redo", "what was undone last", "redone")
        return _files.take_back(options, screen, thread, redo_rewind, words)
