"""What a shell needs to complete commands, options and threads.

  eval "$(clew completion bash)"                                   in ~/.bashrc
  eval "$(clew completion zsh)"                                    in ~/.zshrc, after compinit
  clew completion fish > ~/.config/fish/completions/clew.fish

Threads are completed by their ids, newest first, from the store that CLEW_STORE names, or your own.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from importlib import import_module

from clew import cli
from clew.cli import _arguments, _exits
from clew.cli._screen import Screen
from clew.cli._stores import open_to_look, short_id
from clew.core.errors import ClewError

SHELLS = ("bash", "zsh", "fish")
THREADS_MAX = 50
# What a shell takes as one word and nothing else: an id may be any text, and is put on a command
# line that a person then runs.
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@#/+-]*")
_THREADS = ("THREAD", "FORK", "A", "B")


def arguments(parser: argparse.ArgumentParser) -> None:
    known = (*SHELLS, "threads")  # the last one is for the scripts themselves
    parser.add_argument("shell", choices=known, metavar="SHELL", help=", ".join(SHELLS))
    parser.add_argument("prefix", nargs="?", default="", help=argparse.SUPPRESS)
    parser.add_argument("--titles", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.shell == "threads":
        _print_threads(screen, options.prefix, titles=options.titles)
        return _exits.OK
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]
    for line in write(dict(_table())):
        screen.line(line, fit=False)
    return _exits.OK


def _print_threads(screen: Screen, prefix: str, *, titles: bool) -> None:
    """The ids that begin so. No store, no answer: a shell has no place for an error."""
    import os

    from clew.core.model import ThreadQuery

    try:
        with open_to_look(os.environ.get("CLEW_STORE") or None) as store:
            query = ThreadQuery(prefix=prefix, order="updated", archived=None, limit=THREADS_MAX)
            for info in store.engine.threads(query).items:
                id = short_id(store, info.id)
                if _SAFE.fullmatch(id):
                    title = "" if info.title is None else info.title.text[:60]
                    screen.line(f"{id} {title}" if titles else id, fit=False)
    except ClewError:
        return


# --- what there is, from the parsers themselves ---


class Command:
    """A command as a shell sees it: its options, what they take, and what stands without one."""

    def __init__(self, about: str, parser: argparse.ArgumentParser | None, below: dict[str, str]):
        actions = [] if parser is None else parser._actions
        self.about = about
        self.below = below
        self.options = [one for one in actions if one.option_strings and one.help != "==SUPPRESS=="]
        words = [one for one in actions if not one.option_strings]
        self.threads = any(one.metavar in _THREADS for one in words)
        self.choices = [str(c) for one in words for c in one.choices or () if c != "threads"]


def _table() -> Iterator[tuple[str, Command]]:
    for name, about in cli.COMMANDS.items():
        module = import_module(f"clew.cli.{name}")
        below = getattr(module, "COMMANDS", {})
        if below:
            yield name, Command(about, None, below)
        for inner, said in below.items():
            full = f"{name} {inner}"
            command = import_module(f"clew.cli.{name}.{inner}")
            yield full, Command(said, _arguments.command_parser(full, command), {})
        if not below:
            yield name, Command(about, _arguments.command_parser(name, module), {})


def _words(command: Command) -> str:
    return " ".join(name for one in command.options for name in one.option_strings)


def _bash(table: dict[str, Command]) -> Iterator[str]:
    yield from """\
_clew() {
  local cur="${COMP_WORDS[COMP_CWORD]}" command="" word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in
      -*) ;;
      *) case "$command" in ""|snapshot) command="${command:+$command }$word" ;; esac ;;
    esac
  done
  local words="" threads=""
  case "$command" in""".split("\n")
    yield f'    "") words="{" ".join(cli.COMMANDS)} --help --version --no-color" ;;'
    for name, command in table.items():
        words = " ".join([*command.below, *command.choices, _words(command)]).strip()
        threads = " threads=1" if command.threads else ""
        yield f'    "{name}") words="{words}"{threads} ;;'
    yield from """\
  esac
  local IFS=$' \\t\\n'
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  case "$cur" in
    -*) ;;
    *)
      [ -n "$threads" ] && COMPREPLY+=($(clew completion threads "$cur" 2>/dev/null))
      [ -n "$command" ] && COMPREPLY+=($(compgen -f -- "$cur")) ;;
  esac
}
complete -o filenames -F _clew clew""".split("\n")


def _zsh(table: dict[str, Command]) -> Iterator[str]:
    yield from """\
#compdef clew
_clew() {
  local command="" word
  local -a words_of ids
  for word in "${(@)words[2,CURRENT-1]}"; do
    case "$word" in
      -*) ;;
      *) case "$command" in ""|snapshot) command="${command:+$command }$word" ;; esac ;;
    esac
  done
  local threads=""
  case "$command" in""".split("\n")
    commands = " ".join(_quoted(f"{name}:{about}") for name, about in cli.COMMANDS.items())
    yield f'    "") words_of=({commands}); _describe command words_of; return ;;'
    for name, command in table.items():
        pairs = [*command.below.items(), *((word, "") for word in command.choices)]
        pairs += [(n, one.help or "") for one in command.options for n in one.option_strings]
        words = " ".join(_quoted(f"{word}:{about}") for word, about in pairs)
        threads = " threads=1" if command.threads else ""
        yield f'    "{name}") words_of=({words}){threads} ;;'
    yield from """\
  esac
  _describe option words_of
  if [[ -n "$threads" && "$PREFIX" != -* ]]; then
    ids=("${(@f)$(clew completion threads "$PREFIX" 2>/dev/null)}")
    [[ -n "${ids[1]}" ]] && compadd -V threads -a ids
  fi
  [[ "$PREFIX" != -* ]] && _files
}
compdef _clew clew""".split("\n")


def _fish(table: dict[str, Command]) -> Iterator[str]:
    yield "complete -c clew -e"
    for name, about in cli.COMMANDS.items():
        yield f"complete -c clew -n __fish_use_subcommand -f -a {name} -d {_quoted(about)}"
    for name, command in table.items():
        seen = " ".join(f"; and __fish_seen_subcommand_from {word}" for word in name.split())
        when = _quoted(seen.removeprefix("; and "))
        for word, about in [*command.below.items(), *((one, "") for one in command.choices)]:
            yield f"complete -c clew -n {when} -f -a {word} -d {_quoted(about)}"
        if command.threads:
            found = "clew completion threads --titles (commandline -ct) 2>/dev/null"
            ids = f"'({found} | string replace \" \" \\t)'"  # fish wants a tab before the title
            yield f"complete -c clew -n {when} -k -a {ids}"
        for one in command.options:
            long = [n[2:] for n in one.option_strings if n.startswith("--")]
            short = [n[1:] for n in one.option_strings if not n.startswith("--")]
            names = " ".join([*(f"-l {n}" for n in long), *(f"-s {n}" for n in short)])
            takes = " -r" if one.nargs != 0 else ""
            choices = f" -f -a {_quoted(' '.join(map(str, one.choices)))}" if one.choices else ""
            about = _quoted(one.help or "")
            yield f"complete -c clew -n {when} {names}{takes}{choices} -d {about}"


def _quoted(text: str) -> str:
    """A text of our own as one word of a shell."""
    return "'" + text.replace("\\", "").replace("'", "’") + "'"
