"""Write what comes from a file or a pipe to the end of a thread.

Text is one message, of a user unless --role says otherwise. With --json-in it is JSON: one value a
line, or a list of them. Each is a message as a provider has it (--format names whose it is), or
with --kind the body of an entry of that kind. All of it is written in one step, or nothing is.
"""

from __future__ import annotations

import argparse

from clew import messages, tree
from clew.cli import _exits
from clew.cli._arguments import add_json, add_thread
from clew.cli._input import read_json, read_text
from clew.cli._json import record_value
from clew.cli._screen import Screen
from clew.cli._stores import find_entry, opened_thread
from clew.cli._text import plural
from clew.core.drafts import draft
from clew.core.model import EntryDraft
from clew.messages.incoming import message_drafts
from clew.messages.neutral import calls_of
from clew.thread import Thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--file", default="-", metavar="FILE", help="default: -, standard input")
    parser.add_argument(
        "--role", choices=("user", "assistant", "system"), help="whose text it is; default: user"
    )
    parser.add_argument("--json-in", action="store_true", help="what comes is JSON")
    parser.add_argument("--format", metavar="F", help="the format of the messages: anthropic, …")
    parser.add_argument("--kind", metavar="K", help="what comes are bodies of entries of this kind")
    parser.add_argument(
        "--expect", metavar="ENTRY", help="only if the thread stands on this entry (exit code 4)"
    )
    add_json(parser, "each entry that was written")


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.role and (options.json_in or options.kind):
        raise _exits.UsageError("--role is for text; messages in JSON have theirs")
    with opened_thread("append", options) as thread:
        if options.json_in or options.kind:
            batch = _drafts(options, screen, thread)
        else:
            text = read_text(screen, options.file).removesuffix("\n")
            message = {"role": options.role or "user", "content": text}
            batch = message_drafts([message], options.format, clock=thread.store.clock)
        if options.expect is not None:
            written = thread.append(batch, expect=find_entry(thread, options.expect).id)
        else:
            written = thread.append(batch)
    for entry in written if options.json else ():
        screen.json(record_value(entry))
    if not options.json:
        numbers = ", ".join(str(entry.seq) for entry in written[:3])
        more = ", …" if len(written) > 3 else ""
        what = f" {plural(len(written), 'entry')}: {numbers}{more}"
        screen.line(("appended", "bold green"), what)
    return _exits.OK


def _drafts(options: argparse.Namespace, screen: Screen, thread: Thread) -> list[EntryDraft]:
    values = read_json(screen, options.file)
    if not values:
        raise _exits.UsageError("there is nothing in the list, and nothing was written")
    if options.kind:
        form, clock = options.format, thread.store.clock
        return [draft(options.kind, value, format=form, clock=clock) for value in values]
    made = {
        call.id
        for value in values
        for message in messages.view(options.format, value)
        for call in calls_of(message)
    }
    # A result must answer a call on the path, or one that comes with it.
    return message_drafts(
        values,
        options.format,
        unknown_calls=lambda ids: ids - made - tree.calls(thread, ids).keys(),
        clock=thread.store.clock,
    )
