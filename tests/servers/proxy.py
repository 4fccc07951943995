"""A proxy before a PostgreSQL server that cuts, delays, swallows and counts.

It reads the protocol, so it knows where a message ends and when the server has answered one, and
what a test asks for happens at exactly one point. It speaks no TLS: clients are told that the
server has none.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

from servers.cluster import SUPERUSER, Listening, dsn_of

# In a client's bytes, or a question about one whole message of the client's.
Marker = bytes | Callable[[bytes], bool]
Result = TypeVar("Result")

CHUNK_BYTES = 65_536
PIECE_SECONDS = 0.001  # between two of them, where answers come in pieces
ENCRYPTION_REQUESTS = (80877103, 80877104)  # SSLRequest, GSSENCRequest
ANSWERED_WITH_READY = (b"Q", b"S", b"F")  # Query, Sync, FunctionCall
READY = b"Z"


@dataclass
class Count:
    """What happened since the counting began."""

    connections: int = 0
    round_trips: int = 0


@dataclass
class Rule:
    """Before, after or without the answer to the client's message with this marker."""

    kind: Literal["before", "after", "silence"]
    marker: Marker
    times: int
    last_words: bytes = b""

    def matches(self, message: bytes) -> bool:
        if self.times == 0:
            return False
        if isinstance(self.marker, bytes):
            return self.marker in message
        return self.marker(message)


