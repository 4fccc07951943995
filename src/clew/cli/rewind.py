"""Go back to before a user message: the conversation, the files, or both as one step.

MESSAGE is the number that clew show prints before it, its id, or the first letters of that; without
--to it is the last user message. The files go back to the snapshot that belongs to it. Says first
what it would do, and asks. Files that another program changed since the last snapshot stop it (exit
code 4) unless --force. Nothing is lost: clew undo takes it back.
"""

from __future__ import annotations

import argparse
from typing import Any

from clew.cli import _exits, _files
from clew.cli._arguments import add_consent, add_object, add_thread, consent
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import preview
from clew.core.errors import NotFound
from clew.core.model import Entry
from clew.snapshots.model import Rewound
from clew.snapshots.preflight import refuse
from clew.snapshots.rewind import rewind
from clew.thread import Thread


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--to", metavar="MESSAGE", help="default: the last user message")
    parser.add_argument("--files", action="store_true", help="only the files")
    parser.add_argument("--conversation", action="store_true", help="only the conversation")
    parser.add_argument("--root", metavar="FOLDER", help="default: where the snapshot was taken")
    add_consent(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("rewind", options, look=options.dry_run) as thread:
        message = find_message(thread, options.to)
        planned = _rewind(thread, message, options, dry_run=True)
        if not options.json:
            _draw(screen, message, planned)
        if options.dry_run:
            done = planned
        else:
            if planned.files is not None:
                refuse(planned.files.plan, force=options.force)
            if not consent(screen, options, "go back?"):
                return _exits.OK
            with screen.bar("rewind") as bar:
                done = _rewind(thread, message, options, dry_run=False, progress=bar)
    if options.json:
        screen.json(json_value(done))
    elif not options.dry_run:
        files = "" if done.files is None else f": {_files.counts(done.files.plan)}"
        screen.line(("rewound", "bold green"), f"{files}; clew undo takes it back")
    return _exits.OK


def _rewind(thread: Thread, message: Entry, options: argparse.Namespace, **ways: Any) -> Rewound:
    try:
        return rewind(
            thread,
            message.id,
            conversation=options.conversation or not options.files,
            files=options.files or not options.conversation,
            root=options.root,
            force=options.force,
            **ways,
        )
    except NotFound as error:
        if not error.what.startswith("snapshot for"):
            raise
        text = f"there is no snapshot of the files for message {message.id}"
        raise _exits.UsageError(f"{text}; --conversation goes back without them") from None


def find_message(thread: Thread, named: str | None) -> Entry:
    """A user message by its number, its id or the beginning of that; None asks for the last."""
    found = [entry for entry in thread.path() if entry.kind == "user_message"]
    if named is None:
        if not found:
            raise _exits.UsageError("there is no user message to go back to")
        return found[-1]
    exact = [entry for entry in found if named in (entry.id, str(entry.seq))]
    if not exact:
        exact = [entry for entry in found if entry.id.startswith(named)]
    if len(exact) > 1:
        own = [entry for entry in exact if named == entry.id]
        if not own:
            raise _exits.UsageError(f"{named!r} names {len(exact)} messages; give more of the id")
        exact = own
    if exact:
        return exact[0]
    try:
        return thread.get(named)  # perhaps on another branch
    except NotFound:
        raise NotFound("user message", named) from None


def _draw(screen: Screen, message: Entry, planned: Rewound) -> None:
    if planned.moved:
        screen.line(
            ("conversation", "bold"), f" to before message {message.seq}: ", preview(message)
        )
    if planned.files is not None:
        _files.draw(screen, planned.files.plan)
