"""Records on their way from one engine to another.

`batches` reads them, a `Carrier` checks them and brings their blobs, `to_draft` makes them ready
to be appended. `Scaffolds` are for forks whose origin was purged: it is built up again in the
target for as long as the forks are being made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from clew.core.codec import digest, new_id
from clew.core.engine import Engine
from clew.core.errors import AlreadyExists, ClewError, Corrupt, NotFound
from clew.core.facts import is_time
from clew.core.hashes import record_hash
from clew.core.maintenance import Budget
from clew.core.model import (
    PAGE_MAX,
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
    ThreadInfo,
    ThreadQuery,
)
from clew.core.parts import loading
from clew.core.tombstones import PREFIX, used_blobs

BATCH_RECORDS = 500
BATCH_BYTES = 4 * 1024 * 1024


# --- looking up -----------------------------------------------------------------------------


def everything(engine: Engine, *, origin: str | None = None) -> Iterator[ThreadInfo]:
    """Every thread of an engine, archived and deleted ones as well; or every fork of one thread."""
    for deleted in (False, True):
        cursor = None
        while True:
            query = ThreadQuery(
                archived=None, deleted=deleted, origin=origin, limit=PAGE_MAX, cursor=cursor
            )
            page = engine.threads(query)
            yield from page.items
            if page.cursor is None:
                break
            last = page.items[-1]
            cursor = last.created_us, last.id


def find_thread(engine: Engine, id: str) -> ThreadInfo | None:
    try:
        return engine.thread(id)
    except NotFound:
        return None


def find_entry(engine: Engine, thread: str, id: str) -> Entry | None:
    """An entry that is visible in a thread; None if it, or the thread, is not there."""
    try:
        return engine.path(thread, id, limit=1)[0]
    except NotFound:
        return None


def holds(engine: Engine, thread: str, id: str, hash: str | None) -> bool:
    """Whether this very entry is visible in a thread."""
    entry = find_entry(engine, thread, id)
    return entry is not None and entry.hash == hash


# --- carrying -------------------------------------------------------------------------------


def to_draft(record: Record) -> Draft:
    """What a record was written from. An entry names its parent, wherever the leaf is."""
    if isinstance(record, Entry):
        return EntryDraft(
            id=record.id,
            kind=record.kind,
            data=record.data,
            time_us=record.time_us,
            parent=record.parent,
            turn=record.turn,
            format=record.format,
            meta_data=record.meta_data,
            blobs=record.blobs,
            whole=True,
            tombstone=record.tombstone,
            known_hash=None if record.tombstone is None else record.body_hash,
        )
    if isinstance(record, Move):
        return MoveDraft(id=record.id, leaf=record.leaf, time_us=record.time_us)
    assert isinstance(record, Fact)
    return FactDraft(id=record.id, key=record.key, data=record.data, time_us=record.time_us)


def erasure_of(target: Engine, record: Record) -> str | None:
    """The entry of a thread in a target that a record of its source says to be erased.

    None if the record says no such thing, or if it is not there, or erased there as well.
    """
    if not isinstance(record, Fact) or not record.key.startswith(PREFIX):
        return None
    entry = find_entry(target, record.thread, record.key.removeprefix(PREFIX))
    return None if entry is None or entry.tombstone is not None else entry.id


def erase_as(target: Engine, record: Record) -> list[Record]:
    """Erase in a target what a record of its source says to be erased; the record that tells."""
    assert isinstance(record, Fact)
    value = record.value if isinstance(record.value, dict) else {}
    time_us, reason = value.get("time_us"), value.get("reason")
    if time_us is None or not is_time(time_us) or not isinstance(reason, str | None):
        place = f"thread {record.thread!r}, record {record.seq}"
        raise Corrupt(place, "it does not say when an entry was erased")
    id = record.key.removeprefix(PREFIX)
    target.erase(record.thread, [id], time_us=time_us, reason=reason)
    return target.read(record.thread, after=target.thread(record.thread).seq - 1, limit=1)


def _has_body(entry: Entry) -> bool:
    """Whether the body is what was written, or was erased and is known to be."""
    return entry.tombstone is not None or digest(entry.data) == entry.body_hash


def size_of(record: Record) -> int:
    """Roughly, in bytes: enough to keep batches from growing too large."""
    return 200 if isinstance(record, Move) else 200 + len(getattr(record, "data", b""))


def batches(engine: Engine, thread: str, after: int, until: int) -> Iterator[list[Record]]:
    """The records after one seq up to another, some at a time: fewer where they are large."""
    count = BATCH_RECORDS
    while after < until:
        found = engine.read(thread, after=after, limit=min(count, until - after))
        if not found:
            return
        size = sum(map(size_of, found))
        if size > BATCH_BYTES:
            count = max(1, count // 2)
        elif size < BATCH_BYTES // 4:
            count = min(BATCH_RECORDS, count * 2)
        after = found[-1].seq
        yield found


def duplicate(
    engine: Engine, source: ThreadInfo, id: str, created_us: int, origin: Origin | None
) -> None:
    """Write every record of a thread to a new one in the same engine, in one step."""
    records = [record for batch in batches(engine, source.id, 0, source.seq) for record in batch]
    made = engine.create(
        ThreadDraft(id=id, created_us=created_us, parent=source.parent, origin=origin)
    )
    if made.seq:
        raise AlreadyExists("thread", id)  # the same thread was made before, and has moved on
    try:
        if records:
            engine.append(id, [to_draft(record) for record in records])
    except BaseException:
        # Without its records it would look like an empty thread, and stand in the way.
        engine.purge(id)
        raise


def rename(engine: Engine, thread: ThreadInfo, id: str) -> None:
    """Keep a thread under another id; forks of it keep what they share. Its lease is over.

    Killed in between, the thread is there under both.
    """
    origin = thread.origin
    if origin is not None:
        # What it was forked from may have been purged; it has that entry itself, in any case.
        origin = replace(origin, thread=thread.id)
    duplicate(engine, thread, id, thread.created_us, origin)
    engine.purge(thread.id)


def files_of(engine: Engine, snapshot: Entry) -> list[str]:
    """The blobs of the tree that a snapshot holds; none if it was dropped and swept.

    An entry names the tree only, and each folder in it the next ones.
    """
    with loading("clew.snapshots"):
        from clew.snapshots.tree import Trees

    body = snapshot.body
    tree = body.get("tree") if isinstance(body, dict) else None
    return Trees(engine).blobs(tree) if isinstance(tree, str) else []


class Carried(Struct):
    """How much has been written so far."""

    records: int = 0
    blobs: int = 0
    blob_bytes: int = 0


class Carrier:
    """Checks the records of one thread, and brings their blobs.

    The source is checked before anything is written: damage must not come out at the other
    side with a fresh hash that vouches for it.
    """

    def __init__(self, source: Engine, target: Engine, thread: str, carried: Carried) -> None:
        self._source = source
        self._target = target
        self._thread = thread
        self._carried = carried
        self._hashes: dict[str, str] = {}

    def check(self, records: Sequence[Record]) -> None:
        """Corrupt if one does not match its hash. A thread's batches come in their order."""
        for record in records:
            wrong = None
            if record_hash(record, self._parent_hash(record)) != record.hash:
                wrong = "it"
            elif isinstance(record, Entry) and not _has_body(record):
                wrong = "its body"
            if wrong is not None:
                place = f"thread {record.thread!r}, record {record.seq}"
                text = f"{wrong} does not match its hash; run clew verify on the source"
                raise Corrupt(place, text)
            self._hashes[record.id] = record.hash

    def _parent_hash(self, record: Record) -> str | None:
        if not isinstance(record, Entry) or record.parent is None:
            return None
        known = self._hashes.get(record.parent)
        if known is None:  # it came before the first batch, or is inherited
            parent = find_entry(self._source, self._thread, record.parent)
            known = "" if parent is None else parent.hash
        return known

    def bring_blobs(self, records: Sequence[Record]) -> None:
        """Put those blobs that entries name and that the target lacks, a few at a time."""
        entries = [record for record in records if isinstance(record, Entry)]
        named = dict.fromkeys(hash for entry in entries for hash in used_blobs(entry))
        for entry in entries:
            if entry.kind == "snapshot" and entry.tombstone is None:
                named.update(dict.fromkeys(files_of(self._source, entry)))
        there = self._target.renew_blobs(named)  # a sweep of the target leaves what is young
        waiting: list[bytes] = []
        for hash in named:
            if hash not in there:
                waiting.append(self._source.get_blob(hash))
                if sum(map(len, waiting)) > BATCH_BYTES:
                    self._put(waiting)
        self._put(waiting)

    def _put(self, waiting: list[bytes]) -> None:
        if waiting:
            self._target.put_blobs(waiting)
            self._carried.blobs += len(waiting)
            self._carried.blob_bytes += sum(map(len, waiting))
            waiting.clear()


