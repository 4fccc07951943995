"""Carry on with a thread in an agent: writes it as a session of the agent, and says the command.

The session is written where the agent looks for its own, and nothing that is there is overwritten:
if the session is there and has gone on, the thread becomes another one. What the agent cannot hold,
such as the thinking of another model, is left out or put otherwise, and that is said. Sub-agents go
with the thread that they worked for, where the agent has a place for them (pi has none). Afterwards
clew import, or clew watch, brings back what the agent has added, as a fork of the thread.

--run starts the agent; without it the command is printed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from pathlib import Path

from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import one_line, plural
from clew.core.errors import Unsupported
from clew.interchange.handover import NO_PLACE
from clew.interchange.resume import AGENTS, Resumed, resume


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument(
        "--in",
        dest="agent",
        choices=AGENTS,
        required=True,
        metavar="AGENT",
        help=", ".join(AGENTS),
    )
    parser.add_argument(
        "--workspace", metavar="DIR", help="the folder to work in; default: the thread's"
    )
    parser.add_argument("--run", action="store_true", help="start the agent")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("resume", options, look=True) as thread:
        _check_folder(options.workspace, thread.info.workspace)
        done = resume(
            thread, options.agent, workspace=options.workspace, home=Path.home(), environ=os.environ
        )
    if options.json:
        screen.json(
            {
                "agent": done.agent,
                "session": done.session,
                "path": str(done.path),
                "workspace": done.workspace,
                "before": done.before,
                "command": done.command,
                "line": done.line,
                "is_new": done.is_new,
                "changes": json_value(done.changes),
                "helpers": [str(path) for path in done.helpers],
            }
        )
    else:
        _tell(done, screen)
    if not options.run:
        return _exits.OK
    screen.flush()
    return _start(done)


def _start(done: Resumed) -> int:
    """Start the agent, on this terminal; the exit code is its own."""
    try:
        for command in done.before:
            subprocess.run(command, cwd=done.workspace, check=True)
        return subprocess.run(done.command, cwd=done.workspace).returncode
    except FileNotFoundError as error:
        raise Unsupported(f"{error.filename} cannot be started here; run: {done.line}") from None
    except subprocess.CalledProcessError as error:
        raise Unsupported(f"{shlex.join(error.cmd)} failed; run: {done.line}") from None


def _tell(done: Resumed, screen: Screen) -> None:
    counts: dict[str, list[str]] = {}
    for change in done.changes:
        # What was left out is counted already, kind by kind.
        sort = change.text if change.name == NO_PLACE else change.name
        counts.setdefault(sort, []).append(change.text)
    for texts in counts.values():
        more = f", and {len(texts) - 1:,} more like this" if len(texts) > 1 else ""
        screen.note(f"{texts[0]}{more}")
    verb = "wrote" if done.is_new else "is there already:"
    screen.note(f"{verb} {done.path}")
    if done.helpers:
        screen.note(f"and {plural(len(done.helpers), 'file')} of sub-agents")
    screen.line(done.line, fit=False)


def _check_folder(given: str | None, own: str | None) -> None:
    """Before a session is written that the agent could not go on with: it works in the folder."""
    folder = given if given is not None else own
    if not folder:
        raise _exits.UsageError("the thread names no folder to work in: say --workspace DIR")
    if not os.path.isdir(folder):
        where = "" if given is not None else ", where the thread was; say --workspace DIR"
        raise _exits.UsageError(f"there is no folder {one_line(folder)}{where}")
