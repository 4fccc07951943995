"""One connection: every command on it ends by a deadline, and a doubt about a commit is noted.

Below it: what PostgreSQL's errors mean, and whether a silent server was replaced by another one.
"""

from __future__ import annotations

import math
import select
import struct
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import errors as states
from psycopg import generators, pq
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8, Int8BinaryDumper

from clew.core.errors import ClewError, Corrupt, InvalidInput, TooLarge, Unavailable, Unsupported
from clew.engines.postgres.address import has_several_hosts

V = TypeVar("V")
Row = tuple[Any, ...]

WAKE_SECONDS = 0.05  # how often a wait looks at the deadline
SILENCE_SECONDS = 5.0  # after so long without an answer: is another server in its place?
PROBE_SECONDS = 2  # for each server that is asked that; the least that libpq takes

# Conditions that our own functions raise; sql/postgres.sql says what they mean.
BLOB_MISSING, NO_SEGMENT, NOT_ON_PATH = "CL001", "CL003", "CL004"

READ_ONLY = "25006"  # the server was a primary, and is a standby now
_LOST_STATES = frozenset(("57P01", "57P02", "57P03", "57P05", "25P03", "40003"))
_AGAIN_STATES = frozenset(("40001", "40P01", "55P03", "26000"))
_BEFORE_ANYTHING = frozenset(("57P03", "53300", "53400", READ_ONLY))
# A commit that a synchronous standby did not confirm comes back as a success with one of these.
_DOUBTS = frozenset(("01000", "57P01"))

_FINE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
TRUE = b"\x01"  # as `call` gives it
_BINARY = [pq.Format.BINARY]
_FORGOTTEN = b""  # the name of a statement that the server does not know any more
_PACKERS: dict[type, Callable[[Any], bytes | None]] = {
    int: struct.Struct("!q").pack,
    str: str.encode,
    bytes: bytes,
    type(None): lambda value: None,
}


class DeadlinePassed(Exception):
    """The server had not answered when the deadline came."""


