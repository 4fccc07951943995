"""Read everything in a store: every hash, chain, reference and index, of every namespace.

Prints what was read and each problem with its place. Exit code 0: all is whole; 1: damage;
7: blobs are missing and nothing else is wrong; 8: the store cannot be read at all.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import msgspec

from clew.address import is_postgres, locate, open_engine, open_whole
from clew.cli import _exits
from clew.cli._arguments import add_store
from clew.cli._screen import Screen
from clew.cli._stores import existing
from clew.cli._text import plural
from clew.core.engine import Engine, Progress
from clew.core.errors import ClewError, Corrupt, Unsupported
from clew.core.maintenance import Whole
from clew.core.model import DEFAULT_NAMESPACE, Problem, Stats

_REPAIR = "clew repair makes a new store of what can be read, and keeps this one"
_BACKUP = "restore the server's backup; clew copy makes a new store of what can be read"
_NOT_READ = "the bodies of entries and the contents of blobs; without --quick they are"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser, namespace="only this part of the store; default: all of them")
    parser.add_argument(
        "--quick", action="store_true", help="read the structure only, no bodies and no blobs"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


class Checked(Protocol):
    """What can be verified: a namespace, or a whole store."""

    def check(self, *, quick: bool, progress: Progress | None) -> Iterator[Problem]: ...

    def stats(self) -> Stats: ...


def run(options: argparse.Namespace, screen: Screen) -> int:
    try:
        with existing(options.store):
            place, names, found = _open(options)
    except (Corrupt, Unsupported) as error:
        if isinstance(error, Unsupported) and not _was_a_store(options.store):
            raise
        return _report_unreadable(screen, options, error)
    with closing(found):
        if not options.json:
            served = is_postgres(options.store)
            return report(screen, found, quick=options.quick, namespaces=len(names), served=served)
        return _report_json(screen, found, place, names, quick=options.quick)


def _open(options: argparse.Namespace) -> tuple[str, list[str], Engine | Whole]:
    """The place, the namespaces that are looked at, and what can be asked about them."""
    if options.namespace is None:
        whole = open_whole(options.store)
        return whole.place, _names(whole), whole
    engine = open_engine(options.store, create=False, namespace=options.namespace)
    return engine.properties.place, [options.namespace], engine


def _names(whole: Whole) -> list[str]:
    try:
        return whole.namespaces()
    except ClewError:
        return []  # too damaged; the problems say so


def report(
    screen: Screen,
    found: Checked,
    *,
    quick: bool = False,
    namespaces: int = 1,
    served: bool = False,
) -> int:
    """Verify, say what came out, and give the exit code for it."""
    with screen.bar("verify") as bar:
        problems = list(found.check(quick=quick, progress=bar))
    for problem in problems:
        screen.line((_place(problem), "red"), ": ", problem.message, fit=False)
    several = f" in {namespaces:,} namespaces" if namespaces > 1 else ""
    screen.line("read ", _extent(_stats(found)), several)
    if quick:
        screen.line("not read: ", _NOT_READ)
    code = code_of(problems)
    if code == _exits.OK:
        said = "nothing wrong in what was read" if quick else "everything is as it was written"
        screen.line(("whole", "bold green"), ": ", said)
    elif code == _exits.MISSING_BLOBS:
        screen.line((f"missing: {_blobs(problems)}", "bold red"), "; all else is whole")
        noted = "" if served else "; clew repair notes them as lost"
        screen.line(f"put them again if you have the bytes{noted}")
    else:
        screen.line(_BACKUP if served else _REPAIR)
        screen.line((f"damaged: {plural(len(problems), 'problem')}", "bold red"))
    return code


def code_of(problems: list[Problem]) -> int:
    if not problems:
        return _exits.OK
    missing = all(problem.code == "missing_blob" for problem in problems)
    return _exits.MISSING_BLOBS if missing else _exits.DAMAGE


def _blobs(problems: list[Problem]) -> str:
    return plural(len({problem.blob for problem in problems if problem.blob is not None}), "blob")


def _report_json(
    screen: Screen, found: Checked, place: str, names: list[str], *, quick: bool
) -> int:
    with screen.bar("verify") as bar:
        problems = list(found.check(quick=quick, progress=bar))
    stats = _stats(found)
    value = {
        "place": place,
        "namespaces": names,
        "whole": not problems,
        "read": None if stats is None else msgspec.to_builtins(stats),
        "problems": msgspec.to_builtins(problems),
    }
    screen.json(value | {"not_read": ["bodies", "blobs"]} if quick else value)
    return code_of(problems)


# --- a store that cannot be opened ---


def _was_a_store(address: str | None) -> bool:
    """Whether Clew has had it open before: then it is not somebody else's file."""
    if is_postgres(address):
        return False
    engine, path = locate(address)
    if path is None:
        return False
    if engine == "files":
        return (path / "threads").is_dir()
    return Path(f"{path}-lock").exists()


def _report_unreadable(screen: Screen, options: argparse.Namespace, error: ClewError) -> int:
    if options.json:
        problem = Problem(code="unreadable", message=str(error))
        place = str(locate(options.store)[1])
        problems = msgspec.to_builtins([problem])
        screen.json({"place": place, "whole": False, "read": None, "problems": problems})
    else:
        screen.error(
            f"{error}. The store cannot be read at all, and nothing was changed; clew repair makes "
            "a new one of what can still be found in it"
        )
    return _exits.UNREADABLE


# --- words ---


def _stats(found: Checked) -> Stats | None:
    try:
        return found.stats()
    except ClewError:
        return None  # too damaged to count; the problems say so


def _extent(stats: Stats | None) -> str:
    if stats is None:
        return "as far as it can be read; it cannot be counted"
    deleted = f" and {stats.deleted:,} deleted" if stats.deleted else ""
    return ", ".join(
        [
            plural(stats.threads, "thread") + deleted,
            plural(stats.entries, "entry"),
            plural(stats.records, "record"),
            plural(stats.blobs, "blob"),
            f"{-(-stats.stored_bytes // 1024):,} KB",
        ]
    )


def describe(problem: Problem) -> str:
    """A problem with its place, in one line."""
    return f"{_place(problem)}: {problem.message}"


def _place(problem: Problem) -> str:
    named = (
        ("namespace", problem.namespace),
        ("thread", problem.thread),
        ("record", problem.seq),
        ("entry", problem.entry),
        ("blob", problem.blob),
    )
    found = [f"{what} {which}" for what, which in named if which is not None]
    return ", ".join(found) or "store"


def told(namespace: str) -> str | None:
    """A namespace as reports name it: the default one not at all."""
    return None if namespace == DEFAULT_NAMESPACE else namespace
