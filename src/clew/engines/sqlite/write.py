"""Writing: creating threads and appending records, inside a transaction that is open already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import apsw
from msgspec import Struct, UnsetType
from msgspec.structs import astuple

from clew.core.codec import to_hash
from clew.core.errors import Corrupt, InvalidInput, NotFound
from clew.core.facts import TIME_US_MAX, TIME_US_MIN
from clew.core.hashes import thread_hash
from clew.core.lease_rules import Instant, LeaseState
from clew.core.model import Draft, Entry, Fact, Origin, Record, ThreadDraft, ThreadInfo
from clew.core.reducer import NO_HASHES, Head, Plan, check_origin, check_recreated, plan
from clew.core.tombstones import used_blobs
from clew.engines.shared.compression import Packed
from clew.engines.shared.tables import record_rows, rows
from clew.engines.shared.tables.facts import set_fact
from clew.engines.shared.tables.namespaces import Space
from clew.engines.shared.tables.rows import Lineage, Lineages, one
from clew.engines.sqlite import blobs, leases

_HEAD = (
    "SELECT t.no, t.origin_no, t.listed_us, t.id, t.seq, t.leaf, t.leaf_hash, t.tail, t.updated_us,"
    f" t.deleted_us, h.no, h.type, h.id, h.hash, h.time_us, {leases.COLUMNS}"
    f" FROM {rows.THREADS} LEFT JOIN leases l ON l.thread = t.no"
    " WHERE t.space = +? AND t.id = +? AND t.shelf < 3"
)
_REMEMBERED_MAX = 1000


class Standing(Struct):
    """A thread as the next append finds it: its number and lineage, its head, its lease."""

    no: int
    lineage: Lineage
    listed_us: int | None
    head: Head
    lease: LeaseState | None


class Standings:
    """Where threads stand, remembered from one append of a connection to the next.

    SQLite counts the changes of a file as a connection sees them, its own and those of others. If
    the number after one transaction is that at the beginning of the next, nothing was written in
    between.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], Standing] = {}
        self._seen: tuple[apsw.Connection, int] | None = None

    def begin(self, db: apsw.Connection) -> None:
        """At the beginning of a transaction that writes."""
        if self._seen != (db, db.data_version()):
            self._known.clear()
        self._seen = None  # if it is rolled back, nothing is known of what it wrote

    def committed(self, db: apsw.Connection) -> None:
        self._seen = (db, db.data_version())

    def forget(self) -> None:
        """Before anything is written that is no append."""
        self._known.clear()

    def find(self, db: apsw.Connection, lineages: Lineages, space: int, thread: str) -> Standing:
        """NotFound if there is no such thread."""
        known = self._known.get((space, thread))
        if known is not None:
            return known
        row = one(db, _HEAD, (space, thread))
        if row is None:
            raise NotFound("thread", thread)
        if not 0 < row[0] <= rows.THREAD_NO_MAX:
            raise Corrupt(f"thread {thread!r}", f"its number is {row[0]}; run clew verify")
        if row[9] is not None and not TIME_US_MIN <= row[9] <= TIME_US_MAX:
            raise Corrupt(f"thread {thread!r}", f"it was deleted at {row[9]}; run clew verify")
        return Standing(
            row[0],
            lineages.of(db, row[1]),
            row[2],
            _head(row),
            None if row[15] is None else LeaseState(*row[15:]),
        )

    def note(self, space: int, thread: str, standing: Standing) -> None:
        """An append has left the thread so."""
        if len(self._known) >= _REMEMBERED_MAX:
            self._known.clear()
        self._known[space, thread] = standing


def _head(row: rows.Row) -> Head:
    """Where the thread stands: as its row says or, if there are records behind that, on the last.

    `rows.to_thread` tells readers the same.
    """
    no, type, leaf, hash, updated_us = row[10:15]
    if no is None:
        return Head(*row[3:10])
    if type != rows.ENTRY:
        raise Corrupt(f"thread {row[3]!r}", rows.BEHIND)
    if not (isinstance(leaf, str) and isinstance(hash, bytes) and isinstance(updated_us, int)):
        raise Corrupt(f"thread {row[3]!r}", "its last record cannot be read; run clew verify")
    return Head(row[3], no & rows.SEQ_MAX, leaf, to_hash(hash), leaf, updated_us, row[9])


