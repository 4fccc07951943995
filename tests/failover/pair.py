"""A primary and a standby that change places when the primary dies."""

from __future__ import annotations

import os
import signal
from typing import Literal, Self

from servers.cluster import Cluster, dsn_of
from servers.processes import wait_until

# How the link between the two stands still before the primary dies. "sender": nothing leaves the
# primary any more, so the standby lacks what is committed last. "standby": it arrives and waits
# there unread, so the standby has what nobody was told of.
Stall = Literal["none", "sender", "standby"]

SETTINGS = {"fsync": "on", "full_page_writes": "on"}
CONNECTED = "SELECT pid, state, sync_state FROM pg_stat_replication WHERE application_name = %s"


class Pair:
    """`with Pair() as pair:` leaves nothing behind. Addresses stay the same for ever."""

    def __init__(self, *, synchronous: bool = True) -> None:
        self.synchronous = synchronous
        self.primary = Cluster(settings=SETTINGS, name="left")
        self.standby: Cluster | None = None
        self._ports: list[Cluster] = []

    def __enter__(self) -> Self:
        try:
            self.primary.start()
            self._copy("right", port=0)
            assert self.standby is not None
            self._ports = [self.primary, self.standby]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for server in (self.primary, self.standby):
            if server is not None:
                server.close()

    def address(self) -> str:
        """Both servers; the client looks for the one that takes writes."""
        return dsn_of(self._ports, target_session_attrs="read-write")

    # --- what happens to it ---

    def stall(self, how: Stall) -> None:
        assert self.standby is not None
        if how == "sender":
            [(sender, _, _)] = self.primary.sql(CONNECTED, self.standby.name)
            os.kill(sender, signal.SIGSTOP)
        elif how == "standby":
            self.standby.freeze()

    def fail_over(self) -> None:
        """SIGKILL for the primary, and the standby takes its place at once."""
        assert self.standby is not None
        self.primary.kill()
        self.standby.thaw()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
        self.standby.close()  # nothing of it is used again

    def depose(self) -> Cluster:
        """The primary hangs and is replaced; thawed, it knows nothing of that."""
        assert self.standby is not None
        self.primary.freeze()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
        return self.standby

    @property
    def complete(self) -> bool:
        """Whether there is a standby that follows."""
        return self.standby is not None and self.standby.running and self._follows()

    def rebuild(self) -> None:
        """The server that died comes back, at its port, as a copy that follows the other one."""
        assert self.standby is not None
        self.standby.close()
        self._copy(self.standby.name, self.standby.port)

    def _copy(self, name: str, port: int) -> None:
        settings = self.primary.settings | {"synchronous_standby_names": ""}
        self.standby = Cluster(settings=settings, name=name)
        self.standby.port = port
        self.standby._copy(self.primary)
        self.standby.start()
        if self.synchronous:
            self.primary.configure(synchronous_standby_names=name)
            self.primary.sql("CHECKPOINT")  # whoever does this has read the settings before
        wait_until(self._follows, f"{name} follows")

    def _follows(self) -> bool:
        assert self.standby is not None
        found = self.primary.sql(CONNECTED, self.standby.name)
        state = "sync" if self.synchronous else "async"
        return [row[1:] for row in found] == [("streaming", state)]
