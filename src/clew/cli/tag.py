"""Add tags to a thread (+bug, or just bug) and take them away (-bug); without any, show them.

The store is named with --store or CLEW_STORE here, because the words after THREAD are tags.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from clew.cli import _exits
from clew.cli._arguments import THREAD_HELP, add_namespace, add_object, add_store_option
from clew.cli._json import thread_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(store=None, taken=[])
    parser.add_argument("thread", metavar="THREAD", help=THREAD_HELP)
    parser.add_argument("tags", nargs="*", metavar="TAG", help="+tag or tag adds, -tag takes away")
    add_store_option(parser)
    add_namespace(parser)
    add_object(parser)
    parser.add_argument("--take", action="append", dest="taken", help=argparse.SUPPRESS)


def prepared(rest: Sequence[str]) -> list[str]:
    """-bug takes a tag away; argparse would read it as an option."""
    short = ("-h",)
    return [
        f"--take={word[1:]}" if _is_taken(word) and word not in short else word for word in rest
    ]


def _is_taken(word: str) -> bool:
    return word[:1] == "-" and word[:2] not in ("-", "--")


def run(options: argparse.Namespace, screen: Screen) -> int:
    added = [word.removeprefix("+") for word in options.tags]
    look = not added and not options.taken
    with opened_thread("tag", options, look=look) as thread:
        if not look:
            before = thread.info.tags
            after = [tag for tag in dict.fromkeys([*before, *added]) if tag not in options.taken]
            if tuple(after) != before:
                thread.set(tags=after or None)
        info = thread.info
    if options.json:
        screen.json(thread_value(info))
    elif info.tags:
        screen.line(" ".join(f"#{tag}" for tag in info.tags), fit=False)
    else:
        screen.line(("no tags", "dim"))
    return _exits.OK