class Wire(psycopg.Connection[Row]):
    """A connection with a deadline. After `DeadlinePassed` it is of no more use."""

    deadline = math.inf
    doubt = False
    conninfo = ""
    last_failure: BaseException | None = None
    _cursor: psycopg.Cursor[Row] | None = None
    _learned: Mapping[str, bytes] = {}  # statements → the names they are prepared under
    _socket: select.poll | None = None

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Wire:
        """The pool connects in threads of its own: what went wrong there is kept for the caller."""
        try:
            wire = super().connect(conninfo, **options)
        except BaseException as error:
            cls.last_failure = error
            raise
        cls.last_failure = None
        wire.conninfo = conninfo
        wire.add_notice_handler(wire._note)
        return wire

    def wait(self, gen: Any, interval: float = WAKE_SECONDS, *more: Any, **named: Any) -> Any:
        return super().wait(_bounded(gen, self), WAKE_SECONDS, *more, **named)

    def check_deadline(self) -> None:
        """For loops of several commands: each may be in time, and all of them together not."""
        if time.monotonic() >= self.deadline:
            raise DeadlinePassed

    def _note(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING" and diagnostic.sqlstate in _DOUBTS:
            self.doubt = True

    # --- asking ---

    def one(self, sql: str, bindings: Any = ()) -> Row | None:
        with _legible():
            return self._ask(sql, bindings).fetchone()

    def every(self, sql: str, bindings: Any = ()) -> list[Row]:
        with _legible():
            return self._ask(sql, bindings).fetchall()

    def value(self, sql: str, bindings: Any = ()) -> Any:
        row = self.one(sql, bindings)
        return None if row is None else row[0]

    def commit_something(self) -> None:
        """A line in the server's log, which needs no right on a row.

        When it is confirmed, so is everything that was committed before it.
        """
        self.execute("SELECT pg_logical_emit_message(true, 'clew', '')")

    def _ask(self, sql: str, bindings: Any) -> psycopg.Cursor[Row]:
        # One cursor for all, as making one costs: what it gave is read before the next question.
        if self._cursor is None:
            self._cursor = self.cursor(binary=True)
        return self._cursor.execute(sql, bindings)

    def call(self, statement: str, values: Sequence[Any]) -> bytes | None:
        """The only value that a statement with $1, $2, … gives, past psycopg's cursors.

        For the one that agents run most: a cursor would cost more than all the rest of an append.
        """
        bound = [_PACKERS[type(value)](value) for value in values]
        formats = _BINARY * len(bound)
        name = self._learned.get(statement)
        if name == _FORGOTTEN and self._is_idle:
            name = self.learn(statement)
        if name:
            self.pgconn.send_query_prepared(name, bound, formats, _BINARY[0])
            try:
                return self._answer()[0].get_value(0, 0)
            except states.InvalidSqlStatementName:
                # After a rollback psycopg lets the server forget all statements, ours as well.
                self._learned = {**self._learned, statement: _FORGOTTEN}
                if not self._is_idle:
                    raise
        self.pgconn.send_query_params(statement.encode(), bound, None, formats, _BINARY[0])
        return self._answer()[0].get_value(0, 0)

    def learn(self, statement: str) -> bytes:
        """Have the server prepare a statement for `call`, so that no call waits for that."""
        name = b"clew_%d" % len(self._learned)
        self.pgconn.send_prepare(name, statement.encode())
        self._answer()
        self._learned = {**self._learned, statement: name}
        return name

    @property
    def _is_idle(self) -> bool:
        return self.pgconn.transaction_status == pq.TransactionStatus.IDLE

    def _answer(self) -> list[pq.abc.PGresult]:
        """What the server says, past psycopg's generators if one plain wait will do.

        Most answers are short and come whole, and the generators take some microseconds for each.
        They do the rest: send what the socket did not take, watch the deadline, hear what is
        missing. An interrupt leaves the statement unfinished: then the pool closes us.
        """
        pgconn = self.pgconn
        if self._socket is None:
            self._socket = select.poll()
            self._socket.register(pgconn.socket, select.POLLIN)
        results: list[pq.abc.PGresult] = []
        if not pgconn.flush() and self._socket.poll(WAKE_SECONDS * 1000):
            pgconn.consume_input()
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    return _fine(results)
                results.append(result)
        return _fine(results + self.wait(generators.execute(pgconn)))

    def abandon(self) -> bool:
        """Ask the server to stop, and let go of it; whether it took notice."""
        heard = False
        try:
            # An old client library has no way to ask that does not wait for a silent server.
            if psycopg.capabilities.has_cancel_safe():  # one way: the library here has it
                self.cancel_safe(timeout=1.0)
                heard = True
        except (psycopg.Error, OSError):
            pass
        self.close()
        return heard


def _fine(results: list[pq.abc.PGresult]) -> list[pq.abc.PGresult]:
    for result in results:
        if result.status not in _FINE:
            raise psycopg.errors.error_from_result(result)
    return results


def _bounded(gen: Any, wire: Wire) -> Generator[Any, Any, Any]:
    """The generator of a command, which gives up when the deadline has passed without an answer."""
    look = time.monotonic() + SILENCE_SECONDS
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and (now := time.monotonic()) >= min(look, wire.deadline):
                if now >= wire.deadline:
                    raise DeadlinePassed
                if is_replaced(wire.conninfo, wire.info):  # no test: it is tried in tests/failover
                    raise ServerReplaced("the server fell silent, and another one took its place")
                look = time.monotonic() + SILENCE_SECONDS
            state = gen.send(ready)
    except StopIteration as end:
        return end.value


def array(values: Iterable[Any]) -> list[Any]:
    """Values for one array parameter; psycopg would choose the width of numbers by their size."""
    return [Int8(value) if type(value) is int else value for value in values]


def adapters() -> AdaptersMap:
    """All numbers as 64 bits: a statement is prepared once, however large its numbers grow."""
    made = AdaptersMap(psycopg.adapters)
    made.register_dumper(int, Int8BinaryDumper)
    return made


# --- PostgreSQL's errors as ours, in one place ---


def is_lost(error: BaseException) -> bool:
    """The connection is gone, or the server is going: what became of the command is unknown."""
    if not isinstance(error, psycopg.Error):
        return False
    # Whatever the reason, these end the connection. A server whose disk failed at COMMIT says PANIC
    # with a code that other commands fail with too, and its recovery may find the commit whole.
    if error.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return True
    state = error.sqlstate
    if state is None:
        # The client's own: no answer came, or what came does not fit what was asked. Its other
        # errors are about what was never sent.
        lost = (psycopg.OperationalError, psycopg.InternalError)
        return isinstance(error, lost) or type(error) is psycopg.DatabaseError
    return state.startswith("08") or state in _LOST_STATES


def is_transient(error: BaseException) -> bool:
    """Trying again may help: others were in the way, a prepared statement was forgotten, or the
    server has changed its role."""
    if not isinstance(error, psycopg.Error):
        return False
    return is_lost(error) or error.sqlstate in _AGAIN_STATES | _BEFORE_ANYTHING


def leaves_doubt(error: BaseException) -> bool:
    """Whether what was sent may have been done all the same."""
    if not is_lost(error) or not isinstance(error, psycopg.Error):
        return False
    # What ends the connection may come behind the commit, whatever its code means elsewhere.
    ended = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return ended or error.sqlstate not in _BEFORE_ANYTHING


def text_of(error: BaseException) -> str:
    """The first line that PostgreSQL, or its client, has to say."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].removeprefix("connection failed: ") if lines else type(error).__name__


class _legible:
    """The server hands out damaged text as it is; what cannot be decoded was not written by us."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UnicodeDecodeError):
            raise Corrupt("a row", f"text is not UTF-8: {error}; run clew verify") from error


def translate(error: psycopg.Error, place: str, *, writes: bool = True) -> ClewError:
    """What a failed statement means. It has changed nothing, unless no answer came to it."""
    text = text_of(error)
    match error:
        case _ if writes and leaves_doubt(error):
            return Unavailable(
                f"{place}: the connection ended before the server had answered ({text}); whether "
                "anything was written is unknown: look, or do the same again",
                committed=None,
            )
        case states.InsufficientPrivilege():
            return Unsupported(
                f"{place}: the role may not do this ({text}); grant it the rights on Clew's schema"
            )
        case states.ReadOnlySqlTransaction():
            return Unavailable(
                f"{place} is a read-only standby, or was made one; name all hosts in the address "
                "and add target_session_attrs=read-write, so that the primary is found"
            )
        case states.DiskFull() | states.OutOfMemory() | states.ConfigurationLimitExceeded():
            return Unavailable(
                f"{place}: the server has no room left ({text}); nothing was written"
            )
        case (
            states.UndefinedTable()
            | states.UndefinedFunction()
            | states.UndefinedColumn()
            | states.InvalidSchemaName()
        ):
            return Unsupported(
                f"{place}: the schema is not the one this Clew knows ({text}); "
                "it may have been migrated or dropped: open the store again"
            )
        case states.ProgramLimitExceeded():
            if "bytes" not in text:
                return TooLarge("value", size=0, limit=0)
            return Unavailable(f"a value is too large for PostgreSQL: {text}", retryable=False)
        case states.DataCorrupted() | states.IndexCorrupted():
            return Corrupt(place, f"PostgreSQL says: {text}")
        case states.UntranslatableCharacter() | states.CharacterNotInRepertoire():
            return InvalidInput("text", text)
        case states.LockNotAvailable():
            return Unavailable(
                f"{place}: a long transaction uses Clew's tables (a verify, say, or a dump); "
                "nothing was changed, try again when it is over"
            )
        case _ if error.sqlstate == NO_SEGMENT:
            return Corrupt(place, f"{text}; run clew verify")
        case _ if is_transient(error):
            return Unavailable(f"{place}: {text}")
        case _:
            return Unavailable(f"{place}: PostgreSQL failed: {text}", retryable=False)


# --- whether a server that does not answer is still the one to wait for ---


class ServerReplaced(psycopg.OperationalError):
    """The server fell silent, and another one has taken its place."""


def is_replaced(conninfo: str, info: psycopg.ConnectionInfo) -> bool:
    """Whether the server of this connection is silent, and another one of the address answers."""
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
