"""Write one thread as one file, forks made whole, in the form that its reader wants.

The form "clew" has the lines of a store of files (docs/format/files.md): every record with its
time, body and hash. Put into the threads folder of such a store under the same name, it is a
thread there. The file that is made must not be there yet.

A page (html) and a transcript (markdown) are for people: secrets in them are replaced by
[redacted: …], and the command says how many there were; --json names each place. It knows the
secrets that have a shape, such as keys of services, by the rules of gitleaks: read what you share.

With --all, and no THREAD, it writes every thread that the filters let through, archived ones too:
the form "training" as one file in which no example comes twice, every other form as a file for
each thread in the folder that --out names. A thread that cannot be written is named at the end.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.cli import _exits
from clew.cli._arguments import add_object, add_thread
from clew.cli._filters import add_filters, filtered
from clew.cli._json import json_value
from clew.cli._screen import Bar, Screen
from clew.cli._stores import open_to_look, opened_thread
from clew.cli._text import one_line, plural, size
from clew.core.errors import AlreadyExists, ClewError
from clew.interchange.export import (
    FORMS,
    THREAD_LEFT_OUT,
    Change,
    Exported,
    export,
    export_all,
    file_name,
    start,
    start_all,
)
from clew.store import Store
from clew.thread import Thread

if TYPE_CHECKING:
    from clew.usage.model import Used

_ONE_FILE = ("training",)  # forms that have many threads in one file
_FILTERS = "tag workspace agent status parent origin roots since until".split()


def prepared(rest: Sequence[str]) -> list[str]:
    """With --all there is no THREAD, and what stands there alone is the store."""
    return [*rest, ""] if "--all" in rest else list(rest)


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    # With --all and a THREAD, one word more than there are places: it has one, to be explained.
    parser.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument(
        "--all", action="store_true", help="in place of THREAD: all that fit --tag, --since, …"
    )
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
    add_filters(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    how: dict[str, Any] = {"redact": options.redact, "entropy": options.redact_entropy}
    if options.redact_entropy and options.redact is None:
        how["redact"] = True
    if options.more:
        if not options.all:
            raise _exits.UsageError(f"unrecognized arguments: {' '.join(options.more)}")
        named = one_line(options.thread)
        raise _exits.UsageError(
            f"--all exports every thread, and {named!r} is one: leave out one of them"
            " (--tag, --agent, --since and others choose among all)"
        )
    if options.all:
        with open_to_look(options.store, options.namespace) as store:
            write = _one_file if options.form in _ONE_FILE else _many_files
            return write(store, options, screen, how)
    said = [name for name in _FILTERS if getattr(options, name)]
    if said:
        raise _exits.UsageError(f"--{said[0]} chooses among many threads: say --all, too")
    with opened_thread("export", options, look=True) as thread:
        if options.out == "-":
            writing, pieces = start(thread, options.form, **how)
            _print(pieces, screen)
            _tell(writing.changes, screen)
            return _exits.OK
        with _new_file():
            done = export(thread, options.out or None, options.form, **how)
    if options.json:
        screen.json(_told(done))
        return _exits.OK
    screen.line(("exported", "bold green"), f" {size(done.size)} to {done.path}")
    _tell(done.changes, screen)
    return _exits.OK


def _one_file(
    store: Store, options: argparse.Namespace, screen: Screen, how: dict[str, Any]
) -> int:
    found = [Thread(store, info.id) for info in filtered(store, options)]
    with screen.bar("export") as bar:
        threads = _counted(found, bar)
        if options.out == "-":
            writing, pieces = start_all(threads, options.form, **how)
            _print(pieces, screen)
            changes = writing.changes
        else:
            with _new_file():
                out = options.out or f"threads{FORMS[options.form].ending}"
                done = export_all(threads, out, options.form, **how)
            changes = done.changes
    if options.out != "-":
        if options.json:
            screen.json({"threads": len(found), **_told(done)})
        else:
            told = f" {plural(len(found), 'thread')}, {size(done.size)} to {done.path}"
            screen.line(("exported", "bold green"), told)
    if not options.json:
        _tell(changes, screen)
    left = any(change.name == THREAD_LEFT_OUT for change in changes)
    return _exits.DAMAGE if left else _exits.OK


def _many_files(
    store: Store, options: argparse.Namespace, screen: Screen, how: dict[str, Any]
) -> int:
    if options.out in (None, "-"):
        text = f"--as {options.form} makes a file of each thread: say which folder, --out FOLDER"
        raise _exits.UsageError(text)
    folder = Path(options.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _exits.UsageError(f"{folder}: {error.strerror}") from None
    found = [Thread(store, info.id) for info in filtered(store, options)]
    used = _used(store, found) if FORMS[options.form].is_for_people else {}
    done: list[Exported] = []
    failed: dict[str, str] = {}
    with screen.bar("export") as bar:
        for thread in _counted(found, bar):
            target = folder / file_name(thread, options.form)
            try:
                given = used.get(thread.id)
                done.append(export(thread, target, options.form, used=given, **how))
            except AlreadyExists as error:
                failed[thread.id] = f"{error.id} is there already"
            except ClewError as error:
                if error.code in ("unavailable", "closed", "unsupported"):
                    raise
                failed[thread.id] = str(error)
    changes = [change for one in done for change in one.changes]
    if options.json:
        files = [_told(one) for one in done]
        screen.json({"threads": len(found), "folder": str(folder), "files": files, "left": failed})
    else:
        for id, reason in failed.items():
            screen.line(("left out: ", "bold"), f"{one_line(id)}: {one_line(reason)}")
        written = sum(one.size for one in done)
        told = f" {plural(len(done), 'thread')}, {size(written)} to {folder}"
        screen.line(("exported", "bold green"), told)
        _tell(changes, screen)
    return _exits.DAMAGE if failed else _exits.OK


def _used(store: Store, threads: list[Thread]) -> dict[str, Used]:
    """What the threads took, which forms for people say: asked once, not by each of them."""
    from clew.usage import usage_of

    return usage_of(store, [thread.id for thread in threads])


def _counted(threads: list[Thread], bar: Bar) -> Iterator[Thread]:
    for number, thread in enumerate(threads):
        bar(number, len(threads))
        yield thread


def _print(pieces: Iterator[bytes], screen: Screen) -> None:
    for piece in pieces:
        screen.bytes(piece)
    screen.flush()


def _told(done: Exported) -> dict[str, Any]:
    changes = [json_value(change) for change in done.changes]
    return {"path": str(done.path), "size": done.size, "changes": changes}


@contextmanager
def _new_file() -> Iterator[None]:
    """A file that is there, or cannot be made, is a mistake on the command line."""
    try:
        yield
    except AlreadyExists as error:
        text = f"{error.id} is there already; nothing was written. --out names another file"
        raise _exits.UsageError(text) from None


def _tell(changes: list[Change], screen: Screen) -> None:
    """What is not in the file as it is in the thread, by the sort of it."""
    for name, number in Counter(change.name for change in changes).items():
        first = one_line(next(change.text for change in changes if change.name == name))
        if name == "secret":
            first = f"replaced {plural(number, 'secret')}, such as {first}"
        elif number > 1:
            first = f"{first}, and {number - 1:,} more like this"
        screen.note(f"{first}; --json names every place")
