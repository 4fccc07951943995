"""The waist on PostgreSQL: one statement for most of it, repeated where that is safe."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from clew.core.engine import PACK_IDLE_SECONDS, PACK_TAIL, Keep, PackResult, Progress, check_limit
from clew.core.errors import InvalidInput, ReadOnly, Unavailable
from clew.core.model import (
    DEFAULT_NAMESPACE,
    Draft,
    Entry,
    Lease,
    LeaseRequest,
    Page,
    Problem,
    Properties,
    Record,
    Segment,
    Stats,
    ThreadDraft,
    ThreadHead,
    ThreadInfo,
    ThreadQuery,
)
from clew.core.names import check_namespace
from clew.core.parts import loading
from clew.core.removal import Erased, Purged, Swept
from clew.engines.postgres import blobs, listen, read, write
from clew.engines.postgres.address import Sql, parse
from clew.engines.postgres.erase import Erase
from clew.engines.postgres.leases import LeaseStep
from clew.engines.postgres.listen import Listener
from clew.engines.postgres.lookup import Book, Heads
from clew.engines.postgres.pool import Connections, Work
from clew.engines.postgres.purge import Purge
from clew.engines.postgres.rows import to_hash
from clew.engines.postgres.schema import connect, establish
from clew.engines.postgres.write import APPEND_ENTRY, Append
from clew.engines.shared.compression import pack, pack_large

T = TypeVar("T")


class PostgresEngine:
    """A store in a schema of a PostgreSQL database.

    `busy_seconds` is the deadline of every call: what the server has not answered by then is
    given up. `migrate=False` leaves the schema alone (see `clew migrate`). `pooler` says whether
    there is a connection pooler in between; None finds out. `readonly` needs no right but to read
    the tables, and every transaction is one that cannot write.
    """

    def __init__(
        self,
        address: str,
        *,
        namespace: str | None = None,
        schema: str | None = None,
        create: bool = True,
        migrate: bool = True,
        readonly: bool = False,
        connections: int = 10,
        busy_seconds: float = 30.0,
        pooler: bool | None = None,
    ) -> None:
        self._address = parse(address, schema)
        self._namespace = check_namespace(
            self._address.namespace or DEFAULT_NAMESPACE if namespace is None else namespace
        )
        if connections < 1:
            raise InvalidInput("connections", f"must be at least 1, not {connections}")
        if not busy_seconds > 0:
            raise InvalidInput("busy_seconds", f"must be over 0, not {busy_seconds}")
        self._patience_seconds = busy_seconds
        found = establish(
            self._address,
            self._namespace,
            create=create,
            migrate=migrate,
            readonly=readonly,
            patience_seconds=busy_seconds,
        )
        self.server = found.server
        self.pooler = found.server.pooler if pooler is None else pooler
        self._readonly = readonly
        self._book = Book(Sql(self._address.schema), found.space, self._namespace, Heads())
        self._connections = self._connect(connections)
        self._forked = threading.Lock()
        self._start()

    def _connect(self, size: int) -> Connections:
        return Connections(
            self._address,
            size=size,
            patience_seconds=self._patience_seconds,
            pooler=self.pooler,
            readonly=self._readonly,
            statements=[] if self._readonly else [self._book.sql(APPEND_ENTRY)],
        )

    def _start(self) -> None:
        # Not the parent's, in a forked child: its locks may have been held, and stay so for ever.
        self._book.heads = Heads()
        self._listener = Listener(lambda: connect(self._address, float("inf")), self._book)
        self._pid = self._connections.pid

    @property
    def properties(self) -> Properties:
        return Properties(
            engine="postgres",
            place=self._address.place,
            namespace=self._namespace,
            durability=self.server.durability,
            acknowledged=self.server.acknowledged,
            processes=True,
            version=self.server.version,
            read_only=self._readonly,
            maintenance="clew.engines.postgres.doctor:PostgresMaintenance",
            text_index="clew.engines.postgres.text_index:open_text_index",
        )

    def _run(self, work: Work[T], *, writes: bool = True) -> T:
        self._enter()
        return self._connections.run(work, writes=writes)

    def _enter(self) -> None:
        self._connections.check()
        if self._pid != self._connections.pid:
            with self._forked:
                if self._pid != self._connections.pid:  # one way: unless a thread was faster
                    self._start()  # a forked child: its parent's locks and listener are not its own

    def _read(self, function: Any, *arguments: Any) -> Any:
        return self._run(self._work(function, *arguments), writes=False)

    def _write(self, function: Any, *arguments: Any) -> Any:
        """Run a write that may be repeated without a look at what an earlier try has done."""
        return self._run(self._work(function, *arguments))

    def _work(self, function: Any, *arguments: Any) -> Work[Any]:
        return lambda wire, again: function(wire, self._book, *arguments)

    # --- writing ---

    def create(self, draft: ThreadDraft) -> ThreadInfo:
        packed = pack_large(draft.facts, blobs.SPILL_BYTES)
        made: ThreadInfo = self._write(write.create, draft, packed)
        return made

    def append(
        self,
        thread: str,
        drafts: Sequence[Draft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Record]:
        work = Append(
            self._book, thread, drafts, pack_large(drafts, blobs.SPILL_BYTES), expect, fence
        )
        self._enter()
        deadline = self._connections.deadline()
        # Taken before a connection is: writers that wait for each other must not hold the pool's.
        lock = self._book.heads.write_lock(thread)
        if not lock.acquire(timeout=self._patience_seconds):
            raise Unavailable(f"{self._address.place}: other writers of {thread!r} took too long")
        try:
            return self._connections.run(work.run, deadline)
        finally:
            lock.release()

    def lease(self, thread: str, request: LeaseRequest) -> Lease | None:
        return self._run(LeaseStep(self._book, thread, request).run)

    def put_blobs(self, blobs_: Sequence[bytes]) -> list[str]:
        packed = [pack(data) for data in blobs_]
        if packed:
            self._write(blobs.put, packed)
        return [blob.hash for blob in packed]

    def renew_blobs(self, hashes: Iterable[str]) -> set[str]:
        found: set[str] = self._write(blobs.renew, list(hashes))
        return found

    def purge(self, thread: str) -> Purged:
        purged = self._run(Purge(self._book, thread).run)
        self._book.heads.forget(thread)
        return purged

    def erase(
        self, thread: str, entries: Sequence[str], *, time_us: int, reason: str | None = None
    ) -> list[Erased]:
        return self._run(Erase(self._book, thread, entries, time_us, reason).run)

    def sweep(self, *, grace_seconds: float, keep: Keep | None = None) -> Swept:
        """In batches, so that a writer that uses blobs waits for a moment at most.

        On a connection of its own: others must not wait for it.
        """
        now_us = self._run(lambda wire, again: wire.value(self._book.sql("SELECT clew.now_us()")))
        before_us = int(now_us) - round(grace_seconds * 1e6)
        with closing(self._connect(1)) as own:
            found: list[bytes] = []
            while page := own.run(
                self._work(blobs.unused, before_us, found[-1] if found else b""), writes=False
            ):
                found += page
            names = {to_hash(hash): hash for hash in found}
            # Asked without a lock: that takes as long as there are snapshots.
            wanted = keep(set(names)) if keep is not None and names else set()
            doomed = [hash for name, hash in names.items() if name not in wanted]
            count = size_bytes = 0
            batch = blobs.SWEEP_LEAST
            while doomed:
                some, doomed = doomed[:batch], doomed[batch:]
                swept, held = own.run(self._work(blobs.remove, some, before_us))
                took = max(time.monotonic() - held, 0.001)
                count, size_bytes = count + swept.blobs, size_bytes + swept.size_bytes
                fits = round(len(some) * blobs.SWEEP_SECONDS / took)
                batch = max(blobs.SWEEP_LEAST, min(2 * batch, fits))
            if count:  # no batch has waited for the disk, nor for a standby: this does, for all
                own.run(lambda wire, again: wire.commit_something())
        return Swept(blobs=count, size_bytes=size_bytes)

    # --- reading ---

    def thread(self, id: str) -> ThreadInfo:
        info: ThreadInfo = self._read(read.thread, id)[1]
        return info

    def threads(self, query: ThreadQuery) -> Page[ThreadInfo]:
        check_limit(query.limit)
        if query.order == "updated" and not self._readonly:
            self._write(read.relist)
        page: Page[ThreadInfo] = self._read(read.threads, query)
        return page

    def read(self, thread: str, *, after: int = 0, limit: int = 1000) -> list[Record]:
        found: list[Record] = self._read(read.read, thread, after, check_limit(limit))
        return found

    def path(
        self,
        thread: str,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        limit = None if limit is None else check_limit(limit)
        found: list[Entry] = self._read(read.path, thread, leaf, after, limit)
        return found

    def segments(self, thread: str) -> list[Segment]:
        found: list[Segment] = self._read(read.segments, thread)
        return found

    def wait(self, thread: str, *, after: int, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        no, seq = self._read(read.number_and_seq, thread)
        if seq > after or timeout_seconds <= 0:
            return bool(seq > after)
        # To be told of appends a mark must be written. Without that right we look now and then.
        listener = self._listener if self._readonly else self._listening()
        listener.enter(no)
        try:
            while True:
                # Marked before the look: an append in between sees the mark, or is seen here.
                if listener.works:
                    self._write(listen.watch, thread)
                if self._read(read.number_and_seq, thread)[1] > after:
                    return True
                seconds = listen.left(deadline)
                if not seconds:
                    return False
                listener.wait(no, after, seconds)
        finally:
            listener.leave(no)

    def _listening(self) -> Listener:
        self._listener.start()
        return self._listener

    def get_blob(self, hash: str) -> bytes:
        data: bytes = self._read(blobs.get, hash)
        return data

    def has_blobs(self, hashes: Iterable[str]) -> set[str]:
        found: set[str] = self._read(blobs.has, list(hashes))
        return found

    def pack(
        self,
        *,
        tail: int = PACK_TAIL,
        idle_seconds: float = PACK_IDLE_SECONDS,
        max_seconds: float | None = None,
        shrink: bool = False,
        after: str | None = None,
    ) -> PackResult:
        # The server compresses by itself what is large, as its columns are set to.
        self._enter()
        if self.properties.read_only:
            raise ReadOnly(self.properties.place, operation="pack")
        if not shrink:
            return PackResult(left_rows=None)
        with loading("clew.engines.postgres.pack"):  # when it is asked for: most never do
            from clew.engines.postgres import pack

        lock_seconds = None if self.pooler else self._patience_seconds
        return pack.shrink(self._address, lock_seconds=lock_seconds, max_seconds=max_seconds)

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        with loading("clew.engines.postgres.verify"):  # when it is asked for: most never do
            from clew.engines.postgres import verify

        yield from verify.check(self._connections, self._book, quick=quick, progress=progress)

    def heads(self) -> list[ThreadHead]:
        found: list[ThreadHead] = self._read(read.heads)
        return found

    def stats(self) -> Stats:
        found: Stats = self._read(read.stats)
        return found

    def close(self) -> None:
        if self._pid == os.getpid():
            self._listener.close()
        self._connections.close()
