"""Copy: a store into another one, through the waist alone, from any engine to any engine.

Entries keep their ids, hashes, times and order. A thread of the target that holds the first
records of the source's goes on from there, so that a copy can be interrupted at any moment and
a second one transfers only what is new. Where both sides moved on, the source's entries become
a branch, and the target's leaf and facts stay as they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from clew.core.codec import new_id
from clew.core.engine import Engine, Progress
from clew.core.errors import (
    AlreadyExists,
    ClewError,
    Conflict,
    Corrupt,
    FormatTooNew,
    InvalidInput,
    LeaseHeld,
    NotFound,
)
from clew.core.model import Draft, Entry, Move, MoveDraft, Record, ThreadDraft, ThreadInfo
from clew.upkeep.transfer import (
    MARK,
    Blocked,
    Carried,
    Carrier,
    Scaffolds,
    batches,
    erase_as,
    erasure_of,
    everything,
    find_entry,
    find_thread,
    holds,
    inherited,
    rename,
    to_draft,
)

Outcome = Literal[
    "copied", "extended", "same", "ahead", "diverged", "unrelated", "held", "blocked", "damaged"
]
COMPLETE = frozenset({"copied", "extended", "same", "ahead", "diverged"})
ATTEMPTS = 3


class CopiedThread(Struct, frozen=True, kw_only=True):
    """What became of one thread.

    copied: it is new in the target. extended: it was there and got what it lacked. same, ahead:
    nothing to do. diverged: both sides moved on; the leaves are those of both sides. The others
    were not copied, or not to the end, and `reason` says why: unrelated (another thread has
    the id), held (another writer has it in the target), blocked (its origin cannot be there),
    damaged (the source cannot be read).
    """

    thread: str
    outcome: Outcome
    records: int = 0
    source_leaf: str | None = None
    target_leaf: str | None = None
    reason: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the target has everything of it."""
        return self.outcome in COMPLETE


class CopyReport(Struct, frozen=True, kw_only=True):
    """What a copy did: thread by thread, and how much it wrote.

    `set_aside`: of an exact copy, under which ids the target keeps threads that it had otherwise.
    """

    threads: tuple[CopiedThread, ...]
    records: int
    blobs: int
    blob_bytes: int
    set_aside: dict[str, str] = {}

    @property
    def complete(self) -> bool:
        """Whether the target has everything of every thread."""
        return all(thread.complete for thread in self.threads)

    def having(self, *outcomes: Outcome) -> list[CopiedThread]:
        """The threads with one of these outcomes."""
        return [thread for thread in self.threads if thread.outcome in outcomes]


def copy(
    source: Engine,
    target: Engine,
    *,
    only: Collection[str] | None = None,
    exact: bool = False,
    progress: Progress | None = None,
) -> CopyReport:
    """Copy every thread of an engine to another one, or `only` some. `progress` counts records.

    `exact` is for a target that is nothing but a copy: a thread that went another way there, or
    another one of the same id, is kept under a new id (`set_aside`), and copied anew.
    """
    work = _Copy(source, target, only, progress)
    try:
        aside = work.set_aside() if exact else {}
        done = tuple(work.run())
    finally:
        work.end()
    carried = work.carried
    return CopyReport(
        threads=done,
        records=sum(thread.records for thread in done),
        blobs=carried.blobs,
        blob_bytes=carried.blob_bytes,
        set_aside=aside,
    )


class _MovedOn(Exception):
    """Another writer appended to the target's thread meanwhile."""


