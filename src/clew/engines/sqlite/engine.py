"""The waist on SQLite: every write goes through group commit, every read through a snapshot."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from clew.core.engine import (
    PACK_IDLE_SECONDS,
    PACK_TAIL,
    AppendRequest,
    Keep,
    PackResult,
    Progress,
    check_limit,
)
from clew.core.errors import ClewError, Corrupt, NotFound, ReadOnly, Unavailable
from clew.core.lease_rules import Instant
from clew.core.model import (
    DEFAULT_NAMESPACE,
    Draft,
    Entry,
    Inspect,
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
from clew.core.names import check_namespace, file_stem
from clew.core.parts import loading
from clew.core.removal import Erased, Purged, Swept
from clew.engines.shared.clock import now
from clew.engines.shared.compression import pack, pack_large
from clew.engines.shared.durability import ACKNOWLEDGED, LocalDurability, check_durability
from clew.engines.shared.group_commit import BATCH_MAX, GroupCommit, Ticket
from clew.engines.shared.tables import namespaces, purge, read, rows
from clew.engines.sqlite import blobs, erase, leases, write
from clew.engines.sqlite import pack as packing
from clew.engines.sqlite.connections import Connections, StoreConnection, nothing
from clew.engines.sqlite.errors import let_go, poisons, translate
from clew.engines.sqlite.guests import REFUSED, Append, ask_for, from_errand, settle, to_answer
from clew.engines.sqlite.mailbox import Guest
from clew.engines.sqlite.traces import Traces
from clew.engines.sqlite.view import ReadOnlyConnections

T = TypeVar("T")

_SYNCHRONOUS = {"full": "FULL", "relaxed": "NORMAL"}
POLL_SECONDS = 0.02
_OWN_ENDINGS = ("", "-wal", "-shm", "-lock", "-journal", "-search")


class SQLiteEngine:
    """A store in one SQLite file."""

    def __init__(
        self,
        path: str | Path,
        *,
        durability: LocalDurability = "full",
        busy_seconds: float = 30.0,
        create: bool = True,
        namespace: str = DEFAULT_NAMESPACE,
        readonly: bool = False,
        vfs: str | None = None,
        clock: Callable[[], Instant] = now,
    ) -> None:
        check_namespace(namespace)
        self._durability = check_durability(durability)
        self._clock = clock
        self._readonly = readonly
        try:
            self._connections = (
                ReadOnlyConnections(Path(path).absolute(), busy_seconds=busy_seconds, vfs=vfs)
                if readonly
                else Connections(
                    Path(path).absolute(),
                    synchronous=_SYNCHRONOUS[durability],
                    busy_seconds=busy_seconds,
                    vfs=vfs,
                    create=create,
                )
            )
        except OSError as error:  # no more files may be open, or there is no room
            text = f"{path} cannot be opened: {error.strerror or error}; nothing was changed in it"
            raise Unavailable(text) from error
        # SQLite resolves links, and puts its own files beside the file that it finds.
        real = os.path.realpath(path)
        self._own_files = tuple(real + end for end in _OWN_ENDINGS)
        self._lineages = rows.Lineages()
        self._start()
        try:
            self._space = self._settle(namespace, create=create and not readonly)
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._pid = self._connections.pid
        self._commits = GroupCommit(self._transact)
        self._standings = write.Standings()
        self._changed = threading.Condition()
        self._waiting = 0
        self._traces = Traces(self._connections)

    def _settle(self, namespace: str, *, create: bool) -> namespaces.Space:
        """The namespace that this handle works in, for good."""
        if namespace == DEFAULT_NAMESPACE:
            return namespaces.DEFAULT
        with self._connections.reader() as db:
            found = namespaces.find(db, namespace)
        if found is None and create:
            return self._write(lambda db: namespaces.make(db, namespace))
        if found is None:
            raise NotFound("namespace", namespace)
        return found

    @property
    def properties(self) -> Properties:
        return Properties(
            engine="sqlite",
            place=str(self._connections.path),
            durability=self._durability,
            acknowledged=ACKNOWLEDGED[self._durability],
            processes=True,
            version=apsw.sqlite_lib_version(),
            namespace=self._space.name,
            read_only=self._readonly,
            maintenance="clew.engines.sqlite.doctor:SQLiteMaintenance",
            own_files=self._own_files,
            packs=True,
            packs_unasked=True,
            text_index_place=f"{self._own_files[0]}-search/{file_stem(self._space.name)}.db",
        )

    # --- writing ---

    def create(self, draft: ThreadDraft) -> ThreadInfo:
        packed = pack_large(draft.facts, blobs.SPILL_BYTES)
        return self._write(
            lambda db: write.create(db, self._lineages, self._space, draft, packed, self._clock)
        )

    def append(
        self,
        thread: str,
        drafts: Sequence[Draft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Record]:
        packed = pack_large(drafts, blobs.SPILL_BYTES)
        return self._submit(
            Append(self._append, self._space.no, thread, drafts, expect, fence, packed)
        )

    def append_each(self, requests: Sequence[AppendRequest]) -> list[list[Record] | BaseException]:
        works = [
            Append(self._append, self._space.no, *one, pack_large(one.drafts, blobs.SPILL_BYTES))
            for one in requests
        ]
        self._enter()
        return [one.error or one.result or [] for one in self._commits.run_each(works)]

    def _append(self, db: apsw.Connection, append: Append) -> list[Record]:
        return write.append(
            db,
            self._standings,
            self._lineages,
            append.space,
            append.thread,
            append.drafts,
            append.packed,
            expect=append.expect,
            fence=append.fence,
            clock=self._clock,
        )

    def lease(self, thread: str, request: LeaseRequest) -> Lease | None:
        if isinstance(request, Inspect):
            with self._connections.reader() as db:
                return leases.step(db, self._space.no, thread, request, self._clock())
        return self._write(
            lambda db: leases.step(db, self._space.no, thread, request, self._clock())
        )

    def put_blobs(self, blobs_: Sequence[bytes]) -> list[str]:
        packed = [pack(data) for data in blobs_]
        now_us = self._clock().wall_us

        def put(db: apsw.Connection) -> list[str]:
            for blob in packed:
                blobs.put(db, self._space.no, blob, now_us)
            return [blob.hash for blob in packed]

        return self._write(put)

    def renew_blobs(self, hashes: Iterable[str]) -> set[str]:
        wanted = list(hashes)
        now_us = self._clock().wall_us
        return self._write(lambda db: blobs.renew(db, self._space.no, wanted, now_us))

    def purge(self, thread: str) -> Purged:
        purged = self._write(lambda db: purge.purge(db, self._space.no, thread))
        self._traces.remove()
        return replace(purged, log_bytes=self._log_bytes(), pages_left=self._traces.are_left)

    def erase(
        self, thread: str, entries: Sequence[str], *, time_us: int, reason: str | None = None
    ) -> list[Erased]:
        erased = self._write(
            lambda db: erase.erase(
                *(db, self._standings, self._lineages, self._space.no, thread, entries),
                time_us=time_us,
                reason=reason,
                clock=self._clock,
            )
        )
        self._traces.remove(always=True)
        left = {"log_bytes": self._log_bytes(), "pages_left": self._traces.are_left}
        return [replace(one, **left) for one in erased]

    def _log_bytes(self) -> int:
        """How much is in the log that a checkpoint could not empty."""
        return self._file_bytes("-wal")

    def _file_bytes(self, ending: str = "") -> int:
        try:
            return os.stat(self._own_files[0] + ending).st_size
        except OSError:  # no test: it is deleted between two looks
            return 0

    def sweep(self, *, grace_seconds: float, keep: Keep | None = None) -> Swept:
        before_us = self._clock().wall_us - round(grace_seconds * 1e6)
        with self._connections.reader() as db:
            unused = blobs.unused(db, self._space.no, before_us)
        # Asked without the write lock: that takes as long as there are snapshots.
        wanted = keep(set(unused)) if keep is not None and unused else set()
        doomed = deque(no for hash, no in unused.items() if hash not in wanted)
        count = size_bytes = 0
        while doomed:
            swept = self._write(lambda db: blobs.remove(db, doomed, before_us))
            count, size_bytes = count + swept.blobs, size_bytes + swept.size_bytes
            # Writers of other processes look now and then whether they can have the lock.
            time.sleep(blobs.SWEEP_SECONDS)
        if count or self._traces.are_left:
            self._traces.remove(always=True)
        else:
            self._traces.empty_log()
        return Swept(blobs=count, size_bytes=size_bytes)

    def pack(
        self,
        *,
        tail: int = PACK_TAIL,
        idle_seconds: float = PACK_IDLE_SECONDS,
        max_seconds: float | None = None,
        shrink: bool = False,
        after: str | None = None,
    ) -> PackResult:
        cold = packing.Cold(tail, self._clock().wall_us - round(idle_seconds * 1e6))
        until = math.inf if max_seconds is None else time.monotonic() + max_seconds
        self._enter()
        if self.properties.read_only:
            raise ReadOnly(self.properties.place, operation="pack")
        done = PackResult()
        for made, place in self._runs(cold, packing.Place.parse(after or "")):
            if made is not None and self._write(lambda db: packing.put(db, made)):  # noqa: B023
                done = PackResult(
                    entries=done.entries + len(made.run),
                    packs=done.packs + 1,
                    size_bytes=done.size_bytes + made.raw_bytes,
                    stored_bytes=done.stored_bytes + len(made.pack[3]) + len(made.pack[5]),
                )
                # Writers of other processes look now and then whether they can have the lock.
                time.sleep(blobs.SWEEP_SECONDS)
            # From the beginning not before the first pack: what is packed or gains nothing would be
            # all that each call gets to.
            if (done.packs or after is not None) and time.monotonic() >= until:
                done = replace(done, complete=False, stopped=str(place))
                break
        size_bytes = self._file_bytes()
        if shrink:
            self._shrink()
        if done.packs or shrink:
            # As for a purge: what lies in packs now must not live on in the log, row by row.
            self._traces.empty_log()
        shrunk_bytes = max(0, size_bytes - self._file_bytes()) if shrink else 0
        with self._connections.reader() as db:
            return replace(done, free_bytes=packing.free_bytes(db), shrunk_bytes=shrunk_bytes)

    def _runs(
        self, cold: packing.Cold, place: packing.Place
    ) -> Iterator[tuple[packing.Made | None, packing.Place]]:
        """Pack after pack, ready to be put, and the place behind it; None for a run that gains
        nothing as one, and at the end of a thread."""
        no = place.thread - 1
        while True:
            with self._connections.reader() as db:
                page = packing.threads(db, self._space.no, no)
            if not page:
                return
            for no, updated_us in page:
                after = place.record if no == place.thread else 0
                while True:
                    with self._connections.reader() as db:
                        run = packing.next_run(db, no, updated_us, cold, after)
                    if run is None:
                        break
                    after = run[-1][0]
                    yield packing.make(run), packing.Place(no, after)
                yield None, packing.Place(no + 1)

    def _shrink(self) -> None:
        """Give the free pages of the file back. All of it is written anew, in one transaction."""
        connections = self._connections
        with connections.write_lock:
            self._standings.forget()
            try:
                connections.at_front(packing.shrink)
            except apsw.Error as error:
                if poisons(error):
                    connections.poisoned_by(error)
                raise self._explain(error) from error

    def _write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Write anything but an append."""

        def forgetful(db: apsw.Connection) -> T:
            self._standings.forget()
            return work(db)

        return self._submit(forgetful)

    def _submit(self, work: Callable[[apsw.Connection], T]) -> T:
        self._enter()
        return self._commits.run(work)

    def _enter(self) -> None:
        self._connections.check()
        if self._pid != self._connections.pid:
            self._start()  # a forked child: its parent's queue and waiters are not its own

    def _transact(self, batch: list[Ticket[Any]]) -> None:
        """Commit a batch, filling in what became of each ticket; failed ones leave no trace."""
        connections = self._connections
        with connections.write_lock:
            due = batch
            ask: Callable[[], bytes | None] = partial(ask_for, batch)
            while due:
                try:
                    answer = connections.at_front(partial(self._commit, batch, due), ask)
                except (apsw.Error, ClewError) as error:
                    # Tickets that had failed on their own keep their own error.
                    for ticket in due:
                        ticket.error = ticket.error or self._explain(error)
                    return
                # What another process wrote for us is done. What it refused we do ourselves: others
                # would only refuse it again.
                due = [] if answer is None else settle(due, answer)
                ask = nothing
        # Read without the lock. A waiter that is missed here looks again after POLL_SECONDS.
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def _commit(
        self, batch: list[Ticket[Any]], due: list[Ticket[Any]], db: StoreConnection
    ) -> None:
        """Run those of a batch that are due, and in the same transaction what others ask for."""
        if due is batch:
            self._commits.admit(batch)
        connections = self._connections
        guests: list[Guest] = []
        written: list[bytes] = []
        answers: list[bytes] = []  # before the commit nothing is promised to anybody
        is_begun = False
        try:
            # Within the block: Ctrl-C may come as soon as it has begun, and would leave it open.
            connections.begin()
            is_begun = True
            connections.confirm(db)
            self._standings.begin(db)
            changes = db.total_changes()
            guests = connections.guests(BATCH_MAX - len(due))
            if len(due) == 1 and not guests:
                # Without a savepoint: if it fails, there is nothing else to keep.
                due[0].result = due[0].work(db)
            else:
                for ticket in due:
                    _run_apart(db, ticket)
                written = [self._run_guest(db, guest.errand) for guest in guests]
            connections.commit()
            self._standings.committed(db)
            if db.total_changes() == changes and self._durability == "full":
                # A retry, answered by what is stored; who stored it may do so without a sync.
                connections.sync_log()
            answers = written
        except BaseException as error:
            if isinstance(error, Corrupt):
                let_go(error)
            if isinstance(error, apsw.Error):
                answers = [REFUSED] * len(guests)  # one of theirs may be the reason
                if is_begun and poisons(error):
                    connections.poisoned_by(error)
            with suppress(apsw.Error):  # the first error is the one that matters
                if db.in_transaction:
                    db.execute("ROLLBACK")
            raise
        finally:
            for guest, answer in zip(guests, answers, strict=False):
                guest.answer = answer

    def _run_guest(self, db: apsw.Connection, errand: bytes) -> bytes:
        """The answer to what another process asks for. If something is wrong, it alone fails."""
        results: list[list[Record] | None] = []
        appends = from_errand(errand, self._append)
        for append in appends:
            ticket = Ticket(append)
            try:
                _run_apart(db, ticket)
            except apsw.Error as error:
                # SQLite has taken all of it back, or nobody knows any more what is on disk.
                if not db.in_transaction or poisons(error):
                    raise
                db.execute("ROLLBACK TO one")
                db.execute("RELEASE one")
                self._standings.forget()  # it may have come as far as to change where they stand
            results.append(ticket.result)
        return to_answer(appends, results)

    def _explain(self, error: apsw.Error | ClewError) -> ClewError:
        if isinstance(error, ClewError):
            return error
        if self._connections.poison is not None:
            failure: ClewError = Unavailable(
                self._connections.poison, retryable=False, committed=None
            )
        elif self._connections.is_in_doubt and isinstance(error, apsw.BusyError):
            failure = Unavailable(
                f"{self._connections.path} is being written by another process, and one was asked "
                "to write this as well; whether it does is unknown: retry with the same ids",
                committed=None,
            )
        else:
            failure = translate(error, str(self._connections.path))
        failure.__cause__ = error
        return failure

    # --- reading ---

    def thread(self, id: str) -> ThreadInfo:
        with self._connections.reader() as db:
            return rows.thread_row(db, self._space.no, id).info(db)

    def threads(self, query: ThreadQuery) -> Page[ThreadInfo]:
        check_limit(query.limit)
        if query.order == "updated":
            self._relist()
        with self._connections.reader() as db:
            return read.threads(db, self._space.no, query)

    def _relist(self) -> None:
        """Bring the index by update up to date, if what is not in it has become much."""
        space = self._space.no
        if self._readonly:
            return
        with self._connections.reader() as db:
            if not read.too_many_unlisted(db, space):
                return
        try:
            self._write(lambda db: write.relist(db, space))
        except Unavailable:
            pass  # another process writes: lists are right without it, only slower

    def read(self, thread: str, *, after: int = 0, limit: int = 1000) -> list[Record]:
        limit = check_limit(limit)
        with self._connections.reader() as db:
            return read.read(db, self._space.no, thread, after, limit)

    def path(
        self,
        thread: str,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        limit = None if limit is None else check_limit(limit)
        with self._connections.reader() as db:
            space = self._space.no
            return read.path(db, self._lineages, space, thread, leaf, after, limit)

    def segments(self, thread: str) -> list[Segment]:
        with self._connections.reader() as db:
            return read.segments(db, self._space.no, thread)

    def wait(self, thread: str, *, after: int, timeout_seconds: float) -> bool:
        """Woken by writers of this process; other processes' commits are looked for in between."""
        self._enter()
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    with self._connections.reader() as db:
                        if rows.thread_row(db, self._space.no, thread).seq > after:
                            return True
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    self._changed.wait(min(left, POLL_SECONDS))
            finally:
                self._waiting -= 1

    def get_blob(self, hash: str) -> bytes:
        with self._connections.reader() as db:
            return blobs.get(db, self._space.no, hash)

    def has_blobs(self, hashes: Iterable[str]) -> set[str]:
        with self._connections.reader() as db:
            return set(blobs.numbers(db, self._space.no, hashes))

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        with loading("clew.engines.sqlite.verify"):  # when it is asked for: most never do
            from clew.engines.sqlite import verify

        # One snapshot for as long as it takes: writers go on, only the log cannot start anew.
        with self._connections.reader() as db:
            yield from verify.check(db, self._space, quick=quick, progress=progress)

    def heads(self) -> list[ThreadHead]:
        self._relist()
        with self._connections.reader() as db:
            return read.heads(db, self._space.no)

    def stats(self) -> Stats:
        with self._connections.reader() as db:
            return read.stats(db, self._space.no)

    def close(self) -> None:
        self._traces.close()
        self._connections.close()


def _run_apart(db: apsw.Connection, ticket: Ticket[Any]) -> None:
    """One of several works in a transaction: if it fails, it alone leaves no trace."""
    db.execute("SAVEPOINT one")
    result = None
    try:
        result = ticket.work(db)
    except apsw.Error:
        raise
    except Exception as error:
        ticket.error = error
        db.execute("ROLLBACK TO one")
    db.execute("RELEASE one")
    ticket.result = result
