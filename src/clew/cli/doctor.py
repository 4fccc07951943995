"""What kind of store this is, what an acknowledgement means here, and what is wrong with it.

Says what was read to know that. Reads settings and counts, changes nothing; clew verify reads the
contents. Exit code 0: nothing is wrong, though there may be warnings; 9: something is.
"""

from __future__ import annotations

import argparse

import clew
from clew.cli import _exits
from clew.cli._arguments import add_object, add_store
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import existing, open_to_look
from clew.cli._text import plural, size
from clew.core.maintenance import Finding
from clew.core.model import Stats
from clew.upkeep.doctor import Examination, examine
from clew.upkeep.migrate import refuse_older

_STYLES = {"wrong": "bold red", "warning": "bold yellow"}


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with existing(options.store):
        refuse_older(options.store)  # opening an older store would change it
    with open_to_look(options.store, options.namespace) as store:
        found = examine(store)
    if options.json:
        screen.json(json_value(found) | {"clew": clew.__version__, "sound": found.sound})
    else:
        _draw(screen, found)
    return _exits.OK if found.sound else _exits.ATTENTION


def _draw(screen: Screen, found: Examination) -> None:
    about = found.properties
    screen.line((found.kind, "bold"), f" at {about.place}", fit=False)
    versions = {"clew": clew.__version__} | found.versions
    screen.line(f"namespace {about.namespace}, format {found.format}", fit=False)
    screen.line(", ".join(f"{name} {number}" for name, number in versions.items()), fit=False)
    for finding in found.findings:
        _draw_finding(screen, finding)
    screen.line()
    screen.line(("acknowledged", "bold"), f": {about.acknowledged}", fit=False)
    width = max(map(len, found.read), default=0)
    for name, value in found.read.items():
        screen.line("  ", (f"{name:<{width}}", "dim"), f"  {value}", fit=False)
    screen.line("holds ", _extent(found.stats), fit=False)
    _draw_verdict(screen, found.findings)


def _draw_finding(screen: Screen, finding: Finding) -> None:
    screen.line()
    screen.line((finding.level, _STYLES[finding.level]), f": {finding.what}", fit=False)
    screen.line(f"  {finding.do}", fit=False)


def _draw_verdict(screen: Screen, findings: list[Finding]) -> None:
    wrong = sum(finding.level == "wrong" for finding in findings)
    warnings = len(findings) - wrong
    said = f"; {plural(warnings, 'warning')}, see above" if warnings else ""
    if wrong:
        things = "1 thing" if wrong == 1 else f"{wrong} things"
        screen.line((f"{things} to be put right", "bold red"), said)
    else:
        screen.line(("nothing is wrong", "bold green"), said)


def _extent(stats: Stats) -> str:
    deleted = f" and {stats.deleted:,} deleted" if stats.deleted else ""
    return (
        f"{plural(stats.threads, 'thread')}{deleted}, {plural(stats.entries, 'entry')}, "
        f"{plural(stats.records, 'record')}, {plural(stats.blobs, 'blob')} of "
        f"{size(stats.blob_bytes)}; {size(stats.stored_bytes)} stored"
    )