class _Copy:
    def __init__(
        self,
        source: Engine,
        target: Engine,
        only: Collection[str] | None,
        progress: Progress | None,
    ) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self.carried = Carried()
        self._scaffolds = Scaffolds(source, target, self.carried)
        # Listed once: what is created in the source after this comes with the next copy.
        found = everything(source) if only is None else [source.thread(id) for id in only]
        self._infos = {info.id: info for info in found if info.parent != MARK}
        self._there = {info.id: info for info in everything(target)}
        self._total = sum(info.seq for info in self._infos.values())
        self._done = 0
        self._failed: dict[str, str] = {}  # threads that were not copied to the end, and why
        self._agreed: dict[str, int] = {}  # up to which seq both sides are known to agree

    def set_aside(self) -> dict[str, str]:
        """Give a new id to each thread of the target that is no beginning of the source's.

        Before anything is copied, as it decides which forks can be made from what is there.
        """
        moved: dict[str, str] = {}
        for info in self._infos.values():
            theirs = self._there.get(info.id)
            if theirs is None or theirs.parent == MARK:
                continue
            if _birth(theirs) == _birth(info):
                try:
                    agreed = self._agreed[info.id] = self._common(info, theirs)
                except (Corrupt, ValueError):
                    continue  # it cannot be read, which is said when its turn comes
                if agreed in (info.seq, theirs.seq):
                    continue
            moved[info.id] = id = f"{info.id[:100]}~{new_id()}"
            rename(self._target, theirs, id)
            del self._there[info.id]
            self._agreed.pop(info.id, None)
        return moved

    def run(self) -> Iterator[CopiedThread]:
        order, first = in_order(self._source, self._infos, self._there)
        for id in sorted(first):
            with suppress(Blocked, Corrupt):  # it is said when its turn comes
                self._scaffolds.prepare(self._infos[id])
        for id in order:
            info = self._infos[id]
            end = self._done + info.seq
            self.carried.records = 0
            done = self._copy(info)
            yield replace(done, records=self.carried.records, reason=self._tell_all(info, done))
            self._tell(end - self._done)

    def end(self) -> None:
        self._scaffolds.close()

    def _tell(self, records: int) -> None:
        self._done += records
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _tell_all(self, info: ThreadInfo, done: CopiedThread) -> str | None:
        """Why a thread was not copied to the end, and how much of it was."""
        if done.complete or done.outcome == "unrelated":
            return done.reason
        self._failed[info.id] = done.reason or ""
        if info.id in self._there:
            return f"{done.reason}; records added to what the target had: {self.carried.records}"
        made = find_thread(self._target, info.id)
        if made is None or made.parent == MARK:
            return f"{done.reason}; nothing of it was copied"
        number = "" if info.unreadable is not None else f" {info.seq}"  # which only its end tells
        return f"{done.reason}; {made.seq} of its{number} records were copied"

    # --- one thread ---

    def _copy(self, info: ThreadInfo) -> CopiedThread:
        try:
            for _ in range(ATTEMPTS):
                try:
                    done = self._attempt(info)
                except _MovedOn:
                    self._there[info.id] = self._target.thread(info.id)
                    continue
                # What it is said to have was there to be read, and that may be nothing at all.
                if done.complete and info.unreadable is not None:
                    return _stopped(info, "damaged", info.unreadable)
                return done
            return _stopped(info, "held", "another writer keeps writing to it in the target")
        except (
            LeaseHeld,
            Blocked,
            Corrupt,
            InvalidInput,
            AlreadyExists,
            Conflict,
            NotFound,
            FormatTooNew,
        ) as error:  # InvalidInput: a record that no engine would take, so not one of Clew's
            return _stopped(info, _outcome_of(error), str(error))

    def _attempt(self, info: ThreadInfo) -> CopiedThread:
        theirs = self._there.get(info.id)
        if theirs is None:
            if info.unreadable is not None and not info.seq:
                # Not even when it was made can be believed: what the target had of that would be
                # another thread, in the way of this one as soon as it is repaired.
                return _stopped(info, "damaged", info.unreadable)
            self._provide(info)
            draft = ThreadDraft(
                id=info.id, created_us=info.created_us, parent=info.parent, origin=info.origin
            )
            self._extend(info, self._target.create(draft))
            return CopiedThread(thread=info.id, outcome="copied")
        if _birth(theirs) != _birth(info):
            reason = "the target has another thread of this id, which was left as it is"
            return _stopped(info, "unrelated", reason)
        common = self._agreed.pop(info.id, None)
        if common is None:
            common = self._common(info, theirs)
        if common == info.seq:
            outcome: Outcome = "same" if theirs.seq == common else "ahead"
            return CopiedThread(thread=info.id, outcome=outcome)
        if common == theirs.seq:
            self._extend(info, theirs)
            return CopiedThread(thread=info.id, outcome="extended")
        return self._branch(info, theirs, common)

    def _provide(self, fork: ThreadInfo) -> None:
        """See to it that a fork can be made; or say what is wrong with what it was forked from."""
        try:
            self._scaffolds.provide(fork)
        except Blocked as error:
            if error.thread not in self._failed:
                raise
            why = f"which was not copied to the end ({self._failed[error.thread]})"
            text = f"it was forked from {error.thread!r}, {why}"
            raise Blocked(text, thread=error.thread) from error
        except Corrupt as error:
            origin = "" if fork.origin is None else fork.origin.thread
            place = f"what it shares with its origin, thread {origin!r}"
            raise Corrupt(place, f"it cannot be read: {error}") from error

    def _common(self, mine: ThreadInfo, theirs: ThreadInfo) -> int:
        """The seq up to which both have the same records, found by comparing single ones."""

        def differs(seq: int) -> bool:
            return _identity(self._source, mine.id, seq) != _identity(self._target, mine.id, seq)

        # Records are never changed: two feeds that part stay apart, so halving finds the place.
        shorter = min(mine.seq, theirs.seq)
        if shorter == 0 or not differs(shorter):
            return shorter
        return bisect_left(range(1, shorter), True, key=differs)

    def _extend(self, info: ThreadInfo, theirs: ThreadInfo) -> None:
        """Append the rest; the target's records become the same as the source's."""
        carrier = Carrier(self._source, self._target, info.id, self.carried)
        leaf = theirs.leaf
        for batch in batches(self._source, info.id, theirs.seq, info.seq):
            carrier.check(batch)
            carrier.bring_blobs(batch)  # first: an entry must not name a blob that is not there
            written = self._write(info.id, batch, leaf)
            self.carried.records += len(written)
            # A fact needs no leaf to match, so one may have come in between and shifted the rest.
            if [record.seq for record in written] != [record.seq for record in batch]:
                raise _MovedOn
            _compare(batch, written)
            leaf = _leaf_after(batch, leaf)
            self._tell(len(batch))

    def _write(self, thread: str, batch: list[Record], leaf: str | None) -> list[Record]:
        """Append a batch, and erase where it says that something was erased."""
        written: list[Record] = []
        for record in batch:
            if erasure_of(self._target, record) is not None:
                break
        else:
            return self._append(thread, [to_draft(record) for record in batch], leaf)
        at = batch.index(record)
        if at:
            written = self._append(thread, [to_draft(before) for before in batch[:at]], leaf)
            leaf = _leaf_after(batch[:at], leaf)
        written += erase_as(self._target, record)
        rest = batch[at + 1 :]
        return written + (self._write(thread, rest, leaf) if rest else [])

    def _append(self, thread: str, drafts: list[Draft], leaf: str | None) -> list[Record]:
        try:
            return self._target.append(thread, drafts, expect=leaf)
        except Conflict as error:
            if error.expected == leaf:
                raise _MovedOn from None
            raise

    # --- both moved on ---

    def _branch(self, info: ThreadInfo, theirs: ThreadInfo, common: int) -> CopiedThread:
        """Append the entries that the target lacks, and go back to where its leaf was."""
        self._erase_there(info, common)
        after = self._first_lacking(info, common)
        carrier = Carrier(self._source, self._target, info.id, self.carried)
        time_us = max(info.updated_us, theirs.updated_us)
        for batch in batches(self._source, info.id, after, info.seq):
            entries = [record for record in batch if isinstance(record, Entry)]
            if not entries or find_entry(self._target, info.id, entries[-1].id) is not None:
                continue
            carrier.check(entries)
            carrier.bring_blobs(entries)
            shift = _shift(entries, self._target.thread(info.id).seq)
            # One move behind the entries, back to the target's leaf; the others only take up seqs.
            moves = [
                MoveDraft(id=new_id(), leaf=theirs.leaf, time_us=time_us) for _ in range(shift + 1)
            ]
            drafts = [*moves[1:], *map(to_draft, entries), moves[0]]
            written = self._append(info.id, drafts, theirs.leaf)
            self.carried.records += sum(record.seq > theirs.seq for record in written)
            _compare(entries, written[shift:])
        return CopiedThread(
            thread=info.id,
            outcome="diverged",
            source_leaf=info.leaf,
            target_leaf=theirs.leaf,
        )

    def _erase_there(self, info: ThreadInfo, common: int) -> None:
        """Facts stay where they are, but what was erased here must not live on there."""
        for batch in batches(self._source, info.id, common, info.seq):
            for record in batch:
                if erasure_of(self._target, record) is not None:
                    self.carried.records += len(erase_as(self._target, record))

    def _first_lacking(self, info: ThreadInfo, common: int) -> int:
        """The seq after which the source has entries that the target lacks.

        Entries come over in their order, so the runs that the target has are the first ones.
        """
        runs = self._source.segments(info.id)

        def lacks(n: int) -> bool:
            return find_entry(self._target, info.id, runs[n].last) is None

        n = bisect_left(range(len(runs)), True, key=lacks)
        return info.seq if n == len(runs) else max(common, runs[n].first_seq - 1)


