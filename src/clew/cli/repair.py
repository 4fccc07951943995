"""Make a new store of what can be read of a damaged one, and put it in its place.

All its namespaces are repaired. The damaged store is kept beside it, byte for byte. No program
may have the store open. A store that is whole is left as it is, unless --reindex asks for
everything derived to be built anew. Needs room for two more copies. Exit code 0: all is well now,
and the report says what was lost.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_store
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import existing
from clew.cli._text import plural
from clew.cli.verify import describe, told
from clew.core.maintenance import Lost
from clew.upkeep.repair import RepairReport, repair

PROBLEMS_MAX = 20  # as a reminder; clew verify lists all of them


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser, namespace=None)
    parser.add_argument(
        "--reindex", action="store_true", help="build everything derived anew, damaged or not"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with existing(options.store), screen.bar("repair") as bar:
        report = repair(options.store, reindex=options.reindex, progress=bar)
    if options.json:
        screen.json(json_value(report))
    else:
        _draw(screen, report)
    return _exits.OK


def _draw(screen: Screen, report: RepairReport) -> None:
    for note in report.notes:
        screen.line(("note", "yellow"), ": ", note, fit=False)
    for lost in report.lost:
        screen.line((_place(lost), "red"), ": ", f"{lost.reason} ({lost.place})", fit=False)
    for blob in report.lost_blobs:
        name = told(blob.namespace)
        where = "" if name is None else f"namespace {name}, "
        place = f"{where}thread {blob.thread}, entry {blob.entry}"
        screen.line((place, "red"), ": ", f"blob {blob.blob} is lost: {blob.reason}", fit=False)
    for problem in report.problems[:PROBLEMS_MAX]:
        screen.line(("found", "yellow"), ": ", describe(problem), fit=False)
    if len(report.problems) > PROBLEMS_MAX:
        screen.line(f"… and {len(report.problems) - PROBLEMS_MAX:,} more")
    if report.original is None:
        screen.line(("whole", "bold green"), ": nothing is damaged, nothing was changed")
        return
    if report.records or report.threads:
        saved = (plural(report.threads, "thread"), plural(report.records, "record"))
        screen.line("saved ", ", ".join((*saved, plural(report.blobs, "blob"))))
    if report.lost:
        words = f"{plural(len(report.lost), 'record')}, {report.placeholders:,} of them with a "
        screen.line(("lost ", "bold red"), words, "placeholder in the thread")
    if report.rehashed:
        screen.line(f"{plural(report.rehashed, 'entry')} kept with a new hash")
    if report.unverified:
        screen.line(f"{plural(report.unverified, 'entry')} kept that nothing vouches for")
    screen.line(("repaired", "bold green"), f": {report.place} is whole", fit=False)
    screen.line("the store as it was: ", report.original, fit=False)


def _place(lost: Lost) -> str:
    named = (
        ("namespace", told(lost.namespace)),
        ("thread", lost.thread),
        ("record", lost.seq),
        (lost.sort, lost.id),
    )
    return ", ".join(f"{what} {which!s:.600}" for what, which in named if which not in (None, ""))
