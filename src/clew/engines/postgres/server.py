"""What a server is, and what its acknowledgement means: asked when the store is opened."""

from __future__ import annotations

from msgspec import Struct

from clew.core.errors import Unavailable, Unsupported
from clew.core.model import Durability
from clew.engines.postgres.wire import Wire

OLDEST = 14

_ASK = """
SELECT current_setting('server_version_num')::bigint, current_setting('server_version'),
       current_setting('server_encoding'), pg_is_in_recovery(), pg_backend_pid()::bigint,
       current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), current_setting('synchronous_standby_names')
"""


class Server(Struct, frozen=True):
    """What a connection told about the server behind it."""

    version_number: int
    version: str
    encoding: str
    standby: bool
    backend: int
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    standbys: str
    pooler: bool

    @property
    def durability(self) -> Durability:
        # Torn pages after a power cut lose more than the last writes: that is no durability at all.
        if "off" in (self.fsync, self.full_page_writes):
            return "none"
        return "relaxed" if self.synchronous_commit == "off" else "full"

    @property
    def replicated(self) -> bool:
        """Whether an acknowledgement waits for a standby."""
        return bool(self.standbys.strip()) and self.synchronous_commit not in ("off", "local")

    @property
    def acknowledged(self) -> str:
        """What an acknowledgement means here, for people."""
        if self.fsync == "off":
            return "not durable: fsync is off, and a crash of the server may lose everything"
        if self.full_page_writes == "off":
            return "not durable: full_page_writes is off, and a power cut may tear pages"
        if self.synchronous_commit == "off":
            return "in the primary's memory: a crash of the server loses the last moments"
        if not self.replicated:
            return "on the primary's disk; a standby may lack it when it takes over"
        if self.synchronous_commit == "remote_write":
            return f"on the primary's disk and in the memory of a standby ({self.standbys})"
        return f"on the primary's disk and on a standby's too ({self.standbys})"


def ask(wire: Wire) -> Server:
    row = wire.one(_ASK)
    assert row is not None
    # A pooler hands out a process number of its own, since it has no server process to name yet.
    return Server(*(*row, wire.info.backend_pid != row[4]))


def refuse_unfit(server: Server, place: str) -> None:
    if server.version_number < OLDEST * 10000:
        raise Unsupported(f"{place} is PostgreSQL {server.version}; Clew needs {OLDEST} or newer")
    if server.encoding != "UTF8":
        raise Unsupported(
            f"{place} has the encoding {server.encoding}; Clew needs a database with UTF8 "
            "(CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0)"
        )
    if server.standby:
        raise Unavailable(
            f"{place} is a read-only standby; open the primary, or name all hosts in the address "
            "and add target_session_attrs=read-write",
            retryable=False,
        )
