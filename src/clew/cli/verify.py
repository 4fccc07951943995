"""Read everything in a store: every hash, chain, reference and index, of every namespace.

Prints what was read and each problem with its place. Exit code 0: all is whole; 1: damage;
7: blobs are missing and nothing else is wrong; 8: the store cannot be read at all.

--continue reads a part, from where the last such run stopped, and remembers where it is: run it
every hour, and each store is read whole now and then at little cost. What it knows to be damaged
is told each time, until a later reading finds it whole.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_store, count
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import existing
from clew.cli._text import plural
from clew.core.model import DEFAULT_NAMESPACE, Problem, Stats, rfc3339, to_time
from clew.upkeep.scrub import ScrubReport, scrub
from clew.upkeep.verify import VerifyReport, verify

_REPAIR = "clew repair makes a new store of what can be read, and keeps this one"
_BACKUP = "restore the server's backup; clew copy makes a new store of what can be read"
_NOT_READ = "the bodies of entries and the contents of blobs; without --quick they are"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser, namespace="only this part of the store; default: all of them")
    parser.add_argument(
        "--quick", action="store_true", help="read the structure only, no bodies and no blobs"
    )
    parser.add_argument(
        "--continue", dest="part", action="store_true", help="read a part, and go on from there"
    )
    parser.add_argument(
        "--seconds", type=count, metavar="N", help="how much: for so long; default: 60"
    )
    parser.add_argument("--bytes", type=count, metavar="N", help="how much: so many bytes")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.part:
        return _scrub(options, screen)
    if options.seconds is not None or options.bytes is not None:
        raise _exits.UsageError("--seconds and --bytes go with --continue")
    with existing(options.store), screen.bar("verify") as bar:
        report = verify(
            options.store, namespace=options.namespace, quick=options.quick, progress=bar
        )
    if options.json:
        _draw_json(screen, report, quick=options.quick)
    elif not report.readable:
        screen.error(
            f"{report.problems[0].message}. The store cannot be read at all, and nothing was "
            "changed; clew repair makes a new one of what can still be found in it"
        )
    else:
        draw(screen, report, quick=options.quick)
    return code_of(report)


def code_of(report: VerifyReport) -> int:
    return _exits.UNREADABLE if not report.readable else _code_of(report.problems)


def _code_of(problems: list[Problem]) -> int:
    if not problems:
        return _exits.OK
    missing = all(problem.code == "missing_blob" for problem in problems)
    return _exits.MISSING_BLOBS if missing else _exits.DAMAGE


# --- a part at a time -----------------------------------------------------------------------


def _scrub(options: argparse.Namespace, screen: Screen) -> int:
    if options.quick or options.namespace is not None:
        raise _exits.UsageError("--continue reads everything in all namespaces, a part at a time")
    # Without a number of either it is a minute; with bytes alone it may take as long as it takes.
    seconds = options.seconds or (60 if options.bytes is None else 10**6)
    with existing(options.store):
        report = scrub(options.store, seconds=seconds, size_bytes=options.bytes)
    if options.json:
        screen.json(json_value(report))
        return _code_of(report.problems)
    for problem in report.problems:
        screen.line((_place(problem), "red"), ": ", problem.message, fit=False)
    size = f"{plural(report.records, 'record')}, {-(-report.size_bytes // 1024):,} KB"
    screen.line(f"read {size}; {scrub_extent(report)}", fit=False)
    if report.problems:
        text = f"damaged: {plural(len(report.problems), 'problem')}"
        screen.line((text, "bold red"), "; clew verify reads everything and says what to do")
    elif report.finished:
        screen.line(("whole", "bold green"), ": everything is as it was written")
    return _code_of(report.problems)


def scrub_extent(report: ScrubReport) -> str:
    """How far the reading is, in words."""
    begun = rfc3339(to_time(report.begun_us))[:16] + "Z"
    if report.finished:
        return f"with that, all of the store since {begun}"
    return f"{report.threads_read:,} of {plural(report.threads, 'thread')} since {begun}"


def draw(screen: Screen, report: VerifyReport, *, quick: bool = False) -> None:
    """Say what was read, what is wrong with it, and what to do."""
    problems = report.problems
    for problem in problems:
        screen.line((_place(problem), "red"), ": ", problem.message, fit=False)
    several = f" in {len(report.namespaces):,} namespaces" if len(report.namespaces) > 1 else ""
    screen.line("read ", _extent(report.stats), several)
    if quick:
        screen.line("not read: ", _NOT_READ)
    code = code_of(report)
    if code == _exits.OK:
        said = "nothing wrong in what was read" if quick else "everything is as it was written"
        screen.line(("whole", "bold green"), ": ", said)
    elif code == _exits.MISSING_BLOBS:
        blobs = {problem.blob for problem in problems if problem.blob is not None}
        screen.line((f"missing: {plural(len(blobs), 'blob')}", "bold red"), "; all else is whole")
        noted = "; clew repair notes them as lost" if report.repairs else ""
        screen.line(f"put them again if you have the bytes{noted}")
    else:
        screen.line(_REPAIR if report.repairs else _BACKUP)
        screen.line((f"damaged: {plural(len(problems), 'problem')}", "bold red"))


def _draw_json(screen: Screen, report: VerifyReport, *, quick: bool) -> None:
    value = {
        "place": report.place,
        "namespaces": report.namespaces,
        "whole": report.whole,
        "read": json_value(report.stats),
        "problems": json_value(report.problems),
    }
    screen.json(value | {"not_read": ["bodies", "blobs"]} if quick else value)


# --- words ---


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


def describe(problem: Problem) -> str:
    """A problem with its place, in one line."""
    return f"{_place(problem)}: {problem.message}"


def _place(problem: Problem) -> str:
    named = (
        ("namespace", problem.namespace),
        ("thread", problem.thread),
        ("record", problem.seq),
        ("entry", problem.entry),
        ("blob", problem.blob),
    )
    # No id of ours is longer; one that was planted may have megabytes.
    found = [f"{what} {which!s:.600}" for what, which in named if which is not None]
    return ", ".join(found) or "store"


def told(namespace: str) -> str | None:
    """A namespace as reports name it: the default one not at all."""
    return None if namespace == DEFAULT_NAMESPACE else namespace
