"""Bring a store's format up to date: PostgreSQL's tables and functions, or a SQLite file.

Opening a store does the same; this is for those who want to say when, and for databases whose
schema is somebody else's affair: --sql prints the statements, to be run by the owner, and
clew.open(…, migrate=False) then leaves the schema alone. A PostgreSQL store that is not there yet
is made. --check changes nothing; exit code 9: there is something to do.

--rls switches row-level security on: from then on a role sees and writes only the namespaces that
--grant ROLE=NAMESPACE gave it. The owner of the tables is not held to it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from clew.address import is_postgres, locate, missing_postgres
from clew.cli import _exits
from clew.cli._arguments import add_store
from clew.cli._exits import UsageError
from clew.cli._screen import Screen
from clew.cli._stores import existing, open_existing


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


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.check and (options.sql or options.grant):
        raise UsageError("--check changes nothing, and goes with --rls only")
    if options.grant and not options.rls:
        raise UsageError("--grant is a part of row-level security: say --rls too")
    if is_postgres(options.store):
        return _postgres(options, screen)
    if options.sql or options.rls:
        raise UsageError("--sql and --rls are for PostgreSQL: postgresql://user@host/database")
    return _local(options, screen)


# --- PostgreSQL ---


def _postgres(options: argparse.Namespace, screen: Screen) -> int:
    try:
        from clew.engines.postgres import migrate as postgres_migrate
        from clew.engines.postgres import rls
        from clew.engines.postgres.address import parse
    except ImportError as error:
        raise missing_postgres(error) from error

    address = parse(options.store)
    grants = [rls.Grant.parse(text) for text in options.grant]
    with postgres_migrate.attached(address) as wire:
        if options.check:
            state = postgres_migrate.look(wire, address)
            code = _tell(screen, address.place, state.found, state.known)
            return max(code, _tell_rls(screen, state.rls) if options.rls else _exits.OK)
        if options.sql:
            text = postgres_migrate.statements(wire, address, with_rls=options.rls, grants=grants)
            screen.bytes((text or f"-- {address.place} is up to date\n").encode())
            return _exits.OK
        state = postgres_migrate.migrate(wire, address, with_rls=options.rls, grants=grants)
        _tell_done(screen, address.place, state.found, state.known)
        if rls.is_wanted(wire, address):
            _tell_grants(screen, [(g.role, g.namespace) for g in rls.granted(wire, address)])
            for schema in rls.open_schemas(wire):
                _warn_of_functions(screen, schema)
    return _exits.OK


def _tell_rls(screen: Screen, on: bool) -> int:
    screen.line("row-level security is ", "on" if on else ("off, or not on all tables", "red"))
    return _exits.OK if on else _exits.ATTENTION


def _tell_grants(screen: Screen, grants: list[tuple[str, str]]) -> None:
    screen.line("row-level security is on", "" if grants else "; no role may use any namespace")
    for role, namespace in grants:
        screen.line("  role ", (role, "yellow"), " may use the namespace ", (namespace, "yellow"))


def _warn_of_functions(screen: Screen, schema: str) -> None:
    screen.line(
        ("warning", "bold yellow"),
        f": everybody may make functions in the schema {schema}, and so put them before built-in "
        f"ones that others call; run: REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC",
        fit=False,
    )


# --- files on this machine ---


def _local(options: argparse.Namespace, screen: Screen) -> int:
    engine, path = locate(options.store)
    if path is None:
        raise UsageError("a store in memory has nothing to bring up to date")
    with existing(options.store):
        found, known = _files_format(path) if engine == "files" else _sqlite_format(path)
    if options.check:
        return _tell(screen, str(path), found, known)
    open_existing(options.store).close()  # which migrates it
    _tell_done(screen, str(path), found, known)
    return _exits.OK


def _sqlite_format(path: Path) -> tuple[int, int]:
    from clew.engines.shared.migrations import migrations
    from clew.engines.sqlite.doctor import format_of

    return format_of(path), len(migrations("sqlite"))


def _files_format(path: Path) -> tuple[int, int]:
    from clew.engines.files.doctor import format_of
    from clew.engines.files.place import VERSION

    return format_of(path), VERSION


# --- words ---


def _tell(screen: Screen, place: str, found: int, known: int) -> int:
    if found == known:
        screen.line(("up to date", "bold green"), f": {place} has format {found}", fit=False)
        return _exits.OK
    state = f"has format {found}, and this Clew needs {known}" if found else "is not set up"
    screen.line(("to be done", "bold red"), f": {place} {state}; run: clew migrate", fit=False)
    return _exits.ATTENTION


def _tell_done(screen: Screen, place: str, found: int, known: int) -> None:
    if found == known:
        _tell(screen, place, found, known)
        return
    said = f"was brought from format {found} to {known}" if found else f"made, with format {known}"
    screen.line(("done", "bold green"), f": {place} {said}", fit=False)
