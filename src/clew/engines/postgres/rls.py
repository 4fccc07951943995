"""Row-level security: roles of tenants' own, and the namespaces that they may use.

What it does is in sql/postgres/rls.sql. Here it is run, or written down for a DBA to run.
"""

from __future__ import annotations

from collections.abc import Iterable

import psycopg
from psycopg import errors as states
from psycopg.sql import Literal

from clew.core.errors import InvalidInput, Unavailable, Unsupported
from clew.core.maintenance import Finding, Grant
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


def enable(wire: Wire, address: ServerAddress, grants: Iterable[Grant] = ()) -> list[Finding]:
    """Switch it on for the tables that there are now, and let roles use namespaces.

    Those that had been granted one get the rights on functions that came later. What was granted
    to a role that is gone is taken back, and told.
    """
    try:
        with wire.transaction():
            lock_migrations(wire, address)
            void = _void(wire, address) if is_wanted(wire, address) else []
            wire.execute(script(address.schema))
            for grant in grants:
                _grant(wire, address, grant)
            return [*void, *_without_rights(wire, address)]
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
SELECT coalesce(bool_and(c.relrowsecurity), false) AND NOT EXISTS (
         SELECT 1 FROM pg_proc p JOIN pg_namespace o ON o.oid = p.pronamespace
          WHERE o.nspname = %(schema)s AND p.prosrc LIKE %(asks)s AND p.proname <> 'admit'
            AND NOT p.prosecdef)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p') AND c.relname <> 'format'
"""


def is_on(wire: Wire, address: ServerAddress) -> bool:
    """Whether it holds for every table and function that it is meant for."""
    names = {"schema": address.schema, "asks": f"%{address.schema}.admit%"}
    return bool(wire.value(_IS_ON, names))


def is_wanted(wire: Wire, address: ServerAddress) -> bool:
    """Whether it was ever switched on, perhaps before there were as many tables."""
    return wire.value("SELECT to_regclass(%s)", (f"{address.schema}.grants",)) is not None


# Whether a role has the schema's rights in its own name. Without, a grant gives it nothing.
_HAS_RIGHTS = """
EXISTS (SELECT 1 FROM pg_namespace o, aclexplode(o.nspacl) AS a
         WHERE o.nspname = %s AND a.grantee = r.oid AND a.privilege_type = 'USAGE')
"""
_GRANTED = f"""
SELECT r.rolname::text, n.name, {_HAS_RIGHTS} FROM clew.grants g
  JOIN clew.namespaces n ON n.no = g.space
  JOIN pg_roles r ON r.oid = g.role
 ORDER BY 1, 2
"""
_VOID = """
SELECT n.name FROM clew.grants g JOIN clew.namespaces n ON n.no = g.space
 WHERE NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.oid = g.role) ORDER BY 1
"""


def granted(wire: Wire, address: ServerAddress) -> list[Grant]:
    """Which roles may use which namespaces."""
    found = wire.every(Sql(address.schema)(_GRANTED), (address.schema,))
    return [Grant(role, name) for role, name, has_rights in found if has_rights]


def _void(wire: Wire, address: ServerAddress) -> list[Finding]:
    return [
        Finding(
            "warning",
            f"the namespace {name} was granted to a role that was dropped since: taken back",
            f"to let another role use it: clew migrate --rls --grant ROLE={name}",
        )
        for (name,) in wire.every(Sql(address.schema)(_VOID))
    ]


def _without_rights(wire: Wire, address: ServerAddress) -> list[Finding]:
    return [
        Finding(
            "warning",
            f"the role {role} was granted the namespace {name}, but has no rights on the schema",
            f"if it is the same role still: clew migrate --rls --grant {role}={name}",
        )
        for role, name, has_rights in wire.every(Sql(address.schema)(_GRANTED), (address.schema,))
        if not has_rights
    ]


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
