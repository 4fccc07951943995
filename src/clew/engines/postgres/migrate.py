"""What `clew migrate` does to a PostgreSQL store, or would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from msgspec import Struct

from clew.core.errors import FormatTooNew, Unavailable
from clew.engines.postgres import rls, server
from clew.engines.postgres.address import ServerAddress
from clew.engines.postgres.schema import bring_up_to_date, connect, lock_statement, script, version
from clew.engines.postgres.wire import DeadlinePassed, Wire, translate
from clew.engines.shared.migrations import migrations

PATIENCE_SECONDS = 3600.0  # a migration of a large store takes its time


class State(Struct, frozen=True):
    """How a schema stands. Format 0: there is none yet."""

    found: int
    known: int
    rls: bool

    @property
    def current(self) -> bool:
        return self.found == self.known


@contextmanager
def attached(address: ServerAddress) -> Iterator[Wire]:
    """A connection to a server that Clew can work with, for as long as a migration takes."""
    wire = connect(address, PATIENCE_SECONDS)
    try:
        server.refuse_unfit(server.ask(wire), address.place)
        yield wire
    except DeadlinePassed:
        raise Unavailable(f"{address.place}: no answer within {PATIENCE_SECONDS:g} s") from None
    except psycopg.Error as error:
        raise translate(error, address.place) from error
    finally:
        wire.close()


def look(wire: Wire, address: ServerAddress) -> State:
    found, known = version(wire, address), len(migrations("postgres"))
    # A newer Clew has been here: whatever this one did, it would undo what it cannot know of.
    if found > known:
        raise FormatTooNew(address.place, found=found, known=known)
    return State(found, known, found > 0 and rls.is_on(wire, address))


def migrate(
    wire: Wire, address: ServerAddress, *, with_rls: bool, grants: Sequence[rls.Grant] = ()
) -> State:
    """Bring it up to date; where row-level security is on, for new tables too. How it stood."""
    before = look(wire, address)
    bring_up_to_date(wire, address, create=True, migrate=True)
    if with_rls or rls.is_wanted(wire, address):
        rls.enable(wire, address, grants)
    return before


def statements(
    wire: Wire, address: ServerAddress, *, with_rls: bool, grants: Sequence[rls.Grant] = ()
) -> str:
    """The same as text, for the owner to run; empty if there is nothing to do."""
    state = look(wire, address)
    parts = [] if state.current else [script(address.schema, state.found)]
    if with_rls or (parts and state.found and rls.is_wanted(wire, address)):
        parts.append(rls.script(address.schema, grants))
    if not parts:
        return ""
    head = f"-- {address.place}: from format {state.found} to {state.known}. Run it as the owner."
    return "\n".join([head, "BEGIN;", lock_statement(address.schema), *parts, "COMMIT;\n"])
