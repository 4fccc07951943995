"""What `clew migrate` does to a PostgreSQL store, or would do: its schema, and who may use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from clew.core.errors import FormatTooNew, Unavailable
from clew.core.maintenance import Finding, Grant, Migration
from clew.engines.postgres import rls, server
from clew.engines.postgres.address import ServerAddress
from clew.engines.postgres.schema import bring_up_to_date, connect, lock_statement, script, version
from clew.engines.postgres.wire import DeadlinePassed, Wire, translate
from clew.engines.shared.migrations import migrations

LOOK_SECONDS = 30.0
MIGRATE_SECONDS = 3600.0  # a migration of a large store takes its time


def look(
    address: ServerAddress, *, with_rls: bool = False, grants: Sequence[Grant] = ()
) -> Migration:
    """How a schema stands, and the statements that would be run; nothing is changed."""
    with attached(address, LOOK_SECONDS, writes=False) as wire:
        found, known = _versions(wire, address)
        return Migration(
            place=address.place,
            found=found,
            known=known,
            rls=found > 0 and rls.is_on(wire, address),
            sql=_statements(wire, address, found, with_rls, grants),
        )


def migrate(
    address: ServerAddress, *, with_rls: bool = False, grants: Sequence[Grant] = ()
) -> Migration:
    """Bring it up to date; where row-level security is on, for new tables too."""
    with attached(address, MIGRATE_SECONDS) as wire:
        found, known = _versions(wire, address)
        bring_up_to_date(wire, address, create=True, migrate=True)
        wanted = with_rls or rls.is_wanted(wire, address)
        findings = rls.enable(wire, address, grants) if wanted else []
        if wanted:
            findings += map(warn_of_functions, rls.open_schemas(wire))
        return Migration(
            place=address.place,
            found=found,
            known=known,
            rls=rls.is_on(wire, address),
            grants=tuple(rls.granted(wire, address)) if wanted else (),
            findings=tuple(findings),
        )


def warn_of_functions(schema: str) -> Finding:
    return Finding(
        "warning",
        f"every role may make functions in the schema {schema}, and so put them before built-in "
        "ones that other roles call",
        f"run: REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC",
    )


@contextmanager
def attached(
    address: ServerAddress, patience_seconds: float, *, writes: bool = True
) -> Iterator[Wire]:
    """A connection to a server that Clew can work with."""
    wire = connect(address, patience_seconds)
    try:
        server.refuse_unfit(server.ask(wire), address.place)
        yield wire
    except DeadlinePassed:
        raise Unavailable(
            f"{address.place}: no answer within {patience_seconds:g} s",
            committed=None if writes else False,
        ) from None
    except psycopg.Error as error:
        raise translate(error, address.place, writes=writes) from error
    finally:
        wire.close()


def _versions(wire: Wire, address: ServerAddress) -> tuple[int, int]:
    """The format that was found, 0 for none yet, and the one that is known."""
    found, known = version(wire, address), len(migrations("postgres"))
    # A newer Clew has been here: whatever this one did, it would undo what it cannot know of.
    if found > known:
        raise FormatTooNew(address.place, found=found, known=known)
    return found, known


def _statements(
    wire: Wire, address: ServerAddress, found: int, with_rls: bool, grants: Sequence[Grant]
) -> str:
    """What `migrate` would run, as text for the owner of the tables."""
    known = len(migrations("postgres"))
    parts = [] if found == known else [script(address.schema, found)]
    if with_rls or (parts and found and rls.is_wanted(wire, address)):
        parts.append(rls.script(address.schema, grants))
    if not parts:
        return ""
    head = f"-- {address.place}: from format {found} to {known}. Run it as the owner."
    lock = [lock_statement(address.schema)] if found else []
    return "\n".join([head, "BEGIN;", *lock, *parts, "COMMIT;\n"])
