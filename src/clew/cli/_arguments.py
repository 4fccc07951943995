"""Parsers: one for what stands before the command, one for what stands after it.

Two steps, because the second needs the command's module and the first must not load them all.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, NoReturn

import clew
from clew.cli import _exits
from clew.cli._screen import Screen, help_width, print_plain

_EXAMPLES = """\
Each command says more: clew COMMAND --help. So does clew help TOPIC:
  {topics}

examples:
  clew                             what is in your own store, and what to do next
  clew demo                        see what Clew does, in five seconds
  clew list --since 7d             the threads of the last week
  clew list threads.db --tag bug   … in a store of your choice
  clew show @last                  what was said, in the thread that was written last
  clew show 01k2j3 --context       … as the provider would get it
  clew tree 01k2j3                 all its branches; the first letters of its id will do
  clew fork @last --before 12      try it again from before entry 12
  clew tail -f @last               watch it grow
  clew verify threads.db
  clew backup copy.db
  clew doctor threads.db           what it promises there, and what is wrong
  clew cleanup --older-than 90d    remove what was not used for 90 days; asks first
  clew rewind 01k2j3 --dry-run     what going back before the last message would do

STORE is a path or an address (sqlite:///threads.db, files:threads,
postgresql://user@host/database), as is CLEW_STORE in the environment. Without
one it is your own store:
  {place}
"""


TOPICS = ("ids", "stores", "json", "output", "errors", "change")  # clew.cli.help has their texts
THREAD_HELP = "id, its first letters, or @last, @2, …"
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class _Help(argparse.RawDescriptionHelpFormatter):
    """One is made for every argument. Without a width it would load shutil, to ask for one."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=help_width())


class Parser(argparse.ArgumentParser):
    """Mistakes become one line like every other error, not the usage and a line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **options)
        self.color = False  # newer Pythons colour the help; ours reads the same everywhere

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse's own passes over errors, and so would say that it has printed what it has not.
        print_plain(message)

    def error(self, message: str) -> NoReturn:
        raise _exits.UsageError(f"{message} (see {self.prog} --help)")


def top_parser(commands: Mapping[str, str], groups: Mapping[str, str]) -> Parser:
    parser = Parser(
        prog="clew",
        usage="clew [--version] [--no-color] COMMAND …",
        description="Clew keeps the threads of AI agents: durable, branching, resumable.\n\n"
        + _grouped(commands, groups),
        epilog=_epilog(),
    )
    parser.add_argument("--version", action="version", version=f"clew {clew.__version__}")
    _add_no_color(parser)
    _add_command(parser, commands)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def family_parser(name: str, module: ModuleType) -> Parser:
    """The parser of a command that is a family of them."""
    parser = Parser(
        prog=f"clew {name}",
        usage=f"clew {name} COMMAND …",
        description=f"{module.__doc__}\n\n{_table('commands', module.COMMANDS)}",
        epilog=f"Each command says more: clew {name} COMMAND --help",
    )
    _add_command(parser, module.COMMANDS)
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


def parse(name: str, module: ModuleType, rest: Sequence[str]) -> argparse.Namespace:
    """What stands after a command's name; which store it means is decided here."""
    parser = command_parser(name, module)
    if hasattr(module, "prepared"):
        rest = module.prepared(rest)
    if not {"-h", "--help"} & set(rest):
        parser.usage = ""  # or it would be made anew for each command, and never shown
    # Intermixed, so that options may stand before, between and after STORE and THREAD.
    options = parser.parse_intermixed_args(rest)
    if hasattr(options, "store") or hasattr(options, "store_option"):
        given = getattr(options, "store_option", None)
        options.store = getattr(options, "store", None)
        if options.store is not None and given is not None:
            parser.error("the store is named twice: give STORE or --store, not both")
        # Whether the command line names one: CLEW_STORE may be set for good, and a THREAD that
        # is a file is still one that was forgotten.
        options.named_store = options.store is not None or given is not None
        options.store = options.store or given or os.environ.get("CLEW_STORE") or None
    return options


def add_store(parser: argparse.ArgumentParser, *, namespace: str | None = "") -> None:
    """With what `namespace` says about an option of that name; None: there is none."""
    parser.add_argument(
        "store", nargs="?", metavar="STORE", help="path or address; default: your own store"
    )
    add_store_option(parser)
    if namespace is not None:
        add_namespace(parser, namespace)


def add_store_option(parser: argparse.ArgumentParser) -> None:
    """The store as an option, for scripts that do not want to count what stands before THREAD."""
    parser.add_argument(
        "--store",
        dest="store_option",
        metavar="URL",
        help="the same as STORE; default: CLEW_STORE in the environment",
    )


def add_redact_at_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--redact-at-import",
        action="store_true",
        help="store [redacted: …] in place of secrets; say so from the first time on",
    )


