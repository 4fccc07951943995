"""Remove the bodies of entries for good: a secret, a person's data. This cannot be undone; it asks.

Each entry stays where it is and says [erased]; its hash, and those of all that hangs on it, stay
right. It goes for every fork that shares it, from the search index and from what was counted. What
is printed with --json is a receipt; clew erased takes it. Backups and other copies are not reached.
The store is named with --store or CLEW_STORE here, because the words after THREAD are entries.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import (
    THREAD_HELP,
    add_asking,
    add_namespace,
    add_object,
    add_store_option,
    consent,
)
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import find_entry, opened_thread
from clew.cli._text import plural, remainders


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(store=None)
    parser.add_argument("thread", metavar="THREAD", help=THREAD_HELP)
    parser.add_argument("entries", nargs="+", metavar="ENTRY", help="its id, number or label")
    add_store_option(parser)
    add_namespace(parser)
    parser.add_argument("--reason", metavar="TEXT", help="why; it is kept in the thread's log")
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="have the store's files written anew; on PostgreSQL they keep what was erased",
    )
    add_asking(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("erase", options, look=options.dry_run, deleted=True) as thread:
        found = [find_entry(thread, name) for name in options.entries]
        if not options.json:
            for entry in found:
                screen.line((entry.id, "bold"), f" {entry.kind}, {len(entry.data):,} bytes")
        if options.dry_run:
            if options.json:
                screen.json({"dry_run": True, "entries": [entry.id for entry in found]})
            return _exits.OK
        question = f"remove the bodies of {plural(len(found), 'entry')} for good?"
        if not consent(screen, options, question, "removes bodies for good"):
            return _exits.OK
        ids = [entry.id for entry in found]
        receipt = thread.erase(*ids, reason=options.reason, shrink=options.shrink)
    if options.json:
        screen.json({"dry_run": False, "receipt": json_value(receipt)})
        return _exits.OK
    count = plural(len(receipt.entries), "entry")
    screen.line(("erased", "bold green"), f": {count}, {receipt.size_bytes:,} bytes")
    for line in remainders(receipt):
        screen.line(line, fit=False)
    for one in receipt.repeats:
        what = f"entry {one.record}" if one.fact is None else f"fact {one.fact}"
        screen.line(f"may repeat it: {what} of thread {one.thread} ({one.how})", fit=False)
    return _exits.OK