def append(
    db: apsw.Connection,
    standings: Standings,
    lineages: Lineages,
    space: int,
    thread: str,
    drafts: Sequence[Draft],
    packed: Mapping[str, Packed],
    *,
    expect: str | UnsetType | None,
    fence: int | None,
    clock: Callable[[], Instant],
) -> list[Record]:
    """Plan the batch on what is stored now, then write what is new of it."""
    at = standings.find(db, lineages, space, thread)
    decided = plan(
        at.head,
        drafts,
        lambda id: record_rows.find(db, at.no, thread, at.lineage, id),
        expect=expect,
        fence=fence,
        lease=None if at.lease is None else at.lease.live(thread, clock()),
        hashes={id: blob.hash for id, blob in packed.items()} if packed else NO_HASHES,
    )
    if decided.new:
        only_entries = _write(db, space, at.no, at.lineage, decided, packed, clock)
        # Entries let the row stay behind, once it is out of the list by update: a page that every
        # append would change is a page that every append would write.
        if at.listed_us is not None or not only_entries:
            if decided.head.updated_us != at.listed_us:
                at.listed_us = None
            _stand(db, at.no, decided.head, at.listed_us)
        at.head = decided.head
    standings.note(space, thread, at)
    return decided.records


def _write(
    db: apsw.Connection,
    space: int,
    no: int,
    lineage: Lineage,
    decided: Plan,
    packed: Mapping[str, Packed],
    clock: Callable[[], Instant],
) -> bool:
    """Write the records; whether all of them are entries."""
    uses: dict[str, int] | None = None
    only_entries = True
    for record in decided.new:
        record_no = no << 32 | record.seq  # as `rows.number` says
        blob = packed.get(record.id) if packed else None
        body = None if blob is None else blobs.put(db, space, blob, clock().wall_us)
        rows.insert(db, record_no, record, body)
        if not isinstance(record, Entry):
            only_entries = False
            if isinstance(record, Fact):
                set_fact(db, no, record_no, record)
        elif record.blobs and record.tombstone is None:
            if uses is None:
                uses = _find_blobs(db, space, decided.new)
            blobs.use(db, record_no, [uses[hash] for hash in record.blobs])
    for id, parent in decided.starts.items():
        _start_segment(db, no, lineage, id, parent)
    return only_entries


def announce(
    db: apsw.Connection, space: int, at: Standing, decided: Plan, clock: Callable[[], Instant]
) -> None:
    """Write facts of the engine's own."""
    _write(db, space, at.no, at.lineage, decided, {}, clock)
    _stand(db, at.no, decided.head, at.listed_us)
    at.head = decided.head


def _stand(db: apsw.Connection, no: int, head: Head, listed_us: int | None) -> None:
    """Let a thread's row say where the thread stands."""
    db.execute(
        "UPDATE threads SET seq = ?, leaf = ?, leaf_hash = ?, tail = ?, updated_us = ?,"
        " listed_us = ? WHERE no = ?",
        (head.seq, head.leaf, head.leaf_hash, head.tail, head.updated_us, listed_us, no),
    )


def _find_blobs(db: apsw.Connection, space: int, records: Sequence[Record]) -> dict[str, int]:
    """The numbers of the blobs that entries refer to; all of them must be there."""
    wanted = [hash for record in records for hash in used_blobs(record)]
    found = blobs.numbers(db, space, wanted) if wanted else {}
    for hash in wanted:
        if hash not in found:
            raise InvalidInput("blobs", f"blob {hash!r} is not in the store; put it first")
    return found


def _start_segment(
    db: apsw.Connection, no: int, lineage: Lineage, first: str, parent: str | None
) -> None:
    db.execute(
        "INSERT INTO segments (first, parent) VALUES (?,?)",
        (
            rows.locate(db, no, (), first),
            None if parent is None else rows.locate(db, no, lineage, parent),
        ),
    )


# --- threads --------------------------------------------------------------------------------


def is_number_left(db: apsw.Connection) -> bool:
    """Whether a table of SQLite's own, which it counts on from, lets there be another thread."""
    last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'threads'").get
    return last is None or (isinstance(last, int) and last < rows.THREAD_NO_MAX)


