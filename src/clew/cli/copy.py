"""Copy every thread of a store to another one, of any kind; TO is made if it is not there.

Ids, hashes, times and order stay as they are. Run it again to transfer what is new, or to go on
after an interruption. Where both sides moved on, both branches are kept. Exit code 4: some
threads were not copied, and the report says which and why; 1: some cannot be read.
"""

from __future__ import annotations

import argparse
from collections import Counter

import msgspec

import clew
from clew.cli import _exits
from clew.cli._render import Screen
from clew.cli._stores import open_existing
from clew.cli._text import plural
from clew.copying import CopiedThread, CopyReport
from clew.opening import locate

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
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(options: argparse.Namespace, screen: Screen) -> int:
    _refuse_same(options.source, options.target)
    with (
        open_existing(options.source) as source,
        clew.open(options.target) as target,
        screen.bar("copy") as bar,
    ):
        report = source.copy_to(target, progress=bar)
    if options.json:
        screen.json(msgspec.to_builtins(report) | {"complete": report.complete})
    else:
        _draw(screen, report)
    return _code(report)


def _refuse_same(source: str, target: str) -> None:
    left, right = locate(source)[1], locate(target)[1]
    if left is not None and right is not None and left.resolve() == right.resolve():
        raise _exits.UsageError("FROM and TO are the same store")


def _code(report: CopyReport) -> int:
    if report.having("damaged"):
        return _exits.DAMAGE
    return _exits.OK if report.complete else _exits.CONFLICT


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
