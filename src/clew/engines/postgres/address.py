"""Where a PostgreSQL store is: a server, a database, a schema and a namespace."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from clew.core.errors import InvalidInput

SCHEMA = "clew"
OWN_PARAMETERS = ("schema", "namespace")

# So that a server that fell silent is noticed: by the kernel for a request that is under way, by
# probes for a connection that is idle. What the address says itself goes before these.
_DEFAULTS = {
    "connect_timeout": "5",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "application_name": "clew",
    "client_encoding": "UTF8",
}


class ServerAddress(Struct, frozen=True):
    """What libpq connects with, where our tables are, and how the store is called in messages."""

    conninfo: str
    place: str
    schema: str
    namespace: str | None


def parse(address: str, schema: str | None = None) -> ServerAddress:
    """Take apart `postgresql://user@host/database?schema=…&namespace=…`.

    The last two are ours, everything else is libpq's: several hosts, TLS, time-outs.
    """
    _refuse_stray_signs(address)
    # In small letters: the client library takes another spelling for a list of settings.
    scheme, colon, rest = address.partition(":")
    own, rest = _take_own(scheme.lower() + colon + rest)
    try:
        given = conninfo_to_dict(rest)
    except psycopg.Error as error:
        # Without what it quotes, which may be the password.
        reason = re.sub(r'"[^"]{2,}"', "…", str(error).strip().replace(rest, "…"))
        raise InvalidInput(
            "address", f"PostgreSQL's client cannot read it: {reason.rstrip(' :…')}"
        ) from None
    conninfo = make_conninfo("", **{**_DEFAULTS, **given})
    name = check_schema(own.get("schema", SCHEMA) if schema is None else schema)
    return ServerAddress(conninfo, _place(given, name), name, own.get("namespace"))


def _refuse_stray_signs(address: str) -> None:
    """A password that is not encoded would end where it should not, and its rest be shown."""
    where = address.partition("://")[2]
    server = re.sub(r"^[^@/]*@", "", where)  # as the client library reads it
    if "@" in server.partition("?")[0]:
        reason = "there is an @ where none can be; in the user, the password and the database "
        raise InvalidInput("address", f"{reason}write %40 for @, %2F for / and %25 for %")


def _take_own(address: str) -> tuple[dict[str, str], str]:
    try:
        parts = urlsplit(address)
    except ValueError:  # whose text would show the address
        raise InvalidInput("address", "it is no URL; is the server's name right?") from None
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in pairs if name in OWN_PARAMETERS}
    others = [(name, value) for name, value in pairs if name not in OWN_PARAMETERS]
    if not own:
        # Passed on as it was given: libpq does not read a query exactly as urllib writes one.
        return own, address
    # By hand: Python would make `postgresql:/…` of an address without a host.
    where, query = address.partition("?")[0], urlencode(others, quote_via=quote)
    rest = f"#{parts.fragment}" if parts.fragment else ""
    return own, (f"{where}?{query}" if query else where) + rest


def has_several_hosts(conninfo: str) -> bool:
    given = conninfo_to_dict(conninfo)
    return any("," in str(given.get(name) or "") for name in ("host", "hostaddr"))


def check_schema(name: str) -> str:
    """A schema's name goes into every statement, so it is one that needs no care."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", name) or name.startswith("pg_"):
        reason = f"must be a plain lower-case name of at most 48 characters, not {name!r}"
        raise InvalidInput("schema", reason)
    return name


def _place(given: dict[str, Any], schema: str) -> str:
    """For people: never with a password in it."""
    hosts = str(given.get("host") or given.get("hostaddr") or "")
    ports = str(given.get("port") or "").split(",")
    names = [host if "/" not in host else "" for host in hosts.split(",")]
    if len(ports) == len(names):
        names = [
            f"{name}:{port}" if port else name for name, port in zip(names, ports, strict=True)
        ]
    tail = "" if schema == SCHEMA else f"?schema={schema}"
    return f"postgresql://{','.join(names)}/{given.get('dbname') or ''}{tail}"


class Sql:
    """Statements are written for the schema "clew"; this puts the store's own in its place."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._known: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        if self._schema == SCHEMA:
            return text
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = rename(text, self._schema)
        return found


def rename(text: str, schema: str) -> str:
    return re.sub(r"\bclew(?=\.[a-z_])|(?<=SCHEMA )clew\b", schema, text)