def in_order(
    source: Engine, infos: Mapping[str, ThreadInfo], there: Collection[str]
) -> tuple[list[str], set[str]]:
    """The ids with sources before their forks; and the forks that have to be prepared for first.

    A fork of a purged thread needs that thread's id for a moment, so it comes before whatever
    thread has the id now. Where an id was used again, and the new thread shares entries with
    the old one, it may be taken for the origin of its own origin; what stands in such a circle
    is looked at closely, entry by entry. If two threads each need the id that the other one has
    now, what they need is built before either is copied.
    """
    close: set[str] = set()
    first: set[str] = set()
    while True:
        sorter: TopologicalSorter[str] = TopologicalSorter()
        for info in infos.values():
            sorter.add(info.id)
            if info.id in first and info.origin is not None:
                if info.origin.thread in infos:
                    sorter.add(info.origin.thread, info.id)
            elif info.origin is not None and info.id not in there:
                try:
                    _add_edges(sorter, source, infos, info, close=info.id in close)
                except Corrupt:  # it is said when its turn comes, after its origin's
                    if info.origin.thread in infos:
                        sorter.add(info.id, info.origin.thread)
        try:
            return list(sorter.static_order()), first
        except CycleError as error:
            circle = set(error.args[1])
            if circle <= first:
                return list(infos), first  # forking cannot bring this about; what can be, is copied
            if circle <= close | first:
                first |= {id for id in circle if infos[id].origin is not None and id not in there}
            close |= circle


