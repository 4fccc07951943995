"""Looks after a PostgreSQL store as a whole: `PostgresMaintenance`, and what `clew doctor` reads.

`look` asks the server. `judge` says what the answers mean; it needs no server, so every case of it
can be tested.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing

import psycopg
import psycopg_pool
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict

from clew.core.engine import Engine
from clew.core.errors import ReadOnly, Unsupported
from clew.core.maintenance import Examined, Grant, Migration, Workshop
from clew.engines.postgres import migrate, rls, schema
from clew.engines.postgres.address import ServerAddress, Sql, parse
from clew.engines.postgres.engine import PostgresEngine
from clew.engines.postgres.listen import POLL_SECONDS
from clew.engines.postgres.server import Server, ask
from clew.engines.postgres.wire import Wire
from clew.engines.shared.namespaces import OneByOne

SKEW_SECONDS_MAX = 2.0
CROWD_SHARE_MAX = 0.8


class PostgresMaintenance(OneByOne):
    """See `clew.core.maintenance.Maintenance`. It is made with the server's whole address."""

    repairs = False

    def __init__(self, address: str) -> None:
        self._given = address
        self._address = parse(address)
        self.place = self._address.place

    def _names(self) -> Iterable[str]:
        with closing(schema.connect(self._address, migrate.LOOK_SECONDS)) as wire:
            return schema.namespaces(wire, self._address)

    def _open(self, namespace: str) -> Engine:
        try:
            return PostgresEngine(self._given, create=False, namespace=namespace)
        except ReadOnly:  # what is asked here only reads
            return PostgresEngine(self._given, namespace=namespace, readonly=True)

    @staticmethod
    def examine(engine: Engine) -> Examined:
        if not isinstance(engine, PostgresEngine):
            raise Unsupported(f"{type(engine).__name__} is not the PostgreSQL engine")
        return examine(engine)

    def migrate(
        self, *, dry_run: bool = False, rls: bool = False, grants: Sequence[Grant] = ()
    ) -> Migration:
        run = migrate.look if dry_run else migrate.migrate
        return run(self._address, with_rls=rls, grants=grants)

    def repair(self) -> AbstractContextManager[Workshop]:
        raise Unsupported(
            "a store in PostgreSQL is not repaired by Clew: restore the server's backup; what can "
            "be read of it can be copied to a new store with clew copy"
        )


class Standby(Struct, frozen=True):
    """A server that follows. What it does is None where this role may not know."""

    name: str | None
    state: str | None
    sync: str | None


class Look(Struct, frozen=True, kw_only=True):
    """What was read from a server, and about the way to it."""

    server: Server
    format: int
    namespaces: int
    standbys: list[Standby]
    autovacuum: bool
    connections: int
    connections_max: int
    skew_seconds: float
    skew_within_seconds: float
    host: str
    encrypted: bool
    role: str
    held: bool  # whether row-level security holds for this role, where it is on
    rls_wanted: bool
    rls_on: bool
    open_schemas: list[str]


def examine(engine: PostgresEngine) -> Examined:
    found = Examined(kind="PostgreSQL")
    seen = engine._connections.run(lambda wire, again: look(wire, engine._address))
    judge(found, seen)
    _tell_way(found, engine)
    if engine.properties.read_only:
        found.read["waiting"] = "not tried: the store is open read-only"
    # To try LISTEN something is committed, which would wait for the missing standby.
    elif seen.server.replicated and not _confirming(seen.standbys):
        found.read["waiting"] = "not tried: no write ends just now"
    else:
        _tell_waiting(found, works=engine._listening().works)
    return found


# --- asking ---------------------------------------------------------------------------------

_SETTINGS = """
SELECT current_setting('autovacuum') = 'on',
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       current_setting('max_connections')::bigint,
       (SELECT count(*) FROM clew.spaces()),
       current_user::text,
       row_security_active('clew.threads')
"""
_STANDBYS = "SELECT application_name, state, sync_state FROM pg_stat_replication"


def look(wire: Wire, address: ServerAddress, clock: Callable[[], float] = time.time) -> Look:
    server = ask(wire)
    row = wire.one(Sql(address.schema)(_SETTINGS))
    assert row is not None
    autovacuum, connections, connections_max, namespaces, role, held = row
    skew, within = _skew(wire, clock)
    wanted = rls.is_wanted(wire, address)
    return Look(
        server=server,
        format=schema.version(wire, address),
        namespaces=namespaces,
        standbys=[Standby(*found) for found in wire.every(_STANDBYS)],
        autovacuum=autovacuum,
        connections=connections,
        connections_max=connections_max,
        skew_seconds=skew,
        skew_within_seconds=within,
        host=wire.info.host,
        encrypted=wire.pgconn.ssl_in_use,
        role=role,
        held=held,
        rls_wanted=wanted,
        rls_on=wanted and rls.is_on(wire, address),
        open_schemas=rls.open_schemas(wire) if wanted else [],
    )


def _skew(wire: Wire, clock: Callable[[], float]) -> tuple[float, float]:
    """How far the server's clock is before ours, and how well that is known: half the way."""
    before = clock()
    there = float(wire.value("SELECT extract(epoch FROM clock_timestamp())::float8"))
    after = clock()
    return there - (before + after) / 2, (after - before) / 2


# --- judging --------------------------------------------------------------------------------


