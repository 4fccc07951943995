"""Read everything in a store: every hash, chain, reference and index.

Prints what was read and each problem with its place. Exit code 0: all is whole; 1: damage.
"""

from __future__ import annotations

import argparse

import msgspec

from clew.cli import _exits
from clew.cli._arguments import add_store
from clew.cli._render import Screen
from clew.cli._stores import open_existing
from clew.cli._text import plural
from clew.errors import ClewError
from clew.model import Problem, Stats
from clew.store import Store


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_existing(options.store) as store:
        if options.json:
            return _report_json(screen, store)
        return report(screen, store)


def report(screen: Screen, store: Store) -> int:
    """Verify, say what came out, and give the exit code for it."""
    problems = store.verify()
    for problem in problems:
        screen.line((_place(problem), "red"), ": ", problem.message, fit=False)
    screen.line("read ", _extent(_stats(store)))
    if problems:
        screen.line((f"damaged: {plural(len(problems), 'problem')}", "bold red"))
        return _exits.DAMAGE
    screen.line(("whole", "bold green"), ": everything is as it was written")
    return _exits.OK


def _report_json(screen: Screen, store: Store) -> int:
    problems = store.verify()
    stats = _stats(store)
    screen.json(
        {
            "place": store.properties.place,
            "whole": not problems,
            "read": None if stats is None else msgspec.to_builtins(stats),
            "problems": msgspec.to_builtins(problems),
        }
    )
    return _exits.DAMAGE if problems else _exits.OK


def _stats(store: Store) -> Stats | None:
    try:
        return store.stats()
    except ClewError:
        return None  # too damaged to count; the problems say so


def _extent(stats: Stats | None) -> str:
    if stats is None:
        return "as far as it can be read; it cannot be counted"
    deleted = f" and {stats.deleted:,} deleted" if stats.deleted else ""
    return ", ".join(
        [
            plural(stats.threads, "thread") + deleted,
            plural(stats.entries, "entry"),
            plural(stats.records, "record"),
            plural(stats.blobs, "blob"),
            f"{-(-stats.stored_bytes // 1024):,} KB",
        ]
    )


def _place(problem: Problem) -> str:
    named = (
        ("thread", problem.thread),
        ("record", problem.seq),
        ("entry", problem.entry),
        ("blob", problem.blob),
    )
    found = [f"{what} {which}" for what, which in named if which is not None]
    return ", ".join(found) or "store"
