"""Scrub: a store is verified a part at a time, so that damage is found before it is needed.

Each run reads on where the last one stopped, thread by thread, with every record, body and blob
checked against its hash, and stops when its budget is used up. When all threads were read, the
structure of the store is checked as by `verify --quick`, and the next run begins anew. Where it
stopped, and what it found, is kept in the user's state folder: nothing is written to the store.

`Scrubber` does so in the background of a process that runs anyway, at a hundredth of a core, and
once a week.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from clew.address import maintenance, make_folders, namespaces, open_engine, state_folder
from clew.core.checked_reads import check_reads
from clew.core.codec import digest
from clew.core.drafts import now_us
from clew.core.engine import Engine
from clew.core.errors import ClewError, Corrupt, NotFound, Unavailable
from clew.core.model import DEFAULT_NAMESPACE, Entry, Problem, Record, ThreadInfo
from clew.upkeep.background import STEP_SECONDS, Background
from clew.upkeep.transfer import files_of, find_thread, size_of

_log = logging.getLogger("clew")

PAGE = 100  # records that are read before the budget is looked at
PROBLEMS_MAX = 200  # that are remembered; verify names them all
WEEK_US = 7 * 24 * 3600 * 1_000_000


class Scrubbed(Struct, kw_only=True):
    """How far the reading of a store has come, and what it found.

    `begun_us`: when this reading began, 0: it has not yet; `done_us`: when the last one ended;
    `due_us`: when one in the background has to begin, a week after the last. `problems` are those
    of this one, `before` those of the last. `namespace`, `thread` and `seq`: where it goes on.
    """

    place: str
    begun_us: int = 0
    done_us: int | None = None
    due_us: int = 0
    namespace: str = ""
    thread: str = ""
    seq: int = 0
    records: int = 0
    size_bytes: int = 0
    problems: list[Problem] = []
    before: list[Problem] = []

    @property
    def known(self) -> list[Problem]:
        """What is wrong as far as it was read: of the last reading, what this one has not ended."""
        return [*self.problems, *(one for one in self.before if one not in self.problems)]


class ScrubReport(Struct, frozen=True, kw_only=True):
    """What one run read, and what is known since. `finished`: with it, the store was read whole.

    `threads` and `threads_read` are those of the store now, and those that this reading is past.
    """

    place: str
    records: int
    size_bytes: int
    threads: int
    threads_read: int
    finished: bool
    begun_us: int
    done_us: int | None
    problems: list[Problem]


def scrub(
    address: str | os.PathLike[str] | None = None,
    *,
    seconds: float = 60.0,
    size_bytes: int | None = None,
) -> ScrubReport:
    """Go on reading a store for so long, or until so many bytes of records were read.

    At least one page is read. Damage is never an error but a part of the report, as of `verify`.
    Unavailable: another process is at it, or this user has no folder for what is remembered.
    """
    deadline = time.monotonic() + seconds
    with closing(open_engine(address, readonly=True)) as engine:
        place = engine.properties.place
    with _kept(place) as state:
        if state.begun_us == 0:
            state.begun_us = now_us()
        work = _Scrub(address, state, deadline, size_bytes)
        begun_us, records, size = state.begun_us, state.records, state.size_bytes
        finished = work.run()
        records, size = state.records - records, state.size_bytes - size
        problems = list(state.problems) if finished else state.known
        if finished:
            _begin_anew(state)
        return ScrubReport(
            place=place,
            records=records,
            size_bytes=size,
            threads=work.threads,
            threads_read=work.threads_read,
            finished=finished,
            begun_us=begun_us,
            done_us=state.done_us,
            problems=problems,
        )


def _begin_anew(state: Scrubbed) -> None:
    state.before, state.problems = state.problems, []
    state.done_us, state.due_us, state.begun_us = now_us(), state.begun_us + WEEK_US, 0
    state.namespace, state.thread = "", ""
    state.seq = state.records = state.size_bytes = 0


class _Scrub:
    def __init__(
        self,
        address: str | os.PathLike[str] | None,
        state: Scrubbed,
        deadline: float,
        size_bytes: int | None,
    ) -> None:
        self._address, self._state = address, state
        self._deadline = deadline
        self._left = size_bytes
        self._blobs: set[str] = set()  # that were read in this run
        self.threads = self.threads_read = 0

    def run(self) -> bool:
        """Whether the end of the store was reached."""
        state, over = self._state, False
        for name in sorted(namespaces(self._address)):
            with closing(open_engine(self._address, readonly=True, namespace=name)) as engine:
                ids = sorted(head.thread for head in engine.heads())
                self.threads += len(ids)
                for id in ids:
                    if over or (name, id) < (state.namespace, state.thread):
                        self.threads_read += not over
                        continue
                    if (state.namespace, state.thread) != (name, id):
                        state.namespace, state.thread, state.seq = name, id, 0
                    over = self._read(check_reads(engine), name, id)
                    self.threads_read += state.thread != id
        if over:
            return False
        with closing(maintenance(self._address)) as store:
            for problem in store.check(quick=True):
                self._note(problem)
        return True

    def _read(self, engine: Engine, name: str, id: str) -> bool:
        """Read on in a thread. Whether the budget is used up, be it at its end or before."""
        state, at_end = self._state, False
        while not at_end:
            try:
                at_end = self._read_page(engine, name, id)
            except (ClewError, OSError) as error:
                if isinstance(error, Unavailable):
                    raise
                self._note(_problem("damaged_thread", error, name, thread=id))
                at_end = True
            if at_end:
                state.thread, state.seq = f"{id}\0", 0  # the next id, whatever it is
            if time.monotonic() >= self._deadline or (self._left is not None and self._left < 0):
                return True
        return False

    def _read_page(self, engine: Engine, name: str, id: str) -> bool:
        """Whether the thread has no more."""
        state = self._state
        info = find_thread(engine, id)
        if info is None:
            return True  # purged since
        until = min(state.seq + PAGE, info.seq)
        try:
            records = engine.read(id, after=state.seq, limit=PAGE)
            until = records[-1].seq if records else info.seq
        except Corrupt:
            records = self._one_by_one(engine, name, id, until)
        for record in records:
            if isinstance(record, Entry):
                self._read_blobs(engine, name, record)
        self._spend(sum(map(size_of, records)))
        state.records += len(records)
        state.seq = until
        if state.seq < info.seq:
            return False
        self._read_inherited(engine, info)
        return True

    def _one_by_one(self, engine: Engine, name: str, id: str, until: int) -> list[Record]:
        """The records of a page in which one is damaged, with a problem for each that is."""
        found: list[Record] = []
        for seq in range(self._state.seq + 1, until + 1):
            try:
                found += engine.read(id, after=seq - 1, limit=1)
            except (Corrupt, NotFound) as error:
                self._note(_problem("damaged_record", error, name, thread=id, seq=seq))
        return found

    def _read_blobs(self, engine: Engine, name: str, entry: Entry) -> None:
        named = [*entry.blobs, *(files_of(engine, entry) if entry.kind == "snapshot" else ())]
        for hash in named:
            if hash in self._blobs:
                continue
            self._blobs.add(hash)
            where = {"thread": entry.thread, "seq": entry.seq, "entry": entry.id, "blob": hash}
            try:
                self._spend(len(engine.get_blob(hash)))
            except NotFound as error:
                self._note(_problem("missing_blob", error, name, **where))
            except Corrupt as error:
                self._note(_problem("damaged_blob", error, name, **where))

    def _spend(self, size: int) -> None:
        self._state.size_bytes += size
        self._left = None if self._left is None else self._left - size

    def _read_inherited(self, engine: Engine, info: ThreadInfo) -> None:
        """What a fork shares with a thread that was purged, and that only its forks still have."""
        origin = info.origin
        if origin is not None and origin.entry is not None:
            there = find_thread(engine, origin.thread)
            if there is None or there.created_us > info.created_us:
                engine.path(info.id, origin.entry)

    def _note(self, problem: Problem) -> None:
        problems = self._state.problems
        if problem not in problems and len(problems) < PROBLEMS_MAX:
            problems.append(problem)


def _problem(code: str, error: Exception, namespace: str, **where: object) -> Problem:
    told = None if namespace == DEFAULT_NAMESPACE else namespace
    return msgspec.convert(
        {"code": code, "message": str(error), "namespace": told, **where}, Problem
    )


# --- what is remembered ---------------------------------------------------------------------


def scrubbed(place: str) -> Scrubbed | None:
    """How far the reading of the store at a place (`properties.place`) has come; None: never."""
    path = _path(place)
    return None if path is None else _load(path)


def _path(place: str) -> Path | None:
    folder = state_folder()
    name = digest(place.encode("utf-8", "surrogateescape"))[3:19]
    return None if folder is None else folder / f"scrub-{name}.json"


def _load(path: Path) -> Scrubbed | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Scrubbed)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None  # it was never there, or is no use: the reading begins anew


@contextmanager
def _kept(place: str) -> Iterator[Scrubbed]:
    """What is remembered of a store, for this process alone; what was changed is written."""
    path = _path(place)
    if path is None:
        raise Unavailable("this user has no folder in which to remember it", retryable=False)
    make_folders(path.parent)
    with path.with_suffix(".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"another process scrubs {place}") from None
        state = _load(path)
        if state is None or state.place != place:
            state = Scrubbed(place=place)
        try:
            yield state
        finally:
            made = path.with_suffix(".new")
            descriptor = os.open(made, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(state))
            os.replace(made, path)


# --- in the background ----------------------------------------------------------------------


class Scrubber(Background):
    """Scrubs a store in the background, and after its end rests until a week after it began.

    `tell` is told of each run that knows of damage, from that thread.
    """

    name = "clew scrub"

    def __init__(
        self,
        address: str | os.PathLike[str] | None,
        tell: Callable[[ScrubReport], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        super().__init__(clock=clock, wait=wait)
        self._address, self._tell = address, tell

    def step(self) -> float:
        try:
            report = scrub(self._address, seconds=STEP_SECONDS)
        except (ClewError, OSError) as error:  # another process is at it, or the store is busy
            _log.info("the store is not scrubbed now: %s", error)
            return 60.0
        if report.problems and self._tell is not None:
            self._tell(report)
        return (report.begun_us + WEEK_US - now_us()) / 1e6 if report.finished else 0.0

    def first_rest(self) -> float:
        """How long until the next reading has to begin: none if one is under way."""
        try:
            with closing(open_engine(self._address, readonly=True)) as engine:
                state = scrubbed(engine.properties.place)
        except (ClewError, OSError):
            return 0.0  # which the first run will say
        if state is None or state.begun_us:
            return 0.0
        return max(0.0, (state.due_us - now_us()) / 1e6)
