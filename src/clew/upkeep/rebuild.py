"""A new store from what was salvaged of a damaged one, written through the waist.

Entries keep their ids, times, order and bodies. A lost entry becomes a placeholder that says so,
under the id that it had, so that what hangs on it still hangs on something. A lost move or fact
leaves an empty fact in its place, so that the records after it keep their seqs. Threads that
were purged are made, forked and purged again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import islice, pairwise

from msgspec import UNSET, Struct
from msgspec.structs import replace

from clew.core.codec import decode, encode, new_id
from clew.core.engine import Engine, Progress
from clew.core.errors import (
    AlreadyExists,
    ClewError,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    TooLarge,
)
from clew.core.maintenance import Lost, Salvage, SalvagedThread
from clew.core.model import (
    DEFAULT_NAMESPACE,
    Draft,
    Entry,
    EntryDraft,
    Fact,
    FactDraft,
    Move,
    MoveDraft,
    Origin,
    Record,
    ThreadDraft,
)
from clew.upkeep.transfer import BATCH_BYTES, BATCH_RECORDS, find_entry, size_of, to_draft

LOST_KEY = "clew.lost"
# What an engine says to drafts that Clew never wrote: made by others, with all the right hashes.
_REFUSALS = (AlreadyExists, Conflict, Corrupt, InvalidInput, NotFound, TooLarge)
_ABOVE_MAX = 100  # entries whose whole paths are compared


class LostBlob(Struct, frozen=True, kw_only=True):
    """A blob that an entry names and that is not there, or not whole."""

    namespace: str = DEFAULT_NAMESPACE
    thread: str
    entry: str
    blob: str
    reason: str


class Tally(Struct):
    """What has come of a repair so far."""

    threads: int = 0
    records: int = 0
    blobs: int = 0
    placeholders: int = 0
    rehashed: int = 0
    lost: list[Lost] = []
    lost_blobs: list[LostBlob] = []

    def add(self, namespace: str, other: Tally) -> None:
        """Count in what came of a namespace."""
        for name in ("threads", "records", "blobs", "placeholders", "rehashed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lost += [replace(lost, namespace=namespace) for lost in other.lost]
        self.lost_blobs += [replace(lost, namespace=namespace) for lost in other.lost_blobs]


def rebuild(salvage: Salvage, target: Engine, progress: Progress | None = None) -> Tally:
    """Write everything that was salvaged into an empty engine."""
    work = _Rebuild(salvage, target, progress)
    work.run()
    return work.tally


class _Rebuild:
    """One namespace: its threads, in an order in which each finds what it hangs on."""

    def __init__(self, salvage: Salvage, target: Engine, progress: Progress | None) -> None:
        self._salvage = salvage
        self._target = target
        self._progress = progress
        self.tally = Tally()
        self._threads = _in_creation_order(salvage.threads())
        self._ids = {thread.key: thread.draft.id for thread in self._threads}
        self._hung_on = _HungOn(self._threads)
        self._wanted: dict[str | None, list[str | None]] = {}  # what forks begin at
        for thread in self._threads:
            origin = thread.draft.origin
            if origin is not None and self._needs(thread, origin):
                self._wanted.setdefault(thread.origin_key, []).append(origin.entry)
        self._standing: set[str] = set()  # ids of purged threads that forks may still need
        self._total = sum(thread.size for thread in self._threads)
        self._done = 0

    def run(self) -> None:
        self._put_loose_blobs()
        for thread in self._threads:
            if thread.draft.id in self._standing:
                self._target.purge(thread.draft.id)
                self._standing.remove(thread.draft.id)
            self._write(thread)
            if thread.purged:
                self._standing.add(thread.draft.id)
            else:
                self.tally.threads += 1
        for id in self._standing:
            self._target.purge(id)

    def _put_loose_blobs(self) -> None:
        for hash in self._salvage.loose_blobs():
            try:
                self._target.put_blobs([self._salvage.blob(hash)])
                self.tally.blobs += 1
            except ClewError as error:
                if error.code == "unavailable":
                    raise
                # An entry that names it is reported with it; one that no entry names is no loss.

    def _write(self, thread: SalvagedThread) -> None:
        self._create(thread)
        plan = _Plan(self._target, thread, self._wanted.get(thread.key, []))
        writer = _Writer(self._salvage, self._target, thread, plan, self.tally)
        for item in thread.records():
            writer.take(item)
            self._tell()
        writer.end()

    def _create(self, thread: SalvagedThread) -> None:
        """What no engine takes was not written by Clew: its records are kept, under another id."""
        try:
            self._target.create(replace(thread.draft, origin=self._origin(thread), facts=()))
        except _REFUSALS as error:
            draft = ThreadDraft(id=f"lost-thread-{new_id()}", created_us=0)
            text = f"thread {thread.draft.id!r:.200} cannot be made ({error}); it is kept as"
            self._salvage.notes.append(f"{text} {draft.id!r}, without its origin")
            self._target.create(draft)
            thread.draft = draft
            self._ids[thread.key] = draft.id

    def _origin(self, thread: SalvagedThread) -> Origin | None:
        """Where the fork begins, with the hash that the entry has now."""
        origin = thread.draft.origin
        if origin is None:
            return None
        source = self._ids.get(thread.origin_key or "", origin.thread)
        if origin.entry is None:
            return Origin(source, None, None)
        entry = find_entry(self._target, source, origin.entry)
        if entry is None and thread.purged:
            entry = self._last_shared(source, thread)
        if entry is None:
            return None  # the salvage has said why, or nothing of the origin is needed
        return Origin(source, entry.id, entry.hash)

    def _needs(self, thread: SalvagedThread, origin: Origin) -> bool:
        """Whether what a fork begins at must be there: of a purged one it may have gone as well."""
        if not thread.purged or any(isinstance(item, Lost) for item in thread.records()):
            return True
        return origin.entry is not None and self._hung_on.has(thread.key, origin.entry)

    def _last_shared(self, source: str, thread: SalvagedThread) -> Entry | None:
        """The last entry, visible in its origin, that something left of a purged one hangs on."""
        ids = self._hung_on.of(thread.key)
        above = (id for id in ids if find_entry(self._target, source, id) is not None)
        paths = [self._target.path(source, id) for id in islice(above, _ABOVE_MAX)]
        return max(paths, key=len)[-1] if paths else None

    def _tell(self) -> None:
        self._done += 1
        if self._progress is not None and self._done % 100 == 0:
            self._progress(min(self._done, self._total), self._total)


class _Plan:
    """What becomes of the lost records of a thread: which of them were entries, and their ids.

    Whatever is named as a parent, as a leaf or as a fork's origin was an entry. If nothing says
    where it stood, it was most likely the last lost record before it is first named. A record of
    which only the id is known gets a placeholder too: one too many is better than a message
    that vanished without a trace.
    """

    def __init__(self, target: Engine, thread: SalvagedThread, wanted: list[str | None]) -> None:
        self._target = target
        self._id = thread.draft.id
        self.own: set[str] = set()
        self.named: dict[str, int | None] = {}  # an id that is not there → where it is first named
        self.lost: list[Lost] = []
        for item in thread.records():
            self._note(item)
        if self.lost and thread.leaf is not UNSET:
            wanted = [*wanted, thread.leaf]
        for id in wanted:
            self._name(id, None)
        for id in self.own:
            self.named.pop(id, None)
        # Lost record by seq → the id of its placeholder; and those that have no place of theirs.
        self.placeholders: dict[int, str] = {}
        self.extra: dict[int | None, list[str]] = {}
        self._assign()

    def _note(self, item: Record | Lost) -> None:
        if isinstance(item, Lost):
            self.lost.append(item)
        elif isinstance(item, Entry):
            self._name(item.parent, item.seq)
            self.own.add(item.id)
        elif isinstance(item, Move):
            self._name(item.leaf, item.seq)

    def _name(self, id: str | None, seq: int | None) -> None:
        if id is None or id in self.own or id in self.named:
            return
        if find_entry(self._target, self._id, id) is None:  # not inherited either
            self.named[id] = seq

    def _assign(self) -> None:
        free: list[int] = []  # by seq, as the next one is
        doubtful: list[int] = []
        for lost in self.lost:
            if lost.seq is None:
                continue
            if lost.id is not None and lost.sort in ("entry", "record"):
                self.placeholders[lost.seq] = lost.id
                # A damaged row may have a damaged id: one that no other record names gives way.
                if lost.id not in self.named:
                    insort(doubtful, lost.seq)
            elif lost.sort in ("entry", "record"):
                insort(free, lost.seq)
        given = set(self.placeholders.values())
        for id in [id for id in self.named if id not in given]:
            self._find_place(id, free, doubtful)
        left = set(free)
        for lost in self.lost:
            if lost.sort == "entry" and lost.seq is not None and lost.seq in left:
                self.placeholders[lost.seq] = new_id()

    def _find_place(self, id: str, free: list[int], doubtful: list[int]) -> None:
        """The last one before it is first named."""
        before = self.named[id]
        for seqs in (free, doubtful):
            at = len(seqs) if before is None else bisect_left(seqs, before)
            if at > 0:
                self.placeholders[seqs.pop(at - 1)] = id
                return
        self.extra.setdefault(before, []).append(id)


class _Writer:
    """Appends what there is of one thread, in batches."""

    def __init__(
        self,
        salvage: Salvage,
        target: Engine,
        thread: SalvagedThread,
        plan: _Plan,
        tally: Tally,
    ) -> None:
        self._salvage = salvage
        self._target = target
        self._thread = thread
        self._plan = plan
        self._tally = tally
        info = target.thread(thread.draft.id)
        self._seq = info.seq
        self._last = info.leaf  # the last entry before a lost one
        self._time_us = info.updated_us
        self._deleted: bytes | None = None  # the value of the tombstone, while there is one
        self._seen: set[str] = set()
        self._batch: list[Draft] = []
        self._hashes: dict[str, str] = {}
        self._bytes = 0

    def take(self, item: Record | Lost) -> None:
        if isinstance(item, Lost):
            self._take_lost(item)
        elif item.id in self._seen:
            place = f"thread {item.thread!r}, record {item.seq}"
            reason = "another record has its id"
            self._drop(Lost(place=place, reason=reason, seq=item.seq, id=item.id))
        elif not self._hangs(item):
            place = f"thread {item.thread!r}, record {item.seq}"
            reason = "what it hangs on comes after it"
            lost = Lost(place=place, reason=reason, seq=item.seq, id=item.id)
            if isinstance(item, Entry):
                self._add_placeholder(item.id, lost)
            else:
                self._drop(lost)
        else:
            self._take_record(item)

    def _hangs(self, record: Record) -> bool:
        """Whether what an entry or a move refers to is there by now."""
        for id in self._plan.extra.get(record.seq, ()):
            self._add_placeholder(id, Lost(place=f"entry {id}", reason="its record is gone"))
        on = record.parent if isinstance(record, Entry) else getattr(record, "leaf", None)
        return on is None or self._has(on)

    def end(self) -> None:
        for id in self._plan.extra.get(None, ()):
            self._add_placeholder(id, Lost(place=f"entry {id}", reason="its record is gone"))
        self._flush()
        self._stand()

    def _take_record(self, record: Record) -> None:
        if self._thread.purged:
            self._fill(record.seq)
        draft = to_draft(record)
        if isinstance(draft, EntryDraft):
            draft = self._with_blobs(draft)
            self._last = draft.id
        elif isinstance(record, Fact) and record.key == "deleted_us":
            self._deleted = None if record.value is None else record.data
        restores = isinstance(record, Fact) and record.key == "deleted_us"
        if self._deleted is not None and not restores:
            # Its restoration is among what is lost: nothing else can follow a deletion.
            self._add(_empty_fact("deleted_us", record.time_us))
            self._deleted = None
        self._hashes[record.id] = record.hash
        self._time_us = record.time_us
        self._tally.records += 1
        self._add(draft, size_of(record))

    def _with_blobs(self, draft: EntryDraft) -> EntryDraft:
        """The entry without the blobs that are gone, which are noted in its meta instead.

        An entry must not name a blob that is not there; what it named is not forgotten.
        """
        gone = []
        for hash in draft.blobs if draft.tombstone is None else ():
            if self._target.renew_blobs([hash]):
                continue
            try:
                self._target.put_blobs([self._salvage.blob(hash)])
                self._tally.blobs += 1
            except ClewError as error:
                if error.code == "unavailable":
                    raise
                gone.append(hash)
                thread = self._thread.draft.id
                lost = LostBlob(thread=thread, entry=draft.id, blob=hash, reason=str(error))
                self._tally.lost_blobs.append(lost)
        if not gone:
            return draft
        meta = {} if draft.meta_data is None else decode(draft.meta_data)
        meta["lost_blobs"] = gone
        kept = tuple(hash for hash in draft.blobs if hash not in gone)
        return replace(draft, blobs=kept, meta_data=encode(meta))

    # --- what is lost ---

    def _take_lost(self, lost: Lost) -> None:
        id = None if lost.seq is None else self._plan.placeholders.get(lost.seq)
        if id is None or id in self._seen:
            self._drop(lost)
        else:
            self._add_placeholder(id, lost)

    def _drop(self, lost: Lost) -> None:
        self._tally.lost.append(replace(lost, thread=self._thread.draft.id))
        if self._deleted is not None:  # nothing but its tombstone can be set, so that is set again
            self._add(replace(_empty_fact("deleted_us", self._time_us), data=self._deleted))
        elif not self._thread.purged:
            self._add(_empty_fact(LOST_KEY, self._time_us))

    def _add_placeholder(self, id: str, lost: Lost) -> None:
        parent = self._last
        if isinstance(lost.parent, str) and self._has(lost.parent):
            parent = lost.parent
        if self._thread.purged and lost.seq is not None:
            self._fill(lost.seq)
        thread = self._thread.draft.id
        self._tally.lost.append(replace(lost, thread=thread, id=id, sort="entry", parent=UNSET))
        self._tally.placeholders += 1
        if self._deleted is not None:
            self._add(_empty_fact("deleted_us", self._time_us))
            self._deleted = None
        body = {"lost": {"place": lost.place, "reason": lost.reason, "seq": lost.seq}}
        draft = EntryDraft(
            id=id, kind="custom", data=encode(body), time_us=self._time_us, parent=parent
        )
        self._last = id
        self._add(draft)

    def _has(self, id: str) -> bool:
        return id in self._seen or find_entry(self._target, self._thread.draft.id, id) is not None

    def _fill(self, seq: int) -> None:
        """Bring a record of a purged thread to the seq that it had, if that can be right."""
        missing = seq - self._seq - 1
        if missing <= 0:
            return
        if not self._salvage.budget.take(missing):
            text = (
                f"record {seq:,} of the purged thread {self._thread.draft.id!r:.200} gets another"
            )
            self._salvage.notes.append(f"{text} seq: so many cannot have been before it")
            return
        for _ in range(missing):
            self._add(_empty_fact(LOST_KEY, self._time_us))

    # --- writing ---

    def _add(self, draft: Draft, size: int = 200) -> None:
        self._seq += 1
        self._seen.add(draft.id)
        self._batch.append(draft)
        self._bytes += size
        if len(self._batch) >= BATCH_RECORDS or self._bytes > BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._batch:
            return
        try:
            written = self._target.append(self._thread.draft.id, self._batch)
        except _REFUSALS:
            written = [record for draft in self._batch for record in self._append_alone(draft)]
        for record in written:
            known = self._hashes.get(record.id, record.hash)
            self._tally.rehashed += isinstance(record, Entry) and record.hash != known
        self._batch.clear()
        self._hashes.clear()
        self._bytes = 0

    def _append_alone(self, draft: Draft) -> list[Record]:
        """One draft of a batch that was refused; what is to blame leaves a placeholder, if it can.

        What hangs on it then has something to hang on.
        """
        id = self._thread.draft.id
        try:
            return self._target.append(id, [draft])
        except _REFUSALS as error:
            lost = Lost(place=f"record {draft.id!r:.200}", reason=str(error), thread=id)
        self._tally.lost.append(lost)
        self._tally.records -= 1
        body = encode({"lost": {"place": lost.place, "reason": lost.reason, "seq": None}})
        stand_ins: list[Draft] = [_empty_fact(LOST_KEY, self._time_us)]
        if isinstance(draft, EntryDraft):
            entry = EntryDraft(id=draft.id, kind="custom", data=body, time_us=self._time_us)
            stand_ins.insert(0, entry)
        for stand_in in stand_ins:
            try:
                return self._target.append(id, [stand_in])
            except _REFUSALS:
                continue  # a deleted thread takes nothing at all
        return []

    def _stand(self) -> None:
        """Back to where the thread stood, if a move to it may be among what is lost."""
        leaf = self._thread.leaf
        if not self._plan.lost or leaf is UNSET or self._thread.purged or self._deleted is not None:
            return
        id = self._thread.draft.id
        if self._target.thread(id).leaf != leaf and (leaf is None or self._has(leaf)):
            self._target.append(id, [MoveDraft(id=new_id(), leaf=leaf, time_us=self._time_us)])


def _empty_fact(key: str, time_us: int) -> FactDraft:
    return FactDraft(id=new_id(), key=key, data=b"null", time_us=time_us)


# --- how the salvaged threads depend on each other --------------------------------------------


def _in_creation_order(threads: Iterable[SalvagedThread]) -> list[SalvagedThread]:
    """Origins before forks, and threads that shared an id one after the other.

    An id can only be used again after its thread was purged, and so after all forks of that one
    were made. The thread that has the id now is the last.
    """
    known = {thread.key: thread for thread in threads}
    forks: dict[str, list[str]] = {}
    by_id: dict[str, list[SalvagedThread]] = {}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for thread in known.values():
        sorter.add(thread.key)
        if thread.origin_key in known:
            sorter.add(thread.key, thread.origin_key)
            forks.setdefault(thread.origin_key, []).append(thread.key)
        by_id.setdefault(thread.draft.id, []).append(thread)
    for same in by_id.values():
        same.sort(key=lambda thread: not thread.purged)
        for earlier, later in pairwise(same):
            sorter.add(later.key, earlier.key, *forks.get(earlier.key, ()))
    try:
        return [known[key] for key in sorter.static_order()]
    except CycleError:
        return list(known.values())  # damage has made a circle: any order is as good


class _HungOn:
    """By the key of a purged thread: the parents of what is left of it, and of its purged forks.

    What a purged thread began at may have gone with it, if no fork's path ran through that. What
    is left then hangs further up, where it is found through threads of which nothing is left.
    """

    def __init__(self, threads: Sequence[SalvagedThread]) -> None:
        self._parents: dict[str, set[str]] = {}  # of what is left of each one itself
        self._forks: dict[str | None, list[str]] = {}
        for thread in threads:
            if thread.purged:
                self._forks.setdefault(thread.origin_key, []).append(thread.key)
                self._parents[thread.key] = {
                    item.parent
                    for item in thread.records()
                    if isinstance(item, Entry) and item.parent is not None
                }
        # Each thread and all that was forked from it get numbers in a row, so that no thread has to
        # remember what its forks do: forks of forks may be as many as there are threads.
        self._rows: dict[str, tuple[int, int]] = {}
        self._order: list[str] = []
        for thread in threads:
            self._number(thread.key)
        self._places: dict[str, list[int]] = {}
        for n, key in enumerate(self._order):
            for id in self._parents.get(key, ()):
                self._places.setdefault(id, []).append(n)

    def _number(self, top: str) -> None:
        todo = [(top, False)]
        while todo:
            key, left = todo.pop()
            if left:
                self._rows[key] = self._rows[key][0], len(self._order)
            elif key not in self._rows:
                self._rows[key] = len(self._order), len(self._order) + 1
                self._order.append(key)
                todo.append((key, True))
                todo += [(fork, False) for fork in self._forks.get(key, ())]

    def has(self, key: str, id: str) -> bool:
        """Whether something hangs on an entry."""
        first, end = self._rows[key]
        places = self._places.get(id, [])
        at = bisect_left(places, first)
        return at < len(places) and places[at] < end

    def of(self, key: str) -> Iterator[str]:
        """All of them, once."""
        first, end = self._rows[key]
        keys = self._order[first:end]
        return iter(dict.fromkeys(id for key in keys for id in self._parents.get(key, ())))
