"""Parsers: one for what stands before the command, one for what stands after it.

Two steps, because the second needs the command's module and the first must not load them all.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NoReturn

import clew
from clew.cli import _exits
from clew.cli._screen import Screen, print_plain

_EXAMPLES = """\
Each command says more: clew COMMAND --help

examples:
  clew demo                        see what Clew does, in five seconds
  clew list                        what is in your own store
  clew list threads.db --tag bug   … in a store of your choice
  clew show 01k2j3                 a thread's tree; the first letters of its id will do
  clew show threads.db 01k2j3 --path
  clew verify threads.db
  clew copy threads.db files:threads
  clew repair threads.db
  clew doctor threads.db           what it promises there, and what is wrong
  clew cleanup --older-than 90d    remove what was not used for 90 days; asks first
  clew snapshot take 01k2j3        the files of this folder, as they are now
  clew rewind 01k2j3 --dry-run     what going back before the last message would do

STORE is a path or an address (sqlite:///threads.db, files:threads,
postgresql://user@host/database). Without one it is your own store:
  {place}
"""


class Parser(argparse.ArgumentParser):
    """Mistakes become one line like every other error, not the usage and a line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )
        self.color = False  # newer Pythons colour the help; ours reads the same everywhere

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse's own passes over errors, and so would say that it has printed what it has not.
        print_plain(message)

    def error(self, message: str) -> NoReturn:
        raise _exits.UsageError(f"{message} (see {self.prog} --help)")


def top_parser(commands: Mapping[str, str]) -> Parser:
    parser = Parser(
        prog="clew",
        usage="clew [--version] [--no-color] COMMAND …",
        description="Clew keeps the threads of AI agents: durable, branching, resumable.\n\n"
        + _table("commands", commands),
        epilog=_epilog(),
    )
    parser.add_argument("--version", action="version", version=f"clew {clew.__version__}")
    _add_no_color(parser)
    parser.add_argument("command", choices=commands, metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def family_parser(name: str, module: ModuleType) -> Parser:
    """The parser of a command that is a family of them."""
    parser = Parser(
        prog=f"clew {name}",
        usage=f"clew {name} COMMAND …",
        description=f"{module.__doc__}\n{_table('commands', module.COMMANDS)}",
        epilog=f"Each command says more: clew {name} COMMAND --help",
    )
    parser.add_argument(
        "command", choices=module.COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def command_parser(name: str, module: ModuleType) -> Parser:
    """The parser of one command; its description is the module's own."""
    parser = Parser(
        prog=f"clew {name}",
        description=module.__doc__,
    )
    module.arguments(parser)
    _add_no_color(parser)
    return parser


def add_store(parser: argparse.ArgumentParser, *, namespace: str | None = "") -> None:
    """With what `namespace` says about an option of that name; None: there is none."""
    parser.add_argument(
        "store", nargs="?", metavar="STORE", help="path or address; default: your own store"
    )
    if namespace is not None:
        add_namespace(parser, namespace)


def add_namespace(parser: argparse.ArgumentParser, help: str = "") -> None:
    help = help or "the part of the store that is meant; default: default"
    parser.add_argument("--namespace", metavar="NAME", help=help)


def add_thread(parser: argparse.ArgumentParser) -> None:
    """One name is a thread of the user's own store, two are store and thread."""
    parser.add_argument("store", nargs="?", metavar="STORE", help="default: your own store")
    parser.add_argument("thread", metavar="THREAD", help="id, or its first letters")
    add_namespace(parser)


def add_object(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def add_consent(parser: argparse.ArgumentParser) -> None:
    """For commands that change files."""
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--force", action="store_true", help="also overwrite changes that no snapshot has"
    )


def consent(
    screen: Screen, options: argparse.Namespace, question: str, what: str = "changes files"
) -> bool:
    """Whether to go on: --yes, or a yes at the terminal. Without either it is a UsageError."""
    if options.yes:
        return True
    said = None if getattr(options, "json", False) else screen.ask(question)
    if said is None:
        raise _exits.UsageError(f"this {what}: look at it with --dry-run, do it with --yes")
    if not said:
        screen.line("nothing was changed")
    return said


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON, one a line")


def count(text: str) -> int:
    """The type of options that take a number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _add_no_color(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-color", action="store_true", help="plain text (as with NO_COLOR in the environment)"
    )


def _epilog() -> str:
    from clew.address import default_path

    codes = {str(code): text for code, text in _exits.MEANINGS.items()}
    return _EXAMPLES.format(place=default_path()) + "\n" + _table("exit codes", codes)


def _table(title: str, rows: Mapping[str, str]) -> str:
    width = max(map(len, rows))
    return f"{title}:\n" + "\n".join(f"  {key:<{width}}  {text}" for key, text in rows.items())