def judge(found: Examined, seen: Look) -> None:
    server = seen.server
    found.format = seen.format
    found.versions = {
        "PostgreSQL": server.version,
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        "psycopg-pool": psycopg_pool.__version__,
        "libpq": _dotted(psycopg.pq.version()),
    }
    found.read |= {
        "fsync": server.fsync,
        "full_page_writes": server.full_page_writes,
        "synchronous_commit": server.synchronous_commit,
        "synchronous_standby_names": server.standbys or "(none)",
        "standbys": ", ".join(map(_described, seen.standbys)) or "none attached",
    }
    _judge_durability(found, server)
    _judge_standbys(found, seen)
    _judge_server(found, seen)
    _judge_connection(found, seen)
    _judge_rls(found, seen)


def _judge_durability(found: Examined, server: Server) -> None:
    for name, value in (("fsync", server.fsync), ("full_page_writes", server.full_page_writes)):
        if value == "off":
            do = f"run: ALTER SYSTEM SET {name} = on; then: SELECT pg_reload_conf()"
            found.complain(f"{name} is off: a crash can destroy what was acknowledged", do)
    if server.synchronous_commit == "off":
        found.warn(
            "synchronous_commit is off: a crash of the server loses what was acknowledged last",
            "set it to on, for the server, the database or the role that Clew connects as",
        )


def _judge_standbys(found: Examined, seen: Look) -> None:
    if seen.server.replicated and not _confirming(seen.standbys):
        found.complain(
            "no synchronous standby is attached, so that every write waits for one",
            "bring one back; or, to go on without: ALTER SYSTEM RESET synchronous_standby_names",
        )
    elif seen.standbys and not seen.server.replicated:
        found.warn(
            "standbys follow, but no write waits for them: one that takes over may lack the last "
            "of what was acknowledged",
            "run: ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; then: "
            "SELECT pg_reload_conf()",
        )


def _confirming(standbys: list[Standby]) -> bool:
    """Whether one confirms writes. Where we may not know, one that is there is believed."""
    return any(standby.sync in ("sync", "quorum", None) for standby in standbys)


def _described(standby: Standby) -> str:
    if standby.state is None:
        return "one (more is told to members of pg_monitor)"
    return f"{standby.name} ({standby.state}, {standby.sync})"


def _judge_server(found: Examined, seen: Look) -> None:
    found.read["autovacuum"] = "on" if seen.autovacuum else "off"
    if not seen.autovacuum:
        do = "switch it on: every append leaves a dead row behind, and tables only grow"
        found.warn("autovacuum is off", do)
    found.read["server's connections"] = f"{seen.connections:,} of {seen.connections_max:,} in use"
    if seen.connections > CROWD_SHARE_MAX * seen.connections_max:
        do = "use smaller pools (clew.open(…, connections=5)), or put pgbouncer before the server"
        found.warn("the server is close to its limit of connections", do)
    found.read["server's clock"] = (
        f"{abs(seen.skew_seconds):.3f} s {'ahead of' if seen.skew_seconds > 0 else 'behind'} ours, "
        f"give or take {seen.skew_within_seconds:.3f} s"
    )
    if abs(seen.skew_seconds) > SKEW_SECONDS_MAX + seen.skew_within_seconds:
        found.warn(
            "the clocks of this machine and of the server differ: leases go by the server's, the "
            "times of entries by ours",
            "let both be set by NTP",
        )


def _judge_connection(found: Examined, seen: Look) -> None:
    local = seen.host.startswith(("/", "127.")) or seen.host in ("", "localhost", "::1")
    found.read["connection"] = "encrypted" if seen.encrypted else "not encrypted"
    if not seen.encrypted and not local:
        do = "add sslmode=verify-full to the address, and sslrootcert if the server's is your own"
        found.warn(f"the connection to {seen.host} is not encrypted", do)


def _judge_rls(found: Examined, seen: Look) -> None:
    found.read["namespaces"] = f"{seen.namespaces:,} that this role can see"
    if not seen.rls_wanted:
        found.read["row-level security"] = "off"
        return
    held = "holds for" if seen.held else "does not hold for"
    found.read["row-level security"] = f"on; it {held} this role ({seen.role})"
    if not seen.rls_on:
        do = "let the owner run: clew migrate --rls"
        found.complain("row-level security is on, but not for all tables", do)
    found.findings += map(migrate.warn_of_functions, seen.open_schemas)


# --- the way to the server ------------------------------------------------------------------


def _tell_way(found: Examined, engine: PostgresEngine) -> None:
    found.read["pooler"] = "yes: no statement is prepared" if engine.pooler else "none"
    found.read["our pool"] = f"up to {engine._connections._size} connections in each process"
    given = conninfo_to_dict(engine._address.conninfo)
    several = "," in str(given.get("host") or given.get("hostaddr") or "")
    if several and given.get("target_session_attrs") not in ("read-write", "primary"):
        do = "add target_session_attrs=read-write to the address"
        found.warn("the address names several hosts, and does not say: the primary", do)


def _tell_waiting(found: Examined, *, works: bool) -> None:
    found.read["waiting"] = (
        "LISTEN works: followers are told"
        if works
        else f"LISTEN does not come through: followers look every {POLL_SECONDS * 1000:.0f} ms"
    )


def _dotted(number: int) -> str:
    return f"{number // 10000}.{number % 10000}"
