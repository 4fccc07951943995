"""The command line: `clew` and `python -m clew`. The only part that prints or asks the environment.

A command is a module of this package with `arguments(parser)` and `run(options, screen)`; it is
imported when it is called, so that `clew --version` loads none of them. A package with COMMANDS of
its own is a family: the next word says which one.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clew.cli._screen import Screen

COMMANDS = {
    "cleanup": "remove threads that were not used for a while, for good",
    "copy": "copy every thread of a store to another one; again: what is new",
    "demo": "watch an agent get killed, resume, fork and rewind",
    "doctor": "what a store is, what it promises here, and what is wrong with it",
    "export": "write one thread as a JSONL file that needs no other",
    "list": "the threads of a store, newest first",
    "migrate": "bring a store's format up to date; row-level security for tenants",
    "redo": "do again what the last undo took back",
    "repair": "make a new store of what can be read of a damaged one",
    "rewind": "go back to before a message: the conversation, the files, or both",
    "show": "one thread: its tree, or the full text of its current path",
    "snapshot": "files as they were: take, list, diff, show, restore",
    "undo": "take the last rewind or restore back",
    "verify": "read everything and prove it whole, or name what is damaged",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code. What it can be is in `clew.cli._exits`."""
    from clew.cli import _exits
    from clew.cli._screen import Screen

    # Here every error becomes one line and an exit code: a traceback would tell a user nothing.
    screen = Screen.for_terminal()
    try:
        screen.refuse_closed()
        try:
            code = _run(sys.argv[1:] if argv is None else argv, screen)
        except SystemExit as end:  # argparse, after printing help or the version
            code = int(end.code or 0)
        screen.flush()
        return code
    except BrokenPipeError:  # the reader of our output has seen enough
        screen.abandon()
        return _exits.BROKEN_PIPE
    except KeyboardInterrupt:
        screen.end()
        return _exits.INTERRUPTED
    except Exception as error:
        screen.error(_exits.describe(error))
        return _exits.code_of(error)


def _run(arguments: list[str], screen: Screen) -> int:
    from clew.cli import _arguments

    parser = _arguments.top_parser(COMMANDS)
    if not arguments:
        parser.print_help()
        return 0
    top = parser.parse_args(arguments)
    name, rest = top.command, top.rest
    module = import_module(f"clew.cli.{name}")
    if hasattr(module, "COMMANDS"):
        family = _arguments.family_parser(name, module)
        if not rest:
            family.print_help()
            return 0
        below = family.parse_args(rest)
        name, rest = f"{name} {below.command}", below.rest
        module = import_module(f"clew.cli.{name.replace(' ', '.')}")
    # Intermixed, so that options may stand before, between and after STORE and THREAD.
    options = _arguments.command_parser(name, module).parse_intermixed_args(rest)
    _quiet_logs()
    if top.no_color or options.no_color:
        screen.colour = False
    code: int = module.run(options, screen)
    return code


def _quiet_logs() -> None:
    """What the pool of connections logs comes as an error of ours as well: once is enough."""
    import logging

    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
