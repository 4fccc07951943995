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
    "adopt": "bring what a fork has added to the thread that it came from",
    "append": "write messages from a file or a pipe to a thread",
    "archive": "put a thread away, or take it out again; nothing is removed",
    "backup": "a verified copy of a store that is in use; again: what is new",
    "cleanup": "remove threads that were not used for a while, for good",
    "compact": "let a summary stand for all but the newest turns",
    "completion": "what bash, zsh or fish needs to complete commands and threads",
    "copy": "copy every thread of a store to another one; again: what is new",
    "delete": "delete a thread; restore brings it back",
    "demo": "watch an agent get killed, resume, fork and rewind",
    "diff": "where two threads or entries part, side by side",
    "doctor": "what a store is, what it promises here, and what is wrong with it",
    "erase": "remove what an entry says for good; asks first",
    "erased": "prove that nothing is left of what was purged or erased",
    "export": "write one thread as a JSONL file that needs no other",
    "fork": "a new thread that shares a path with another one",
    "pack": "compress what is cold, in place",
    "gc": "remove what nothing refers to, and threads that were deleted long ago",
    "help": "a topic or a command, with examples",
    "import": "bring the sessions that agents keep in their own files into a store",
    "label": "name an entry, so that it can be found by that name",
    "list": "the threads of a store, newest first",
    "mcp": "let an agent look into its own history, over MCP",
    "mend": "make a session file usable again that its agent refuses",
    "migrate": "bring a store's format up to date; row-level security for tenants",
    "move": "stand on another entry; what comes after it stays",
    "new": "make a thread",
    "purge": "remove one thread for good; asks first",
    "redo": "do again what the last undo took back",
    "repair": "make a new store of what can be read of a damaged one",
    "restore": "bring a deleted thread back, or a thread or everything from a backup",
    "resume": "carry on with a thread in Claude Code, Codex, pi or opencode",
    "rewind": "go back to before a message: the conversation, the files, or both",
    "search": "find what was said, in all threads of a store",
    "serve": "look at a store in a browser, on this machine",
    "show": "one thread as a transcript, or as a provider would get it",
    "snapshot": "files as they were: take, list, diff, show, restore",
    "stats": "how much a store holds, by agent and workspace",
    "tag": "add tags to a thread and take them away",
    "tail": "the newest entries of a thread; -f waits for more",
    "title": "name a thread",
    "tree": "one thread as the tree of its entries, with all branches",
    "undo": "take the last rewind or restore back",
    "usage": "what models took and cost: tokens and money, each reply once",
    "verify": "read everything and prove it whole, or name what is damaged",
    "view": "open one thread in a browser",
    "watch": "keep bringing what agents write, as they write it",
}

# How the help orders them; what is in no group stands at the end.
GROUPS = {
    "look": "list show search usage tree diff tail stats serve view",
    "change": "new append fork move adopt compact title tag label archive delete restore purge "
    "erase",
    "files": "snapshot rewind undo redo",
    "agents": "import watch resume mend mcp",
    "look after a store": "verify erased repair doctor backup copy cleanup gc pack migrate export",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code. What it can be is in `clew.cli._exits`."""
    from clew.cli import _exits
    from clew.cli._screen import Screen

    # Here every error becomes one line and an exit code: a traceback would tell a user nothing.
    screen = Screen.for_terminal()
    arguments = sys.argv[1:] if argv is None else argv
    try:
        screen.refuse_closed()
        try:
            code = _run(arguments, screen)
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
        # Asked for here and not of the parser: it may be what has failed.
        if "--json" in arguments:
            screen.error_json(_exits.error_value(error))
        else:
            screen.error(_exits.describe(error))
        return _exits.code_of(error)


def _run(arguments: list[str], screen: Screen) -> int:
    from clew.cli import _arguments
    from clew.cli._exits import UsageError

    if not arguments:
        from clew.cli.help import overview

        return overview(screen)
    top = _arguments.top_parser(COMMANDS, GROUPS).parse_args(arguments)
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
    options = _arguments.parse(name, module, rest)
    _quiet_logs()
    if top.no_color or options.no_color:
        screen.colour = False
    fields = getattr(options, "fields", None)
    if fields and not options.json:
        raise UsageError("--fields chooses among the fields of --json")
    screen.fields = fields
    code: int = module.run(options, screen)
    return code


def _quiet_logs() -> None:
    """What the pool of connections logs comes as an error of ours as well: once is enough."""
    import logging

    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
