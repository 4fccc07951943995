"""One thread's replay: goes through its records and compares what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from clew.core.codec import digest
from clew.core.errors import Corrupt
from clew.core.hashes import record_hash, thread_hash
from clew.core.model import DEFAULT_NAMESPACE, Entry, Fact, Move, Origin, Problem, Record
from clew.engines.postgres.leases import lease_check
from clew.engines.postgres.rows import ENTRY, FACT, Place, to_bytes, to_hash, to_lease
from clew.engines.postgres.verify.streams import Beside, Link, RecordRow, Tables
from clew.engines.postgres.write import LISTED_FACTS
from clew.engines.shared.audit import Sums

NOWHERE = (None, None)


class ThreadRow(Struct, frozen=True):
    no: int
    id: str
    created_us: int
    updated_us: int
    listed_us: int | None
    seq: int
    leaf: str | None
    leaf_hash: bytes | None
    leaf_thread: int | None
    leaf_seq: int | None
    tail: str | None
    archived: bool
    purged: bool
    shelf: int
    deleted_us: int | None
    status: str | None
    workspace: str | None
    parent: str | None
    origin: str | None
    origin_entry: str | None
    origin_hash: bytes | None
    origin_thread: int | None
    origin_seq: int | None
    fence: int
    owner: str | None
    lease_turn: str | None
    leased_us: int
    until_us: int
    lease_check: int
    hash: bytes

    @property
    def source(self) -> Place | None:
        """Where the last shared entry is."""
        if self.origin_thread is None or self.origin_seq is None:
            return None
        return self.origin_thread, self.origin_seq

    @property
    def lease_is_odd(self) -> bool:
        state = to_lease((self.fence, self.owner, self.lease_turn, self.leased_us, self.until_us))
        if state.fence == 0:
            return self.lease_check != 0 or state != to_lease((0, None, None, 0, 0))
        try:
            right = lease_check(self.id, state)
        except UnicodeEncodeError:
            return True
        return "" in (self.owner, self.lease_turn) or self.lease_check != right


class Replay:
    """Keeps what the records of a thread should add up to.

    `source` is the entry that is where the thread says its origin is: its id and hash.
    """

    def __init__(
        self,
        row: ThreadRow,
        tables: Tables,
        *,
        quick: bool,
        source: tuple[str, str] | None,
        damaged: set[bytes],
    ) -> None:
        self._row = row
        self._tables = tables
        self._quick = quick
        self._source = source
        self._damaged_blobs = damaged
        self._namespace = tables.records.moment.book.namespace
        self._origin = None
        if row.origin is not None:
            self._origin = Origin(row.origin, row.origin_entry, to_hash(row.origin_hash))
        self._sums = Sums(row.created_us, self._origin)
        self._leaf_place: Place | None = row.source
        self._segments_wrong = False
        self._whole = True  # every record could be read
        self._records = 0

    def check(self, step: Callable[[], None]) -> Iterator[Problem]:
        no = self._row.no
        yield from self._check_row()
        self._segments = Beside(self._tables.segments.of(no))
        self._uses = Beside(self._tables.uses.of(no))
        for row in self._tables.records.of(no):
            step()
            self._records += 1
            if isinstance(row, RecordRow):
                yield from self._check_record(row)
            else:
                self._sums.seq = row[1]
                self._whole = False
                yield self._problem("damaged_record", "it cannot be read", row[1])
        yield from self._check_sums()

    def _check_row(self) -> Iterator[Problem]:
        row = self._row
        made = (row.id, row.created_us, row.parent)
        try:
            hash = thread_hash(*made, self._origin, self._namespace)
        except UnicodeEncodeError:
            hash = ""
        odd = "" in (row.id, row.parent, row.origin, row.origin_entry) or (
            (row.origin_entry is None) != (row.origin_hash is None)
            or (row.origin is None and row.origin_entry is not None)
            or (row.origin_thread is None) != (row.origin_seq is None)
        )
        if odd or hash != to_hash(row.hash):
            yield self._problem("damaged_thread", "its row does not match its hash")
        if row.lease_is_odd and not row.purged:
            yield self._problem("damaged_lease", "its lease is not as it was written")
        if not self._has_origin():
            text = f"the origin {row.origin_entry!r} is not there"
            yield self._problem("broken_origin", text)

    def _has_origin(self) -> bool:
        row = self._row
        if row.purged:
            return True  # what is kept of it hangs on what is kept of others, if on anything
        if row.origin_entry is None or row.source is None:
            return row.origin_entry is None and (row.origin_thread, row.origin_seq) == NOWHERE
        return self._source == (row.origin_entry, to_hash(row.origin_hash))

    # --- records ---

    def _check_record(self, row: RecordRow) -> Iterator[Problem]:
        gap = None if self._row.purged else self._sums.lacks(row.seq)
        if gap is not None:
            yield self._problem("gap", gap, row.seq - 1)
        record = row.to_record(self._row.id)
        link = self._link(row)
        if row.parent is not None and row.type != FACT and link is None:
            what = "parent" if row.type == ENTRY else "leaf"
            text = f"its {what} {row.parent!r} is not there"
            yield self._problem("broken_chain", text, row.seq, _entry_id(record))
        yield from self._check_hash(row, record, link)
        if isinstance(record, Entry):
            yield from self._check_body(row, record)
        yield from self._check_uses(row, record)
        if isinstance(record, Entry):
            self._check_segment(record, link)
            self._sums.take_entry(record)
            self._leaf_place = (row.thread, row.seq)
        elif isinstance(record, Move):
            self._sums.take_move(record, None if link is None else link.hash)
            self._leaf_place = None if link is None else link.place
        elif isinstance(record, Fact):
            self._sums.take_fact(self._with_value(row, record))

    def _link(self, row: RecordRow) -> Link | None:
        """The entry that an entry hangs on, or that a move goes to."""
        tail = self._sums.tail
        if row.parent is None:
            return None
        if tail is not None and row.parent == tail.id:
            return Link((row.thread, tail.seq), tail.hash)
        link = self._tables.records.links.get((row.thread, row.parent))
        return link if link is not None and link.place < (row.thread, row.seq) else None

    def _check_hash(self, row: RecordRow, record: Record, link: Link | None) -> Iterator[Problem]:
        text = None
        blob = None if row.type == ENTRY else row.blob  # an entry's hash is told without its body
        if blob is not None and blob not in self._tables.records.there:
            text = f"it cannot be read: blob {to_hash(blob)}: it is missing"
        elif blob in self._damaged_blobs:
            text = f"it cannot be read: blob {to_hash(blob)}: it is damaged"
        elif row.is_odd or row.seq < 1:
            text = "it is not as a record is written"
        else:
            parent_hash = None if link is None else link.hash
            if record_hash(record, parent_hash, to_hash(blob)) != record.hash:
                text = "it does not match its hash"
        if text is not None:
            yield self._problem("damaged_record", text, row.seq, _entry_id(record))

    def _check_body(self, row: RecordRow, entry: Entry) -> Iterator[Problem]:
        """The body of an entry is there, in the row or as a blob, and matches its own hash."""
        code, text = "damaged_body", None
        if row.blob is not None and row.blob not in self._tables.records.there:
            code, text = "missing_body", f"its body is blob {entry.body_hash}, which is missing"
        elif row.blob in self._damaged_blobs:
            text = f"its body is blob {entry.body_hash}, which is damaged"
        elif row.blob is None and row.body is None:
            code, text = "missing_body", "its body is missing"
        elif row.blob is None and not self._quick and digest(entry.data) != entry.body_hash:
            text = "its body does not match its hash"
        if text is not None:
            yield self._problem(code, text, row.seq, entry.id)

    def _check_uses(self, row: RecordRow, record: Record) -> Iterator[Problem]:
        """The blobs that a record names are there, and noted as used by it."""
        there = self._tables.records.there
        for hash in sorted(set(row.named)):
            if to_bytes(hash) not in there:
                text = f"it refers to blob {hash}, which is not there"
                problem = self._problem("missing_blob", text, row.seq, _entry_id(record))
                yield replace(problem, blob=hash)
        noted = {blob for _, _, blob in self._uses.at(row.seq)}
        if noted != row.uses:
            text = "the blobs that it uses are not noted"
            yield self._problem("wrong_sum", text, row.seq, _entry_id(record))

    def _check_segment(self, entry: Entry, link: Link | None) -> None:
        """A segment begins here if the entry does not continue the one before, and only then.

        Between the runs that forks kept of a purged thread nothing is left to tell that by.
        """
        stored = [(row[2], row[3]) for row in self._segments.at(entry.seq)]
        begun = [NOWHERE if link is None else link.place]
        wanted = [] if self._sums.continues(entry) else begun
        if stored != wanted and not (self._row.purged and not wanted and stored == begun):
            self._segments_wrong = True

    def _with_value(self, row: RecordRow, fact: Fact) -> Fact:
        """A fact with its value, if that is wanted and in a blob."""
        if row.blob is None or fact.key not in LISTED_FACTS:
            return fact
        try:
            return replace(fact, data=self._tables.records.body(row.blob))
        except Corrupt:
            return fact  # which was reported

    # --- what the records add up to ---

    def _check_sums(self) -> Iterator[Problem]:
        no, row = self._row.no, self._row
        facts = {key: seq for _, key, seq in self._tables.facts.of(no)}
        tags = {tag for _, tag in self._tables.tags.of(no)}
        if not self._whole:
            self._segments.end()
            self._uses.end()
            return  # nobody knows what it adds up to
        if self._segments.end() or self._segments_wrong:
            yield self._problem("wrong_sum", "its segments are not those of its entries")
        if left := self._uses.end():
            text = f"{left} rows of blob_uses refer to records that are not there"
            yield self._problem("orphans", text)
        if row.purged:
            yield from self._check_purged(bool(facts or tags))
            return
        if facts != {key: fact.seq for key, fact in self._sums.facts.items()}:
            yield self._problem("wrong_sum", "its facts are not the latest ones")
        if row.listed_us not in (None, row.updated_us):
            yield self._problem("wrong_sum", "its place in the list by update is not its update")
        try:
            wanted, head = self._sums.tags(), self._expected()
        except Corrupt:
            return  # its record was reported, or is not read in the quick form
        if tags != wanted:
            yield self._problem("wrong_sum", "its tags are not those of its facts")
        yield from self._compare(head)

    def _expected(self) -> dict[str, Any]:
        head = self._sums.head()
        shelf = 1 if head["archived"] else 0
        place = self._leaf_place or NOWHERE
        return head | {
            "leaf_hash": to_bytes(head["leaf_hash"]),
            "leaf_thread": place[0],
            "leaf_seq": place[1],
            "shelf": shelf if head["deleted_us"] is None else 2,
        }

    def _check_purged(self, listed: bool) -> Iterator[Problem]:
        """What is left of a purged thread are entries that forks share, and nothing else."""
        if listed or self._sums.facts:
            yield self._problem("wrong_sum", "it is purged, and has facts")
        if not self._records:
            yield self._problem("wrong_sum", "it is purged, and nothing of it is left to share")
        names = "leaf leaf_hash leaf_thread leaf_seq tail deleted_us status workspace owner"
        empty: dict[str, Any] = dict.fromkeys([*names.split(), "lease_turn"])
        yield from self._compare(empty | {"shelf": 3})

    def _compare(self, head: dict[str, Any]) -> Iterator[Problem]:
        for name, right in head.items():
            stored = getattr(self._row, name)
            if type(stored) is not type(right) or stored != right:
                text = f"{name} is {_show(stored)}, its records say {_show(right)}"
                yield self._problem("wrong_sum", text)

    def _problem(
        self, code: str, message: str, seq: int | None = None, entry: str | None = None
    ) -> Problem:
        return Problem(
            code=code,
            message=clean(message),
            thread=clean(self._row.id),
            seq=seq,
            entry=None if entry is None else clean(entry),
            namespace=told(self._namespace),
        )


def _entry_id(record: Record) -> str | None:
    return record.id if isinstance(record, Entry) else None


def _show(value: Any) -> str:
    return repr(to_hash(value) if isinstance(value, bytes) else value)


def clean(text: str) -> str:
    """Text that may have been damaged, as it can be shown."""
    return text.encode("utf-8", "replace").decode("utf-8")


def told(namespace: str) -> str | None:
    """As a problem names it: not at all if it is the default one."""
    return None if namespace == DEFAULT_NAMESPACE else namespace
