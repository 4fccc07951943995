"""Row-level security: roles of tenants' own, and the namespaces that they may use.

What it does is in sql/postgres/rls.sql. Here it is run, or written down for a DBA to run.
"""

from __future__ import annotations

from collections.abc import Iterable

import psycopg
from psycopg import errors as states
from psycopg.sql import Literal

from clew.core.errors import InvalidInput, Unavailable, Unsupported
from clew.core.maintenance import Grant
from clew.engines.postgres.address import ServerAddress, Sql, rename
from clew.engines.postgres.schema import lock_migrations
from clew.engines.postgres.wire import Wire, text_of
from clew.engines.shared.migrations import optional

NOT_HELD = "CL005"


def script(schema: str, grants: Iterable[Grant] = ()) -> str:
    """All of it as one text."""
    parts = [rename(optional("postgres", "rls"), schema)]
    for grant in grants:
        role, namespace = (Literal(name).as_string(None) for name in (grant.role, grant.namespace))
        parts.append(f"SELECT {schema}.grant_namespace({role}, {namespace});\n")
    return "\n".join(parts)


def enable(wire: Wire, address: ServerAddress, grants: Iterable[Grant] = ()) -> None:
    """Switch it on for the tables that there are now, and let roles use namespaces.

    Those that had been granted one get the rights on tables that came later.
    """
    try:
        with wire.transaction():
            lock_migrations(wire, address)
            wire.execute(script(address.schema))
            for grant in grants:
                _grant(wire, address, grant)
    except states.LockNotAvailable as error:
        raise Unavailable(
            f"{address.place}: a long transaction uses Clew's tables (a verify, say, or a dump); "
            "nothing was changed, try again when it is over"
        ) from error
    except states.InsufficientPrivilege as error:
        raise Unsupported(
            f"{address.place}: the role {wire.info.user!r} may not do this ({text_of(error)}); let "
            "the owner of Clew's tables run what this prints: clew migrate --rls --sql"
        ) from error


def _grant(wire: Wire, address: ServerAddress, grant: Grant) -> None:
    sql = Sql(address.schema)("SELECT clew.grant_namespace(%s::text::name, %s)")
    try:
        wire.execute(sql, (grant.role, grant.namespace))
    except states.UndefinedObject:
        reason = f"there is no role {grant.role!r} on the server; create it first"
        raise InvalidInput("grant", reason) from None
    except psycopg.DatabaseError as error:
        if error.sqlstate != NOT_HELD:
            raise
        reason = (
            f"row-level security does not hold for {grant.role!r}, which is a superuser, has "
            "BYPASSRLS, or owns Clew's tables; grant the namespace to another role"
        )
        raise InvalidInput("grant", reason) from None


# --- looking ---

_IS_ON = """
SELECT coalesce(bool_and(c.relrowsecurity), false) FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relkind IN ('r', 'p') AND c.relname <> 'format'
"""


def is_on(wire: Wire, address: ServerAddress) -> bool:
    """Whether it holds for every table that it is meant for."""
    return bool(wire.value(_IS_ON, (address.schema,)))


def is_wanted(wire: Wire, address: ServerAddress) -> bool:
    """Whether it was ever switched on, perhaps before there were as many tables."""
    return wire.value("SELECT to_regclass(%s)", (f"{address.schema}.grants",)) is not None


_GRANTED = """
SELECT g.role::text, n.name FROM clew.grants g
  JOIN clew.namespaces n ON n.no = g.space
  JOIN pg_roles r ON r.rolname = g.role
 ORDER BY 1, 2
"""


def granted(wire: Wire, address: ServerAddress) -> list[Grant]:
    """Which roles may use which namespaces; those of dropped roles are passed over."""
    return [Grant(*row) for row in wire.every(Sql(address.schema)(_GRANTED))]


_OPEN_SCHEMAS = """
SELECT n.nspname::text FROM pg_namespace n
 WHERE n.nspname = ANY (current_schemas(false))
   AND EXISTS (SELECT 1 FROM aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a
                WHERE a.grantee = 0 AND a.privilege_type = 'CREATE')
"""


def open_schemas(wire: Wire) -> list[str]:
    """Schemas of the search path in which every role may make functions.

    A function made there can stand before a built-in one, and every role that calls that runs it.
    """
    return [str(name) for (name,) in wire.every(_OPEN_SCHEMAS)]
