"""Bring a store's format up to date: PostgreSQL's tables and functions, or a SQLite file.

Opening a store does the same; this is for those who want to say when, and for databases whose
schema belongs to another role: --sql prints the statements, to be run by the owner, and
clew.open(…, migrate=False) then leaves the schema alone. A PostgreSQL store that is not there yet
is made. --check changes nothing; exit code 9: there is something to do.

--rls switches row-level security on: from then on a role sees and writes only the namespaces that
--grant ROLE=NAMESPACE gave it. The owner of the tables is not held to it. What was granted to a
role that was dropped since is taken back, and said.
"""

from __future__ import annotations

import argparse

from clew.cli import _exits
from clew.cli._arguments import add_object, add_store
from clew.cli._exits import UsageError
from clew.cli._json import json_value
from clew.cli._screen import Screen
from clew.cli._stores import existing
from clew.core.maintenance import Grant, Migration
from clew.upkeep.migrate import migrate


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser, namespace=None)
    parser.add_argument("--check", action="store_true", help="only say whether it must be done")
    parser.add_argument("--sql", action="store_true", help="print the statements, run none")
    parser.add_argument("--rls", action="store_true", help="row-level security: roles for tenants")
    parser.add_argument(
        "--grant",
        action="append",
        default=[],
        metavar="ROLE=NAMESPACE",
        help="let a role use a namespace; can be given several times",
    )
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.check and (options.sql or options.grant):
        raise UsageError("--check changes nothing, and goes with --rls only")
    if options.grant and not options.rls:
        raise UsageError("--grant is a part of row-level security: say --rls too")
    grants = [Grant.parse(text) for text in options.grant]
    look = options.check or options.sql
    with existing(options.store):
        done = migrate(options.store, dry_run=look, rls=options.rls, grants=grants)
    if options.json:
        screen.json(json_value(done) | {"current": done.current, "dry_run": look})
        to_do = not done.current or (options.rls and not done.rls)
        return _exits.ATTENTION if options.check and to_do else _exits.OK
    if options.check:
        return _draw_state(screen, done, rls=options.rls)
    if options.sql:
        if done.sql is None:
            raise UsageError("--sql is for stores on a server: postgresql://user@host/database")
        screen.bytes((done.sql or f"-- {done.place} is up to date\n").encode())
        return _exits.OK
    return _draw_done(screen, done)


def _draw_state(screen: Screen, state: Migration, *, rls: bool = False) -> int:
    code = _exits.OK if state.current else _exits.ATTENTION
    if state.current:
        said = f": {state.place} has format {state.found}"
        screen.line(("up to date", "bold green"), said, fit=False)
    else:
        needs = f"has format {state.found}, and this Clew needs {state.known}"
        said = f": {state.place} {needs if state.found else 'is not set up'}"
        screen.line(("to be done", "bold red"), f"{said}; run: clew migrate", fit=False)
    if rls:
        off = ("off, or not on all tables", "red")
        screen.line("row-level security is ", "on" if state.rls else off)
        code = code if state.rls else _exits.ATTENTION
    return code


def _draw_done(screen: Screen, done: Migration) -> int:
    if done.current:
        _draw_state(screen, done)
    else:
        was = f"was brought from format {done.found} to {done.known}"
        said = was if done.found else f"made, with format {done.known}"
        screen.line(("done", "bold green"), f": {done.place} {said}", fit=False)
    if done.rls:
        none = "" if done.grants else "; no role may use any namespace"
        screen.line("row-level security is on", none)
    for grant in done.grants:
        role, namespace = (grant.role, "yellow"), (grant.namespace, "yellow")
        screen.line("  role ", role, " may use the namespace ", namespace)
    for finding in done.findings:
        text = f": {finding.what}; {finding.do}"
        screen.line((finding.level, "bold yellow"), text, fit=False)
    return _exits.OK
