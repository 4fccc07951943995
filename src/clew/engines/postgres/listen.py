"""Waiting for appends: told by the server where that works, looking now and then where not.

A waiter marks the thread as watched for a while: an append that no process waits for should not
pay for a notification. One connection of the process listens for all waiters. Whether it hears
anything is tried out, not guessed: behind a pooler that lends connections by the transaction a
LISTEN succeeds, and nothing ever comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg

from clew.core.codec import new_id
from clew.engines.postgres.lookup import Book
from clew.engines.postgres.wire import Wire

WATCH_SECONDS = 30.0
POLL_SECONDS = 0.05
LOOK_SECONDS = 2.0  # how often a waiter looks that is notified: a notification may be lost
PROBE_SECONDS = 2.0
RETRY_SECONDS = 10.0

Connect = Callable[[], Wire]


class Listener:
    """One thread with one connection, from the first waiter on."""

    def __init__(self, connect: Connect, book: Book) -> None:
        self._connect = connect
        self._book = book
        self._channel = book.sql("clew.appended")
        self._changed = threading.Condition()
        self._heard: dict[int, int] = {}  # thread → the last seq that we were told of
        self._waiting: dict[int, int] = {}  # thread → how many wait for it
        self._thread: threading.Thread | None = None
        self._works: bool | None = None
        self._closed = False

    @property
    def works(self) -> bool:
        """Whether we are told of appends."""
        return self._works is True

    def start(self) -> None:
        """Begin to listen, once; returns when it is known whether that works."""
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="clew-listener", daemon=True)
                self._thread.start()
            self._changed.wait_for(lambda: self._works is not None, PROBE_SECONDS * 2)

    def enter(self, no: int) -> None:
        with self._changed:
            self._waiting[no] = self._waiting.get(no, 0) + 1

    def leave(self, no: int) -> None:
        with self._changed:
            self._waiting[no] -= 1
            if not self._waiting[no]:
                del self._waiting[no]
                self._heard.pop(no, None)

    def wait(self, no: int, after: int, seconds: float) -> None:
        """Until we are told of a record after that one, or the time is over."""
        pause = LOOK_SECONDS if self.works else POLL_SECONDS
        with self._changed:
            self._changed.wait_for(
                lambda: self._heard.get(no, 0) > after or self._closed, min(seconds, pause)
            )

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    # --- the thread ---

    def _run(self) -> None:
        while not self._closed:
            try:
                with self._connect() as wire:
                    self._listen(wire)
            except Exception:
                self._say(False)  # waiters poll meanwhile
            with self._changed:
                self._changed.wait_for(lambda: self._closed, RETRY_SECONDS)

    def _listen(self, wire: Wire) -> None:
        wire.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(self._channel)))
        token = f"probe {new_id()}"
        with self._connect() as other:
            other.execute("SELECT pg_notify(%s, %s)", (self._channel, token))
        if not self._hears(wire, token):
            self._say(False)
            return
        self._say(True)
        while not self._closed:
            for notice in wire.notifies(timeout=0.5, stop_after=1):
                self._hear(notice.payload)

    def _hears(self, wire: Wire, token: str) -> bool:
        """Whether a probe arrives; what others are told may come before it."""
        deadline = time.monotonic() + PROBE_SECONDS
        while seconds := left(deadline):
            for notice in wire.notifies(timeout=seconds, stop_after=1):
                if notice.payload == token:
                    return True
                self._hear(notice.payload)
        return False

    def _say(self, works: bool) -> None:
        with self._changed:
            self._works = works
            self._changed.notify_all()

    def _hear(self, payload: str) -> None:
        try:
            space, no, seq = (int(part) for part in payload.split(" "))
        except ValueError:
            return  # the probe of another process
        with self._changed:
            if space == self._book.space and no in self._waiting:
                self._heard[no] = max(seq, self._heard.get(no, 0))
                self._changed.notify_all()


def watch(wire: Wire, book: Book, thread: str) -> None:
    """Ask to be told of appends for a while."""
    span_us = round(WATCH_SECONDS * 1e6)
    wire.execute(book.sql("SELECT clew.watch(%s, %s, %s)"), (book.space, thread, span_us))


def left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
