"""Write one thread as one file, forks made whole, in the form that its reader wants.

The form "clew" has the lines of a store of files (docs/format/files.md): every record with its
time, body and hash. Put into the threads folder of such a store under the same name, it is a
thread there. The file that is made must not be there yet.

A page (html) and a transcript (markdown) are for people: secrets in them are replaced by
[redacted: …], and the command says how many there were; --json names each place. It knows the
secrets that have a shape, such as keys of services, by the rules of gitleaks: read what you share.
"""

from __future__ import annotations

import argparse
from collections import Counter

from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import opened_thread
from clew.cli._text import one_line, plural, size
from clew.core.errors import AlreadyExists
from clew.interchange.export import FORMS, Change, export, start


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument(
        "--as",
        dest="form",
        choices=FORMS,
        default="clew",
        metavar="FORM",
        help="; ".join(f"{name}: {form.about}" for name, form in FORMS.items()),
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="where to; - is standard output; default: named by the thread, here",
    )
    parser.add_argument(
        "--redact",
        action=argparse.BooleanOptionalAction,
        help="replace secrets; default: in html and markdown",
    )
    parser.add_argument(
        "--redact-entropy",
        action="store_true",
        help="also replace whatever looks random, which is often no secret",
    )
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    redact = True if options.redact_entropy and options.redact is None else options.redact
    with opened_thread("export", options, look=True) as thread:
        if options.out == "-":
            writing, pieces = start(
                thread, options.form, redact=redact, entropy=options.redact_entropy
            )
            for piece in pieces:
                screen.bytes(piece)
            screen.flush()
            _tell(writing.changes, screen)
            return _exits.OK
        try:
            done = export(
                thread,
                options.out or None,
                options.form,
                redact=redact,
                entropy=options.redact_entropy,
            )
        except AlreadyExists as error:
            raise _exits.UsageError(f"{error.id} is there already; nothing was written") from None
    if options.json:
        changes = [json_value(change) for change in done.changes]
        screen.json({"path": str(done.path), "size": done.size, "changes": changes})
        return _exits.OK
    screen.line(("exported", "bold green"), f" {size(done.size)} to {done.path}")
    _tell(done.changes, screen)
    return _exits.OK


def _tell(changes: list[Change], screen: Screen) -> None:
    """What is not in the file as it is in the thread, by the sort of it."""
    for name, number in Counter(change.name for change in changes).items():
        first = one_line(next(change.text for change in changes if change.name == name))
        if name == "secret":
            first = f"replaced {plural(number, 'secret')}, such as {first}"
        elif number > 1:
            first = f"{first}, and {number - 1:,} more like this"
        screen.note(f"{first}; --json names every place")
