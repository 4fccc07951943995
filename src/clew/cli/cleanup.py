"""Remove the threads that were last used before a time, for good, and the blobs that only they had.

TIME is a span (30d, 12h, 2w) or a date (2026-01-31). Says first what would go, and asks. A thread
that is being written stays, and so do archived ones, those with a tag of --keep-tag, and those of a
sub-agent whose parent stays. A deleted thread counts from its deletion. What forks share is kept.
Threads that stay although the thread that they work for goes are named.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from typing import Any

from clew.cli import _exits
from clew.cli._arguments import add_asking, add_object, add_store, consent, count, moment
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import open_existing, open_to_look
from clew.cli._text import plural, size
from clew.cli.list import draw_threads
from clew.core.errors import NotFound
from clew.core.model import ThreadInfo
from clew.store import Store
from clew.upkeep.cleanup import CleanupReport, keeping

SHOWN_MAX = 20
NAMED_MAX = 20
_NAMED = ("in_use", "changed", "damaged")
_REASONS = {
    "in_use": "in use",
    "changed": "written to just now",
    "kept": "kept by their tags",
    "family": "with a parent or a sub-agent that stays",
    "damaged": "damaged, see clew verify",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "--older-than", required=True, type=moment, metavar="TIME", help="a span or a date"
    )
    parser.add_argument(
        "--keep-tag", action="append", default=[], metavar="T", help="these stay; repeatable"
    )
    parser.add_argument("--deleted-only", action="store_true", help="only what was deleted before")
    parser.add_argument("--archived", action="store_true", help="archived threads as well")
    parser.add_argument("--limit", type=count, metavar="N", help="at most so many, oldest first")
    add_asking(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    opening = open_to_look if options.dry_run else open_existing
    with opening(options.store, options.namespace) as store:
        planned = _cleanup(screen, store, options, dry_run=True)
        if not options.json:
            _draw_plan(screen, store, planned)
        if options.dry_run or not _wanted(screen, options, planned):
            done = planned
        else:
            done = _cleanup(screen, store, options, dry_run=False)
    if options.json:
        screen.json(json_value(done))
    elif not done.dry_run:
        _draw_done(screen, done)
    return _exits.OK


def _cleanup(
    screen: Screen, store: Store, options: argparse.Namespace, *, dry_run: bool
) -> CleanupReport:
    rules: dict[str, Any] = {
        "older_than": options.older_than,
        "keep": keeping(tags=options.keep_tag),
        "deleted_only": options.deleted_only,
        "archived": options.archived,
        "limit": options.limit,
    }
    with screen.bar("look" if dry_run else "clean up") as bar:
        return store.cleanup(**rules, dry_run=dry_run, progress=bar)


def _wanted(screen: Screen, options: argparse.Namespace, planned: CleanupReport) -> bool:
    """Whether to go on. With no thread to remove there may still be blobs to sweep."""
    if not planned.purged and not options.yes:
        return False
    question = f"remove {plural(len(planned.purged), 'thread')} for good?"
    return consent(screen, options, question, "removes threads for good")


# --- telling ---


def _draw_plan(screen: Screen, store: Store, planned: CleanupReport) -> None:
    screen.line("last used before ", (f"{planned.cutoff:%Y-%m-%d %H:%M} UTC", "bold"), ":")
    shown = _found(store, planned.purged[:SHOWN_MAX])
    if shown:
        draw_threads(screen, store, shown)
    if len(planned.purged) > SHOWN_MAX:
        screen.line((f"… and {len(planned.purged) - SHOWN_MAX:,} more", "dim"))
    what = f"{plural(len(planned.purged), 'thread')}, at most {plural(planned.records, 'record')}"
    screen.line(("to be removed", "bold red"), f": {what}")
    _draw_skipped(screen, planned)
    _draw_children(screen, planned)


def _found(store: Store, ids: Iterable[str]) -> list[ThreadInfo]:
    infos = []
    for id in ids:
        try:
            infos.append(store.engine.thread(id))
        except NotFound:
            pass  # another process has purged it since
    return infos


def _draw_skipped(screen: Screen, report: CleanupReport) -> None:
    counts = Counter[str](skipped.reason for skipped in report.skipped)
    for reason, words in _REASONS.items():
        if counts[reason]:
            stay = "stays" if counts[reason] == 1 else "stay"
            screen.line(f"{plural(counts[reason], 'thread')} {stay}: {words}")
    named = [skipped for skipped in report.skipped if skipped.reason in _NAMED]
    for skipped in named[:NAMED_MAX]:
        screen.line(("  ", "dim"), (skipped.text, "dim"), fit=False)
    if len(named) > NAMED_MAX:
        screen.line((f"  … and {len(named) - NAMED_MAX:,} more", "dim"))


def _draw_children(screen: Screen, report: CleanupReport) -> None:
    """Threads that stay, and whose parent goes."""
    if not report.children:
        return
    count = len(report.children)
    verb = "will work" if report.dry_run else "works" if count == 1 else "work"
    screen.line(f"{plural(count, 'thread')} {verb} for a thread that is gone:")
    for id in report.children[:NAMED_MAX]:
        screen.line(("  ", "dim"), (id, "dim"), fit=False)
    if count > NAMED_MAX:
        screen.line((f"  … and {count - NAMED_MAX:,} more", "dim"))


def _draw_done(screen: Screen, done: CleanupReport) -> None:
    _draw_skipped(screen, done)
    _draw_children(screen, done)
    kept = f"; {plural(done.kept, 'record')} kept for forks" if done.kept else ""
    blobs = f"{plural(done.blobs, 'blob')} of {size(done.size_bytes)}"
    what = f"{plural(len(done.purged), 'thread')}, {plural(done.records, 'record')}, {blobs}"
    screen.line(("removed", "bold green"), f": {what}{kept}", fit=False)
    if done.more:
        screen.line("there are more; run it again")
