"""Copy every thread of a store to another one, of any kind; TO is made if it is not there.

One namespace of FROM is copied, to the one of that name in TO or to another; or all of them.

Ids, hashes, times and order stay as they are. Run it again to transfer what is new, or to go on
after an interruption. Where both sides moved on, both branches are kept. Exit code 4: some
threads were not copied, and the report says which and why; 1: some cannot be read.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import clew
from clew.address import is_same_store, namespaces
from clew.cli import _exits
from clew.cli._arguments import add_namespace
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import existing, named, open_to_look
from clew.cli._text import plural
from clew.core.model import DEFAULT_NAMESPACE
from clew.upkeep.copy import CopiedThread, CopyReport

_WORDS = {
    "copied": "new",
    "extended": "continued",
    "same": "the same already",
    "ahead": "ahead in the target",
    "diverged": "moved on on both sides",
    "unrelated": "another thread of the same id",
    "held": "being written in the target",
    "blocked": "not possible",
    "damaged": "damaged in the source",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FROM", help="path or address of the store to read")
    parser.add_argument("target", metavar="TO", help="path or address of the store to write")
    add_namespace(parser, "the part of FROM to copy; default: default")
    parser.add_argument(
        "--to-namespace", metavar="NAME", help="where to in TO; default: as it is called in FROM"
    )
    parser.add_argument(
        "--all-namespaces", action="store_true", help="copy every part of FROM, each to its like"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(options: argparse.Namespace, screen: Screen) -> int:
    _refuse_mistakes(options)
    if not options.all_namespaces:
        report = _copy(options, screen, options.namespace, options.to_namespace)
        if options.json:
            screen.json(_value(report))
        else:
            _draw(screen, report)
        return _code([report])
    with existing(options.source):
        names = namespaces(options.source)
    reports: dict[str, CopyReport] = {}
    for name in names:
        reports[name] = _copy(options, screen, name)
        if not options.json:
            screen.line(("namespace ", "bold"), name)
            _draw(screen, reports[name])
    if options.json:
        parts = [{"namespace": name} | _value(report) for name, report in reports.items()]
        complete = all(report.complete for report in reports.values())
        screen.json({"namespaces": parts, "complete": complete})
    return _code(list(reports.values()))


def _copy(
    options: argparse.Namespace, screen: Screen, name: str | None, to: str | None = None
) -> CopyReport:
    with (
        open_to_look(options.source, name) as source,
        clew.open(options.target, **named(to or name)) as target,
        screen.bar("copy") as bar,
    ):
        return source.copy_to(target, progress=bar)


def _refuse_mistakes(options: argparse.Namespace) -> None:
    one = options.namespace or options.to_namespace
    if options.all_namespaces and one:
        raise _exits.UsageError("--all-namespaces goes with no namespace of its own")
    other = options.to_namespace not in (None, options.namespace or DEFAULT_NAMESPACE)
    if not other and is_same_store(options.source, options.target):
        raise _exits.UsageError("FROM and TO are the same store")


def _value(report: CopyReport) -> dict[str, Any]:
    value: dict[str, Any] = json_value(report)
    return value | {"complete": report.complete}


def _code(reports: list[CopyReport]) -> int:
    if any(report.having("damaged") for report in reports):
        return _exits.DAMAGE
    complete = all(report.complete for report in reports)
    return _exits.OK if complete else _exits.CONFLICT


def _draw(screen: Screen, report: CopyReport) -> None:
    for thread in report.having("diverged"):
        screen.line((f"thread {thread.thread}", "yellow"), ": ", _branches(thread), fit=False)
    for thread in report.threads:
        if not thread.complete:
            screen.line((f"thread {thread.thread}", "red"), ": ", thread.reason or "", fit=False)
    counts = Counter[str](thread.outcome for thread in report.threads)
    words = ", ".join(f"{counts[key]:,} {word}" for key, word in _WORDS.items() if counts[key])
    size = f"{plural(report.records, 'record')} and {plural(report.blobs, 'blob')} written"
    screen.line(f"{plural(len(report.threads), 'thread')}: {words or 'none'}; {size}", fit=False)
    if report.complete:
        screen.line(("done", "bold green"), ": the target has everything")
    else:
        left = sum(not thread.complete for thread in report.threads)
        screen.line((f"{plural(left, 'thread')} not copied to the end", "bold red"))
        screen.line("what was copied stays; run it again when the reasons above are gone")


def _branches(thread: CopiedThread) -> str:
    return (
        f"both sides moved on and both branches are kept: the target stands on "
        f"{thread.target_leaf}, the source's leaf is {thread.source_leaf}"
    )