def add_namespace(parser: argparse.ArgumentParser, help: str = "") -> None:
    help = help or "the part of the store that is meant; default: default"
    parser.add_argument("--namespace", metavar="NAME", help=help)


def add_workspace(
    parser: argparse.ArgumentParser, help: str = "only threads of this folder or project"
) -> None:
    parser.add_argument("--workspace", type=_workspace, metavar="W", help=help)


def add_thread(parser: argparse.ArgumentParser) -> None:
    """One name is a thread of the user's own store, two are store and thread."""
    parser.add_argument("store", nargs="?", metavar="STORE", help="default: your own store")
    parser.add_argument("thread", metavar="THREAD", help=THREAD_HELP)
    add_store_option(parser)
    add_namespace(parser)


def add_object(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def add_asking(parser: argparse.ArgumentParser) -> None:
    """For commands that remove something."""
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def add_consent(parser: argparse.ArgumentParser) -> None:
    """For commands that change files."""
    add_asking(parser)
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
    """For commands that print many of something."""
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON, one a line")
    parser.add_argument(
        "--fields",
        type=lambda text: tuple(text.split(",")),
        metavar="A,B",
        help="with --json: only these fields; null where there is none",
    )


def moment(text: str) -> timedelta | datetime:
    """The type of options that take a span or a date."""
    span = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if span is not None:
        return timedelta(**{_UNITS[span[2]]: int(span[1])})
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a span (30d, 12h, 2w) nor a date (2026-01-31)"
        ) from None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def count(text: str) -> int:
    """The type of options that take a number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _workspace(text: str) -> str:
    """A folder as agents note it: from the root on, without a slash behind. Else it is a name."""
    if text in (".", "..", "~") or text.startswith(("/", "./", "../", "~/")):
        return os.path.abspath(os.path.expanduser(text))
    return text


def _add_command(parser: argparse.ArgumentParser, commands: Mapping[str, str]) -> None:
    def command(name: str) -> str:
        if name in commands:
            return name
        import difflib

        near = difflib.get_close_matches(name, commands, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise argparse.ArgumentTypeError(f"there is no command {name!r}{meant}")

    parser.add_argument("command", type=command, metavar="COMMAND", help=argparse.SUPPRESS)


def _add_no_color(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-color", action="store_true", help="plain text (as with NO_COLOR in the environment)"
    )


def _epilog() -> str:
    from clew.address import default_path

    codes = {str(code): text for code, text in _exits.MEANINGS.items()}
    shown = _EXAMPLES.format(place=default_path(), topics=", ".join(TOPICS))
    return shown + "\n" + _table("exit codes", codes)


def _grouped(commands: Mapping[str, str], groups: Mapping[str, str]) -> str:
    known = {title: names.split() for title, names in groups.items()}
    rest = set(commands) - {name for names in known.values() for name in names}
    known["more"] = sorted(rest)
    width = max(map(len, commands))
    tables = [
        _table(title, {f"{name:<{width}}": commands[name] for name in names})
        for title, names in known.items()
    ]
    return "\n\n".join(tables)


def _table(title: str, rows: Mapping[str, str]) -> str:
    width = max(map(len, rows))
    return f"{title}:\n" + "\n".join(f"  {key:<{width}}  {text}" for key, text in rows.items())