def _add_edges(
    sorter: TopologicalSorter[str],
    source: Engine,
    infos: Mapping[str, ThreadInfo],
    fork: ThreadInfo,
    *,
    close: bool,
) -> None:
    origin = fork.origin
    assert origin is not None
    alive = not close and origin.thread in infos
    if alive and (origin.entry is None or holds(source, origin.thread, origin.entry, origin.hash)):
        sorter.add(fork.id, origin.thread)
        return
    end: Entry | None = None
    for name, entries in inherited(source, fork):
        end = entries[-1] if entries else end
        if name == fork.id or name not in infos or end is None:
            continue
        if entries and _owns(source, end):
            sorter.add(fork.id, name)
        elif not holds(source, name, end.id, end.hash):
            sorter.add(name, fork.id)  # another thread now: not before this fork is made


def _owns(source: Engine, entry: Entry) -> bool:
    """Whether the thread that has the id now is the one that this entry was written in."""
    found = source.read(entry.thread, after=entry.seq - 1, limit=1)
    return bool(found) and (found[0].id, found[0].hash) == (entry.id, entry.hash)


def _birth(info: ThreadInfo) -> tuple[object, ...]:
    return info.created_us, info.parent, info.origin


def _identity(engine: Engine, thread: str, seq: int) -> tuple[str, str]:
    (record,) = engine.read(thread, after=seq - 1, limit=1)
    return record.id, record.hash


def _shift(entries: list[Entry], seq: int) -> int:
    """How many records must come before a branch, so that none of it gets its own seq again.

    The same record at the same seq is how the next copy tells that two threads agree.
    """
    taken = {entry.seq - seq - n for n, entry in enumerate(entries, start=1)}
    return next(shift for shift in range(len(taken) + 1) if shift not in taken)


def _leaf_after(batch: list[Record], leaf: str | None) -> str | None:
    for record in reversed(batch):
        if isinstance(record, Entry):
            return record.id
        if isinstance(record, Move):
            return record.leaf
    return leaf


def _compare(sent: list[Record] | list[Entry], written: list[Record]) -> None:
    for record, found in zip(sent, written, strict=False):
        if record.hash != found.hash:
            place = f"thread {record.thread!r}, record {record.seq}"
            raise Corrupt(place, f"its hash is {record.hash}, in the target {found.hash}")


def _outcome_of(error: ClewError) -> Outcome:
    match error:
        case LeaseHeld():
            return "held"
        case Corrupt() | InvalidInput() | FormatTooNew() | NotFound(what="blob"):
            return "damaged"
        case AlreadyExists() | Conflict():
            return "unrelated"
        case _:
            return "blocked"


def _stopped(info: ThreadInfo, outcome: Outcome, reason: str) -> CopiedThread:
    return CopiedThread(thread=info.id, outcome=outcome, reason=reason)
