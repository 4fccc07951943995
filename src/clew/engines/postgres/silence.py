"""Whether a server that does not answer is still the one to wait for.

A server that hangs keeps its connections open, and its machine goes on to confirm what arrives, so
no time-out of the network ever ends a wait for it. Where the address names several servers, and
others have chosen a new primary among them meanwhile, there is somebody better to ask.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from clew.engines.postgres.address import has_several_hosts

SILENCE_SECONDS = 5.0  # after so long without an answer we look, again and again
PROBE_SECONDS = 2  # for each server that is tried; the least that libpq takes


class ServerReplaced(psycopg.OperationalError):
    """The server fell silent, and another one has taken its place."""


def is_replaced(conninfo: str, info: psycopg.ConnectionInfo) -> bool:
    """Whether nobody answers where this connection leads, and another server would."""
    if not has_several_hosts(conninfo):
        return False
    given = {**conninfo_to_dict(conninfo), "connect_timeout": PROBE_SECONDS}
    here = {**given, "host": info.host, "hostaddr": info.hostaddr or None, "port": info.port}
    return not _answers(here) and _answers(given)


def _answers(options: dict[str, Any]) -> bool:
    try:
        psycopg.connect(make_conninfo("", **options), autocommit=True).close()
    except psycopg.Error:
        return False
    return True
