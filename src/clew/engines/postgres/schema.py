"""Recognising a store in a database, making it, and bringing its schema up to date.

`establish` opens a store. All that it changes is one transaction under a lock: of several workers
that start at once one migrates, and one that is interrupted leaves nothing half made.
"""

from __future__ import annotations

import time
from contextlib import closing

import psycopg
from msgspec import Struct
from psycopg import errors as states

from clew.core.errors import (
    ClewError,
    FormatTooNew,
    NotFound,
    ReadOnly,
    Unavailable,
    Unsupported,
)
from clew.core.model import DEFAULT_NAMESPACE
from clew.engines.postgres.address import ServerAddress, Sql, has_several_hosts, rename
from clew.engines.postgres.pool import options
from clew.engines.postgres.server import Server, ask, refuse_unfit
from clew.engines.postgres.wire import (
    READ_ONLY,
    DeadlinePassed,
    Wire,
    is_transient,
    leaves_doubt,
    text_of,
    translate,
)
from clew.engines.shared.migrations import migrations

MARK = "The format of a Clew store"
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 0.05, 1.0


class Established(Struct, frozen=True):
    """A store that is ready: its server, and the number of the namespace."""

    server: Server
    space: int


def establish(
    address: ServerAddress,
    namespace: str,
    *,
    create: bool,
    migrate: bool,
    readonly: bool,
    patience_seconds: float,
) -> Established:
    """Connect, recognise or make the store, and find the namespace; `readonly`, make nothing.

    A server that is starting, or that is just being replaced, is waited for. Where no server
    answers at all the address may be wrong, and that is said at once.
    """
    deadline, pause = time.monotonic() + patience_seconds, _PAUSE_SECONDS_MIN
    doubt = False  # whether something was made, by a try that got no answer
    while True:
        try:
            with closing(_connect(address, deadline)) as wire:
                server = ask(wire)
                refuse_unfit(server, address.place)
                create, migrate = create and not readonly, migrate and not readonly
                bring_up_to_date(wire, address, create=create, migrate=migrate)
                space = _space(wire, address, namespace, create=create, readonly=readonly)
                return Established(server, space)
        except DeadlinePassed:
            raise Unavailable(
                f"{address.place}: no answer within {patience_seconds:g} s",
                committed=False if readonly else None,
            ) from None
        except psycopg.Error as error:
            refused = isinstance(error, _Refused)
            doubt = doubt or not (readonly or refused or not leaves_doubt(error))
            if not _passes(error, address) or time.monotonic() + pause >= deadline:
                tell = _refusal if refused else translate
                failure = tell(error, address.place)
                failure.committed = failure.fields["committed"] = None if doubt else False
                raise failure from error
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)


def connect(address: ServerAddress, patience_seconds: float) -> Wire:
    """A connection of its own, or an error that says what is wrong with the address."""
    try:
        return _connect(address, time.monotonic() + patience_seconds)
    except _Refused as error:
        raise _refusal(error, address.place) from error


class _Refused(psycopg.OperationalError):
    """There is no connection to be had."""


def _connect(address: ServerAddress, deadline: float) -> Wire:
    try:
        # Nothing is prepared: whether there is a pooler in between is not known yet.
        wire = Wire.connect(address.conninfo, **options(pooler=True))
    except psycopg.Error as error:
        raise _Refused(str(error)) from error
    wire.deadline = deadline
    return wire


# What a server says while it comes or goes, or is full; the client gives it as text only.
_PASSING = (
    "the database system is starting up",
    "the database system is shutting down",
    "the database system is in recovery mode",
    "the database system is not yet accepting connections",
    "too many clients already",
    "remaining connection slots are reserved",
)


def _passes(error: psycopg.Error, address: ServerAddress) -> bool:
    """Whether there is a server that will take us soon."""
    if not isinstance(error, _Refused):
        return is_transient(error) and error.sqlstate != READ_ONLY
    text = str(error)
    # One of several may be about to become the primary.
    elected = "session is read-only" in text and has_several_hosts(address.conninfo)
    return elected or any(said in text for said in _PASSING)


_REFUSALS = (
    ("password authentication failed", "check the user and the password in the address"),
    ("no password supplied", "put a password in the address, PGPASSWORD or ~/.pgpass"),
    ("no pg_hba.conf entry", "allow this host, user and database in the server's pg_hba.conf"),
    ("session is read-only", "no host of the address is a primary that takes writes now"),
)


def _refusal(error: psycopg.Error, place: str) -> ClewError:
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    for part, advice in _REFUSALS:
        if part in text:
            return Unavailable(f"{place}: {_last(text)}; {advice}", retryable="read-only" in part)
    if "database" in text and "does not exist" in text:
        return NotFound("database", place)
    if "role" in text and "does not exist" in text:
        return Unavailable(
            f"{place}: {_last(text)}; create it, or name another user", retryable=False
        )
    return Unavailable(f"{place} cannot be reached: {text}; is the server running there?")


def _last(text: str) -> str:
    """What the server said, without what the client put before it."""
    return text.rpartition("FATAL:")[2].strip() or text


# --- the schema ---


def bring_up_to_date(wire: Wire, address: ServerAddress, *, create: bool, migrate: bool) -> int:
    """Make the schema or migrate it, if that is wanted and needed; its version."""
    known = len(migrations("postgres"))
    found = version(wire, address)
    if found == known:
        return known
    if found > known:
        raise FormatTooNew(address.place, found=found, known=known)
    if found == 0 and not create:
        raise NotFound("store", address.place)
    if not migrate:
        state = f"has format {found}, and this Clew needs {known}" if found else "is not set up"
        raise Unsupported(f"{address.place} {state}; run: clew migrate")
    try:
        with wire.transaction():
            if found:
                lock_migrations(wire, address)
                found = version(wire, address)  # another worker may have been faster
                if found > known:
                    raise FormatTooNew(address.place, found=found, known=known)
            if found < known:
                _run(wire, address, found)
    except _MADE_ALREADY:
        # Of several workers that make it at once one gets its names, and the others wait for it.
        if version(wire, address) != known:
            raise
    return known


