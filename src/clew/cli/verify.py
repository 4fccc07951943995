"""Read everything in a store: every hash, chain, reference and index.

Prints what was read and each problem with its place. Exit code 0: all is whole; 1: damage;
7: blobs are missing and nothing else is wrong; 8: the store cannot be read at all.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from clew.cli import _exits
from clew.cli._arguments import add_store
from clew.cli._render import Screen
from clew.cli._stores import open_existing
from clew.cli._text import plural
from clew.errors import ClewError, Corrupt, Unsupported
from clew.model import Problem, Stats
from clew.opening import locate
from clew.store import Store

_NOT_READ = "the bodies of entries and the contents of blobs; without --quick they are"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "--quick", action="store_true", help="read the structure only, no bodies and no blobs"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(options: argparse.Namespace, screen: Screen) -> int:
    try:
        store = open_existing(options.store)
    except (Corrupt, Unsupported) as error:
        if isinstance(error, Unsupported) and not _was_a_store(options.store):
            raise
        return _report_unreadable(screen, options, error)
    with store:
        if options.json:
            return _report_json(screen, store, quick=options.quick)
        return report(screen, store, quick=options.quick)


def report(screen: Screen, store: Store, *, quick: bool = False) -> int:
    """Verify, say what came out, and give the exit code for it."""
    with screen.bar("verify") as bar:
        problems = store.verify(quick=quick, progress=bar)
    for problem in problems:
        screen.line((_place(problem), "red"), ": ", problem.message, fit=False)
    screen.line("read ", _extent(_stats(store)))
    if quick:
        screen.line("not read: ", _NOT_READ)
    code = code_of(problems)
    if code == _exits.OK:
        said = "nothing wrong in what was read" if quick else "everything is as it was written"
        screen.line(("whole", "bold green"), ": ", said)
    elif code == _exits.MISSING_BLOBS:
        screen.line((f"missing: {_blobs(problems)}", "bold red"), "; all else is whole")
        screen.line("put them again if you have the bytes; clew repair notes them as lost")
    else:
        screen.line("clew repair makes a new store of what can be read, and keeps this one")
        screen.line((f"damaged: {plural(len(problems), 'problem')}", "bold red"))
    return code


def code_of(problems: list[Problem]) -> int:
    if not problems:
        return _exits.OK
    missing = all(problem.code == "missing_blob" for problem in problems)
    return _exits.MISSING_BLOBS if missing else _exits.DAMAGE


def _blobs(problems: list[Problem]) -> str:
    return plural(len({problem.blob for problem in problems if problem.blob is not None}), "blob")


def _report_json(screen: Screen, store: Store, *, quick: bool) -> int:
    with screen.bar("verify") as bar:
        problems = store.verify(quick=quick, progress=bar)
    stats = _stats(store)
    value = {
        "place": store.properties.place,
        "whole": not problems,
        "read": None if stats is None else msgspec.to_builtins(stats),
        "problems": msgspec.to_builtins(problems),
    }
    screen.json(value | {"not_read": ["bodies", "blobs"]} if quick else value)
    return code_of(problems)


# --- a store that cannot be opened ---


def _was_a_store(address: str | None) -> bool:
    """Whether Clew has had it open before: then it is not somebody else's file."""
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


def _stats(store: Store) -> Stats | None:
    try:
        return store.stats()
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
        ("thread", problem.thread),
        ("record", problem.seq),
        ("entry", problem.entry),
        ("blob", problem.blob),
    )
    found = [f"{what} {which}" for what, which in named if which is not None]
    return ", ".join(found) or "store"
