"""Bring the sessions that agents keep in files of their own into a store, or those of a framework.

PATH is a session file, or a folder of them, of Claude Code, Codex, pi and others, or a file of
clew export (--as clew or bundle); whose it is shows in what it holds. With --all, or with --agent
NAME alone, everything that agents have left in your home folder is brought. Without arguments the
command says what there is, and asks.

Files are only read. Run it again to bring what is new: what has not changed is not opened. Nothing
of a file is dropped: what is no message is kept as well, and what could not be brought is named;
exit code 1 says so.

clew import KIND FILE [STORE] brings the store of a framework: langgraph-sqlite (SqliteSaver),
openai-sqlite (SQLiteSession and AdvancedSQLiteSession of the OpenAI Agents SDK) or adk-sqlite
(SqliteSessionService of Google's Agent Development Kit). It needs the framework, because the
adapter does: clew[langgraph], clew[openai-agents], clew[google-adk].
"""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from pathlib import Path

import clew
from clew.cli import _exits
from clew.cli._arguments import add_namespace, add_redact_at_import, add_store_option
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import named
from clew.cli._text import plural, size
from clew.core.errors import Unsupported
from clew.interchange import bundle, tree
from clew.interchange.registry import AGENTS
from clew.interchange.report import Report

_ADAPTERS = {
    "adk-sqlite": "google_adk",
    "langgraph-sqlite": "langgraph",
    "openai-sqlite": "openai_agents",
}
_SHOWN = 20  # files that are named; --json has all of them
# What a file had that its agent would stumble over, and that an import keeps: as people call it.
_ODD = {
    "glued": "lines with several records",
    "invalid_utf8": "lines that are not UTF-8",
    "not_json": "lines that are no JSON",
    "inexact": "records that JSON cannot carry exactly",
    "loop": "records that hang on themselves",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="*", help="session files, or folders")
    parser.add_argument("--agent", metavar="NAME", choices=AGENTS, help=", ".join(AGENTS))
    parser.add_argument("--all", action="store_true", help="everything in your home folder")
    add_store_option(parser)
    add_namespace(parser, "the part of the store that is meant; default: default")
    add_redact_at_import(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be brought")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.paths and options.paths[0] in _ADAPTERS:
        return _bring_framework(options, screen)
    paths = [Path(path) for path in options.paths]
    for kind, adapter in _ADAPTERS.items():
        names = (kind.removesuffix("-sqlite"), adapter.replace("_", "-"))
        if paths and options.paths[0] in names and not paths[0].exists():
            raise _exits.UsageError(f"say clew import {kind} FILE [STORE] for a file of that")
    if not paths:
        paths = _find(options, screen)
        if not paths:
            return _exits.OK
    with (
        clew.open(options.store, **named(options.namespace)) as store,
        screen.bar("import") as bar,
    ):
        done = tree.bring_all(
            store,
            paths,
            agent=options.agent,
            dry_run=options.dry_run,
            redact=options.redact_at_import,
            progress=bar,
        )
    _tell(done, options, screen)
    return _exits.DAMAGE if done.left else _exits.OK


def _find(options: argparse.Namespace, screen: Screen) -> list[Path]:
    """The folders of this machine's agents; none if the user does not want them."""
    found = tree.survey(Path.home(), os.environ, options.agent)
    if not options.json:
        for one in found:
            sessions = plural(len(one.files), "file")
            screen.line((one.agent, "bold"), f"  {sessions}, {size(one.size)}  {one.place}")
    if not found:
        screen.line("no agent has left sessions in this home folder; name a file or a folder")
    elif not (options.all or options.agent or options.dry_run):
        said = None if options.json else screen.ask("bring them into the store?")
        if said is None:
            raise _exits.UsageError("say --all to bring everything, or name a file or a folder")
        if not said:
            screen.line("nothing was brought")
            return []
    return [one.place for one in found]


def _tell(done: Report, options: argparse.Namespace, screen: Screen) -> None:
    if options.json:
        screen.json(done.as_json())
        return
    for file in done.left[:_SHOWN]:
        reason = file.reason or "; ".join(file.places) or ", ".join(file.notes)
        screen.line(("left out: ", "bold"), f"{file.path}: {reason}")
    if len(done.left) > _SHOWN:
        screen.line(f"… and {len(done.left) - _SHOWN} more; --json names all of them")
    verb = "would import" if done.dry_run else "imported"
    for agent, sums in done.totals().items():
        if not sums["imported"] and not sums["unchanged"]:
            continue  # they were told above
        unit = "record" if agent == bundle.AGENT else "entry"  # moves and facts come along there
        told = f"{verb} {plural(sums['entries'], unit)} of {plural(sums['files'], 'file')}"
        known = sums["known"]
        told += f", {known:,} {'was' if known == 1 else 'were'} there already" if known else ""
        told += f", {plural(sums['unchanged'], 'file')} unchanged" if sums["unchanged"] else ""
        screen.line((agent, "bold green"), f"  {told}")
    odd: dict[str, int] = {}
    for file in done.files:
        for name in file.notes.keys() & _ODD.keys():
            odd[name] = odd.get(name, 0) + file.notes[name]
    if odd:
        told = ", ".join(f"{_ODD[name]} ({number:,})" for name, number in sorted(odd.items()))
        screen.note(f"kept as it stands: {told}; --json says where")
    if done.unknown:
        count = plural(len(done.unknown), "file")
        screen.note(f"no agent that is known here: {count}, such as {done.unknown[0]}")
    replaced = sum(file.notes.get("redacted", 0) for file in done.files)
    if replaced:
        screen.line(f"replaced {plural(replaced, 'secret')}; --json says where")


# --- frameworks ------------------------------------------------------------------------------


def _bring_framework(options: argparse.Namespace, screen: Screen) -> int:
    kind, *rest = options.paths
    if not 1 <= len(rest) <= 2:
        raise _exits.UsageError(f"say which file: clew import {kind} FILE [STORE]")
    file, into = rest[0], rest[1] if len(rest) == 2 else options.store
    if not os.path.isfile(file):
        raise _exits.UsageError(f"there is no file {file}")
    try:
        adapter = import_module(f"clew.adapters.{_ADAPTERS[kind]}")
    except ImportError as error:
        raise Unsupported(f"{kind}: {error}") from error
    with clew.open(into, **named(options.namespace)) as store, screen.bar("import") as bar:
        done = adapter.import_sqlite(file, store, progress=bar)
    if options.json:
        screen.json(json_value(done))
    else:
        for reason in done.left:
            screen.line(("left out: ", "bold"), reason)
        written = f" {plural(done.entries, 'entry')} in {plural(done.threads, 'thread')}"
        screen.line(("imported", "bold green"), written)
    return _exits.DAMAGE if done.left else _exits.OK