_MADE_ALREADY = (
    *(states.DuplicateSchema, states.DuplicateTable, states.DuplicateObject),
    *(states.DuplicateFunction, states.UniqueViolation),
)


def lock_migrations(wire: Wire, address: ServerAddress) -> None:
    """Be the only one that changes the schema, until the transaction ends."""
    wire.execute(lock_statement(address.schema))


def lock_statement(schema: str) -> str:
    """A lock that only a role can take that may write this table: no tenant can."""
    return f"LOCK TABLE {schema}.format IN SHARE ROW EXCLUSIVE MODE;"


_LOOK = """
SELECT n.oid IS NOT NULL,
       coalesce(has_schema_privilege(n.oid, 'USAGE'), false),
       (SELECT count(*) FROM pg_class c WHERE c.relnamespace = n.oid),
       (SELECT obj_description(c.oid, 'pg_class') FROM pg_class c
         WHERE c.relnamespace = n.oid AND c.relname = 'format')
  FROM (SELECT 1) AS one LEFT JOIN pg_namespace n ON n.nspname = %s
"""


def version(wire: Wire, address: ServerAddress) -> int:
    """The version of the store's schema, 0 if there is none."""
    row = wire.one(_LOOK, (address.schema,))
    assert row is not None
    exists, usable, tables, mark = row
    if exists and not usable:
        raise Unsupported(
            f"{address.place}: the role may not use the schema {address.schema!r}; "
            f"let its owner run: GRANT USAGE ON SCHEMA {address.schema} TO the role"
        )
    if mark == MARK:
        found = wire.value(Sql(address.schema)("SELECT max(version) FROM clew.format"))
        return int(found or 0)
    if tables:
        raise Unsupported(
            f"{address.place}: the schema {address.schema!r} holds {tables} tables or indexes that "
            "are not Clew's; choose another one: ?schema=NAME at the end of the address"
        )
    return 0


def _run(wire: Wire, address: ServerAddress, found: int) -> None:
    try:
        wire.execute(script(address.schema, found))
    except states.InsufficientPrivilege as error:
        raise Unsupported(
            f"{address.place}: the role may not make Clew's tables ({text_of(error)}); let the "
            "database's owner run what this prints: clew migrate --sql"
        ) from error


def script(schema: str, found: int = 0) -> str:
    """What brings a schema from a version to the newest, for a DBA to read and run."""
    # IF NOT EXISTS would ask for the right to make schemas also where there is nothing to make.
    make = f"IF to_regnamespace('{schema}') IS NULL THEN CREATE SCHEMA {schema}; END IF;"
    parts = [f"DO $$ BEGIN {make} END $$;"]
    todo = migrations("postgres")[found:]
    parts += [rename(migration.sql, schema) for migration in todo]
    parts.append(f"DELETE FROM {schema}.format;")
    parts.append(
        f"INSERT INTO {schema}.format (version, migrated_us) "
        f"VALUES ({found + len(todo)}, {schema}.now_us());"
    )
    return "\n".join(parts)


# With row-level security a role writes by functions that run as the owner.
_FIND = """
SELECT current_setting('transaction_read_only') = 'on',
       has_table_privilege('clew.records', 'INSERT')
         OR EXISTS (SELECT 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                     WHERE n.nspname = %s AND p.proname = 'append' AND p.prosecdef
                       AND has_function_privilege(p.oid, 'EXECUTE')),
       clew.space_named(%s)
"""


def _space(
    wire: Wire, address: ServerAddress, namespace: str, *, create: bool, readonly: bool
) -> int:
    """The number of a namespace, which is made when it is first opened.

    ReadOnly: the store is wanted for writing, and this role can only read it.
    """
    find = Sql(address.schema)(_FIND)
    row = wire.one(find, (address.schema, namespace))
    assert row is not None
    reads_only, may_write, found = row
    role = wire.info.user
    if not readonly and reads_only:
        reason = f"the transactions of role {role!r} are read-only"
        raise ReadOnly(address.place, reason=reason)
    if not readonly and not may_write:
        raise ReadOnly(address.place, reason=f"role {role!r} has no right to write Clew's tables")
    if found is None:
        if readonly or (not create and namespace != DEFAULT_NAMESPACE):
            raise NotFound("namespace", namespace)
        _make_space(wire, address, namespace)
        row = wire.one(find, (address.schema, namespace))
        assert row is not None
        found = row[2]
    return int(found)


def _make_space(wire: Wire, address: ServerAddress, namespace: str) -> None:
    sql = "INSERT INTO clew.namespaces (name) VALUES (%s) ON CONFLICT (name) DO NOTHING"
    try:
        wire.execute(Sql(address.schema)(sql), (namespace,))
    except states.InsufficientPrivilege as error:
        role = wire.info.user
        raise Unsupported(
            f"{address.place}: the role {role!r} was not granted the namespace {namespace!r}, and "
            f"may not make it; let the owner run: clew migrate --rls --grant {role}={namespace}"
        ) from error


def namespaces(wire: Wire, address: ServerAddress) -> list[str]:
    """The namespaces of a store that there is."""
    if version(wire, address) == 0:
        raise NotFound("store", address.place)
    sql = Sql(address.schema)("SELECT name FROM clew.spaces() ORDER BY name")
    return [str(name) for (name,) in wire.every(sql)]
