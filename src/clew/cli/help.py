"""A topic, or a command, with examples; without one, all commands."""

from __future__ import annotations

import argparse
from importlib import import_module

from clew import cli
from clew.cli import _arguments, _exits
from clew.cli._screen import Screen
from clew.cli._stores import open_to_look
from clew.cli._text import plural
from clew.core.errors import NotFound

NEWEST = 5

_TEXTS = {
    "ids": """\
How threads and entries are named

A THREAD is named by its id, by the first letters of its id if no other thread's begins with them,
or by when it was used:

  clew show 01k2j3      the only thread whose id begins so; several are an error that names them
  clew show @last       the thread that was written last; @1 is the same one
  clew show @3          the third one that clew list shows

An ENTRY is named by the number that clew show and clew tree print before it, by its id or the first
letters of that, or by the label that it was given:

  clew fork @last --before 12
  clew label @last 12 "before the rewrite"
  clew move @last "before the rewrite"
  clew diff 01k2j3:12 01k2j3:40     THREAD:ENTRY, where either can be meant
""",
    "stores": """\
Which store a command works on

A store is named first, with --store, or by CLEW_STORE in the environment. Without any of
these it is your own store, which is made when something is first written to it.

  clew list threads.db
  clew list --store postgresql://me@host/database
  CLEW_STORE=files:threads clew show @last

Naming it twice on the command line is an error; --store comes before CLEW_STORE. In erase, import,
search, tag and watch other words come first, so that the store is named with --store.

Addresses: a path or sqlite:///path.db, files:folder, postgresql://user@host/database. --namespace
names a part of a store. Commands that look never make a store, and work on one that may not be
written.
""",
    "json": """\
Output for programs

--json prints one object, or one object a line. Each has schema_version, which changes only when a
field goes or gets another meaning. Times are RFC 3339 with Z, sizes are bytes. Data is on standard
output, everything else on standard error.

  clew list --json | jq -r 'select(.facts.tags | index("bug")) | .id'
  clew show @last --json | jq -c '{kind, time}'
  clew show @last --context anthropic | jq .messages

With --json an error is one line of JSON on standard error, with the same exit code as always:

  {"schema_version":1,"error":{"code":"not_found","kind":"not_found","message":"…","hint":"…",
   "retryable":false}}

- in the place of a file is standard input or standard output.
""",
    "output": """\
Colours, width, pager

On a terminal, lines are cut at its width and long output goes through PAGER (less -FRX if that
is not set; PAGER=cat turns it off). In a file or a pipe nothing is cut, and nothing is coloured.
NO_COLOR or --no-color turns colours off, FORCE_COLOR=1 turns them on. COLUMNS overrides the
width. Control sequences in stored text are never printed.
""",
    "change": """\
What changes a thread, and how to take it back

  clew new --title "Fix the login"          prints the id
  echo "The login is broken." | clew append @last
  clew fork @last --at 12                   a new thread; the old one stays as it is
  clew adopt @2 @1                          what the fork @1 has added, to @2
  clew move @last 12                        stand on another entry; what comes after it stays
  clew title @last "Fix the login for good"
  clew tag @last +bug -wip
  clew compact @last --with "llm -s 'Sum this up'"
  clew delete @last                         clew restore brings it back
  clew purge 01k2j3                         removes it for good, and asks first

History is never rewritten: a move, a title or a compaction is one more record.
""",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topic", nargs="*", metavar="TOPIC", help=f"a command, or: {', '.join(_arguments.TOPICS)}"
    )


def run(options: argparse.Namespace, screen: Screen) -> int:
    name = " ".join(options.topic)
    with screen.paged():
        for line in _text(name).rstrip("\n").split("\n"):
            screen.line(line, fit=False)
    return _exits.OK


def _text(name: str) -> str:
    if not name:
        return _arguments.top_parser(cli.COMMANDS, cli.GROUPS).format_help()
    if name in _TEXTS:
        return _TEXTS[name]
    if name == "errors":
        rows = "\n".join(f"  {code:>4}  {text}" for code, text in _exits.MEANINGS.items())
        return f"Exit codes\n\n{rows}\n\nclew help json says how errors look with --json."
    first, _, second = name.partition(" ")
    if first in cli.COMMANDS:
        module = import_module(f"clew.cli.{first}")
        if hasattr(module, "COMMANDS"):
            if not second:
                return _arguments.family_parser(first, module).format_help()
            if second in module.COMMANDS:
                below = import_module(f"clew.cli.{first}.{second}")
                return _arguments.command_parser(name, below).format_help()
        elif not second:
            return _arguments.command_parser(first, module).format_help()
    topics = ", ".join(_arguments.TOPICS)
    raise _exits.UsageError(f"there is no help on {name!r}: give a command, or one of {topics}")


# --- clew without a command -----------------------------------------------------------------


def overview(screen: Screen) -> int:
    """What is in the store that is meant, and what one may do next."""
    import os

    from clew.cli.list import draw_threads

    address = os.environ.get("CLEW_STORE") or None
    try:
        opened = open_to_look(address)
    except _exits.UsageError as error:
        if not isinstance(error.__context__, NotFound):
            raise
        _draw_beginning(screen, str(error))
        return _exits.OK
    with opened as store:
        stats = store.stats()
        place = store.properties.place
        what = f"{plural(stats.threads, 'thread')}, {plural(stats.entries, 'entry')}"
        screen.line((what, "bold"), f" in {place}", fit=False)
        newest = store.list(order="updated", limit=NEWEST).items
        draw_threads(screen, store, newest)
        screen.line()
    _draw_hints(
        screen,
        {
            "clew show @last": "read what was said last",
            "clew list": "all threads; --since 7d, --tag, --workspace, --tree",
            "clew tree @last": "its branches; clew fork tries another one",
            "clew help": "all commands; clew help ids says how threads are named",
        },
    )
    return _exits.OK


def _draw_beginning(screen: Screen, missing: str) -> None:
    screen.line(missing, fit=False)
    screen.line()
    _draw_hints(
        screen,
        {
            "clew import": "bring the sessions that agents have left on this machine",
            "clew demo": "see what Clew does, in five seconds",
            "clew new --title 'My first'": "make the store, with a thread in it",
            "clew list threads.db": "look at a store of your choice; or set CLEW_STORE",
            "clew help": "all commands",
        },
    )


def _draw_hints(screen: Screen, hints: dict[str, str]) -> None:
    width = max(map(len, hints))
    for command, text in hints.items():
        screen.line("  ", (f"{command:<{width}}", "green"), f"  {text}")
