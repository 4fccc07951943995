"""Let a summary stand for all but the newest turns in what providers get. Nothing is deleted.

The summary comes from standard input, from a file (--summary FILE), or from a command (--with):
it gets the text that is to be summed up on its standard input and writes the summary to its
standard output. It is run as it is, without a shell. --undo takes the last compaction back.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
from typing import Any

from clew import messages
from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread, count
from clew.cli._input import read_text
from clew.cli._json import record_value
from clew.cli._screen import Screen
from clew.cli._stores import command_line, find_entry, opened_thread
from clew.cli._text import part_text, plural
from clew.core.model import Entry
from clew.thread import Thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--summary", default="-", metavar="FILE", help="default: -, standard input")
    ways.add_argument("--with", dest="command", metavar="CMD", help="the command that sums up")
    ways.add_argument("--undo", action="store_true", help="take the last compaction back")
    parser.add_argument("--keep-turns", type=count, metavar="N", help="the newest turns that stay")
    parser.add_argument("--keep-tokens", type=count, metavar="N", help="about so many tokens stay")
    parser.add_argument("--through", metavar="ENTRY", help="the last entry that is summed up")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("compact", options) as thread:
        if options.undo:
            return _undo(screen, thread, options)
        entry = _compact(screen, thread, options)
        found = None if entry is None else thread.compaction()
        if options.json:
            value = None if entry is None else record_value(entry)
            screen.json({"thread": thread.id, "compaction": value})
        elif entry is None or found is None:
            screen.line("nothing to sum up: there is nothing before the turns that stay")
        else:
            what = plural(len(found.stands_for), "entry")
            screen.line(("compacted", "bold green"), f": the summary stands for {what}")
            undo = command_line("compact", options, thread.id, "--undo")
            screen.note(f"{undo} takes it back")
    return _exits.OK


def _compact(screen: Screen, thread: Thread, options: argparse.Namespace) -> Entry | None:
    keep: dict[str, Any] = {
        "keep_turns": options.keep_turns,
        "keep_tokens": options.keep_tokens,
        "through": options.through and find_entry(thread, options.through).id,
    }
    if options.command is not None:
        return thread.compact(lambda found: _asked(options.command, found), trigger="user", **keep)
    summary = read_text(screen, options.summary).strip()
    return thread.compact(summary=summary, trigger="user", **keep)


def _asked(command: str, found: list[Any]) -> str:
    """What a command makes of the messages."""
    text = "\n\n".join(_told(message) for message in found)
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words, input=text.encode("utf-8", "replace"), stdout=subprocess.PIPE, check=False
        )
    except (OSError, ValueError) as error:
        text = f"{command!r} cannot be run: {error}; nothing was written"
        raise _exits.UsageError(text) from None
    if done.returncode != 0:
        said = f"{command!r} ended with exit code {done.returncode}"
        raise _exits.UsageError(f"{said}; nothing was written")
    summary = done.stdout.decode("utf-8", "replace").strip()
    if not summary:
        raise _exits.UsageError(f"{command!r} printed no summary; nothing was written")
    return summary


def _told(message: Any) -> str:
    said = [part for one in messages.view(None, message) for part in one.parts]
    role = message.get("role", "message") if isinstance(message, dict) else "message"
    return f"{role}: " + "\n".join(map(part_text, said))


def _undo(screen: Screen, thread: Thread, options: argparse.Namespace) -> int:
    undone = thread.uncompact()
    if options.json:
        value = None if undone is None else record_value(undone)
        screen.json({"thread": thread.id, "undone": value})
    elif undone is None:
        screen.line("no compaction is in force; nothing was changed")
    else:
        screen.line(("undone", "bold green"), f": compaction {undone.seq}")
    return _exits.OK