class Proxy:
    """Passes everything through to `server`, until it is told otherwise; loopback only.

    A round trip is counted when the server sends something after the client did. A pipeline
    with one Sync at its end is one, however many statements it holds.
    """

    def __init__(self, server: Listening, *, delay_seconds: float = 0.0) -> None:
        self.server = server
        self.delay_seconds = delay_seconds  # of a whole round trip; can be set at any time
        self.piece_bytes: int | None = None  # what is passed on at once; can be set at any time
        self.connections = 0
        self.round_trips = 0
        self.cuts = 0
        self.rules: list[Rule] = []
        self.links: set[Link] = set()
        self.refusing = False
        self.passable = asyncio.Event()
        self.passable.set()
        self._cut = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._listener = self._in_loop(self._listen())
        self.port: int = self._listener.sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def dsn(self, database: str = "postgres", user: str = SUPERUSER, **options: str) -> str:
        return dsn_of([self], database, user, **options)

    # What tests ask for

    def cut(self) -> int:
        """Drops all connections at once, with what was on its way; tells how many there were."""
        return self._call(self._drop_all)

    def cut_before(self, marker: Marker, *, times: int = 1) -> None:
        """The next client's message with this marker never reaches the server."""
        self._call(lambda: self.rules.append(Rule("before", marker, times)))

    def cut_after(
        self, marker: Marker, *, times: int = 1, close: bool = True, last_words: bytes = b""
    ) -> None:
        """The server does what the next message with this marker asks; its client never learns.

        The connection is dropped when the server has said that it is ready for the next query,
        so whatever was committed is there. Without `close` the client is left waiting.
        `last_words` is all that it hears before the end: see `error_message`.
        """
        kind: Literal["after", "silence"] = "after" if close else "silence"
        self._call(lambda: self.rules.append(Rule(kind, marker, times, last_words)))

    def wait_for_cut(self, seconds: float = 60) -> None:
        """Returns when a rule was applied, since the start or the last time this was asked."""
        if not self._cut.wait(seconds):
            raise TimeoutError(f"nothing was cut within {seconds:g} seconds")
        self._cut.clear()

    def black_hole(self) -> None:
        """Takes connections and bytes and passes nothing on, until `heal` delivers it all."""
        self._call(self.passable.clear)

    def refuse(self) -> None:
        """Drops all connections, and every new one as soon as it is made, until `heal`."""
        self._call(lambda: setattr(self, "refusing", True))
        self.cut()

    def heal(self) -> None:
        """Forgets all rules and passes everything through; what was held back arrives late."""
        self._call(self._heal)

    @contextmanager
    def counting(self) -> Iterator[Count]:
        """Counts what happens inside the block."""
        before = Count(self.connections, self.round_trips)
        count = Count()
        yield count
        count.connections = self.connections - before.connections
        count.round_trips = self.round_trips - before.round_trips

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._in_loop(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # Inside the loop's thread

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refusing:
            writer.transport.abort()
            return
        link = Link(self, reader, writer)
        self.links.add(link)
        try:
            await link.run()
        except (OSError, asyncio.CancelledError):
            pass  # a connection that ended, or that we ended
        finally:
            link.abort()
            self.links.discard(link)
            if link.cut:
                self.announce_cut()

    def _drop_all(self) -> int:
        for link in self.links:
            link.drop()
        return len(self.links)

    def _heal(self) -> None:
        self.rules.clear()
        self.refusing = False
        self.passable.set()

    async def _shut(self) -> None:
        # First no more are accepted: one that asyncio is about to take in when the listener is
        # closed would be left with an open socket.
        for listening in self._listener.sockets:
            self._loop.remove_reader(listening.fileno())
        self.refusing = True
        while True:
            # A transport that was aborted is closed in one of the loop's next rounds.
            for _ in range(4):
                await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if not others:
                break
            # Not cancelled: one that was just accepted would never begin, and its socket stay open.
            self._drop_all()
            await asyncio.gather(*others, return_exceptions=True)
        self._listener.close()

    def applied(self, rule: Rule) -> None:
        rule.times -= 1
        self.cuts += 1

    def announce_cut(self) -> None:
        self._cut.set()

    def _call(self, function: Callable[[], Result]) -> Result:
        async def call() -> Result:
            return function()

        return self._in_loop(call())

    def _in_loop(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)


class Ended(ConnectionError):
    """This connection is over."""


class Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(
        self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.cut = False
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._writers = [writer]
        self._task = asyncio.current_task()
        self._questions = Messages(greeted=False)
        self._answers = Messages(greeted=True)
        self._asked = False
        self._batches = 1  # that the server answers with ReadyForQuery; the first: the greeting
        self._readies = 0
        self._rule: Rule | None = None
        self._silent_batch = 0

    async def run(self) -> None:
        await self._proxy.passable.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._proxy.server.port)
        self._writers.append(writer)
        wires = (
            Wire(self._proxy, self._reader, writer, self._from_client),
            Wire(self._proxy, reader, self._writer, self._from_server),
        )
        tasks = [
            asyncio.create_task(work) for wire in wires for work in (wire.read(), wire.write())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def drop(self) -> None:
        """Ends the connection, whatever it waits for."""
        self.abort()
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _from_client(self, data: bytes) -> bytes:
        passed = b"".join(m for m in self._questions.feed(data) if self._passes(m))
        self._asked = self._asked or bool(passed)
        return passed

    def _passes(self, message: bytes) -> bool:
        if is_encryption_request(message):
            self._writer.write(b"N")
            return False
        if self._rule is None:
            self._apply_rule(message)
        self._batches += message[:1] in ANSWERED_WITH_READY
        return True

    def _apply_rule(self, message: bytes) -> None:
        self._rule = next((rule for rule in self._proxy.rules if rule.matches(message)), None)
        if self._rule is None:
            return
        self._proxy.applied(self._rule)
        if self._rule.kind == "before":
            self.cut = True
            raise Ended
        self._silent_batch = self._batches + 1

    def _from_server(self, data: bytes) -> bytes:
        self._proxy.round_trips += self._asked
        self._asked = False
        self._readies += sum(message[:1] == READY for message in self._answers.feed(data))
        if self._rule is None:
            return data
        if self._readies >= self._silent_batch and self._rule.kind == "after":
            self._writer.write(self._rule.last_words)
            self.cut = True
            raise Ended
        if self._readies >= self._silent_batch:
            self._proxy.announce_cut()
        return b""


class Wire:
    """One direction of a connection; what was read waits for its time, and for the proxy."""

    def __init__(
        self,
        proxy: Proxy,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        treat: Callable[[bytes], bytes],
    ) -> None:
        self._proxy, self._source, self._sink, self._treat = proxy, source, sink, treat
        self._waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._now = asyncio.get_running_loop().time

    async def read(self) -> None:
        while data := await self._source.read(CHUNK_BYTES):
            if treated := self._treat(data):
                self._put(treated)
        self._put(b"")

    def _put(self, data: bytes) -> None:
        self._waiting.put_nowait((self._now() + self._proxy.delay_seconds / 2, data))

    async def write(self) -> None:
        while True:
            due, data = await self._waiting.get()
            if (left := due - self._now()) > 0:
                await asyncio.sleep(left)
            await self._proxy.passable.wait()
            if not data:
                break
            size = self._proxy.piece_bytes or len(data)
            for start in range(0, len(data), size):
                self._sink.write(data[start : start + size])
                await self._sink.drain()
                if size < len(data):
                    await asyncio.sleep(PIECE_SECONDS)
        self._sink.close()
        await self._sink.wait_closed()
        raise Ended


class Messages:
    """Cuts a stream into whole messages of the protocol.

    A client's first messages have no type before their length, until it has greeted the server.
    """

    def __init__(self, *, greeted: bool) -> None:
        self._greeted = greeted
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._bytes += data
        found = []
        while (size := self._size_of_next()) <= len(self._bytes):
            message = bytes(self._bytes[:size])
            del self._bytes[:size]
            self._greeted = self._greeted or not is_encryption_request(message)
            found.append(message)
        return found

    def _size_of_next(self) -> int:
        """Too much to be there already, if that cannot be told yet."""
        start = 1 if self._greeted else 0
        length = self._bytes[start : start + 4]
        return start + int.from_bytes(length, "big") if len(length) == 4 else start + 4


def error_message(severity: str, state: str, text: str) -> bytes:
    """What a server sends when something failed."""
    fields = {"S": severity, "V": severity, "C": state, "M": text}
    body = b"".join(f"{code}{value}".encode() + b"\0" for code, value in fields.items()) + b"\0"
    return b"E" + (len(body) + 4).to_bytes(4, "big") + body


def is_encryption_request(message: bytes) -> bool:
    return len(message) == 8 and int.from_bytes(message[4:], "big") in ENCRYPTION_REQUESTS