def create(
    db: apsw.Connection,
    lineages: Lineages,
    space: Space,
    draft: ThreadDraft,
    packed: Mapping[str, Packed],
    clock: Callable[[], Instant],
) -> ThreadInfo:
    existing = _existing(db, space.no, draft)
    if existing is not None:
        return existing
    origin = draft.origin
    place = None if origin is None else _origin_place(db, lineages, space.no, origin)
    source, entry, hash = (None, None, None) if origin is None else astuple(origin)
    try:
        db.execute(
            "INSERT INTO threads (id, created_us, updated_us, listed_us, seq, leaf, leaf_hash,"
            " shelf, parent, origin, origin_entry, origin_hash, origin_no, hash, space)"
            " VALUES (?1,?2,?2,?2,0,?3,?4,0,?5,?6,?3,?4,?7,?8,?9)",
            (
                draft.id,
                draft.created_us,
                entry,
                hash,
                draft.parent,
                source,
                place,
                thread_hash(draft.id, draft.created_us, draft.parent, origin, space.name),
                space.no,
            ),
        )
    except apsw.FullError:
        # SQLite says the same of a full disk and of a file in which all numbers were given out.
        last = db.execute("SELECT max(no) FROM threads").get
        if is_number_left(db) and last <= rows.THREAD_NO_MAX:
            raise
        text = "no thread can get a number any more; run clew repair"
        raise Corrupt("table sqlite_sequence", text) from None
    no = db.last_insert_rowid()
    if not 0 < no <= rows.THREAD_NO_MAX:  # SQLite counts on from whatever the file says
        text = f"the next thread would have the number {no:,}; nothing was written"
        raise Corrupt("table sqlite_sequence", text)
    if draft.facts:
        head = Head(
            draft.id,
            leaf=entry,
            leaf_hash=hash,
            updated_us=draft.created_us,
        )
        hashes = {id: blob.hash for id, blob in packed.items()}
        decided = plan(head, draft.facts, lambda id: None, hashes=hashes)
        _write(db, space.no, no, (), decided, packed, clock)
        _stand(db, no, decided.head, draft.created_us)
    return rows.thread_row(db, space.no, draft.id).info(db)


def relist(db: apsw.Connection, space: int) -> None:
    """Bring the threads that have changed back into the index of what changed when."""
    db.execute(
        "UPDATE threads SET seq = now.seq, leaf = now.leaf, leaf_hash = now.leaf_hash,"
        " tail = now.tail, updated_us = now.updated_us, listed_us = now.updated_us FROM ("
        f"SELECT t.no AS no, {rows.SEQ} AS seq, ifnull(h.id, t.leaf) AS leaf,"
        " iif(h.no IS NULL, t.leaf_hash, 'b3:' || lower(hex(h.hash))) AS leaf_hash,"
        f" ifnull(h.id, t.tail) AS tail, {rows.UPDATED_US} AS updated_us FROM {rows.THREADS}"
        # What cannot be told stays as it is: to read it is an error.
        " WHERE t.space = ? AND t.listed_us IS NULL AND ifnull(h.type, 0) = 0"
        ") AS now WHERE threads.no = now.no",
        (space,),
    )


def _existing(db: apsw.Connection, space: int, draft: ThreadDraft) -> ThreadInfo | None:
    """The thread if this very draft made it; any other thread of that id is in the way."""
    try:
        row = rows.thread_row(db, space, draft.id)
    except NotFound:
        return None
    info, count = row.info(db), len(draft.facts)
    span = rows.everything_of(row.no)
    check_recreated(info, list(record_rows.scan(db, span, entries_only=False, limit=count)), draft)
    return info


def _origin_place(
    db: apsw.Connection, lineages: Lineages, space: int, origin: Origin
) -> int | None:
    source = rows.thread_row(db, space, origin.thread)
    if origin.entry is None:
        return None
    entry = record_rows.find(
        db, source.no, source.id, lineages.of(db, source.origin_no), origin.entry
    )
    if not isinstance(entry, Entry):
        raise NotFound("entry", origin.entry)
    check_origin(origin, entry.hash)
    return rows.locate(db, source.no, lineages.of(db, source.origin_no), origin.entry)