# --- scaffolds ------------------------------------------------------------------------------

_FILLED_BYTES = 16 * 1024 * 1024  # so large a store may always have been, before a purge
MARK = "clew.scaffold"  # the parent of a thread that is only a scaffold

Group = tuple[str, list[Entry]]  # the id of a thread, and the entries of it on a path


class Blocked(ClewError):
    """A scaffold cannot stand: another thread has its id, which is `thread`."""

    thread: str


def inherited(source: Engine, fork: ThreadInfo) -> list[Group]:
    """The path that a fork inherits, thread by thread, from the root to its origin."""
    origin = fork.origin
    assert origin is not None
    path = [] if origin.entry is None else source.path(fork.id, origin.entry)
    groups: list[Group] = []
    for entry in path:
        # A smaller seq under the same id is a thread that was made anew after a purge.
        if not groups or groups[-1][0] != entry.thread or groups[-1][1][-1].seq >= entry.seq:
            groups.append((entry.thread, []))
        groups[-1][1].append(entry)
    if not groups or groups[-1][0] != origin.thread:
        groups.append((origin.thread, []))  # it had inherited the entry itself
    return groups


class Scaffolds:
    """Purged threads, built up again in one target. `close` takes them down.

    A fork can only be made from a thread that is there, under the id that it had. What the source
    still has of a purged one is what its forks share, and so all that is needed.
    """

    def __init__(self, source: Engine, target: Engine, carried: Carried) -> None:
        self._source = source
        self._target = target
        self._carried = carried
        self._standing: set[str] = set()
        self._prepared: dict[str, Origin] = {}
        self._fillers = Budget(source.stats().stored_bytes + _FILLED_BYTES)
        left = ThreadQuery(parent=MARK, limit=PAGE_MAX)
        while found := target.threads(left).items:
            for info in found:  # an interrupted copy has left them behind
                target.purge(info.id)

    def provide(self, fork: ThreadInfo) -> None:
        """See to it that a fork can be created: that its origin is there, then its id is free."""
        origin = fork.origin
        if origin is not None and not self._is_there(origin):
            prepared = self._prepared.get(fork.id)
            if prepared is None:
                self._build(fork.id, inherited(self._source, fork))
            else:
                self._raise(fork.id, origin.thread, [], prepared)
        self.make_room(fork.id)

    def prepare(self, fork: ThreadInfo) -> None:
        """Build what a fork needs before anything is copied that takes the ids for it away."""
        base = self._build(fork.id, inherited(self._source, fork))
        if base is not None and base.entry is not None:
            self._prepared[fork.id] = self._bridge(base, 0)

    def make_room(self, id: str) -> None:
        """Take down the scaffold that has an id, if there is one."""
        if id in self._standing:
            self._target.purge(id)
            self._standing.remove(id)

    def close(self) -> None:
        for id in list(self._standing):
            self.make_room(id)

    def _is_there(self, origin: Origin) -> bool:
        if origin.entry is None:
            return find_thread(self._target, origin.thread) is not None
        return holds(self._target, origin.thread, origin.entry, origin.hash)

    def _build(self, fork: str, groups: Sequence[Group]) -> Origin | None:
        done, base = self._foundation(groups)
        for name, entries in groups[done:]:
            base = self._raise(fork, name, entries, base)
        return base

    def _foundation(self, groups: Sequence[Group]) -> tuple[int, Origin | None]:
        """How many of the groups the target has already, and the entry where they end."""
        for n in range(len(groups), 0, -1):
            name, entries = groups[n - 1]
            if entries and holds(self._target, name, entries[-1].id, entries[-1].hash):
                return n, Origin(name, entries[-1].id, entries[-1].hash)
        return 0, None

    def _raise(self, fork: str, name: str, entries: list[Entry], base: Origin | None) -> Origin:
        """One storey: a thread of this id that has these entries, on top of `base`."""
        there = find_thread(self._target, name)
        if there is not None and name not in self._standing:
            text = f"it was forked from {name!r}, but the target has another thread there"
            raise Blocked(text, thread=name)
        missing = entries
        if there is not None and self._can_extend(there, entries):
            missing = [entry for entry in entries if entry.seq > there.seq]
        else:
            base = self._begin(name, base, entries[0].time_us if entries else 0)
        self._fill(fork, name, missing)
        last = entries[-1] if entries else None
        if last is not None:
            return Origin(name, last.id, last.hash)
        return Origin(name, None, None) if base is None else replace(base, thread=name)

    def _can_extend(self, there: ThreadInfo, entries: list[Entry]) -> bool:
        """Whether what is missing can come after what stands, at the seqs that it had.

        If not, the scaffold is taken down and built anew: forks that were made from it keep what
        they share.
        """
        present = [entry for entry in entries if entry.seq <= there.seq]
        missing = entries[len(present) :]
        if not missing or find_entry(self._target, there.id, missing[0].id) is not None:
            return False  # or it is there already, but inherited
        if present:
            return holds(self._target, there.id, present[-1].id, present[-1].hash)
        parent = entries[0].parent
        return parent is None or there.leaf == parent

    def _begin(self, name: str, base: Origin | None, time_us: int) -> Origin | None:
        if base is not None and base.thread == name:
            base = self._bridge(base, time_us)
        self.make_room(name)
        self._create(name, base, time_us)
        return base

    def _bridge(self, base: Origin, time_us: int) -> Origin:
        """A thread that holds a path under an id of its own: a thread cannot be its own origin."""
        name = f"{MARK}.{new_id()}"
        self._create(name, base, time_us)
        return replace(base, thread=name)

    def _create(self, name: str, base: Origin | None, time_us: int) -> None:
        draft = ThreadDraft(id=name, created_us=time_us, parent=MARK, origin=base)
        self._target.create(draft)
        self._standing.add(name)

    def _fill(self, fork: str, name: str, entries: list[Entry]) -> None:
        carrier = Carrier(self._source, self._target, fork, self._carried)
        carrier.check(entries)
        carrier.bring_blobs(entries)
        seq = self._target.thread(name).seq
        missing = entries[-1].seq - seq - len(entries) if entries else 0
        if not self._fillers.take(max(0, missing)):
            text = f"it is said to have had {missing:,} records that are not there any more"
            raise Corrupt(f"what is left of the purged thread {name!r:.200}", text)
        queue = with_fillers(entries, seq)
        hashes = {entry.id: (entry.seq, entry.hash) for entry in entries}
        while batch := list(islice(queue, BATCH_RECORDS)):
            for record in self._target.append(name, batch):
                if hashes.get(record.id, (record.seq, record.hash)) != (record.seq, record.hash):
                    raise Corrupt(f"thread {name!r}, record {record.seq}", "it came out different")


def with_fillers(entries: Sequence[Entry], seq: int) -> Iterator[Draft]:
    """Drafts of the entries with empty facts between them, so that each gets the seq it had."""
    for entry in entries:
        while seq + 1 < entry.seq:
            yield FactDraft(id=new_id(), key=MARK, data=b"null", time_us=entry.time_us)
            seq += 1
        yield to_draft(entry)
        seq += 1
