"""Lends connections, and repeats what may be repeated until a deadline.

Every piece of work that is given to `run` may be run again: it looks first whether an earlier try
of its own was done after all (`again`). So a lost connection, a restarted server, a failover or a
deadlock is a pause, and not an error, as long as it ends before the deadline.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from clew.core.errors import ClewError, Closed, Unavailable
from clew.engines.postgres.address import ServerAddress
from clew.engines.postgres.wire import (
    READ_ONLY,
    DeadlinePassed,
    Wire,
    adapters,
    is_lost,
    is_transient,
    leaves_doubt,
    text_of,
    translate,
)

T = TypeVar("T")
Work = Callable[[Wire, bool], T]

# How long a try waits for the pool, which connects anew each time: the first, and the longest.
LEND_SECONDS_MIN, LEND_SECONDS_MAX = 0.1, 1.0
PAUSE_SECONDS_MAX = 0.5

# The pool logs every failed try as a warning, which Python prints where no logging is set up. What
# matters of it is in our errors.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

# Pools of a parent process: their connections are the parent's, and must never be closed here.
_abandoned: list[object] = []


class Connections:
    """The connections of one store in one process."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        size: int,
        patience_seconds: float,
        pooler: bool,
        readonly: bool = False,
        statements: Iterable[str] = (),
    ) -> None:
        self.place = address.place
        self._conninfo = address.conninfo
        self._size = size
        self._patience_seconds = patience_seconds
        self._pooler = pooler
        self._readonly = readonly
        self._statements = () if pooler else tuple(statements)
        self._closed = False
        self._forked = threading.Lock()
        self._open()

    def _open(self) -> None:
        # A class of its own, so that the pool's failures can be told from those of other stores.
        self._wires: type[Wire] = type("Wire", (Wire,), {})
        self._pool: ConnectionPool[Wire] = ConnectionPool(
            self._conninfo,
            connection_class=self._wires,
            kwargs=options(self._pooler),
            configure=self._prepare,
            min_size=0,
            max_size=self._size,
            reconnect_timeout=0,  # we ask again ourselves, with less and less hurry
            num_workers=2,
            name=f"clew-{os.getpid()}",
            open=True,
        )
        self.pid = os.getpid()

    def _prepare(self, wire: Wire) -> None:
        # Behind a pooler a setting would stay with the server's connection, for the next client.
        if self._readonly and not self._pooler:
            wire.execute("SET default_transaction_read_only = on")
        for statement in self._statements:
            try:
                wire.learn(statement)
            except psycopg.ProgrammingError:
                pass  # the schema has changed under us: the first call says what is wrong

    def check(self) -> None:
        if self._closed:
            raise Closed(f"{self.place} was closed")
        if self.pid != os.getpid():
            with self._forked:  # the threads of a forked child may all come at once
                if self.pid != os.getpid():  # one way: unless a thread was faster
                    _abandoned.append(self._pool)
                    self._open()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self.pid == os.getpid():
                self._pool.close()
            else:
                _abandoned.append(self._pool)

    # --- working ---

    def deadline(self) -> float:
        return time.monotonic() + self._patience_seconds

    def run(self, work: Work[T], deadline: float | None = None, *, writes: bool = True) -> T:
        """Do the work on a connection, on another one if that failed, until the deadline.

        The work is told whether an earlier try may have been committed (`again`). It must be one
        statement or one transaction, so that a try is done whole or not at all. What only reads
        leaves no doubt behind.
        """
        self.check()
        deadline = self.deadline() if deadline is None else deadline
        doubt, tries = False, 0
        while True:
            try:
                wire = self._take(deadline, doubt)
                try:
                    answer = work(wire, doubt)
                    unconfirmed = wire.doubt
                except BaseException as error:
                    self._drop_if_broken(wire, error)
                    raise
                finally:
                    self._pool.putconn(wire)
                if not unconfirmed:
                    return answer
                doubt, reason = True, "a standby did not confirm the commit"
            except DeadlinePassed:
                raise self._late(writes, "the server did not answer in time") from None
            except psycopg.Error as error:
                if not is_transient(error):
                    failure = translate(error, self.place)
                    if doubt:  # of this try nothing is left, but perhaps of an earlier one
                        failure.committed = failure.fields["committed"] = None
                    raise failure from error
                doubt, reason = doubt or (writes and leaves_doubt(error)), text_of(error)
            tries += 1
            if not self._pause(tries, deadline):
                raise self._late(doubt, reason)

    def apart(self) -> Wire:
        """A connection beside the pool, for work so long that the pool would lack it."""
        self.check()
        try:
            return self._wires.connect(self._conninfo, **options(self._pooler))
        except psycopg.Error as error:
            raise Unavailable(f"{self.place} cannot be reached: {text_of(error)}") from error

    def _drop_if_broken(self, wire: Wire, error: BaseException) -> None:
        if isinstance(error, DeadlinePassed):
            alive = wire.abandon()
        elif is_lost(error) or getattr(error, "sqlstate", None) == READ_ONLY:
            alive = False
            wire.close()
        else:
            return
        if not alive:
            # The other connections lead to the same server, most likely. To find that out one by
            # one would cost a time-out each.
            self._pool.drain()

    def _take(self, deadline: float, doubt: bool) -> Wire:
        seconds = LEND_SECONDS_MIN
        while True:
            left = deadline - time.monotonic()
            try:
                wire = self._pool.getconn(timeout=max(0.001, min(left, seconds)))
            except PoolTimeout:
                seconds = min(2 * seconds, LEND_SECONDS_MAX)
                if time.monotonic() < deadline:
                    continue
                failure = self._wires.last_failure
                reason = f"all {self._size} connections of the pool are in use"
                raise self._late(doubt, reason if failure is None else text_of(failure)) from None
            except psycopg.Error as error:
                raise Closed(f"{self.place} was closed") from error
            wire.deadline = deadline
            wire.doubt = False
            return wire

    def _pause(self, tries: int, deadline: float) -> bool:
        """Wait a little, the longer the more often; whether there is time for another try."""
        # Random, so that the clients of a server that comes back do not all come at once.
        seconds = min(0.005 * 2**tries, PAUSE_SECONDS_MAX) * random.uniform(0.5, 1.0)
        if time.monotonic() + seconds >= deadline:
            return False
        if tries > 1:
            time.sleep(seconds)
        return True

    def _late(self, doubt: bool, reason: str) -> ClewError:
        waited = f"{self._patience_seconds:g} s"
        if doubt:
            return Unavailable(
                f"{self.place}: no answer within {waited} ({reason}); whether it was written is "
                "unknown: retry with the same ids",
                committed=None,
            )
        return Unavailable(
            f"{self.place}: no answer within {waited} ({reason}); nothing was written"
        )


def options(pooler: bool) -> dict[str, object]:
    """How every connection is set up. Behind a pooler no statement outlives its transaction."""
    made: dict[str, object] = {"autocommit": True, "context": _Context()}
    if pooler:
        made["prepare_threshold"] = None
    return made


class _Context:
    """Carries our adapters to where psycopg looks for them."""

    def __init__(self) -> None:
        self.adapters = adapters()
        self.connection = None
